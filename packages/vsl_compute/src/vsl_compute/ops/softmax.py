"""softmax, log_softmax and the losses that stand on them; written so that infinities and huge logits stay right."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ..errors import AttributeValueError, ShapeError
from ..view import View
from .op import Attributes, Gradients, Needs, Run, composite

REDUCTION_NAMES = ("none", "sum", "mean")


def _axis_check(op: str) -> Any:
    def check(views: Sequence[Any], a: Attributes) -> Attributes:
        ndim, axis = len(views[0].shape), a["axis"]
        if not isinstance(axis, int) or not -ndim <= axis < ndim:
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
    return run("subtract", x, run("logsumexp", x, axes=(axis,), keepdims=True))  # type: ignore[no-any-return]


def _log_softmax_backward(run: Run, needs: Needs, grads: Gradients, saved: dict[str, Any], *, axis: int) -> Gradients:
    return (run("log_softmax_backward", grads[0], saved["y"], axis=axis),)


def _log_softmax_vjp(run: Run, g: Any, y: Any, *, axis: int) -> Any:
    return run("subtract", g, run("multiply", run("exp", y), run("sum", g, axes=(axis,), keepdims=True)))


# cross_entropy: logits (N, C, ...), integer targets (N, ...)
def _loss_check(op: str, a: Attributes) -> None:
    if a["reduction"] not in REDUCTION_NAMES:
        raise AttributeValueError(f"{op}: reduction={a['reduction']!r} must be one of {', '.join(REDUCTION_NAMES)}")


def _cross_entropy_check(views: Sequence[Any], a: Attributes) -> Attributes:
    x, target = views[0].shape, views[1].shape
    if len(x) < 2 or target != (x[0], *x[2:]):
        raise ShapeError(
            f"cross_entropy: logits {x} must be (N, C, ...) and targets {target} the same without C; expected {(*x[:1], *x[2:])}"
        )
    _loss_check("cross_entropy", a)
    return a


def _classes_last(x: Any) -> Any:
    """(N, C, ...) as (..., C): a view."""
    return x if len(x.shape) == 2 else x.permute((0, *range(2, len(x.shape)), 1))


def _numbers(run: Run, target: View) -> View:
    """Class numbers in a dtype that holds any `ignore_index`: labels are often stored as bytes."""
    return target if target.dtype.name in ("int32", "int64") else run("astype", target, dtype="int64")


def _cross_entropy(run: Run, x: View, target: View, *, reduction: str, ignore_index: int) -> tuple[View, View, View]:
    if x.dtype.itemsize == 2:  # sums of losses and the saved logsumexp need more than eleven bits
        loss, lse, count = _cross_entropy(
            run, run("astype", x, dtype="float32"), target, reduction=reduction, ignore_index=ignore_index
        )
        return run("astype", loss, dtype=x.dtype), lse, count
    logits, target = _classes_last(x), _numbers(run, target)
    counted = run("not_equal", target, ignore_index)
    index = run("where", counted, target, 0)
    lse = run("logsumexp", logits, axes=(logits.ndim - 1,))
    picked = run("gather", logits, index, batch=target.ndim)
    losses = run("where", counted, run("subtract", lse, picked), 0.0)
    count = run(
        "sum", run("where", counted, run("fill", alpha=1, out=run("empty", lse, shape=(1,) * target.ndim)), 0.0)
    )
    if reduction == "none":
        return losses, lse, count
    total = run("sum", losses)
    return (run("divide", total, count) if reduction == "mean" else total), lse, count


def _cross_entropy_backward(
    run: Run, needs: Needs, grads: Gradients, saved: dict[str, Any], *, reduction: str, ignore_index: int
) -> Gradients:
    g = run(
        "cross_entropy_backward",
        grads[0],
        saved["x"],
        saved["target"],
        saved["lse"],
        saved["count"],
        reduction=reduction,
        ignore_index=ignore_index,
    )
    if grads[1] is not None:  # through the saved logsumexp: a second derivative
        x = saved["x"]
        lse = saved["lse"].reshape((x.shape[0], 1, *x.shape[2:]))
        g = run("add", g, run("multiply", run("exp", run("subtract", x, lse)), grads[1].reshape(lse.shape)))
    return (g, None)


def _cross_entropy_vjp(
    run: Run, g: Any, x: Any, target: Any, lse: Any, count: Any, *, reduction: str, ignore_index: int
) -> Any:
    """(exp(x - lse) - onehot(target)) * g, with g shared by the counted targets and zero for the ignored ones."""
    logits, target = _classes_last(x), _numbers(run, target)
    counted = run("not_equal", target, ignore_index)
    index = run("where", counted, target, 0)
    share = run("divide", g, count) if reduction == "mean" else g
    share = run("where", counted, share, 0.0)
    column = (*target.shape, 1)
    shared = share.reshape(column)
    p = run("exp", run("subtract", logits, lse.reshape(column)))
    dense = run("where", counted.reshape(column), run("multiply", p, shared), 0.0)
    onehot = run("scatter", share, index, shape=logits.shape, batch=len(target.shape))
    d = run("subtract", dense, onehot)
    d = d if d.dtype is x.dtype else run("astype", d, dtype=x.dtype)
    return d if len(x.shape) == 2 else d.permute((0, len(x.shape) - 1, *range(1, len(x.shape) - 1)))


# mean squared error
def _mse_check(views: Sequence[Any], a: Attributes) -> Attributes:
    if views[0].shape != views[1].shape:
        raise ShapeError(
            f"mse_loss: input {views[0].shape} and target {views[1].shape} must have one shape; broadcasting here hides mistakes"
        )
    _loss_check("mse_loss", a)
    return a


def _mse(run: Run, x: Any, target: Any, *, reduction: str) -> Any:
    squares = run("square", run("subtract", x, target))
    return squares if reduction == "none" else run(reduction, squares)


def _mse_backward(run: Run, needs: Needs, grads: Gradients, saved: dict[str, Any], *, reduction: str) -> Gradients:
    x, target = saved["x"], saved["target"]
    count = max(1, prod(x.shape))
    d = run(
        "multiply", run("scale", run("subtract", x, target), alpha=2 / count if reduction == "mean" else 2.0), grads[0]
    )
    return (d if needs[0] else None, run("negative", d) if needs[1] else None)


OPS = (
    composite("softmax", "f>f", "x", _softmax, _softmax_backward, saves="y", check=_axis_check("softmax"), axis=-1),
    composite("softmax_backward", "ff>f", "g y", _softmax_vjp, expands=True, check=_axis_check("softmax_backward"), axis=-1),
    composite("log_softmax", "f>f", "x", _log_softmax, _log_softmax_backward, saves="y", check=_axis_check("log_softmax"), axis=-1),
    composite("log_softmax_backward", "ff>f", "g y", _log_softmax_vjp, expands=True, check=_axis_check("log_softmax_backward"), axis=-1),
    composite("cross_entropy", "fi>fnn", "x target", _cross_entropy, _cross_entropy_backward, outputs="y lse count", saves="x target lse count",
              check=_cross_entropy_check, reduction="mean", ignore_index=-100),
    composite("cross_entropy_backward", "nfinn>f", "g x target lse count", _cross_entropy_vjp, expands=True, reduction="mean", ignore_index=-100),
    composite("mse_loss", "ff>f", "x target", _mse, _mse_backward, saves="x target", check=_mse_check, reduction="mean"),
)  # fmt: skip
