"""Buffer and View: where data lies and how it is indexed. Shape operations only, no arithmetic.

A Buffer is one allocation of a backend. A View is shape, strides (in elements) and an offset into a Buffer;
every shape operation returns another View of the same Buffer and never touches the data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from math import prod
from operator import index as as_index
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from .errors import IndexRangeError, ShapeError

if TYPE_CHECKING:
    import numpy as np

    from .dtypes import DType

Shape = tuple[int, ...]
Index = int | slice | None


class Holder(Protocol):
    """What a View asks of the backend that holds it."""

    @property
    def spec(self) -> str:
        """Such as "cpu:0"."""
        ...

    @property
    def scratch_bytes(self) -> int:
        """How much a composite's body may hold at a time."""
        ...

    def download(self, view: View) -> np.ndarray[Any, Any]:
        """Copy to the host."""
        ...


class Buffer:
    """One allocation: `backend` made it, `handle` is the backend's own, `version` counts writes."""

    __slots__ = ("__weakref__", "backend", "handle", "nbytes", "version")

    def __init__(self, backend: Holder, handle: Any, nbytes: int) -> None:
        self.backend, self.handle, self.nbytes, self.version = backend, handle, nbytes, 0


def alike(values: Iterable[Any], kept: Iterable[Any]) -> bool:
    """Whether options that were found by equality are of the same types too: 1, 1.0 and True are equal, and not one option.

    What is checked once, and kept by a key, stands behind this: else a wrong type would pass after a right one was seen.
    """
    return all(map(_alike, values, kept))


def _alike(a: Any, b: Any) -> bool:
    return a is b or (type(a) is type(b) and (type(a) is not tuple or alike(a, b)))


def _ints(values: Iterable[Any]) -> Shape:
    """Of layouts, which are interned: one of shape (2.0, 3) would be found by all that ask for (2, 3)."""
    return tuple([int(as_index(n)) for n in values])


def dense_strides(shape: Shape) -> Shape:
    """Strides in elements of a C-ordered array of this shape."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size if size > 1 else 1
    return tuple(reversed(strides))


class Layout:
    """dtype, shape and strides, interned: equal layouts are one object, so plans are looked up by identity."""

    __slots__ = ("c_order", "derived", "dtype", "nbytes", "shape", "size", "strides")
    _interned: ClassVar[dict[tuple[DType, Shape, Shape], Layout]] = {}

    def __init__(self, dtype: DType, shape: Shape, strides: Shape) -> None:
        self.dtype, self.shape, self.strides = dtype, shape, strides
        self.derived: dict[
            Any, tuple[Layout, int, list[type]]
        ] = {}  # shape operations done on it before: layout, how far the offset moves, and of which types the key was
        self.size = prod(shape)
        self.nbytes = self.size * dtype.itemsize
        self.c_order = strides == dense_strides(shape) or _is_c_order(shape, strides)

    @classmethod
    def of(cls, dtype: DType, shape: Shape, strides: Shape | None = None) -> Layout:
        """The one Layout of these; C order if no strides are given."""
        key = (dtype, shape, dense_strides(shape) if strides is None else strides)
        found = cls._interned.get(key)
        if found is None:
            if len(cls._interned) > 100_000:  # a program with ever new shapes must not grow for ever
                cls._interned.clear()
            found = cls._interned[key] = cls(dtype, _ints(shape), _ints(key[2]))
        return found

    def like(self, dtype: DType) -> Layout:
        """A dense layout of another dtype with this one's order of axes, broadcast and gaps removed."""
        return Layout.of(dtype, self.shape, packed_strides(self.shape, self.strides))


def _is_c_order(shape: Shape, strides: Shape) -> bool:
    step = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size == 0:
            return True
        if size != 1 and stride != step:
            return 0 in shape
        step *= size
    return True


def packed_strides(shape: Shape, strides: Shape) -> Shape:
    """Strides without gaps whose axes are nested as in `strides`; axes of stride 0 go outermost in their own order."""
    if 0 in shape:
        return dense_strides(shape)
    order = sorted(
        (a for a in range(len(shape)) if shape[a] != 1), key=lambda a: (-abs(strides[a]) if strides[a] else -(2**62), a)
    )
    packed, step = [1] * len(shape), 1
    for axis in reversed(order):
        packed[axis] = step
        step *= shape[axis]
    step = 1
    for axis in reversed(range(len(shape))):
        if shape[axis] == 1:
            packed[axis] = step
        step = max(step, packed[axis] * shape[axis])
    return tuple(packed)


class View:
    """A strided window on a Buffer.

    Units: `strides` and `offset` count elements of `dtype`; `nbytes` counts bytes of the elements addressed.
    """

    __slots__ = ("buffer", "layout", "native", "offset")

    def __init__(self, buffer: Buffer, layout: Layout, offset: int = 0, native: Any = None) -> None:
        self.buffer, self.layout, self.offset = buffer, layout, offset
        self.native = native  # the backend's own handle for this view, made on first use

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self.layout.dtype

    @property
    def shape(self) -> Shape:
        """Sizes of the axes."""
        return self.layout.shape

    @property
    def strides(self) -> Shape:
        """Elements from one index to the next, an entry an axis."""
        return self.layout.strides

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.layout.size

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.layout.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements this view addresses."""
        return self.layout.nbytes

    @property
    def device(self) -> str:
        """Spec of the device that holds it, such as "cpu:0"."""
        return self.buffer.backend.spec

    @property
    def is_contiguous(self) -> bool:
        """True if the elements lie in C order without gaps."""
        return self.layout.c_order

    @property
    def is_dense(self) -> bool:
        """True if the elements fill one stretch of memory, each once, in any axis order."""
        step = 1
        for stride, size in sorted((s, n) for s, n in zip(self.strides, self.shape, strict=True) if n != 1):
            if stride != step:
                return self.size == 0
            step *= size
        return True

    @property
    def overlaps_itself(self) -> bool:
        """True if two indices may address one element (broadcast or overlapping window)."""
        reach = 0
        for stride, size in sorted((abs(s), n) for s, n in zip(self.strides, self.shape, strict=True) if n > 1):
            if stride <= reach:
                return self.size > 0
            reach += stride * (size - 1)
        return False

    def extent(self) -> tuple[int, int]:
        """First and one past the last byte addressed, counted from the start of the Buffer; (0, 0) if empty."""
        if not self.size:
            return 0, 0
        low = high = self.offset
        for size, stride in zip(self.shape, self.strides, strict=True):
            low, high = low + min(0, stride * (size - 1)), high + max(0, stride * (size - 1))
        return low * self.dtype.itemsize, (high + 1) * self.dtype.itemsize

    def to_host(self) -> np.ndarray[Any, Any]:
        """Copy to a NumPy array; bfloat16 comes as float32. Waits for the device, raises what it found wrong."""
        return self.buffer.backend.download(self)

    def _derive(self, rule: Callable[..., tuple[Layout, int]], key: tuple[Any, ...], *arguments: Any) -> View:
        """The view that a shape rule gives; the layout of one seen before is looked up, by a flat key."""
        layout, kinds = self.layout, [*map(type, key)]
        found = layout.derived.get((rule, key))
        if found is None or found[2] != kinds:  # 2.0 finds what 2 has left, and is to be refused as it is without
            made = rule(layout, *arguments)
            if len(layout.derived) > 1000:
                layout.derived.clear()
            found = layout.derived[rule, key] = (*made, kinds)
        return View(self.buffer, found[0], self.offset + found[1])

    def reshape(self, shape: Shape) -> View:
        """View the elements, in C order, as another shape; one size may be -1. ShapeError where only a copy could."""
        return self if shape is self.layout.shape else self._derive(_reshape, shape, shape)

    def can_reshape(self, shape: Shape) -> bool:
        """True if `reshape` would succeed without a copy."""
        layout = self.layout
        if type(shape) is tuple:
            found = layout.derived.get((_reshape, shape))
            if found is not None and found[2] == [*map(type, shape)]:  # it has succeeded before
                return True
        return _reshaped_strides(layout.shape, layout.strides, resolve_shape(layout.shape, shape)) is not None

    def permute(self, axes: Shape) -> View:
        """Reorder the axes: axis i of the result is axis axes[i] here."""
        return self._derive(_permute, axes, axes)

    def expand(self, shape: Shape) -> View:
        """Broadcast to `shape`, repeated axes having stride 0."""
        return self._derive(_expand, shape, shape)

    def slice(self, *index: Index) -> View:
        """Basic indexing, an entry an axis from the left: int drops the axis, slice keeps it, None adds one."""
        key: list[Any] = []  # slices cannot be keys before 3.12
        for i in index:
            if type(i) is slice:
                key += (slice, i.start, i.stop, i.step)
            else:
                key.append(i)
        return self._derive(_slice, tuple(key), index)

    def window(self, axes: Shape, sizes: Shape, steps: Shape, dilations: Shape) -> View:
        """Slide a window over `axes`: those become the positions, and one axis a window axis is added at the end.

        Shapes: axis of n becomes (n - dilation * (size - 1) - 1) // step + 1 positions; the data is not copied.
        """
        key = (*axes, None, *sizes, None, *steps, None, *dilations)
        return self._derive(_window, key, axes, sizes, steps, dilations)

    def __repr__(self) -> str:
        return f"View({self.dtype.name}{list(self.shape)} on {self.device})"


def resolve_shape(old: Shape, new: Shape) -> Shape:
    """Fill in one -1 of `new`; ShapeError if the sizes do not agree."""
    new = _ints(new)
    size = prod(old)
    if new.count(-1) == 1:
        rest = -prod(new)
        if rest and size % rest == 0:
            new = tuple(size // rest if n == -1 else n for n in new)
    if min(new, default=0) < 0 or prod(new) != size:
        raise ShapeError(f"reshape: {old} has {size} elements and cannot become {new}")
    return new


def _reshaped_strides(old: Shape, strides: Shape, new: Shape) -> Shape | None:
    """Strides of `new` over the same memory, or None if the axes to be joined are not laid out in line."""
    if prod(old) == 0:
        return dense_strides(new)
    axes = [(n, s) for n, s in zip(old, strides, strict=True) if n != 1]
    result: list[int] = []
    i, sizes = 0, [n for n in new if n != 1]
    j = 0
    while i < len(axes):
        have, want = axes[i][0], sizes[j]
        first_i, first_j = i, j
        while have != want:
            if have < want:
                i += 1
                have *= axes[i][0]
            else:
                j += 1
                want *= sizes[j]
        group = axes[first_i : i + 1]
        if any(outer != inner * size for (_, outer), (size, inner) in pairwise(group)):
            return None
        step = group[-1][1]
        for n in reversed(sizes[first_j : j + 1]):
            result.insert(first_j, step)
            step *= n
        i, j = i + 1, j + 1
    filled, last = iter(result), 1
    out = []
    for n in new:
        out.append(next(filled) if n != 1 else last)
        last = out[-1]
    return tuple(out)


# The shape rules: from a layout to a layout, and how many elements the offset moves.
def _reshape(x: Layout, shape: Shape) -> tuple[Layout, int]:
    shape = resolve_shape(x.shape, shape)
    if shape == x.shape:
        return x, 0
    strides = _reshaped_strides(x.shape, x.strides, shape)
    if strides is None:
        raise ShapeError(f"reshape: strides {x.strides} of shape {x.shape} cannot be viewed as {shape}; copy it first")
    return Layout.of(x.dtype, shape, strides), 0


def _permute(x: Layout, axes: Shape) -> tuple[Layout, int]:
    ndim = len(x.shape)
    if len(axes) != ndim or sorted(a % ndim if -ndim <= a < ndim else -1 for a in axes) != list(range(ndim)):
        raise ShapeError(f"permute: axes {axes} are not a permutation of the {ndim} axes of {x.shape}")
    return Layout.of(x.dtype, tuple(x.shape[a] for a in axes), tuple(x.strides[a] for a in axes)), 0


def _expand(x: Layout, shape: Shape) -> tuple[Layout, int]:
    shape = _ints(shape)
    lead = len(shape) - len(x.shape)
    if lead < 0:
        raise ShapeError(f"expand: {x.shape} has more axes than {shape}")
    if min(shape[:lead], default=0) < 0:
        raise ShapeError(f"expand: {x.shape} cannot become {shape}; a size must not be negative")
    strides = [0] * lead
    for have, want, stride in zip(x.shape, shape[lead:], x.strides, strict=True):
        if (have != want and have != 1) or want < 0:
            raise ShapeError(f"expand: {x.shape} does not broadcast to {shape}; an axis must be equal or 1")
        strides.append(stride if have == want else 0)
    return Layout.of(x.dtype, shape, tuple(strides)), 0


def _slice(x: Layout, index: tuple[Index, ...]) -> tuple[Layout, int]:
    shape: list[int] = []
    strides: list[int] = []
    offset = axis = 0
    for entry in index:
        if entry is None:
            shape.append(1)
            strides.append(0)
            continue
        if axis >= len(x.shape):
            raise ShapeError(f"slice: {len(index)} indices for the {len(x.shape)} axes of {x.shape}")
        size, stride = x.shape[axis], x.strides[axis]
        if isinstance(entry, slice):
            start, stop, step = entry.indices(size)
            count = len(range(start, stop, step))
            offset += start * stride if count else 0
            shape.append(count)
            strides.append(stride * step)
        else:
            entry = as_index(entry)
            if not -size <= entry < size:
                raise IndexRangeError(f"slice: index {entry} is outside axis {axis} of size {size}")
            offset += (entry % size) * stride
        axis += 1
    return Layout.of(x.dtype, tuple(shape) + x.shape[axis:], tuple(strides) + x.strides[axis:]), offset


def _window(x: Layout, axes: Shape, sizes: Shape, steps: Shape, dilations: Shape) -> tuple[Layout, int]:
    axes, sizes, steps, dilations = map(_ints, (axes, sizes, steps, dilations))
    shape, strides, ndim = list(x.shape), list(x.strides), len(x.shape)
    if any(not -ndim <= a < ndim for a in axes) or len({a % ndim for a in axes}) != len(axes):
        raise ShapeError(f"window: axes {axes} must be different axes of {x.shape}")
    if min((*steps, *dilations), default=1) < 1:
        raise ShapeError(f"window: steps {steps} and dilations {dilations} must be at least 1")
    for axis, size, step, dilation in zip(axes, sizes, steps, dilations, strict=True):
        room = x.shape[axis] - dilation * (size - 1) - 1
        if room < 0 or size < 1:
            raise ShapeError(f"window: {size} taps, dilation {dilation}, do not fit axis {axis} of {x.shape}")
        shape[axis], strides[axis] = room // step + 1, x.strides[axis] * step
        shape.append(size)
        strides.append(x.strides[axis] * dilation)
    return Layout.of(x.dtype, tuple(shape), tuple(strides)), 0
