"""What a GPU's threads do together or four elements at a time, on PoCL: it gives what single threads and elements give."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from vsl_compute.backends.opencl.backend import OpenCLBackend
from vsl_compute.dispatch import asarray, overrides, run, run_update
from vsl_compute.dtypes import bfloat16, float16, float32, float64, int8, int32, int64, uint8
from vsl_compute.errors import IndexRangeError


@pytest.fixture(scope="module")
def wide(opencl):
    """The device with groups of 64 threads that take four elements at a time, as on a GPU."""
    backend = OpenCLBackend(opencl.info, opencl.programs._device, group=64)
    backend.queue.vectors = True
    return backend


def put(backend, array, dtype=None):
    return asarray(backend, np.asarray(array), dtype)


SHAPES = ((1, 1), (3, 7), (5, 64), (300, 65), (2, 2048), (2, 2049), (3, 10_000))


@pytest.mark.parametrize("descending", [False, True], ids=["up", "down"])
@pytest.mark.parametrize("dtype", [float32, int64, float16], ids=str)
def test_groups_sort_stably_with_nan_last(wide, rng, dtype, descending):
    """Rows shorter than a thread's eight, many rows a group, a row of several groups, and one over many merges."""
    for shape in SHAPES:
        x = rng.integers(-50, 50, shape).astype(np.float64)
        if dtype.is_floating and x.size > 10:
            x.flat[:: x.size // 4] = np.nan
        values, index = run("sort", put(wide, x, dtype), descending=descending)
        order = np.argsort(np.where(np.isnan(x), np.inf, -x if descending else x), axis=-1, kind="stable")
        assert np.array_equal(index.to_host(), order), shape
        assert np.array_equal(values.to_host(), np.take_along_axis(x, order, -1), equal_nan=True), shape


@pytest.mark.parametrize("dtype", [float32, int32], ids=str)
def test_groups_scan_rows_and_stretches(wide, rng, dtype):
    for shape in (*SHAPES, (1, 400_000)):
        x = rng.integers(-5, 6, shape)
        assert np.array_equal(run("cumsum", put(wide, x, dtype)).to_host(), np.cumsum(x, -1)), shape
    turned = put(wide, x.reshape(4000, 100), dtype).permute((1, 0))
    assert np.array_equal(run("cumsum", turned).to_host(), np.cumsum(x.reshape(4000, 100).T, -1))


def test_kernels_whose_groups_are_too_small_leave_it_to_single_threads(opencl, rng, monkeypatch):
    backend = OpenCLBackend(opencl.info, opencl.programs._device, group=64)
    made = backend.programs.kernel
    monkeypatch.setattr(backend.programs, "kernel", lambda *given: replace(made(*given), limit=8))
    monkeypatch.setattr(backend._order, "_run", lambda *given: pytest.fail("a group was launched"))
    x = rng.integers(-50, 50, (2, 300)).astype(np.float32)
    assert np.array_equal(run("sort", put(backend, x))[0].to_host(), np.sort(x))
    assert np.array_equal(run("cumsum", put(backend, x)).to_host(), np.cumsum(x, -1))


@pytest.mark.parametrize(("source", "target"), [
    (float32, float32), (float32, float16), (float16, float32), (uint8, float32), (float64, int8), (int64, bfloat16), (float32, float64),
], ids=str)  # fmt: skip
def test_rows_of_neighbours_are_copied_four_at_a_time(opencl, wide, rng, source, target):
    """Whole arrays, slices that begin at a multiple of four and that do not, and columns that are no multiple."""
    array = rng.integers(0, 100, (12, 24))
    for rows, columns in (
        (slice(0, 12), slice(0, 24)),
        (slice(1, 7), slice(4, 20)),
        (slice(1, 7), slice(3, 15)),
        (slice(0, 5), slice(8, 15)),
    ):
        found = []
        for backend in (opencl, wide):
            x = put(backend, array, source).slice(rows, columns)
            out = put(backend, np.zeros((12, 24)), target).slice(rows, columns)
            run("copy", x, out=out) if source is target else run("astype", x, dtype=target.name, out=out)
            found.append(out.to_host())
        assert np.array_equal(found[0], found[1])
        assert np.array_equal(found[1], array[rows, columns])


@pytest.mark.parametrize(
    ("source", "target"), [(float32, float32), (float16, float32), (float64, bfloat16), (uint8, uint8)], ids=str
)
def test_neighbours_are_copied_four_at_a_time_through_any_axes(wide, rng, monkeypatch, source, target):
    """Heads of attention, axes backwards and rows that begin elsewhere; what is no multiple of four goes one by one."""
    made, launched = [], wide._indexing._kernel
    monkeypatch.setattr(wide._indexing, "_kernel", lambda key, *given: made.append(key) or launched(key, *given))
    array = rng.integers(0, 100, (3, 5, 4, 24))
    for cut, fours in (
        ((slice(None), slice(None), slice(None), slice(0, 24)), True),
        ((slice(None), slice(None, None, -1), slice(None), slice(8, 20)), True),
        ((slice(1, 3), slice(1, 4), slice(None, None, 2), slice(4, 12)), True),
        ((slice(None), slice(None), slice(None), slice(2, 22)), False),
        ((slice(None), slice(None), slice(None), slice(0, 23)), False),
    ):
        x = put(wide, array, source).slice(*cut).permute((0, 2, 1, 3))
        out = put(wide, np.zeros(x.shape), target)
        made.clear()
        wide.copy(out, x)
        assert [key[-1] == 4 for key in made] == [fours], cut
        assert np.array_equal(out.to_host(), array[cut].transpose(0, 2, 1, 3))
    back = put(wide, np.zeros((3, 5, 4, 24)), target).permute((0, 2, 1, 3))  # and written so
    wide.copy(back, put(wide, array.transpose(0, 2, 1, 3), source))
    assert np.array_equal(back.to_host(), array.transpose(0, 2, 1, 3))


@pytest.mark.parametrize("dtype", [float32, uint8, float16, int64], ids=str)
def test_whole_rows_are_looked_up_four_at_a_time(wide, rng, dtype):
    table = rng.integers(0, 100, (9, 5, 8))
    x = put(wide, table, dtype)
    for index in (rng.integers(0, 9, 7), rng.integers(0, 9, (2, 3)), np.array(4), rng.integers(0, 9, (2, 0))):
        assert np.array_equal(run("gather", x, put(wide, index)).to_host(), table[index])
    turned = put(wide, rng.integers(0, 9, (3, 4))).permute((1, 0))  # an index whose axes do not merge
    assert np.array_equal(run("gather", x, turned).to_host(), table[turned.to_host()])
    narrow = x.slice(slice(None), slice(None), slice(1, 5))
    assert np.array_equal(run("gather", narrow, put(wide, np.array([8, 0]))).to_host(), table[[8, 0], :, 1:5])
    run("gather", x, put(wide, np.array([0, -1])))
    with pytest.raises(IndexRangeError, match="gather: index -1 is outside an axis of size 9"):
        wide.synchronize()


@pytest.mark.parametrize(("kind", "dtype"), [
    ("bits", "uint32"), ("uniform", "float32"), ("uniform", "float16"), ("uniform", "float64"), ("normal", "float32"), ("normal", "bfloat16"),
])  # fmt: skip
def test_dense_numbers_are_those_of_any_layout(wide, kind, dtype):
    """The same words and roundings, with sizes that are no multiple of a block."""
    options = {"kind": kind, "key": (5, 6), "counter": (7, 0, 1, 0)}
    for shape in ((1,), (3, 5), (8, 16), (1027,)):
        dense = run("random", put(wide, np.zeros(1), dtype), shape=shape, **options).to_host()
        spread = put(wide, np.zeros((*shape, 2)), dtype).slice(*[slice(None)] * len(shape), slice(1, 2)).reshape(shape)
        wide.random(spread, **options)
        assert np.array_equal(dense, spread.to_host())


@pytest.mark.parametrize("dtype", [float32, float16, bfloat16, float64], ids=str)
def test_dropout_in_one_pass_is_its_body_s(wide, rng, dtype):
    for shape in ((1,), (7, 5), (4, 64), (1001,)):
        x = put(wide, rng.standard_normal(shape), dtype)
        for p in (0.0, 0.3, 1.0):
            with overrides(False):
                expected = run("dropout", x, p=p, key=(1, 2), counter=(3, 0, 0, 0))
            got = run("dropout", x, p=p, key=(1, 2), counter=(3, 0, 0, 0))
            for a, b in zip(got, expected, strict=True):
                assert a.dtype is b.dtype
                assert np.array_equal(a.to_host(), b.to_host()), (shape, p)


def test_updates_four_at_a_time_are_those_one_by_one(wide, rng):
    """Arrays that begin at a multiple of four, and the same ones an element further on."""
    scalars = {"lr": 0.1, "b1": 0.9, "b2": 0.99, "log_b1": np.log(0.9), "log_b2": np.log(0.99), "eps": 1e-8}
    for n in (1, 4, 7, 1030):
        arrays = [np.abs(rng.standard_normal(n + 1)).astype(np.float32) for _ in range(4)]
        found = []
        for begin in (0, 1):
            moved = [put(wide, np.roll(a, begin)).slice(slice(begin, begin + n)) for a in arrays]
            step = put(wide, np.zeros((), np.float32))
            run_update("adam", [(*moved, step)], scalars)
            found.append([v.to_host() for v in (*moved, step)])
        for a, b in zip(*found, strict=True):
            assert np.array_equal(a, b)
        assert not np.array_equal(found[0][1], arrays[1][:n])
