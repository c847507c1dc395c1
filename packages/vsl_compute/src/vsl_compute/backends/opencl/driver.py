"""Finds every device of every OpenCL platform: discrete GPUs first, then integrated ones, then software on the CPU."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ... import locks
from ...backend import Capabilities, DeviceInfo
from ...dtypes import ALL, DType, float64
from ...errors import OutOfMemoryError, UnavailableError
from ...rows.functions import FUNCTIONS
from ..shared import cache
from . import loader

if TYPE_CHECKING:
    from .backend import OpenCLBackend

ORDER = ("discrete", "integrated", "software")
NO_MEMORY = ("OUT_OF_HOST_MEMORY", "OUT_OF_RESOURCES", "MEM_OBJECT_ALLOCATION_FAILURE")
ROOM = 4 << 20  # bytes; PoCL writes some 100 KB a kernel, and a training step has dozens
_EVERY = frozenset(FUNCTIONS)
_INTEGER = frozenset(name for name, f in FUNCTIONS.items() if f.kind == "n")


@dataclass(frozen=True)
class Found:
    """One device that can be opened, and pyopencl's handle of it."""

    info: DeviceInfo
    device: Any


def kind_of(cl: Any, device: Any) -> str:
    """What kind of device this is; whatever runs on the host's cores is software."""
    if device.type & cl.device_type.CPU:
        return "software"
    return "integrated" if device.host_unified_memory else "discrete"


def computes_double(device: Any) -> bool:
    """Whether kernels may use float64."""
    return "cl_khr_fp64" in device.extensions.split() or bool(getattr(device, "double_fp_config", 0))


def functions_of(device: Any) -> dict[DType, frozenset[str]]:
    """Row functions by dtype. float16 and bfloat16 are stored as bits and computed in float32, so every device has them."""
    held = [d for d in ALL if d is not float64 or computes_double(device)]
    return {d: _EVERY if d.is_floating else _INTEGER for d in held}


def capabilities_of(device: Any) -> Capabilities:
    """What is declared for a device; composites may hold an eighth of its memory."""
    return Capabilities(functions_of(device), scratch_bytes=max(1 << 22, min(1 << 28, device.global_mem_size // 8)))


def why_unusable(cl: Any, device: Any) -> str | None:
    """The reason that a device cannot be used, or None."""
    if not device.available:
        return "its driver says that it is not available"
    if not device.compiler_available:
        return "its driver has no compiler"
    if not device.endian_little:
        return "it is big-endian"
    if device.profile != "FULL_PROFILE":
        return f"it has the {device.profile.lower().replace('_', ' ')} only, which lacks 64-bit integers"
    version = _version(device.version)
    if version < (1, 2):
        return f"it speaks OpenCL {version[0]}.{version[1]}, 1.2 is needed; update its driver"
    if not device.type & (cl.device_type.CPU | cl.device_type.GPU | cl.device_type.ACCELERATOR):
        return "it is a custom device without a programmable core"
    return None


def _version(text: str) -> tuple[int, int]:
    """(1, 2) of "OpenCL 1.2 vendor's words"; (0, 0) if it cannot be read."""
    try:
        major, _, minor = text.split()[1].partition(".")
        return int(major), int(minor)
    except (IndexError, ValueError):
        return 0, 0


class OpenCLDriver:
    """Every platform and device of this machine, looked for once."""

    name = "opencl"

    def __init__(self) -> None:
        self._lock = locks.lock()
        self._found: list[Found] | None = None
        self._process = os.getpid()  # whose the drivers' threads are, once they were looked for
        self._unusable: list[str] = []

    def devices(self) -> list[DeviceInfo]:
        """Every device that can be opened; the order is the same on each call and each run."""
        return [found.info for found in self._look()]

    def unusable(self) -> list[str]:
        """Devices, platforms and files of drivers that were found and cannot be used, each with its reason."""
        with contextlib.suppress(UnavailableError):
            self._look()
        return [*self._unusable, *loader.broken_files()]

    def open(self, index: int) -> OpenCLBackend:
        """One device; UnavailableError if there are not so many, or its driver refuses, OutOfMemoryError if it has no memory for it."""
        from .backend import OpenCLBackend

        found = self._look()
        if index >= len(found):
            names = ", ".join(f"{f.info.spec} ({f.info.name})" for f in found)
            raise UnavailableError(f"opencl:{index}: there is no such device; there are {names}")
        cl = loader.pyopencl()
        try:
            return OpenCLBackend(found[index].info, found[index].device)
        except cl.Error as error:
            if any(word in str(error) for word in NO_MEMORY):
                raise OutOfMemoryError(
                    f"opencl:{index}: {found[index].info.name} has no memory left to be opened ({error}); end other processes that use it"
                ) from error
            raise UnavailableError(
                f"opencl:{index}: {found[index].info.name} refuses to be opened ({error}); {loader.REMEDY}"
            ) from error

    def _look(self) -> list[Found]:
        if self._found is not None and self._process != os.getpid():  # before the lock, which a fork may have left held
            raise UnavailableError(
                "opencl: devices were looked for before this process was forked, and their drivers did not come along (PoCL would hang); "
                'look for them in the child only, or start it with multiprocessing.get_context("spawn")'
            )
        with self._lock:
            if self._found is None:
                self._found, self._process = self._search(), os.getpid()
            return self._found

    def _search(self) -> list[Found]:
        cl = loader.pyopencl()
        self._unusable = []
        usable: list[tuple[tuple[int, str, str], Any, str, str]] = []
        for platform in self._platforms(cl):
            try:
                devices, said = platform.get_devices(), ""
            except cl.Error as error:  # a platform without a device says so by an error
                devices, said = [], f" ({error})"
            if not devices:
                self._unusable.append(f"{platform.name.strip()}: has no device{said}{_hint(platform)}")
            for device in devices:
                reason = why_unusable(cl, device) or (_no_room() if _is_pocl(platform) else None)
                if reason is not None:
                    self._unusable.append(f"{device.name.strip()} on {platform.name.strip()}: {reason}")
                    continue
                kind = kind_of(cl, device)
                driver = f"{platform.name.strip()} {device.driver_version.strip()}"
                usable.append(((ORDER.index(kind), platform.name, platform.version), device, kind, driver))
        if not usable:
            raise UnavailableError(
                f"opencl: no device; searched {loader.searched()}{self._reasons()}; {loader.remedy()}"
            )
        usable.sort(key=lambda entry: entry[0])  # stable: devices of one platform stay as their driver lists them
        return [
            Found(_info(index, device, kind, driver), device) for index, (_, device, kind, driver) in enumerate(usable)
        ]

    def _reasons(self) -> str:
        """What was found and is of no use, for messages."""
        found = [*self._unusable, *loader.broken_files()]
        return f"; unusable: {'; '.join(found)}" if found else ""

    def _platforms(self, cl: Any) -> list[Any]:
        try:
            return list(cl.get_platforms())
        except cl.Error as error:
            raise UnavailableError(
                f"opencl: no driver found ({error}); searched {loader.searched()}{self._reasons()}; {loader.remedy()}"
            ) from error
        finally:
            loader.loaded()


def _hint(platform: Any) -> str:
    """What helps a platform to its device, where that is known."""
    return "; PoCL needs a folder that it may write: set POCL_CACHE_DIR to one" if _is_pocl(platform) else ""


def _is_pocl(platform: Any) -> bool:
    return "Portable Computing Language" in platform.name


def _no_room() -> str | None:
    """Why PoCL would end the process at the first kernel: what it compiles goes through files, and a full disk makes it abort."""
    place = Path(os.environ.get("POCL_CACHE_DIR") or (cache.caches() or Path(tempfile.gettempdir())) / "pocl")
    there = next((folder for folder in (place, *place.absolute().parents) if os.path.isdir(folder)), None)  # noqa: PTH112  # never raises
    try:
        if there is None or shutil.disk_usage(there).free >= ROOM:
            return None
    except OSError:  # a place that does not tell how full it is counts as having room
        return None
    return f"it has no room for compiled kernels below {there} and would end the process; make room, or set POCL_CACHE_DIR to another folder"


def _info(index: int, device: Any, kind: str, driver: str) -> DeviceInfo:
    dtypes = tuple(d.name for d in functions_of(device))
    return DeviceInfo(
        f"opencl:{index}", "opencl", index, device.name.strip(), kind, int(device.global_mem_size), dtypes, driver
    )
