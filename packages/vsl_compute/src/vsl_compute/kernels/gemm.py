"""Matrix products out = alpha * a @ b + beta * out, in two variants for two kinds of device.

  tile      a group of threads keeps a tile of a and of b in memory that it shares, each thread a part of the result in
            registers; for GPUs
  register  a thread keeps a part of the result in vector registers and reads a and b where they lie; for CPUs, and for
            runtimes whose groups have one thread. It is OpenCL C, whose vector types it is made of.
All three matrices have any strides, so transposition costs nothing; batches have up to four axes, of stride 0 where
they broadcast. 16-bit floats are loaded into float32 and rounded once; integers wrap. With beta 0, out is not read.
Terms are added in the order of k, so a result does not depend on the shape of the launch.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..dtypes import BY_NAME, DType
from ..rows.dialect import Dialect
from ..rows.kinds import compute_dtype
from ..rows.prelude import SHORT, load, prelude, store
from .places import entry
from .shell import Kernel

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
)
BATCHED = ("size", "a_batch", "b_batch", "out_batch")


@dataclass(frozen=True)
class Tile:
    """Sizes of one kernel: the group's part of the result, the terms it holds at a time, and a thread's part."""

    rows: int
    columns: int
    depth: int
    thread_rows: int
    thread_columns: int

    @property
    def threads(self) -> int:
        """Threads of a group."""
        return (self.rows // self.thread_rows) * (self.columns // self.thread_columns)


LARGE, SMALL, NARROW = Tile(128, 128, 8, 8, 8), Tile(64, 64, 16, 4, 4), Tile(32, 32, 16, 2, 2)
REGISTER, REGISTER_WIDE = Tile(4, 16, 1, 4, 16), Tile(4, 8, 1, 4, 8)  # for numbers of four and of eight bytes


def render_gemm(dialect: Dialect, dtype: DType, tile: Tile, *, shared: bool, fused: bool) -> Kernel:
    """A product of this dtype. Parameters: product (see `FIELDS`, then `BATCHED` [4]: all int64), out, a, b, alpha, beta.

    `shared` is the tile variant, to be launched with groups of `tile.threads`; `fused` says that the device multiplies
    and adds in one instruction. Tiles are spread over groups (tile) or threads (register), any number of them.
    """
    number = compute_dtype(dtype)
    name = f"gemm_{SHORT[dtype.name]}_{tile.rows}x{tile.columns}{'' if shared else '_register'}"
    long, memory, element = dialect.types["int64"], dialect.memory, dialect.storage_of(dtype)
    fields = " ".join([*(f"{long} {f};" for f in FIELDS), *(f"{long} {f}[{BATCH}];" for f in BATCHED)])
    parameters = ["product p", f"{memory}{element} *out", f"const {memory}{element} *a", f"const {memory}{element} *b",
                  *(f"{dialect.type_of(number)} {s}" for s in ("alpha", "beta"))]  # fmt: skip
    text = _Text(dialect, dtype, tile, fused)
    lines = text.shared() if shared else text.register()
    head = (
        prelude(dialect, [number], [dtype])
        + f"#ifndef VSL_product\n#define VSL_product\ntypedef struct {{ {fields} }} product;\n#endif\n"
    )
    return Kernel(name, head + entry(dialect, name, parameters, lines), (), ())


class _Text:
    """The lines of one variant."""

    def __init__(self, dialect: Dialect, dtype: DType, tile: Tile, fused: bool) -> None:
        self.dialect, self.dtype, self.tile, self.fused = dialect, dtype, tile, fused
        self.number = compute_dtype(dtype)
        self.value = dialect.type_of(self.number)
        self.long, self.int = dialect.types["int64"], dialect.types["int32"]

    def load(self, text: str) -> str:
        return load(self.dialect, self.dtype, self.number, text)

    def added(self, total: str, a: str, b: str) -> str:
        """total + a * b."""
        short = SHORT[self.number.name]
        if self.number.kind == "i":
            return f"add_{short}({total}, mul_{short}({a}, {b}))"
        if self.fused and self.number.is_floating:
            return f"{self.dialect.function_of('fma', self.number)}({a}, {b}, {total})"
        return f"({total} + {a} * {b})"

    def head(self, first: str, step: str) -> list[str]:
        """The loop over tiles and where the matrices of a tile begin."""
        tile, long = self.tile, self.long
        return [
            f"const {long} down = (p.m + {tile.rows - 1}) / {tile.rows}, across = (p.n + {tile.columns - 1}) / {tile.columns};",
            f"for ({long} t = {first}; t < p.batches * down * across; t += {step}) {{",
            f"    {long} rest = t / (down * across);",
            f"    const {long} row0 = ((t / across) % down) * {tile.rows}, column0 = (t % across) * {tile.columns};",
            f"    {long} a0 = p.a_at, b0 = p.b_at, out0 = p.out_at;",
            f"    for ({self.int} d = {BATCH - 1}; d >= 0; --d) {{",
            f"        const {long} j = rest % p.size[d]; rest /= p.size[d];",
            "        a0 += j * p.a_batch[d]; b0 += j * p.b_batch[d]; out0 += j * p.out_batch[d];",
            "    }",
        ]

    def stored(self, row: str, column: str, total: str) -> list[str]:
        """Lines that write one element of the result, if it is inside."""
        short, place = SHORT[self.number.name], f"out0 + ({row}) * p.out_row + ({column}) * p.out_column"
        old = self.load("out[at]")
        if self.number.kind == "i":
            fresh, both = f"mul_{short}(alpha, {total})", f"add_{short}(y, mul_{short}(beta, {old}))"
        else:
            fresh, both = f"alpha * {total}", f"y + beta * {old}"
        return [
            f"if (({row} < p.m) && ({column} < p.n)) {{",
            f"    const {self.long} at = {place};",
            f"    {self.value} y = {fresh};",
            f"    if (beta != 0) y = {both};",
            f"    out[at] = {store(self.dialect, self.number, self.dtype, 'y')};",
            "}",
        ]

    def shared(self) -> list[str]:
        tile, index, int_ = self.tile, self.dialect.index, self.int
        wide = tile.columns // tile.thread_columns
        high = tile.rows // tile.thread_rows
        pad = 1 if tile.rows < 128 else 4
        inner = [
            f"{self.value} fa[{tile.thread_rows}], fb[{tile.thread_columns}];",
            f"for ({int_} i = 0; i < {tile.thread_rows}; ++i) fa[i] = sa[q][y0 + i * {high}];",
            f"for ({int_} j = 0; j < {tile.thread_columns}; ++j) fb[j] = sb[q][x0 + j * {wide}];",
            f"for ({int_} i = 0; i < {tile.thread_rows}; ++i)",
            f"    for ({int_} j = 0; j < {tile.thread_columns}; ++j) sum[i][j] = {self.added('sum[i][j]', 'fa[i]', 'fb[j]')};",
        ]
        body = [
            f"{self.value} sum[{tile.thread_rows}][{tile.thread_columns}];",
            f"for ({int_} i = 0; i < {tile.thread_rows}; ++i) for ({int_} j = 0; j < {tile.thread_columns}; ++j) sum[i][j] = 0;",
            f"for ({self.long} k0 = 0; k0 < p.k; k0 += {tile.depth}) {{",
            *(f"    {line}" for line in self._fetched("a", tile.rows, "p.m", "row0", "p.a_row", "p.a_column")),
            *(f"    {line}" for line in self._fetched("b", tile.columns, "p.n", "column0", "p.b_column", "p.b_row")),
            f"    {self.dialect.barrier}",
            f"    for ({int_} q = 0; q < {tile.depth}; ++q) {{",
            *(f"        {line}" for line in inner),
            "    }",
            f"    {self.dialect.barrier}",
            "}",
            f"for ({int_} i = 0; i < {tile.thread_rows}; ++i) for ({int_} j = 0; j < {tile.thread_columns}; ++j) {{",
            f"    const {self.long} row = row0 + y0 + i * {high}, column = column0 + x0 + j * {wide};",
            *(f"    {line}" for line in self.stored("row", "column", "sum[i][j]")),
            "}",
        ]
        return [
            f"{self.dialect.shared}{self.value} sa[{tile.depth}][{tile.rows + pad}];",
            f"{self.dialect.shared}{self.value} sb[{tile.depth}][{tile.columns + pad}];",
            f"const {int_} x0 = ({int_}){index['local']} % {wide}, y0 = ({int_}){index['local']} / {wide};",
            *self.head(index["group"], index["groups"]),
            *(f"    {line}" for line in body),
            "}",
        ]

    def _fetched(self, name: str, width: int, limit: str, first: str, along: str, deep: str) -> list[str]:
        """Lines that bring a tile of a (or b) into shared memory, neighbours in memory by neighbouring threads; zeros outside."""
        depth, long, int_ = self.tile.depth, self.long, self.int
        return [
            f"for ({int_} e = ({int_}){self.dialect.index['local']}; e < {width * depth}; e += {self.tile.threads}) {{",
            f"    const {int_} i = ({deep} == 1) ? e / {depth} : e % {width}, q = ({deep} == 1) ? e % {depth} : e / {width};",
            f"    const {long} at = {first} + i, k = k0 + q;",
            f"    s{name}[q][i] = ((at < {limit}) && (k < p.k)) ? {self.load(f'{name}[{name}0 + at * {along} + k * {deep}]')} : 0;",
            "}",
        ]

    def register(self) -> list[str]:
        tile, index = self.tile, self.dialect.index
        lanes, parts = tile.columns // 2, range(2)
        number = BY_NAME[f"u{self.number.name}"] if self.number.kind == "i" else self.number  # unsigned ones wrap
        value = self.dialect.type_of(number)
        vector = f"{value}{lanes}"
        rows = [
            f"const {self.long} r{i} = a0 + ((row0 + {i} < p.m) ? row0 + {i} : p.m - 1) * p.a_row;"
            for i in range(tile.rows)
        ]
        columns = [
            f"const {self.long} c{j} = b0 + ((column0 + {j} < p.n) ? column0 + {j} : p.n - 1) * p.b_column;"
            for j in range(tile.columns)
        ]
        sums = [f"{vector} s{i}_{v} = 0;" for i in range(tile.rows) for v in parts]
        direct = [f"vload{lanes}(0, b + b0 + column0 + k * p.b_row + {v * lanes})" for v in parts]
        loads = [f"({value}){self.load(f'b[c{j} + k * p.b_row]')}" for j in range(tile.columns)]
        one_by_one = [f"({vector})({', '.join(loads[v * lanes : (v + 1) * lanes])})" for v in parts]
        plain = self.dialect.storage_of(self.dtype) == value
        body = [*columns, *self._terms(vector, value, one_by_one)]
        if plain:
            body = [
                f"if ((p.b_column == 1) && (column0 + {tile.columns} <= p.n)) {{",
                *(f"    {line}" for line in self._terms(vector, value, direct)),
                "} else {",
                *(f"    {line}" for line in body),
                "}",
            ]
        held = [
            f"vstore{lanes}(s{i}_{v}, 0, sum + {i * tile.columns + v * lanes});"
            for i in range(tile.rows)
            for v in parts
        ]
        element = f"({self.value})sum[i * {tile.columns} + j]"
        contracted = self.fused and number.is_floating
        return [
            *(
                ["#pragma OPENCL FP_CONTRACT ON"] if contracted else []
            ),  # PoCL's fma is a call, its a * b + c an instruction
            *self.head(index["global_x"], index["threads_x"]),
            *(f"    {line}" for line in (*rows, *sums, *body)),
            f"    {value} sum[{tile.rows * tile.columns}];",
            *(f"    {line}" for line in held),
            f"    for ({self.int} i = 0; i < {tile.rows}; ++i) for ({self.int} j = 0; j < {tile.columns}; ++j) {{",
            *(f"        {line}" for line in self.stored("row0 + i", "column0 + j", element)),
            "    }",
            "}",
        ]

    def _terms(self, vector: str, value: str, columns: list[str]) -> list[str]:
        """The loop over k; `columns` are b's elements, a vector each."""
        lines = [f"const {vector} w{v} = {text};" for v, text in enumerate(columns)]
        for i in range(self.tile.rows):
            element = self.load(f"a[r{i} + k * p.a_column]")
            lines.append(f"const {vector} u{i} = ({vector})(({value}){element});")
            lines += [f"s{i}_{v} = s{i}_{v} + u{i} * w{v};" for v in range(len(columns))]
        return [f"for ({self.long} k = 0; k < p.k; ++k) {{", *(f"    {line}" for line in lines), "}"]
