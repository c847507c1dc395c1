"""Reduction kernels: map every element to a state, combine in tree order, finish into one or several outputs.

Order: a thread combines 16 neighbours of its own stride, 16 such results, and so on for four levels, then the rest; the
threads of a group combine in a tree. So an error grows with 64 + log2(group) steps and not with the count, and a given
shape and group size always give the same bits. Shapes of launch:
  group    one group of threads an output; for reduced axes that are contiguous or long
  lane     one thread an output; for few elements an output, or kept axes that are contiguous
  partial  like group, over a part of the elements; leaves states for `finish`, which combines the parts of each output. Where
           groups of a launch can count each other, the last group of an output does that itself, and clears its counter
x has any strides (windows overlap), up to rank 8 after collapsing, kept axes first; outputs and states are dense.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .. import dtypes
from ..dtypes import DType, bool_
from ..rows.dag import Builder, Value
from ..rows.dialect import Dialect
from ..rows.expression import parse
from ..rows.kinds import compute_dtype
from ..rows.prelude import SHORT, load, prelude, store
from ..rows.render import native, statements
from ..rows.row import Reduction
from .shell import Kernel

SHAPES = ("group", "lane", "partial", "finish")
RANK = 8
BLOCK, LEVELS = 16, 4  # states that a thread combines one after the other, and how often blocks of blocks are made
GROUP = 256  # the most threads that a group may have


def accumulator(row: Reduction, x: DType, outs: Sequence[DType]) -> DType:
    """The dtype that the state's numbers have: float32 for 16-bit floats, that of the output for sums of integers."""
    if x.is_floating:
        return compute_dtype(x)
    if row.integers == "int64":
        return outs[0]
    return dtypes.float32 if row.integers == "float32" else compute_dtype(x) if x.kind != "b" else dtypes.int32


class State:
    """The texts of one reduction: types of the state's parts and the lines that map, combine and finish."""

    def __init__(self, row: Reduction, dialect: Dialect, x: DType, outs: Sequence[DType]) -> None:
        self.row, self.dialect, self.x, self.outs = row, dialect, x, outs
        self.number = accumulator(row, x, outs)
        self.builder = Builder(
            self.number, native=native, limits=x if x.kind in "iu" and row.integers == "same" else self.number
        )
        self.dtypes = {s: dtypes.int64 if s in row.index else self.number for s in row.state}

    def lines(
        self, texts: Sequence[str], names: Mapping[str, DType], into: Sequence[tuple[str, str]], hints: Sequence[DType]
    ) -> list[str]:
        """Statements that assign each text's value; `into` holds (target, "type " or nothing)."""
        known = {name: self.builder.name(name, dtype) for name, dtype in names.items()}
        values: list[Value] = [
            self.builder.build(parse(t, tuple(names)), known, hint) for t, hint in zip(texts, hints, strict=True)
        ]
        more, results = statements(self.dialect, values, {name: f"v_{name}" for name in names})
        return [*more, *(f"{type_}{target} = {text};" for (target, type_), text in zip(into, results, strict=True))]

    def type_of(self, state: str) -> str:
        """What a part of the state is declared as."""
        return self.dialect.type_of(self.dtypes[state])

    def functions(self, tag: str) -> str:
        """The state's struct, and the functions identity, of, joined and write."""
        row, dialect, hints = self.row, self.dialect, [self.dtypes[s] for s in self.row.state]
        function, struct, long = dialect.function, f"{tag}_state", dialect.types["int64"]
        fields = " ".join(f"{self.type_of(s)} {s};" for s in row.state)
        into = [(f"r.{s}", "") for s in row.state]
        pairs = {f"{s}{side}": self.dtypes[s] for side in "12" for s in row.state}
        unpack = [
            f"const {self.type_of(s)} v_{s}{side} = {name}.{s};"
            for side, name in (("1", "left"), ("2", "right"))
            for s in row.state
        ]
        element = f"const {dialect.type_of(self.number)} v_x = {load(dialect, self.x, self.number, 's_x')};"
        outs = [f"{dialect.memory}{dialect.storage_of(d)} *out{k}" for k, d in enumerate(self.outs)]
        finish_names = {**self.dtypes, "n": self.number}
        finished = [self._finish_dtype(text, finish_names) for text in row.finish]
        results = [(f"r{k}", f"const {dialect.type_of(d)} ") for k, d in enumerate(finished)]
        finish = [
            *(f"const {self.type_of(s)} v_{s} = state.{s};" for s in row.state),
            f"const {dialect.type_of(self.number)} v_n = ({dialect.type_of(self.number)})n;",
            *self.lines(row.finish, finish_names, results, [self._hint(d) for d in self.outs]),
            *(f"out{k}[at] = {store(dialect, finished[k], d, f'r{k}')};" for k, d in enumerate(self.outs)),
        ]
        parts = (
            (f"{struct} {tag}_identity(void)", [f"{struct} r;", *self.lines(row.identity, {}, into, hints), "return r;"]),
            (f"{struct} {tag}_of({dialect.storage_of(self.x)} s_x, {long} v_k)",
             [f"{struct} r;", element, *self.lines(row.map, {"x": self.number, "k": dtypes.int64}, into, hints), "return r;"]),
            (f"{struct} {tag}_joined({struct} left, {struct} right)",
             [f"{struct} r;", *unpack, *self.lines(row.combine, pairs, into, hints), "return r;"]),
            (f"void {tag}_write({struct} state, {long} n, {', '.join(outs)}, {long} at)", finish),
        )  # fmt: skip
        text = f"typedef struct {{ {fields} }} {struct};\n"
        for head, lines in parts:
            text += f"{function} {head}\n{{\n" + "".join(f"    {line}\n" for line in lines) + "}\n"
        return f"#ifndef VSL_{tag}\n#define VSL_{tag}\n{text}#endif\n"

    def _hint(self, out: DType) -> DType:
        return self.number if out.is_floating or self.number.is_floating or not self.row.index else dtypes.int64

    def _finish_dtype(self, text: str, names: Mapping[str, DType]) -> DType:
        known = {name: self.builder.name(name, dtype) for name, dtype in names.items()}
        return self.builder.build(parse(text, tuple(names)), known).dtype


def render_reduction(row: Reduction, dialect: Dialect, x: DType, outs: Sequence[DType], shape: str) -> Kernel:
    """The kernel of a reduction of x's dtype into outputs of these dtypes, in one of SHAPES.

    Parameters of the entry point, after a struct (rank, kept_rank, size[8], stride[8], at, kept, reduced: int64):
      group, lane  layout, x, then each output and its offset
      partial      layout, parts, x, then an array of each state part: element (output * parts + part); where groups count, then
                   a counter an output (uint64, 0), and each output and its offset
      finish       layout (kept and reduced are read), parts, each state array, then each output and its offset
    Errors:  RowError if the reduction has no meaning in the dtype
    """
    state = State(row, dialect, x, outs)
    tag = "_".join([row.name, SHORT[x.name], *(SHORT[d.name] for d in outs)])
    text = prelude(dialect, [state.number, dtypes.int64], [x, *outs]) + state.functions(tag) + layout_of(dialect)
    bodies = {"group": _group, "lane": _lane, "partial": _partial, "finish": _finish}
    parameters, lines = bodies[shape](state, tag)
    body = "".join(f"    {line}\n" for line in lines)
    entry = f"{dialect.kernel} {tag}_{shape}({', '.join(parameters)})\n{{\n{body}}}\n"
    return Kernel(f"{tag}_{shape}", text + run_of(dialect, tag, dialect.storage_of(x)) + entry, (), ())


def layout_of(dialect: Dialect) -> str:
    """The struct, and where an output's elements begin and the k-th of them lies."""
    long, uint = dialect.types["int64"], dialect.types["uint32"]
    return f"""#ifndef VSL_reduced
#define VSL_reduced
typedef struct {{ {long} rank; {long} kept_rank; {long} size[{RANK}]; {long} stride[{RANK}]; {long} at; {long} kept; {long} reduced; }} reduced;
{dialect.function} {long} place(const reduced *layout, {long} first, {long} last, {long} k)
{{
    {long} at = 0;
    if (last - first < 2) return (last > first) ? k * layout->stride[first] : at;
    if (k >= 4294967296{dialect.suffixes["int64"]}) {{ /* 64-bit division is slow, so only where it must be */
        for ({long} d = last - 1; d > first; --d) {{
            at += (k % layout->size[d]) * layout->stride[d];
            k /= layout->size[d];
        }}
        return at + k * layout->stride[first];
    }}
    {uint} rest = ({uint})k;
    for ({long} d = last - 1; d > first; --d) {{
        const {uint} size = ({uint})layout->size[d];
        at += ({long})(rest % size) * layout->stride[d];
        rest /= size;
    }}
    return at + ({long})rest * layout->stride[first];
}}
#endif
"""


def run_of(dialect: Dialect, tag: str, x: str) -> str:
    """What one thread makes of elements begin, begin + step, ... below end: 16 by 16 by 16 by 16 by the rest."""
    long, int_ = dialect.types["int64"], dialect.types["int32"]
    place = "place(layout, layout->kept_rank, layout->rank, k)"
    lines = [
        f"for ({int_} i = 0; (i < {BLOCK}) && (k < end); ++i, k += step)",
        f"    level0 = {tag}_joined(level0, {tag}_of(p_x[base + {place}], k));",
    ]
    for level in range(1, LEVELS):
        inner = [f"{tag}_state level{level - 1} = {tag}_identity();", *lines]
        lines = [
            f"for ({int_} i{level} = 0; (i{level} < {BLOCK}) && (k < end); ++i{level}) {{",
            *(f"    {line}" for line in inner),
            f"    level{level} = {tag}_joined(level{level}, level{level - 1});",
            "}",
        ]
    body = "".join(f"        {line}\n" for line in [f"{tag}_state level{LEVELS - 1} = {tag}_identity();", *lines])
    return f"""#ifndef VSL_{tag}_run
#define VSL_{tag}_run
{dialect.function} {tag}_state {tag}_run(const {dialect.memory}{x} *p_x, const reduced *layout, {long} base, {long} begin, {long} end, {long} step)
{{
    {tag}_state all = {tag}_identity();
    {long} k = begin;
    while (k < end) {{
{body}        all = {tag}_joined(all, level{LEVELS - 1});
    }}
    return all;
}}
#endif
"""


def outputs_of(state: State) -> tuple[list[str], str]:
    """Output parameters, and the arguments of write."""
    dialect, long = state.dialect, state.dialect.types["int64"]
    parameters = [
        part
        for k, d in enumerate(state.outs)
        for part in (f"{dialect.memory}{dialect.storage_of(d)} *out{k}", f"{long} out{k}_at")
    ]
    return parameters, ", ".join(f"out{k} + out{k}_at" for k in range(len(state.outs)))


def _base(long: str) -> str:
    return f"const {long} base = layout.at + place(&layout, 0, layout.kept_rank, o);"


def _tree(state: State, tag: str) -> list[str]:
    """The group's states joined pairwise, in order; thread 0 holds the result in `mine`."""
    dialect = state.dialect
    lane, size = dialect.index["local"], dialect.index["group_size"]
    return [
        f"held[{lane}] = mine;",
        f"for ({dialect.types['uint32']} width = 1; width < {size}; width *= 2) {{",
        f"    {dialect.barrier}",
        f"    if (({lane} % (2 * width) == 0) && ({lane} + width < {size})) held[{lane}] = {tag}_joined(held[{lane}], held[{lane} + width]);",
        "}",
        f"mine = held[{lane}];",
        dialect.barrier,
    ]


def _group(state: State, tag: str) -> tuple[list[str], list[str]]:
    dialect, long = state.dialect, state.dialect.types["int64"]
    outs, places = outputs_of(state)
    index = dialect.index
    return ["reduced layout", f"const {dialect.memory}{dialect.storage_of(state.x)} *p_x", *outs], [
        f"{dialect.shared}{tag}_state held[{GROUP}];",
        f"for ({long} o = {index['group']}; o < layout.kept; o += {index['groups']}) {{",
        f"    {_base(long)}",
        f"    {tag}_state mine = {tag}_run(p_x, &layout, base, {index['local']}, layout.reduced, {index['group_size']});",
        *(f"    {line}" for line in _tree(state, tag)),
        f"    if ({index['local']} == 0) {tag}_write(mine, layout.reduced, {places}, o);",
        "}",
    ]


def _lane(state: State, tag: str) -> tuple[list[str], list[str]]:
    dialect, long = state.dialect, state.dialect.types["int64"]
    outs, places = outputs_of(state)
    return ["reduced layout", f"const {dialect.memory}{dialect.storage_of(state.x)} *p_x", *outs], [
        f"for ({long} o = {dialect.index['global_x']}; o < layout.kept; o += {dialect.index['threads_x']}) {{",
        f"    {_base(long)}",
        f"    {tag}_write({tag}_run(p_x, &layout, base, 0, layout.reduced, 1), layout.reduced, {places}, o);",
        "}",
    ]


def _partial(state: State, tag: str) -> tuple[list[str], list[str]]:
    dialect, long = state.dialect, state.dialect.types["int64"]
    index = dialect.index
    states, last = left_for_the_last(state, tag)
    return ["reduced layout", f"{long} parts", f"const {dialect.memory}{dialect.storage_of(state.x)} *p_x", *states], [
        f"{dialect.shared}{tag}_state held[{GROUP}];",
        f"const {long} share = (layout.reduced + parts - 1) / parts;",
        f"for ({long} p = {index['group']}; p < layout.kept * parts; p += {index['groups']}) {{",
        f"    const {long} o = p / parts, begin = (p % parts) * share;",
        f"    const {long} end = (begin + share < layout.reduced) ? begin + share : layout.reduced;",
        f"    {_base(long)}",
        f"    {tag}_state mine = {tag}_run(p_x, &layout, base, begin + {index['local']}, end, {index['group_size']});",
        *(f"    {line}" for line in _tree(state, tag)),
        f"    if ({index['local']} == 0) {{ {' '.join(f'state_{s}[p] = mine.{s};' for s in state.row.state)} }}",
        *(f"    {line}" for line in last),
        "}",
    ]


def left_for_the_last(state: State, tag: str) -> tuple[list[str], list[str]]:
    """Parameters of a kernel that leaves states, and what its groups do once theirs is left: `held`, o and parts are there.

    The fences put a group's state before its count, and the last one's reading behind all counts.
    """
    dialect, index = state.dialect, state.dialect.index
    states = [f"{dialect.memory}{state.type_of(s)} *state_{s}" for s in state.row.state]
    if not dialect.counts:
        return states, []
    ulong, uint = dialect.types["uint64"], dialect.types["uint32"]
    outs, places = outputs_of(state)
    return [*states, f"{ulong} *counters", *outs], [
        f"{dialect.shared}{uint} is_last;",
        f"if ({index['local']} == 0) {{",
        "    __threadfence();",
        f"    is_last = (atomicAdd(counters + o, ({ulong})1) + 1 == ({ulong})parts) ? 1 : 0;",
        "}",
        dialect.barrier,
        "if (is_last) {",
        "    __threadfence();",
        *(f"    {line}" for line in _parts_joined(state, tag)),
        f"    if ({index['local']} == 0) {{",
        "        counters[o] = 0;",
        f"        {tag}_write(mine, layout.reduced, {places}, o);",
        "    }",
        "}",
        dialect.barrier,
    ]


def _parts_joined(state: State, tag: str) -> list[str]:
    """The states of output o, joined by a group."""
    long, index = state.dialect.types["int64"], state.dialect.index
    return [
        f"{tag}_state mine = {tag}_identity();",
        f"for ({long} p = {index['local']}; p < parts; p += {index['group_size']}) {{",
        f"    {tag}_state part; {' '.join(f'part.{s} = state_{s}[o * parts + p];' for s in state.row.state)}",
        f"    mine = {tag}_joined(mine, part);",
        "}",
        *_tree(state, tag),
    ]


def _finish(state: State, tag: str) -> tuple[list[str], list[str]]:
    dialect, long = state.dialect, state.dialect.types["int64"]
    index = dialect.index
    outs, places = outputs_of(state)
    states = [f"const {dialect.memory}{state.type_of(s)} *state_{s}" for s in state.row.state]
    return ["reduced layout", f"{long} parts", *states, *outs], [
        f"{dialect.shared}{tag}_state held[{GROUP}];",
        f"for ({long} o = {index['group']}; o < layout.kept; o += {index['groups']}) {{",
        *(f"    {line}" for line in _parts_joined(state, tag)),
        f"    if ({index['local']} == 0) {tag}_write(mine, layout.reduced, {places}, o);",
        "}",
    ]


def reduction_dtypes(row: Reduction) -> list[tuple[DType, tuple[DType, ...]]]:
    """Every (input dtype, output dtypes) that a reduction admits; indices come out as int64, sums of integers widened."""
    admitted = {"n": "iuf", "f": "f", "b": "b"}[row.signature.inputs] + ("b" if row.booleans else "")
    found = []
    for x in dtypes.ALL:
        if x.kind in admitted:
            number = x
            if not x.is_floating and row.integers != "same":
                number = (
                    dtypes.float32 if row.integers == "float32" else dtypes.uint64 if x.kind == "u" else dtypes.int64
                )
            letters = {"b": bool_, "i": dtypes.int64}
            found.append((x, tuple(letters.get(letter, number) for letter in row.signature.outputs)))
    return found
