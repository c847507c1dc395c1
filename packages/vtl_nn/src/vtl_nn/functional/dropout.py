"""dropout."""

from __future__ import annotations

from math import prod

import vtl_core as vtl
from vtl_core import AttributeValueError, ShapeError, Tensor
from vtl_core.arguments import explain
from vtl_nn.functional.typing import as_tensor, is_number, require_tensors


def dropout(input: Tensor, p: float = 0.5, training: bool = True, *, generator: vtl.Generator | None = None) -> Tensor:
    """Zero each element with probability `p` and scale the others by 1 / (1 - p); the input itself when not training.

    Every call takes fresh numbers from `generator`, by default the one that vtl.manual_seed seeds; masks are the same
    on every device.
    """
    require_tensors("dropout", input)
    if not (is_number(p) and 0 <= p <= 1):
        raise AttributeValueError(f"dropout: p={p!r} must lie in [0, 1]")
    if not training or p == 0:
        return input
    key, counter = (generator or vtl.default_context().generator).reserve(prod(input.shape))
    return as_tensor(vtl.apply("dropout", input, p=p, key=key, counter=counter)[0])


def dropout2d(
    input: Tensor, p: float = 0.5, training: bool = True, *, generator: vtl.Generator | None = None
) -> Tensor:
    """Zero each channel of each sample with probability `p`, scale the others by 1 / (1 - p) (Tompson et al. 2015).

    Shapes:  input (N, C, ...)
    """
    require_tensors("dropout2d", input)
    if input.ndim < 2:
        raise ShapeError(f"dropout2d: input {input.shape} must be (N, C, ...)")
    if not (is_number(p) and 0 <= p <= 1):
        raise AttributeValueError(f"dropout2d: p={p!r} must lie in [0, 1]")
    if not training or p == 0:
        return input
    ones = vtl.ones(*input.shape[:2], *[1] * (input.ndim - 2), dtype=input.dtype, device=input.device)
    key, counter = (generator or vtl.default_context().generator).reserve(prod(ones.shape))
    keep = vtl.apply("dropout", ones, p=p, key=key, counter=counter)[1]  # not times 0: an infinity there would be NaN
    return as_tensor(vtl.apply("dropout_apply", keep, input, factor=0.0 if p == 1 else 1 / (1 - p)))


explain(globals())
