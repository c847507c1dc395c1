"""Elementwise and update rows on NumPy, a cache-sized chunk at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from ...backend import Scalar
from ...dtypes import DType, bfloat16, bfloat16_to_float32, float32_to_bfloat16, float64_to_bfloat16
from ...rows.evaluate import compiled, update_function
from ...rows.row import Row, Update
from .parallel import CHUNK, UPDATE_CHUNK, for_ranges, for_ranges_rows, quiet

Array = np.ndarray[Any, Any]
_local = threading.local()


@cache
def kernel(row: Row) -> Callable[..., None]:
    """The compiled function (out, *args, *scalars) of a row."""
    return compiled(row.value, (*row.args, *row.scalars))


def load(array: Array, dtype: DType) -> Array:
    """From storage to compute type."""
    if dtype is bfloat16:
        return bfloat16_to_float32(array)
    return array if dtype.compute is dtype.storage else array.astype(dtype.compute)


def store(out: Array, values: Any, dtype: DType) -> None:
    """From compute to storage type: floats round to nearest even, integers wrap."""
    if dtype is bfloat16:
        values = np.asarray(values)
        out[...] = (
            float64_to_bfloat16(values)
            if values.dtype == np.float64
            else float32_to_bfloat16(np.asarray(values, np.float32))
        )
    else:
        np.copyto(out, values, casting="unsafe")


def elementwise(
    row: Row, out: Array, args: Sequence[Any], dtypes: Sequence[DType | None], scalars: Sequence[Scalar]
) -> None:
    """out = row(args) where `dtypes` are those of out and of each array argument (None for scalars)."""
    function = kernel(row)
    if not out.size:
        return
    convert = any(d is not None and d.compute is not d.storage for d in dtypes)
    if convert:
        function = _converting(function, dtypes)
    if out.size <= CHUNK:
        quiet().run(function, out, *args, *scalars)
        return
    operands = _aligned(out, args)
    flat, rest = operands[0], operands[1:]
    count = len(flat)
    width = max(1, out.size // count)
    step = max(1, CHUNK // width)

    def work(start: int, stop: int) -> None:
        run = quiet().run
        for i in range(start, stop, step):
            j = min(i + step, stop)
            run(function, flat[i:j], *(a[i:j] if isinstance(a, np.ndarray) and a.ndim else a for a in rest), *scalars)

    if width == 1:
        for_ranges(count, work, step=step)
    else:
        for_ranges_rows(count, width, work)


def _aligned(out: Array, args: Sequence[Any]) -> list[Any]:
    """Operands whose first axis can be cut alike: flat if all are dense in one order, else broadcast along the longest axis."""
    order = sorted(range(out.ndim), key=lambda a: -abs(out.strides[a]))
    arrays = [a for a in args if isinstance(a, np.ndarray) and a.ndim]
    turned = out.transpose(order)
    if turned.flags.c_contiguous and all(
        a.shape == out.shape and a.transpose(order).flags.c_contiguous for a in arrays
    ):
        return [
            turned.reshape(-1),
            *(a.transpose(order).reshape(-1) if isinstance(a, np.ndarray) and a.ndim else a for a in args),
        ]
    axis = next((a for a in order if out.shape[a] >= 8), order[0])
    order.remove(axis)
    order.insert(0, axis)
    result = [out.transpose(order)]
    for a in args:
        if isinstance(a, np.ndarray) and a.ndim:
            a = (a if a.shape == out.shape else np.broadcast_to(a, out.shape)).transpose(
                order
            )  # broadcast_to is read-only
        result.append(a)
    return result


def _converting(function: Callable[..., None], dtypes: Sequence[DType | None]) -> Callable[..., None]:
    target, sources = dtypes[0], dtypes[1:]
    assert target is not None  # the first is out's

    def convert(out: Array, *operands: Any) -> None:
        loaded = [
            load(a, d) if d is not None and isinstance(a, np.ndarray) else a
            for a, d in zip(operands, sources, strict=False)
        ]
        temporary = np.empty(out.shape, target.compute)
        function(temporary, *loaded, *operands[len(sources) :])
        store(out, temporary, target)

    return convert


class _UpdatePlan:
    """What an update row asks of every tuple of arrays: the compiled step, and which arguments are arrays or slots."""

    def __init__(self, row: Update) -> None:
        self.function, self.scratch = update_function(row)
        self.arrays = tuple(i for i, name in enumerate(row.arrays) if name not in row.zero_d)
        self.slots = tuple(i for i, name in enumerate(row.arrays) if name in row.zero_d)
        self.changed_arrays = tuple(k for k, i in enumerate(self.arrays) if row.arrays[i] in row.written)
        self.changed_slots = tuple(i for i in self.slots if row.arrays[i] in row.written)


_update_plan = cache(_UpdatePlan)


def update(row: Update, arrays: Sequence[Array], dtypes: Sequence[DType], scalars: Sequence[Scalar]) -> None:
    """One tuple of arrays of an update row, in place, a chunk at a time."""
    plan = _update_plan(row)
    values: list[Any] = [
        load(a, d)[()] if i in plan.slots else None for i, (a, d) in enumerate(zip(arrays, dtypes, strict=True))
    ]
    flat = [arrays[i] for i in plan.arrays]
    kinds = [dtypes[i] for i in plan.arrays]
    plain = all(d.is_plain for d in kinds)
    cut = _aligned(flat[0], flat[1:]) if flat[0].ndim else [a.reshape(1) for a in flat]
    count = len(cut[0])
    width = max(1, cut[0].size // max(1, count))
    rows_at_once = max(1, UPDATE_CHUNK // width)
    changed: list[tuple[Any, ...]] = []

    def step(parts: Sequence[Array]) -> tuple[Any, ...]:
        given = values.copy()
        for i, part in zip(plan.arrays, parts, strict=True):
            given[i] = part
        kind = parts[0].dtype
        scratch = [s[: parts[0].size].reshape(parts[0].shape) for s in _scratch(kind, plan.scratch, parts[0].size)]
        return plan.function(*scratch, *given, *scalars)  # type: ignore[no-any-return]

    def work(start: int, stop: int) -> None:
        run = quiet().run
        for i in range(start, stop, rows_at_once):
            stored = [a[i : min(i + rows_at_once, stop)] for a in cut]
            parts = stored if plain else [np.array(load(a, d)) for a, d in zip(stored, kinds, strict=True)]
            result = run(step, parts)
            if not plain:
                for k in plan.changed_arrays:
                    store(stored[k], parts[k], kinds[k])
            if i == 0:
                changed.append(result)

    if count and cut[0].size:
        for_ranges_rows(count, width, work)
    else:  # nothing to step, but the count of steps goes on
        changed.append(quiet().run(step, [load(a, d) for a, d in zip(cut, kinds, strict=True)]))
    for i, value in zip(plan.changed_slots, changed[0], strict=True):
        store(arrays[i], value, dtypes[i])


def _scratch(kind: np.dtype[Any], count: int, size: int) -> list[Array]:
    """This thread's own scratch arrays, at least `size` long."""
    held: list[Array] = _local.__dict__.setdefault(kind.char, [])
    while len(held) < count:
        held.append(np.empty(size, kind))
    for i in range(count):
        if held[i].size < size:
            held[i] = np.empty(size, kind)
    return held[:count]
