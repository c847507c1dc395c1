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
from ..rows.prelude import SHORT, prelude, store
from .places import entry, loop, struct, walk
from .shell import Kernel

KINDS = ("bits", "uniform", "normal")


def numbers_per_block(kind: str, dtype: DType) -> int:
    """Elements that take the four words of a block."""
    return 2 if kind == "normal" or (kind == "uniform" and dtype.itemsize == 8) else 4


def render_random(dialect: Dialect, kind: str, dtype: DType, *, double: bool) -> Kernel:
    """Fill an array of any strides. Parameters: count, blocks, places_1 (out), key0, key1, c0, c1, c2, c3 (uint32), out.

    `double` says whether the device computes in float64.
    """
    uint, ulong, long, int_ = (dialect.types[name] for name in ("uint32", "uint64", "int64", "int32"))
    per = numbers_per_block(kind, dtype)
    number = dtypes.uint32 if kind == "bits" else compute_dtype(dtype)
    wide = dtypes.float64 if kind == "normal" and double else number
    name = f"random_{kind}_{SHORT[dtype.name]}"
    element = f"{dialect.memory}{dialect.storage_of(dtype)} *out"
    parameters = [
        f"{long} count",
        f"{long} blocks",
        "places_1 layout",
        *(f"{uint} {p}" for p in ("key0", "key1", "c0", "c1", "c2", "c3")),
        element,
    ]
    lines = [
        f"const {ulong} number = ((({ulong})c1 << 32) | c0) + ({ulong})b;",
        f"{uint} w[4] = {{({uint})number, ({uint})(number >> 32), c2, c3}};",
        f"{uint} k0 = key0, k1 = key1;",
        f"for ({int_} r = 0; r < {ROUNDS}; ++r) {{",
        f"    const {ulong} p0 = ({ulong}){M0}u * w[0], p1 = ({ulong}){M1}u * w[2];",
        f"    w[0] = ({uint})(p1 >> 32) ^ w[1] ^ k0; w[2] = ({uint})(p0 >> 32) ^ w[3] ^ k1;",
        f"    w[1] = ({uint})p1; w[3] = ({uint})p0; k0 += {W0}u; k1 += {W1}u;",
        "}",
        f"for ({int_} e = 0; e < {per}; ++e) {{",
        f"    const {long} i = b * {per} + e;",
        "    if (i < count) {",
        *(f"        {line}" for line in (*walk(dialect, 1, "i"), *_value(dialect, kind, dtype, number, wide))),
        f"        out[at0] = {store(dialect, number, dtype, 'y')};",
        "    }",
        "}",
    ]
    text = prelude(dialect, [number, wide], [dtype]) + struct(dialect, 1)
    return Kernel(name, text + entry(dialect, name, parameters, loop(dialect, "blocks", lines, "b")), (), ())


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
