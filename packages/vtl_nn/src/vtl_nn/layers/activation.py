"""Activations as layers: each calls the function of its name."""

from __future__ import annotations

from vtl_core import AttributeValueError, Tensor
from vtl_core.arguments import explain
from vtl_nn import functional as F
from vtl_nn.functional.typing import is_number
from vtl_nn.init import DTypeLike, constant_
from vtl_nn.module import Module, Parameter


class ReLU(Module):
    """max(x, 0)."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply it."""
        return F.relu(input)


class ReLU6(Module):
    """min(max(x, 0), 6)."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply it."""
        return F.relu6(input)


class LeakyReLU(Module):
    """Return x where x > 0, else negative_slope * x."""

    def __init__(self, negative_slope: float = 0.01) -> None:
        self.negative_slope = negative_slope

    def forward(self, input: Tensor) -> Tensor:
        """Apply it."""
        return F.leaky_relu(input, self.negative_slope)

    def extra_repr(self) -> str:
        """The slope."""
        return f"negative_slope={self.negative_slope}"


class ELU(Module):
    """Return x where x > 0, else alpha * (exp(x) - 1)."""

    def __init__(self, alpha: float = 1.0) -> None:
        self.alpha = alpha

    def forward(self, input: Tensor) -> Tensor:
        """Apply it."""
        return F.elu(input, self.alpha)

    def extra_repr(self) -> str:
        """The alpha."""
        return f"alpha={self.alpha}"


class SELU(Module):
    """ELU, scaled so that mean 0 and variance 1 are kept (Klambauer et al. 2017)."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply it."""
        return F.selu(input)


class Sigmoid(Module):
    """1 / (1 + exp(-x))."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply it."""
        return F.sigmoid(input)


class LogSigmoid(Module):
    """log(sigmoid(x))."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply it."""
        return F.logsigmoid(input)


class Tanh(Module):
    """Hyperbolic tangent."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply it."""
        return F.tanh(input)


class GELU(Module):
    """x * Phi(x), Phi the normal distribution; approximate="tanh" for the formula that GPT-2 used."""

    def __init__(self, approximate: str = "none") -> None:
        if approximate not in ("none", "tanh"):
            raise AttributeValueError(f"GELU: approximate={approximate!r} must be 'none' or 'tanh'")
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        """Apply it."""
        return F.gelu(input, self.approximate)

    def extra_repr(self) -> str:
        """Which of the two."""
        return f"approximate={self.approximate!r}"


class SiLU(Module):
    """x * sigmoid(x)."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply it."""
        return F.silu(input)


class Mish(Module):
    """x * tanh(softplus(x))."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply it."""
        return F.mish(input)


class Softplus(Module):
    """log(1 + exp(beta * x)) / beta; x itself where beta * x is above `threshold`."""

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        if not (is_number(beta) and beta > 0):
            raise AttributeValueError(f"Softplus: beta={beta!r} must be above 0")
        if not (is_number(threshold) and threshold == threshold):
            raise AttributeValueError(
                f"Softplus: threshold={threshold!r} must be a number, above which x is the result"
            )
        self.beta, self.threshold = beta, threshold

    def forward(self, input: Tensor) -> Tensor:
        """Apply it."""
        return F.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        """Both numbers."""
        return f"beta={self.beta}, threshold={self.threshold}"


class Softsign(Module):
    """x / (1 + |x|)."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply it."""
        return F.softsign(input)


class Hardswish(Module):
    """x * min(max(x + 3, 0), 6) / 6."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply it."""
        return F.hardswish(input)


class Hardsigmoid(Module):
    """min(max(x / 6 + 1/2, 0), 1)."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply it."""
        return F.hardsigmoid(input)


class Softmax(Module):
    """exp(x) / sum(exp(x)) along `dim`; CrossEntropyLoss wants logits, not this."""

    def __init__(self, dim: int = -1) -> None:
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        """Apply it."""
        return F.softmax(input, self.dim)

    def extra_repr(self) -> str:
        """The axis."""
        return f"dim={self.dim}"


class LogSoftmax(Module):
    """log(softmax(x)) along `dim`."""

    def __init__(self, dim: int = -1) -> None:
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        """Apply it."""
        return F.log_softmax(input, self.dim)

    def extra_repr(self) -> str:
        """The axis."""
        return f"dim={self.dim}"


class CELU(Module):
    """ELU whose derivative is continuous for any alpha (Barron 2017)."""

    def __init__(self, alpha: float = 1.0) -> None:
        self.alpha = alpha

    def forward(self, input: Tensor) -> Tensor:
        """Apply it."""
        return F.celu(input, self.alpha)


class Hardtanh(Module):
    """x brought into [min_val, max_val]."""

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0) -> None:
        self.min_val, self.max_val = min_val, max_val

    def forward(self, input: Tensor) -> Tensor:
        """Apply it."""
        return F.hardtanh(input, self.min_val, self.max_val)


class Hardshrink(Module):
    """Return x where |x| > lambd, else 0."""

    def __init__(self, lambd: float = 0.5) -> None:
        self.lambd = lambd

    def forward(self, input: Tensor) -> Tensor:
        """Apply it."""
        return F.hardshrink(input, self.lambd)


class Softshrink(Module):
    """Return x moved towards 0 by lambd, 0 where it is nearer."""

    def __init__(self, lambd: float = 0.5) -> None:
        self.lambd = lambd

    def forward(self, input: Tensor) -> Tensor:
        """Apply it."""
        return F.softshrink(input, self.lambd)


class Threshold(Module):
    """Return x where x > threshold, else value."""

    def __init__(self, threshold: float, value: float) -> None:
        self.threshold, self.value = threshold, value

    def forward(self, input: Tensor) -> Tensor:
        """Apply it."""
        return F.threshold(input, self.threshold, self.value)


class Tanhshrink(Module):
    """x - tanh(x)."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply it."""
        return F.tanhshrink(input)


class Softmin(Module):
    """softmax(-x) along `dim`."""

    def __init__(self, dim: int = -1) -> None:
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        """Apply it."""
        return F.softmin(input, self.dim)


class GLU(Module):
    """a * sigmoid(b), a and b being the halves of the input along `dim`."""

    def __init__(self, dim: int = -1) -> None:
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        """Apply it."""
        return F.glu(input, self.dim)


class PReLU(Module):
    """Return x where x > 0, else weight * x, the weight learned: one, or one a channel (He et al. 2015)."""

    def __init__(
        self,
        num_parameters: int = 1,
        init: float = 0.25,
        device: str | None = None,
        dtype: DTypeLike = None,
    ) -> None:
        self.num_parameters, self.init = num_parameters, init
        self.weight = Parameter.empty((num_parameters,), device=device, dtype=dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Every slope starts at `init`."""
        constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        """Apply it."""
        return F.prelu(input, self.weight)


explain(globals(), whole=True)
