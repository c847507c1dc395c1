"""A device's queue: what a backend that compiles texts launches and transfers through, and what became of the device."""

from __future__ import annotations

import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ... import locks
from ...backend import Transfers
from ...errors import DeviceLostError, ReleasedError
from ...view import Buffer, View
from .parameters import Compiled

Array = np.ndarray[Any, Any]
_open: weakref.WeakSet[Queue] = weakref.WeakSet()


class Queue(ABC):
    """What runs launches and transfers in order. `threads` is how many a launch has at most; kernels stride over the rest.

    `vectors` says that a thread does better with four neighbours at a time. `refusal` is what stands against using it,
    if anything: no exception, which would keep the frames that it passed. `recorders` are threads whose calls are written
    down, on a queue that can do that.
    """

    threads: int
    vectors: bool
    recorders = 0

    def __init__(self, spec: str) -> None:
        self._spec = spec
        self._lock, self._counting = locks.lock(), locks.lock()
        self._transfers = Transfers()
        self.refusal: tuple[type[Exception], str] | None = None
        _open.add(self)

    @abstractmethod
    def launch(self, kernel: Compiled, count: int, *arguments: Any) -> None:
        """Run a kernel over about `count` threads, in groups of any size."""

    def ready(self, kernel: Compiled, count: int) -> Callable[..., None]:
        """`launch` of a kernel over `count` threads made ready: a function of the arguments."""
        return partial(self.launch, kernel, count)

    def ready_run(self, kernel: Compiled, size: int, group: int) -> Callable[..., None]:
        """`run` of a kernel over `size` threads in a row made ready: a function of the arguments."""
        return lambda *arguments: self.run(kernel, (size,), (group,), arguments)

    @abstractmethod
    def launch_groups(self, kernel: Compiled, groups: int, group: int, *arguments: Any) -> None:
        """Run a kernel over at most `groups` groups of `group` threads."""

    @abstractmethod
    def launch_plane(self, kernel: Compiled, columns: int, rows: int, *arguments: Any) -> None:
        """Run a kernel over a plane of threads."""

    @abstractmethod
    def run(self, kernel: Compiled, size: tuple[int, ...], group: tuple[int, ...], arguments: tuple[Any, ...]) -> None:
        """Run a kernel over exactly `size` threads in groups of `group`."""

    @abstractmethod
    def fill(self, memory: Any, pattern: Array, nbytes: int) -> None:
        """Repeat a few bytes over memory."""

    @abstractmethod
    def copy(self, out: Any, out_at: int, x: Any, x_at: int, nbytes: int) -> None:
        """Move bytes on the device."""

    @abstractmethod
    def upload(self, memory: Any, at: int, array: Array) -> None:
        """Copy a contiguous array to the device; it may be changed once this returns."""

    @abstractmethod
    def upload_ahead(self, buffer: Buffer, at: int, array: Array) -> Callable[[], None]:
        """`upload` beside the work of this queue; what comes back is called before the memory is read, or lets go of it."""

    @abstractmethod
    def download(self, array: Array, memory: Any, at: int, *, counted: bool = True) -> None:
        """Copy from the device into a contiguous array, and wait for it; what is `counted` is the user's data."""

    @abstractmethod
    def finish(self) -> None:
        """Wait until all work is done."""

    def allocated(self, view: View) -> None:  # noqa: B027  # a queue that writes nothing down has nothing to do
        """Write down what was allocated, where this thread's calls are."""

    def transfers(self) -> Transfers:
        """A copy of the counters."""
        return replace(self._transfers)

    def _sent(self, nbytes: int, *, counted: bool = True) -> None:
        """Count a call that moved bytes to the device: the user's, or metadata."""
        with self._counting:  # what is uploaded ahead is counted by another thread
            if counted:
                self._transfers.bytes_to_device += nbytes
                self._transfers.calls_to_device += 1
            else:
                self._moved_own(nbytes)

    def _received(self, nbytes: int, *, counted: bool) -> None:
        """Count a call that moved bytes to the host: the user's, or metadata."""
        with self._counting:
            if counted:
                self._transfers.bytes_to_host += nbytes
                self._transfers.calls_to_host += 1
            else:
                self._moved_own(nbytes)

    def _moved_own(self, nbytes: int) -> None:
        self._transfers.metadata_bytes += nbytes
        self._transfers.metadata_calls += 1

    def check(self) -> None:
        """Raise what stands against using this queue."""
        if self.refusal is not None:
            kind, words = self.refusal
            raise kind(words)

    def close(self) -> None:
        """Finish, and refuse what comes afterwards."""
        self.finish()
        self.refusal = ReleasedError, f"{self._spec}: this backend was closed; open the device again"

    def forked(self) -> None:
        """Refuse work in a child process: a driver's threads and contexts stay in its parent."""
        words = (
            f"{self._spec}: opened before this process was forked, and its driver did not come along; open devices in "
            'the child only, or start it with multiprocessing.get_context("spawn")'
        )
        self.refusal = DeviceLostError, words


def _after_fork() -> None:
    for queue in list(_open):
        queue.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
