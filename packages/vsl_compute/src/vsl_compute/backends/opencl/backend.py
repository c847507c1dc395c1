"""OpenCLBackend: the contract on one OpenCL device. A Buffer's handle is a pyopencl Buffer; a View adds offset and strides."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...backend import ComputeBackend, DeviceInfo, Memory, Scalar, Transfers
from ...dtypes import bfloat16, bfloat16_to_float32
from ...rows.row import Reduction, Row, Update
from ...view import Buffer, Layout, View
from ..shared.pool import Pool
from . import loader
from .driver import capabilities_of
from .indexing import Indexing
from .products import Products
from .program import Programs
from .queue import Queue
from .reductions import Reductions
from .rows import Rows

Array = np.ndarray[Any, Any]


class OpenCLBackend(ComputeBackend):
    """One device, with a context and an in-order queue of its own.

    `group` is the threads that work together on one output of a reduction; it follows from the kind of device.
    """

    name = "opencl"

    def __init__(self, info: DeviceInfo, device: Any, *, group: int | None = None) -> None:
        cl = loader.pyopencl()
        self.info, self.index, self.spec = info, info.index, info.spec
        self.capabilities = capabilities_of(device)
        self.units = int(device.max_compute_units)
        self._cl, self._context = cl, cl.Context([device])
        software = info.kind == "software"
        threads = max(1 << 14, self.units * (64 if software else 2048))
        self.queue = Queue(
            cl, self._context, device, self.spec, group=64 if software else 256, threads=threads, vectors=not software
        )
        self.programs = Programs(cl, self._context, device)
        self._pool = Pool(
            self.spec, self._take, self._give, total=int(device.global_mem_size), largest=int(device.max_mem_alloc_size)
        )
        self._rows, self._indexing = Rows(self), Indexing(self)
        self._reductions = Reductions(self, group or (1 if software else 256))
        fma = int(cl.device_fp_config.FMA)
        fused = (bool(int(device.single_fp_config) & fma), bool(int(getattr(device, "double_fp_config", 0)) & fma))
        self._products = Products(self, shared=not software if group is None else group > 1, fused=fused)

    # memory and transfers
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

    def allocate(self, layout: Layout) -> View:
        self.queue.check()
        elements = layout.size if layout.c_order else _span(layout)
        size, memory = self._pool.allocate(elements * layout.dtype.itemsize)
        buffer = Buffer(self, memory, layout.nbytes)
        weakref.finalize(buffer, self._pool.release, size, memory).atexit = False
        return View(buffer, layout)

    def dense(self, view: View) -> View:
        """The view itself if it lies in C order without gaps, else a copy that does."""
        if view.layout.c_order:
            return view
        fresh = self.allocate(Layout.of(view.dtype, view.shape))
        self.copy(fresh, view)
        return fresh

    def upload(self, out: View, array: Array) -> None:
        if not out.size:
            return
        host = np.ascontiguousarray(array)
        target = out if out.layout.c_order else self.allocate(Layout.of(out.dtype, out.shape))
        self.queue.upload(target.buffer.handle, target.offset * out.dtype.itemsize, host)
        if target is not out:
            self.copy(out, target)

    def download(self, view: View) -> Array:
        host = np.empty(view.shape, view.dtype.storage)
        if host.size:
            source = self.dense(view)
            self.queue.download(host, source.buffer.handle, source.offset * view.dtype.itemsize)
        self._indexing.report.check()
        return bfloat16_to_float32(host) if view.dtype is bfloat16 else host

    def synchronize(self) -> None:
        self.queue.finish()
        self._indexing.report.check()

    def memory(self) -> Memory:
        return self._pool.memory()

    def transfers(self) -> Transfers:
        return self.queue.transfers()

    def empty_cache(self) -> None:
        self.queue.finish()
        self._pool.empty()

    def close(self) -> None:
        self.queue.close()
        self._pool.empty()

    # primitives
    def copy(self, out: View, x: View) -> None:
        self._indexing.copy(out, x)

    def elementwise(self, row: Row, out: View, args: Sequence[View | Scalar], scalars: Sequence[Scalar]) -> None:
        self._rows.elementwise(row, out, args, scalars)

    def update(self, row: Update, arrays: Sequence[Sequence[View]], scalars: Sequence[Scalar]) -> None:
        self._rows.update(row, arrays, scalars)

    def reduce(self, row: Reduction, outs: Sequence[View], x: View, axes: tuple[int, ...]) -> None:
        self._reductions.reduce(row, outs, x, axes)

    def gemm(self, out: View, a: View, b: View, *, alpha: float = 1.0, beta: float = 0.0) -> None:
        self._products.gemm(out, a, b, alpha=alpha, beta=beta)

    def gather(self, out: View, x: View, index: View, *, batch: int = 0) -> None:
        self._indexing.gather(out, x, index, batch=batch)

    def scatter_add(self, out: View, index: View, x: View, *, batch: int = 0) -> None:
        self._indexing.scatter_add(out, index, x, batch=batch)

    def fold(
        self, out: View, x: View, *, axes: tuple[int, ...], steps: tuple[int, ...], dilations: tuple[int, ...]
    ) -> None:
        self._indexing.fold(out, x, axes=axes, steps=steps, dilations=dilations)

    def sort(self, values: View, index: View, x: View, *, descending: bool = False) -> None:
        self._indexing.sort(values, index, x, descending=descending)

    def scan(self, row: Reduction, out: View, x: View) -> None:
        self._reductions.scan(row, out, x)

    def random(self, out: View, *, kind: str, key: tuple[int, int], counter: tuple[int, int, int, int]) -> None:
        self._indexing.random(out, kind=kind, key=key, counter=counter)


def _span(layout: Layout) -> int:
    """Elements from the first to the last that a layout of positive strides addresses."""
    return 1 + sum((n - 1) * s for n, s in zip(layout.shape, layout.strides, strict=True)) if layout.size else 0
