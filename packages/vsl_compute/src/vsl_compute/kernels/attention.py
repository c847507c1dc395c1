"""Attention by tiles whose weights are never stored: forms, sizes and the text for C-like languages.

The text is `texts/attention.h`, the body of a kernel in what C and GLSL have in common; the parameters of a launch are listed in
`texts/attention_parameters.h`. Vulkan's shader includes both, `render_attention` puts both into OpenCL C or CUDA.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import NamedTuple

from ..dtypes import DType, float32
from ..rows.dialect import Dialect
from ..rows.prelude import SHORT, load, prelude, store
from .convolution import text_of
from .shell import Kernel

FORWARD, QUERIES, KEYS = "forward", "queries", "keys"  # the three forms
CONSTANTS = ("BM", "BN", "TM", "TN", "COUNT", "E", "V", "CAUSAL", "MASK", "WHOLE_E", "WHOLE_V")
ARRAYS = ("a", "b", "c", "d", "mask", "lse_of", "delta_of", "to", "more")
NO_MASK, TRUTHS, SUMMANDS = 0, 1, 2  # MASK: none, bytes that say what is seen, float32 that is added
MOST = 1 << 31  # elements that a launch addresses


class Tile(NamedTuple):
    """Own rows and others of a group, and those of a thread."""

    rows: int
    columns: int
    thread_rows: int
    thread_columns: int

    @property
    def threads(self) -> int:
        """Threads of a group."""
        return (self.rows // self.thread_rows) * (self.columns // self.thread_columns)

    def shared(self, form: str, e: int, v: int) -> int:
        """Bytes of shared memory."""
        own, other, line = -(-e // 4) | 1, -(-v // 4) | 1, self.rows // 4 + 1
        if form == FORWARD:
            return 16 * (self.rows * own + self.columns * (max(own, other) + line)) + 12 * self.rows
        return 16 * (self.rows + self.columns) * (own + other) + 16 * self.columns * line * (2 if form == KEYS else 1)


# the first that fits is taken; what an H200 says of them is still to be measured (docs/adr/0051)
TILES = {
    FORWARD: (Tile(64, 32, 8, 4), Tile(32, 32, 4, 4), Tile(32, 16, 4, 4), Tile(16, 16, 4, 4)),
    QUERIES: (Tile(64, 32, 8, 4), Tile(32, 32, 4, 4), Tile(32, 16, 4, 4), Tile(16, 16, 4, 4)),
    KEYS: (Tile(32, 32, 4, 4), Tile(32, 16, 4, 4), Tile(16, 16, 4, 4)),
}
ALONE = Tile(8, 8, 8, 8)  # for groups of one thread
SMALL = Tile(16, 16, 4, 4)  # for devices that are CPUs, whose barriers cost more the larger a group is


def tiles(form: str, e: int, v: int, threads: int, shared_bytes: int) -> list[Tile]:
    """Tiles for heads of these sizes, on a device with such groups; none where heads are too large."""
    found = TILES[form] if threads > 1 else (ALONE,)
    return [t for t in found if t.threads <= threads and t.shared(form, e, v) <= shared_bytes]


@cache
def fields() -> tuple[tuple[str, str], ...]:
    """(type, name) of each parameter of a launch, in order."""
    return tuple(re.findall(r"\bGIVEN\((\w+), (\w+)\)", text_of("attention_parameters.h")))


@cache
def _packer() -> struct.Struct:
    letters = {"uint": "I", "int": "i", "float": "f"}
    return struct.Struct("<" + "".join(letters[kind] for kind, _ in fields()))


def packed(given: Mapping[str, float]) -> bytes:
    """A launch's parameters as the kernel takes them; what is not given is 0."""
    return _packer().pack(*(given.get(name, 0) for _, name in fields()))


_MACROS = {
    "E4": "((E + 3) / 4)", "V4": "((V + 3) / 4)", "PE": "(E4 | 1)", "PV": "(V4 | 1)", "PM": "(BM / 4 + 1)",
    "DOWN": "(BM / TM)", "ACROSS": "(BN / TN)", "JE": "((E4 + ACROSS - 1) / ACROSS)", "JV": "((V4 + ACROSS - 1) / ACROSS)",
    "MASK_BOOL(i)": "(mask[i] != 0)", "LSE(i)": "lse_of_row[i]", "PUT_LSE(i, value)": "lse_of_row[i] = value", "DELTA(i)": "delta_of_row[i]",
    "ZERO": "0.0f", "INT(i)": "((int)(i))", "EXP(x)": "EXPONENTIAL(x)", "LOG(x)": "LOGARITHM(x)",
}  # fmt: skip
_LANGUAGE = {
    "opencl": {
        "PACKED(a, b, c, d)": "(float4)(a, b, c, d)", "SPLAT(value)": "(float4)(value)", "NUMBER4": "float4",
        "BARRIER": "barrier(CLK_LOCAL_MEM_FENCE)", "LOCAL": "(uint)get_local_id(0)", "GROUP_X": "(uint)get_group_id(0)",
        "GROUP_Y": "(uint)get_group_id(1)", "EXPONENTIAL": "exp", "LOGARITHM": "log",
    },
    "cuda": {
        "PACKED(a, b, c, d)": "attention_four(a, b, c, d)", "SPLAT(value)": "attention_four(value, value, value, value)",
        "NUMBER4": "attention_4", "BARRIER": "__syncthreads()", "LOCAL": "threadIdx.x", "GROUP_X": "blockIdx.x", "GROUP_Y": "blockIdx.y",
        "EXPONENTIAL": "expf", "LOGARITHM": "logf", "ADDED": "attention_added",
    },
}  # fmt: skip
_CUDA_FOUR = """#ifndef VSL_attention_four
#define VSL_attention_four
typedef struct __attribute__((aligned(16))) { float x, y, z, w; } attention_4;
static __device__ inline attention_4 attention_four(float x, float y, float z, float w) { attention_4 r = {x, y, z, w}; return r; }
static __device__ inline float attention_added(float s, float a, float b) { return fmaf(a, b, s); }
static __device__ inline attention_4 attention_added(attention_4 s, attention_4 a, attention_4 b)
{
    return attention_four(fmaf(a.x, b.x, s.x), fmaf(a.y, b.y, s.y), fmaf(a.z, b.z, s.z), fmaf(a.w, b.w, s.w));
}
#endif
"""


@lru_cache(4096)
def render_attention(form: str, dialect: Dialect, dtype: DType, values: tuple[int, ...], *, fused: bool) -> Kernel:
    """The kernel in OpenCL C or CUDA. `values` are those of `CONSTANTS`; `fused` says that the device multiplies and adds at once.

    Parameters: `fields` in one struct; then the `ARRAYS`, each with an int64 offset, of the mask in bytes, else in elements.
    """
    constants = dict(zip(CONSTANTS, values, strict=True))
    short, element, uint, long = (
        SHORT[dtype.name],
        dialect.storage_of(dtype),
        dialect.types["uint32"],
        dialect.types["int64"],
    )
    alone = constants["COUNT"] == 1  # a compiler for CPUs unrolls as it sees fit
    memory, four = dialect.memory, f"attention_{short}"
    defines = {**constants, **_MACROS, **_LANGUAGE[dialect.name], form.upper(): 1, "NUMBER": "float", "uint": uint}
    if dialect.name == "opencl":
        defines["ADDED(s, a, b)"] = "fma(a, b, s)" if fused and not alone else "((s) + (a) * (b))"
        del defines["uint"]
    for name in "abcd":
        defines[f"{name.upper()}(i)"] = load(dialect, dtype, float32, f"{name}[i]")
        defines[f"{name.upper()}4(i)"] = f"load4_{four}(*(const {memory}{four} *)({name} + (i)))"
    for name in ("to", "more"):
        defines[f"{name.upper()}(i, value)"] = f"{name}[i] = {store(dialect, float32, dtype, 'value')}"
        defines[f"{name.upper()}4(i, value)"] = f"*({memory}{four} *)({name} + (i)) = save4_{four}(value)"
    defines |= {
        "MASK_FLOAT(i)": f"((const {memory}float *)mask)[i]", "NONE": dialect.literal(float("-inf"), float32),
        "P(n, m)": f"(({dialect.shared_pointer}float *)tile_p)[(n) * PM * 4 + (m)]", "UNROLL": "" if alone else '_Pragma("unroll")',
    }  # fmt: skip
    name = "_".join(["attention", form, short, *map(str, values)])
    types = {
        "mask": f"const {memory}{dialect.types['uint8']}", "lse_of": f"{'' if form == FORWARD else 'const '}{memory}float",
        "delta_of": f"const {memory}float", "to": f"{memory}{element}", "more": f"{memory}{element}",
    }  # fmt: skip
    given = [f"{types.get(n, f'const {memory}{element}')} *{_named(n)}, {long} {n}_at_" for n in ARRAYS]
    tile = f"{dialect.shared}NUMBER4"
    forward, keys = form == FORWARD, form == KEYS
    text = [
        prelude(dialect, [float32], [dtype]), _CUDA_FOUR if dialect.name == "cuda" else "", *(f"#define {k} {v}\n" for k, v in defines.items()),
        _fours(dialect, dtype, four),
        f"#ifndef VSL_attention\n#define VSL_attention\n#define GIVEN(type, name) type name;\ntypedef struct {{\n{text_of('attention_parameters.h')}",
        "} attention_parameters;\n#undef GIVEN\n#endif\n",
        f"{dialect.kernel} {dialect.group_of.format(threads=constants['COUNT'])}{name}(attention_parameters given, {', '.join(given)})\n{{\n",
        "#pragma OPENCL FP_CONTRACT ON\n" if dialect.name == "opencl" and fused and alone else "",
        f"{tile} tile_a[BM * PE];\n{tile} tile_p[BN * PM];\n",
        f"{tile} tile_c[BN * (PE > PV ? PE : PV)];\n{dialect.shared}float peak_of[BM];\n{dialect.shared}float total_of[BM];\n"
        f"{dialect.shared}float factor_of[BM];\n" if forward else f"{tile} tile_b[BM * PV];\n{tile} tile_c[BN * PE];\n{tile} tile_d[BN * PV];\n",
        f"{tile} tile_q[BN * PM];\n" if keys else "",
        *(f"{_named(n)} += {n}_at_;\n" for n in ARRAYS),
        "#define GIVEN(type, name) const type name = given.name;\n", text_of("attention_parameters.h"), "#undef GIVEN\n",
        text_of("attention.h"), "}\n", *(f"#undef {k.partition('(')[0]}\n" for k in (*defines, "FETCH", "DOT", "ROW", "COLUMN", "KEEP")),
    ]  # fmt: skip
    return Kernel(name, "".join(text), (), ())


def _named(array: str) -> str:
    """The parameter's name, which is none of the text's own."""
    return f"{array}_row" if array in ("lse_of", "delta_of") else array


def _fours(dialect: Dialect, dtype: DType, four: str) -> str:
    """Four elements that move as one, and what makes numbers of them."""
    each = [(load(dialect, dtype, float32, f"s.{c}"), store(dialect, float32, dtype, f"v.{c}")) for c in "xyzw"]
    loads, saves = (", ".join(pair[k] for pair in each) for k in (0, 1))
    return (
        f"#ifndef VSL_{four}\n#define VSL_{four}\ntypedef struct __attribute__((aligned({4 * dtype.itemsize}))) "
        f"{{ {dialect.storage_of(dtype)} x, y, z, w; }} {four};\n"
        f"{dialect.function} NUMBER4 load4_{four}({four} s) {{ return PACKED({loads}); }}\n"
        f"{dialect.function} {four} save4_{four}(NUMBER4 v) {{ {four} s = {{ {saves} }}; return s; }}\n#endif\n"
    )
