"""Launching reductions in as many passes as they need, and scans as rows over shifted views."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any

from ...dtypes import DType, float32, float64
from ...errors import UnsupportedError
from ...kernels.reduce import accumulator
from ...rows.expression import functions_in, parse
from ...rows.row import Reduction, Row
from ...rows.signature import Signature
from ...view import Layout, View
from ..shared.axes import collapse, padded
from .launch import REACH, Launch, place
from .reduce_module import RANK, RUNS, Pass, emit_reduction, state_dtypes
from .reduce_rows import RUN, RowPass, emit_rows

if TYPE_CHECKING:
    from .backend import VulkanBackend

SHARE = 64  # elements of a thread where an output has more threads than one
LANES = 1 << 16  # threads that keep a GPU busy: with so many outputs, each takes one thread for all its elements
ALONE = 1024  # elements that one thread takes at most, however many outputs there are
ADDED = 64  # times that a thread adds to what it has: the sum of ten million tenths is within 1e-6 of itself, with 1000 within 1e-5
MOST = 1 << 31  # elements that one launch counts
GROUPS = {"software": 16}  # groups that keep a device busy, where not BUSY: so many parts an output has
BUSY = 2048
PLANS = 20_000  # a program with ever new shapes must not grow for ever
Plan = Callable[[Sequence[View], View], None]


@cache
def functions_of(row: Reduction) -> frozenset[str]:
    """The row functions that a reduction calls."""
    pairs = tuple(f"{s}{side}" for side in "12" for s in row.state)
    texts = [(t, ()) for t in row.identity] + [(t, ("x", "k")) for t in row.map] + [(t, pairs) for t in row.combine]
    texts += [(t, (*row.state, "n")) for t in row.finish]
    return frozenset[str]().union(*(functions_in(parse(text, names)) for text, names in texts))


@cache
def _combine_row(row: Reduction) -> Row:
    """A reduction's combine as a row of two arguments, for scans."""
    (state,) = row.state
    letter = row.signature.inputs
    return Row(
        f"{row.name}.combine", Signature(letter * 2, letter), (f"{state}1", f"{state}2"), row.combine[0], (None, None)
    )


class Reductions:
    """Reductions and scans of one backend."""

    def __init__(self, backend: VulkanBackend) -> None:
        self.backend, self.device, self.commands = backend, backend.device, backend.commands
        self._launches: dict[Any, Launch] = {}
        self._plans: dict[Any, Plan] = {}

    def reduce(self, row: Reduction, outs: Sequence[View], x: View, axes: tuple[int, ...]) -> None:
        """Reduce `axes` of x into outs."""
        if not outs[0].layout.size:
            return
        key = (row, axes, x.layout, x.offset & 3, *[o.layout for o in outs])
        plan = self._plans.get(key)
        if plan is not None:
            plan(outs, x)
            return
        kind = accumulator(row, x.dtype, [o.dtype for o in outs])
        if not functions_of(row) <= self.backend.capabilities.functions[kind]:
            raise UnsupportedError(
                f'{row.name}: {self.backend.spec} has no {x.dtype.name} for it; move the data with .to("cpu") or cast it'
            )
        order = _order(outs[0])
        if order is None or any(o.strides != outs[0].strides for o in outs):
            fresh = [self.backend.allocate(Layout.of(o.dtype, o.shape)) for o in outs]
            self.reduce(row, fresh, x, axes)
            for out, made in zip(outs, fresh, strict=True):
                self.backend.copy(out, made)
            return
        kept = [a for a in range(x.ndim) if a not in axes]
        kept_sizes, (kept_strides,) = collapse(
            [x.shape[kept[i]] for i in order], [[x.strides[kept[i]] for i in order]], reorder=False
        )
        sizes, (strides,) = collapse([x.shape[a] for a in axes], [[x.strides[a] for a in axes]], reorder=False)
        if len(kept_sizes) > RANK or len(sizes) > RANK:
            turn = (*(kept[i] for i in order), *axes)  # the outputs' order in memory: then the axes merge
            dense = self.backend.allocate(Layout.of(x.dtype, tuple(x.shape[a] for a in turn)))
            self.backend.copy(dense, x.permute(turn))
            last = tuple(range(len(kept), x.ndim))
            self.reduce(row, outs, dense.permute((*(order.index(i) for i in range(len(kept))), *last)), last)
            return
        if outs[0].size >= MOST:
            self._in_halves(row, outs, x, axes, kept)
            return
        front, back = (kept_sizes, kept_strides), (sizes, strides)
        if strides and strides[-1] == 1 and len(sizes) <= 2 and prod(sizes) < MOST:
            plan = self._rows(row, outs, x, front, back)
        elif prod(sizes) < MOST and self._parts(outs[0].size, prod(sizes)) == 1:
            plan = self._one_pass(row, outs, x, front, back)
        else:

            def plan(outs: Sequence[View], x: View) -> None:
                self._passes(row, outs, x, front, back)

        if len(self._plans) > PLANS:
            self._plans.clear()
        self._plans[key] = plan
        plan(outs, x)

    def _rows(self, row: Reduction, outs: Sequence[View], x: View, kept: Any, reduced: Any) -> Plan:
        """Neighbours in memory: one pass, or two where there are fewer outputs than keep the device busy."""
        (sizes, strides), count, group = reduced, outs[0].size, self.device.group_size
        step = strides[0] if len(sizes) == 2 else 0
        aligned = place(x)[2] and not any(s % 4 for s in (sizes[-1], step, *kept[1]))
        width = 4 if aligned else 1
        units = prod(sizes) // width
        lanes = 1
        while lanes < group and lanes * RUN < units:
            lanes *= 2
        wanted = GROUPS.get(self.device.kind, BUSY)
        parts = max(1, min(wanted // count, units // (group * RUN))) if lanes == group else 1
        parts = max(parts, -(-units // (lanes * RUN * ADDED)))
        parts = max(parts, -(-units * width * x.dtype.itemsize // REACH))  # each begins at an address of its own
        dtype, dtypes = x.dtype, tuple(o.dtype for o in outs)
        first = RowPass(False, parts > 1, width, lanes, group, _rank(kept[0]), len(sizes) == 2)
        layout = [prod(sizes), 0, count, units, parts, sizes[-1] // width, step]
        layout += [*padded(kept[0], RANK, 1)[1:], *padded(kept[1], RANK, 0)]
        begin = self._row_pass(row, dtype, dtypes, first, layout)
        if parts == 1:
            return lambda outs, x: begin([x], outs)
        last = RowPass(True, False, 1, min(group, 1 << (parts - 1).bit_length()), group)
        end = self._row_pass(row, dtype, dtypes, last, [prod(sizes), 0, count, parts, 1])
        held = [Layout.of(d, (parts * count,)) for d in state_dtypes(row, dtype, dtypes)]

        def plan(outs: Sequence[View], x: View) -> None:
            states = [self.backend.allocate(one) for one in held]
            begin([x], states)
            end(states, outs)

        return plan

    def _row_pass(
        self, row: Reduction, x: DType, outs: tuple[DType, ...], shape: RowPass, layout: Sequence[int]
    ) -> Callable[[Sequence[View], Sequence[View]], None]:
        """A launch from the first views into the second."""
        key = (row, x, outs, shape)
        launch = self._launches.get(key)
        if launch is None:
            kernel = emit_rows(row, x, outs, shape)
            launch = self._launches[key] = Launch(kernel, self.device, self.backend.pipelines, shape.width)
        pipeline, pack, dispatch = launch.pipeline, launch.pack, self.commands.dispatch
        groups = (min(self.device.most_groups, -(-layout[2] * layout[4] // shape.outputs)), 1, 1)

        def run(source: Sequence[View], target: Sequence[View]) -> None:
            come, to = [place(v) for v in source], [place(v) for v in target]
            data = pack(*[p[0] for p in (*come, *to)], *layout)
            dispatch(pipeline, data, groups, [p[1] for p in come], [p[1] for p in to])

        return run

    def _in_halves(self, row: Reduction, outs: Sequence[View], x: View, axes: tuple[int, ...], kept: list[int]) -> None:
        """More outputs than one launch counts: cut along their longest axis."""
        axis = max(range(len(kept)), key=lambda i: outs[0].shape[i])
        half = outs[0].shape[axis] // 2
        for cut in (slice(0, half), slice(half, None)):
            parts = [o.slice(*(slice(None),) * axis, cut) for o in outs]
            self.reduce(row, parts, x.slice(*(slice(None),) * kept[axis], cut), axes)

    def _one_pass(self, row: Reduction, outs: Sequence[View], x: View, kept: Any, reduced: Any) -> Plan:
        """A thread an output, from the elements to the outputs."""
        count, total, dtypes = outs[0].size, prod(reduced[0]), tuple(o.dtype for o in outs)
        run = RUNS[0] if total <= RUNS[0] else RUNS[1]
        launch = self._launch(row, x.dtype, dtypes, Pass(False, False, True, run, _rank(kept[0]), _rank(reduced[0])))
        layout = [total, 0, count, total, 1, *padded(kept[0], RANK, 1)[1:], *padded(reduced[0], RANK, 1)[1:]]
        layout += [*padded(kept[1], RANK, 0), *padded(reduced[1], RANK, 0)]
        pipeline, pack, dispatch, groups = launch.pipeline, launch.pack, self.commands.dispatch, self._groups(count)

        def plan(outs: Sequence[View], x: View) -> None:
            (at, read, _), to = place(x), [place(v) for v in outs]
            dispatch(pipeline, pack(at, *[p[0] for p in to], *layout), groups, [read], [p[1] for p in to])

        return plan

    def _launch(self, row: Reduction, x: DType, outs: tuple[DType, ...], shape: Pass) -> Launch:
        key = (row, x, outs, shape)
        launch = self._launches.get(key)
        if launch is None:
            kernel = emit_reduction(row, x, outs, shape)
            launch = self._launches[key] = Launch(kernel, self.device, self.backend.pipelines, 1)
        return launch

    def _groups(self, threads: int) -> tuple[int, int, int]:
        return max(1, min(self.device.most_groups, -(-threads // self.device.group_size))), 1, 1

    def _passes(self, row: Reduction, outs: Sequence[View], x: View, kept: Any, reduced: Any) -> None:
        """From elements to states, from states to fewer states, and from the last of them to the outputs."""
        count, total = outs[0].size, prod(reduced[0])
        kinds, dtypes = state_dtypes(row, x.dtype, [o.dtype for o in outs]), tuple(o.dtype for o in outs)
        # neighbouring threads should read neighbouring elements
        inner = abs(reduced[1][-1]) if reduced[1] else 1 << 40
        outer = abs(kept[1][-1]) if kept[1] else 1 << 40
        ranks = (_rank(kept[0]), _rank(reduced[0]))
        pieces = list(_pieces(*reduced))
        each = [self._parts(count, prod(sizes)) for sizes, _, _ in pieces]
        targets = [self.backend.allocate(Layout.of(d, (sum(each) * count,))) for d in kinds]
        begin = first = 0
        for parts, (sizes, strides, move) in zip(each, pieces, strict=True):
            n = prod(sizes)
            shape = Pass(False, True, outer < inner or parts == 1, RUNS[0] if n <= RUNS[0] else RUNS[1], *ranks)
            layout = [total, first, count, n, parts, *padded(kept[0], RANK, 1)[1:], *padded(sizes, RANK, 1)[1:]]
            layout += [*padded(kept[1], RANK, 0), *padded(strides, RANK, 0)]
            addresses = [place(x)[0] + move * x.dtype.itemsize]
            addresses += [place(v)[0] + begin * count * d.itemsize for v, d in zip(targets, kinds, strict=True)]
            self._run(row, x.dtype, dtypes, shape, (addresses, layout), [x], targets)
            begin, first = begin + parts, first + n
        n = sum(each)
        while targets[0] is not outs[0]:
            parts, states = self._parts(count, n), targets
            targets = (
                list(outs) if parts == 1 else [self.backend.allocate(Layout.of(d, (parts * count,))) for d in kinds]
            )
            shape = Pass(True, parts > 1, True, RUNS[0] if n <= RUNS[0] else RUNS[1])
            addresses = [place(v)[0] for v in (*states, *targets)]
            self._run(row, x.dtype, dtypes, shape, (addresses, [total, count, n, parts]), states, targets)
            n = parts

    def _run(
        self,
        row: Reduction,
        x: DType,
        outs: tuple[DType, ...],
        shape: Pass,
        given: Any,
        read: Sequence[View],
        written: Sequence[View],
    ) -> None:
        launch, (addresses, layout), states = self._launch(row, x, outs, shape), given, 1 if shape.from_states else 2
        groups = self._groups(layout[states] * layout[states + 2])
        data = launch.pack(*addresses, *layout)
        reads, writes = [place(v)[1] for v in read], [place(v)[1] for v in written]
        self.commands.dispatch(launch.pipeline, data, groups, reads, writes)

    def _parts(self, count: int, n: int) -> int:
        """Threads an output: a power of two, so that elements of one parity stay together."""
        share = ALONE if count >= LANES else 4 * SHARE if self.device.kind == "software" else SHARE
        if n <= share:
            return 1
        return min(1 << (-(-n // share) - 1).bit_length(), max(1, (1 << 26) // count))

    def scan(self, row: Reduction, out: View, x: View) -> None:
        """Inclusive, along the last axis, in log2(n) steps of doubling distance (Hillis & Steele 1986); sums keep digits as in a tree."""
        kind = accumulator(row, x.dtype, [out.dtype])
        if kind is float32 and float64 in self.backend.capabilities.functions and x.dtype is float32:
            kind = float64 if x.shape[-1] > 1 << 12 else float32  # a long sum drifts less
        shape, n = x.shape, x.shape[-1]
        if not out.size:
            return
        source = self.backend.allocate(Layout.of(kind, shape))
        self.backend.copy(source, x)
        combine, distance = _combine_row(row), 1
        every = (slice(None),) * (len(shape) - 1)
        while distance < n:
            target = self.backend.allocate(Layout.of(kind, shape))
            head, tail = (*every, slice(0, distance)), (*every, slice(distance, None))
            self.backend.copy(target.slice(*head), source.slice(*head))
            self.backend.elementwise(
                combine, target.slice(*tail), (source.slice(*every, slice(0, n - distance)), source.slice(*tail)), ()
            )
            source, distance = target, 2 * distance
        self.backend.copy(out, source)


def _pieces(sizes: list[int], strides: list[int]) -> Iterator[tuple[list[int], list[int], int]]:
    """Parts of the reduced axes that one launch can count, in order, and where each begins."""
    if prod(sizes) < MOST:
        yield sizes, strides, 0
        return
    step = max(1, (MOST - 1) // prod(sizes[1:]))
    for start in range(0, sizes[0], step):
        for part, steps, move in (
            _pieces([min(step, sizes[0] - start), *sizes[1:]], strides) if step > 1 else _pieces(sizes[1:], strides[1:])
        ):
            yield part, steps, start * strides[0] + move


def _rank(sizes: Sequence[int]) -> int:
    """Axes that a module is made for: 1, 2 or 4, so that there are few modules."""
    return 1 if len(sizes) <= 1 else 2 if len(sizes) == 2 else RANK


def _order(view: View) -> tuple[int, ...] | None:
    """The axes of a dense view from the outermost to the innermost in memory; None if it is not dense."""
    if not view.is_dense:
        return None
    return tuple(sorted(range(view.ndim), key=lambda a: (-view.strides[a] if view.shape[a] > 1 else 0, a)))
