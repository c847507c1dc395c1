"""The pool of device memory: classes, reuse, counters, and what happens when the device is full."""

from __future__ import annotations

import gc
import threading

import pytest

from vsl_compute.backend import Memory
from vsl_compute.backends.shared.pool import LEAST, Leased, Pool, size_class
from vsl_compute.errors import OutOfMemoryError


class Device:
    """Memory of a limited size; handles are its own numbers."""

    def __init__(self, room):
        self.room, self.held, self.asked, self.given = room, {}, 0, 0

    def take(self, nbytes):
        self.asked += 1
        if sum(self.held.values()) + nbytes > self.room:
            raise MemoryError("MEM_OBJECT_ALLOCATION_FAILURE")
        self.held[self.asked] = nbytes
        return self.asked

    def give(self, handle):
        self.given += 1
        del self.held[handle]


def made(room=1 << 20):
    device = Device(room)
    return device, Pool("test:0", device.take, device.give, total=room, largest=room)


@pytest.mark.parametrize("nbytes", [0, 1, 255, 256, 257, 4097, 10**6, 2**31 - 1, 2**31 + 5, 5 * 2**30])
def test_a_class_holds_the_request_and_wastes_little(nbytes):
    size = size_class(nbytes)
    assert size >= nbytes
    assert size % LEAST == 0
    assert size <= max(LEAST, nbytes * 9 / 8 + LEAST)
    assert size_class(size) == size


def lease(pool, nbytes):
    """A Buffer of memory of the class of `nbytes`."""
    return pool.lease(None, size_class(nbytes), nbytes, Leased)


def test_sizes_that_no_address_can_count_never_reach_the_driver():
    """Whose bindings say OverflowError, or that it is no size."""
    device, pool = made(room=1 << 80)
    with pytest.raises(OutOfMemoryError, match=r"asked for 1180591620717411303424 .*no device counts so many"):
        lease(pool, 1 << 70)
    assert not device.asked


def test_memory_is_used_again_by_class():
    device, pool = made()
    first = lease(pool, 1000)
    handle = first.handle
    del first
    again = lease(pool, 1001)
    assert again.handle == handle
    assert device.asked == 1
    assert lease(pool, 1000).handle != handle
    assert device.asked == 2


def test_counters_tell_what_is_live_and_what_is_held():
    _, pool = made()
    taken = [lease(pool, 300) for _ in range(3)]
    assert pool.memory() == Memory(3 * 512, 3 * 512, 3, 3 * 512)
    del taken[0]
    assert pool.memory() == Memory(2 * 512, 3 * 512, 2, 3 * 512)
    pool.empty()
    assert pool.memory() == Memory(2 * 512, 2 * 512, 2, 3 * 512)


def test_a_full_device_gets_the_cache_back_and_is_asked_again():
    device, pool = made(room=4096)
    taken = [lease(pool, 1024) for _ in range(4)]
    taken.clear()
    kept = lease(pool, 4096)
    assert device.given == 4
    assert pool.memory().reserved == kept.nbytes == 4096


def test_out_of_memory_names_what_was_asked_held_and_free():
    device, pool = made(room=4096)
    kept, gone = lease(pool, 1024), lease(pool, 1024)
    del gone
    with pytest.raises(
        OutOfMemoryError,
        match=r"test:0: asked for 8192 bytes, held 1024 in 1 buffers; .* at most 3072 of 4096, after 1024 cached",
    ):
        lease(pool, 8192)
    assert device.asked == 4  # twice for the last
    with pytest.raises(MemoryError):
        lease(pool, 10**18)
    del kept
    assert lease(pool, 4096).nbytes == 4096


def test_a_limit_is_kept_once_the_cache_was_given_back():
    device, pool = made(room=1 << 20)
    pool.limit = 4096
    kept, gone = lease(pool, 2048), lease(pool, 1024)
    del gone
    more = lease(pool, 2048)
    assert (device.given, pool.memory().reserved) == (1, 4096)
    with pytest.raises(
        OutOfMemoryError, match=r"asked for 256 bytes, held 4096 in 2 buffers; .* at most 0 of 4096.*the limit is 4096"
    ):
        lease(pool, 256)
    pool.limit = None
    assert lease(pool, 256).nbytes == 256
    assert pool.memory().peak == kept.nbytes + more.nbytes + 256


def test_memory_comes_back_while_the_lock_is_held():
    """A finalizer may run while the pool's lock is held by the same thread."""
    _, pool = made()
    held = lease(pool, 10)
    with pool._lock:
        del held
    assert pool.memory().buffers == 0


def test_threads_share_a_pool():
    _, pool = made(room=1 << 24)

    def work():
        for k in range(500):
            lease(pool, k)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (pool.memory().live, pool.memory().buffers) == (0, 0)


def test_memory_held_in_a_circle_comes_back_with_it():
    """What Python's collector finds is finalized too (PEP 442)."""
    _, pool = made()
    circle = [lease(pool, 1000)]
    circle.append(circle)
    assert pool.memory().buffers == 1
    del circle
    gc.collect()
    assert (pool.memory().buffers, pool.memory().live, pool.memory().reserved) == (0, 0, 1024)
