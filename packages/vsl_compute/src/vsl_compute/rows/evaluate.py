"""Rows as NumPy functions: each expression is compiled once to a call of ufuncs that writes where it is told.

A subtree that occurs twice is computed once. `where(c, a, 0)` on floats is a bit mask (exact, NaN in the branch
not taken is dropped), which is twice as fast as numpy.where.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from .expression import BINARY, COMPARE, parse
from .functions import FUNCTIONS
from .row import Update

Array = Any  # ndarray or NumPy scalar: rows run on both
UFUNCS: dict[type[ast.operator | ast.cmpop | ast.unaryop], str] = {
    ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "divide", ast.FloorDiv: "floor_divide", ast.Mod: "remainder",
    ast.BitAnd: "bitwise_and", ast.BitOr: "bitwise_or", ast.BitXor: "bitwise_xor", ast.LShift: "left_shift", ast.RShift: "right_shift",
    ast.Gt: "greater", ast.GtE: "greater_equal", ast.Lt: "less", ast.LtE: "less_equal", ast.Eq: "equal", ast.NotEq: "not_equal",
    ast.USub: "negative", ast.Invert: "invert",
}  # fmt: skip
_BITS = {4: (np.uint32, np.int32), 8: (np.uint64, np.int64)}


def keep_where(condition: Array, value: Array) -> Array:
    """where(condition, value, 0) by masking bits; numpy.where for what is not a plain float array."""
    return (
        _masked(condition, value, np.negative)
        if _maskable(condition, value)
        else np.where(condition, value, _zero(value))
    )


def drop_where(condition: Array, value: Array) -> Array:
    """where(condition, 0, value): the mask is condition - 1, all bits set where the condition is false."""
    return (
        _masked(condition, value, np.subtract, 1)
        if _maskable(condition, value)
        else np.where(condition, _zero(value), value)
    )


def _zero(value: Array) -> Array:
    return value.dtype.type(0) if isinstance(value, np.generic | np.ndarray) else 0


def _maskable(condition: Array, value: Array) -> bool:
    return (isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.ndim > 0 and value.itemsize in _BITS
            and isinstance(condition, np.ndarray) and condition.dtype.kind == "b")  # fmt: skip


def _masked(condition: Array, value: Array, rule: np.ufunc, *more: int) -> Array:
    unsigned, signed = _BITS[value.itemsize]
    mask = rule(condition.view(np.int8), *more, dtype=signed)
    return np.bitwise_and(value.view(unsigned), mask.view(unsigned)).view(value.dtype)


class _Emitter:
    """Turns one tree into Python text over arrays, lifting subtrees that occur more than once into temporaries."""

    def __init__(self, trees: list[ast.expr], prefix: str = "t") -> None:
        self.prefix = prefix
        seen: Counter[str] = Counter()
        for tree in trees:
            seen.update(
                ast.dump(n) for n in ast.walk(tree) if isinstance(n, ast.BinOp | ast.Call | ast.Compare | ast.UnaryOp)
            )
        self.repeated = {text for text, count in seen.items() if count > 1}
        self.lines: list[str] = []
        self.temporaries: dict[str, str] = {}

    def inner(self, node: ast.expr) -> str:
        key = ast.dump(node) if self.repeated else ""
        if key in self.repeated and not isinstance(getattr(node, "operand", None), ast.Constant):
            if key not in self.temporaries:
                text = self._inner(node)
                self.temporaries[key] = f"{self.prefix}{len(self.temporaries)}"
                self.lines.append(f"{self.temporaries[key]} = {text}")
            return self.temporaries[key]
        return self._inner(node)

    def _inner(self, node: ast.expr) -> str:
        match node:
            case ast.Constant(value=value):
                return repr(value)
            case ast.Name(id=name):
                return name
            case ast.UnaryOp(op=op, operand=operand):
                return f"({'-' if isinstance(op, ast.USub) else '~'}{self.inner(operand)})"
            case ast.BinOp(left=left, op=op, right=right):
                return f"({self.inner(left)} {BINARY[type(op)]} {self.inner(right)})"
            case ast.Compare(left=left, ops=[cmp], comparators=[right]):
                return f"({self.inner(left)} {COMPARE[type(cmp)]} {self.inner(right)})"
            case ast.Call(func=ast.Name(id="where"), args=[condition, yes, no]):
                return self._where(condition, yes, no)
            case ast.Call(func=ast.Name(id=name), args=args):
                return f"{name}({', '.join(self.inner(a) for a in args)})"
        raise AssertionError(f"parse let {ast.dump(node)} through")

    def _where(self, condition: ast.expr, yes: ast.expr, no: ast.expr) -> str:
        if _is_zero(no) and not isinstance(yes, ast.Constant):
            return f"keep_where({self.inner(condition)}, {self.inner(yes)})"
        if _is_zero(yes) and not isinstance(no, ast.Constant):
            return f"drop_where({self.inner(condition)}, {self.inner(no)})"
        return f"where({self.inner(condition)}, {self.inner(yes)}, {self.inner(no)})"

    def root(self, node: ast.expr) -> str:
        """Text of a statement that writes the value of `node` into `out`."""
        match node:
            case ast.UnaryOp(op=op, operand=operand):
                return f"np.{UFUNCS[type(op)]}({self.inner(operand)}, out=out)"
            case ast.BinOp(left=left, op=op, right=right):
                return f"np.{UFUNCS[type(op)]}({self.inner(left)}, {self.inner(right)}, out=out)"
            case ast.Compare(left=left, ops=[cmp], comparators=[right]):
                return f"np.{UFUNCS[type(cmp)]}({self.inner(left)}, {self.inner(right)}, out=out)"
            case ast.Call(func=ast.Name(id=name), args=args) if isinstance(FUNCTIONS[name].numpy, np.ufunc):
                return f"{name}({', '.join(self.inner(a) for a in args)}, out=out)"
        return f"np.copyto(out, {self.inner(node)}, casting='unsafe')"


def _is_zero(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 0


def _namespace() -> dict[str, Any]:
    space: dict[str, Any] = {
        "np": np,
        "keep_where": keep_where,
        "drop_where": drop_where,
        "inf": np.inf,
        "nan": np.nan,
        "__builtins__": {},
    }
    for name, function in FUNCTIONS.items():
        space[name] = function.numpy
    for name, function in FUNCTIONS.items():
        if function.definition:
            space[name] = value_function((function.definition,), function.args, space)
    return space


def _define(source: str, space: dict[str, Any]) -> Callable[..., Any]:
    local: dict[str, Any] = {}
    exec(compile(source, "<row>", "exec"), space, local)  # noqa: S102  # the text is built from a parsed row, never from input
    return local["kernel"]  # type: ignore[no-any-return]


def value_function(
    texts: tuple[str, ...], names: tuple[str, ...], space: dict[str, Any] | None = None
) -> Callable[..., Any]:
    """A function of `names` that returns the value of each text (a single value for one text)."""
    trees = [parse(text, names) for text in texts]
    emitter = _Emitter(trees)
    values = [emitter.inner(tree) for tree in trees]
    body = "".join(f"    {line}\n" for line in emitter.lines)
    source = f"def kernel({', '.join(names)}):\n{body}    return {', '.join(values)}\n"
    return _define(source, _SPACE if space is None else space)


@cache
def compiled(text: str, names: tuple[str, ...]) -> Callable[..., None]:
    """A function (out, *names) that writes the value of `text` into `out`."""
    tree = parse(text, names)
    emitter = _Emitter([tree])
    last = emitter.root(tree)
    body = "".join(f"    {line}\n" for line in [*emitter.lines, last])
    return _define(f"def kernel(out, {', '.join(names)}):\n{body}", _SPACE)


@cache
def values(texts: tuple[str, ...], names: tuple[str, ...]) -> Callable[..., Any]:
    """Cached `value_function`."""
    return value_function(texts, names)


class _InPlace:
    """Turns the statements of an update into ufunc calls that write into the arrays and into scratch, one operation each.

    A step on arrays that fit the cache is bound by its passes and by the temporaries that it takes from the heap: with
    scratch that is kept, Adam takes 20 % less.
    """

    def __init__(self, row: Update) -> None:
        self.arrays = {name for name in row.arrays if name not in row.zero_d}
        self.lines: list[str] = []
        self.free: list[str] = []
        self.registers = 0

    def is_array(self, node: ast.expr) -> bool:
        return any(isinstance(n, ast.Name) and n.id in self.arrays for n in ast.walk(node))

    def value(self, node: ast.expr, out: str | None = None) -> str:
        """Name of what holds the value: `out` if given, else a register, an array or a scalar expression."""
        if isinstance(node, ast.Name) or not self.is_array(node):
            return self._outside(node)
        match node:
            case ast.BinOp(left=left, op=op, right=right):
                name, parts = f"np.{UFUNCS[type(op)]}", [self.value(left), self.value(right)]
            case ast.UnaryOp(op=op, operand=operand):
                name, parts = f"np.{UFUNCS[type(op)]}", [self.value(operand)]
            case ast.Call(func=ast.Name(id=function), args=args) if isinstance(FUNCTIONS[function].numpy, np.ufunc):
                name, parts = function, [self.value(a) for a in args]
            case _:  # a choice between arrays, or a function of ours: its result is a temporary of its own
                return f"({self._outside(node)})"
        held = [part for part in parts if part.startswith("_r")]
        target = out or (held[0] if held else self._take())
        self.lines.append(f"{name}({', '.join(parts)}, out={target})")
        self.free += [part for part in held if part != target]
        return target

    def _outside(self, node: ast.expr) -> str:
        """An expression that takes no scratch; what it needs beforehand has names that no other statement has."""
        emitter = _Emitter([node], f"t{len(self.lines)}_")
        value = emitter.inner(node)
        self.lines += emitter.lines
        return value

    def _take(self) -> str:
        if self.free:
            return self.free.pop()
        self.registers += 1
        return f"_r{self.registers - 1}"

    def statement(self, target: str, node: ast.expr) -> None:
        """Assign: into the array itself, or to a local that keeps its register."""
        if target in self.arrays:
            found = self.value(node, target)
            if found != target:
                self.lines.append(f"np.copyto({target}, {found}, casting='unsafe')")
            elif isinstance(node, ast.Name):
                self.lines.append(f"np.copyto({target}, {node.id}, casting='unsafe')")
        else:
            found = self.value(node)
            alias = isinstance(node, ast.Name) and node.id in self.arrays  # a later statement may write to either
            self.lines.append(f"{target} = {found}.copy()" if alias else f"{target} = {found}")
            if self.is_array(node):
                self.arrays.add(target)


@cache
def update_function(row: Update) -> tuple[Callable[..., Any], int]:
    """A function (*scratch, *arrays, *scalars) that runs the statements in place, and how many scratch arrays it takes.

    0-d slots come as numbers; their new values are returned, in argument order.
    """
    known = (*row.arrays, *row.scalars)
    names = tuple(sorted({*known, *(target for target, _ in row.statements)}))
    emitter = _InPlace(row)
    for target, text in row.statements:
        emitter.statement(target, parse(text, names))
    scratch = [f"_r{i}" for i in range(emitter.registers)]
    returned = "".join(f"{name}, " for name in row.written if name in row.zero_d)
    body = "".join(f"    {line}\n" for line in emitter.lines)
    source = f"def kernel({', '.join([*scratch, *known])}):\n{body}    return ({returned})\n"
    return _define(source, _SPACE), emitter.registers


def constant(text: str, lowest: float, highest: float) -> float:
    """Value of an expression without names, `lowest` and `highest` being the dtype's."""
    names = {"__builtins__": {}, "inf": np.inf, "nan": np.nan, "lowest": lowest, "highest": highest}
    value: float = eval(compile(ast.Expression(parse(text, ())), text, "eval"), names)  # a parsed row, never input
    return value


_SPACE: dict[str, Any] = {}
_SPACE.update(_namespace())
