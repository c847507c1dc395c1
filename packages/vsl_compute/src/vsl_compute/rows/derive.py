"""Derivatives of rows from their syntax trees: the gradient of a row is a row, and so is the gradient of that.

A derived row is named after the row and the argument ("tanh.0") and reads those of (g, *args, y) that its text
does. y is an input like any other: the autograd graph links it to what it was made from. Gradients of a derived row
are written in gg and yy, those of the next in ggg and yyy (`Row.reserved`), so no name means two things.
"""

from __future__ import annotations

import ast
from functools import cache

from ..errors import RowError
from .expression import names_in, parse, substitute
from .functions import FUNCTIONS
from .row import Row
from .signature import Signature

Tree = ast.expr | None  # None is an exact zero
ZERO = ast.Constant(0)


@cache
def gradient_row(row: Row, index: int) -> Row:
    """The row that computes what argument `index` of `row` receives; all its letters are floating or bool.

    Errors:  RowError if nothing flows to that argument
    Cost:    one derivation a row and argument, kept; the derived row's own gradients are texts until they are asked for
    """
    text = row.gradients[index]
    if text is None:
        raise RowError(f"row {row.name!r}: nothing flows back to argument {row.args[index]!r}")
    arriving, output = row.reserved
    inputs, result = row.signature.inputs, row.signature.outputs
    if "f" not in inputs + result:  # beside an f, n is another floating dtype and keeps its letter
        inputs, result = inputs.replace("n", "f"), result.replace("n", "f")
    letters = {arriving: result, **dict(zip(row.args, inputs, strict=True)), output: result}
    tree = parse(text, (*row.args, *row.scalars, *row.reserved))
    read = names_in(tree)
    args = tuple(name for name in letters if name in read)
    gradients = gradients_of(tree, {name: letters[name] for name in args}, "g" + arriving)
    given, result = "".join(letters[name] for name in args), inputs[index]
    if result not in given:  # no argument read has the dtype of the one differentiated: it comes as the gradient does
        result = next((letter for letter in given if letter in "nf"), result)
    return Row(
        f"{row.name}.{index}",
        Signature(given, result),
        args,
        text,
        gradients,
        row.scalars,
        row.domain,
        row.ulp,
        row.gpu_ulp,
    )


def gradients_of(tree: ast.expr, letters: dict[str, str], seed: str) -> tuple[str | None, ...]:
    """The texts of what each argument receives from the gradient `seed` of `tree`; truth values and indices receive none."""
    arriving = ast.Name(seed, ast.Load())
    return tuple(
        None if letter in "bi" else _text(derivative(tree, name, arriving)) for name, letter in letters.items()
    )


def derivative(tree: ast.expr, name: str, seed: ast.expr) -> Tree:
    """d tree / d name times `seed`, or None where it is zero everywhere.

    The seed is carried to the leaves, so that where(c, a, b) becomes where(c, da, db): a branch not taken is
    dropped, whatever it holds, and never multiplied by zero.
    """
    match tree:
        case ast.Name(id=found):
            return seed if found == name else None
        case ast.Constant() | ast.Compare() | ast.UnaryOp(op=ast.Invert()):
            return None
        case ast.UnaryOp(operand=operand):
            return _negative(derivative(operand, name, seed))
        case ast.BinOp(
            left=a,
            op=ast.Div(),
            right=ast.BinOp(left=ast.Constant(value=1), op=ast.Add(), right=ast.Call(ast.Name("exp"), [u])),
        ):
            # a sigmoid stays one: exp(u) / (1 + exp(u)) would be inf / inf where 1 / (1 + exp(-u)) is 1
            other = parse("1 / (1 + exp(-u))", ("u",))
            flow = _multiply(_multiply(derivative(u, name, seed), tree), substitute(other, {"u": u}))
            return _add(_divide(derivative(a, name, seed), tree.right), _negative(flow))
        case ast.BinOp(left=left, op=op, right=right):
            return _binary(tree, op, (left, derivative(left, name, seed)), (right, derivative(right, name, seed)))
        case ast.Call(ast.Name("where"), [condition, yes, no]):
            return _where(condition, derivative(yes, name, seed), derivative(no, name, seed))
        case ast.Call(ast.Name(called), args):
            function, total = FUNCTIONS[called], None
            values = {**dict(zip(function.args, args, strict=True)), "y": tree}
            for text, argument in zip(function.derivative, args, strict=True):
                if text is not None and (inner := derivative(argument, name, seed)) is not None:
                    outer = substitute(parse(text, (*function.args, "y")), values)
                    total = _add(total, _multiply(inner, outer))
            return total
    raise AssertionError(f"parse let {ast.dump(tree)} through")


def _binary(tree: ast.expr, op: ast.operator, left: tuple[ast.expr, Tree], right: tuple[ast.expr, Tree]) -> Tree:
    (a, da), (b, db) = left, right
    match op:
        case ast.Add():
            return _add(da, db)
        case ast.Sub():
            return _add(da, _negative(db))
        case ast.Mult():
            return _add(_multiply(da, b), _multiply(db, a))
        case ast.Div():
            return _add(_divide(da, b), _negative(_divide(_multiply(db, tree), b)))
        case ast.Mod():  # a % b is a - b * (a // b), and // is flat
            return _add(da, _negative(_multiply(db, ast.BinOp(a, ast.FloorDiv(), b))))
    return None  # //, bits and shifts are flat


def _is(tree: ast.expr, number: float) -> bool:
    return isinstance(tree, ast.Constant) and tree.value == number


def _negative(a: Tree) -> Tree:
    match a:
        case None:
            return None
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return operand
    return ast.UnaryOp(ast.USub(), a)


def _add(a: Tree, b: Tree) -> Tree:
    if a is None or b is None:
        return b if a is None else a
    match b:
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return ast.BinOp(a, ast.Sub(), operand)
    if ast.dump(a) == ast.dump(b):
        return _multiply(a, ast.Constant(2))
    return ast.BinOp(a, ast.Add(), b)


def _multiply(a: Tree, b: Tree) -> Tree:
    """a * b, carried into a choice with 0 or 1: what the branch not taken holds must not meet the zero."""
    if a is None or b is None or _is(a, 0) or _is(b, 0):
        return None
    if _is(a, 1) or _is(b, 1):
        return b if _is(a, 1) else a
    match a, b:
        case ast.Call(ast.Name("where"), [condition, yes, no]), _ if _is(yes, 0) or _is(no, 0):
            return _where(condition, _multiply(yes, b), _multiply(no, b))
        case _, ast.UnaryOp(op=ast.USub(), operand=operand):
            return _negative(_multiply(a, operand))
        case _, ast.Call(ast.Name("where"), [condition, yes, no]) if any(_is(v, 0) or _is(v, 1) for v in (yes, no)):
            return _where(condition, _multiply(a, yes), _multiply(a, no))
    return ast.BinOp(a, ast.Mult(), b)


def _divide(a: Tree, b: ast.expr) -> Tree:
    match a:
        case None:
            return None
        case ast.Call(ast.Name("where"), [condition, yes, no]) if _is(yes, 0) or _is(no, 0):
            return _where(condition, _divide(yes, b), _divide(no, b))
        case ast.Constant(value=0):
            return None
    return a if _is(b, 1) else ast.BinOp(a, ast.Div(), b)


def _where(condition: ast.expr, yes: Tree, no: Tree) -> Tree:
    if yes is None and no is None:
        return None
    return ast.Call(ast.Name("where", ast.Load()), [condition, yes or ZERO, no or ZERO], [])


def _text(tree: Tree) -> str | None:
    return None if tree is None else ast.unparse(ast.fix_missing_locations(tree))
