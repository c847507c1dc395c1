"""Conv2d."""

from __future__ import annotations

from typing import Any

from vtl_core import AttributeValueError, Tensor, UnsupportedError
from vtl_nn import functional as F
from vtl_nn import init
from vtl_nn.layers.linear import reset
from vtl_nn.module import Module, Parameter


class Conv2d(Module):
    """Cross-correlate images (N, C, H, W) with `out_channels` filters; see functional.conv2d.

    Shapes:  weight (out_channels, in_channels / groups, P, Q); bias (out_channels,)
    Errors:  AttributeValueError for options out of range; UnsupportedError for a padding_mode other than "zeros"
    """

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
        kernel_size, stride, padding, dilation = map(_plain, (kernel_size, stride, padding, dilation))
        taps = (kernel_size, kernel_size) if isinstance(kernel_size, int) else tuple(kernel_size)
        if len(taps) != 2 or min(taps) < 1:
            raise AttributeValueError(f"Conv2d: kernel_size={kernel_size!r} must be a positive int or two of them")
        if padding_mode != "zeros":
            raise UnsupportedError(
                f"Conv2d: padding_mode={padding_mode!r} is not here; use 'zeros', or pad the input yourself"
            )
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise AttributeValueError(
                f"Conv2d: groups={groups} must divide in_channels={in_channels} and out_channels={out_channels}"
            )
        if isinstance(padding, str) and padding not in ("same", "valid"):
            raise AttributeValueError(f"Conv2d: padding={padding!r} must be an int, two ints, 'same' or 'valid'")
        if padding == "same" and stride not in (1, (1, 1)):
            raise AttributeValueError(
                f"Conv2d: padding='same' is for stride 1, and stride is {stride}; give padding in numbers"
            )
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size, self.stride, self.padding, self.dilation = kernel_size, stride, padding, dilation
        self.weight = Parameter.empty((out_channels, in_channels // groups, *taps), device=device, dtype=dtype)
        self.bias = Parameter.empty((out_channels,), device=device, dtype=dtype) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weights and bias as PyTorch does: uniform in +-1 / sqrt(in_channels / groups * P * Q)."""
        reset(self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """Return the filtered images."""
        return F.conv2d(input, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)

    def extra_repr(self) -> str:
        """The arguments."""
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        text += f", padding={self.padding!r}" if self.padding not in (0, (0, 0)) else ""
        text += f", dilation={self.dilation}" if self.dilation not in (1, (1, 1)) else ""
        text += f", groups={self.groups}" if self.groups != 1 else ""
        return text + ("" if self.bias is not None else ", bias=False")


def _plain(size: Any) -> Any:
    """A list, as JSON has it, as a tuple."""
    return tuple(size) if isinstance(size, list) else size
