"""Averages of weights: how they follow a model, and what they say when it is no longer the one they followed."""

from __future__ import annotations

import numpy as np
import pytest

import vtl_core as vtl
import vtl_nn as nn


def test_an_average_follows_its_model(device):
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).to(device)
    ema = nn.EMA(model, 0.9)
    start, now = model[0].weight.numpy().copy(), model[0].weight.numpy().copy()
    expected = start.astype(float)
    for _ in range(3):
        with vtl.no_grad():
            model[0].weight.copy_(model[0].weight * 1.5)
        model(vtl.randn((4, 2)).to(device))
        ema.update()
        now = model[0].weight.numpy()
        expected = 0.9 * expected + 0.1 * now
    np.testing.assert_allclose(ema.module[0].weight.numpy(), expected, rtol=1e-6)
    np.testing.assert_array_equal(ema.module[1].running_mean.numpy(), model[1].running_mean.numpy())
    assert list(ema.state_dict()) == [f"module.{name}" for name in model.state_dict()]
    assert not ema.train().module.training
    assert not any(p.requires_grad for p in ema.parameters())
    assert ema(vtl.zeros(1, 2, device=device)).shape == (1, 3)


def test_an_average_of_a_model_that_has_grown_says_so():
    model = nn.Sequential(nn.Linear(2, 2))
    ema = nn.EMA(model)
    model.append(nn.Linear(2, 2))
    with pytest.raises(nn.StateError, match="4 parameters now and the average 2"):
        ema.update()


def test_an_average_of_a_model_that_was_cast_or_has_other_statistics_says_so():
    for change, text in (
        (lambda m: m.to(vtl.float64), r"float64 \(2, 3\) on .* where the average has float32"),
        (lambda m: setattr(m, "0", nn.Linear(4, 2)), r"\(2, 4\) on .* where the average has float32 \(2, 3\)"),
        (lambda m: m.append(nn.BatchNorm1d(2, affine=False)), "6 buffers now and the average 3"),
    ):
        model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
        ema = nn.EMA(model)
        change(model)
        with pytest.raises(nn.StateError, match=text):
            ema.update()
        ema.module.to(vtl.float64)
    model = nn.Linear(3, 2)
    ema = nn.EMA(model, 0.0)
    model.to(vtl.float64)
    ema.to(vtl.float64).update()  # what the message says
    np.testing.assert_array_equal(ema.module.weight.numpy(), model.weight.numpy())
