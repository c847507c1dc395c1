"""Sorting and scanning along the last axis, by threads that share nothing; `order_group` has both for groups that do.

A sort is a merge sort by ranks: runs of 16 are sorted by insertion, a thread a run; then runs are merged pairwise, a
thread an element, which finds by bisection how many elements of the other run come before it. Elements of the left
run go before equal ones of the right, so the order is stable; NaN comes last either way.
A scan takes 32 elements a thread: their totals are scanned likewise, and each thread goes on from the total before it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..dtypes import DType
from ..rows.dag import Builder, Value
from ..rows.dialect import Dialect
from ..rows.expression import parse
from ..rows.kinds import compute_dtype
from ..rows.prelude import SHORT, load, prelude, store
from ..rows.render import native, statements
from ..rows.row import Reduction
from .places import entry, loop
from .reduce import accumulator
from .shell import Kernel

RUN = 16  # elements that one thread sorts by insertion
CHUNK = 32  # elements that one thread scans


def before(dialect: Dialect, dtype: DType, tag: str, descending: bool) -> str:
    """`{tag}_before(a, b)`: whether a must stand before b; false for equals."""
    number, element = compute_dtype(dtype), dialect.storage_of(dtype)
    a, b = (load(dialect, dtype, number, name) for name in ("s_a", "s_b"))
    value = dialect.type_of(number)
    nan = " || ((b != b) && (a == a))" if number.is_floating else ""
    head = f"{dialect.function} {dialect.types['bool']} {tag}_before({element} s_a, {element} s_b)"
    body = f"    const {value} a = {a}, b = {b};\n    return (a {'>' if descending else '<'} b){nan};\n"
    return f"#ifndef VSL_{tag}\n#define VSL_{tag}\n{head}\n{{\n{body}}}\n#endif\n"


def render_sort(dialect: Dialect, dtype: DType, *, descending: bool) -> tuple[Kernel, Kernel]:
    """The kernels of a sort of dense (rows, n) arrays.

    Parameters:
      runs   rows, n, x, values, index
      merge  rows, n, width, values, index, to_values, to_index
    """
    long, memory, element = dialect.types["int64"], dialect.memory, dialect.storage_of(dtype)
    tag = f"sort_{SHORT[dtype.name]}{'_down' if descending else ''}"
    head = prelude(dialect, [compute_dtype(dtype)], [dtype]) + before(dialect, dtype, tag, descending)
    runs = loop(dialect, "rows * runs", [
        f"const {long} begin = (i / runs) * n + (i % runs) * {RUN}, first = (i % runs) * {RUN};",
        f"const {long} count = (n - first < {RUN}) ? n - first : {RUN};",
        f"for ({long} j = 0; j < count; ++j) {{",
        f"    const {element} mine = x[begin + j];",
        f"    {long} p = j;",
        f"    for (; (p > 0) && {tag}_before(mine, values[begin + p - 1]); --p) {{",
        "        values[begin + p] = values[begin + p - 1];",
        "        index[begin + p] = index[begin + p - 1];",
        "    }",
        "    values[begin + p] = mine;",
        "    index[begin + p] = first + j;",
        "}",
    ])  # fmt: skip
    merge = loop(dialect, "rows * n", [
        f"const {long} row = (i / n) * n, j = i % n, begin = (j / (2 * width)) * (2 * width);",
        f"const {long} middle = (begin + width < n) ? begin + width : n, end = (middle + width < n) ? middle + width : n;",
        f"const {element} mine = values[i];",
        f"{long} low = (j < middle) ? middle : begin, high = (j < middle) ? end : middle;",
        f"const {long} start = low;",
        "while (low < high) {",
        f"    const {long} probe = low + (high - low) / 2;",
        f"    const {element} other = values[row + probe];",
        f"    if ((j < middle) ? {tag}_before(other, mine) : !{tag}_before(mine, other)) low = probe + 1; else high = probe;",
        "}",
        f"const {long} place = row + begin + (j - ((j < middle) ? begin : middle)) + (low - start);",
        "to_values[place] = mine;",
        "to_index[place] = index[i];",
    ])  # fmt: skip
    sizes = [f"{long} rows", f"{long} n"]
    given = [f"const {memory}{element} *values", f"const {memory}{long} *index"]
    runs_text = entry(dialect, f"{tag}_runs", [*sizes, f"const {memory}{element} *x", f"{memory}{element} *values", f"{memory}{long} *index"],
                      [f"const {long} runs = (n + {RUN - 1}) / {RUN};", *runs])  # fmt: skip
    merge_text = entry(dialect, f"{tag}_merge",
                       [*sizes, f"{long} width", *given, f"{memory}{element} *to_values", f"{memory}{long} *to_index"], merge)  # fmt: skip
    return Kernel(f"{tag}_runs", head + runs_text, (), ()), Kernel(f"{tag}_merge", head + merge_text, (), ())


class Scan:
    """The texts of a reduction with one state and one output: map, combine, finish in one dtype."""

    def __init__(self, row: Reduction, dialect: Dialect, number: DType) -> None:
        self.row, self.dialect, self.number = row, dialect, number
        self.builder = Builder(number, native=native)

    def text(self, expression: str, names: Sequence[str]) -> str:
        """One expression over `names` of the kernel."""
        known: dict[str, Value] = {name: self.builder.name(name, self.number) for name in names}
        value = self.builder.build(parse(expression, tuple(names)), known, self.number)
        _, (text,) = statements(self.dialect, [value], {name: f"v_{name}" for name in names})
        return text

    def function(self, tag: str) -> str:
        """`{tag}_joined(a, b)`."""
        (state,), value = self.row.state, self.dialect.type_of(self.number)
        joined = self.text(self.row.combine[0], (f"{state}1", f"{state}2"))
        head = f"{self.dialect.function} {value} {tag}_joined({value} v_{state}1, {value} v_{state}2)"
        return f"#ifndef VSL_{tag}\n#define VSL_{tag}\n{head} {{ return {joined}; }}\n#endif\n"


def render_scan(row: Reduction, dialect: Dialect, x: DType, out: DType) -> tuple[Kernel, Kernel]:
    """The kernels of an inclusive scan of `rows` rows of n elements, each with a step in memory of its own.

    Parameters:
      totals  rows, n, x, x_at, x_row, x_step, totals (rows, ceil(n / 32), dense)
      apply   rows, n, x, x_at, x_row, x_step, before (totals scanned; not read if n <= 32), out, out_at, out_row, out_step
    """
    long, memory, number = dialect.types["int64"], dialect.memory, accumulator(row, x, [out])
    scan = Scan(row, dialect, number)
    tag = f"scan_{row.name}_{SHORT[x.name]}_{SHORT[out.name]}"
    value = dialect.type_of(number)
    head = prelude(dialect, [number], [x, out]) + scan.function(tag)
    first = [
        f"const {long} row = i / chunks, begin = (i % chunks) * {CHUNK};",
        f"const {long} end = (begin + {CHUNK} < n) ? begin + {CHUNK} : n;",
    ]
    each = f"for ({long} k = begin; k < end; ++k)"
    joined = [
        f"    const {value} v_x = {load(dialect, x, number, 'x[x_at + row * x_row + k * x_step]')};",
        f"    all = {tag}_joined(all, {scan.text(row.map[0], ('x',))});",
    ]
    sizes = [
        f"{long} rows",
        f"{long} n",
        f"const {memory}{dialect.storage_of(x)} *x",
        *(f"{long} x_{p}" for p in ("at", "row", "step")),
    ]
    chunks = f"const {long} chunks = (n + {CHUNK - 1}) / {CHUNK};"
    identity = scan.text(row.identity[0], ())
    (state,) = row.state
    result = f"const {value} v_{state} = all; const {value} v_n = 1;"
    totals = [
        chunks,
        *loop(
            dialect,
            "rows * chunks",
            [*first, f"{value} all = {identity};", f"{each} {{", *joined, "}", "totals[i] = all;"],
        ),
    ]
    apply = [chunks, *loop(dialect, "rows * chunks", [
        *first,
        f"{value} all = {identity};",
        "if (begin > 0) all = before[i - 1];",
        f"{each} {{",
        *joined,
        f"    {result}",
        f"    out[out_at + row * out_row + k * out_step] = {store(dialect, number, out, scan.text(row.finish[0], (state, 'n')))};",
        "}",
    ])]  # fmt: skip
    outs = [f"{memory}{dialect.storage_of(out)} *out", *(f"{long} out_{p}" for p in ("at", "row", "step"))]
    return (
        Kernel(
            f"{tag}_totals",
            head + entry(dialect, f"{tag}_totals", [*sizes, f"{memory}{value} *totals"], totals),
            (),
            (),
        ),
        Kernel(
            f"{tag}_apply",
            head + entry(dialect, f"{tag}_apply", [*sizes, f"const {memory}{value} *before", *outs], apply),
            (),
            (),
        ),
    )


def scan_dtype(row: Reduction, x: DType, out: DType) -> DType:
    """The dtype of a scan's totals."""
    return accumulator(row, x, [out])
