"""Convolution as a product whose first matrix, the windows, is never made: sizes, tiles and the text for C-like languages.

The text is `texts/convolution.h`, the body of a kernel in what C and GLSL have in common; the parameters of a launch are
listed in `texts/convolution_parameters.h`. Vulkan's shader includes both, `render_convolution` puts both into C.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from importlib import resources
from math import gcd
from typing import NamedTuple

from ..dtypes import DType
from ..rows.dialect import OPENCL
from ..rows.kinds import compute_dtype
from ..rows.prelude import SHORT, load, prelude, store
from .shell import Kernel

WINDOWS, TAPS = "windows", "taps"  # the two forms of the product
CONSTANTS = ("BM", "BN", "BK", "TM", "TN", "COUNT", "DOUBLE", "VECTOR_X", "UNIFORM", "VECTOR_B", "WHOLE", "BIAS",
             "TAPS_ACROSS", "STEP_H", "STEP_W", "DILATE_H", "DILATE_W")  # fmt: skip
MOST = 1 << 31  # positions and elements that one launch counts


class Tile(NamedTuple):
    """Sizes of one kernel: a group's part of the result, the terms it holds at a time, a thread's part; two such tiles, or one."""

    rows: int
    columns: int
    depth: int
    thread_rows: int
    thread_columns: int
    double: bool = False

    @property
    def threads(self) -> int:
        """Threads of a group."""
        return (self.rows // self.thread_rows) * (self.columns // self.thread_columns)

    @property
    def shared(self) -> int:
        """Numbers that a group keeps in shared memory."""
        return (self.rows + self.columns + 8) * self.depth * (2 if self.double else 1)


TILES = {  # for results of so many columns; measured on an H200: the first is quickest at most sizes, the others somewhere
    4: (Tile(128, 4, 16, 4, 4),),
    16: (Tile(128, 16, 8, 8, 4),),
    32: (Tile(64, 32, 16, 8, 4), Tile(128, 32, 16, 8, 8), Tile(32, 32, 16, 4, 4)),
    64: (Tile(128, 64, 8, 16, 8), Tile(64, 64, 16, 8, 8), Tile(32, 64, 16, 4, 8)),
    128: (Tile(128, 64, 8, 16, 8), Tile(64, 64, 16, 8, 8), Tile(128, 128, 8, 8, 8, True)),
}  # fmt: skip
WIDE_TILES = {
    32: (Tile(32, 32, 16, 4, 4),),
    64: (Tile(64, 64, 8, 8, 4), Tile(32, 32, 16, 4, 4)),
}  # of numbers of eight bytes
ALONE = Tile(8, 8, 16, 8, 8)  # for groups of one thread


def tiles(rows: int, columns: int, itemsize: int, threads: int, shared_bytes: int, *, tall: bool = True) -> list[Tile]:
    """Tiles for a result of this size in numbers of `itemsize` bytes, on a device with such groups; the usual one first.

    Those that are not `tall` come first for TAPS, whose results are few, and where single elements are read.
    """
    table = TILES if itemsize == 4 else WIDE_TILES
    found = table[min((width for width in table if width >= columns), default=max(table))]
    fit = [t for t in found if t.threads <= threads and t.shared * itemsize <= shared_bytes]
    low = [t for t in fit if t.rows < 2 * rows] or fit[-1:]
    return (low if tall else sorted(low, key=lambda t: t.rows > 64)) or [ALONE]


class Axis(NamedTuple):
    """How windows lie along one axis: tap p of position i looks at i * step + first + p * dilation."""

    positions: int
    taps: int
    step: int
    first: int
    dilation: int


class Phase(NamedTuple):
    """Elements `start`, `start` + step, ... of an input: those that the same taps look at, and how, seen from them."""

    start: int
    taps: slice  # of the weight
    axis: Axis


@lru_cache(1024)
def phases(size: int, taps: int, step: int, padding: int, dilation: int) -> tuple[Phase, ...]:
    """An input's axis by what looks at it: the gradient of h is a sum over taps p with (h + padding - p * dilation) % step = 0.

    Those p are an arithmetic progression, and so are the positions (h + padding - p * dilation) / step: each phase is a
    convolution of step 1 of the output's gradient (Dumoulin & Visin 2016, relationship 14, without its zeros).
    """
    common, made = gcd(step, dilation), []
    for start in range(min(step, size)):
        count = len(range(start, size, step))
        found = [p for p in range(min(taps, step)) if (start + padding - p * dilation) % step == 0]
        if not found:
            made.append(Phase(start, slice(0, 0), Axis(count, 0, 1, 0, 1)))
            continue
        p, every = found[0], step // common
        first = (start + padding - p * dilation) // step
        axis = Axis(count, len(range(p, taps, every)), 1, first, -dilation // common)
        made.append(Phase(start, slice(p, taps, every), axis))
    return tuple(made)


def divisor(n: int) -> tuple[int, int]:
    """(magic, shift) with k // n == ((k * magic >> 32) + k) >> shift for k below 2**31 (Granlund & Montgomery 1994, section 4)."""
    shift = (n - 1).bit_length()
    return ((1 << 32) * ((1 << shift) - n) // n + 1) & 0xFFFFFFFF, shift


@cache
def text_of(name: str) -> str:
    """One of the texts beside this module."""
    return resources.files(__package__).joinpath("texts", name).read_text()


@cache
def fields() -> tuple[tuple[str, str], ...]:
    """(type, name) of each parameter of a launch, in order."""
    return tuple(re.findall(r"\b(u?int) (\w+);", text_of("convolution_parameters.h")))


@cache
def _packer() -> struct.Struct:
    return struct.Struct("<" + "".join("I" if kind == "uint" else "i" for kind, _ in fields()))


def packed(given: Mapping[str, int]) -> bytes:
    """A launch's parameters as the kernel takes them; magic numbers are worked out, what is not given is 0."""
    values = dict(given)
    shifts = 0
    for number, name in enumerate(("channels", "width", "plane")):
        values[f"{name}_magic"], shift = divisor(given[name])
        shifts |= shift << 5 * number
    values["shifts"] = shifts
    return _packer().pack(*(values.get(name, 0) for _, name in fields()))


_MACROS = {
    "PM": "(BM / 4 + 1)", "PN": "(BN / 4 + 1)", "LA": "(BM * BK / (4 * COUNT))", "LB": "((BN * BK + 4 * COUNT - 1) / (4 * COUNT))",
    "DOWN": "(BM / TM)", "ACROSS": "(BN / TN)", "LINES": "(BM > COUNT ? BM / COUNT : 1)",
    "X(i)": "LOAD(x[i])", "X4(i)": "LOAD4(*(const __global STORED4 *)(x + (i)))",
    "B(i)": "LOAD(b[i])", "B4(i)": "LOAD4(*(const __global STORED4 *)(b + (i)))",
    "BIAS1(i)": "LOAD(bias[i])", "BIAS4(i)": "LOAD4(*(const __global STORED4 *)(bias + (i)))",
    "PUT_A(line, i, value)": "((__local NUMBER *)tile_a)[(line) * 4 + (i)] = value",
    "PACKED(a, b, c, d)": "(NUMBER4)(a, b, c, d)", "SPLAT(value)": "(NUMBER4)(value)", "ZERO": "0",
    "INT(i)": "((int)(i))", "UINT(i)": "((uint)(i))", "BARRIER": "barrier(CLK_LOCAL_MEM_FENCE)", "LOCAL": "(uint)get_local_id(0)",
    "GROUP_X": "(uint)get_group_id(0)", "GROUP_Y": "(uint)get_group_id(1)", "GROUP_Z": "(uint)get_group_id(2)",
}  # fmt: skip


def render_convolution(form: str, dtype: DType, values: Sequence[int], *, fused: bool) -> Kernel:
    """The kernel in OpenCL C, whose vector types it is made of.

    `values` are those of `CONSTANTS`. Parameters: `fields` in one struct; out, x, b and bias, each with an int64 offset in
    elements. `fused` says that the device multiplies and adds in one instruction.
    """
    constants = dict(zip(CONSTANTS, values, strict=True))
    number = compute_dtype(dtype)
    short, element, value = SHORT[dtype.name], OPENCL.storage_of(dtype), OPENCL.type_of(number)
    held = value if form == TAPS else element
    alone = constants["COUNT"] == 1  # a compiler for CPUs unrolls as it sees fit
    plain = dtype is number
    defines = {
        **constants, **_MACROS, "NUMBER": value, "NUMBER4": f"{value}4", "STORED4": f"{element}4",
        "LOAD(s)": load(OPENCL, dtype, number, "(s)"), "SAVE(v)": store(OPENCL, number, dtype, "(v)"),
        "LOAD4(s)": "(s)" if plain else f"load4_{short}(s)", "SAVE4(v)": "(v)" if plain else f"save4_{short}(v)",
        "INFOS": "(VECTOR_X == 0 ? LINES : LINES > 4 ? LINES / 4 : 1)" if form == TAPS else "(VECTOR_X == 0 ? LINES : LA)",
        "ADDED(s, a, b)": "fma(a, b, s)" if fused and not alone else "((s) + (a) * (b))",
        "OUT(i, value)": "to[i] = " + ("value" if form == TAPS else "SAVE(value)"),
        "OUT4(i, value)": f"*(__global {held}4 *)(to + (i)) = " + ("value" if form == TAPS else "SAVE4(value)"),
        "UNROLL": "" if alone else '_Pragma("unroll")', **({"TAPS": 1} if form == TAPS else {}),
    }  # fmt: skip
    offsets = ("to", "x", "b", "bias")
    name = "_".join(["convolution", form, short, *(str(v).replace("-", "m") for v in values)])
    given = [
        f"{'' if n == 'to' else 'const '}__global {held if n == 'to' else element} *{n}, const long {n}_at"
        for n in offsets
    ]
    text = [
        prelude(OPENCL, [number], [dtype]), *(f"#define {k} {v}\n" for k, v in defines.items()),
        _function("divided", "uint", "uint n, uint magic, uint shift", "(mul_hi(n, magic) + n) >> shift"),
        "" if plain else _function(f"load4_{short}", "NUMBER4", "STORED4 s", f"(NUMBER4)({_each('LOAD(s.{})')})"),
        "" if plain else _function(f"save4_{short}", "STORED4", "NUMBER4 v", f"(STORED4)({_each('SAVE(v.{})')})"),
        "#ifndef VSL_convolution\n#define VSL_convolution\ntypedef struct {\n", text_of("convolution_parameters.h"),
        "} convolution_parameters;\n#endif\n__attribute__((reqd_work_group_size(COUNT, 1, 1)))\n",
        f"__kernel void {name}(const convolution_parameters given, {', '.join(given)})\n{{\n",
        "#pragma OPENCL FP_CONTRACT ON\n" if fused and alone else "",  # PoCL's fma is a call, its a * b + c an instruction
        "__local NUMBER4 tile_a[BK * PM * (1 + DOUBLE)], tile_b[BK * PN * (1 + DOUBLE)];\n",
        *(f"{n} += {n}_at;\n" for n in offsets), *(f"const {kind} {n} = given.{n};\n" for kind, n in fields()),
        text_of("convolution.h"), "}\n", *(f"#undef {k.partition('(')[0]}\n" for k in defines),
    ]  # fmt: skip
    return Kernel(name, "".join(text), (), ())


def _function(name: str, result: str, arguments: str, value: str) -> str:
    return f"#ifndef VSL_{name}\n#define VSL_{name}\n{OPENCL.function} {result} {name}({arguments}) {{ return {value}; }}\n#endif\n"


def _each(text: str) -> str:
    return ", ".join(text.format(component) for component in "xyzw")
