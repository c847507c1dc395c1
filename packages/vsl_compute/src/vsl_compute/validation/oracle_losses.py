"""The independent meaning of softmax, cross-entropy, the normalizations and embedding, from their definitions."""

from __future__ import annotations

from typing import Any

import numpy as np

from .wide import LONG, Array


def _shifted(x: Array, axis: int) -> Array:
    """x minus its largest value along `axis`; exp(x - c) has the same ratios for any c, so the value stays."""
    wide = np.asarray(x).astype(LONG)
    top = np.max(wide, axis=axis, keepdims=True, initial=-np.inf)
    return np.asarray(wide - top)  # -inf minus -inf is NaN: a row of nothing but -inf has no softmax


def softmax(x: Array, axis: int = -1) -> Array:
    """exp(x) over the sum of exp(x) along `axis`."""
    with np.errstate(all="ignore"):
        powers = np.exp(_shifted(x, axis))
        return np.asarray(powers / np.sum(powers, axis=axis, keepdims=True))


def log_softmax(x: Array, axis: int = -1) -> Array:
    """x minus the log of the sum of exp(x)."""
    with np.errstate(all="ignore"):
        shifted = _shifted(x, axis)
        return np.asarray(shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True)))


def softmax_backward(g: Array, y: Array, axis: int = -1) -> Array:
    """Jacobian diag(y) - y y^T applied to g."""
    g, y = np.asarray(g).astype(LONG), np.asarray(y).astype(LONG)
    with np.errstate(all="ignore"):
        return np.asarray(y * (g - np.sum(np.where(y == 0, 0, g * y), axis=axis, keepdims=True)))


def log_softmax_backward(g: Array, y: Array, axis: int = -1) -> Array:
    """Jacobian I - 1 softmax^T applied to g, y being the log-softmax."""
    g, y = np.asarray(g).astype(LONG), np.asarray(y).astype(LONG)
    return np.asarray(g - np.exp(y) * np.sum(g, axis=axis, keepdims=True))


def soft_cross_entropy(
    logits: Array, target: Array, weight: Array | None = None, reduction: str = "mean", label_smoothing: float = 0.0
) -> Array:
    """-sum over classes of weight * target * log softmax(logits), the target mixed with the uniform one (Szegedy et al. 2016, 7)."""
    classes = logits.shape[1]
    mixed = (1 - LONG(label_smoothing)) * np.asarray(target).astype(LONG) + LONG(label_smoothing) / classes
    table = log_softmax(logits, axis=1)
    per_class = np.ones(classes, LONG) if weight is None else np.asarray(weight).astype(LONG)
    losses = np.array(
        [-sum(per_class[c] * mixed[i, c] * table[i, c] for c in range(classes)) for i in range(len(table))]
    )
    return losses if reduction == "none" else np.asarray(losses.sum() if reduction == "sum" else losses.mean())


def nll_loss(
    table: Array, target: Array, weight: Array | None = None, ignore_index: int = -100, reduction: str = "mean"
) -> tuple[Array, Array]:
    """-weight[label] * table[label] of each row, and the sum of weights: "mean" divides by it, and is NaN where nothing counts."""
    losses, count = np.zeros(len(target), LONG), LONG(0)
    for row, label in enumerate(np.asarray(target).tolist()):
        if label != ignore_index:
            own = LONG(1) if weight is None else LONG(weight[label])
            losses[row] = 0 - own * LONG(table[row, label])
            count += own
    with np.errstate(all="ignore"):
        result = losses if reduction == "none" else losses.sum() if reduction == "sum" else losses.sum() / count
    return np.asarray(result), np.asarray(count)


def cross_entropy(
    logits: Array,
    target: Array,
    weight: Array | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> tuple[Array, Array]:
    """-log softmax(logits)[label] of each row, a share of it spread over all classes; and the sum of the labels' weights."""
    labels, classes = np.asarray(target), logits.shape[1]
    hard, count = nll_loss(log_softmax(logits, axis=1), labels, weight, ignore_index, "none")
    spread = soft_cross_entropy(logits, np.full(logits.shape, LONG(1) / classes), weight, "none")
    losses = (1 - LONG(label_smoothing)) * hard + LONG(label_smoothing) * np.where(labels == ignore_index, 0, spread)
    with np.errstate(all="ignore"):
        result = losses if reduction == "none" else losses.sum() if reduction == "sum" else losses.sum() / count
    return np.asarray(result), count


def cross_entropy_backward(
    g: Array,
    logits: Array,
    target: Array,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Array:
    """(softmax - target) of each row that counts, times what arrives; other rows receive 0, never NaN."""
    probabilities = softmax(logits, axis=1)
    result = np.zeros(probabilities.shape, LONG)
    counted = int(np.sum(np.asarray(target) != ignore_index))
    arriving = np.broadcast_to(np.asarray(g).astype(LONG), (len(target),))
    for row, label in enumerate(np.asarray(target).tolist()):
        if label != ignore_index:
            hot = np.full(probabilities.shape[1], LONG(label_smoothing) / probabilities.shape[1])
            hot[label] += 1 - LONG(label_smoothing)
            result[row] = (probabilities[row] - hot) * arriving[row] / (counted if reduction == "mean" else 1)
    return result


def standardized(x: Array, axes: tuple[int, ...], eps: float) -> tuple[Array, Array, Array]:
    """(x - mean) / sqrt(var + eps) over `axes`, with mean and 1 / sqrt(var + eps), axes kept; var is biased."""
    wide = np.asarray(x).astype(LONG)
    with np.errstate(all="ignore"):
        mean = np.mean(wide, axis=axes, keepdims=True)
        var = np.mean((wide - mean) ** 2, axis=axes, keepdims=True)
        rstd = 1 / np.sqrt(var + LONG(eps))
        return (wide - mean) * rstd, mean, rstd


def standardized_backward(g: Array, x: Array, axes: tuple[int, ...], eps: float) -> Array:
    """rstd * (g - mean(g) - x_hat * mean(g * x_hat)). Source: Ioffe & Szegedy 2015, section 3, simplified."""
    x_hat, _, rstd = standardized(x, axes, eps)
    wide = np.asarray(g).astype(LONG)
    with np.errstate(all="ignore"):
        along = np.mean(wide * x_hat, axis=axes, keepdims=True)
        return np.asarray(rstd * (wide - np.mean(wide, axis=axes, keepdims=True) - x_hat * along))


def _channels(parameter: Array | None, ndim: int, default: int) -> Any:
    """A parameter a channel, broadcast along axis 1."""
    return default if parameter is None else np.asarray(parameter).astype(LONG).reshape(1, -1, *[1] * (ndim - 2))


def batch_norm(
    x: Array,
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
    running_mean: Array | None = None,
    running_var: Array | None = None,
) -> Array:
    """Standardize each channel (axis 1) over all other axes, or by running statistics where given, then scale and shift."""
    x = np.asarray(x)
    if running_mean is not None:
        wide = x.astype(LONG) - _channels(running_mean, x.ndim, 0)
        x_hat = wide / np.sqrt(_channels(running_var, x.ndim, 1) + LONG(eps))
    else:
        x_hat = standardized(x, tuple(a for a in range(x.ndim) if a != 1), eps)[0]
    return np.asarray(x_hat * _channels(weight, x.ndim, 1) + _channels(bias, x.ndim, 0))


def running_statistics(x: Array, running_mean: Array, running_var: Array, momentum: float) -> tuple[Array, Array]:
    """Moved towards the batch's mean and its *unbiased* variance by `momentum`."""
    wide = np.asarray(x).astype(LONG)
    axes = tuple(a for a in range(wide.ndim) if a != 1)
    rate = LONG(momentum)
    return (
        (1 - rate) * running_mean + rate * np.mean(wide, axis=axes),
        (1 - rate) * running_var + rate * np.var(wide, axis=axes, ddof=1),
    )


def layer_norm(
    x: Array, weight: Array | None = None, bias: Array | None = None, eps: float = 1e-5, axes: int = 1
) -> Array:
    """Standardize over the last `axes` axes, then scale and shift element by element of those. Ba et al. 2016."""
    x = np.asarray(x)
    x_hat = standardized(x, tuple(range(x.ndim - axes, x.ndim)), eps)[0]
    return x_hat * (1 if weight is None else np.asarray(weight).astype(LONG)) + (0 if bias is None else bias)


def group_norm(
    x: Array, groups: int, weight: Array | None = None, bias: Array | None = None, eps: float = 1e-5
) -> Array:
    """Standardize each group of neighbouring channels, then scale and shift each channel. Wu & He 2018."""
    x = np.asarray(x)
    split = x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    x_hat = standardized(split, tuple(range(2, split.ndim)), eps)[0].reshape(x.shape)
    return np.asarray(x_hat * _channels(weight, x.ndim, 1) + _channels(bias, x.ndim, 0))


def embedding(weight: Array, index: Array) -> Array:
    """Row `index[i]` of the table at place i."""
    return np.stack([weight[i] for i in np.ravel(index)]).reshape(*np.shape(index), *weight.shape[1:])


def embedding_backward(g: Array, index: Array, count: int, padding_idx: int | None = None) -> Array:
    """Each row receives the sum of the gradients of its uses; the padding row receives nothing."""
    ids = np.ravel(index)
    flat = np.asarray(g).astype(LONG).reshape(len(ids), -1)
    result = np.zeros((count, flat.shape[1]), LONG)
    for row, place in enumerate(ids.tolist()):
        if place != padding_idx:
            result[place] += flat[row]
    return result.reshape(count, *np.shape(g)[np.ndim(index) :])


def dropout(x: Array, keep: Array, p: float) -> Array:
    """x / (1 - p) where kept, 0 elsewhere; p 1 keeps nothing."""
    wide = np.asarray(x).astype(LONG)
    return np.where(keep, wide / (1 - LONG(p)), 0) if p < 1 else np.zeros_like(wide)
