"""How many launches a step of a recurrent layer is: counted on a simulated device, whose kernels are the CUDA backend's own texts."""

from __future__ import annotations

import numpy as np
import pytest
import simulated_cuda  # conftest.py has brought it

from vsl_compute.dispatch import asarray, run

pytestmark = pytest.mark.skipif(
    simulated_cuda.COMPILER is None, reason="the simulation needs a C++ compiler: clang++ or g++"
)
BATCH, WIDTH = 3, 4
GATES = {"rnn_tanh": 1, "rnn_relu": 1, "lstm": 4, "gru": 3}


@pytest.fixture(scope="module")
def device():
    return simulated_cuda.opened()


def launches(kind, steps):
    """Kernels and products of a layer over so many steps: forward, and back from what it saves.

    The device is new: one that has calls made ready would launch products past what counts them here.
    """
    device = simulated_cuda.opened()
    rng = np.random.default_rng(steps)

    def array(*shape):
        return asarray(device, rng.standard_normal(shape, dtype=np.float32))

    found, gemm = [], device.gemm
    products = [0]

    def counted(*args, **options):
        products[0] += 1
        gemm(*args, **options)

    device.gemm = counted
    width = GATES[kind] * WIDTH
    x, h, w, g = (
        array(steps, BATCH, width),
        array(BATCH, WIDTH),
        array(width, WIDTH),
        array(steps + 1, BATCH, WIDTH),
    )
    more = {"lstm": (array(BATCH, WIDTH),), "gru": (array(width),)}.get(kind, ())
    before = device.cupy.launches, products[0]
    made = run(kind, x, h, w, *more)
    found.append((device.cupy.launches - before[0], products[0] - before[1]))
    saved = {"lstm": lambda: (*made, w), "gru": lambda: (x, *made, w)}.get(kind, lambda: (made, w))()
    before = device.cupy.launches, products[0]
    run(f"{kind}_backward", g, *saved, sizes=(BATCH,) * steps)
    found.append((device.cupy.launches - before[0], products[0] - before[1]))
    return found


@pytest.mark.parametrize("kind", GATES)
def test_a_step_is_one_launch_and_one_product_each_way(kind):
    """Nothing else depends on how many steps there are: the weight's gradient is one product over all of them."""
    few, many = launches(kind, 5), launches(kind, 9)
    for (kernels, products), (more_kernels, more_products) in zip(few, many, strict=True):
        assert more_kernels - kernels == 4
        assert more_products - products == 4


def test_gates_side_by_side_are_stepped_where_they_lie(device):
    """An update of parts of wider arrays copies nothing, and equals the same of dense arrays."""
    rng = np.random.default_rng(3)
    gates, old = rng.standard_normal((5, 28)), rng.standard_normal((5, 7))
    wide = asarray(device, np.pad(gates, ((0, 0), (2, 3))))
    here = wide.slice(slice(None), slice(2, 30))
    before = device.cupy.launches
    c, h = run("lstm_step", here, asarray(device, old))
    assert device.cupy.launches - before == 1
    i, f, u, o = np.split(gates, 4, axis=1)
    want = old / (1 + np.exp(-f)) + np.tanh(u) / (1 + np.exp(-i))
    np.testing.assert_allclose(c.to_host(), want, rtol=1e-13)
    np.testing.assert_allclose(h.to_host(), np.tanh(want) / (1 + np.exp(-o)), rtol=1e-13)
