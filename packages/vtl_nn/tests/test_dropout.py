"""Dropout: its extremes, its scale, its mask."""

from __future__ import annotations

import numpy as np
import pytest

import vtl_core as vtl
import vtl_nn as nn


def test_the_extremes_are_zeros_and_the_input():
    """D10: p = 1 gives zeros, and zero gradients; p = 0 and eval give the input."""
    x = vtl.tensor(np.linspace(-2, 2, 100), requires_grad=True)
    y = nn.Dropout(1.0)(x)
    y.sum().backward()

    assert (y.numpy() == 0).all()
    assert (x.grad.numpy() == 0).all()
    assert nn.Dropout(0.0)(x) is x
    assert nn.Dropout(0.9).eval()(x) is x


@pytest.mark.parametrize("p", [-0.1, 1.1, float("nan")])
def test_a_probability_outside_0_to_1_is_refused(p):
    """D10."""
    with pytest.raises(vtl.AttributeValueError, match=r"p=.* must lie in \[0, 1\]"):
        nn.Dropout(p)
    with pytest.raises(vtl.AttributeValueError, match=r"p=.* must lie in \[0, 1\]"):
        nn.functional.dropout(vtl.ones(3), p)


def test_kept_values_are_scaled_and_the_backward_uses_the_same_mask():
    """D10: p = 0.3, kept exactly 1/0.7, the kept share 0.7 within 0.006."""
    x = vtl.ones(100_000, requires_grad=True)
    y = nn.Dropout(0.3)(x)
    y.sum().backward()

    values = y.numpy()
    assert set(np.unique(values).tolist()) == {0.0, float(np.float32(1 / 0.7))}
    assert abs((values != 0).mean() - 0.7) < 0.006
    np.testing.assert_array_equal(x.grad.numpy(), values)


def test_each_call_draws_anew_and_a_seed_repeats_them():
    layer, x = nn.Dropout(0.5), vtl.ones(64)
    vtl.manual_seed(5)
    first, second = layer(x).numpy(), layer(x).numpy()
    vtl.manual_seed(5)

    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(layer(x).numpy(), first)
    np.testing.assert_array_equal(layer(x).numpy(), second)


def test_a_generator_of_its_own_leaves_the_default_alone():
    x, generator = vtl.ones(64), vtl.Generator(3)
    before = vtl.default_context().generator.state_dict()
    a = nn.functional.dropout(x, generator=generator).numpy()

    assert vtl.default_context().generator.state_dict() == before
    np.testing.assert_array_equal(a, nn.functional.dropout(x, generator=vtl.Generator(3)).numpy())


def test_masks_do_not_depend_on_the_layout():
    x = vtl.ones(6, 10)
    vtl.manual_seed(1)
    a = nn.functional.dropout(x).numpy()
    vtl.manual_seed(1)
    np.testing.assert_array_equal(nn.functional.dropout(vtl.ones(10, 6).permute(1, 0)).numpy(), a)


@pytest.mark.parametrize("p", [0.5, 1.0])
@pytest.mark.parametrize("make", [nn.Dropout, nn.Dropout1d, nn.Dropout2d])
def test_what_is_dropped_is_zero_even_if_it_was_infinite_or_nan(make, p):
    """D10: no NaN, forward or backward, whatever stood there; in every layer of the family."""
    vtl.manual_seed(3)
    for value in (float("inf"), float("nan")):
        x = vtl.full((64, 4, 2), value, requires_grad=True)
        y = make(p)(x)
        dropped = y.numpy() == 0
        assert dropped.all() if p == 1 else 0.3 < dropped.mean() < 0.7
        y.backward(vtl.full(y.shape, value))
        np.testing.assert_array_equal(x.grad.numpy()[dropped], 0)
        assert not np.isfinite(y.numpy()[~dropped]).any()
