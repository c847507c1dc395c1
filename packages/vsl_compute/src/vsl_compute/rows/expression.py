"""Scalar expressions, written once in Python's own syntax and read by every backend.

`parse` admits the nodes below and nothing else, so a slip in a row fails when the table is imported, on any
machine, and not when a GPU first compiles it. `kind` says whether an expression is a truth value or a number.

Grammar: numbers; names; + - * / // % << >>; & | ^ ~ on truth values and integers; unary -; one comparison
at a time; calls of the functions in functions.py; the constants inf, nan, lowest and highest.
"""

from __future__ import annotations

import ast
from functools import cache
from typing import Any

from ..errors import RowError
from .functions import FUNCTIONS

BINARY: dict[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
    ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>",
}  # fmt: skip
LOGICAL = (ast.BitAnd, ast.BitOr, ast.BitXor)
COMPARE: dict[type[ast.cmpop], str] = {
    ast.Gt: ">", ast.GtE: ">=", ast.Lt: "<", ast.LtE: "<=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip
CONSTANTS = ("inf", "nan", "lowest", "highest")  # lowest and highest: of the dtype, infinities for floating ones


@cache
def parse(text: str, names: tuple[str, ...]) -> ast.expr:
    """Parse one expression over `names`; RowError names the first thing that a kernel cannot say."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise RowError(f"row {text!r}: {error.msg} at column {error.offset}") from error
    try:
        _admit(tree, names)
    except RowError as error:
        raise RowError(f"row {text!r}: {error}") from None
    return tree


def _admit(node: Any, names: tuple[str, ...]) -> None:
    """Walk the tree by hand, as `is_bool` does: this runs for every row at import, and ast.walk takes three times as long."""
    kind = type(node)
    if kind is ast.Name:
        if node.id not in names and node.id not in CONSTANTS:
            raise RowError(f"{node.id!r} names neither an argument nor a constant")
    elif kind is ast.Constant:
        if type(node.value) not in (int, float):
            raise RowError(f"{node.value!r} is not a number")
    elif kind is ast.BinOp and type(node.op) in BINARY:
        _admit(node.left, names)
        _admit(node.right, names)
    elif kind is ast.UnaryOp and type(node.op) in (ast.USub, ast.Invert):
        _admit(node.operand, names)
    elif kind is ast.Compare and len(node.ops) == 1 and type(node.ops[0]) in COMPARE:
        _admit(node.left, names)
        _admit(node.comparators[0], names)
    elif kind is ast.Call and type(node.func) is ast.Name and node.func.id in FUNCTIONS and not node.keywords:
        function, given = FUNCTIONS[node.func.id], node.args
        if len(given) != len(function.args):
            raise RowError(f"{function.name} takes {len(function.args)} arguments, not {len(given)}")
        for argument in given:
            _admit(argument, names)
    else:
        raise RowError(f"{ast.unparse(node)!r} is not part of the grammar, or names neither an argument nor a function")


def is_bool(node: Any, booleans: frozenset[str] = frozenset()) -> bool:
    """True if the expression is a truth value; `booleans` are the names that are. RowError where kinds clash."""
    kind = type(node)
    if kind is ast.Name:
        return node.id in booleans
    if kind is ast.BinOp:
        if type(node.op) not in LOGICAL:
            return _number(node.left, booleans) | _number(node.right, booleans)
        found = is_bool(node.left, booleans)
        if found != is_bool(node.right, booleans):
            raise RowError(f"row part {ast.unparse(node)!r} joins a truth value and a number")
        return found
    if kind is ast.UnaryOp:
        return (is_bool if type(node.op) is ast.Invert else _number)(node.operand, booleans)
    if kind is ast.Compare:
        is_bool(node.left, booleans)
        is_bool(node.comparators[0], booleans)
        return True
    if kind is not ast.Call:
        return False
    if node.func.id != "where":
        for argument in node.args:
            _number(argument, booleans)
        return FUNCTIONS[node.func.id].boolean
    condition, yes, no = node.args
    if not is_bool(condition, booleans):
        raise RowError(f"row part {ast.unparse(node)!r}: the condition {ast.unparse(condition)!r} is not a truth value")
    found = is_bool(yes, booleans)
    if found != is_bool(no, booleans):
        raise RowError(f"row part {ast.unparse(node)!r} chooses between a truth value and a number")
    return found


def _number(node: ast.expr, booleans: frozenset[str]) -> bool:
    if is_bool(node, booleans):
        raise RowError(f"row part {ast.unparse(node)!r} is a truth value where a number is needed")
    return False


def functions_in(*trees: ast.expr) -> frozenset[str]:
    """Names of all functions called, those inside definitions included."""
    found: set[str] = set()
    queue = list(trees)
    while queue:
        for node in ast.walk(queue.pop()):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id not in found:
                function = FUNCTIONS[node.func.id]
                found.add(function.name)
                if function.definition:
                    queue.append(parse(function.definition, function.args))
    return frozenset(found)


def names_in(tree: ast.expr) -> frozenset[str]:
    """The argument and local names an expression reads."""
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return frozenset(
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and id(node) not in called and node.id not in CONSTANTS
    )


def substitute(tree: ast.expr, values: dict[str, ast.expr]) -> ast.expr:
    """Replace names by expressions; used for definitions of functions and for fusing rows."""

    class Replace(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return values.get(node.id, node)

        def visit_Call(self, node: ast.Call) -> ast.expr:
            return ast.Call(node.func, [self.visit(a) for a in node.args], [])

    import copy

    return ast.fix_missing_locations(Replace().visit(copy.deepcopy(tree)))  # type: ignore[no-any-return]  # visit is untyped
