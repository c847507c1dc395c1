"""The judge itself: what an ULP is, at the edges of every format, and what its verdict says."""

from __future__ import annotations

import numpy as np
import pytest

from vsl_compute import dtypes
from vsl_compute.dtypes import bfloat16, float16, float32, float64
from vsl_compute.validation.tolerance import assert_close, rounded, spacing, ulp_error

HOST = {float16: np.float16, float32: np.float32, float64: np.float64}


@pytest.mark.parametrize("dtype", HOST, ids=str)
def test_spacing_is_numpy_s_for_normal_numbers(dtype):
    rng = np.random.default_rng(1)
    x = (rng.standard_normal(500) * 10.0 ** rng.integers(-4, 4, 500)).astype(HOST[dtype])

    assert np.array_equal(spacing(x, dtype), np.abs(np.spacing(np.abs(x))).astype(np.longdouble))


def test_spacing_of_bfloat16_is_that_of_eight_bits():
    assert np.array_equal(
        spacing(np.array([1.0, 1.99, 2.0, 0.0, 1e-45]), bfloat16), [2.0**-7, 2.0**-7, 2.0**-6, 2.0**-133, 2.0**-133]
    )


@pytest.mark.parametrize("dtype", HOST, ids=str)
def test_rounding_is_numpy_s_down_to_the_denormals_and_up_to_infinity(dtype):
    rng = np.random.default_rng(2)
    form = np.finfo(HOST[dtype])
    small = rng.uniform(-1, 1, 300) * float(form.tiny) * 4
    large = np.array([1.0, 0.99999, 1.00001, -1.0, 0.5]) * np.longdouble(form.max)
    middle = rng.standard_normal(300)
    x = np.concatenate([small, middle, large, [0.0, np.inf, -np.inf]]).astype(np.longdouble)
    with np.errstate(over="ignore"):
        assert np.array_equal(rounded(x, dtype), x.astype(HOST[dtype]).astype(np.longdouble))


def test_g07_half_stores_round_to_even_and_overflow_to_infinity():
    """G07: the values of the trap, for float16 and bfloat16."""
    halves = {65519: 65504, 65520: np.inf, -7e4: -np.inf, 3e-8: 2.0**-24, 2.98e-8: 0, 2049: 2048, 2051: 2052}
    assert rounded(np.array(list(halves)), float16).tolist() == list(halves.values())
    brains = {1.00390625: 1.0, 1.01171875: 1.015625, 3.4e38: np.inf}
    assert rounded(np.array(list(brains)), bfloat16).tolist() == list(brains.values())


@pytest.mark.parametrize("dtype", [float16, bfloat16, float32, float64], ids=str)
def test_bfloat16_and_others_round_as_the_dtype_table_does(dtype):
    """The library's own rounding and the judge's agree; the judge's knows no NumPy cast."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal(2000) * 2.0 ** rng.integers(-20, 14, 2000)
    stored = dtypes.bfloat16_to_float32(dtypes.float64_to_bfloat16(x)) if dtype is bfloat16 else x.astype(HOST[dtype])
    assert np.array_equal(rounded(x, dtype), stored.astype(np.longdouble))


@pytest.mark.parametrize("dtype", HOST, ids=str)
def test_the_neighbour_is_one_ulp_away_and_a_correct_rounding_at_most_half(dtype):
    rng = np.random.default_rng(4)
    x = rng.uniform(1, 2, 200).astype(HOST[dtype])
    up = np.nextafter(x, HOST[dtype](4))
    assert np.array_equal(ulp_error(up, x.astype(np.longdouble), dtype), np.ones(200))

    exact = x.astype(np.longdouble) + rng.uniform(0, 1, 200).astype(np.longdouble) * np.spacing(x)
    assert ulp_error(exact.astype(HOST[dtype]), exact, dtype).max() <= 0.5


def test_a_scale_says_at_which_magnitude_a_unit_is_taken():
    got, expected = np.float32([1e-7]), np.array([0.0])
    assert ulp_error(got, expected, float32)[0] > 1e30
    assert ulp_error(got, expected, float32, scale=1.0)[0] == pytest.approx(1e-7 / 2.0**-23)
    assert ulp_error(got, expected, float32, scale=np.array([-1.0]))[0] == pytest.approx(1e-7 / 2.0**-23)


@pytest.mark.parametrize(
    ("got", "expected", "close"),
    [
        (np.nan, np.nan, True), (np.nan, 1.0, False), (1.0, np.nan, False), (np.inf, np.nan, False),
        (np.inf, np.inf, True), (-np.inf, np.inf, False), (np.inf, 1.0, False), (3.4028235e38, np.inf, False),
        (np.inf, 1e39, True), (3.4028235e38, 1e39, False), (-np.inf, 1e39, False),
        (np.inf, 3.4028234e38, True), (np.inf, 3.4e38, False), (0.0, -0.0, True),
    ],
)  # fmt: skip
def test_what_is_not_finite_must_be_met_in_kind(got, expected, close):
    error = float(ulp_error(np.float32([got]), np.array([expected]), float32)[0])
    assert (error <= 4) is close


def test_g06_a_denormal_may_be_flushed_to_zero_but_not_become_something_else():
    """G06: 1e-40 accepts itself and 0; 1e-38 (denormal) likewise; a normal number does not accept 0."""
    expected = np.array([1e-40, 1e-40, -1e-40, 1e-38, 1.2e-38])
    got = np.float32([1e-40, 0.0, -0.0, 0.0, 0.0])
    assert (ulp_error(got, expected, float32) <= 1).tolist() == [True, True, True, True, False]
    assert ulp_error(np.float32([1e-38]), np.array([1e-40]), float32)[0] > 1e6


def test_the_message_names_what_where_both_values_and_the_error():
    expected = np.arange(12.0).reshape(3, 4) + 1
    got = expected.astype(np.float32)
    got[1, 2] += 1e-5
    got[2, 3] += 1e-3

    message = (
        r"exp float32 dense: 1049 ULP of float32 at \(2, 3\), 4 allowed: got .*12\.001.*, expected .*12\.0.*; 2 of 12"
    )
    with pytest.raises(
        AssertionError,
        match=message,
    ):
        assert_close(got, expected, float32, 4, what="exp float32 dense")


def test_integers_and_truth_values_are_exact():
    assert_close(np.int8([-56]), np.int8([-56]), dtypes.int8, 0)
    with pytest.raises(AssertionError, match=r"sum: got .*44.* at \(1,\), expected .*300"):
        assert_close(np.array([1, 44]), np.array([1, 300]), dtypes.int64, 1000, what="sum")
    with pytest.raises(AssertionError, match="differ"):
        assert_close(np.array([True]), np.array([False]), dtypes.bool_, 1000)


def test_another_dtype_or_shape_is_never_close():
    with pytest.raises(AssertionError, match="came as float64, float32 is float32"):
        assert_close(np.zeros(3), np.zeros(3), float32, 4)
    with pytest.raises(AssertionError, match="came as uint16, bfloat16 is float32"):
        assert_close(np.zeros(3, np.uint16), np.zeros(3), bfloat16, 4)
    with pytest.raises(AssertionError, match=r"shape \(3,\), expected \(1, 3\)"):
        assert_close(np.zeros(3, np.float32), np.zeros((1, 3)), float32, 4)
    with pytest.raises(AssertionError, match="shape"):
        assert_close(np.zeros((0, 2), np.float32), np.zeros((0, 3)), float32, 4)


def test_zero_ulp_asks_for_the_correctly_rounded_value():
    assert_close(np.float16([np.inf]), np.array([65520.0]), float16, 0)
    with pytest.raises(AssertionError):
        assert_close(np.float16([65504]), np.array([65520.0]), float16, 0)
    with pytest.raises(AssertionError):
        assert_close(np.float16([2050]), np.array([2049.0]), float16, 0)


def test_nothing_and_a_lone_number_are_judged_too():
    assert_close(np.zeros((0, 3), np.float32), np.zeros((0, 3)), float32, 0)
    assert_close(np.float32(1), np.float64(1), float32, 0)
    with pytest.raises(AssertionError, match=r"at \(\)"):
        assert_close(np.float32(1), np.float64(2), float32, 4)
