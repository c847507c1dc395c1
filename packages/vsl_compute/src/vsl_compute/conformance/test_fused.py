"""Rows of every length through softmax and the norms: those that a fused kernel holds, and those that it leaves to the body."""

from __future__ import annotations

import numpy as np
import pytest

from ..dtypes import float32
from ..ops.table import find
from ..validation import oracle_losses

LENGTHS = (1, 3, 16, 31, 64, 65, 100, 256, 257, 1024, 1026, 2052, 4096, 9000)


def eight(subject, shape):
    """Random numbers, among them a row that begins four elements or one before where vectors are aligned."""
    return subject.place(float32, "dense", shape, (-8.0, 8.0))


@pytest.mark.parametrize("n", LENGTHS)
def test_rows_of_any_length_agree_with_their_meaning(subject, n):
    for rows in (1, 5):
        x, g = eight(subject, (rows, n)), eight(subject, (rows, n))
        y = oracle_losses.softmax(x.host, 1)
        subject.close(subject.value("softmax", x.view, axis=1), y, float32, 24, f"softmax {rows} x {n}")
        log_y = oracle_losses.log_softmax(x.host, 1)
        subject.close(subject.value("log_softmax", x.view, axis=1), log_y, float32, 8, f"log_softmax {rows} x {n}", 16)
        kept = subject.put(y, float32)
        scale = np.abs(y) * 8 * 2 + np.finfo(np.float32).tiny
        got = subject.value("softmax_backward", g.view, kept, axis=1)
        want = oracle_losses.softmax_backward(g.host, kept.to_host(), 1)
        subject.close(got, want, float32, 16, f"softmax_backward {rows} x {n}", scale)
        w, b = eight(subject, (n,)), eight(subject, (n,))
        expected = oracle_losses.layer_norm(x.host, w.host, b.host)
        got, mean, variance = subject.value("layer_norm", x.view, w.view, b.view, normalized_shape=(n,))
        subject.close(got, expected, float32, 16, f"layer_norm {rows} x {n}", 1024 if n > 3 else 1e5)
        wide = x.host.astype(np.longdouble)
        subject.close(mean, wide.mean(1, keepdims=True), float32, 4, f"mean {rows} x {n}", 8)
        subject.close(variance, wide.var(1, keepdims=True), float32, 8, f"variance {rows} x {n}", 64)


@pytest.mark.parametrize("n", [3, 64, 129, 1024])
def test_input_gradient_of_layer_norm_agrees_with_its_meaning(subject, n):
    x, g, w = (eight(subject, shape) for shape in ((5, n), (5, n), (n,)))
    wide = x.host.astype(np.longdouble)
    mean, variance = wide.mean(1, keepdims=True), wide.var(1, keepdims=True)
    for weight in (None, w):
        gw = g.host.astype(np.longdouble) * (1 if weight is None else weight.host)
        rstd = 1 / np.sqrt(variance + np.longdouble(1e-5))
        xhat = (wide - mean) * rstd
        want = rstd * (gw - gw.mean(1, keepdims=True) - xhat * (gw * xhat).mean(1, keepdims=True))
        moments = (subject.put(mean, float32), subject.put(variance, float32))
        args = (g.view, x.view, *moments, None if weight is None else weight.view)
        got = subject.value("layer_norm_input", *args, normalized_shape=(n,))
        subject.close(got, want, float32, 64, f"layer_norm_input of {n}", float(np.max(rstd) * 64))


def test_rows_that_begin_anywhere_and_lie_in_any_order_agree_with_dense_ones(subject):
    rng = np.random.default_rng(11)
    host = rng.normal(size=(6, 5, 64)).astype(np.float32)
    want = oracle_losses.softmax(host[:, :, 1:], 2)
    base = subject.put(host, float32)
    whole = slice(None)
    subject.close(
        subject.value("softmax", base.slice(whole, whole, slice(1, None)), axis=2), want, float32, 24, "sliced"
    )
    moved = subject.put(np.ascontiguousarray(host.transpose(2, 0, 1)), float32).permute((1, 2, 0))
    subject.close(
        subject.value("softmax", moved, axis=2), oracle_losses.softmax(host, 2), float32, 24, "axis 0 of memory"
    )
    inner = subject.put(np.ascontiguousarray(host.transpose(0, 2, 1)), float32).permute((0, 2, 1))
    got = subject.value("softmax", inner.permute((0, 2, 1)), axis=1)
    subject.close(got, oracle_losses.softmax(host, 2).transpose(0, 2, 1), float32, 24, "the middle axis")
    last = subject.put(host, float32).permute((0, 2, 1))
    got = subject.value("softmax", last, axis=1)  # a channel axis that is innermost in memory
    subject.close(got, oracle_losses.softmax(host, 2).transpose(0, 2, 1), float32, 24, "channels last")


def test_a_body_and_its_override_agree_in_every_floating_dtype(subject):
    """Both are tested against the oracle; here a row of half numbers whose sum is no half."""
    for dtype in subject.floating():
        x = subject.put(np.zeros((2, 4000)), dtype)
        got = subject.value("softmax", x, axis=1).astype(np.float64)
        np.testing.assert_allclose(got, 1 / 4000, rtol=2.0**-7 if dtype.itemsize == 2 else 1e-6, err_msg=dtype.name)


def test_fused_rows_leave_nothing_to_the_op_but_its_name(subject):
    """An override is found by the op's name; a body that was renamed would lose its kernel in silence."""
    from ..rows.fused import FUSED

    for row in FUSED:
        op = find(row.name)
        assert op.names == row.args, row.name
        assert op.signature == row.signature, row.name
        assert set(row.scalars) <= set(op.attributes), row.name
