"""Losses as layers, with PyTorch's arguments."""

from __future__ import annotations

from vtl_core import AttributeValueError, Tensor, UnsupportedError
from vtl_nn import functional as F
from vtl_nn.module import Module


class CrossEntropyLoss(Module):
    """Cross-entropy of logits (N, C, ...) and class numbers (N, ...); see functional.cross_entropy."""

    def __init__(
        self,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        if weight is not None or label_smoothing:
            given = "weight" if weight is not None else "label_smoothing"
            raise UnsupportedError(f"CrossEntropyLoss: {given} is not here; leave it out")
        self.ignore_index, self.reduction = ignore_index, _reduction("CrossEntropyLoss", reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return F.cross_entropy(input, target, ignore_index=self.ignore_index, reduction=self.reduction)


class MSELoss(Module):
    """Mean squared error of two tensors of one shape."""

    def __init__(self, reduction: str = "mean") -> None:
        self.reduction = _reduction("MSELoss", reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return F.mse_loss(input, target, self.reduction)


def _reduction(name: str, reduction: str) -> str:
    if reduction not in ("none", "mean", "sum"):
        raise AttributeValueError(f"{name}: reduction={reduction!r} must be 'none', 'mean' or 'sum'")
    return reduction
