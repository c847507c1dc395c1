"""Commands: one open command buffer that dispatches are appended to, barriers where memory demands one, one timeline.

A dispatch says which stretches of which chunks it reads and writes. A barrier is recorded only before one that reads what
was written, or writes what was read or written, since the last barrier; every command buffer begins with one. Barriers are
numbered, and a chunk remembers behind which of them it was last read and written, so there is nothing to clear.

A buffer is submitted when the host wants a result, or after FLUSH dispatches; after a wait, when the device has nothing to
do, sooner: after the first that touches much memory (else EAGER), then after twice as many each time.

An interrupt (Ctrl-C) is raised behind whichever call it fell into, so what a call does is noted before it is made.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from ...errors import DeviceLostError, OutOfMemoryError
from .device import PUSH_BYTES, Device
from .memory import Chunk

FLUSH = 64
EAGER, MUCH = 8, 1 << 20  # dispatches; bytes that keep a device busy for longer than their submission takes
BUFFERS = 8  # command buffers in flight
PATIENCE_S = 1e-3  # of waits for a GPU, as on OpenCL; a software device needs the processor itself
LONGEST_S = 1e9  # a wait's length in nanoseconds must fit 64 bits
COMPUTE_OR_COPY, HOST = 0x800 | 0x1000, 0x4000
WRITES, READS = 0x40 | 0x1000, 0x20 | 0x40 | 0x800 | 0x1000
Access = tuple[Chunk, int, int]  # bytes [low, high) of a chunk


class Commands:
    """The queue as the rest sees it. Callers hold the device's lock, or call what takes it."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._timeline, self._pool = device.ffi.new("VkSemaphore *"), device.ffi.new("VkCommandPool *")  # null for now
        try:
            self._make()
        except BaseException:
            self.destroy()
            raise
        self._busy = [0] * BUFFERS  # the value behind which a buffer may be recorded again
        self.value = 1  # what the open buffer will signal
        self._done = 0
        self._open: Any = None
        self._unsent: Any = None  # a buffer that is ended and could not be submitted yet
        self.count = 0  # dispatches in the open buffer
        self.dispatched = self.barriers = self.submitted = 0  # since the device was opened
        self._bound: Any = None
        self.patience_s = 0.0 if device.kind == "software" else PATIENCE_S
        self._ramp = 1  # dispatches after which the next buffer is submitted
        device.drop = self._drop
        self._prepare()

    def _make(self) -> None:
        device = self.device
        ffi, api = device.ffi, device.api
        kind = api.struct("VkSemaphoreTypeCreateInfo", "SEMAPHORE_TYPE_CREATE_INFO", semaphoreType=1)
        info = api.struct("VkSemaphoreCreateInfo", "SEMAPHORE_CREATE_INFO", pNext=kind)
        device.check(device.lib.vkCreateSemaphore(device.handle, info, ffi.NULL, self._timeline), "vkCreateSemaphore")
        info = api.struct(
            "VkCommandPoolCreateInfo", "COMMAND_POOL_CREATE_INFO", flags=2, queueFamilyIndex=device.family
        )
        device.check(device.lib.vkCreateCommandPool(device.handle, info, ffi.NULL, self._pool), "vkCreateCommandPool")
        info = api.struct(
            "VkCommandBufferAllocateInfo",
            "COMMAND_BUFFER_ALLOCATE_INFO",
            commandPool=self._pool[0],
            commandBufferCount=BUFFERS,
        )
        self._buffers = ffi.new("VkCommandBuffer[]", BUFFERS)
        device.check(
            device.lib.vkAllocateCommandBuffers(device.handle, info, self._buffers), "vkAllocateCommandBuffers"
        )

    def _prepare(self) -> None:
        """Structs that are used again and again."""
        ffi, api, call = self.device.ffi, self.device.api, self.device.call
        self._push = ffi.new("char[]", PUSH_BYTES)
        self._pushed = ffi.buffer(self._push, PUSH_BYTES)
        self._barrier = api.struct("VkMemoryBarrier", "MEMORY_BARRIER", srcAccessMask=WRITES, dstAccessMask=READS)
        self._to_host = api.struct("VkMemoryBarrier", "MEMORY_BARRIER", srcAccessMask=WRITES, dstAccessMask=0x2000)
        self._begin = api.struct("VkCommandBufferBeginInfo", "COMMAND_BUFFER_BEGIN_INFO", flags=1)
        self._signal = ffi.new("uint64_t *")
        self._values = api.struct("VkTimelineSemaphoreSubmitInfo", "TIMELINE_SEMAPHORE_SUBMIT_INFO",
                                  signalSemaphoreValueCount=1, pSignalSemaphoreValues=self._signal)  # fmt: skip
        self._submit_buffer = ffi.new("VkCommandBuffer *")
        self._submit = api.struct("VkSubmitInfo", "SUBMIT_INFO", pNext=self._values, commandBufferCount=1, pCommandBuffers=self._submit_buffer,
                                  signalSemaphoreCount=1, pSignalSemaphores=self._timeline)  # fmt: skip
        self._wanted = ffi.new("uint64_t *")
        self._wait = api.struct(
            "VkSemaphoreWaitInfo",
            "SEMAPHORE_WAIT_INFO",
            semaphoreCount=1,
            pSemaphores=self._timeline,
            pValues=self._wanted,
        )
        self._counter = ffi.new("uint64_t *")
        self._bind, self._push_constants, self._dispatch = (
            call["vkCmdBindPipeline"],
            call["vkCmdPushConstants"],
            call["vkCmdDispatch"],
        )
        self._lock, self._layout, self._null = self.device.lock, self.device.layout, ffi.NULL

    def dispatch(
        self,
        pipeline: Any,
        parameters: bytes,
        groups: tuple[int, int, int],
        reads: Sequence[Access],
        writes: Sequence[Access],
    ) -> None:
        """Append one launch; `groups` has no axis above what every device has, 65 535."""
        with self._lock:
            buffer = self._open if self._open is not None else self._start()
            self._order(buffer, reads, writes)
            if pipeline is not self._bound:
                self._bound = pipeline
                self._bind(buffer, 1, pipeline)
            size = len(parameters)
            self._pushed[0:size] = parameters
            self._push_constants(buffer, self._layout, 0x20, 0, size, self._push)
            self._dispatch(buffer, *groups)
            self.dispatched += 1
            self.count += 1
            if self.count >= self._ramp and (self.count >= EAGER or _bytes(reads, writes) >= MUCH):
                self.flush()

    def copy(self, target: Chunk, target_offset: int, source: Chunk, source_offset: int, nbytes: int) -> None:
        """Append a copy between chunks, by the copy engine; offsets count from the chunks' starts."""
        device = self.device
        with self.device.lock:
            buffer = self._open if self._open is not None else self._start()
            self._order(
                buffer,
                ((source, source_offset, source_offset + nbytes),),
                ((target, target_offset, target_offset + nbytes),),
            )
            region = device.api.struct(
                "VkBufferCopy",
                srcOffset=source.offset + source_offset,
                dstOffset=target.offset + target_offset,
                size=nbytes,
            )
            device.call["vkCmdCopyBuffer"](buffer, source.block.buffer, target.block.buffer, 1, region)
            self.count += 1

    def _order(self, buffer: Any, reads: Sequence[Access], writes: Sequence[Access]) -> None:
        """Record a barrier if this work must wait for what was recorded since the last one."""
        number, value = self.barriers, self.value
        if _must_wait(number, reads, writes):
            self._record_barrier(buffer)
            number = self.barriers
        for access in reads:
            chunk = access[0]
            chunk.used = value
            if chunk.read_behind != number:
                chunk.read_behind, chunk.read = number, [access]
            elif access not in chunk.read:
                chunk.read.append(access)
        for access in writes:
            chunk = access[0]
            chunk.used = value
            if chunk.written_behind != number:
                chunk.written_behind, chunk.written = number, [access]
            elif access not in chunk.written:
                chunk.written.append(access)

    def _drop(self) -> None:
        """The device is gone: the next call is to begin a buffer, and to be refused."""
        self._open = self._unsent = None

    def _record_barrier(self, buffer: Any) -> None:
        null = self._null
        self.device.call["vkCmdPipelineBarrier"](
            buffer, COMPUTE_OR_COPY, COMPUTE_OR_COPY, 0, 1, self._barrier, 0, null, 0, null
        )
        self.barriers += 1

    def _start(self) -> Any:
        device = self.device
        device.require()
        self._send()
        number = self.value % BUFFERS
        self.wait(self._busy[number])
        buffer = self._buffers[number]
        self._open, self._bound, self.count = buffer, None, 0
        if code := device.call["vkBeginCommandBuffer"](buffer, self._begin):
            self._open = None
            device.check(code, "vkBeginCommandBuffer")
        self._record_barrier(buffer)  # against the buffers before it
        return buffer

    def flush(self) -> None:
        """Submit what is recorded."""
        with self.device.lock:
            if self._open is not None:
                device, buffer, null = self.device, self._open, self.device.ffi.NULL
                device.call["vkCmdPipelineBarrier"](
                    buffer, COMPUTE_OR_COPY, HOST, 0, 1, self._to_host, 0, null, 0, null
                )
                self._open, self._unsent = None, buffer
                try:
                    device.check(device.call["vkEndCommandBuffer"](buffer), "vkEndCommandBuffer")
                except OutOfMemoryError as error:  # arrays would hold what was there before, and nobody would know
                    words = "what was launched last is lost, and its results with it; start the process again"
                    lost = DeviceLostError(f"{error}; {words}")
                    device.give_up(lost)
                    raise lost from error
            self._send()

    def _send(self) -> None:
        """Submit the ended buffer, if one waits; where there is no memory for that, the next call tries again."""
        if self._unsent is None:
            return
        device, buffer, value = self.device, self._unsent, self.value
        self._signal[0], self._submit_buffer[0], self._busy[value % BUFFERS] = value, buffer, value
        self._unsent, self.value = None, value + 1
        if code := device.call["vkQueueSubmit"](device.queue, 1, self._submit, device.ffi.NULL):
            self._unsent, self.value = buffer, value
            device.check(code, "vkQueueSubmit")
        self.submitted += 1
        self._ramp = min(FLUSH, 2 * max(self._ramp, self.count))

    def completed(self) -> int:
        """The value that the timeline has reached."""
        self.device.require()
        self.device.check(
            self.device.call["vkGetSemaphoreCounterValue"](self.device.handle, self._timeline[0], self._counter),
            "the timeline",
        )
        self._done = int(self._counter[0])
        return self._done

    def wait(self, value: int, timeout_s: float | None = None) -> None:
        """Wait until the timeline has reached `value`, submitting what is open if that is part of it."""
        with self.device.lock:
            if value <= self._done:
                return
            self.device.require()
            if value >= self.value:
                self.flush()
                value = min(value, self.value - 1)
            self._poll(value)
            timeout = self.device.timeout_s if timeout_s is None else timeout_s
            self._wanted[0] = value
            code = self.device.call["vkWaitSemaphores"](
                self.device.handle, self._wait, int(min(timeout, LONGEST_S) * 1e9)
            )
            self.device.check(code, f"waiting {timeout:g} s for submitted work")
            self._done = value
            if value == self.value - 1:
                self._ramp = 1

    def _poll(self, value: int) -> None:
        """Ask for the value for as long as it may come sooner than the system wakes a thread that waits for it."""
        if self.patience_s:
            end = time.perf_counter() + self.patience_s
            while self.completed() < value and time.perf_counter() < end:
                pass

    def finish(self) -> None:
        """Wait for everything."""
        waiting = self._open is not None or self._unsent is not None
        self.wait(self.value if waiting else self.value - 1)

    def destroy(self) -> None:
        """Give pool and semaphore back."""
        device = self.device
        if device.handle is not None:
            device.lib.vkDestroyCommandPool(device.handle, self._pool[0], device.ffi.NULL)
            device.lib.vkDestroySemaphore(device.handle, self._timeline[0], device.ffi.NULL)


def _bytes(reads: Sequence[Access], writes: Sequence[Access]) -> int:
    return sum(high - low for _, low, high in reads) + sum(high - low for _, low, high in writes)


def _must_wait(number: int, reads: Sequence[Access], writes: Sequence[Access]) -> bool:
    """Whether any of this was written, or what is written was read or written, since barrier `number`."""
    for chunk, low, high in reads:
        if chunk.written_behind == number:
            for _, other_low, other_high in chunk.written:
                if low < other_high and other_low < high:
                    return True
    for chunk, low, high in writes:
        if chunk.written_behind == number:
            for _, other_low, other_high in chunk.written:
                if low < other_high and other_low < high:
                    return True
        if chunk.read_behind == number:
            for _, other_low, other_high in chunk.read:
                if low < other_high and other_low < high:
                    return True
    return False
