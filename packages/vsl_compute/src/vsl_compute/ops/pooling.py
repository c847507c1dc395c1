"""Max and average pooling: a reduction over a window view, and a gather per input on the way back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..errors import AttributeValueError, ShapeError
from ..view import Shape, View
from .op import REQUIRED, Attributes, Gradients, Needs, Run, composite, is_number, pair

Pair = tuple[int, int]


def pooled_size(size: int, taps: int, stride: int, padding: int, dilation: int, ceil: bool) -> int:
    """Windows along one axis; with `ceil` a last partial one counts if it starts inside the input or its left padding."""
    room = size + 2 * padding - dilation * (taps - 1) - 1
    count = (room + (stride - 1 if ceil else 0)) // stride + 1
    return count - 1 if ceil and (count - 1) * stride >= size + padding else count


def _check(op: str, views: Sequence[Any], attributes: Attributes) -> Attributes:
    kernel = pair(op, "kernel_size", attributes["kernel_size"], least=1)
    a = attributes | {
        "kernel_size": kernel,
        "stride": pair(op, "stride", kernel if attributes["stride"] is None else attributes["stride"], least=1),
        "padding": pair(op, "padding", attributes["padding"], least=0),
    }
    if "dilation" in a:
        a["dilation"] = pair(op, "dilation", a["dilation"], least=1)
    if any(2 * p > k for p, k in zip(a["padding"], kernel, strict=True)):
        raise AttributeValueError(f"{op}: padding {a['padding']} must be at most half of kernel_size {kernel}")
    divisor = a.get("divisor_override")
    if divisor is not None and (not is_number(divisor) or divisor == 0):
        raise AttributeValueError(
            f"{op}: divisor_override={divisor!r} must be a number other than 0, or None for the count of cells"
        )
    x = views[0].shape if "shape" not in a else tuple(a["shape"])
    if len(x) != 4:
        raise ShapeError(f"{op}: input {x} must have 4 axes, (N, C, H, W)")
    if min(_size(x, a)) < 1:
        raise ShapeError(f"{op}: kernel {kernel} is larger than the input {x[2:]} with padding {a['padding']}")
    return a


def check_pool(op: str, shape: Shape, **options: Any) -> Attributes:
    """Options of max pooling for an input of this shape, as pairs."""
    return _check(op, (), {**options, "shape": shape})


def _checked(op: str) -> Any:
    return lambda views, attributes: _check(op, views, attributes)


def _size(x: Shape, a: Attributes) -> Pair:
    dilation = a.get("dilation", (1, 1))
    h, w = (
        pooled_size(x[2 + i], a["kernel_size"][i], a["stride"][i], a["padding"][i], dilation[i], a["ceil_mode"])
        for i in (0, 1)
    )
    return h, w


def padded_shape(x: Shape, a: Attributes) -> Shape:
    """The input grown to what all windows cover: padding before, and after it what the last window needs."""
    dilation, size = a.get("dilation", (1, 1)), _size(x, a)
    reach = (
        max((size[i] - 1) * a["stride"][i] + dilation[i] * (a["kernel_size"][i] - 1) + 1, x[2 + i] + a["padding"][i])
        for i in (0, 1)
    )
    return (*x[:2], *reach)


def _pad(run: Run, x: View, shape: Shape, padding: Pair, value: float) -> View:
    if shape == x.shape:
        return x
    widths = [(0, 0), (0, 0)] + [(padding[i], shape[2 + i] - x.shape[2 + i] - padding[i]) for i in (0, 1)]
    return run("pad", x, widths=widths, value=value)  # type: ignore[no-any-return]


def _windows(run: Run, x: View, a: Attributes, value: float) -> View:
    size = _size(x.shape, a)
    return windows_of(_pad(run, x, padded_shape(x.shape, a), a["padding"], value), a, size)


def windows_of(padded: View, a: Attributes, size: Pair | None = None) -> View:
    """The windows of a padded input, those of `size` that pooling uses; all that fit if it is the input itself."""
    size = _size(padded.shape, a) if size is None else size
    view = padded.window((2, 3), a["kernel_size"], a["stride"], a.get("dilation", (1, 1)))
    return view.slice(slice(None), slice(None), slice(0, size[0]), slice(0, size[1]))


def _taps(a: Attributes, size: Pair) -> Iterator[tuple[int, slice, slice]]:
    """For each place in the window: its number, and the slices of the padded input that it looks at."""
    dilation = a.get("dilation", (1, 1))
    for p in range(a["kernel_size"][0]):
        for q in range(a["kernel_size"][1]):
            rows, columns = (
                slice(at * dilation[i], at * dilation[i] + (size[i] - 1) * a["stride"][i] + 1, a["stride"][i])
                for i, at in ((0, p), (1, q))
            )
            yield p * a["kernel_size"][1] + q, rows, columns


def _crop(x: Any, shape: Shape, padding: Pair) -> Any:
    return x.slice(slice(None), slice(None), *(slice(padding[i], padding[i] + shape[2 + i]) for i in (0, 1)))


# max pooling: y and, for each window, the place of its maximum (p * Q + q)
def _max(run: Run, x: View, **a: Any) -> tuple[View, View]:
    lowest = float("-inf") if x.dtype.is_floating else x.dtype.min
    y, index = run("max_index", _windows(run, x, a, lowest), axes=(4, 5))
    if a["padding"] != (0, 0) and x.size:
        # Padding before a window's cells wins where all of them are the lowest value too: the first cell is the one
        # meant. Cells have no smaller place than the first, so it takes no look at the values.
        ones: View = run("fill", alpha=1, out=run("empty", index, shape=(1, 1, *x.shape[2:])))
        _, first = run("max_index", _windows(run, ones, a, 0), axes=(4, 5))
        run("maximum", index, first, out=index)
    return y, index


def _max_backward(run: Run, needs: Needs, grads: Gradients, saved: dict[str, Any], **a: Any) -> Gradients:
    return (run("max_pool2d_backward", grads[0], saved["index"], shape=saved["x.shape"], **a),)


def _max_scatter(run: Run, g: View, index: View, *, shape: Shape, **a: Any) -> View:
    order = tuple(sorted(range(4), key=lambda i: -abs(g.strides[i])))
    out: View = run("fill", alpha=0, out=run("empty", g, shape=padded_shape(shape, a), order=order))
    for k, rows, columns in _taps(a, (g.shape[2], g.shape[3])):
        place = out.slice(slice(None), slice(None), rows, columns)
        run("add_where_equal", place, g, index, k=k, out=place)
    return _crop(out, shape, a["padding"])  # type: ignore[no-any-return]


def _max_scatter_backward(
    run: Run, needs: Needs, grads: Gradients, saved: dict[str, Any], *, shape: Shape, **a: Any
) -> Gradients:
    return (run("max_pool2d_take", grads[0], saved["index"], **a), None)


def _max_take(run: Run, x: View, index: View, **a: Any) -> View:
    """x at the places that `index` names: linear in x, and the adjoint of max_pool2d_backward."""
    padded = _pad(run, x, padded_shape(x.shape, a), a["padding"], 0)
    out: View = run("fill", alpha=0, out=run("empty", x, shape=index.shape))
    for k, rows, columns in _taps(a, (index.shape[2], index.shape[3])):
        run("add_where_equal", out, padded.slice(slice(None), slice(None), rows, columns), index, k=k, out=out)
    return out


def _max_take_backward(run: Run, needs: Needs, grads: Gradients, saved: dict[str, Any], **a: Any) -> Gradients:
    return (run("max_pool2d_backward", grads[0], saved["index"], shape=saved["x.shape"], **a), None)


# average pooling
def _divided(run: Run, total: Any, x: Shape, a: Attributes) -> Any:
    """total / (cells in each window); windows at the border of a ceil or an uncounted padding have fewer."""
    taps = a["kernel_size"][0] * a["kernel_size"][1]
    covered = (*x[:2], *(x[2 + i] + 2 * a["padding"][i] for i in (0, 1))) if a["count_include_pad"] else x
    if a["divisor_override"] is not None:
        return run("divide", total, float(a["divisor_override"]))
    if covered == padded_shape(x, a) or all(n <= m for n, m in zip(padded_shape(x, a), covered, strict=True)):
        return run("divide", total, float(taps))
    shape = padded_shape((1, 1, *x[2:]), a)
    before = (0, 0) if a["count_include_pad"] else a["padding"]
    after = [shape[2 + i] - before[i] - covered[2 + i] for i in (0, 1)]
    ones = run(
        "fill", alpha=1, out=run("empty", total, shape=(1, 1, *(covered[2 + i] + min(0, after[i]) for i in (0, 1))))
    )
    cells = run("pad", ones, widths=[(0, 0), (0, 0)] + [(before[i], max(0, after[i])) for i in (0, 1)])
    size = _size(x, a)
    counted = cells.window((2, 3), a["kernel_size"], a["stride"], (1, 1)).slice(
        slice(None), slice(None), slice(0, size[0]), slice(0, size[1])
    )
    return run("divide", total, run("sum", counted, axes=(4, 5)))


def _average(run: Run, x: View, **a: Any) -> View:
    if x.dtype.itemsize == 2:  # the sum over a window may be no float16 where the mean is one
        return run("astype", _average(run, run("astype", x, dtype="float32"), **a), dtype=x.dtype)  # type: ignore[no-any-return]
    total = run("sum", _windows(run, x, a, 0), axes=(4, 5))
    return _divided(run, total, x.shape, a)  # type: ignore[no-any-return]


def _average_backward(run: Run, needs: Needs, grads: Gradients, saved: dict[str, Any], **a: Any) -> Gradients:
    return (run("avg_pool2d_backward", grads[0], shape=saved["x.shape"], **a),)


def _average_spread(run: Run, g: View, *, shape: Shape, **a: Any) -> View:
    share = _divided(run, g, shape, a)
    padded, kernel = padded_shape(shape, a), a["kernel_size"]
    full = tuple((padded[2 + i] - kernel[i]) // a["stride"][i] + 1 for i in (0, 1))
    if full != share.shape[2:]:  # windows that exist in the padded input but that pooling does not use
        share = run("pad", share, widths=[(0, 0), (0, 0)] + [(0, full[i] - share.shape[2 + i]) for i in (0, 1)])
    spread = share.reshape((*share.shape, 1, 1)).expand((*share.shape, *kernel))
    out = run("fold", spread, shape=padded, axes=(2, 3), steps=a["stride"], dilations=(1, 1))
    return _crop(out, shape, a["padding"])  # type: ignore[no-any-return]


def _average_spread_backward(
    run: Run, needs: Needs, grads: Gradients, saved: dict[str, Any], *, shape: Shape, **a: Any
) -> Gradients:
    return (run("avg_pool2d", grads[0], **a),)


_MAX: dict[str, Any] = {
    "kernel_size": REQUIRED,
    "stride": None,
    "padding": (0, 0),
    "dilation": (1, 1),
    "ceil_mode": False,
}
_AVERAGE: dict[str, Any] = {
    "kernel_size": REQUIRED,
    "stride": None,
    "padding": (0, 0),
    "ceil_mode": False,
    "count_include_pad": True,
    "divisor_override": None,
}

OPS = (
    composite("max_pool2d", "n>ni", "x", _max, _max_backward, outputs="y index", saves="x.shape index", check=_checked("max_pool2d"), **_MAX),
    composite("max_pool2d_backward", "ni>n", "g index", _max_scatter, _max_scatter_backward, saves="index", check=_checked("max_pool2d_backward"),
              shape=REQUIRED, **_MAX),
    composite("max_pool2d_take", "ni>n", "x index", _max_take, _max_take_backward, saves="x.shape index", check=_checked("max_pool2d_take"), **_MAX),
    composite("avg_pool2d", "f>f", "x", _average, _average_backward, saves="x.shape", check=_checked("avg_pool2d"), **_AVERAGE),
    composite("avg_pool2d_backward", "f>f", "g", _average_spread, _average_spread_backward, check=_checked("avg_pool2d_backward"),
              shape=REQUIRED, **_AVERAGE),
)  # fmt: skip
