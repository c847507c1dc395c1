"""What stands in the brackets of x[...]: ints, slices, None and Ellipsis, or one array of integers along the first axis."""

from __future__ import annotations

from operator import index as as_index
from typing import TYPE_CHECKING, Any

import numpy as np

from vsl_compute.dispatch import asarray, numbers_of
from vsl_compute.dispatch import run as launch
from vsl_compute.dtypes import int64
from vsl_compute.errors import DTypeError, GraphError, IndexRangeError, ShapeError, UnsupportedError
from vsl_compute.view import Index, View

from .autograd import gates, node, shape_gates
from .autograd.node import Traced, mode

if TYPE_CHECKING:
    from .tensor import Tensor

_LATER = "the release that completes tensors brings it; until then use where, a gather through one array of integers, or a mask of numbers"


def basic(x: Traced, index: Any) -> tuple[Index, ...]:
    """Basic indices with the Ellipsis written out; UnsupportedError for arrays, IndexRangeError for what is outside."""
    entries = list(index) if isinstance(index, tuple) else [index]
    taken = sum(entry is not None and entry is not Ellipsis for entry in entries)
    if taken > x.ndim:
        raise IndexRangeError(f"index: {taken} indices for a tensor of {x.ndim} axes, {x.shape}")
    dots = [i for i, entry in enumerate(entries) if entry is Ellipsis]
    if len(dots) > 1:
        raise IndexRangeError("index: '...' may stand once")
    if dots:
        entries[dots[0] : dots[0] + 1] = [slice(None)] * (x.ndim - taken)
    plain: list[Index] = []
    axis = 0
    for entry in entries:
        if entry is None or isinstance(entry, slice):
            plain.append(entry)
        else:
            plain.append(_whole(entry, x.shape[axis], axis))
        axis += entry is not None
    return tuple(plain)


def _whole(entry: Any, size: int, axis: int) -> int:
    if isinstance(entry, bool | np.bool | list | np.ndarray) or (
        isinstance(entry, Traced) and (entry.ndim or not entry.dtype.is_integer)
    ):
        raise UnsupportedError(f"index: an array or truth value along axis {axis}; {_LATER}")
    try:
        number = as_index(entry)
    except TypeError:
        raise IndexRangeError(
            f"index: {entry!r:.40} of type {type(entry).__name__} is no int, slice, None or '...'"
        ) from None
    if not -size <= number < size:
        raise IndexRangeError(f"index: {number} is outside axis {axis} of size {size}")
    return number


def select(x: Traced, index: Any) -> Tensor:
    """x[index]: a view for basic indices, a gather for one array of integers."""
    if isinstance(index, list | np.ndarray) or (isinstance(index, Traced) and index.ndim):
        return _gathered(x, index)
    return shape_gates.slice_(x, basic(x, index))


def _gathered(x: Traced, index: Any) -> Tensor:
    if not x.ndim:
        raise IndexRangeError("index: the tensor has no axis to index")
    size = x.shape[0]
    if not isinstance(index, Traced):
        try:
            host = numbers_of("index", index)
        except DTypeError as error:
            raise IndexRangeError(str(error)) from None
        if not host.size:
            host = host.astype(np.int64)
        if host.dtype.kind == "b":
            raise UnsupportedError(f"index: an array of truth values; {_LATER}")
        if host.dtype.kind not in "iu":
            raise IndexRangeError(f"index: an array of {host.dtype} cannot index; it must hold integers")
        outside = host[(host < -size) | (host >= size)]
        if outside.size:
            raise IndexRangeError(f"index: {outside.flat[0]} is outside axis 0 of size {size}")
        index = node.wrap(asarray(x.raw.buffer.backend, np.where(host < 0, host + size, host)))  # type: ignore[arg-type]
    elif index.dtype.kind == "b":
        raise UnsupportedError(f"index: a tensor of truth values; {_LATER}")
    elif not index.dtype.is_integer:
        raise IndexRangeError(f"index: a tensor of {index.dtype.name} cannot index; it must hold integers")
    elif index.dtype.kind == "i":
        index = index.to(dtype=int64)  # type: ignore[attr-defined]  # every Traced is a Tensor; int8 cannot hold every size
        index = gates.run("where", gates.run("less", index, 0), gates.run("add", index, size), index)
    return gates.run("gather", x, index)  # type: ignore[no-any-return]


def assign(x: Traced, index: Any, value: Any) -> None:
    """x[index] = value, for basic indices; GraphError where gradients flow."""
    if mode.enabled and (x.tracked or (isinstance(value, Traced) and value.tracked)):
        raise GraphError(
            "index assignment: gradients flow through the tensor or the value; build a new one with where or concat, or use vtl.no_grad()"
        )
    target = x.raw.slice(*basic(x, index))
    if isinstance(value, float | int):
        launch("fill", alpha=value, out=target)
        return
    backend: Any = x.raw.buffer.backend
    dtype = x.dtype if x.dtype.is_integer and isinstance(value, list | tuple) else None  # Python's ints must fit
    source: View = value.raw if isinstance(value, Traced) else asarray(backend, value, dtype)
    extra = max(0, source.ndim - target.ndim)
    if set(source.shape[:extra]) == {1}:
        source = source.slice(*(0,) * extra)
    try:
        source = source.expand(target.shape)
    except ShapeError:
        raise ShapeError(
            f"index assignment: a value of shape {source.shape} does not broadcast to {target.shape}"
        ) from None
    launch("copy", source, out=target)
