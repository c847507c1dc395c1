"""Losses over classes, the mean squared error, and cosine similarity; huge logits, ignored rows and overflow stay right."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ..errors import AttributeValueError, ShapeError
from ..view import View
from .op import Attributes, Gradients, Needs, Run, composite, is_number, is_whole

REDUCTION_NAMES = ("none", "sum", "mean")


def _loss_check(op: str, a: Attributes) -> None:
    if a["reduction"] not in REDUCTION_NAMES:
        raise AttributeValueError(f"{op}: reduction={a['reduction']!r} must be one of {', '.join(REDUCTION_NAMES)}")
    if not is_whole(ignored := a.get("ignore_index", 0)):
        raise AttributeValueError(f"{op}: ignore_index={ignored!r} must be an int")
    smoothing = a.get("label_smoothing", 0)
    if not (is_number(smoothing) and 0 <= smoothing <= 1):
        raise AttributeValueError(f"{op}: label_smoothing={smoothing!r} must lie in [0, 1]")


def _class_check(op: str, soft: bool) -> Any:
    def check(views: Sequence[Any], a: Attributes) -> Attributes:
        x, target = views[0].shape, views[1].shape
        weight = views[2].shape if len(views) > 2 and views[2] is not None else None
        wanted = x if soft else (*x[:1], *x[2:])
        if len(x) < 2 or target != wanted:
            raise ShapeError(
                f"{op}: logits {x} must be (N, C, ...) and targets {target} the same{'' if soft else ' without C'}; expected {wanted}"
            )
        if weight is not None and weight != x[1:2]:
            raise ShapeError(f"{op}: weight {weight} must be {x[1:2]}, one a class")
        _loss_check(op, a)
        return a

    return check


def _classes_last(x: Any) -> Any:
    """(N, C, ...) as (..., C): a view."""
    return x if len(x.shape) == 2 else x.permute((0, *range(2, len(x.shape)), 1))


def _classes_second(x: Any) -> Any:
    """The way back from `_classes_last`."""
    return x if len(x.shape) == 2 else x.permute((0, len(x.shape) - 1, *range(1, len(x.shape) - 1)))


def _numbers(run: Run, target: View) -> View:
    """Class numbers in a dtype that holds any `ignore_index`: labels are often stored as bytes."""
    return target if target.dtype.name in ("int32", "int64") else run("astype", target, dtype="int64")


def _weights(run: Run, weight: Any, index: Any, counted: Any, like: Any) -> Any:
    """What each target counts: its class's weight or 1, and 0 where it is ignored."""
    if weight is None:
        return run("where", counted, run("fill_like", like, alpha=1.0), 0.0)
    return run("where", counted, run("gather", weight, index), 0.0)


def _reduced(run: Run, losses: Any, count: Any, reduction: str) -> Any:
    if reduction == "none":
        return losses
    total = run("sum", losses)
    return run("divide", total, count) if reduction == "mean" else total


# cross_entropy: logits (N, C, ...), integer targets (N, ...)
def _cross_entropy(
    run: Run, x: View, target: View, weight: View | None, *, reduction: str, ignore_index: int, label_smoothing: float
) -> tuple[View, View, View]:
    logits, target = _classes_last(x), _numbers(run, target)
    options: Attributes = {"ignore_index": ignore_index, "label_smoothing": label_smoothing}
    losses, lse, counts = run("cross_entropy_rows", logits, target.reshape((*target.shape, 1)), weight, **options)
    flat = [(v if v.is_contiguous else run("contiguous", v)).reshape((target.size,)) for v in (losses, counts)]
    mean, total, count = run("counted_mean", *flat)
    y = {"none": losses, "sum": total, "mean": mean}[reduction].reshape(target.shape if reduction == "none" else ())
    return y if y.dtype is x.dtype else run("astype", y, dtype=x.dtype), lse.reshape(target.shape), count.reshape(())


def _cross_entropy_rows(
    run: Run, x: Any, target: Any, weight: Any, *, ignore_index: int, label_smoothing: float
) -> tuple[Any, Any, Any]:
    """Of each row over the last axis: the loss times what its target counts, logsumexp, and what its target counts."""
    if x.dtype.itemsize == 2:  # sums of losses and the saved logsumexp need more than eleven bits
        x, weight = (v if v is None else run("astype", v, dtype="float32") for v in (x, weight))
    labels, axis = target.reshape(target.shape[:-1]), len(x.shape) - 1
    counted = run("not_equal", labels, ignore_index)
    index = run("where", counted, labels, 0)
    # of x less its largest: logits far from 0 have no room for the digits of log(total)
    peak = run("max", x, axes=(axis,), keepdims=True)
    away = run("subtract", x, peak)
    less = run("logsumexp", away, axes=(axis,))
    lse = run("add", less, peak.reshape(labels.shape))
    losses = run("subtract", less, run("gather", away, index, batch=axis))
    counts = _weights(run, weight, index, counted, less)
    if weight is not None:
        losses = run("multiply", losses, counts)
    if label_smoothing:
        if weight is None:
            spread = run("subtract", less, run("mean", away, axes=(axis,)))
        else:
            column = less.reshape(target.shape)
            spread = run("mean", run("multiply", run("subtract", column, away), weight), axes=(axis,))
        losses = run(
            "add", run("scale", losses, alpha=1 - label_smoothing), run("scale", spread, alpha=label_smoothing)
        )
    losses = run("where", counted, losses, 0.0)
    return losses.reshape(target.shape), lse.reshape(target.shape), counts.reshape(target.shape)


def _rows_check(op: str, args: str) -> Any:
    def check(views: Sequence[Any], a: Attributes) -> Attributes:
        given = dict(zip(args.split(), views, strict=True))
        x, weight = given.pop("x").shape, given.pop("weight")
        for name, v in given.items():
            if v is not None and (not x or v.shape != (*x[:-1], 1)):
                raise ShapeError(f"{op}: {name} {v.shape} must be {(*x[:-1], 1)}, one for each row of x {x}")
        if weight is not None and weight.shape != x[-1:]:
            raise ShapeError(f"{op}: weight {weight.shape} must be {x[-1:]}, one a class")
        return a

    return check


def _counted_mean(run: Run, x: Any, count: Any) -> tuple[Any, Any, Any]:
    """The sum of x (1 axis), that of count, and the first over the second, each of shape (1,)."""
    total, counts = run("sum", x, axes=(0,), keepdims=True), run("sum", count, axes=(0,), keepdims=True)
    return run("divide", total, counts), total, counts


def _counted_mean_check(views: Sequence[Any], a: Attributes) -> Attributes:
    if len(views[0].shape) != 1 or views[1].shape != views[0].shape:
        raise ShapeError(
            f"counted_mean: x {views[0].shape} and count {views[1].shape} must have one axis, and be alike"
        )
    return a


def _cross_entropy_backward(
    run: Run, needs: Needs, grads: Gradients, saved: dict[str, Any], **options: Any
) -> Gradients:
    x, lse = saved["x"], saved["lse"]
    g = run("cross_entropy_backward", grads[0], x, saved["target"], saved["count"], saved["weight"], **options)
    if grads[1] is not None:  # through the saved logsumexp: a second derivative
        lse = lse.reshape((x.shape[0], 1, *x.shape[2:]))
        g = run("add", g, run("multiply", run("exp", run("subtract", x, lse)), grads[1].reshape(lse.shape)))
    return (g, None, None)


def _cross_entropy_vjp(
    run: Run, g: Any, x: Any, target: Any, count: Any, weight: Any, *, reduction: str, ignore_index: int, label_smoothing: float
) -> Any:  # fmt: skip
    """(softmax(x) - onehot(target)) * g, with g shared by the counted targets and zero for the ignored ones."""
    logits, target = _classes_last(x), _numbers(run, target)
    column, one = (*target.shape, 1), (1,) * (len(target.shape) + 1)
    g = g.reshape(column) if reduction == "none" else g.reshape(one).expand(column)
    counts = count.reshape(one).expand(column) if reduction == "mean" else None
    options: Attributes = {"ignore_index": ignore_index, "label_smoothing": label_smoothing}
    dx = run("cross_entropy_input", g, logits, target.reshape(column), counts, weight, **options)
    return _classes_second(dx)


def _cross_entropy_input(
    run: Run, g: Any, x: Any, target: Any, count: Any, weight: Any, *, ignore_index: int, label_smoothing: float
) -> Any:
    """(softmax(x) - onehot(target)) * g / count over the last axis, by smoothed and weighted targets; 0 where one is ignored."""
    labels = target.reshape(target.shape[:-1])
    counted = run("not_equal", target, ignore_index)
    index = run("where", run("not_equal", labels, ignore_index), labels, 0)
    share = run("where", counted, g if count is None else run("divide", g, count), 0.0)
    hot = share if weight is None else run("multiply", share, run("gather", weight, index).reshape(target.shape))
    total, spread = hot, None
    if label_smoothing:  # `total` is of the coefficients of all the log-probabilities
        spread = run("scale", share, alpha=label_smoothing / x.shape[-1])
        hot = run("scale", hot, alpha=1 - label_smoothing)
        total = share if weight is None else run("add", hot, run("multiply", spread, run("sum", weight)))
    p = run("softmax", x if x.dtype.itemsize > 2 else run("astype", x, dtype="float32"))
    d = run("where", counted, run("multiply", p, total), 0.0)
    d = run("subtract", d, run("scatter", hot.reshape(labels.shape), index, shape=x.shape, batch=len(labels.shape)))
    if spread is not None:
        d = run("subtract", d, spread if weight is None else run("multiply", spread, weight))
    return d if d.dtype is x.dtype else run("astype", d, dtype=x.dtype)


# soft_cross_entropy: targets are probabilities of the logits' shape
def _soft_cross_entropy(run: Run, x: Any, target: Any, weight: Any, *, reduction: str, label_smoothing: float) -> Any:
    if x.dtype.itemsize == 2:
        wide = [v if v is None else run("astype", v, dtype="float32") for v in (x, target, weight)]
        loss = _soft_cross_entropy(run, *wide, reduction=reduction, label_smoothing=label_smoothing)
        return run("astype", loss, dtype=x.dtype)
    logits, wanted = _classes_last(x), _classes_last(target)
    axis = len(x.shape) - 1
    if label_smoothing:
        wanted = run("add", run("scale", wanted, alpha=1 - label_smoothing), label_smoothing / x.shape[1])
    if weight is not None:
        wanted = run("multiply", wanted, weight)
    cost = run("negative", run("log_softmax", logits, axis=axis))
    terms = run("where", run("equal", wanted, 0), 0.0, run("multiply", wanted, cost))  # 0 times an infinite cost is 0
    losses = run("sum", terms, axes=(axis,))
    if reduction == "none":
        return losses
    total = run("sum", losses)
    count = prod(losses.shape)
    if reduction == "sum":
        return total
    return run("scale", total, alpha=1 / count) if count else run("divide", total, 0.0)


# nll_loss: log-probabilities (N, C, ...), integer targets (N, ...)
def _nll(run: Run, x: Any, target: Any, weight: Any, *, reduction: str, ignore_index: int) -> Any:
    if x.dtype.itemsize == 2:
        wide = [v if v is None else run("astype", v, dtype="float32") for v in (x, weight)]
        loss = _nll(run, wide[0], target, wide[1], reduction=reduction, ignore_index=ignore_index)
        return run("astype", loss, dtype=x.dtype)
    table, target = _classes_last(x), _numbers(run, target)
    counted = run("not_equal", target, ignore_index)
    index = run("where", counted, target, 0)
    picked = run("gather", table, index, batch=len(target.shape))
    counts = _weights(run, weight, index, counted, picked)
    losses = run("where", counted, run("negative", run("multiply", picked, counts)), 0.0)
    return _reduced(run, losses, run("sum", counts), reduction)


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


# cosine similarity along an axis
def _cosine_check(views: Sequence[Any], a: Attributes) -> Attributes:
    shapes, axis = [v.shape for v in views], a["axis"]
    ndim = len(shapes[0])
    if len(shapes[1]) != ndim or not is_whole(axis) or not -ndim <= axis < ndim:
        raise ShapeError(
            f"cosine_similarity: a {shapes[0]} and b {shapes[1]} must have as many axes, {axis=} among them"
        )
    if not (is_number(a["eps"]) and a["eps"] >= 0):
        raise AttributeValueError(f"cosine_similarity: eps={a['eps']!r} must be at least 0")
    return a | {"axis": axis % ndim}


def _cosine(run: Run, a: Any, b: Any, *, axis: int, eps: float) -> Any:
    """Each vector is divided by its length first, so that no square overflows; one of length 0 has similarity 0."""
    unit = [run("divide", v, run("maximum", run("norm", v, axes=(axis,), keepdims=True), eps)) for v in (a, b)]
    return run("sum", run("multiply", *unit), axes=(axis,))


OPS = (
    composite("cross_entropy", "fif>fnn", "x target weight?", _cross_entropy, _cross_entropy_backward, outputs="y lse count",
              saves="x target weight lse count", check=_class_check("cross_entropy", False), reduction="mean", ignore_index=-100,
              label_smoothing=0.0),
    composite("cross_entropy_rows", "fin>nnn", "x target weight?", _cross_entropy_rows, outputs="loss lse count", expands=True,
              check=_rows_check("cross_entropy_rows", "x target weight"), ignore_index=-100, label_smoothing=0.0),
    composite("counted_mean", "ff>fff", "x count", _counted_mean, outputs="y total counts", expands=True, check=_counted_mean_check),
    composite("cross_entropy_input", "nfinn>f", "g x target count? weight?", _cross_entropy_input, expands=True,
              check=_rows_check("cross_entropy_input", "g x target count weight"), ignore_index=-100, label_smoothing=0.0),
    composite("cross_entropy_backward", "nfinf>f", "g x target count weight?", _cross_entropy_vjp, expands=True, reduction="mean",
              ignore_index=-100, label_smoothing=0.0),
    composite("soft_cross_entropy", "fff>f", "x target weight?", _soft_cross_entropy, expands=True,
              check=_class_check("soft_cross_entropy", True), reduction="mean", label_smoothing=0.0),
    composite("nll_loss", "fif>f", "x target weight?", _nll, expands=True, check=_class_check("nll_loss", False), reduction="mean",
              ignore_index=-100),
    composite("mse_loss", "ff>f", "x target", _mse, _mse_backward, saves="x target", check=_mse_check, reduction="mean"),
    composite("cosine_similarity", "ff>f", "a b", _cosine, expands=True, check=_cosine_check, axis=1, eps=1e-8),
)  # fmt: skip
