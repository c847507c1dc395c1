"""One device's queue: launches, transfers and their counters, and what became of the device.

The queue runs in order, so memory may be reused as soon as it is free, and no call waits but uploads and downloads.
A pyopencl kernel holds its arguments, so setting them and enqueueing is done under one lock.

OpenCL's own waits have no deadline. So every wait here is for a marker whose state is asked for until `timeout_s` has
passed: then the device counts as lost. Transfers that block begin once the queue is empty, and a launch waits for
those long before it, since a driver whose queue is full would block in the call.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ... import locks
from ...backend import arrived
from ...errors import DeviceLostError, DeviceTimeoutError, OutOfMemoryError, VslError
from ...view import Buffer
from ..shared.parameters import Compiled
from ..shared.queue import Queue

Array = np.ndarray[Any, Any]
TIMEOUT_S = 120.0  # how long a wait may take before DeviceTimeoutError
AHEAD = 512  # launches between two markers; twice as many may be under way
PATIENCE_S = 1e-3  # a GPU's answer is waited for this long without letting the processor go
# on a GPU a thread for every element is quicker than fewer that stride: a copy 128 us, not 139 (H200)
MOST_GROUPS = 1 << 22
_lost: list[Any] = []  # queues that hang: letting one go would wait for it


class OpenCLQueue(Queue):
    """The in-order queue of one device.

    `threads` is how many threads keep the device busy: on a CPU, where kernels stride over the rest, a launch has no more.
    `vectors` says that a thread does better with four neighbours at a time. `group` is how many of them make a group
    where the kernel does not ask for a number.
    """

    def __init__(
        self, cl: Any, context: Any, device: Any, spec: str, *, group: int, threads: int, vectors: bool
    ) -> None:
        super().__init__(spec)
        self._cl, self._context, self._device = cl, context, device
        self._queue = cl.CommandQueue(context, device)
        sizes = device.max_work_item_sizes
        self.group = max(1, min(group, int(device.max_work_group_size), int(sizes[0])))
        self.threads, self.vectors = threads, vectors
        self.timeout_s = TIMEOUT_S
        self._patience_s = 0.0 if device.type & cl.device_type.CPU else PATIENCE_S
        self._launches = 0
        self._marker: Any = None
        self._copies: Any = None  # the queue of what is uploaded ahead
        self._ahead = locks.lock()

    def launch(self, kernel: Compiled, count: int, *arguments: Any) -> None:
        """Run a kernel over about `count` threads, in groups of any size."""
        group = min(self.group, kernel.limit)
        most = MOST_GROUPS if self.vectors else self.threads // group
        groups = max(1, min(-(-count // group), most))
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
        if self.refusal is not None:
            self.check()
        try:
            with self._lock:
                kernel.call(self._queue, size, group, *arguments)
                self._launches += 1
            if self._launches >= AHEAD:
                self._keep_up()
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
        self.finish()
        with self._calling():
            self._cl.enqueue_copy(self._queue, memory, array, dst_offset=at, is_blocking=True)
        self._sent(array.nbytes)

    def upload_ahead(self, buffer: Buffer, at: int, array: Array) -> Callable[[], None]:
        """`upload` through a queue of its own, begun once what was enqueued so far, the memory's last readers, is done.

        The caller waits, not the device: when this returns the bytes are there.
        """
        self.check()  # before the lock: in a child process nobody is left to give that back
        with self._ahead:
            with self._calling():
                if self._copies is None:
                    self._copies = self._cl.CommandQueue(self._context, self._device)
                self._wait_for(self._mark())
                self._cl.enqueue_copy(self._copies, buffer.handle, array, dst_offset=at, is_blocking=True)
            self._sent(array.nbytes)
        return arrived

    def download(self, array: Array, memory: Any, at: int, *, counted: bool = True) -> None:
        """Copy from the device into a contiguous array, and wait for it; what is `counted` is the user's data."""
        self.finish()
        with self._calling():
            self._cl.enqueue_copy(self._queue, array, memory, src_offset=at, is_blocking=True)
        self._received(array.nbytes, counted=counted)

    def materialize(self, memory: Any) -> None:
        """Make the driver find the memory now, where it can still be said who asked."""
        self._cl.enqueue_migrate_mem_objects(
            self._queue, [memory], flags=self._cl.mem_migration_flags.CONTENT_UNDEFINED
        )

    def finish(self) -> None:
        """Wait until all work is done; DeviceTimeoutError after `timeout_s`."""
        with self._calling():
            self._wait_for(self._mark())

    def _mark(self) -> Any:
        """An event that is complete once everything before it is, on its way to the device."""
        marker = self._cl.enqueue_marker(self._queue)
        self._queue.flush()
        return marker

    def _wait_for(self, event: Any) -> None:
        done, start = int(self._cl.command_execution_status.COMPLETE), time.perf_counter()
        while (status := int(event.command_execution_status)) > done:
            passed = time.perf_counter() - start
            if passed > self.timeout_s:
                raise self._hung()
            if passed > self._patience_s:
                time.sleep(min(1e-3, passed / 8))
        if status < done:
            event.wait()  # at an end already: this raises what went wrong

    def _keep_up(self) -> None:
        """Wait for what was launched before the last marker, and set the next."""
        with self._lock:
            if self._launches < AHEAD:
                return
            self._launches = 0
            before, self._marker = self._marker, self._mark()
        if before is not None:
            self._wait_for(before)

    def _hung(self) -> VslError:
        name = self._device.name.strip()
        words = (
            f"{self._spec}: {name} did not finish in {self.timeout_s:g} s and counts as lost; start the process again"
        )
        self.refusal = DeviceLostError, words
        _lost.append(self._queue)
        return DeviceTimeoutError(
            f"{self._spec}: {name} did not finish what it was given in {self.timeout_s:g} s; a kernel hangs or the work was very long: "
            "give it smaller pieces, or raise backend.queue.timeout_s; the device counts as lost, start the process again"
        )

    @contextmanager
    def _calling(self) -> Iterator[None]:
        if self.refusal is not None:
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
            self.refusal = DeviceLostError, words
            return DeviceLostError(words)
        # NVIDIA's answer to a launch that failed, wherever it is noticed; and what a wait says of a failed event
        if code in (status.OUT_OF_RESOURCES, status.EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST):
            return DeviceLostError(
                f"{self._spec}: {self._device.name.strip()} could not run what it was given ({error}); what was computed since the last "
                "read is lost, and the process may have to start again"
            )
        return error  # type: ignore[no-any-return]  # pyopencl's errors are exceptions
