"""VulkanBackend: the contract on one Vulkan device; a Buffer's handle is a Chunk of the pool."""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from ...backend import Capabilities, ComputeBackend, DeviceInfo, Memory, Scalar, Transfers, limit_of
from ...dtypes import bfloat16, bfloat16_to_float32
from ...errors import VslError
from ...rows.row import Reduction, Row, Update
from ...view import Layout, View
from ..shared.fused import FusedRows
from ..shared.pooling import pooling_overrides
from ..shared.tuning import Tuner
from .api import Api
from .attention import AttentionLauncher
from .commands import Commands
from .convolution import ConvolutionLauncher
from .device import Device
from .features import Features
from .fused import FusedLaunches
from .indexing import Indexing
from .launch import Blocks
from .memory import STAGING, Chunk, Pool, Staging
from .pipeline import Pipelines
from .product import Products
from .reduce import Reductions
from .rows import Rows
from .updates import Updates

Array = np.ndarray[Any, Any]
P = TypeVar("P")


class VulkanBackend(ComputeBackend):
    """One device: its queue, its memory, its kernels."""

    name = "vulkan"

    def __init__(self, info: DeviceInfo, api: Api, instance: Any, physical: Any, features: Features) -> None:
        self.info, self.index, self.spec = info, info.index, info.spec
        self._instance = instance  # must outlive the device
        self.capabilities = Capabilities(features.functions())
        self._made: list[Any] = []  # what holds handles of the device's, in the order in which it was made
        try:
            self._equip(api, physical, features)
        except BaseException:
            self._destroy()
            raise
        _open.add(self)

    def _equip(self, api: Api, physical: Any, features: Features) -> None:
        self.device = self._holding(Device(api, physical, features, self.info.kind))
        self.commands = self._holding(Commands(self.device))
        self.pool = self._holding(Pool(self.device, self.commands))
        self._uploads = self._holding(Staging(self.device, self.commands, self.device.uploads))
        self._downloads = self._holding(Staging(self.device, self.commands, self.device.downloads))
        self.blocks = Blocks(self.commands, self._uploads)
        self.pipelines = self._holding(Pipelines(self.device))
        self.rows = Rows(self)
        self._updates = Updates(self, self.rows)
        self._reductions = Reductions(self)
        self._indexing = self._holding(Indexing(self))
        self.tuner = Tuner(self.info, self.commands.finish)
        self._products = Products(self)
        rows = FusedRows(self, FusedLaunches(self), group=self.device.group_size)
        self._overrides, self._preparing = rows.overrides(), rows.preparing()
        self._overrides |= pooling_overrides(self, self._indexing.fold)
        self._overrides |= ConvolutionLauncher(self).ops.overrides() | AttentionLauncher(self).ops.overrides()
        self.prepared: dict[tuple[Any, ...], Any] = {}
        self._transfers = Transfers()

    def _holding(self, part: P) -> P:
        self._made.append(part)
        return part

    def _destroy(self) -> None:
        """Give back what was made, the last first."""
        for part in reversed(self._made):
            part.destroy()
        self._made.clear()

    # memory and transfers
    def allocate(self, layout: Layout) -> View:
        nbytes = layout.nbytes
        span = nbytes if layout.c_order else _span(layout) * layout.dtype.itemsize
        return View(self.pool.buffer(self, span, nbytes), layout)

    def upload(self, out: View, array: Array) -> None:
        layout = out.layout
        if not layout.size:
            self.device.require()
            return
        if not out.is_dense or not layout.c_order:
            fresh = self.allocate(Layout.of(layout.dtype, layout.shape))
            self.upload(fresh, array)
            self.copy(out, fresh)
            return
        host = np.ascontiguousarray(array, layout.dtype.storage)
        data = host.reshape(-1).view(np.uint8)
        chunk, start = out.buffer.handle, out.offset * layout.dtype.itemsize
        with self.device.lock:
            self.device.require()
            if self.device.unified and chunk.used <= self.commands.completed():
                place = chunk.offset + start
                chunk.block.mapped[place : place + len(data)] = data.data
                self._count_up(len(data))
                return
            for at in range(0, len(data), STAGING):
                part = data[at : at + STAGING]
                staged = self._uploads.take(len(part))
                staged.block.mapped[0 : len(part)] = part.data
                self._count_up(len(part))
                self.commands.copy(chunk, start + at, staged, 0, len(part))
                self._uploads.give(staged)
                if len(data) > STAGING:
                    self.commands.flush()  # this part travels while the next is copied

    def _count_up(self, nbytes: int) -> None:
        self._transfers.bytes_to_device += nbytes
        self._transfers.calls_to_device += 1

    def download(self, view: View) -> Array:
        layout = view.layout
        if not layout.size:
            self.synchronize()
            return np.empty(layout.shape, np.float32 if layout.dtype is bfloat16 else layout.dtype.storage)
        if not self.device.unified and not layout.c_order:
            dense = self.allocate(Layout.of(layout.dtype, layout.shape))
            self.copy(dense, view)
            return self.download(dense)
        with self.device.lock:
            array = self._mapped(view) if self.device.unified else self._fetched(view)
            self._indexing.raise_found()
        return bfloat16_to_float32(array) if layout.dtype is bfloat16 else array

    def _mapped(self, view: View) -> Array:
        """Copied from where it lies."""
        layout, chunk = view.layout, view.buffer.handle
        self.device.require()
        self.commands.wait(chunk.used)
        item = layout.dtype.itemsize
        memory = memoryview(chunk.block.mapped)[chunk.offset : chunk.offset + chunk.nbytes]
        strides = tuple(s * item for s in layout.strides)
        array = np.ndarray(layout.shape, layout.dtype.storage, memory, view.offset * item, strides).copy()
        self._transfers.bytes_to_host += layout.nbytes
        self._transfers.calls_to_host += 1
        return array

    def _fetched(self, view: View) -> Array:
        """Through staging memory, a part at a time."""
        layout, chunk = view.layout, view.buffer.handle
        array = np.empty(layout.shape, layout.dtype.storage)
        data = array.reshape(-1).view(np.uint8)
        start = view.offset * layout.dtype.itemsize
        parts = [(at, min(STAGING, len(data) - at)) for at in range(0, len(data), STAGING)]
        coming = [self._fetch(chunk, start, parts[0])]
        for number, (at, n) in enumerate(parts):
            if number + 1 < len(parts):  # the next part travels while this one is copied
                coming.append(self._fetch(chunk, start, parts[number + 1]))
                self.commands.flush()
            staged = coming.pop(0)
            self.commands.wait(staged.used)
            data[at : at + n] = np.frombuffer(staged.block.mapped, np.uint8, n)
            self._downloads.give(staged)
            self._transfers.bytes_to_host += n
            self._transfers.calls_to_host += 1
        return array

    def _fetch(self, chunk: Chunk, start: int, part: tuple[int, int]) -> Chunk:
        """Have a part copied to staging memory."""
        at, n = part
        staged = self._downloads.take(n)
        self.commands.copy(staged, 0, chunk, start + at, n)
        return staged

    def peek(self, view: View) -> Array:
        """A download that the backend makes for itself: it counts as metadata."""
        with self.device.lock:
            counted, self._transfers = self._transfers, Transfers()
            try:
                return self.download(view)
            finally:
                self.blocks.nbytes += self._transfers.bytes_to_host
                self.blocks.calls += self._transfers.calls_to_host
                self._transfers = counted

    def report_place(self, op: str) -> tuple[int, int]:
        """The address of the report of indices, and what a launch of `op` writes there first."""
        return self._indexing.report_place(op)

    def synchronize(self) -> None:
        with self.device.lock:
            self.device.require()
            self.commands.finish()
            self._indexing.raise_found()

    def memory(self) -> Memory:
        self.pool.collect()
        return Memory(self.pool.live, self.pool.reserved, self.pool.buffers, self.pool.peak)

    def limit_memory(self, nbytes: int | None) -> None:
        self.pool.limit = limit_of(nbytes)

    def transfers(self) -> Transfers:
        return replace(self._transfers, metadata_bytes=self.blocks.nbytes, metadata_calls=self.blocks.calls)

    def empty_cache(self) -> None:
        self.device.require()
        self.pool.empty_cache()
        self._uploads.trim()
        self._downloads.trim()

    def close(self) -> None:
        """Wait for the device, but not for ever, then give everything back; skipped if it does not answer."""
        if self.closed:
            return
        super().close()
        self.prepared.clear()
        device = self.device
        with device.lock:
            try:
                if device.broken is None:
                    if self.commands.count:
                        self.commands.flush()
                    self.commands.wait(self.commands.value - 1, timeout_s=5.0)
            except VslError:
                return
            if device.broken is not None:
                return
            with suppress(VslError):  # no memory for it: the next process compiles again
                self.pipelines.save()
            self._destroy()

    # primitives
    def copy(self, out: View, x: View) -> None:
        if out.dtype is not x.dtype or not self._indexing.turn(out, x):
            self.rows.copy(out, x)

    def elementwise(self, row: Row, out: View, args: Sequence[View | Scalar], scalars: Sequence[Scalar]) -> None:
        self.rows.elementwise(row, out, args, scalars)

    def prepare(self, row: Row, out: Layout, args: Sequence[Layout]) -> Callable[..., View] | None:
        return self.rows.prepare(row, out, args)

    def update(self, row: Update, arrays: Sequence[Sequence[View]], scalars: Sequence[Scalar]) -> None:
        self._updates.update(row, arrays, scalars)

    def reduce(self, row: Reduction, outs: Sequence[View], x: View, axes: tuple[int, ...]) -> None:
        self._reductions.reduce(row, outs, x, axes)

    def gemm(self, out: View, a: View, b: View, *, alpha: float = 1.0, beta: float = 0.0) -> None:
        self._products.gemm(out, a, b, alpha, beta)

    def gather(self, out: View, x: View, index: View, *, batch: int = 0) -> None:
        self._indexing.gather(out, x, index, batch)

    def scatter_add(self, out: View, index: View, x: View, *, batch: int = 0) -> None:
        self._indexing.scatter_add(out, index, x, batch)

    def fold(
        self, out: View, x: View, *, axes: tuple[int, ...], steps: tuple[int, ...], dilations: tuple[int, ...]
    ) -> None:
        self._indexing.fold(out, x, axes, steps, dilations)

    def sort(self, values: View, index: View, x: View, *, descending: bool = False) -> None:
        self._indexing.sort(values, index, x, descending=descending)

    def scan(self, row: Reduction, out: View, x: View) -> None:
        self._reductions.scan(row, out, x)

    def random(self, out: View, *, kind: str, key: tuple[int, int], counter: tuple[int, int, int, int]) -> None:
        self._indexing.random(out, kind, key, counter)

    def override(self, op: str) -> Callable[..., Any] | None:
        return self._overrides.get(op)

    def prepare_op(
        self, op: str, views: Sequence[View | None], options: Mapping[str, Any]
    ) -> Callable[..., Any] | None:
        preparing = self._preparing.get(op)
        return None if preparing is None else preparing(views, options)


def _span(layout: Layout) -> int:
    """Elements from the first to the last that a layout of positive strides addresses."""
    return 1 + sum((n - 1) * s for n, s in zip(layout.shape, layout.strides, strict=True)) if layout.size else 0


def _close_all() -> None:
    """At exit, before the interpreter takes the modules apart that closing needs."""
    for backend in list(_open):
        backend.close()


_open: weakref.WeakSet[VulkanBackend] = weakref.WeakSet()
atexit.register(_close_all)
