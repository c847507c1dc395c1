"""Scaled dot-product attention: a softmax of scores that mask and causality cut, and its gradient.

A row whose every score is cut has weights 0 and logsumexp -inf, not NaN: what attends to nothing gets nothing. The
backward pass makes the weights again, so that only y and the logsumexp are kept, as kernels that hold a tile of scores need
them. The bodies here hold all scores and need neither: exp(score - lse) has the rounding of the whole score, and dp - sum(g y)
that of the whole of dp, where p (dp - sum(p dp)) has that of what the weights leave of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, sqrt
from numbers import Real
from typing import Any

from ..errors import AttributeValueError, DTypeError, ShapeError
from .op import Attributes, Gradients, Needs, Run, composite
from .primitives import broadcast_shapes


def _check(op: str) -> Any:
    def check(views: Sequence[Any], a: Attributes) -> Attributes:
        q, k, v = views[:3]
        mask = views[3] if len(views) > 3 else None
        if min(len(t.shape) for t in (q, k, v)) < 2 or q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
            raise ShapeError(
                f"{op}: q {q.shape}, k {k.shape}, v {v.shape} must be (..., L, E), (..., S, E) and (..., S, V)"
            )
        batch = broadcast_shapes(op, q.shape[:-2], k.shape[:-2], v.shape[:-2])
        if mask is not None:
            if mask.dtype.kind not in "bf":
                raise DTypeError(
                    f"{op}: mask is {mask.dtype.name}; it must be bool, or floats that are added to the scores"
                )
            scores = (*batch, q.shape[-2], k.shape[-2])
            if broadcast_shapes(op, mask.shape, scores) != scores:
                raise ShapeError(f"{op}: mask {mask.shape} does not broadcast to the scores {scores}")
        return _scaled(op, q, a)

    return check


def _scaled(op: str, q: Any, a: Attributes) -> Attributes:
    """The options with the scale that is meant where none is given."""
    scale = 1 / sqrt(max(1, q.shape[-1])) if a["scale"] is None else a["scale"]
    if not isinstance(scale, Real):
        raise AttributeValueError(f"{op}: scale={scale!r} must be a number")
    found = a | {"scale": float(scale)}
    if "dropout" in a:
        if not (isinstance(a["dropout"], Real) and 0 <= float(a["dropout"]) <= 1):
            raise AttributeValueError(f"{op}: dropout={a['dropout']!r} must be a probability, from 0 to 1")
        found["dropout"] = float(a["dropout"])
    return found


def _turned(x: Any) -> Any:
    """The last two axes swapped."""
    n = len(x.shape)
    return x.permute((*range(n - 2), n - 1, n - 2))


def _scores(run: Run, q: Any, k: Any, mask: Any, causal: bool, scale: float) -> Any:
    """scale * q k^T in float32 or wider, -inf where cut: a score of 16 bits would lose the digits that exp makes the first."""
    if q.dtype.itemsize == 2:
        q, k = (run("astype", t, dtype="float32") for t in (q, k))
    scores = run("matmul", q, _turned(k), alpha=scale)
    if mask is not None:
        scores = (
            run("where", mask, scores, -inf) if mask.dtype.kind == "b" else run("add", scores, _as(run, mask, scores))
        )
    if causal:  # query i sees keys 0 to i, whatever their counts: PyTorch's alignment
        rows, columns = scores.shape[-2], scores.shape[-1]
        row, column = (_numbers(run, scores, n) for n in (rows, columns))
        scores = run("where", run("greater_equal", row.reshape((rows, 1)), column.reshape((1, columns))), scores, -inf)
    return scores


def _numbers(run: Run, like: Any, count: int) -> Any:
    """1 to count, made on the device."""
    ones = run("fill_like", run("empty", like, shape=(count,), dtype="int32"), alpha=1)
    return run("cumsum", ones)


def _as(run: Run, value: Any, like: Any) -> Any:
    return value if value.dtype is like.dtype else run("astype", value, dtype=like.dtype)


def _shares(run: Run, x: Any) -> tuple[Any, Any]:
    """softmax along the last axis, 0 where all is -inf, and the logarithm of the sum of exponentials."""
    if x.dtype.itemsize == 2:
        wide, lse = _shares(run, run("astype", x, dtype="float32"))
        return run("astype", wide, dtype=x.dtype), lse
    last = (len(x.shape) - 1,)
    if not x.size:
        return run("copy", x), run("logsumexp", x, axes=last, keepdims=True)
    peak = run("max", x, axes=last, keepdims=True)
    start = run("where", run("equal", peak, -inf), 0.0, peak)
    e = run("subtract", x, start)
    run("exp", e, out=e)
    total = run("sum", e, axes=last, keepdims=True)
    lse = run("add", start, run("log", total))
    return run("divide", e, run("maximum", total, 1.0), out=e), lse  # the peak's own is 1; less is nothing at all


def _shares_backward(run: Run, needs: Needs, grads: Gradients, saved: dict[str, Any]) -> Gradients:
    return (_as(run, _slope(run, saved["y"], *grads), saved["y"]),)


def _slope(run: Run, p: Any, g: Any, g_lse: Any) -> Any:
    """What the scores of weights p receive: p (g - sum(p g)), and p of what arrives for the logsumexp."""
    ds = None if g is None else run("softmax_backward", g, p, axis=len(p.shape) - 1)
    if g_lse is None:
        return ds
    more = run("multiply", p, g_lse)
    return more if ds is None else run("add", ds, more)


def _attention_weights(run: Run, q: Any, k: Any, v: Any, mask: Any, *, causal: bool, scale: float) -> Any:
    return _as(run, run("attention_shares", _scores(run, q, k, mask, causal, scale))[0], q)


def _dropped(run: Run, p: Any, dropout: float, key: Any, counter: Any) -> tuple[Any, Any]:
    return run("dropout", p, p=dropout, key=key, counter=counter) if dropout else (p, None)


def _attention(
    run: Run, q: Any, k: Any, v: Any, mask: Any, *, causal: bool, scale: float, dropout: float, key: Any, counter: Any
) -> tuple[Any, Any]:
    p, lse = run("attention_shares", _scores(run, q, k, mask, causal, scale))
    p, _ = _dropped(run, p, dropout, key, counter)
    return run("matmul", _as(run, p, v), v), lse


def _attention_backward(run: Run, needs: Needs, grads: Gradients, saved: dict[str, Any], **options: Any) -> Gradients:
    args = (grads[0], *(saved[n] for n in ("q", "k", "v", "y", "lse", "mask")), grads[1])
    dq, dk, dv = run("attention_backward", *args, **options) if any(needs[:3]) else (None, None, None)
    if not needs[3] or saved["mask"].dtype.kind != "f":
        return dq, dk, dv, None
    return dq, dk, dv, _as(run, run("attention_mask_backward", *args, **options), saved["mask"])


def _slopes(
    run: Run, g: Any, q: Any, k: Any, v: Any, y: Any, lse: Any, mask: Any, g_lse: Any, *, causal: bool, scale: float, dropout: float,
    key: Any, counter: Any,
) -> tuple[Any, Any]:  # fmt: skip
    """ds = p (dp - sum(p dp)), p the weights and dp = g v^T, and the weights that were kept."""
    p, _ = run("attention_shares", _scores(run, q, k, mask, causal, scale))
    kept, keep = _dropped(run, p, dropout, key, counter)
    dp = run("matmul", g, _turned(v))
    dp = _as(run, dp, p)
    if keep is not None:
        dp = run("dropout_apply", keep, dp, factor=0.0 if dropout == 1 else 1 / (1 - dropout))
    return _as(run, _slope(run, p, dp, g_lse), q), kept


def _attention_vjp(run: Run, g: Any, q: Any, k: Any, *more: Any, scale: float, **options: Any) -> tuple[Any, Any, Any]:
    """What q, k and v receive; batches that broadcast are summed by the caller."""
    ds, kept = _slopes(run, g, q, k, *more, scale=scale, **options)
    dv = run("matmul", _turned(_as(run, kept, g)), g)
    return run("matmul", ds, k, alpha=scale), run("matmul", _turned(ds), q, alpha=scale), dv


def _mask_vjp(run: Run, *args: Any, **options: Any) -> Any:
    """What a mask that is added receives, in the shape of the scores."""
    return _slopes(run, *args, **options)[0]


_OPTIONS: dict[str, Any] = {"causal": False, "scale": None}
_ARGUMENTS = "g q k v y lse mask? g_lse?"
_DROPOUT: dict[str, Any] = {"dropout": 0.0, "key": (0, 0), "counter": (0, 0, 0, 0)}

OPS = (
    composite("attention_shares", "f>fn", "x", _shares, _shares_backward, outputs="y lse", saves="y"),
    composite("attention_weights", "fffa>f", "q k v mask?", _attention_weights, expands=True, check=_check("attention_weights"), **_OPTIONS),
    composite("attention", "fffa>fn", "q k v mask?", _attention, _attention_backward, outputs="y lse", saves="q k v mask y lse",
              check=_check("attention"), **_OPTIONS, **_DROPOUT),
    composite("attention_backward", "fffffnan>fff", _ARGUMENTS, _attention_vjp, expands=True, outputs="dq dk dv",
              check=lambda views, a: _scaled("attention_backward", views[1], a), **_OPTIONS, **_DROPOUT),
    composite("attention_mask_backward", "fffffnan>f", _ARGUMENTS, _mask_vjp, expands=True, outputs="ds",
              check=lambda views, a: _scaled("attention_mask_backward", views[1], a), **_OPTIONS, **_DROPOUT),
)  # fmt: skip
