"""Reductions and scans on NumPy: ufuncs where NumPy has the reduction, else the state row itself, combined in a tree.

Sums of float32 are kept in float64, as PyTorch's are where gradients cancel (behind a norm, all of them do). NumPy sums
float64 pairwise only along the innermost axis in memory and adds row to row elsewhere: long axes are cut into blocks, whose
sums are summed again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import prod
from typing import Any

import numpy as np

from ...dtypes import DType
from ...rows.evaluate import constant, values
from ...rows.row import Reduction
from .parallel import quiet
from .rows import load, store

Array = np.ndarray[Any, Any]
BLOCK = 128  # rows added one to the next before their sum counts as one term
FEW = 64  # so few elements are combined one after the other, which needs no copies


@cache
def _functions(row: Reduction) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
    """map(x, k), combine(state1.., state2..), finish(state.., n)."""
    both = tuple(f"{s}{side}" for side in "12" for s in row.state)
    return values(row.map, ("x", "k")), values(row.combine, both), values(row.finish, (*row.state, "n"))


def _tuple(value: Any, count: int) -> tuple[Any, ...]:
    return (value,) if count == 1 else tuple(value)


def accumulator(row: Reduction, dtype: DType, result: DType) -> np.dtype[Any]:
    """The NumPy dtype of the state: the wider of the compute type and the result's."""
    if row.name in ("sum", "prod") and not dtype.is_floating:
        return result.storage
    return dtype.compute


def reduce(
    row: Reduction, outs: Sequence[Array], x: Array, axes: tuple[int, ...], dtype: DType, results: Sequence[DType]
) -> None:
    """outs = row over `axes` of x."""
    native = _NATIVE.get(row.name)
    if native is not None and (x.size or row.name in _EMPTY):
        found = quiet().run(native, row, x, axes, dtype, accumulator(row, dtype, results[0]))
        for out, value, result in zip(outs, found, results, strict=True):
            quiet().run(store, out, value, result)
        return
    found = quiet().run(_by_state, row, x, axes, dtype, accumulator(row, dtype, results[0]))
    for out, value, result in zip(outs, found, results, strict=True):
        quiet().run(store, out, value, result)


def _by_state(row: Reduction, x: Array, axes: tuple[int, ...], dtype: DType, kind: np.dtype[Any]) -> tuple[Any, ...]:
    """The state row as it is written: one after the other if few, else by halves."""
    front = [a for a in range(x.ndim) if a not in axes]
    turned = x.transpose([*axes, *front])
    sizes, kept = turned.shape[: len(axes)], turned.shape[len(axes) :]
    count = prod(sizes)
    map_, combine, finish = _functions(row)
    width = len(row.state)
    lowest, highest = (-np.inf, np.inf) if dtype.is_floating else (dtype.min, dtype.max)

    def typed(values_: Sequence[Any]) -> list[Any]:
        return [np.asarray(v, np.int32 if s in row.index else kind) for s, v in zip(row.state, values_, strict=True)]

    def mapped(part: Array, k: Any) -> list[Any]:
        state = typed(_tuple(map_(load(part, dtype).astype(kind, copy=False), k), width))
        return [np.broadcast_to(s, part.shape) for s in state]

    state: list[Any]
    if not count:
        state = [np.full(kept, constant(text, lowest, highest), kind) for text in row.identity]
    elif count <= FEW:
        state = []
        for k, place in enumerate(np.ndindex(*sizes)):
            item = mapped(turned[place], np.int32(k))
            state = typed(_tuple(combine(*state, *item), width)) if state else item
    else:
        items = np.ascontiguousarray(turned).reshape(count, *kept)
        numbers = np.arange(count, dtype=np.int32).reshape(count, *(1,) * len(kept))
        state = mapped(items, numbers)
        while (n := len(state[0])) > 1:
            half = n // 2
            joined = typed(_tuple(combine(*(s[:half] for s in state), *(s[half : 2 * half] for s in state)), width))
            state = (
                [np.concatenate([j, s[2 * half :]]) for j, s in zip(joined, state, strict=True)] if n % 2 else joined
            )
        state = [s[0] for s in state]
    return _tuple(finish(*state, kind.type(count)), len(row.finish))


def _sum(row: Reduction, x: Array, axes: tuple[int, ...], dtype: DType, kind: np.dtype[Any]) -> tuple[Any, ...]:
    return (_total(x if dtype.compute is dtype.storage else load(x, dtype), axes, kind),)


def _total(x: Array, axes: tuple[int, ...], kind: np.dtype[Any]) -> Any:
    """Sum over axes whose error grows with the logarithm of the count."""
    if kind.itemsize == 4 and kind.kind == "f":
        return np.add.reduce(x, axes, dtype=np.float64).astype(kind)
    if kind.kind != "f" or not axes or max([x.shape[a] for a in axes]) <= BLOCK:  # nothing to lose
        return np.add.reduce(x, axes, dtype=kind)
    inner = min(axes, key=lambda a: abs(x.strides[a]) if x.shape[a] > 1 else 1 << 62)
    smallest = min((abs(s) for s, n in zip(x.strides, x.shape, strict=True) if n > 1), default=0)
    for axis in sorted(axes, reverse=True):
        if axis == inner and abs(x.strides[axis]) == smallest:
            continue
        n = x.shape[axis]
        if n > BLOCK:
            blocks = n // BLOCK
            head = x[(slice(None),) * axis + (slice(0, blocks * BLOCK),)]
            shape = (*x.shape[:axis], blocks, BLOCK, *x.shape[axis + 1 :])
            strides = (*x.strides[:axis], x.strides[axis] * BLOCK, *x.strides[axis:])
            part = np.add.reduce(
                np.lib.stride_tricks.as_strided(head, shape, strides, writeable=False), axis + 1, dtype=kind
            )
            tail = x[(slice(None),) * axis + (slice(blocks * BLOCK, None),)]
            if tail.shape[axis]:
                part = np.concatenate([part, np.add.reduce(tail, axis, dtype=kind, keepdims=True)], axis)
            return _total(part, axes, kind)
    if len(axes) > 1 and inner in axes and abs(x.strides[inner]) == smallest:
        return _total(np.add.reduce(x, inner, dtype=kind), tuple(a - (a > inner) for a in axes if a != inner), kind)
    return np.add.reduce(x, axes, dtype=kind)


def _mean(row: Reduction, x: Array, axes: tuple[int, ...], dtype: DType, kind: np.dtype[Any]) -> tuple[Any, ...]:
    count = prod(x.shape[a] for a in axes)
    return (_average(x if dtype.compute is dtype.storage else load(x, dtype), axes, kind, count),)


def _average(x: Array, axes: tuple[int, ...], kind: np.dtype[Any], count: int) -> Any:
    """The sum over the count, where float32's sum may be more than float32 holds."""
    if kind.itemsize == 4 and kind.kind == "f":
        return (np.add.reduce(x, axes, dtype=np.float64) / np.float64(count)).astype(kind)
    return _total(x, axes, kind) / kind.type(count)


def _moments(row: Reduction, x: Array, axes: tuple[int, ...], dtype: DType, kind: np.dtype[Any]) -> tuple[Any, ...]:
    """Two passes, the mean corrected by the mean of what it leaves, so that constant input has variance exactly 0."""
    x = load(x, dtype)
    count = prod(x.shape[a] for a in axes)
    kept = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
    mean = _average(x, axes, kind, count).reshape(kept)
    centred = np.asarray(x - mean)  # of an array without axes, NumPy makes a number
    mean = mean + _average(centred, axes, kind, count).reshape(kept)
    np.subtract(x, mean, out=centred)
    np.multiply(centred, centred, out=centred)
    shape = tuple(n for i, n in enumerate(x.shape) if i not in axes)
    return mean.reshape(shape), _average(centred, axes, kind, count)


def _logsumexp(row: Reduction, x: Array, axes: tuple[int, ...], dtype: DType, kind: np.dtype[Any]) -> tuple[Any, ...]:
    """The maximum is taken out where it is finite; where it is not, exp gives 0, inf or NaN as it should."""
    x = load(x, dtype)
    top = np.asarray(np.maximum.reduce(x, axes, keepdims=True))
    top[~np.isfinite(top)] = 0
    e = np.asarray(np.subtract(x, top))
    np.exp(e, out=e)
    return (np.log(_total(e, axes, kind)) + top.reshape([n for i, n in enumerate(x.shape) if i not in axes]),)


def _norm(row: Reduction, x: Array, axes: tuple[int, ...], dtype: DType, kind: np.dtype[Any]) -> tuple[Any, ...]:
    """Squares of float32 are summed in float64, which holds them all; float64 is divided by its largest magnitude first."""
    x = load(x, dtype)
    if kind.itemsize < 8:
        wide = np.square(x, dtype=np.float64)
        return (np.sqrt(_total(wide, axes, wide.dtype)),)
    top = np.asarray(np.maximum.reduce(np.abs(x), axes, keepdims=True, initial=0))
    top[(top == 0) | np.isinf(top)] = 1
    total = _total(np.square(x / top), axes, kind)
    return (np.sqrt(total) * top.reshape(total.shape),)


def _max_index(row: Reduction, x: Array, axes: tuple[int, ...], dtype: DType, kind: np.dtype[Any]) -> tuple[Any, ...]:
    """Few places (a pooling window): one comparison, one maximum and one byte-wide index a place, without branches.

    Places come in rising order, so the index of the first maximum is the largest place that beat all before it.
    """
    front = [a for a in range(x.ndim) if a not in axes]
    turned = x.transpose([*axes, *front])
    sizes = turned.shape[: len(axes)]
    if not 0 < prod(sizes) <= FEW:
        return _by_state(row, x, axes, dtype, kind)
    best: Any = None
    index: Any = None
    for k, place in enumerate(np.ndindex(*sizes)):
        value = load(turned[(*place, ...)], dtype)
        if best is None:
            order = sorted(range(value.ndim), key=lambda a: -abs(value.strides[a]))
            back = [order.index(a) for a in range(value.ndim)]
            best = value.transpose(order).copy(order="C").transpose(back)  # a copy always: it is written to
            index = np.zeros([value.shape[a] for a in order], np.int8).transpose(back)
            continue
        beats = np.greater(value, best)
        if dtype.is_floating:
            beats |= (value != value) & (best == best)
        np.maximum(best, value, out=best)
        np.maximum(index, np.multiply(beats.view(np.int8), np.int8(k)), out=index)
    return best, index


def _ufunc(ufunc: np.ufunc) -> Callable[..., tuple[Any, ...]]:
    def native(row: Reduction, x: Array, axes: tuple[int, ...], dtype: DType, kind: np.dtype[Any]) -> tuple[Any, ...]:
        return (ufunc.reduce(load(x, dtype), axes),)

    return native


def _prod(row: Reduction, x: Array, axes: tuple[int, ...], dtype: DType, kind: np.dtype[Any]) -> tuple[Any, ...]:
    return (np.multiply.reduce(load(x, dtype), axes, dtype=kind),)


def _arg(function: Callable[..., Any]) -> Callable[..., tuple[Any, ...]]:
    def native(row: Reduction, x: Array, axes: tuple[int, ...], dtype: DType, kind: np.dtype[Any]) -> tuple[Any, ...]:
        front = [a for a in range(x.ndim) if a not in axes]
        turned = load(x, dtype).transpose([*front, *axes])
        return (function(turned.reshape(*turned.shape[: len(front)], -1), axis=-1),)

    return native


def _truth(function: Callable[..., Any]) -> Callable[..., tuple[Any, ...]]:
    def native(row: Reduction, x: Array, axes: tuple[int, ...], dtype: DType, kind: np.dtype[Any]) -> tuple[Any, ...]:
        return (function(x, axis=axes),)

    return native


_NATIVE: dict[str, Callable[..., tuple[Any, ...]]] = {
    "sum": _sum,
    "mean": _mean,
    "moments": _moments,
    "max_index": _max_index,
    "logsumexp": _logsumexp,
    "norm": _norm,
    "prod": _prod,
    "max": _ufunc(np.maximum),
    "min": _ufunc(np.minimum),
    "argmax": _arg(np.argmax),
    "argmin": _arg(np.argmin),
    "all": _truth(np.all),
    "any": _truth(np.any),
}
_EMPTY = frozenset({"sum", "prod", "mean", "all", "any", "max", "min"})


def scan(row: Reduction, out: Array, x: Array, dtype: DType, result: DType) -> None:
    """Inclusive prefix reduction along the last axis; sums in float32 are kept in float64, as a serial sum drifts."""
    kind = np.dtype(np.float64) if dtype.is_floating else result.storage
    ufunc = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}[row.name]
    with np.errstate(all="ignore"):
        store(out, ufunc.accumulate(load(x, dtype), axis=-1, dtype=kind), result)
