"""linear, alone and with the activation behind it."""

from __future__ import annotations

import vtl_core as vtl
from vtl_core import Tensor
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
