"""Where test data lies: arrays in every layout a View can have, and outputs between guard bytes.

Inputs are random numbers over a whole base buffer and a strided View of it, so that an element read from a wrong
place has a wrong value. Outputs lie inside a buffer filled with a sentinel; whatever is written outside the View,
in gaps between its rows too, is found.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ..backend import ComputeBackend
from ..dtypes import DType, bfloat16_to_float32, float32_to_bfloat16
from ..view import Layout, Shape, View, dense_strides

Array = np.ndarray[Any, Any]
GUARD = 24  # elements before and after an output; not a multiple of what kernels align to is tested by `offset`
LAYOUTS = ("dense", "transposed", "stepped", "pitched", "broadcast", "offset", "flipped", "overlapping")
OUTPUTS = ("dense", "transposed", "pitched", "stepped", "flipped")
SHAPES: tuple[Shape, ...] = ((), (0,), (0, 3), (1,), (3,), (1037,), (2, 1, 3), (3, 4, 5))


def arrangement(layout: str, shape: Shape, turn: int = 0) -> tuple[Shape, int, int]:
    """Strides, offset and the length of the base buffer; `turn` picks which axis repeats, so that two arguments differ."""
    strides, offset = dense_strides(shape), 0
    rank = len(shape)
    if layout == "transposed":
        strides = tuple(reversed(dense_strides(tuple(reversed(shape)))))
    elif layout == "stepped":
        strides = tuple(2 * s for s in dense_strides(tuple(2 * n for n in shape)))
    elif layout == "pitched" and rank:
        strides = dense_strides((*shape[:-1], shape[-1] + 3))
    elif layout == "broadcast" and rank:
        strides = tuple(0 if axis == turn % rank else s for axis, s in enumerate(strides))
    elif layout == "offset":
        offset = 3
    elif layout == "flipped":
        offset = sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) if 0 not in shape else 0
        strides = tuple(-s for s in strides)
    elif layout == "overlapping" and rank > 1:
        strides = (strides[1], *strides[1:])  # each row starts one row element, not one row, further on
    reach = sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if s > 0) if 0 not in shape else 0
    return strides, offset, offset + reach + 1


def seen(base: Array, shape: Shape, strides: Shape, offset: int) -> Array:
    """The elements that a View of these strides addresses, copied."""
    if 0 in shape:
        return np.zeros(shape, base.dtype)
    places = np.full(shape, offset)
    for axis, (n, stride) in enumerate(zip(shape, strides, strict=True)):
        places += (np.arange(n) * stride).reshape(n, *[1] * (len(shape) - axis - 1))
    return np.asarray(base[places])


def host(values: Array, dtype: DType) -> Array:
    """Values as `View.to_host` would give them: rounded to the dtype, bfloat16 in float32."""
    if dtype.name == "bfloat16":
        return bfloat16_to_float32(float32_to_bfloat16(np.asarray(values, np.float32))).reshape(np.shape(values))
    return np.asarray(values).astype(dtype.storage)


def stored(values: Array, dtype: DType) -> Array:
    """Host values as `upload` wants them: bfloat16 as its bits."""
    if dtype.name == "bfloat16":
        return float32_to_bfloat16(np.asarray(values, np.float32)).reshape(np.shape(values))
    return np.ascontiguousarray(np.asarray(values).astype(dtype.storage)).reshape(np.shape(values))


def draw(rng: np.random.Generator, dtype: DType, count: int, domain: tuple[float, float]) -> Array:
    """Random host values of the domain: floats uniform over it, integers over the whole of it, or to 120 by default."""
    if dtype.kind == "b":
        return rng.random(count) < 0.5
    if dtype.is_floating:
        return host(rng.uniform(*domain, count), dtype)
    low, high = domain if domain != (-4.0, 4.0) else (-120, 120)
    least = max(int(np.ceil(low)), int(dtype.min))
    return rng.integers(least, int(high), count, endpoint=True).astype(dtype.storage)


def upload(backend: ComputeBackend, values: Array, dtype: DType) -> View:
    """A dense View of these host values."""
    view = backend.allocate(Layout.of(dtype, np.shape(values)))
    backend.upload(view, stored(values, dtype))
    return view


@dataclass(frozen=True)
class Input:
    """A View on the device, and the same elements on the host."""

    view: View
    host: Array


def place(
    backend: ComputeBackend,
    rng: np.random.Generator,
    dtype: DType,
    layout: str,
    shape: Shape,
    domain: tuple[float, float] = (-4.0, 4.0),
    turn: int = 0,
) -> Input:
    """Random values of this dtype in this layout."""
    strides, offset, length = arrangement(layout, shape, turn)
    values = draw(rng, dtype, length, domain)
    base = upload(backend, values, dtype)
    return Input(View(base.buffer, Layout.of(dtype, shape, strides), offset), seen(values, shape, strides, offset))


class Output:
    """A View inside a buffer full of a sentinel; `read` fetches it and sees that nothing else was written."""

    def __init__(self, backend: ComputeBackend, dtype: DType, shape: Shape, layout: str = "dense") -> None:
        strides, offset, length = arrangement(layout, shape)
        pattern = np.frombuffer(b"\x01" if dtype.kind == "b" else b"\xa5" * dtype.itemsize, dtype.storage)
        raw = np.repeat(pattern, length + 2 * GUARD)
        self._base = backend.allocate(Layout.of(dtype, raw.shape))
        backend.upload(self._base, raw)
        self._before = bfloat16_to_float32(raw) if dtype.name == "bfloat16" else raw
        self.view = View(self._base.buffer, Layout.of(dtype, shape, strides), offset + GUARD)

    def read(self, what: str) -> Array:
        """The elements of the View; AssertionError names the first place outside it that was written."""
        raw = self._base.to_host()
        shape, strides, offset = self.view.shape, self.view.strides, self.view.offset
        inside = np.zeros(raw.shape, bool)
        inside[seen(np.arange(raw.size), shape, strides, offset)] = prod(shape) > 0
        touched = np.flatnonzero((raw != self._before) & ~inside)
        assert not touched.size, (
            f"{what}: wrote {raw[touched[0]]!r} outside its output, at element {touched[0]} of the buffer, "
            f"whose view {shape} has strides {strides} and offset {offset}"
        )
        return seen(raw, shape, strides, offset)
