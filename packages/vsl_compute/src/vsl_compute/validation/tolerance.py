"""The judge: how far a result lies from the true value, in units in the last place (ULP) of its dtype.

An error is measured against the wide (float64 or longdouble) value itself, not against that value rounded, so a
correctly rounded result has an error of at most 0.5. A `scale` says at which magnitude a unit is taken where a
formula must cancel. Source: Goldberg 1991, "What every computer scientist should know about floating-point
arithmetic", section 1.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..dtypes import DType

Array = np.ndarray[Any, Any]
WIDE = np.longdouble


@dataclass(frozen=True)
class Format:
    """A binary format: `precision` bits with the hidden one, exponents `lowest` to `highest` of normal numbers."""

    precision: int
    lowest: int
    highest: int

    @property
    def tiny(self) -> float:
        """The smallest normal number."""
        return float(2.0**self.lowest)


FORMATS = {
    "float16": Format(11, -14, 15),
    "bfloat16": Format(8, -126, 127),
    "float32": Format(24, -126, 127),
    "float64": Format(53, -1022, 1023),
}


def spacing(magnitude: Array, dtype: DType) -> Array:
    """Distance between neighbouring numbers of `dtype` at this magnitude; below the normal numbers it stays theirs."""
    form = FORMATS[dtype.name]
    at = np.maximum(np.abs(np.asarray(magnitude, WIDE)), WIDE(form.tiny))
    exponent = np.frexp(np.where(np.isfinite(at), at, 1))[1] - 1  # frexp's fraction lies in [0.5, 1)
    return np.asarray(np.ldexp(WIDE(1), np.minimum(exponent, form.highest) - (form.precision - 1)))


def rounded(value: Array, dtype: DType) -> Array:
    """The number of `dtype` nearest to a wide value, ties to even, too large becoming infinite; still in a wide type."""
    form = FORMATS[dtype.name]
    wide = np.asarray(value, WIDE)
    step = spacing(wide, dtype)
    with np.errstate(all="ignore"):
        nearest = np.rint(wide / step) * step  # a division by a power of two is exact
        limit = np.ldexp(WIDE(1), form.highest) * 2
        return np.where(np.abs(nearest) >= limit, np.copysign(WIDE(np.inf), wide), nearest)


def ulp_error(got: Array, expected: Array, dtype: DType, scale: Array | float | None = None) -> Array:
    """Distance of `got` from `expected`, an element a unit: the spacing of `dtype` at max(|expected|, scale, tiny).

    NaN must meet NaN. An infinite result stands for the first power of two that does not fit, so it is near an
    expected value that only just fits. A denormal expected value accepts zero: a device may flush it. Whatever
    must not be is infinitely far.
    """
    form = FORMATS[dtype.name]
    value, wanted = np.asarray(got).astype(WIDE), np.asarray(expected, WIDE)
    limit = np.ldexp(WIDE(1), form.highest) * 2
    step = spacing(wanted, dtype)
    if scale is not None:  # terms that cancel may be larger than a result of the dtype
        terms = np.frexp(np.abs(np.asarray(scale, WIDE)))[1] - form.precision
        step = np.maximum(step, np.where(np.isfinite(scale), np.ldexp(WIDE(1), terms), 0))
    with np.errstate(all="ignore"):
        both_infinite = np.isinf(value) & np.isinf(rounded(wanted, dtype)) & (np.sign(value) == np.sign(wanted))
        finite = np.where(np.isinf(value), np.copysign(limit, value), value)
        error = np.abs(finite - wanted) / step
        flushed = (value == 0) & (np.abs(wanted) < form.tiny)
        matched = (value == wanted) | both_infinite | flushed | (np.isnan(value) & np.isnan(wanted))
        error = np.where(np.isnan(error), np.inf, error)
    return np.asarray(np.where(matched, 0, error), np.float64)


def assert_close(
    got: Array, expected: Array, dtype: DType, ulp: float, scale: Array | float | None = None, what: str = ""
) -> None:
    """Raise AssertionError unless every element of `got` is within `ulp` units of `expected`.

    The message names `what`, the worst element, both values and the error. Integers and truth values must be
    equal. `ulp` 0 asks for the correctly rounded value. `got` is what `View.to_host` gives: bfloat16 as float32.
    """
    got, expected = np.asarray(got), np.asarray(expected)
    label = f"{what}: " if what else ""
    host = np.dtype(np.float32) if dtype.name == "bfloat16" else dtype.storage
    assert got.dtype == host, f"{label}came as {got.dtype}, {dtype.name} is {host} on the host"
    assert got.shape == expected.shape, f"{label}shape {got.shape}, expected {expected.shape}"
    if not got.size:
        return
    if dtype.kind != "f":
        _assert_equal(got, expected, label)
        return
    if ulp == 0:
        expected = rounded(expected, dtype)
    error = np.atleast_1d(ulp_error(got, expected, dtype, scale))
    worst = np.unravel_index(int(np.argmax(error)), error.shape)
    if not error[worst] <= ulp:
        at = tuple(int(i) for i in worst) if got.ndim else ()
        count = int(np.count_nonzero(~(error <= ulp)))
        raise AssertionError(
            f"{label}{error[worst]:.4g} ULP of {dtype.name} at {at}, {ulp:g} allowed: got {got[at]!r}, "
            f"expected {expected[at]!r}; {count} of {error.size} elements are too far"
        )


def _assert_equal(got: Array, expected: Array, label: str) -> None:
    wrong = np.atleast_1d(np.asarray(got != expected, bool))
    if wrong.any():
        first = tuple(int(i) for i in np.argwhere(wrong)[0]) if got.ndim else ()
        raise AssertionError(
            f"{label}got {got[first]!r} at {first}, expected {expected[first]!r}; "
            f"{int(wrong.sum())} of {wrong.size} elements differ"
        )
