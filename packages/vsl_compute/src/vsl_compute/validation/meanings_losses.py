"""What the losses mean: the oracle's functions with the arguments that the ops take, and the magnitudes they are judged at."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import oracle_losses
from .wide import LONG, Array

Outputs = tuple[Any, ...]
SPREAD = 16.0  # magnitude of log-probabilities of the logits drawn


def cross_entropy_rows(x: Array, target: Array, weight: Array | None, **options: Any) -> Outputs:
    """Each row's loss, its logsumexp, and what its target counts."""
    labels, ignored = target.ravel(), options["ignore_index"]
    loss, lse, _ = cross_entropy(x.reshape(-1, x.shape[-1]), labels, weight, "none", **options)
    counts = np.where(labels == ignored, 0, np.ones(x.shape[-1])[labels] if weight is None else weight[labels])
    return loss.reshape(target.shape), lse.reshape(target.shape), counts.reshape(target.shape)


def _softmax(x: Array) -> Array:
    e = np.exp(x.astype(LONG) - np.max(x, -1, keepdims=True))
    return np.asarray(e / np.sum(e, -1, keepdims=True))


def cross_entropy_input(g: Array, x: Array, target: Array, count: Array | None, weight: Array | None, ignore_index: int = -100,
                         label_smoothing: float = 0.0) -> Array:  # fmt: skip
    """(softmax(x) * the coefficients' sum - coefficients) * g / count; 0 where the target is ignored."""
    classes = x.shape[-1]
    weights = np.ones(classes, LONG) if weight is None else weight.astype(LONG)
    hot = (np.arange(classes) == target) * (1 - LONG(label_smoothing)) + LONG(label_smoothing) / classes
    coefficients = hot * weights
    d = _softmax(x) * coefficients.sum(-1, keepdims=True) - coefficients
    return np.where(target == ignore_index, 0, d * g / (1 if count is None else count))


def cross_entropy_input_scales(
    g: Array, x: Array, target: Array, count: Array | None, weight: Array | None, **options: Any
) -> Outputs:
    """The terms' magnitudes."""
    most = 1 if weight is None else np.max(weight)
    return ((_softmax(x) + 1) * most * np.abs(g / (1 if count is None else count)),)


def counted_mean(x: Array, count: Array) -> Outputs:
    """Sum over sum of counts, and the two."""
    total, counts = (np.sum(v.astype(LONG), keepdims=True) for v in (x, count))
    return total / counts, total, counts


def counted_mean_scales(x: Array, count: Array) -> Outputs:
    """The terms' magnitudes."""
    size = np.sum(np.abs(x.astype(LONG)))
    return size / abs(np.sum(count.astype(LONG))), size, np.sum(np.abs(count.astype(LONG)))


def cross_entropy(
    x: Array, target: Array, weight: Array | None = None, reduction: str = "mean", **options: Any
) -> Outputs:
    """The loss, each row's logsumexp, and what the targets count."""
    rows, labels = np.moveaxis(x.astype(LONG), 1, -1).reshape(-1, x.shape[1]), target.ravel()
    loss, count = oracle_losses.cross_entropy(rows, labels, weight, reduction=reduction, **options)
    lse = np.log(np.sum(np.exp(rows), axis=1)).reshape(target.shape)
    return loss.reshape(target.shape) if reduction == "none" else loss, lse, count


def cross_entropy_scales(
    x: Array, target: Array, weight: Array | None = None, reduction: str = "mean", **options: Any
) -> Outputs:
    """Log-probabilities are as large as the logits are spread."""
    return SPREAD * (target.size if reduction == "sum" else 1), SPREAD, None


def cross_entropy_backward(g: Array, x: Array, target: Array, count: Array, **options: Any) -> Array:
    """What the logits receive."""
    return oracle_losses.cross_entropy_backward(g, x, target, **options)


def soft_cross_entropy(x: Array, target: Array, weight: Array | None, **options: Any) -> Array:
    """The loss of targets that are probabilities."""
    rows, wanted = (np.moveaxis(v.astype(LONG), 1, -1).reshape(-1, x.shape[1]) for v in (x, target))
    loss = oracle_losses.soft_cross_entropy(rows, wanted, weight, **options)
    return loss.reshape(x.shape[0], *x.shape[2:]) if loss.ndim else loss


def nll(x: Array, target: Array, weight: Array | None, **options: Any) -> Array:
    """The loss of log-probabilities."""
    loss = oracle_losses.nll_loss(np.moveaxis(x, 1, -1).reshape(-1, x.shape[1]), target.ravel(), weight, **options)[0]
    return loss.reshape(target.shape) if loss.ndim else loss


def cosine(a: Array, b: Array, axis: int = 1) -> Array:
    """The product of two vectors over the product of their lengths."""
    left, right = np.broadcast_arrays(a.astype(LONG), b.astype(LONG))
    lengths = np.sqrt(np.sum(a.astype(LONG) ** 2, axis)) * np.sqrt(np.sum(b.astype(LONG) ** 2, axis))
    return np.asarray(np.sum(left * right, axis) / lengths)


def mse(x: Array, target: Array, reduction: str = "mean") -> Array:
    """Squares, their sum or their mean."""
    squares = (x.astype(LONG) - target) ** 2
    return squares if reduction == "none" else np.asarray(squares.sum() if reduction == "sum" else squares.mean())
