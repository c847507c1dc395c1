"""Functions that Vulkan lacks or promises too loosely, built from what it has exactly.

Vulkan allows exp 3 + 2|x| ULP, sin and cos an absolute 2^-11, atan 4096 ULP, and log near 1 an absolute 2^-21; it
has no expm1, log1p, erf, log10 or hypot, and its pow, asinh, acosh and tanh are made of the loose ones. So these are
series over + - * / and sqrt, two operations on bits (`pow2`, and `exponent` with `mantissa`) and selects. Sources:
fdlibm (log, log1p: e_logf.c, s_log1pf.c, Sun Microsystems 1993) and Cephes (sinf, atanf, asinf: Moshier 1989); exp is
its Taylor polynomial. What float64 has instead stands in spirv_double.py.
"""

from __future__ import annotations

from ..dtypes import DType, bool_, float32, float64
from . import spirv_series as series
from .dag import Builder, Macro, Value
from .spirv_double import FUNCTIONS as DOUBLE_FUNCTIONS

Args = tuple[Value, ...]
NATIVE = frozenset(
    {"abs", "sqrt", "floor", "ceil", "rint", "trunc", "maximum", "minimum", "sign", "copysign", "isnan", "isinf"}
)
LN2_HIGH, LN2_LOW = "0.693145751953125", "1.4286068203094173e-06"  # the first has 16 bits, so k * it is exact
# pi / 2 in parts of 11 bits, so that k * part is exact for |k| < 2^13, and the rest
PI_PARTS = ("1.5703125", "0.0004837512969970703125", "7.54953362047672271728515625e-08", "2.563344151594519e-12")


def macros_of(number: DType) -> dict[str, Macro]:
    """What replaces functions and operators in a kernel of this dtype."""
    return SINGLE if number is float32 else DOUBLE if number is float64 else ANY


def _remainder(b: Builder, args: Args) -> Value:
    """a % b as NumPy has it: of b's sign."""
    rest, lack, more, apart = _left(b, args)
    return b.expression("where((y == 0) | isnan(x) | isnan(y) | isinf(x), nan, copysign(where(more, where(apart, lack, rest), 0), y))",
                        x=args[0], y=args[1], rest=rest, lack=lack, more=more, apart=apart)  # fmt: skip


def _floor_divide(b: Builder, args: Args) -> Value:
    x, y = args
    rest, _, more, apart = _left(b, args)
    m = b.expression("where(isnan(x) | isnan(y) | isinf(x), nan, copysign(rest, x))", x=x, y=y, rest=rest)
    d = b.expression("(x - m) / y - where(more & apart, 1, 0)", x=x, m=m, y=y, more=more, apart=apart)
    f = b.expression("floor(d) + where(d - floor(d) > 0.5, 1, 0)", d=d)
    return b.expression("where(y == 0, x / y, where(d == 0, copysign(0 * d, x / y), f))", x=x, y=y, d=d, f=f)


def _left(b: Builder, args: Args) -> tuple[Value, Value, Value, Value]:
    """Of |x| and |y| the rest, what lacks to the next multiple and whether there is a rest; and whether their signs differ.

    Exact: x - floor(x / y) * y with the product's rounding error taken off (Dekker 1971), or in integers.
    """
    x, y = (b.expression("abs(v)", v=v) for v in args)
    q = b.expression("floor(x / y)", x=x, y=y)
    p, e = series.product(b, q, y)
    r = b.expression("(x - p) - e", x=x, p=p, e=e)
    near = b.expression("where(x < y, x, where(r < 0, r + y, where(r >= y, r - y, r)))", r=r, x=x, y=y)
    rest, lack = (b.make(op, x.dtype, x, y, near) for op in ("rest", "lack"))
    apart = b.expression("where(x < 0, 1, 0) != where(y < 0, 1, 0)", x=args[0], y=args[1])
    return rest, lack, b.make("more", bool_, x, y, near), apart


def _hypot(b: Builder, args: Args) -> Value:
    x, y = (b.expression("abs(v)", v=v) for v in args)
    large = b.expression("maximum(x, y)", x=x, y=y)
    small = b.expression("minimum(x, y)", x=x, y=y)
    ratio = b.expression("s / where(m == 0, 1, m)", s=small, m=large)
    # infinity wins over NaN: C99 F.9.4.3
    return b.expression("where((x == inf) | (y == inf), inf, m * sqrt(1 + r * r))", x=x, y=y, m=large, r=ratio)


# exp and what is made of it

# exp(r) = 1 + r + r^2 (1/2 + r/3! + ...), highest power first
_EXP = (0.0001984127, 0.0013888889, 0.008333333333333333, 0.041666666666666664, 0.16666666666666666, 0.5)


# not by fma: Mesa joins fma(k, low, fma(k, high, x)) to fma(k, low + high, x)
_reduced = series.reduced(LN2_HIGH, LN2_LOW)


def _exp_parts(b: Builder, x: Value) -> tuple[Value, Value]:
    """k and exp(r) - 1 of x = k ln 2 + r, |r| < 0.35."""
    k, r = _reduced(b, x)
    return k, _exp_less_one(b, r)


def _exp_less_one(b: Builder, r: Value) -> Value:
    """exp(r) - 1 for |r| < 0.35."""
    return series.fused(b, b.expression("r * r", r=r), series.horner(b, r, _EXP), r)


def _exp_less(b: Builder, x: Value, less: int) -> Value:
    """exp(x) / 2^less; too large an x overflows in the product."""
    k, p = _exp_parts(b, b.expression("where(x > 90, 90, where(x < -105, -105, x))", x=x))
    return series.times_pow2(b, b.expression("1 + p", p=p), b.expression(f"k - {less}", k=k) if less else k)


def _exp(b: Builder, args: Args) -> Value:
    return _exp_less(b, args[0], 0)


def _exp2(b: Builder, args: Args) -> Value:
    x = b.expression("where(x > 129, 129, where(x < -151, -151, x))", x=args[0])
    k = b.expression("rint(x)", x=x)
    p = _exp_less_one(b, b.expression("(x - k) * 0.6931471805599453", x=x, k=k))
    return series.times_pow2(b, b.expression("1 + p", p=p), k)


def _expm1(b: Builder, args: Args) -> Value:
    k, p = _exp_parts(b, b.expression("where(x > 89, 89, where(x < -20, -20, x))", x=args[0]))
    t = b.make("pow2", k.dtype, b.expression("k - 1", k=k))
    value = b.expression("2 * (t * p + (t - 0.5))", t=t, p=p)
    return b.expression("where(x > 88.72284, inf, where(x == 0, x, v))", x=args[0], v=value)


# erf: x + x P(x^2) near 0, beyond 1 - exp(Q(|x|)), both computed and one chosen: 1 ULP in one precision with fma.
# exp(Q) is at most 0.19 of a result of at least 0.81, and smaller where Vulkan allows it more than 3 ULP: together 0.4 ULP.
# Source: N. Juffa 2016, "Efficient implementation of erff", stackoverflow.com/questions/35148198, BSD-2-Clause
_ERF_NEAR = (-5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1, 1.28379166e-1)
_ERF_FAR_EVEN, _ERF_FAR_ODD = (-3.88396438e-3, 2.42546219e-2), (-1.72853470e-5, 3.83197126e-4)
_ERF_FAR = (-1.06777877e-1, -6.34846687e-1, -1.28717512e-1)


def _erf(b: Builder, args: Args) -> Value:
    x = args[0]
    t = b.expression("where(abs(x) < 4, abs(x), 4)", x=x)  # erf(3.92) rounds to 1
    z = b.expression("t * t", t=t)
    near = series.fused(b, series.horner(b, z, _ERF_NEAR), x, x)
    far = series.fused(b, series.horner(b, t, _ERF_FAR_ODD), z, series.horner(b, t, _ERF_FAR_EVEN))
    far = series.fused(b, series.horner(b, t, _ERF_FAR, start=far), t, b.expression("-t", t=t))
    rest = b.make("loose_exp", x.dtype, far)
    return b.expression("where(abs(x) > 0.927734375, copysign(1 - e, x), v)", x=x, e=rest, v=near)


# log and what is made of it


_LOG = ("0.6666666269302368", "0.40000972151756287", "0.2849878668785095", "0.24279078841209412")
_LOG1P = "((t + (e * 9.058000614459161e-06 + c)) - 0.5 * f * f) + f + e * 0.6931381225585938"
_log_parts = series.log_parts("1.1754943508222875e-38", "8388608", 23)


def _log_tail(b: Builder, f: Value) -> Value:
    """f*f/2 - (f - log(1 + f)) without its leading terms: s (f*f/2 + R)."""
    s = b.expression("f / (2 + f)", f=f)
    z = b.expression("s * s", s=s)
    r = b.expression(f"z * {series.polynomial('z', _LOG)}", z=z)
    return b.expression("s * (0.5 * f * f + r)", s=s, f=f, r=r)


def _log(b: Builder, args: Args) -> Value:
    e, f = _log_parts(b, args[0])
    value = b.expression(
        "((t + e * 9.058000614459161e-06) - 0.5 * f * f) + f + e * 0.6931381225585938", t=_log_tail(b, f), e=e, f=f
    )
    return series.log_guard(b, args[0], value)


def _log10(b: Builder, args: Args) -> Value:
    e, f = _log_parts(b, args[0])
    value = b.expression("e * 0.301025390625 + (e * 4.605038981195214e-06 + (f - (0.5 * f * f - t)) * 0.4342944819032518)",
                         t=_log_tail(b, f), e=e, f=f)  # fmt: skip
    return series.log_guard(b, args[0], value)


_power = series.power(_log_parts, _LOG, (LN2_HIGH, LN2_LOW), reach="1e10", beyond=120)


# circular functions


def _turned(b: Builder, x: Value) -> tuple[Value, Value, Value]:
    """Sine and cosine of x less the nearest multiple of pi / 2, and that multiple modulo 4."""
    r, quarter = series.reduced_turn(b, x, PI_PARTS)
    z = b.expression("r * r", r=r)
    sine = b.expression("r + r * z * (-0.16666654611 + z * (0.0083321608736 + z * -0.00019515295891))", r=r, z=z)
    cosine = b.expression(
        "1 - 0.5 * z + z * z * (0.04166664568298827 + z * (-0.001388731625493765 + z * 2.443315711809948e-05))", z=z
    )
    return sine, cosine, quarter


def _atan(b: Builder, args: Args) -> Value:
    a = b.expression("abs(x)", x=args[0])
    t = b.expression(
        "where(a > 2.414213562373095, -1 / a, where(a > 0.4142135623730950, (a - 1) / (a + 1), a))",
        a=b.expression("maximum(a, 1e-30)", a=a),
    )
    z = b.expression("t * t", t=t)
    p = b.expression(
        "t + t * z * (-0.333329491539 + z * (0.199777106478 + z * (-0.138776856032 + z * 0.0805374449538)))", t=t, z=z
    )
    turn = b.expression(
        "where(a > 2.414213562373095, 1.5707963267948966, where(a > 0.4142135623730950, 0.7853981633974483, 0))", a=a
    )
    value = b.expression("turn + where(a < 1e-6, a, p)", a=a, p=p, turn=turn)
    return b.expression("copysign(v, x)", v=value, x=args[0])


def _asin_half(b: Builder, a: Value) -> Value:
    """asin on [0, 0.5]."""
    z = b.expression("a * a", a=a)
    text = "a + a * z * (0.16666752422 + z * (0.074953002686 + z * (0.045470025998 + z * (0.024181311049 + z * 0.042163199048))))"
    return b.expression(text, a=a, z=z)


def _asin(b: Builder, args: Args) -> Value:
    a = b.expression("abs(x)", x=args[0])
    far = b.expression("sqrt(maximum(0.5 * (1 - a), 0))", a=a)
    p = _asin_half(b, b.expression("where(a > 0.5, f, a)", a=a, f=far))
    value = b.expression("copysign(where(a > 0.5, 1.5707963267948966 - 2 * p, p), x)", a=a, p=p, x=args[0])
    return b.expression("where(a > 1, nan, v)", a=a, v=value)


def _acos(b: Builder, args: Args) -> Value:
    a = b.expression("abs(x)", x=args[0])
    far = b.expression("sqrt(maximum(0.5 * (1 - a), 0))", a=a)
    p = _asin_half(b, b.expression("where(a > 0.5, f, a)", a=a, f=far))
    value = b.expression(
        "where(a > 0.5, where(x > 0, 2 * p, 3.141592653589793 - 2 * p), 1.5707963267948966 - copysign(p, x))",
        a=a,
        p=p,
        x=args[0],
    )
    return b.expression("where(a > 1, nan, v)", a=a, v=value)


ANY: dict[str, Macro] = {"%": _remainder, "//": _floor_divide, "hypot": _hypot}
SINGLE: dict[str, Macro] = ANY | {
    "exp": _exp, "exp2": _exp2, "expm1": _expm1, "tanh": series.tanh(_expm1, 10), "sinh": series.sinh(_expm1, _exp_less, 9),
    "cosh": series.cosh(_exp_less), "log": _log, "log2": series.log2(_log_parts, _log_tail), "log10": _log10,
    "log1p": series.log1p(_log_parts, _log_tail, _LOG1P), "asinh": series.asinh(8192), "acosh": series.acosh(8192),
    "atanh": series.atanh, "power": _power, "sin": series.sin(_turned), "cos": series.cos(_turned), "tan": series.tan(_turned),
    "atan": _atan, "atan2": series.atan2(_atan),
    "asin": _asin, "acos": _acos, "erf": _erf,
}  # fmt: skip
DOUBLE: dict[str, Macro] = ANY | DOUBLE_FUNCTIONS
