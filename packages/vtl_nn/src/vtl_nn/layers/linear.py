"""Linear and Identity."""

from __future__ import annotations

from math import sqrt

from vtl_core import AttributeValueError, Tensor
from vtl_core.arguments import explain, fits
from vtl_nn import functional as F
from vtl_nn import init
from vtl_nn.module import Module, Parameter


class Linear(Module):
    """y = x @ weight^T + bias over the last axis.

    Shapes:  weight (out_features, in_features); bias (out_features,)
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: str | None = None,
        dtype: init.DTypeLike = None,
    ) -> None:
        for name, size in (("in_features", in_features), ("out_features", out_features)):
            if fits(size, int) and size < 0:
                raise AttributeValueError(f"Linear: {name}={size} must be at least 0")
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter.empty((out_features, in_features), device=device, dtype=dtype)
        self.bias = Parameter.empty((out_features,), device=device, dtype=dtype) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weights and bias as PyTorch does: uniform in +-1 / sqrt(in_features)."""
        reset(self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """Return y."""
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


def reset(weight: Tensor, bias: Tensor | None) -> None:
    """PyTorch's start of Linear and of convolutions: kaiming_uniform_ with a = sqrt(5), the bias within the same bound."""
    init.kaiming_uniform_(weight, a=sqrt(5))
    if bias is not None:
        fan_in, _ = init.compute_fans(weight.shape)
        bound = 1 / sqrt(fan_in) if fan_in else 0
        init.uniform_(bias, -bound, bound)


class Identity(Module):
    """The input, whatever the arguments."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        pass

    def forward(self, input: Tensor) -> Tensor:
        """Return the input."""
        return input


explain(globals(), whole=True)
