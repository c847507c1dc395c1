"""Functions of whole tensors: `apply` and `update`, joining, reductions (with the array API's `axis` and `keepdims`), products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vsl_compute.dispatch import run_update
from vsl_compute.dtypes import DType
from vsl_compute.errors import AttributeValueError, DeviceError, DTypeError, ShapeError, UnsupportedError
from vsl_compute.rows.row import Update
from vsl_compute.rows.updates import TABLE as UPDATES
from vsl_compute.rows.updates import guarded as _guarded

from .arguments import explain
from .autograd import gates, node
from .autograd.node import Traced
from .foreign import check_first, foreign
from .methods.operators import matmul as _matmul
from .methods.shapes import axis_in
from .tensor import Tensor

Axis = int | Sequence[int] | None


def apply(op: Any, /, *tensors: Any, **attributes: Any) -> Any:
    """Run an entry of the op table, by name or as a row of one's own, so that gradients flow through it.

    Tensors, numbers and (for optional arguments) None in; one tensor back, or a tuple of the op's outputs.

    Errors: ShapeError, DTypeError, DeviceError, AttributeValueError, UnsupportedError, each naming op, given and rule
    """
    try:
        if node.stage is not None:
            return node.stage.layer(gates.run, op, tensors, attributes)
        return gates.run(op, *tensors, **attributes)
    except (DTypeError, DeviceError, ShapeError, AttributeError):  # said in words of Views, or of what a tensor has
        if error := foreign(getattr(op, "name", op), tensors):
            raise error from None
        raise


def update(
    row: str | Update,
    tensors: Sequence[Sequence[Tensor]] | Sequence[Tensor],
    scalars: Mapping[str, float] | Sequence[float],
) -> None:
    """Run a fused update row in place over tuples of tensors, one tuple a parameter; no gradient is remembered.

    The tensors of one parameter may also stand alone, and scalars without names in the row's order.

    Shapes: the tensors of a tuple alike, 0-d slots apart
    Errors: ShapeError, DTypeError, AttributeValueError naming the row
    """
    if isinstance(tensors, Traced):  # whose rows would pass for the tuples
        raise DTypeError(
            f"{getattr(row, 'name', row)}: tensors is one tensor; give a tuple of them, or a list of tuples"
        )
    alone = [t for t in tensors if isinstance(t, Traced)]
    groups: Any = [tensors] if alone else tensors
    update_all([(row, groups, scalars if isinstance(scalars, Mapping) else _named(row, scalars))])


def _named(row: str | Update, scalars: Sequence[float]) -> Mapping[str, float]:
    found = UPDATES.get(row) if isinstance(row, str) else row
    names = () if found is None else found.scalars  # a row that there is not is refused by name later
    if found is not None and len(scalars) != len(names):
        raise AttributeValueError(f"{found.name}: takes the scalars {', '.join(names)}; given {len(scalars)}")
    return dict(zip(names, scalars, strict=False))


def update_all(steps: Sequence[tuple[str | Update, Sequence[Sequence[Tensor]], Mapping[str, float]]]) -> None:
    """Run several update rows, each as `update` does: one step of an optimizer with groups.

    Where a placement steps on a device, either all of it takes effect or, after an error, nothing.

    Errors: as `update`
    """
    try:
        if node.stage is not None and node.stage.update(steps):
            return
        for row, tensors, scalars in steps:
            run_update(row, [[t.raw for t in group] for group in tensors], dict(scalars))
    except AttributeError:  # of what a tensor has
        for row, tensors, _ in steps:
            for group in tensors:
                if error := foreign(getattr(row, "name", row), group, (Traced,)):
                    raise error from None
        raise


def guarded(row: str | Update) -> Update:
    """An update row that takes two more 0-d slots: it steps with g * inverse_scale, and not at all where found_inf is not 0.

    Errors: UnsupportedError for a name that no row has
    """
    found = UPDATES.get(row) if isinstance(row, str) else row
    if found is None:
        raise UnsupportedError(f"guarded: no row is called {row!r}; there are {', '.join(UPDATES)}")
    return _guarded(found)


# joining and shapes
def concat(arrays: Sequence[Tensor], /, *, axis: int | None = 0) -> Tensor:
    """Join tensors along an axis they have; with axis None their elements in C order."""
    parts = list(arrays)
    if error := foreign("concat", parts, (Traced,)):
        raise error
    parts = [a.reshape(-1) for a in parts] if axis is None else parts
    if not parts:
        raise ShapeError("concat: there is nothing to join; give at least one tensor")
    return gates.run("concat", *parts, axis=axis or 0)  # type: ignore[no-any-return]


def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """PyTorch's `concat`."""
    return concat(tensors, axis=dim)


def stack(arrays: Sequence[Tensor], /, *, axis: int = 0) -> Tensor:
    """Join tensors of one shape along a new axis."""
    arrays = list(arrays)
    if error := foreign("stack", arrays, (Traced,)):
        raise error
    if len({a.shape for a in arrays}) > 1:
        raise ShapeError(f"stack: shapes {', '.join(str(a.shape) for a in arrays)} differ; all must be alike")
    return concat([a.unsqueeze(axis) for a in arrays], axis=axis)


def reshape(x: Tensor, /, shape: Sequence[int]) -> Tensor:
    """The elements in C order under another shape, one size of which may be -1."""
    return x.reshape(tuple(shape))


def permute_dims(x: Tensor, /, axes: Sequence[int]) -> Tensor:
    """Axis i of the result is axis axes[i] of x."""
    return x.permute(tuple(axes))


def expand_dims(x: Tensor, /, *, axis: int = 0) -> Tensor:
    """Add an axis of size 1."""
    return x.unsqueeze(axis)


def squeeze(x: Tensor, /, axis: int | Sequence[int]) -> Tensor:
    """Drop axes, which must be of size 1."""
    for a in axis if isinstance(axis, tuple | list) else (axis,):
        if x.shape[axis_in("squeeze", a, x.ndim)] != 1:
            raise ShapeError(f"squeeze: axis {a} of {x.shape} has size {x.shape[a]}, not 1")
    return x.squeeze(axis)


def broadcast_to(x: Tensor, /, shape: Sequence[int]) -> Tensor:
    """Repeat axes of size 1 up to `shape`, without copying."""
    return x.expand(tuple(shape))


def take(x: Tensor, indices: Tensor, /, *, axis: int = 0) -> Tensor:
    """Elements of an axis, chosen by a tensor of integers with one axis."""
    if indices.ndim != 1:
        raise ShapeError(f"take: indices are {indices.shape}; they must have one axis")
    moved = x.transpose(0, axis) if x.ndim else x
    return moved[indices].transpose(0, axis)


def astype(x: Tensor, dtype: DType, /, *, copy: bool = True) -> Tensor:
    """x in another dtype; a copy even where it has it already, unless `copy` is False."""
    return x.clone() if copy and x.dtype is dtype else x.to(dtype)


# products
def matmul(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Product over x1's last axis and x2's second to last; leading axes broadcast, vectors are rows or columns."""
    return _matmul(x1, x2)


# reductions
def sum(x: Tensor, /, *, axis: Axis = None, dtype: DType | None = None, keepdims: bool = False) -> Tensor:
    """Sum; integers add up in int64, float16 in float32; `dtype` casts first."""
    return (x if dtype is None else x.to(dtype)).sum(axis, keepdims)


def prod(x: Tensor, /, *, axis: Axis = None, dtype: DType | None = None, keepdims: bool = False) -> Tensor:
    """Product; its gradient is exact where elements are zero; `dtype` casts first."""
    return (x if dtype is None else x.to(dtype)).prod(axis, keepdims)


def mean(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Arithmetic mean."""
    return x.mean(axis, keepdims)


def var(x: Tensor, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """Variance over n - correction; the array API's default is 0, the method's, PyTorch's, is 1."""
    return x.var(axis, correction=correction, keepdim=keepdims)


def std(x: Tensor, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """Standard deviation over n - correction; the array API's default is 0, the method's, PyTorch's, is 1."""
    return x.std(axis, correction=correction, keepdim=keepdims)


def max(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Largest values; NaN wins, and elements that tie share the gradient."""
    return x.amax(axis, keepdims)


def min(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Smallest values; NaN wins, and elements that tie share the gradient."""
    return x.amin(axis, keepdims)


def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Index (int64) of the largest value, the first of several."""
    return x.argmax(axis, keepdims)


def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Index (int64) of the smallest value, the first of several."""
    return x.argmin(axis, keepdims)


def all(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Whether all are true, or not zero."""
    return x.all(axis, keepdims)


def any(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Whether one is true, or not zero."""
    return x.any(axis, keepdims)


def cumulative_sum(x: Tensor, /, *, axis: int | None = None) -> Tensor:
    """Running sum along an axis."""
    if axis is None and x.ndim != 1:
        raise ShapeError(f"cumulative_sum: x is {x.shape}; say which axis")
    return x.cumsum(axis or 0)


def logsumexp(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """log(sum(exp(x))) without overflow."""
    return x.logsumexp(axis, keepdims)


def softmax(x: Tensor, /, *, axis: int) -> Tensor:
    """exp(x) / sum(exp(x)) along an axis."""
    return x.softmax(axis)


def log_softmax(x: Tensor, /, *, axis: int) -> Tensor:
    """Logarithm of `softmax`, without its rounding."""
    return x.log_softmax(axis)


def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False) -> Tensor:
    """Values along an axis in order, NaN last."""
    return x.sort(axis, descending).values


def argsort(x: Tensor, /, *, axis: int = -1, descending: bool = False) -> Tensor:
    """Where the values along an axis come from when sorted."""
    return x.argsort(axis, descending)


check_first(globals())


explain(globals())
