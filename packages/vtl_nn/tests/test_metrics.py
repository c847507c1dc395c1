"""Metrics against NumPy, on every backend."""

from __future__ import annotations

import numpy as np
import pytest

import vtl_core as vtl
import vtl_nn as nn

metrics = nn.metrics


def test_accuracy_counts_the_largest_scores(device):
    """C28: also of pixels, and among the best few."""
    random = np.random.default_rng(0)
    scores, labels = random.normal(size=(40, 5, 3)).astype(np.float32), random.integers(0, 5, (40, 3))
    x, t = vtl.tensor(scores, device=device), vtl.tensor(labels, device=device)
    assert metrics.accuracy(x, t).item() == pytest.approx((scores.argmax(1) == labels).mean(), rel=1e-6)
    best = np.argsort(-scores, axis=1)[:, :2]
    assert metrics.accuracy(x, t, top_k=2).item() == pytest.approx((best == labels[:, None]).any(1).mean(), rel=1e-6)
    assert metrics.accuracy(x, t, top_k=5).item() == 1
    assert np.isnan(metrics.accuracy(x[:0], t[:0]).item())


def test_errors_are_numpys(device):
    """C28."""
    random = np.random.default_rng(1)
    a, b = (random.normal(size=(6, 4)).astype(np.float32) for _ in range(2))
    a[0, 0] = b[0, 0] = 0
    x, t = (vtl.tensor(v, device=device, requires_grad=True) for v in (a, b))
    difference = np.abs(a - b)
    size = np.maximum(np.abs(a), np.abs(b))
    relative = np.divide(difference, size, out=np.zeros_like(size), where=size > 0)
    for name, expected in (
        ("mean_squared_error", (difference**2).mean()),
        ("mean_absolute_error", difference.mean()),
        ("mean_relative_error", relative.mean()),
    ):
        found = getattr(metrics, name)(x, t)
        assert found.item() == pytest.approx(expected, rel=1e-5)
        assert not found.requires_grad


def test_what_does_not_fit_is_named():
    with pytest.raises(vtl.ShapeError, match=r"accuracy: scores \(3, 4\)"):
        metrics.accuracy(vtl.zeros(3, 4), vtl.zeros(4))
    with pytest.raises(vtl.AttributeValueError, match="top_k=5 must lie in"):
        metrics.accuracy(vtl.zeros(3, 4), vtl.zeros(3), top_k=5)
    with pytest.raises(vtl.ShapeError, match="mean_absolute_error: input"):
        metrics.mean_absolute_error(vtl.zeros(3, 1), vtl.zeros(3))


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int32, np.int64])
def test_differences_of_integers_do_not_go_around(dtype):
    """100 - 120 is -20 in any dtype, and its square no remainder of 256."""
    x, t = vtl.tensor(np.array([100, 5], dtype)), vtl.tensor(np.array([120, 5], dtype))
    assert metrics.mean_squared_error(x, t).item() == 200
    assert metrics.mean_absolute_error(x, t).item() == 10
    assert metrics.mean_relative_error(x, t).item() == pytest.approx(1 / 12)


def test_accuracy_refuses_class_numbers_that_are_floats():
    """1.5 is not class 1."""
    with pytest.raises(vtl.DTypeError, match=r"target is float32; .* target.long\(\)"):
        metrics.accuracy(vtl.ones(2, 3), vtl.tensor([1.5, 0.0]))
