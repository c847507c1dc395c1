"""Batch normalization's kernels, and a ReLU's with them: on OpenCL alone and in groups, and on a simulated CUDA device."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from vsl_compute.backends.opencl.backend import OpenCLBackend
from vsl_compute.backends.shared import batch_norm, fused
from vsl_compute.backends.shared.batch_norm import BACKWARD, FORWARD, places_of
from vsl_compute.dispatch import asarray, overrides, run
from vsl_compute.dtypes import float32
from vsl_compute.view import Layout, View

EPS = {"float64": 2.0**-52, "float32": 2.0**-23, "bfloat16": 2.0**-8, "float16": 2.0**-11}  # a rounding of the storage
SHAPES = {
    "an element a channel": (2, 8, 1, 1),
    "one channel": (3, 1, 5, 3),
    "three channels": (4, 3, 5, 7),
    "channels past a group's": (5, 132, 2, 2),
    "odd channels": (3, 65, 2, 1),
    "no images": (70, 12),
    "sequences": (2, 16, 9),
    "parts": (48, 4, 16, 16),
    "one image": (1, 20, 4, 8),
}


@pytest.fixture(params=["opencl", "groups", "cuda"])
def device(request):
    if request.param == "cuda":
        yield request.getfixturevalue("simulated_device")
        return
    opencl = request.getfixturevalue("opencl")
    if request.param == "opencl":
        yield opencl
        return
    backend = OpenCLBackend(opencl.info, opencl.programs._device, group=64)
    yield backend
    backend.close()


def placed(device, host, dtype, order, shift=0):
    """The array in C order, channels last, or with other strides; `shift` elements into its buffer."""
    axes = {"C": (*range(host.ndim),), "last": (0, *range(2, host.ndim), 1), "turned": (*range(host.ndim),)[::-1]}[
        order
    ]
    flat = np.concatenate([np.zeros(shift), host.transpose(axes).ravel()])
    view = asarray(device, flat, dtype)
    dense = View(view.buffer, Layout.of(view.dtype, tuple(host.shape[a] for a in axes)), shift)
    return dense.permute(tuple(axes.index(a) for a in range(host.ndim)))


class Drawn:
    """Arguments on a device, and what NumPy makes of them in float64."""

    def __init__(self, rng, device, shape, dtype, order, *, affine=(True, True), mean=0.0, shift=0, others=None):
        wide = "float64" if dtype == "float64" else "float32"
        self.eps, self.wide = EPS[dtype], EPS[wide]

        def array(host, order):
            view = placed(device, host, dtype, order, shift)
            return view, view.to_host().astype(np.float64)

        self.x, x = array(rng.standard_normal(shape) * 1.5 + mean, order)
        self.r, self.residual = array(rng.standard_normal(shape), others or order)
        self.g, self.arriving = array(rng.standard_normal(shape), others or order)
        vectors = [asarray(device, rng.uniform(0.5, 2, shape[1]), wide) if a else None for a in affine]
        self.w, self.b = vectors
        self.axes, self.channel = (0, *range(2, len(shape))), (1, shape[1], *(1,) * (len(shape) - 2))
        weight, bias = (
            d if v is None else v.to_host().astype(np.float64).reshape(self.channel)
            for v, d in zip(vectors, (1, 0), strict=True)
        )
        self.count = prod(shape) // shape[1]
        self.mean, self.variance = x.mean(self.axes, keepdims=True), x.var(self.axes, keepdims=True)
        self.rstd, self.weight = 1 / np.sqrt(self.variance + 1e-5), weight
        self.x_hat = (x - self.mean) * self.rstd
        self.normalized = self.x_hat * weight + bias
        # what a rounding of the mean comes to once it is divided by the deviation
        self.unit = 1 + np.abs(x).max() * self.rstd.max() * self.wide / self.eps

    def forward(self, name):
        """The op's results, and those that are right."""
        got = run(name, *((self.x, self.r) if "add" in name else (self.x,)), self.w, self.b, eps=1e-5)
        y = self.normalized + (self.residual if "add" in name else 0)
        return got, (y if name == FORWARD[0] else np.maximum(y, 0), self.mean.ravel(), self.variance.ravel())

    def backward(self, name, y, mean, variance):
        """Likewise, of the way back from y."""
        lead = (self.g, y, self.x) if "add" in name else (self.g, self.x)
        got = run(name, *lead, mean, variance, self.w, *((self.b,) if name == BACKWARD[1] else ()), eps=1e-5)
        d = self.arriving if name == BACKWARD[0] else np.where(y.to_host().astype(np.float64) > 0, self.arriving, 0)
        total, along = d.sum(self.axes, keepdims=True), (d * self.x_hat).sum(self.axes, keepdims=True)
        dx = self.rstd * self.weight * (d - total / self.count - self.x_hat * along / self.count)
        return got, (dx, along.ravel(), total.ravel(), d)

    def check(self, name):
        """Both ways, within roundings."""
        got, wanted = self.forward(name)
        top, root = np.abs(wanted[0]).max() + 1, np.sqrt(self.count)
        near(got[0], wanted[0], 4 * self.eps * self.unit * top)
        near(got[1], wanted[1], 4 * self.wide * (np.abs(self.mean).max() + 1))
        near(
            got[2],
            wanted[2],
            8 * self.wide * (np.abs(self.mean).max() + 1) * np.sqrt(self.variance.max() + 1)
            + self.variance * 8 * self.wide,
        )
        back, wanted = self.backward(f"{name}_backward", *got)
        scale = (np.abs(self.rstd * self.weight).max() + 1) * 8 * self.unit
        near(back[0], wanted[0], self.eps * scale * 4)
        near(back[1], wanted[1], self.wide * scale * self.unit * root * 4)
        near(back[2], wanted[2], self.wide * scale * root * 4)
        if "add" in name:
            np.testing.assert_array_equal(back[3].to_host(), wanted[3])
        return got, back


def near(got, wanted, room):
    __tracebackhide__ = True
    assert got.shape == wanted.shape
    off = np.abs(got.to_host().astype(np.float64) - wanted)
    assert (off <= np.ravel(room).max()).all(), f"off by {off.max()}, room {np.max(room)}"


@pytest.mark.parametrize("order", ["C", "last"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_both_ways_are_right_in_either_order_of_memory(device, rng, shape, order):
    for name in FORWARD:
        got, back = Drawn(rng, device, shape, "float32", order).check(name)
        assert (
            places_of(got[0].layout)
            == places_of(back[0].layout)
            == places_of(placed(device, np.zeros(shape), "float32", order).layout)
        )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_narrow_and_wide_dtypes_are_summed_in_one_that_is_wide_enough(device, rng, dtype):
    for name, order in zip(FORWARD[1:], ("C", "last"), strict=True):
        Drawn(rng, device, (24, 12, 4, 4), dtype, order).check(name)


def test_vectors_may_be_left_out_and_arrays_may_lie_anywhere(device, rng):
    """Without weight, bias or both; off the border of four elements; in another order than x, or in none."""
    plain, relu, add = FORWARD
    for name, order, options in (
        (plain, "last", {"affine": (True, False)}), (relu, "last", {"affine": (False, True)}), (add, "last", {"affine": (False, False)}),
        (relu, "C", {"shift": 3}), (add, "last", {"others": "C"}), (plain, "C", {"others": "turned"}), (add, "turned", {}),
    ):  # fmt: skip
        Drawn(rng, device, (4, 8, 3, 4), "float32", order, **options).check(name)


@pytest.mark.parametrize("order", ["C", "last"])
def test_a_large_mean_takes_no_digits_from_a_small_variance(device, rng, order):
    """Sums of squares would leave nothing of it: 1e6 over 1."""
    host = rng.standard_normal((64, 4, 8, 8)) + 1000
    x = placed(device, host, "float32", order)
    exact = x.to_host().astype(np.float64)
    _, mean, variance = run("batch_norm_relu", x, None, None, eps=1e-5)
    np.testing.assert_allclose(mean.to_host(), exact.mean((0, 2, 3)), rtol=3e-7)
    np.testing.assert_allclose(variance.to_host(), exact.var((0, 2, 3)), rtol=2e-5)


@pytest.mark.parametrize("order", ["C", "last"])
def test_nan_stays_in_its_channel_and_is_let_pass(device, rng, order):
    host = rng.standard_normal((6, 8, 3, 2))
    host[2, 5, 1, 1] = np.nan
    x, g = placed(device, host, "float32", order), placed(device, np.ones(host.shape), "float32", order)
    for name in FORWARD:
        y, mean, variance = run(name, *((x, g) if "add" in name else (x,)), None, None, eps=1e-5)
        dx = run(f"{name}_backward", *((g, y, x) if "add" in name else (g, x)), mean, variance, None, eps=1e-5)[0]
        for found in (y, mean, variance, dx):
            wrong = np.isnan(found.to_host())
            axis = 0 if wrong.ndim == 1 else 1
            assert wrong.take(5, axis).all()
            assert not np.delete(wrong, 5, axis).any()


def test_bits_are_the_same_each_time_and_by_the_body_nearly_so(device, rng):
    drawn = Drawn(rng, device, (48, 8, 8, 8), "float32", "last")
    for name in FORWARD:
        once, back = drawn.check(name)
        again, _ = drawn.forward(name)
        for a, b in zip(once, again, strict=True):
            np.testing.assert_array_equal(a.to_host(), b.to_host())
        with overrides(False):
            other, _ = drawn.forward(name)
            other_back, _ = drawn.backward(f"{name}_backward", *once)
        for a, b in zip((*once, *back), (*other, *other_back), strict=True):
            np.testing.assert_allclose(a.to_host(), b.to_host(), rtol=1e-4, atol=2e-4)


def test_vectors_may_have_strides(device, rng):
    drawn = Drawn(rng, device, (6, 8, 3, 2), "float32", "last")
    strided = placed(device, np.stack([drawn.w.to_host(), np.zeros(8)], 1).astype(np.float64), "float32", "C").slice(
        slice(None), 0
    )
    once, _ = drawn.forward("batch_norm_relu")
    drawn.w = strided
    again, _ = drawn.forward("batch_norm_relu")
    np.testing.assert_array_equal(once[0].to_host(), again[0].to_host())


def test_an_empty_batch_is_the_bodys(device):
    x = asarray(device, np.zeros((0, 3, 2, 2), np.float32))
    for name in FORWARD:
        y, mean, _ = run(name, *((x, x) if "add" in name else (x,)), None, None, eps=1e-5)
        assert y.shape == x.shape
        assert np.isnan(mean.to_host()).all()
        back = run(f"{name}_backward", *((x, y, x) if "add" in name else (x, x)), mean, mean, None, eps=1e-5)
        assert back[0].shape == x.shape
        assert not back[1].to_host().any()


def test_a_residual_of_another_shape_is_refused(device):
    x, r = (asarray(device, np.zeros(s, np.float32)) for s in ((2, 3, 4), (2, 3, 1)))
    with pytest.raises(
        ValueError, match=r"batch_norm_add_relu: residual \(2, 3, 1\) must have the input's shape, \(2, 3, 4\)"
    ):
        run("batch_norm_add_relu", x, r)


@pytest.mark.parametrize("shape", [(64, 16, 8, 8), (4, 8, 4, 4)], ids=["parts", "whole"])
def test_on_cuda_a_step_is_two_launches_each_way(simulated_device, rng, shape):
    """Groups count each other, so that the last of them joins what was summed, and the counters are 0 again for the next."""
    runtime = simulated_device.cupy
    for order in ("C", "last"):
        drawn = Drawn(rng, simulated_device, shape, "float32", order)
        for name in FORWARD:
            drawn.check(name)
            before = runtime.launches
            got, _ = drawn.forward(name)
            assert runtime.launches - before == 2
            lead = (drawn.g, got[0], drawn.x) if "add" in name else (drawn.g, drawn.x)
            run(f"{name}_backward", *lead, *got[1:], drawn.w, eps=1e-5)
            assert runtime.launches - before == 4
    assert not simulated_device.counters().to_host().any()


class Interrupted(dict):
    """Plans, right after the first of which another thread finds that there are too many."""

    def __init__(self, other):
        super().__init__()
        self.other = other

    def __setitem__(self, key, plan):
        super().__setitem__(key, plan)
        other, self.other = self.other, lambda: None
        other()


@pytest.mark.parametrize("kind", ["norms", "fused rows"])
def test_plans_that_another_thread_lets_go_of_are_there_for_the_call_that_made_them(opencl, rng, monkeypatch, kind):
    module, name, options = {
        "norms": (batch_norm, "batch_norm", {"eps": 1e-5}),
        "fused rows": (fused, "softmax", {"axis": 1}),
    }[kind]
    owner = batch_norm.BatchNorms(opencl, 1, lambda: None) if kind == "norms" else fused.FusedRows(
        opencl, fused.TextLauncher(opencl), group=4, vectors=False)  # fmt: skip
    monkeypatch.setattr(module, "PLAN_LIMIT", 0)
    one, other = (asarray(opencl, rng.standard_normal(shape).astype(np.float32)) for shape in ((6, 4), (5, 8)))
    call = owner.overrides()[name]
    more = (None, None) if kind == "norms" else ()
    owner._plans = Interrupted(lambda: call(other, *more, **options))
    got = call(one, *more, **options)
    expected = run(name, one, *more, **options)
    for a, b in zip(*(v if isinstance(v, tuple) else (v,) for v in (got, expected)), strict=True):
        np.testing.assert_allclose(a.to_host(), b.to_host(), rtol=1e-6)


def test_memory_is_counted_by_how_it_lies():
    def layout(*axes):
        shape = (2, 3, 4, 5)
        dense = Layout.of(float32, tuple(shape[a] for a in axes))
        return places_of(Layout.of(float32, shape, tuple(dense.strides[axes.index(a)] for a in range(4))))

    assert layout(0, 1, 2, 3) == (2, 3, 20)
    assert layout(0, 2, 3, 1) == (40, 3, 1)
    assert layout(0, 1, 3, 2) is None
    assert places_of(Layout.of(float32, (7, 3))) == (7, 3, 1)
    assert places_of(Layout.of(float32, (7, 3, 1, 1))) == (7, 3, 1)
