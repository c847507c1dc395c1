"""Calls made ready: what a second call of the same layouts takes is what the first one computed, and nothing else."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import simulated_cuda  # conftest.py has brought it

import vsl_compute as vsl
from vsl_compute.dispatch import asarray, composite, elementwise, overrides, record, run, run_back, run_checked
from vsl_compute.errors import AttributeValueError, DeviceError, ReleasedError
from vsl_compute.ops.table import find
from vsl_compute.program import Program

pytestmark = pytest.mark.skipif(
    simulated_cuda.COMPILER is None, reason="the simulation needs a C++ compiler: clang++ or g++"
)


@pytest.fixture
def backend():
    opened = simulated_cuda.opened()
    yield opened
    opened.close()


def drawn(backend, *shape):
    host = np.random.default_rng(3).normal(size=shape).astype(np.float32)
    return host, asarray(backend, host)


CALLS = {
    "relu": lambda a: run("relu", a),
    "add": lambda a: run("add", a, a),
    "sum": lambda a: run("sum", a, axes=(0,), keepdims=True),
    "max_index": lambda a: run("max_index", a, axes=(1,)),
    "softmax": lambda a: run("softmax", a),
    "matmul": lambda a: run("matmul", a, a.permute((1, 0))),
    "linear_relu": lambda a: run(
        "linear_relu", a, a, a.slice(slice(None), 0).buffer.backend.dense(a.slice(slice(None), 0))
    ),
    "astype": lambda a: run("astype", a, dtype="float64"),
    "add, by channel": lambda a: run(
        "add", a.reshape((2, 4, 4, 36)), a.slice(slice(4), slice(1)).reshape((1, 4, 1, 1))
    ),
    "max_pool2d": lambda a: run("max_pool2d", a.reshape((1, 4, 8, 36)), kernel_size=2),
    "max_pool2d_backward": lambda a: run(
        "max_pool2d_backward",
        a.slice(slice(8)).reshape((1, 4, 4, 18)),
        run("max_pool2d", a.reshape((1, 4, 8, 36)), kernel_size=2)[1],
        shape=(1, 4, 8, 36),
        kernel_size=2,
    ),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("offset", [0, 1])
def test_a_prepared_call_computes_what_the_first_did(backend, name, offset):
    """Views that begin elsewhere have one layout, so they share what was prepared: kernels that take fours must not."""
    size = 32 * 36
    _, base = drawn(backend, size + 4)
    views = [base.slice(slice(at, at + size)).reshape((32, 36)) for at in (offset, 1 - offset)]
    first, second = ([x.to_host() for x in _all(CALLS[name](v))] for v in views)
    again = [[x.to_host() for x in _all(CALLS[name](v))] for v in views]
    for fresh, repeated in zip((first, second), again, strict=True):
        for one, other in zip(fresh, repeated, strict=True):
            np.testing.assert_array_equal(one, other)
    with overrides(False):
        for v, got in zip(views, again, strict=True):
            for one, other in zip(_all(CALLS[name](v)), got, strict=True):
                np.testing.assert_allclose(other, one.to_host(), rtol=2e-5, atol=1e-5)


def _all(result):
    return result if isinstance(result, tuple) else (result,)


def test_a_prepared_call_refuses_two_devices(backend):
    other = simulated_cuda.opened()
    _, a = drawn(backend, 8, 4)
    _, b = drawn(other, 8, 4)
    _, w = drawn(backend, 4, 4)
    _, far = drawn(other, 4, 4)
    run("add", a, a)
    run("matmul", a, w)
    with pytest.raises(DeviceError):
        run("add", a, b)
    with pytest.raises(DeviceError):
        run("matmul", a, far)
    other.close()


def test_a_program_records_calls_that_were_prepared(backend):
    _, a = drawn(backend, 8, 4)
    for _ in range(2):
        run("relu", a), run("softmax", a), run("sum", a)
    with record(Program()) as program:
        run("relu", a), run("softmax", a), run("sum", a)
    assert [call.op.name for call in program.calls] == ["relu", "softmax", "sum"]


def test_options_come_back_as_they_were_checked(backend):
    _, x = drawn(backend, 1, 1, 4, 4)
    for _ in range(2):
        _, options = run_checked(find("max_pool2d"), x, kernel_size=2)
        assert (options["kernel_size"], options["stride"], options["padding"]) == ((2, 2), (2, 2), (0, 0))


def test_a_closed_device_keeps_no_prepared_call():
    opened = simulated_cuda.opened()
    _, a = drawn(opened, 64, 64)
    for _ in range(2):
        run("relu", a), run("matmul", a, a)
    assert opened.prepared
    kernels = [weakref.ref(kernel) for kernel in opened.programs._built.values()]
    opened.close()
    gc.collect()
    assert not opened.prepared
    assert not [kernel for kernel in kernels if kernel() is not None]
    with pytest.raises(ReleasedError):
        run("relu", a)


def test_a_label_outside_its_classes_is_reported_by_every_launch(backend):
    _, x = drawn(backend, 4, 5)
    good, bad = asarray(backend, np.array([0, -100, 4, 1])), asarray(backend, np.array([0, 1, 5, 2]))
    for _ in range(2):
        loss, _, _ = run("cross_entropy", x, good)
        assert np.isfinite(loss.to_host())
        loss, _, _ = run("cross_entropy", x, bad)
        with pytest.raises(vsl.IndexRangeError, match=r"cross_entropy_rows: index 5 is outside an axis of size 5"):
            loss.to_host()


BODIES = {
    "cross_entropy": lambda run, x, t: run("cross_entropy", x, t),
    "cross_entropy, strided": lambda run, x, t: run("cross_entropy", x.permute((1, 0)), t.slice(slice(0, 6))),
    "rms_norm": lambda run, x, t: run("rms_norm", x, normalized_shape=(6,)),
    "batch_norm": lambda run, x, t: run("batch_norm", x),
    "pad": lambda run, x, t: run("pad", x, widths=((1, 2), (0, 3)), value=2.0),
    "concat": lambda run, x, t: run("concat", x, x, axis=1),
    "avg_pool2d": lambda run, x, t: run("avg_pool2d", x.reshape((1, 1, 8, 6)), kernel_size=3, padding=1, stride=2),
    "mse_loss": lambda run, x, t: run("mse_loss", x, x.slice(slice(None, None, -1)), reduction="mean"),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_body_that_was_watched_is_what_it_was(backend, name):
    """Three calls: as it is, watched, and from what was written down; each on other numbers, in memory that begins elsewhere."""
    rng = np.random.default_rng(11)
    for call in range(4):
        host = rng.normal(size=(8, 6)).astype(np.float32)
        base = asarray(backend, np.concatenate([np.zeros(call % 2 * 3), host.ravel()]).astype(np.float32))
        x = base.slice(slice(call % 2 * 3, None)).reshape((8, 6))
        t = asarray(backend, rng.integers(0, 6, 8))
        got = [v.to_host() for v in _all(BODIES[name](run, x, t))]
        cpu = vsl.get("cpu")
        want = [v.to_host() for v in _all(BODIES[name](run, asarray(cpu, host), asarray(cpu, t.to_host())))]
        for one, other in zip(got, want, strict=True):
            np.testing.assert_allclose(one, other, rtol=3e-5, atol=1e-5)


def test_ways_back_that_were_watched_are_what_they_were(backend):
    """Which gradients are wanted is part of what is kept."""
    rng = np.random.default_rng(12)
    op, cpu = find("linear_relu"), vsl.get("cpu")
    for call in range(6):
        x, w, b, g = (rng.normal(size=s).astype(np.float32) for s in ((8, 6), (4, 6), (4,), (8, 4)))
        needs = (call % 2 == 0, True, call < 3)
        results = []
        for device in (backend, cpu):
            vx, vw, vb, vg = (asarray(device, v) for v in (x, w, b, g))
            y = run("linear_relu", vx, vw, vb)
            results.append(run_back(op, needs, (vg,), {"x": vx, "weight": vw, "y": y}, {}))
        for got, want, needed in zip(*results, needs, strict=True):
            assert (got is None) == (want is None) == (not needed)
            if needed:
                np.testing.assert_allclose(got.to_host(), want.to_host(), rtol=3e-5, atol=1e-5)


def test_what_a_body_made_goes_as_soon_as_it_does_without(backend):
    """A replay holds an intermediate no longer than its last reader needs it."""
    _, x = drawn(backend, 256, 64)
    t = asarray(backend, np.zeros(256, np.int64))
    for _ in range(3):
        run("cross_entropy", x, t)
    before = backend.memory()
    run("cross_entropy", x, t)
    assert backend.memory() == before


def test_draws_leave_nothing_behind(backend):
    """Each takes words of its own: plans that were kept by them would be as many as there are steps, and no step's twice."""
    generator = vsl.Generator(1)
    _, x = drawn(backend, 8, 12)

    def step():
        key, counter = generator.reserve(x.size)
        run("random", x, kind="bits", key=key, counter=counter)
        (y, keep), options = run_checked(find("dropout"), x, p=0.5, key=key, counter=counter)
        assert (options["key"], options["counter"]) == (key, counter)
        run_back(find("dropout"), (True,), (y, None), {"keep": keep}, options)

    for _ in range(3):
        step()
    kept = [len(plans) for plans in (composite._plans, elementwise._plans, backend.prepared)]
    for _ in range(20):
        step()
    assert [len(plans) for plans in (composite._plans, elementwise._plans, backend.prepared)] == kept


def test_a_plan_that_a_draw_left_gives_no_words_to_a_call_without(backend):
    _, x = drawn(backend, 8, 12)
    masks = [run("dropout", x, p=0.5, key=(1, 0), counter=(at, 0, 0, 0))[1].to_host() for at in (0, 0, 24)]
    assert np.array_equal(masks[0], masks[1])
    assert not np.array_equal(masks[0], masks[2])
    with pytest.raises(AttributeValueError, match="the option key, counter must be given"):
        run("dropout", x, p=0.5)
    with pytest.raises(AttributeValueError, match="the option key must be given"):
        run("dropout", x, p=0.5, counter=(0, 0, 0, 0))
