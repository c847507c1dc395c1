"""Launches of the kernels that move elements: copy, gather, scatter_add, fold, sort and random; and the index report."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import locks
from ...dtypes import bool_, float64, int64
from ...errors import IndexRangeError
from ...kernels import indexing as texts
from ...kernels.philox import numbers_per_block, render_dropout, render_random
from ...kernels.places import RANK
from ...rows.kinds import compute_dtype
from ...view import Layout, View
from .axes import LIMIT, collapse, padded, pieces
from .parameters import BUFFER, LONG, UINT, Compiled, Kind, packed, struct_of
from .parameters import number as parameter
from .pooling import Part, folds
from .turning import TILE, Turn, turn_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...kernels.shell import Kernel
    from .backend import TextBackend

    Copy = Callable[[View, View], None]

SLOTS = 256  # launches with indices between two reads of the report
NOTHING = -(2**63)  # what a slot holds while every index was in its axis
PLAN_LIMIT = 20_000  # a program with ever new shapes must not grow for ever
TURNING = 256  # threads of a group that turns a tile
FEW = 4096  # rows times terms up to which each row looks through all terms


def places(arrays: int) -> Kind:
    """The parameter places_{arrays}."""
    return struct_of(1 + RANK + arrays * (RANK + 1))


def places_of(sizes: Sequence[int], strides: Sequence[Sequence[int]], ats: Sequence[int]) -> list[int]:
    """The fields of places_n."""
    rank, rest = max(1, len(sizes)), RANK - max(1, len(sizes))
    sizes = list(sizes) or [1]
    steps = [v for s in strides for v in (*(s or [0]), *[0] * rest)]
    return [rank, *sizes, *[1] * rest, *steps, *ats]


class Report:
    """Where kernels write an index that is outside its axis, a slot a launch; read when the host waits anyway."""

    def __init__(self, backend: TextBackend) -> None:
        self._backend = backend
        self._lock = locks.lock()
        self._asked: list[tuple[str, int]] = []
        self._wrong: IndexRangeError | None = None
        self._slots: View | None = None

    def slot(self, op: str, axis: int) -> tuple[int, Any]:
        """A slot for one launch, and the memory it lies in."""
        self._backend.queue.check()  # before the lock, which a fork may have left held
        with self._lock:
            if self._slots is None:
                self._slots = self._backend.allocate(Layout.of(int64, (SLOTS,)))
                self._clear()
            if len(self._asked) == SLOTS:
                self._read()
            self._asked.append((op, axis))
            return len(self._asked) - 1, self._slots.buffer.handle

    def check(self) -> None:
        """IndexRangeError for the first launch whose index was outside; nothing is read if no launch had indices."""
        if not self._asked and self._wrong is None:
            return
        with self._lock:
            self._read()
            wrong, self._wrong = self._wrong, None
        if wrong is not None:
            raise wrong

    def _clear(self) -> None:
        assert self._slots is not None  # slot() made it
        self._backend.queue.fill(self._slots.buffer.handle, np.array([NOTHING], np.int64), 8 * SLOTS)

    def _read(self) -> None:
        if not self._asked or self._slots is None:
            return
        found = np.empty(len(self._asked), np.int64)
        self._backend.queue.download(found, self._slots.buffer.handle, 0, counted=False)
        for value, (op, axis) in zip(found.tolist(), self._asked, strict=True):
            if value != NOTHING and self._wrong is None:
                self._wrong = IndexRangeError(
                    f"{op}: index {value} is outside an axis of size {axis}; indices must lie in [0, {axis})"
                )
        if self._wrong is not None:
            self._clear()
        self._asked.clear()


class Indexing:
    """The moving kernels of one device."""

    def __init__(self, backend: TextBackend) -> None:
        self._backend, self.report = backend, Report(backend)
        self._folds: dict[tuple[Any, ...], Callable[..., None]] = {}
        self._copies: dict[tuple[Layout, Layout, bool], Copy] = {}
        self._kernels: dict[tuple[Any, ...], tuple[Compiled, ...]] = {}

    def _kernel(
        self, key: tuple[Any, ...], kinds: Sequence[Sequence[Kind]], render: Callable[[], Kernel | tuple[Kernel, ...]]
    ) -> tuple[Compiled, ...]:
        found = self._kernels.get(key)
        if found is None:
            made = render()
            kernels = made if isinstance(made, tuple) else (made,)
            found = tuple(self._backend.programs.kernel(text, kind) for text, kind in zip(kernels, kinds, strict=True))
            self._kernels[key] = found
        return found

    def copy(self, out: View, x: View) -> None:
        """out = x, converting the dtype; what two layouts need is worked out once."""
        if not out.layout.size or (x.buffer is out.buffer and x.offset == out.offset and x.layout is out.layout):
            return
        key = (out.layout, x.layout, not (out.offset | x.offset) & 3)
        ready = self._copies.get(key)
        if ready is None:
            if len(self._copies) > PLAN_LIMIT:
                self._copies.clear()
            ready = self._copies[key] = self._copied(out, x)
        ready(out, x)

    def _copied(self, out: View, x: View) -> Copy:
        """The copy between such Views."""
        sizes, strides = collapse(out.shape, [out.strides, x.strides])
        if x.dtype is out.dtype and len(sizes) <= 1 and all(s in ([], [1]) for s in strides):
            return self._copied_bytes(sizes, strides, out, x)
        found = None
        if self._backend.queue.vectors:
            found = self._copied_rows(out, x, sizes, strides) or self._turned(out, x, turn_of(sizes, strides))
        return found or self._copied_elements(out, x, sizes, strides)

    def _turned(self, out: View, x: View, turn: Turn | None) -> Copy | None:
        """Rows into columns, if they are."""
        if turn is None:
            return None
        kinds: list[Kind] = [*[UINT] * 3, LONG, LONG, *[BUFFER, LONG, LONG, LONG] * 2]
        (kernel,) = self._kernel(("turn", x.dtype, out.dtype), [kinds],
                                 lambda: texts.render_turn(self._backend.dialect, x.dtype, out.dtype, tile=TILE, threads=TURNING))  # fmt: skip
        launch, tiles = self._backend.queue.launch_groups, turn.batch * turn.tiles
        shape = tiles, turn.across, turn.tiles, turn.rows, turn.columns
        to, come = turn[3:5], turn[5:7]
        return lambda out, x: launch(
            kernel, tiles, TURNING, *shape, out.buffer.handle, out.offset, *to, x.buffer.handle, x.offset, *come
        )

    def _copied_bytes(self, sizes: list[int], strides: list[list[int]], out: View, x: View) -> Copy:
        """By the driver, unless within one Buffer, of which it may not look at the order."""
        item, nbytes, copy = x.dtype.itemsize, out.nbytes, self._backend.queue.copy
        within = self._copied_elements(out, x, sizes, strides)

        def ready(out: View, x: View) -> None:
            if x.buffer is out.buffer:
                within(out, x)
            else:
                copy(out.buffer.handle, out.offset * item, x.buffer.handle, x.offset * item, nbytes)

        return ready

    def _copied_elements(self, out: View, x: View, sizes: list[int], strides: list[list[int]]) -> Copy:
        queue, dtypes, each = self._backend.queue, (x.dtype, out.dtype), 1
        others = [out.offset, x.offset, *(step for s in strides for step in s[:-1])]
        if queue.vectors and sizes and _in_fours(1, sizes[-1], [s[-1] for s in strides], others):
            each, sizes = 4, [*sizes[:-1], sizes[-1] // 4]
            strides = [[*(step // 4 for step in s[:-1]), 1] for s in strides]
        parts = [
            (prod(part), packed(places_of(part, steps, [])), ats) for part, steps, ats in pieces(sizes, strides, RANK)
        ]

        def ready(out: View, x: View) -> None:
            (kernel,) = self._kernel(("copy", *dtypes, each), [[LONG, places(2), BUFFER, BUFFER]],
                                     lambda: texts.render_copy(self._backend.dialect, *dtypes, fours=each == 4))  # fmt: skip
            for count, head, (to, at) in parts:
                layout = head + packed([out.offset // each + to, x.offset // each + at])
                queue.launch(kernel, count, count, layout, out.buffer.handle, x.buffer.handle)

        return ready

    def _copied_rows(self, out: View, x: View, sizes: list[int], strides: list[list[int]]) -> Copy | None:
        """Rows of neighbours, four at a time, if they are such."""
        steps = [padded(s, 2, 0) for s in strides]
        rows, columns = padded(sizes, 2, 1) if len(sizes) <= 2 else (0, 0)
        if not _in_fours(rows, columns, [s[-1] for s in steps], [out.offset, x.offset, *(s[0] for s in steps)]):
            return None
        line: list[Kind] = [BUFFER, LONG, LONG]
        (kernel,) = self._kernel(("copy rows", x.dtype, out.dtype), [[LONG, UINT, *line, *line]],
                                 lambda: texts.render_copy_rows(self._backend.dialect, x.dtype, out.dtype))  # fmt: skip
        launch, count, quads = self._backend.queue.launch, rows * columns // 4, columns // 4
        to, come = steps[0][0], steps[1][0]
        return lambda out, x: launch(
            kernel, count, count, quads, out.buffer.handle, out.offset, to, x.buffer.handle, x.offset, come
        )

    def gather(self, out: View, x: View, index: View, *, batch: int) -> None:
        """out[b..., i..., j...] = x[b..., index[b..., i...], j...]."""
        if not out.size or (not batch and self._backend.queue.vectors and self._gather_rows(out, x, index)):
            return
        middle, last = index.ndim - batch, x.ndim - batch - 1
        x_strides = (*x.strides[:batch], *[0] * middle, *x.strides[batch + 1 :])
        index_strides = (*index.strides, *[0] * last)
        sizes, strides = collapse(out.shape, [out.strides, x_strides, index_strides])
        (kernel,) = self._kernel(("gather", x.dtype.itemsize, index.dtype), [[LONG, places(3), LONG, LONG, LONG, *[BUFFER] * 4]],
                                 lambda: texts.render_gather(self._backend.dialect, x.dtype, index.dtype))  # fmt: skip
        axis = x.shape[batch]
        slot, report = self.report.slot("gather", axis)
        for part, steps, ats in pieces(sizes, strides, RANK):
            layout = packed(places_of(part, steps, [v.offset + a for v, a in zip((out, x, index), ats, strict=True)]))
            self._backend.queue.launch(kernel, prod(part), prod(part), layout, x.strides[batch], axis, slot, out.buffer.handle,
                                       x.buffer.handle, index.buffer.handle, report)  # fmt: skip

    def _gather_rows(self, out: View, x: View, index: View) -> bool:
        """Whole rows of neighbours, four at a time, if they are such: whether they were."""
        outer, lines = collapse(index.shape, [index.strides, out.strides[: index.ndim]], reorder=False)
        inner, within = collapse(x.shape[1:], [out.strides[index.ndim :], x.strides[1:]], reorder=False)
        if len(outer) > 1 or len(inner) != 1:
            return False
        index_step, out_row = (padded(s, 1, 0)[0] for s in lines)
        if not _in_fours(index.size, inner[0], [s[0] for s in within], [out.offset, x.offset, out_row, x.strides[0]]):
            return False
        (kernel,) = self._kernel(("gather rows", x.dtype.itemsize, index.dtype), [[LONG, UINT, *[LONG] * 8, *[BUFFER] * 4]],
                                 lambda: texts.render_gather_rows(self._backend.dialect, x.dtype, index.dtype))  # fmt: skip
        axis, count = x.shape[0], index.size * inner[0] // 4
        slot, report = self.report.slot("gather", axis)
        numbers = (out.offset, out_row, x.offset, x.strides[0], index.offset, index_step, axis, slot)
        memory = (out.buffer.handle, x.buffer.handle, index.buffer.handle, report)
        self._backend.queue.launch(kernel, count, count, inner[0] // 4, *numbers, *memory)
        return True

    def _keys(self, index: View, axis: int) -> View:
        """The index as dense int64, what is outside its axis being reported and replaced by `axis`."""
        keys = self._backend.allocate(Layout.of(int64, index.shape))
        (kernel,) = self._kernel(("keys", index.dtype), [[LONG, places(1), LONG, LONG, BUFFER, BUFFER, BUFFER]],
                                 lambda: texts.render_keys(self._backend.dialect, index.dtype))  # fmt: skip
        source = index
        sizes, strides = collapse(index.shape, [index.strides], reorder=False)
        if len(sizes) > RANK:
            source = self._backend.dense(index)
            sizes, strides = [index.size], [[1]]
        slot, report = self.report.slot("scatter_add", axis)
        layout = packed(places_of(sizes, strides, [source.offset]))
        self._backend.queue.launch(
            kernel, index.size, index.size, layout, axis, slot, keys.buffer.handle, source.buffer.handle, report
        )
        return keys

    def scatter_add(self, out: View, index: View, x: View, *, batch: int) -> None:
        """out[b..., index[b..., i...], j...] += x[b..., i..., j...], in the order of i."""
        if not index.size:
            return
        rows, terms = out.shape[batch], prod(index.shape[batch:])
        keys = self._keys(index, rows)
        if not out.size or not x.size:
            return
        tail = out.shape[batch + 1 :]
        flat = x.reshape((*x.shape[:batch], terms, *tail)) if x.can_reshape((*x.shape[:batch], terms, *tail)) else (
            self._backend.dense(x).reshape((*x.shape[:batch], terms, *tail)))  # fmt: skip
        ordered = rows * terms > FEW
        order = keys
        if ordered:
            pairs = keys.reshape((-1, terms))
            keys, order = (self._backend.allocate(Layout.of(int64, pairs.shape)) for _ in range(2))
            self._backend.sort(keys, order, pairs, descending=False)
        shape = (*out.shape[:batch], *tail)
        out_steps, x_steps = ((*v.strides[:batch], *v.strides[batch + 1 :]) for v in (out, flat))
        sizes, strides = collapse(shape, [out_steps, x_steps], reorder=False)
        if len(sizes) > RANK:
            fresh = self._backend.dense(out)
            self.scatter_add(fresh, index, self._backend.dense(x), batch=batch)
            self.copy(out, fresh)
            return
        kinds: list[Kind] = [*[LONG] * 6, places(2), *[BUFFER] * 4]
        (kernel,) = self._kernel(
            ("scatter", out.dtype, ordered),
            [kinds],
            lambda: texts.render_scatter(self._backend.dialect, out.dtype, ordered=ordered),
        )
        across = prod(shape)
        layout = packed(places_of(sizes, strides, [out.offset, flat.offset]))
        fields = (across, prod(tail), rows, out.strides[batch], terms, flat.strides[batch], layout)
        memory = [v.buffer.handle for v in (out, flat, keys, order)]
        self._backend.queue.launch(kernel, across * (terms if ordered else rows), *fields, *memory)

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
        """The adjoint of View.window.

        With `index`, of x's layout, only entries whose window chose their tap; out begins at `origin` of what x folds to.
        """
        key = (out.layout, out.offset, x.layout, x.offset, index is None, axes, steps, dilations, origin)
        ready = self._folds.get(key)
        if ready is not None:
            ready(out.buffer.handle, x.buffer.handle, *_chosen(index, x))
            return
        parts = 0
        for part in folds(self._backend, out, x, index, axes, steps, dilations, rank=RANK, most=LIMIT):
            ready = self._fold(part, part.folded(axes, steps, dilations, origin), len(axes))
            ready(part.out.buffer.handle, part.x.buffer.handle, *_chosen(part.chosen, part.x))
            parts += 1 if part.out is out and part.x is x else 2  # the whole, or a piece of it
        if parts == 1 and ready is not None:
            if len(self._folds) > PLAN_LIMIT:
                self._folds.clear()
            self._folds[key] = ready

    def _fold(self, part: Part, folded: dict[str, list[int]], axes: int) -> Callable[..., None]:
        """One launch made ready: a function of the handles of out and x, and of chosen taps and how much further those begin."""
        out, x, index, sizes, strides = part
        fields = places_of(sizes, strides, [out.offset, x.offset])
        fields += [v for name in texts.FOLDED_FIELDS for v in folded[name]]
        chosen, dilated = index is not None, any(step != 1 for step in folded["dilation"])
        (kernel,) = self._kernel(
            ("fold", out.dtype, chosen, axes, dilated),
            [[LONG, struct_of(len(fields)), BUFFER, BUFFER, *([BUFFER, LONG] if chosen else [])]],
            lambda: texts.render_fold(self._backend.dialect, out.dtype, chosen=chosen, axes=axes, dilated=dilated),
        )
        ready, count, layout = self._backend.queue.ready(kernel, out.size), out.size, packed(fields)
        return lambda *places: ready(count, layout, *places)

    def random(self, out: View, *, kind: str, key: tuple[int, int], counter: tuple[int, int, int, int]) -> None:
        """Philox numbers; element i in C order takes its own words."""
        if not out.size:
            return
        sizes, strides = collapse(out.shape, [out.strides], reorder=False)
        if len(sizes) > RANK or (len(sizes) > 1 and out.size >= 1 << 31):
            fresh = self._backend.allocate(Layout.of(out.dtype, out.shape))
            self.random(fresh, kind=kind, key=key, counter=counter)
            self.copy(out, fresh)
            return
        double = float64 in self._backend.capabilities.functions
        dense = not out.offset % 4 and (not sizes or (len(sizes) == 1 and strides[0] == [1]))
        (kernel,) = self._kernel(("random", kind, out.dtype, dense), [[LONG, LONG, places(1), *[UINT] * 6, BUFFER]],
                                 lambda: render_random(self._backend.dialect, kind, out.dtype, double=double, dense=dense))  # fmt: skip
        blocks = -(-out.size // numbers_per_block(kind, out.dtype))
        layout = packed(places_of(sizes, strides, [out.offset]))
        self._backend.queue.launch(kernel, blocks, out.size, blocks, layout, *_words(key, counter), out.buffer.handle)

    def dropout(self, x: View, *, p: float, key: tuple[int, int], counter: tuple[int, int, int, int]) -> Any:
        """The op's override: words, mask and product in one pass over an array in C order."""
        threshold, number = round(p * 2**32), compute_dtype(x.dtype)
        if threshold >= 2**32 or not x.layout.c_order or x.offset % 4 or not x.size:
            return NotImplemented
        arrays: list[Kind] = [BUFFER, LONG] * 3
        (kernel,) = self._kernel(("dropout", x.dtype), [[LONG, *[UINT] * 7, number.storage, *arrays]],
                                 lambda: render_dropout(self._backend.dialect, x.dtype))  # fmt: skip
        y, keep = (self._backend.allocate(Layout.of(d, x.shape)) for d in (x.dtype, bool_))
        memory = [part for v in (y, keep, x) for part in (v.buffer.handle, v.offset)]
        factor = parameter(1 / (1 - p), number)
        self._backend.queue.launch(kernel, -(-x.size // 4), x.size, *_words(key, counter), threshold, factor, *memory)
        return y, keep


def _chosen(index: View | None, x: View) -> tuple[Any, ...]:
    return () if index is None else (index.buffer.handle, index.offset - x.offset)


def _words(key: tuple[int, int], counter: tuple[int, int, int, int]) -> list[int]:
    return [v & 0xFFFFFFFF for v in (*key, *counter)]


def _in_fours(rows: int, columns: int, units: Sequence[int], others: Sequence[int]) -> bool:
    """Whether rows of neighbours can be taken four elements at a time."""
    fits = 0 < rows * columns < 1 << 32 and not columns % 4
    return fits and all(u == 1 for u in units) and not any(v % 4 for v in others)
