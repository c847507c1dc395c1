"""Initial weights: fans, distributions, and seeds."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest

import vtl_core as vtl
import vtl_nn as nn
from vtl_nn import init


@pytest.mark.parametrize(
    ("shape", "fans"), [((3, 5), (5, 3)), ((8, 4, 3, 3), (36, 72)), ((6, 2, 5), (10, 30)), ((6, 1, 1, 1), (1, 6))]
)
def test_fans_are_connections_of_one_unit(shape, fans):
    """C29: fan_in counts the inputs of one output, window included."""
    assert init.compute_fans(shape) == fans


def test_a_vector_has_no_fans():
    with pytest.raises(vtl.ShapeError, match=r"compute_fans: a weight of shape \(3,\) has no fans"):
        init.kaiming_uniform_(vtl.empty(3))


@pytest.mark.parametrize(
    ("draw", "deviation"),
    [
        (lambda t: init.uniform_(t, -2, 4), sqrt(3)),
        (lambda t: init.normal_(t, 0.0, 0.5), 0.5),
        (lambda t: init.xavier_uniform_(t, 2.0), 2 * sqrt(2 / 700)),
        (init.xavier_normal_, sqrt(2 / 700)),
        (lambda t: init.kaiming_uniform_(t, sqrt(5)), sqrt(1 / 3 / 400)),
        (lambda t: init.kaiming_normal_(t, nonlinearity="relu"), sqrt(2 / 400)),
        (lambda t: init.kaiming_normal_(t, mode="fan_out", nonlinearity="tanh"), 5 / 3 / sqrt(300)),
    ],
)
def test_deviations_are_as_stated(draw, deviation):
    """C29: 120 000 draws; the deviation is within six of its own."""
    values = draw(vtl.empty(300, 400)).numpy()

    assert values.std() == pytest.approx(deviation, rel=6 / sqrt(2 * values.size) * 1.2)


def test_uniform_stays_in_its_interval_and_fills_it():
    values = init.uniform_(vtl.empty(20_000), -1, 3).numpy()
    counts, _ = np.histogram(values, 8, (-1, 3))

    assert values.min() >= -1
    assert values.max() < 3
    assert abs(counts - 2500).max() < 6 * sqrt(2500)


@pytest.mark.parametrize("layer", [nn.Linear(50, 40), nn.Conv2d(5, 40, (2, 5)), nn.Conv2d(10, 40, (2, 5), groups=2)])
def test_linear_and_convolutions_start_as_in_pytorch(layer):
    """C29: weight and bias uniform within 1 / sqrt(fan_in) = 1 / sqrt(50)."""
    for values in (layer.weight.numpy(), layer.bias.numpy()):
        assert abs(values).max() <= 1 / sqrt(50)
        assert abs(values).max() > 0.8 / sqrt(50)


def test_a_seed_gives_the_same_weights_and_another_seed_others():
    def weights(seed):
        vtl.manual_seed(seed)
        return nn.models.SimpleCNN(image_size=8).state_dict()

    a, b, c = weights(3), weights(3), weights(4)
    for name in a:
        np.testing.assert_array_equal(a[name].numpy(), b[name].numpy())
        assert not np.array_equal(a[name].numpy(), c[name].numpy())


def test_filling_is_in_place_and_remembers_no_graph():
    weight = nn.Parameter(vtl.empty(2, 3))
    raw = weight.raw
    assert init.ones_(weight) is weight
    assert weight.raw is raw
    assert weight.is_leaf
    assert init.zeros_(weight).tolist() == [[0] * 3] * 2
    assert init.constant_(weight, 2.5).tolist() == [[2.5] * 3] * 2


def test_names_that_are_not_known_are_refused():
    with pytest.raises(vtl.AttributeValueError, match="nonlinearity='swish'"):
        init.calculate_gain("swish")
    with pytest.raises(vtl.AttributeValueError, match="mode='in'"):
        init.kaiming_normal_(vtl.empty(2, 2), mode="in")


def test_an_interval_turned_around_and_a_negative_deviation_are_refused():
    with pytest.raises(vtl.AttributeValueError, match="a=2 must be at most b=1"):
        nn.init.uniform_(vtl.ones(3), 2, 1)
    with pytest.raises(vtl.AttributeValueError, match="std=-1 must be at least 0"):
        nn.init.normal_(vtl.ones(3), std=-1)
