"""Flatten."""

from __future__ import annotations

from math import prod

from vtl_core import AttributeValueError, Tensor
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
