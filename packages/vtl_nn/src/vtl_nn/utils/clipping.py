"""Clipping of gradients by their joint norm or by value, and scaling them, all on the device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import vtl_core as vtl
from vtl_core import AttributeValueError, DeviceError, Tensor
from vtl_core.arguments import explain
from vtl_nn.errors import TrainingError
from vtl_nn.functional.typing import is_number, require_tensors


def get_total_norm(tensors: Iterable[Tensor], norm_type: float = 2.0, error_if_nonfinite: bool = False) -> Tensor:
    """The norm of all tensors as one vector; squares do not overflow. float32 for what is narrower.

    Errors:  TrainingError, with `error_if_nonfinite`, for a norm that is no finite number, which reads it from the device
    """
    given = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    require_tensors("get_total_norm", *given)
    if not given:
        return vtl.zeros(())
    if len(devices := sorted({t.device for t in given})) > 1:
        raise DeviceError(f"get_total_norm: tensors are on {' and '.join(devices)}; bring them to one device")
    with vtl.no_grad():
        norms = vtl.apply("foreach_norm", *given, ord=norm_type)
        total: Tensor = vtl.apply("foreach_norm", norms, ord=norm_type).reshape(())
    if error_if_nonfinite and not vtl.isfinite(total).item():
        raise TrainingError(f"get_total_norm: the norm of {len(given)} gradients is {total.item()}; skip this step")
    return total


def clip_grad_norm_(
    parameters: Iterable[Tensor] | Tensor, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False
) -> Tensor:
    """Scale all gradients by min(1, max_norm / (norm + 1e-6)), norm being that of all of them as one vector; returns it.

    Where the norm is infinite or NaN the gradients become 0, not NaN as in PyTorch: one bad batch moves nothing.
    """
    if not (is_number(max_norm) and max_norm > 0):
        raise AttributeValueError(f"clip_grad_norm_: max_norm={max_norm!r} must be above 0")
    gradients = _gradients("clip_grad_norm_", parameters)
    total = get_total_norm(gradients, norm_type, error_if_nonfinite)
    with vtl.no_grad():
        factor = (max_norm / (total + 1e-6)).clamp(max=1.0)
        rescale(gradients, vtl.apply("where", vtl.isfinite(total), factor, vtl.zeros_like(factor)))
    return total


def clip_grad_value_(parameters: Iterable[Tensor] | Tensor, clip_value: float) -> None:
    """Bring every element of the gradients into [-clip_value, clip_value]."""
    if not (is_number(clip_value) and clip_value >= 0):
        raise AttributeValueError(f"clip_grad_value_: clip_value={clip_value!r} must be at least 0")
    if gradients := _gradients("clip_grad_value_", parameters):
        vtl.update("clip", [(g,) for g in gradients], {"bound": float(clip_value)})


def rescale(gradients: Sequence[Tensor], factor: Tensor) -> None:
    """Multiply all by the 0-d `factor` in place, in one launch; where it is 0, infinities become 0 too."""
    by_dtype: dict[object, list[tuple[Tensor, Tensor]]] = {}
    for g in gradients:
        own = factor.to(vtl.float64 if g.dtype is vtl.float64 else vtl.float32)
        by_dtype.setdefault(g.dtype, []).append((g, own))
    for pairs in by_dtype.values():
        vtl.update("rescale", pairs, {})


def _gradients(op: str, parameters: Iterable[Tensor] | Tensor) -> list[Tensor]:
    given = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    require_tensors(op, *given)
    return [p.grad for p in given if p.grad is not None]


explain(globals())
