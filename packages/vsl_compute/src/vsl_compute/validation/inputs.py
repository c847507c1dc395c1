"""Inputs of a trial: values on the host with the layout they are to have, put on as many devices as are compared."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..backend import ComputeBackend
from ..conformance.placement import arrangement, draw, host, seen, upload
from ..dtypes import DType
from ..view import Layout, Shape, View
from .wide import Array


@dataclass(frozen=True)
class Laid:
    """The elements of a base buffer and how a View of `shape` looks at them; `values` are what it sees."""

    dtype: DType
    layout: str
    shape: Shape
    strides: Shape
    offset: int
    base: Array
    values: Array

    def on(self, backend: ComputeBackend) -> View:
        """The View on a device, over a buffer of its own."""
        base = upload(backend, self.base, self.dtype)
        return View(base.buffer, Layout.of(self.dtype, self.shape, self.strides), self.offset)

    def __str__(self) -> str:
        return f"{list(self.shape)} {self.layout}"


def drawn(
    rng: np.random.Generator,
    dtype: DType,
    layout: str,
    shape: Shape,
    domain: tuple[float, float] = (-4.0, 4.0),
    turn: int = 0,
) -> Laid:
    """Random numbers over a whole base buffer."""
    strides, offset, length = arrangement(layout, shape, turn)
    base = draw(rng, dtype, length, domain)
    return Laid(dtype, layout, shape, strides, offset, base, seen(base, shape, strides, offset))


def laid(rng: np.random.Generator, dtype: DType, layout: str, values: Array) -> Laid:
    """These values, rounded to the dtype, among random numbers; where a layout repeats elements the last one stays."""
    shape = values.shape
    strides, offset, length = arrangement(layout, shape)
    rounded = host(values, dtype)
    pool = rounded.ravel() if rounded.size else host(np.zeros(1), dtype)
    base = rng.choice(pool, length)
    places = seen(np.arange(length), shape, strides, offset)
    base[places.ravel()] = rounded.ravel()
    return Laid(dtype, layout, shape, strides, offset, base, seen(base, shape, strides, offset))
