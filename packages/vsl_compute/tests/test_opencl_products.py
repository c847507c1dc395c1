"""Matrix products on OpenCL: the tiles for GPUs on PoCL, with groups of many threads, against what a single thread computes."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from vsl_compute.backends.opencl.backend import OpenCLBackend
from vsl_compute.backends.shared import products, tuning
from vsl_compute.backends.shared.cache import FileCache
from vsl_compute.backends.shared.products import Products
from vsl_compute.dispatch import asarray, run
from vsl_compute.dtypes import bfloat16, float16, float32, float64, int8, int32, int64
from vsl_compute.kernels.gemm import TILES, Tile

TINY = Tile(16, 16, 8, 4, 4)  # as the others, but quick to compile; for numbers of eight bytes as well


@pytest.fixture
def grouped(opencl):
    """The device with groups of 64 threads and shared memory, as on a GPU."""
    return OpenCLBackend(opencl.info, opencl.programs._device, group=64)


@pytest.fixture
def tiny(grouped, monkeypatch):
    """Likewise, with one small tile."""
    monkeypatch.setattr(Products, "_candidates", lambda *given: [TINY])
    return grouped


def put(backend, array, dtype=None):
    return asarray(backend, np.asarray(array), dtype)


def laid(backend, array, layout, dtype=float32):
    """The array on the device: row after row, column after column, every second of each, or somewhere in a longer one."""
    if layout == "transposed":
        return put(backend, np.ascontiguousarray(array.T), dtype).permute((1, 0))
    if layout == "stepped":
        wide = np.zeros((2 * array.shape[0], 2 * array.shape[1]), array.dtype)
        wide[::2, ::2] = array
        return put(backend, wide, dtype).slice(slice(None, None, 2), slice(None, None, 2))
    if layout == "inside":
        wide = np.zeros((array.shape[0] + 1, array.shape[1] + 3), array.dtype)
        wide[1:, 2:-1] = array
        return put(backend, wide, dtype).slice(slice(1, None), slice(2, -1))
    return put(backend, array, dtype)


LAYOUTS = ("dense", "transposed", "stepped", "inside")


@pytest.mark.slow
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (32, 16, 24), (33, 20, 9), (20, 37, 36)])
def test_operands_of_every_layout_give_the_same(tiny, rng, m, n, k):
    """Packs where rows begin at their multiples, single elements elsewhere; sizes within, at and beyond a tile's.

    Slow: a kernel a way of reading, each compiled by PoCL for a second.
    """
    a, b, c = (rng.integers(-8, 9, shape).astype(np.float32) for shape in ((m, k), (k, n), (m, n)))
    for shift, (i, left) in product(range(2), enumerate(LAYOUTS)):
        right, out = LAYOUTS[(i + shift) % 4], ("dense", "transposed", "stepped")[(i + shift) % 3]
        x, y, z = laid(tiny, a, left), laid(tiny, b, right), laid(tiny, c, out)
        run("matmul", x, y, out=z, alpha=2, beta=-1)
        assert np.array_equal(z.to_host(), 2 * (a @ b) - c), (left, right, out)
        run("matmul", x, y, out=z)
        assert np.array_equal(z.to_host(), a @ b), (left, right, out)
    if m > 1:
        assert len({key[-1] for key in tiny._products._kernels}) >= 5


@pytest.mark.parametrize("dtype", [float16, bfloat16, float64, int8, int32, int64], ids=str)
def test_tiles_in_shared_memory_agree_with_registers(opencl, tiny, rng, dtype):
    """Every storage: read in packs and one by one, with a remainder of rows, columns and terms."""
    for m, n, k in ((32, 24, 20), (17, 19, 21)):
        a, b, c = (rng.integers(-4, 5, shape) for shape in ((m, k), (n, k), (m, n)))
        found = []
        for backend in (opencl, tiny):
            x, y, out = (put(backend, v, dtype) for v in (a, b, c))
            run("matmul", x, y.permute((1, 0)), out=out, alpha=2, beta=-1)
            found.append(out.to_host())
        assert np.array_equal(found[0], found[1])
        if dtype in (float64, int32, int64):  # the others round or wrap
            assert np.array_equal(found[0], 2 * (a @ b.T) - c)


@pytest.mark.slow
@pytest.mark.parametrize("tile", TILES, ids=lambda tile: tile.name)
def test_every_tile_adds_in_the_same_order(opencl, grouped, rng, tile, monkeypatch):
    """Not one bit differs from a single thread's sum. Slow: PoCL compiles the large tiles for seconds."""
    monkeypatch.setattr(Products, "_candidates", lambda *given: [tile])
    monkeypatch.setattr(products, "PIECE", 1 << 30)
    for m, n, k in ((260, 264, 40), (131, 67, 21)):
        a, b = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((k, n)).astype(np.float32)
        alone, together = (run("matmul", put(d, a), put(d, b)).to_host() for d in (opencl, grouped))
        assert np.array_equal(alone, together)


@pytest.mark.parametrize("dtype", [float32, float16, float64], ids=str)
def test_many_terms_are_added_in_pieces(tiny, rng, dtype):
    """Seven rows of 3000 terms, in batches: within the rounding of a tree, whatever the layout of the result."""
    tiny.units = 4
    a, b = rng.standard_normal((2, 7, 3000)), rng.standard_normal((3000, 12))
    x, y = put(tiny, a, dtype), put(tiny, b, dtype)
    exact = x.to_host().astype(np.float64) @ y.to_host().astype(np.float64)
    for out in (None, put(tiny, np.zeros((2, 12, 7)), dtype).permute((0, 2, 1))):
        got = run("matmul", x, y, out=out, alpha=0.5).to_host()
        assert np.abs(got - 0.5 * exact).max() <= {2: 0.1, 4: 1e-4, 8: 1e-12}[dtype.itemsize]
    pieces = [plan.pieces for plan in tiny._products._plans.values()]
    assert all(p is not None and p.shape == (11, 2, 7, 12) for p in pieces)


def test_pieces_do_not_add_to_what_is_kept(tiny, rng):
    """With beta there is one piece; NaN that beta 0 does not read is overwritten."""
    tiny.units = 4
    a, b = rng.integers(-3, 4, (4, 3000)).astype(np.float32), rng.integers(-3, 4, (3000, 4)).astype(np.float32)
    out = put(tiny, np.full((4, 4), np.nan, np.float32))
    run("matmul", put(tiny, a), put(tiny, b), out=out)
    assert np.array_equal(out.to_host(), a @ b)
    run("matmul", put(tiny, a), put(tiny, b), out=out, beta=1)
    assert np.array_equal(out.to_host(), 2 * (a @ b))
    assert [plan.pieces is None for plan in tiny._products._plans.values()] == [False, True]


def test_rows_too_far_apart_for_32_bits_are_walked_in_64(rng):
    assert products._side(1 << 24, 1, 128, 64, 128, 4) == ("any", False)
    assert products._side((1 << 24) - 4, 1, 128, 64, 128, 4) == ("deep", True)
    assert products._side(1, 1 << 24, 128, 64, 128, 4) == ("any", False)
    assert products._side(2, 7, 128, 64, 128, 4) == ("any", False)


def test_a_device_whose_groups_are_too_small_computes_in_registers(tiny, rng, monkeypatch):
    """By the device's own limit, and by the kernel's."""
    a, b = rng.integers(-3, 4, (20, 30)).astype(np.float32), rng.integers(-3, 4, (30, 24)).astype(np.float32)
    made = tiny.programs.kernel

    def limited(kernel, kinds):
        return replace(made(kernel, kinds), limit=8)

    monkeypatch.setattr(tiny.programs, "kernel", limited)
    assert np.array_equal(run("matmul", put(tiny, a), put(tiny, b)).to_host(), a @ b)
    assert {key[2].threads for key in tiny._products._kernels} == {1, TINY.threads}
    monkeypatch.undo()
    small = OpenCLBackend(tiny.info, tiny.programs._device, group=64)
    small._products._most_threads = 8
    assert np.array_equal(run("matmul", put(small, a), put(small, b)).to_host(), a @ b)
    assert {key[2].threads for key in small._products._kernels} == {1}


def test_a_search_finds_a_tile_and_keeps_it(opencl, rng, monkeypatch, tmp_path):
    """The whole way: candidates are compiled, compared and timed on scratch; the user's counters do not move."""
    monkeypatch.setenv("VSL_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("VSL_AUTOTUNE", "1")
    monkeypatch.setattr(products, "WORTH", 1)
    monkeypatch.setattr(tuning, "BUDGET_S", 1e9)  # a loaded machine compiles slowly
    tiles = [TINY, Tile(8, 16, 8, 4, 4)]
    monkeypatch.setattr(Products, "_candidates", lambda *given: tiles)
    backend = OpenCLBackend(opencl.info, opencl.programs._device, group=64)
    a, b = rng.integers(-3, 4, (40, 50)).astype(np.float32), rng.integers(-3, 4, (50, 33)).astype(np.float32)
    x, y = put(backend, a), put(backend, b)
    before = backend.transfers()
    got = run("matmul", x, y)
    after = backend.transfers()
    assert (after.bytes_to_host, after.bytes_to_device) == (before.bytes_to_host, before.bytes_to_device)
    assert np.array_equal(got.to_host(), a @ b)
    (file,) = (tmp_path / "tuning").iterdir()
    kept = json.loads(FileCache("tuning").read(file.name))
    assert kept["key"] == ["gemm", "dws 64x64x64 by 1", "float32"]
    assert kept["choice"] in kept["seconds"]
    assert set(kept["seconds"]) == {tile.name for tile in tiles}


def test_the_table_gives_large_results_large_tiles(grouped):
    """By the number of compute units: a device of 132 takes what was measured to be best on one."""
    grouped.units = 132
    best = [grouped._products._candidates(float32, n, n, 1)[0].name for n in (4096, 2048, 1024, 256)]
    assert best == ["128x256x8_8x16", "128x256x8_8x16", "64x64x16_8x4", "32x32x16_4x4"]
    assert grouped._products._candidates(float64, 4096, 4096, 1)[0].thread_rows * 4 <= 64
