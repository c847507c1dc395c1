"""The closed set of dtypes: promotion, names, and bfloat16's rounding."""

from __future__ import annotations

import copy
import pickle
from itertools import product

import numpy as np
import pytest

from vsl_compute.dtypes import (
    ALL,
    BY_NAME,
    bfloat16,
    bfloat16_to_float32,
    dtype_of,
    float16,
    float32,
    float32_to_bfloat16,
    float64_to_bfloat16,
    promote,
    uint64,
)
from vsl_compute.errors import DTypeError


@pytest.mark.parametrize(("a", "b"), [(a, b) for a, b in product(ALL, ALL) if bfloat16 not in (a, b)], ids=str)
def test_promotion_is_numpys_but_where_the_array_api_differs(a, b):
    """int with float is the float itself (NumPy widens to float64); uint64 with signed has no common integer (NumPy says float64)."""
    if {a.kind, b.kind} == {"u", "i"} and uint64 in (a, b):
        with pytest.raises(DTypeError, match="uint64"):
            promote(a, b)
    elif a.kind != b.kind and "f" in a.kind + b.kind:
        assert promote(a, b) is (a if a.kind == "f" else b)
    else:
        assert promote(a, b) is dtype_of(np.promote_types(a.storage, b.storage))


@pytest.mark.parametrize("a", ALL, ids=str)
def test_promotion_is_symmetric_and_keeps_its_own(a):
    """A dtype with itself is itself, and order does not matter."""
    assert promote(a, a) is a
    for b in ALL:
        if not ({a.kind, b.kind} == {"u", "i"} and uint64 in (a, b)):
            assert promote(a, b) is promote(b, a)


def test_half_with_brain_float_is_float32():
    """Neither holds the other."""
    assert promote(float16, bfloat16) is float32


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_a_dtype_is_found_by_its_name_its_numpy_twin_and_after_copying(dtype):
    """Dtypes compare by identity, so copies and pickles must be the one instance."""
    assert dtype_of(dtype.name) is dtype
    assert pickle.loads(pickle.dumps(dtype)) is dtype
    assert copy.deepcopy(dtype) is dtype
    if dtype is not bfloat16:
        assert dtype_of(dtype.storage) is dtype
        assert dtype_of(dtype.storage.newbyteorder(">")) is dtype


@pytest.mark.parametrize("given", ["float128", "int", object(), None, "complex64", np.dtype("U3"), str])
def test_what_is_no_dtype_is_named(given):
    """None is not float64, as numpy.dtype would have it."""
    with pytest.raises(DTypeError, match="is not one of"):
        dtype_of(given)


def test_python_types_are_the_defaults():
    """float is float32 and int is int64."""
    assert [dtype_of(t).name for t in (bool, int, float)] == ["bool", "int64", "float32"]


def test_brain_float_rounds_to_nearest_even_and_keeps_the_special_values():
    """Known values (G07), the specials, and every bit pattern that is a bfloat16 already."""
    given = np.array([1.00390625, 1.01171875, 3.4e38, -3.4e38, np.inf, -np.inf, 0.0, -0.0], np.float32)
    right = np.array([1.0, 1.015625, np.inf, -np.inf, np.inf, -np.inf, 0.0, -0.0], np.float32)
    got = bfloat16_to_float32(float32_to_bfloat16(given))
    np.testing.assert_array_equal(got, right)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(right))
    assert np.isnan(bfloat16_to_float32(float32_to_bfloat16(np.array([np.nan], np.float32))))[0]
    bits = np.arange(1 << 16, dtype=np.uint16)
    wide = bfloat16_to_float32(bits)
    finite = ~np.isnan(wide)
    np.testing.assert_array_equal(float32_to_bfloat16(wide)[finite], bits[finite])


def test_float64_rounds_to_brain_float_once(rng):
    """Just above a tie it goes up, although float32 would round it onto the tie and then to even."""
    tie = 1.0 + 2.0**-8
    values = np.array([tie, tie + 2.0**-40, tie - 2.0**-40])
    np.testing.assert_array_equal(
        bfloat16_to_float32(float64_to_bfloat16(values)), np.array([1.0, 1.0078125, 1.0], np.float32)
    )
    random = rng.standard_normal(1000)
    np.testing.assert_allclose(bfloat16_to_float32(float64_to_bfloat16(random)), random, rtol=2.0**-8)


def test_every_name_is_there_once():
    """Thirteen dtypes."""
    assert len(BY_NAME) == len(ALL) == 13
