"""% and // in emitted modules: NumPy's to every digit, however large the quotient and however small what it is made of."""

from __future__ import annotations

import numpy as np
import pytest
from simulated_spirv import computed  # conftest.py has brought it

from vsl_compute import dtypes
from vsl_compute.dtypes import DType
from vsl_compute.rows.elementwise import TABLE
from vsl_compute.rows.spirv_remainders import KINDS

WIDTHS = [dtypes.float32, dtypes.float64]
MEANING = {"remainder": np.remainder, "floor_divide": np.floor_divide}


def drawn(dtype: DType, rng: np.random.Generator, count: int, low: int, high: int) -> np.ndarray:
    """Numbers of both signs, their exponents drawn from a range."""
    size = np.ldexp(rng.uniform(1, 2, count), rng.integers(low, high, count))
    return (size * rng.choice([-1, 1], count)).astype(dtype.storage)


def same(name: str, dtype: DType, a: np.ndarray, b: np.ndarray) -> None:
    with np.errstate(all="ignore"):
        exact = MEANING[name](a, b)
    got = computed(TABLE[name], dtype, a=a, b=b)
    np.testing.assert_array_equal(got, exact)
    np.testing.assert_array_equal(np.signbit(got)[exact == 0], np.signbit(exact)[exact == 0])


@pytest.mark.parametrize("dtype", WIDTHS, ids=str)
@pytest.mark.parametrize("name", MEANING)
def test_numbers_of_any_size_leave_what_numpy_says(name: str, dtype: DType):
    rng, limits = np.random.default_rng(12), np.finfo(dtype.storage)
    low, high = limits.minexp - limits.nmant, limits.maxexp

    same(name, dtype, drawn(dtype, rng, 3000, low, high), drawn(dtype, rng, 3000, low, high))


@pytest.mark.parametrize("dtype", WIDTHS, ids=str)
@pytest.mark.parametrize("name", MEANING)
def test_the_short_way_is_right_up_to_where_quotients_are_large(name: str, dtype: DType):
    rng, (_, _, _, bits) = np.random.default_rng(13), KINDS[dtype.itemsize]
    b = drawn(dtype, rng, 4000, -3, 4)
    near = np.rint(drawn(dtype, rng, 4000, 0, bits)) * b  # multiples, and their neighbours
    a = np.where(rng.random(4000) < 0.5, near, np.nextafter(near, drawn(dtype, rng, 4000, 3, 4))).astype(dtype.storage)

    same(name, dtype, a, b)


@pytest.mark.parametrize("dtype", WIDTHS, ids=str)
@pytest.mark.parametrize("name", MEANING)
def test_the_largest_the_smallest_and_what_is_no_number_leave_what_numpy_says(name: str, dtype: DType):
    limits = np.finfo(dtype.storage)
    few = [0.0, 1.5, 3, limits.max, limits.tiny, limits.smallest_subnormal, limits.tiny / 2, np.inf, np.nan]
    a, b = (
        m.ravel().astype(dtype.storage) for m in np.meshgrid([*few, *(-f for f in few)], [*few, *(-f for f in few)])
    )

    same(name, dtype, a, b)
