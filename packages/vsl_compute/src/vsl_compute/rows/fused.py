"""Fused rows: statements over the elements along one axis, where a reduction of them is a statement of its own.

    "peak = max(x)", "e = exp(x - peak)", "total = sum(e)", "y = e / total"

A kernel keeps the elements of one row in registers, so each array is read and written once, whatever the number of
statements. What a statement makes has a value an element where it reads one that has, else one value a row; first(x) is
the row's first element of an argument. Arguments are arrays of elements, unless they are named in `along` (one value for
each place of the axis, as a weight has) or in `single` (one a row, as a mean is); an argument left out counts as the number
that `absent` gives. `n`, the count, is a scalar; `k` is an element's place in its row. A `report` names an index and a
statement that is not 0 where the index is outside its axis, which is an IndexRangeError at the next read. A composite of the
op table that has a fused row of the same name means the same; which of them runs is a backend's choice.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

from ..dtypes import DType, float32
from ..errors import RowError
from .dag import Builder, Macro, Value
from .expression import functions_in, names_in, parse
from .hoist import Hoisted, hoist_all
from .kinds import Native, compute_dtype, number_dtype
from .reductions import TABLE as REDUCTIONS
from .row import Reduction
from .signature import Signature

_REDUCED = re.compile(r"(sum|max|min|prod)\((.*)\)")
_FIRST = re.compile(r"first\((\w+)\)")
COUNT, PLACE = "n", "k"


@dataclass(frozen=True)
class Statement:
    """target = text, reduction(text) or first(text); `each` says whether the target has a value an element."""

    target: str
    reduction: Reduction | None
    text: str
    each: bool
    first: bool = False


@dataclass(frozen=True, eq=False)
class Fused:
    """One entry; its outputs are targets of statements."""

    name: str
    signature: Signature
    args: tuple[str, ...]
    outputs: tuple[str, ...]
    along: frozenset[str]
    single: frozenset[str]
    absent: Mapping[str, float]
    scalars: tuple[str, ...]
    texts: tuple[str, ...]
    report: tuple[str, str] | None = None  # an argument of `single`, and what says that it is wrong

    @cached_property
    def statements(self) -> tuple[Statement, ...]:
        """The texts taken apart; RowError for one that no kernel can say."""
        each = {PLACE, *(name for name in self.args if name not in self.single)}
        known, found = [*self.args, *self.scalars, COUNT, PLACE], []
        for line in self.texts:
            target, _, text = (part.strip() for part in line.partition("="))
            reduced, first = _REDUCED.fullmatch(text), _FIRST.fullmatch(text)
            text = reduced[2] if reduced else first[1] if first else text
            read = names_in(parse(text, tuple(known)))
            wide = bool(read & each)
            if target in known or ((reduced or first) and not wide) or (first and text not in self.args):
                raise RowError(f"fused {self.name!r}: {line!r} assigns a name twice, or takes one number for many")
            reduction = REDUCTIONS[reduced[1]] if reduced else None
            found.append(Statement(target, reduction, text, wide and not reduced and not first, bool(first)))
            known.append(target)
            if found[-1].each:
                each.add(target)
        if not set(self.outputs) <= {s.target for s in found}:
            raise RowError(f"fused {self.name!r}: outputs {self.outputs} are not all assigned")
        return tuple(found)

    @cached_property
    def functions(self) -> frozenset[str]:
        """Names of the row functions that it calls."""
        names = (*self.args, *self.scalars, COUNT, PLACE, *(s.target for s in self.statements))
        return functions_in(*(parse(s.text, names) for s in self.statements)) | {"maximum", "minimum"}

    def is_each(self, output: str) -> bool:
        """Whether an output has a value an element."""
        return next(s.each for s in self.statements if s.target == output)


@dataclass(frozen=True)
class Step:
    """A statement as Values. A reduction has `state` for an element, `joined` over s1 and s2, `identity` and `finished`."""

    statement: Statement
    value: Value
    identity: Value | None = None
    joined: Value | None = None


@dataclass(frozen=True)
class LoweredFused:
    """A fused row for given dtypes; names in its Values are arguments, earlier targets, hoisted numbers, s1 and s2."""

    number: DType
    steps: tuple[Step, ...]
    hoisted: Hoisted
    read: tuple[str, ...]  # arguments that are loaded


def lower_fused(row: Fused, stored: Mapping[str, DType], native: Native, *, absent: Collection[str] = (),
                macros: Mapping[str, Macro] | None = None) -> LoweredFused:  # fmt: skip
    """The Values of a fused row for these storage dtypes (by letter), arguments in `absent` left out."""
    number = number_dtype(row.name, stored)
    scalars = (*row.scalars, COUNT)
    names = (*row.args, *scalars, PLACE, *(s.target for s in row.statements))
    trees, hoisted = hoist_all([parse(s.text, names) for s in row.statements], scalars)
    builder = Builder(number, native=native, macros=macros, free=[name for name, _ in hoisted])
    known = {
        name: builder.constant(row.absent[name], number) if name in absent else builder.name(name, number)
        for name in row.args
    }
    known[PLACE] = builder.name(PLACE, number)
    steps = []
    for statement, tree in zip(row.statements, trees, strict=True):
        value = builder.build(tree, known)
        steps.append(Step(statement, value, *_combination(builder, statement.reduction)))
        known[statement.target] = builder.name(statement.target, number)
    read = frozenset[str]().union(*(names_in(tree) for tree in trees))
    return LoweredFused(number, tuple(steps), hoisted, tuple(a for a in row.args if a in read and a not in absent))


def _combination(builder: Builder, reduction: Reduction | None) -> tuple[Value, ...]:
    """Identity and combine of a reduction whose state is the element itself."""
    if reduction is None:
        return ()
    (state,) = reduction.state
    pair = {f"{state}{side}": builder.name(f"s{side}", builder.number) for side in "12"}
    tree: ast.expr = parse(reduction.combine[0], tuple(pair))
    return builder.build(parse(reduction.identity[0], ()), {}), builder.build(tree, pair)


def fused(name: str, signature: str, args: str, outputs: str, *texts: str, along: str = "", single: str = "",
          absent: Mapping[str, float] | None = None, scalars: str = "", report: str = "") -> Fused:  # fmt: skip
    """Build one fused row from its texts."""
    return Fused(name, Signature.parse(signature), tuple(args.split()), tuple(outputs.split()), frozenset(along.split()),
                 frozenset(single.split()), absent or {}, tuple(scalars.split()), texts,
                 (report.split(maxsplit=1)[0], report.split()[1]) if report else None)  # fmt: skip


def output_dtypes(row: Fused, stored: Mapping[str, DType]) -> tuple[DType, ...]:
    """The outputs' dtypes: f is the elements', n what they are computed in, as moments are."""
    number = compute_dtype(stored.get("f", stored.get("n", float32)))
    return tuple(stored["f"] if letter == "f" else number for letter in row.signature.outputs)


_AFFINE = {"weight": 1.0, "bias": 0.0}
FUSED = (
    fused("softmax", "f>f", "x", "y", "peak = max(x)", "e = exp(x - peak)", "total = sum(e)", "y = e / total"),
    fused("softmax_backward", "ff>f", "g y", "dx", "projected = sum(g * y)", "dx = y * (g - projected)"),
    fused("attention_shares", "f>fn", "x", "y lse", "peak = max(x)", "start = where(peak == -inf, 0, peak)", "e = exp(x - start)",
          "total = sum(e)", "y = e / maximum(total, 1)", "lse = start + log(total)"),
    fused("log_softmax", "f>f", "x", "y", "peak = max(x)", "total = sum(exp(x - peak))", "y = x - peak - log(total)"),
    fused("log_softmax_backward", "ff>f", "g y", "dx", "total = sum(g)", "dx = g - exp(y) * total"),
    # differences from the first element: of equal elements the mean is exact (Chan, Golub & LeVeque 1983, shifted data)
    fused("layer_norm", "fnn>fnn", "x weight bias", "y mean variance",
          "start = first(x)", "away = x - start", "total = sum(away)", "shift = total / n", "mean = start + shift", "d = away - shift",
          "squares = sum(d * d)", "variance = squares / n", "rstd = 1 / sqrt(variance + eps)", "y = d * rstd * weight + bias",
          along="weight bias", absent=_AFFINE, scalars="eps"),
    fused("layer_norm_input", "ffnnn>f", "g x mean variance weight", "dx", "rstd = 1 / sqrt(variance + eps)", "xhat = (x - mean) * rstd",
          "gw = g * weight", "total = sum(gw)", "projected = sum(gw * xhat)", "a = total / n", "b = projected / n",
          "dx = (gw - a - xhat * b) * rstd", along="weight", single="mean variance", absent=_AFFINE, scalars="eps"),
    # log(total) and x - peak keep the digits that peak + log(total) has no room for where logits are far from 0;
    # what a target counts is its class's weight, 0 where it is ignored
    fused("cross_entropy_rows", "fin>nnn", "x target weight", "loss lse count",
          "outside = where(target == ignore_index, 0, where(target < 0, 1, where(target >= n, 1, 0)))",
          "peak = max(x)", "total = sum(exp(x - peak))", "less = log(total)", "lse = peak + less",
          "picked = sum(where(k == target, x - peak, 0))", "counted = sum(where(k == target, weight, 0))",
          "count = where(target == ignore_index, 0, counted)", "spread = sum((less - (x - peak)) * weight)",
          "smooth = where(label_smoothing > 0, label_smoothing * spread / n, 0)",
          "loss = where(target == ignore_index, 0, (1 - label_smoothing) * ((less - picked) * count) + smooth)",
          along="weight", single="target", absent={"weight": 1.0}, scalars="ignore_index label_smoothing", report="target outside"),
    fused("cross_entropy_input", "nfinn>f", "g x target count weight", "dx", "peak = max(x)", "e = exp(x - peak)", "total = sum(e)",
          "share = g / count", "w = sum(where(k == target, weight, 0))", "weights = sum(weight)", "hot = share * w * (1 - label_smoothing)",
          "spread = share * (label_smoothing / n)", "every = hot + spread * weights",
          "d = e / total * every - where(k == target, hot, 0) - spread * weight",
          "dx = where(target == ignore_index, 0, d)", along="weight", single="g target count", absent={"weight": 1.0, "count": 1.0},
          scalars="ignore_index label_smoothing"),
    fused("counted_mean", "ff>fff", "x count", "y total counts", "total = sum(x)", "counts = sum(count)", "y = total / counts"),
)  # fmt: skip
TABLE = {row.name: row for row in FUSED}
