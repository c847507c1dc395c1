"""Which layout class a row's arrays get on a device that does better with four neighbours a thread (the simulated one)."""

from __future__ import annotations

import numpy as np
import pytest
import simulated_cuda  # conftest.py has brought it

from vsl_compute.dispatch import asarray, run

pytestmark = pytest.mark.skipif(
    simulated_cuda.COMPILER is None, reason="the simulation needs a C++ compiler: clang++ or g++"
)


def put(device, array):
    return asarray(device, np.asarray(array))


@pytest.mark.parametrize("dtype", [np.float16, np.int64])
@pytest.mark.parametrize(
    ("whole", "bias", "fours"),
    [
        ((4, 6, 8, 8), (1, 6, 1, 1), True),  # on channels
        ((64, 32), (32,), True),  # on rows
        ((64, 32), (64, 1), True),  # on columns
        ((5, 6, 3, 32), (5, 1, 3, 32), True),
        ((64, 33), (33,), False),  # rows of odd lengths
        ((4, 6, 7, 7), (1, 6, 1, 1), False),
        ((4, 8), (8,), False),  # so few that it is not worth it
    ],
)
def test_a_thread_takes_four_neighbours_where_all_arrays_have_four(simulated_device, rng, dtype, whole, bias, fours):
    x, b = (rng.integers(-9, 9, shape).astype(dtype) for shape in (whole, bias))
    launched, launch = [], simulated_device.queue.launch
    simulated_device.queue.launch = lambda kernel, *rest: (launched.append(kernel), launch(kernel, *rest))
    try:
        got = run("subtract", put(simulated_device, x), put(simulated_device, b)).to_host()
        turned = run("subtract", put(simulated_device, b), put(simulated_device, x)).to_host()
        chosen = run("where", put(simulated_device, b > 0), put(simulated_device, x), 3).to_host()
    finally:
        del simulated_device.queue.launch
    assert np.array_equal(got, x - b)
    assert np.array_equal(turned, b - x)
    assert np.array_equal(chosen, np.where(b > 0, x, dtype(3)))
    quads = [kernel for key, kernel in simulated_device._rows._kernels.items() if key[-1] == "quads"]
    assert sum(kernel in quads for kernel in launched) == (3 if fours else 0)


def test_arrays_that_begin_between_fours_are_left_to_single_elements(simulated_device, rng):
    x, b = rng.normal(size=(64, 40)).astype(np.float32), rng.normal(size=40).astype(np.float32)
    whole, bias = put(simulated_device, x), put(simulated_device, b)
    for at in (0, 1, 4, 6):
        cut = slice(at, at + 32)
        part, row = whole.slice(slice(None), cut), bias.slice(cut)
        assert np.array_equal(run("subtract", part, row).to_host(), x[:, cut] - b[cut])
        out = put(simulated_device, np.zeros_like(x))
        run("subtract", part, row, out=out.slice(slice(None), slice(3, 35)))
        assert np.array_equal(out.to_host()[:, 3:35], x[:, cut] - b[cut])
        assert not out.to_host()[:, [0, 1, 2, 35, 36]].any()
