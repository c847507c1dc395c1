"""softmax and log_softmax, written so that infinities and huge logits stay right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import AttributeValueError
from ..view import View
from .op import Attributes, Gradients, Needs, Run, composite, is_whole


def _axis_check(op: str) -> Any:
    def check(views: Sequence[Any], a: Attributes) -> Attributes:
        ndim, axis = len(views[0].shape), a["axis"]
        if not is_whole(axis) or not -ndim <= axis < ndim:
            raise AttributeValueError(
                f"{op}: axis={axis!r} for an array of {ndim} axes; it must lie in [{-ndim}, {ndim})"
            )
        return a | {"axis": axis % ndim}

    return check


# softmax: y = exp(x - max) / sum; a row of only -inf is NaN, as 0 / 0 is
def _softmax(run: Run, x: View, *, axis: int) -> View:
    if not x.size:
        return run("copy", x)  # type: ignore[no-any-return]
    if x.dtype.itemsize == 2:  # of more than 65504 ones there is no float16 sum
        wide = _softmax(run, run("astype", x, dtype="float32"), axis=axis)
        return run("astype", wide, dtype=x.dtype)  # type: ignore[no-any-return]
    e: View = run("subtract", x, run("max", x, axes=(axis,), keepdims=True))
    run("exp", e, out=e)
    return run("divide", e, run("sum", e, axes=(axis,), keepdims=True), out=e)  # type: ignore[no-any-return]


def _softmax_backward(run: Run, needs: Needs, grads: Gradients, saved: dict[str, Any], *, axis: int) -> Gradients:
    return (run("softmax_backward", grads[0], saved["y"], axis=axis),)


def _softmax_vjp(run: Run, g: Any, y: Any, *, axis: int) -> Any:
    projected = run("sum", run("multiply", g, y), axes=(axis,), keepdims=True)
    return run("multiply", y, run("subtract", g, projected))


def _log_softmax(run: Run, x: View, *, axis: int) -> View:
    if not x.size:
        return run("copy", x)  # type: ignore[no-any-return]
    if x.dtype.itemsize == 2:
        wide = _log_softmax(run, run("astype", x, dtype="float32"), axis=axis)
        return run("astype", wide, dtype=x.dtype)  # type: ignore[no-any-return]
    # less the largest first: x far from 0 has no room for the digits of the sum's logarithm
    away: View = run("subtract", x, run("max", x, axes=(axis,), keepdims=True))
    return run("subtract", away, run("logsumexp", away, axes=(axis,), keepdims=True), out=away)  # type: ignore[no-any-return]


def _log_softmax_backward(run: Run, needs: Needs, grads: Gradients, saved: dict[str, Any], *, axis: int) -> Gradients:
    return (run("log_softmax_backward", grads[0], saved["y"], axis=axis),)


def _log_softmax_vjp(run: Run, g: Any, y: Any, *, axis: int) -> Any:
    return run("subtract", g, run("multiply", run("exp", y), run("sum", g, axes=(axis,), keepdims=True)))


OPS = (
    composite("softmax", "f>f", "x", _softmax, _softmax_backward, saves="y", check=_axis_check("softmax"), axis=-1),
    composite("softmax_backward", "ff>f", "g y", _softmax_vjp, expands=True, check=_axis_check("softmax_backward"), axis=-1),
    composite("log_softmax", "f>f", "x", _log_softmax, _log_softmax_backward, saves="y", check=_axis_check("log_softmax"), axis=-1),
    composite("log_softmax_backward", "ff>f", "g y", _log_softmax_vjp, expands=True, check=_axis_check("log_softmax_backward"), axis=-1),
)  # fmt: skip
