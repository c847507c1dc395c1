"""Losses as layers, with PyTorch's arguments: each holds its options, and a function of `functional` computes it."""

from __future__ import annotations

from typing import ClassVar

from vtl_core import AttributeValueError, Tensor
from vtl_core.arguments import explain
from vtl_nn import functional as F
from vtl_nn.functional.typing import is_number
from vtl_nn.module import Buffer, Module


class Loss(Module):
    """Base: `reduction` "mean", "sum" or "none"."""

    reductions: ClassVar[tuple[str, ...]] = ("none", "mean", "sum")

    def __init__(self, reduction: str = "mean") -> None:
        if reduction not in self.reductions:
            raise AttributeValueError(
                f"{type(self).__name__}: reduction={reduction!r} must be one of {', '.join(map(repr, self.reductions))}"
            )
        self.reduction = reduction

    def extra_repr(self) -> str:
        """The reduction."""
        return f"reduction={self.reduction!r}"


def _kept(weight: Tensor | None) -> Buffer | None:
    """Weights move with the module, and are saved as PyTorch saves them."""
    return None if weight is None else Buffer(weight)


class CrossEntropyLoss(Loss):
    """Cross-entropy of logits (N, C, ...) and class numbers (N, ...) or probabilities (N, C, ...); see functional.cross_entropy."""

    def __init__(
        self,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(reduction)
        if not (is_number(label_smoothing) and 0 <= label_smoothing <= 1):
            raise AttributeValueError(f"CrossEntropyLoss: label_smoothing={label_smoothing!r} must lie in [0, 1]")
        self.weight, self.ignore_index, self.label_smoothing = _kept(weight), ignore_index, label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return F.cross_entropy(input, target, self.weight, self.ignore_index, self.reduction, self.label_smoothing)


class NLLLoss(Loss):
    """Cross-entropy of log-probabilities, such as LogSoftmax gives."""

    def __init__(self, weight: Tensor | None = None, ignore_index: int = -100, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.weight, self.ignore_index = _kept(weight), ignore_index

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return F.nll_loss(input, target, self.weight, self.ignore_index, self.reduction)


class MSELoss(Loss):
    """Mean squared error of two tensors of one shape."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return F.mse_loss(input, target, self.reduction)


class L1Loss(Loss):
    """Mean absolute error."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return F.l1_loss(input, target, self.reduction)


class SmoothL1Loss(Loss):
    """Squared below `beta`, absolute beyond; Huber's divided by beta."""

    def __init__(self, reduction: str = "mean", beta: float = 1.0) -> None:
        super().__init__(reduction)
        if not (is_number(beta) and beta >= 0):
            raise AttributeValueError(f"SmoothL1Loss: beta={beta!r} must be at least 0")
        self.beta = beta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return F.smooth_l1_loss(input, target, self.reduction, self.beta)


class HuberLoss(Loss):
    """Squared up to `delta`, absolute beyond (Huber 1964)."""

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction)
        if not (is_number(delta) and delta > 0):
            raise AttributeValueError(f"HuberLoss: delta={delta!r} must be above 0")
        self.delta = delta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return F.huber_loss(input, target, self.reduction, self.delta)


class BCELoss(Loss):
    """Binary cross-entropy of probabilities; prefer BCEWithLogitsLoss."""

    def __init__(self, weight: Tensor | None = None, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.weight = _kept(weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return F.binary_cross_entropy(input, target, self.weight, self.reduction)


class BCEWithLogitsLoss(Loss):
    """Binary cross-entropy of logits, right for any of them; `pos_weight` multiplies the cost of the positive class."""

    def __init__(self, weight: Tensor | None = None, reduction: str = "mean", pos_weight: Tensor | None = None) -> None:
        super().__init__(reduction)
        self.weight, self.pos_weight = _kept(weight), _kept(pos_weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return F.binary_cross_entropy_with_logits(input, target, self.weight, self.reduction, self.pos_weight)


class KLDivLoss(Loss):
    """Kullback-Leibler divergence of a target distribution and log-probabilities; "batchmean" is its mean over samples."""

    reductions = ("none", "mean", "sum", "batchmean")

    def __init__(self, reduction: str = "mean", log_target: bool = False) -> None:
        super().__init__(reduction)
        self.log_target = log_target

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return F.kl_div(input, target, self.reduction, self.log_target)


class HingeLoss(Loss):
    """max(0, margin - target * input), targets being -1 and 1."""

    def __init__(self, reduction: str = "mean", margin: float = 1.0) -> None:
        super().__init__(reduction)
        self.margin = margin

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return F.hinge_loss(input, target, self.reduction, self.margin)


class HingeEmbeddingLoss(Loss):
    """A distance where the target is 1, what it lacks to `margin` where the target is -1."""

    def __init__(self, margin: float = 1.0, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.margin = margin

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return F.hinge_embedding_loss(input, target, self.margin, self.reduction)


class SoftMarginLoss(Loss):
    """log(1 + exp(-target * input)), targets being -1 and 1."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return F.soft_margin_loss(input, target, self.reduction)


class MarginRankingLoss(Loss):
    """max(0, margin - target * (input1 - input2)): with target 1 the first should be larger."""

    def __init__(self, margin: float = 0.0, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.margin = margin

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return F.margin_ranking_loss(input1, input2, target, self.margin, self.reduction)


class CosineEmbeddingLoss(Loss):
    """1 - cos of two vectors where the target is 1, cos beyond `margin` where it is -1."""

    def __init__(self, margin: float = 0.0, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.margin = margin

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return F.cosine_embedding_loss(input1, input2, target, self.margin, self.reduction)


class FocalLoss(Loss):
    """Binary cross-entropy of logits that well-classified examples hardly count in (Lin et al. 2017)."""

    def __init__(self, alpha: float = 0.25, gamma: float = 2.0, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.alpha, self.gamma = alpha, gamma

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return F.sigmoid_focal_loss(input, target, self.alpha, self.gamma, self.reduction)


class CosineSimilarity(Module):
    """x1 . x2 over the product of lengths along `dim`; 0 where one is zero."""

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        self.dim, self.eps = dim, eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """Return the similarities."""
        return F.cosine_similarity(x1, x2, self.dim, self.eps)


explain(globals(), whole=True)
