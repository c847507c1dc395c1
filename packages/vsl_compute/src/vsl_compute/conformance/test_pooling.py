"""Pooling: values, places and both ways back, padding that never wins, and what an average divides by."""

from __future__ import annotations

import numpy as np
import pytest

from vsl_compute.dtypes import float32, int32
from vsl_compute.errors import AttributeValueError
from vsl_compute.validation import oracle_ops
from vsl_compute.validation.cases_ops import POOLS

COMPOSITES = True  # its tests run with overrides and without


def ids(case):
    return "-".join(f"{k}{v}" for k, v in case.items()).replace(" ", "") or "plain"


@pytest.mark.parametrize("options", POOLS, ids=ids)
def test_max_pooling_agrees_with_its_meaning(subject, options):
    """Values, the place of each maximum, and the way back; floats and integers."""
    for dtype in (*subject.floating(), int32):
        for layout in ("dense", "transposed", "stepped", "flipped") if dtype is float32 else ("dense",):
            x = subject.place(dtype, layout, (2, 3, 7, 6))
            y, index = oracle_ops.max_pool2d(x.host, **options)
            what = f"max_pool2d {dtype.name} {layout} {options}"
            got, places = subject.run("max_pool2d", x.view, **options)
            subject.close(got.to_host(), y, dtype, 0, what)
            assert places.to_host().tolist() == index.tolist(), what
            if dtype.is_floating:
                g = subject.place(dtype, layout, y.shape)
                back = subject.value("max_pool2d_backward", g.view, places, shape=(2, 3, 7, 6), **options)
                expected = oracle_ops.max_pool2d_backward(g.host, index, (2, 3, 7, 6), **options)
                scale = oracle_ops.max_pool2d_backward(np.abs(g.host), index, (2, 3, 7, 6), **options)
                subject.close(
                    back,
                    expected,
                    dtype,
                    subject.narrowed(4, dtype) + (1 if dtype.itemsize == 2 else 0),
                    f"{what} backward",
                    scale,
                )


@pytest.mark.parametrize("options", POOLS, ids=ids)
def test_windows_of_the_lowest_value_choose_a_cell_and_never_padding(subject, options):
    """D01: of windows that are all -inf, or an integer's least, the first cell inside the input is the place."""
    rng = np.random.default_rng(5)
    for dtype in (float32, int32):
        low = -np.inf if dtype.is_floating else np.iinfo(np.int32).min
        for share in (0.7, 1.0):
            x = np.where(rng.random((2, 3, 7, 6)) < share, low, rng.integers(-3, 3, (2, 3, 7, 6))).astype(dtype.name)
            y, index = oracle_ops.max_pool2d(x, **options)
            got, places = subject.run("max_pool2d", subject.put(x), **options)
            assert got.to_host().tolist() == y.tolist(), (dtype.name, options)
            assert places.to_host().tolist() == index.tolist(), (dtype.name, options)
            if dtype.is_floating:
                g = rng.integers(1, 9, y.shape).astype(np.float32)
                back = subject.value("max_pool2d_backward", subject.put(g), places, shape=x.shape, **options)
                assert back.sum() == g.sum(), options


@pytest.mark.parametrize("counted", [True, False], ids=["padding-counts", "padding-does-not-count"])
@pytest.mark.parametrize("options", POOLS, ids=ids)
def test_average_pooling_agrees_with_its_meaning(subject, options, counted):
    options = options | {"count_include_pad": counted}
    for dtype in subject.floating():
        for layout in ("dense", "transposed", "stepped", "flipped") if dtype is float32 else ("dense",):
            x = subject.place(dtype, layout, (2, 3, 7, 6))
            expected = oracle_ops.avg_pool2d(x.host, **options)
            what = f"avg_pool2d {dtype.name} {layout} {options}"
            ulp = subject.narrowed(4, dtype) + (
                1 if dtype.itemsize == 2 else 0
            )  # sum and quotient are rounded one by one
            subject.close(
                subject.value("avg_pool2d", x.view, **options),
                expected,
                dtype,
                ulp,
                what,
                oracle_ops.avg_pool2d(np.abs(x.host), **options),
            )
            g = subject.place(dtype, layout, expected.shape)
            back = subject.value("avg_pool2d_backward", g.view, shape=(2, 3, 7, 6), **options)
            scale = oracle_ops.avg_pool2d_backward(np.abs(g.host), (2, 3, 7, 6), **options)
            subject.close(
                back,
                oracle_ops.avg_pool2d_backward(g.host, (2, 3, 7, 6), **options),
                dtype,
                ulp,
                f"{what} backward",
                scale,
            )


def test_d01_max_pooling_pads_with_minus_infinity_and_the_first_of_equals_wins(subject):
    """D01: all-negative input with padding; ties; overlapping windows; integers stay integers; padding > k / 2 raises."""
    x = -np.arange(1.0, 5, dtype=np.float32).reshape(1, 1, 2, 2)
    y, index = subject.run("max_pool2d", subject.put(x), kernel_size=2, stride=2, padding=1)
    assert y.to_host().tolist() == x.tolist()
    ones = subject.put(np.ones((1, 1, 2, 2), np.float32))
    back = subject.value("max_pool2d_backward", ones, index, shape=(1, 1, 2, 2), kernel_size=2, stride=2, padding=1)
    assert back.tolist() == np.ones((1, 1, 2, 2)).tolist()
    sevens = np.full((1, 1, 2, 2), 7, np.float32)
    _, index = subject.run("max_pool2d", subject.put(sevens), kernel_size=2)
    one = subject.put(np.ones((1, 1, 1, 1), np.float32))
    assert subject.value("max_pool2d_backward", one, index, shape=(1, 1, 2, 2), kernel_size=2).ravel().tolist() == [
        1,
        0,
        0,
        0,
    ]
    twice = np.array([[1, 2, 3, 0], [1, 9, 9, 1], [0, 1, 2, 3]], np.float32).reshape(1, 1, 3, 4)
    y, index = subject.run("max_pool2d", subject.put(twice), kernel_size=3, stride=1)
    back = subject.value(
        "max_pool2d_backward",
        subject.put(np.ones((1, 1, 1, 2), np.float32)),
        index,
        shape=(1, 1, 3, 4),
        kernel_size=3,
        stride=1,
    )
    assert back[0, 0, 1].tolist() == [0, 2, 0, 0]
    lowest = np.full((1, 1, 2, 2), np.iinfo(np.int32).min, np.int32)
    assert (
        subject.value("max_pool2d", subject.put(lowest), kernel_size=2, padding=1, stride=2)[0].tolist()
        == lowest.tolist()
    )
    with pytest.raises(AttributeValueError, match=r"max_pool2d: padding \(2, 2\)"):
        subject.run("max_pool2d", subject.put(x), kernel_size=3, padding=2)


def test_d01_nan_wins_a_window(subject):
    x = np.zeros((1, 1, 4, 4), np.float32)
    x[0, 0, 1, 2] = np.nan
    y, index = subject.value("max_pool2d", subject.put(x), kernel_size=2)
    assert np.isnan(y).ravel().tolist() == [False, True, False, False]
    assert index.ravel().tolist() == [0, 2, 0, 0]


def test_d02_average_pooling_divides_by_what_counts(subject):
    """D02: 1 to 9, kernel 2, stride 2: padding counted, not counted, and partial windows of ceil_mode."""
    x = subject.put(np.arange(1, 10, dtype=np.float32).reshape(1, 1, 3, 3))
    options = {"kernel_size": 2, "stride": 2}
    assert subject.value("avg_pool2d", x, **options, padding=1).ravel().tolist() == [0.25, 1.25, 2.75, 7]
    assert subject.value("avg_pool2d", x, **options, padding=1, count_include_pad=False).ravel().tolist() == [
        1,
        2.5,
        5.5,
        7,
    ]
    assert subject.value("avg_pool2d", x, **options, ceil_mode=True).ravel().tolist() == [3, 4.5, 7.5, 9]
    assert subject.value("max_pool2d", x, **options, ceil_mode=True)[0].ravel().tolist() == [5, 6, 8, 9]
