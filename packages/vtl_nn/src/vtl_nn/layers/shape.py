"""Flatten and Unflatten."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from vtl_core import AttributeValueError, Tensor
from vtl_core.arguments import explain
from vtl_nn.module import Module


class Flatten(Module):
    """Merge the axes start_dim to end_dim, by default all but the batch."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input: Tensor) -> Tensor:
        """Return the reshaped input."""
        shape = input.shape
        ndim = len(shape)
        if not all(-ndim <= dim < ndim for dim in (self.start_dim, self.end_dim)):
            raise AttributeValueError(
                f"Flatten: start_dim={self.start_dim}, end_dim={self.end_dim} for an input {shape} of {ndim} axes"
            )
        start, end = self.start_dim % ndim, self.end_dim % ndim + 1
        if start >= end:
            raise AttributeValueError(
                f"Flatten: start_dim={self.start_dim} comes after end_dim={self.end_dim} in an input {shape}; swap them"
            )
        return input.reshape((*shape[:start], prod(shape[start:end]), *shape[end:]))

    def extra_repr(self) -> str:
        """The axes."""
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Split the axis `dim` into several, one of whose sizes may be -1."""

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        self.dim, self.unflattened_size = dim, tuple(unflattened_size)

    def forward(self, input: Tensor) -> Tensor:
        """Return the reshaped input."""
        shape, sizes = input.shape, self.unflattened_size
        known = prod(n for n in sizes if n >= 0)
        fits = -len(shape) <= self.dim < len(shape) and sizes.count(-1) <= 1 and min(sizes, default=0) >= -1
        size = shape[self.dim] if fits else 0
        if not fits or not sizes or (known != size if -1 not in sizes else not known or size % known):
            raise AttributeValueError(f"Unflatten: axis {self.dim} of an input {shape} cannot become {sizes}")
        dim = self.dim % len(shape)
        whole = tuple(size // known if n == -1 else n for n in sizes)
        return input.reshape((*shape[:dim], *whole, *shape[dim + 1 :]))

    def extra_repr(self) -> str:
        """The axis and its parts."""
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"


explain(globals(), whole=True)
