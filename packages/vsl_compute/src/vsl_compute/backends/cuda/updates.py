"""Fused optimizer steps: one launch for all parameters, which finds them through a table of addresses on the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...backend import Scalar
from ...dtypes import DType, uint32, uint64
from ...kernels.update import CHUNK, render_update
from ...rows.row import Update
from ...view import Layout, View
from ..shared.parameters import BUFFER, UINT, Compiled

if TYPE_CHECKING:
    from .backend import CUDABackend

TABLES = 64  # kept: a step whose arrays lie where they lay before uploads nothing
GROUP = 256


class Table(NamedTuple):
    """What a launch reads: (count, addresses) a parameter; (parameter, chunk) a group; and how many of each."""

    rows: View
    chunks: View
    parameters: int
    groups: int


class Updates:
    """The update rows of one device."""

    def __init__(self, backend: CUDABackend) -> None:
        self._backend = backend
        self._kernels: dict[tuple[Any, ...], tuple[Compiled, Compiled | None]] = {}
        self._tables: dict[tuple[int, ...], Table] = {}

    def update(self, row: Update, arrays: Sequence[Sequence[View]], scalars: Sequence[Scalar]) -> None:
        """Run an update row over each tuple of arrays, in place."""
        named = dict(zip(row.scalars, map(float, scalars), strict=True))
        alike: dict[tuple[DType, ...], list[Sequence[View]]] = {}
        for group in arrays:
            alike.setdefault(tuple(view.dtype for view in group), []).append(group)
        for dtypes, groups in alike.items():
            dense = [self._dense(row, group) for group in groups]
            table = self._table(dense)
            step, slots = self._kernel(row, dtypes)
            queue = self._backend.queue
            if table.groups:
                rows, chunks = table.rows.buffer.handle, table.chunks.buffer.handle
                arguments = (rows, chunks, *step.numbers(named))
                queue.run(step, (table.groups * GROUP,), (GROUP,), arguments)
            if slots is not None:
                queue.launch(slots, table.parameters, table.parameters, table.rows.buffer.handle, *slots.numbers(named))
            self._written(row, groups, dense)

    def _dense(self, row: Update, group: Sequence[View]) -> Sequence[View]:
        """The arrays in one dense order, those that are not being copied."""
        flat = [k for k, name in enumerate(row.arrays) if name not in row.zero_d]
        first = group[flat[0]]
        wanted = first.layout.like(first.dtype).strides
        if all(group[k].strides == wanted for k in flat) or not first.size:
            return group
        used = list(group)
        for k in flat:
            if group[k].strides != wanted:
                used[k] = self._backend.allocate(Layout.of(group[k].dtype, first.shape, wanted))
                self._backend.copy(used[k], group[k])
        return used

    def _written(self, row: Update, groups: Sequence[Sequence[View]], dense: Sequence[Sequence[View]]) -> None:
        for group, used in zip(groups, dense, strict=True):
            if used is not group:
                for name, view, copy in zip(row.arrays, group, used, strict=True):
                    if copy is not view and name in row.written:
                        self._backend.copy(view, copy)

    def _table(self, groups: Sequence[Sequence[View]]) -> Table:
        lines: list[int] = []
        sizes: list[int] = []
        for group in groups:
            size = max(view.size for view in group) if all(view.size for view in group) else 0
            sizes.append(size)
            lines += (size, *(view.buffer.handle + view.offset * view.dtype.itemsize for view in group))
        key = tuple(lines)
        found = self._tables.get(key)
        if found is None:
            if len(self._tables) >= TABLES:
                self._tables.clear()
            chunks = [(k, part) for k, size in enumerate(sizes) for part in range(-(-size // CHUNK))]
            rows = self._uploaded(uint64, np.array(lines, np.uint64))
            places = self._uploaded(uint32, np.array(chunks or [(0, 0)], np.uint32).reshape(-1))
            found = self._tables[key] = Table(rows, places, len(sizes), len(chunks))
        return found

    def _uploaded(self, dtype: DType, values: np.ndarray[Any, Any]) -> View:
        """Our own numbers on the device; they count as no transfer of the user's."""
        view = self._backend.allocate(Layout.of(dtype, values.shape))
        self._backend.queue.upload(view.buffer.handle, 0, values, counted=False)
        return view

    def _kernel(self, row: Update, dtypes: tuple[DType, ...]) -> tuple[Compiled, Compiled | None]:
        found = self._kernels.get((row, *dtypes))
        if found is None:
            distinct = list(dict.fromkeys(dtypes))
            letters = "".join("abcdefgh"[distinct.index(d)] for d in dtypes)  # a 0-d slot may have a dtype of its own
            texts = render_update(
                replace(row, letters=letters), self._backend.dialect, dict(zip(letters, dtypes, strict=True))
            )
            programs = self._backend.programs
            step = programs.kernel(texts[0], [BUFFER, BUFFER])
            slots = programs.kernel(texts[1], [UINT, BUFFER]) if len(texts) > 1 else None
            found = self._kernels[row, *dtypes] = step, slots
        return found
