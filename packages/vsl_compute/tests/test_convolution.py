"""Convolution as a product: its geometry against counting, its tiles against the text, every tile against the definition."""

from __future__ import annotations

import random

import numpy as np
import pytest

from vsl_compute import dispatch, registry
from vsl_compute.backends.shared import convolution as shared
from vsl_compute.backends.shared import tuning
from vsl_compute.dispatch import asarray
from vsl_compute.dtypes import float16, float32, float64
from vsl_compute.kernels.convolution import (
    ALONE,
    MOST,
    TILES,
    WIDE_TILES,
    Tile,
    divisor,
    fields,
    packed,
    phases,
    tiles,
)
from vsl_compute.testing import require
from vsl_compute.validation import oracle_ops

EVERY_TILE = sorted({ALONE, *(t for row in (*TILES.values(), *WIDE_TILES.values()) for t in row)})
SHAPES = (  # x, weight, options: multiples of four and not, groups, a stride that does not go up
    ((2, 8, 9, 7), (12, 8, 3, 3), {"padding": 1}),
    ((3, 6, 7, 8), (10, 3, 3, 2), {"groups": 2, "stride": (2, 1), "padding": (1, 0)}),
    ((1, 4, 16, 16), (72, 4, 1, 3), {"dilation": 2}),
)  # fmt: skip


def test_division_by_multiplication_is_exact():
    drawn = random.Random(1)
    for n in [1, 2, 3, 5, 7, 64, 641, 65535, 65537, MOST - 1, *(drawn.randrange(1, MOST) for _ in range(300))]:
        magic, shift = divisor(n)
        assert magic < 1 << 32
        assert shift < 32
        for k in (0, 1, n - 1, n, n + 1, MOST - 1, MOST // n * n - 1, *(drawn.randrange(MOST) for _ in range(50))):
            k = min(max(k, 0), MOST - 1)
            assert ((k * magic >> 32) + k) >> shift == k // n, (k, n)


def test_phases_cover_every_pair_of_an_element_and_a_tap_once():
    """Against the definition: position i looks at element i * step - padding + p * dilation through tap p."""
    drawn = random.Random(2)
    for _ in range(400):
        size, taps = drawn.randrange(1, 12), drawn.randrange(1, 6)
        step, padding, dilation = drawn.randrange(1, 5), drawn.randrange(4), drawn.randrange(1, 5)
        expected = {
            (h, p, (h + padding - p * dilation) // step)
            for h in range(size)
            for p in range(taps)
            if (h + padding - p * dilation) % step == 0
        }
        found = [
            (start + i * step, p, i * axis.step + axis.first + t * axis.dilation)
            for start, chosen, axis in phases(size, taps, step, padding, dilation)
            for i in range(axis.positions)
            for t, p in enumerate(range(taps)[chosen])
        ]
        assert len(found) == len(set(found))
        assert set(found) == expected, (size, taps, step, padding, dilation)


def test_parameters_fit_push_constants_with_four_addresses():
    assert len(packed({"channels": 3, "width": 5, "plane": 7})) + 4 * 8 <= 128
    assert len(fields()) % 2 == 0  # OpenCL takes them as int64s


@pytest.mark.parametrize("tile", EVERY_TILE, ids=str)
def test_a_tile_is_one_that_the_text_can_fetch(tile):
    """Every thread fetches as much of a, in fours; neighbours in a tile fall to threads as the text counts on."""
    count = tile.threads
    assert tile.thread_rows % 4 == tile.thread_columns % 4 == tile.depth % 4 == 0
    assert tile.rows * tile.depth % (4 * count) == 0
    assert count % (tile.depth // 4) == 0 or count == 1
    for n in (count, tile.rows, tile.columns, tile.depth):
        assert n & (n - 1) == 0
    assert tile.shared * (8 if tile in WIDE_TILES[64] else 4) <= 32768
    assert count <= 256


def test_a_tile_is_found_for_every_size_and_device():
    for rows, columns in ((1, 1), (27, 64), (10**6, 3), (576, 512), (65536, 64), (300, 200)):
        for itemsize in (4, 8):
            assert tiles(rows, columns, itemsize, 1, 1 << 15) == [ALONE]
            for tile in tiles(rows, columns, itemsize, 256, 1 << 15):
                assert tile.threads in range(2, 257)
    assert tiles(65536, 3, 4, 256, 1 << 15)[0].columns == 4
    assert tiles(27, 64, 4, 256, 1 << 15)[0].rows == 32
    assert tiles(10**6, 64, 4, 256, 1 << 15)[0].rows == 128
    assert tiles(10**6, 64, 4, 256, 1 << 15, tall=False)[0].rows == 64


@pytest.fixture(params=["vulkan", "opencl"])
def device(request):
    """The device, OpenCL's with groups of threads; skipped, with the reason, where there is none or it is left out."""
    require(request, request.param)
    backend = registry.get(request.param)
    if request.param == "vulkan":
        yield backend
        return
    grouped = type(backend)(backend.info, backend.programs._device, group=64)
    yield grouped
    grouped.close()


def check(backend, rng, dtype=float32, shapes=SHAPES):
    """The three ops on whole numbers, so exactly."""

    def drawn(shape):
        host = rng.integers(-3, 4, shape).astype(np.float64)
        return asarray(backend, host, dtype), host

    for x_shape, w_shape, options in shapes:
        (x, x_host), (w, w_host), (b, b_host) = drawn(x_shape), drawn(w_shape), drawn(w_shape[:1])
        expected = oracle_ops.conv2d(x_host, w_host, b_host, **options)
        g, g_host = drawn(expected.shape)
        last = asarray(backend, x_host.transpose(0, 2, 3, 1), dtype).permute((0, 3, 1, 2))
        for image in (x, last):
            assert np.array_equal(dispatch.run("conv2d", image, w, b, **options).to_host(), expected)
            got = dispatch.run("conv2d_weight", g, image, shape=w_shape, **options).to_host()
            assert np.array_equal(got, oracle_ops.conv2d_weight(g_host, x_host, w_shape, **options))
        got = dispatch.run("conv2d_input", g, w, shape=x_shape, **options).to_host()
        assert np.array_equal(got, oracle_ops.conv2d_input(g_host, w_host, x_shape, **options))


def convolutions(backend):
    return backend.override("conv2d").__self__


@pytest.mark.slow
@pytest.mark.parametrize("tile", EVERY_TILE, ids=str)
def test_every_tile_gives_exact_results(device, rng, monkeypatch, tile):
    """Slow: PoCL and llvmpipe compile a tile for seconds."""
    ours = convolutions(device)
    monkeypatch.setattr(ours, "_ready", {})
    monkeypatch.setattr(ours.launcher, "tiles", lambda *_, **__: [tile])
    wide = tile in WIDE_TILES[64] and float64 in device.capabilities.functions
    check(device, rng, float64 if wide else float32)


@pytest.mark.slow
def test_a_search_finds_that_all_tiles_agree_bit_for_bit(device, rng, monkeypatch, caplog, tmp_path):
    """Slow, as above. A tile that differs would be dropped, and the log would say so."""
    monkeypatch.setenv("VSL_AUTOTUNE", "1")
    monkeypatch.setenv("VSL_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(tuning, "BUDGET_S", 1e9)
    monkeypatch.setattr(shared, "SEARCHED", 0)
    ours = convolutions(device)
    monkeypatch.setattr(ours, "_ready", {})
    monkeypatch.setattr(ours, "tuner", tuning.Tuner(device.info, device.synchronize))
    monkeypatch.setattr(
        ours.launcher, "tiles", lambda *_, **__: [Tile(32, 16, 8, 4, 4), Tile(16, 32, 16, 4, 4), TILES[64][0]]
    )
    with caplog.at_level("INFO", "vsl_compute.tuning"):
        check(device, rng, shapes=SHAPES[:1])
    assert sum(" of {" in r.getMessage() for r in caplog.records) >= 3
    assert not [r.getMessage() for r in caplog.records if "dropped" in r.getMessage()]


def test_sums_in_parts_and_batches_in_cuts_are_exact(device, rng, monkeypatch):
    """The weight's gradient cut into as many parts as there are tiles of positions; three rows of groups a launch."""
    ours = convolutions(device)
    monkeypatch.setattr(ours, "_ready", {})
    monkeypatch.setattr(ours, "busy", 1 << 20)
    monkeypatch.setattr(shared, "SHORTEST", 8)
    monkeypatch.setattr(shared, "FEW_PARTS", 1 << 20)
    monkeypatch.setattr(shared, "DEEPEST", 8)
    monkeypatch.setattr(shared, "MOST_GROUPS", 3)
    small = Tile(8, 16, 8, 4, 4)
    monkeypatch.setattr(ours.launcher, "tiles", lambda *_, **__: [small])
    check(device, rng, shapes=(((7, 8, 5, 4), (20, 8, 3, 3), {"padding": 1}),))


def test_float16_results_are_rounded_once_and_to_nearest_even(device, rng):
    """Sums that are exact in float32, from denormals to beyond the largest; NaN and infinities as they are."""
    x = np.ldexp(rng.integers(-2047, 2048, (1, 8, 1, 500)), rng.integers(-26, 6, (1, 8, 1, 500))).astype(np.float16)
    w = np.zeros((16, 8, 1, 1), np.float16)
    w[np.arange(16), np.arange(16) % 8, 0, 0] = rng.choice([1.0, -1.5, 2.0, 0.375, 31.0], 16)
    exact = np.einsum("nchw,oc->nohw", x.astype(np.float32), w[:, :, 0, 0].astype(np.float32))
    with np.errstate(over="ignore"):
        expected = exact.astype(np.float16)
    assert np.isinf(expected).any()
    got = dispatch.run("conv2d", asarray(device, x, float16), asarray(device, w, float16)).to_host()
    assert np.array_equal(got, expected)
    x[0, 3, 0, :3] = np.nan, np.inf, -np.inf
    w = np.ones((4, 8, 1, 1), np.float16)
    got = dispatch.run("conv2d", asarray(device, x, float16), asarray(device, w, float16)).to_host()[0, :, 0, :3]
    assert np.isnan(got[:, 0]).all()
    assert np.isposinf(got[:, 1]).all()
    assert np.isneginf(got[:, 2]).all()


def test_images_too_large_to_count_are_left_to_the_body(device, rng, monkeypatch):
    monkeypatch.setattr(shared, "MOST", 40)
    ours = convolutions(device)
    x, w = asarray(device, np.ones((1, 2, 8, 8)), float32), asarray(device, np.ones((2, 2, 3, 3)), float32)
    options = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
    assert ours.conv2d(x, w, None, **options) is NotImplemented
    assert dispatch.run("conv2d", x, w).to_host().tolist() == np.full((1, 2, 6, 6), 18.0).tolist()
