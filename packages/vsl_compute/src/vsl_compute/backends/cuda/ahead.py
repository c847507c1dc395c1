"""Uploads beside the work of the stream: pinned memory and a stream of their own, ordered by events in both directions.

The copy waits for what the compute stream had been given when it was asked for, so for the last reader of the memory that
the pool handed out again; the compute stream waits for the copy when the array is taken, and no earlier.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import locks
from ...view import Buffer
from .staging import PART, Staging

if TYPE_CHECKING:
    from .queue import CUDAQueue

Array = np.ndarray[Any, Any]
TO_DEVICE = 1  # cudaMemcpyKind


class Arrival:
    """A copy under way: called, it makes the compute stream wait for it, as it does when nobody asks for the array any more.

    It holds the Buffer, whose memory must not go back to the pool, and be written by the compute stream, before that.
    """

    __slots__ = ("_buffer", "_event", "_queue")

    def __init__(self, queue: CUDAQueue, buffer: Buffer, event: Any) -> None:
        self._queue, self._buffer, self._event = queue, buffer, event

    def __call__(self) -> None:
        """Put what is enqueued from now on behind the copy."""
        event, self._event = self._event, None
        if event is not None:
            self._queue.follow(self._queue.pointer, event)

    def __del__(self) -> None:
        if self._queue.refusal is None:  # a device that was closed has waited
            self()


class Copies:
    """The copy stream of one device; one thread at a time."""

    def __init__(self, cupy: Any, queue: CUDAQueue) -> None:
        self._cupy, self._queue = cupy, queue
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.pointer = int(self.stream.ptr)
        self._staging = Staging(cupy, self.stream)
        self._before = cupy.cuda.Event(disable_timing=True)
        self.lock = locks.lock()

    def upload(self, buffer: Buffer, at: int, data: Array, count: Callable[[int], None]) -> Arrival:
        """Enqueue the copy of bytes; waits only for pinned memory that an earlier one has not left yet. `count` is told each piece."""
        runtime, target = self._cupy.cuda.runtime, buffer.handle + at
        runtime.eventRecord(self._before.ptr, self._queue.pointer)
        runtime.streamWaitEvent(self.pointer, self._before.ptr)
        for begin in range(0, data.size, PART):
            piece = data[begin : begin + PART]
            runtime.memcpyAsync(target + begin, self._staging.put(piece), piece.size, TO_DEVICE, self.pointer)
            count(piece.size)
        event = self._cupy.cuda.Event(disable_timing=True)
        runtime.eventRecord(event.ptr, self.pointer)
        return Arrival(self._queue, buffer, event)
