"""What of the host's memory is on the device, and host memory whose values are still there only."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from vsl_compute.backend import ComputeBackend
from vsl_compute.dispatch import asarray
from vsl_compute.dispatch import run as launch
from vsl_compute.view import Buffer, Layout, View


class StagedBuffer(Buffer):
    """Host memory of a result that a device computed: it comes down when the host first asks for it.

    `source` is the device's view of it; None if it is zeros that are nowhere yet. `fetched` once the host has it.
    """

    __slots__ = ("_array", "layout", "source")

    def __init__(self, backend: ComputeBackend, layout: Layout, source: View | None) -> None:
        self.backend, self.layout, self.source = backend, layout, source
        self.nbytes, self.version = layout.nbytes, 0
        self._array: Any = None

    @property
    def fetched(self) -> bool:
        """Whether the host has the values."""
        return self._array is not None

    @property
    def handle(self) -> Any:  # what the CPU backend reads when it makes an array of a View
        """The host's array; brings the values down the first time."""
        if self._array is None:
            host: Any = self.backend
            if self.source is None:
                self._array = launch("fill", alpha=0, out=host.allocate(self.layout)).buffer.handle
            elif self.layout.c_order and self.layout.dtype.is_plain:
                self._array = np.ascontiguousarray(self.source.to_host())
            else:
                down = asarray(host, self.source.to_host(), self.layout.dtype)
                if not self.layout.c_order:
                    down = launch("copy", down, out=host.allocate(self.layout))
                self._array = down.buffer.handle
        return self._array


class Mirror:
    """Copies of one host Buffer's memory, good for one version of it.

    `ranges` are stretches of bytes (from, to, device view of those elements in line), `pieces` are copies of strided
    views, by layout and offset.
    """

    __slots__ = ("pieces", "ranges", "version")

    def __init__(self, version: int) -> None:
        self.version = version
        self.ranges: list[tuple[int, int, View]] = []
        self.pieces: dict[tuple[Layout, int], View] = {}

    def find(self, view: View) -> View | None:
        """The device's view of the same elements, if they are there."""
        ranges = self.ranges
        if ranges and ranges[0][:2] == (0, view.buffer.nbytes):  # all of it: no need to look where
            there = ranges[0][2]
            return View(there.buffer, view.layout, there.offset + view.offset)
        low, high = view.extent()
        for start, stop, there in ranges:
            if start <= low and high <= stop:
                return View(there.buffer, view.layout, there.offset + view.offset - start // view.dtype.itemsize)
        return self.pieces.get((view.layout, view.offset))


class Mirrors:
    """Of every host Buffer, what is on one device; a copy is forgotten with its Buffer, and when that is written to."""

    def __init__(self, device: ComputeBackend) -> None:
        self._device = device
        self._known: WeakKeyDictionary[Buffer, Mirror] = WeakKeyDictionary()

    def _mirror(self, buffer: Buffer) -> Mirror | None:
        found = self._known.get(buffer)
        return found if found is not None and found.version == buffer.version else None

    def find(self, view: View) -> View | None:
        """The device's view of the same elements at their present version; None if they are not resident."""
        mirror = self._mirror(view.buffer)
        return None if mirror is None else mirror.find(view)

    def is_only_there(self, view: View) -> bool:
        """Whether the device has the values and the host has not."""
        buffer = view.buffer
        return type(buffer) is StagedBuffer and not buffer.fetched and self._mirror(buffer) is not None

    def put(self, view: View, *, keep: bool) -> View:
        """The elements on the device: those that are there, else a fresh copy, remembered if `keep`."""
        buffer = view.buffer
        mirror = self._mirror(buffer)
        if mirror is not None and (found := mirror.find(view)) is not None:
            return found
        if type(buffer) is StagedBuffer and buffer.source is None and not buffer.fetched:
            self.set(buffer, launch("fill", alpha=0, out=self._device.allocate(buffer.layout)))
            return self.put(view, keep=keep)
        low, high = view.extent()
        whole = high - low <= view.nbytes  # no gaps between its elements
        line = View(buffer, Layout.of(view.dtype, ((high - low) // view.dtype.itemsize,)), low // view.dtype.itemsize)
        there = _copied(self._device, line if whole else view)
        made = View(there.buffer, view.layout, view.offset - line.offset) if whole else there
        if keep:
            if mirror is None:
                mirror = self._known[buffer] = Mirror(buffer.version)
            if whole:
                mirror.ranges.append((low, high, there))
            else:
                mirror.pieces[view.layout, view.offset] = there
        return made

    def set(self, buffer: Buffer, there: View) -> None:
        """State that `there` holds all of the Buffer's elements, at its present version."""
        mirror = self._known[buffer] = Mirror(buffer.version)
        mirror.ranges.append((0, buffer.nbytes, View(there.buffer, there.layout, there.offset)))
        if type(buffer) is StagedBuffer:
            buffer.source = there

    def forget(self, buffer: Buffer) -> None:
        """Let go of the device's copy."""
        self._known.pop(buffer, None)
        if type(buffer) is StagedBuffer and buffer.fetched:
            buffer.source = None


def _copied(device: ComputeBackend, view: View) -> View:
    holder: Any = view.buffer.backend
    host: np.ndarray[Any, Any] | None = holder.host_view(view)
    return asarray(device, view.to_host() if host is None else host, view.dtype)
