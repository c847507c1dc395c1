"""linear: x @ weight^T + bias over the last axis, and the shape-changing composites pad, concat and slice_backward."""

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
    return (
        run("matmul", g, weight).reshape(x.shape) if needs[0] else None,
        run("matmul", g.permute((1, 0)), _rows(run, x)) if needs[1] else None,
        run("sum", g, axes=(0,)) if needs[2] else None,
    )


# linear_relu: the activation is part of the product's kernel where a backend can
def _linear_relu(run: Run, x: Any, weight: Any, bias: Any) -> Any:
    return run("relu", run("linear", x, weight, bias))


def _linear_relu_backward(run: Run, needs: Needs, grads: Gradients, saved: dict[str, Any]) -> Gradients:
    """The output is positive where the input of the ReLU was."""
    return _linear_backward(run, needs, (run(RELU_GRADIENT, grads[0], saved["y"]),), saved)


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
    composite("pad", "a>a", "x", _pad, _pad_backward, check=_pad_check, widths=REQUIRED, value=0),
    composite("slice_backward", "a>a", "g", _slice_backward, _slice_again, shape=REQUIRED, index=REQUIRED),
)
