"""One call of an op on given inputs, what must come of it, and the judgement."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..backend import ComputeBackend
from ..dtypes import DType
from ..view import View
from .inputs import Laid
from .tolerance import FORMATS, rounded, ulp_error
from .wide import LONG, Array, wrapped

COMPUTE_PRECISION = 24  # narrower floats are computed in float32
SPARE = 2.0**11 if np.finfo(LONG).nmant <= 52 else 0.0  # ULP that differences in float64 leave unknown


@dataclass(frozen=True)
class Result:
    """A result on the host, bfloat16 as float32."""

    array: Array
    dtype: DType

    @staticmethod
    def of(view: View) -> Result:
        """Fetch it."""
        return Result(view.to_host(), view.dtype)


@dataclass(frozen=True)
class Wanted:
    """The true value of one part of a trial, and the error allowed: in ULP of the compute dtype, on the CPU and elsewhere.

    `steps` are roundings to a 16-bit dtype on the way. `scale` is the magnitude at which an ULP is taken. `known` is
    False where the truth has none (a kink). `dtype` None takes the dtype that comes.
    """

    value: Array
    ulp: float = 0
    ulp_elsewhere: float | None = None
    steps: float = 0
    scale: Any = None
    dtype: DType | None = None
    known: Array | None = None
    differences: bool = False

    def tolerance(self, dtype: DType, backend: ComputeBackend) -> float:
        """ULP of `dtype` allowed on this backend."""
        if not dtype.is_floating:
            return 0
        ulp = self.ulp if backend.name == "cpu" or self.ulp_elsewhere is None else self.ulp_elsewhere
        spare = COMPUTE_PRECISION - FORMATS[dtype.name].precision
        if spare > 0:
            return 0.5 + ulp * 2.0**-spare + 0.5 * self.steps if ulp or self.steps else 0
        return ulp + (SPARE if self.differences and dtype.itemsize == 8 else 0)


@dataclass(frozen=True)
class Trial:
    """`run(backend)` gives the results part by part ("value", "gradient of x"), `wanted()` what they must be.

    `elementwise` says that an element of the result belongs to one element of each input.
    """

    op: str
    dtype: DType
    what: str
    inputs: Sequence[Laid | None]
    run: Callable[[ComputeBackend], Mapping[str, Result]]
    wanted: Callable[[], Mapping[str, Wanted]]
    elementwise: bool = False


@dataclass(frozen=True)
class Judgement:
    """The worst element of one part: how far it is, what is allowed, and where it stands."""

    part: str
    ulp: float
    tolerance: float
    elements: int = 0
    wrong: int = 0
    index: tuple[int, ...] = ()
    got: str = ""
    expected: str = ""
    inputs: str = ""
    reason: str = ""

    @property
    def share(self) -> float:
        """The error as a share of what is allowed; infinite where nothing is, and for what could not be judged."""
        if self.ulp == 0:
            return 0
        return self.ulp / self.tolerance if self.tolerance else np.inf


def judge(
    trial: Trial,
    part: str,
    got: Result,
    wanted: Wanted,
    backend: ComputeBackend,
    other: tuple[ComputeBackend, Result] | None = None,
) -> Judgement:
    """Compare one part with its true value, or with the result of another backend, whose own error is allowed for."""
    tolerance = wanted.tolerance(got.dtype, backend)
    expected = np.asarray(wanted.value)
    if other is not None:
        tolerance += wanted.tolerance(got.dtype, other[0])
        expected = other[1].array
    elif got.dtype.is_integer and expected.dtype == object:
        expected = wrapped(expected, got.dtype)
    broken = _mismatch(got, wanted, np.shape(wanted.value), other)
    if broken:
        return Judgement(part, np.inf, tolerance, got.array.size, got.array.size, inputs=trial.what, reason=broken)
    if not got.array.size:
        return Judgement(part, 0, tolerance, inputs=trial.what)
    if got.dtype.kind == "f":
        truth = expected if tolerance or other is not None else rounded(expected, got.dtype)
        error = np.atleast_1d(ulp_error(got.array, truth, got.dtype, wanted.scale))
    else:
        error = np.where(np.atleast_1d(np.asarray(got.array != expected, bool)), np.inf, 0.0)
    if wanted.known is not None:
        error = np.where(wanted.known, error, 0)
    place = np.unravel_index(int(np.argmax(error)), error.shape)
    index = tuple(int(i) for i in place) if got.array.ndim else ()
    return Judgement(
        part, float(error[place]), tolerance, error.size, int(np.count_nonzero(~(error <= tolerance))), index,
        _number(got.array[index]), _number(expected[index]), _inputs_at(trial, index, got.array.shape),
    )  # fmt: skip


def _mismatch(got: Result, wanted: Wanted, shape: tuple[int, ...], other: tuple[ComputeBackend, Result] | None) -> str:
    """What is wrong with a result before its numbers are looked at; empty if nothing is."""
    if wanted.dtype is not None and got.dtype is not wanted.dtype:
        return f"came as {got.dtype.name}, must be {wanted.dtype.name}"
    if got.array.shape != shape:
        return f"came with shape {got.array.shape}, must be {shape}"
    if other is not None and (other[1].array.shape, other[1].dtype) != (got.array.shape, got.dtype):
        return f"{other[0].spec} gives {other[1].dtype.name}{list(other[1].array.shape)}, this {got.dtype.name}{list(got.array.shape)}"
    return ""


def _number(value: Any) -> str:
    kind = np.asarray(value).dtype.kind
    return f"{float(value):.9g}" if kind == "f" else str(value)


def _inputs_at(trial: Trial, index: tuple[int, ...], shape: tuple[int, ...]) -> str:
    """The numbers that made an element of an elementwise result; else the shapes and layouts of the inputs."""
    if not trial.elementwise:
        return trial.what
    numbers = []
    for x in trial.inputs:
        if x is not None:
            try:
                numbers.append(_number(np.broadcast_to(x.values, shape)[index]))
            except ValueError:
                return trial.what
    return f"{trial.what}: {', '.join(numbers)}" if numbers else trial.what
