"""Plans of matrix products: kernels, specialization constants and parameters for operands of given layouts."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

from ...dtypes import DType, float32, float64, int32, int64
from ...view import Layout, View
from ..shared.axes import collapse
from .indexing import FLOATS, WIDE
from .pipeline import Pipelines
from .tiles import Choice, Room, choices, unit_choices, vector_parts, vector_shape

MOST_GROUPS = 65535
NEAR = 1 << 31  # elements of a matrix within a tile that are counted in 32 bits
Three = tuple[int, int, int]  # of out, a and b


class Matrix(NamedTuple):
    """The last two axes of an operand and its batch axes' strides, in elements."""

    rows: int
    columns: int
    down: int  # the strides
    across: int
    batches: tuple[int, ...]

    @classmethod
    def of(cls, x: View, lead: tuple[int, ...]) -> Matrix:
        """A view's, its batch axes broadcast to `lead`."""
        strides = tuple(0 if n == 1 else s for n, s in zip(x.shape[:-2], x.strides[:-2], strict=True))
        (rows, columns), (down, across) = x.shape[-2:], x.strides[-2:]
        return cls(rows, columns, down, across, (0,) * (len(lead) - len(strides)) + strides)

    @property
    def turned(self) -> Matrix:
        """Its transpose."""
        return Matrix(self.columns, self.rows, self.across, self.down, self.batches)

    @property
    def lies_along_columns(self) -> bool:
        """Whether neighbours in a row are neighbours in memory, and rows follow one another upwards."""
        return (self.across == 1 or self.columns == 1) and (self.down >= 0 or self.rows == 1)

    @property
    def is_plain(self) -> bool:
        """Whether a kernel can read it, as it is or turned."""
        return self.lies_along_columns or self.turned.lies_along_columns

    @property
    def leading(self) -> int:
        """Elements from a row to the next where it lies along columns, else from a column to the next."""
        if self.lies_along_columns:
            return self.down if self.rows > 1 else max(1, self.columns)
        return self.turned.leading

    @property
    def inner(self) -> int:
        """Elements side by side in memory."""
        return self.columns if self.lies_along_columns else self.rows


class Problem(NamedTuple):
    """out = alpha * a @ b + beta * out for every index of `lead`; `low` are the addresses' lowest bits."""

    dtype: DType
    lead: tuple[int, ...]
    out: Matrix
    a: Matrix
    b: Matrix
    low: Three
    alpha: float
    beta: float
    swapped: bool = False

    @property
    def turned(self) -> Problem:
        """out^T = b^T @ a^T."""
        low = (self.low[0], self.low[2], self.low[1])
        return self._replace(out=self.out.turned, a=self.b.turned, b=self.a.turned, low=low, swapped=not self.swapped)

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """m, n, k and how many."""
        return self.out.rows, self.out.columns, self.a.columns, prod(self.lead)

    @property
    def work(self) -> int:
        """Multiplications."""
        return prod(self.sizes)

    @property
    def sides(self) -> str:
        """How a and b lie, as BLAS says it: n along rows, t along columns of memory."""
        return "".join("n" if x.lies_along_columns else "t" for x in (self.a, self.b))


class Step(NamedTuple):
    """One launch: what its parameters hold after the addresses, and bytes that are added to those."""

    pipeline: Any
    data: bytes
    groups: tuple[int, int, int]
    moved: Three


class Plan(NamedTuple):
    """Steps over a, b and out; with `partial`, over a, b and an array of partial products that `joins` add up in out."""

    steps: tuple[Step, ...]
    reads_out: bool
    swapped: bool  # b comes first
    partial: Layout | None = None
    joins: tuple[Step, ...] = ()


class Span(NamedTuple):
    """Batches of one launch: the first's number, how many, where they begin and how far apart they are, in elements."""

    number: int
    batches: int
    moved: Three
    steps: Three


def spans(problem: Problem, most: int) -> Iterator[Span]:
    """The batches: the innermost axis goes along the grid, `most` of it at a time, the others launch by launch."""
    sizes, strides = collapse(problem.lead, [x.batches for x in (problem.out, problem.a, problem.b)])
    inner, outer = (sizes[-1] if sizes else 1), sizes[:-1]
    steps: Any = tuple(s[-1] if s else 0 for s in strides)
    for number in range(prod(outer)):
        at, rest = [0, 0, 0], number
        for d in reversed(range(len(outer))):
            rest, j = divmod(rest, outer[d])
            at = [x + j * s[d] for x, s in zip(at, strides, strict=True)]
        for start in range(0, inner, most):
            moved: Any = tuple(x + start * s for x, s in zip(at, steps, strict=True))
            yield Span(number * inner + start, min(most, inner - start), moved, steps)


class Planner:
    """Makes the plans of one device."""

    def __init__(self, pipelines: Pipelines, room: Room, elements: frozenset[str] = frozenset()) -> None:
        self.pipelines, self.room = pipelines, room
        self.elements = elements  # that matrix units multiply, by dtype name

    def choices(self, problem: Problem) -> list[Choice]:
        """Ways through tiles in shared memory, by estimated time; out lies along columns, a and b are plain.

        Where matrix units can do it the best without comes first, then those.
        """
        fours = self.reads_fours(problem)
        found = choices(self.room, _number(problem.dtype).itemsize, *problem.sizes, fours=fours)
        units = unit_choices(self.room, problem.sides, *problem.sizes) if self._lies_for_units(problem) else []
        return [found[0], *units] if units else found

    def _lies_for_units(self, problem: Problem) -> bool:
        """Whether all that matrix units would load or store begins at a multiple of 16 bytes, and out is not read."""
        if problem.dtype.name not in self.elements or problem.beta != 0:
            return False
        operands = (problem.out, problem.a, problem.b)
        strides = [x.leading for x in operands] + [
            n for span in spans(problem, MOST_GROUPS) for n in (*span.moved, *span.steps)
        ]
        return (
            all(low % 16 == 0 for low in problem.low) and all(n % 8 == 0 for n in strides) and max(strides) * 256 < NEAR
        )

    def reads_fours(self, problem: Problem) -> bool:
        """Whether a and b are read as whole vectors."""
        return all(self._fours(problem, span) & 3 == 3 for span in spans(problem, MOST_GROUPS))

    def tiled(self, problem: Problem, choice: Choice) -> Plan:
        """With this tile, and k in so many parts."""
        (tile, parts), (out, a, b) = choice, (problem.out, problem.a, problem.b)
        m, n, k, _ = problem.sizes
        part = -(-k // (parts * tile.depth)) * tile.depth
        parts = -(-k // part)
        ldc = n if parts > 1 else out.leading
        ragged = k % tile.depth > 0  # so is the last part
        edges = int(m % tile.rows > 0 or n % tile.columns > 0) | 2 * ragged
        far = int(max(tile.rows, tile.columns, tile.depth) * max(a.leading, b.leading) >= NEAR)
        turns = {6: int(not a.lies_along_columns), 7: int(not b.lies_along_columns)}
        steps = []
        for span in spans(problem, MOST_GROUPS // parts):
            fours = self._fours(problem, span)
            constants = {**tile.constants, **turns, 8: fours, 10: edges, 14: int(parts > 1), 15: far}
            data = self._parameters(problem, span, parts) + struct.pack("<8I", m, n, k, a.leading, b.leading, ldc, part, parts)  # fmt: skip
            groups = (-(-n // tile.columns), -(-m // tile.rows), span.batches * parts)
            kernel = "gemm_units" if choice.by_units else "gemm"
            steps.append(self._step(kernel, problem, constants, data, groups, span, parts))
        return self._plan(problem, steps, parts)

    def vector(self, problem: Problem) -> Plan:
        """out and b are vectors, of any strides; a is plain."""
        dtype, a = problem.dtype, problem.a
        m, _, k, batch = problem.sizes
        turn = not a.lies_along_columns
        steps = []
        parts = vector_parts(self.room, m, k, batch, turn=turn)
        part = -(-k // (4 * parts)) * 4
        parts = -(-k // part)
        to = 1 if parts > 1 else problem.out.down
        for span in spans(problem, MOST_GROUPS // parts):
            item = dtype.itemsize
            fours = _whole(problem.low[1], a.leading, span.moved[1], span.steps[1], item) and a.inner % 4 == 0
            if not turn:
                fours &= (problem.b.down == 1 or k == 1) and _whole(
                    problem.low[2], 0, span.moved[2], span.steps[2], item
                )
            lanes, rows = vector_shape(self.room, turn=turn)
            constants = {0: lanes * rows, 1: int(turn), 2: lanes, 3: rows, 4: int(fours), 5: int(parts > 1)}
            many = -(-m // (lanes * (4 if fours else 1) if turn else rows))
            data = self._parameters(problem, span, parts) + struct.pack("<IIIiiII", m, k, a.leading, problem.b.down, to, part, parts)  # fmt: skip
            groups = (min(many, MOST_GROUPS), -(-many // MOST_GROUPS), span.batches * parts)
            steps.append(self._step("gemv", problem, constants, data, groups, span, parts))
        return self._plan(problem, steps, parts)

    def _fours(self, problem: Problem, span: Span) -> int:
        """Of which operands whole vectors of four can be read: bit 0 a, bit 1 b, bit 2 out."""
        found = 0
        for bit, i, x in ((1, 1, problem.a), (2, 2, problem.b), (4, 0, problem.out)):
            whole = _whole(problem.low[i], x.leading, span.moved[i], span.steps[i], problem.dtype.itemsize)
            found |= bit * int(whole and x.inner % 4 == 0)
        return found

    def _parameters(self, problem: Problem, span: Span, parts: int) -> bytes:
        """Batches' strides in bytes, alpha and beta."""
        item, mask = problem.dtype.itemsize, (1 << 64) - 1
        out, a, b = (s * item for s in span.steps)
        numbers = (problem.alpha, problem.beta)
        if parts > 1:
            out, numbers = problem.out.rows * problem.out.columns * _number(problem.dtype).itemsize, (1, 0)
        return struct.pack("<QQQ", a & mask, b & mask, out & mask) + _numbers(problem.dtype, numbers)

    def _step(
        self, kernel: str, problem: Problem, constants: dict[int, int], data: bytes, groups: tuple[int, int, int], span: Span, parts: int
    ) -> Step:  # fmt: skip
        item = problem.dtype.itemsize
        out, a, b = (x * item for x in span.moved)
        if parts > 1:
            out = span.number * parts * problem.out.rows * problem.out.columns * _number(problem.dtype).itemsize
        pipeline = self.pipelines.shipped(f"{kernel}_{_suffix(problem.dtype)}", constants)
        return Step(pipeline, data, groups, (out, a, b))

    def _plan(self, problem: Problem, steps: Sequence[Step], parts: int) -> Plan:
        m, n, _, batch = problem.sizes
        if parts == 1:
            return Plan(tuple(steps), problem.beta != 0, problem.swapped)
        stored, item, mask = _number(problem.dtype), problem.dtype.itemsize, (1 << 64) - 1
        threads = self.room.join_threads
        pipeline = self.pipelines.shipped(f"gemm_join_{_suffix(problem.dtype)}", {0: threads})
        tail = struct.pack("<IIiiI", m, n, problem.out.down, problem.out.across, parts)
        joins = []
        for span in spans(problem, MOST_GROUPS // parts):
            data = struct.pack("<Q", span.steps[0] * item & mask) + _numbers(problem.dtype, (problem.alpha, problem.beta)) + tail  # fmt: skip
            groups = (min(MOST_GROUPS, -(-m * n // threads)), 1, span.batches)
            moved = (span.moved[0] * item, span.number * parts * m * n * stored.itemsize, 0)
            joins.append(Step(pipeline, data, groups, moved))
        partial = Layout.of(stored, (batch, parts, m, n))
        return Plan(tuple(steps), False, problem.swapped, partial, tuple(joins))


def _whole(low: int, leading: int, moved: int, step: int, itemsize: int) -> bool:
    """Whether every row of every batch of a matrix begins at a multiple of four elements."""
    return low % (4 * itemsize) == 0 and leading % 4 == 0 and moved % 4 == 0 and step % 4 == 0


def _number(dtype: DType) -> DType:
    """What sums of the dtype are kept in."""
    if dtype.is_floating:
        return float64 if dtype is float64 else float32
    return int64 if dtype.itemsize == 8 else int32


def _suffix(dtype: DType) -> str:
    return FLOATS.get(dtype.name, WIDE[dtype.itemsize])


def _numbers(dtype: DType, values: Sequence[float]) -> bytes:
    """alpha and beta as the kernel's parameters hold them; integers wrap."""
    if dtype.is_floating:
        return struct.pack("<2d" if dtype is float64 else "<2f", *values)
    bits = 8 * dtype.itemsize
    return struct.pack("<2Q" if bits == 64 else "<2I", *(int(x) & ((1 << bits) - 1) for x in values))
