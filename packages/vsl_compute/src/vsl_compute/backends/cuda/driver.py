"""Finds the CUDA devices of this machine, in the order of the runtime: CUDA_VISIBLE_DEVICES chooses and orders them."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ... import locks
from ...backend import Capabilities, DeviceInfo
from ...dtypes import ALL, DType
from ...errors import UnavailableError
from ...rows.functions import FUNCTIONS
from . import loader

if TYPE_CHECKING:
    from .backend import CUDABackend

OLDEST = (7, 0)  # compute capability: the first with independent threads; NVRTC 13 compiles for 7.5 and later
_EVERY = frozenset(FUNCTIONS)
_INTEGER = frozenset(name for name, f in FUNCTIONS.items() if f.kind == "n")


def functions() -> dict[DType, frozenset[str]]:
    """Row functions by dtype; float16 and bfloat16 are stored as bits and computed in float32."""
    return {d: _EVERY if d.is_floating else _INTEGER for d in ALL}


def capabilities_of(memory_bytes: int) -> Capabilities:
    """What is declared for a device; composites may hold an eighth of its memory."""
    return Capabilities(functions(), scratch_bytes=max(1 << 22, min(1 << 28, memory_bytes // 8)))


class CUDADriver:
    """Every device that the runtime lists, looked for once."""

    name = "cuda"

    def __init__(self) -> None:
        self._lock = locks.lock()
        self._found: list[DeviceInfo] | None = None
        self._unusable: list[str] = []

    def devices(self) -> list[DeviceInfo]:
        """Every device; UnavailableError with the reason where there is none."""
        with self._lock:
            if self._found is None:
                self._found = self._search()
            return list(self._found)

    def unusable(self) -> list[str]:
        """Devices that were found and cannot be used, each with its reason."""
        return list(self._unusable)

    def open(self, index: int) -> CUDABackend:
        """One device; UnavailableError lists those that there are, or says why this one refuses."""
        from .backend import CUDABackend

        found = self.devices()
        info = next((device for device in found if device.index == index), None)
        if info is None:
            names = ", ".join(f"{device.spec} ({device.name})" for device in found)
            raise UnavailableError(f"cuda:{index}: there is no such device; there are {names}")
        module = loader.cupy()
        try:
            return CUDABackend(info, module)
        except module.cuda.runtime.CUDARuntimeError as error:
            raise UnavailableError(
                f"cuda:{index}: {info.name} refuses to be opened ({error}); `nvidia-smi` says who uses it"
            ) from error

    def _search(self) -> list[DeviceInfo]:
        module = loader.cupy()
        if find_spec("nvmath") is None:
            raise UnavailableError(
                f"cuda: the package nvmath-python, through which cuBLAS is called, is not installed; run: {loader.INSTALL}"
            )
        runtime = module.cuda.runtime
        driver = f"CUDA {loader.version(runtime.driverGetVersion())}, CuPy {module.__version__}"
        found = []
        self._unusable = []
        for index in range(loader.device_count(module)):
            properties: dict[str, Any] = runtime.getDeviceProperties(index)
            name = properties["name"].decode()
            capability = properties["major"], properties["minor"]
            if capability < OLDEST:
                self._unusable.append(
                    f"{name}: its compute capability is {capability[0]}.{capability[1]}, {OLDEST[0]}.{OLDEST[1]} is needed"
                )
                continue
            kind = "integrated" if properties["integrated"] else "discrete"
            dtypes = tuple(d.name for d in ALL)
            memory = int(properties["totalGlobalMem"])
            found.append(DeviceInfo(f"cuda:{index}", "cuda", index, name, kind, memory, dtypes, driver))
        if not found:
            raise UnavailableError(f"cuda: no usable device; {'; '.join(self._unusable)}")
        return found
