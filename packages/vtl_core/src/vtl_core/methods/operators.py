"""Python's operators on tensors; NumPy arrays and numbers on the other side are taken along."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vsl_compute.dispatch import asarray
from vsl_compute.errors import ShapeError
from vsl_compute.ops.table import find
from vsl_compute.rows.elementwise import TABLE
from vsl_compute.rows.row import Row

from ..autograd import gates, node
from ..autograd.gates import binary, unary
from ..autograd.node import Traced
from ..foreign import refusal
from .elementwise import Elementwise, compared

if TYPE_CHECKING:
    from ..tensor import Tensor

PLAIN = (Traced, float, int)
Other = Any  # a tensor, a number, or NumPy's of either; anything else gets NotImplemented

ADD, SUBTRACT, MULTIPLY, DIVIDE = TABLE["add"], TABLE["subtract"], TABLE["multiply"], TABLE["divide"]
FLOOR_DIVIDE, REMAINDER, POWER, NEGATIVE = TABLE["floor_divide"], TABLE["remainder"], TABLE["power"], TABLE["negative"]
LESS, LESS_EQUAL = TABLE["less"], TABLE["less_equal"]
GREATER, GREATER_EQUAL = TABLE["greater"], TABLE["greater_equal"]
LEFT_SHIFT, RIGHT_SHIFT = TABLE["bitwise_left_shift"], TABLE["bitwise_right_shift"]


def operand(like: Traced, other: object) -> Any:
    """What an op takes: tensors and numbers as they are, NumPy's on `like`'s device, NotImplemented for anything else."""
    if isinstance(other, PLAIN):
        return other
    if isinstance(other, np.ndarray | np.generic):
        return node.wrap(asarray(like.raw.buffer.backend, other))  # type: ignore[arg-type]  # a Buffer's holder is its backend
    return NotImplemented


def matmul(a: Any, b: Any) -> Tensor:
    """Product over a's last axis and b's second to last; a vector is a row on the left and a column on the right."""
    if not isinstance(a, Traced) or not isinstance(b, Traced):
        place = 2 if isinstance(a, Traced) else 1
        raise refusal("matmul", place, b if place == 2 else a)
    if not a.ndim or not b.ndim:
        raise ShapeError(f"matmul: a is {a.shape} and b is {b.shape}; a number multiplies with *")
    left: Any = a.unsqueeze(0) if a.ndim == 1 else a  # type: ignore[attr-defined]  # every Traced is a Tensor
    right: Any = b.unsqueeze(1) if b.ndim == 1 else b  # type: ignore[attr-defined]
    stage = node.stage
    if stage is None:
        result: Tensor = gates.run_op(MATMUL, (left, right), {})
    else:
        result = stage.layer(gates.run, MATMUL, (left, right), {})
    if b.ndim == 1:
        result = result.reshape(result.shape[:-1])
    if a.ndim == 1:
        result = result.reshape((*result.shape[:-2], *result.shape[-1:]) if b.ndim > 1 else ())
    return result


MATMUL: Any = find("matmul")


class Operators(Elementwise):
    """Arithmetic, comparison and bits; `&`, `|`, `^` and `~` are logical on bools."""

    __slots__ = ()
    __array_priority__ = 1000  # NumPy's arrays leave mixed operators to us

    def _with(self, row: Row, other: Other) -> Tensor:
        other = operand(self, other)
        return NotImplemented if other is NotImplemented else binary(row, self, other)

    def _from(self, row: Row, other: Other) -> Tensor:
        other = operand(self, other)
        return NotImplemented if other is NotImplemented else binary(row, other, self)

    def __add__(self, other: Other) -> Tensor:
        return binary(ADD, self, other) if isinstance(other, PLAIN) else self._with(ADD, other)

    def __radd__(self, other: Other) -> Tensor:
        return self._from(ADD, other)

    def __sub__(self, other: Other) -> Tensor:
        return binary(SUBTRACT, self, other) if isinstance(other, PLAIN) else self._with(SUBTRACT, other)

    def __rsub__(self, other: Other) -> Tensor:
        return self._from(SUBTRACT, other)

    def __mul__(self, other: Other) -> Tensor:
        return binary(MULTIPLY, self, other) if isinstance(other, PLAIN) else self._with(MULTIPLY, other)

    def __rmul__(self, other: Other) -> Tensor:
        return self._from(MULTIPLY, other)

    def __truediv__(self, other: Other) -> Tensor:
        return binary(DIVIDE, self, other) if isinstance(other, PLAIN) else self._with(DIVIDE, other)

    def __rtruediv__(self, other: Other) -> Tensor:
        return self._from(DIVIDE, other)

    def __floordiv__(self, other: Other) -> Tensor:
        return self._with(FLOOR_DIVIDE, other)

    def __rfloordiv__(self, other: Other) -> Tensor:
        return self._from(FLOOR_DIVIDE, other)

    def __mod__(self, other: Other) -> Tensor:
        return self._with(REMAINDER, other)

    def __rmod__(self, other: Other) -> Tensor:
        return self._from(REMAINDER, other)

    def __pow__(self, other: Other) -> Tensor:
        other = operand(self, other)
        return NotImplemented if other is NotImplemented else self.pow(other)

    def __rpow__(self, other: Other) -> Tensor:
        return self._from(POWER, other)

    def __matmul__(self, other: Other) -> Tensor:
        other = operand(self, other)
        return matmul(self, other) if isinstance(other, Traced) else NotImplemented

    def __rmatmul__(self, other: Other) -> Tensor:
        other = operand(self, other)
        return matmul(other, self) if isinstance(other, Traced) else NotImplemented

    def matmul(self, other: Tensor) -> Tensor:
        """Matrix product over the last two axes; leading axes broadcast, vectors are rows or columns."""
        return matmul(self, other)

    def __neg__(self) -> Tensor:
        return unary(NEGATIVE, self)

    def __pos__(self) -> Tensor:
        return self.positive()

    def __abs__(self) -> Tensor:
        return self.abs()

    def __eq__(self, other: Other) -> Tensor:  # type: ignore[override]  # element by element
        other = operand(self, other)
        return NotImplemented if other is NotImplemented else compared("equal", self, other)

    def __ne__(self, other: Other) -> Tensor:  # type: ignore[override]  # likewise
        other = operand(self, other)
        return NotImplemented if other is NotImplemented else compared("not_equal", self, other)

    __hash__ = object.__hash__  # a tensor is itself, whatever it holds

    def __lt__(self, other: Other) -> Tensor:
        return self._with(LESS, other)

    def __le__(self, other: Other) -> Tensor:
        return self._with(LESS_EQUAL, other)

    def __gt__(self, other: Other) -> Tensor:
        return self._with(GREATER, other)

    def __ge__(self, other: Other) -> Tensor:
        return self._with(GREATER_EQUAL, other)

    def _bits(self, word: str) -> Row:
        return TABLE[f"logical_{word}" if self.dtype.kind == "b" else f"bitwise_{word}"]

    def __and__(self, other: Other) -> Tensor:
        return self._with(self._bits("and"), other)

    def __or__(self, other: Other) -> Tensor:
        return self._with(self._bits("or"), other)

    def __xor__(self, other: Other) -> Tensor:
        return self._with(self._bits("xor"), other)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __invert__(self) -> Tensor:
        return self.logical_not() if self.dtype.kind == "b" else self.bitwise_not()

    def __lshift__(self, other: Other) -> Tensor:
        return self._with(LEFT_SHIFT, other)

    def __rshift__(self, other: Other) -> Tensor:
        return self._with(RIGHT_SHIFT, other)
