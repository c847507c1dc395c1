"""One device's queue: launches, transfers and their counters, and what became of the device.

The queue runs in order, so memory may be reused as soon as it is free, and no call waits but uploads and downloads.
A pyopencl kernel holds its arguments, so setting them and enqueueing is done under one lock.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from ...backend import Transfers
from ...errors import DeviceLostError, OutOfMemoryError, ReleasedError
from ..shared.parameters import Compiled

Array = np.ndarray[Any, Any]
_open: weakref.WeakSet[Queue] = weakref.WeakSet()


class Queue:
    """The in-order queue of one device.

    `threads` is how many threads a launch has at most: kernels stride over the rest. `vectors` says that a thread does
    better with four neighbours at a time. `group` is how many of them make
    a group where the kernel does not ask for a number.
    """

    def __init__(
        self, cl: Any, context: Any, device: Any, spec: str, *, group: int, threads: int, vectors: bool
    ) -> None:
        self._cl, self._spec, self._device = cl, spec, device
        self._queue = cl.CommandQueue(context, device)
        self._lock = threading.Lock()
        self._transfers = Transfers()
        self._refusal: tuple[type[Exception], str] | None = (
            None  # no exception: it would keep the frames that it passed
        )
        sizes = device.max_work_item_sizes
        self.group = max(1, min(group, int(device.max_work_group_size), int(sizes[0])))
        self.threads, self.vectors = threads, vectors
        _open.add(self)

    def launch(self, kernel: Compiled, count: int, *arguments: Any) -> None:
        """Run a kernel over about `count` threads, in groups of any size."""
        group = min(self.group, kernel.limit)
        groups = max(1, min(-(-count // group), self.threads // group))
        self.run(kernel, (groups * group,), (group,), arguments)

    def launch_groups(self, kernel: Compiled, groups: int, group: int, *arguments: Any) -> None:
        """Run a kernel over at most `groups` groups of `group` threads."""
        most = max(1, self.threads // group)
        self.run(kernel, (min(groups, most) * group,), (group,), arguments)

    def launch_plane(self, kernel: Compiled, columns: int, rows: int, *arguments: Any) -> None:
        """Run a kernel over a plane of threads."""
        group = min(self.group, kernel.limit)
        across = min(-(-columns // group), max(1, self.threads // group))
        down = max(1, min(rows, self.threads // (across * group), 65535))
        self.run(kernel, (across * group, down), (group, 1), arguments)

    def run(self, kernel: Compiled, size: tuple[int, ...], group: tuple[int, ...], arguments: tuple[Any, ...]) -> None:
        """Enqueue one launch."""
        if self._refusal is not None:
            self.check()
        try:
            with self._lock:
                kernel.call(self._queue, size, group, *arguments)
        except self._cl.Error as error:
            raise self._meaning(error) from error

    def fill(self, memory: Any, pattern: Array, nbytes: int) -> None:
        """Repeat a few bytes over memory."""
        with self._calling():
            self._cl.enqueue_fill_buffer(self._queue, memory, pattern, 0, nbytes)

    def copy(self, out: Any, out_at: int, x: Any, x_at: int, nbytes: int) -> None:
        """Move bytes on the device."""
        with self._calling():
            self._cl.enqueue_copy(self._queue, out, x, byte_count=nbytes, src_offset=x_at, dst_offset=out_at)

    def upload(self, memory: Any, at: int, array: Array) -> None:
        """Copy a contiguous array to the device; it may be changed once this returns."""
        with self._calling():
            self._cl.enqueue_copy(self._queue, memory, array, dst_offset=at, is_blocking=True)
        self._transfers.bytes_to_device += array.nbytes
        self._transfers.calls_to_device += 1

    def download(self, array: Array, memory: Any, at: int, *, counted: bool = True) -> None:
        """Copy from the device into a contiguous array, and wait for it; what is `counted` is the user's data."""
        with self._calling():
            self._cl.enqueue_copy(self._queue, array, memory, src_offset=at, is_blocking=True)
        if counted:
            self._transfers.bytes_to_host += array.nbytes
            self._transfers.calls_to_host += 1
        else:
            self._transfers.metadata_bytes += array.nbytes
            self._transfers.metadata_calls += 1

    def materialize(self, memory: Any) -> None:
        """Make the driver find the memory now, where it can still be said who asked."""
        self._cl.enqueue_migrate_mem_objects(
            self._queue, [memory], flags=self._cl.mem_migration_flags.CONTENT_UNDEFINED
        )

    def finish(self) -> None:
        """Wait until all work is done."""
        with self._calling():
            self._queue.finish()

    def transfers(self) -> Transfers:
        """A copy of the counters."""
        return replace(self._transfers)

    def check(self) -> None:
        """Raise what stands against using this queue."""
        if self._refusal is not None:
            kind, words = self._refusal
            raise kind(words)

    def close(self) -> None:
        """Finish, and refuse what comes afterwards."""
        if self._refusal is None:
            self._queue.finish()
            self._refusal = ReleasedError, f"{self._spec}: this backend was closed; open the device again"

    def forked(self) -> None:
        """Refuse work in a child process: the driver's threads stayed in its parent."""
        words = (
            f"{self._spec}: opened before this process was forked, and its driver did not come along; open devices in "
            'the child only, or start it with multiprocessing.get_context("spawn")'
        )
        self._refusal = DeviceLostError, words
        self._lock = threading.Lock()

    @contextmanager
    def _calling(self) -> Iterator[None]:
        if self._refusal is not None:
            self.check()
        try:
            yield
        except self._cl.Error as error:
            raise self._meaning(error) from error

    def _meaning(self, error: Any) -> Exception:
        """pyopencl's error as ours, where it says something about memory or the device; else itself."""
        status, code = self._cl.status_code, getattr(error, "code", None)
        if isinstance(error, self._cl.MemoryError) or code in (
            status.MEM_OBJECT_ALLOCATION_FAILURE,
            status.OUT_OF_HOST_MEMORY,
        ):
            return OutOfMemoryError(
                f"{self._spec}: the driver found no memory for a launch ({error}); free some arrays or use smaller batches"
            )
        if code in (status.DEVICE_NOT_AVAILABLE, status.INVALID_COMMAND_QUEUE, status.INVALID_CONTEXT):
            words = f"{self._spec}: {self._device.name.strip()} stopped answering ({error}); start the process again"
            self._refusal = DeviceLostError, words
            return DeviceLostError(words)
        if code == status.OUT_OF_RESOURCES:  # NVIDIA's answer to a launch that failed, wherever it is noticed
            return DeviceLostError(
                f"{self._spec}: {self._device.name.strip()} could not run what it was given ({error}); what was computed since the last "
                "read is lost, and the process may have to start again"
            )
        return error  # type: ignore[no-any-return]  # pyopencl's errors are exceptions


def _after_fork() -> None:
    for queue in list(_open):
        queue.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
