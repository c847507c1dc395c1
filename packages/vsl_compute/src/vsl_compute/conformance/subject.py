"""What a conformance test is given: the backend under test, random numbers, and the judges with their tolerances."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from .. import dispatch
from ..backend import ComputeBackend
from ..dtypes import BY_NAME, DType, dtype_of
from ..errors import UnsupportedError
from ..rows.row import Reduction, Row
from ..validation.tolerance import FORMATS, assert_close
from ..view import View
from .placement import Array, Input, Output, place, upload

KINDS = {"b": "b", "i": "iu", "n": "iuf", "f": "f"}
COMPUTE_PRECISION = 24  # narrower floats are computed in float32


class Subject:
    """The backend under test, and how a test talks to it."""

    def __init__(
        self, backend: ComputeBackend, rng: np.random.Generator, dtypes: Sequence[DType], outcomes: Counter[str]
    ) -> None:
        self.backend, self.rng, self._dtypes, self._outcomes = backend, rng, tuple(dtypes), outcomes

    @contextmanager
    def overriding(self, on: bool) -> Iterator[Subject]:
        """Let the backend use its overrides, or hold it to the bodies of the op table."""
        with dispatch.overrides(on):
            yield self

    @property
    def on_cpu(self) -> bool:
        """True for the reference backend, whose tolerances are the tighter ones."""
        return self.backend.name == "cpu"

    # dtypes
    def dtypes(self, letter: str) -> tuple[DType, ...]:
        """The dtypes under test that a signature letter admits."""
        return tuple(d for d in self._dtypes if d.kind in KINDS[letter])

    def assignments(self, letters: str) -> list[dict[str, DType]]:
        """One dtype a letter, each admitted dtype at least once; letters advance together."""
        distinct = sorted(set(letters))
        choices = {letter: self.dtypes(letter) for letter in distinct}
        if any(not found for found in choices.values()):
            return []
        rounds = max((len(found) for found in choices.values()), default=0)
        return [{letter: found[i % len(found)] for letter, found in choices.items()} for i in range(rounds)]

    def floating(self) -> Iterator[DType]:
        """Floating dtypes that the backend computes in; for the others a sum must be refused, and is counted."""
        for dtype in self.dtypes("f"):
            if self.computes(dtype):
                yield dtype

    def computes(self, dtype: DType) -> bool:
        """Whether the backend declares that it computes in this dtype; if not, see that it refuses."""
        if dtype in self.backend.capabilities.functions:
            return True
        self.refused(f"add {dtype.name}", lambda: self._refusable(dtype))
        return False

    def has(self, primitive: str, dtype: DType) -> bool:
        """Whether the backend declares this primitive for this dtype; if not, see that it is refused, and count it."""
        if not self.computes(dtype):
            return False
        if self.backend.supports_primitive(primitive, dtype):
            return True
        self.refused(f"{primitive} {dtype.name}", lambda: self.backend.require_primitive(primitive, dtype))
        return False

    def _refusable(self, dtype: DType) -> None:
        x = self.put(np.ones(2), dtype)
        self.run("add", x, x)

    def refused(self, what: str, call: Callable[[], Any]) -> None:
        """See that `call` raises UnsupportedError, and count it."""
        try:
            call()
        except UnsupportedError:
            pass
        else:
            pytest.fail(f"{self.backend.spec}: {what} is declared unsupported, but it ran")
        self._outcomes["refused"] += 1

    # data
    def put(self, values: Any, dtype: Any = None) -> View:
        """A dense View of these host values; dtype by name, by DType, or the array's own."""
        array = np.asarray(values)
        kind = BY_NAME[dtype] if isinstance(dtype, str) else dtype or dtype_of(array.dtype)
        return upload(self.backend, array, kind)

    def place(
        self,
        dtype: DType,
        layout: str,
        shape: tuple[int, ...],
        domain: tuple[float, float] = (-4.0, 4.0),
        turn: int = 0,
    ) -> Input:
        """Random values in this layout."""
        return place(self.backend, self.rng, dtype, layout, shape, domain, turn)

    def output(self, dtype: DType, shape: tuple[int, ...], layout: str = "dense") -> Output:
        """An output between guards."""
        return Output(self.backend, dtype, shape, layout)

    def run(self, op: Any, /, *args: Any, out: Any = None, **attributes: Any) -> Any:
        """dispatch.run on views of this backend."""
        return dispatch.run(op, *args, out=out, **attributes)

    def value(self, op: Any, *args: Any, **attributes: Any) -> Any:
        """The result on the host, or a tuple of results."""
        result = self.run(op, *args, **attributes)
        return tuple(part.to_host() for part in result) if isinstance(result, tuple) else result.to_host()

    # judging
    def ulp(self, row: Row | Reduction, dtype: DType) -> float:
        """What the row states for this backend; of a dtype narrower than float32 only its last rounding is left."""
        stated = row.ulp if self.on_cpu else row.gpu_ulp
        return self.narrowed(stated, dtype)

    def narrowed(self, stated: float, dtype: DType) -> float:
        """A tolerance given for the compute type, for what is computed in float32 and then rounded once."""
        if not dtype.is_floating:
            return 0
        spare = COMPUTE_PRECISION - FORMATS[dtype.name].precision
        return stated if spare <= 0 else 0.5 + stated * 2.0**-spare

    def close(self, got: Array, expected: Any, dtype: DType, ulp: float, what: str, scale: Any = None) -> None:
        """assert_close, with the backend in the message."""
        assert_close(got, np.asarray(expected), dtype, ulp, scale, f"{self.backend.spec}: {what}")
