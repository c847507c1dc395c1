"""Reductions at the speed of memory: neighbours read as vectors by several threads ("lanes") an output, and columns.

  rows     the reduced elements are rows of `inner` neighbours, `outer` of them a `step` apart: a lane takes every lanes-th
           vector, RUNS at a time so that their loads are under way together; a butterfly in shared memory joins the lanes
  columns  neighbouring threads take neighbouring outputs, likewise several elements at a time; states only
Both cut an output's elements into `parts` and may leave states for `finish` (kernels/reduce.py). The order depends on
shapes alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..dtypes import DType, int64
from ..rows.dialect import Dialect
from ..rows.prelude import SHORT, prelude
from ..rows.row import Reduction
from .reduce import State, layout_of, left_for_the_last, outputs_of
from .shell import Kernel, four

RUNS = {4: 4, 1: 8}  # vectors that a lane loads before it combines them, by their width


@dataclass(frozen=True)
class RowShape:
    """Elements a vector, lanes an output, threads a group, whether the rows are apart, whether states are left.

    A group that leaves states works on one output, so has as many lanes as threads.
    """

    width: int
    lanes: int
    group: int
    stepped: bool
    partial: bool

    @property
    def outputs(self) -> int:
        """Outputs (or parts of them) of one group."""
        return self.group // self.lanes


def render_rows(row: Reduction, dialect: Dialect, x: DType, outs: Sequence[DType], shape: RowShape) -> Kernel:
    """The kernel over neighbours.

    Parameters of the entry point: the layout of render_reduction, then as int64 reduced (in vectors), parts, inner (in
    vectors), step; x; then each output and its offset or, if states are left, what `partial` there has after x.
    """
    state = State(row, dialect, x, outs)
    tag = "_".join([row.name, SHORT[x.name], *(SHORT[d.name] for d in outs)])
    long, uint, index = dialect.types["int64"], dialect.types["uint32"], dialect.index
    width, lanes, runs = shape.width, shape.lanes, RUNS[shape.width]
    parameters, places = outputs_of(state)
    last: list[str] = []
    if shape.partial:
        parameters, last = left_for_the_last(state, tag)
        leave = " ".join(f"state_{s}[number] = mine.{s};" for s in row.state)
    else:
        leave = f"{tag}_write(mine, layout.reduced, {places}, number);"
    element = f"four_{SHORT[x.name]}" if width == 4 else dialect.storage_of(x)

    def loaded(name: str, k: str) -> str:
        at = f"({k} / inner) * step + ({k} % inner) * {width}" if shape.stepped else f"({long}){k} * {width}"
        return f"const {element} {name} = *(const {dialect.memory}{element} *)(p_x + base + {at});"

    def of(name: str, k: str) -> str:
        part = f"{name}.at[c]" if width == 4 else name
        return f"{tag}_of({part}, ({long})({k}) * {width} + c)"

    tree = [of(f"x{r}", f"k + {r * lanes}") for r in range(runs)]
    while len(tree) > 1:
        tree = [f"{tag}_joined({a}, {b})" for a, b in zip(tree[::2], tree[1::2], strict=True)]
    components = f"for ({dialect.types['int32']} c = 0; c < {width}; ++c)"
    body = [
        *([f"{dialect.shared}{tag}_state held[{2 * shape.group}];"] if lanes > 1 else []),
        f"const {uint} me = {index['local']}, lane = me % {lanes};",
        f"const {long} total = layout.kept * parts;",
        f"for ({long} g = {index['group']}; g * {shape.outputs} < total; g += {index['groups']}) {{",
        f"    const {long} at = g * {shape.outputs} + me / {lanes}, number = (at < total) ? at : total - 1;",
        f"    const {long} o = number / parts;",
        f"    const {uint} share = ({uint})((reduced + parts - 1) / parts), begin = ({uint})(number % parts) * share;",
        f"    const {uint} end = (begin + share < ({uint})reduced) ? begin + share : ({uint})reduced;",
        f"    const {long} base = layout.at + place(&layout, 0, layout.kept_rank, o);",
        f"    {tag}_state sums[{width}];",
        f"    {components} sums[c] = {tag}_identity();",
        f"    {uint} k = begin + lane;",
        f"    for (; k + {(runs - 1) * lanes} < end; k += {runs * lanes}) {{",
        *(f"        {loaded(f'x{r}', f'(k + {r * lanes})')}" for r in range(runs)),
        f"        {components} sums[c] = {tag}_joined(sums[c], {tree[0]});",
        "    }",
        f"    for (; k < end; k += {lanes}) {{",
        f"        {loaded('x0', 'k')}",
        f"        {components} sums[c] = {tag}_joined(sums[c], {of('x0', 'k')});",
        "    }",
        *(
            [f"    sums[{a}] = {tag}_joined(sums[{a}], sums[{b}]);" for a, b in ((0, 1), (2, 3), (0, 2))]
            if width == 4
            else []
        ),
        f"    {tag}_state mine = sums[0];",
        *(f"    {line}" for line in _butterfly(state, tag, shape)),
        f"    if ((at < total) && (lane == 0)) {{ {leave} }}",
        *(f"    {line}" for line in last or ([dialect.barrier] if lanes > 1 else [])),
        "}",
    ]
    ends = "_".join([tag, "rows", str(width), str(lanes), str(shape.group), *(["stepped"] if shape.stepped else []),
                     *(["partial"] if shape.partial else [])])  # fmt: skip
    given = ["reduced layout", *(f"{long} {name}" for name in ("reduced", "parts", "inner", "step"))]
    given.append(f"const {dialect.memory}{dialect.storage_of(x)} *p_x")
    head = prelude(dialect, [state.number, int64], [x, *outs]) + state.functions(tag) + layout_of(dialect)
    text = "".join(f"    {line}\n" for line in body)
    entry = f"{dialect.kernel} {ends}({', '.join([*given, *parameters])})\n{{\n{text}}}\n"
    return Kernel(ends, head + (four(dialect, x) if width == 4 else "") + entry, (), ())


def _butterfly(state: State, tag: str, shape: RowShape) -> list[str]:
    """The lanes' states joined in order; every lane ends with the same in `mine`."""
    lines, distance, turn = [], 1, 0
    while distance < shape.lanes:
        half = f"{turn * shape.group} + "
        lines += [
            f"held[{half}me] = mine;",
            state.dialect.barrier,
            f"if (me & {distance}) mine = {tag}_joined(held[{half}(me ^ {distance})], mine);",
            f"else mine = {tag}_joined(mine, held[{half}(me ^ {distance})]);",
        ]
        distance, turn = 2 * distance, 1 - turn
    return lines


def render_columns(row: Reduction, dialect: Dialect, x: DType, outs: Sequence[DType]) -> Kernel:
    """The kernel over columns: (layout, parts, x, an array of each state part), element output * parts + part."""
    state = State(row, dialect, x, outs)
    tag = "_".join([row.name, SHORT[x.name], *(SHORT[d.name] for d in outs)])
    long, index = dialect.types["int64"], dialect.index
    states = [f"{dialect.memory}{state.type_of(s)} *state_{s}" for s in row.state]
    given = ["reduced layout", f"{long} parts", f"const {dialect.memory}{dialect.storage_of(x)} *p_x", *states]
    leave = " ".join(f"state_{s}[o * parts + p] = mine.{s};" for s in row.state)
    runs, element = RUNS[1], dialect.storage_of(x)

    def loaded(r: int) -> str:
        return f"const {element} x{r} = p_x[base + place(&layout, layout.kept_rank, layout.rank, k + {r} * parts)];"

    tree = [f"{tag}_of(x{r}, k + {r} * parts)" for r in range(runs)]
    while len(tree) > 1:
        tree = [f"{tag}_joined({a}, {b})" for a, b in zip(tree[::2], tree[1::2], strict=True)]
    body = [
        f"for ({long} t = {index['global_x']}; t < layout.kept * parts; t += {index['threads_x']}) {{",
        f"    const {long} o = t % layout.kept, p = t / layout.kept;",
        f"    const {long} base = layout.at + place(&layout, 0, layout.kept_rank, o);",
        f"    {tag}_state mine = {tag}_identity();",
        f"    {long} k = p;",
        f"    for (; k + {runs - 1} * parts < layout.reduced; k += {runs} * parts) {{",
        *(f"        {loaded(r)}" for r in range(runs)),
        f"        mine = {tag}_joined(mine, {tree[0]});",
        "    }",
        "    for (; k < layout.reduced; k += parts) {",
        f"        {loaded(0)}",
        f"        mine = {tag}_joined(mine, {tag}_of(x0, k));",
        "    }",
        f"    {leave}",
        "}",
    ]
    head = prelude(dialect, [state.number, int64], [x, *outs]) + state.functions(tag) + layout_of(dialect)
    text = "".join(f"    {line}\n" for line in body)
    entry = f"{dialect.kernel} {tag}_columns({', '.join(given)})\n{{\n{text}}}\n"
    return Kernel(f"{tag}_columns", head + entry, (), ())
