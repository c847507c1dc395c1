"""TextBackend: the contract on a device that compiles C-like texts, fed through a queue that runs in order.

A backend of this kind supplies a dialect, a queue, programs and a pool; every primitive then stands on the kernels of
`kernels/`, launched as the files beside this one say. A Buffer's handle is what the queue takes for memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...backend import ComputeBackend, Memory, Scalar, Transfers, limit_of
from ...dtypes import DType, bfloat16, bfloat16_to_float32
from ...rows.dialect import Dialect
from ...rows.row import Reduction, Row, Update
from ...view import Layout, View
from .axes import dense
from .batch_norm import BatchNorms
from .fused import FusedRows, Preparing, TextLauncher
from .indexing import Indexing
from .order import Order
from .pool import Leased, Pool, size_class
from .pooling import pooling_overrides, prepare_max_pool, prepare_max_pool_backward
from .products import Products
from .programs import Programs
from .queue import Queue
from .reductions import Reductions
from .rows import Rows
from .tuning import Tuner

Array = np.ndarray[Any, Any]
SOFTWARE_GROUP = 4  # threads of a fused row's group on a CPU, whose compiler takes long over barriers
HOMES = 20_000  # layouts whose list of free memory is kept; a program with ever new shapes must not grow for ever


class TextBackend(ComputeBackend):
    """The contract, for a subclass that has set these before `_assemble`."""

    dialect: Dialect
    queue: Queue
    programs: Programs
    units: int  # groups of threads that run at a time, for the choice of a product's tile
    _pool: Pool

    def _assemble(self, *, group: int, shared: bool, shared_bytes: int, threads: int, fused: tuple[bool, bool]) -> None:
        """Make what launches the kernels.

        `group` is the threads that work on one output of a reduction; `shared` says that groups have memory of their own
        that is worth using, `shared_bytes` of it and `threads` at most; `fused` that float32 and float64 are multiplied
        and added in one instruction.
        """
        self._assembled: dict[str, Any] = {
            "group": group,
            "shared": shared,
            "shared_bytes": shared_bytes,
            "threads": threads,
            "fused": fused,
        }
        self.tuner = Tuner(self.info, self.queue.finish)
        self.prepared: dict[tuple[Any, ...], Any] = {}
        self._homes: dict[Layout, list[Any]] = {}
        self._rows, self._indexing = Rows(self), Indexing(self)
        self._reductions, self._order = Reductions(self, group), Order(self, group)
        self._products = Products(self, shared=shared, shared_bytes=shared_bytes, threads=threads, fused=fused)
        lanes = group if self.queue.vectors else SOFTWARE_GROUP
        rows = FusedRows(self, TextLauncher(self), group=lanes, vectors=self.queue.vectors)
        norms = BatchNorms(self, group, self._reductions.counters)
        own = {"dropout": self._indexing.dropout, **pooling_overrides(self, self._indexing.fold)}
        self._overrides: dict[str, Callable[..., Any]] = rows.overrides() | norms.overrides() | own
        self._preparing: dict[str, Preparing] = (
            rows.preparing()
            | norms.preparing()
            | {
                "max_pool2d": partial(prepare_max_pool, self),
                "max_pool2d_backward": partial(prepare_max_pool_backward, self, self._indexing.fold),
            }
        )

    # memory and transfers
    def allocate(self, layout: Layout) -> View:
        if self.queue.refusal is not None:
            self.queue.check()
        home = self._homes.get(layout)
        if home is None:
            home = self._home_of(layout)
        try:
            memory = home.pop()
        except IndexError:
            memory = self._pool.fresh(_class_of(layout), layout.nbytes)
        view = View(Leased(self, memory, layout.nbytes, home), layout)
        if self.queue.recorders:
            self.queue.allocated(view)
        return view

    def _home_of(self, layout: Layout) -> list[Any]:
        """Where memory for this layout is free."""
        if len(self._homes) > HOMES:
            self._homes.clear()
        found = self._homes[layout] = self._pool.home(_class_of(layout))
        return found

    def dense(self, view: View) -> View:
        """The view itself if it lies in C order without gaps, else a copy that does."""
        return dense(self, view)

    def upload(self, out: View, array: Array) -> None:
        if not out.size:
            self.queue.check()
            return
        host = np.ascontiguousarray(array)
        target = out if out.layout.c_order else self.allocate(Layout.of(out.dtype, out.shape))
        self.queue.upload(target.buffer.handle, target.offset * out.dtype.itemsize, host)
        if target is not out:
            self.copy(out, target)

    def upload_ahead(self, out: View, array: Array) -> Callable[[], None]:
        if not (out.size and out.layout.c_order):
            return super().upload_ahead(out, array)
        return self.queue.upload_ahead(out.buffer, out.offset * out.dtype.itemsize, np.ascontiguousarray(array))

    def download(self, view: View) -> Array:
        host = self.peek(view, counted=True)
        self._indexing.report.check()
        return host

    def peek(self, view: View, *, counted: bool = False) -> Array:
        """A download that is no transfer of the user's and does not look at the index report."""
        host = np.empty(view.shape, view.dtype.storage)
        if not host.size:
            self.queue.check()
        else:
            source = self.dense(view)
            self.queue.download(host, source.buffer.handle, source.offset * view.dtype.itemsize, counted=counted)
        return bfloat16_to_float32(host) if view.dtype is bfloat16 else host

    def report_slot(self, op: str, axis: int) -> tuple[int, Any]:
        """Where one launch of `op` reports an index outside an axis of this size."""
        return self._indexing.report.slot(op, axis)

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

    def compile_ahead(self, rows: Iterable[tuple[Row, Mapping[str, DType], frozenset[str]]]) -> None:
        self._rows.compile_ahead(rows)

    def limit_memory(self, nbytes: int | None) -> None:
        self._pool.limit = limit_of(nbytes)

    def close(self) -> None:
        super().close()
        # of a kernel that hangs, drivers give nothing back before it ends; and what is a parent's is not a child's to give
        if self.queue.refusal is None:
            self.queue.close()
            self._release()
        self.programs.forget()
        self._assemble(**self._assembled)  # without a kernel: plans of dispatch may hold this object for long

    def _release(self) -> None:
        """Give back what the device holds for this backend; it has finished."""
        self._pool.empty()

    # primitives
    def copy(self, out: View, x: View) -> None:
        self._indexing.copy(out, x)

    def elementwise(self, row: Row, out: View, args: Sequence[View | Scalar], scalars: Sequence[Scalar]) -> None:
        self._rows.elementwise(row, out, args, scalars)

    def prepare(self, row: Row, out: Layout, args: Sequence[Layout]) -> Callable[..., View] | None:
        return self._rows.prepare(row, out, args)

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
        self._indexing.fold(out, x, axes, steps, dilations)

    def sort(self, values: View, index: View, x: View, *, descending: bool = False) -> None:
        self._order.sort(values, index, x, descending=descending)

    def scan(self, row: Reduction, out: View, x: View) -> None:
        self._order.scan(row, out, x)

    def random(self, out: View, *, kind: str, key: tuple[int, int], counter: tuple[int, int, int, int]) -> None:
        self._indexing.random(out, kind=kind, key=key, counter=counter)

    def override(self, op: str) -> Callable[..., Any] | None:
        return self._overrides.get(op)

    def prepare_op(
        self, op: str, views: Sequence[View | None], options: Mapping[str, Any]
    ) -> Callable[..., Any] | None:
        preparing = self._preparing.get(op)
        return None if preparing is None else preparing(views, options)


def _class_of(layout: Layout) -> int:
    elements = layout.size if layout.c_order else _span(layout)
    return size_class(elements * layout.dtype.itemsize)


def _span(layout: Layout) -> int:
    """Elements from the first to the last that a layout of positive strides addresses."""
    return 1 + sum((n - 1) * s for n, s in zip(layout.shape, layout.strides, strict=True)) if layout.size else 0
