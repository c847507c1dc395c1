"""float64 functions for SPIR-V, which has none but sqrt: fdlibm's series (Sun Microsystems 1993) over + - * / and bits.

Sources: e_exp.c, e_log.c, s_log1p.c, k_sin.c, k_cos.c, s_atan.c, e_asin.c. sin, cos and tan take three parts of pi / 2, so
they are exact to a few ULP while |x| < 1.6e6 and lose digits beyond. power is exp(b log a) with the logarithm in two parts.
"""

from __future__ import annotations

from . import spirv_series as series
from .dag import Builder, Macro, Value

Args = tuple[Value, ...]
LN2_HIGH, LN2_LOW = (
    "6.93147180369123816490e-01",
    "1.90821492927058770002e-10",
)  # the first has 32 bits, so k * it is exact
PI_PARTS = (
    "1.57079632673412561417",
    "6.07710050630396597660e-11",
    "2.02226624871116645580e-21",
    "8.47842766036889956997e-32",
)
_EXP = ("1.66666666666666019037e-01", "-2.77777777770155933842e-03", "6.61375632143793436117e-05", "-1.65339022054652515390e-06",
        "4.13813679705723846039e-08")  # fmt: skip
_LOG = ("6.666666666666735130e-01", "3.999999999940941908e-01", "2.857142874366239149e-01", "2.222219843214978396e-01",
        "1.818357216161805012e-01", "1.531383769920937332e-01", "1.479819860511658591e-01")  # fmt: skip
_SIN = ("-1.66666666666666324348e-01", "8.33333333332248946124e-03", "-1.98412698298579493134e-04", "2.75573137070700676789e-06",
        "-2.50507602534068634195e-08", "1.58969099521155010221e-10")  # fmt: skip
_COS = ("4.16666666666666019037e-02", "-1.38888888888741095749e-03", "2.48015872894767294178e-05", "-2.75573143513906633035e-07",
        "2.08757232129817482790e-09", "-1.13596475577881948265e-11")  # fmt: skip
_ATAN = ("3.33333333333329318027e-01", "-1.99999999998764832476e-01", "1.42857142725034663711e-01", "-1.11111104054623557880e-01",
         "9.09088713343650656196e-02", "-7.69187620504482999495e-02", "6.66107313738753120669e-02", "-5.83357013379057348645e-02",
         "4.97687799461593236017e-02", "-3.65315727442169155270e-02", "1.62858201153657823623e-02")  # fmt: skip
_ASIN_TOP = ("1.66666666666666657415e-01", "-3.25565818622400915405e-01", "2.01212532134862925881e-01", "-4.00555345006794114027e-02",
             "7.91534994289814532176e-04", "3.47933107596021167570e-05")  # fmt: skip
_ASIN_BOTTOM = (
    "1",
    "-2.40339491173441421878",
    "2.02094576023350569471",
    "-6.88283971605453293030e-01",
    "7.70381505559019352791e-02",
)


# exp and what is made of it


_reduced = series.reduced(LN2_HIGH, LN2_LOW)


def _exp_fraction(b: Builder, r: Value) -> Value:
    """exp(r) - 1 for |r| < 0.35."""
    c = b.expression(f"r - r * r * {series.polynomial('(r * r)', _EXP)}", r=r)
    return b.expression("r + r * c / (2 - c)", r=r, c=c)


def _exp_less(b: Builder, x: Value, less: int) -> Value:
    """exp(x) / 2^less."""
    k, r = _reduced(b, b.expression("maximum(minimum(x, 712), -747)", x=x))
    value = series.times_pow2(b, b.expression("1 + p", p=_exp_fraction(b, r)), b.expression(f"k - {less}", k=k))
    return b.expression(f"where(x > {709.782712893384 + 0.6931471805599453 * less}, inf, v)", x=x, v=value)


def _exp(b: Builder, args: Args) -> Value:
    return _exp_less(b, args[0], 0)


def _exp2(b: Builder, args: Args) -> Value:
    x = b.expression("maximum(minimum(x, 1025), -1077)", x=args[0])
    k = b.expression("rint(x)", x=x)
    r = b.expression("(x - k) * 0.6931471805599453", x=x, k=k)
    value = series.times_pow2(b, b.expression("1 + p", p=_exp_fraction(b, r)), k)
    return b.expression("where(x >= 1024, inf, v)", x=args[0], v=value)


def _expm1(b: Builder, args: Args) -> Value:
    k, r = _reduced(b, b.expression("maximum(minimum(x, 710), -40)", x=args[0]))
    t = b.make("pow2", k.dtype, b.expression("k - 1", k=k))
    value = b.expression("2 * (t * p + (t - 0.5))", t=t, p=_exp_fraction(b, r))
    return b.expression("where(x > 709.782712893384, inf, where(x == 0, x, v))", x=args[0], v=value)


# log and what is made of it


_LOG1P = f"e * {LN2_HIGH} - ((0.5 * f * f - (t + (e * {LN2_LOW} + c))) - f)"
_log_parts = series.log_parts("2.2250738585072014e-308", "18014398509481984", 54)


def _log_tail(b: Builder, f: Value) -> Value:
    """log(1 + f) - f + f*f/2."""
    s = b.expression("f / (2 + f)", f=f)
    z = b.expression("s * s", s=s)
    return b.expression(f"s * (0.5 * f * f + z * {series.polynomial('z', _LOG)})", s=s, f=f, z=z)


def _log(b: Builder, args: Args) -> Value:
    e, f = _log_parts(b, args[0])
    text = f"e * {LN2_HIGH} - ((0.5 * f * f - (t + e * {LN2_LOW})) - f)"
    return series.log_guard(b, args[0], b.expression(text, e=e, f=f, t=_log_tail(b, f)))


def _log10(b: Builder, args: Args) -> Value:
    e, f = _log_parts(b, args[0])
    text = "e * 3.01029995663611771306e-01 + (e * 3.69423907715893078616e-13 + (f - (0.5 * f * f - t)) * 4.34294481903251816668e-01)"
    return series.log_guard(b, args[0], b.expression(text, t=_log_tail(b, f), e=e, f=f))


_power = series.power(_log_parts, _LOG, (LN2_HIGH, LN2_LOW), reach="1e19", beyond=800)


# circular functions


def _turned(b: Builder, x: Value) -> tuple[Value, Value, Value]:
    """Sine and cosine of x less the nearest multiple of pi / 2, and that multiple modulo 4; NaN for infinities."""
    r, quarter = series.reduced_turn(b, x, PI_PARTS)
    z = b.expression("r * r", r=r)
    sine = b.expression(f"r + r * z * {series.polynomial('z', _SIN)}", r=r, z=z)
    cosine = b.expression(f"1 - (0.5 * z - z * z * {series.polynomial('z', _COS)})", z=z)
    return sine, cosine, quarter


def _atan(b: Builder, args: Args) -> Value:
    a = b.expression("abs(x)", x=args[0])
    held = b.expression("maximum(a, 1e-300)", a=a)
    cuts = ("0.4375", "0.6875", "1.1875", "2.4375")
    turned = ("a", "(2 * a - 1) / (2 + a)", "(a - 1) / (a + 1)", "(a - 1.5) / (1 + 1.5 * a)", "-1 / a")
    high = (
        "0",
        "4.63647609000806093515e-01",
        "7.85398163397448278999e-01",
        "9.82793723247329054082e-01",
        "1.57079632679489655800",
    )
    low = (
        "0",
        "2.26987774529616870924e-17",
        "3.06161699786838301793e-17",
        "1.39033110312309984516e-17",
        "6.12323399573676603587e-17",
    )

    def chosen(texts: tuple[str, ...]) -> Value:
        text = texts[-1]
        for cut, other in zip(reversed(cuts), reversed(texts[:-1]), strict=True):
            text = f"where(a < {cut}, {other}, {text})"
        return b.expression(text, a=held)

    t = chosen(turned)
    z = b.expression("t * t", t=t)
    tail = b.expression(f"t * z * {series.polynomial('z', _ATAN)}", t=t, z=z)
    value = b.expression("where(a < 1e-8, a, h - ((p - l) - t))", a=a, h=chosen(high), p=tail, l=chosen(low), t=t)
    return b.expression("copysign(v, x)", v=value, x=args[0])


def _asin_half(b: Builder, a: Value) -> Value:
    """asin on [0, 0.5]."""
    z = b.expression("a * a", a=a)
    return b.expression(
        f"a + a * (z * {series.polynomial('z', _ASIN_TOP)} / {series.polynomial('z', _ASIN_BOTTOM)})", a=a, z=z
    )


def _asin(b: Builder, args: Args) -> Value:
    a = b.expression("abs(x)", x=args[0])
    far = b.expression("sqrt(maximum(0.5 * (1 - a), 0))", a=a)
    p = _asin_half(b, b.expression("where(a > 0.5, f, a)", a=a, f=far))
    value = b.expression(
        "copysign(where(a > 0.5, 1.5707963267948966 - (2 * p - 6.123233995736766e-17), p), x)", a=a, p=p, x=args[0]
    )
    return b.expression("where(a > 1, nan, v)", a=a, v=value)


def _acos(b: Builder, args: Args) -> Value:
    a = b.expression("abs(x)", x=args[0])
    far = b.expression("sqrt(maximum(0.5 * (1 - a), 0))", a=a)
    p = _asin_half(b, b.expression("where(a > 0.5, f, a)", a=a, f=far))
    outer = b.expression("where(x > 0, 2 * p, 3.141592653589793 - (2 * p - 1.2246467991473532e-16))", p=p, x=args[0])
    inner = b.expression("1.5707963267948966 - (copysign(p, x) - 6.123233995736766e-17)", p=p, x=args[0])
    return b.expression("where(a > 1, nan, where(a > 0.5, o, i))", a=a, o=outer, i=inner)


FUNCTIONS: dict[str, Macro] = {
    "exp": _exp, "exp2": _exp2, "expm1": _expm1, "tanh": series.tanh(_expm1, 22), "sinh": series.sinh(_expm1, _exp_less, 22),
    "cosh": series.cosh(_exp_less), "log": _log, "log2": series.log2(_log_parts, _log_tail), "log10": _log10,
    "log1p": series.log1p(_log_parts, _log_tail, _LOG1P), "asinh": series.asinh(268435456), "acosh": series.acosh(268435456),
    "atanh": series.atanh, "power": _power, "sin": series.sin(_turned), "cos": series.cos(_turned), "tan": series.tan(_turned),
    "atan": _atan, "atan2": series.atan2(_atan),
    "asin": _asin, "acos": _acos,
}  # fmt: skip
