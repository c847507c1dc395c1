"""Methods that reduce axes to one value each, and those that stand on a reduction."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod, sqrt
from typing import TYPE_CHECKING, NamedTuple, overload

from vsl_compute.ops.op import axes_of
from vsl_compute.rows.elementwise import TABLE as ROW
from vsl_compute.rows.reductions import TABLE
from vsl_compute.view import Shape

from ..autograd import gates
from ..autograd.gates import binary
from .shapes import Shapes, axis_in

if TYPE_CHECKING:
    from ..tensor import Tensor

Dim = int | Sequence[int] | None


class Extremes(NamedTuple):
    """The largest or smallest values along an axis, and where they stand; the first wins."""

    values: Tensor
    indices: Tensor


class Reductions(Shapes):
    """Reductions: `dim` is one axis, several, or None for all; with `keepdim` they stay, with size 1."""

    __slots__ = ()

    def _reduce(self, name: str, dim: Dim, keepdim: bool) -> Tensor:
        axes = tuple(dim) if isinstance(dim, Sequence) else dim
        return gates.run_reduction(TABLE[name], self, axes, keepdim)  # type: ignore[no-any-return]

    def sum(self, dim: Dim = None, keepdim: bool = False) -> Tensor:
        """Sum; integers and bools add up in int64 (uint64 if unsigned), float16 in float32."""
        return self._reduce("sum", dim, keepdim)

    def mean(self, dim: Dim = None, keepdim: bool = False) -> Tensor:
        """Arithmetic mean; of integers it is float32, of nothing NaN."""
        return self._reduce("mean", dim, keepdim)

    def prod(self, dim: Dim = None, keepdim: bool = False) -> Tensor:
        """Product; its gradient is exact where elements are zero."""
        return self._reduce("prod", dim, keepdim)

    def amax(self, dim: Dim = None, keepdim: bool = False) -> Tensor:
        """Largest value; NaN wins, and elements that tie share the gradient."""
        return self._reduce("max", dim, keepdim)

    def amin(self, dim: Dim = None, keepdim: bool = False) -> Tensor:
        """Smallest value; NaN wins, and elements that tie share the gradient."""
        return self._reduce("min", dim, keepdim)

    def all(self, dim: Dim = None, keepdim: bool = False) -> Tensor:
        """Whether all are true, or not zero."""
        return self._truth()._reduce("all", dim, keepdim)

    def any(self, dim: Dim = None, keepdim: bool = False) -> Tensor:
        """Whether one is true, or not zero."""
        return self._truth()._reduce("any", dim, keepdim)

    def _truth(self) -> Tensor:
        return self if self.dtype.kind == "b" else gates.run("not_equal", self, 0)  # type: ignore[return-value]  # every Reductions is a Tensor

    def argmax(self, dim: int | None = None, keepdim: bool = False) -> Tensor:
        """Index (int64) of the largest value, the first of several; among all elements in C order if `dim` is None."""
        return self._reduce("argmax", dim, keepdim)

    def argmin(self, dim: int | None = None, keepdim: bool = False) -> Tensor:
        """Index (int64) of the smallest value, the first of several; among all elements in C order if `dim` is None."""
        return self._reduce("argmin", dim, keepdim)

    def logsumexp(self, dim: Dim, keepdim: bool = False) -> Tensor:
        """log(sum(exp(x))) without overflow; -inf for nothing."""
        return self._reduce("logsumexp", dim, keepdim)

    def var(
        self, dim: Dim = None, *, correction: float = 1, unbiased: bool | None = None, keepdim: bool = False
    ) -> Tensor:
        """Variance, the sum of squared deviations over n - correction; `unbiased` is PyTorch's older word for correction 1 or 0."""
        return self._narrowed(self._variance("var", dim, correction if unbiased is None else int(unbiased), keepdim))

    def std(
        self, dim: Dim = None, *, correction: float = 1, unbiased: bool | None = None, keepdim: bool = False
    ) -> Tensor:
        """Square root of `var`, also where that is too large or small for a number; where all elements are equal the gradient is 0."""
        correction = correction if unbiased is None else int(unbiased)
        axes = axes_of("std", dim, self.ndim)
        n = prod(self.shape[a] for a in axes)
        mean: Tensor = gates.run_reduction(TABLE["moments"], self, axes, True)[0]
        length = gates.run_reduction(TABLE["norm"], binary(ROW["subtract"], self, mean), axes, keepdim)
        return self._narrowed(gates.run("scale", length, alpha=1 / sqrt(n - correction) if n > correction else inf))

    def _variance(self, op: str, dim: Dim, correction: float, keepdim: bool) -> Tensor:
        """In float32 at least: squares of float16 numbers overflow where their root does not."""
        axes = axes_of(op, dim, self.ndim)
        n = prod(self.shape[a] for a in axes)
        variance: Tensor = gates.run_reduction(TABLE["moments"], self, axes, keepdim)[1]
        if correction:
            variance = gates.run("scale", variance, alpha=n / (n - correction) if n > correction else inf)
        return variance

    def _narrowed(self, x: Tensor) -> Tensor:
        """x in this tensor's dtype, if that is floating."""
        same = x.dtype is self.dtype or not self.dtype.is_floating
        return x if same else gates.run("astype", x, dtype=self.dtype)

    def softmax(self, dim: int) -> Tensor:
        """exp(x) / sum(exp(x)) along an axis."""
        return gates.run("softmax", self, axis=dim)  # type: ignore[no-any-return]

    def log_softmax(self, dim: int) -> Tensor:
        """Logarithm of `softmax`, without its rounding."""
        return gates.run("log_softmax", self, axis=dim)  # type: ignore[no-any-return]

    def cumsum(self, dim: int) -> Tensor:
        """Running sum along an axis."""
        last, order = self._last("cumsum", dim)
        return gates.run("cumsum", last).permute(order)  # type: ignore[no-any-return]

    def sort(self, dim: int = -1, descending: bool = False) -> Extremes:
        """Values along an axis in order, NaN last, and where each came from; equal values keep their order."""
        last, order = self._last("sort", dim)
        values, indices = gates.run("sort", last, descending=descending)
        return Extremes(values.permute(order), indices.permute(order))

    def argsort(self, dim: int = -1, descending: bool = False) -> Tensor:
        """Where the values along an axis come from when sorted."""
        return self.sort(dim, descending).indices

    def _last(self, op: str, dim: int) -> tuple[Tensor, Shape]:
        """The tensor with axis `dim` last, and the permutation that undoes it."""
        axis = axis_in(op, dim, self.ndim)
        others = tuple(i for i in range(self.ndim) if i != axis)
        order = (*others, axis) if self.ndim else ()
        return self.permute(order), tuple(order.index(i) for i in range(len(order)))

    @overload
    def max(self) -> Tensor: ...
    @overload
    def max(self, dim: int, keepdim: bool = ...) -> Extremes: ...
    def max(self, dim: int | None = None, keepdim: bool = False) -> Tensor | Extremes:
        """Without `dim` as `amax`; with it the values and the index of each, to which alone the gradient goes."""
        return self.amax() if dim is None else self._extremes("argmax", dim, keepdim)

    @overload
    def min(self) -> Tensor: ...
    @overload
    def min(self, dim: int, keepdim: bool = ...) -> Extremes: ...
    def min(self, dim: int | None = None, keepdim: bool = False) -> Tensor | Extremes:
        """Without `dim` as `amin`; with it the values and the index of each, to which alone the gradient goes."""
        return self.amin() if dim is None else self._extremes("argmin", dim, keepdim)

    def _extremes(self, name: str, dim: int, keepdim: bool) -> Extremes:
        last, _ = self._last(name, dim)
        index = self._reduce(name, dim, keepdim)
        batch = last.shape[:-1]
        values = gates.run("gather", last, index.reshape((*batch, 1)), batch=len(batch))
        return Extremes(values.reshape(index.shape), index)
