"""Methods of one element: a row of the op table each, under PyTorch's name for it."""

from __future__ import annotations

from numbers import Real
from operator import index as as_index
from typing import TYPE_CHECKING

from vsl_compute.dtypes import int64
from vsl_compute.errors import ArgumentTypeError, AttributeValueError
from vsl_compute.rows.elementwise import TABLE as ROW

from ..autograd import gates
from ..autograd.gates import binary, unary
from ..autograd.node import Traced
from .reductions import Reductions

if TYPE_CHECKING:
    from ..tensor import Tensor

Number = int | float | bool


def compared(name: str, x: Traced, other: Tensor | Number) -> Tensor:
    """x == other or x != other; bools are equal where they do not differ, beside a number they count as 0 and 1."""
    if x.dtype.kind == "b":
        if isinstance(other, bool) or (isinstance(other, Traced) and other.dtype.kind == "b"):
            differ = binary(ROW["logical_xor"], x, other)
            return differ if name == "not_equal" else unary(ROW["logical_not"], differ)
        if not isinstance(other, Traced):
            x = gates.run("astype", x, dtype=int64)
    return binary(ROW[name], x, other)


class Elementwise(Reductions):
    """Rows of one argument, of two, and those with options; arguments broadcast, numbers adapt their dtype."""

    __slots__ = ()

    def abs(self) -> Tensor:
        """Absolute value; its gradient at 0 is 0."""
        return unary(ROW["absolute"], self)

    def neg(self) -> Tensor:
        """-x."""
        return unary(ROW["negative"], self)

    def positive(self) -> Tensor:
        """+x."""
        return unary(ROW["positive"], self)

    def sign(self) -> Tensor:
        """-1, 0 or 1."""
        return unary(ROW["sign"], self)

    def square(self) -> Tensor:
        """x * x."""
        return unary(ROW["square"], self)

    def reciprocal(self) -> Tensor:
        """1 / x."""
        return unary(ROW["reciprocal"], self)

    def sqrt(self) -> Tensor:
        """Square root; its gradient at 0 is infinite."""
        return unary(ROW["sqrt"], self)

    def rsqrt(self) -> Tensor:
        """1 / sqrt(x)."""
        return unary(ROW["rsqrt"], self)

    def root(self) -> Tensor:
        """Square root whose gradient at 0 is 0: for norms and deviations."""
        return unary(ROW["root"], self)

    def exp(self) -> Tensor:
        """e to the x."""
        return unary(ROW["exp"], self)

    def exp2(self) -> Tensor:
        """2 to the x."""
        return unary(ROW["exp2"], self)

    def expm1(self) -> Tensor:
        """exp(x) - 1, exact near 0."""
        return unary(ROW["expm1"], self)

    def log(self) -> Tensor:
        """Natural logarithm."""
        return unary(ROW["log"], self)

    def log1p(self) -> Tensor:
        """log(1 + x), exact near 0."""
        return unary(ROW["log1p"], self)

    def log2(self) -> Tensor:
        """Logarithm to base 2."""
        return unary(ROW["log2"], self)

    def log10(self) -> Tensor:
        """Logarithm to base 10."""
        return unary(ROW["log10"], self)

    def sin(self) -> Tensor:
        """Sine of radians."""
        return unary(ROW["sin"], self)

    def cos(self) -> Tensor:
        """Cosine of radians."""
        return unary(ROW["cos"], self)

    def tan(self) -> Tensor:
        """Tangent of radians."""
        return unary(ROW["tan"], self)

    def asin(self) -> Tensor:
        """Arc sine, in radians."""
        return unary(ROW["asin"], self)

    def acos(self) -> Tensor:
        """Arc cosine, in radians."""
        return unary(ROW["acos"], self)

    def atan(self) -> Tensor:
        """Arc tangent, in radians."""
        return unary(ROW["atan"], self)

    def sinh(self) -> Tensor:
        """Hyperbolic sine."""
        return unary(ROW["sinh"], self)

    def cosh(self) -> Tensor:
        """Hyperbolic cosine."""
        return unary(ROW["cosh"], self)

    def tanh(self) -> Tensor:
        """Hyperbolic tangent."""
        return unary(ROW["tanh"], self)

    def asinh(self) -> Tensor:
        """Inverse hyperbolic sine."""
        return unary(ROW["asinh"], self)

    def acosh(self) -> Tensor:
        """Inverse hyperbolic cosine."""
        return unary(ROW["acosh"], self)

    def atanh(self) -> Tensor:
        """Inverse hyperbolic tangent."""
        return unary(ROW["atanh"], self)

    def erf(self) -> Tensor:
        """Error function."""
        return unary(ROW["erf"], self)

    def isnan(self) -> Tensor:
        """Whether each element is NaN."""
        return unary(ROW["isnan"], self)

    def isinf(self) -> Tensor:
        """Whether each element is infinite."""
        return unary(ROW["isinf"], self)

    def isfinite(self) -> Tensor:
        """Whether each element is neither NaN nor infinite."""
        return unary(ROW["isfinite"], self)

    def logical_not(self) -> Tensor:
        """not x, of bools."""
        return unary(ROW["logical_not"], self)

    def bitwise_not(self) -> Tensor:
        """Every bit of an integer turned over."""
        return unary(ROW["bitwise_invert"], self)

    def sigmoid(self) -> Tensor:
        """1 / (1 + exp(-x))."""
        return unary(ROW["sigmoid"], self)

    def logsigmoid(self) -> Tensor:
        """log(sigmoid(x)), without its rounding."""
        return unary(ROW["logsigmoid"], self)

    def relu(self) -> Tensor:
        """max(x, 0); its gradient at 0 is 0."""
        return unary(ROW["relu"], self)

    def relu6(self) -> Tensor:
        """min(max(x, 0), 6)."""
        return unary(ROW["relu6"], self)

    def selu(self) -> Tensor:
        """Scaled exponential linear unit, Klambauer et al. 2017."""
        return unary(ROW["selu"], self)

    def softplus(self) -> Tensor:
        """log(1 + exp(x))."""
        return unary(ROW["softplus"], self)

    def softsign(self) -> Tensor:
        """x / (1 + |x|)."""
        return unary(ROW["softsign"], self)

    def silu(self) -> Tensor:
        """x * sigmoid(x), also called swish."""
        return unary(ROW["silu"], self)

    def hardsigmoid(self) -> Tensor:
        """sigmoid in three straight pieces."""
        return unary(ROW["hardsigmoid"], self)

    def hardswish(self) -> Tensor:
        """x * hardsigmoid(x)."""
        return unary(ROW["hardswish"], self)

    def mish(self) -> Tensor:
        """x * tanh(softplus(x)), Misra 2019."""
        return unary(ROW["mish"], self)

    def floor(self) -> Tensor:
        """Largest integer not above x."""
        return unary(ROW["floor"], self) if self.dtype.is_floating else self.clone()

    def ceil(self) -> Tensor:
        """Smallest integer not below x."""
        return unary(ROW["ceil"], self) if self.dtype.is_floating else self.clone()

    def trunc(self) -> Tensor:
        """x without its fraction."""
        return unary(ROW["trunc"], self) if self.dtype.is_floating else self.clone()

    def add(self, other: Tensor | Number) -> Tensor:
        """self + other."""
        return binary(ROW["add"], self, other)

    def sub(self, other: Tensor | Number) -> Tensor:
        """self - other."""
        return binary(ROW["subtract"], self, other)

    def mul(self, other: Tensor | Number) -> Tensor:
        """self * other."""
        return binary(ROW["multiply"], self, other)

    def div(self, other: Tensor | Number) -> Tensor:
        """self / other; integers give float32."""
        return binary(ROW["divide"], self, other)

    def floor_divide(self, other: Tensor | Number) -> Tensor:
        """Largest integer not above self / other."""
        return binary(ROW["floor_divide"], self, other)

    def remainder(self, other: Tensor | Number) -> Tensor:
        """self - other * (self // other): it has other's sign."""
        return binary(ROW["remainder"], self, other)

    def atan2(self, other: Tensor | Number) -> Tensor:
        """Angle of the point (other, self), in radians."""
        return binary(ROW["atan2"], self, other)

    def hypot(self, other: Tensor | Number) -> Tensor:
        """sqrt(self**2 + other**2), without overflow."""
        return binary(ROW["hypot"], self, other)

    def copysign(self, other: Tensor | Number) -> Tensor:
        """self's size with other's sign."""
        return binary(ROW["copysign"], self, other)

    def maximum(self, other: Tensor | Number) -> Tensor:
        """The larger of the two; NaN wins, and ties share the gradient."""
        return binary(ROW["maximum"], self, other)

    def minimum(self, other: Tensor | Number) -> Tensor:
        """The smaller of the two; NaN wins, and ties share the gradient."""
        return binary(ROW["minimum"], self, other)

    def eq(self, other: Tensor | Number) -> Tensor:
        """self == other."""
        return compared("equal", self, other)

    def ne(self, other: Tensor | Number) -> Tensor:
        """self != other."""
        return compared("not_equal", self, other)

    def lt(self, other: Tensor | Number) -> Tensor:
        """self < other."""
        return binary(ROW["less"], self, other)

    def le(self, other: Tensor | Number) -> Tensor:
        """self <= other."""
        return binary(ROW["less_equal"], self, other)

    def gt(self, other: Tensor | Number) -> Tensor:
        """self > other."""
        return binary(ROW["greater"], self, other)

    def ge(self, other: Tensor | Number) -> Tensor:
        """self >= other."""
        return binary(ROW["greater_equal"], self, other)

    def logical_and(self, other: Tensor | Number) -> Tensor:
        """and, of bools."""
        return binary(ROW["logical_and"], self, other)

    def logical_or(self, other: Tensor | Number) -> Tensor:
        """or, of bools."""
        return binary(ROW["logical_or"], self, other)

    def logical_xor(self, other: Tensor | Number) -> Tensor:
        """either but not both, of bools."""
        return binary(ROW["logical_xor"], self, other)

    def bitwise_and(self, other: Tensor | Number) -> Tensor:
        """Bits that both have, of integers."""
        return binary(ROW["bitwise_and"], self, other)

    def bitwise_or(self, other: Tensor | Number) -> Tensor:
        """Bits that one has, of integers."""
        return binary(ROW["bitwise_or"], self, other)

    def bitwise_xor(self, other: Tensor | Number) -> Tensor:
        """Bits that one but not both have, of integers."""
        return binary(ROW["bitwise_xor"], self, other)

    def bitwise_left_shift(self, other: Tensor | Number) -> Tensor:
        """Bits moved up by other."""
        return binary(ROW["bitwise_left_shift"], self, other)

    def bitwise_right_shift(self, other: Tensor | Number) -> Tensor:
        """Bits moved down by other."""
        return binary(ROW["bitwise_right_shift"], self, other)

    def pow(self, exponent: Tensor | Number) -> Tensor:
        """self ** exponent; an integer tensor with an integer number of at least 0 stays integer."""
        if type(exponent) is int:
            if exponent == 2:
                return unary(ROW["square"], self)
            if exponent >= 0 and self.dtype.is_integer:
                return self._integer_power(exponent)
        return binary(ROW["power"], self, exponent)

    def _integer_power(self, exponent: int) -> Tensor:
        result, base = gates.run("fill_like", self, alpha=1), self
        while exponent:
            if exponent & 1:
                result = binary(ROW["multiply"], result, base)
            base, exponent = unary(ROW["square"], base), exponent >> 1
        return result  # type: ignore[no-any-return]

    def round(self, *, decimals: int = 0) -> Tensor:
        """The nearest integer, halves to even; or to so many decimal places."""
        if as_index(decimals):
            return self.mul(10.0**decimals).round().div(10.0**decimals)
        return unary(ROW["round"], self) if self.dtype.is_floating else self.clone()

    def where(self, condition: Tensor, other: Tensor | Number) -> Tensor:
        """self where `condition` is true, else other."""
        return gates.run("where_bool" if self.dtype.kind == "b" else "where", condition, self, other)  # type: ignore[no-any-return]

    def clamp(self, min: Tensor | Number | None = None, max: Tensor | Number | None = None) -> Tensor:
        """Values below `min` become min, values above `max` become max; at the bounds the gradient flows."""
        if min is None and max is None:
            raise AttributeValueError("clamp: give min, max or both")
        if isinstance(min, Traced) or isinstance(max, Traced):
            low: Traced = self if min is None else self._bounded("maximum", "greater_equal", self, min)
            return low if max is None else self._bounded("minimum", "less_equal", low, max)  # type: ignore[return-value]  # every Traced is a Tensor
        if not all(bound is None or isinstance(bound, Real) for bound in (min, max)):
            raise ArgumentTypeError(f"clamp: min={min!r:.40} and max={max!r:.40} must be numbers, tensors or None")
        if self.dtype.is_floating:
            bounds = (float("-inf") if min is None else float(min), float("inf") if max is None else float(max))
        else:
            bounds = (self.dtype.min if min is None else min, self.dtype.max if max is None else max)
        return gates.run("clamp", self, low=bounds[0], high=bounds[1])  # type: ignore[no-any-return]

    @staticmethod
    def _bounded(bound: str, inside: str, x: Traced, limit: Tensor | Number) -> Tensor:
        """x within `limit`; on the limit the whole gradient goes to x, where `bound` alone would share it."""
        return gates.run("where", binary(ROW[inside], x, limit), x, binary(ROW[bound], x, limit))  # type: ignore[no-any-return]

    def gelu(self, approximate: str = "none") -> Tensor:
        """x * Phi(x), Phi being the normal distribution function, or with approximate="tanh" its formula with tanh."""
        if approximate not in ("none", "tanh"):
            raise AttributeValueError(f"gelu: approximate={approximate!r} must be 'none' or 'tanh'")
        return unary(ROW["gelu" if approximate == "none" else "gelu_tanh"], self)

    def leaky_relu(self, negative_slope: float = 0.01) -> Tensor:
        """x where it is positive, else negative_slope * x."""
        return gates.run("leaky_relu", self, slope=negative_slope)  # type: ignore[no-any-return]

    def elu(self, alpha: float = 1.0) -> Tensor:
        """x where it is positive, else alpha * (exp(x) - 1)."""
        return gates.run("elu", self, alpha=alpha)  # type: ignore[no-any-return]
