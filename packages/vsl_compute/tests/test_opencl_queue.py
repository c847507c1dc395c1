"""The queue of an OpenCL device: waits have a deadline, and what hangs is lost."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from vsl_compute.backends.opencl import queue as queues
from vsl_compute.backends.opencl.backend import OpenCLBackend
from vsl_compute.backends.shared.parameters import BUFFER, LONG
from vsl_compute.dispatch import asarray, run
from vsl_compute.errors import DeviceLostError, DeviceTimeoutError
from vsl_compute.kernels.shell import Kernel

LONG_KERNEL = """__kernel void busy(__global uint *out, long turns)
{
    uint x = out[0];
    for (long i = 0; i < turns; ++i) x = x * 1664525u + 1013904223u + (x >> 3);
    out[0] = x;
}
"""


@pytest.fixture
def backend(opencl):
    """A queue of this test's own, to break."""
    return OpenCLBackend(opencl.info, opencl.programs._device)


def busy(backend, seconds):
    """Enqueue a kernel that takes at least so long, as was measured with a short one."""
    kernel = backend.programs.kernel(Kernel("busy", LONG_KERNEL, (), ()), [BUFFER, LONG])
    memory = asarray(backend, np.ones(1, np.uint32)).buffer.handle
    turns = 10_000_000
    backend.queue.run(kernel, (1,), (1,), (memory, turns))
    backend.synchronize()
    start = time.perf_counter()
    backend.queue.run(kernel, (1,), (1,), (memory, turns))
    backend.synchronize()
    taken = time.perf_counter() - start
    backend.queue.run(kernel, (1,), (1,), (memory, int(turns * max(1.0, seconds / taken))))


@pytest.mark.parametrize("wait", ["synchronize", "download", "upload"])
def test_a_kernel_that_takes_too_long_is_a_timeout_and_the_device_lost(backend, wait):
    """Every kind of wait; what comes afterwards is refused at once, and closing does not hang."""
    view = asarray(backend, np.ones(3, np.float32))
    busy(backend, 5.0)
    backend.queue.timeout_s = 0.1
    calls = {
        "synchronize": backend.synchronize,
        "download": view.to_host,
        "upload": lambda: asarray(backend, np.ones(3, np.float32)),
    }
    start = time.perf_counter()
    with pytest.raises(DeviceTimeoutError, match=r"opencl:0: .* did not finish what it was given in 0.1 s"):
        calls[wait]()
    assert time.perf_counter() - start < 4.0
    for refused in (*calls.values(), lambda: run("add", view, 1.0), lambda: backend.allocate(view.layout)):
        with pytest.raises(DeviceLostError, match="counts as lost"):
            refused()
    backend.close()
    assert time.perf_counter() - start < 4.0


def test_work_that_is_slow_but_ends_in_time_is_waited_for(backend):
    busy(backend, 0.3)
    backend.queue.timeout_s = 60.0
    backend.synchronize()
    assert run("add", asarray(backend, np.ones(3, np.float32)), 1.0).to_host().tolist() == [2, 2, 2]


def test_launches_do_not_run_ahead_without_a_deadline(backend, monkeypatch):
    """A driver whose queue is full blocks in the launch: markers see to it that it never is."""
    monkeypatch.setattr(queues, "AHEAD", 4)
    view = asarray(backend, np.ones(3, np.float32))
    run("add", view, 1.0)
    busy(backend, 5.0)
    backend.queue.timeout_s = 0.1
    start = time.perf_counter()
    with pytest.raises(DeviceTimeoutError):
        [run("add", view, 1.0) for _ in range(20)]
    assert time.perf_counter() - start < 4.0


def test_a_failed_event_is_a_lost_device(backend, monkeypatch):
    """What a wait says of a kernel that died: the driver's code, as a typed error."""
    cl = backend._cl
    failed = type("Failed", (cl.RuntimeError,), {"code": cl.status_code.EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST})

    class Dead:
        command_execution_status = -5

        @staticmethod
        def wait():
            raise failed("clWaitForEvents failed")

    monkeypatch.setattr(backend.queue, "_mark", Dead)
    with pytest.raises(DeviceLostError, match="could not run what it was given"):
        backend.synchronize()


def test_an_upload_ahead_that_another_thread_was_at_does_not_stop_a_forked_child(backend):
    """The child has a copy of the held lock, and not the thread that would give it back."""
    view, found = asarray(backend, np.ones(3, np.float32)), []

    def ahead():
        with pytest.raises(DeviceLostError, match="before this process was forked"):
            backend.queue.upload_ahead(view.buffer, 0, np.zeros(3, np.float32))
        found.append("refused")

    with backend.queue._ahead:
        backend.queue.forked()
        child = threading.Thread(target=ahead, daemon=True)
        child.start()
        child.join(10)
    assert found == ["refused"]
