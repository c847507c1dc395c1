"""Uploads ahead on a simulated CUDA device, whose copy stream does nothing until somebody waits for it."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import simulated_cuda  # conftest.py has brought it
from simulated_cuda import STREAM, RuntimeFault

from vsl_compute.backends.cuda import ahead, staging
from vsl_compute.dispatch import asarray, run, upload_ahead
from vsl_compute.errors import DeviceLostError, ReleasedError

pytestmark = pytest.mark.skipif(
    simulated_cuda.COMPILER is None, reason="the simulation needs a C++ compiler: clang++ or g++"
)
COPIES = STREAM + 1


def raw(view):
    """What lies in a view's memory now, whatever was waited for."""
    memory = (simulated_cuda.ctypes.c_char * view.nbytes).from_address(view.buffer.handle)
    return np.frombuffer(memory, view.dtype.storage).copy()


def test_the_copy_waits_for_the_memory_s_readers_and_the_device_for_the_copy(simulated_device, rng):
    """Events in both directions, and nothing has moved before the array is taken."""
    x = rng.standard_normal(100).astype(np.float32)
    order = simulated_device.cupy.order
    take = upload_ahead(simulated_device, x)
    assert order == [("record", STREAM), ("wait", COPIES), ("record", COPIES)]
    x_then, x[:] = x.copy(), 0  # the array may change as soon as the call returns
    view = take()
    assert order[3:] == [("wait", STREAM)]
    assert np.array_equal(run("add", view, 1.0).to_host(), x_then + 1)


def test_nothing_arrives_before_it_is_taken(simulated_device, rng):
    """The simulation would show a step that reads too early: memory is NaN until then."""
    x = rng.standard_normal(10).astype(np.float32)
    take = upload_ahead(simulated_device, x)
    view = take.__closure__[-1].cell_contents
    assert np.isnan(raw(view)).all()
    assert np.array_equal(raw(take()), x)


def test_memory_that_was_given_up_is_not_written_late(simulated_device, rng):
    """A copy that nobody takes: the memory comes back to the pool behind it, not under it."""
    take = upload_ahead(simulated_device, rng.standard_normal(64).astype(np.float32))
    buffers = simulated_device.memory().buffers
    del take
    gc.collect()
    assert simulated_device.memory().buffers == buffers - 1
    ones = run("fill", alpha=1.0, out=asarray(simulated_device, np.zeros(64, np.float32)))
    simulated_device.cupy._synchronize(COPIES)
    assert (ones.to_host() == 1).all()


@pytest.mark.parametrize("count", [1, 7])
def test_pinned_memory_is_written_again_only_when_it_was_read(simulated_device, rng, monkeypatch, count):
    """Two parts take turns; arrays longer than a part go piece by piece, and are counted so."""
    monkeypatch.setattr(staging, "PART", 1000)
    monkeypatch.setattr(ahead, "PART", 1000)
    monkeypatch.setattr("vsl_compute.backends.cuda.queue.PART", 1000)
    arrays = [rng.standard_normal(n).astype(np.float32) for n in rng.integers(1, 900, count)]
    before = simulated_device.transfers()
    takes = [upload_ahead(simulated_device, x) for x in arrays]
    after = simulated_device.transfers()
    assert after.bytes_to_device - before.bytes_to_device == sum(x.nbytes for x in arrays)
    assert after.calls_to_device - before.calls_to_device == sum(-(-x.nbytes // 1000) for x in arrays)
    for take, x in zip(takes, arrays, strict=True):
        assert np.array_equal(take().to_host(), x)


def test_dtypes_and_empty_arrays_come_as_asarray_gives_them(simulated_device, rng):
    for array, dtype in (
        (rng.standard_normal((3, 4)), "bfloat16"),
        (rng.standard_normal((3, 4)), "float32"),
        (np.zeros((0, 5)), None),
        (np.float64(2.5), None),
        (rng.standard_normal((4, 6)).T, None),
    ):
        got, expected = upload_ahead(simulated_device, array, dtype)(), asarray(simulated_device, array, dtype)
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
        assert np.array_equal(got.to_host(), expected.to_host())


def test_a_device_that_fails_or_was_closed_says_so(simulated_device):
    x = np.ones(5, np.float32)
    upload_ahead(simulated_device, x)()
    simulated_device.cupy.fault = RuntimeFault(719, "cudaErrorLaunchFailure")
    with pytest.raises(DeviceLostError):
        upload_ahead(simulated_device, x)
    other = simulated_cuda.opened()
    take = upload_ahead(other, x)
    other.close()
    for call in (take, lambda: upload_ahead(other, x)):
        with pytest.raises(ReleasedError):
            call()
