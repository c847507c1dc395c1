"""Convolutions of sequences and images, their transposes, and padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import vtl_core as vtl
from vtl_core import AttributeValueError, ShapeError, Tensor
from vtl_core.arguments import explain
from vtl_nn.functional.typing import Size, as_tensor, batched, each, is_whole, require_tensors, unbatched, wide

MODES = ("constant", "reflect", "replicate", "circular")


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

    Shapes:  input (N, C, H, W) or (C, H, W); weight (O, C / groups, P, Q); result (N, O, H', W'),
             H' = (H + 2*padding - dilation*(P-1) - 1) // stride + 1; padding "same" keeps H and W, at stride 1
    """
    return _conv2d("conv2d", input, weight, bias, stride, padding, dilation, groups)


def conv2d_relu(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size | str = 0,
    dilation: Size = 1,
    groups: int = 1,
) -> Tensor:
    """relu(conv2d(...)) as one op: where a device can, bias and activation are one pass over the result.

    Shapes:  as conv2d
    """
    return _conv2d("conv2d_relu", input, weight, bias, stride, padding, dilation, groups)


def conv2d_relu_max_pool2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size | str = 0,
    dilation: Size = 1,
    groups: int = 1,
    *,
    pool_size: Size,
    pool_stride: Size | None = None,
    pool_dilation: Size = 1,
    pool_ceil: bool = False,
) -> Tensor:
    """max_pool2d(relu(conv2d(...)), pool_size, ...) as one op, which takes what is positive of pooled values only.

    Of values that are equal once the bias is added the largest before that gets the gradient.

    Shapes:  input, weight and bias as conv2d; result as max_pool2d's of that, whose padding is 0
    """
    pool = {"pool_size": pool_size, "pool_stride": pool_stride, "pool_dilation": pool_dilation, "pool_ceil": pool_ceil}
    return _conv2d("conv2d_relu_max_pool2d", input, weight, bias, stride, padding, dilation, groups, **pool)


def _conv2d(
    op: str,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Size,
    padding: Size | str,
    dilation: Size,
    groups: int,
    **pool: Any,
) -> Tensor:
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups, **pool}
    if type(input) is Tensor and len(input.raw.layout.shape) == 4 and not isinstance(padding, str):  # mostly
        y = vtl.apply(op, input, weight, bias, **options)
        return as_tensor(y[0] if pool else y)
    x = batched(op, input, 4)
    if isinstance(padding, str):
        require_tensors(op, weight, first=2)
        x, options["padding"] = _named(op, x, weight, stride, padding, dilation)
    y = vtl.apply(op, x, weight, bias, **options)
    return unbatched(as_tensor(y[0] if pool else y), input)


def _named(op: str, input: Tensor, weight: Tensor, stride: Size, padding: str, dilation: Size) -> tuple[Tensor, Size]:
    """Padding by name: what both sides share goes to the op, an odd cell is padded here, at the end as PyTorch does."""
    if padding == "valid":
        return input, 0
    if padding != "same":
        raise AttributeValueError(f"{op}: padding={padding!r} must be an int, two ints, 'same' or 'valid'")
    if each(op, "stride", stride, 2, 1) != (1, 1):
        raise AttributeValueError(
            f"{op}: padding='same' is for stride 1, and stride is {stride}; give padding in numbers"
        )
    if weight.ndim != 4:
        return input, 0  # the op says what is wrong
    total = [d * (k - 1) for d, k in zip(each(op, "dilation", dilation, 2, 1), weight.shape[2:], strict=True)]
    if any(t % 2 for t in total):
        input = pad(input, (0, total[1] % 2, 0, total[0] % 2))
    return input, (total[0] // 2, total[1] // 2)


def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size | str = 0,
    dilation: Size = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlate sequences with `weight`: conv2d over one row.

    Shapes:  input (N, C, L) or (C, L); weight (O, C / groups, K); result (N, O, L')
    """
    x = batched("conv1d", input, 3)
    require_tensors("conv1d", weight, first=2)
    if weight.ndim != 3:
        raise ShapeError(f"conv1d: weight {weight.shape} must be (O, C / groups, K)")
    rows = padding if isinstance(padding, str) else wide("conv1d", "padding", padding, 0)
    steps, spread = wide("conv1d", "stride", stride, 1), wide("conv1d", "dilation", dilation, 1)
    y = conv2d(x.unsqueeze(2), weight.unsqueeze(2), bias, steps, rows, spread, groups)
    return unbatched(y.squeeze(2), input)


def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size = 0,
    output_padding: Size = 0,
    groups: int = 1,
    dilation: Size = 1,
) -> Tensor:
    """The adjoint of conv2d: every cell of the input adds `weight` times itself to a window of the result.

    Shapes:  input (N, C, H, W) or (C, H, W); weight (C, O / groups, P, Q); bias (O,); result (N, O, H', W'),
             H' = (H - 1) * stride - 2 * padding + dilation * (P - 1) + output_padding + 1
    Errors:  AttributeValueError if output_padding is neither below stride nor below dilation
    """
    op = "conv_transpose2d"
    x = batched(op, input, 4)
    require_tensors(op, weight, first=2)
    steps, spread = each(op, "stride", stride, 2, 1), each(op, "dilation", dilation, 2, 1)
    room, more = each(op, "padding", padding, 2, 0), each(op, "output_padding", output_padding, 2, 0)
    if any(m >= max(s, d) for m, s, d in zip(more, steps, spread, strict=True)):
        raise AttributeValueError(
            f"{op}: output_padding={output_padding} must be below stride={stride} or dilation={dilation}"
        )
    if not is_whole(groups) or groups < 1:
        raise AttributeValueError(f"{op}: groups={groups!r} must be a positive int")
    if weight.ndim != 4 or x.ndim != 4 or x.shape[1] != weight.shape[0] or weight.shape[0] % groups:
        raise ShapeError(
            f"{op}: input {input.shape} and weight {weight.shape} with groups={groups}; "
            "weight must be (C, O / groups, P, Q) with the input's C"
        )
    if bias is not None:
        require_tensors(op, bias, first=3)
        if bias.shape != (weight.shape[1] * groups,):
            raise ShapeError(f"{op}: bias {bias.shape} must be ({weight.shape[1] * groups},)")
    whole = [
        (n - 1) * s + d * (k - 1) + 1 for n, s, d, k in zip(x.shape[2:], steps, spread, weight.shape[2:], strict=True)
    ]
    size = [w - 2 * p + m for w, p, m in zip(whole, room, more, strict=True)]
    if min(size) < 1:
        raise ShapeError(f"{op}: padding={padding} leaves {tuple(size)} of the result's {tuple(whole)}")
    options: dict[str, Any] = {"stride": steps, "dilation": spread, "groups": groups}
    channels = (x.shape[0], weight.shape[1] * groups)
    if all(m < s for m, s in zip(more, steps, strict=True)):
        y = as_tensor(vtl.apply("conv2d_input", x, weight, shape=(*channels, *size), padding=room, **options))
    else:  # cells that no window of a convolution begins in: the whole is cut, and grown by zeros where it ends
        y = as_tensor(vtl.apply("conv2d_input", x, weight, shape=(*channels, *whole), **options))
        ends = [p + n for p, n in zip(room, size, strict=True)]
        y = pad(y, (0, max(0, ends[1] - whole[1]), 0, max(0, ends[0] - whole[0])))
        y = y[:, :, room[0] : ends[0], room[1] : ends[1]]
    if bias is None:
        return unbatched(y, input)
    if vtl.autocast_dtype() is not None:  # the product came out narrow, and a wide bias would widen it again
        bias = bias.to(y.dtype)
    return unbatched(y + bias.reshape(1, -1, 1, 1), input)


def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size = 0,
    output_padding: Size = 0,
    groups: int = 1,
    dilation: Size = 1,
) -> Tensor:
    """The adjoint of conv1d.

    Shapes:  input (N, C, L) or (C, L); weight (C, O / groups, K); result (N, O, L'), as conv_transpose2d's
    """
    op = "conv_transpose1d"
    x = batched(op, input, 3)
    require_tensors(op, weight, first=2)
    if weight.ndim != 3:
        raise ShapeError(f"{op}: weight {weight.shape} must be (C, O / groups, K)")
    y = conv_transpose2d(
        x.unsqueeze(2),
        weight.unsqueeze(2),
        bias,
        wide(op, "stride", stride, 1),
        wide(op, "padding", padding, 0),
        wide(op, "output_padding", output_padding, 0),
        groups,
        wide(op, "dilation", dilation, 1),
    )
    return unbatched(y.squeeze(2), input)


def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float = 0.0) -> Tensor:
    """Grow the last axes: `pad` has (before, after) for the last, then for the one before it, and so on; PyTorch's order.

    Modes:   "constant" writes `value` (and cuts where a number is negative), "reflect" mirrors without the edge,
             "replicate" repeats the edge, "circular" goes around
    Errors:  AttributeValueError for another mode, or numbers that a mode cannot serve
    """
    require_tensors("pad", input)
    given: Any = pad
    numbers = tuple(given) if isinstance(given, Sequence) else (given,)
    if len(numbers) % 2 or len(numbers) > 2 * input.ndim or mode not in MODES or not all(map(is_whole, numbers)):
        raise AttributeValueError(
            f"pad: pad={pad}, mode={mode!r} for {input.shape}; two ints an axis, and a mode of {', '.join(MODES)}"
        )
    widths = list(zip(numbers[::2], numbers[1::2], strict=True))
    if mode == "constant":
        cut = [
            (max(0, -before), n - max(0, -after)) for (before, after), n in zip(widths, input.shape[::-1], strict=False)
        ]
        for k, (start, stop) in enumerate(cut):
            if start > stop:
                raise AttributeValueError(
                    f"pad: pad={pad} cuts more than axis {input.ndim - 1 - k} of {input.shape} has"
                )
        if any(w < 0 for both in widths for w in both):
            places = (slice(None),) * (input.ndim - len(cut)) + tuple(slice(*c) for c in cut[::-1])
            input = input[places]
        grown = [(0, 0)] * (input.ndim - len(widths)) + [(max(0, a), max(0, b)) for a, b in widths[::-1]]
        return as_tensor(vtl.apply("pad", input, widths=tuple(grown), value=value)) if any(map(any, grown)) else input
    for k, (before, after) in enumerate(widths):
        axis = input.ndim - 1 - k
        n = input.shape[axis]
        most = {"reflect": n - 1, "circular": n}.get(mode, before + after)
        if min(before, after) < 0 or max(before, after) > most or not n:
            raise AttributeValueError(
                f"pad: ({before}, {after}) for axis {axis} of {input.shape}; mode={mode!r} takes 0 to {most}"
            )
        if before or after:
            input = vtl.cat(_borders(input, axis, before, after, mode), dim=axis)
    return input


def _borders(x: Tensor, axis: int, before: int, after: int, mode: str) -> list[Tensor]:
    """What stands before x, x, and what stands after it; empty ones left out."""
    n = x.shape[axis]

    def part(start: int, stop: int, step: int = 1) -> Tensor:
        return x[(*(slice(None),) * axis, slice(start, stop if stop >= 0 else None, step))]

    def repeated(edge: Tensor, count: int) -> Tensor:
        return edge.expand(*x.shape[:axis], count, *x.shape[axis + 1 :])

    parts = [x]
    if before:
        first = {"reflect": lambda: part(before, 0, -1), "circular": lambda: part(n - before, n)}.get(mode)
        parts.insert(0, first() if first else repeated(part(0, 1), before))
    if after:
        last = {"reflect": lambda: part(n - 2, n - 2 - after, -1), "circular": lambda: part(0, after)}.get(mode)
        parts.append(last() if last else repeated(part(n - 1, n), after))
    return parts


explain(globals())
