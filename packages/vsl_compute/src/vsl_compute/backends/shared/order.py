"""Sorts and scans along the last axis: by groups of threads that share memory, or by threads alone where `group` is 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...dtypes import int64
from ...kernels import order as single
from ...kernels import order_group as grouped
from ...rows.row import Reduction
from ...view import Layout, View
from .axes import collapse
from .parameters import BUFFER, LONG, UINT, Compiled, Kind

if TYPE_CHECKING:
    from ...kernels.shell import Kernel
    from .backend import TextBackend

Pair = tuple[View, View]
Steps = tuple[int, int]
MANY = 4  # stretches of a scan for each compute unit


class Order:
    """The sorts and scans of one device."""

    def __init__(self, backend: TextBackend, group: int) -> None:
        self._backend, self._grouped = backend, group > 1
        self._kernels: dict[tuple[Any, ...], list[Compiled]] = {}

    def _compiled(
        self, key: tuple[Any, ...], kinds: list[list[Kind]], render: Callable[[], tuple[Kernel, Kernel]]
    ) -> list[Compiled]:
        found = self._kernels.get(key)
        if found is None:
            found = [self._backend.programs.kernel(text, kind) for text, kind in zip(render(), kinds, strict=True)]
            self._kernels[key] = found
        return found

    # sorts
    def sort(self, values: View, index: View, x: View, *, descending: bool) -> None:
        """Stable, along the last axis, NaN last."""
        if not x.size:
            return
        source = self._backend.dense(x)
        if source.offset:  # the kernels take arrays that begin where their memory does
            source = self._backend.allocate(Layout.of(x.dtype, x.shape))
            self._backend.copy(source, x)
        rows, n = x.size // x.shape[-1], x.shape[-1]
        have = self._pair(x)
        width = self._runs(source, have, rows, n, descending)
        spare: Pair | None = None
        while width < n:
            into = spare or self._pair(x)
            self._merge(have, into, rows, n, width, descending)
            have, spare = into, have
            width *= 2
        self._backend.copy(values, have[0])
        self._backend.copy(index, have[1])

    def _pair(self, x: View) -> Pair:
        return self._backend.allocate(Layout.of(x.dtype, x.shape)), self._backend.allocate(Layout.of(int64, x.shape))

    def _sorts(self, x: View, rows: int, n: int, descending: bool) -> tuple[bool, list[Compiled]]:
        """Whether groups sort, and the two kernels."""
        dialect, sizes, arrays = self._backend.dialect, [LONG, LONG], [BUFFER] * 3
        if self._grouped and rows * -(-n // 8) < 1 << 32:
            kinds: list[list[Kind]] = [[*sizes, UINT, *arrays], [*sizes, LONG, *[BUFFER] * 4]]
            kernels = self._compiled(("sort", x.dtype, descending, True), kinds,
                                     lambda: grouped.render_sort(dialect, x.dtype, descending=descending))  # fmt: skip
            if min(kernel.limit for kernel in kernels) >= grouped.THREADS:
                return True, kernels
        kinds = [[*sizes, *arrays], [*sizes, LONG, *[BUFFER] * 4]]
        return False, self._compiled(("sort", x.dtype, descending, False), kinds,
                                     lambda: single.render_sort(dialect, x.dtype, descending=descending))  # fmt: skip

    def _runs(self, source: View, have: Pair, rows: int, n: int, descending: bool) -> int:
        """Sorted runs, and how long they are."""
        by_groups, (first, _) = self._sorts(source, rows, n, descending)
        memory = [v.buffer.handle for v in (source, *have)]
        if not by_groups:
            self._backend.queue.launch(first, rows * -(-n // single.RUN), rows, n, *memory)
            return single.RUN
        shift = min(grouped.BLOCK.bit_length() - 1, max(3, (n - 1).bit_length()))
        groups = -(-rows * -(-n >> shift) // (grouped.BLOCK >> shift))
        self._run(first, groups, (rows, n, shift, *memory))
        return grouped.BLOCK

    def _merge(self, have: Pair, into: Pair, rows: int, n: int, width: int, descending: bool) -> None:
        by_groups, (_, merge) = self._sorts(have[0], rows, n, descending)
        arguments = (rows, n, width, *(v.buffer.handle for v in (*have, *into)))
        if by_groups:
            self._run(merge, rows * -(-n // grouped.BLOCK), arguments)
        else:
            self._backend.queue.launch(merge, rows * n, *arguments)

    def _run(self, kernel: Compiled, groups: int, arguments: tuple[Any, ...]) -> None:
        self._backend.queue.run(kernel, (groups * grouped.THREADS,), (grouped.THREADS,), arguments)

    # scans
    def scan(self, row: Reduction, out: View, x: View) -> None:
        """out = the inclusive prefix reduction along the last axis."""
        if not out.size:
            return
        source = x if _is_rows(x) else self._backend.dense(x)
        target = out if _is_rows(out) else self._backend.allocate(Layout.of(out.dtype, out.shape))
        rows, n = out.size // out.shape[-1], out.shape[-1]
        scan = self._by_groups if self._grouped else self._alone
        scan(row, rows, n, source, _steps(source), target, _steps(target))
        if target is not out:
            self._backend.copy(out, target)

    def _by_groups(
        self, row: Reduction, rows: int, n: int, x: View, x_steps: Steps, out: View, out_steps: Steps
    ) -> None:
        """A group a row where there are enough rows, else stretches whose totals are scanned first."""
        stretches = max(1, min(MANY * self._backend.units // rows, -(-n // grouped.BLOCK)))
        length = -(-n // (stretches * grouped.BLOCK)) * grouped.BLOCK
        stretches = -(-n // length)
        given: list[Kind] = [LONG, LONG, LONG, BUFFER, LONG, LONG, LONG]
        kinds = [[*given, BUFFER], [*given, BUFFER, BUFFER, LONG, LONG, LONG]]
        totals, apply = self._compiled((row, x.dtype, out.dtype, True), kinds,
                                       lambda: grouped.render_scan(row, self._backend.dialect, x.dtype, out.dtype))  # fmt: skip
        if min(totals.limit, apply.limit) < grouped.THREADS:
            self._alone(row, rows, n, x, x_steps, out, out_steps)
            return
        given_x = (rows, n, length, x.buffer.handle, x.offset, *x_steps)
        before = x
        if stretches > 1:
            sums, before = self._totals(row, x, out, rows, stretches)
            self._run(totals, rows * stretches, (*given_x, sums.buffer.handle))
            self._by_groups(row, rows, stretches, sums, (stretches, 1), before, (stretches, 1))
        arguments = (*given_x, before.buffer.handle, out.buffer.handle, out.offset, *out_steps)
        self._run(apply, rows * stretches, arguments)

    def _alone(self, row: Reduction, rows: int, n: int, x: View, x_steps: Steps, out: View, out_steps: Steps) -> None:
        given: list[Kind] = [LONG, LONG, BUFFER, LONG, LONG, LONG]
        kinds = [[*given, BUFFER], [*given, BUFFER, BUFFER, LONG, LONG, LONG]]
        totals, apply = self._compiled((row, x.dtype, out.dtype, False), kinds,
                                       lambda: single.render_scan(row, self._backend.dialect, x.dtype, out.dtype))  # fmt: skip
        queue, chunks = self._backend.queue, -(-n // single.CHUNK)
        given_x = (rows, n, x.buffer.handle, x.offset, *x_steps)
        before = x
        if chunks > 1:
            sums, before = self._totals(row, x, out, rows, chunks)
            queue.launch(totals, rows * chunks, *given_x, sums.buffer.handle)
            self._alone(row, rows, chunks, sums, (chunks, 1), before, (chunks, 1))
        queue.launch(apply, rows * chunks, *given_x, before.buffer.handle, out.buffer.handle, out.offset, *out_steps)

    def _totals(self, row: Reduction, x: View, out: View, rows: int, parts: int) -> Pair:
        """Room for the totals of each row's parts, and for these scanned."""
        layout = Layout.of(single.scan_dtype(row, x.dtype, out.dtype), (rows, parts))
        return self._backend.allocate(layout), self._backend.allocate(layout)


def _is_rows(view: View) -> bool:
    """Whether all axes but the last are one."""
    return len(collapse(view.shape[:-1], [view.strides[:-1]], reorder=False)[0]) <= 1


def _steps(view: View) -> tuple[int, int]:
    """Strides of the rows and within one."""
    _, (steps,) = collapse(view.shape[:-1], [view.strides[:-1]], reorder=False)
    return (steps[0] if steps else 0), view.strides[-1]
