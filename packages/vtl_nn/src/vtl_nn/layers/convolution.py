"""Conv1d, Conv2d and their transposes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from vtl_core import AttributeValueError, Tensor
from vtl_core.arguments import explain
from vtl_nn import functional as F
from vtl_nn import init
from vtl_nn.functional.typing import each, is_whole, require_tensors
from vtl_nn.layers.linear import reset
from vtl_nn.module import Module, Parameter

PADDING_MODES = {"zeros": "constant", "reflect": "reflect", "replicate": "replicate", "circular": "circular"}


class _Convolution(Module):
    """What the four share: options, weights and their start. `axes` is how many are convolved."""

    axes: ClassVar[int]
    transposed: ClassVar[bool] = False

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: F.Size,
        stride: F.Size,
        padding: F.Size | str,
        dilation: F.Size,
        groups: int,
        bias: bool,
        padding_mode: str,
        device: str | None,
        dtype: init.DTypeLike,
    ) -> None:
        name = type(self).__name__
        kernel_size, stride, padding, dilation = map(_plain, (kernel_size, stride, padding, dilation))
        taps = each(name, "kernel_size", kernel_size, self.axes, 1)
        for option, size, least in (("stride", stride, 1), ("dilation", dilation, 1), ("padding", padding, 0)):
            if not isinstance(size, str) or option != "padding":
                each(name, option, size, self.axes, least)
        if padding_mode not in PADDING_MODES or (self.transposed and padding_mode != "zeros"):
            known = "'zeros'" if self.transposed else ", ".join(map(repr, PADDING_MODES))
            raise AttributeValueError(f"{name}: padding_mode={padding_mode!r} must be one of {known}")
        counts = (in_channels, out_channels, groups)
        if not all(map(is_whole, counts)) or groups < 1 or in_channels % groups or out_channels % groups:
            raise AttributeValueError(
                f"{name}: groups={groups} must divide in_channels={in_channels} and out_channels={out_channels}"
            )
        if isinstance(padding, str) and (padding not in ("same", "valid") or self.transposed):
            raise AttributeValueError(f"{name}: padding={padding!r} must be an int, two ints, 'same' or 'valid'")
        if padding == "same" and set(each(name, "stride", stride, self.axes, 1)) != {1}:
            raise AttributeValueError(
                f"{name}: padding='same' is for stride 1, and stride is {stride}; give padding in numbers"
            )
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size, self.stride, self.padding, self.dilation = kernel_size, stride, padding, dilation
        self.padding_mode = padding_mode
        shape = (in_channels, out_channels) if self.transposed else (out_channels, in_channels)
        self.weight = Parameter.empty((shape[0], shape[1] // groups, *taps), device=device, dtype=dtype)
        self.bias = Parameter.empty((out_channels,), device=device, dtype=dtype) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weights and bias as PyTorch does: uniform in +-1 / sqrt(weight.shape[1] * taps)."""
        reset(self.weight, self.bias)

    def _border(self, input: Tensor) -> tuple[Tensor, F.Size | str]:
        """The input padded by the mode, and what is left for the op to pad with zeros."""
        if self.padding_mode == "zeros" or self.padding == "valid":
            return input, self.padding
        taps, spread = (_each(v, self.axes) for v in (self.kernel_size, self.dilation))
        if self.padding == "same":
            total = [d * (k - 1) for k, d in zip(taps, spread, strict=True)]
            widths = [(t // 2, t - t // 2) for t in total]
        else:
            widths = [(p, p) for p in _each(self.padding, self.axes)]
        return F.pad(input, [w for sides in widths[::-1] for w in sides], PADDING_MODES[self.padding_mode]), 0

    def extra_repr(self) -> str:
        """The arguments."""
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        text += f", padding={self.padding!r}" if self.padding not in (0, (0, 0)) else ""
        more = getattr(self, "output_padding", 0)
        text += f", output_padding={more}" if more not in (0, (0,), (0, 0)) else ""
        text += f", dilation={self.dilation}" if self.dilation not in (1, (1, 1)) else ""
        text += f", groups={self.groups}" if self.groups != 1 else ""
        text += f", padding_mode={self.padding_mode!r}" if self.padding_mode != "zeros" else ""
        return text + ("" if self.bias is not None else ", bias=False")


class _Correlation(_Convolution):
    function: ClassVar[Callable[..., Tensor]]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: F.Size,
        stride: F.Size = 1,
        padding: F.Size | str = 0,
        dilation: F.Size = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: str | None = None,
        dtype: init.DTypeLike = None,
    ) -> None:
        options = (stride, padding, dilation, groups, bias, padding_mode, device, dtype)
        super().__init__(in_channels, out_channels, kernel_size, *options)

    def forward(self, input: Tensor) -> Tensor:
        """Return the filtered input."""
        return self.by(type(self).function, input)

    def by(self, function: Callable[..., Tensor], input: Tensor, **more: Any) -> Tensor:
        """What a function with conv2d's arguments makes of the input and this layer's weights and options, and of `more`."""
        x, padding = self._border(input)
        return function(x, self.weight, self.bias, self.stride, padding, self.dilation, self.groups, **more)


class Conv1d(_Correlation):
    """Cross-correlate sequences (N, C, L) with `out_channels` filters; see functional.conv1d.

    Shapes:  weight (out_channels, in_channels / groups, K); bias (out_channels,)
    Errors:  AttributeValueError for options out of range
    """

    axes = 1
    function = staticmethod(F.conv1d)


class Conv2d(_Correlation):
    """Cross-correlate images (N, C, H, W) with `out_channels` filters; see functional.conv2d.

    Shapes:  weight (out_channels, in_channels / groups, P, Q); bias (out_channels,)
    Errors:  AttributeValueError for options out of range
    """

    axes = 2
    function = staticmethod(F.conv2d)


class _Transposed(_Convolution):
    function: ClassVar[Callable[..., Tensor]]
    transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: F.Size,
        stride: F.Size = 1,
        padding: F.Size = 0,
        output_padding: F.Size = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: F.Size = 1,
        padding_mode: str = "zeros",
        device: str | None = None,
        dtype: init.DTypeLike = None,
    ) -> None:
        self.output_padding = _plain(output_padding)
        options = (stride, padding, dilation, groups, bias, padding_mode, device, dtype)
        super().__init__(in_channels, out_channels, kernel_size, *options)

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """Return the result, which is larger than the input by the stride; of `output_size`, in place of output_padding.

        Shapes:  output_size has the last axes of the result, or all of them, of which the last count
        Errors:  AttributeValueError for a size that no output_padding below the stride reaches
        """
        more = self.output_padding if output_size is None else self._padding_for(input, output_size)
        room = (self.padding, more)
        return type(self).function(
            input, self.weight, self.bias, self.stride, *room, groups=self.groups, dilation=self.dilation
        )

    def _padding_for(self, input: Tensor, output_size: Sequence[int]) -> tuple[int, ...]:
        """The output_padding that makes the result this large."""
        name, axes = type(self).__name__, self.axes
        require_tensors(name, input)
        size: Any = output_size
        given = tuple(size) if isinstance(size, Sequence) else (size,)
        if len(given) == input.ndim:
            given = given[-axes:]
        if len(given) != axes or not all(map(is_whole, given)):
            raise AttributeValueError(
                f"{name}: output_size={output_size!r} must be {axes} ints, or {input.ndim} for an input {input.shape}"
            )
        options = (self.kernel_size, self.stride, self.padding, self.dilation)
        least = [
            (n - 1) * s - 2 * p + d * (k - 1) + 1
            for n, k, s, p, d in zip(input.shape[-axes:], *(_each(o, axes) for o in options), strict=True)
        ]
        most = [n + s - 1 for n, s in zip(least, _each(self.stride, axes), strict=True)]
        if not all(low <= n <= high for low, n, high in zip(least, given, most, strict=True)):
            raise AttributeValueError(
                f"{name}: output_size={output_size!r} of an input {input.shape} must lie between {least} and {most}"
            )
        return tuple([n - low for n, low in zip(given, least, strict=True)])


class ConvTranspose1d(_Transposed):
    """The adjoint of Conv1d; see functional.conv_transpose1d.

    Shapes:  weight (in_channels, out_channels / groups, K); bias (out_channels,)
    """

    axes = 1
    function = staticmethod(F.conv_transpose1d)


class ConvTranspose2d(_Transposed):
    """The adjoint of Conv2d, which grows images; see functional.conv_transpose2d.

    Shapes:  weight (in_channels, out_channels / groups, P, Q); bias (out_channels,)
    """

    axes = 2
    function = staticmethod(F.conv_transpose2d)


def _plain(size: Any) -> Any:
    """A list, as JSON has it, as a tuple."""
    return tuple(size) if isinstance(size, list) else size


def _each(size: Any, axes: int) -> tuple[int, ...]:
    return size if isinstance(size, tuple) else (size,) * axes


explain(globals(), whole=True)
