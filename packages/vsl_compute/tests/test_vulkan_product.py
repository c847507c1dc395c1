"""Matrix products on Vulkan: every way that a matrix can lie and every path of the kernel, on whole numbers, so exactly."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from vsl_compute import dispatch, dtypes, registry
from vsl_compute.backends.shared import tuning
from vsl_compute.backends.shared.tuning import Tuner
from vsl_compute.backends.vulkan import product, product_plan, tiles
from vsl_compute.dispatch import asarray
from vsl_compute.testing import require

SIZES = (  # m n k: multiples of the tile, of four, and of nothing; thin ones
    (64, 64, 64), (33, 64, 12), (36, 20, 4), (35, 21, 7), (4, 4, 4), (1, 8, 8), (8, 1, 16), (70, 66, 40),
)  # fmt: skip


@pytest.fixture
def vulkan(request):
    require(request, "vulkan")
    return registry.get("vulkan")


@pytest.fixture
def fresh_plans(vulkan, monkeypatch):
    """Have products planned anew, with this tile and so many parts of k, and without matrix units."""

    def arrange(tile, parts):
        monkeypatch.setattr(vulkan._products, "_ways", {})
        monkeypatch.setattr(vulkan._products.planner, "elements", frozenset())
        monkeypatch.setattr(product_plan, "choices", lambda *_, **__: [tiles.Choice(tile, parts)])

    return arrange


def matrix(backend, rng, shape, dtype, turned):
    """A matrix of whole numbers on the device, its transpose in memory if `turned`; and as the host sees it."""
    values = rng.integers(-4, 5, (*shape[:-2], shape[-1], shape[-2]) if turned else shape)
    view = asarray(backend, values.astype(np.float64), dtype)
    swap = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
    return (view.permute(swap), values.swapaxes(-1, -2)) if turned else (view, values)


def check(backend, rng, sizes, dtype, turned, beta=2.0):
    for number, (m, n, k) in enumerate(sizes):
        batch = (3,) if number % 2 else ()
        a, left = matrix(backend, rng, (*batch, m, k), dtype, turned[0])
        b, right = matrix(backend, rng, (*batch, k, n), dtype, turned[1])
        out, old = matrix(backend, rng, (*batch, m, n), dtype, False)
        dispatch.run("matmul", a, b, alpha=3.0, beta=beta, out=out)
        expected = asarray(backend, (3.0 * (left @ right) + beta * old).astype(np.float64), dtype).to_host()
        assert np.array_equal(out.to_host(), expected), (m, n, k)


@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize(("dtype", "parts"), [("float32", 1), ("bfloat16", 1), ("bfloat16", 3), ("int32", 2)])
def test_products_of_whole_numbers_are_exact(vulkan, rng, fresh_plans, turned, dtype, parts):
    fresh_plans(tiles.RATES[-1].tile if parts == 1 and dtype == "bfloat16" else tiles.SOFTWARE_SMALL, parts)
    check(vulkan, rng, SIZES, dtype, turned)


@pytest.mark.slow
@pytest.mark.parametrize("tile", tiles.TILES, ids=lambda tile: "x".join(map(str, tile)))
def test_every_tile_of_the_table_is_exact(vulkan, rng, fresh_plans, tile):
    """Slow: llvmpipe takes seconds to compile one of the larger."""
    if not vulkan._products.planner.room.holds(tile, 4):
        pytest.skip(f"{vulkan.info.name}: a group of {tile} does not fit")
    fresh_plans(tile, 1)
    check(vulkan, rng, SIZES[2:4] if tile.rows >= 128 else SIZES[1:4], "float32", (True, True))


def test_every_tile_of_the_table_divides_among_its_threads():
    for tile in tiles.TILES:
        assert tile.depth % tile.teams == 0, tile
        assert tile.down % 4 == tile.across % 4 == 0, tile
        assert (tile.columns // tile.across) % tile.width == (tile.threads // tile.teams) % 32 == 0, tile
        for side in (tile.rows, tile.columns):
            assert side * tile.depth % (4 * tile.threads) == 0, tile


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int64"])
def test_products_with_a_vector_are_exact(vulkan, rng, monkeypatch, dtype, parts):
    """Rows and columns, in every layout; a vector may have any stride."""
    monkeypatch.setattr(product_plan, "vector_parts", lambda *_, **__: parts)
    monkeypatch.setattr(vulkan._products, "_ways", {})
    for turned in (False, True):
        for m, k in ((36, 20), (35, 21), (4, 64), (1, 9), (70, 300)):
            a, left = matrix(vulkan, rng, (3, m, k), dtype, turned)
            for step in (1, 2, -1):
                vectors, right = matrix(vulkan, rng, (abs(step) * k, 2), dtype, False)
                x, expected = vectors.slice(slice(None, None, step), slice(0, 1)), right[::step, :1]
                got = dispatch.run("matmul", a, x, alpha=2.0)
                assert np.array_equal(
                    got.to_host(), asarray(vulkan, np.asarray(2 * (left @ expected)), dtype).to_host()
                )
                across = dispatch.run("matmul", x.permute((1, 0)), a.permute((0, 2, 1)), alpha=2.0)
                assert np.array_equal(across.to_host(), got.to_host().swapaxes(1, 2))


def test_a_matrix_of_many_rows_is_cut(vulkan, rng, monkeypatch):
    monkeypatch.setattr(product, "MOST", 40)
    a, left = matrix(vulkan, rng, (90, 20), "float32", False)
    b, right = matrix(vulkan, rng, (20, 81), "float32", True)
    assert np.array_equal(dispatch.run("matmul", a, b).to_host(), left @ right)


def test_many_batches_of_any_strides_are_exact(vulkan, rng, fresh_plans, monkeypatch):
    """More batches than a launch takes, over axes that do not merge; matrices as if a tile spanned 2^31 elements."""
    fresh_plans(tiles.SOFTWARE_SMALL, 2)
    monkeypatch.setattr(product_plan, "NEAR", 1)
    monkeypatch.setattr(product_plan, "MOST_GROUPS", 6)
    a, left = matrix(vulkan, rng, (3, 8, 5, 9), "float32", False)
    b, right = matrix(vulkan, rng, (8, 9, 6), "float32", False)
    odd = a.slice(slice(None), slice(None, None, 2))
    got = dispatch.run("matmul", odd, b.slice(slice(None, None, 2)))
    assert np.array_equal(got.to_host(), left[:, ::2] @ right[::2])


def test_a_plan_is_made_once_for_layouts_and_alignments(vulkan, rng, fresh_plans):
    fresh_plans(tiles.SOFTWARE_SMALL, 1)
    values, left = matrix(vulkan, rng, (9, 8), "float32", False)
    for start in (0, 1, 0, 4):  # rows of eight: one, then another alignment of a
        part = values.reshape((72,)).slice(slice(start, start + 64)).reshape((8, 8))
        got = dispatch.run("matmul", part, part).to_host()
        flat = left.reshape(-1)[start : start + 64].reshape(8, 8)
        assert np.array_equal(got, flat @ flat)
    assert len(vulkan._products._ways) == 3  # offsets of 0, 4 and 16 bytes differ in ALIGNED


def test_a_search_tries_what_adds_alike_on_operands_of_its_own(vulkan, rng, monkeypatch):
    """Whichever tile wins, the bits are the same, and none of the search counts as the user's transfers."""
    monkeypatch.setenv("VSL_AUTOTUNE", "1")
    monkeypatch.setenv("VSL_CACHE_DIR", "")
    monkeypatch.setattr(vulkan._products, "tuner", Tuner(vulkan.info, vulkan.commands.finish))
    monkeypatch.setattr(vulkan._products, "_ways", {})
    monkeypatch.setattr(product, "SEARCHED", 1)
    monkeypatch.setattr(tuning, "BUDGET_S", 1e9)  # a loaded machine compiles slowly
    fitting = [tiles.SOFTWARE_SMALL, tiles.SOFTWARE, tiles.SOFTWARE_SMALL._replace(teams=2)]
    monkeypatch.setattr(product_plan, "choices", lambda *_, **__: [tiles.Choice(tile, 1) for tile in fitting])
    tried, tiled = set(), product_plan.Planner.tiled
    monkeypatch.setattr(product_plan.Planner, "tiled", lambda *args: tried.add(args[-1].tile) or tiled(*args))
    a, left = matrix(vulkan, rng, (2, 33, 20), "float32", True)
    b, right = matrix(vulkan, rng, (20, 36), "float32", False)
    before = vulkan.transfers()
    got = dispatch.run("matmul", a, b)
    moved = vulkan.transfers()
    assert np.array_equal(got.to_host(), left @ right)
    assert tried == set(fitting[:2])
    assert (moved.bytes_to_host, moved.bytes_to_device) == (before.bytes_to_host, before.bytes_to_device)
    assert moved.metadata_bytes > before.metadata_bytes


def test_every_tile_for_matrix_units_divides_among_its_subgroups():
    for tile, *_ in tiles.UNIT_RATES:
        assert (
            tile.rows % tile.down
            == tile.columns % tile.across
            == tile.down % 16
            == tile.across % 16
            == tile.depth % 32
            == 0
        )
        assert tile.rows * tile.depth % (8 * tile.threads) == tile.columns * tile.depth % (8 * tile.threads) == 0, tile


@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_matrix_units_are_exact_on_whole_numbers(vulkan, rng, monkeypatch, turned, dtype):
    """Every tile of the table, in one part and in two; results are rounded to nearest even."""
    if dtype not in vulkan._products.planner.elements:
        pytest.skip(f"{vulkan.info.name}: no matrix units for {dtype}")
    for tile, *_ in tiles.UNIT_RATES:
        for parts in (1, 2):
            monkeypatch.setattr(vulkan._products, "_ways", {})
            monkeypatch.setattr(product_plan.Planner, "choices", lambda *_, t=tile, p=parts: [tiles.Choice(t, p)])
            sizes = (
                (2 * tile.rows, tile.columns, 2 * parts * tile.depth),
                (tile.rows, 2 * tile.columns, 4 * parts * tile.depth),
            )
            check(vulkan, rng, sizes, dtype, turned, beta=0.0)


def layouts(dtype, m, n, k, pitch=0):
    """A problem of dense operands whose rows are `pitch` elements longer than they need be."""
    whole = [product_plan.Matrix(r, c, c + pitch, 1, ()) for r, c in ((m, n), (m, k), (k, n))]
    return product_plan.Problem(dtypes.dtype_of(dtype), (), *whole, (0, 0, 0), 1.0, 0.0)


def test_matrix_units_take_what_is_whole_and_aligned_and_of_their_types():
    planner = product_plan.Planner(None, tiles.Room("discrete", 1024, 49152), frozenset({"float16"}))
    first, *others = planner.choices(layouts("float16", 4096, 4096, 4096))
    assert not first.by_units  # what the others are compared with
    assert others
    assert all(choice.by_units for choice in others)
    for other in (
        layouts("float16", 4095, 4096, 4096),
        layouts("float16", 4096, 4096, 4096 + 8),
        layouts("float16", 4096, 4096, 4096, pitch=4),
        layouts("float16", 4096, 4096, 4096)._replace(low=(0, 8, 0)),
        layouts("float16", 4096, 4096, 4096)._replace(beta=1.0),
        layouts("bfloat16", 4096, 4096, 4096),
        layouts("float32", 4096, 4096, 4096),
    ):
        assert not any(choice.by_units for choice in planner.choices(other)), other


def test_a_large_product_of_halves_is_padded_to_whole_tiles(vulkan, rng, monkeypatch):
    """As if this device had units: the copies are right, whatever multiplies them."""
    monkeypatch.setattr(vulkan._products, "_ways", {})
    monkeypatch.setattr(vulkan._products.planner, "elements", frozenset({"float16"}))
    monkeypatch.setattr(product_plan, "unit_choices", lambda *_: [])
    monkeypatch.setattr(product, "PADDED", 1)
    for number, (m, n, k) in enumerate(((120, 128, 60), (127, 121, 64))):
        wants = [True]  # once: the padded product has no units either
        monkeypatch.setattr(product.Products, "_wants_padding", lambda *_, left=wants: bool(left and left.pop()))
        a, left = matrix(vulkan, rng, (2, m, k), "float16", bool(number))
        b, right = matrix(vulkan, rng, (k, n), "float16", not number)
        got = dispatch.run("matmul", a, b)
        assert not wants
        assert np.array_equal(got.to_host(), left @ right)


def test_padding_is_wanted_where_it_brings_matrix_units_and_adds_little():
    products = product.Products.__new__(product.Products)
    products.planner = product_plan.Planner(None, tiles.Room("discrete", 1024, 49152), frozenset({"float16"}))
    products.tuner = SimpleNamespace(searches=True)
    assert products._wants_padding(layouts("float16", 4095, 4095, 4095))
    assert products._wants_padding(layouts("float16", 4096, 4096, 4096, pitch=1))
    for other in (
        ("float16", 4096, 4096, 4096),
        ("float16", 4096, 4096, 17),
        ("float32", 4095, 4095, 4095),
        ("float16", 33, 33, 33),
    ):
        assert not products._wants_padding(layouts(*other)), other
    products.tuner.searches = False  # then units are never chosen
    assert not products._wants_padding(layouts("float16", 4095, 4095, 4095))


def test_the_table_takes_large_tiles_for_large_results_and_parts_for_small_ones():
    room = tiles.Room("discrete", 1024, 49152)
    for (m, n, k), (results, parts) in {
        (4096, 4096, 4096): (128 * 256, 1), (1024, 1024, 1024): (64 * 128, 1), (256, 256, 256): (32 * 32, 1), (64, 576, 65536): (64 * 64, 64),
    }.items():  # fmt: skip
        tile, cut = tiles.choices(room, 4, m, n, k, 1, fours=True)[0]
        assert (tile.rows * tile.columns, cut) == (results, parts), (m, n, k)
    for itemsize, kind in ((8, "discrete"), (4, "integrated"), (4, "software")):
        found = tiles.choices(tiles.Room(kind, 128, 16384), itemsize, 1000, 1000, 1000, 1, fours=False)
        assert found
        assert all(c.tile.threads <= 128 and c.tile.shared_bytes(itemsize) <= 16384 for c in found)
