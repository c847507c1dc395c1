"""What the normalizations mean: the oracle's functions with the arguments that the ops take, and the magnitudes they are judged at."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import oracle_losses
from .meanings_losses import Outputs
from .wide import LONG, Array


def batch_norm(x: Array, weight: Array | None = None, bias: Array | None = None) -> Outputs:
    """Values, means and variances of the channels."""
    axes = tuple(a for a in range(x.ndim) if a != 1)
    wide = x.astype(LONG)
    return oracle_losses.batch_norm(x, weight, bias), np.mean(wide, axis=axes), np.var(wide, axis=axes)


def norm_scales(x: Array, weight: Array | None = None, bias: Array | None = None, **options: Any) -> Outputs:
    """Standardized values are judged at the largest one there could be, means at the largest input, variances at themselves."""
    top = np.max(np.abs(x.astype(LONG)), where=np.isfinite(x), initial=0)
    size = 8 * max(top, 1) * (1 if weight is None else np.max(np.abs(weight.astype(LONG))))
    return size + (0 if bias is None else np.max(np.abs(bias.astype(LONG)))), top, top**2


def batch_norm_eval(x: Array, mean: Array, variance: Array, weight: Array, bias: Array) -> Array:
    """By the moments given."""
    return oracle_losses.batch_norm(x, weight, bias, 1e-5, mean, variance)


def eval_scales(x: Array, mean: Array, variance: Array, weight: Array, bias: Array) -> Outputs:
    """The largest that a standardized value could be, weighted."""
    size = np.max(np.abs(x.astype(LONG))) + np.max(np.abs(mean))
    return (size / np.sqrt(np.min(variance)) * np.max(np.abs(weight)) + np.max(np.abs(bias)),)


def batch_norm_relu_eval(x: Array, *vectors: Array) -> Array:
    """A ReLU behind it."""
    return np.asarray(np.maximum(batch_norm_eval(x, *vectors), 0))


def batch_norm_add_relu_eval(x: Array, residual: Array, *vectors: Array) -> Array:
    """A residual and a ReLU behind it."""
    return np.asarray(np.maximum(batch_norm_eval(x, *vectors) + residual, 0))


def add_eval_scales(x: Array, residual: Array, *vectors: Array) -> Outputs:
    """As `eval_scales`, and the largest residual."""
    return (eval_scales(x, *vectors)[0] + np.max(np.abs(residual.astype(LONG))),)


def batch_norm_backward(g: Array, x: Array, mean: Array, variance: Array, weight: Array) -> Outputs:
    """Ioffe & Szegedy 2015, section 3, simplified, for the moments given."""
    axes, channel = tuple(a for a in range(x.ndim) if a != 1), (1, -1, *[1] * (x.ndim - 2))
    wide, rstd = g.astype(LONG), 1 / np.sqrt(variance.astype(LONG) + LONG("1e-5"))
    x_hat = (x.astype(LONG) - mean.reshape(channel)) * rstd.reshape(channel)
    total, along = wide.sum(axis=axes), (wide * x_hat).sum(axis=axes)
    count = x.size // x.shape[1]
    centred = wide - total.reshape(channel) / count - x_hat * along.reshape(channel) / count
    return centred * (rstd * weight).reshape(channel), along, total


def backward_scales(g: Array, x: Array, mean: Array, variance: Array, weight: Array) -> Outputs:
    """Of dx at the largest gradient, of sums at the magnitudes of their terms."""
    size = np.max(np.abs(g.astype(LONG)))
    return 8 * size * np.max(np.abs(weight)) / np.sqrt(np.min(variance)), 4 * size * x.size // x.shape[1], 4 * size


def batch_norm_relu(x: Array, weight: Array | None = None, bias: Array | None = None) -> Outputs:
    """A ReLU behind it."""
    y, mean, variance = batch_norm(x, weight, bias)
    return np.maximum(y, 0), mean, variance


def batch_norm_add_relu(x: Array, residual: Array, *vectors: Array | None) -> Outputs:
    """A residual and a ReLU behind it."""
    y, mean, variance = batch_norm(x, *vectors)
    return np.maximum(y + residual, 0), mean, variance


def add_norm_scales(x: Array, residual: Array, *vectors: Array | None, **options: Any) -> Outputs:
    """As `norm_scales`, and the largest residual."""
    size, *others = norm_scales(x, *vectors)
    return size + np.max(np.abs(residual.astype(LONG))), *others


def batch_norm_relu_backward(g: Array, x: Array, mean: Array, variance: Array, weight: Array, bias: Array) -> Outputs:
    """Masked by what is normalized."""
    y = batch_norm_eval(x, mean, variance, weight, bias)
    return batch_norm_backward(np.where(y <= 0, 0, g), x, mean, variance, weight)


def batch_norm_add_relu_backward(g: Array, y: Array, x: Array, mean: Array, variance: Array, weight: Array) -> Outputs:
    """Masked by y; the residual receives what is left."""
    d = np.where(y <= 0, 0, g)
    return *batch_norm_backward(d, x, mean, variance, weight), d


def layer_norm(x: Array, weight: Array | None, bias: Array | None, normalized_shape: tuple[int, ...]) -> Outputs:
    """Values, means and variances of the rows."""
    axes = tuple(range(x.ndim - len(normalized_shape), x.ndim))
    wide = x.astype(LONG)
    y = oracle_losses.layer_norm(x, weight, bias, axes=len(normalized_shape))
    return y, np.mean(wide, axis=axes, keepdims=True), np.var(wide, axis=axes, keepdims=True)


def layer_norm_input(
    g: Array, x: Array, mean: Array, variance: Array, weight: Array, normalized_shape: tuple[int, ...]
) -> Array:
    """rstd (h - mean of h - x_hat * mean of (h * x_hat)), h = g * weight: Ba et al. 2016."""
    axes = tuple(range(x.ndim - len(normalized_shape), x.ndim))
    rstd = 1 / np.sqrt(variance.astype(LONG) + LONG("1e-5"))
    x_hat, h = (x.astype(LONG) - mean) * rstd, g.astype(LONG) * weight
    along = np.mean(h * x_hat, axis=axes, keepdims=True)
    return np.asarray(rstd * (h - np.mean(h, axis=axes, keepdims=True) - x_hat * along))


def layer_norm_input_scales(g: Array, x: Array, mean: Array, variance: Array, weight: Array, **options: Any) -> Outputs:
    """The largest gradient, times what the standardized values could multiply it by."""
    size = np.max(np.abs(g.astype(LONG))) * np.max(np.abs(weight)) / np.sqrt(np.min(variance))
    return (size * (2 + np.max(np.abs(x.astype(LONG) - mean)) ** 2 / np.min(variance)),)


def group_norm(x: Array, weight: Array | None, bias: Array | None, num_groups: int) -> Outputs:
    """Values, means and variances of the groups."""
    flat = x.astype(LONG).reshape(x.shape[0], num_groups, -1)
    y = oracle_losses.group_norm(x, num_groups, weight, bias)
    return y, np.mean(flat, axis=2, keepdims=True), np.var(flat, axis=2, keepdims=True)


def rms_norm(x: Array, weight: Array | None, normalized_shape: tuple[int, ...]) -> Array:
    """Zhang & Sennrich 2019, equation 4."""
    wide = x.astype(LONG)
    axes = tuple(range(x.ndim - len(normalized_shape), x.ndim))
    y = wide / np.sqrt(np.mean(wide**2, axis=axes, keepdims=True) + LONG("1e-6"))
    return np.asarray(y if weight is None else y * weight)
