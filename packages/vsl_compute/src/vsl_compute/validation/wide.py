"""Numbers wide enough to be the truth: float64 for narrower dtypes, longdouble for float64, Python's for integers.

The special functions that NumPy lacks are here, from their series; golden.npz (made by mpmath) holds them to
account. Where longdouble is float64 (Windows, ARM), errors of float64 results are known to about an ULP only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dtypes import DType

Array = np.ndarray[Any, Any]
LONG = np.longdouble
PI = LONG("3.14159265358979323846264338327950288")
ROOT_PI = LONG("1.77245385090551602729816748334114518")
ROOT_2 = LONG("1.41421356237309504880168872420969808")


def widen(x: Any) -> Any:
    """A host array in the type that means it exactly: bools stay, integers become Python's, floats wide; wide ones stay."""
    array = np.asarray(x)
    if array.dtype.kind == "b":
        return array
    if array.dtype.kind in "iu":
        return array.astype(object)
    return array.astype(LONG if array.dtype in (np.float64, LONG) else np.float64)


def all_widened(xs: Sequence[Any]) -> list[Any]:
    """`widen` each, floats to one common wide type; Python scalars stay what they are."""
    long = any(isinstance(x, np.ndarray | np.generic) and x.dtype in (np.float64, LONG) for x in xs)
    wide = []
    for x in xs:
        value = widen(x) if isinstance(x, np.ndarray | np.generic) else x
        wide.append(
            value.astype(LONG) if long and isinstance(value, np.ndarray) and value.dtype == np.float64 else value
        )
    return wide


def wrapped(value: Any, dtype: DType) -> Array:
    """Python integers stored in an integer dtype: modulo 2 to its bits."""
    bits, lowest = 8 * dtype.itemsize, int(dtype.min)
    objects = np.asarray(value, dtype=object)
    return np.asarray((objects - lowest) % (1 << bits) + lowest, dtype=object).astype(dtype.storage)


def erf(x: Array) -> Array:
    """2/sqrt(pi) * exp(-x^2) * sum 2^n x^(2n+1) / (1*3*...*(2n+1)), all terms of one sign.

    Source: Abramowitz & Stegun 1964, 7.1.6
    """
    x = np.asarray(x)
    clipped = np.clip(x, -10, 10)  # NaN stays; beyond, erf is 1 in every format
    term = total = clipped
    for n in range(1, 400):
        term = term * (2 * clipped * clipped) / (2 * n + 1)
        total = total + term
        if not np.any(np.abs(term) > 1e-22 * np.abs(total)):
            break
    return np.asarray(2 / ROOT_PI.astype(x.dtype) * np.exp(-clipped * clipped) * total)


def erfc(x: Array) -> Array:
    """1 - erf(x), without cancellation where x is large: there a continued fraction.

    Source: Abramowitz & Stegun 1964, 7.1.14
    """
    x = np.asarray(x)
    large = np.clip(x, 1, 100)
    fraction = large
    for n in range(400, 0, -1):
        fraction = large + (n / x.dtype.type(2)) / fraction
    tail = np.exp(-x * x) / (ROOT_PI.astype(x.dtype) * fraction)
    return np.where(x > 1, tail, 1 - erf(x))


def softplus(x: Array) -> Array:
    """log(1 + exp(x)), by the side that does not overflow."""
    tail = np.log1p(np.exp(-np.abs(x)))
    return np.asarray(np.where(x > 0, x + tail, np.where(np.isnan(x), x, tail)))


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)); exp of a large negative number is 0, of a large positive one infinity: both give the limit."""
    return np.asarray(1 / (1 + np.exp(-x)))
