"""Gradients of linear layers by cuBLASLt's epilogues, on the simulated library, and on a card where there is one."""

from __future__ import annotations

import numpy as np
import pytest
import simulated_cuda  # conftest.py has brought it

from vsl_compute.backends.cuda.cublaslt import BGRADB, DRELU_BGRAD, RELU_AUX_BIAS, mask_line
from vsl_compute.backends.cuda.epilogues import Masked
from vsl_compute.backends.shared.tuning import Trial, Tuner
from vsl_compute.dispatch import asarray, overrides, run, run_back, run_checked
from vsl_compute.dtypes import bfloat16, float16, float32, float64
from vsl_compute.errors import UnsupportedError
from vsl_compute.ops.table import find

DTYPES = pytest.mark.parametrize("dtype", [float32, float16, bfloat16], ids=str)


@pytest.fixture
def device(cuda_device):
    """A device that takes epilogues wherever they are served, simulated and real."""
    before, cuda_device.tuner = cuda_device.tuner, simulated_cuda.Joining(cuda_device.info, cuda_device.queue.finish)
    for thing in ("prepared",):
        getattr(cuda_device, thing).clear()
    yield cuda_device
    cuda_device.tuner = before
    cuda_device.prepared.clear()


def whole(rng, *shape):
    """Small whole numbers: sums are exact in every dtype and order."""
    return rng.integers(-2, 3, shape).astype(np.float32)


def put(device, array, dtype=float32):
    return asarray(device, array, dtype)


def done(device):
    """Epilogues of the products so far; None on a card, which does not tell."""
    library = device._cublas.loaded()
    return list(library.epilogues) if hasattr(library, "epilogues") else None


@DTYPES
@pytest.mark.parametrize("shape", [(64, 32, 16), (5, 3, 2), (33, 130, 10), (256, 8, 128)])
def test_a_weight_s_and_its_bias_s_gradient_are_one_product(device, rng, dtype, shape):
    """Twice, the second made ready; equal to the body's, which is a product and a sum."""
    rows, ins, outs = shape
    g, x = whole(rng, rows, outs), whole(rng, rows, ins)
    for _ in range(2):
        before = getattr(device.cupy, "launches", 0)
        weight, bias = run("linear_weight", put(device, g, dtype), put(device, x, dtype))
        assert getattr(device.cupy, "launches", 0) == before
        assert np.array_equal(weight.to_host(), g.T @ x)
        assert np.array_equal(bias.to_host(), g.sum(0))
    if done(device) is not None:
        assert done(device) == [BGRADB] * 2


def stack(rng, rows, ins, hidden, outs):
    """A feed-forward's arguments; no sum before the ReLU is 0."""
    return (
        whole(rng, rows, ins),
        whole(rng, hidden, ins),
        whole(rng, outs, hidden),
        whole(rng, hidden) + np.float32(0.5),
        whole(rng, outs),
    )


def gradients(views, g, needs=(True,) * 5):
    op = find("feed_forward")
    (y, hidden), options = run_checked(op, *views)
    saved = {"x": views[0], "first": views[1], "second": views[2], "hidden": hidden}
    return (y, hidden), run_back(op, needs, (g, None), saved, options)


@DTYPES
@pytest.mark.parametrize("shape", [(64, 32, 16, 10), (5, 3, 130, 2), (7, 9, 128, 4), (300, 4, 129, 3)])
def test_a_feed_forward_goes_back_in_three_products_and_no_launch(device, rng, dtype, shape):
    """Values and all five gradients, against overrides off; three rounds, since calls are made ready."""
    views = [put(device, v, dtype) for v in stack(rng, *shape)]
    g = put(device, whole(rng, shape[0], shape[3]), dtype)
    with overrides(False):
        expected = [v.to_host() for part in gradients(views, g) for v in part]
    for _ in range(3):
        before, made = getattr(device.cupy, "launches", 0), done(device)
        got = gradients(views, g)
        assert getattr(device.cupy, "launches", 0) == before
        if made is not None:
            assert done(device)[len(made) :] == [RELU_AUX_BIAS, 4, BGRADB, DRELU_BGRAD, 0, 0]
        for value, other in zip((v for part in got for v in part), expected, strict=True):
            np.testing.assert_allclose(
                value.to_host(), other, rtol=2.0**-7 if dtype is bfloat16 else 2.0**-10 if dtype is float16 else 0
            )


def test_leading_axes_biases_left_out_and_gradients_nobody_wants(device, rng):
    x, first, second, first_bias, second_bias = stack(rng, 12, 6, 20, 4)
    g = whole(rng, 3, 4, 4)
    flat = g.reshape(12, 4)
    h = np.maximum(x @ first.T + first_bias, 0)
    back = np.where(h > 0, flat @ second, 0)
    for biases in ((first_bias, second_bias), (first_bias, None), (None, second_bias), (None, None)):
        views = [put(device, v) for v in (x.reshape(3, 4, 6), first, second)] + [
            b if b is None else put(device, b) for b in biases
        ]
        inner = np.maximum(x @ first.T + (0 if biases[0] is None else biases[0]), 0)
        expected = inner @ second.T + (0 if biases[1] is None else biases[1])
        y, hidden = run("feed_forward", *views)
        assert np.array_equal(y.to_host(), expected.reshape(3, 4, 4))
        assert np.array_equal(hidden.to_host(), inner.reshape(3, 4, 20))
    views = [put(device, v) for v in (x.reshape(3, 4, 6), first, second, first_bias, second_bias)]
    wanted = (back @ first, back.T @ x, flat.T @ h, back.sum(0), flat.sum(0))
    for needs in (
        (True,) * 5,
        (False, True, True, True, True),
        (False, False, True, False, True),
        (True, False, False, False, False),
    ):
        _, got = gradients(views, put(device, g), needs)
        for need, value, other in zip(needs, got, wanted, strict=True):
            assert (value is not None) == need
            if need:
                assert np.array_equal(value.to_host().reshape(other.shape), other)


def test_a_mask_is_of_the_values_as_they_were_made(device, rng):
    """Written to since, a slice, a copy or another's: the body reads the values themselves."""
    views = [put(device, v) for v in stack(rng, 8, 6, 20, 4)]
    g = put(device, whole(rng, 8, 4))
    _, hidden = run("feed_forward", *views)
    assert type(hidden.buffer) is Masked

    def expected(y):
        return np.where(y.to_host() > 0, g.to_host()[: y.shape[0]] @ views[2].to_host(), 0)

    assert np.array_equal(run("linear_relu_input", g, views[2], hidden)[0].to_host(), expected(hidden))
    half, copy = hidden.slice(slice(2, 6)), run("multiply", hidden, -1.0)
    assert np.array_equal(run("linear_relu_input", g.slice(slice(0, 4)), views[2], half)[0].to_host(), expected(half))
    assert np.array_equal(run("linear_relu_input", g, views[2], copy)[0].to_host(), expected(copy))
    run("multiply", hidden, -1.0, out=hidden)
    assert np.array_equal(run("linear_relu_input", g, views[2], hidden)[0].to_host(), expected(hidden))


def test_rows_of_a_mask_begin_at_multiples_of_128_bits():
    assert [mask_line(n) for n in (1, 127, 128, 129, 512)] == [128, 128, 128, 256, 512]


def test_memory_of_a_mask_comes_back_with_its_values(device, rng):
    views = [put(device, v) for v in stack(rng, 8, 6, 20, 4)]
    run("feed_forward", *views)
    held = device.memory()
    for _ in range(5):
        run("feed_forward", *views)
    assert device.memory().buffers == held.buffers
    assert device.memory().reserved == held.reserved


@pytest.mark.parametrize(
    "lacks", [{BGRADB}, {DRELU_BGRAD}, {RELU_AUX_BIAS}, {BGRADB, DRELU_BGRAD, RELU_AUX_BIAS}], ids=str
)
def test_what_the_library_lacks_the_body_does(simulated_device, rng, lacks):
    """Asked for once a shape, then left to the body, whose calls are made ready."""
    simulated_device._cublas.loaded().lacks = lacks
    views = [put(simulated_device, v) for v in stack(rng, 16, 6, 20, 4)]
    g = put(simulated_device, whole(rng, 16, 4))
    with overrides(False):
        expected = [v.to_host() for part in gradients(views, g) for v in part]
    for _ in range(4):
        got = [v.to_host() for part in gradients(views, g) for v in part]
        assert all(np.array_equal(a, b) for a, b in zip(got, expected, strict=True))
    assert not set(done(simulated_device)) & lacks


@pytest.mark.parametrize(
    ("op", "shapes"),
    [
        ("linear_weight", [(1, 4), (1, 3)]),  # one term
        ("linear_weight", [(6, 1), (6, 3)]),
        ("linear_weight", [(6, 4), (6, 1)]),
        ("linear_weight", [(0, 4), (0, 3)]),
        ("linear_relu_input", [(5, 1), (1, 4), (5, 4)]),
        ("linear_relu_input", [(5, 3), (3, 0), (5, 0)]),
        ("feed_forward", [(1, 4), (3, 4), (2, 3), (3,), (2,)]),
        ("feed_forward", [(0, 4), (3, 4), (2, 3), (3,), (2,)]),
        ("feed_forward", [(5, 4), (3, 4), (1, 3), (3,), (1,)]),
    ],
    ids=str,
)
def test_sizes_of_one_and_none_are_the_body_s(simulated_device, rng, op, shapes):
    views = [put(simulated_device, whole(rng, *shape)) for shape in shapes]
    with overrides(False):
        expected = [v.to_host() for v in run(op, *views)]
    for _ in range(3):
        assert all(np.array_equal(a.to_host(), b) for a, b in zip(run(op, *views), expected, strict=True))
    assert not set(done(simulated_device)) & {BGRADB, DRELU_BGRAD, RELU_AUX_BIAS}


def test_layouts_that_epilogues_do_not_read_and_float64_are_the_body_s(simulated_device, rng):
    g, x = whole(rng, 6, 4), whole(rng, 6, 3)
    turned = put(simulated_device, np.ascontiguousarray(g.T)).permute((1, 0))
    stepped = put(simulated_device, np.repeat(x, 2, axis=1)).slice(slice(None), slice(None, None, 2))
    for a, b in ((turned, put(simulated_device, x)), (put(simulated_device, g), stepped)):
        for _ in range(3):
            weight, bias = run("linear_weight", a, b)
            assert np.array_equal(weight.to_host(), g.T @ x)
            assert np.array_equal(bias.to_host(), g.sum(0))
    wide = [put(simulated_device, v, float64) for v in (g, x)]
    assert np.array_equal(run("linear_weight", *wide)[1].to_host(), g.sum(0))
    assert BGRADB not in done(simulated_device)


@pytest.mark.parametrize("family", ["linear_weight", "feed_forward"])
@DTYPES
def test_a_search_compares_both_ways_on_numbers_that_no_order_changes(device, rng, dtype, family, monkeypatch):
    """What a tuner would launch: the two give the same bits, and what the library lacks is dropped as that."""
    found: dict[str, Trial] = {}

    class Watching(Tuner):
        def choose(self, key, candidates, trial):
            found[key.family] = trial()
            return next(iter(candidates.values()))

    device.tuner = Watching(device.info, device.queue.finish)
    views = [put(device, v, dtype) for v in stack(rng, 40, 24, 136, 10)]
    y, _ = run("feed_forward", *views)
    run("linear_weight", y, views[0])
    trial, results = found[family], []
    for joined in (False, True):
        trial.clear()
        trial.launch(joined)
        results.append(trial.result())
    assert np.isfinite(results[0]).all()
    assert np.array_equal(results[0], results[1])
    assert len(np.unique(results[0])) > 10
    if done(device) is not None:
        device._cublas.loaded().lacks = {BGRADB, RELU_AUX_BIAS}
        device._cublas._plans.clear()
        with pytest.raises(UnsupportedError, match="cuBLAS has no product with these epilogues"):
            trial.launch(True)
