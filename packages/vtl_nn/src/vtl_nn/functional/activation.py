"""Activations: each is a row."""

from __future__ import annotations

import vtl_core as vtl
from vtl_core import AttributeValueError, ShapeError, Tensor
from vtl_core.arguments import explain
from vtl_nn.functional.typing import as_tensor, is_number, require_tensors


def relu(input: Tensor) -> Tensor:
    """max(x, 0)."""
    return as_tensor(vtl.apply("relu", input))


def relu6(input: Tensor) -> Tensor:
    """min(max(x, 0), 6)."""
    return as_tensor(vtl.apply("relu6", input))


def leaky_relu(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """Return x where x > 0, else negative_slope * x."""
    return as_tensor(vtl.apply("leaky_relu", input, slope=negative_slope))


def elu(input: Tensor, alpha: float = 1.0) -> Tensor:
    """Return x where x > 0, else alpha * (exp(x) - 1)."""
    return as_tensor(vtl.apply("elu", input, alpha=alpha))


def selu(input: Tensor) -> Tensor:
    """ELU with the scale and alpha that keep mean 0 and variance 1 (Klambauer et al. 2017)."""
    return as_tensor(vtl.apply("selu", input))


def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + exp(-x))."""
    return as_tensor(vtl.apply("sigmoid", input))


def logsigmoid(input: Tensor) -> Tensor:
    """log(sigmoid(x)), right for any x."""
    return as_tensor(vtl.apply("logsigmoid", input))


def tanh(input: Tensor) -> Tensor:
    """Hyperbolic tangent."""
    return as_tensor(vtl.apply("tanh", input))


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """x * Phi(x), Phi the normal distribution; approximate="tanh" is the formula of Hendrycks & Gimpel 2016."""
    if approximate not in ("none", "tanh"):
        raise AttributeValueError(f"gelu: approximate={approximate!r} must be 'none' or 'tanh'")
    return as_tensor(vtl.apply("gelu" if approximate == "none" else "gelu_tanh", input))


SURE, SURE_DOUBLE = 18.0, 40.0  # of softplus: from here on exp(-x) is less than half a unit in the last place of x


def silu(input: Tensor) -> Tensor:
    """x * sigmoid(x)."""
    return as_tensor(vtl.apply("silu", input))


def mish(input: Tensor) -> Tensor:
    """x * tanh(softplus(x))."""
    return as_tensor(vtl.apply("mish", input))


def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta * x)) / beta; x itself where beta * x is above `threshold`, as PyTorch has it."""
    if not (is_number(beta) and beta > 0):
        raise AttributeValueError(f"softplus: beta={beta!r} must be above 0")
    if not (is_number(threshold) and threshold == threshold):
        raise AttributeValueError(f"softplus: threshold={threshold!r} must be a number, above which x is the result")
    scaled = input if beta == 1 else vtl.apply("scale", input, alpha=beta)
    value = vtl.apply("softplus", scaled)
    if beta != 1:
        value = vtl.apply("scale", value, alpha=1 / beta)
    sure = SURE_DOUBLE if input.dtype == vtl.float64 else SURE
    if threshold < sure or beta != 1:  # beta * x may be infinite where x is not
        value = vtl.apply("where", vtl.apply("greater", scaled, min(threshold, sure)), input, value)
    return as_tensor(value)


def softsign(input: Tensor) -> Tensor:
    """x / (1 + |x|)."""
    return as_tensor(vtl.apply("softsign", input))


def hardswish(input: Tensor) -> Tensor:
    """x * min(max(x + 3, 0), 6) / 6."""
    return as_tensor(vtl.apply("hardswish", input))


def hardsigmoid(input: Tensor) -> Tensor:
    """min(max(x / 6 + 1/2, 0), 1)."""
    return as_tensor(vtl.apply("hardsigmoid", input))


def softmax(input: Tensor, dim: int = -1) -> Tensor:
    """exp(x) / sum(exp(x)) along `dim`."""
    return as_tensor(vtl.apply("softmax", input, axis=dim))


def log_softmax(input: Tensor, dim: int = -1) -> Tensor:
    """log(softmax(x)) along `dim`, right for any x."""
    return as_tensor(vtl.apply("log_softmax", input, axis=dim))


def celu(input: Tensor, alpha: float = 1.0) -> Tensor:
    """max(x, 0) + min(0, alpha * (exp(x / alpha) - 1)) (Barron 2017)."""
    if alpha == 0:
        raise AttributeValueError("celu: alpha=0 divides by zero; give another")
    return as_tensor(vtl.apply("celu", input, alpha=alpha))


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """x brought into [min_val, max_val]; no gradient at the ends or beyond."""
    if not (is_number(min_val) and is_number(max_val) and min_val < max_val):
        raise AttributeValueError(f"hardtanh: min_val={min_val!r} must be below max_val={max_val!r}")
    return as_tensor(vtl.apply("hardtanh", input, low=min_val, high=max_val))


def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """Return x where |x| > lambd, else 0."""
    return as_tensor(vtl.apply("hardshrink", input, bound=lambd))


def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """Return x moved towards 0 by lambd, 0 where it is nearer."""
    if not (is_number(lambd) and lambd >= 0):
        raise AttributeValueError(f"softshrink: lambd={lambd!r} must be at least 0")
    return as_tensor(vtl.apply("softshrink", input, bound=lambd))


def threshold(input: Tensor, threshold: float, value: float) -> Tensor:
    """Return x where x > threshold, else value."""
    return as_tensor(vtl.apply("threshold", input, bound=threshold, value=value))


def tanhshrink(input: Tensor) -> Tensor:
    """x - tanh(x)."""
    return as_tensor(vtl.apply("tanhshrink", input))


def softmin(input: Tensor, dim: int = -1) -> Tensor:
    """softmax(-x) along `dim`."""
    require_tensors("softmin", input)
    return softmax(-input, dim)


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """Return x where x > 0, else weight * x.

    Shapes:  weight (1,), or (C,) for an input (N, C, ...)
    """
    require_tensors("prelu", input, weight)
    if weight.ndim != 1 or (weight.shape[0] != 1 and (input.ndim < 2 or weight.shape[0] != input.shape[1])):
        raise ShapeError(f"prelu: weight {weight.shape} must be (1,), or one a channel of the input {input.shape}")
    slopes = weight if weight.shape[0] == 1 else weight.reshape(1, -1, *[1] * (input.ndim - 2))
    return as_tensor(vtl.apply("prelu", input, slopes))


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """a * sigmoid(b), a and b being the halves of the input along `dim` (Dauphin et al. 2017)."""
    require_tensors("glu", input)
    size = input.shape[dim] if -input.ndim <= dim < input.ndim else 1
    if size % 2:
        raise ShapeError(f"glu: axis {dim} of the input {input.shape} must be there and have an even size")
    a, b = input.split([size // 2] * 2, dim)
    return as_tensor(vtl.apply("glu", a, b))


explain(globals())
