"""Pinned host memory between arrays and the device: an upload returns once its bytes are staged, the copy runs on by itself."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
PART = 1 << 24  # bytes of one part; longer arrays go piece by piece


class Part:
    """A piece of pinned memory; `event` passes when the device has read what was written last."""

    def __init__(self, cupy: Any) -> None:
        self.memory = cupy.cuda.alloc_pinned_memory(PART)
        self.bytes: Array = np.frombuffer(self.memory, np.uint8, PART)
        self.address = int(self.memory.ptr)
        self.event = cupy.cuda.Event(disable_timing=True)


class Staging:
    """Two parts for uploads, which take turns, and one for downloads. Not for two threads at a time: the queue has a lock."""

    def __init__(self, cupy: Any, stream: Any) -> None:
        self._cupy, self._stream = cupy, stream
        self._up: list[Part] = []
        self._down: Part | None = None
        self._turn = self._filled = 0

    def put(self, data: Array) -> int:
        """Copy at most PART bytes into pinned memory; their address there, valid for work enqueued before the next `put`."""
        if not self._up:
            self._up = [Part(self._cupy), Part(self._cupy)]
        if self._filled + data.nbytes > PART:
            self._up[self._turn].event.record(self._stream)
            self._turn, self._filled = 1 - self._turn, 0
            self._up[self._turn].event.synchronize()
        part, at = self._up[self._turn], self._filled
        part.bytes[at : at + data.nbytes] = data
        self._filled = (at + data.nbytes + 63) & ~63
        return part.address + at

    def landing(self) -> Part:
        """Where a download lands."""
        if self._down is None:
            self._down = Part(self._cupy)
        return self._down
