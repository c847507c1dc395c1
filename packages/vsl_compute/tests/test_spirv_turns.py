"""sin, cos and tan in emitted modules, of numbers of any size: within 4 ULP of mpmath, nearest to multiples of pi / 2 too."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from simulated_spirv import Emitted, computed  # conftest.py has brought it

from vsl_compute import dtypes
from vsl_compute.dtypes import DType
from vsl_compute.rows.elementwise import TABLE
from vsl_compute.rows.kinds import lower_row
from vsl_compute.rows.row import row
from vsl_compute.rows.spirv import native
from vsl_compute.rows.spirv_math import macros_of
from vsl_compute.rows.spirv_turns import BITS, HALF_PI, KINDS, TWO_OVER_PI

WIDTHS = [dtypes.float32, dtypes.float64]
NAMES = ["sin", "cos", "tan"]
DIGITS = 400  # decimal: 1e308 has 308 before the point


def worst_ulp(name: str, dtype: DType, x: np.ndarray) -> float:
    """The largest error, in units of the last place of the exact value."""
    got = computed(TABLE[name], dtype, x=x)
    worst = 0.0
    with mpmath.workdps(DIGITS):
        for number, found in zip(x, got, strict=True):
            exact = getattr(mpmath, name)(mpmath.mpf(float(number)))
            unit = mpmath.mpf(float(np.spacing(np.abs(dtype.storage.type(float(exact))))))
            error = float(abs(mpmath.mpf(float(found)) - exact) / unit)
            worst = max(worst, error if error == error else np.inf)
    return worst


def nearest(dtype: DType) -> np.ndarray:
    """Numbers m 2^e that come nearest to multiples of pi / 2: m / k are convergents of pi / 2 over 2^e, for every e."""
    limits = np.finfo(dtype.storage)
    digits = limits.nmant + 1
    found = set()
    with mpmath.workdps(DIGITS):
        for e in range(1 - digits, limits.maxexp - digits + 1):
            rest, before, m = mpmath.mpf(2) ** e / (mpmath.pi / 2), 1, 0
            while m < 2**digits:
                if m >= 2 ** (digits - 1):
                    found.add(float(np.ldexp(m, e)))
                whole = int(mpmath.floor(rest))
                before, m = m, whole * m + before
                rest = 1 / (rest - whole)
    return np.array(sorted(found)).astype(dtype.storage)


def test_the_table_is_two_over_pi():
    with mpmath.workprec(BITS + 64):
        assert int(mpmath.floor(2 / mpmath.pi * mpmath.mpf(2) ** BITS)) == TWO_OVER_PI
        assert int(mpmath.floor(mpmath.pi * mpmath.mpf(2) ** 62)) == HALF_PI[0] << 32 | HALF_PI[1]


def test_the_table_is_long_enough():
    for kind in KINDS.values():
        words = kind.words()
        first = kind.large - kind.bias - kind.digits + 30
        assert first + 32 * (len(words) - 1) <= BITS


@pytest.mark.parametrize("dtype", WIDTHS, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_numbers_of_any_size_are_within_4_ulp(name: str, dtype: DType):
    rng = np.random.default_rng(8)
    low, high = (-60, 127) if dtype.itemsize == 4 else (-60, 1023)
    x = rng.uniform(1, 2, 1000) * 2.0 ** rng.integers(low, high, 1000) * rng.choice([-1, 1], 1000)
    few = [1e5, 1e10, 1e22, 1e38 if dtype.itemsize == 4 else 1e300, float(np.finfo(dtype.storage).max)]
    assert worst_ulp(name, dtype, np.concatenate([x, few]).astype(dtype.storage)) <= 4


@pytest.mark.parametrize("dtype", WIDTHS, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_what_is_nearest_to_a_multiple_of_half_a_pi_is_within_4_ulp(name: str, dtype: DType):
    x = nearest(dtype)
    with mpmath.workdps(DIGITS):
        away = min(abs(mpmath.cos(float(n))) for n in x) if name == "cos" else 0
    assert away < 2.0 ** (-24 if dtype.itemsize == 4 else -53)
    assert worst_ulp(name, dtype, x if dtype.itemsize == 4 else x[:: len(x) // 600]) <= 4


@pytest.mark.parametrize("dtype", WIDTHS, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_the_short_way_is_within_4_ulp_up_to_where_numbers_are_large(name: str, dtype: DType):
    kind = KINDS[dtype.itemsize]
    limit = 2.0 ** (kind.large - kind.bias)
    rng = np.random.default_rng(9)
    multiples = [float(k * mpmath.pi / 2) for k in rng.integers(1, int(limit / 1.5708), 600)]
    seam = limit + np.arange(-8, 8) * float(np.spacing(dtype.storage.type(limit)))
    x = np.concatenate([rng.uniform(-limit, limit, 1000), multiples, seam]).astype(dtype.storage)
    assert worst_ulp(name, dtype, x) <= 4


@pytest.mark.parametrize("dtype", WIDTHS, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_infinities_and_nan_give_nan(name: str, dtype: DType):
    assert np.isnan(computed(TABLE[name], dtype, x=np.array([np.inf, -np.inf, np.nan]))).all()


def test_sine_and_cosine_of_one_number_reduce_it_once():
    both = row("both", "f>f", "sin(x) * cos(x)", None)
    lowered = lower_row(both, {"f": dtypes.float32}, native, macros=macros_of(dtypes.float32))
    words, at, branches = Emitted([lowered.results[0][1]]).module.sections["function"], 0, 0
    while at < len(words):
        branches += words[at] & 0xFFFF == 250
        at += words[at] >> 16
    assert branches == 1
