"""Methods that change the shape of a tensor and move no data."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from operator import index as as_index
from typing import TYPE_CHECKING, Any

from vsl_compute.errors import ArgumentTypeError, DTypeError, ShapeError
from vsl_compute.view import Index, Shape

from ..autograd import gates, shape_gates
from ..autograd.node import Traced

if TYPE_CHECKING:
    from ..tensor import Tensor


def sizes(given: tuple[Any, ...]) -> Shape:
    """(2, 3) from `2, 3` and from `(2, 3)`: both ways of writing a shape."""
    if len(given) == 1 and isinstance(given[0], Sequence):
        given = tuple(given[0])
    try:
        return tuple([as_index(n) for n in given])
    except TypeError:
        raise DTypeError(f"shape {given}: sizes must be integers") from None


def axis_in(op: str, axis: int, ndim: int) -> int:
    """`axis` counted from the left; ShapeError if it is outside, ArgumentTypeError if it is no integer."""
    try:
        axis = as_index(axis)
    except TypeError:
        raise ArgumentTypeError(f"{op}: axis {axis!r:.40} must be an integer") from None
    if not -ndim <= axis < ndim:
        raise ShapeError(f"{op}: axis {axis} of a tensor of {ndim} axes; it must lie in [{-ndim}, {ndim})")
    return axis % ndim if ndim else 0


class Shapes(Traced):
    """Shape operations; all but `reshape` and `flatten` of strided tensors share memory with the tensor."""

    __slots__ = ()

    def reshape(self, *shape: int | Sequence[int]) -> Tensor:
        """The elements in C order under another shape, one size of which may be -1; copied only if strides ask for it."""
        return shape_gates.reshape(self, sizes(shape))

    def view(self, *shape: int | Sequence[int]) -> Tensor:
        """As `reshape`, but ShapeError where that would copy."""
        wanted = sizes(shape)
        if not self.raw.can_reshape(wanted):
            raise ShapeError(
                f"view: strides {self.raw.strides} of shape {self.shape} cannot be viewed as {wanted}; use reshape, which copies"
            )
        return shape_gates.reshape(self, wanted)

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Tensor:
        """Merge the axes from start_dim to end_dim into one."""
        shape, ndim = self.shape, self.ndim
        if not ndim:
            return self.reshape((1,))
        first, last = axis_in("flatten", start_dim, ndim), axis_in("flatten", end_dim, ndim)
        if first > last:
            raise ShapeError(f"flatten: start_dim {start_dim} comes after end_dim {end_dim}")
        return self.reshape((*shape[:first], prod(shape[first : last + 1]), *shape[last + 1 :]))

    def permute(self, *dims: int | Sequence[int]) -> Tensor:
        """Axis i of the result is axis dims[i] here."""
        return shape_gates.permute(self, sizes(dims))

    def transpose(self, dim0: int, dim1: int) -> Tensor:
        """Swap two axes."""
        order = list(range(self.ndim))
        i, j = axis_in("transpose", dim0, self.ndim), axis_in("transpose", dim1, self.ndim)
        if order:
            order[i], order[j] = j, i
        return shape_gates.permute(self, tuple(order))

    @property
    def T(self) -> Tensor:
        """The transpose of a matrix."""
        if self.ndim != 2:
            raise ShapeError(f"T: the tensor is {self.shape}; T is for matrices, use mT or permute")
        return shape_gates.permute(self, (1, 0))

    @property
    def mT(self) -> Tensor:
        """The last two axes swapped."""
        if self.ndim < 2:
            raise ShapeError(f"mT: the tensor is {self.shape}; it needs at least 2 axes")
        return self.transpose(-2, -1)

    def squeeze(self, dim: int | Sequence[int] | None = None) -> Tensor:
        """Drop axes of size 1: all of them, or those of `dim` that are."""
        dims = range(self.ndim) if dim is None else dim if isinstance(dim, tuple | list) else (dim,)
        drop = {axis_in("squeeze", axis, self.ndim) for axis in dims}
        return self.reshape(tuple(n for i, n in enumerate(self.shape) if i not in drop or n != 1))

    def unsqueeze(self, dim: int) -> Tensor:
        """Add an axis of size 1 at `dim`."""
        at = axis_in("unsqueeze", dim, self.ndim + 1)
        return self.reshape((*self.shape[:at], 1, *self.shape[at:]))

    def expand(self, *shape: int | Sequence[int]) -> Tensor:
        """Broadcast to a shape without copying; -1 keeps an axis."""
        wanted = sizes(shape)
        lead = len(wanted) - self.ndim
        if -1 in wanted[: max(0, lead)]:
            raise ShapeError(f"expand: {wanted} keeps (-1) an axis that {self.shape} does not have")
        return shape_gates.expand(self, tuple(self.shape[i - lead] if n == -1 else n for i, n in enumerate(wanted)))

    def slice(self, *index: Index) -> Tensor:
        """Basic indexing, an entry an axis: int drops it, slice keeps it, None adds one. What `x[...]` does, without an Ellipsis."""
        return shape_gates.slice_(self, index)

    def window(self, axes: Shape, sizes: Shape, steps: Shape, dilations: Shape) -> Tensor:
        """Slide a window over `axes`: those become positions, and a window axis each is added at the end; nothing is copied."""
        return shape_gates.window(self, axes, sizes, steps, dilations)

    def unfold(self, dimension: int, size: int, step: int) -> Tensor:
        """Windows of `size` along one axis, `step` apart, as a last axis."""
        return shape_gates.window(
            self, (axis_in("unfold", dimension, self.ndim),), sizes((size,)), sizes((step,)), (1,)
        )

    def split(self, split_size: int | Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
        """Pieces along an axis: of one size, the last perhaps smaller, or of the sizes given."""
        axis = axis_in("split", dim, self.ndim)
        total = self.shape[axis]
        alike, parts = not isinstance(split_size, tuple | list), sizes((split_size,))
        size = parts[0] if alike else 0
        each = [size] * -(-total // max(1, size)) if alike else list(parts)
        if (alike and size < 1) or (not alike and sum(each) != total):
            raise ShapeError(
                f"split: {split_size} does not divide axis {dim} of {self.shape}; sizes must be positive and add up to {total}"
            )
        if alike and each:
            each[-1] = total - size * (len(each) - 1)
        return shape_gates.split(self, each, axis)

    def contiguous(self) -> Tensor:
        """The tensor itself if its elements lie in C order without gaps, else a copy in which they do."""
        if self.raw.is_contiguous:
            return self  # type: ignore[return-value]  # every Shapes is a Tensor
        return gates.run("contiguous", self)  # type: ignore[no-any-return]

    def is_contiguous(self) -> bool:
        """Whether the elements lie in C order without gaps."""
        return self.raw.is_contiguous

    def clone(self) -> Tensor:
        """A copy, through which gradients flow."""
        return gates.run("copy", self)  # type: ignore[no-any-return]
