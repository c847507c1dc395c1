"""What a kernel need not compute: a subexpression of scalars and constants alone is one number from the host.

`1 - b2` with b2 = 0.999 is 1.0000000000000009e-3 in float64; in a float32 kernel it would keep four digits. So the
largest such subexpressions are named h0, h1, ... and the host evaluates them in float64 (integers exactly).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from .evaluate import values
from .expression import names_in, parse

Hoisted = tuple[tuple[str, str], ...]  # (name in the kernel, expression over the scalars)


def hoist(tree: ast.expr, scalars: Sequence[str]) -> tuple[ast.expr, Hoisted]:
    """The tree with each maximal subexpression of scalars and constants replaced by a name, and what the names mean."""
    (found,), hoisted = hoist_all((tree,), scalars)
    return found, hoisted


def hoist_all(trees: Sequence[ast.expr], scalars: Sequence[str]) -> tuple[tuple[ast.expr, ...], Hoisted]:
    """`hoist` for several trees that one kernel computes: an expression that occurs twice is one number."""
    known: dict[str, str] = {}
    names = frozenset(scalars)
    replaced = tuple(_replace(tree, names, known) for tree in trees)
    return replaced, tuple((name, text) for text, name in known.items())


def host_numbers(hoisted: Hoisted, scalars: Mapping[str, float]) -> tuple[float, ...]:
    """The hoisted numbers for these scalars: integers stay exact, all else is float64."""
    numbers, given = [], tuple(scalars)
    for _, text in hoisted:
        if text in scalars:
            value: Any = scalars[text]
        else:
            names, evaluate = _evaluator(text, given)
            value = evaluate(*(scalars[name] for name in names))
        numbers.append(int(value) if isinstance(value, int | np.integer) else float(value))
    return tuple(numbers)


@cache
def _evaluator(text: str, given: tuple[str, ...]) -> tuple[tuple[str, ...], Callable[..., Any]]:
    """The scalars that a text reads, and its value as a function of them: found once, for launches wait for it."""
    names = tuple(sorted(names_in(parse(text, given))))
    return names, values((text,), names)


def _is_truth(node: ast.expr) -> bool:
    """Whether its value is a truth value, which no number from the host can stand for."""
    match node:
        case ast.Compare():
            return True
        case ast.Call(func=func):
            return ast.unparse(func) in ("isnan", "isinf")
        case ast.UnaryOp(op=ast.Invert(), operand=operand):
            return _is_truth(operand)
        case ast.BinOp(left=left, op=ast.BitAnd() | ast.BitOr() | ast.BitXor(), right=right):
            return _is_truth(left) or _is_truth(right)
    return False


def _replace(node: ast.expr, scalars: frozenset[str], known: dict[str, str]) -> ast.expr:
    read = names_in(node)
    if read and read <= scalars and not _is_truth(node):
        name = known.setdefault(ast.unparse(node), f"h{len(known)}")
        return ast.Name(name, ast.Load())
    if not read & scalars:
        return node
    match node:
        case ast.UnaryOp(op=op, operand=operand):
            return ast.UnaryOp(op, _replace(operand, scalars, known))
        case ast.BinOp(left=left, op=op, right=right):
            return ast.BinOp(_replace(left, scalars, known), op, _replace(right, scalars, known))
        case ast.Compare(left=left, ops=ops, comparators=[right]):
            return ast.Compare(_replace(left, scalars, known), ops, [_replace(right, scalars, known)])
        case ast.Call(func=func, args=args):
            return ast.Call(func, [_replace(a, scalars, known) for a in args], [])
    raise AssertionError(f"parse let {ast.dump(node)} through")
