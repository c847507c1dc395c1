"""linear, softmax, the losses and the normalizations: values in every dtype and layout, and the traps that have names."""

from __future__ import annotations

import numpy as np
import pytest

from vsl_compute.conformance.placement import LAYOUTS
from vsl_compute.dtypes import float16, float32, float64
from vsl_compute.errors import AttributeValueError, IndexRangeError, ShapeError
from vsl_compute.validation import oracle_losses, oracle_ops

COMPOSITES = True  # its tests run with overrides and without
SPREAD = 16.0  # magnitude of log-probabilities drawn here


def half_steps(dtype, steps: float) -> float:
    """Room for results that a composite keeps in the dtype between its rows, a rounding each."""
    return 0.5 * steps if dtype.itemsize == 2 else 0


@pytest.mark.parametrize("layout", LAYOUTS)
def test_linear_agrees_with_its_meaning(subject, layout):
    for dtype in subject.floating():
        for shape in ((4, 5), (5,), (2, 3, 5), (0, 5)):
            x, w, b = (
                subject.place(dtype, layout, shape),
                subject.place(dtype, layout, (3, 5), turn=1),
                subject.place(dtype, "dense", (3,)),
            )
            scale = oracle_ops.linear(np.abs(x.host), np.abs(w.host), np.abs(b.host))
            ulp = subject.narrowed(4, dtype) + half_steps(dtype, 1)
            what = f"linear {dtype.name} {shape} {layout}"
            subject.close(
                subject.value("linear", x.view, w.view, b.view),
                oracle_ops.linear(x.host, w.host, b.host),
                dtype,
                ulp,
                what,
                scale,
            )
            subject.close(
                subject.value("linear", x.view, w.view), oracle_ops.linear(x.host, w.host), dtype, ulp, what, scale
            )


@pytest.mark.parametrize("layout", LAYOUTS)
def test_softmax_and_log_softmax_agree_with_their_meaning(subject, layout):
    for dtype in subject.floating():
        for shape, axis in (
            (((4, 7), -1), ((4, 7), 0), ((3, 5, 4), 1))
            if layout != "dense"
            else (((4, 7), -1), ((1, 1), 0), ((3, 129), 1), ((5,), 0), ((0, 3), 1), ((3, 0), 1))
        ):
            x = subject.place(dtype, layout, shape, (-8.0, 8.0))
            what = f"softmax {dtype.name} {shape} axis {axis} {layout}"
            y = oracle_losses.softmax(x.host, axis)
            # exp of a rounded difference: its error is that of the argument, up to 16 in magnitude
            ulp = subject.narrowed(16, dtype) + half_steps(dtype, 24)
            subject.close(subject.value("softmax", x.view, axis=axis), y, dtype, ulp, what)
            log_y = oracle_losses.log_softmax(x.host, axis)
            subject.close(
                subject.value("log_softmax", x.view, axis=axis),
                log_y,
                dtype,
                subject.narrowed(4, dtype) + half_steps(dtype, 2),
                f"log_{what}",
                SPREAD,
            )
            g, kept = subject.place(dtype, "dense", shape), subject.put(y, dtype)
            scale = (
                np.abs(y)
                * (np.abs(g.host).astype(np.longdouble) + np.sum(np.abs(g.host) * np.abs(y), axis=axis, keepdims=True))
                if x.host.size
                else None
            )
            got = subject.value("softmax_backward", g.view, kept, axis=axis)
            subject.close(
                got,
                oracle_losses.softmax_backward(g.host, kept.to_host(), axis),
                dtype,
                subject.narrowed(8, dtype) + half_steps(dtype, 6),
                f"{what} backward",
                scale,
            )
            kept = subject.put(log_y, dtype)
            got = subject.value("log_softmax_backward", g.view, kept, axis=axis)
            scale = np.abs(g.host).astype(np.longdouble) + np.sum(np.abs(g.host), axis=axis, keepdims=True)
            subject.close(
                got,
                oracle_losses.log_softmax_backward(g.host, kept.to_host(), axis),
                dtype,
                subject.narrowed(8, dtype) + half_steps(dtype, 4),
                f"log_{what} backward",
                scale,
            )


def test_a01_softmax_of_infinities(subject):
    """A01: -inf has probability 0; a row of nothing but -inf is NaN, as 0 / 0 is, never finite garbage."""
    for dtype in subject.floating():
        got = subject.value(
            "softmax",
            subject.put(np.array([[1, 2, -np.inf], [-np.inf] * 3, [1000, 1000, 0], [-1000, -1000, -1000]]), dtype),
            axis=1,
        )
        subject.close(
            got[0],
            np.array([0.26894142136999512, 0.73105857863000488, 0]),
            dtype,
            subject.narrowed(8, dtype) + half_steps(dtype, 2),
            "softmax",
        )
        assert np.isnan(got[1]).all(), dtype.name
        subject.close(
            got[2:],
            np.array([[0.5, 0.5, 0], [1 / 3, 1 / 3, 1 / 3]]),
            dtype,
            subject.narrowed(8, dtype) + 0.5,
            "softmax of large numbers",
        )


def test_a02_log_softmax_of_infinities(subject):
    """A02: log_softmax([-inf, 0, 0]) is [-inf, -ln 2, -ln 2]."""
    for dtype in subject.floating():
        got = subject.value("log_softmax", subject.put(np.array([-np.inf, 0, 0]), dtype))
        subject.close(
            got,
            np.array([-np.inf, -np.log(2), -np.log(2)]),
            dtype,
            subject.narrowed(4, dtype) + 0.5,
            f"log_softmax {dtype.name}",
        )


def test_softmax_rows_sum_to_one_and_ignore_a_shift(subject):
    for dtype in subject.floating():
        x = np.round(subject.rng.standard_normal((6, 33)) * 4)
        y, shifted = (subject.value("softmax", subject.put(v, dtype), axis=1).astype(float) for v in (x, x + 64))
        assert np.abs(y.sum(axis=1) - 1).max() < 33 * dtype.eps, dtype.name
        assert np.array_equal(y, shifted), dtype.name


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy_agrees_with_its_meaning(subject, reduction):
    for dtype in subject.floating():
        for layout in ("dense", "transposed", "stepped", "flipped"):
            x = subject.place(dtype, layout, (9, 5), (-8.0, 8.0))
            target = subject.rng.integers(0, 5, 9)
            target[::4] = 2
            options = {"reduction": reduction, "ignore_index": 2}
            what = f"cross_entropy {dtype.name} {layout} {reduction}"
            loss, _, count = subject.run("cross_entropy", x.view, subject.put(target), **options)
            scale = SPREAD * (9 if reduction == "sum" else 1)
            ulp = subject.narrowed(4, dtype) + half_steps(dtype, 4)
            subject.close(
                loss.to_host(),
                oracle_losses.cross_entropy(x.host, target, None, 2, reduction)[0],
                dtype,
                ulp,
                what,
                scale,
            )
            g = subject.place(dtype, "dense", loss.shape)
            got = subject.value("cross_entropy_backward", g.view, x.view, subject.put(target), count, **options)
            expected = oracle_losses.cross_entropy_backward(g.host, x.host, target, 2, reduction)
            subject.close(
                got,
                expected,
                dtype,
                subject.narrowed(32, dtype) + half_steps(dtype, 24),
                f"{what} backward",
                np.abs(g.host).max(),
            )


def test_cross_entropy_over_places_is_that_over_rows(subject):
    x = subject.place(float32, "dense", (2, 5, 3, 4))
    target = subject.rng.integers(0, 5, (2, 3, 4))
    rows = np.moveaxis(x.host, 1, -1).reshape(-1, 5)
    got = subject.value("cross_entropy", x.view, subject.put(target))[0]
    subject.close(got, oracle_losses.cross_entropy(rows, target.ravel())[0], float32, 8, "cross_entropy of images", 8.0)


def test_a03_cross_entropy_of_huge_logits(subject):
    """A03: [1e4, 0, -1e4] with target 2 loses exactly 20000; with target 0, nothing."""
    x = subject.put(np.array([[1e4, 0, -1e4]], np.float32))
    assert subject.value("cross_entropy", x, subject.put(np.array([2])))[0] == 20000
    assert subject.value("cross_entropy", x, subject.put(np.array([0])))[0] == 0
    loss, _, count = subject.run("cross_entropy", x, subject.put(np.array([2])))
    got = subject.value(
        "cross_entropy_backward", subject.put(np.array(1, np.float32)), x, subject.put(np.array([2])), count
    )
    assert loss.to_host() == 20000
    assert got.tolist() == [[1, 0, -1]]


@pytest.mark.parametrize("offset", [0.0, 1e4, -1e6])
def test_logits_far_from_zero_keep_their_differences(subject, offset):
    """Losses and gradients of logits that are moved together are the same to a few ULP of 1, whatever the offset."""
    near = np.round(subject.rng.uniform(-4, 4, (5, 7)) * 16) / 16
    far, target, g = (near + offset).astype(np.float32), np.arange(5), np.ones(5, np.float32)
    assert (far - np.float32(offset) == near).all(), "nothing is rounded by moving"
    logs = near - np.log(np.exp(near).sum(1, keepdims=True))
    p, x, labels = np.exp(logs), subject.put(far), subject.put(target)
    loss, _, count = subject.run("cross_entropy", x, labels, reduction="none")
    subject.close(loss.to_host(), -logs[target, target], float32, 8, f"losses at {offset}", 8.0)
    dx = subject.value("cross_entropy_backward", subject.put(g), x, labels, count, reduction="none")
    subject.close(dx, p - np.eye(5, 7), float32, 8, f"gradients at {offset}", 1.0)
    subject.close(subject.value("log_softmax", x), logs, float32, 8, f"log_softmax at {offset}", 8.0)
    soft = subject.value("soft_cross_entropy", x, subject.put(p.astype(np.float32)), reduction="none")
    subject.close(soft, -(p * logs).sum(1), float32, 16, f"soft losses at {offset}", 8.0)


def test_c01_targets_that_do_not_count(subject):
    """C01: all ignored: mean is NaN, sum 0, none zeros, and the gradient zeros in every mode."""
    x = subject.place(float32, "dense", (3, 4))
    target = subject.put(np.full(3, -100))
    known = {"mean": np.nan, "sum": 0, "none": np.zeros(3)}
    for reduction, value in known.items():
        loss, _, count = subject.run("cross_entropy", x.view, target, reduction=reduction)
        assert np.array_equal(loss.to_host(), np.asarray(value, np.float32), equal_nan=True), reduction
        g = subject.put(np.ones(loss.shape, np.float32))
        assert not subject.value("cross_entropy_backward", g, x.view, target, count, reduction=reduction).any(), (
            reduction
        )
    zeros = subject.put(np.zeros((2, 4), np.float32))
    half = subject.value("cross_entropy", zeros, subject.put(np.array([1, -100])))[0]
    assert half == pytest.approx(np.log(4), rel=1e-6)


def test_targets_out_of_range_are_an_error(subject):
    x = subject.place(float32, "dense", (2, 3)).view
    for bad in (3, -1):
        with pytest.raises(IndexRangeError):
            subject.value("cross_entropy", x, subject.put(np.array([0, bad])))
    with pytest.raises(AttributeValueError, match="cross_entropy: reduction='avg'"):
        subject.run("cross_entropy", x, subject.put(np.array([0, 1])), reduction="avg")
    with pytest.raises(ShapeError, match=r"cross_entropy: logits \(2, 3\)"):
        subject.run("cross_entropy", x, subject.put(np.array([0, 1, 2])))


def test_mse_agrees_with_its_meaning(subject):
    for dtype in subject.floating():
        x, y = subject.place(dtype, "transposed", (5, 7)), subject.place(dtype, "stepped", (5, 7))
        squares = (x.host.astype(np.longdouble) - y.host) ** 2
        for reduction, expected in (("none", squares), ("sum", squares.sum()), ("mean", squares.mean())):
            got = subject.value("mse_loss", x.view, y.view, reduction=reduction)
            subject.close(
                got,
                expected,
                dtype,
                subject.narrowed(6, dtype) + half_steps(dtype, 4),
                f"mse_loss {dtype.name} {reduction}",
            )
    with pytest.raises(ShapeError, match=r"mse_loss: .*\(5, 7\) and target \(7,\)"):
        subject.run("mse_loss", x.view, subject.place(float32, "dense", (7,)).view)


def norms(subject, dtype, layout, shape):
    x = subject.place(dtype, layout, shape)
    w, b = (subject.place(dtype, "dense", (shape[1],)) for _ in range(2))
    return x, w, b


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "broadcast"])
def test_batch_norm_agrees_with_its_meaning(subject, layout):
    """Values, saved moments, eval mode, and the three gradients."""
    for dtype in subject.floating():
        for shape in ((6, 4), (3, 4, 5), (2, 4, 3, 5)):
            x, w, b = norms(subject, dtype, layout, shape)
            what, axes = f"batch_norm {dtype.name} {shape} {layout}", tuple(a for a in range(len(shape)) if a != 1)
            x_hat, mean, rstd = oracle_losses.standardized(x.host, axes, 1e-5)
            size = float(np.max(np.abs(x.host)) * np.max(rstd) * np.max(np.abs(w.host)) + np.max(np.abs(b.host)))
            y, got_mean, got_var = subject.run("batch_norm", x.view, w.view, b.view, eps=1e-5)
            subject.close(
                y.to_host(),
                oracle_losses.batch_norm(x.host, w.host, b.host),
                dtype,
                subject.narrowed(8, dtype),
                what,
                size,
            )
            stat = float64 if dtype is float64 else float32
            subject.close(got_mean.to_host(), mean.ravel(), stat, 4, f"{what} mean", float(np.max(np.abs(x.host))))
            subject.close(
                got_var.to_host(), np.var(x.host.astype(np.longdouble), axis=axes), stat, 16, f"{what} variance"
            )
            plain = subject.value("batch_norm", x.view)[0]
            subject.close(
                plain,
                x_hat,
                dtype,
                subject.narrowed(8, dtype),
                f"{what} plain",
                float(np.max(np.abs(x.host)) * np.max(rstd)),
            )
            running = subject.put(np.linspace(-1, 1, 4), dtype), subject.put(np.linspace(0.5, 2, 4), dtype)
            expected = oracle_losses.batch_norm(
                x.host, w.host, b.host, 1e-5, running[0].to_host(), running[1].to_host()
            )
            got = subject.value("batch_norm_eval", x.view, *running, w.view, b.view)
            subject.close(
                got, expected, dtype, subject.narrowed(8, dtype) + half_steps(dtype, 16), f"{what} eval", 4 * size
            )
            g = subject.place(dtype, "dense", shape)
            dx, dw, db = subject.value("batch_norm_backward", g.view, x.view, got_mean, got_var, w.view)
            if dtype is float16:  # they come in the moments' dtype, from terms that were rounded to float16
                assert dw.dtype == db.dtype == np.float32
                dw, db = dw.astype(np.float16), db.astype(np.float16)
            wide_g = g.host.astype(np.longdouble)
            channel = (1, 4) + (1,) * (len(shape) - 2)
            expected = oracle_losses.standardized_backward(wide_g * w.host.reshape(channel), x.host, axes, 1e-5)
            bound = 8 * float(np.max(rstd) * np.max(np.abs(w.host)))
            subject.close(dx, expected, dtype, subject.narrowed(16, dtype) + half_steps(dtype, 8), f"{what} dx", bound)
            count = x.host.size / 4
            subject.close(
                dw,
                np.sum(wide_g * x_hat, axis=axes),
                dtype,
                subject.narrowed(16, dtype) + half_steps(dtype, 4),
                f"{what} dweight",
                4 * count,
            )
            subject.close(db, np.sum(wide_g, axis=axes), dtype, subject.narrowed(4, dtype), f"{what} dbias", 4 * count)


def test_layer_and_group_norm_agree_with_their_meaning(subject):
    for dtype in subject.floating():
        for layout in LAYOUTS:
            x = subject.place(dtype, layout, (3, 6, 5))
            size = float(np.max(np.abs(x.host)) * 8 + 4)
            ulp = subject.narrowed(16, dtype)
            if layout != "broadcast":
                for shape in ((5,), (6, 5)):
                    w, b = subject.place(dtype, "dense", shape), subject.place(dtype, "dense", shape)
                    expected = oracle_losses.layer_norm(x.host, w.host, b.host, axes=len(shape))
                    got = subject.value("layer_norm", x.view, w.view, b.view, normalized_shape=shape)[0]
                    subject.close(got, expected, dtype, ulp, f"layer_norm {dtype.name} {shape} {layout}", size)
            w, b = subject.place(dtype, "dense", (6,)), subject.place(dtype, "dense", (6,))
            for groups in (1, 2, 3):
                expected = oracle_losses.group_norm(x.host, groups, w.host, b.host)
                got = subject.value("group_norm", x.view, w.view, b.view, num_groups=groups)[0]
                subject.close(
                    got, expected, dtype, ulp + half_steps(dtype, 4), f"group_norm {dtype.name} {groups} {layout}", size
                )
                got = subject.value("group_norm", x.view, num_groups=groups)[0]
                subject.close(
                    got,
                    oracle_losses.group_norm(x.host, groups),
                    dtype,
                    ulp,
                    f"group_norm {dtype.name} {groups} {layout} plain",
                    size,
                )


def test_a06_layer_norm_of_half_numbers_whose_variance_overflows(subject):
    """A06: 300 and -300 in float16 become exactly 1 and -1, though their squares are infinite there."""
    if float16 in subject.dtypes("f") and subject.computes(float16):
        x = subject.put(np.tile([300.0, -300.0], (2, 32)), float16)
        got = subject.value("layer_norm", x, normalized_shape=(64,))[0]
        assert got.tolist() == np.tile([1.0, -1.0], (2, 32)).tolist()


def test_d07_batch_norm_normalizes_by_the_biased_variance(subject):
    """D07: column [1, 2, 4] with eps 1e-5."""
    column = subject.put(np.array([[1], [2], [4]], np.float32))
    y, mean, variance = subject.value("batch_norm", column)
    assert y[:, 0] == pytest.approx([-1.0690415, -0.2672604, 1.3363019], rel=1e-6)
    assert (float(mean[0]), float(variance[0])) == pytest.approx((7 / 3, 14 / 9), rel=1e-6)


def test_d09_layer_norm_of_constant_and_extreme_rows(subject):
    """D09: constants become 0 (no rounding of the mean amplified); [1e30, -1e30] is never NaN; small rows are ruled by eps."""
    for row, expected in (
        ([3.0] * 4, [0] * 4),
        ([0.1] * 7, [0] * 7),
        ([1, 2, 3, 4], [-1.3416355, -0.4472118, 0.4472118, 1.3416355]),
        ([1e-4, 2e-4], [-0.0158094, 0.0158094]),
    ):
        got = subject.value("layer_norm", subject.put(np.array([row], np.float32)), normalized_shape=(len(row),))[0]
        assert got[0] == pytest.approx(expected, rel=1e-5, abs=1e-6), row
    huge = subject.value("layer_norm", subject.put(np.array([[1e30, -1e30]], np.float32)), normalized_shape=(2,))[0]
    assert not np.isnan(huge).any()
    assert huge[0].tolist() in ([1, -1], [0, 0])


def test_normalizations_refuse_what_does_not_fit_by_name(subject):
    x = subject.place(float32, "dense", (2, 6, 3)).view
    six = subject.place(float32, "dense", (5,)).view
    with pytest.raises(ShapeError, match=r"batch_norm: weight \(5,\) must be \(6,\)"):
        subject.run("batch_norm", x, six, six)
    with pytest.raises(ShapeError, match=r"layer_norm: normalized_shape \(4,\)"):
        subject.run("layer_norm", x, normalized_shape=(4,))
    with pytest.raises(AttributeValueError, match="group_norm: num_groups=4"):
        subject.run("group_norm", x, num_groups=4)
    with pytest.raises(ShapeError, match=r"batch_norm: input \(5,\)"):
        subject.run("batch_norm", six)
