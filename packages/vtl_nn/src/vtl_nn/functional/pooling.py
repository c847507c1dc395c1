"""Pooling over windows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import vtl_core as vtl
from vtl_core import AttributeValueError, ShapeError, Tensor
from vtl_core.arguments import explain
from vtl_nn.functional.typing import LONGEST, Size, as_tensor, batched, is_whole, require_tensors, unbatched, wide


def max_pool2d(
    input: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """Take the maximum of every window; padding is -inf, and of equal maxima the first gets the gradient."""
    options = {"stride": stride, "padding": padding, "dilation": dilation, "ceil_mode": ceil_mode}
    y = as_tensor(vtl.apply("max_pool2d", batched("max_pool2d", input, 4), kernel_size=kernel_size, **options)[0])
    return unbatched(y, input)


def avg_pool2d(
    input: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """Average every window; cells that `ceil_mode` adds never count, those of `padding` unless told."""
    options = {"stride": stride, "padding": padding, "ceil_mode": ceil_mode, "count_include_pad": count_include_pad}
    x, divisor = batched("avg_pool2d", input, 4), divisor_override
    y = as_tensor(vtl.apply("avg_pool2d", x, kernel_size=kernel_size, divisor_override=divisor, **options))
    return unbatched(y, input)


def max_pool1d(
    input: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """Take the maximum of every window of sequences (N, C, L) or (C, L), as max_pool2d of one row."""
    op, x = "max_pool1d", _sequences("max_pool1d", input)
    window = wide(op, "kernel_size", kernel_size, 1)
    steps = window if stride is None else wide(op, "stride", stride, 1)
    room, spread = wide(op, "padding", padding, 0), wide(op, "dilation", dilation, 1)
    y = max_pool2d(x.unsqueeze(2), window, steps, room, spread, ceil_mode)
    return unbatched(y.squeeze(2), input)


def avg_pool1d(
    input: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """Average every window of sequences (N, C, L) or (C, L), as avg_pool2d of one row."""
    op, x = "avg_pool1d", _sequences("avg_pool1d", input)
    window = wide(op, "kernel_size", kernel_size, 1)
    steps = window if stride is None else wide(op, "stride", stride, 1)
    room = wide(op, "padding", padding, 0)
    y = avg_pool2d(x.unsqueeze(2), window, steps, room, ceil_mode, count_include_pad)
    return unbatched(y.squeeze(2), input)


def _sequences(op: str, input: Tensor) -> Tensor:
    require_tensors(op, input)
    if input.ndim not in (2, 3):
        raise ShapeError(f"{op}: input {input.shape} must be (N, C, L) or (C, L)")
    return batched(op, input, 3)


def adaptive_avg_pool1d(input: Tensor, output_size: int | tuple[int]) -> Tensor:
    """Average over output_size windows that cover sequences (N, C, L) or (C, L)."""
    x = _sequences("adaptive_avg_pool1d", input)
    size = output_size[0] if isinstance(output_size, tuple | list) and len(output_size) == 1 else output_size
    if not is_whole(size) or not 1 <= size < LONGEST:
        raise AttributeValueError(
            f"adaptive_avg_pool1d: output_size={output_size!r} must be an int of at least 1, below 2**31"
        )
    return unbatched(adaptive_avg_pool2d(x.unsqueeze(2), (1, size)).squeeze(2), input)


def adaptive_avg_pool2d(input: Tensor, output_size: int | tuple[int | None, int | None] | None) -> Tensor:
    """Average over output_size windows that cover each of the last two axes; None keeps an axis as it is.

    Window i of o over n cells is [floor(i * n / o), ceil((i + 1) * n / o)): neighbours share a cell where o does not divide n.

    Shapes:  input (N, C, H, W); result (N, C, *output_size)
    Errors:  AttributeValueError for a size below 1; ShapeError for an input of other than 4 axes, or an axis of 0
    """
    require_tensors("adaptive_avg_pool2d", input)
    if input.ndim == 3:
        return adaptive_avg_pool2d(input.unsqueeze(0), output_size).squeeze(0)
    if len(input.shape) != 4 or 0 in input.shape[2:]:
        raise ShapeError(f"adaptive_avg_pool2d: input {input.shape} must be (N, C, H, W) with H and W of at least 1")
    both: Sequence[int | None] = output_size if isinstance(output_size, tuple | list) else (output_size, output_size)
    if len(both) != 2 or any(o is not None and not (is_whole(o) and 1 <= o < LONGEST) for o in both):
        raise AttributeValueError(
            f"adaptive_avg_pool2d: output_size={output_size!r} must be one or two ints of at least 1, below 2**31, or None"
        )
    height, width = (n if o is None else o for n, o in zip(input.shape[2:], both, strict=True))
    (h, w), rest = input.shape[2:], (input.shape[2] % height, input.shape[3] % width)
    if rest == (0, 0):
        return avg_pool2d(input, (h // height, w // width))
    return _averages(_averages(input, 2, height), 3, width)


def _averages(x: Tensor, dim: int, size: int) -> Tensor:
    """Means of `size` windows that cover an axis."""
    n = x.shape[dim]
    if size <= n:
        windows = [(i * n // size, -(-(i + 1) * n // size)) for i in range(size)]
        return vtl.cat([x[_cells(dim, a, b)].mean(dim=dim, keepdim=True) for a, b in windows], dim=dim)
    pairs = (
        x[_cells(dim, 0, n - 1)] + x[_cells(dim, 1, n)]
    ) * 0.5  # more windows than cells: each has one cell, or two
    numbers = np.arange(size)
    first, behind = numbers * n // size, -(-(numbers + 1) * n // size)
    places = first + np.where(behind - first == 2, n, 0)
    return vtl.take(vtl.cat([x, pairs], dim=dim), vtl.tensor(places, device=x.device), axis=dim)


def _cells(dim: int, first: int, behind: int) -> tuple[slice, ...]:
    return (*[slice(None)] * dim, slice(first, behind))


explain(globals())
