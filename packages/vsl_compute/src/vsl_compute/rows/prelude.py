"""Helpers that kernel texts stand on: what C leaves undefined or has otherwise, as NumPy has it.

Integers wrap; division by zero is 0 and the least integer over -1 is itself; shifts by the width or more empty the
number; // and % round towards minus infinity; maximum and minimum keep NaN; float16 and bfloat16 round to
nearest, ties to even; tanh of large numbers is 1, where OpenCL allows 5 units less and 1 + tanh(x) shows them. Each
block stands behind its own guard, so texts can be joined into one program.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from .. import dtypes
from ..dtypes import DType
from .dialect import Dialect

SHORT = {
    "bool": "b", "int8": "i8", "uint8": "u8", "int16": "i16", "uint16": "u16", "int32": "i32", "uint32": "u32", "int64": "i64",
    "uint64": "u64", "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64",
}  # fmt: skip

_ORDER = """
FN T maximum_S(T a, T b) { return ((a > b) || (a != a)) ? a : b; }
FN T minimum_S(T a, T b) { return ((a < b) || (a != a)) ? a : b; }"""
_ORDER_INTEGER = _ORDER.replace(" || (a != a)", "")
_FLOATING = """
FN T sign_S(T x) { return (x > 0) ? ONE : ((x < 0) ? -ONE : ((x == 0) ? 0 * ONE : x)); }
FN bool isnan_S(T x) { return x != x; }
FN bool isinf_S(T x) { return ABS(x) == INF; }
FN T tanh_S(T x) { return (ABS(x) > SATURATED) ? COPYSIGN(ONE, x) : TANH(x); }
FN T mod_S(T a, T b)
{
    const T m = FMOD(a, b);
    if (b == 0) return m;
    if (m == 0) return COPYSIGN(m, b);
    return ((b < 0) != (m < 0)) ? m + b : m;
}
FN T floordiv_S(T a, T b)
{
    if (b == 0) return a / b;
    const T m = FMOD(a, b);
    T d = (a - m) / b;
    if ((m != 0) && ((b < 0) != (m < 0))) d -= ONE;
    if (d == 0) return COPYSIGN(d, a / b);
    const T f = FLOOR(d);
    return (d - f > ONE / 2) ? f + ONE : f;
}
"""
_SIGNED = """
FN T add_S(T a, T b) { return (T)((U)a + (U)b); }
FN T sub_S(T a, T b) { return (T)((U)a - (U)b); }
FN T mul_S(T a, T b) { return (T)((U)a * (U)b); }
FN T neg_S(T a) { return (T)((U)0 - (U)a); }
FN T abs_S(T a) { return (a < 0) ? neg_S(a) : a; }
FN T sign_S(T x) { return (T)(x > 0) - (T)(x < 0); }
FN T floordiv_S(T a, T b)
{
    if (b == 0) return 0;
    if (b == -1) return neg_S(a);
    return a / b - (T)(((a % b) != 0) && ((a < 0) != (b < 0)));
}
FN T mod_S(T a, T b)
{
    if ((b == 0) || (b == -1)) return 0;
    const T m = a % b;
    return ((m != 0) && ((a < 0) != (b < 0))) ? m + b : m;
}
FN T shl_S(T a, T b) { return ((U)b < W) ? (T)((U)a << (U)b) : 0; }
FN T shr_S(T a, T b) { return ((U)b < W) ? (a >> b) : ((a < 0) ? -1 : 0); }
"""
_UNSIGNED = """
FN T sign_S(T x) { return (T)(x != 0); }
FN T floordiv_S(T a, T b) { return (b == 0) ? 0 : a / b; }
FN T mod_S(T a, T b) { return (b == 0) ? 0 : a % b; }
FN T shl_S(T a, T b) { return (b < W) ? (a << b) : 0; }
FN T shr_S(T a, T b) { return (b < W) ? (a >> b) : 0; }
"""
_HALF = """
FN float load_f16(ushort_ h) { HALF_LOAD }
FN ushort_ store_f16(float x) { HALF_STORE }
"""
_BFLOAT = """
FN float load_bf16(ushort_ h) { return FLOAT_OF((uint_)h << 16); }
FN ushort_ store_bf16(float x)
{
    const uint_ u = BITS_OF(x);
    return (ushort_)((x != x) ? ((u >> 16) | 0x40u) : ((u + (0x7fffu + ((u >> 16) & 1u))) >> 16));
}
"""
_HALF_DOUBLE = """
FN ushort_ store_f16_f64(double x) { HALF_STORE_DOUBLE }
"""
_BFLOAT_DOUBLE = """
FN ushort_ store_bf16_f64(double x)
{
    /* through float32 rounded to odd, so that no tie is rounded twice */
    const float f = (float)x;
    uint_ u = BITS_OF(f);
    const double d = (double)f;
    if ((d != x) && (d - d == 0)) u = (((d < 0 ? -d : d) > (x < 0 ? -x : x)) ? u - 1u : u) | 1u;
    return store_bf16(FLOAT_OF(u));
}
"""


@cache
def _compute_block(dialect: Dialect, dtype: DType) -> str:
    """Arithmetic of one compute dtype."""
    if dtype.is_floating:
        text = _ORDER + _FLOATING
        for word, name in (
            ("ABS", "abs"),
            ("TANH", "tanh"),
            ("FMOD", "fmod"),
            ("COPYSIGN", "copysign"),
            ("FLOOR", "floor"),
        ):
            text = text.replace(f"{word}(", f"{dialect.function_of(name, dtype)}(")
        text = text.replace(
            "SATURATED", dialect.literal(9.02 if dtype.itemsize == 4 else 19.07, dtype)
        )  # there tanh rounds to 1
        text = text.replace("INF", dialect.literal(float("inf"), dtype)).replace("ONE", dialect.literal(1.0, dtype))
    else:
        text = _ORDER_INTEGER + (_SIGNED if dtype.kind == "i" else _UNSIGNED)
        unsigned = dialect.types[dtype.name.removeprefix("u").replace("int", "uint")]
        text = text.replace("(U)", f"({unsigned})").replace(" W)", f" {dtype.itemsize * 8}u)")
    text = text.replace("(T)", f"({dialect.type_of(dtype)})").replace("T ", f"{dialect.type_of(dtype)} ")
    return _guarded(dialect, SHORT[dtype.name], text.replace("_S(", f"_{SHORT[dtype.name]}("))


@cache
def _storage_block(dialect: Dialect, name: str, text: str) -> str:
    """Loads and stores of a dtype that is not computed in."""
    text = text.replace("ushort_", dialect.types["uint16"]).replace("uint_", dialect.types["uint32"])
    for word, key in (("HALF_LOAD", "half_load"), ("HALF_STORE_DOUBLE", "half_store_double"), ("HALF_STORE", "half_store"),
                      ("FLOAT_OF", "float_of"), ("BITS_OF", "bits_of")):  # fmt: skip
        text = text.replace(word, dialect.bits[key])
    return _guarded(dialect, name, text)


def _guarded(dialect: Dialect, name: str, text: str) -> str:
    return f"#ifndef VSL_{name}\n#define VSL_{name}{text.replace('FN ', dialect.function + ' ')}#endif\n"


def prelude(dialect: Dialect, computed: Iterable[DType], stored: Iterable[DType]) -> str:
    """The header and helper blocks that a kernel with these dtypes needs."""
    computed, stored = sorted(set(computed), key=lambda d: d.name), set(stored)
    blocks = [dialect.header]
    if dtypes.float64 in computed or dtypes.float64 in stored:
        blocks.append(dialect.double_header)
    blocks += [_compute_block(dialect, dtype) for dtype in computed if dtype.kind != "b"]
    for dtype, text, double in ((dtypes.float16, _HALF, _HALF_DOUBLE), (dtypes.bfloat16, _BFLOAT, _BFLOAT_DOUBLE)):
        if dtype in stored:
            blocks.append(_storage_block(dialect, SHORT[dtype.name], text))
            if dtypes.float64 in computed:
                blocks.append(_storage_block(dialect, f"{SHORT[dtype.name]}_f64", double))
    return "".join(blocks)


def load(dialect: Dialect, stored: DType, computed: DType, text: str) -> str:
    """The expression that brings an element into the compute dtype; bool counts as 0 or 1 where numbers are wanted."""
    if stored.kind == "b":
        return f"({text} != 0)" if computed.kind == "b" else f"(({dialect.type_of(computed)})({text} != 0))"
    if stored.kind == "f" and stored.itemsize == 2:
        text = f"load_{SHORT[stored.name]}({text})"
        stored = dtypes.float32
    return text if stored is computed else f"(({dialect.type_of(computed)})({text}))"


def store(dialect: Dialect, computed: DType, stored: DType, text: str) -> str:
    """The expression that an element holds, rounded once."""
    if stored.kind == "b":
        return (
            f"(({dialect.storage_of(stored)})(({text}) ? 1 : 0))"
            if computed.kind == "b"
            else f"(({dialect.storage_of(stored)})(({text}) != 0))"
        )
    if stored.kind == "f" and stored.itemsize == 2:
        if computed is dtypes.float64:
            return f"store_{SHORT[stored.name]}_f64({text})"
        return (
            f"store_{SHORT[stored.name]}({text})"
            if computed is dtypes.float32
            else f"store_{SHORT[stored.name]}((float)({text}))"
        )
    return text if stored is computed else f"(({dialect.storage_of(stored)})({text}))"
