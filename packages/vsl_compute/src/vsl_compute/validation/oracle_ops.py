"""The independent meaning of the composites, as sums over their definition: no windows, no matrix tricks.

Arrays are host arrays, results are wide (see wide.py). Backward functions return the adjoint in the same way, a sum
over the definition; where a derivative has no such form it is taken from the papers named.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from .wide import LONG, Array, all_widened

Pair = tuple[int, int]


def pair(option: int | Pair) -> Pair:
    """A number for both axes, or one each."""
    return (option, option) if isinstance(option, int) else (int(option[0]), int(option[1]))


def matmul(a: Array, b: Array) -> Array:
    """sum over k of a[..., i, k] * b[..., k, j]; a one-dimensional a is a row, b a column."""
    left, right = all_widened((a, b))
    if left.dtype == object or left.ndim == 1 or right.ndim == 1:
        return np.asarray(np.matmul(left, right))
    return np.asarray(np.sum(left[..., :, :, None].astype(LONG) * right[..., None, :, :], axis=-2))


def linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    """sum over k of x[..., k] * weight[o, k], plus bias[o]."""
    return matmul(np.asarray(x), np.swapaxes(weight, -1, -2)) + (0 if bias is None else all_widened((bias,))[0])


def linear_weight(g: Array, x: Array) -> tuple[Array, Array]:
    """What weight and bias of a linear layer receive: sums over the rows."""
    g, x = all_widened((g, x))
    return matmul(g.T, x), np.sum(g, axis=0)


def linear_relu_input(g: Array, weight: Array, y: Array) -> tuple[Array, Array]:
    """g @ weight where y is positive, and its sum over the rows."""
    dx = np.where(np.asarray(y) > 0, matmul(g, weight), 0)
    return dx, np.sum(dx, axis=0)


def feed_forward(
    x: Array, first: Array, second: Array, first_bias: Array | None = None, second_bias: Array | None = None
) -> tuple[Array, Array]:
    """Vaswani et al. 2017, equation 2, and what is between its two products."""
    hidden = np.maximum(linear(x, first, first_bias), 0)
    return linear(hidden, second, second_bias), hidden


def _output(size: int, taps: int, step: int, pad: int, dilation: int) -> int:
    """Dumoulin & Visin 2016, relationship 6, with the dilated window of section 5.1."""
    return (size + 2 * pad - dilation * (taps - 1) - 1) // step + 1


def _taps(
    shape: tuple[int, ...], out: tuple[int, ...], kernel: tuple[int, ...], stride: Pair, padding: Pair, dilation: Pair
) -> Any:
    """For each tap (p, q): output rows and columns that see the input there, and which input rows and columns."""
    for p, q in product(range(kernel[0]), range(kernel[1])):
        rows = [(i, i * stride[0] - padding[0] + p * dilation[0]) for i in range(out[0])]
        columns = [(j, j * stride[1] - padding[1] + q * dilation[1]) for j in range(out[1])]
        rows = [(i, h) for i, h in rows if 0 <= h < shape[-2]]
        columns = [(j, w) for j, w in columns if 0 <= w < shape[-1]]
        if rows and columns:
            i, h = (list(part) for part in zip(*rows, strict=True))
            j, w = (list(part) for part in zip(*columns, strict=True))
            yield p, q, np.ix_(i, j), np.ix_(h, w)


def conv2d(
    x: Array,
    weight: Array,
    bias: Array | None = None,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Array:
    """Cross-correlation: y[n,o,i,j] = bias[o] + sum over c,p,q of x[n,c,i*s-pad+p*d, j*s-pad+q*d] * weight[o,c,p,q]."""
    wide, taps = all_widened((x, weight))
    stride, padding, dilation = pair(stride), pair(padding), pair(dilation)
    kernel = taps.shape[2:]
    out = tuple(_output(wide.shape[2 + a], kernel[a], stride[a], padding[a], dilation[a]) for a in (0, 1))
    y = np.zeros((wide.shape[0], taps.shape[0], *out), LONG)
    outs, ins = taps.shape[0] // groups, taps.shape[1]
    for p, q, at, of in _taps(wide.shape, out, kernel, stride, padding, dilation):
        for o in range(taps.shape[0]):
            for c in range(ins):
                y[:, o, at[0], at[1]] += wide[:, (o // outs) * ins + c, of[0], of[1]] * taps[o, c, p, q]
    return y if bias is None else y + np.asarray(bias).astype(LONG)[:, None, None]


def conv2d_input(
    g: Array,
    weight: Array,
    shape: tuple[int, ...],
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Array:
    """What each input element receives: the sum over the outputs that saw it."""
    wide, taps = all_widened((g, weight))
    x = np.zeros(shape, LONG)
    outs, ins = taps.shape[0] // groups, taps.shape[1]
    for p, q, at, of in _taps(shape, wide.shape[2:], taps.shape[2:], pair(stride), pair(padding), pair(dilation)):
        for o in range(taps.shape[0]):
            for c in range(ins):
                x[:, (o // outs) * ins + c, of[0], of[1]] += wide[:, o, at[0], at[1]] * taps[o, c, p, q]
    return x


def conv2d_weight(
    g: Array, x: Array, shape: tuple[int, ...], *, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Array:
    """What each weight receives: the sum over the products it took part in."""
    wide, data = all_widened((g, x))
    taps = np.zeros(shape, LONG)
    outs, ins = shape[0] // groups, shape[1]
    for p, q, at, of in _taps(data.shape, wide.shape[2:], shape[2:], pair(stride), pair(padding), pair(dilation)):
        for o in range(shape[0]):
            for c in range(ins):
                taps[o, c, p, q] = np.sum(data[:, (o // outs) * ins + c, of[0], of[1]] * wide[:, o, at[0], at[1]])
    return taps


def pooled_size(size: int, taps: int, step: int, pad: int, ceil_mode: bool = False, dilation: int = 1) -> int:
    """Positions along an axis; with ceil_mode a last, partial window is kept if it starts inside input or left padding."""
    room = size + 2 * pad - dilation * (taps - 1) - 1
    count = (-(-room // step) if ceil_mode else room // step) + 1
    return count - 1 if ceil_mode and (count - 1) * step >= size + pad else count


def _cells(shape: tuple[int, ...], kernel: Pair, stride: Pair, padding: Pair, ceil_mode: bool, dilation: Pair) -> Any:
    """For each output position, the input cells its window covers: place in the window p * Q + q, row, column."""
    counts = [pooled_size(shape[2 + a], kernel[a], stride[a], padding[a], ceil_mode, dilation[a]) for a in (0, 1)]
    for i, j in product(range(counts[0]), range(counts[1])):
        rows = [i * stride[0] - padding[0] + p * dilation[0] for p in range(kernel[0])]
        columns = [j * stride[1] - padding[1] + q * dilation[1] for q in range(kernel[1])]
        places = product(enumerate(rows), enumerate(columns))
        cells = [(p * kernel[1] + q, h, w) for (p, h), (q, w) in places if 0 <= h < shape[2] and 0 <= w < shape[3]]
        yield i, j, cells


def _pool_shape(
    shape: tuple[int, ...], kernel: Pair, stride: Pair, padding: Pair, ceil_mode: bool, dilation: Pair
) -> tuple[int, ...]:
    counts = (pooled_size(shape[2 + a], kernel[a], stride[a], padding[a], ceil_mode, dilation[a]) for a in (0, 1))
    return (*shape[:2], *counts)


def max_pool2d(
    x: Array, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> tuple[Array, Array]:
    """The largest cell of each window, and its place there, p * Q + q; the first of equals, NaN above all."""
    data = np.asarray(x)
    kernel, dilation, padding = pair(kernel_size), pair(dilation), pair(padding)
    stride = kernel if stride is None else pair(stride)
    y = np.zeros(_pool_shape(data.shape, kernel, stride, padding, ceil_mode, dilation), data.dtype)
    index = np.zeros(y.shape, np.int64)
    for i, j, cells in _cells(data.shape, kernel, stride, padding, ceil_mode, dilation):
        for n, c in product(range(data.shape[0]), range(data.shape[1])):
            line = [data[n, c, h, w] for _, h, w in cells]
            best = next((k for k, v in enumerate(line) if v != v), None)
            best = max(range(len(line)), key=lambda k: (line[k], -k)) if best is None else best
            y[n, c, i, j], index[n, c, i, j] = line[best], cells[best][0]
    return y, index


def conv2d_relu_max_pool2d(
    x: Array,
    weight: Array,
    bias: Array | None = None,
    *,
    pool_size: Any,
    pool_stride: Any = None,
    pool_dilation: Any = 1,
    pool_ceil: bool = False,
    **window: Any,
) -> tuple[Array, Array]:
    """What is positive of the largest of each window of a convolution, and that one's place."""
    y, index = max_pool2d(conv2d(x, weight, bias, **window), pool_size, pool_stride, 0, pool_dilation, pool_ceil)
    return np.maximum(y, 0), index


def max_pool2d_backward(
    g: Array,
    index: Array,
    shape: tuple[int, ...],
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Array:
    """Each output's gradient goes to the cell that `index` names."""
    (wide,) = all_widened((g,))
    kernel, dilation, padding = pair(kernel_size), pair(dilation), pair(padding)
    x = np.zeros(shape, LONG)
    for i, j, cells in _cells(shape, kernel, kernel if stride is None else pair(stride), padding, ceil_mode, dilation):
        for place, h, w in cells:
            x[:, :, h, w] += np.where(index[:, :, i, j] == place, wide[:, :, i, j], 0)
    return x


def _divisor(
    cells: int, at: Pair, kernel: Pair, stride: Pair, padding: Pair, shape: tuple[int, ...], include: bool
) -> int:
    """Cells that count: those inside input, or inside the padded input too, but never those beyond its end."""
    if not include:
        return cells
    spans = [
        min(at[a] * stride[a] - padding[a] + kernel[a], shape[2 + a] + padding[a]) - (at[a] * stride[a] - padding[a])
        for a in (0, 1)
    ]
    return spans[0] * spans[1]


def avg_pool2d(
    x: Array,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Array:
    """The mean of each window; see `_divisor` for what counts."""
    (wide,) = all_widened((x,))
    kernel, padding = pair(kernel_size), pair(padding)
    stride = kernel if stride is None else pair(stride)
    y = np.zeros(_pool_shape(wide.shape, kernel, stride, padding, ceil_mode, (1, 1)), LONG)
    for i, j, cells in _cells(wide.shape, kernel, stride, padding, ceil_mode, (1, 1)):
        count = _divisor(len(cells), (i, j), kernel, stride, padding, wide.shape, count_include_pad)
        y[:, :, i, j] = sum((wide[:, :, h, w] for _, h, w in cells), np.zeros(wide.shape[:2], LONG)) / LONG(count)
    return y


def avg_pool2d_backward(
    g: Array,
    shape: tuple[int, ...],
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Array:
    """Each output's gradient, divided as the output was, goes to every cell of its window."""
    (wide,) = all_widened((g,))
    kernel, padding = pair(kernel_size), pair(padding)
    stride = kernel if stride is None else pair(stride)
    x = np.zeros(shape, LONG)
    for i, j, cells in _cells(shape, kernel, stride, padding, ceil_mode, (1, 1)):
        count = _divisor(len(cells), (i, j), kernel, stride, padding, shape, count_include_pad)
        for _, h, w in cells:
            x[:, :, h, w] += wide[:, :, i, j] / LONG(count)
    return x


def fold(
    x: Array, shape: tuple[int, ...], axes: tuple[int, ...], steps: tuple[int, ...], dilations: tuple[int, ...]
) -> Array:
    """Adjoint of a sliding window over `axes` of `shape`: every window entry is added to the element it looked at."""
    (wide,) = all_widened((x,))
    out = np.zeros(shape, wide.dtype)
    rank = len(shape)
    for at in np.ndindex(*wide.shape):
        place = list(at[:rank])
        for k, axis in enumerate(axes):
            place[axis] = at[axis] * steps[k] + at[rank + k] * dilations[k]
        out[tuple(place)] += wide[at]
    return out


def pad(x: Array, widths: tuple[tuple[int, int], ...], value: Any = 0) -> Array:
    """A constant border, `widths` an axis: before and after; negative widths are not meant."""
    data = np.asarray(x)
    shape = tuple(n + before + after for n, (before, after) in zip(data.shape, widths, strict=True))
    out = np.full(shape, value, data.dtype)
    out[tuple(slice(before, before + n) for n, (before, _) in zip(data.shape, widths, strict=True))] = data
    return out
