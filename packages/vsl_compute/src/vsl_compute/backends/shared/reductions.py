"""Reductions and scans: how the elements are shared out among threads, and the launches.

A CPU's cores each take whole outputs, or parts of one that is long. On a GPU neighbours in memory are read by several
threads an output, columns by a thread each, in parts where there are too few of them; for other strides a group of
threads takes an output, unless outputs are short, or too few. What given layouts need is worked out once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ...dtypes import DType, int64, uint64
from ...kernels.reduce import GROUP, RANK, accumulator, render_reduction
from ...kernels.reduce_rows import RUNS, RowShape, render_columns, render_rows
from ...rows.row import Reduction
from ...view import Layout, View
from .axes import collapse, padded
from .parameters import BUFFER, LONG, Compiled, Kind, packed, struct_of

if TYPE_CHECKING:
    from .backend import TextBackend

LAYOUT = struct_of(2 + 2 * RANK + 3)
SHORT = 64  # reduced elements up to which one thread an output is enough
PART = 4096  # elements that are worth a group of their own
JOINED = 32  # parts that a thread joins one after the other
BUSY = 2048  # groups that keep a GPU busy: sum of 67M float32 on an H200 63 us, a copy of as many bytes 64
LONGEST = 1 << 31  # vectors that the kernel over neighbours counts
MOST_GROUPS = 1 << 22  # of one launch: kernels stride over the rest
PLAN_LIMIT = 20_000
Axes = tuple[Sequence[int], Sequence[int]]  # sizes and strides
Plan = Callable[[Sequence[View], View], None]


class Reductions:
    """The reductions of one device. `group` is the threads that work on one output."""

    def __init__(self, backend: TextBackend, group: int) -> None:
        self._backend, self._group = backend, min(group, GROUP)
        self._kernels: dict[tuple[Any, ...], Compiled] = {}
        self._plans: dict[tuple[Any, ...], Plan] = {}
        self._counters: View | None = None  # 0 before and after each launch

    def _kernel(self, row: Reduction, x: DType, outs: tuple[DType, ...], shape: str | RowShape) -> Compiled:
        key = (row, x, outs, shape)
        found = self._kernels.get(key)
        if found is None:
            dialect, states = self._backend.dialect, [BUFFER] * len(row.state)
            written: list[Kind] = [BUFFER, LONG] * len(outs)
            left = [*states, BUFFER, *written] if dialect.counts else states
            if isinstance(shape, RowShape):
                text = render_rows(row, dialect, x, outs, shape)
                kinds: list[Kind] = [LAYOUT, LONG, LONG, LONG, LONG, BUFFER, *(left if shape.partial else written)]
            elif shape == "columns":
                text, kinds = render_columns(row, dialect, x, outs), [LAYOUT, LONG, BUFFER, *states]
            else:
                text = render_reduction(row, dialect, x, outs, shape)
                ends = {"partial": [LONG, BUFFER, *left], "finish": [LONG, *states, *written]}
                kinds = [LAYOUT, *ends.get(shape, [BUFFER, *written])]
            found = self._kernels[key] = self._backend.programs.kernel(text, kinds)
        return found

    def reduce(self, row: Reduction, outs: Sequence[View], x: View, axes: tuple[int, ...]) -> None:
        """outs = row over `axes` of x."""
        if not outs[0].layout.size:
            return
        key = (row, axes, x.layout, x.offset & 3, *[o.layout for o in outs])
        plan = self._plans.get(key)
        if plan is not None:
            plan(outs, x)
            return
        kept = [a for a in range(x.ndim) if a not in axes]
        order = sorted(range(len(kept)), key=lambda i: -abs(outs[0].strides[i]))
        targets = [self._dense(o, order) for o in outs]
        shape = [x.shape[kept[i]] for i in order]
        given = x
        if x.size:
            front, (front_steps,) = collapse(shape, [[x.strides[kept[i]] for i in order]], reorder=False)
            back, (back_steps,) = collapse([x.shape[a] for a in axes], [[x.strides[a] for a in axes]], reorder=False)
        else:
            front, front_steps, back, back_steps = [prod(shape)], [0], [prod(x.shape[a] for a in axes)], [0]
        if len(front) + len(back) > RANK:
            turned = x.permute((*(kept[i] for i in order), *axes))
            x = self._backend.allocate(Layout.of(x.dtype, turned.shape))
            self._backend.copy(x, turned)
            front, back = [prod(front)], [prod(back)]
            front_steps, back_steps = [back[0]], [1]
        plan = self._plan(row, tuple(o.dtype for o in outs), x, (front, front_steps), (back, back_steps))
        plan(targets, x)
        if x is given and all(t is o for t, o in zip(targets, outs, strict=True)):
            if len(self._plans) > PLAN_LIMIT:
                self._plans.clear()
            self._plans[key] = plan
        for out, target in zip(outs, targets, strict=True):
            if target is not out:
                self._backend.copy(out, target.permute(tuple(order.index(i) for i in range(len(order)))))

    def _dense(self, out: View, order: Sequence[int]) -> View:
        """The output itself if its elements lie in this order without gaps, else a fresh array of the permuted shape."""
        step = 1
        for axis in reversed(order):
            if out.shape[axis] != 1 and out.strides[axis] != step:
                return self._backend.allocate(Layout.of(out.dtype, tuple(out.shape[a] for a in order)))
            step *= out.shape[axis]
        return out

    def _plan(self, row: Reduction, outs: tuple[DType, ...], x: View, front: Axes, back: Axes) -> Plan:
        """The launches for outputs `front` (sizes, strides) of elements `back`."""
        (front_sizes, front_steps), (sizes, steps) = front, back
        count, reduced = prod(front_sizes), prod(sizes)
        head = packed([len(front_sizes) + len(sizes), len(front_sizes), *_filled([*front_sizes, *sizes], 1),
                       *_filled([*front_steps, *steps], 0)])  # fmt: skip
        queue, dtype = self._backend.queue, x.dtype

        first = head + packed([0, count, reduced])

        def layout(x: View) -> bytes:
            return head + packed([x.offset, count, reduced]) if x.offset else first

        number = accumulator(row, dtype, outs)
        kinds = [int64 if s in row.index else number for s in row.state]

        def in_parts(parts: int, launch: Callable[[View, list[Any]], None]) -> Plan:
            """Launch over parts of each output's elements; the states that they leave are joined by the last of them."""
            if not self._backend.dialect.counts:
                return finished(parts, launch)
            counters = self.counters()

            def plan(outs: Sequence[View], x: View) -> None:
                states = [self._backend.allocate(Layout.of(d, (count * parts,))) for d in kinds]
                launch(x, [*[s.buffer.handle for s in states], counters.buffer.handle, *_written(outs)])

            return plan

        def finished(parts: int, launch: Callable[[View, list[Any]], None]) -> Plan:
            """Launch over parts of each output's elements, and once more over the states that they leave."""
            finish = self._kernel(row, dtype, outs, "finish")

            def plan(outs: Sequence[View], x: View) -> None:
                states = [self._backend.allocate(Layout.of(d, (count * parts,))) for d in kinds]
                held = [s.buffer.handle for s in states]
                launch(x, held)
                queue.launch_groups(finish, count, self._threads(finish), layout(x), parts, *held, *_written(outs))

            return plan

        if self._group > 1 and steps and steps[-1] == 1 and len(sizes) <= 2 and 0 < reduced < LONGEST:
            rows = self._rows(row, outs, x, front, back, layout, in_parts)
            if rows is not None:
                return rows
        groups = max(1, queue.threads // self._group)  # what keeps the device busy
        if self._group > 1 and front_steps and front_steps[-1] == 1 and count < queue.threads and reduced >= 2 * SHORT:
            parts = max(1, min(queue.threads // count, reduced // SHORT))
            columns = self._kernel(row, dtype, outs, "columns")
            return finished(parts, lambda x, held: queue.launch(columns, count * parts, layout(x), parts, x.buffer.handle, *held))  # fmt: skip
        if count * 4 <= groups and reduced >= 2 * PART:
            parts = min(groups // count, -(-reduced // PART), max(JOINED * self._group, self._backend.units))
            partial = self._kernel(row, dtype, outs, "partial")
            return in_parts(parts, lambda x, held: queue.launch_groups(
                partial, count * parts, self._threads(partial), layout(x), parts, x.buffer.handle, *held))  # fmt: skip
        if reduced <= SHORT or self._group == 1 or (count >= queue.threads // 4 and steps and abs(steps[-1]) != 1):
            lane = self._kernel(row, dtype, outs, "lane")
            ready = queue.ready(lane, count)
            return lambda outs, x: ready(layout(x), x.buffer.handle, *_written(outs))
        group = self._kernel(row, dtype, outs, "group")
        return lambda outs, x: queue.launch_groups(
            group, count, self._threads(group), layout(x), x.buffer.handle, *_written(outs)
        )

    def _rows(self, row: Reduction, outs: tuple[DType, ...], x: View, front: Axes, back: Axes,
              layout: Callable[[View], bytes], in_parts: Callable[[int, Callable[[View, list[Any]], None]], Plan]) -> Plan | None:  # fmt: skip
        """Neighbours in memory: one launch, or parts where there are fewer outputs than keep the device busy.

        None where the kernel's groups may not be that large.
        """
        (sizes, steps), count, queue, dtype = back, prod(front[0]), self._backend.queue, x.dtype
        step = steps[0] if len(sizes) == 2 else 0
        aligned = not x.offset & 3 and not any(s % 4 for s in (sizes[-1], step, *front[1]))
        width = 4 if aligned and queue.vectors else 1
        units, group, lanes = prod(sizes) // width, self._group, 1
        while lanes < group and lanes * RUNS[width] < units:
            lanes *= 2
        parts = max(1, min(BUSY // count, units // (group * RUNS[width]))) if lanes == group else 1
        shape = RowShape(width, lanes, group, len(sizes) == 2, parts > 1)
        kernel = self._kernel(row, dtype, outs, shape)
        if kernel.limit < group:
            return None
        threads = min(-(-count * parts // shape.outputs), MOST_GROUPS) * group
        numbers = (units, parts, sizes[-1] // width, step)

        ready = queue.ready_run(kernel, threads, group)

        def launch(x: View, targets: Sequence[Any]) -> None:
            ready(layout(x), *numbers, x.buffer.handle, *targets)

        if parts > 1:
            return in_parts(parts, launch)
        return lambda outs, x: launch(x, _written(outs))

    def counters(self) -> View:
        """Counters for the groups of a launch, of updates too; more outputs than these keep the device busy without being cut."""
        if self._counters is None:
            most = max(BUSY, self._backend.queue.threads // self._group)
            fresh = self._backend.allocate(Layout.of(uint64, (most,)))
            self._backend.queue.fill(fresh.buffer.handle, np.zeros(1, np.uint64), fresh.nbytes)
            self._counters = fresh  # not before: another thread's launch must find zeros
        return self._counters

    def _threads(self, kernel: Compiled) -> int:
        return min(self._group, kernel.limit)


def _written(outs: Sequence[View]) -> list[Any]:
    return [part for o in outs for part in (o.buffer.handle, o.offset)]


def _filled(values: Sequence[int], fill: int) -> list[int]:
    """Eight values, `fill` after them."""
    return [*values, *padded([], RANK - len(values), fill)]
