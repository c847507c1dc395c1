"""Gradients of reductions: a row over (g, x, y, n) broadcast back, shared evenly at ties, or a tree for products."""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any

from ..errors import UnsupportedError
from ..rows.derive import gradients_of
from ..rows.expression import names_in, parse
from ..rows.row import Reduction, Row
from ..rows.signature import Signature
from ..view import Shape
from .op import Run


@cache
def gradient_row(reduction: Reduction) -> Row:
    """The row that turns g, x and y into x's gradient; `n`, the count, is a scalar of it."""
    text = reduction.gradient or "g"
    tree = parse(text, ("g", "x", "y", "n"))
    used = names_in(tree)
    args = tuple(name for name in ("g", "x", "y") if name in used)
    scalars = ("n",) if "n" in used else ()
    gradients = gradients_of(tree, dict.fromkeys(args, "f"), "gg")
    return Row(f"{reduction.name}.gradient", Signature("f" * len(args), "f"), args, text, gradients, scalars)


@cache
def _weight_row(reduction: Reduction) -> Row:
    return Row(f"{reduction.name}.weight", Signature("ff", "b"), ("x", "y"), reduction.weight or "x == y", (None, None))


def saved_by(reduction: Reduction) -> frozenset[str]:
    """Which of x and y the gradient reads."""
    if reduction.name == "prod":
        return frozenset("x")
    if reduction.name == "moments":
        return frozenset("xy")
    return frozenset("xy") if reduction.weight else frozenset(gradient_row(reduction).args) - {"g"}


def reduce_backward(
    run: Run, reduction: Reduction, grads: tuple[Any, ...], saved: dict[str, Any], *, shape: Shape, axes: Shape
) -> Any:
    """The gradient of x, of `shape`; `saved` has what `saved_by` names, y (and grads) with the reduced axes left out."""
    kept = tuple(1 if i in axes else n for i, n in enumerate(shape))
    wide = [g if g is None else g.reshape(kept) for g in grads]
    if reduction.name == "prod":
        return _product(run, wide[0], saved["x"], axes)
    if reduction.name == "moments":
        return _moments(run, wide, saved, kept, prod(shape[a] for a in axes))
    if reduction.gradient is None:
        raise UnsupportedError(f"{reduction.name}: has no gradient; detach() the result or choose another op")
    arrived: Any = wide[0]
    g = arrived.expand(shape)
    y = saved["y"].reshape(kept) if "y" in saved else None
    if reduction.weight:
        share = run(_weight_row(reduction), saved["x"], y)
        count = run("sum", run("where", share, run("fill_like", g, alpha=1), 0.0), axes=axes, keepdims=True)
        return run("where", share, run("divide", arrived, count), 0.0)
    row = gradient_row(reduction)
    if row.value == "g":
        return g
    values = {"g": g, "x": saved.get("x"), "y": y}
    count_of = {"n": prod(shape[a] for a in axes)} if row.scalars else {}
    return run(row, *(values[name] for name in row.args), **count_of)


def _moments(run: Run, wide: list[Any], saved: dict[str, Any], kept: Shape, count: int) -> Any:
    x, total = saved["x"], None
    if wide[1] is not None:
        centred = run("subtract", x, saved["y"].reshape(kept))
        total = run("multiply", centred, run("scale", wide[1], alpha=2 / max(1, count)))
    if wide[0] is not None:
        part = run("scale", wide[0], alpha=1 / max(1, count)).expand(x.shape)
        total = part if total is None else run("add", total, part)
    return total


def _product(run: Run, g: Any, x: Any, axes: Shape) -> Any:
    """g times the product of all the others, zeros included: pairs are multiplied up a tree and g is led down it.

    Every step is a product of two slices, so derivatives of any order are exact where elements are zero.
    """
    front = tuple(i for i in range(len(x.shape)) if i not in axes)
    order = front + axes
    flat = run("contiguous", x.permute(order)).reshape((*(x.shape[i] for i in front), prod(x.shape[i] for i in axes)))
    if not flat.shape[-1]:
        return x
    lead = run("contiguous", g.permute(order)).reshape((*flat.shape[:-1], 1))
    down = _down(run, lead, flat).reshape(tuple(x.shape[i] for i in order))
    return down.permute(tuple(order.index(i) for i in range(len(order))))


def _down(run: Run, g: Any, x: Any) -> Any:
    n = x.shape[-1]
    if n == 1:
        return g
    every, half = (slice(None),) * (len(x.shape) - 1), n // 2
    a, b, rest = (x.slice(*every, part) for part in (slice(0, half), slice(half, 2 * half), slice(2 * half, n)))
    pairs = run("multiply", a, b)
    inner = _down(run, g, run("concat", pairs, rest, axis=-1) if n % 2 else pairs)
    each = inner.slice(*every, slice(0, half))
    parts = [run("multiply", each, b), run("multiply", each, a)]
    return run("concat", *parts, *([inner.slice(*every, slice(half, None))] if n % 2 else []), axis=-1)
