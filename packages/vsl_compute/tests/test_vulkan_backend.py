"""The Vulkan backend beyond the contract: commands and their barriers, closing, forks, threads, exit."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest

from vsl_compute import dispatch, registry
from vsl_compute.backends.shared.cache import FileCache
from vsl_compute.backends.vulkan.backend import VulkanBackend
from vsl_compute.backends.vulkan.driver import VulkanDriver
from vsl_compute.dispatch import asarray
from vsl_compute.dtypes import ALL
from vsl_compute.errors import (
    DeviceLostError,
    IndexRangeError,
    ReleasedError,
    UnsupportedError,
)

ONES = np.ones(1000, np.float32)


def run(op, *args, **options):
    return dispatch.run(op, *args, **options)


def first(result):
    """The result, or the first of several."""
    return result[0] if isinstance(result, tuple) else result


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


def test_no_launch_touches_what_another_wrote_without_a_barrier_between(fresh, rng, monkeypatch):
    """Random calls on a few overlapping views; every pair of launches is compared, byte range by byte range."""
    seen: list[object] = []
    order, real_barrier = fresh.commands._order, fresh.commands._record_barrier

    def ordered(buffer, reads, writes):
        order(buffer, reads, writes)
        seen.append((list(reads), list(writes)))

    def barrier(buffer):
        seen.append(None)
        real_barrier(buffer)

    monkeypatch.setattr(fresh.commands, "_order", ordered)
    monkeypatch.setattr(fresh.commands, "_record_barrier", barrier)
    base = asarray(fresh, rng.standard_normal((12, 12)).astype(np.float32))
    index = asarray(fresh, rng.integers(0, 4, 4))
    views = [base.slice(slice(i, i + 4), slice(j, j + 4)) for i in (0, 4, 8) for j in (0, 4, 8)]
    for _ in range(300):
        a, b, c = (views[i] for i in rng.integers(0, 9, 3))
        match int(rng.integers(0, 7)):
            case 0:
                run("add", a, b, out=c)
            case 1:
                run("copy", a, out=c)
            case 2:
                run("matmul", a, b, out=c, beta=0.5)
            case 3:
                run("sum", a, axes=(0,), out=c.slice(0))
            case 4:
                run("gather", a, index, out=c)
            case 5:
                run("random", a, kind="uniform", key=(1, 2), counter=(3, 0, 0, 0), out=c)
            case 6:
                run("sort", run("scatter", a, index, shape=(4, 4)))
    fresh.synchronize()
    open_reads: list[tuple[object, int, int]] = []
    open_writes: list[tuple[object, int, int]] = []
    for event in seen:
        if event is None:
            open_reads, open_writes = [], []
            continue
        reads, writes = event
        for earlier, later in ((open_writes, reads), (open_writes, writes), (open_reads, writes)):
            for chunk, low, high in later:
                assert not any(c is chunk and low < h and o < high for c, o, h in earlier)
        open_reads += reads
        open_writes += writes


def test_dispatches_are_submitted_together(fresh):
    x = asarray(fresh, ONES)
    y = run("add", x, x)
    fresh.synchronize()
    before = fresh.commands.submitted
    for _ in range(200):
        y = run("add", y, 1.0)
    assert fresh.commands.submitted - before == 5  # after a wait 8, then 16, 32, 64, 64, and 16 are left
    assert y.to_host().tolist() == [202] * 1000


def test_work_on_much_memory_begins_at_once_when_the_device_is_idle(fresh):
    x = asarray(fresh, np.ones(1 << 18, np.float32))
    fresh.synchronize()
    before = fresh.commands.submitted
    y = run("add", x, x)
    assert fresh.commands.submitted - before == 1
    run("add", y, x)
    assert fresh.commands.submitted - before == 1  # the device has work; submitting costs more than it gains


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


@pytest.mark.parametrize("op", ["gelu", "add", "less", "softmax", "layer_norm"])
def test_a_call_of_layouts_seen_before_is_one_launch_and_right_wherever_its_arrays_begin(fresh, rng, op):
    """The second call was made ready by the first; arrays that begin between four elements take another module."""
    count = {"add": 2, "less": 2, "layer_norm": 3}.get(op, 1)
    shapes = [(4, 32), (32,), (32,)] if op == "layer_norm" else [(4, 32)] * count
    options = {"layer_norm": {"normalized_shape": (32,), "eps": 1e-5}, "softmax": {"axis": 1}}.get(op, {})
    hosts = [rng.standard_normal(300).astype(np.float32) for _ in range(count)]
    wholes = [asarray(fresh, h) for h in hosts]
    for turn, starts in enumerate([(0, 0, 0), (0, 0, 0), (8, 4, 0), (1, 0, 0), (4, 3, 8), (0, 0, 0)]):
        parts = [slice(at, at + int(np.prod(shape))) for at, shape in zip(starts, shapes, strict=False)]
        views = [w.slice(p).reshape(s) for w, p, s in zip(wholes, parts, shapes, strict=True)]
        before = fresh.commands.dispatched
        got = first(run(op, *views, **options))
        launches = fresh.commands.dispatched - before
        cpu = [asarray(registry.get("cpu"), h[p].reshape(s)) for h, p, s in zip(hosts, parts, shapes, strict=True)]
        np.testing.assert_allclose(got.to_host(), first(run(op, *cpu, **options)).to_host(), rtol=1e-5, atol=1e-6)
        assert launches == 1 or turn == 0 or any(at % 4 for at in starts)
    assert sum(ready is not None for ready in fresh.prepared.values()) >= 1


# closing, forks, threads, exit


def test_after_close_its_arrays_are_released(fresh):
    x = asarray(fresh, ONES)
    y = [run("add", x, x) for _ in range(2)]  # the second was made ready
    fresh.close()
    assert not fresh.prepared
    for call in (x.to_host, y[1].to_host, lambda: run("add", x, x), lambda: run("add", x, 1.0), fresh.synchronize):
        with pytest.raises(ReleasedError, match="closed"):
            call()
    fresh.close()  # again, to no effect


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_gets_an_error_and_the_parent_goes_on(fresh):
    x = run("add", asarray(fresh, ONES), 1.0)
    child = os.fork()
    if child == 0:
        refused = []
        try:
            for call in (lambda: run("negative", x, out=x), x.to_host):  # a buffer of the parent's is open
                with pytest.raises(DeviceLostError, match=r"fork.*spawn"):
                    call()
                refused.append(call)
        finally:
            os._exit(2 - len(refused))
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
    FileCache("vulkan").write(kept.name, b"not a cache")  # the driver's to refuse
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


LOST = {
    "shaderFloat64": {"float64"},
    "storageBuffer16BitAccess": {"float16", "bfloat16", "int16", "uint16"},
}


@pytest.mark.parametrize(("feature", "lost"), LOST.items(), ids=LOST)
def test_g10_what_a_device_lacks_is_refused_by_dtype_and_the_rest_works(fresh, feature, lost):
    """G10: every way to a dtype that the device cannot hold says so, none is an error of the driver's compiler."""
    driver = registry.driver("vulkan")
    info, physical, features = driver._probe()[0]
    lacking = replace(features, enabled=features.enabled - {feature})
    dtypes = tuple(d.name for d in lacking.functions())
    assert {d.name for d in ALL} - set(dtypes) == lost
    backend = VulkanBackend(replace(info, dtypes=dtypes), driver.api, driver.instance, physical, lacking)
    x = asarray(backend, ONES)
    for name in lost:
        held = asarray(backend, np.ones((3, 3)), name)  # bytes may come and go
        assert held.to_host().tolist() == np.ones((3, 3)).tolist()
        for call in (
            lambda n=name: run("astype", x, dtype=n),
            lambda h=held: run("astype", h, dtype="float32"),
            lambda h=held: run("fill", alpha=1, out=h),
            lambda h=held: run("add", h, h),
            lambda h=held: run("sum", h),
            lambda h=held: run("softmax", h),
            lambda h=held: run("matmul", h, h),
            lambda h=held: run("contiguous", h.permute((1, 0))),
            lambda h=held: run("gather", h, asarray(backend, np.array([0]))),
            lambda h=held: run("sort", h),
            lambda h=held: run("conv2d", h.reshape((1, 1, 3, 3)), h.reshape((1, 1, 3, 3))),
        ):
            with pytest.raises(UnsupportedError, match=rf"vulkan:0.*{name}"):
                call()
    assert run("add", x, 1.0).to_host().tolist() == [2] * 1000
    assert float(run("sum", run("matmul", x.reshape((10, 100)), x.reshape((100, 10)))).to_host()) == 10000
    normal = run("random", x, kind="normal", key=(3, 1), counter=(0, 0, 0, 0)).to_host()
    assert abs(normal.mean()) < 0.2
    backend.close()
