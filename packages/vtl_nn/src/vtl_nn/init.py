"""Initial weights: drawn on the CPU, so that a seed gives the same ones for every device, and copied in place.

Sources: Glorot & Bengio 2010 (xavier), He et al. 2015 (kaiming).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod, sqrt
from typing import Any

import vtl_core as vtl
from vtl_core import AttributeValueError, ShapeError, Tensor
from vtl_core.arguments import explain

DTypeLike = Any  # a vtl dtype, its name, or None for the default


def compute_fans(shape: Sequence[int]) -> tuple[int, int]:
    """Return (fan_in, fan_out): connections into and out of one unit of a weight (out, in, *window).

    Errors:  ShapeError for fewer than 2 axes
    """
    if len(shape) < 2:
        raise ShapeError(
            f"compute_fans: a weight of shape {tuple(shape)} has no fans; 2 axes are needed, (out, in, ...)"
        )
    window = prod(shape[2:])
    return shape[1] * window, shape[0] * window


_GAINS = {
    "linear": 1.0,
    "conv1d": 1.0,
    "conv2d": 1.0,
    "conv3d": 1.0,
    "sigmoid": 1.0,
    "tanh": 5 / 3,
    "relu": sqrt(2),
    "selu": 3 / 4,
}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """Return what a nonlinearity shrinks deviations by, turned around.

    Errors:  AttributeValueError for a name that is not known
    """
    if nonlinearity == "leaky_relu":
        return sqrt(2 / (1 + (0.01 if param is None else param) ** 2))
    if nonlinearity not in _GAINS:
        raise AttributeValueError(
            f"calculate_gain: nonlinearity={nonlinearity!r} must be one of leaky_relu, {', '.join(_GAINS)}"
        )
    return _GAINS[nonlinearity]


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: vtl.Generator | None = None) -> Tensor:
    """Draw from [a, b)."""
    if not a <= b:
        raise AttributeValueError(f"uniform_: a={a} must be at most b={b}")
    return _write(tensor, _draw(vtl.rand, tensor, generator) * (b - a) + a)


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: vtl.Generator | None = None) -> Tensor:
    """Draw from the normal distribution."""
    if not std >= 0:
        raise AttributeValueError(f"normal_: std={std} must be at least 0")
    return _write(tensor, _draw(vtl.randn, tensor, generator) * std + mean)


def constant_(tensor: Tensor, val: float) -> Tensor:
    """Write `val` everywhere."""
    with vtl.no_grad():
        tensor.fill_(val)
    return tensor


def zeros_(tensor: Tensor) -> Tensor:
    """Write 0 everywhere."""
    return constant_(tensor, 0)


def ones_(tensor: Tensor) -> Tensor:
    """Write 1 everywhere."""
    return constant_(tensor, 1)


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: vtl.Generator | None = None) -> Tensor:
    """Draw from +-gain * sqrt(6 / (fan_in + fan_out))."""
    bound = gain * sqrt(6 / max(1, sum(compute_fans(tensor.shape))))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: vtl.Generator | None = None) -> Tensor:
    """Draw with deviation gain * sqrt(2 / (fan_in + fan_out))."""
    return normal_(tensor, 0.0, gain * sqrt(2 / max(1, sum(compute_fans(tensor.shape)))), generator)


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: vtl.Generator | None = None,
) -> Tensor:
    """Draw from +-gain * sqrt(3 / fan); `a` is leaky_relu's slope."""
    bound = sqrt(3) * _kaiming_deviation(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: vtl.Generator | None = None,
) -> Tensor:
    """Draw with deviation gain / sqrt(fan); `a` is leaky_relu's slope."""
    return normal_(tensor, 0.0, _kaiming_deviation(tensor, a, mode, nonlinearity), generator)


def _kaiming_deviation(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise AttributeValueError(f"kaiming: mode={mode!r} must be 'fan_in' or 'fan_out'")
    fan = compute_fans(tensor.shape)[mode == "fan_out"]
    return calculate_gain(nonlinearity, a) / sqrt(max(1, fan))


def _draw(draw: Callable[..., Tensor], tensor: Tensor, generator: vtl.Generator | None) -> Tensor:
    """Fresh numbers of the tensor's shape, on the CPU; float64 for float64, else float32."""
    dtype = tensor.dtype if tensor.dtype.itemsize == 8 else vtl.float32
    return draw(tensor.shape, generator=generator, dtype=dtype, device="cpu")


def _write(tensor: Tensor, values: Tensor) -> Tensor:
    with vtl.no_grad():
        tensor.copy_(values)
    return tensor


explain(globals())
