"""Copies that turn rows into columns: which are seen to be such, and that tiles leave no element out."""

from __future__ import annotations

import numpy as np
import pytest
import simulated_cuda  # conftest.py has brought it

from vsl_compute.backends.shared.axes import collapse
from vsl_compute.backends.shared.turning import Turn, turn_of
from vsl_compute.dispatch import asarray, run

SHAPES = (
    ((40, 33), (1, 0)), ((16, 16), (1, 0)), ((65, 1000), (1, 0)), ((3, 40, 33), (0, 2, 1)), ((20, 3, 37), (2, 1, 0)),
    ((2, 3, 20, 21), (0, 2, 3, 1)), ((2, 20, 21, 17), (0, 3, 1, 2)), ((2, 2, 33, 47), (1, 0, 3, 2)), ((100, 5), (1, 0)),
)  # fmt: skip


def check(backend, dtype, rng):
    """Whole arrays, parts of them that begin anywhere, and into parts."""
    for shape, order in SHAPES:
        x = rng.integers(0, 100, shape).astype(dtype)
        view, wanted = asarray(backend, x).permute(order), x.transpose(order)
        assert np.array_equal(run("contiguous", view).to_host(), wanted), shape
        part = (slice(None),) * (view.ndim - 1) + (slice(1, None),)
        assert np.array_equal(run("contiguous", view.slice(*part)).to_host(), wanted[part]), shape
        out = asarray(backend, np.zeros((wanted.shape[0], *(n + 3 for n in wanted.shape[1:])), dtype))
        inside = (slice(None), *(slice(2, n + 2) for n in wanted.shape[1:]))
        run("copy", view, out=out.slice(*inside))
        expected = np.zeros(out.shape, dtype)
        expected[inside] = wanted
        assert np.array_equal(out.to_host(), expected), shape


@pytest.mark.skipif(simulated_cuda.COMPILER is None, reason="the simulation needs a C++ compiler: clang++ or g++")
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "int64"])
def test_rows_become_columns_on_a_text_device(simulated_device, rng, dtype):
    check(simulated_device, dtype, rng)
    assert [key for key in simulated_device._indexing._kernels if key[0] == "turn"]


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "int64"])
def test_rows_become_columns_on_vulkan(fresh, rng, dtype):
    check(fresh, dtype, rng)
    assert any(fresh._indexing._turns.values())


def test_rows_become_columns_in_groups_of_a_gpu_s_size(fresh, rng, monkeypatch):
    monkeypatch.setattr(fresh.device, "group_size", 256)
    check(fresh, "float16", rng)


def test_what_is_converted_is_turned_too_on_a_text_device(simulated_device, rng):
    x = rng.normal(size=(40, 70)).astype(np.float32)
    got = run("astype", asarray(simulated_device, x).permute((1, 0)), dtype="float16")
    target = run(
        "copy",
        asarray(simulated_device, x).permute((1, 0)),
        out=asarray(simulated_device, np.zeros((70, 40), np.float16)),
    )
    for view in (got, target):
        assert np.array_equal(view.to_host(), x.T.astype(np.float16))


@pytest.mark.parametrize(
    ("shape", "out", "x", "wanted"),
    [
        ((64, 32), (32, 1), (1, 64), Turn(1, 64, 32, 0, 32, 0, 64)),
        ((4, 64, 32), (2048, 32, 1), (2048, 1, 64), Turn(4, 64, 32, 2048, 32, 2048, 64)),
        ((64, 4, 32), (128, 32, 1), (1, 4096, 64), Turn(4, 64, 32, 32, 128, 4096, 64)),
        ((64, 32), (32, 1), (64, 2), None),  # x has no neighbours
        ((64, 32), (32, 1), (40, 1), None),  # rows stay rows
        ((64, 8), (8, 1), (1, 64), None),  # too few columns
        ((64, 32), (32, 1), (1, -64), None),  # backwards
        ((64, 32), (32, 1), (1, 0), None),  # repeated
    ],
)
def test_a_turn_is_known_by_its_strides(shape, out, x, wanted):
    assert turn_of(*collapse(shape, [out, x])) == wanted
