"""Launching the shipped kernels: gather, scatter_add, fold, sort and random; what they cannot take as it is, is copied first."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING

from ...dtypes import DType, float32, float64, int32, int64, uint32
from ...errors import IndexRangeError, UnsupportedError
from ...view import Layout, View
from ..shared.axes import collapse, padded
from ..shared.pooling import Part, folds
from ..shared.turning import Turn, turn_of
from .launch import place
from .memory import Block, Chunk

if TYPE_CHECKING:
    from .backend import VulkanBackend

FREE = 5  # axes of a fold without windows, merged
FOLDED_FIELDS = ("extent", "out_stride", "x_stride", "taps", "tap_stride", "step", "dilation", "positions", "origin")
MOST = 1 << 31  # elements that one launch counts; half of it is a multiple of 4
WIDE = {1: "u8", 2: "u16", 4: "u32", 8: "u64"}
INDEX = {int32: "i32", int64: "i64"}
REPORT = struct.Struct("<IIq")
TURN = struct.Struct("<6Q5I")
TURNS_EACH = 256  # of a thread for an element: a fold's are its taps, and a few
PLANS = 20_000  # a program with ever new shapes must not grow for ever
FLOATS = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64"}
DIGITS = {"float16": 11, "bfloat16": 8}  # of uniform numbers that are stored short


class Indexing:
    """Kernels that follow indices, of one backend, and the report of indices that were out of range."""

    def __init__(self, backend: VulkanBackend) -> None:
        self.backend, self.device, self.commands = backend, backend.device, backend.commands
        self._report = Chunk(Block(self.device, 256, self.device.downloads), 0, 256)
        self._report.block.mapped[0 : REPORT.size] = bytes(REPORT.size)
        self._named: list[str] = []
        self._turns: dict[tuple[Layout, Layout], Turn | None] = {}

    def destroy(self) -> None:
        """Give the report's memory back."""
        self._report.block.destroy()

    def raise_found(self) -> None:
        """IndexRangeError if a kernel that has finished met an index outside its axis; names the first that was noticed."""
        mapped = self._report.block.mapped
        launch, size, index = REPORT.unpack_from(mapped)
        if launch:
            mapped[0 : REPORT.size] = bytes(REPORT.size)
            op = self._named[launch - 1]
            raise IndexRangeError(
                f"{op}: index {index} is outside an axis of size {size}; indices must lie in [0, {size})"
            )

    def report_place(self, op: str) -> tuple[int, int]:
        """The report's address, and what a kernel writes there for this op."""
        return self._report.address, self._number(op)

    def _number(self, op: str) -> int:
        """What a kernel writes to the report for this op."""
        if op not in self._named:
            self._named.append(op)
        return self._named.index(op) + 1

    def _run(self, module: str, data: bytes, count: int, reads: Sequence[View], writes: Sequence[View]) -> None:
        device = self.device
        pipeline = self.backend.pipelines.shipped(module, {0: device.group_size})
        threads = device.group_size
        # more groups than keep it busy where a thread would else come to more elements than its turns are enough for
        most = max(device.most_groups, min(65535, -(-count * TURNS_EACH // (threads * device.most_turns))))
        groups = max(1, min(most, -(-count // threads)))
        self.commands.dispatch(
            pipeline, data, (groups, 1, 1), [place(v)[1] for v in reads], [place(v)[1] for v in writes]
        )

    def _as(self, view: View, dtype: DType | None = None) -> View:
        """The view itself if it is C-ordered and of this dtype, else such a copy."""
        wanted = dtype or view.dtype
        if view.dtype is wanted and view.layout.c_order:
            return view
        fresh = self.backend.allocate(Layout.of(wanted, view.shape))
        self.backend.copy(fresh, view)
        return fresh

    def _into(self, out: View, fill: Callable[[View], None], dtype: DType | None = None, *, keep: bool = False) -> None:
        """Have `fill` write a C-ordered view of this dtype: out itself, or one that is copied to it (and from it, to `keep` it)."""
        target = out if (dtype or out.dtype) is out.dtype and out.layout.c_order else None
        if target is not None:
            fill(target)
            return
        target = self.backend.allocate(Layout.of(dtype or out.dtype, out.shape))
        if keep:
            self.backend.copy(target, out)
        fill(target)
        self.backend.copy(out, target)

    def _index(self, index: View) -> View:
        return self._as(index, index.dtype if index.dtype in INDEX else int64)

    def _check(self, op: str, *sizes: int) -> None:
        if max(sizes) >= MOST:
            raise UnsupportedError(
                f"{op}: {self.backend.spec} takes fewer than 2**31 elements in one call; take it in slices"
            )

    def turn(self, out: View, x: View) -> bool:
        """out = x, of one dtype, if that turns rows into columns: whether it does."""
        key = out.layout, x.layout
        if key not in self._turns:
            if len(self._turns) > PLANS:
                self._turns.clear()
            self._turns[key] = turn_of(*collapse(out.shape, [out.strides, x.strides])) if out.size else None
        turn = self._turns[key]
        if turn is None:
            return False
        item, tiles = out.dtype.itemsize, turn.batch * turn.tiles
        steps = [step * item for step in (turn.out_batch, turn.out_row, turn.x_batch, turn.x_column)]
        sizes = turn.rows, turn.columns, turn.across, turn.tiles, tiles
        data = TURN.pack(place(out)[0], place(x)[0], *steps, *sizes)
        self._run(f"turn_{WIDE[item]}", data, tiles * self.device.group_size, [x], [out])
        return True

    def gather(self, out: View, x: View, index: View, batch: int) -> None:
        """out[b, i, j] = x[b, index[b, i], j]."""
        if not out.size:
            return
        if out.size >= MOST:
            self._gather_halves(out, x, index, batch)
            return
        rows, inner, places = x.shape[batch], prod(x.shape[batch + 1 :]), prod(index.shape[batch:])
        self._check("gather", rows)
        x, index = self._as(x), self._index(index)

        def fill(target: View) -> None:
            data = struct.pack("<QQQQIIIII", *(place(v)[0] for v in (target, x, index)), self._report.address,
                               out.size, inner, places, rows, self._number("gather"))  # fmt: skip
            self._run(f"gather_{WIDE[x.dtype.itemsize]}_{INDEX[index.dtype]}", data, out.size, [x, index], [target])

        self._into(out, fill)

    def _gather_halves(self, out: View, x: View, index: View, batch: int) -> None:
        """More elements than one launch counts: cut along the longest axis of the result."""
        axis = max(range(out.ndim), key=lambda a: out.shape[a])
        half = out.shape[axis] // 2
        for cut in (slice(0, half), slice(half, None)):
            part = _cut(out, axis, cut)
            if axis < batch:
                self.gather(part, _cut(x, axis, cut), _cut(index, axis, cut), batch)
            elif axis < index.ndim:
                self.gather(part, x, _cut(index, axis, cut), batch)
            else:
                self.gather(part, _cut(x, axis - index.ndim + batch + 1, cut), index, batch)

    def scatter_add(self, out: View, index: View, x: View, batch: int) -> None:
        """out[b, index[b, i], j] += x[b, i, j]."""
        if not x.size or not out.size:
            return
        rows, inner, places, batches = (
            out.shape[batch],
            prod(out.shape[batch + 1 :]),
            prod(index.shape[batch:]),
            prod(index.shape[:batch]),
        )
        self._check("scatter_add", rows, inner, places, batches * inner)
        kind = _summed(out.dtype)
        x, index = self._as(x, kind), self._index(index)
        # every thread looks at every index, so there are no more shares of the rows than keep the device busy
        wanted = max(1, (256 if self.device.kind == "software" else 1 << 15) // (batches * inner))
        share = -(-rows // min(rows, wanted))
        shares = -(-rows // share)
        name = f"scatter_add_{'f' if kind.is_floating else 'u'}{8 * kind.itemsize}_{INDEX[index.dtype]}"
        turns = 2 + -(-batches * inner * shares // (self.device.most_groups * self.device.group_size))  # of a thread
        few = max(1, self.device.most_turns // turns)

        def fill(target: View) -> None:
            to, read, chosen = (place(v)[0] for v in (target, x, index))
            whole = places <= few  # else a batch at a time, and so many of its places
            for one in (0,) if whole else range(batches):
                for start in range(0, places, places if whole else few):
                    at, count = one * places + start, (batches if whole else 1) * inner * shares
                    given = to + one * rows * inner * kind.itemsize, read + at * inner * kind.itemsize
                    data = struct.pack("<QQQQIIIIIII", *given, chosen + at * index.dtype.itemsize, self._report.address, count, inner,
                                       min(places if whole else few, places - start), rows, share, shares, self._number("scatter_add"))  # fmt: skip
                    self._run(name, data, count, [x, index, target], [target])

        self._into(out, fill, kind, keep=True)

    def fold(
        self,
        out: View,
        x: View,
        axes: tuple[int, ...],
        steps: tuple[int, ...],
        dilations: tuple[int, ...],
        *,
        index: View | None = None,
        origin: tuple[int, ...] | None = None,
    ) -> None:
        """Each element of out is the sum of the window entries of x that look at it.

        With `index`, of x's layout, only entries whose window chose their tap; out begins at `origin` of what x folds to.
        """
        for part in folds(self.backend, out, x, index, axes, steps, dilations, rank=FREE, most=MOST):
            self._fold(part, part.folded(axes, steps, dilations, origin))

    def _fold(self, part: Part, folded: dict[str, list[int]]) -> None:
        out, x, index, sizes, strides = part
        given = [*padded(sizes, FREE, 1), *padded(strides[0], FREE, 0), *padded(strides[1], FREE, 0)]
        given += [v for name in FOLDED_FIELDS for v in folded[name]]
        name, chosen = FLOATS.get(out.dtype.name, WIDE[out.dtype.itemsize]), () if index is None else (index,)
        with self.device.lock:  # the block belongs to the commands that are open now
            block = self.backend.blocks.put(struct.pack(f"<{len(given)}i", *given))
            data = struct.pack("<QQ", place(out)[0], place(x)[0]) + block
            data += struct.pack(f"<{len(chosen)}QI", *(place(v)[0] for v in chosen), out.size)
            self._run(f"fold_{'chosen_' if chosen else ''}{name}", data, out.size, [x, *chosen], [out])

    def sort(self, values: View, index: View, x: View, *, descending: bool) -> None:
        """Sort the places of the elements, then fetch the elements."""
        if not x.size:
            return
        if x.size >= MOST:
            lead = max(range(x.ndim - 1), key=lambda a: x.shape[a], default=0)
            self._check("sort", x.shape[-1])
            half = x.shape[lead] // 2
            for cut in (slice(0, half), slice(half, None)):
                self.sort(_cut(values, lead, cut), _cut(index, lead, cut), _cut(x, lead, cut), descending=descending)
            return
        n, source = x.shape[-1], self._as(x)
        kind = {"u": 0, "b": 0, "i": 1, "f": 2}[x.dtype.kind]
        infinity = {"float16": 0x7C00, "bfloat16": 0x7F80, "float32": 0x7F800000, "float64": 0x7FF00000}.get(
            x.dtype.name, 0
        )
        places = [self.backend.allocate(Layout.of(uint32, x.shape)) for _ in range(2)]
        width, first = 1, 1
        while first or width < n:
            come, go = places
            data = struct.pack(
                "<QQQIIIIIII",
                place(source)[0],
                place(come)[0],
                place(go)[0],
                x.size,
                n,
                width,
                first,
                kind,
                infinity,
                descending,
            )
            self._run(f"sort_{WIDE[x.dtype.itemsize]}", data, x.size, [source] if first else [source, come], [go])
            places, width, first = [go, come], 2 * width, 0
        self.backend.copy(index, places[0])
        self.gather(values, source, View(places[0].buffer, Layout.of(int32, x.shape)), x.ndim - 1)

    def random(self, out: View, kind: str, key: tuple[int, int], counter: tuple[int, int, int, int]) -> None:
        """Fill with Philox numbers."""
        if not out.size:
            return
        number = uint32 if kind == "bits" else float64 if out.dtype is float64 else float32
        each = 2 if kind == "normal" or (kind == "uniform" and number is float64) else 4  # numbers of a block
        name = f"random_{kind}_{'u' if kind == 'bits' else 'f'}{8 * number.itemsize}"
        first = counter[0] | counter[1] << 32
        digits = DIGITS.get(out.dtype.name, 24)

        def fill(target: View) -> None:
            for start in range(0, target.size, MOST // 2):
                part = View(
                    target.buffer, Layout.of(number, (min(MOST // 2, target.size - start),)), target.offset + start
                )
                at = (first + start // each) & 0xFFFFFFFFFFFFFFFF
                blocks = -(-part.size // each)
                data = struct.pack(
                    "<QIIIIIIIII",
                    place(part)[0],
                    part.size,
                    blocks,
                    *key,
                    at & 0xFFFFFFFF,
                    at >> 32,
                    *counter[2:],
                    digits,
                )
                self._run(name, data, blocks, [], [part])

        self._into(out, fill, number)


def _cut(view: View, axis: int, cut: slice) -> View:
    """A part of an axis."""
    return view.slice(*(slice(None),) * axis, cut)


def _summed(dtype: DType) -> DType:
    """What a sum is kept in: float32 for narrower floats, at least 32 bits for integers."""
    if dtype.is_floating:
        return dtype if dtype.itemsize >= 4 else float32
    return dtype if dtype.itemsize >= 4 else int32
