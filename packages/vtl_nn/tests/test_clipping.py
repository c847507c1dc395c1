"""Clipping by the joint norm and by value, on every backend."""

from __future__ import annotations

import numpy as np
import pytest

import vtl_core as vtl
import vtl_nn as nn


def parameters(device, *gradients):
    found = [vtl.zeros(len(g), device=device, requires_grad=True) for g in gradients]
    for p, g in zip(found, gradients, strict=True):
        p.grad = vtl.tensor(g, dtype=vtl.float32, device=device)
    return found


@pytest.mark.parametrize(
    ("gradients", "max_norm", "norm_type", "norm", "clipped"),
    [
        ([[3, 4]], 1, 2, 5, [[0.6, 0.8]]),
        ([[3, 4]], 10, 2, 5, [[3, 4]]),
        ([[3, 0], [0, 4]], 2.5, 2, 5, [[1.5, 0], [0, 2]]),
        ([[0, 0]], 1, 2, 0, [[0, 0]]),
        ([[3, -4]], 1, np.inf, 4, [[0.75, -1]]),
        ([[3, -4], [1]], 4, 1, 8, [[1.5, -2], [0.5]]),
        ([[1e30, 1e30]], 1, 2, 1.4142135e30, [[0.70710678, 0.70710678]]),
        ([[1e-30, 1e-30]], 1, 2, 1.4142135e-30, [[1e-30, 1e-30]]),
    ],
)
def test_e06_clip_grad_norm(device, gradients, max_norm, norm_type, norm, clipped):
    """E06: one norm for all, no 0 / 0, no square that overflows."""
    ps = parameters(device, *gradients)
    got = nn.utils.clip_grad_norm_(ps, max_norm, norm_type)
    assert got.item() == pytest.approx(norm, rel=1e-5)
    for p, expected in zip(ps, clipped, strict=True):
        np.testing.assert_allclose(p.grad.numpy(), expected, rtol=1e-5)


def test_e06_infinite_gradients_move_nothing(device):
    """E06: the norm of [inf, 1] is inf, and the gradients become 0; PyTorch makes a NaN."""
    ps = parameters(device, [np.inf, 1.0], [2.0])
    assert nn.utils.clip_grad_norm_(ps, 1.0).item() == np.inf
    assert [p.grad.tolist() for p in ps] == [[0, 0], [0]]
    with pytest.raises(nn.TrainingError, match="the norm of 1 gradients is nan"):
        nn.utils.clip_grad_norm_(parameters(device, [np.nan]), 1.0, error_if_nonfinite=True)


def test_clip_grad_value(device):
    ps = parameters(device, [3.0, -0.5, -7.0], [0.25])
    nn.utils.clip_grad_value_(ps, 1.5)
    assert [p.grad.tolist() for p in ps] == [[1.5, -0.5, -1.5], [0.25]]


@pytest.mark.parametrize("norm_type", [2, 1, np.inf, 3])
def test_a_nan_gradient_stops_its_step_and_stays_where_values_are_clipped(device, norm_type):
    """A NaN norm makes all gradients 0; by value NaN stays NaN, for a GradScaler to see, and infinities become the bound."""
    ps = parameters(device, [np.nan, 1.0], [2.0])
    assert np.isnan(nn.utils.clip_grad_norm_(ps, 1.0, norm_type).item())
    assert [p.grad.tolist() for p in ps] == [[0, 0], [0]]
    ps = parameters(device, [np.nan, -0.25], [np.inf, -np.inf])
    nn.utils.clip_grad_value_(ps, 0.5)
    np.testing.assert_array_equal(ps[0].grad.numpy(), [np.nan, -0.25])
    assert ps[1].grad.tolist() == [0.5, -0.5]


def test_half_and_wide_gradients_are_clipped_together():
    half = vtl.zeros(2, dtype=vtl.float16, requires_grad=True)
    half.grad = vtl.tensor([3.0, 0.0], dtype=vtl.float16)
    assert nn.utils.clip_grad_norm_([half], 1.0).dtype is vtl.float32
    np.testing.assert_allclose(half.grad.numpy(), [1, 0], rtol=1e-3)
    doubles = [vtl.zeros(2, dtype=vtl.float64, requires_grad=True)]
    doubles[0].grad = vtl.tensor([1e200, 0.0], dtype=vtl.float64)
    assert nn.utils.clip_grad_norm_(doubles, 1.0).item() == 1e200
    np.testing.assert_allclose(doubles[0].grad.numpy(), [1, 0])


def test_nothing_to_clip_and_wrong_bounds():
    assert nn.utils.clip_grad_norm_([vtl.zeros(3, requires_grad=True)], 1.0).item() == 0
    nn.utils.clip_grad_value_([], 1.0)
    with pytest.raises(vtl.AttributeValueError, match="max_norm=0 must be above 0"):
        nn.utils.clip_grad_norm_([], 0)
    with pytest.raises(vtl.AttributeValueError, match="clip_value=-1 must be at least 0"):
        nn.utils.clip_grad_value_([], -1)
    with pytest.raises(vtl.AttributeValueError, match="ord=0 must be a number above 0"):
        nn.utils.clip_grad_norm_(parameters("cpu", [1.0]), 1.0, 0)


def test_gradients_of_several_precisions_are_clipped_together():
    """float64 beside float32 and float16: one norm, and each keeps its dtype."""
    dtypes = (vtl.float32, vtl.float64, vtl.float16)
    found = [vtl.zeros(2, dtype=dtype, requires_grad=True) for dtype in dtypes]
    for p in found:
        p.grad = vtl.ones(2, dtype=p.dtype)
    total = nn.utils.clip_grad_norm_(found, 1.0)
    assert total.item() == pytest.approx(6**0.5)
    for p, dtype in zip(found, dtypes, strict=True):
        assert p.grad.dtype is dtype
        np.testing.assert_allclose(p.grad.numpy(), 6**-0.5, rtol=1e-3)


@pytest.mark.parametrize("norm_type", [1.0, 2.0, 3.0, float("inf")])
def test_a_norm_of_infinities_is_infinite_in_any_order(device, norm_type):
    """Not NaN: nothing in it is no number."""
    assert nn.utils.get_total_norm(vtl.tensor([-np.inf, 1, 0], device=device), norm_type).item() == np.inf
    assert np.isnan(nn.utils.get_total_norm(vtl.tensor([np.inf, np.nan], device=device), norm_type).item())


def test_norms_are_as_wide_as_the_widest_gradient():
    """1e200 is a number in float64, whichever tensor comes first, and a scaler finds no infinity in it."""
    small = vtl.zeros(2, requires_grad=True)
    large = vtl.zeros(2, dtype=vtl.float64, requires_grad=True)
    small.grad, large.grad = vtl.ones(2), vtl.tensor([3e200, 4e200], dtype=vtl.float64)
    assert nn.utils.get_total_norm([small.grad, large.grad]).item() == pytest.approx(5e200)
    scaler, optimizer = nn.amp.GradScaler(init_scale=1.0), nn.optim.SGD([small, large], lr=1e-200)
    scaler.scale(vtl.ones(()))
    scaler.step(optimizer)
    np.testing.assert_allclose(large.numpy(), [-3, -4])
