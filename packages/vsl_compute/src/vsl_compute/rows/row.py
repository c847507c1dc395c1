"""What a row of each table is: Row (elementwise), Reduction (state), Update (in place).

`row` and `update` read what they are given at once. Those of our tables are read by a test, and here when they are first
used: to parse them all takes 8 ms, and every program that imports a tensor would wait for it.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cached_property

from ..errors import RowError
from .expression import functions_in, is_bool, names_in, parse
from .signature import Signature, argument_names


@dataclass(frozen=True, eq=False)
class Row:
    """`y = value(*args)`; `gradients[i]` is what argument i receives, in terms of g, the arguments, the scalars and y.

    `domain` is the range that tests draw from; `ulp` the error allowed on the CPU, counted at `scale` (an
    expression over the arguments, default the value itself) where a formula cancels; `gpu_ulp` likewise for GPUs.
    """

    name: str
    signature: Signature
    args: tuple[str, ...]
    value: str
    gradients: tuple[str | None, ...]
    scalars: tuple[str, ...] = ()
    domain: tuple[float, float] = (-4.0, 4.0)
    ulp: float = 4.0
    gpu_ulp: float = 16.0
    scale: str | None = None

    def __post_init__(self) -> None:
        names = (*self.args, *self.scalars)
        if len(self.args) != len(self.signature.inputs) or len(set(names)) != len(names):
            raise RowError(
                f"row {self.name!r}: arguments {names} do not fit signature inputs {self.signature.inputs!r}"
            )
        if set(names) & set(self.reserved):
            raise RowError(
                f"row {self.name!r}: {' and '.join(self.reserved)} are reserved for the arriving gradient and the output"
            )
        if self.gradients and len(self.gradients) != len(self.args):
            raise RowError(f"row {self.name!r}: {len(self.gradients)} gradients for {len(self.args)} arguments")

    def check(self) -> Row:
        """The row itself; RowError where a text is not of the row grammar, or of another kind than the signature says."""
        booleans = self.booleans
        if is_bool(self.tree, booleans) != (self.signature.outputs == "b"):
            raise RowError(f"row {self.name!r}: {self.value!r} and output {self.signature.outputs!r} differ in kind")
        for text in filter(None, self.gradients):
            is_bool(parse(text, (*self.args, *self.scalars, *self.reserved)), booleans)
        return self

    @cached_property
    def tree(self) -> ast.expr:
        """The value, parsed."""
        return parse(self.value, (*self.args, *self.scalars))

    @cached_property
    def functions(self) -> frozenset[str]:
        """Names of the functions that the value calls, from which support is derived; found when first asked for."""
        return functions_in(self.tree)

    @property
    def reserved(self) -> tuple[str, str]:
        """What gradients call the arriving gradient and the output: g and y; gg and yy in a gradient row ("tanh.0")."""
        order = self.name.count(".") + 1
        return "g" * order, "y" * order

    @property
    def booleans(self) -> frozenset[str]:
        """Arguments that are truth values."""
        return frozenset(n for n, letter in zip(self.args, self.signature.inputs, strict=True) if letter == "b")

    def needs(self, index: int) -> frozenset[str]:
        """Names that the gradient of argument `index` reads: what must be saved for it."""
        text = self.gradients[index]
        return names_in(parse(text, (*self.args, *self.scalars, *self.reserved))) if text else frozenset()


def row(
    name: str,
    signature: str,
    value: str,
    *gradients: str | None,
    args: str | None = None,
    scalars: str = "",
    domain: tuple[float, float] = (-4.0, 4.0),
    ulp: float = 4.0,
    gpu_ulp: float = 16.0,
    scale: str | None = None,
    check: bool = True,
) -> Row:
    """Build one elementwise row from its texts; they are read now, unless `check` is False."""
    parsed = Signature.parse(signature)
    names = tuple(args.split()) if args else argument_names(parsed)
    made = Row(name, parsed, names, value, gradients, tuple(scalars.split()), domain, ulp, gpu_ulp, scale)
    return made.check() if check else made


@dataclass(frozen=True, eq=False)
class Reduction:
    """A state that is mapped from an element, combined pairwise, and finished.

    `identity`, `map` (over x and k, the element's index among those reduced) and `combine` (over each state name
    with 1 and 2 appended) have one expression a state name; `finish` (over the state and n, the count) one an output.
    `gradient` is what x receives in terms of g, x, the outputs y (or y0, y1) and n; where `weight` is given (max,
    min) it is a truth value that shares g evenly among the elements for which it holds. `integers` says what integer
    input accumulates and comes out as: "int64" (sum, prod), "same" or "float32" (mean).
    """

    name: str
    signature: Signature
    state: tuple[str, ...]
    identity: tuple[str, ...]
    map: tuple[str, ...]
    combine: tuple[str, ...]
    finish: tuple[str, ...]
    index: frozenset[str]  # state names that count elements and stay integers
    gradient: str | None
    weight: str | None
    integers: str
    empty: bool  # whether reducing no element has a meaning
    booleans: bool  # whether bool input is taken
    ulp: float = 4.0
    gpu_ulp: float = 16.0

    def __post_init__(self) -> None:
        pairs = tuple(f"{s}{side}" for side in "12" for s in self.state)
        for texts, names in (
            (self.identity, ()),
            (self.map, ("x", "k")),
            (self.combine, pairs),
            (self.finish, (*self.state, "n")),
        ):
            for text in texts:
                parse(text, names)
        if not len(self.state) == len(self.identity) == len(self.map) == len(self.combine):
            raise RowError(f"reduction {self.name!r}: identity, map and combine need one expression a state name")
        if len(self.finish) != len(self.signature.outputs):
            raise RowError(
                f"reduction {self.name!r}: {len(self.finish)} finish expressions for outputs {self.signature.outputs!r}"
            )
        for text in filter(None, (self.gradient, self.weight)):
            parse(text, ("g", "x", "y", "n"))


@dataclass(frozen=True, eq=False)
class Update:
    """Statements over arrays of one shape, in order; arrays that are assigned are written back, other targets are locals.

    `letters` gives a dtype letter an array: the same letter is the same dtype, and all compute in one. By default the
    gradient has a letter (g), the parameter one (p), and its slots share one (s): half-precision weights may have
    float32 slots, in which a step count does not stop at 2048. `g` is read only. A 0-d array (`zero_d`)
    is one slot for the whole update (a step count).
    """

    name: str
    arrays: tuple[str, ...]
    letters: str
    scalars: tuple[str, ...]
    statements: tuple[tuple[str, str], ...]
    zero_d: frozenset[str]

    def check(self) -> Update:
        """The update itself; RowError where a text is not of the row grammar, or what is only read is assigned."""
        known = set(self.arrays) | set(self.scalars)
        for target, text in self.statements:
            if target == "g" or target in self.scalars:
                raise RowError(f"update {self.name!r}: {target!r} may not be assigned")
            is_bool(parse(text, tuple(sorted(known))))
            known.add(target)
        return self

    @cached_property
    def written(self) -> tuple[str, ...]:
        """Arrays that the update writes, in argument order."""
        targets = {target for target, _ in self.statements}
        return tuple(a for a in self.arrays if a in targets)


def update(
    name: str,
    arrays: str,
    scalars: str,
    *statements: str,
    letters: str | None = None,
    zero_d: str = "",
    check: bool = True,
) -> Update:
    """Build one update row from texts of the form "p = p - lr * g"; they are read now, unless `check` is False."""
    pairs = []
    for text in statements:
        target, equals, value = text.partition("=")
        if not equals or not target.strip().isidentifier():
            raise RowError(f"update {name!r}: {text!r} is not an assignment")
        pairs.append((target.strip(), value.strip()))
    names = tuple(arrays.split())
    made = Update(
        name,
        names,
        letters or "".join(n if n in "gp" else "s" for n in names),
        tuple(scalars.split()),
        tuple(pairs),
        frozenset(zero_d.split()),
    )
    return made.check() if check else made
