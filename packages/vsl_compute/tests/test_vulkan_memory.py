"""Memory of the Vulkan backend: chunks, blocks, staging and what is refused; and arrays longer than one launch counts."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from vsl_compute import dispatch
from vsl_compute.backends.shared import axes
from vsl_compute.backends.vulkan import backend as vulkan_backend
from vsl_compute.backends.vulkan import indexing as vulkan_indexing
from vsl_compute.backends.vulkan import memory
from vsl_compute.backends.vulkan import reduce as vulkan_reduce
from vsl_compute.backends.vulkan import rows as vulkan_rows
from vsl_compute.backends.vulkan.memory import ALIGNMENT, BLOCK, size_class
from vsl_compute.dispatch import asarray
from vsl_compute.dtypes import float32
from vsl_compute.errors import OutOfMemoryError
from vsl_compute.random import draw
from vsl_compute.view import Layout

ONES = np.ones(1000, np.float32)


def run(op, *args, **options):
    return dispatch.run(op, *args, **options)


# memory


def test_size_classes_hold_what_is_asked_and_waste_at_most_a_quarter():
    for nbytes in (1, 255, 256, 257, 1000, 4096, 5000, 1 << 20, (1 << 20) + 1, 3 << 20, 100_000_007):
        size = size_class(nbytes)
        assert size >= nbytes
        assert size % ALIGNMENT == 0
        assert size <= max(ALIGNMENT * 2, nbytes * 1.26)
        assert size_class(size) == size


def test_a_freed_chunk_is_used_again_and_memory_stays_flat(fresh):
    """G13: 200 steps reserve what 20 do."""
    x = asarray(fresh, ONES)
    reserved = []
    for step in range(200):
        y = run("sum", run("relu", run("add", x, x)))
        if step in (20, 199):
            y.to_host()
            reserved.append(fresh.memory())
    assert reserved[0] == reserved[1]


def test_blocks_go_back_to_the_device_when_nothing_uses_them(fresh):
    before = fresh.memory().reserved
    view = fresh.allocate(Layout.of(float32, (BLOCK // 2,)))  # larger than a block
    assert fresh.memory().reserved >= before + 2 * BLOCK
    fresh.empty_cache()
    assert fresh.memory().reserved >= before + 2 * BLOCK
    del view
    gc.collect()
    fresh.empty_cache()
    assert fresh.memory().reserved <= BLOCK


def test_what_the_device_refuses_is_asked_for_again_after_the_cache_is_emptied(fresh, monkeypatch):
    real, tried = memory.Block, []
    kept = fresh.allocate(Layout.of(float32, (BLOCK // 4,)))
    del kept
    cached = fresh.memory().reserved

    def refusing(device, nbytes, type_index):
        tried.append(fresh.memory().reserved)
        if len(tried) == 1:
            raise OutOfMemoryError("vulkan: vkAllocateMemory: VK_ERROR_OUT_OF_DEVICE_MEMORY")
        return real(device, nbytes, type_index)

    monkeypatch.setattr(memory, "Block", refusing)
    view = fresh.allocate(Layout.of(float32, (BLOCK,)))
    assert tried == [cached, cached - BLOCK]
    assert view.buffer.handle.nbytes >= 4 * BLOCK


def test_g03_beyond_the_budget_the_error_has_sizes_and_the_backend_goes_on(fresh, monkeypatch):
    """G03."""
    x = asarray(fresh, ONES)
    monkeypatch.setattr(fresh.device, "budget", lambda: BLOCK + (1 << 20))
    with pytest.raises(
        OutOfMemoryError, match=rf"asked for {4 * BLOCK} bytes, held 4000 in use of .* budget {BLOCK + (1 << 20)}"
    ):
        fresh.allocate(Layout.of(float32, (BLOCK,)))
    assert run("sum", x).to_host() == 1000


def test_g03_an_array_larger_than_a_buffer_may_be_is_refused_with_both_numbers(fresh, monkeypatch):
    """G03: the limit as if it were 1 MiB; vkCreateBuffer is not asked for more, and blocks stay within it."""
    most, made, real = 1 << 20, [], memory.Block

    def counted(device, nbytes, type_index):
        made.append(nbytes)
        return real(device, nbytes, type_index)

    monkeypatch.setattr(memory, "Block", counted)
    monkeypatch.setattr(fresh.device, "largest_buffer", most)
    monkeypatch.setattr(fresh.device, "promised_bytes", most)
    with pytest.raises(
        OutOfMemoryError, match=rf"asked for {most + 4} bytes, .*promises one array no more than {most} bytes"
    ):
        fresh.allocate(Layout.of(float32, (most // 4 + 1,)))
    assert made == []
    whole = asarray(fresh, np.arange(most // 4, dtype=np.float32))
    half = asarray(fresh, np.arange(most // 8, dtype=np.float32))
    assert float(run("max", run("add", whole, 1.0)).to_host()) == most // 4
    assert float(run("max", run("add", half, 1.0)).to_host()) == most // 8
    assert max(made) <= most


def test_g03_a_driver_that_gives_more_than_it_says_is_asked(fresh, monkeypatch):
    """G03: NVIDIA's says 4 GiB and gives 40."""
    largest, promised = fresh.device._largest()
    assert 1 << 27 <= promised <= largest
    monkeypatch.setattr(fresh.device.properties, "vendorID", 0x10DE)
    assert fresh.device._largest() == (1 << 64, 1 << 64)


def test_g03_what_a_driver_promises_is_no_limit_where_it_gives_more(fresh, monkeypatch):
    """G03: it is asked; where it then has none, the error has the number."""
    monkeypatch.setattr(fresh.device, "promised_bytes", 1 << 20)
    view = fresh.allocate(Layout.of(float32, (1 << 19,)))
    assert view.buffer.handle.nbytes >= 2 << 20

    def refusing(device, nbytes, type_index):
        raise OutOfMemoryError("vulkan: vkAllocateMemory: VK_ERROR_OUT_OF_DEVICE_MEMORY")

    monkeypatch.setattr(memory, "Block", refusing)
    with pytest.raises(OutOfMemoryError, match=r"promises one array no more than 1048576 bytes; free some"):
        fresh.allocate(Layout.of(float32, (1 << 26,)))


def test_arrays_go_through_staging_where_the_host_cannot_map_them(fresh, rng, monkeypatch):
    """As on a discrete GPU; in several parts, and twice over one staging chunk."""
    fresh.device.unified = False
    monkeypatch.setattr(vulkan_backend, "STAGING", 1 << 12)
    values = rng.standard_normal((50, 61)).astype(np.float32)
    before = fresh.transfers()
    view = asarray(fresh, values)
    assert np.array_equal(view.to_host(), values)
    assert np.array_equal(view.permute((1, 0)).slice(slice(None, None, -2)).to_host(), values.T[::-2])
    after = fresh.transfers()
    assert after.bytes_to_device - before.bytes_to_device == values.nbytes
    assert after.calls_to_device - before.calls_to_device == 3
    assert after.bytes_to_host - before.bytes_to_host == values.nbytes + 31 * 50 * 4
    several = [asarray(fresh, np.full(1000, i, np.float32)) for i in range(20)]
    assert [float(run("max", v).to_host()) for v in several] == list(range(20))


# long arrays


@pytest.fixture
def few(fresh, monkeypatch):
    """As if a launch could count 100 elements: what is longer is cut."""
    monkeypatch.setattr(vulkan_reduce, "MOST", 100)
    monkeypatch.setattr(vulkan_indexing, "MOST", 104)  # half of it is whole blocks of random words
    monkeypatch.setattr(vulkan_rows, "MOST", 96)
    monkeypatch.setattr(axes, "LIMIT", 100)
    return fresh


def test_long_arrays_are_cut_without_a_seam(few, rng):
    x = rng.standard_normal((7, 31, 9)).astype(np.float32)
    view = asarray(few, x)
    assert np.array_equal(run("negative", view).to_host(), -x)
    assert np.array_equal(run("add", view.permute((2, 0, 1)), 1.0).to_host(), x.transpose(2, 0, 1) + np.float32(1))
    assert np.array_equal(view.slice(slice(None, None, -2)).to_host(), x[::-2])
    for axes_ in ((0,), (1,), (2,), (0, 2), (0, 1, 2)):
        np.testing.assert_allclose(run("sum", view, axes=axes_).to_host(), x.sum(axes_), rtol=1e-4, atol=1e-4)
        mean, variance = run("moments", view, axes=axes_)
        np.testing.assert_allclose(mean.to_host(), x.mean(axes_), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(variance.to_host(), x.var(axes_), rtol=1e-4)
    assert run("argmax", view).to_host() == x.argmax()
    assert np.array_equal(
        run("argmax", view.permute((1, 0, 2)), axes=(1, 2)).to_host(), x.transpose(1, 0, 2).reshape(31, -1).argmax(1)
    )


def test_long_gathers_folds_sorts_and_draws_are_cut_without_a_seam(few, rng):
    x = rng.standard_normal((4, 30, 6)).astype(np.float32)
    view, index = asarray(few, x), rng.integers(0, 4, 90)
    assert np.array_equal(run("gather", view, asarray(few, index)).to_host(), x[index])
    values, order = run("sort", view.permute((0, 2, 1)))
    assert np.array_equal(values.to_host(), np.sort(x.transpose(0, 2, 1), axis=-1))
    assert np.array_equal(order.to_host(), np.argsort(x.transpose(0, 2, 1), axis=-1, kind="stable"))
    windows = view.window((1,), (3,), (1,), (1,))
    folded = run("fold", windows, shape=x.shape, axes=(1,), steps=(1,), dilations=(1,)).to_host()
    times = np.array([1, 2, *[3] * 26, 2, 1], np.float32)
    np.testing.assert_allclose(folded, x * times[:, None], rtol=1e-6)
    for kind, dtype in (("bits", "uint32"), ("uniform", "float32"), ("normal", "float32")):
        drawn = run(
            "random", view, kind=kind, shape=(301,), dtype=dtype, key=(1, 2), counter=(0xFFFFFFF0, 0, 0, 0)
        ).to_host()
        whole = draw(kind, 4, (1, 2), (0xFFFFFFF0, 0, 0, 0), 301)
        np.testing.assert_allclose(drawn, whole, rtol=0, atol=0 if kind != "normal" else 4e-6)


def test_g04_a_launch_over_dense_arrays_ends_before_two_to_the_32_bytes(fresh, rng, monkeypatch):
    """G04: NVIDIA's driver wraps the byte offset of an access chain there; as if that were at 1 KiB."""
    assert vulkan_rows.most_of([4, 4]) * 4 == vulkan_rows.most_of([1, 8]) * 8 == 1 << 32
    assert vulkan_rows.most_of([1]) < 1 << 31
    monkeypatch.setattr(vulkan_rows, "REACH", 1024)
    x = rng.standard_normal(1000).astype(np.float32)
    view, wide = asarray(fresh, x), asarray(fresh, x.astype(np.float64))
    assert np.array_equal(run("negative", view).to_host(), -x)
    assert np.array_equal(run("negative", wide).to_host(), -x.astype(np.float64))
    assert np.array_equal(run("astype", view, dtype="float64").to_host(), x.astype(np.float64))
    counts = [[part.layout[0] for part in parts] for parts in fresh.rows._plans.values()]
    assert counts == [[256, 256, 256, 232], [128] * 7 + [104], [128] * 7 + [104]]
    g, before = asarray(fresh, x), fresh.commands.dispatched
    dispatch.run_update("sgd", [(g, view)], {"lr": 0.5, "weight_decay": 0.0})
    assert fresh.commands.dispatched - before == 4
    assert np.array_equal(view.to_host(), x - np.float32(0.5) * x)


def test_g04_neighbours_beyond_two_to_the_32_bytes_are_reduced_in_parts_that_begin_anew(fresh, rng, monkeypatch):
    """G04: as if that were at 1 KiB: no part of an output is longer, and steps between rows are 64 bits wide."""
    monkeypatch.setattr(vulkan_reduce, "REACH", 1024)
    passes, made = [], fresh._reductions._row_pass

    def noticed(row, x, outs, shape, layout):
        passes.append((shape.from_states, layout[3], layout[4], shape.width))
        return made(row, x, outs, shape, layout)

    monkeypatch.setattr(fresh._reductions, "_row_pass", noticed)
    for shape, over in (
        ((200,), (0,)),
        ((1000,), (0,)),
        ((40, 200), (1,)),
        ((3, 300), (1,)),
        ((3, 302), (0, 1)),
        ((4, 5, 64), (0, 2)),
    ):
        x = rng.standard_normal(shape).astype(np.float32)
        np.testing.assert_allclose(
            run("sum", asarray(fresh, x), axes=over).to_host(), x.sum(over), rtol=1e-4, atol=1e-4
        )
    assert all(-(-units // parts) * width * 4 <= 1024 for states, units, parts, width in passes if not states)
    assert any(parts > 1 for states, _, parts, _ in passes if not states)
