"""conv2d and the two that are its gradients; the three refer to each other, so any order of derivative exists.

Each runs over tiles of the batch, so that the unrolled windows (im2col) never exceed the backend's scratch. The
padded input and the result are laid out channels-last, which makes a window's rows contiguous; shapes stay NCHW.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..errors import AttributeValueError, ShapeError
from ..view import Shape, View
from .linear import RELU_GRADIENT
from .op import REQUIRED, Attributes, Gradients, Needs, Run, composite, is_whole, pair, shape_of
from .pooling import check_pool

CHANNELS_LAST = (0, 2, 3, 1)
FEW_CHANNELS = 16  # 9 * 3 floats in a run against rows of 32: 3 times the copying speed


def output_size(size: int, taps: int, stride: int, padding: int, dilation: int) -> int:
    """Positions of a window along one axis; negative or zero where it does not fit."""
    return (size + 2 * padding - dilation * (taps - 1) - 1) // stride + 1


def _options(op: str, attributes: Attributes) -> Attributes:
    groups = attributes["groups"]
    if not is_whole(groups) or groups < 1:
        raise AttributeValueError(f"{op}: groups={groups!r} must be a positive int")
    return attributes | {
        "groups": int(groups),
        "stride": pair(op, "stride", attributes["stride"], least=1),
        "padding": pair(op, "padding", attributes["padding"], least=0),
        "dilation": pair(op, "dilation", attributes["dilation"], least=1),
    }


def _check_shapes(op: str, x: Shape, weight: Shape, a: Attributes) -> Shape:
    """The output's shape, if x and weight fit."""
    if len(x) != 4 or len(weight) != 4:
        raise ShapeError(
            f"{op}: input {x} and weight {weight} must have 4 axes, (N, C, H, W) and (O, C / groups, P, Q)"
        )
    channels, filters, groups = x[1], weight[0], a["groups"]
    if channels != weight[1] * groups or filters % groups or not filters:
        raise ShapeError(
            f"{op}: input {x} has {channels} channels, weight {weight} with groups={groups} wants {weight[1] * groups},"
            f" and its {filters} filters must be one at least and divide by groups"
        )
    size = tuple(
        output_size(x[2 + i], weight[2 + i], a["stride"][i], a["padding"][i], a["dilation"][i]) for i in (0, 1)
    )
    if min(size) < 1 or min(weight[2:]) < 1:
        raise ShapeError(
            f"{op}: window {weight[2:]} with dilation {a['dilation']} is larger than the input {x[2:]} with padding {a['padding']}"
        )
    return (x[0], filters, *size)


def _check(views: Sequence[Any], attributes: Attributes) -> Attributes:
    a = _options("conv2d", attributes)
    x, weight, bias = views
    _check_shapes("conv2d", x.shape, weight.shape, a)
    if bias is not None and bias.shape != (weight.shape[0],):
        raise ShapeError(
            f"conv2d: bias {bias.shape} must be ({weight.shape[0]},), one a filter of weight {weight.shape}"
        )
    return a


def _check_input(views: Sequence[Any], attributes: Attributes) -> Attributes:
    shape = shape_of("conv2d_input", "shape", attributes["shape"])
    a = _options("conv2d_input", attributes | {"shape": shape})
    g, weight = views
    expected = _check_shapes("conv2d_input", a["shape"], weight.shape, a)
    if g.shape != expected:
        raise ShapeError(
            f"conv2d_input: gradient {g.shape} must be {expected} for input {a['shape']} and weight {weight.shape}"
        )
    return a


def _check_weight(views: Sequence[Any], attributes: Attributes) -> Attributes:
    shape = shape_of("conv2d_weight", "shape", attributes["shape"])
    a = _options("conv2d_weight", attributes | {"shape": shape})
    g, x = views
    expected = _check_shapes("conv2d_weight", x.shape, a["shape"], a)
    if g.shape != expected:
        raise ShapeError(
            f"conv2d_weight: gradient {g.shape} must be {expected} for input {x.shape} and weight {a['shape']}"
        )
    return a


def _scratch(x: View) -> int:
    return x.buffer.backend.scratch_bytes


def _tiles(batch: int, nbytes_each: int, scratch: int) -> Iterator[slice]:
    step = max(1, min(batch, scratch // max(1, nbytes_each)))
    return (slice(start, min(start + step, batch)) for start in range(0, batch, step))


def _padded(run: Run, x: View, padding: tuple[int, int], weight: Shape | None = None) -> View:
    """x inside a border of zeros, laid out as `_columns` reads it (channels-last without `weight`); x itself if it is that."""
    n, c, h, w = x.shape
    order = None if weight is not None and _planes(weight) else CHANNELS_LAST
    if padding == (0, 0):
        if x.is_contiguous if order is None else x.permute(order).is_contiguous:
            return x
        return run("copy", x, out=run("empty", x, shape=x.shape, order=order))  # type: ignore[no-any-return]
    p, q = padding
    out: View = run("empty", x, shape=(n, c, h + 2 * p, w + 2 * q), order=order)
    for border in (out.slice(slice(None), slice(None), slice(0, p)), out.slice(slice(None), slice(None), slice(p + h, None)),
                   out.slice(slice(None), slice(None), slice(p, p + h), slice(0, q)),
                   out.slice(slice(None), slice(None), slice(p, p + h), slice(q + w, None))):  # fmt: skip
        if border.size:
            run("fill", alpha=0, out=border)
    run("copy", x, out=out.slice(slice(None), slice(None), slice(p, p + h), slice(q, q + w)))
    return out


def _planes(weight: Shape) -> bool:
    """Whether windows are unrolled plane by plane, (C, P, Q) outermost: with few channels, rows of W are the longer runs."""
    return weight[1] < FEW_CHANNELS


def _columns(run: Run, x: View, weight: Shape, a: Attributes) -> View:
    """Windows of one tile and group as a matrix (positions, P * Q * C), or (positions, C * P * Q) where `_planes`."""
    if _planes(weight):
        planes = x.window((2, 3), weight[2:], a["stride"], a["dilation"]).permute((1, 4, 5, 0, 2, 3))
        c, p, q, n, h, w = planes.shape
        flat: View = run("contiguous", planes).reshape((c * p * q, n * h * w))
        return flat.permute((1, 0))
    windows = x.window((2, 3), weight[2:], a["stride"], a["dilation"]).permute((0, 2, 3, 4, 5, 1))
    n, h, w, p, q, c = windows.shape
    if (p, q) == (1, 1) and windows.can_reshape((n * h * w, c)):
        return windows.reshape((n * h * w, c))
    return run("contiguous", windows).reshape((n * h * w, p * q * c))  # type: ignore[no-any-return]


def _groups(a: Attributes, *counts: int) -> Iterator[tuple[slice, ...]]:
    """For each group, its slice of each of these channel counts."""
    groups = a["groups"]
    for i in range(groups):
        yield tuple(slice(i * n // groups, (i + 1) * n // groups) for n in counts)


def _flat(y: View) -> View:
    """(n, C, H, W) laid out channels-last, as a matrix (positions, C)."""
    n, c, h, w = y.shape
    rows = y.permute(CHANNELS_LAST)
    return rows.reshape((n * h * w, c))


def _weight_matrix(run: Run, weight: View, group: slice) -> View:
    """Filters of one group as a matrix whose rows are in the order of `_columns`' columns."""
    w = weight.slice(group).permute((1, 2, 3, 0) if _planes(weight.shape) else (2, 3, 1, 0))
    return run("contiguous", w).reshape((-1, w.shape[3]))  # type: ignore[no-any-return]


def _forward(run: Run, x: View, weight: View, bias: View | None, **a: Any) -> View:
    shape = _check_shapes("conv2d", x.shape, weight.shape, a)
    y: View = run("empty", x, shape=shape, order=CHANNELS_LAST)
    padded = _padded(run, x, a["padding"], weight.shape)
    row = weight.size // max(1, weight.shape[0]) * x.dtype.itemsize
    for filters, channels in _groups(a, weight.shape[0], x.shape[1]):
        matrix = _weight_matrix(run, weight, filters)
        for tile in _tiles(shape[0], row * shape[2] * shape[3], _scratch(x)):
            columns = _columns(run, padded.slice(tile, channels), weight.shape, a)
            run("matmul", columns, matrix, out=_flat(y.slice(tile, filters)))
    return run("add", y, bias.reshape((1, -1, 1, 1)), out=y) if bias is not None else y


def _input_forward(run: Run, g: View, weight: View, **a: Any) -> View:
    n, c, h, w = a["shape"]
    (p, q), dense = a["padding"], _padded(run, g, (0, 0))
    out: View = run("empty", g, shape=(n, c, h + 2 * p, w + 2 * q), order=CHANNELS_LAST)
    row = weight.size // max(1, weight.shape[0]) * g.dtype.itemsize
    for filters, channels in _groups(a, weight.shape[0], c):
        matrix = _weight_matrix(run, weight, filters).permute((1, 0))
        for tile in _tiles(n, row * g.shape[2] * g.shape[3], _scratch(g)):
            part = dense.slice(tile, filters)
            columns: View = run("matmul", _flat(part), matrix)
            inner = weight.shape[1:] if _planes(weight.shape) else (*weight.shape[2:], weight.shape[1])
            windows = columns.reshape((part.shape[0], *g.shape[2:], *inner))
            windows = windows.permute((0, 3, 1, 2, 4, 5) if _planes(weight.shape) else (0, 5, 1, 2, 3, 4))
            run("fold", windows, out=out.slice(tile, channels), shape=(part.shape[0], weight.shape[1], *out.shape[2:]),
                axes=(2, 3), steps=a["stride"], dilations=a["dilation"])  # fmt: skip
    return out.slice(slice(None), slice(None), slice(p, p + h), slice(q, q + w))


def _weight_forward(run: Run, g: View, x: View, **a: Any) -> View:
    shape = a["shape"]
    order = (1, 2, 3, 0) if _planes(shape) else (2, 3, 1, 0)
    out: View = run("fill", alpha=0, out=run("empty", g, shape=tuple(shape[i] for i in order)))
    padded, dense = _padded(run, x, a["padding"], shape), _padded(run, g, (0, 0))
    row = shape[1] * shape[2] * shape[3] * x.dtype.itemsize
    for filters, channels in _groups(a, shape[0], x.shape[1]):
        matrix = out.slice(slice(None), slice(None), slice(None), filters).reshape((-1, shape[0] // a["groups"]))
        for number, tile in enumerate(_tiles(x.shape[0], row * g.shape[2] * g.shape[3], _scratch(x))):
            columns = _columns(run, padded.slice(tile, channels), shape, a)
            run(
                "matmul", columns.permute((1, 0)), _flat(dense.slice(tile, filters)), beta=float(number > 0), out=matrix
            )
    return run("contiguous", out.permute(tuple(order.index(i) for i in range(4))))  # type: ignore[no-any-return]


def _backward(run: Run, needs: Needs, grads: Gradients, saved: dict[str, Any], **a: Any) -> Gradients:
    (g,), x, weight = grads, saved["x"], saved["weight"]
    return (
        run("conv2d_input", g, weight, shape=x.shape, **a) if needs[0] else None,
        run("conv2d_weight", g, x, shape=weight.shape, **a) if needs[1] else None,
        run("sum", g, axes=(0, 2, 3)) if needs[2] else None,
    )


def _relu_forward(run: Run, x: Any, weight: Any, bias: Any, **a: Any) -> Any:
    return run("relu", run("conv2d", x, weight, bias, **a))


def _relu_backward(run: Run, needs: Needs, grads: Gradients, saved: dict[str, Any], **a: Any) -> Gradients:
    """The output is positive where the input of the ReLU was."""
    return _backward(run, needs, (run(RELU_GRADIENT, grads[0], saved["y"]),), saved, **a)


# conv2d, relu and max pooling: the ReLU comes last, for the largest of sums is the sum of the largest, and a pooled image is small
POOLED = "conv2d_relu_max_pool2d"


def pool_options(a: Attributes) -> Attributes:
    """What max_pool2d is given of the joint op's options."""
    names = {"kernel_size": "pool_size", "stride": "pool_stride", "dilation": "pool_dilation", "ceil_mode": "pool_ceil"}
    return {"padding": (0, 0)} | {name: a[given] for name, given in names.items()}


def window_options(a: Attributes) -> Attributes:
    """What conv2d is given of them."""
    return {name: a[name] for name in _WINDOW}


def _pooled_check(views: Sequence[Any], attributes: Attributes) -> Attributes:
    a = _check(views, attributes)
    pool = check_pool(POOLED, result_shape(views[0].shape, views[1].shape, a), **pool_options(a))
    return a | {"pool_size": pool["kernel_size"], "pool_stride": pool["stride"], "pool_dilation": pool["dilation"]}


def result_shape(x: Shape, weight: Shape, a: Attributes) -> Shape:
    """Of a convolution with checked options."""
    sizes = (output_size(x[2 + i], weight[2 + i], a["stride"][i], a["padding"][i], a["dilation"][i]) for i in (0, 1))
    return (x[0], weight[0], *sizes)


def _pooled_forward(run: Run, x: Any, weight: Any, bias: Any, **a: Any) -> Any:
    largest, index = run("max_pool2d", run("conv2d", x, weight, bias, **window_options(a)), **pool_options(a))
    return run("relu", largest), index


def _pooled_backward(run: Run, needs: Needs, grads: Gradients, saved: dict[str, Any], **a: Any) -> Gradients:
    """Each pooled value's gradient goes to one place, so the bias's is their sum before they go there."""
    g, window = run(RELU_GRADIENT, grads[0], saved["y"]), window_options(a)
    bias = run("sum", g, axes=(0, 2, 3)) if needs[2] else None
    if not (needs[0] or needs[1]):
        return (None, None, bias)
    shape = result_shape(saved["x"].shape, saved["weight"].shape, a)
    spread = run("max_pool2d_backward", g, saved["index"], shape=shape, **pool_options(a))
    return (*_backward(run, (needs[0], needs[1], False), (spread,), saved, **window)[:2], bias)


def _input_backward(
    run: Run, needs: Needs, grads: Gradients, saved: dict[str, Any], shape: Shape, **a: Any
) -> Gradients:
    (u,) = grads
    return (
        run("conv2d", u, saved["weight"], None, **a) if needs[0] else None,
        run("conv2d_weight", saved["g"], u, shape=saved["weight"].shape, **a) if needs[1] else None,
    )


def _weight_backward(
    run: Run, needs: Needs, grads: Gradients, saved: dict[str, Any], shape: Shape, **a: Any
) -> Gradients:
    (u,) = grads
    return (
        run("conv2d", saved["x"], u, None, **a) if needs[0] else None,
        run("conv2d_input", saved["g"], u, shape=saved["x"].shape, **a) if needs[1] else None,
    )


_WINDOW: dict[str, Any] = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}

OPS = (
    composite("conv2d", "fff>f", "x weight bias?", _forward, _backward, saves="x weight", check=_check, **_WINDOW),
    composite(
        "conv2d_relu",
        "fff>f",
        "x weight bias?",
        _relu_forward,
        _relu_backward,
        saves="x weight y",
        check=_check,
        parts=True,
        **_WINDOW,
    ),
    composite(
        POOLED,
        "fff>fi",
        "x weight bias?",
        _pooled_forward,
        _pooled_backward,
        saves="x weight y index",
        outputs="y index",
        check=_pooled_check,
        parts=True,
        **_WINDOW,
        pool_size=REQUIRED,
        pool_stride=None,
        pool_dilation=(1, 1),
        pool_ceil=False,
    ),
    composite(
        "conv2d_input",
        "ff>f",
        "g weight",
        _input_forward,
        _input_backward,
        saves="g weight",
        check=_check_input,
        shape=REQUIRED,
        **_WINDOW,
    ),
    composite(
        "conv2d_weight",
        "ff>f",
        "g x",
        _weight_forward,
        _weight_backward,
        saves="g x",
        check=_check_weight,
        shape=REQUIRED,
        **_WINDOW,
    ),
)
