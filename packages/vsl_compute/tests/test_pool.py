"""The pool of device memory: classes, reuse, counters, and what happens when the device is full."""

from __future__ import annotations

import gc
import threading

import pytest

from vsl_compute.backends.shared.pool import LEAST, Pool, size_class
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


def test_memory_is_used_again_by_class():
    device, pool = made()
    size, first = pool.allocate(1000)
    pool.release(size, first)
    assert pool.allocate(1001) == (size, first)
    assert device.asked == 1
    pool.allocate(1000)
    assert device.asked == 2


def test_counters_tell_what_is_live_and_what_is_held():
    _, pool = made()
    taken = [pool.allocate(300) for _ in range(3)]
    assert (pool.memory().live, pool.memory().reserved, pool.memory().buffers) == (3 * 512, 3 * 512, 3)
    pool.release(*taken[0])
    assert (pool.memory().live, pool.memory().reserved, pool.memory().buffers) == (2 * 512, 3 * 512, 2)
    pool.empty()
    assert (pool.memory().live, pool.memory().reserved, pool.memory().buffers) == (2 * 512, 2 * 512, 2)


def test_a_full_device_gets_the_cache_back_and_is_asked_again():
    device, pool = made(room=4096)
    for size, handle in [pool.allocate(1024) for _ in range(4)]:
        pool.release(size, handle)
    assert pool.allocate(4096)[0] == 4096
    assert device.given == 4
    assert pool.memory().reserved == 4096


def test_out_of_memory_names_what_was_asked_held_and_free():
    device, pool = made(room=4096)
    kept = pool.allocate(1024)
    size, handle = pool.allocate(1024)
    pool.release(size, handle)
    with pytest.raises(
        OutOfMemoryError,
        match=r"test:0: asked for 8192 bytes, held 1024 in 1 buffers; .* at most 3072 of 4096, after 1024 cached",
    ):
        pool.allocate(8192)
    assert device.asked == 4  # twice for the last
    with pytest.raises(MemoryError):
        pool.allocate(10**18)
    pool.release(*kept)
    assert pool.allocate(4096)[0] == 4096


def test_release_takes_no_lock():
    """A finalizer may run while the pool's lock is held by the same thread."""
    _, pool = made()
    size, handle = pool.allocate(10)
    with pool._lock:
        pool.release(size, handle)
    assert pool.memory().buffers == 0


def test_threads_share_a_pool():
    _, pool = made(room=1 << 24)

    def work():
        for k in range(500):
            pool.release(*pool.allocate(k))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (pool.memory().live, pool.memory().buffers) == (0, 0)


def test_memory_comes_back_when_its_owner_goes():
    class Owner:
        pass

    _, pool = made()
    owner = Owner()
    pool.follow(owner, *pool.allocate(1000))
    assert pool.memory().buffers == 1
    del owner
    gc.collect()
    assert (pool.memory().buffers, pool.memory().live, pool.memory().reserved) == (0, 0, 1024)
