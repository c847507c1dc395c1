"""Maximum, average and adaptive average pooling of images and sequences."""

from __future__ import annotations

from vtl_core import Tensor
from vtl_core.arguments import explain
from vtl_nn import functional as F
from vtl_nn.module import Module


class MaxPool2d(Module):
    """The maximum of every window; `stride` is the window's size unless given."""

    def __init__(
        self,
        kernel_size: F.Size,
        stride: F.Size | None = None,
        padding: F.Size = 0,
        dilation: F.Size = 1,
        ceil_mode: bool = False,
    ) -> None:
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.dilation, self.ceil_mode = padding, dilation, ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        """Return the maxima."""
        return F.max_pool2d(input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode)

    def extra_repr(self) -> str:
        """The arguments."""
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(MaxPool2d):
    """The maximum of every window of sequences (N, C, L)."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the maxima."""
        return F.max_pool1d(input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode)


class AvgPool1d(Module):
    """The average of every window of sequences (N, C, L)."""

    def __init__(
        self,
        kernel_size: F.Size,
        stride: F.Size | None = None,
        padding: F.Size = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.ceil_mode, self.count_include_pad = padding, ceil_mode, count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        """Return the averages."""
        return F.avg_pool1d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool2d(Module):
    """The average of every window; see functional.avg_pool2d for what counts at the border."""

    def __init__(
        self,
        kernel_size: F.Size,
        stride: F.Size | None = None,
        padding: F.Size = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.ceil_mode = padding, ceil_mode
        self.count_include_pad, self.divisor_override = count_include_pad, divisor_override

    def forward(self, input: Tensor) -> Tensor:
        """Return the averages."""
        return F.avg_pool2d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )

    def extra_repr(self) -> str:
        """The arguments."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AdaptiveAvgPool2d(Module):
    """The average over windows that cover the image: 1 is the global average."""

    def __init__(self, output_size: int | tuple[int | None, int | None] | None) -> None:
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        """Return the averages."""
        return F.adaptive_avg_pool2d(input, self.output_size)

    def extra_repr(self) -> str:
        """The argument."""
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(Module):
    """The average over windows that cover the sequence: 1 is the global average."""

    def __init__(self, output_size: int | tuple[int]) -> None:
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        """Return the averages."""
        return F.adaptive_avg_pool1d(input, self.output_size)

    def extra_repr(self) -> str:
        """The argument."""
        return f"output_size={self.output_size}"


explain(globals(), whole=True)
