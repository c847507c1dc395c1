"""A row's syntax tree as typed values, each made once: what every renderer and emitter walks.

Numbers of a row have one compute dtype (constants take it too), truth values are bool_, the element counts of
reductions have an integer dtype of their own. A subtree that occurs twice is one Value, so a kernel computes it
once. Functions that the target lacks are replaced by macros of its own or by their definitions.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from ..dtypes import DType, bool_
from ..errors import RowError
from .expression import BINARY, COMPARE, names_in, parse
from .functions import FUNCTIONS


@dataclass(frozen=True, eq=False)
class Value:
    """One operation: `op` is an operator of the grammar, "neg", "select", "name", "constant" or a function's name."""

    op: str
    dtype: DType
    args: tuple[Value, ...] = ()
    data: str | int | float = ""  # a name's or a constant's


Macro = Callable[["Builder", tuple[Value, ...]], Value]


class Builder:
    """Makes Values from trees for one kernel.

    `number` is the compute dtype; `limits` is the dtype that `lowest` and `highest` speak of; `native` says which
    functions the target has, `macros` builds those (and operators) that it lacks or has too loosely. `free` names numbers from
    the host: they take the dtype of where they stand, as constants do.
    """

    def __init__(self, number: DType, *, native: Callable[[str, DType], bool], limits: DType | None = None, free: Collection[str] = (),
                 macros: Mapping[str, Macro] | None = None) -> None:  # fmt: skip
        self.number, self.native, self.limits = number, native, limits or number
        self.macros, self.free = macros or {}, frozenset(free)
        self._made: dict[tuple[object, ...], Value] = {}

    def name(self, name: str, dtype: DType) -> Value:
        """A value that the kernel has already."""
        return self.make("name", dtype, data=name)

    def constant(self, value: float, dtype: DType) -> Value:
        """A literal of this dtype; RowError for a fraction among integers."""
        if not dtype.is_floating:
            if value != value or value in (float("inf"), -float("inf")) or int(value) != value:
                raise RowError(f"constant {value} has no meaning in {dtype.name}")
            return self.make("constant", dtype, data=int(value))
        return self.make("constant", dtype, data=float(value))

    def make(self, op: str, dtype: DType, *args: Value, data: str | float = "") -> Value:
        """The one Value of this operation on these."""
        key = (op, dtype.name, tuple(id(a) for a in args), repr(data))
        if key not in self._made:
            self._made[key] = Value(op, dtype, args, data)
        return self._made[key]

    def build(self, tree: ast.expr, names: Mapping[str, Value], hint: DType | None = None) -> Value:
        """The Value of a tree over `names`; constants take the dtype `hint`, else the kernel's."""
        hint = hint or self.number
        match tree:
            case ast.Constant(value=value):
                return self.constant(value, hint)  # type: ignore[arg-type]  # parse admits int and float only
            case ast.Name(id=name) if name in self.free and name not in names:
                return self.name(name, hint)
            case ast.Name(id=name):
                return names[name] if name in names else self.constant(self._named(name, hint), hint)
            case ast.UnaryOp(op=ast.Invert(), operand=operand):
                inner = self.build(operand, names, hint)
                return self.make("~", inner.dtype, inner)
            case ast.UnaryOp(operand=ast.Constant(value=value)):
                return self.constant(-value, hint)  # type: ignore[arg-type,operator]  # as above
            case ast.UnaryOp(operand=operand):
                inner = self.build(operand, names, hint)
                return (
                    self.constant(-float(inner.data), hint)
                    if inner.op == "constant"
                    else self.make("neg", inner.dtype, inner)
                )
            case ast.BinOp(left=left, op=op, right=right):
                a, b = self.build(left, names, hint), self.build(right, names, hint)
                if isinstance(op, ast.Div) and not a.dtype.is_floating:
                    raise RowError(f"row part {ast.unparse(tree)!r} divides {a.dtype.name}; integers have // only")
                sign, dtype = BINARY[type(op)], self._joint(tree, a, b)
                return (
                    self.macros[sign](self, (a, b))
                    if sign in self.macros and dtype.is_floating
                    else self.make(sign, dtype, a, b)
                )
            case ast.Compare(left=left, ops=[cmp], comparators=[right]):
                hint = self._hint((left, right), names)
                a, b = self.build(left, names, hint), self.build(right, names, hint)
                self._joint(tree, a, b)
                if a is b and not a.dtype.is_floating:  # x != x asks for NaN; compilers warn where there is none
                    return self.make("constant", bool_, data=int(isinstance(cmp, ast.Eq | ast.LtE | ast.GtE)))
                return self.make(COMPARE[type(cmp)], bool_, a, b)
            case ast.Call(func=ast.Name("where"), args=[condition, yes, no]):
                c, a, b = (self.build(t, names, hint) for t in (condition, yes, no))
                return a if a is b else self.make("select", self._joint(tree, a, b), c, a, b)
            case ast.Call(func=ast.Name(called), args=args):
                return self.call(called, tuple(self.build(a, names, self._hint(args, names)) for a in args))
        raise AssertionError(f"parse let {ast.dump(tree)} through")

    def call(self, called: str, args: Sequence[Value]) -> Value:
        """A function of the grammar on values."""
        function, dtype = FUNCTIONS[called], args[0].dtype
        if called in ("isnan", "isinf") and not dtype.is_floating:
            return self.make("constant", bool_, data=0)
        if function.kind == "f" and not dtype.is_floating:
            raise RowError(f"{called} takes floating numbers, not {dtype.name}")
        if called in self.macros and dtype.is_floating:
            return self.macros[called](self, tuple(args))
        if self.native(called, dtype):
            return self.make(called, bool_ if function.boolean else dtype, *args)
        if function.definition:
            return self.expression(function.definition, **dict(zip(function.args, args, strict=True)))
        raise RowError(f"{called} has no form in {dtype.name} here")

    def expression(self, text: str, **names: Value) -> Value:
        """A text of the row grammar over values; constants take the dtype of the first."""
        return self.build(parse(text, tuple(names)), names, next(iter(names.values())).dtype)

    def _hint(self, trees: Sequence[ast.expr], names: Mapping[str, Value]) -> DType:
        """The dtype of an element count if one is read, else the kernel's."""
        read = frozenset[str]().union(*(names_in(t) for t in trees))
        dtypes = {names[n].dtype for n in read if n in names and names[n].dtype is not bool_}
        return dtypes.pop() if len(dtypes) == 1 else self.number

    def _named(self, name: str, dtype: DType) -> float:
        if name in ("lowest", "highest"):
            if dtype.is_floating:
                return -float("inf") if name == "lowest" else float("inf")
            return self.limits.min if name == "lowest" else self.limits.max
        return float(name)

    def _joint(self, tree: ast.expr, a: Value, b: Value) -> DType:
        if a.dtype is not b.dtype:
            raise RowError(f"row part {ast.unparse(tree)!r} joins {a.dtype.name} and {b.dtype.name}")
        return a.dtype


def uses(roots: Sequence[Value]) -> dict[Value, int]:
    """Every value that the roots need, in an order where operands come first, with the number of its readers."""
    count: dict[Value, int] = {}
    order: dict[Value, int] = {}

    def visit(value: Value) -> None:
        count[value] = count.get(value, 0) + 1
        if count[value] == 1:
            for argument in value.args:
                visit(argument)
            order[value] = 0

    for root in roots:
        visit(root)
    return {value: count[value] for value in order}
