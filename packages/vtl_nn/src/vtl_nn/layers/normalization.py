"""Normalization over batches, samples, groups and instances."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import vtl_core as vtl
from vtl_core import AttributeValueError, ShapeError, Tensor
from vtl_core.arguments import explain
from vtl_nn import functional as F
from vtl_nn import init
from vtl_nn.module import Buffer, Module, Parameter, is_its_own


class _BatchNorm(Module):
    """Normalize each channel by its batch, in eval by the running statistics; see functional.batch_norm.

    `momentum` None averages all batches alike. Without `track_running_stats` eval uses the batch too.

    Errors:  ShapeError for another number of axes or channels, and if training meets one value a channel
    """

    ndims: ClassVar[tuple[int, ...]]

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: str | None = None,
        dtype: init.DTypeLike = None,
    ) -> None:
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        shape = (num_features,)
        self.weight = Parameter.empty(shape, device=device, dtype=dtype) if affine else None
        self.bias = Parameter.empty(shape, device=device, dtype=dtype) if affine else None
        self.running_mean = Buffer.empty(shape, device=device, dtype=dtype) if track_running_stats else None
        self.running_var = Buffer.empty(shape, device=device, dtype=dtype) if track_running_stats else None
        self.num_batches_tracked = Buffer.empty((), device=device, dtype=vtl.int64) if track_running_stats else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Scale 1, shift 0, running mean 0 and variance 1, no batch seen."""
        for tensor, value in ((self.weight, 1), (self.bias, 0)):
            if tensor is not None:
                init.constant_(tensor, value)
        self.reset_running_stats()

    def reset_running_stats(self) -> None:
        """Running mean 0 and variance 1, no batch seen."""
        for tensor, value in ((self.running_mean, 0), (self.running_var, 1), (self.num_batches_tracked, 0)):
            if tensor is not None:
                init.constant_(tensor, value)

    def forward(self, input: Tensor) -> Tensor:
        """Normalize, and in training move the running statistics."""
        return self.by(F.batch_norm, input)

    def by(self, function: Callable[..., Tensor], input: Tensor, **more: Any) -> Tensor:
        """What a function with batch_norm's arguments makes of the input and this layer's vectors and options, and of `more`."""
        if input.ndim not in self.ndims or input.shape[1] != self.num_features:
            axes = " or ".join({2: "(N, C)", 3: "(N, C, L)", 4: "(N, C, H, W)"}[n] for n in self.ndims)
            raise ShapeError(
                f"{type(self).__name__}: input {input.shape} must be {axes} with {self.num_features} channels"
            )
        momentum: float | Tensor = 0.0 if self.momentum is None else self.momentum
        counter = self.num_batches_tracked
        if self.training and counter is not None and input.size > self.num_features:  # else no batch, or one refused
            with vtl.no_grad():
                counter.add_(1)
                if self.momentum is None:
                    wide = vtl.float64 if input.dtype is vtl.float64 else vtl.float32
                    momentum = 1.0 / counter.to(wide)  # stays on the device
        by_batch = self.training or self.running_mean is None
        vectors = self.running_mean, self.running_var, self.weight, self.bias
        return function(input, *vectors, training=by_batch, momentum=momentum, eps=self.eps, **more)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}"


class BatchNorm1d(_BatchNorm):
    """Batch normalization of (N, C) or (N, C, L) (Ioffe & Szegedy 2015); see functional.batch_norm."""

    ndims = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch normalization of (N, C, H, W) (Ioffe & Szegedy 2015); see functional.batch_norm."""

    ndims = (4,)


def rectified(layer: Module, input: Tensor, residual: Tensor | None = None) -> Tensor:
    """relu(layer(input) + residual), as one op where the layer is a batch normalization and calling it no more than that."""
    alone = type(layer) in (BatchNorm1d, BatchNorm2d) and not is_its_own(layer)
    if isinstance(layer, _BatchNorm) and alone and (residual is None or residual.shape == input.shape):
        return layer.by(F.batch_norm_relu, input, residual=residual)
    y = layer(input)
    return F.relu(y if residual is None else y + residual)


class LayerNorm(Module):
    """Normalize each sample over its last axes, which `normalized_shape` names (Ba, Kiros & Hinton 2016)."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: str | None = None,
        dtype: init.DTypeLike = None,
    ) -> None:
        self.normalized_shape = (
            tuple(normalized_shape) if isinstance(normalized_shape, Sequence) else (normalized_shape,)
        )
        self.eps = eps
        shape = self.normalized_shape
        self.weight = Parameter.empty(shape, device=device, dtype=dtype) if elementwise_affine else None
        self.bias = Parameter.empty(shape, device=device, dtype=dtype) if elementwise_affine and bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Scale 1, shift 0."""
        _start(self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """Normalize."""
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.weight is not None}"


class GroupNorm(Module):
    """Normalize each sample over groups of its channels, (N, C, ...) (Wu & He 2018)."""

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: str | None = None,
        dtype: init.DTypeLike = None,
    ) -> None:
        if num_groups < 1 or num_channels % num_groups:
            raise AttributeValueError(f"GroupNorm: num_groups={num_groups} must divide num_channels={num_channels}")
        self.num_groups, self.num_channels, self.eps = num_groups, num_channels, eps
        self.weight = Parameter.empty((num_channels,), device=device, dtype=dtype) if affine else None
        self.bias = Parameter.empty((num_channels,), device=device, dtype=dtype) if affine else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Scale 1, shift 0."""
        _start(self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """Normalize."""
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.weight is not None}"


class RMSNorm(Module):
    """Divide each sample by the root of its mean square over its last axes (Zhang & Sennrich 2019)."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: str | None = None,
        dtype: init.DTypeLike = None,
    ) -> None:
        self.normalized_shape = (
            tuple(normalized_shape) if isinstance(normalized_shape, Sequence) else (normalized_shape,)
        )
        self.eps = eps
        shape = self.normalized_shape
        self.weight = Parameter.empty(shape, device=device, dtype=dtype) if elementwise_affine else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Scale 1."""
        _start(self.weight, None)

    def forward(self, input: Tensor) -> Tensor:
        """Normalize."""
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.weight is not None}"


class _InstanceNorm(_BatchNorm):
    """Normalize each channel of each sample by itself (Ulyanov et al. 2016); see functional.instance_norm."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: str | None = None,
        dtype: init.DTypeLike = None,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        """Normalize, and in training move the running statistics, if there are any."""
        x = input.unsqueeze(0) if input.ndim == self.ndims[0] - 1 else input
        if x.ndim not in self.ndims or x.shape[1] != self.num_features:
            axes = {3: "(N, C, L)", 4: "(N, C, H, W)"}[self.ndims[0]]
            raise ShapeError(
                f"{type(self).__name__}: input {input.shape} must be {axes} with {self.num_features} channels"
            )
        own = self.training or self.running_mean is None
        momentum = 0.0 if self.momentum is None else self.momentum
        y = F.instance_norm(x, self.running_mean, self.running_var, self.weight, self.bias, own, momentum, self.eps)
        return y.squeeze(0) if input.ndim < x.ndim else y


class InstanceNorm1d(_InstanceNorm):
    """Instance normalization of (N, C, L) or (C, L); see functional.instance_norm."""

    ndims = (3,)


class InstanceNorm2d(_InstanceNorm):
    """Instance normalization of (N, C, H, W) or (C, H, W); see functional.instance_norm."""

    ndims = (4,)


def _start(weight: Tensor | None, bias: Tensor | None) -> None:
    if weight is not None:
        init.ones_(weight)
    if bias is not None:
        init.zeros_(bias)


explain(globals(), whole=True)
