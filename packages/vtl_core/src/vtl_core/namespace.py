"""Functions of one element, with the array API's names where it has them; numbers adapt to the tensors beside them."""

from __future__ import annotations

from typing import Any

from vsl_compute.errors import DTypeError
from vsl_compute.rows.elementwise import TABLE as ROW

from .arguments import explain
from .autograd.gates import binary, run
from .autograd.node import Traced
from .foreign import check_first, foreign
from .methods.elementwise import Number, compared
from .methods.operators import operand
from .tensor import Tensor

Operand = Tensor | Number


def _two(name: str, x1: Any, x2: Any) -> Tensor:
    return binary(ROW[name], *_operands(name, x1, x2))


def _compared(name: str, x1: Any, x2: Any) -> Tensor:
    first, second = _operands(name, x1, x2)
    return compared(name, first, second) if isinstance(first, Traced) else compared(name, second, first)


def _operands(name: str, x1: Any, x2: Any) -> tuple[Any, Any]:
    like = x1 if isinstance(x1, Traced) else x2
    if not isinstance(like, Traced):
        raise DTypeError(f"{name}: neither {x1!r:.40} nor {x2!r:.40} is a tensor; make one with vtl.asarray")
    first, second = operand(like, x1), operand(like, x2)
    if first is NotImplemented or second is NotImplemented:
        raise DTypeError(f"{name}: {x1 if first is NotImplemented else x2!r:.40} is neither a tensor nor a number")
    return first, second


def abs(x: Tensor, /) -> Tensor:
    """Absolute value; its gradient at 0 is 0."""
    return x.abs()


def acos(x: Tensor, /) -> Tensor:
    """Arc cosine, in radians."""
    return x.acos()


def acosh(x: Tensor, /) -> Tensor:
    """Inverse hyperbolic cosine."""
    return x.acosh()


def asin(x: Tensor, /) -> Tensor:
    """Arc sine, in radians."""
    return x.asin()


def asinh(x: Tensor, /) -> Tensor:
    """Inverse hyperbolic sine."""
    return x.asinh()


def atan(x: Tensor, /) -> Tensor:
    """Arc tangent, in radians."""
    return x.atan()


def atanh(x: Tensor, /) -> Tensor:
    """Inverse hyperbolic tangent."""
    return x.atanh()


def ceil(x: Tensor, /) -> Tensor:
    """Smallest integer not below x."""
    return x.ceil()


def cos(x: Tensor, /) -> Tensor:
    """Cosine of radians."""
    return x.cos()


def cosh(x: Tensor, /) -> Tensor:
    """Hyperbolic cosine."""
    return x.cosh()


def erf(x: Tensor, /) -> Tensor:
    """Error function."""
    return x.erf()


def exp(x: Tensor, /) -> Tensor:
    """e to the x."""
    return x.exp()


def exp2(x: Tensor, /) -> Tensor:
    """2 to the x."""
    return x.exp2()


def expm1(x: Tensor, /) -> Tensor:
    """exp(x) - 1, exact near 0."""
    return x.expm1()


def floor(x: Tensor, /) -> Tensor:
    """Largest integer not above x."""
    return x.floor()


def isfinite(x: Tensor, /) -> Tensor:
    """Whether each element is neither NaN nor infinite."""
    return x.isfinite()


def isinf(x: Tensor, /) -> Tensor:
    """Whether each element is infinite."""
    return x.isinf()


def isnan(x: Tensor, /) -> Tensor:
    """Whether each element is NaN."""
    return x.isnan()


def log(x: Tensor, /) -> Tensor:
    """Natural logarithm."""
    return x.log()


def log10(x: Tensor, /) -> Tensor:
    """Logarithm to base 10."""
    return x.log10()


def log1p(x: Tensor, /) -> Tensor:
    """log(1 + x), exact near 0."""
    return x.log1p()


def log2(x: Tensor, /) -> Tensor:
    """Logarithm to base 2."""
    return x.log2()


def logical_not(x: Tensor, /) -> Tensor:
    """not x, of bools."""
    return x.logical_not()


def positive(x: Tensor, /) -> Tensor:
    """+x."""
    return x.positive()


def reciprocal(x: Tensor, /) -> Tensor:
    """1 / x."""
    return x.reciprocal()


def relu(x: Tensor, /) -> Tensor:
    """max(x, 0); its gradient at 0 is 0."""
    return x.relu()


def rsqrt(x: Tensor, /) -> Tensor:
    """1 / sqrt(x)."""
    return x.rsqrt()


def sigmoid(x: Tensor, /) -> Tensor:
    """1 / (1 + exp(-x))."""
    return x.sigmoid()


def sign(x: Tensor, /) -> Tensor:
    """-1, 0 or 1."""
    return x.sign()


def sin(x: Tensor, /) -> Tensor:
    """Sine of radians."""
    return x.sin()


def sinh(x: Tensor, /) -> Tensor:
    """Hyperbolic sine."""
    return x.sinh()


def sqrt(x: Tensor, /) -> Tensor:
    """Square root; its gradient at 0 is infinite."""
    return x.sqrt()


def square(x: Tensor, /) -> Tensor:
    """x * x."""
    return x.square()


def tan(x: Tensor, /) -> Tensor:
    """Tangent of radians."""
    return x.tan()


def tanh(x: Tensor, /) -> Tensor:
    """Hyperbolic tangent."""
    return x.tanh()


def trunc(x: Tensor, /) -> Tensor:
    """x without its fraction."""
    return x.trunc()


def negative(x: Tensor, /) -> Tensor:
    """-x."""
    return -x


def round(x: Tensor, /) -> Tensor:
    """The nearest integer, halves to even."""
    return x.round()


def bitwise_invert(x: Tensor, /) -> Tensor:
    """Every bit of an integer turned over."""
    return x.bitwise_not()


def add(x1: Operand, x2: Operand, /) -> Tensor:
    """x1 + x2."""
    return _two("add", x1, x2)


def subtract(x1: Operand, x2: Operand, /) -> Tensor:
    """x1 - x2."""
    return _two("subtract", x1, x2)


def multiply(x1: Operand, x2: Operand, /) -> Tensor:
    """x1 * x2."""
    return _two("multiply", x1, x2)


def divide(x1: Operand, x2: Operand, /) -> Tensor:
    """x1 / x2; integers give float32."""
    return _two("divide", x1, x2)


def floor_divide(x1: Operand, x2: Operand, /) -> Tensor:
    """Largest integer not above x1 / x2."""
    return _two("floor_divide", x1, x2)


def remainder(x1: Operand, x2: Operand, /) -> Tensor:
    """x1 - x2 * (x1 // x2): it has x2's sign."""
    return _two("remainder", x1, x2)


def atan2(x1: Operand, x2: Operand, /) -> Tensor:
    """Angle of the point (x2, x1), in radians."""
    return _two("atan2", x1, x2)


def hypot(x1: Operand, x2: Operand, /) -> Tensor:
    """sqrt(x1**2 + x2**2), without overflow."""
    return _two("hypot", x1, x2)


def copysign(x1: Operand, x2: Operand, /) -> Tensor:
    """x1's size with x2's sign."""
    return _two("copysign", x1, x2)


def maximum(x1: Operand, x2: Operand, /) -> Tensor:
    """The larger of the two; NaN wins, and ties share the gradient."""
    return _two("maximum", x1, x2)


def minimum(x1: Operand, x2: Operand, /) -> Tensor:
    """The smaller of the two; NaN wins, and ties share the gradient."""
    return _two("minimum", x1, x2)


def equal(x1: Operand, x2: Operand, /) -> Tensor:
    """x1 == x2."""
    return _compared("equal", x1, x2)


def not_equal(x1: Operand, x2: Operand, /) -> Tensor:
    """x1 != x2."""
    return _compared("not_equal", x1, x2)


def less(x1: Operand, x2: Operand, /) -> Tensor:
    """x1 < x2."""
    return _two("less", x1, x2)


def less_equal(x1: Operand, x2: Operand, /) -> Tensor:
    """x1 <= x2."""
    return _two("less_equal", x1, x2)


def greater(x1: Operand, x2: Operand, /) -> Tensor:
    """x1 > x2."""
    return _two("greater", x1, x2)


def greater_equal(x1: Operand, x2: Operand, /) -> Tensor:
    """x1 >= x2."""
    return _two("greater_equal", x1, x2)


def logical_and(x1: Operand, x2: Operand, /) -> Tensor:
    """and, of bools."""
    return _two("logical_and", x1, x2)


def logical_or(x1: Operand, x2: Operand, /) -> Tensor:
    """or, of bools."""
    return _two("logical_or", x1, x2)


def logical_xor(x1: Operand, x2: Operand, /) -> Tensor:
    """either but not both, of bools."""
    return _two("logical_xor", x1, x2)


def bitwise_and(x1: Operand, x2: Operand, /) -> Tensor:
    """Bits that both have, of integers."""
    return _two("bitwise_and", x1, x2)


def bitwise_or(x1: Operand, x2: Operand, /) -> Tensor:
    """Bits that one has, of integers."""
    return _two("bitwise_or", x1, x2)


def bitwise_xor(x1: Operand, x2: Operand, /) -> Tensor:
    """Bits that one but not both have, of integers."""
    return _two("bitwise_xor", x1, x2)


def bitwise_left_shift(x1: Operand, x2: Operand, /) -> Tensor:
    """x1's bits moved up by x2."""
    return _two("bitwise_left_shift", x1, x2)


def bitwise_right_shift(x1: Operand, x2: Operand, /) -> Tensor:
    """x1's bits moved down by x2."""
    return _two("bitwise_right_shift", x1, x2)


def pow(x1: Operand, x2: Operand, /) -> Tensor:
    """x1 ** x2; an integer tensor with an integer number of at least 0 stays integer."""
    return x1.pow(x2) if isinstance(x1, Tensor) else _two("power", x1, x2)


def clip(x: Tensor, /, min: Operand | None = None, max: Operand | None = None) -> Tensor:
    """Values below `min` become min, values above `max` become max; at the bounds the gradient flows."""
    return x.clamp(min, max)


def where(condition: Tensor, x1: Operand, x2: Operand, /) -> Tensor:
    """x1 where `condition` is true, else x2."""
    if error := foreign("where", (condition, x1, x2)):
        raise error
    both_bool = all(isinstance(x, bool) or (isinstance(x, Traced) and x.dtype.kind == "b") for x in (x1, x2))
    return run("where_bool" if both_bool else "where", condition, x1, x2)  # type: ignore[no-any-return]


check_first(globals())


explain(globals())
