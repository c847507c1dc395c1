"""Convolutions."""

from __future__ import annotations

from collections.abc import Sequence

import vtl_core as vtl
from vtl_core import AttributeValueError, Tensor
from vtl_nn.functional.typing import Size, as_tensor


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size | str = 0,
    dilation: Size = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlate `input` with `weight` and add `bias`, channel by channel.

    y[n, o, i, j] = bias[o] + sum over c, p, q of input[n, c, i*s - pad + p*d, j*s - pad + q*d] * weight[o, c, p, q]

    Shapes:  input (N, C, H, W); weight (O, C / groups, P, Q); result (N, O, H', W'),
             H' = (H + 2*padding - dilation*(P-1) - 1) // stride + 1; padding "same" keeps H and W, at stride 1
    """
    if isinstance(padding, str):
        input, padding = _padded(input, weight.shape[2:], stride, padding, dilation)
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return as_tensor(vtl.apply("conv2d", input, weight, bias, **options))


def _padded(input: Tensor, kernel: Sequence[int], stride: Size, padding: str, dilation: Size) -> tuple[Tensor, Size]:
    """Padding by name: what both sides share goes to the op, an odd cell is padded here, at the end as PyTorch does."""
    if padding == "valid":
        return input, 0
    if padding != "same":
        raise AttributeValueError(f"conv2d: padding={padding!r} must be an int, two ints, 'same' or 'valid'")
    if stride not in (1, (1, 1), [1, 1]):
        raise AttributeValueError(
            f"conv2d: padding='same' is for stride 1, and stride is {stride}; give padding in numbers"
        )
    steps = (dilation, dilation) if isinstance(dilation, int) else dilation
    total = [d * (k - 1) for d, k in zip(steps, kernel, strict=True)]
    if any(t % 2 for t in total):
        input = as_tensor(
            vtl.apply("pad", input, widths=((0, 0), (0, 0), (0, total[0] % 2), (0, total[1] % 2)), value=0)
        )
    return input, (total[0] // 2, total[1] // 2)
