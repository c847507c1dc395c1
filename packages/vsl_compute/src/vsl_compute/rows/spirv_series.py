"""What float32's and float64's functions for SPIR-V have in common: identities over exp, expm1, log and atan of either.

Texts call those by name, so each finds its own dtype's; where a formula needs to know how many bits there are, it is
made from that limit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .dag import Builder, Macro, Value

Args = tuple[Value, ...]
ExpLess = Callable[[Builder, Value, int], Value]  # exp(x) / 2^less, which does not overflow before exp(x) / 2 does
LogParts = Callable[[Builder, Value], tuple[Value, Value]]
LogTail = Callable[[Builder, Value], Value]


def fused(b: Builder, x: Value, y: Value, z: Value) -> Value:
    """x * y + z, rounded once where the device can."""
    return b.make("fma", x.dtype, x, y, z)


def horner(b: Builder, x: Value, coefficients: Sequence[float], start: Value | None = None) -> Value:
    """The polynomial of these coefficients, the highest power's first; `start`, if there is one, stands before them."""
    value = b.constant(coefficients[0], x.dtype) if start is None else start
    for c in coefficients[1 if start is None else 0 :]:
        value = fused(b, value, x, b.constant(c, x.dtype))
    return value


def polynomial(z: str, coefficients: Sequence[str]) -> str:
    """c0 + z (c1 + z (c2 + ...)) as a text."""
    text = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        text = f"({c} + {z} * {text})"
    return text


def product(b: Builder, x: Value, y: Value) -> tuple[Value, Value]:
    """x * y and what rounding took from it (Dekker 1971)."""
    split = 4097 if x.dtype.itemsize == 4 else 134217729
    xh, yh = (b.expression(f"v * {split} - (v * {split} - v)", v=v) for v in (x, y))
    p = b.expression("x * y", x=x, y=y)
    text = "((h * k - p) + h * (y - k)) + (x - h) * k + (x - h) * (y - k)"
    return p, b.expression(text, h=xh, k=yh, p=p, x=x, y=y)


def times_pow2(b: Builder, p: Value, k: Value) -> Value:
    """p * 2^k in two steps, for 2^k alone may overflow or underflow."""
    half = b.expression("rint(0.5 * k)", k=k)
    one, two = b.make("pow2", k.dtype, half), b.make("pow2", k.dtype, b.expression("k - h", k=k, h=half))
    return b.expression("p * a * b", p=p, a=one, b=two)


def reduced(ln2_high: str, ln2_low: str) -> Callable[[Builder, Value], tuple[Value, Value]]:
    """k and r of x = k ln 2 + r, |r| < 0.35; ln2_high is so short that k * it is exact."""

    def parts(b: Builder, x: Value) -> tuple[Value, Value]:
        k = b.expression("rint(x * 1.4426950408889634)", x=x)
        return k, b.expression(f"(x - k * {ln2_high}) - k * {ln2_low}", x=x, k=k)

    return parts


def tanh(expm1: Macro, limit: int) -> Macro:
    """Through expm1; beyond `limit` it rounds to 1."""

    def macro(b: Builder, args: Args) -> Value:
        t = expm1(b, (b.expression(f"-2 * minimum(abs(x), {limit})", x=args[0]),))
        return b.expression("copysign(-t / (t + 2), x)", x=args[0], t=t)

    return macro


def sinh(expm1: Macro, exp_less: ExpLess, limit: int) -> Macro:
    """Through expm1; beyond `limit` half the exponential."""

    def macro(b: Builder, args: Args) -> Value:
        a = b.expression("abs(x)", x=args[0])
        t, half = expm1(b, (b.expression(f"minimum(a, {limit})", a=a),)), exp_less(b, a, 1)
        text = f"copysign(where(a < {limit}, 0.5 * (t + t / (t + 1)), h), x)"
        return b.expression(text, a=a, t=t, h=half, x=args[0])

    return macro


def cosh(exp_less: ExpLess) -> Macro:
    """h + 1 / (4 h), h half the exponential of |x|."""

    def macro(b: Builder, args: Args) -> Value:
        half = exp_less(b, b.expression("abs(x)", x=args[0]), 1)
        return b.expression("h + 0.25 / h", h=half)

    return macro


def log_parts(smallest: str, scale: str, bits: int) -> LogParts:
    """e and f of x = 2^e (1 + f), 1 + f between the roots of 1/2 and 2; below `smallest` x is first scaled by 2^bits."""

    def parts(b: Builder, x: Value) -> tuple[Value, Value]:
        tiny = b.expression(f"where(x < {smallest}, 1, 0)", x=x)
        normal = b.expression(f"where(t == 1, x * {scale}, x)", x=x, t=tiny)
        e = b.expression(f"e - {bits} * t", e=b.make("exponent", x.dtype, normal), t=tiny)
        return e, b.expression("m - 1", m=b.make("mantissa", x.dtype, normal))

    return parts


def log_guard(b: Builder, x: Value, value: Value) -> Value:
    """`value` where x is positive and finite; inf, -inf at 0, and NaN below."""
    return b.expression("where(x > 0, where(x == inf, inf, v), where(x == 0, -inf, nan))", x=x, v=value)


def log2(parts: LogParts, tail: LogTail) -> Macro:
    """The exponent, and log(1 + f) / ln 2."""

    def macro(b: Builder, args: Args) -> Value:
        e, f = parts(b, args[0])
        value = b.expression("e + (f - (0.5 * f * f - t)) * 1.4426950408889634", t=tail(b, f), e=e, f=f)
        return log_guard(b, args[0], value)

    return macro


def log1p(parts: LogParts, tail: LogTail, text: str) -> Macro:
    """log(1 + x) with what rounding took from 1 + x put back as c; `text` joins e, f, t and c."""

    def macro(b: Builder, args: Args) -> Value:
        x = args[0]
        u = b.expression("1 + x", x=x)
        e, f = parts(b, u)
        near = b.expression("where(e == 0, 1, 0)", e=e)
        lost = b.expression("where(n == 1, 0, where(e >= 2, 1 - (u - x), x - (u - 1)) / u)", n=near, e=e, u=u, x=x)
        f = b.expression("where(n == 1, x, f)", n=near, x=x, f=f)
        value = b.expression(text, t=tail(b, f), e=e, f=f, c=lost)
        return b.expression("where(x == 0, x, v)", x=x, v=log_guard(b, u, value))

    return macro


def asinh(limit: int) -> Macro:
    """log1p(a + a^2 / (1 + sqrt(a^2 + 1))); beyond `limit` log(2 a)."""

    def macro(b: Builder, args: Args) -> Value:
        a = b.expression("abs(x)", x=args[0])
        m = b.expression(f"minimum(a, {limit})", a=a)
        text = f"where(a > {limit}, log(a) + 0.6931471805599453, log1p(m + m * m / (1 + sqrt(m * m + 1))))"
        return b.expression("copysign(v, x)", v=b.expression(text, a=a, m=m), x=args[0])

    return macro


def acosh(limit: int) -> Macro:
    """log1p(t + sqrt(2 t + t^2)), t = x - 1; beyond `limit` log(2 x)."""

    def macro(b: Builder, args: Args) -> Value:
        t = b.expression(f"maximum(minimum(x, {limit}) - 1, 0)", x=args[0])
        text = f"where(x > {limit}, log(x) + 0.6931471805599453, log1p(t + sqrt(2 * t + t * t)))"
        return b.expression("where(x < 1, nan, v)", x=args[0], v=b.expression(text, x=args[0], t=t))

    return macro


def atanh(b: Builder, args: Args) -> Value:
    """log1p(2 a / (1 - a)) / 2."""
    a = b.expression("abs(x)", x=args[0])
    value = b.expression("0.5 * log1p(2 * a / where(a < 1, 1 - a, 1))", a=a)
    return b.expression("where(a > 1, nan, copysign(where(a == 1, inf, v), x))", a=a, v=value, x=args[0])


def atan2(atan: Macro) -> Macro:
    """atan of the smaller over the larger, turned into its octant; signed zeros and infinities as C has them."""

    def macro(b: Builder, args: Args) -> Value:
        y, x = args
        large = b.expression("maximum(abs(y), abs(x))", y=y, x=x)
        small = b.expression("minimum(abs(y), abs(x))", y=y, x=x)
        ratio = b.expression("where(s == inf, 1, where(m == 0, 0, s / where(m == 0, 1, m)))", s=small, m=large)
        v = atan(b, (ratio,))
        v = b.expression("where(abs(y) > abs(x), 1.5707963267948966 - v, v)", v=v, y=y, x=x)
        v = b.expression("where(copysign(1, x) < 0, 3.141592653589793 - v, v)", v=v, x=x)
        return b.expression("where(isnan(y) | isnan(x), nan, copysign(v, y))", v=v, y=y, x=x)

    return macro


def power(log_parts: LogParts, log: Sequence[str], ln2: tuple[str, str], *, reach: str, beyond: int) -> Macro:
    """exp(b log |a|), the logarithm in two parts, with the sign and the special cases of C's pow.

    An exponent beyond `reach` overflows or vanishes with the number nearest to 1, as exp does beyond `beyond`.
    """

    def macro(b: Builder, args: Args) -> Value:
        x, y = args
        size = b.expression("where((abs(x) > 0) & (abs(x) < inf), abs(x), 1)", x=x)
        high, low = _log_two(b, size, log_parts, log, ln2)
        held = b.expression(f"maximum(minimum(y, {reach}), -{reach})", y=y)
        p, p_low = product(b, held, high)
        more = b.expression("q + y * l", q=p_low, y=held, l=low)
        near = b.expression(
            f"where(abs(p) < {beyond}, exp(p) * (1 + where(abs(m) < 1, m, 0)), where(p > 0, inf, 0))", p=p, m=more
        )
        whole = b.expression(
            "where(abs(x) == 1, 1, where(abs(x) == inf, where(y > 0, inf, where(y < 0, 0, 1)), v))", x=x, y=y, v=near
        )
        return _power_signs(b, x, y, whole)

    return macro


def _log_two(
    b: Builder, x: Value, log_parts: LogParts, log: Sequence[str], ln2: tuple[str, str]
) -> tuple[Value, Value]:
    """log(x), x > 0, in two parts that hold some ten bits more than one.

    log(1 + f) = 2 s + s^3 (2/3 + ...), s = f / (2 + f) with its rounding error; the rest is small enough for one number.
    """
    e, f = log_parts(b, x)
    d = b.expression("2 + f", f=f)
    d_low = b.expression("f - (d - 2)", d=d, f=f)
    s = b.expression("f / d", f=f, d=d)
    p, p_low = product(b, s, d)
    s_low = b.expression("((f - p) - q - s * l) / d", f=f, p=p, q=p_low, s=s, l=d_low, d=d)
    z = b.expression("s * s", s=s)
    rest = b.expression(f"s * z * {polynomial('z', log)} + 2 * l", s=s, z=z, l=s_low)
    big = b.expression(f"e * {ln2[0]}", e=e)  # exact
    top = b.expression("a + 2 * s", a=big, s=s)
    apart = b.expression("t - a", t=top, a=big)
    low = b.expression(f"((a - (t - q)) + (2 * s - q)) + (r + e * {ln2[1]})", a=big, t=top, q=apart, s=s, r=rest, e=e)
    high = b.expression("t + l", t=top, l=low)
    return high, b.expression("(t - h) + l", t=top, h=high, l=low)


def _power_signs(b: Builder, x: Value, y: Value, size: Value) -> Value:
    """|x|^y with the sign and the special cases of C's pow."""
    odd = b.expression("where((y == rint(y)) & (0.5 * y != rint(0.5 * y)), 1, 0)", y=y)
    at_zero = b.expression("where(y < 0, inf, 0)", y=y)
    whole = b.expression("where(x == 0, z, s)", x=x, z=at_zero, s=size)
    signed = b.expression("where(o == 1, copysign(v, x), v)", o=odd, x=x, v=whole)
    value = b.expression("where((x < 0) & (y != rint(y)) & (x != -inf), nan, v)", x=x, y=y, v=signed)
    return b.expression("where((y == 0) | (x == 1), 1, where(isnan(x) | isnan(y), nan, v))", x=x, y=y, v=value)


# circular functions, of what `turned` gives: sine and cosine of x less the nearest multiple of pi / 2, and that multiple modulo 4
Turned = Callable[[Builder, Value], tuple[Value, Value, Value]]


def reduced_turn(b: Builder, x: Value, parts: Sequence[str]) -> tuple[Value, Value]:
    """x less the nearest multiple of pi / 2, of which `parts` are so short that whole numbers times them are exact while x is
    not large, and that multiple modulo 4."""
    k = b.expression("rint(x * 0.6366197723675814)", x=x)
    r = x
    for part in parts:
        r = b.expression(f"r - k * {part}", r=r, k=k)
    near = (x, r, b.expression("k - 4 * floor(0.25 * k)", k=k))
    return b.make("turned", x.dtype, *near), b.make("quarter", x.dtype, *near)


def sin(turned: Turned) -> Macro:
    """By quarters."""

    def macro(b: Builder, args: Args) -> Value:
        s, c, q = turned(b, args[0])
        value = b.expression("where(q == 0, s, where(q == 1, c, where(q == 2, -s, -c)))", s=s, c=c, q=q)
        return b.expression("where(x == 0, x, v)", x=args[0], v=value)

    return macro


def cos(turned: Turned) -> Macro:
    """By quarters."""

    def macro(b: Builder, args: Args) -> Value:
        s, c, q = turned(b, args[0])
        return b.expression("where(q == 0, c, where(q == 1, -s, where(q == 2, -c, s)))", s=s, c=c, q=q)

    return macro


def tan(turned: Turned) -> Macro:
    """By halves."""

    def macro(b: Builder, args: Args) -> Value:
        s, c, q = turned(b, args[0])
        return b.expression("where(x == 0, x, where((q == 0) | (q == 2), s / c, -c / s))", s=s, c=c, q=q, x=args[0])

    return macro
