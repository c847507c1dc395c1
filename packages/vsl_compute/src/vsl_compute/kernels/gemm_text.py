"""What the two variants of a matrix product share: the launch's numbers, sizes, and how one element comes about."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from ..dtypes import DType
from ..rows.dialect import Dialect
from ..rows.kinds import compute_dtype
from ..rows.prelude import SHORT, load, store

BATCH = 4  # batch axes of one launch
FIELDS = (
    "m",
    "n",
    "k",
    "a_row",
    "a_column",
    "b_row",
    "b_column",
    "out_row",
    "out_column",
    "a_at",
    "b_at",
    "out_at",
    "batches",
    "parts",  # pieces of k, each with a result of its own, `out_part` apart: for the tile variant
    "terms",  # all of k; each piece but the last has p.k of them
    "out_part",
)
BATCHED = ("size", "a_batch", "b_batch", "out_batch")


def pack_of(itemsize: int) -> int:
    """Numbers that move as one: 16 bytes."""
    return 16 // itemsize


@dataclass(frozen=True)
class Tile:
    """Sizes of one kernel: the group's part of the result, the terms it holds at a time, and a thread's part."""

    rows: int
    columns: int
    depth: int
    thread_rows: int
    thread_columns: int
    lanes: int = 4  # threads that lie side by side before the next row of threads begins
    band: int = 1  # rows of tiles that are walked together, so that what they read stays in the cache

    @property
    def threads(self) -> int:
        """Threads of a group."""
        return (self.rows // self.thread_rows) * (self.columns // self.thread_columns)

    @property
    def name(self) -> str:
        """What tells it from others of the same kind of device."""
        return f"{self.rows}x{self.columns}x{self.depth}_{self.thread_rows}x{self.thread_columns}"

    def shared_bytes(self, itemsize: int) -> int:
        """What a group holds in shared memory, numbers being of this size."""
        return 2 * self.depth * (self.rows + self.columns + 2 * pack_of(itemsize)) * itemsize


@dataclass(frozen=True)
class Access:
    """How the tile variant reads a and b and writes out.

    Of a and b: the axis whose neighbours are neighbours in memory ("deep": along k; "wide": along the other; "any":
    neither, or rows so far apart that those of a tile do not lie within 2^31 elements), and whether they are read in
    packs of 16 bytes (8 for 16-bit floats): then every row (of k) begins at a multiple of a pack, and so do the sizes
    along that axis. Of out: whether rows are written in packs.
    """

    a: str = "any"
    b: str = "any"
    a_packed: bool = False
    b_packed: bool = False
    out_packed: bool = False

    @property
    def name(self) -> str:
        """A letter an operand; capital where it is packed."""
        a, b = self.a[0], self.b[0]
        return (
            f"{a.upper() if self.a_packed else a}{b.upper() if self.b_packed else b}{'P' if self.out_packed else 's'}"
        )


def accesses() -> Iterator[Access]:
    """Every way of reading and writing."""
    sides = ("deep", False), ("deep", True), ("wide", False), ("wide", True), ("any", False)
    for (a, a_packed), (b, b_packed), out_packed in product(sides, sides, (False, True)):
        yield Access(a, b, a_packed, b_packed, out_packed)


class Text:
    """What both variants say."""

    def __init__(self, dialect: Dialect, dtype: DType, out: DType, tile: Tile, fused: bool) -> None:
        self.dialect, self.dtype, self.out, self.tile, self.fused = dialect, dtype, out, tile, fused
        self.number = compute_dtype(dtype)
        self.value = dialect.type_of(self.number)
        self.short = SHORT[self.number.name]
        self.long, self.int, self.uint = (dialect.types[t] for t in ("int64", "int32", "uint32"))

    def load(self, text: str) -> str:
        """An element of a or b as a number."""
        return load(self.dialect, self.dtype, self.number, text)

    def old(self, text: str) -> str:
        """An element of out as a number."""
        return load(self.dialect, self.out, self.number, text)

    def added(self, total: str, a: str, b: str) -> str:
        """total + a * b."""
        if self.number.kind == "i":
            return f"add_{self.short}({total}, mul_{self.short}({a}, {b}))"
        if self.fused and self.number.is_floating:
            return f"{self.dialect.function_of('fma', self.number)}({a}, {b}, {total})"
        return f"({total} + {a} * {b})"

    def result(self, total: str, old: str) -> list[str]:
        """Lines that declare y, what an element of the result is to be; `old` is read only if beta is not 0."""
        if self.number.kind == "i":
            fresh, both = f"mul_{self.short}(alpha, {total})", f"add_{self.short}(y, mul_{self.short}(beta, {old}))"
        else:
            fresh, both = f"alpha * {total}", f"y + beta * {old}"
        return [f"{self.value} y = {fresh};", f"if (beta != 0) y = {both};"]

    def stored(self, row: str, column: str, total: str) -> list[str]:
        """Lines that write one element of the result, if it is inside."""
        return [
            f"if (({row} < p.m) && ({column} < p.n)) {{",
            f"    const {self.long} at = out0 + ({row}) * p.out_row + ({column}) * p.out_column;",
            *(f"    {line}" for line in self.result(total, self.old("out[at]"))),
            f"    out[at] = {store(self.dialect, self.number, self.out, 'y')};",
            "}",
        ]

    def batch(self, number: str) -> list[str]:
        """Lines that declare where the matrices of one batch begin."""
        return [
            f"{self.long} rest = {number};",
            f"{self.long} a0 = p.a_at, b0 = p.b_at, out0 = p.out_at;",
            f"for ({self.int} d = {BATCH - 1}; d >= 0; --d) {{",
            f"    const {self.long} j = rest % p.size[d]; rest /= p.size[d];",
            "    a0 += j * p.a_batch[d]; b0 += j * p.b_batch[d]; out0 += j * p.out_batch[d];",
            "}",
        ]
