"""How good predictions are: tensors of one number, on the device, without gradients."""

from __future__ import annotations

import vtl_core as vtl
from vtl_core import AttributeValueError, DTypeError, ShapeError, Tensor
from vtl_core.arguments import explain
from vtl_nn.functional.typing import is_whole, require_tensors


def accuracy(input: Tensor, target: Tensor, top_k: int = 1) -> Tensor:
    """Share of the targets that are among the `top_k` largest of their scores; of equal scores the first counts.

    Shapes:  input (N, C, ...), scores or logits; target (N, ...), class numbers; result (), NaN for no target
    Errors:  ShapeError if they do not fit; DTypeError for a target of floats; AttributeValueError for a top_k outside [1, C]
    """
    require_tensors("accuracy", input, target)
    if input.ndim < 2 or target.shape != (input.shape[0], *input.shape[2:]):
        raise ShapeError(f"accuracy: scores {input.shape} must be (N, C, ...) and the target {target.shape} (N, ...)")
    if not is_whole(top_k) or not 1 <= top_k <= input.shape[1]:
        raise AttributeValueError(f"accuracy: top_k={top_k} must lie in [1, {input.shape[1]}]")
    if target.dtype.is_floating:
        raise DTypeError(f"accuracy: the target is {target.dtype.name}; it must be class numbers: target.long()")
    with vtl.no_grad():
        target = target.to(vtl.int64)
        if top_k == 1:
            right = input.argmax(1) == target
        else:
            scores = input.permute(0, *range(2, input.ndim), 1)
            best = scores.argsort(-1, descending=True)[..., :top_k]
            right = (best == target.unsqueeze(-1)).any(-1)
        return right.to(vtl.float32).mean()


def mean_squared_error(input: Tensor, target: Tensor) -> Tensor:
    """Mean of (input - target)**2; integers are compared as float32."""
    x, y = _alike("mean_squared_error", input, target)
    with vtl.no_grad():
        return (x - y).square().mean()


def mean_absolute_error(input: Tensor, target: Tensor) -> Tensor:
    """Mean of |input - target|; integers are compared as float32."""
    x, y = _alike("mean_absolute_error", input, target)
    with vtl.no_grad():
        return (x - y).abs().mean()


def mean_relative_error(input: Tensor, target: Tensor) -> Tensor:
    """Mean of |input - target| / max(|input|, |target|), 0 where both are 0: between 0 and 2, the same both ways (VTL's)."""
    x, y = _alike("mean_relative_error", input, target)
    with vtl.no_grad():
        size = vtl.maximum(x.abs(), y.abs())
        return ((x - y).abs() / vtl.where(size == 0, vtl.ones_like(size), size)).mean()


def _alike(name: str, input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Both as floats: differences and squares of integers go around."""
    require_tensors(name, input, target)
    if input.shape != target.shape:
        raise ShapeError(f"{name}: input {input.shape} and target {target.shape} must have one shape")
    with vtl.no_grad():
        x, y = (t if t.dtype.is_floating else t.to(vtl.float32) for t in (input, target))
    return x, y


explain(globals())
