"""What is held: Buffers go when their last View does, on success and on error; counters count what moved."""

from __future__ import annotations

import gc
import queue
import threading

import numpy as np
import pytest

from vsl_compute.dispatch import upload_ahead
from vsl_compute.dtypes import float32
from vsl_compute.errors import OutOfMemoryError, ShapeError, UnsupportedError
from vsl_compute.view import Layout

COMPOSITES = True  # its tests run with overrides and without


def held(subject):
    gc.collect()
    subject.backend.synchronize()
    return subject.backend.memory()


def moved(subject):
    """Bytes and calls of arrays, up and down; metadata is counted apart."""
    found = subject.backend.transfers()
    return found.bytes_to_device, found.calls_to_device, found.bytes_to_host, found.calls_to_host


def step(subject, x, w):
    """A little of everything: rows, products, reductions, windows, gathers."""
    y = subject.run("conv2d", x, w, padding=1)
    y = subject.run("max_pool2d", subject.run("relu", y), kernel_size=2)[0]
    y = subject.run("batch_norm", y)[0]
    loss = subject.run("cross_entropy", subject.run("sum", y, axes=(2, 3)), subject.put(np.array([0, 1])))[0]
    return float(loss.to_host())


def test_buffers_go_with_their_last_view(subject):
    before = held(subject)
    views = [subject.run("add", subject.place(float32, "dense", (100,)).view, 1.0) for _ in range(10)]
    assert held(subject).buffers >= before.buffers + 10
    parts = [view.slice(slice(0, 3)) for view in views]
    del views
    assert held(subject).buffers >= before.buffers + 10
    assert held(subject).live >= before.live + 10 * 400
    del parts
    assert held(subject).buffers == before.buffers
    assert held(subject).live == before.live


def test_steps_do_not_grow(subject):
    """G13: reserved and live bytes after 30 steps are those after 3."""
    x, w = subject.place(float32, "dense", (2, 3, 8, 8)).view, subject.place(float32, "dense", (4, 3, 3, 3)).view
    for _ in range(3):
        first = step(subject, x, w)
    early = held(subject)
    for _ in range(27):
        assert step(subject, x, w) == first
    late = held(subject)
    assert (late.live, late.reserved, late.buffers) == (early.live, early.reserved, early.buffers)


def test_errors_hold_nothing(subject):
    x = subject.place(float32, "dense", (64, 64)).view
    before = held(subject)
    for _ in range(5):
        with pytest.raises(ShapeError):
            subject.run("matmul", x, subject.place(float32, "dense", (3, 3)).view)
    assert held(subject).buffers == before.buffers


def test_memory_comes_uninitialised_but_results_do_not_depend_on_it(subject):
    """Poison the allocator with NaN, then compute: a sum that starts from old memory would be NaN (G01)."""
    for size in (16, 100, 4096):
        for _ in range(4):
            subject.run("fill", alpha=float("nan"), out=subject.backend.allocate(Layout.of(float32, (size,))))
    ones = subject.put(np.ones((4, 4), np.float32))
    assert subject.value("matmul", ones, ones).tolist() == np.full((4, 4), 4).tolist()
    assert subject.value("sum", ones) == 16
    assert subject.value("scatter", ones, subject.put(np.array([1, 1, 0, 3])), shape=(5, 4))[:, 0].tolist() == [
        1,
        2,
        0,
        1,
        0,
    ]
    image = subject.put(np.ones((1, 1, 4, 4), np.float32))
    assert subject.value("conv2d", image, subject.put(np.ones((1, 1, 3, 3), np.float32)), padding=1)[
        0, 0, 0
    ].tolist() == [4, 6, 6, 4]
    assert subject.value("avg_pool2d", image, kernel_size=2, padding=1)[0, 0, 0].tolist() == [0.25, 0.5, 0.25]


def test_more_than_there_is_raises_out_of_memory(subject):
    """An exabyte: OutOfMemoryError, which is MemoryError, with the number asked for; the backend stays usable."""
    with pytest.raises(OutOfMemoryError, match="4000000000000000000"):
        subject.backend.allocate(Layout.of(float32, (10**18,)))
    assert subject.value("sum", subject.put(np.ones(3, np.float32))) == 3


def test_a_limit_of_memory_refuses_what_would_pass_it(subject):
    """D22: once the cache was given back; the most that was held is remembered. A backend without a pool says so."""
    backend = subject.backend
    try:
        backend.limit_memory(None)
    except UnsupportedError:
        assert subject.on_cpu, "a device's memory has an end"
        return
    held(subject)
    backend.empty_cache()
    limit = backend.memory().reserved + (1 << 20)
    backend.limit_memory(limit)
    try:
        with pytest.raises(OutOfMemoryError, match=f"the limit is {limit} bytes"):
            backend.allocate(Layout.of(float32, (limit // 4 + 1,)))
        assert subject.value("sum", subject.put(np.ones(3, np.float32))) == 3
        assert backend.memory().reserved <= limit
        for wrong in (-1, 1.5, True):
            with pytest.raises(ValueError, match="limit_memory"):
                backend.limit_memory(wrong)
    finally:
        backend.limit_memory(None)
    more = backend.allocate(Layout.of(float32, (limit // 4 + 1,)))
    now = backend.memory()
    assert now.peak >= now.reserved >= now.live >= more.nbytes


def test_transfers_count_bytes_and_calls(subject):
    """What went each way, at the lowest call; on the CPU nothing is ever transferred."""
    x = np.ones(1000, np.float32)
    before = moved(subject)
    view = subject.put(x)
    middle = moved(subject)
    view.to_host()
    after = moved(subject)
    if subject.on_cpu:
        assert before == after == (0, 0, 0, 0)
        return
    assert [b - a for a, b in zip(before, middle, strict=True)] == [4000, 1, 0, 0]
    assert [b - a for a, b in zip(middle, after, strict=True)] == [0, 0, 4000, 1]
    twice = subject.run("relu", subject.run("add", view, view)).reshape((20, 50))
    product = subject.run("matmul", twice, view.reshape((50, 20)))
    subject.run("softmax", subject.run("log", product), axis=-1)
    subject.backend.synchronize()
    assert moved(subject) == after, "a chain of ops moved something"


def test_what_is_uploaded_ahead_is_what_upload_gives(subject):
    """From another thread, while steps run and free memory: every array whole, every byte counted once."""
    draw = np.random.default_rng(3)
    arrays = [draw.standard_normal((n, 7)).astype(np.float32) for n in draw.integers(1, 400, 24)]
    before, coming = moved(subject), queue.SimpleQueue()

    def ahead():
        for x in arrays:
            coming.put(upload_ahead(subject.backend, x))

    worker = threading.Thread(target=ahead)
    worker.start()
    for x in arrays:
        view = coming.get()()
        assert np.array_equal(subject.run("add", view, 1.0).to_host(), x + np.float32(1))
    worker.join()
    sent = 0 if subject.on_cpu else sum(x.nbytes for x in arrays)
    assert moved(subject)[0] - before[0] == sent


def test_empty_cache_keeps_what_is_in_use(subject):
    x = subject.place(float32, "dense", (50,))
    subject.backend.empty_cache()
    assert np.array_equal(x.view.to_host(), x.host)


def test_a_buffer_freed_in_flight_is_not_reused_too_early(subject):
    """G13: write ones, use them, free, allocate, write twos: the first result is still made of ones."""
    results = []
    for _ in range(8):
        ones = subject.run("fill", alpha=1.0, out=subject.backend.allocate(Layout.of(float32, (1 << 16,))))
        results.append(subject.run("add", ones, 0.0))
        del ones
        subject.run("fill", alpha=2.0, out=subject.backend.allocate(Layout.of(float32, (1 << 16,))))
    assert all((result.to_host() == 1).all() for result in results)
