"""Kernels that move elements: copy with conversion, gather, scatter_add, fold and the sorted segments they stand on.

No kernel adds with atomics: scatter_add gives each element of the output to one thread, which adds what points to it
in the order of the index; fold gathers for each element the window entries that look at it. So results do not vary
from run to run. An index outside its axis is written into a slot of `report`, which the host reads at its next wait.
"""

from __future__ import annotations

from .. import dtypes
from ..dtypes import BY_NAME, DType
from ..rows.dialect import Dialect
from ..rows.kinds import compute_dtype
from ..rows.prelude import SHORT, load, prelude, store
from .places import entry, loop, struct, walk
from .shell import Kernel, four

FOLDED = 3  # axes that one fold can have
FOLDED_FIELDS = ("extent", "positions", "out_stride", "x_stride", "taps", "tap_stride", "step", "dilation", "origin")
LINE = "    "

# the lowest int64 is what a slot holds where nothing was wrong: as an index, it is reported as the next one
REPORT = "report[slot] = k + (k == -9223372036854775807 - 1);"


def raw_dtype(dtype: DType) -> DType:
    """The unsigned integer as wide as this dtype: what is only moved keeps every bit."""
    return BY_NAME[f"uint{8 * dtype.itemsize}"]


def converted(dialect: Dialect, source: DType, target: DType, text: str) -> str:
    """An element of one dtype as another is stored: floats to integers cut towards zero, narrowing rounds once, integers wrap."""
    number = compute_dtype(source)
    value = load(dialect, source, number, text)
    if number.kind == "b":
        value, number = f"({value} ? 1 : 0)", dtypes.int32
    if target.is_integer and number.is_floating and target is not dtypes.uint64:
        value, number = f"(({dialect.types['int64']}){value})", dtypes.int64
    if target.is_integer or target.kind == "b" or (target.itemsize == 2 and number is dtypes.float64):
        return store(dialect, number, target, value)
    middle = compute_dtype(target)
    return store(dialect, middle, target, f"(({dialect.type_of(middle)}){value})")


def render_copy(dialect: Dialect, source: DType, target: DType, *, fours: bool = False) -> Kernel:
    """out = x. Parameters: count, places_2 (out, x), out, x; with `fours` all of these count neighbours four at a time."""
    long, memory, int_ = dialect.types["int64"], dialect.memory, dialect.types["int32"]
    source, target, value, head = _moved(dialect, source, target, "v.at[e]" if fours else "x[at1]")
    name = f"copy_{'fours_' * fours}{SHORT[source.name]}_{SHORT[target.name]}"
    out, x = f"{memory}{dialect.storage_of(target)} *out", f"const {memory}{dialect.storage_of(source)} *x"
    lines = [f"out[at0] = {value};"]
    if fours:
        given, made = (f"four_{SHORT[d.name]}" for d in (source, target))
        head += "".join(sorted({four(dialect, source), four(dialect, target)}))
        lines = [
            f"const {given} v = ((const {memory}{given} *)x)[at1];",
            f"{made} r;",
            f"for ({int_} e = 0; e < 4; ++e) r.at[e] = {value};",
            f"(({memory}{made} *)out)[at0] = r;",
        ]
    body = loop(dialect, "count", [*walk(dialect, 2, "i"), *lines])
    text = head + struct(dialect, 2) + entry(dialect, name, [f"{long} count", "places_2 layout", out, x], body)
    return Kernel(name, text, (), ())


def render_copy_rows(dialect: Dialect, source: DType, target: DType) -> Kernel:
    """out = x, over rows of neighbours, four at a time.

    Parameters: count (of fours, below 2^32), quads (of a row, uint32), out, out_at, out_row, x, x_at, x_row; offsets and
    strides are multiples of four.
    """
    long, memory, int_ = dialect.types["int64"], dialect.memory, dialect.types["int32"]
    source, target, value, head = _moved(dialect, source, target, "v.at[e]")
    name = f"copy_rows_{SHORT[source.name]}_{SHORT[target.name]}"
    parameters = [f"{long} count", f"{dialect.types['uint32']} quads"]
    for pointer, dtype in (("*out", target), ("*x", source)):
        constant = "const " if pointer == "*x" else ""
        parameters += [
            f"{constant}{memory}{dialect.storage_of(dtype)} {pointer}",
            *(f"{long} {pointer[1:]}_{p}" for p in ("at", "row")),
        ]
    given, made = (f"four_{SHORT[d.name]}" for d in (source, target))
    body = _fours(dialect, [
        f"const {given} v = *(const {memory}{given} *)(x + x_at + i * x_row + j);",
        f"{made} r;",
        f"for ({int_} e = 0; e < 4; ++e) r.at[e] = {value};",
        f"*({memory}{made} *)(out + out_at + i * out_row + j) = r;",
    ])  # fmt: skip
    fours = "".join(sorted({four(dialect, source), four(dialect, target)}))
    return Kernel(name, head + fours + entry(dialect, name, parameters, body), (), ())


def render_turn(dialect: Dialect, source: DType, target: DType, *, tile: int, threads: int) -> Kernel:
    """out[b, i, j] = x[b, i, j], where out's neighbours are along j and x's along i: through tiles in shared memory.

    Parameters: tiles, across, of_batch (uint32: in all, side by side, of a batch), rows, columns, out, out_at, out_batch,
    out_row, x, x_at, x_batch, x_column. Groups of `threads`; a line of the tile is one longer, so that a column lies in
    different banks.
    """
    long, uint, memory = dialect.types["int64"], dialect.types["uint32"], dialect.memory
    source, target, value, head = _moved(dialect, source, target, f"held[near * {tile + 1} + k]")
    name = f"turn_{SHORT[source.name]}_{SHORT[target.name]}"
    parameters = [f"{uint} {word}" for word in ("tiles", "across", "of_batch")] + [f"{long} rows", f"{long} columns"]
    parameters += [
        f"{memory}{dialect.storage_of(target)} *out",
        *(f"{long} out_{part}" for part in ("at", "batch", "row")),
        f"const {memory}{dialect.storage_of(source)} *x",
        *(f"{long} x_{part}" for part in ("at", "batch", "column")),
    ]
    apart = threads // tile  # lines of the tile that the group takes at once
    taken = range(tile // apart)
    each = f"for ({uint} k = first; k < {tile}; k += {apart})"
    kept, stored = dialect.storage_of(source), f"{memory}{dialect.storage_of(target)}"
    lines = [
        f"{dialect.shared}{kept} held[{tile * (tile + 1)}];",
        f"const {uint} local_ = {dialect.index['local']}, near = local_ % {tile}, first = local_ / {tile};",
        f"for ({uint} t = {dialect.index['group']}; t < tiles; t += {dialect.index['groups']}) {{",
        f"    const {long} batch = t / of_batch, row0 = t % of_batch / across * {tile}, column0 = t % of_batch % across * {tile};",
        f"    const {memory}{kept} *from = x + x_at + batch * x_batch + row0 + near + (column0 + first) * x_column;",
        f"    {stored} *to = out + out_at + batch * out_batch + (row0 + first) * out_row + column0 + near;",
        # addresses go on by steps, and all of a thread's elements are asked for before the first arrives
        f"    const bool whole = (row0 + {tile} <= rows) && (column0 + {tile} <= columns);",
        "    if (whole) {",
        *(f"        const {kept} x{i} = from[{apart * i} * x_column];" for i in taken),
        *(f"        held[(first + {apart * i}) * {tile + 1} + near] = x{i};" for i in taken),
        "    } else {",
        f"        {each}",
        "            if ((row0 + near < rows) && (column0 + k < columns))",
        f"                held[k * {tile + 1} + near] = from[(k - first) * x_column];",
        "    }",
        f"    {dialect.barrier}",
        "    if (whole) {",
        *(f"        {{ const {uint} k = first + {apart * i}; to[{apart * i} * out_row] = {value}; }}" for i in taken),
        "    } else {",
        f"        {each}",
        "            if ((row0 + k < rows) && (column0 + near < columns))",
        f"                to[(k - first) * out_row] = {value};",
        "    }",
        f"    {dialect.barrier}",
        "}",
    ]
    return Kernel(name, head + entry(dialect, name, parameters, lines, threads=threads), (), ())


def _moved(dialect: Dialect, source: DType, target: DType, text: str) -> tuple[DType, DType, str, str]:
    """The dtypes that a copy reads and writes, its value and what stands before the kernel."""
    if source is target:
        raw = raw_dtype(source)
        return raw, raw, text, prelude(dialect, [], [])
    return (
        source,
        target,
        converted(dialect, source, target, text),
        prelude(dialect, [compute_dtype(source)], [source, target]),
    )


def _fours(dialect: Dialect, lines: list[str]) -> list[str]:
    """Lines for every fourth column j of each row i, `quads` of them a row, spread over all threads of the launch."""
    long, uint = dialect.types["int64"], dialect.types["uint32"]
    place = [f"const {long} i = ({uint})q / quads, j = 4 * ({long})(({uint})q % quads);"]
    return loop(dialect, "count", [*place, *lines], "q")


def render_gather(dialect: Dialect, dtype: DType, index: DType) -> Kernel:
    """out = x[index]. Parameters: count, places_3 (out, x, index), step, axis, slot, out, x, index, report."""
    long, memory = dialect.types["int64"], dialect.memory
    raw = raw_dtype(dtype)
    name, element = f"gather_{SHORT[raw.name]}_{SHORT[index.name]}", dialect.storage_of(raw)
    parameters = [f"{long} count", "places_3 layout", f"{long} step", f"{long} axis", f"{long} slot", f"{memory}{element} *out",
                  f"const {memory}{element} *x", f"const {memory}{dialect.storage_of(index)} *index", f"{memory}{long} *report"]  # fmt: skip
    body = loop(dialect, "count", [
        *walk(dialect, 3, "i"),
        f"const {long} k = ({long})index[at2];",
        f"if ((k < 0) || (k >= axis)) {REPORT}",
        f"out[at0] = ((k < 0) || (k >= axis)) ? ({element})0 : x[at1 + k * step];",
    ])  # fmt: skip
    return Kernel(name, prelude(dialect, [], []) + struct(dialect, 3) + entry(dialect, name, parameters, body), (), ())


def render_gather_rows(dialect: Dialect, dtype: DType, index: DType) -> Kernel:
    """out = x[index], over rows of neighbours, four at a time.

    Parameters: count (of fours, below 2^32), quads (of a row, uint32), out_at, out_row, x_at, x_row, index_at, index_step,
    axis, slot, out, x, index, report; offsets and strides of out and x are multiples of four.
    """
    long, memory, int_ = dialect.types["int64"], dialect.memory, dialect.types["int32"]
    raw = raw_dtype(dtype)
    name, element, quad = (
        f"gather_rows_{SHORT[raw.name]}_{SHORT[index.name]}",
        dialect.storage_of(raw),
        f"four_{SHORT[raw.name]}",
    )
    numbers = ("out_at", "out_row", "x_at", "x_row", "index_at", "index_step", "axis", "slot")
    parameters = [f"{long} count", f"{dialect.types['uint32']} quads", *(f"{long} {p}" for p in numbers),
                  f"{memory}{element} *out", f"const {memory}{element} *x", f"const {memory}{dialect.storage_of(index)} *index",
                  f"{memory}{long} *report"]  # fmt: skip
    body = _fours(dialect, [
        f"const {long} k = ({long})index[index_at + i * index_step];",
        "if ((k < 0) || (k >= axis)) report[slot] = k;",
        f"{quad} r;",
        f"if ((k < 0) || (k >= axis)) for ({int_} e = 0; e < 4; ++e) r.at[e] = 0;",
        f"else r = *(const {memory}{quad} *)(x + x_at + k * x_row + j);",
        f"*({memory}{quad} *)(out + out_at + i * out_row + j) = r;",
    ])  # fmt: skip
    head = prelude(dialect, [], []) + four(dialect, raw)
    return Kernel(name, head + entry(dialect, name, parameters, body), (), ())


def render_keys(dialect: Dialect, index: DType) -> Kernel:
    """keys = index, and `axis` for what is outside. Parameters: count, places_1 (index), axis, slot, keys, index, report."""
    long, memory = dialect.types["int64"], dialect.memory
    name = f"keys_{SHORT[index.name]}"
    parameters = [f"{long} count", "places_1 layout", f"{long} axis", f"{long} slot", f"{memory}{long} *keys",
                  f"const {memory}{dialect.storage_of(index)} *index", f"{memory}{long} *report"]  # fmt: skip
    body = loop(dialect, "count", [
        *walk(dialect, 1, "i"),
        f"const {long} k = ({long})index[at0];",
        f"if ((k < 0) || (k >= axis)) {REPORT}",
        "keys[i] = ((k < 0) || (k >= axis)) ? axis : k;",
    ])  # fmt: skip
    return Kernel(name, prelude(dialect, [], []) + struct(dialect, 1) + entry(dialect, name, parameters, body), (), ())


def render_scatter(dialect: Dialect, dtype: DType, *, ordered: bool) -> Kernel:
    """out[key] += x. Parameters: across, inner, rows, step, terms, x_step, places_2 (out, x), out, x, keys, order.

    `across` counts the elements of one row over all batches, `inner` those of one batch; `terms` index entries a
    batch; keys (batch, terms). Without `ordered` a thread looks through all terms for its row, and `order` is not
    read; with it, keys are sorted, order says where each came from, and a thread adds one run of equal keys.
    """
    long, memory = dialect.types["int64"], dialect.memory
    number, element = compute_dtype(dtype), dialect.storage_of(dtype)
    name = f"scatter_{'runs' if ordered else 'rows'}_{SHORT[dtype.name]}"
    parameters = [*(f"{long} {p}" for p in ("across", "inner", "rows", "step", "terms", "x_step")), "places_2 layout", f"{memory}{element} *out",
                  f"const {memory}{element} *x", f"const {memory}{long} *keys", f"const {memory}{long} *order"]  # fmt: skip
    value = dialect.type_of(number)
    place = [
        f"const {long} first = i / across, m = i % across;",
        f"const {memory}{long} *key = keys + (m / inner) * terms;",
    ]
    begin = f"{value} sum = {load(dialect, dtype, number, 'out[at0]')};"
    end = f"out[at0] = {store(dialect, number, dtype, 'sum')};"
    add = _added(dialect, number, "sum", load(dialect, dtype, number, "x[at1 + {} * x_step]"))
    if ordered:
        count = "terms * across"
        body = [
            *place,
            f"const {long} row = key[first];",
            "if ((row < rows) && ((first == 0) || (key[first - 1] != row))) {",
            f"    const {memory}{long} *from = order + (m / inner) * terms;",
            *(LINE + line for line in walk(dialect, 2, "m")),
            "    at0 += row * step;",
            LINE + begin,
            f"    for ({long} q = first; (q < terms) && (key[q] == row); ++q) sum = {add.format('from[q]')};",
            LINE + end,
            "}",
        ]
    else:
        count = "rows * across"
        body = [
            *place,
            *walk(dialect, 2, "m"),
            "at0 += first * step;",
            begin,
            f"for ({long} q = 0; q < terms; ++q) if (key[q] == first) sum = {add.format('q')};",
            end,
        ]
    text = (
        prelude(dialect, [number], [dtype])
        + struct(dialect, 2)
        + entry(dialect, name, parameters, loop(dialect, count, body))
    )
    return Kernel(name, text, (), ())


def _added(dialect: Dialect, number: DType, total: str, term: str) -> str:
    """A sum; of signed integers through unsigned ones, as theirs may not overflow in C."""
    return f"add_{SHORT[number.name]}({total}, {term})" if number.kind == "i" else f"({total} + {term})"


def render_fold(
    dialect: Dialect, dtype: DType, *, chosen: bool = False, axes: int = FOLDED, dilated: bool = True
) -> Kernel:
    """out = the sum of the window entries that look at each element. Parameters: count, folding, out, x.

    folding: places_2 (out, x) over the axes that are not folded, then for each of the three that are: extent, positions,
    out stride, x stride, taps, tap stride, step, dilation, origin (int64 [3] each): entries of tap t and position p look
    at h where p * step + t * dilation == h + origin. Axes before the last `axes` are not in use and have one of each.
    With `chosen` two more parameters, an int32 array of x's layout and how much further it begins: only entries whose
    window chose their tap. If not `dilated`, all taps are neighbours. What an element costs are divisions: axes that are
    not in use, and the taps of neighbours, are spared them.
    """
    long, uint, int_, memory = dialect.types["int64"], dialect.types["uint32"], dialect.types["int32"], dialect.memory
    number, element = compute_dtype(dtype), dialect.storage_of(dtype)
    name = f"fold{axes}_{'dilated_' * dilated}{'chosen_' * chosen}{SHORT[dtype.name]}"
    members = " ".join(f"{long} {f}[{FOLDED}];" for f in FOLDED_FIELDS)
    text = f"#ifndef VSL_folding\n#define VSL_folding\ntypedef struct {{ places_2 rest; {members} }} folding;\n#endif\n"
    used = range(FOLDED - axes, FOLDED)
    lines = [f"{uint} left = ({uint})i;"]
    for d in reversed(used):
        lines += [f"const {uint} h{d} = left % ({uint})f.extent[{d}];", f"left = left / ({uint})f.extent[{d}];"]
    lines += walk(dialect, 2, "left", "f.rest")
    lines += [f"{dialect.type_of(number)} sum = 0;"]
    at = "at1"
    indent = ""
    for d in used:
        lines += [f"{indent}{one}" for one in (_dilated_taps if dilated else _taps)(dialect, d)]
        lines.append(f"{indent}    const {long} x{d} = {at} + p{d} * f.x_stride[{d}] + t{d} * f.tap_stride[{d}];")
        at, indent = f"x{d}", indent + LINE
    if chosen:
        tap = f"t{used[0]}"
        for d in used[1:]:
            tap = f"({tap} * f.taps[{d}] + t{d})"
        lines.append(f"{indent}if (index[{at} + further] != {tap}) continue;")
    lines += [
        f"{indent}sum = {_added(dialect, number, 'sum', load(dialect, dtype, number, f'x[{at}]'))};",
        "}" * axes,
    ]
    place = " + ".join(["at0", *(f"h{d} * f.out_stride[{d}]" for d in used)])
    lines += [f"out[{place}] = {store(dialect, number, dtype, 'sum')};"]
    parameters = [f"{long} count", "folding f", f"{memory}{element} *out", f"const {memory}{element} *x"]
    if chosen:
        parameters += [f"const {memory}{int_} *index", f"{long} further"]
    head = prelude(dialect, [number], [dtype]) + struct(dialect, 2) + text
    return Kernel(name, head + entry(dialect, name, parameters, loop(dialect, "count", lines)), (), ())


def _taps(dialect: Dialect, d: int) -> list[str]:
    """A loop over the entries of axis d that look at h, one a window, from the last window back."""
    uint, int_ = dialect.types["uint32"], dialect.types["int32"]
    start = f"{int_} p{d} = ({int_})last{d}, t{d} = ({int_})(g{d} - last{d} * u{d})"
    return [
        f"const {uint} g{d} = h{d} + ({uint})f.origin[{d}], u{d} = ({uint})f.step[{d}], last{d} = g{d} / u{d};",
        f"for ({start}; (p{d} >= 0) && (t{d} < f.taps[{d}]); --p{d}, t{d} += ({int_})u{d}) {{",
        f"    if (p{d} >= f.positions[{d}]) continue;",
    ]


def _dilated_taps(dialect: Dialect, d: int) -> list[str]:
    """Likewise, asking each tap."""
    int_ = dialect.types["int32"]
    return [
        f"const {int_} g{d} = ({int_})(h{d} + f.origin[{d}]), u{d} = ({int_})f.step[{d}], e{d} = ({int_})f.dilation[{d}];",
        f"for ({int_} t{d} = 0; t{d} < f.taps[{d}]; ++t{d}) {{",
        f"    const {int_} s{d} = g{d} - t{d} * e{d}, p{d} = s{d} / u{d};",
        f"    if (s{d} < 0) break;",
        f"    if ((p{d} * u{d} != s{d}) || (p{d} >= f.positions[{d}])) continue;",
    ]
