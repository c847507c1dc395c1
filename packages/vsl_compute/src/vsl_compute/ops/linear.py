"""linear: x @ weight^T + bias over the last axis, alone, with a ReLU and with another behind that; pad and slice_backward."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ..errors import ShapeError
from ..rows.derive import gradient_row
from ..rows.elementwise import TABLE as ROWS
from ..view import Shape, View
from .op import REQUIRED, Attributes, Gradients, Needs, Run, composite

RELU_GRADIENT = gradient_row(ROWS["relu"], 0)


def _linear_check(views: Sequence[Any], attributes: Attributes) -> Attributes:
    x, weight, bias = views
    if len(weight.shape) != 2 or not x.shape or x.shape[-1] != weight.shape[1]:
        raise ShapeError(
            f"linear: input {x.shape} and weight {weight.shape}; weight must be (out, in) and input's last axis `in`"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ShapeError(
            f"linear: bias {bias.shape} must be {weight.shape[:1]}, one for each row of weight {weight.shape}"
        )
    return attributes


def _rows(run: Run, x: Any) -> Any:
    """x as a matrix of rows: leading axes merged."""
    if len(x.shape) == 2:
        return x
    return run("contiguous", x).reshape((prod(x.shape[:-1]), x.shape[-1]))


def _linear(run: Run, x: View, weight: View, bias: View | None) -> View:
    y: View = run("matmul", _rows(run, x), weight.permute((1, 0)))
    if bias is not None:
        run("add", y, bias, out=y)
    return y.reshape((*x.shape[:-1], weight.shape[0]))


def _linear_backward(run: Run, needs: Needs, grads: Gradients, saved: dict[str, Any]) -> Gradients:
    x, weight = saved["x"], saved["weight"]
    g = _rows(run, grads[0])
    dx = run("matmul", g, weight).reshape(x.shape) if needs[0] else None
    return dx, *_parameters(run, g, x, needs[1], needs[2])


def _parameters(run: Run, g: Any, x: Any, weight: bool, bias: bool) -> tuple[Any, Any]:
    """What a layer's weight and bias receive, g being rows."""
    if weight and bias:
        return run("linear_weight", g, _rows(run, x))  # type: ignore[no-any-return]  # two of them
    product = run("matmul", g.permute((1, 0)), _rows(run, x)) if weight else None
    return product, run("sum", g, axes=(0,)) if bias else None


# linear_weight: what weight and bias receive, of rows; a backend may add up the bias's as it reads g for the product
def _weight_check(views: Sequence[Any], attributes: Attributes) -> Attributes:
    g, x = (v.shape for v in views)
    if len(g) != 2 or len(x) != 2 or g[0] != x[0]:
        raise ShapeError(f"linear_weight: g {g} and x {x} must be matrices of as many rows")
    return attributes


def _linear_weight(run: Run, g: Any, x: Any) -> tuple[Any, Any]:
    return run("matmul", g.permute((1, 0)), x), run("sum", g, axes=(0,))


def _linear_weight_backward(run: Run, needs: Needs, grads: Gradients, saved: dict[str, Any]) -> Gradients:
    weight, bias = grads
    dg = run("linear", saved["x"], weight, bias) if needs[0] else None
    return dg, run("matmul", saved["g"], weight) if needs[1] else None


# linear_relu: the activation is part of the product's kernel where a backend can
def _linear_relu(run: Run, x: Any, weight: Any, bias: Any) -> Any:
    return run("relu", run("linear", x, weight, bias))


def _linear_relu_backward(run: Run, needs: Needs, grads: Gradients, saved: dict[str, Any]) -> Gradients:
    """The output is positive where the input of the ReLU was."""
    return _linear_backward(run, needs, (run(RELU_GRADIENT, grads[0], saved["y"]),), saved)


# linear_relu_input: what the sum before a ReLU receives from the linear layer behind it, and its bias; `y` is the ReLU's output
def _input_check(views: Sequence[Any], attributes: Attributes) -> Attributes:
    g, weight, y = (v.shape for v in views)
    if len(g) != 2 or len(weight) != 2 or g[1] != weight[0] or y != (g[0], weight[1]):
        raise ShapeError(
            f"linear_relu_input: g {g} @ weight {weight} must be matrices, and the product have y's shape {y}"
        )
    return attributes


def _linear_relu_input(run: Run, g: Any, weight: Any, y: Any) -> tuple[Any, Any]:
    dx = run(RELU_GRADIENT, run("matmul", g, weight), y)
    return dx, run("sum", dx, axes=(0,))


def _linear_relu_input_backward(run: Run, needs: Needs, grads: Gradients, saved: dict[str, Any]) -> Gradients:
    arriving, bias = grads
    arriving = run(RELU_GRADIENT, arriving if bias is None else run("add", arriving, bias), saved["y"])
    return (
        run("linear", arriving, saved["weight"], None) if needs[0] else None,
        run("matmul", saved["g"].permute((1, 0)), arriving) if needs[1] else None,
        None,
    )


# feed_forward: linear, ReLU, linear (Vaswani et al. 2017, equation 2)
def _feed_forward_check(views: Sequence[Any], attributes: Attributes) -> Attributes:
    x, first, second = (v.shape for v in views[:3])
    if len(first) != 2 or len(second) != 2 or not x or x[-1] != first[1] or second[1] != first[0]:
        raise ShapeError(
            f"feed_forward: input {x}, weights {first} and {second}; they must be (hidden, in) and (out, hidden), and input's last axis `in`"
        )
    for name, bias, weight in zip(("first_bias", "second_bias"), views[3:], (first, second), strict=True):
        if bias is not None and bias.shape != weight[:1]:
            raise ShapeError(f"feed_forward: {name} {bias.shape} must be {weight[:1]}, one for each row of {weight}")
    return attributes


def _feed_forward(run: Run, x: Any, first: Any, second: Any, first_bias: Any, second_bias: Any) -> tuple[Any, Any]:
    hidden = run("linear_relu", x, first, first_bias)
    return run("linear", hidden, second, second_bias), hidden


def _feed_forward_backward(run: Run, needs: Needs, grads: Gradients, saved: dict[str, Any]) -> Gradients:
    x, first, second = saved["x"], saved["first"], saved["second"]
    hidden, g = _rows(run, saved["hidden"]), _rows(run, grads[0])
    d_second, d_second_bias = _parameters(run, g, hidden, needs[2], needs[4])
    if not (needs[0] or needs[1] or needs[3]):
        return None, None, d_second, None, d_second_bias
    if grads[1] is None and needs[3]:
        d_sum, d_first_bias = run("linear_relu_input", g, second, hidden)
        d_first = run("matmul", d_sum.permute((1, 0)), _rows(run, x)) if needs[1] else None
    else:
        d_hidden = run("matmul", g, second)
        if grads[1] is not None:  # through the saved hidden values: a second derivative
            d_hidden = run("add", d_hidden, _rows(run, grads[1]))
        d_sum = run(RELU_GRADIENT, d_hidden, hidden)
        d_first, d_first_bias = _parameters(run, d_sum, x, needs[1], needs[3])
    dx = run("matmul", d_sum, first).reshape(x.shape) if needs[0] else None
    return dx, d_first, d_second, d_first_bias, d_second_bias


# pad: widths (before, after) an axis
def _pad_check(views: Sequence[Any], attributes: Attributes) -> Attributes:
    (x,), widths = views, tuple(tuple(w) for w in attributes["widths"])
    if len(widths) != len(x.shape) or any(len(w) != 2 or min(w) < 0 for w in widths):
        raise ShapeError(
            f"pad: widths {widths} must be a (before, after) pair of non-negative ints for each axis of {x.shape}"
        )
    return attributes | {"widths": widths}


def _inside(shape: Shape, widths: tuple[tuple[int, int], ...]) -> tuple[slice, ...]:
    return tuple(slice(before, before + n) for n, (before, _) in zip(shape, widths, strict=True))


def _pad(run: Run, x: View, *, widths: tuple[tuple[int, int], ...], value: float) -> View:
    shape = tuple(n + before + after for n, (before, after) in zip(x.shape, widths, strict=True))
    order = tuple(sorted(range(x.ndim), key=lambda a: -abs(x.strides[a])))
    out: View = run("fill", alpha=value, out=run("empty", x, shape=shape, order=order))
    run("copy", x, out=out.slice(*_inside(x.shape, widths)))
    return out


def _pad_backward(
    run: Run,
    needs: Needs,
    grads: Gradients,
    saved: dict[str, Any],
    *,
    widths: tuple[tuple[int, int], ...],
    value: float,
) -> Gradients:
    g = grads[0]
    return (g.slice(*(slice(before, n - after) for n, (before, after) in zip(g.shape, widths, strict=True))),)


# slice_backward: the gradient of basic indexing, g put into zeros of the indexed array's shape
def _slice_backward(run: Run, g: View, *, shape: Shape, index: tuple[Any, ...]) -> View:
    out: View = run("fill", alpha=0, out=run("empty", g, shape=shape))
    run("copy", g, out=out.slice(*index))
    return out


def _slice_again(
    run: Run, needs: Needs, grads: Gradients, saved: dict[str, Any], *, shape: Shape, index: tuple[Any, ...]
) -> Gradients:
    return (grads[0].slice(*index),)


OPS = (
    composite("linear", "fff>f", "x weight bias?", _linear, _linear_backward, saves="x weight", check=_linear_check),
    composite(
        "linear_relu",
        "fff>f",
        "x weight bias?",
        _linear_relu,
        _linear_relu_backward,
        saves="x weight y",
        check=_linear_check,
        parts=True,
    ),
    composite("linear_weight", "ff>ff", "g x", _linear_weight, _linear_weight_backward, outputs="weight bias", saves="g x",
              check=_weight_check),
    composite("linear_relu_input", "fff>ff", "g weight y", _linear_relu_input, _linear_relu_input_backward, outputs="dx bias",
              saves="g weight y", check=_input_check),
    composite("feed_forward", "fffff>ff", "x first second first_bias? second_bias?", _feed_forward, _feed_forward_backward,
              outputs="y hidden", saves="x first second hidden", check=_feed_forward_check, parts=True),
    composite("pad", "a>a", "x", _pad, _pad_backward, check=_pad_check, widths=REQUIRED, value=0),
    composite("slice_backward", "a>a", "g", _slice_backward, _slice_again, shape=REQUIRED, index=REQUIRED),
)  # fmt: skip
