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
from vsl_compute.dispatch import asarray
from vsl_compute.errors import IndexRangeError

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
