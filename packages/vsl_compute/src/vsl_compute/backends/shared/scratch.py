"""Operands for a search among kernels: random arrays made on the device, and the trial over one result."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from ...dtypes import DType, float32
from ...rows.elementwise import TABLE as ROWS
from ...view import Layout, View

if TYPE_CHECKING:
    from ...backend import ComputeBackend

T = TypeVar("T")


def drawn(backend: ComputeBackend, dtype: DType, shape: tuple[int, ...], seed: int) -> View:
    """A dense array of numbers in [-1, 1), or of integers in [-100, 100); nothing is transferred."""
    base = backend.allocate(Layout.of(float32, shape))
    if not base.size:
        return base
    backend.random(base, kind="uniform", key=(seed, 0), counter=(0, 0, 0, 0))
    low, high = (-1.0, 1.0) if dtype.is_floating else (-100.0, 100.0) if dtype.kind == "i" else (0.0, 100.0)
    backend.elementwise(ROWS["multiply"], base, (base, high - low), ())
    backend.elementwise(ROWS["add"], base, (base, low), ())
    if dtype is float32:
        return base
    out = backend.allocate(Layout.of(dtype, shape))
    backend.copy(out, base)
    return out


class ViewTrial(Generic[T]):
    """A trial whose result is one array; `run` enqueues a candidate, `read` brings the array to the host uncounted."""

    host_share: float | None = 0.03

    def __init__(
        self,
        backend: ComputeBackend,
        out: View,
        run: Callable[[T], None],
        read: Callable[[View], np.ndarray[Any, Any]],
        *,
        tolerance: float,
    ) -> None:
        self.out, self.launch, self.tolerance = out, run, tolerance
        self._backend, self._read = backend, read

    def clear(self) -> None:
        """NaN in every element; -1 where there is none."""
        value = float("nan") if self.out.dtype.is_floating else -1
        self._backend.elementwise(ROWS["fill"], self.out, (), (value,))

    def result(self) -> np.ndarray[Any, Any]:
        """The array, once it is done."""
        return self._read(self.out)
