"""Fused optimizer steps: one launch for all parameters, whose addresses travel with it; nothing is kept on the device."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ...backend import Scalar
from ...dtypes import DType
from ...kernels.update import CHUNK, apart, most_rows, render_update, room_for, stepped_slots, table_width
from ...rows.row import Update
from ...view import Layout, View
from ..shared.parameters import BUFFER, LONG, Compiled, Kind, struct_of
from ..shared.rows import lettered_by

if TYPE_CHECKING:
    from .backend import CUDABackend

KEPT = 64  # lists of parameters, and of their numbers, that are kept: mostly a step's are those of the one before
GROUP = 256
Numbers = tuple[float, ...]


class Step(NamedTuple):
    """A launch over so many parameters: its kernel, and what packs their table."""

    kernel: Compiled
    pack: Callable[..., bytes]
    flat: tuple[int, ...]  # arrays with elements
    slots: tuple[int, ...]  # where the 0-d slots that are written stand in a table's row
    width: int  # of a table's row


class Updates:
    """The update rows of one device."""

    def __init__(self, backend: CUDABackend) -> None:
        self._backend = backend
        self._steps: dict[tuple[Any, ...], Step] = {}
        self._numbers: dict[tuple[Any, ...], Numbers] = {}

    def update(self, row: Update, arrays: Sequence[Sequence[View]], scalars: Sequence[Scalar]) -> None:
        """Run an update row over each tuple of arrays, in place."""
        bits = struct.pack(f"{len(scalars)}d", *scalars)  # what is equal may differ: 0.0 and -0.0
        alike: dict[tuple[DType, ...], list[Sequence[View]]] = {}
        for group in arrays:
            alike.setdefault(tuple([view.layout.dtype for view in group]), []).append(group)
        for dtypes, groups in alike.items():
            most = most_rows(row)
            for begin in range(0, len(groups), most):
                self._update(row, dtypes, groups[begin : begin + most], scalars, bits)

    def _update(self, row: Update, dtypes: tuple[DType, ...], groups: Sequence[Sequence[View]], scalars: Sequence[Scalar],
                bits: bytes) -> None:  # fmt: skip
        """One launch, or one a parameter where two share a slot, which counts after each of them."""
        step = self._steps.get((row, len(groups), *dtypes))
        if step is None:
            step = self._made(row, len(groups), dtypes)
        kernel, pack, flat, slots, width = step
        first, least = flat[0], 1 if slots else 0  # a group at least steps a parameter's slots
        lines: list[int] = []
        blocks = 0
        dense = []
        for group in groups:
            used = self._dense(row, flat, group)
            dense.append(used)
            count = used[first].layout.size
            lines += (blocks, count)
            blocks += -(-count // CHUNK) or least
            for view in used:
                offset = view.offset
                lines.append(view.buffer.handle + offset * view.layout.dtype.itemsize if offset else view.buffer.handle)
        for slot in slots:
            if len(set(lines[slot::width])) < len(groups):
                for group in groups:
                    self._update(row, dtypes, [group], scalars, bits)
                return
        if not blocks:
            return
        numbers = self._numbers.get((kernel, bits))
        if numbers is None:
            numbers = self._counted(row, kernel, scalars, bits)
        counters = (self._backend.counters().buffer.handle,) if slots else ()
        self._backend.queue.run(kernel, (blocks * GROUP,), (GROUP,), (pack(*lines), len(groups), *counters, *numbers))
        self._written(row, groups, dense)

    def _made(self, row: Update, count: int, dtypes: tuple[DType, ...]) -> Step:
        if len(self._steps) > KEPT:
            self._steps.clear()
        lettered, stored = lettered_by(row, dtypes)
        room, width, slots = room_for(row, count), table_width(row), stepped_slots(row)
        (text,) = render_update(lettered, self._backend.dialect, stored, room=room)
        held = [line * width + k for line in range(room) for k in range(width - len(row.arrays), width)]
        kinds: list[Kind] = [struct_of(room * width, held), LONG, *([BUFFER] if slots else [])]
        flat = tuple(k for k, name in enumerate(row.arrays) if name not in row.zero_d)
        places = tuple(width - len(row.arrays) + k for k in slots)
        kernel = self._backend.programs.kernel(text, kinds)
        found = Step(kernel, struct.Struct(f"{count * width}Q").pack, flat, places, width)
        self._steps[row, count, *dtypes] = found
        return found

    def _counted(self, row: Update, step: Compiled, scalars: Sequence[Scalar], bits: bytes) -> Numbers:
        """The kernel's numbers for these scalars, which are mostly those of the step before."""
        named = dict(zip(row.scalars, map(float, scalars), strict=True))
        if len(self._numbers) > KEPT:
            self._numbers.clear()
        found = self._numbers[step, bits] = step.numbers(named)
        return found

    def _dense(self, row: Update, flat: Sequence[int], group: Sequence[View]) -> Sequence[View]:
        """The arrays in one dense order, those that are not being copied."""
        first = group[flat[0]].layout
        if first.c_order:  # mostly: all are one layout
            for k in flat:
                if group[k].layout is not first and not group[k].layout.c_order:
                    break
            else:
                return group
        strides, away = apart(row, tuple([view.layout for view in group]))
        used = list(group)
        for k in away:
            used[k] = self._backend.allocate(Layout.of(group[k].dtype, first.shape, strides))
            self._backend.copy(used[k], group[k])
        return used

    def _written(self, row: Update, groups: Sequence[Sequence[View]], dense: Sequence[Sequence[View]]) -> None:
        for group, used in zip(groups, dense, strict=True):
            if used is not group:
                for name, view, copy in zip(row.arrays, group, used, strict=True):
                    if copy is not view and name in row.written:
                        self._backend.copy(view, copy)
