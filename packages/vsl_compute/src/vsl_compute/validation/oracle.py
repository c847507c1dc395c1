"""The independent meaning of every elementwise op and reduction, written from mathematics and not from the rows.

Nothing here imports a row. A function takes wide values (see wide.py) and says what the op means; `value` widens
the host arrays, calls it and wraps integers into the dtype of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from ..dtypes import DType
from . import oracle_recurrent
from .wide import LONG, PI, ROOT_2, Array, all_widened, erf, erfc, sigmoid, softplus, widen, wrapped

SELU_ALPHA = LONG("1.6732632423543772848170429916717")  # Klambauer et al. 2017, equation 14
SELU_LAMBDA = LONG("1.0507009873554804934193349852946")


def _elu(x: Array, alpha: Any) -> Array:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def _gelu_tanh(x: Array) -> Any:
    """Hendrycks & Gimpel 2016, section 2; (1 + tanh(u)) / 2 is sigmoid(2u), which does not cancel."""
    root, cubic = np.sqrt(2 / PI).astype(x.dtype), LONG("0.044715").astype(x.dtype)
    return _from_zero(x, x * sigmoid(2 * root * (x + cubic * x**3)))


def _hardswish(x: Array) -> Array:
    return np.where(x == -np.inf, 0, x * np.minimum(np.maximum(x + 3, 0), 6) / 6)


def _sign(x: Array) -> Array:
    return np.where(x > 0, 1, np.where(x < 0, -1, x * 0 if x.dtype != object else 0))


def _times(share: Array, cost: Array) -> Any:
    """share * cost, of which no share of an infinite cost is 0."""
    return np.where((share == 0) & ~np.isnan(cost), 0, share * cost)


def _from_zero(x: Array, y: Array) -> Any:
    """y, whose limit at minus infinity is 0."""
    return np.where(x == -np.inf, 0, y)


def _focal(x: Array, b: Array, positive: Any, negative: Any, gamma: Any) -> Any:
    """Lin et al. 2017, equation 5, between the two classes by the target."""
    p = sigmoid(x)
    entropy = _times(b, softplus(-x)) + _times(1 - b, softplus(x))
    return (b * positive + (1 - b) * negative) * (b * (1 - p) + (1 - b) * p) ** gamma * entropy


def _smooth_l1(a: Array, b: Array, beta: Any) -> Any:
    d = np.abs(a - b)
    return np.where(d < beta, d**2 / (2 * beta), d - beta / 2)


def _huber(a: Array, b: Array, delta: Any) -> Any:
    d = np.abs(a - b)
    return np.where(d <= delta, d**2 / 2, delta * d - delta**2 / 2)


def _hinge_embedding(a: Array, b: Array, margin: Any) -> Any:
    return np.where(np.isnan(b), b, np.where(b == -1, 0, a) + np.where(b == 1, 0, np.maximum(margin - a, 0)))


VALUES: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide": lambda a, b: a / b,
    "floor_divide": lambda a, b: a // b,
    "remainder": lambda a, b: a % b,
    "power": lambda a, b: a**b,
    "atan2": np.arctan2,
    "hypot": np.hypot,
    "copysign": np.copysign,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "where": np.where,
    "where_bool": np.where,
    "equal": lambda a, b: a == b,
    "not_equal": lambda a, b: a != b,
    "less": lambda a, b: a < b,
    "less_equal": lambda a, b: a <= b,
    "greater": lambda a, b: a > b,
    "greater_equal": lambda a, b: a >= b,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "logical_not": np.logical_not,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isfinite": np.isfinite,
    "bitwise_and": lambda a, b: a & b,
    "bitwise_or": lambda a, b: a | b,
    "bitwise_xor": lambda a, b: a ^ b,
    "bitwise_invert": lambda x: -x - 1,
    "bitwise_left_shift": lambda a, b: a * 2**b,
    "bitwise_right_shift": lambda a, b: a // 2**b,
    "positive": lambda x: x,
    "negative": lambda x: 0 - x,
    "absolute": lambda x: np.where(x < 0, 0 - x, x),
    "sign": _sign,
    "square": lambda x: x**2,
    "reciprocal": lambda x: x**-1,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "log2": np.log2,
    "log10": np.log10,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": erf,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "trunc": np.trunc,
    "clamp": lambda x, low, high: np.minimum(np.maximum(x, low), high),
    "sigmoid": sigmoid,
    "logsigmoid": lambda x: -softplus(-x),
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.minimum(np.maximum(x, 0), 6),
    "leaky_relu": lambda x, slope: np.where(x > 0, x, x * slope),
    "elu": _elu,
    "selu": lambda x: SELU_LAMBDA.astype(x.dtype) * _elu(x, SELU_ALPHA.astype(x.dtype)),
    "softplus": softplus,
    "softsign": lambda x: np.where(np.isinf(x), np.sign(x), x / (1 + np.abs(x))),
    "silu": lambda x: _from_zero(x, x * sigmoid(x)),
    "hardsigmoid": lambda x: np.minimum(np.maximum(x + 3, 0), 6) / 6,
    "hardswish": _hardswish,
    "mish": lambda x: _from_zero(x, x * np.tanh(softplus(x))),
    "gelu": lambda x: _from_zero(x, x / 2 * erfc(-x / ROOT_2.astype(x.dtype))),
    "gelu_tanh": _gelu_tanh,
    "celu": lambda x, alpha: np.maximum(x, 0) + np.minimum(0, alpha * np.expm1(x / alpha)),
    "hardtanh": lambda x, low, high: np.minimum(np.maximum(x, low), high),
    "hardshrink": lambda x, bound: np.where((x >= -bound) & (x <= bound), 0, x),
    "softshrink": lambda x, bound: np.where(x > bound, x - bound, np.where(x < -bound, x + bound, 0 * x)),
    "threshold": lambda x, bound, value: np.where(x > bound, x, np.where(np.isnan(x), x, value)),
    "tanhshrink": lambda x: x - np.tanh(x),
    "prelu": lambda a, b: np.where(a > 0, a, b * a),
    "glu": lambda a, b: a * sigmoid(b),
    "root": np.sqrt,
    "multiply_add": lambda x, a, b: x * a + b,
    "normalize": lambda x, mean, rstd, weight, bias: (x - mean) * rstd * weight + bias,
    "standardize": lambda x, mean, rstd: (x - mean) * rstd,
    "normalize_back": lambda d, x, scale, mean, rstd, b, a: d * scale + (x - mean) * rstd * b + a,
    "normalize_relu": lambda x, mean, rstd, weight, bias: np.maximum((x - mean) * rstd * weight + bias, 0),
    "normalize_add_relu": lambda x, r, mean, rstd, weight, bias: np.maximum((x - mean) * rstd * weight + bias + r, 0),
    "normalize_mask": lambda d, x, mean, rstd, weight, bias: np.where((x - mean) * rstd * weight + bias <= 0, 0, d),
    "project": lambda x, mean, rstd, d: (x - mean) * rstd * d,
    "scaled_product": lambda a, b, alpha: a * b * alpha,
    "rstd": lambda x, eps: 1 / np.sqrt(x + eps),
    "add_where_equal": lambda a, x, i, k: np.where(i == k, a + x, a),
    "l1_loss": lambda a, b: np.abs(a - b),
    "smooth_l1_loss": _smooth_l1,
    "huber_loss": _huber,
    "binary_cross_entropy": lambda a, b: (
        0 - b * np.maximum(np.log(a), -100) - (1 - b) * np.maximum(np.log(1 - a), -100)
    ),
    "binary_cross_entropy_with_logits": lambda x, b, weight: (
        _times(weight * b, softplus(-x)) + _times(1 - b, softplus(x))
    ),
    "kl_div": lambda a, b: np.where(b == 0, 0, b * (np.log(np.where(b == 0, 1, b)) - a)),
    "kl_div_log": lambda a, b: np.where((np.exp(b) == 0) & ~np.isnan(a), 0, np.exp(b) * (b - a)),
    "hinge_loss": lambda a, b, margin: np.maximum(margin - a * b, 0),
    "hinge_embedding_loss": _hinge_embedding,
    "soft_margin_loss": lambda a, b: softplus(-(a * b)),
    "sigmoid_focal_loss": _focal,
    "fill": lambda alpha: np.asarray(alpha),  # noqa: PLW0108  # the name is the row's
    "fill_like": lambda x, alpha: np.full(x.shape, alpha),
    "scale": lambda x, alpha: alpha * x,
    "dropout_apply": lambda keep, x, factor: np.where(keep, x * factor, 0),
    **oracle_recurrent.ROWS,
}


@cache
def golden() -> dict[str, Array]:
    """What ci/golden.py made: "exp/x", "exp/y" and "exp/rest", the exact value being y + rest to 32 digits."""
    with np.load(str(files(__package__) / "golden.npz"), allow_pickle=False) as file:
        return {key: file[key] for key in file.files}


def value(name: str, xs: Sequence[Any], scalars: Mapping[str, Any] | None = None, dtype: DType | None = None) -> Array:
    """What op `name` means for host arrays (bfloat16 as float32) and Python scalars.

    The result is bool, wide floating, or integers: wrapped into `dtype` where that is an integer dtype.

    Errors:  LookupError if no meaning of `name` stands here
    """
    if name not in VALUES:
        raise LookupError(f"oracle: row {name!r} has no meaning in validation/oracle.py")
    with np.errstate(all="ignore"):
        result = np.asarray(VALUES[name](*all_widened(xs), **(scalars or {})))
    if dtype is not None and dtype.is_integer:
        return wrapped(result, dtype)
    if dtype is not None and dtype.name == "bool":
        return result.astype(bool)
    return result


def _total(x: Array, axes: tuple[int, ...]) -> Array:
    return np.asarray(np.add.reduce(x, axis=axes, initial=0) if x.dtype == object else np.sum(x, axis=axes, dtype=LONG))


def _mean(x: Array, axes: tuple[int, ...]) -> Array:
    count = int(np.prod([x.shape[a] for a in axes], dtype=int))
    return (
        np.asarray(_total(x, axes) / LONG(count))
        if x.dtype != object
        else np.asarray(np.asarray(_total(x, axes), object).astype(LONG) / LONG(count))
    )


def _rows_last(x: Array, axes: tuple[int, ...]) -> Array:
    """Reduced axes merged and last, in the order given by their position."""
    kept = [a for a in range(x.ndim) if a not in axes]
    moved = np.transpose(x, (*kept, *sorted(axes)))
    return moved.reshape(*(x.shape[a] for a in kept), int(np.prod([x.shape[a] for a in axes], dtype=int)))


def _arg(x: Array, axes: tuple[int, ...], sign: int) -> Array:
    """Index of the first NaN if there is one, else of the first best value, among the reduced elements in C order."""
    rows = _rows_last(x, axes)
    flat = rows.reshape(-1, rows.shape[-1])
    found = []
    for line in flat:
        best = 0
        for i, candidate in enumerate(line):
            if line[best] != line[best]:
                break
            if candidate != candidate or (candidate - line[best]) * sign > 0:
                best = i
        found.append(best)
    return np.asarray(found, np.int64).reshape(rows.shape[:-1])


def _extreme(x: Array, axes: tuple[int, ...], sign: int) -> Array:
    """The value at `_arg`, found without it: NaN wins."""
    rows = _rows_last(x, axes)
    if rows.dtype == object:
        ordered = np.sort(rows, axis=-1)
        return np.asarray(ordered[..., -1 if sign > 0 else 0])
    ordered = np.sort(rows, axis=-1)  # NaN sorts last
    best = ordered[..., -1] if sign > 0 else ordered[..., 0]
    return np.where(np.isnan(rows).any(axis=-1), np.nan, best)


def _moments(x: Array, axes: tuple[int, ...]) -> tuple[Array, Array]:
    """Mean and biased variance, in two passes."""
    rows = _rows_last(x.astype(LONG), axes)
    mean = np.sum(rows, axis=-1) / LONG(rows.shape[-1])
    return mean, np.sum((rows - mean[..., None]) ** 2, axis=-1) / LONG(rows.shape[-1])


def _logsumexp(x: Array, axes: tuple[int, ...]) -> Array:
    """log of the sum of exponentials; longdouble reaches exp(11356), narrower inputs are shifted by their maximum."""
    rows = _rows_last(x, axes).astype(LONG)
    top = np.max(rows, axis=-1, initial=-np.inf)
    shift = np.where(np.isfinite(top), top, 0)
    return np.asarray(np.log(np.sum(np.exp(rows - shift[..., None]), axis=-1)) + shift)


REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": _total,
    "mean": _mean,
    "prod": lambda x, axes: np.multiply.reduce(_rows_last(x, axes), axis=-1, initial=1),
    "max": lambda x, axes: _extreme(x, axes, 1),
    "min": lambda x, axes: _extreme(x, axes, -1),
    "all": lambda x, axes: np.all(x, axis=axes),
    "any": lambda x, axes: np.any(x, axis=axes),
    "argmax": lambda x, axes: _arg(x, axes, 1),
    "argmin": lambda x, axes: _arg(x, axes, -1),
    "max_index": lambda x, axes: (_extreme(x, axes, 1), _arg(x, axes, 1)),
    "moments": _moments,
    "logsumexp": _logsumexp,
    "norm": lambda x, axes: np.sqrt(np.sum(_rows_last(x, axes).astype(LONG) ** 2, axis=-1)),
    "norm_inf": lambda x, axes: np.max(np.abs(_rows_last(x, axes)), axis=-1, initial=0),
}


def reduction(name: str, x: Array, axes: Sequence[int], keepdims: bool = False) -> Any:
    """What reduction `name` of host array `x` over `axes` means; truth values are counted as integers, not added.

    Integer results are Python integers in an object array: the caller wraps them into the dtype it asks for.
    """
    wide = widen(x)
    if wide.dtype == bool and name not in ("all", "any"):
        wide = wide.astype(int).astype(object)
    places = tuple(a % wide.ndim for a in axes) if wide.ndim else ()
    with np.errstate(all="ignore"):
        found = REDUCTIONS[name](wide, places) if wide.ndim else REDUCTIONS[name](wide[None], (0,))
    shape = tuple(1 if a in places else n for a, n in enumerate(wide.shape) if keepdims or a not in places)
    outputs = tuple(np.asarray(part).reshape(shape) for part in (found if isinstance(found, tuple) else (found,)))
    return outputs if isinstance(found, tuple) else outputs[0]


def prefix(name: str, x: Array) -> Array:
    """Inclusive scan along the last axis: element i is the reduction of elements 0 to i."""
    columns = [reduction(name, x[..., : i + 1], (-1,)) for i in range(x.shape[-1])]
    return np.stack(columns, axis=-1) if columns else widen(x)
