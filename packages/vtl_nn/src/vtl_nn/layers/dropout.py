"""Dropout of elements and of channels."""

from __future__ import annotations

from vtl_core import AttributeValueError, Tensor
from vtl_core.arguments import explain
from vtl_nn import functional as F
from vtl_nn.functional.typing import is_number
from vtl_nn.module import Module


class Dropout(Module):
    """Zero each element with probability `p` in training, scale the others by 1 / (1 - p); the input itself in eval."""

    def __init__(self, p: float = 0.5) -> None:
        if not (is_number(p) and 0 <= p <= 1):
            raise AttributeValueError(f"Dropout: p={p!r} must lie in [0, 1]")
        self.p = p

    def forward(self, input: Tensor) -> Tensor:
        """Draw a fresh mask, by the mode."""
        return F.dropout(input, self.p, self.training)

    def extra_repr(self) -> str:
        """The probability."""
        return f"p={self.p}"


class Dropout2d(Dropout):
    """Zero each channel of each sample (N, C, H, W) with probability `p` in training, scale the others by 1 / (1 - p)."""

    def forward(self, input: Tensor) -> Tensor:
        """Draw a fresh mask, by the mode."""
        return F.dropout2d(input, self.p, self.training)


class Dropout1d(Dropout2d):
    """Dropout2d for sequences (N, C, L)."""


explain(globals(), whole=True)
