"""Fused optimizer steps: one launch for all parameters, which finds them through a table of addresses on the device."""

from __future__ import annotations

import struct
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backend import Scalar
from ...dtypes import DType, uint32, uint64
from ...kernels.update import CHUNK, render_update, stepped_slots, table_width
from ...rows.row import Update
from ...view import Layout, View
from ..shared.parameters import BUFFER, Compiled
from ..shared.rows import lettered_by

if TYPE_CHECKING:
    from .backend import CUDABackend

TABLES = 64  # lists of addresses that are kept: a step whose arrays lie where those of one before lay uploads nothing
GROUP = 256
Numbers = tuple[float, ...]


class Table:
    """What a launch reads: (count, addresses) a parameter, and (parameter, chunk) a group.

    `apart` says that two parameters share a slot, which counts after each of them: a launch a parameter.
    """

    __slots__ = ("apart", "chunks", "groups", "rows")

    def __init__(self, rows: View, chunks: View, groups: int, *, apart: bool) -> None:
        self.rows, self.chunks, self.groups, self.apart = rows, chunks, groups, apart


class Updates:
    """The update rows of one device."""

    def __init__(self, backend: CUDABackend) -> None:
        self._backend = backend
        self._kernels: dict[tuple[Any, ...], Compiled] = {}
        self._tables: dict[tuple[Any, ...], Table] = {}
        self._chunks: dict[tuple[tuple[int, ...], int], tuple[View, int]] = {}
        self._numbers: dict[tuple[Any, ...], Numbers] = {}
        self._lock = threading.Lock()

    def update(self, row: Update, arrays: Sequence[Sequence[View]], scalars: Sequence[Scalar]) -> None:
        """Run an update row over each tuple of arrays, in place."""
        bits = struct.pack(f"{len(scalars)}d", *scalars)  # what is equal may differ: 0.0 and -0.0
        alike: dict[tuple[DType, ...], list[Sequence[View]]] = {}
        for group in arrays:
            alike.setdefault(tuple([view.layout.dtype for view in group]), []).append(group)
        for dtypes, groups in alike.items():
            flat = [k for k, name in enumerate(row.arrays) if name not in row.zero_d]
            dense = [self._dense(flat, group) for group in groups]
            step = self._kernel(row, dtypes)
            numbers = self._numbers.get((step, bits))
            if numbers is None:
                numbers = self._counted(row, step, scalars, bits)
            with self._lock:  # another thread's arrays must not come between a table and its launch
                table = self._table(row, dense, flat[0])
                for one in [self._table(row, [group], flat[0]) for group in dense] if table.apart else [table]:
                    if one.groups:
                        places = one.rows.buffer.handle, one.chunks.buffer.handle
                        self._backend.queue.run(step, (one.groups * GROUP,), (GROUP,), (*places, *numbers))
            self._written(row, groups, dense)

    def _counted(self, row: Update, step: Compiled, scalars: Sequence[Scalar], bits: bytes) -> Numbers:
        """The kernel's numbers for these scalars, which are mostly those of the step before."""
        named = dict(zip(row.scalars, map(float, scalars), strict=True))
        if len(self._numbers) > TABLES:
            self._numbers.clear()
        found = self._numbers[step, bits] = step.numbers(named)
        return found

    def _dense(self, flat: Sequence[int], group: Sequence[View]) -> Sequence[View]:
        """The arrays in one dense order, those that are not being copied."""
        first = group[flat[0]].layout
        if first.c_order:  # mostly: all are one layout
            for k in flat:
                if group[k].layout is not first and not group[k].layout.c_order:
                    break
            else:
                return group
        wanted = first.like(first.dtype).strides
        used = list(group)
        for k in flat:
            if group[k].strides != wanted and first.size:
                used[k] = self._backend.allocate(Layout.of(group[k].dtype, first.shape, wanted))
                self._backend.copy(used[k], group[k])
        return used

    def _written(self, row: Update, groups: Sequence[Sequence[View]], dense: Sequence[Sequence[View]]) -> None:
        for group, used in zip(groups, dense, strict=True):
            if used is not group:
                for name, view, copy in zip(row.arrays, group, used, strict=True):
                    if copy is not view and name in row.written:
                        self._backend.copy(view, copy)

    def _table(self, row: Update, groups: Sequence[Sequence[View]], flat: int) -> Table:
        """The table of these arrays; memory that is used again, as a step's is, comes round to a table that is there."""
        lines: list[int] = []
        for group in groups:
            lines.append(group[flat].layout.size)
            for view in group:
                offset = view.offset
                lines.append(view.buffer.handle + offset * view.layout.dtype.itemsize if offset else view.buffer.handle)
        found = self._tables.get(known := (row, *lines))
        if found is None:
            if len(self._tables) >= TABLES:
                self._tables.clear()
            found = self._tables[known] = self._made(row, np.array(lines, np.uint64).reshape(len(groups), -1))
        return found

    def _made(self, row: Update, lines: np.ndarray[Any, Any]) -> Table:
        """A table of these lines on the device, where parameters with slots to step have room to count in."""
        slots = stepped_slots(row)
        chunks = self._parts(tuple(lines[:, 0].tolist()), bool(slots))
        places = lines[:, [k + 1 for k in slots]]
        rows = np.zeros((len(lines), table_width(row)), np.uint64)
        rows[:, : lines.shape[1]] = lines
        return Table(self._uploaded(uint64, rows), *chunks, apart=len(np.unique(places)) < places.size)

    def _parts(self, sizes: tuple[int, ...], least: int) -> tuple[View, int]:
        """(parameter, chunk) of each group of threads, `least` of a parameter or more, and how many those are."""
        found = self._chunks.get((sizes, least))
        if found is None:
            chunks = [(k, part) for k, size in enumerate(sizes) for part in range(max(least, -(-size // CHUNK)))]
            if len(self._chunks) >= TABLES:
                self._chunks.clear()
            places = self._uploaded(uint32, chunks or [(0, 0)])
            found = self._chunks[sizes, least] = places, len(chunks)
        return found

    def _uploaded(self, dtype: DType, numbers: Any) -> View:
        """Numbers on the device; no transfer of the user's."""
        array = np.asarray(numbers, dtype.storage)
        view = self._backend.allocate(Layout.of(dtype, array.shape))
        self._backend.queue.upload(view.buffer.handle, 0, array, counted=False)
        return view

    def _kernel(self, row: Update, dtypes: tuple[DType, ...]) -> Compiled:
        found = self._kernels.get((row, *dtypes))
        if found is None:
            lettered, stored = lettered_by(row, dtypes)
            (text,) = render_update(lettered, self._backend.dialect, stored)
            found = self._kernels[row, *dtypes] = self._backend.programs.kernel(text, [BUFFER, BUFFER])
        return found
