"""A pool of device memory in size classes, for backends whose queue runs in order.

Freed memory may be handed out again at once: whatever still reads it was enqueued before whatever will write it.
Memory comes back from finalizers, which may run in the middle of anything, so `release` takes no lock: it leaves a
note, and the next call that holds the lock reads the notes.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from ...backend import Memory
from ...errors import OutOfMemoryError

LEAST = 256  # bytes; also what every allocation is aligned to
COARSEST = 1 << 25  # classes of large requests lie no further apart


def size_class(nbytes: int) -> int:
    """The bytes that are reserved for a request: eight classes an octave, so at most an eighth is wasted."""
    if nbytes <= LEAST:
        return LEAST
    step = min(COARSEST, max(LEAST, 1 << ((nbytes - 1).bit_length() - 4)))
    return -(-nbytes // step) * step


class Pool:
    """Memory by size class.

    `take(nbytes)` gets memory from the device and raises MemoryError where there is none; `give(handle)` returns it.
    `total` is the device's memory and `largest` its largest single allocation, in bytes, both for messages.
    """

    def __init__(
        self, spec: str, take: Callable[[int], Any], give: Callable[[Any], None], *, total: int, largest: int
    ) -> None:
        self._spec, self._take, self._give, self._total, self._largest = spec, take, give, total, largest
        self._free: dict[int, list[Any]] = {}
        self._returned: deque[tuple[int, Any]] = deque()
        self._owned: dict[weakref.ref[Any], tuple[int, Any]] = {}  # a reference must live to be called
        self._lock = threading.Lock()
        self._live = self._cached = self._count = 0

    def allocate(self, nbytes: int) -> tuple[int, Any]:
        """Memory for `nbytes`, and its size class, both wanted by `release`.

        Errors: OutOfMemoryError, once what is cached was given back and a second try failed
        """
        size = size_class(nbytes)
        return size, self.reserve(size, nbytes)

    def reserve(self, size: int, nbytes: int) -> Any:
        """Memory of a size class; `nbytes` is what was asked for, for the message."""
        with self._lock:
            if self._returned:
                self._collect()
            free = self._free.get(size)
            if free:
                handle = free.pop()
                self._cached -= size
            else:
                handle = self._fresh(nbytes, size)
            self._live += size
            self._count += 1
        return handle

    def release(self, size: int, handle: Any) -> None:
        """Memory that no Buffer uses any more. Takes no lock; safe in a finalizer."""
        self._returned.append((size, handle))

    def follow(self, owner: Any, size: int, handle: Any) -> None:
        """Release memory when its owner goes: what weakref.finalize does, at a third of its cost, and never at exit."""
        self._owned[weakref.ref(owner, self._gone)] = size, handle

    def _gone(self, owner: weakref.ref[Any]) -> None:
        self._returned.append(self._owned.pop(owner))

    def memory(self) -> Memory:
        """Bytes and Buffers held now."""
        with self._lock:
            self._collect()
            return Memory(self._live, self._live + self._cached, self._count)

    def empty(self) -> None:
        """Give what is cached back to the device."""
        with self._lock:
            self._collect()
            self._empty()

    def _collect(self) -> None:
        while self._returned:
            size, handle = self._returned.popleft()
            self._free.setdefault(size, []).append(handle)
            self._live -= size
            self._cached += size
            self._count -= 1

    def _empty(self) -> None:
        for handles in self._free.values():
            for handle in handles:
                self._give(handle)
        self._free.clear()
        self._cached = 0

    def _fresh(self, nbytes: int, size: int) -> Any:
        try:
            return self._take(size)
        except MemoryError:
            given_back = self._cached
            self._empty()
        try:
            return self._take(size)
        except MemoryError as error:
            free = min(self._largest, max(0, self._total - self._live))
            raise OutOfMemoryError(
                f"{self._spec}: asked for {nbytes} bytes, held {self._live} in {self._count} buffers; the largest free piece has at most "
                f"{free} of {self._total}, after {given_back} cached bytes were given back ({error}); free some arrays or use smaller batches"
            ) from error
