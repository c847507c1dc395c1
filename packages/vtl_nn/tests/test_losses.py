"""Losses."""

from __future__ import annotations

from math import log

import numpy as np
import pytest

import vtl_core as vtl
import vtl_nn as nn

F = nn.functional


def test_all_targets_ignored_gives_no_gradient_in_any_mode():
    """C01: the mean is NaN as in PyTorch, the sum 0, each 0; gradients are zeros."""
    for reduction, expected in (("mean", np.nan), ("sum", 0.0), ("none", [0.0] * 3)):
        x = vtl.tensor(np.ones((3, 4)), requires_grad=True)
        loss = F.cross_entropy(x, vtl.tensor([-100] * 3), reduction=reduction)
        loss.sum().backward()
        np.testing.assert_array_equal(loss.numpy(), expected)
        assert (x.grad.numpy() == 0).all()


def test_the_mean_is_over_what_is_not_ignored():
    """C01: one of two ignored, zero logits of four classes."""
    x = vtl.zeros(2, 4, dtype=vtl.float64, requires_grad=True)
    loss = nn.CrossEntropyLoss()(x, vtl.tensor([1, -100]))
    loss.backward()

    assert loss.item() == pytest.approx(log(4))
    np.testing.assert_allclose(x.grad.numpy(), [[0.25, -0.75, 0.25, 0.25], [0, 0, 0, 0]])
    assert nn.CrossEntropyLoss(ignore_index=1)(x, vtl.tensor([1, 2])).item() == pytest.approx(log(4))


def test_huge_logits_are_exact():
    """A03."""
    for target, expected in ((0, 0.0), (2, 20000.0)):
        x = vtl.tensor([[1e4, 0.0, -1e4]], requires_grad=True)
        loss = F.cross_entropy(x, vtl.tensor([target]))
        loss.backward()
        assert loss.item() == expected
        assert np.isfinite(x.grad.numpy()).all()
    assert x.grad.tolist() == [[1, 0, -1]]


def test_cross_entropy_of_images_is_that_of_their_pixels(draw):
    x, target = draw(2, 5, 3, 4), np.random.default_rng(0).integers(0, 5, (2, 3, 4))
    flat = x.numpy().transpose(0, 2, 3, 1).reshape(-1, 5)
    p = np.exp(flat) / np.exp(flat).sum(1, keepdims=True)
    each = -np.log(p[np.arange(24), target.reshape(-1)])

    assert F.cross_entropy(x, vtl.tensor(target)).item() == pytest.approx(each.mean(), rel=1e-12)
    np.testing.assert_allclose(
        F.cross_entropy(x, vtl.tensor(target), reduction="none").numpy().reshape(-1), each, rtol=1e-11
    )


@pytest.mark.parametrize("bad", [10, -1, 2**40])
def test_a_label_out_of_range_is_named(bad):
    here = rf"cross_entropy: label {bad} is outside \[0, 10\), the 10 classes"
    on_a_device = rf"gather: index {bad} is outside an axis of size 10"  # which says so at the next read
    with pytest.raises(vtl.IndexRangeError, match=f"{here}|{on_a_device}"):
        nn.CrossEntropyLoss()(vtl.zeros(3, 10), vtl.tensor([0, bad, 9])).item()


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int32", "uint64"])
@pytest.mark.parametrize("ignored", [-100, 1, 1000])
def test_labels_may_be_kept_in_any_integer_dtype(draw, dtype, ignored):
    """C01: the default ignore_index fits no unsigned byte, and is then the number of no label."""
    x = draw(3, 4, requires_grad=True)
    losses = [
        F.cross_entropy(x, vtl.tensor([0, 1, 3], dtype=each), ignore_index=ignored, reduction="sum")
        for each in (dtype, "int64")
    ]
    gradients = [vtl.grad(loss, [x])[0].numpy() for loss in losses]

    assert losses[0].item() == losses[1].item()
    np.testing.assert_array_equal(*gradients)


def test_shapes_must_fit():
    with pytest.raises(vtl.ShapeError, match=r"cross_entropy: logits \(3, 10\)"):
        F.cross_entropy(vtl.zeros(3, 10), vtl.tensor([0, 1]))
    with pytest.raises(vtl.ShapeError, match=r"mse_loss: input \(3, 1\) and target \(3,\)"):
        F.mse_loss(vtl.zeros(3, 1), vtl.zeros(3))


def test_mean_squared_error_and_its_gradient(draw):
    """MSE's gradient is 2 (x - t) / N."""
    x, t = draw(3, 4, requires_grad=True), draw(3, 4)
    loss = nn.MSELoss()(x, t)
    loss.backward()

    d = x.numpy() - t.numpy()
    assert loss.item() == pytest.approx((d**2).mean())
    np.testing.assert_allclose(x.grad.numpy(), 2 * d / 12)
    assert nn.MSELoss("sum")(x, t).item() == pytest.approx((d**2).sum())
    np.testing.assert_allclose(nn.MSELoss("none")(x, t).numpy(), d**2)


def test_what_is_not_here_is_refused_at_once():
    for options in ({"weight": vtl.ones(3)}, {"label_smoothing": 0.1}):
        with pytest.raises(vtl.UnsupportedError, match=f"{next(iter(options))} is not here"):
            nn.CrossEntropyLoss(**options)
        with pytest.raises(vtl.UnsupportedError, match="is not here"):
            F.cross_entropy(vtl.zeros(1, 3), vtl.tensor([0]), **options)
    for loss in (nn.CrossEntropyLoss, nn.MSELoss):
        with pytest.raises(vtl.AttributeValueError, match="reduction='max'"):
            loss(reduction="max")


def test_labels_that_are_no_integers_or_no_tensor_say_what_helps():
    logits = vtl.ones(4, 3)
    with pytest.raises(vtl.DTypeError, match=r"labels are float32; they must be integers: labels\.long\(\)$"):
        nn.CrossEntropyLoss()(logits, vtl.zeros(4))
    with pytest.raises(vtl.DTypeError, match=r"^cross_entropy: argument 2 is a NumPy array \(4,\), not a tensor"):
        nn.CrossEntropyLoss()(logits, np.zeros(4, int))
