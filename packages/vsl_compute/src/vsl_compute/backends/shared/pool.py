"""A pool of device memory in size classes, for backends whose queue runs in order.

Freed memory may be handed out again at once: whatever still reads it was enqueued before whatever will write it.
A Buffer that goes puts its memory on the list of its class itself (ADR 0049). Lists are popped and appended to without a
lock, which Python does whole; only what the device is asked for takes one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ... import locks
from ...backend import ComputeBackend, Memory
from ...errors import OutOfMemoryError
from ...view import Buffer

LEAST = 256  # bytes; also what every allocation is aligned to
COARSEST = 1 << 25  # classes of large requests lie no further apart


def size_class(nbytes: int) -> int:
    """The bytes that are reserved for a request: eight classes an octave, so at most an eighth is wasted."""
    if nbytes <= LEAST:
        return LEAST
    step = min(COARSEST, max(LEAST, 1 << ((nbytes - 1).bit_length() - 4)))
    return -(-nbytes // step) * step


class Leased(Buffer):
    """A Buffer whose memory goes back to the list that it came from."""

    __slots__ = ("home",)

    def __init__(self, backend: Any, handle: Any, nbytes: int, home: list[Any]) -> None:
        self.backend, self.handle, self.nbytes, self.version, self.home = backend, handle, nbytes, 0, home

    def __del__(self) -> None:
        self.home.append(self.handle)


Held = TypeVar("Held", bound=Leased)


class Pool:
    """Memory by size class.

    `take(nbytes)` gets memory from the device and raises MemoryError where there is none; `give(handle)` returns it.
    `total` is the device's memory and `largest` its largest single allocation, in bytes, both for messages. `limit` is how
    many bytes may be held from the device; None is as many as it has.
    """

    def __init__(
        self, spec: str, take: Callable[[int], Any], give: Callable[[Any], None], *, total: int, largest: int
    ) -> None:
        self._spec, self._take, self._give, self._total, self._largest = spec, take, give, total, largest
        self._free: dict[int, list[Any]] = {}
        self._held: dict[int, int] = {}  # pieces of each class held from the device
        self._lock = locks.lock()
        self._peak = 0
        self.limit: int | None = None

    def home(self, size: int) -> list[Any]:
        """The list of what is free of a size class; it stays the same object."""
        return self._free.setdefault(size, [])

    def lease(self, backend: ComputeBackend, size: int, nbytes: int, kind: type[Held]) -> Held:
        """A Buffer of `nbytes` on memory of a size class.

        Errors: OutOfMemoryError, once what is cached was given back and a second try failed
        """
        home = self.home(size)
        try:
            memory = home.pop()
        except IndexError:
            memory = self.fresh(size, nbytes)
        return kind(backend, memory, nbytes, home)

    def fresh(self, size: int, nbytes: int) -> Any:
        """Memory of a size class of which nothing is free; `nbytes` is what was asked for, for the message."""
        with self._lock:
            handle = self._asked(nbytes, size)
            self._held[size] = self._held.get(size, 0) + 1
            self._peak = max(self._peak, self._reserved())
        return handle

    def memory(self) -> Memory:
        """Bytes and Buffers held now."""
        with self._lock:
            reserved, cached = self._reserved(), self._cached()
            buffers = sum(self._held.values()) - sum(map(len, self._free.values()))
            return Memory(reserved - cached, reserved, buffers, self._peak)

    def empty(self) -> None:
        """Give what is cached back to the device."""
        with self._lock:
            self._empty()

    def _reserved(self) -> int:
        return sum(size * count for size, count in self._held.items())

    def _cached(self) -> int:
        return sum(size * len(free) for size, free in list(self._free.items()))

    def _empty(self) -> None:
        for size, free in list(self._free.items()):
            while free:
                self._give(free.pop())
                self._held[size] -= 1

    def _asked(self, nbytes: int, size: int) -> Any:
        try:
            return self._within(size)
        except MemoryError:
            given_back = self._cached()
            self._empty()
        try:
            return self._within(size)
        except MemoryError as error:
            live, count = self._reserved(), sum(self._held.values())
            most = self._total if self.limit is None else min(self.limit, self._total)
            free = min(self._largest, max(0, most - live))
            raise OutOfMemoryError(
                f"{self._spec}: asked for {nbytes} bytes, held {live} in {count} buffers; the largest free piece has at most "
                f"{free} of {most}, after {given_back} cached bytes were given back ({error}); free some arrays or use smaller batches"
            ) from error

    def _within(self, size: int) -> Any:
        """Memory from the device, unless it would pass the limit."""
        if size >= 1 << 63:  # of which bindings say that it is no size, each in words of its own
            raise MemoryError("no device counts so many bytes")
        if self.limit is not None and self._reserved() + size > self.limit:
            raise MemoryError(f"the limit is {self.limit} bytes")
        return self._take(size)
