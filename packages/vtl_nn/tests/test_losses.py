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
def test_a_label_out_of_range_is_named(device, bad):
    here = rf"cross_entropy: label {bad} is outside \[0, 10\), the 10 classes"
    on_a_device = rf"cross_entropy_rows: index {bad} is outside an axis of size 10"  # which says so at the next read
    with pytest.raises(vtl.IndexRangeError, match=f"{here}|{on_a_device}"):
        nn.CrossEntropyLoss()(vtl.zeros(3, 10, device=device), vtl.tensor([0, bad, 9], device=device)).item()


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


def each(loss, x, *rest, device="cpu", **options):
    """Losses and the gradient of their sum."""
    given = vtl.tensor(x, dtype=vtl.float32, device=device, requires_grad=True)
    losses = loss(given, *(vtl.tensor(r, dtype=vtl.float32, device=device) for r in rest), reduction="none", **options)
    losses.sum().backward()
    return losses.numpy(), given.grad.numpy()


def test_c04_binary_cross_entropy_of_large_logits(device):
    """C04: no infinity, no NaN, and a certain mistake costs its logit."""
    bce = F.binary_cross_entropy_with_logits
    losses, gradient = each(bce, [100, -100, 0, 1000, -1000], [1, 0, 1, 0, 1], device=device)
    np.testing.assert_allclose(losses, [0, 0, 0.69314718, 1000, 1000], rtol=1e-6, atol=1e-37)
    np.testing.assert_allclose(gradient, [0, 0, -0.5, 1, -1], rtol=1e-6, atol=1e-37)
    three = vtl.tensor(3.0, device=device)
    losses, _ = each(bce, [0, 2], [1, 0], device=device, pos_weight=three)
    np.testing.assert_allclose(losses, [2.0794415, 2.1269281], rtol=1e-6)
    assert each(bce, [-200], [1], device=device, pos_weight=three)[0] == 600
    losses, gradient = each(F.binary_cross_entropy, [0, 1, 0, 1], [1, 0, 0, 1], device=device)
    assert losses.tolist() == [100, 100, 0, 0]
    assert np.isfinite(gradient).all()


def test_c06_huber_and_smooth_l1_at_the_knee(device):
    """C06: quadratic up to the knee, linear beyond; beta 0 is the absolute error, without a NaN at 0."""
    d, zeros = [-2, -1, -0.5, 0, 0.5, 1, 2], [0.0] * 7
    losses, gradient = each(F.huber_loss, d, zeros, device=device)
    np.testing.assert_allclose(losses, [1.5, 0.5, 0.125, 0, 0.125, 0.5, 1.5])
    np.testing.assert_allclose(gradient, [-1, -1, -0.5, 0, 0.5, 1, 1])
    np.testing.assert_allclose(
        each(F.huber_loss, d, zeros, device=device, delta=0.5)[0], [0.875, 0.375, 0.125, 0, 0.125, 0.375, 0.875]
    )
    np.testing.assert_allclose(
        each(F.smooth_l1_loss, d, zeros, device=device, beta=0.5)[0], [1.75, 0.75, 0.25, 0, 0.25, 0.75, 1.75]
    )
    losses, gradient = each(F.smooth_l1_loss, d, zeros, device=device, beta=0)
    np.testing.assert_allclose(losses, np.abs(d))
    np.testing.assert_allclose(gradient, np.sign(d))
    for make in (lambda: nn.HuberLoss(delta=0), lambda: F.huber_loss(vtl.zeros(1), vtl.zeros(1), delta=-1)):
        with pytest.raises(vtl.AttributeValueError, match="must be above 0"):
            make()


def test_smoothed_and_weighted_cross_entropy_is_that_of_the_smoothed_targets(draw, device):
    """A label is the distribution that it stands for: both forms agree."""
    x = draw(5, 4, dtype=vtl.float32).to(device)
    labels, weight = np.array([3, 0, 1, 2, 2]), vtl.tensor([0.5, 1.0, 2.0, 0.25], device=device)
    hot = vtl.tensor(np.eye(4, dtype=np.float32)[labels], device=device)
    hard = nn.CrossEntropyLoss(weight=weight, reduction="none", label_smoothing=0.2)(
        x, vtl.tensor(labels, device=device)
    )
    soft = nn.CrossEntropyLoss(weight=weight, reduction="none", label_smoothing=0.2)(x, hot)
    np.testing.assert_allclose(hard.numpy(), soft.numpy(), rtol=1e-5, atol=1e-6)


def test_nll_of_log_softmax_is_cross_entropy(draw, device):
    x = draw(6, 5, dtype=vtl.float32).to(device)
    target = vtl.tensor([0, 4, -100, 2, 2, 1], device=device)
    for reduction in ("mean", "sum", "none"):
        np.testing.assert_allclose(
            F.nll_loss(F.log_softmax(x, 1), target, reduction=reduction).numpy(),
            F.cross_entropy(x, target, reduction=reduction).numpy(),
            rtol=1e-5,
            atol=1e-6,
        )


def test_focal_loss_is_lin_s(draw):
    """Against the paper's formula, from probabilities, in float64; gamma 0 and no alpha is binary cross-entropy."""
    x, y = draw(40), np.random.default_rng(1).integers(0, 2, 40).astype(float)
    p = 1 / (1 + np.exp(-x.numpy()))
    p_t, alpha_t = np.where(y == 1, p, 1 - p), np.where(y == 1, 0.25, 0.75)
    expected = -alpha_t * (1 - p_t) ** 2 * np.log(p_t)
    np.testing.assert_allclose(F.sigmoid_focal_loss(x, vtl.tensor(y)).numpy(), expected, rtol=1e-12)
    assert nn.FocalLoss()(x, vtl.tensor(y)).item() == pytest.approx(expected.mean())
    plain = F.sigmoid_focal_loss(x, vtl.tensor(y), alpha=-1, gamma=0)
    np.testing.assert_allclose(
        plain.numpy(), F.binary_cross_entropy_with_logits(x, vtl.tensor(y), reduction="none").numpy(), rtol=1e-13
    )
    assert vtl.check_gradients(lambda a: F.sigmoid_focal_loss(a, vtl.tensor(y), gamma=1.5), x.numpy()) < 1e-7


def test_hinge_and_ranking(draw):
    x, y = draw(30), np.where(np.arange(30) % 2, 1.0, -1.0)
    np.testing.assert_allclose(
        F.hinge_loss(x, vtl.tensor(y), "none").numpy(), np.maximum(0, 1 - y * x.numpy()), rtol=1e-14
    )
    assert nn.HingeLoss("sum", margin=0.5)(x, vtl.tensor(y)).item() == pytest.approx(
        np.maximum(0, 0.5 - y * x.numpy()).sum()
    )
    assert nn.MarginRankingLoss(0.2)(x, x, vtl.tensor(y)).item() == pytest.approx(0.2)


def test_b01_similarity_with_nothing_is_zero(device):
    """B01: cosine_similarity([0, 0], [1, 2]) is 0, its gradient finite; huge vectors do not overflow."""
    a = vtl.tensor([[0.0, 0.0], [3e30, 4e30]], device=device, requires_grad=True)
    y = F.cosine_similarity(a, vtl.tensor([[1.0, 2.0], [3e30, 4e30]], device=device))
    np.testing.assert_allclose(y.numpy(), [0, 1], rtol=1e-6)
    y.sum().backward()
    assert np.isfinite(a.grad.numpy()).all()


def test_wrong_options_are_named():
    for loss in (nn.CrossEntropyLoss, nn.MSELoss, nn.L1Loss, nn.KLDivLoss):
        with pytest.raises(vtl.AttributeValueError, match="reduction='max'"):
            loss(reduction="max")
    with pytest.raises(vtl.AttributeValueError, match=r"label_smoothing=1\.5 must lie in"):
        nn.CrossEntropyLoss(label_smoothing=1.5)
    with pytest.raises(vtl.ShapeError, match=r"cross_entropy: weight \(2,\) must be \(3,\), one a class"):
        F.cross_entropy(vtl.zeros(1, 3), vtl.tensor([0]), vtl.ones(2))
    with pytest.raises(vtl.ShapeError, match=r"l1_loss: input \(3, 1\) and target \(3,\) must have one shape"):
        F.l1_loss(vtl.zeros(3, 1), vtl.zeros(3))
    with pytest.raises(vtl.AttributeValueError, match="huber_loss: reduction='avg' must be one of"):
        F.huber_loss(vtl.zeros(3), vtl.zeros(3), reduction="avg")
    on_a_device = r"gather: index 7 is outside an axis of size 3"  # which says so at the next read
    with pytest.raises(vtl.IndexRangeError, match=rf"nll_loss: label 7 is outside \[0, 3\)|{on_a_device}"):
        F.nll_loss(vtl.zeros(1, 3), vtl.tensor([7])).item()


def test_labels_that_are_no_integers_or_no_tensor_say_what_helps():
    logits = vtl.ones(4, 3)
    with pytest.raises(vtl.DTypeError, match=r"labels are float32; they must be integers: labels\.long\(\)$"):
        nn.CrossEntropyLoss()(logits, vtl.zeros(4))
    with pytest.raises(vtl.DTypeError, match=r"^cross_entropy: argument 2 is a NumPy array \(4,\), not a tensor"):
        nn.CrossEntropyLoss()(logits, np.zeros(4, int))


@pytest.mark.parametrize("name", ["weight", "pos_weight"])
def test_a_weight_larger_than_the_losses_is_refused(name):
    """It would count each loss several times."""
    x, t = vtl.zeros(2), vtl.ones(2)
    with pytest.raises(vtl.ShapeError, match=rf"{name} \(3, 2\) must broadcast to the input \(2,\)"):
        F.binary_cross_entropy_with_logits(x, t, **{name: vtl.ones(3, 2)})
    many = F.binary_cross_entropy_with_logits(vtl.zeros(3, 2), vtl.ones(3, 2), **{name: vtl.full((2,), 2.0)})
    assert many.item() == pytest.approx(2 * log(2))
    with pytest.raises(vtl.ShapeError, match="binary_cross_entropy: weight"):
        F.binary_cross_entropy(x, t, weight=vtl.ones(3, 1))


@pytest.mark.parametrize("loss", [F.cross_entropy, F.nll_loss, F.mse_loss])
def test_what_is_no_tensor_is_refused_by_its_place(loss):
    x = vtl.zeros(2, 3)
    with pytest.raises(vtl.DTypeError, match="argument 2 is a list, not a tensor"):
        loss(x, [0, 1])
    with pytest.raises(vtl.DTypeError, match="argument 1 is a list, not a tensor"):
        loss([[0.0, 1.0]], vtl.tensor([0]))


@pytest.mark.parametrize("odd", [float("nan"), float("inf")])
@pytest.mark.parametrize("loss", [F.smooth_l1_loss, F.huber_loss, F.mse_loss])
def test_a_loss_that_is_no_number_has_a_gradient_that_is_none(device, loss, odd):
    """NaN, and inf - inf; a finite gradient there would hide that the step is bad. L1's sign of it is 0, as PyTorch's."""
    values = np.array([odd, 0.25, 3.0]), np.array([odd, 1.0, -1.0])
    x, y = (vtl.tensor(v, dtype=vtl.float32, device=device, requires_grad=True) for v in values)
    losses = loss(x, y, reduction="none")
    losses.sum().backward()

    for array in (losses, x.grad, y.grad):
        np.testing.assert_array_equal(np.isnan(array.numpy()), [True, False, False])


@pytest.mark.parametrize(
    ("loss", "arrays", "slope"),
    [
        (lambda x, y: F.hinge_loss(x, y, reduction="none"), ([1.0], [1.0]), -1),
        (lambda x, y: F.margin_ranking_loss(x, vtl.zeros_like(x), y, 0.5, "none"), ([0.5], [1.0]), -1),
        (lambda x, y: F.hinge_embedding_loss(x, y, 0.75, "none"), ([0.75], [-1.0]), -1),
    ],
    ids=["hinge", "ranking", "embedding"],
)
def test_at_the_margin_the_gradient_still_goes_through(device, loss, arrays, slope):
    """B12: the bound is included, as in clamp and in PyTorch's losses."""
    x, y = (vtl.tensor(a, dtype=vtl.float32, device=device) for a in arrays)
    x.requires_grad_(True)
    losses = loss(x, y)
    losses.sum().backward()

    assert losses.item() == 0
    assert x.grad.item() == slope


@pytest.mark.parametrize("target", [0.0, 1.0, 0.3])
@pytest.mark.parametrize("share", [-0.1, 1.1, -1e-6, 2.0, -50.0, float("nan"), float("inf")])
def test_a_share_that_is_none_is_nan_and_no_number(share, target):
    """ADR 0060: no check reads the device at each step; the NaN reaches the loss, where fit names the step."""
    x, y = vtl.tensor([share, 0.5]), vtl.tensor([target, target])

    losses = nn.functional.binary_cross_entropy(x, y, reduction="none").tolist()

    assert np.isnan(losses[0])
    assert np.isfinite(losses[1])
    assert np.isnan(nn.functional.binary_cross_entropy(x, y).item())


def test_a_divergence_from_what_is_no_distribution_is_nan():
    logarithms = vtl.tensor([0.5, 0.5]).log()
    assert np.isnan(nn.functional.kl_div(logarithms, vtl.tensor([-0.5, 1.5]), reduction="sum").item())


@pytest.mark.parametrize("size", [1e20, 1.0])
def test_cosine_embedding_of_long_vectors_is_that_of_their_directions(size, device):
    """B01, D09: a length's square may leave float32; a vector of length 0 is at right angles to all, and its gradient finite."""
    a = vtl.tensor([[size, size], [0, 0], [size, 0]], device=device, requires_grad=True)
    b = vtl.tensor([[size, 0], [1, 2], [0, size]], device=device)
    losses = F.cosine_embedding_loss(a, b, vtl.tensor([1, 1, -1], device=device), reduction="none")
    losses.sum().backward()

    np.testing.assert_allclose(losses.numpy(), [1 - 0.5**0.5, 1, 0], rtol=1e-5, atol=1e-6)
    assert np.isfinite(a.grad.numpy()).all()
