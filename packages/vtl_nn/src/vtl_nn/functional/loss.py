"""Losses: a row or an op of the table, then a reduction; shapes must be alike, as broadcasting here hides mistakes."""

from __future__ import annotations

from typing import Any

import vtl_core as vtl
from vtl_core import AttributeValueError, IndexRangeError, ShapeError, Tensor
from vtl_core.arguments import explain
from vtl_nn.functional.embedding import out_of_range
from vtl_nn.functional.typing import as_tensor, is_number, require_tensors


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """-log(softmax(input))[target] of logits, times the class's `weight`; the mean is over the weights of what is not ignored.

    `label_smoothing` spreads that share of each target evenly over the classes. Targets of the logits' shape and floats
    are probabilities; nothing is ignored among them. With every target ignored the mean is NaN, as in PyTorch, and the
    gradient zero.

    Shapes:  input (N, C, ...) or (C,); target the same without C, class numbers, or the same, probabilities; weight (C,);
             result (), or the target's without C with reduction "none"
    Errors:  IndexRangeError if a label is outside [0, C); DTypeError if labels are no integers
    """
    options: dict[str, Any] = {"reduction": reduction, "label_smoothing": label_smoothing}
    if _is_one_sample(input, target):
        losses = cross_entropy(
            *_as_batch("cross_entropy", input, target), weight, ignore_index, reduction, label_smoothing
        )
        return losses.reshape(())
    if _are_probabilities(input, target):
        return as_tensor(vtl.apply("soft_cross_entropy", input, target, weight, **options))
    _labels("cross_entropy", target)
    try:
        return as_tensor(vtl.apply("cross_entropy", input, target, weight, ignore_index=ignore_index, **options)[0])
    except IndexRangeError as error:
        raise out_of_range("cross_entropy: label", target, input.shape[1], "classes", error, ignore_index) from None


def _is_one_sample(input: object, target: object) -> bool:
    """Logits (C,); the op refuses what is no tensor."""
    return isinstance(input, Tensor) and isinstance(target, Tensor) and input.ndim == 1


def _as_batch(op: str, input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """One sample's logits (C,) and its target, () or (C,), as a batch of one."""
    if target.shape not in ((), input.shape):
        raise ShapeError(
            f"{op}: the target {target.shape} of one sample's logits {input.shape} must be () or {input.shape}"
        )
    return input.unsqueeze(0), target.unsqueeze(0)


def _are_probabilities(input: object, target: object) -> bool:
    """Floats of the logits' shape; the op refuses what is no tensor."""
    if not (isinstance(input, Tensor) and isinstance(target, Tensor)):
        return False
    return target.shape == input.shape and target.dtype.is_floating


def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """-input[target] of log-probabilities; otherwise as cross_entropy.

    Shapes:  input (N, C, ...) or (C,); target the same without C, class numbers; weight (C,)
    Errors:  IndexRangeError if a label is outside [0, C); DTypeError if labels are no integers
    """
    _labels("nll_loss", target)
    if _is_one_sample(input, target):
        return nll_loss(*_as_batch("nll_loss", input, target), weight, ignore_index, reduction).reshape(())
    try:
        return as_tensor(vtl.apply("nll_loss", input, target, weight, reduction=reduction, ignore_index=ignore_index))
    except IndexRangeError as error:
        raise out_of_range("nll_loss: label", target, input.shape[1], "classes", error, ignore_index) from None


def _labels(op: str, target: object) -> None:
    if isinstance(target, Tensor) and target.dtype.is_floating:
        raise vtl.DTypeError(f"{op}: labels are {target.dtype.name}; they must be integers: labels.long()")


def mse_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """(input - target)**2, averaged, summed or as it is; the shapes must be alike."""
    return as_tensor(vtl.apply("mse_loss", input, target, reduction=reduction))


def _elementwise(
    op: str, input: Tensor, target: Tensor, *more: Any, reduction: str, row: str = "", **scalars: float
) -> Tensor:
    """A row of both, reduced."""
    require_tensors(op, input, target)
    if input.shape != target.shape:
        raise ShapeError(f"{op}: input {input.shape} and target {target.shape} must have one shape")
    return _reduced(op, as_tensor(vtl.apply(row or op, input, target, *more, **scalars)), reduction)


def _reduced(op: str, losses: Tensor, reduction: str) -> Tensor:
    if reduction == "none":
        return losses
    if reduction not in ("mean", "sum"):
        raise AttributeValueError(f"{op}: reduction={reduction!r} must be one of none, sum, mean")
    return losses.mean() if reduction == "mean" else losses.sum()


def l1_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """|input - target|."""
    return _elementwise("l1_loss", input, target, reduction=reduction)


def smooth_l1_loss(input: Tensor, target: Tensor, reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """d**2 / (2 * beta) where |d| = |input - target| is below `beta`, else |d| - beta / 2; beta 0 is l1_loss."""
    if not (is_number(beta) and beta >= 0):
        raise AttributeValueError(f"smooth_l1_loss: beta={beta!r} must be at least 0")
    if beta == 0:
        return _elementwise("smooth_l1_loss", input, target, reduction=reduction, row="l1_loss")
    return _elementwise("smooth_l1_loss", input, target, reduction=reduction, beta=beta)


def huber_loss(input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0) -> Tensor:
    """d**2 / 2 where |d| = |input - target| is at most `delta`, else delta * (|d| - delta / 2) (Huber 1964)."""
    if not (is_number(delta) and delta > 0):
        raise AttributeValueError(f"huber_loss: delta={delta!r} must be above 0")
    return _elementwise("huber_loss", input, target, reduction=reduction, delta=delta)


def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """-target * log(input) - (1 - target) * log(1 - input) of probabilities; logarithms stop at -100.

    Values outside [0, 1] give NaN, as logarithms do; from logits use binary_cross_entropy_with_logits, which keeps digits.
    """
    op = "binary_cross_entropy"
    losses = _elementwise(op, input, target, reduction="none")
    return _reduced(op, _weighted(op, losses, weight), reduction)


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """-pos_weight * target * log(p) - (1 - target) * log(1 - p), p = sigmoid(input), right for any logit.

    Shapes:  input and target alike; weight and pos_weight broadcast to them
    """
    op = "binary_cross_entropy_with_logits"
    require_tensors(op, input, target)
    if pos_weight is not None:
        _check_weight(op, "pos_weight", pos_weight, input)
    losses = _elementwise(op, input, target, 1.0 if pos_weight is None else pos_weight, reduction="none")
    return _reduced(op, _weighted(op, losses, weight), reduction)


def _weighted(op: str, losses: Tensor, weight: Tensor | None) -> Tensor:
    if weight is None:
        return losses
    _check_weight(op, "weight", weight, losses)
    return losses * weight


def _check_weight(op: str, name: str, weight: Tensor, like: Tensor) -> None:
    """A weight that were larger would count each loss several times."""
    if not isinstance(weight, Tensor):
        raise vtl.DTypeError(f"{op}: {name} is {type(weight).__name__}, not a tensor; wrap it: vtl.asarray(x)")
    fits = weight.ndim <= like.ndim and all(
        n in (1, m) for n, m in zip(weight.shape[::-1], like.shape[::-1], strict=False)
    )
    if not fits:
        raise ShapeError(f"{op}: {name} {weight.shape} must broadcast to the input {like.shape}")


def kl_div(input: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """target * (log(target) - input), `input` being log-probabilities; "batchmean" divides the sum by the first axis.

    "mean" divides by the count of elements, which is not the divergence's mean; PyTorch has it so.
    """
    row = "kl_div_log" if log_target else "kl_div"
    if reduction != "batchmean":
        return _elementwise("kl_div", input, target, reduction=reduction, row=row)
    return _elementwise("kl_div", input, target, reduction="sum", row=row) / (input.shape[0] if input.ndim else 1)


def hinge_loss(input: Tensor, target: Tensor, reduction: str = "mean", margin: float = 1.0) -> Tensor:
    """max(0, margin - target * input), targets being -1 and 1 (VTL's name)."""
    return _elementwise("hinge_loss", input, target, reduction=reduction, margin=margin)


def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0, reduction: str = "mean") -> Tensor:
    """The input where the target is 1, max(0, margin - input) where it is -1 (PyTorch's name)."""
    return _elementwise("hinge_embedding_loss", input, target, reduction=reduction, margin=margin)


def soft_margin_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """log(1 + exp(-target * input)), targets being -1 and 1."""
    return _elementwise("soft_margin_loss", input, target, reduction=reduction)


def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """max(0, margin - target * (input1 - input2)): with target 1 the first should be larger."""
    require_tensors("margin_ranking_loss", input1, input2, target)
    return _elementwise(
        "margin_ranking_loss", input1 - input2, target, reduction=reduction, row="hinge_loss", margin=margin
    )


def sigmoid_focal_loss(
    inputs: Tensor, targets: Tensor, alpha: float = 0.25, gamma: float = 2.0, reduction: str = "none"
) -> Tensor:
    """alpha_t * (1 - p_t)**gamma * binary cross-entropy, from logits; alpha below 0 weighs both classes 1.

    Arguments and defaults are torchvision's. Source: Lin et al. 2017, "Focal loss for dense object detection", equation 5
    """
    if not (is_number(alpha) and is_number(gamma) and alpha <= 1 and gamma >= 0):
        raise AttributeValueError(
            f"sigmoid_focal_loss: alpha={alpha!r} must be at most 1 and gamma={gamma!r} at least 0"
        )
    positive, negative = (1.0, 1.0) if alpha < 0 else (alpha, 1 - alpha)
    return _elementwise(
        "sigmoid_focal_loss", inputs, targets, reduction=reduction, positive=positive, negative=negative, gamma=gamma
    )


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """x1 . x2 / (max(|x1|, eps) * max(|x2|, eps)) along `dim`; 0 where one is zero.

    Shapes:  as many axes each; sizes broadcast
    """
    return as_tensor(vtl.apply("cosine_similarity", x1, x2, axis=dim, eps=eps))


def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """1 - cos where the target is 1, max(0, cos - margin) where it is -1.

    Shapes:  input1 and input2 (N, D), target (N,); or (D,), (D,) and ()
    """
    require_tensors("cosine_embedding_loss", input1, input2, target)
    if input1.shape != input2.shape or target.shape != input1.shape[:-1] or input1.ndim not in (1, 2):
        raise ShapeError(
            f"cosine_embedding_loss: inputs {input1.shape} and {input2.shape} must be (N, D) and the target {target.shape} (N,)"
        )
    # 1e-12 within the root of a length's square: PyTorch's here, and not cosine_similarity's
    shares = [x / vtl.apply("norm", x, axes=-1, keepdims=True).hypot(1e-6) for x in (input1, input2)]
    cosine = (shares[0] * shares[1]).sum(-1)
    zero = cosine * 0.0
    near = vtl.apply("where", target == 1, 1.0 - cosine, zero)
    far = vtl.apply("where", target == -1, (cosine - margin).clamp(min=0.0), zero)
    return _reduced("cosine_embedding_loss", near + far, reduction)


explain(globals())
