"""Elementwise and update rows on NumPy, a cache-sized chunk at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from ...backend import Scalar
from ...dtypes import DType, bfloat16, bfloat16_to_float32, float32_to_bfloat16, float64_to_bfloat16
from ...rows.evaluate import compiled, update_function
from ...rows.row import Row, Update
from .parallel import CHUNK, for_ranges, for_ranges_rows, quiet

Array = np.ndarray[Any, Any]


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


def update(row: Update, arrays: Sequence[Array], dtypes: Sequence[DType], scalars: Sequence[Scalar]) -> None:
    """One tuple of arrays of an update row, in place."""
    function, written = update_function(row), row.written
    flat_names = [n for n in row.arrays if n not in row.zero_d]
    at = {name: i for i, name in enumerate(row.arrays)}
    slots = {name: arrays[at[name]] for name in row.zero_d}
    first = {name: load(slot, dtypes[at[name]])[()] for name, slot in slots.items()}
    cut = (
        _aligned(arrays[at[flat_names[0]]], [arrays[at[n]] for n in flat_names[1:]])
        if arrays[at[flat_names[0]]].ndim
        else [arrays[at[n]].reshape(1) for n in flat_names]
    )
    count = len(cut[0])
    width = max(1, cut[0].size // max(1, count))
    step = max(1, CHUNK // width)
    plain = all(dtypes[at[n]].compute is dtypes[at[n]].storage for n in flat_names)

    def call(values: dict[str, Any]) -> tuple[Any, ...]:
        return function(*(first[n] if n in first else values[n] for n in row.arrays), *scalars)  # type: ignore[no-any-return]

    last: list[tuple[Any, ...]] = []

    def work(start: int, stop: int) -> None:
        run = quiet().run
        for i in range(start, stop, step):
            part = [a[i : min(i + step, stop)] for a in cut]
            values = dict(zip(flat_names, part, strict=True))
            if not plain:
                values = {n: load(a, dtypes[at[n]]).copy() for n, a in values.items()}
            result = run(call, values)
            if not plain:
                for name, target in zip(flat_names, part, strict=True):
                    if name in written:
                        store(target, values[name], dtypes[at[name]])
            if i == 0:
                last.append(result)

    if count and cut[0].size:
        for_ranges_rows(count, width, work)
    else:
        last.append(quiet().run(call, dict(zip(flat_names, cut, strict=True))))
    for name, value in zip([n for n in written if n in row.zero_d], last[0], strict=True):
        store(slots[name], value, dtypes[at[name]])
