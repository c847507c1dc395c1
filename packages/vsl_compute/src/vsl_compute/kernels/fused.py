"""Fused rows as kernels: a few threads ("lanes") a row hold its elements in registers and combine them through shared memory.

A lane holds `chunks` times `width` elements; chunk k of lane i begins at element (k * lanes + i) * width, so neighbours
read neighbours. A reduction combines a lane's elements component by component, then the lanes in a butterfly in which
all of them compute the same: one row and shape always give the same bits. Arrays are dense, rows after one another.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ..dtypes import DType
from ..rows.dialect import Dialect
from ..rows.fused import PLACE, Fused, LoweredFused, Step, lower_fused, output_dtypes
from ..rows.prelude import SHORT, load, prelude, store
from ..rows.render import native, statements
from .indexing import REPORT
from .shell import Kernel, four

HELD, MOST = 16, 32  # elements that a lane holds: about, and at most, for they take registers


@dataclass(frozen=True)
class Geometry:
    """How a row is shared out; `exact` says that no lane reaches beyond its end."""

    width: int
    chunks: int
    lanes: int
    group: int
    exact: bool

    @property
    def rows(self) -> int:
        """Rows of one group of threads."""
        return self.group // self.lanes


def geometry(n: int, *, vectors: bool, aligned: bool, group: int) -> Geometry | None:
    """For rows of n elements and groups of `group` threads; None if a row does not fit.

    `vectors` says that the device is one for which kernels are made to measure: elsewhere one shape serves all rows.
    """
    if not vectors:
        return Geometry(1, HELD, group, group, False) if n <= HELD * group else None
    width = 4 if aligned and n % 4 == 0 else 1
    units = -(-n // width)
    lanes = 1
    while lanes < group and lanes * (HELD // width) < units:
        lanes *= 2
    chunks = 1 << (-(-units // lanes) - 1).bit_length()  # powers of two, so that there are few kernels
    if chunks * width > MOST:
        return None
    return Geometry(width, chunks, lanes, group, chunks * lanes == units)


def render_fused(
    row: Fused,
    dialect: Dialect,
    stored: Mapping[str, DType],
    shape: Geometry,
    *,
    absent: Collection[str] = (),
    shared: Collection[str] = (),
) -> Kernel:
    """The kernel of a fused row for these storage dtypes (by letter), arguments in `absent` left out.

    Of `single` arguments, those in `shared` are one number for all rows. Parameters of the entry point: rows, n, where the
    row reports an index slot and report (kernels/indexing.py), then each output, each argument, each with its offset; then
    the hoisted numbers.
    Errors:  RowError if a function has no form in the dtype
    """
    lowered = lower_fused(row, stored, native, absent=absent)
    return _Text(row, dialect, stored, shape, lowered, frozenset(shared)).kernel()


class _Text:
    def __init__(self, row: Fused, dialect: Dialect, stored: Mapping[str, DType], shape: Geometry, lowered: LoweredFused,
                 shared: frozenset[str]) -> None:  # fmt: skip
        self.row, self.dialect, self.shape, self.lowered, self.shared = row, dialect, shape, lowered, shared
        self.outs = dict(zip(row.outputs, output_dtypes(row, stored), strict=True))
        letters = dict(zip(row.args, row.signature.inputs, strict=True))
        self.args = {name: stored[letters[name]] for name in lowered.read}
        self.number = dialect.type_of(lowered.number)
        self.each = {a for a in row.args if a not in row.single} | {s.target for s in row.statements if s.each}
        self.turns = 0  # steps of butterflies: which half of the shared array the next one uses

    def kernel(self) -> Kernel:
        d, shape, long = self.dialect, self.shape, self.dialect.types["int64"]
        dtypes = [*self.outs.values(), *self.args.values()]
        tag = "_".join([self.row.name, *(SHORT[t.name] for t in dict.fromkeys(dtypes)), *self.args,
                        str(shape.width), str(shape.chunks), str(shape.lanes), str(shape.group), "exact" if shape.exact else "part",
                        *sorted(self.shared)])  # fmt: skip
        parameters = [f"{long} rows", f"{long} n"]
        if self.row.report is not None:
            parameters += [f"{long} slot", f"{d.memory}{long} *report"]
        for name, dtype in self.outs.items():
            parameters += [f"{d.memory}{d.storage_of(dtype)} *out_{name}", f"{long} out_{name}_at"]
        for name, dtype in self.args.items():
            parameters += [f"const {d.memory}{d.storage_of(dtype)} *p_{name}", f"{long} p_{name}_at"]
        parameters += [f"{self.number} {name}" for name, _ in self.lowered.hoisted]
        body = [
            *([f"{d.shared}{self.number} held[{2 * shape.group}];"] if shape.lanes > 1 else []),
            f"const {d.types['uint32']} me = {d.index['local']}, lane = me % {shape.lanes};",
            f"for ({long} g = {d.index['group']}; g * {shape.rows} < rows; g += {d.index['groups']}) {{",
            f"    const {long} at = g * {shape.rows} + me / {shape.lanes}, row = (at < rows) ? at : rows - 1;",
            "    const bool there = (at < rows);",
            *(f"    {line}" for line in self._lines()),
            *([f"    {d.barrier}"] if shape.lanes > 1 else []),
            "}",
        ]
        head = prelude(d, [self.lowered.number], dtypes)
        fours = "".join(sorted({four(d, t) for t in dtypes})) if shape.width > 1 else ""
        text = "".join(f"    {line}\n" for line in body)
        entry = f"{d.kernel} {tag}({', '.join(parameters)})\n{{\n{text}}}\n"
        number = self.lowered.number
        return Kernel(tag, head + fours + entry, self.lowered.hoisted, (number,) * len(self.lowered.hoisted))

    def _lines(self) -> list[str]:
        lines = []
        for name, dtype in self.args.items():
            lines += self._loads(name, dtype)
        for step in self.lowered.steps:
            lines += self._step(step)
        for name, dtype in self.outs.items():
            lines += self._stores(name, dtype)
        if self.row.report is not None:
            index, wrong = self.row.report
            k = f"p_{index}[p_{index}_at{'' if index in self.shared else ' + row'}]"
            lines.append(
                f"if (there && lane == 0 && v_{wrong} != 0) {{ const {self.dialect.types['int64']} k = {k}; {REPORT} }}"
            )
        return lines

    def _chunks(self, lines: list[str]) -> list[str]:
        """A loop over a lane's chunks; `unit` counts width elements."""
        uint = self.dialect.types["uint32"]
        return [
            f"for ({uint} k = 0; k < {self.shape.chunks}; ++k) {{",
            f"    const {uint} unit = k * {self.shape.lanes} + lane;",
            *(f"    {line}" for line in lines),
            "}",
        ]

    def _inside(self) -> str:
        return "1" if self.shape.exact else f"(unit * {self.shape.width} < n)"

    def _loads(self, name: str, dtype: DType) -> list[str]:
        d, width, number = self.dialect, self.shape.width, self.lowered.number
        base = f"p_{name} + p_{name}_at"
        if name in self.row.single:
            place = f"p_{name}[p_{name}_at{'' if name in self.shared else ' + row'}]"
            return [f"const {self.number} v_{name} = {load(d, dtype, number, place)};"]
        if name not in self.row.along:
            base += " + row * n"
        place = f"{base} + {'unit' if self.shape.exact else f'({self._inside()} ? unit : 0)'} * {width}"
        declared = f"{self.number} v_{name}[{self.shape.chunks * width}];"
        if width == 1:
            return [declared, *self._chunks([f"v_{name}[k] = {load(d, dtype, number, f'*({place})')};"])]
        loads = [f"v_{name}[k * 4 + {c}] = {load(d, dtype, number, f'f.at[{c}]')};" for c in range(4)]
        type_ = f"four_{SHORT[dtype.name]}"
        return [declared, *self._chunks([f"const {type_} f = *(const {d.memory}{type_} *)({place});", *loads])]

    def _value(self, step: Step) -> tuple[list[str], str]:
        """Lines and expression of a step for element e."""
        names = {n: f"v_{n}[e]" if n in self.each else f"v_{n}" for n in (*self.row.args, *(s.target for s in self.row.statements))}  # fmt: skip
        shape, width = self.shape, self.shape.width
        names[PLACE] = f"(({self.number})((e / {width} * {shape.lanes} + lane) * {width} + e % {width}))"
        more, (text,) = statements(self.dialect, [step.value], names | {h: h for h, _ in self.lowered.hoisted})
        return more, text

    def _step(self, step: Step) -> list[str]:
        s, d, uint = step.statement, self.dialect, self.dialect.types["uint32"]
        count = self.shape.chunks * self.shape.width
        if s.first:
            place = f"p_{s.text}[p_{s.text}_at + row * n]"
            return [f"const {self.number} v_{s.target} = {load(d, self.args[s.text], self.lowered.number, place)};"]
        more, text = self._value(step)
        if s.each:
            loop = [f"for ({uint} e = 0; e < {count}; ++e) {{", *(f"    {line}" for line in more), f"    v_{s.target}[e] = {text};", "}"]  # fmt: skip
            return [f"{self.number} v_{s.target}[{count}];", *loop]
        if s.reduction is None:
            return [
                f"{self.number} v_{s.target};",
                "{",
                *(f"    {line}" for line in more),
                f"    v_{s.target} = {text};",
                "}",
            ]
        return self._reduced(step, more, text)

    def _joined(self, step: Step, left: str, right: str) -> str:
        assert step.joined is not None
        _, (text,) = statements(self.dialect, [step.joined], {"s1": left, "s2": right})
        return text

    def _reduced(self, step: Step, more: list[str], text: str) -> list[str]:
        d, shape, uint, target = self.dialect, self.shape, self.dialect.types["uint32"], step.statement.target
        assert step.identity is not None
        _, (identity,) = statements(d, [step.identity], {})
        inner = [
            f"for ({uint} c = 0; c < {shape.width}; ++c) {{",
            f"    const {uint} e = k * {shape.width} + c;",
            *(f"    {line}" for line in more),
            f"    const {self.number} s = {text};",
            f"    sums[c] = {self._joined(step, 'sums[c]', 's')};",
            "}",
        ]
        if not shape.exact:
            inner = [f"if ({self._inside()}) {{", *(f"    {line}" for line in inner), "}"]
        lines = [
            f"{self.number} v_{target};",
            "{",
            f"    {self.number} sums[{shape.width}];",
            f"    for ({uint} c = 0; c < {shape.width}; ++c) sums[c] = {identity};",
            *(f"    {line}" for line in self._chunks(inner)),
        ]
        if shape.width == 4:
            lines += [
                f"    sums[{a}] = {self._joined(step, f'sums[{a}]', f'sums[{b}]')};"
                for a, b in ((0, 1), (2, 3), (0, 2))
            ]
        lines.append(f"    {self.number} mine = sums[0];")
        distance = 1
        while distance < shape.lanes:
            half = f"{(self.turns % 2) * shape.group} + "
            lines += [
                f"    held[{half}me] = mine;",
                f"    {d.barrier}",
                "    {",
                f"        const {self.number} other = held[{half}(me ^ {distance})];",
                f"        const {self.number} low = (me & {distance}) ? other : mine, high = (me & {distance}) ? mine : other;",
                f"        mine = {self._joined(step, 'low', 'high')};",
                "    }",
            ]
            self.turns += 1
            distance *= 2
        return [*lines, f"    v_{target} = mine;", "}"]

    def _stores(self, name: str, dtype: DType) -> list[str]:
        d, width, number = self.dialect, self.shape.width, self.lowered.number
        if name not in self.each:
            return [
                f"if (there && lane == 0) out_{name}[out_{name}_at + row] = {store(d, number, dtype, f'v_{name}')};"
            ]
        inside = "there" if self.shape.exact else f"there && {self._inside()}"
        place = f"out_{name} + out_{name}_at + row * n + unit * {width}"
        if width == 1:
            return self._chunks([f"if ({inside}) *({place}) = {store(d, number, dtype, f'v_{name}[k]')};"])
        type_ = f"four_{SHORT[dtype.name]}"
        fill = [f"r.at[{c}] = {store(d, number, dtype, f'v_{name}[k * 4 + {c}]')};" for c in range(4)]
        lines = [f"{type_} r;", *fill, f"*({d.memory}{type_} *)({place}) = r;"]
        return self._chunks([f"if ({inside}) {{", *(f"    {line}" for line in lines), "}"])
