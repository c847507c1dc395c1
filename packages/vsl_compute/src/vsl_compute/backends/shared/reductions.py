"""Reductions and scans: how the elements are shared out among threads, and the launches.

A CPU's cores each take whole outputs, or parts of one that is long. On a GPU a group of threads takes an output,
unless outputs are short, or neighbours in memory, or too few.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from ...dtypes import DType, int64
from ...kernels.reduce import GROUP, RANK, accumulator, render_reduction
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


class Reductions:
    """The reductions of one device. `group` is the threads that work on one output."""

    def __init__(self, backend: TextBackend, group: int) -> None:
        self._backend, self._group = backend, min(group, GROUP)
        self._kernels: dict[tuple[Any, ...], Compiled] = {}

    def _kernel(self, row: Reduction, x: DType, outs: tuple[DType, ...], shape: str) -> Compiled:
        key = (row, x, outs, shape)
        found = self._kernels.get(key)
        if found is None:
            states: list[Kind] = [BUFFER] * len(row.state)
            written: list[Kind] = [BUFFER, LONG] * len(outs)
            kinds = {"partial": [LAYOUT, LONG, BUFFER, *states], "finish": [LAYOUT, LONG, *states, *written]}
            found = self._backend.programs.kernel(
                render_reduction(row, self._backend.dialect, x, outs, shape),
                kinds.get(shape, [LAYOUT, BUFFER, *written]),
            )
            self._kernels[key] = found
        return found

    def reduce(self, row: Reduction, outs: Sequence[View], x: View, axes: tuple[int, ...]) -> None:
        """outs = row over `axes` of x."""
        if not outs[0].size:
            return
        kept = [a for a in range(x.ndim) if a not in axes]
        order = sorted(range(len(kept)), key=lambda i: -abs(outs[0].strides[i]))
        targets = [self._dense(o, order) for o in outs]
        shape = [x.shape[kept[i]] for i in order]
        if x.size:
            front, (front_steps,) = collapse(shape, [[x.strides[kept[i]] for i in order]], reorder=False)
            back, (back_steps,) = collapse([x.shape[a] for a in axes], [[x.strides[a] for a in axes]], reorder=False)
        else:
            front, front_steps, back, back_steps = [prod(shape)], [0], [], []
        if len(front) + len(back) > RANK:
            turned = x.permute((*(kept[i] for i in order), *axes))
            fresh = self._backend.allocate(Layout.of(x.dtype, turned.shape))
            self._backend.copy(fresh, turned)
            x, front, back = fresh, [prod(front)], [prod(back)]
            front_steps, back_steps = [back[0]], [1]
        count, reduced = outs[0].size, prod(x.shape[a] for a in axes) if x.size == 0 else prod(back)
        fields = [
            len(front) + len(back),
            len(front),
            *_filled([*front, *back], 1),
            *_filled([*front_steps, *back_steps], 0),
        ]
        layout = packed([*fields, x.offset, count, reduced])
        self._launch(row, targets, x, layout, count, reduced, back_steps)
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

    def _launch(
        self,
        row: Reduction,
        outs: Sequence[View],
        x: View,
        layout: bytes,
        count: int,
        reduced: int,
        steps: Sequence[int],
    ) -> None:
        queue = self._backend.queue
        dtypes = tuple(o.dtype for o in outs)
        written: list[Any] = [part for o in outs for part in (o.buffer.handle, o.offset)]
        groups = max(1, queue.threads // self._group)  # what keeps the device busy
        if count * 4 <= groups and reduced >= 2 * PART:
            parts = min(groups // count, -(-reduced // PART), max(JOINED * self._group, self._backend.units))
            number = accumulator(row, x.dtype, dtypes)
            states = [
                self._backend.allocate(Layout.of(int64 if s in row.index else number, (count * parts,)))
                for s in row.state
            ]
            held = [s.buffer.handle for s in states]
            partial, finish = (self._kernel(row, x.dtype, dtypes, shape) for shape in ("partial", "finish"))
            queue.launch_groups(partial, count * parts, self._threads(partial), layout, parts, x.buffer.handle, *held)
            queue.launch_groups(finish, count, self._threads(finish), layout, parts, *held, *written)
        elif reduced <= SHORT or self._group == 1 or (count >= queue.threads // 4 and steps and abs(steps[-1]) != 1):
            lane = self._kernel(row, x.dtype, dtypes, "lane")
            queue.launch(lane, count, layout, x.buffer.handle, *written)
        else:
            group = self._kernel(row, x.dtype, dtypes, "group")
            queue.launch_groups(group, count, self._threads(group), layout, x.buffer.handle, *written)

    def _threads(self, kernel: Compiled) -> int:
        return min(self._group, kernel.limit)


def _filled(values: Sequence[int], fill: int) -> list[int]:
    """Eight values, `fill` after them."""
    return [*values, *padded([], RANK - len(values), fill)]
