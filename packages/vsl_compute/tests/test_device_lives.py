"""How a device's life goes in real processes: opened and closed often, killed at any moment, used by many threads, and
beside children that do not use it."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from vsl_compute import dispatch, registry
from vsl_compute.backend import ComputeBackend
from vsl_compute.dispatch import asarray
from vsl_compute.errors import DeviceLostError, IndexRangeError, ReleasedError
from vsl_compute.rows.elementwise import TABLE as ROWS
from vsl_compute.rows.reductions import TABLE as REDUCTIONS

WORK = """
import sys, numpy as np
from vsl_compute import dispatch, registry
backend = registry.get(sys.argv[1])
x = dispatch.asarray(backend, np.linspace(-1, 1, 600, dtype=np.float32).reshape(20, 30))
for row in ("exp", "tanh", "gelu", "erf", "sin", "log1p", "softplus", "expm1"):
    y = dispatch.run(row, x)
z = dispatch.run("matmul", x, x.permute((1, 0)))
print(float(dispatch.run("sum", z).to_host()), flush=True)
"""


def process(backend, cache):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "VSL_CACHE_DIR": str(cache)}
    environment["PYTHONWARNINGS"] = "ignore::UserWarning"  # a software device says that it is one
    return subprocess.Popen(
        [sys.executable, "-c", WORK, backend],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL on this system")
def test_a_process_that_is_killed_leaves_nothing_that_hurts_the_next(backend_name, tmp_path):
    """Killed while it compiles, launches and keeps what it compiled: files of the cache are whole or not there."""
    x = np.linspace(-1, 1, 600, dtype=np.float32).reshape(20, 30)
    for delay in (0.15, 0.4, 0.8, 1.2):
        running = process(backend_name, tmp_path)
        time.sleep(delay)
        running.send_signal(signal.SIGKILL)
        running.communicate()
    last = process(backend_name, tmp_path)
    out, err = last.communicate(timeout=120)
    assert (last.returncode, err) == (0, "")
    assert float(out) == pytest.approx(float((x.astype(np.float64) @ x.T).sum()), abs=1e-3)


def resident():
    """Bytes of this process's memory; 0 where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


SHAPE = (3, 4)
# each with its result given, so that it is not the allocation that refuses; sizes that want a block of parameters too
CALLS = {
    "allocate": lambda b, f, i: b.allocate(f[0].layout),
    "upload": lambda b, f, i: b.upload(f[0], np.ones(SHAPE, np.float32)),
    "download": lambda b, f, i: b.download(f[0]),
    "synchronize": lambda b, f, i: b.synchronize(),
    "empty_cache": lambda b, f, i: b.empty_cache(),
    "copy": lambda b, f, i: b.copy(f[0].slice(slice(None, None, -1)), f[1]),
    "elementwise": lambda b, f, i: b.elementwise(ROWS["add"], f[0], (f[1], f[2].slice(slice(None, None, -1))), ()),
    "update": lambda b, f, i: dispatch.run_update("sgd", [(f[0], f[1])], {"lr": 0.5, "weight_decay": 0.0}),
    "reduce": lambda b, f, i: b.reduce(REDUCTIONS["sum"], (f[0].slice(0),), f[1], (0,)),
    "gemm": lambda b, f, i: b.gemm(f[0].slice(slice(0, 3), slice(0, 3)), f[1], f[2].permute((1, 0)), beta=0.5),
    "gather": lambda b, f, i: b.gather(f[0], f[1], i.slice(slice(0, 3))),
    "scatter_add": lambda b, f, i: b.scatter_add(f[0], i.slice(slice(0, 3)), f[1]),
    "fold": lambda b, f, i: b.fold(f[0], f[1].window((1,), (2,), (1,), (1,)), axes=(1,), steps=(1,), dilations=(1,)),
    "sort": lambda b, f, i: b.sort(f[0].slice(0), i, f[1].slice(0)),
    "scan": lambda b, f, i: b.scan(REDUCTIONS["sum"], f[0], f[1]),
    "random": lambda b, f, i: b.random(f[0], kind="normal", key=(1, 2), counter=(3, 0, 0, 0)),
}  # fmt: skip
QUIET = {"memory", "transfers", "override"}  # they ask the device for nothing


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("used", [False, True], ids=["new", "used"])
def test_a_device_that_is_gone_refuses_every_call_whoever_has_its_arrays(backend_name, call, used):
    """Closed or lost, whether its kernels were made before or not."""
    if backend_name == "cpu":
        pytest.skip("the CPU is never gone")
    for gone in (ReleasedError, DeviceLostError):
        backend = registry.driver(backend_name).open(0)
        floats = [asarray(backend, np.ones(SHAPE, np.float32)) for _ in range(3)]
        index = asarray(backend, np.arange(4) % 3)
        if used:
            CALLS[call](backend, floats, index)
        if gone is ReleasedError:
            backend.close()
        elif backend_name == "vulkan":
            backend.device.give_up(DeviceLostError("vulkan: as if it were lost"))
        else:
            backend.queue.refusal = DeviceLostError, "as if it were lost"
        with pytest.raises(gone):
            CALLS[call](backend, floats, index)


def test_every_call_of_the_contract_is_among_those_that_must_refuse():
    asked = {*ComputeBackend.__abstractmethods__, "empty_cache"} - QUIET
    assert set(CALLS) == asked


def test_the_cpu_outlives_its_closing():
    cpu = registry.get("cpu")
    view = asarray(cpu, np.ones(3, np.float32))
    cpu.close()
    assert registry.get("cpu") is cpu
    assert dispatch.run("add", view, 1.0).to_host().tolist() == [2, 2, 2]


@pytest.mark.slow
def test_g13_a_device_opened_and_closed_a_hundred_times_leaves_nothing(backend_name, tmp_path, monkeypatch):
    """G13. Slow: a hundred devices."""
    monkeypatch.setenv("VSL_CACHE_DIR", str(tmp_path))
    driver, marks = registry.driver(backend_name), []
    for number in range(100):
        backend = driver.open(0)
        view = asarray(backend, np.ones(1000, np.float32))
        assert float(dispatch.run("sum", dispatch.run("add", view, 1.0)).to_host()) == 2000
        del view
        backend.close()
        del backend
        if number in (40, 99):
            gc.collect()
            marks.append(resident())
    assert marks[1] - marks[0] < 6 << 20, f"{(marks[1] - marks[0]) / 59:.0f} bytes a device"


HELD = """
import faulthandler, gc, os, sys, threading, numpy as np
sys.path.insert(0, sys.argv[2])
from test_device_lives import CALLS, SHAPE
from vsl_compute import locks, registry
from vsl_compute.dispatch import asarray

backend = registry.driver(sys.argv[1]).open(0)
floats, index = [asarray(backend, np.ones(SHAPE, np.float32)) for _ in range(3)], asarray(backend, np.arange(4) % 3)
for call in CALLS.values():
    call(backend, floats, index)
backend.synchronize()
kinds, ready, end = (type(threading.Lock()), type(threading.RLock())), threading.Event(), threading.Event()
ours = [o for o in gc.get_objects() if str(type(o).__module__).startswith("vsl_compute.")]
for owner in ours:
    for name, value in getattr(owner, "__dict__", {}).items():
        assert not isinstance(value, kinds) or value in locks._made, f"{owner!r}.{name} is not of vsl_compute.locks"

def hold():
    held = list(locks._made)
    for lock in held:
        lock.acquire()
    ready.set()
    end.wait()
    for lock in held:
        lock.release()

thread = threading.Thread(target=hold)
thread.start()
ready.wait()
wrong = []
others = {"close": lambda: backend.close(), "memory": lambda: backend.memory(), "cpu": lambda: registry.get("cpu")}
for name in [*CALLS, *others]:
    child = os.fork()
    if child == 0:
        faulthandler.dump_traceback_later(20, exit=True)
        try:
            others[name]() if name in others else CALLS[name](backend, floats, index)
            code = 0 if name in others else 2
        except BaseException as error:
            code = 0 if "fork" in str(error) else 3
        os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        wrong.append((name, code))
end.set()
thread.join()
assert np.isfinite(asarray(backend, np.ones(SHAPE, np.float32)).to_host()).all()
print(wrong, flush=True)
os._exit(0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_child_forked_while_another_thread_held_every_lock_is_refused_and_does_not_hang(backend_name, tmp_path):
    """As a data worker that is forked while a thread copies the next batch: nobody is left there to give the locks back."""
    if backend_name == "cpu":
        pytest.skip("the CPU comes along")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "VSL_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-W", "ignore", "-c", HELD, backend_name, str(Path(__file__).parent)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400, check=False)
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr[-2000:]


def test_threads_that_compile_compute_and_fail_do_not_disturb_each_other(backend_name):
    """Four threads, each with kernels of its own and an index that is out of range now and then."""
    backend, wrong = registry.get(backend_name), []

    def work(number):
        rng = np.random.default_rng(number)
        try:
            for step in range(40):
                n = int(rng.integers(1, 300))
                host = rng.integers(-9, 10, (n, number + 2)).astype(np.float32)
                x = asarray(backend, host)
                got = dispatch.run("sum", dispatch.run("multiply", x, float(step)), axes=(0,))
                if not np.array_equal(got.to_host(), (host * np.float32(step)).sum(0)):
                    wrong.append((number, step))
                order = dispatch.run("sort", x.permute((1, 0)))[0].to_host()
                if not np.array_equal(order, np.sort(host.T, axis=-1)):
                    wrong.append((number, step, "sort"))
        except Exception as error:  # noqa: BLE001  # whatever a thread raises fails the test
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert wrong == []


def test_an_index_out_of_range_is_told_once_and_what_follows_is_right(backend_name):
    """The error names op, index and size; the device goes on, and the next read is clean."""
    backend = registry.get(backend_name)
    x = asarray(backend, np.arange(12, dtype=np.float32).reshape(4, 3))
    for bad in (4, -1, 2**31, -(2**40)):
        with pytest.raises(IndexRangeError, match=f"index {bad} is outside"):
            dispatch.run("gather", x, asarray(backend, np.array([0, bad, 1]))).to_host()
        assert dispatch.run("gather", x, asarray(backend, np.array([3]))).to_host().tolist() == [[9, 10, 11]]
        backend.synchronize()
    for lowest in (np.array([-(2**63)]), np.array([2**63], np.uint64)):  # what a report holds where nothing was wrong
        with pytest.raises(IndexRangeError, match=r"index -?922337203685477580[78] is outside"):
            dispatch.run("gather", x, asarray(backend, lowest)).to_host()


def test_a_device_that_was_closed_is_opened_anew_when_it_is_asked_for(backend_name, monkeypatch):
    """Its arrays went with it; the name did not."""
    if backend_name == "cpu":
        pytest.skip("the CPU is never gone")
    for spec in [spec for spec in registry._opened if spec.startswith(backend_name)]:
        monkeypatch.delitem(registry._opened, spec)
    first = registry.get(backend_name)
    view = asarray(first, np.ones(3, np.float32))
    first.close()
    with pytest.raises((ReleasedError, DeviceLostError)):
        dispatch.run("add", view, 1.0)
    second = registry.get(backend_name)
    assert second is not first
    assert registry.get(f"{backend_name}:0") is second
    assert dispatch.run("add", asarray(second, np.ones(3, np.float32)), 1.0).to_host().tolist() == [2, 2, 2]
    second.close()
