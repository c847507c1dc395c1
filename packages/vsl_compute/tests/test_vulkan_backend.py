"""The Vulkan backend beyond the contract: memory, commands and their barriers, lost and hung devices, forks, threads, exit."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from vsl_compute import dispatch
from vsl_compute.backends.shared import axes
from vsl_compute.backends.vulkan import backend as vulkan_backend
from vsl_compute.backends.vulkan import indexing as vulkan_indexing
from vsl_compute.backends.vulkan import memory
from vsl_compute.backends.vulkan import reduce as vulkan_reduce
from vsl_compute.backends.vulkan import rows as vulkan_rows
from vsl_compute.backends.vulkan.driver import VulkanDriver
from vsl_compute.backends.vulkan.memory import ALIGNMENT, BLOCK, size_class
from vsl_compute.dispatch import asarray
from vsl_compute.dtypes import float32
from vsl_compute.errors import DeviceLostError, DeviceTimeoutError, IndexRangeError, OutOfMemoryError, ReleasedError
from vsl_compute.random import draw
from vsl_compute.testing import SELECTION
from vsl_compute.view import Layout

ONES = np.ones(1000, np.float32)


@pytest.fixture
def fresh(request, tmp_path, monkeypatch):
    """A backend of this test's own, to break; skipped, with the reason, where there is no device or VTL_TEST_VULKAN=0."""
    selection = request.config.stash[SELECTION]
    if selection.setting.get("vulkan") == "0":
        pytest.skip("vulkan: left out (VTL_TEST_VULKAN=0)")
    if reason := selection.why_absent("vulkan"):
        pytest.skip(f"vulkan: {reason}")
    monkeypatch.setenv("VSL_CACHE_DIR", str(tmp_path))
    backend = VulkanDriver().open(0)
    yield backend
    backend.close()


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

    def refusing(device, nbytes, type_index):
        tried.append(nbytes)
        if len(tried) == 1:
            raise OutOfMemoryError("vulkan: vkAllocateMemory: VK_ERROR_OUT_OF_DEVICE_MEMORY")
        return real(device, nbytes, type_index)

    monkeypatch.setattr(memory, "Block", refusing)
    view = fresh.allocate(Layout.of(float32, (BLOCK,)))
    assert len(tried) == 2
    assert view.buffer.handle.nbytes >= 4 * BLOCK


def test_g03_beyond_the_budget_the_error_has_sizes_and_the_backend_goes_on(fresh, monkeypatch):
    x = asarray(fresh, ONES)
    monkeypatch.setattr(fresh.device, "budget", lambda: BLOCK + (1 << 20))
    with pytest.raises(
        OutOfMemoryError, match=rf"asked for {4 * BLOCK} bytes, held 4000 in use of .* budget {BLOCK + (1 << 20)}"
    ):
        fresh.allocate(Layout.of(float32, (BLOCK,)))
    assert run("sum", x).to_host() == 1000


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


# commands


def test_barriers_stand_at_hazards_only(fresh):
    """Independent writes need none; a read of what was written, and a write over what was read or written, one each."""
    x = asarray(fresh, ONES)
    a, b, c = (fresh.allocate(x.layout) for _ in range(3))
    run("negative", x, out=a)
    fresh.synchronize()
    run("negative", x, out=a)  # a new command buffer begins with a barrier
    count = fresh.commands.barriers
    run("negative", x, out=b)
    run("absolute", x, out=c)
    assert fresh.commands.barriers == count
    run("add", a, b, out=c)  # reads a and b, writes c
    assert fresh.commands.barriers == count + 1
    run("negative", x, out=a)  # a was read
    assert fresh.commands.barriers == count + 2
    halves = [c.slice(slice(0, 500)), c.slice(slice(500, 1000))]
    fresh.synchronize()
    run("negative", x.slice(slice(0, 500)), out=halves[0])
    count = fresh.commands.barriers
    run("negative", x.slice(slice(500, 1000)), out=halves[1])  # another part of one buffer
    assert fresh.commands.barriers == count
    assert c.to_host().tolist() == [-1] * 1000


def test_dispatches_are_submitted_together(fresh):
    x = asarray(fresh, ONES)
    y = run("add", x, x)
    fresh.synchronize()
    before = fresh.commands.submitted
    for _ in range(200):
        y = run("add", y, 1.0)
    assert fresh.commands.submitted - before == 3
    assert y.to_host().tolist() == [202] * 1000


def test_g02_more_elements_than_65535_groups_hold(fresh):
    fresh.device.most_groups = 3
    x = asarray(fresh, np.zeros(65537, np.float32))
    y = run("add", x, 1.0)
    assert float(run("sum", y).to_host()) == 65537
    assert (y.to_host() == 1).all()


def test_an_index_out_of_range_is_reported_once_and_names_the_op(fresh):
    x = asarray(fresh, np.arange(6, dtype=np.float32).reshape(3, 2))
    wrong = run("gather", x, asarray(fresh, np.array([0, 7, 1])))
    with pytest.raises(IndexRangeError, match=r"gather: index 7 is outside an axis of size 3"):
        wrong.to_host()
    assert wrong.to_host().tolist() == [[0, 1], [0, 0], [2, 3]]
    run("scatter", x, asarray(fresh, np.array([0, -1, 1])), shape=(3, 2))
    with pytest.raises(IndexRangeError, match=r"scatter_add: index -1"):
        fresh.synchronize()
    fresh.synchronize()


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


# what goes wrong


def test_a_hung_device_is_a_timeout_and_not_a_hang(fresh):
    x = run("add", asarray(fresh, ONES), 1.0)
    real = fresh.device.call["vkWaitSemaphores"]
    fresh.device.call["vkWaitSemaphores"] = lambda *_: 2
    with pytest.raises(DeviceTimeoutError, match="waiting 120 s"):
        x.to_host()
    with pytest.raises(DeviceTimeoutError):
        run("add", x, 1.0)
    fresh.device.call["vkWaitSemaphores"] = real
    fresh.device.broken = None
    fresh.commands.finish()


def test_a_lost_device_stays_lost(fresh):
    x = run("add", asarray(fresh, ONES), 1.0)
    real = fresh.device.call["vkQueueSubmit"]
    fresh.device.call["vkQueueSubmit"] = lambda *_: -4
    with pytest.raises(DeviceLostError, match=r"vkQueueSubmit: the device was lost"):
        x.to_host()
    fresh.device.call["vkQueueSubmit"] = real
    for call in (fresh.synchronize, lambda: run("add", x, 1.0), lambda: fresh.allocate(x.layout), x.to_host):
        with pytest.raises(DeviceLostError):
            call()
    fresh.device.broken = None


def test_after_close_its_arrays_are_released(fresh):
    x = asarray(fresh, ONES)
    fresh.close()
    for call in (x.to_host, lambda: run("add", x, 1.0), fresh.synchronize):
        with pytest.raises(ReleasedError, match="closed"):
            call()
    fresh.close()  # again, to no effect


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_gets_an_error_and_the_parent_goes_on(fresh):
    x = run("add", asarray(fresh, ONES), 1.0)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            x.to_host()
        except DeviceLostError as error:
            code = 0 if "fork" in str(error) and "spawn" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert x.to_host()[0] == 2


def test_two_threads_use_one_device(fresh):
    wrong: list[object] = []

    def work(number):
        try:
            x = asarray(fresh, np.full((7, 9), number, np.float32))
            for _ in range(60):
                y = run("matmul", run("add", x, 1.0), run("subtract", x, 1.0).permute((1, 0)))
                if not (y.to_host() == 9 * (number * number - 1)).all():
                    wrong.append(number)
        except Exception as error:  # noqa: BLE001  # whatever a thread raises fails the test
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in (3, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []


@pytest.mark.parametrize("last", ["", "b.close()", "x.to_host()", "del b"])
def test_a_process_ends_with_work_in_flight(fresh, last):
    """Nothing is read, nothing is closed: the exit is clean either way."""
    text = f"""
import numpy as np
from vsl_compute import dispatch
from vsl_compute.backends.vulkan.driver import VulkanDriver
b = VulkanDriver().open(0)
x = dispatch.asarray(b, np.ones((64, 64), np.float32))
for _ in range(100): x = dispatch.run("matmul", x, x, alpha=1 / 64)
{last}
"""
    done = subprocess.run(
        [sys.executable, "-c", text],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_driver_s_pipeline_cache_is_kept_on_disk(fresh, tmp_path):
    run("add", asarray(fresh, ONES), 1.0).to_host()
    fresh.close()
    (kept,) = (tmp_path / "vulkan").iterdir()
    assert kept.stat().st_size > 0
    again = VulkanDriver().open(0)
    assert run("add", asarray(again, ONES), 1.0).to_host()[0] == 2
    again.close()
    kept.write_bytes(b"not a cache")
    third = VulkanDriver().open(0)
    assert run("add", asarray(third, ONES), 1.0).to_host()[0] == 2
    third.close()


def test_opening_and_closing_leaves_nothing(fresh):
    """The device is gone with `close`, and the backend with its last name."""
    backends = [VulkanDriver().open(0) for _ in range(3)]
    for backend in backends:
        run("add", asarray(backend, ONES), 1.0).to_host()
        backend.close()
        assert backend.device.handle is None
        assert backend.memory().reserved == 0
