"""Sorting and scanning along the last axis by groups of threads that share memory; for GPUs. `order` has both for one thread.

A sort gives each group BLOCK elements, eight a thread. A thread sorts its eight by swapping neighbours; runs are then
merged in shared memory, each thread finding by bisection where its eight of the merged run begin in the two halves.
Runs longer than BLOCK are merged likewise, a group bringing the two parts that make up BLOCK elements of the result into
shared memory first. Elements of the left run go before equal ones of the right, so the order is stable.
Source: Odeh, Green, Mwassi, Shmueli & Birk 2012, "Merge path"; Satish, Harris & Garland 2009, "Designing efficient sorting
algorithms for manycore GPUs".
A scan gives each group a stretch of a row, which it takes BLOCK elements at a time, carrying the total along.
"""

from __future__ import annotations

from ..dtypes import DType
from ..rows.dialect import Dialect
from ..rows.kinds import compute_dtype
from ..rows.prelude import SHORT, load, prelude, store
from ..rows.row import Reduction
from .order import Scan, before
from .places import entry
from .reduce import accumulator
from .shell import Kernel

THREADS, EACH = 256, 8
BLOCK = THREADS * EACH


def render_sort(dialect: Dialect, dtype: DType, *, descending: bool) -> tuple[Kernel, Kernel]:
    """The kernels of a sort of dense (rows, n) arrays, in groups of THREADS.

    Parameters:
      blocks  rows, n, shift, x, values, index: sorted runs of at most 2^shift elements, from 8 to BLOCK, which is BLOCK
              where a row is longer; a group takes BLOCK >> shift of them, fewer than 2^32 in all
      merge   rows, n, width, values, index, to_values, to_index: two runs of `width`, a multiple of BLOCK, make one
    """
    long, memory, element = dialect.types["int64"], dialect.memory, dialect.storage_of(dtype)
    short = dialect.types["uint16"]
    tag = f"sort_{SHORT[dtype.name]}{'_down' if descending else ''}"
    head = prelude(dialect, [compute_dtype(dtype)], [dtype]) + before(dialect, dtype, tag, descending)
    sizes = [f"{long} rows", f"{long} n"]
    arrays = [f"{memory}{element} *values", f"{memory}{long} *index"]
    blocks = entry(dialect, f"{tag}_blocks", [*sizes, f"{dialect.types['uint32']} shift", f"const {memory}{element} *x", *arrays],
                   _blocks(dialect, element, short, tag), threads=THREADS)  # fmt: skip
    given = [f"const {text}" for text in arrays]
    merge = entry(dialect, f"{tag}_merge_group",
                  [*sizes, f"{long} width", *given, f"{memory}{element} *to_values", f"{memory}{long} *to_index"],
                  _merge(dialect, element, short, tag), threads=THREADS)  # fmt: skip
    return Kernel(f"{tag}_blocks", head + blocks, (), ()), Kernel(f"{tag}_merge_group", head + merge, (), ())


def _split(tag: str, long: str, keys: str, name: str) -> list[str]:
    """Lines that declare `name`, how many of the first `diagonal` elements of a merged run come from its left half.

    The halves begin at `left` and `right` of `keys` and have `lefts` and `rights` elements.
    """
    return [
        f"{long} {name} = (diagonal > rights) ? diagonal - rights : 0, {name}_most = (diagonal < lefts) ? diagonal : lefts;",
        f"while ({name} < {name}_most) {{",
        f"    const {long} probe = ({name} + {name}_most) / 2;",
        f"    if ({tag}_before({keys}[right + diagonal - 1 - probe], {keys}[left + probe])) {name}_most = probe; else {name} = probe + 1;",
        "}",
    ]


def _blocks(dialect: Dialect, element: str, short: str, tag: str) -> list[str]:
    long, int_, uint, shared = (*(dialect.types[t] for t in ("int64", "int32", "uint32")), dialect.shared)
    each = f"for ({int_} e = 0; e < {EACH}; ++e)"
    first_chunk = f"{dialect.index['group']} * ({BLOCK}u >> shift)"
    # where this thread's eight lie in the block, and how many elements their segment has
    mine = [
        f"const {int_} segment = 1 << shift, place = thread * {EACH}, base = place >> shift << shift;",
        f"const {uint} chunks = ({uint})((n + segment - 1) >> shift), chunk = {first_chunk} + (base >> shift);",
        f"const {long} first = ({long})(chunk % chunks) << shift;",
        f"const {int_} count = (chunk >= rows * chunks) ? 0 : ({int_})((n - first < segment) ? n - first : segment);",
        f"{element} key[{EACH}];",
        f"{short} from[{EACH}];",
    ]
    # each element of the block, neighbours by neighbouring threads: where it lies in its chunk of a row, and in memory
    walk = [
        "#pragma unroll",
        f"for ({int_} e = 0; e < {EACH}; ++e) {{",
        f"    const {int_} i = e * {THREADS} + thread, at = i & (segment - 1);",
        f"    const {uint} c = {first_chunk} + (i >> shift);",
        f"    const {long} begin = ({long})(c % chunks) << shift;",
        "    if ((c < rows * chunks) && (at < n - begin)) {",
        f"        const {long} spot = c / chunks * n + begin + at;",
    ]
    swap = [
        "#pragma unroll",
        f"for ({int_} turn = 0; turn < {EACH}; ++turn) {{",
        "#pragma unroll",
        f"    for ({int_} e = 0; e < {EACH - 1}; ++e) {{",
        f"        if (((turn ^ e) & 1) || (place - base + e + 1 >= count) || !{tag}_before(key[e + 1], key[e])) continue;",
        f"        const {element} k = key[e]; key[e] = key[e + 1]; key[e + 1] = k;",
        f"        const {short} f = from[e]; from[e] = from[e + 1]; from[e + 1] = f;",
        "    }",
        "}",
    ]
    # which thread's eight are whole runs at first; then two runs of `width` make one
    merge = [
        f"for ({int_} width = {EACH}; width < segment; width *= 2) {{",
        f"    const {int_} within = place - base, run = within / (2 * width) * (2 * width);",
        f"    const {int_} stop = (count < run + 2 * width) ? count : run + 2 * width;",
        f"    const {int_} middle = (run + width < stop) ? run + width : stop;",
        f"    const {int_} left = base + run, right = base + middle, lefts = middle - run, rights = (stop > middle) ? stop - middle : 0;",
        f"    {int_} diagonal = within - run;",
        "    if (diagonal > lefts + rights) diagonal = lefts + rights;",
        *(f"    {line}" for line in _split(tag, int_, "keys", "a")),
        f"    {int_} b = diagonal - a;",
        "#pragma unroll",
        f"    {each} {{",
        "        if (a + b >= lefts + rights) continue;",
        f"        const {dialect.types['bool']} second = (a >= lefts) || ((b < rights) && {tag}_before(keys[right + b], keys[left + a]));",
        f"        const {int_} spot = second ? right + b : left + a;",
        "        key[e] = keys[spot]; from[e] = places[spot];",
        "        if (second) ++b; else ++a;",
        "    }",
        f"    {dialect.barrier}",
        "#pragma unroll",
        f"    {each} {{ keys[place + e] = key[e]; places[place + e] = from[e]; }}",
        f"    {dialect.barrier}",
        "}",
    ]
    return [
        f"{shared}{element} keys[{BLOCK}];",
        f"{shared}{short} places[{BLOCK}];",
        f"const {int_} thread = ({int_}){dialect.index['local']};",
        *mine,
        *walk,
        "        keys[i] = x[spot];",
        "    }",
        "}",
        dialect.barrier,
        "#pragma unroll",
        f"{each} {{ key[e] = keys[place + e]; from[e] = ({short})(place - base + e); }}",
        *swap,
        dialect.barrier,
        "#pragma unroll",
        f"{each} {{ keys[place + e] = key[e]; places[place + e] = from[e]; }}",
        dialect.barrier,
        *merge,
        *walk,
        "        values[spot] = keys[i];",
        "        index[spot] = begin + places[i];",
        "    }",
        "}",
    ]


def _merge(dialect: Dialect, element: str, short: str, tag: str) -> list[str]:
    long, int_, shared, index = dialect.types["int64"], dialect.types["int32"], dialect.shared, dialect.index
    return [
        f"{shared}{element} keys[{BLOCK}];",
        f"{shared}{short} places[{BLOCK}];",
        f"{shared}{long} splits[2];",
        f"const {int_} thread = ({int_}){index['local']};",
        f"const {long} chunks = (n + {BLOCK - 1}) / {BLOCK}, row = {index['group']} / chunks * n;",
        f"const {long} first = {index['group']} % chunks * {BLOCK}, run = first / (2 * width) * (2 * width);",
        f"const {long} middle = (run + width < n) ? run + width : n, end = (middle + width < n) ? middle + width : n;",
        "if (thread < 2) {",
        f"    const {long} left = row + run, right = row + middle, lefts = middle - run, rights = end - middle;",
        f"    {long} diagonal = first - run + thread * {BLOCK};",
        "    if (diagonal > lefts + rights) diagonal = lefts + rights;",
        *(f"    {line}" for line in _split(tag, long, "values", "a")),
        "    splits[thread] = a;",
        "}",
        dialect.barrier,
        f"const {long} total = end - first, begin_a = run + splits[0], begin_b = middle + (first - run - splits[0]);",
        f"const {int_} count = ({int_})((total < {BLOCK}) ? total : {BLOCK}), lefts = ({int_})(splits[1] - splits[0]);",
        f"for ({int_} i = thread; i < count; i += {THREADS}) {{",
        "    keys[i] = values[row + ((i < lefts) ? begin_a + i : begin_b + (i - lefts))];",
        "}",
        dialect.barrier,
        "{",
        f"    const {int_} left = 0, right = lefts, rights = count - lefts;",
        f"    {int_} diagonal = thread * {EACH};",
        "    if (diagonal > count) diagonal = count;",
        *(f"    {line}" for line in _split(tag, int_, "keys", "a")),
        f"    {int_} b = diagonal - a;",
        "#pragma unroll",
        f"    for ({int_} e = 0; e < {EACH}; ++e) {{",
        "        if (a + b >= count) continue;",
        f"        const {dialect.types['bool']} second = (a >= lefts) || ((b < rights) && {tag}_before(keys[right + b], keys[left + a]));",
        f"        places[thread * {EACH} + e] = ({short})(second ? right + b : left + a);",
        "        if (second) ++b; else ++a;",
        "    }",
        "}",
        dialect.barrier,
        f"for ({int_} i = thread; i < count; i += {THREADS}) {{",
        f"    const {int_} from = places[i];",
        f"    const {long} spot = row + ((from < lefts) ? begin_a + from : begin_b + (from - lefts));",
        "    to_values[row + first + i] = keys[from];",
        "    to_index[row + first + i] = index[spot];",
        "}",
    ]


def render_scan(row: Reduction, dialect: Dialect, x: DType, out: DType) -> tuple[Kernel, Kernel]:
    """The kernels of an inclusive scan of `rows` rows of n elements in stretches of `length`, a multiple of BLOCK.

    Parameters, each in groups of THREADS, one a stretch:
      totals  rows, n, length, x, x_at, x_row, x_step, totals (rows, stretches, dense)
      apply   rows, n, length, x, x_at, x_row, x_step, before (totals scanned; not read if length >= n), out, out_at,
              out_row, out_step
    """
    long, memory, number = dialect.types["int64"], dialect.memory, accumulator(row, x, [out])
    scan = Scan(row, dialect, number)
    tag = f"scan_{row.name}_{SHORT[x.name]}_{SHORT[out.name]}"
    value = dialect.type_of(number)
    head = prelude(dialect, [number], [x, out]) + scan.function(tag)
    parameters = [
        f"{long} rows",
        f"{long} n",
        f"{long} length",
        f"const {memory}{dialect.storage_of(x)} *x",
        *(f"{long} x_{p}" for p in ("at", "row", "step")),
    ]
    outs = [f"{memory}{dialect.storage_of(out)} *out", *(f"{long} out_{p}" for p in ("at", "row", "step"))]
    mapped = scan.text(row.map[0], ("x",))
    element = load(dialect, x, number, "x[x_at + row * x_row + k * x_step]")
    (state,) = row.state
    finished = store(dialect, number, out, scan.text(row.finish[0], (state, "n")))
    text = _Stretch(dialect, value, tag, scan.text(row.identity[0], ()), element, mapped)
    apply = text.lines(
        [f"if (begin > 0) all = before[{dialect.index['group']} - 1];"],
        [
            f"const {value} v_{state} = held[spot], v_n = 1;",
            f"out[out_at + row * out_row + k * out_step] = {finished};",
        ],
    )
    totals = text.lines([], [], [f"if (thread == 0) totals[{dialect.index['group']}] = all;"])
    return (
        Kernel(f"{tag}_totals_group", head + entry(dialect, f"{tag}_totals_group", [*parameters, f"{memory}{value} *totals"], totals,
                                                   threads=THREADS), (), ()),
        Kernel(f"{tag}_apply_group", head + entry(dialect, f"{tag}_apply_group", [*parameters, f"const {memory}{value} *before", *outs], apply,
                                                  threads=THREADS), (), ()),
    )  # fmt: skip


class _Stretch:
    """The loop over a stretch: what both kernels of a scan do."""

    def __init__(self, dialect: Dialect, value: str, tag: str, identity: str, element: str, mapped: str) -> None:
        self.dialect, self.value, self.tag, self.identity = dialect, value, tag, identity
        self.element, self.mapped = element, mapped

    def lines(self, first: list[str], each: list[str], last: list[str] | None = None) -> list[str]:
        """`first` before the loop, with the carried total `all` at the identity; `each` for element k; `last` after the loop."""
        dialect, value = self.dialect, self.value
        long, int_, shared, index = dialect.types["int64"], dialect.types["int32"], dialect.shared, dialect.index
        spread = [
            "#pragma unroll",
            f"    for ({int_} e = 0; e < {EACH}; ++e) {{",
            f"        const {int_} i = e * {THREADS} + thread, spot = i + i / {EACH};",  # a gap a thread: banks differ
            f"        const {long} k = at + i;",
        ]
        stored = [*(["    " + line for line in spread]), *(f"            {line}" for line in ("if (k < end) {", *("    " + t for t in each), "}")),
                  "        }"] if each else []  # fmt: skip
        return [
            f"{shared}{value} held[{BLOCK + THREADS}];",
            f"{shared}{value} sums[2][{THREADS}];",
            f"const {int_} thread = ({int_}){index['local']}, mine = thread * {EACH + 1};",
            f"const {long} stretches = (n + length - 1) / length, row = {index['group']} / stretches;",
            f"const {long} begin = {index['group']} % stretches * length, end = (begin + length < n) ? begin + length : n;",
            f"{value} all = {self.identity};",
            *first,
            f"for ({long} at = begin; at < end; at += {BLOCK}) {{",
            *spread,
            f"        {value} moved = {self.identity};",
            f"        if (k < end) {{ const {value} v_x = {self.element}; moved = {self.mapped}; }}",
            "        held[spot] = moved;",
            "    }",
            f"    {dialect.barrier}",
            f"    {value} own = held[mine];",
            "#pragma unroll",
            f"    for ({int_} e = 1; e < {EACH}; ++e) {{ own = {self.tag}_joined(own, held[mine + e]); held[mine + e] = own; }}",
            f"    {int_} now = 0;",
            "    sums[0][thread] = own;",
            f"    {dialect.barrier}",
            f"    for ({int_} d = 1; d < {THREADS}; d *= 2) {{",
            f"        sums[1 - now][thread] = (thread >= d) ? {self.tag}_joined(sums[now][thread - d], sums[now][thread]) : sums[now][thread];",
            "        now = 1 - now;",
            f"        {dialect.barrier}",
            "    }",
            f"    const {value} lead = (thread > 0) ? {self.tag}_joined(all, sums[now][thread - 1]) : all;",
            "#pragma unroll",
            f"    for ({int_} e = 0; e < {EACH}; ++e) held[mine + e] = {self.tag}_joined(lead, held[mine + e]);",
            f"    all = {self.tag}_joined(all, sums[now][{THREADS - 1}]);",
            f"    {dialect.barrier}",
            *stored,
            f"    {dialect.barrier}" if each else "",
            "}",
            *(last or []),
        ]
