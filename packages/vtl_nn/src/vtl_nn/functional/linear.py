"""linear, alone, with the activation behind it, and with another linear layer behind that."""

from __future__ import annotations

import vtl_core as vtl
from vtl_core import Tensor
from vtl_core.arguments import explain
from vtl_nn.functional.typing import as_tensor


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input @ weight^T + bias over the last axis.

    Shapes:  input (..., in); weight (out, in); bias (out,); result (..., out)
    """
    return as_tensor(vtl.apply("linear", input, weight, bias))


def linear_relu(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """relu(linear(input, weight, bias)) as one op: where a device can, its product adds the bias and takes what is positive.

    Shapes:  as linear
    """
    return as_tensor(vtl.apply("linear_relu", input, weight, bias))


def feed_forward(
    input: Tensor,
    first: Tensor,
    second: Tensor,
    first_bias: Tensor | None = None,
    second_bias: Tensor | None = None,
) -> Tensor:
    """linear(relu(linear(input, first, first_bias)), second, second_bias) as one op, whose way back is one too.

    Shapes:  input (..., in); first (hidden, in); second (out, hidden); biases (hidden,) and (out,); result (..., out)
    Source:  Vaswani et al. 2017, equation 2
    """
    y, _ = vtl.apply("feed_forward", input, first, second, first_bias, second_bias)
    return as_tensor(y)


explain(globals())
