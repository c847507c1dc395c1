"""% and // in emitted modules: NumPy's to every digit, however large the quotient and however small what it is made of."""

from __future__ import annotations

import numpy as np
import pytest
import simulated_spirv  # conftest.py has brought it
from simulated_spirv import computed

from vsl_compute import dtypes
from vsl_compute.dtypes import DType
from vsl_compute.rows.elementwise import TABLE
from vsl_compute.rows.spirv_remainders import KINDS
from vsl_compute.validation.tolerance import ulp_error

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


@pytest.fixture
def flushing(monkeypatch):
    """A device that takes denormal floats for zero, read or made: NVIDIA's do with float32 on Vulkan."""
    done, arithmetic = simulated_spirv._done, {12, 127, 129, 131, 133, 136, *simulated_spirv.COMPARED}

    def flushed(x):
        tiny = np.finfo(x.dtype).tiny if np.issubdtype(x.dtype, np.floating) else 0
        return np.where(np.abs(x) < tiny, np.copysign(0, x), x).astype(x.dtype) if tiny else x

    def run(code, type_, operands, held, fma, judge):
        if code not in arithmetic:
            return done(code, type_, operands, held, fma, judge)
        seen = {
            o: flushed(np.asarray(held[o])) if o in held and not isinstance(held[o], tuple) else held.get(o)
            for o in operands
        }
        made = done(code, type_, operands, seen, fma, judge)
        return made if isinstance(made, tuple) else flushed(np.asarray(made))

    monkeypatch.setattr(simulated_spirv, "_done", run)


@pytest.mark.usefixtures("flushing")
@pytest.mark.parametrize("name", MEANING)
def test_a_rest_that_a_device_takes_for_zero_is_none_the_less(name):
    """-1e-40 % 2e-38, as -(n y + 1e-40) % y, is nearly y, not 0; and its quotient is rounded down."""
    rng, dtype = np.random.default_rng(14), dtypes.float32
    b = drawn(dtype, rng, 4000, -123, -100)
    a = (np.rint(rng.uniform(1, 64, 4000)) * b.astype(np.float64)).astype(np.float32)
    a = np.nextafter(a, np.copysign(np.inf, a), dtype=np.float32) * rng.choice([-1, 1], 4000).astype(np.float32)
    exact = MEANING[name](a, b)
    assert np.any(np.abs(np.fmod(a, b))[np.fmod(a, b) != 0] < np.finfo(np.float32).tiny)
    got = computed(TABLE[name], dtype, a=a, b=b)
    assert np.max(ulp_error(got, exact.astype(np.longdouble), dtype)) <= (0.5 if name == "remainder" else 0)
