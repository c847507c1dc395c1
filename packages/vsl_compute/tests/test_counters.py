"""Counters of transfers against the driver's own calls: every byte that crosses is counted, whoever moves it, once."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from vsl_compute import dispatch
from vsl_compute.dispatch import asarray, run, run_update, upload_ahead
from vsl_compute.errors import IndexRangeError

TO_DEVICE, TO_HOST = 1, 2  # as CUDA's runtime calls them


class Copies:
    """What the driver's copies moved between host and device, seen where it is asked for them."""

    def __init__(self):
        self.nbytes = {TO_DEVICE: 0, TO_HOST: 0}
        self.calls = {TO_DEVICE: 0, TO_HOST: 0}

    def add(self, way, nbytes):
        self.nbytes[way] += nbytes
        self.calls[way] += 1


def watched_opencl(backend, monkeypatch):
    """pyopencl as the queue knows it, with its copies seen."""
    real, seen = backend.queue._cl, Copies()

    class Watched:
        def __getattr__(self, name):
            return getattr(real, name)

        def enqueue_copy(self, queue, out, x, **options):
            if isinstance(x, np.ndarray):
                seen.add(TO_DEVICE, x.nbytes)
            elif isinstance(out, np.ndarray):
                seen.add(TO_HOST, out.nbytes)
            return real.enqueue_copy(queue, out, x, **options)

    monkeypatch.setattr(backend.queue, "_cl", Watched())
    return seen


def watched_cuda(monkeypatch):
    """A simulated device whose memcpyAsync is seen, and a backend on it."""
    simulated, seen = sys.modules["simulated_cuda"], Copies()
    made = simulated.Simulation

    def simulation(**options):
        found = made(**options)
        copy = found.cuda.runtime.memcpyAsync

        def memcpyAsync(out, x, nbytes, kind, stream):
            if kind in (TO_DEVICE, TO_HOST):
                seen.add(kind, nbytes)
            return copy(out, x, nbytes, kind, stream)

        found.cuda.runtime.memcpyAsync = memcpyAsync
        return found

    monkeypatch.setattr(simulated, "Simulation", simulation)
    return simulated.opened(), seen


@pytest.fixture(params=["opencl", "simulated_cuda"])
def watched(request, monkeypatch, kernel_cache):
    if request.param == "opencl":
        backend = request.getfixturevalue("opencl")
        return SimpleNamespace(backend=backend, seen=watched_opencl(backend, monkeypatch))
    request.getfixturevalue("simulated_device")  # skips where there is no compiler
    backend, seen = watched_cuda(monkeypatch)
    return SimpleNamespace(backend=backend, seen=seen)


def work(backend, rng):
    """Of every kind: arrays up, ahead and in parts; windows, products, indices, updates of many arrays; reads. Bytes each way."""
    arrays = [rng.standard_normal(s).astype(np.float32) for s in ((2, 3, 8, 8), (4, 3, 3, 3), (64, 5), (9, 4))]
    x, w, m = (asarray(backend, a) for a in arrays[:3])
    table = upload_ahead(backend, arrays[3])()
    index = np.array([1, 8, 1, 0])
    y = run("max_pool2d", run("relu", run("conv2d", x, w, padding=1)), kernel_size=2)[0]
    y = run("matmul", run("contiguous", y).reshape((2, 64)), m)
    y = run("softmax", run("add", y, run("sum", m, axes=(0,))), axis=-1)
    rows = run("gather", table, asarray(backend, index))
    g = [run("multiply", v, 0.5) for v in (x, w, m, table)]
    run_update("sgd", list(zip(g, (x, w, m, table), strict=True)), {"lr": 0.1, "weight_decay": 0.0})
    drawn = run("random", m, kind="uniform", shape=(7,), dtype="float32", key=(1, 0), counter=(0, 0, 0, 0))
    reads = [y, rows, drawn, m.permute((1, 0)), w.slice(slice(None, None, 2)), run("argmax", y)]
    back = [v.to_host() for v in reads]
    backend.synchronize()
    return sum(a.nbytes for a in arrays) + index.nbytes, sum(a.nbytes for a in back)


def test_a17_d21_every_byte_that_crosses_is_counted_at_the_lowest_call(watched, rng):
    """What the user moves is counted as that, exactly, and what the backend moves for itself apart; nothing is left out."""
    backend, seen = watched.backend, watched.seen
    work(backend, rng)  # what is made once is made
    before = backend.transfers()
    bytes_before, calls_before = dict(seen.nbytes), dict(seen.calls)
    up, down = work(backend, rng)
    after = backend.transfers()
    counted = {name: value - getattr(before, name) for name, value in vars(after).items()}
    moved = {way: seen.nbytes[way] - bytes_before[way] for way in seen.nbytes}
    called = {way: seen.calls[way] - calls_before[way] for way in seen.calls}

    assert (counted["bytes_to_device"], counted["bytes_to_host"]) == (up, down)
    assert (counted["calls_to_device"], counted["calls_to_host"]) == (5, 6)
    assert moved[TO_DEVICE] >= up
    assert moved[TO_HOST] >= down
    assert sum(moved.values()) == up + down + counted["metadata_bytes"]
    assert sum(called.values()) == 5 + 6 + counted["metadata_calls"]


def test_what_is_found_wrong_with_an_index_is_read_as_metadata(watched):
    backend, seen = watched.backend, watched.seen
    before, bytes_before = backend.transfers(), sum(seen.nbytes.values())
    table, index = np.ones((3, 2), np.float32), np.array([0, 7])
    with pytest.raises(IndexRangeError):
        dispatch.run("gather", asarray(backend, table), asarray(backend, index)).to_host()
    after = backend.transfers()
    counted = sum(value - getattr(before, name) for name, value in vars(after).items() if "bytes" in name)

    assert sum(seen.nbytes.values()) - bytes_before == counted
