"""Norms of many arrays at once: what clips gradients and looks for infinities in them, without the host."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

from ..errors import AttributeValueError, ShapeError
from ..view import View
from .op import Attributes, Run, composite, is_number


def _check(views: Sequence[Any], a: Attributes) -> Attributes:
    if not views:
        raise ShapeError("foreach_norm: there is no array; give at least one")
    if not is_number(a["ord"]) or not a["ord"] > 0:
        raise AttributeValueError(f"foreach_norm: ord={a['ord']!r} must be a number above 0, inf included")
    return a | {"ord": float(a["ord"])}


def _foreach_norm(run: Run, *views: View, ord: float) -> View:
    """The norms side by side, in float64 if an array is; float16 arrays have float32 norms, as 65504 is soon passed."""
    wide = "float64" if any(x.dtype.itemsize == 8 for x in views) else "float32"
    out: View = run("empty", views[0], shape=(len(views),), dtype=wide)
    for k, x in enumerate(views):
        flat = x if x.dtype is out.dtype else run("astype", x, dtype=out.dtype)
        _norm(run, flat, ord, out.slice(k))
    return out


def _norm(run: Run, x: View, ord: float, out: View) -> None:
    if ord in (2, inf):
        run("norm" if ord == 2 else "norm_inf", x, out=out)
        return
    top = run("norm_inf", x)  # powers of what is at most 1 neither overflow nor vanish together
    safe = run("where", run("equal", top, 0), 1.0, top)
    safe = run("where", run("equal", top, inf), 1.0, safe)
    total = run("sum", run("power", run("divide", run("absolute", x), safe), ord))
    run("multiply", run("power", total, 1 / ord), top, out=out)


OPS = (composite("foreach_norm", "f>n", "x*", _foreach_norm, check=_check, ord=2.0),)
