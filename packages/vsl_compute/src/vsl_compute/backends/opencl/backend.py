"""OpenCLBackend: the contract on one OpenCL device. A Buffer's handle is a pyopencl Buffer; a View adds offset and strides."""

from __future__ import annotations

from typing import Any

from ...backend import DeviceInfo
from ...rows.dialect import OPENCL
from ..shared.attention_text import TextAttention
from ..shared.backend import TextBackend
from ..shared.pool import Pool
from . import loader
from .convolution import ConvolutionLauncher
from .driver import capabilities_of
from .program import OpenCLPrograms
from .queue import OpenCLQueue


class OpenCLBackend(TextBackend):
    """One device, with a context and an in-order queue of its own.

    `group` is the threads that work together on one output of a reduction; it follows from the kind of device.
    """

    name = "opencl"
    dialect = OPENCL
    queue: OpenCLQueue

    def __init__(self, info: DeviceInfo, device: Any, *, group: int | None = None) -> None:
        cl = loader.pyopencl()
        self.info, self.index, self.spec = info, info.index, info.spec
        self.capabilities = capabilities_of(device)
        self.units = int(device.max_compute_units)
        self._cl, self._context = cl, cl.Context([device])
        software = info.kind == "software"
        threads = max(1 << 14, self.units * (64 if software else 2048))
        self.queue = OpenCLQueue(
            cl, self._context, device, self.spec, group=64 if software else 256, threads=threads, vectors=not software
        )
        self.programs = OpenCLPrograms(cl, self._context, device)
        self._pool = Pool(
            self.spec, self._take, self._give, total=int(device.global_mem_size), largest=int(device.max_mem_alloc_size)
        )
        fma = int(cl.device_fp_config.FMA)
        fused = (bool(int(device.single_fp_config) & fma), bool(int(getattr(device, "double_fp_config", 0)) & fma))
        shared = not software if group is None else group > 1
        most, shared_bytes = int(device.max_work_group_size), int(device.local_mem_size)
        self._assemble(
            group=group or (1 if software else 256),
            shared=shared,
            shared_bytes=shared_bytes,
            threads=most,
            fused=fused,
        )
        convolutions = ConvolutionLauncher(self, threads=most if shared else 1, shared_bytes=shared_bytes, fused=fused)
        attention = TextAttention(self, threads=most if shared else 1, shared_bytes=shared_bytes, fused=fused[0])
        self._overrides |= convolutions.ops.overrides() | attention.ops.overrides()

    def _take(self, nbytes: int) -> Any:
        try:
            memory = self._cl.Buffer(self._context, self._cl.mem_flags.READ_WRITE, nbytes)
            self.queue.materialize(memory)
        except (self._cl.Error, OverflowError) as error:
            raise MemoryError(f"the driver says: {error}") from error
        return memory

    @staticmethod
    def _give(memory: Any) -> None:
        memory.release()
