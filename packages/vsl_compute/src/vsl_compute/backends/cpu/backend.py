"""CPUBackend: the contract on NumPy arrays; a View's native handle is an ndarray over the Buffer's memory."""

from __future__ import annotations

import gc
import os
import platform
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...backend import Capabilities, ComputeBackend, DeviceInfo, Memory, Scalar, Transfers
from ...dtypes import ALL, DType, bfloat16, bfloat16_to_float32, bool_, float32
from ...errors import IndexRangeError, OutOfMemoryError, ShapeError, UnavailableError
from ...random import draw, shortened
from ...rows.functions import FUNCTIONS
from ...rows.row import Reduction, Row, Update
from ...view import Buffer, Layout, View
from . import reduce as reductions
from . import rows
from .parallel import ALONE, CHUNK, for_ranges_rows, for_slabs, quiet

Array = np.ndarray[Any, Any]
_EVERY = frozenset(FUNCTIONS)
_INTEGER = frozenset(name for name, f in FUNCTIONS.items() if f.kind == "n")
SCRATCH = 4 << 20  # unrolled windows of this size stay near the cores


def native(view: View) -> Array:
    """The ndarray of a View, made on first use."""
    array = view.native
    if array is None:
        layout, itemsize = view.layout, view.layout.dtype.itemsize
        if not layout.size:  # its strides and offset may point past the end, where nothing is
            view.native = np.empty(layout.shape, layout.dtype.storage)
            return view.native  # type: ignore[no-any-return]
        strides = tuple(s * itemsize for s in layout.strides)
        array = view.native = np.ndarray(
            layout.shape, layout.dtype.storage, view.buffer.handle, view.offset * itemsize, strides
        )
    return array  # type: ignore[no-any-return]


class CPUBackend(ComputeBackend):
    """The host's own memory and cores."""

    name = "cpu"

    def __init__(self, info: DeviceInfo) -> None:
        self.info, self.index, self.spec = info, info.index, info.spec
        self.capabilities = Capabilities(
            functions={d: _EVERY if d.is_floating else _INTEGER for d in ALL}, scratch_bytes=SCRATCH
        )

    # memory and transfers: nothing is ever transferred
    def allocate(self, layout: Layout) -> View:
        try:
            if layout.c_order:
                array = np.empty(layout.shape, layout.dtype.storage)
                return View(Buffer(self, array, layout.nbytes), layout, 0, array)
            return View(Buffer(self, np.empty(_span(layout), layout.dtype.storage), layout.nbytes), layout)
        except (MemoryError, ValueError) as error:  # ValueError: more bytes than an address has
            if len(layout.shape) > 64:
                raise ShapeError(f"cpu: NumPy's arrays have at most 64 axes, this one {len(layout.shape)}") from error
            held = self.memory().live
            raise OutOfMemoryError(
                f"cpu: asked for {layout.nbytes} bytes, held {held}; free some arrays or use smaller batches"
            ) from error

    def upload(self, out: View, array: Array) -> None:
        np.copyto(native(out), array)

    def download(self, view: View) -> Array:
        array = native(view)
        return bfloat16_to_float32(array) if view.dtype is bfloat16 else array.copy()

    def host_view(self, view: View) -> Array | None:
        if view.dtype is bfloat16:
            return None
        shared = native(view).view()
        shared.flags.writeable = False
        return shared

    def synchronize(self) -> None:
        """Nothing runs behind the caller's back."""

    def close(self) -> None:
        """The CPU is never gone, nor are its arrays."""

    def memory(self) -> Memory:
        """Counted when asked, by looking at the Buffers that are alive: allocation pays nothing for it.

        Others' objects are asked nothing: `isinstance` would read `__class__`, on which proxies wake and deprecated names warn.
        """
        alive = [b for b in gc.get_objects() if issubclass(type(b), Buffer) and b.backend is self]
        nbytes = sum(b.nbytes for b in alive)
        return Memory(nbytes, nbytes, len(alive))

    def transfers(self) -> Transfers:
        return Transfers()

    # primitives
    def copy(self, out: View, x: View) -> None:
        target, source = out.dtype, x.dtype
        if target is source:
            to, given = native(out), native(x)
            if out.layout.size < ALONE:
                np.copyto(to, given)
            else:
                for_slabs(to, lambda cut: np.copyto(to[cut], given[cut]))
        elif bfloat16 in (target, source) or target is bool_:
            values = rows.load(native(x), source)
            quiet().run(rows.store, native(out), values != 0 if target is bool_ else values, target)
        else:
            quiet().run(rows.store, native(out), native(x), target)

    def elementwise(self, row: Row, out: View, args: Sequence[View | Scalar], scalars: Sequence[Scalar]) -> None:
        target = out.layout
        if target.size <= CHUNK and target.dtype.is_plain:
            arrays: list[Any] = []
            for a in args:
                if type(a) is View:
                    if not a.layout.dtype.is_plain:
                        break
                    arrays.append(a.native if a.native is not None else native(a))
                else:
                    arrays.append(np.bool(a) if type(a) is bool else a)  # ~True is -2 in Python
            else:
                quiet().run(rows.kernel(row), out.native if out.native is not None else native(out), *arrays, *scalars)
                return
        arrays = [native(a) if type(a) is View else np.bool(a) if type(a) is bool else a for a in args]
        rows.elementwise(
            row, native(out), arrays, [target.dtype, *(a.dtype if isinstance(a, View) else None for a in args)], scalars
        )

    def update(self, row: Update, arrays: Sequence[Sequence[View]], scalars: Sequence[Scalar]) -> None:
        for group in arrays:
            rows.update(row, [native(v) for v in group], [v.dtype for v in group], scalars)

    def reduce(self, row: Reduction, outs: Sequence[View], x: View, axes: tuple[int, ...]) -> None:
        reductions.reduce(row, [native(o) for o in outs], native(x), axes, x.dtype, [o.dtype for o in outs])

    def gemm(self, out: View, a: View, b: View, *, alpha: float = 1.0, beta: float = 0.0) -> None:
        quiet().run(self._gemm, native(out), native(a), native(b), out.dtype, alpha, beta)

    @staticmethod
    def _gemm(out: Array, a: Array, b: Array, dtype: DType, alpha: float, beta: float) -> None:
        if alpha == 0 or not a.shape[-1]:  # nothing is read: NaN in a does not matter, as in BLAS
            rows.store(out, rows.load(out, dtype) * beta if beta else np.zeros(out.shape, dtype.compute), dtype)
            return
        left, right = (_blas_ready(rows.load(m, dtype)) for m in (a, b))
        if (
            beta == 0
            and alpha == 1
            and dtype.compute is dtype.storage
            and (out.flags.c_contiguous or _blas_ready(out) is out)
        ):
            np.matmul(left, right, out=out)
            return
        product = np.matmul(left, right)
        if alpha != 1:
            product = product * product.dtype.type(alpha)
        if beta != 0:
            product = product + (
                rows.load(out, dtype) if beta == 1 else rows.load(out, dtype) * product.dtype.type(beta)
            )
        rows.store(out, product, dtype)

    def gather(self, out: View, x: View, index: View, *, batch: int = 0) -> None:
        places = _checked(native(index), x.shape[batch], "gather")
        native(out)[...] = native(x)[(*_leading(index.shape[:batch], places.ndim - batch), places)]

    def scatter_add(self, out: View, index: View, x: View, *, batch: int = 0) -> None:
        places = _checked(native(index), out.shape[batch], "scatter_add")
        key = (*_leading(index.shape[:batch], places.ndim - batch), places)
        target, values = native(out), native(x)
        # one number after another, float32 stops at 2**24 ones: where rows are met more than once it adds up in float64
        drifts = out.dtype is float32 and x.size >= out.size
        if out.dtype.compute is out.dtype.storage and not drifts:
            quiet().run(np.add.at, target, key, values)
            return
        kind = np.float64 if drifts else out.dtype.compute
        wide = rows.load(target, out.dtype).astype(kind)
        quiet().run(np.add.at, wide, key, rows.load(values, out.dtype).astype(kind, copy=False))
        rows.store(target, wide, out.dtype)

    def fold(
        self, out: View, x: View, *, axes: tuple[int, ...], steps: tuple[int, ...], dilations: tuple[int, ...]
    ) -> None:
        target, windows = native(out), native(x)
        if 0 in axes or out.size < ALONE:
            quiet().run(self._fold, target, windows, out.dtype, axes, steps, dilations)
            return
        for_ranges_rows(out.shape[0], out.size // out.shape[0],
                        lambda i, j: quiet().run(self._fold, target[i:j], windows[i:j], out.dtype, axes, steps, dilations))  # fmt: skip

    @staticmethod
    def _fold(
        out: Array, x: Array, dtype: DType, axes: tuple[int, ...], steps: tuple[int, ...], dilations: tuple[int, ...]
    ) -> None:
        direct = dtype.compute is dtype.storage
        total = out if direct else np.empty(out.shape, dtype.compute)
        total[...] = 0
        for place in np.ndindex(*x.shape[out.ndim :]):
            cut = [slice(None)] * out.ndim
            for axis, at, step, dilation in zip(axes, place, steps, dilations, strict=True):
                start = at * dilation
                cut[axis] = slice(start, start + (x.shape[axis] - 1) * step + 1, step)
            if all(x.shape):
                target = total[tuple(cut)]
                np.add(target, rows.load(x[(..., *place)], dtype), out=target)
        if not direct:
            rows.store(out, total, dtype)

    def sort(self, values: View, index: View, x: View, *, descending: bool = False) -> None:
        source = rows.load(native(x), x.dtype)
        if descending:  # stable the other way round, NaN still last
            keys = np.where(source != source, source, -source) if x.dtype.is_floating else ~source
        else:
            keys = source
        order = np.argsort(keys, axis=-1, kind="stable")
        native(index)[...] = order
        rows.store(native(values), np.take_along_axis(source, order, -1), x.dtype)

    def scan(self, row: Reduction, out: View, x: View) -> None:
        reductions.scan(row, native(out), native(x), x.dtype, out.dtype)

    def random(self, out: View, *, kind: str, key: tuple[int, int], counter: tuple[int, int, int, int]) -> None:
        numbers = draw(kind, out.dtype.itemsize, key, counter, out.size)
        if kind == "uniform" and out.dtype.itemsize == 2:
            numbers = shortened(numbers, out.dtype)
        rows.store(native(out), numbers.reshape(out.shape), out.dtype)


def _span(layout: Layout) -> int:
    """Elements from the first to the last that a layout of positive strides addresses."""
    return 1 + sum((n - 1) * s for n, s in zip(layout.shape, layout.strides, strict=True)) if layout.size else 0


def _blas_ready(matrix: Array) -> Array:
    """The matrix itself if one of its last two axes has unit stride, else a copy: NumPy's own loops are 20 times slower."""
    rows_, columns = matrix.strides[-2:]
    item = matrix.itemsize
    m, n = matrix.shape[-2:]
    if (columns == item and rows_ >= n * item) or (rows_ == item and columns >= m * item):
        return matrix
    return np.ascontiguousarray(matrix)


def _checked(index: Array, size: int, op: str) -> Array:
    if index.size and (index.min() < 0 or index.max() >= size):
        wrong = index[(index < 0) | (index >= size)].flat[0]
        raise IndexRangeError(
            f"{op}: index {int(wrong)} is outside an axis of size {size}; indices must lie in [0, {size})"
        )
    return index


def _leading(shape: tuple[int, ...], rest: int) -> list[Array]:
    """Index arrays that walk the batch axes together."""
    return [np.arange(n).reshape(-1, *(1,) * (len(shape) - 1 - i + rest)) for i, n in enumerate(shape)]


class CPUDriver:
    """Finds the one CPU."""

    name = "cpu"

    def devices(self) -> list[DeviceInfo]:
        """The host, with its memory."""
        try:
            memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        except (AttributeError, ValueError, OSError):  # not told on this system
            memory = 0
        name = platform.processor() or platform.machine() or "CPU"
        return [
            DeviceInfo("cpu:0", "cpu", 0, name, "cpu", memory, tuple(d.name for d in ALL), f"numpy {np.__version__}")
        ]

    def open(self, index: int) -> CPUBackend:
        """The host, as cpu:0."""
        if index != 0:
            raise UnavailableError(f"cpu:{index}: there is one CPU device, cpu:0")
        return CPUBackend(self.devices()[0])
