"""Optimizer steps on a simulated CUDA device: one launch for all parameters, whose addresses travel with it."""

from __future__ import annotations

import numpy as np
import pytest
import simulated_cuda  # conftest.py has brought it

from vsl_compute import dispatch
from vsl_compute.dispatch import asarray
from vsl_compute.dtypes import float32
from vsl_compute.kernels.update import CHUNK, apart, most_rows
from vsl_compute.rows.updates import TABLE as UPDATES
from vsl_compute.view import Layout

pytestmark = pytest.mark.skipif(
    simulated_cuda.COMPILER is None, reason="the simulation needs a C++ compiler: clang++ or g++"
)


def put(simulated_device, array):
    return asarray(simulated_device, np.asarray(array))


def test_one_launch_steps_every_parameter(simulated_device, rng):
    """Matrices, a bias, an empty one and one in another order; the slots in it."""
    shapes = [(30, 20), (20,), (0,), (3, 4, 5), ()]
    host = [[rng.standard_normal(s).astype(np.float32) for _ in range(4)] for s in shapes]
    groups = [
        (*(put(simulated_device, v) for v in (g, p, m, abs(v))), put(simulated_device, np.float32(2)))
        for g, p, m, v in host
    ]
    turned = list(groups[3])
    turned[0] = put(simulated_device, host[3][0].transpose(2, 0, 1).copy()).permute((1, 2, 0))
    groups[3] = tuple(turned)
    scalars = {"lr": 0.1, "b1": 0.9, "b2": 0.99, "log_b1": np.log(0.9), "log_b2": np.log(0.99), "eps": 1e-8}
    dispatch.run_update("adam", groups, scalars)
    for (g, p, m, v), group in zip(host, groups, strict=True):
        m2, v2 = 0.9 * m + 0.1 * g, 0.99 * abs(v) + 0.01 * g * g
        expected = p - 0.1 * (m2 / (1 - 0.9**3)) / (np.sqrt(v2 / (1 - 0.99**3)) + 1e-8)
        np.testing.assert_allclose(group[1].to_host(), expected, rtol=2e-5, atol=1e-6)
        assert group[4].to_host() == 3


@pytest.mark.parametrize(
    ("name", "last"), [("sgd", "g"), ("sgd_momentum", "g"), ("adam", "g"), ("adam", "p"), ("adam", "gpmv")]
)
def test_only_what_lies_in_another_order_than_most_is_copied(simulated_device, rng, name, last):
    """Gradients with channels last come to the order of weights and momenta, by one copy each; a weight is copied back too."""
    row, count, shape = UPDATES[name], 3, (4, 3, 2, 5)
    host = [[abs(rng.standard_normal(() if a in row.zero_d else shape)).astype(np.float32) for a in row.arrays] for _ in range(count)]  # fmt: skip
    plain = [[put(simulated_device, v) for v in one] for one in host]
    mixed = [
        [
            put(simulated_device, v.transpose(0, 2, 3, 1).copy()).permute((0, 3, 1, 2)) if v.ndim and a in last else put(simulated_device, v)
            for a, v in zip(row.arrays, one, strict=True)
        ]
        for one in host
    ]  # fmt: skip
    strides = [[view.strides for view in group] for group in mixed]
    scalars = {scalar: -0.7 if scalar.startswith("log") else 0.5 for scalar in row.scalars}
    dispatch.run_update(name, plain, scalars)
    launches = simulated_device.cupy.launches
    dispatch.run_update(name, mixed, scalars)
    copied = {"g": 1, "p": 2, "gpmv": 0}[last]
    assert simulated_device.cupy.launches - launches == 1 + copied * count
    assert strides == [[view.strides for view in group] for group in mixed]
    for a, b in zip(plain, mixed, strict=True):
        assert all(np.array_equal(x.to_host(), y.to_host()) for x, y in zip(a, b, strict=True))


def test_an_axis_of_one_element_has_no_order():
    layouts = [Layout.of(float32, (6, 4, 3, 1), strides) for strides in ((12, 1, 4, 4), (12, 1, 4, 1))]
    for pair in (layouts, layouts[::-1]):
        assert apart(UPDATES["sgd"], tuple(pair))[1] == ()


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_a_step_uploads_and_holds_nothing_wherever_its_arrays_lie(simulated_device, rng, name):
    """Addresses that never come round, as after a search or an evaluation: neither transfers nor memory by the second step."""
    row = UPDATES[name]
    seen, kept = set(), []
    for step in range(100):
        views = [put(simulated_device, np.ones(() if a in row.zero_d else (5, 7), np.float32)) for a in row.arrays]
        seen.add(views[0].buffer.handle)
        before = simulated_device.transfers(), simulated_device.cupy.launches, simulated_device.memory()
        dispatch.run_update(name, [views], dict.fromkeys(row.scalars, 0.5))
        after = simulated_device.transfers(), simulated_device.cupy.launches, simulated_device.memory()
        if step:
            assert after == (before[0], before[1] + 1, before[2])
        kept.append(views)
    assert len(seen) == 100


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_more_parameters_than_a_launch_takes_are_several_launches(simulated_device, rng, name):
    """Each of 200 small ones, the first and the last of a launch among them, is stepped once, and its slots too."""
    row, count = UPDATES[name], 200
    assert most_rows(row) < count
    host = rng.standard_normal((count, len(row.arrays), 3)).astype(np.float32)
    groups = [
        [
            put(simulated_device, np.float32(k) if a in row.zero_d else abs(v))
            for a, v in zip(row.arrays, one, strict=True)
        ]
        for k, one in enumerate(host)
    ]
    alone = [[put(simulated_device, view.to_host()) for view in group] for group in groups]
    scalars = dict.fromkeys(row.scalars, 0.5)
    launches = simulated_device.cupy.launches
    dispatch.run_update(name, groups, scalars)
    assert simulated_device.cupy.launches - launches == -(-count // most_rows(row))
    for group in alone:
        dispatch.run_update(name, [group], scalars)
    for group, other in zip(groups, alone, strict=True):
        for view, wanted in zip(group, other, strict=True):
            np.testing.assert_array_equal(view.to_host(), wanted.to_host())


def test_a_slot_counts_once_a_step_however_many_blocks_and_parameters(simulated_device, rng):
    """Groups of 2 048 elements, a parameter without any, step after step: the last to read a count writes it."""
    shapes = [(50_000,), (3,), (0,), (2 * CHUNK,), (2 * CHUNK + 1,)]
    groups = [
        [put(simulated_device, np.ones(s, np.float32)) for _ in range(4)] + [put(simulated_device, np.float32(k))]
        for k, s in enumerate(shapes)
    ]
    scalars = {"lr": 0.1, "b1": 0.9, "b2": 0.99, "log_b1": np.log(0.9), "log_b2": np.log(0.99), "eps": 1e-8}
    for step in range(1, 5):
        launches = simulated_device.cupy.launches
        dispatch.run_update("adam", groups, scalars)
        assert simulated_device.cupy.launches == launches + 1
        assert [group[4].to_host() for group in groups] == [k + step for k in range(len(shapes))]


def test_a_slot_of_two_parameters_counts_after_each_of_them(simulated_device):
    """As if they were stepped one after the other: bias correction and count, against two calls."""
    scalars = {"lr": 0.1, "b1": 0.9, "b2": 0.99, "log_b1": np.log(0.9), "log_b2": np.log(0.99), "eps": 1e-8}
    results = []
    for together in (True, False):
        count = put(simulated_device, np.float32(0))
        groups = [[put(simulated_device, np.full(n, 0.5, np.float32)) for _ in range(4)] + [count] for n in (5, 7)]
        for part in [groups] if together else [[group] for group in groups]:
            dispatch.run_update("adam", part, scalars)
        results.append([count.to_host(), *(group[1].to_host() for group in groups)])
    assert results[0][0] == 2
    assert all(np.array_equal(a, b) for a, b in zip(*results, strict=True))
