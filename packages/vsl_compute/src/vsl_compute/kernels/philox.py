"""Philox 4x32-10 on the device: the words, uniform and normal numbers of vsl_compute.random, element by element.

A thread makes one block of four words and the two or four elements that take them. Uniform numbers are the same bits
as on the host. Normal numbers are computed in float64 where the device has it, as on the host, and else in float32
with log1p where the uniform number is near 1, so that small numbers keep their digits.
Source: Salmon, Moraes, Dror & Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3".
"""

from __future__ import annotations

import math

from .. import dtypes
from ..dtypes import DType
from ..random import M0, M1, ROUNDS, W0, W1
from ..rows.dialect import Dialect
from ..rows.kinds import compute_dtype
from ..rows.prelude import SHORT, load, prelude, store
from .places import entry, loop, struct, walk
from .shell import Kernel, four

KINDS = ("bits", "uniform", "normal")


def numbers_per_block(kind: str, dtype: DType) -> int:
    """Elements that take the four words of a block."""
    return 2 if kind == "normal" or (kind == "uniform" and dtype.itemsize == 8) else 4


def render_random(dialect: Dialect, kind: str, dtype: DType, *, double: bool, dense: bool = False) -> Kernel:
    """Fill an array. Parameters: count, blocks, places_1 (out), key0, key1, c0, c1, c2, c3 (uint32), out.

    `double` says whether the device computes in float64; `dense` that the array lies in C order without gaps and begins
    at a multiple of four elements.
    """
    long, int_ = dialect.types["int64"], dialect.types["int32"]
    per = numbers_per_block(kind, dtype)
    number = dtypes.uint32 if kind == "bits" else compute_dtype(dtype)
    wide = dtypes.float64 if kind == "normal" and double else number
    name = f"random_{kind}_{SHORT[dtype.name]}{'_dense' if dense else ''}"
    pointer = f"{dialect.memory}{dialect.storage_of(dtype)} *out"
    parameters = [f"{long} count", f"{long} blocks", "places_1 layout", *_key(dialect), pointer]
    made = [*_value(dialect, kind, dtype, number, wide)]
    stored, each = store(dialect, number, dtype, "y"), f"for ({int_} e = 0; e < {per}; ++e) {{"
    place = [f"const {long} at0 = layout.at[0] + i;"] if dense else walk(dialect, 1, "i")
    one_by_one = [
        each,
        f"    const {long} i = b * {per} + e;",
        "    if (i < count) {",
        *(f"        {line}" for line in (*place, *made)),
        f"        out[at0] = {stored};",
        "    }",
        "}",
    ]
    lines = [*_words(dialect), *one_by_one]
    head = prelude(dialect, [number, wide], [dtype]) + struct(dialect, 1)
    if dense and per == 4:
        quad = f"four_{SHORT[dtype.name]}"
        head += four(dialect, dtype)
        lines = [
            *_words(dialect),
            "if (b * 4 + 4 <= count) {",
            f"    {quad} r;",
            f"    {each} {' '.join(made)} r.at[e] = {stored}; }}",
            f"    *({dialect.memory}{quad} *)(out + layout.at[0] + b * 4) = r;",
            "} else {",
            *(f"    {line}" for line in one_by_one),
            "}",
        ]
    return Kernel(name, head + entry(dialect, name, parameters, loop(dialect, "blocks", lines, "b")), (), ())


def render_dropout(dialect: Dialect, dtype: DType) -> Kernel:
    """y = x * factor where the element's word is at least `threshold`, else 0, and keep, which says where.

    Arrays lie in C order without gaps. Parameters: count, key0, key1, c0, c1, c2, c3, threshold (uint32), factor, y, keep,
    x, each followed by its offset, a multiple of four.
    """
    long, int_, uint, memory = dialect.types["int64"], dialect.types["int32"], dialect.types["uint32"], dialect.memory
    number = compute_dtype(dtype)
    name, quad, flags = f"dropout_{SHORT[dtype.name]}", f"four_{SHORT[dtype.name]}", f"four_{SHORT['bool']}"
    element, flag = dialect.storage_of(dtype), dialect.storage_of(dtypes.bool_)
    parameters = [f"{long} count", *_key(dialect), f"{uint} threshold", f"{dialect.type_of(number)} factor",
                  f"{memory}{element} *y", f"{long} y_at", f"{memory}{flag} *keep", f"{long} keep_at",
                  f"const {memory}{element} *x", f"{long} x_at"]  # fmt: skip

    def kept(value: str, target: str, holds: str) -> list[str]:
        product = store(dialect, number, dtype, f"{load(dialect, dtype, number, value)} * factor")
        return [
            f"{holds} = ({flag})(w[e] >= threshold);",
            f"{target} = (w[e] >= threshold) ? {product} : ({element})0;",
        ]

    lines = [
        *_words(dialect),
        "if (b * 4 + 4 <= count) {",
        f"    const {quad} v = *(const {memory}{quad} *)(x + x_at + b * 4);",
        f"    {quad} r;",
        f"    {flags} k;",
        f"    for ({int_} e = 0; e < 4; ++e) {{ {' '.join(kept('v.at[e]', 'r.at[e]', 'k.at[e]'))} }}",
        f"    *({memory}{quad} *)(y + y_at + b * 4) = r;",
        f"    *({memory}{flags} *)(keep + keep_at + b * 4) = k;",
        "} else {",
        f"    for ({int_} e = 0; b * 4 + e < count; ++e) {{",
        f"        const {long} i = b * 4 + e;",
        *(f"        {line}" for line in kept("x[x_at + i]", "y[y_at + i]", "keep[keep_at + i]")),
        "    }",
        "}",
    ]
    head = prelude(dialect, [number], [dtype]) + four(dialect, dtype) + four(dialect, dtypes.bool_)
    return Kernel(name, head + entry(dialect, name, parameters, loop(dialect, "(count + 3) / 4", lines, "b")), (), ())


def _key(dialect: Dialect) -> list[str]:
    """Parameters that say which words."""
    return [f"{dialect.types['uint32']} {p}" for p in ("key0", "key1", "c0", "c1", "c2", "c3")]


def _words(dialect: Dialect) -> list[str]:
    """Lines that declare w[4], the words of block b."""
    uint, ulong, int_ = (dialect.types[name] for name in ("uint32", "uint64", "int32"))
    return [
        f"const {ulong} number = ((({ulong})c1 << 32) | c0) + ({ulong})b;",
        f"{uint} w[4] = {{({uint})number, ({uint})(number >> 32), c2, c3}};",
        f"{uint} k0 = key0, k1 = key1;",
        f"for ({int_} r = 0; r < {ROUNDS}; ++r) {{",
        f"    const {ulong} p0 = ({ulong}){M0}u * w[0], p1 = ({ulong}){M1}u * w[2];",
        f"    w[0] = ({uint})(p1 >> 32) ^ w[1] ^ k0; w[2] = ({uint})(p0 >> 32) ^ w[3] ^ k1;",
        f"    w[1] = ({uint})p1; w[3] = ({uint})p0; k0 += {W0}u; k1 += {W1}u;",
        "}",
    ]


def _value(dialect: Dialect, kind: str, dtype: DType, number: DType, wide: DType) -> list[str]:
    """Lines that declare y, element e of the block."""
    real, real_wide = dialect.type_of(number), dialect.type_of(wide)

    def constant(value: float) -> str:
        return dialect.literal(value, wide)

    if kind == "bits":
        return [f"const {real} y = w[e];"]
    if kind == "uniform":
        if number.itemsize < 8:
            bits = round(-math.log2(dtype.eps)) + 1  # as many as the dtype keeps, cut: rounded, the largest would be 1
            return [f"const {real} y = ({real})(w[e] >> {32 - bits}) * {constant(2.0**-bits)};"]
        return [
            f"const {real} y = (({real})(w[2 * e] >> 5) * {constant(2.0**26)} + ({real})(w[2 * e + 1] >> 6)) * {constant(2.0**-53)};"
        ]
    log, log1p, sqrt, cos = (dialect.function_of(f, wide) for f in ("log", "log1p", "sqrt", "cos"))
    turn = f"const {real_wide} turn = ({real_wide})v * {constant(2.0**-32)};"
    logarithm = f"{log}((({real_wide})u + {constant(1.0)}) * {constant(2.0**-32)})"
    if wide.itemsize < 8:  # 1 - (u + 1) / 2^32 is exact in 32 bits; u itself would lose eight
        near = f"{log1p}(-(({real_wide})(0xffffffffu - u) * {constant(2.0**-32)}))"
        logarithm = f"((u >= 0x80000000u) ? {near} : {logarithm})"
        turn = f"const {real_wide} turn = (({real_wide})({dialect.types['int32']})v) * {constant(2.0**-32)};"  # a whole turn less
    return [
        f"const {dialect.types['uint32']} u = w[2 * e], v = w[2 * e + 1];",
        turn,
        f"const {real} y = ({real})({sqrt}({constant(-2.0)} * {logarithm}) * {cos}({constant(6.283185307179586)} * turn));",
    ]
