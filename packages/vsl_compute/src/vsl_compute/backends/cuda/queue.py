"""One device's stream: launches, transfers and their counters, and what became of the device.

The stream runs in order and waits for no other, so memory may be reused as soon as it is free, and no call waits but
downloads. A launch is one call of the driver, its parameters packed into one piece of memory.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...errors import DeviceLostError, OutOfMemoryError
from ...view import Buffer, View
from ..shared.parameters import Compiled
from ..shared.queue import Queue
from .ahead import Copies
from .context import Context
from .staging import PART, Staging

if TYPE_CHECKING:
    from .tape import Recording

Array = np.ndarray[Any, Any]
GROUP = 256  # threads of a group where the kernel does not ask for a number
WAVES = 8  # a launch of rows has at most so many times the threads that the device holds: kernels stride over the rest
MOST_DOWN = 65535  # groups of the second axis
TO_DEVICE, TO_HOST, ON_DEVICE = 1, 2, 3  # cudaMemcpyKind
NO_MEMORY = 2  # cudaErrorMemoryAllocation, CUDA_ERROR_OUT_OF_MEMORY
# codes of cudaError_t, which are CUresult's: after them the context answers nothing any more
LOST = frozenset({4, 46, 201, 214, 220, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 999})
BUFFER_POINTER, BUFFER_SIZE = 1, 2  # CU_LAUNCH_PARAM_*


class _Parameters(threading.local):
    """A thread's piece of memory for the parameters of its next launch: their size in bytes, then themselves."""

    def __init__(self) -> None:
        self.memory = ctypes.create_string_buffer(8 + 4096)
        address = ctypes.addressof(self.memory)
        self.extra = extra(address)
        self.address = ctypes.addressof(self.extra)
        self.recording: Recording | None = None  # of this thread's calls


def extra(address: int) -> Any:
    """What a launch takes to read its parameters from memory: their size stands at the address, they behind it."""
    return (ctypes.c_void_p * 5)(BUFFER_POINTER, address + 8, BUFFER_SIZE, address, None)


class Calls(NamedTuple):
    """The driver's own calls, and what they raise."""

    launch: Callable[..., None]
    copy: Callable[..., None]
    errors: tuple[type[Exception], ...]


class CUDAQueue(Queue):
    """The stream of one device, which holds so many `threads` at a time."""

    vectors = True

    def __init__(self, cupy: Any, context: Context, spec: str, name: str, threads: int) -> None:
        super().__init__(spec)
        self._cupy = cupy
        self._copies: Copies | None = None  # made when something is first uploaded ahead
        self._runtime, self._launch = cupy.cuda.runtime, cupy.cuda.driver.launchKernel
        self._current = cupy.cuda.driver.ctxGetCurrent
        self._errors = (cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError)
        self.calls = Calls(self._launch, cupy.cuda.runtime.memcpyAsync, self._errors)
        self._context, self._handle, self._name = context, context.handle, name
        with context.current():
            self.stream = cupy.cuda.Stream(non_blocking=True)
        self.pointer = int(self.stream.ptr)
        self.threads, self._most = threads, threads * WAVES
        self._staging = Staging(cupy, self.stream)
        self._parameters = _Parameters()

    def launch(self, kernel: Compiled, count: int, *arguments: Any) -> None:
        """Run a kernel over about `count` threads, in groups of any size."""
        groups, group = self._grid(kernel, count)
        self._run(kernel, groups, 1, group, 1, arguments)

    def _grid(self, kernel: Compiled, count: int) -> tuple[int, int]:
        """Groups, and their threads."""
        group = min(kernel.limit, GROUP)
        return min(-(-count // group), self._most // group), group

    def ready(self, kernel: Compiled, count: int) -> Callable[..., None]:
        return self._ready(kernel, *self._grid(kernel, count))

    def ready_run(self, kernel: Compiled, size: int, group: int) -> Callable[..., None]:
        return self._ready(kernel, size // group, group)

    def _ready(self, kernel: Compiled, groups: int, group: int) -> Callable[..., None]:
        """`_run` with everything looked up but this thread's piece of memory for the parameters."""
        entry, parameters, run = kernel.call, self._parameters, self._run
        pack, nbytes, function = entry.pack, entry.nbytes, entry.function
        launch, current, handle, stream, errors = self._launch, self._current, self._handle, self.pointer, self._errors

        def ready(*arguments: Any) -> None:
            if self.refusal is not None or self.recorders or current() != handle:
                run(kernel, groups, 1, group, 1, arguments)
                return
            pack(parameters.memory, 0, nbytes, *arguments)
            try:
                launch(function, groups, 1, 1, group, 1, 1, 0, stream, 0, parameters.address)
            except errors as error:
                raise self.meaning(error) from error

        return ready

    def launch_groups(self, kernel: Compiled, groups: int, group: int, *arguments: Any) -> None:
        """Run a kernel over at most `groups` groups of `group` threads."""
        self._run(kernel, min(groups, max(1, self.threads // group)), 1, group, 1, arguments)

    def launch_plane(self, kernel: Compiled, columns: int, rows: int, *arguments: Any) -> None:
        """Run a kernel over a plane of threads; groups are narrow where rows are."""
        group = min(GROUP, kernel.limit)
        wide = min(group, max(32, 1 << (columns - 1).bit_length()))
        high = max(1, group // wide)
        across = min(-(-columns // wide), max(1, self._most // group))
        down = max(1, min(-(-rows // high), self._most // (across * group), MOST_DOWN))
        self._run(kernel, across, down, wide, high, arguments)

    def run(self, kernel: Compiled, size: tuple[int, ...], group: tuple[int, ...], arguments: tuple[Any, ...]) -> None:
        """Run a kernel over exactly `size` threads in groups of `group`."""
        down, high = (size[1] // group[1], group[1]) if len(size) > 1 else (1, 1)
        self._run(kernel, size[0] // group[0], down, group[0], high, arguments)

    def _run(self, kernel: Compiled, across: int, down: int, wide: int, high: int, arguments: tuple[Any, ...]) -> None:
        if self.refusal is not None:
            self.check()
        entry, parameters = kernel.call, self._parameters
        if self.recorders and parameters.recording is not None:
            parameters.recording.launch(entry, (across, down, 1, wide, high, 1), arguments)
        entry.pack(parameters.memory, 0, entry.nbytes, *arguments)
        try:
            if self._current() == self._handle:
                self._launch(entry.function, across, down, 1, wide, high, 1, 0, self.pointer, 0, parameters.address)
            else:
                with self._context.current():
                    self._launch(entry.function, across, down, 1, wide, high, 1, 0, self.pointer, 0, parameters.address)
        except self._errors as error:
            raise self.meaning(error) from error

    def fill(self, memory: int, pattern: Array, nbytes: int) -> None:
        """Repeat a few bytes over memory."""
        self.upload(memory, 0, np.tile(pattern, nbytes // pattern.nbytes), counted=False)

    def copy(self, out: int, out_at: int, x: int, x_at: int, nbytes: int) -> None:
        """Move bytes on the device."""
        self._move(out + out_at, x + x_at, nbytes, ON_DEVICE)

    def upload(self, memory: int, at: int, array: Array, *, counted: bool = True) -> None:
        """Copy a contiguous array to the device; it may be changed once this returns. What is `counted` is the user's data."""
        self.check()
        data, target = array.reshape(-1).view(np.uint8), memory + at
        with self._lock:
            for begin in range(0, data.size, PART):
                piece = data[begin : begin + PART]
                self._move(target + begin, self._staged(piece), piece.size, TO_DEVICE)
                self._sent(piece.size, counted=counted)

    def upload_ahead(self, buffer: Buffer, at: int, array: Array) -> Callable[[], None]:
        """`upload` on a stream of its own."""
        self.check()
        self.unrecorded("a transfer")
        try:
            with self._lock, self._context.current():
                copies = self._copies = self._copies or Copies(self._cupy, self)
            with copies.lock, self._context.current():
                return copies.upload(buffer, at, array.reshape(-1).view(np.uint8), self._sent)
        except self._errors as error:
            raise self.meaning(error) from error

    def follow(self, stream: int, event: Any) -> None:
        """Let a stream wait for an event."""
        self.check()
        self.unrecorded("waiting for another stream")
        with self._context.current():
            try:
                self._runtime.streamWaitEvent(stream, event.ptr)
            except self._errors as error:
                raise self.meaning(error) from error

    def close(self) -> None:
        """Finish, what is uploaded ahead too, and refuse what comes afterwards."""
        if self._copies is not None:
            with self._copies.lock:
                self._wait_for(self._copies.pointer)
        super().close()
        # without its memory: plans of dispatch may hold this object for long
        self._staging = Staging(self._cupy, self.stream)

    def _staged(self, piece: Array) -> int:
        before = self._context.enter()
        try:
            return self._staging.put(piece)
        except self._errors as error:
            raise self.meaning(error) from error
        finally:
            self._context.leave(before)

    def download(self, array: Array, memory: int, at: int, *, counted: bool = True) -> None:
        """Copy from the device into a contiguous array, and wait for it; what is `counted` is the user's data."""
        self.check()
        data, source = array.reshape(-1).view(np.uint8), memory + at
        with self._lock:
            for begin in range(0, data.size, PART):
                piece = data[begin : begin + PART]
                with self._context.current():
                    landing = self._staging.landing()
                self._move(landing.address, source + begin, piece.size, TO_HOST)
                self.finish()
                piece[...] = landing.bytes[: piece.size]
                self._received(piece.size, counted=counted)

    def _move(self, out: int, x: int, nbytes: int, kind: int) -> None:
        if self.refusal is not None:
            self.check()
        if self.recorders:
            recording = self.recording
            if recording is not None and kind == ON_DEVICE:
                recording.copy(out, x, nbytes)
            elif recording is not None:
                recording.refuse("a transfer")
        before = self._context.enter()
        try:
            self._runtime.memcpyAsync(out, x, nbytes, kind, self.pointer)
        except self._errors as error:
            raise self.meaning(error) from error
        finally:
            self._context.leave(before)

    @property
    def recording(self) -> Recording | None:
        """What writes this thread's calls down."""
        return self._parameters.recording if self.recorders else None

    @contextmanager
    def recorded(self, recording: Recording) -> Iterator[None]:
        """Let it write down the calls of this thread."""
        with self._counting:
            self.recorders += 1
        self._parameters.recording = recording
        try:
            yield
        finally:
            self._parameters.recording = None
            with self._counting:
                self.recorders -= 1

    def allocated(self, view: View) -> None:
        """Write down what was allocated, where this thread's calls are."""
        recording = self.recording
        if recording is not None:
            recording.allocated(view)

    def unrecorded(self, what: str) -> None:
        """Say that this thread does what cannot be made again by its calls."""
        recording = self.recording
        if recording is not None:
            recording.refuse(what)

    def finish(self) -> None:
        """Wait until all work is done."""
        self.check()
        if self.recorders:
            self.unrecorded("waiting for the device")
        self._wait_for(self.pointer)

    def _wait_for(self, stream: int) -> None:
        try:
            self._runtime.streamSynchronize(stream)
        except self._errors as error:
            raise self.meaning(error) from error

    def meaning(self, error: Any) -> Exception:
        """CUDA's error as ours, where it says something about memory or the device; else itself."""
        status = getattr(error, "status", None)
        if status == NO_MEMORY:
            return OutOfMemoryError(
                f"{self._spec}: the driver found no memory ({error}); free some arrays or use smaller batches"
            )
        if status in LOST:
            words = (
                f"{self._spec}: {self._name} stopped answering ({error}); what was computed since the last read is lost, "
                "start the process again"
            )
            self.refusal = DeviceLostError, words
            return DeviceLostError(words)
        return error  # type: ignore[no-any-return]  # CuPy's errors are exceptions
