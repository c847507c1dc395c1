"""Launch: a kernel with its pipeline, and how its parameters are packed; addresses and numbers vary from call to call."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...rows.hoist import host_numbers
from ...rows.spirv import SpirvKernel
from ...view import Buffer, Layout, View
from .commands import Access, Commands
from .device import Device
from .memory import Chunk, Staging
from .pipeline import Pipelines

# Bytes of an array that a launch reaches by an access chain: NVIDIA's driver multiplies its index and stride in 32 bits
# (seen on an H200, driver 580: what lay beyond was read and written at its place less 2**32).
REACH = 1 << 32
_INTEGERS = {"i": 32, "I": 32, "q": 64, "Q": 64}
_PAGE = 1 << 16


class Blocks:
    """Parameters that do not fit push constants: written side by side into host memory that the device reads."""

    def __init__(self, commands: Commands, staging: Staging) -> None:
        self.commands, self.staging = commands, staging
        self.nbytes = self.calls = 0  # metadata, counted apart from transfers
        self._page: Chunk | None = None
        self._at = 0

    def put(self, data: bytes) -> bytes:
        """The address, as a kernel takes it, of a copy of `data` that lives until the commands now open are done."""
        with self.commands.device.lock:
            if (
                self._page is None
                or self._at + len(data) > self._page.nbytes
                or self._page.used not in (0, self.commands.value)
            ):
                if self._page is not None:
                    self.staging.give(self._page)
                self._page, self._at = self.staging.take(max(_PAGE, len(data))), 0
            page, at = self._page, self._at
            page.block.mapped[at : at + len(data)] = data
            page.used = self.commands.value
            self._at += -(-len(data) // 16) * 16
            self.nbytes += len(data)
            self.calls += 1
            return struct.pack("<Q", page.address + at)


class Launch:
    """One module made ready: `arrays` are the names of its addresses, in order; `alone` is for one thread."""

    def __init__(
        self, kernel: SpirvKernel, device: Device, pipelines: Pipelines, width: int, *, alone: bool = False
    ) -> None:
        self.kernel, self.width, self.alone = kernel, width, alone
        self.pipeline = pipelines.get(kernel.name, kernel.words, {0: 1 if alone else device.group_size})
        numbers = {name for name, _ in kernel.hoisted}
        self.arrays = tuple(f.name for f in kernel.fields if f.format == "Q" and f.name not in numbers)
        order = [name for name, _ in kernel.hoisted]
        self.numbers = [(f.format, order.index(f.name)) for f in kernel.fields if f.name in numbers]
        self.wide = [(form, i) for form, i in self.numbers if form in "Qqd"]
        self.narrow = [(form, i) for form, i in self.numbers if form not in "Qqd"]
        self.pack = struct.Struct("<" + "".join(f.format for f in kernel.fields)).pack

    def parameters(self, addresses: Sequence[int], layout: Sequence[int], scalars: Mapping[str, Any]) -> bytes:
        """Addresses in the order of `arrays`; `layout` holds the count and, for `general`, sizes and strides."""
        if not self.numbers:
            return self.pack(*addresses, *layout)
        return self.packed(layout, scalars)(*addresses)

    def packed(self, layout: Sequence[int], scalars: Mapping[str, Any]) -> Callable[..., bytes]:
        """`parameters` of addresses alone, for launches that differ in nothing else."""
        wide, narrow = self.values(scalars)
        rest, pack = (*wide, *layout, *narrow), self.pack
        return lambda *addresses: pack(*addresses, *rest)

    def values(self, scalars: Mapping[str, Any]) -> tuple[list[float], list[float]]:
        """What the numbers come to, those before the layout's fields and those behind them."""
        values = host_numbers(self.kernel.hoisted, scalars)
        return [_number(form, values[i]) for form, i in self.wide], [
            _number(form, values[i]) for form, i in self.narrow
        ]


def _number(form: str, value: float) -> float:
    """A host number as struct takes it: integers wrap, floats too large are infinite."""
    bits = _INTEGERS.get(form)
    if bits is None:
        if form == "f":
            try:
                struct.pack("<f", value)
            except OverflowError:
                return float("inf") if value > 0 else -float("inf")
        return float(value)
    whole = int(value) & ((1 << bits) - 1)
    return whole - (1 << bits) if form in "iq" and whole >> (bits - 1) else whole


Place = tuple[
    int, Access, bool
]  # address of the first element, the stretch of memory, whether it is aligned to four elements
_nowhere = Buffer(None, None, 0)  # type: ignore[arg-type]  # of views of which only the layout is read
_extents: dict[Layout, tuple[int, int]] = {}


def place(view: View) -> Place:
    """Where a view's elements lie; kept as the view's native handle."""
    found: Place | None = view.native
    if found is None:
        low, high = extent(view.layout)
        chunk: Chunk = view.buffer.handle
        start = view.offset * view.layout.dtype.itemsize
        found = view.native = (chunk.address + start, (chunk, start + low, start + high), view.offset & 3 == 0)
    return found


def extent(layout: Layout) -> tuple[int, int]:
    """The stretch of bytes that a view of this layout touches, from its first element."""
    found = _extents.get(layout)
    if found is None:
        if len(_extents) > 50_000:
            _extents.clear()
        found = _extents[layout] = View(_nowhere, layout).extent()
    return found
