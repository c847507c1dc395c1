"""Batch, layer, group, instance and root mean square normalization."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import vtl_core as vtl
from vtl_core import AttributeValueError, DTypeError, ShapeError, Tensor
from vtl_core.arguments import explain
from vtl_nn.functional.typing import as_tensor, require_tensors


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float | Tensor = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalize each channel by its batch, or by the running statistics when not training.

    Training moves the running statistics: r = (1 - momentum) * r + momentum * batch, with the unbiased variance.

    Shapes:  input (N, C, ...); the vectors (C,)
    Errors:  ShapeError if training meets one value a channel, which has no variance
    """
    vectors = running_mean, running_var, weight, bias
    return _batch_norm("batch_norm", (input,), *vectors, training=training, momentum=momentum, eps=eps)


def batch_norm_relu(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float | Tensor = 0.1,
    eps: float = 1e-5,
    residual: Tensor | None = None,
) -> Tensor:
    """relu(batch_norm(...) + residual) as one op, which goes over the input no more often than batch_norm.

    Shapes:  as batch_norm; residual has the input's
    Errors:  as batch_norm, and ShapeError for a residual of another shape
    """
    vectors = running_mean, running_var, weight, bias
    options: dict[str, Any] = {"training": training, "momentum": momentum, "eps": eps}
    if residual is not None:
        require_tensors("batch_norm_relu", input, residual)
        if residual.shape != input.shape:
            raise ShapeError(f"batch_norm_relu: residual {residual.shape} must have the input's shape, {input.shape}")
    if residual is None:
        return _batch_norm("batch_norm_relu", (input,), *vectors, **options)
    if not input.dtype.is_floating or (residual.dtype is vtl.float64 and input.dtype is not vtl.float64):
        # one op would bring the input to the residual's dtype before it is normalized, not what it is normalized to
        return (_batch_norm("batch_norm", (input,), *vectors, **options) + residual).relu()
    return _batch_norm("batch_norm_add_relu", (input, residual), *vectors, **options)


def _batch_norm(
    op: str,
    arrays: tuple[Tensor, ...],
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    *,
    training: bool,
    momentum: float | Tensor,
    eps: float,
) -> Tensor:
    input = arrays[0]
    if not training:
        if running_mean is None or running_var is None:
            raise AttributeValueError("batch_norm: without training, running_mean and running_var are needed")
        return as_tensor(vtl.apply(f"{op}_eval", *arrays, running_mean, running_var, weight, bias, eps=eps))
    _check_running("batch_norm", input, running_mean, running_var)
    count = prod(input.shape) // max(1, input.shape[1]) if input.ndim > 1 else 0
    if count == 1:
        raise ShapeError(
            f"batch_norm: input {input.shape} has one value a channel, which has no variance; use larger batches or eval()"
        )
    y, mean, variance = vtl.apply(op, *arrays, weight, bias, eps=eps)
    if count:
        _move(running_mean, running_var, mean.detach(), variance.detach(), momentum, count / (count - 1))
    return as_tensor(y)


def _check_running(op: str, input: Tensor, mean: Tensor | None, variance: Tensor | None) -> None:
    """Refuse running statistics that a batch's cannot move, before anything is computed."""
    require_tensors(op, input, *(s for s in (mean, variance) if s is not None))
    for name, vector in (("running_mean", mean), ("running_var", variance)):
        if vector is None:
            continue
        if input.ndim > 1 and vector.shape != input.shape[1:2]:
            raise ShapeError(f"{op}: {name} {vector.shape} does not fit input {input.shape}, (N, C, ...)")
        if not vector.dtype.is_floating:
            raise DTypeError(f"{op}: {name} is {vector.dtype.name}; running statistics must be floating")


def _move(
    mean: Tensor | None,
    variance: Tensor | None,
    batch_mean: Tensor,
    batch_variance: Tensor,
    momentum: float | Tensor,
    factor: float,
) -> None:
    """Move the running moments towards the batch's; a momentum that is a tensor, of a cumulative average, stays on the device.

    They keep their dtype, whatever the batch's moments have; one of them may be missing.
    """
    given = mean if mean is not None else variance
    if given is None:
        return
    mean, variance = (vtl.zeros_like(given) if s is None else s for s in (mean, variance))
    if (given.dtype is vtl.float64) != (batch_mean.dtype is vtl.float64):  # an update is computed in one dtype
        kind = vtl.float64 if given.dtype is vtl.float64 else vtl.float32
        batch_mean, batch_variance = batch_mean.to(dtype=kind), batch_variance.to(dtype=kind)
    if not isinstance(momentum, Tensor):
        vtl.update(
            "running_moments", [(mean, variance, batch_mean, batch_variance)], {"momentum": momentum, "factor": factor}
        )
        return
    with vtl.no_grad():
        mean.copy_(mean + (batch_mean - mean) * momentum)
        variance.copy_(variance + (batch_variance * factor - variance) * momentum)


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalize over the last axes, which `normalized_shape` names; the variance is the biased one."""
    return as_tensor(vtl.apply("layer_norm", input, weight, bias, normalized_shape=tuple(normalized_shape), eps=eps)[0])


def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Normalize each sample over groups of channels, (N, C, ...)."""
    return as_tensor(vtl.apply("group_norm", input, weight, bias, num_groups=num_groups, eps=eps)[0])


def rms_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """Divide by the root of the mean square over the last axes (Zhang & Sennrich 2019); `eps` is that of what is computed in unless given."""
    require_tensors("rms_norm", input)
    if eps is None:
        eps = (
            2.0**-52 if input.dtype is vtl.float64 else 2.0**-23
        )  # PyTorch's for 16 bits too, which are computed in float32
    shape = tuple(normalized_shape)
    return as_tensor(vtl.apply("rms_norm", input, weight, normalized_shape=shape, eps=eps))


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalize each channel of each sample; running statistics, if given, follow the batch's mean of both.

    Shapes:  input (N, C, ...); the vectors (C,)
    Errors:  ShapeError if a channel of a sample has one value, which has no variance
    """
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    _check_running("instance_norm", input, running_mean, running_var)
    count = prod(input.shape[2:])
    if count == 1:
        raise ShapeError(
            f"instance_norm: input {input.shape} has one value a channel, which has no variance; use larger ones"
        )
    y, mean, variance = vtl.apply("group_norm", input, weight, bias, num_groups=input.shape[1], eps=eps)
    if count and input.shape[0] and (running_mean is not None or running_var is not None):
        batch = mean.detach().mean((0, 2)), variance.detach().mean((0, 2))
        _move(running_mean, running_var, *batch, momentum, count / (count - 1))
    return as_tensor(y)


explain(globals())
