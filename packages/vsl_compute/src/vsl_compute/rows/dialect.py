"""What one C-like kernel language calls things; the rest of its syntax is common to all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..dtypes import DType


@dataclass(frozen=True, eq=False)
class Dialect:
    """One C-like kernel language. In the texts, names stand for themselves and `{}` is filled in."""

    name: str
    header: str  # once before everything
    double_header: str  # before a kernel that computes in float64
    kernel: str  # qualifies an entry point
    function: str  # qualifies a helper
    memory: str  # qualifies a pointer into device memory, with a trailing space if any
    shared: str  # qualifies an array that a group of threads shares
    shared_pointer: str  # qualifies a pointer into such an array
    group_of: str  # says how many {threads} a group of a kernel has
    barrier: str
    index: Mapping[str, str]  # global_x, global_y, threads_x, threads_y, local, group, groups, group_size
    types: Mapping[str, str]  # a dtype's name: the type that values have
    renamed: Mapping[str, str]  # a row function: what it is called here
    float_suffix: str  # what the functions of float32 end in
    suffixes: Mapping[str, str]  # a dtype's name: what its literals end in
    bits: Mapping[str, str]  # float_of, bits_of, infinity and nan of a dtype, half_load, half_store
    pointer_table: bool  # whether a kernel may read pointers from memory
    counts: bool  # whether groups of a launch can count each other, and the last see what the others wrote

    def type_of(self, dtype: DType) -> str:
        """The type of a value of this dtype."""
        return self.types[dtype.name]

    def storage_of(self, dtype: DType) -> str:
        """The type of an element in memory: float16 and bfloat16 are their bits, bool is a byte."""
        if dtype.kind == "b":
            return self.types["uint8"]
        return self.types["uint16"] if dtype.kind == "f" and dtype.itemsize == 2 else self.types[dtype.name]

    def literal(self, value: float, dtype: DType) -> str:
        """A constant of a compute dtype, rounded to it by the compiler."""
        if not dtype.is_floating:
            if dtype.kind == "i" and value == dtype.min:  # C has no negative literals
                return f"(-{int(dtype.max)}{self.suffixes[dtype.name]} - 1)"
            return (
                f"{int(value)}{self.suffixes[dtype.name]}"
                if value >= 0
                else f"(-{-int(value)}{self.suffixes[dtype.name]})"
            )
        if value != value:
            return self.bits[f"nan_{dtype.name}"]
        if abs(value) == float("inf"):
            text = self.bits[f"infinity_{dtype.name}"]
        else:
            text = repr(abs(value)) + self.suffixes[dtype.name]
        return f"(-{text})" if value < 0 or str(value).startswith("-") else text

    def function_of(self, name: str, dtype: DType) -> str:
        """What a row function that the language has is called for this dtype."""
        return self.renamed.get(name, name) + (self.float_suffix if dtype.name == "float32" else "")


_CUDA_TYPES = {
    "bool": "bool", "int8": "signed char", "uint8": "unsigned char", "int16": "short", "uint16": "unsigned short", "int32": "int",
    "uint32": "unsigned int", "int64": "long long", "uint64": "unsigned long long", "float32": "float", "float64": "double",
}  # fmt: skip
_OPENCL_TYPES = {
    "bool": "bool", "int8": "char", "uint8": "uchar", "int16": "short", "uint16": "ushort", "int32": "int", "uint32": "uint",
    "int64": "long", "uint64": "ulong", "float32": "float", "float64": "double",
}  # fmt: skip
_RENAMED = {"abs": "fabs", "power": "pow"}
_SUFFIXES = {"int32": "", "uint32": "u", "float32": "f", "float64": ""}

# Compiled with --fmad=false, as OpenCL is with FP_CONTRACT OFF: a contracted a * b - c * d is not NumPy's, and rows wait
# for memory, not arithmetic. float16 is converted by PTX, so that NVRTC needs no cuda_fp16.h and no include path.
CUDA = Dialect(
    name="cuda", header="", double_header="", kernel='extern "C" __global__ void', function="static __device__ inline", memory="",
    shared="__shared__ ", shared_pointer="", group_of="__launch_bounds__({threads}) ", barrier="__syncthreads();",
    index={
        "global_x": "((long long)blockIdx.x * blockDim.x + threadIdx.x)", "global_y": "((long long)blockIdx.y * blockDim.y + threadIdx.y)",
        "threads_x": "((long long)gridDim.x * blockDim.x)", "threads_y": "((long long)gridDim.y * blockDim.y)",
        "local": "threadIdx.x", "group": "blockIdx.x", "groups": "gridDim.x", "group_size": "blockDim.x",
    },
    types=_CUDA_TYPES, renamed=_RENAMED, float_suffix="f", suffixes={**_SUFFIXES, "int64": "LL", "uint64": "ULL"},
    bits={
        "float_of": "__uint_as_float", "bits_of": "__float_as_uint", "double_bits": "__double_as_longlong",
        "infinity_float32": "__int_as_float(0x7f800000)", "infinity_float64": "__longlong_as_double(0x7ff0000000000000LL)",
        "nan_float32": "__int_as_float(0x7fc00000)", "nan_float64": "__longlong_as_double(0x7ff8000000000000LL)",
        "half_load": 'float r; asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(h)); return r;',
        "half_store": 'unsigned short h; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x)); return h;',
        "half_store_double": 'unsigned short h; asm("cvt.rn.f16.f64 %0, %1;" : "=h"(h) : "d"(x)); return h;',
    },
    pointer_table=True,
    counts=True,
)  # fmt: skip

# cl_khr_fp16 is not needed: float16 is taken apart by hand. vload_half of a private ushort reads it through another type,
# which compilers may take for no read at all (PoCL 3.0 does, in a loop with barriers). No step needs denormals of float32.
_HALF_LOAD = """
    const uint sign = (uint)(h & 0x8000) << 16, rest = h & 0x7fff;
    if (rest >= 0x7c00) return as_float(sign | 0x7f800000u | (rest << 13));
    if (rest < 0x0400) return as_float(sign | as_uint((float)rest * 0x1p-24f));
    return as_float(sign | ((rest << 13) + 0x38000000u));
"""
_HALF_STORE = """
    const uint u = as_uint(x), sign = (u >> 16) & 0x8000u, rest = u & 0x7fffffffu;
    if (rest > 0x7f800000u) return (ushort)(sign | 0x7e00u | ((rest >> 13) & 0x3ffu));
    if (rest >= 0x477ff000u) return (ushort)(sign | 0x7c00u);
    if (rest < 0x38800000u) return (ushort)(sign | (uint)rint(as_float(rest) * 0x1p24f));
    return (ushort)(sign | ((rest - 0x38000000u + 0xfffu + ((rest >> 13) & 1u)) >> 13));
"""
_HALF_STORE_DOUBLE = """
    /* through float32 rounded to odd, so that no tie is rounded twice */
    const float f = (float)x;
    uint u = as_uint(f);
    const double d = (double)f;
    if ((d != x) && (d - d == 0)) u = (((d < 0 ? -d : d) > (x < 0 ? -x : x)) ? u - 1u : u) | 1u;
    return store_f16(as_float(u));
"""
OPENCL = Dialect(
    name="opencl", header="#pragma OPENCL FP_CONTRACT OFF\n",
    double_header="#if __OPENCL_C_VERSION__ < 120\n#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n#endif\n",
    kernel="__kernel void", function="static inline", memory="__global ", shared="__local ",
    shared_pointer="__local ", group_of="__attribute__((reqd_work_group_size({threads}, 1, 1))) ", barrier="barrier(CLK_LOCAL_MEM_FENCE);",
    index={
        "global_x": "(long)get_global_id(0)", "global_y": "(long)get_global_id(1)", "threads_x": "(long)get_global_size(0)",
        "threads_y": "(long)get_global_size(1)", "local": "(uint)get_local_id(0)", "group": "(uint)get_group_id(0)",
        "groups": "(uint)get_num_groups(0)", "group_size": "(uint)get_local_size(0)",
    },
    types=_OPENCL_TYPES, renamed=_RENAMED, float_suffix="", suffixes={**_SUFFIXES, "int64": "L", "uint64": "UL"},
    bits={
        "float_of": "as_float", "bits_of": "as_uint", "double_bits": "as_long",
        "infinity_float32": "INFINITY", "infinity_float64": "((double)INFINITY)", "nan_float32": "NAN", "nan_float64": "((double)NAN)",
        "half_load": _HALF_LOAD, "half_store": _HALF_STORE, "half_store_double": _HALF_STORE_DOUBLE,
    },
    pointer_table=False,
    counts=False,
)  # fmt: skip
