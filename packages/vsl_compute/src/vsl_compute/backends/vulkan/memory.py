"""Memory: blocks of 64 to 256 MiB, each one VkBuffer, cut into chunks of fixed size classes; and staging memory.

A chunk, once cut, keeps its place and size until its whole block is given back, so its identity names its memory in
hazard tracking. A freed chunk may be used again at once: the queue is in order, and the next use of it as an output comes
behind a barrier like any other write. What the host itself touches waits for the chunk's last use.
"""

from __future__ import annotations

from collections import defaultdict, deque
from functools import lru_cache
from typing import Any

from ...errors import OutOfMemoryError
from ...view import Buffer
from .device import VISIBLE, Device

ALIGNMENT = 256
BLOCK, LARGEST_BLOCK = 64 << 20, 256 << 20
STAGING = 8 << 20  # the most that one staged copy takes at a time
STAGING_HELD = 64 << 20


class Block:
    """One allocation of the device: memory, the buffer over all of it, its address, and its mapping if the host sees it."""

    def __init__(self, device: Device, nbytes: int, type_index: int) -> None:
        api, ffi, lib = device.api, device.ffi, device.lib
        self.device, self.nbytes, self.cut, self.chunks = device, nbytes, 0, 0
        info = api.struct("VkBufferCreateInfo", "BUFFER_CREATE_INFO", size=nbytes, usage=0x20 | 1 | 2 | 0x20000)
        buffer, memory = ffi.new("VkBuffer *"), ffi.new("VkDeviceMemory *")
        device.check(lib.vkCreateBuffer(device.handle, info, ffi.NULL, buffer), f"vkCreateBuffer of {nbytes} bytes")
        self.buffer, self.memory = buffer[0], None
        self.mapped: Any = None
        try:
            needs = ffi.new("VkMemoryRequirements *")
            lib.vkGetBufferMemoryRequirements(device.handle, self.buffer, needs)
            flags = api.struct("VkMemoryAllocateFlagsInfo", "MEMORY_ALLOCATE_FLAGS_INFO", flags=2)  # device address
            info = api.struct(
                "VkMemoryAllocateInfo",
                "MEMORY_ALLOCATE_INFO",
                pNext=flags,
                allocationSize=needs.size,
                memoryTypeIndex=type_index,
            )
            device.check(
                lib.vkAllocateMemory(device.handle, info, ffi.NULL, memory), f"vkAllocateMemory of {nbytes} bytes"
            )
            self.memory = memory[0]
            device.check(lib.vkBindBufferMemory(device.handle, self.buffer, self.memory, 0), "vkBindBufferMemory")
            info = api.struct("VkBufferDeviceAddressInfo", "BUFFER_DEVICE_ADDRESS_INFO", buffer=self.buffer)
            self.address = int(lib.vkGetBufferDeviceAddress(device.handle, info))
            if device.memory.memoryTypes[type_index].propertyFlags & VISIBLE:
                pointer = ffi.new("void **")
                device.check(lib.vkMapMemory(device.handle, self.memory, 0, nbytes, 0, pointer), "vkMapMemory")
                self.mapped = ffi.buffer(pointer[0], nbytes)
        except BaseException:
            self.destroy()
            raise

    def destroy(self) -> None:
        """Give it back to the device."""
        device = self.device
        if device.handle is not None:
            device.lib.vkDestroyBuffer(device.handle, self.buffer, device.ffi.NULL)
            if self.memory is not None:
                device.lib.vkFreeMemory(device.handle, self.memory, device.ffi.NULL)
        self.mapped = None


class Chunk:
    """A stretch of a block; `used` is the timeline value behind which the device is done with it.

    `read` and `written` are the stretches touched since barrier number `read_behind` and `written_behind`.
    """

    __slots__ = (
        "address",
        "block",
        "nbytes",
        "offset",
        "read",
        "read_behind",
        "used",
        "written",
        "written_behind",
    )

    def __init__(self, block: Block, offset: int, nbytes: int) -> None:
        self.block, self.offset, self.nbytes, self.used = block, offset, nbytes, 0
        self.address = block.address + offset
        self.read: list[tuple[Chunk, int, int]] = []
        self.written: list[tuple[Chunk, int, int]] = []
        self.read_behind = self.written_behind = -1


Gone = deque[tuple[Chunk, int]]


class Leased(Buffer):
    """A Buffer that says so when it is gone, with its chunk and bytes; what stands against __del__ is harmless here (ADR 0049)."""

    __slots__ = ("gone",)

    def __init__(self, backend: Any, chunk: Chunk, nbytes: int, gone: Gone) -> None:
        self.backend, self.handle, self.nbytes, self.version, self.gone = backend, chunk, nbytes, 0, gone

    def __del__(self) -> None:
        self.gone.append((self.handle, self.nbytes))


@lru_cache(1 << 16)
def size_class(nbytes: int) -> int:
    """The chunk size for so many bytes: 256 B, then four sizes an octave, eight from 1 MiB on."""
    if nbytes <= ALIGNMENT:
        return ALIGNMENT
    steps = 3 if nbytes < 1 << 20 else 4
    unit = max(ALIGNMENT, 1 << (nbytes - 1).bit_length() - steps)
    return -(-nbytes // unit) * unit


class Pool:
    """Chunks for Buffers, and the counters of what is held."""

    def __init__(self, device: Device, commands: Any) -> None:
        self.device, self.commands = device, commands
        self.blocks: list[Block] = []
        self.free: defaultdict[int, list[Chunk]] = defaultdict(list)
        self.live = self.buffers = self.reserved = self.peak = 0
        self.limit: int | None = None  # bytes that may be held from the device; None is as many as its budget
        self._gone: Gone = deque()  # filled by the garbage collector, at any time, in any thread

    def buffer(self, holder: Any, span: int, nbytes: int) -> Buffer:
        """A Buffer over a chunk of at least `span` bytes, which comes back when it is gone; it counts as `nbytes`."""
        device = self.device
        with device.lock:
            if device.broken is not None:
                device.require()
            if self._gone:
                self._collect()
            cached = self.free.get(size_class(span))
            chunk = cached.pop() if cached else self._fresh(span)
            self.live += nbytes
            self.buffers += 1
        return Leased(holder, chunk, nbytes, self._gone)

    def collect(self) -> None:
        """Put chunks of Buffers that are gone on the free lists."""
        with self.device.lock:
            self._collect()

    def _collect(self) -> None:
        gone, free = self._gone, self.free
        while gone:
            chunk, nbytes = gone.popleft()
            self.live -= nbytes
            self.buffers -= 1
            free[chunk.nbytes].append(chunk)

    def _fresh(self, nbytes: int) -> Chunk:
        """A chunk that was never used; what the device refuses is asked for once more after the cache is emptied."""
        size = size_class(nbytes)
        try:
            return self._cut(size)
        except OutOfMemoryError:
            self.empty_cache()
        try:
            return self._cut(size)
        except OutOfMemoryError as error:
            largest = max((n for n, chunks in self.free.items() if chunks), default=0)
            limit = "" if self.limit is None else f", the limit is {self.limit} bytes"
            promised = self.device.promised_bytes
            if size > promised:
                limit += f", the driver promises one array no more than {promised} bytes"
            raise OutOfMemoryError(
                f"vulkan: asked for {nbytes} bytes, held {self.live} in use of {self.reserved} reserved, largest free chunk {largest},"
                f" budget {self.device.budget()}{limit}; free some arrays or use smaller batches"
            ) from error

    def _cut(self, size: int) -> Chunk:
        for block in self.blocks:
            if block.nbytes - block.cut >= size:
                break
        else:
            block = self._grow(size)
        chunk = Chunk(block, block.cut, size)
        block.cut += size
        block.chunks += 1
        return chunk

    def _grow(self, size: int) -> Block:
        wanted = max(size, min(LARGEST_BLOCK, max(BLOCK, self.reserved // 2)))
        budget = self._budget()
        if self.reserved + size > budget:
            raise OutOfMemoryError(f"vulkan: {size} bytes beside {self.reserved} exceed the budget of {budget}")
        most = self.device.largest_buffer
        if size > most:  # the driver need not refuse it, and may do anything
            raise OutOfMemoryError(f"vulkan: {size} bytes are more than a buffer of this device has, {most}")
        wanted = min(wanted, most)
        block = Block(self.device, min(wanted, max(size, budget - self.reserved)), self.device.arrays)
        self.blocks.append(block)
        self.reserved += block.nbytes
        self.peak = max(self.peak, self.reserved)
        return block

    def _budget(self) -> int:
        budget = self.device.budget()
        return budget if self.limit is None else min(budget, self.limit)

    def empty_cache(self) -> None:
        """Give blocks that no Buffer uses back to the device, once it is done with them."""
        with self.device.lock:
            self.collect()
            idle: dict[Block, int] = {}
            for chunks in self.free.values():
                for chunk in chunks:
                    idle[chunk.block] = idle.get(chunk.block, 0) + 1
            unused = {block for block in self.blocks if idle.get(block, 0) == block.chunks}
            if not unused:
                return
            self.commands.finish()
            for n, chunks in self.free.items():
                self.free[n] = [c for c in chunks if c.block not in unused]
            for block in unused:
                self.blocks.remove(block)
                self.reserved -= block.nbytes
                block.destroy()

    def destroy(self) -> None:
        """Give everything back; Buffers that still live lose their memory."""
        for block in self.blocks:
            block.destroy()
        self.blocks, self.reserved = [], 0
        self.free.clear()


class Staging:
    """Host-visible chunks of one memory type, for copies and kernel parameters, used again when the device is done."""

    def __init__(self, device: Device, commands: Any, type_index: int) -> None:
        self.device, self.commands, self.type_index = device, commands, type_index
        self.chunks: list[Chunk] = []
        self.taken: set[Chunk] = set()

    def take(self, nbytes: int) -> Chunk:
        """A mapped chunk that the device has done with; the caller gives it back with `give`."""
        size = max(1 << 16, 1 << (nbytes - 1).bit_length())
        with self.device.lock:
            idle = [c for c in self.chunks if c not in self.taken and c.nbytes >= size]
            done = self.commands.completed()
            found = next((c for c in idle if c.used <= done), None)
            if found is None and idle and sum(c.nbytes for c in self.chunks) + size > STAGING_HELD:
                found = min(idle, key=lambda c: c.used)
                self.commands.wait(found.used)
            if found is None:
                found = Chunk(Block(self.device, size, self.type_index), 0, size)
                self.chunks.append(found)
            self.taken.add(found)
            return found

    def give(self, chunk: Chunk) -> None:
        """The chunk may be used again behind its `used` value."""
        self.taken.discard(chunk)

    def trim(self) -> None:
        """Give idle chunks back to the device."""
        with self.device.lock:
            done = self.commands.completed()
            for chunk in [c for c in self.chunks if c not in self.taken and c.used <= done]:
                self.chunks.remove(chunk)
                chunk.block.destroy()

    def destroy(self) -> None:
        """Give everything back."""
        for chunk in self.chunks:
            chunk.block.destroy()
        self.chunks, self.taken = [], set()
