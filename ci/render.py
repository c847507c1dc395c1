"""Compile every kernel that the op tables render to, for every dtype and layout; a missing compiler is a failure.

CUDA C++ by NVRTC 12 and by nvcc 13 (the wheels nvidia-cuda-nvrtc-cu12 and nvidia-cuda-nvcc), OpenCL C by clang, SPIR-V
modules by spirv-val (both from ci/system-packages). `render.py nvcc spirv` does these only. Texts are joined into
programs of many kernels, for a compiler's start costs more than a kernel; a program that is refused is taken apart, and
the first kernel at fault is shown with line numbers.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from functools import cache
from itertools import product
from pathlib import Path
from typing import TypeVar

from network_kernels import attention_kernels, batch_norm_kernels, convolution_kernels
from vsl_compute.backends.vulkan.float_controls import FloatControls, controlled
from vsl_compute.dtypes import ALL, FLOATING, INTEGER, DType, float16, float32, int64, uint32
from vsl_compute.kernels import indexing, order, order_group
from vsl_compute.kernels.fused import geometry, render_fused
from vsl_compute.kernels.gemm import REGISTER, REGISTER_WIDE, TILES, Access, accesses, render_gemm
from vsl_compute.kernels.philox import render_dropout, render_random
from vsl_compute.kernels.reduce import SHAPES, reduction_dtypes, render_reduction
from vsl_compute.kernels.reduce_rows import RowShape, render_columns, render_rows
from vsl_compute.kernels.shell import LAYOUTS, Kernel, render_row
from vsl_compute.kernels.update import render_update
from vsl_compute.rows import spirv
from vsl_compute.rows.derive import gradient_row
from vsl_compute.rows.dialect import CUDA, OPENCL, Dialect
from vsl_compute.rows.elementwise import ROWS
from vsl_compute.rows.fused import FUSED
from vsl_compute.rows.kinds import assignments, compute_dtype
from vsl_compute.rows.reductions import REDUCTIONS
from vsl_compute.rows.row import Row, Update
from vsl_compute.rows.spirv import SpirvKernel
from vsl_compute.rows.updates import UPDATES

T = TypeVar("T")
PROGRAM = 64  # kernels a program
# what is judged is the text: without their optimizers both compilers take a fifth of the time (a program of 64
# reductions 0.4 s, not 5.4), and `cuda_absent` compiles as users do. 177: a helper nobody calls
EVERY = FloatControls(
    (16, 32, 64), [(16, 32, 64)]
)  # as a module is loaded where a device keeps all that it is asked for
NVRTC = (
    b"--gpu-architecture=compute_80",
    b"--std=c++17",
    b"--fmad=false",
    b"--diag-suppress=177",
    b"--Ofast-compile=max",
)
NVCC = ("-arch=compute_80", "-std=c++17", "--fmad=false", "-diag-suppress=177", "--Ofast-compile=max")
CLANG = (
    "clang",
    "-x",
    "cl",
    "-target",
    "spir64-unknown-unknown",
    "-Xclang",
    "-finclude-default-header",
    "-Werror",
    "-fsyntax-only",
    "-",
)
# reductions of neighbours: vectors or not, one thread an output, some, or all of a group in parts; rows apart or not
ROW_SHAPES = (
    RowShape(4, 1, 256, False, False),
    RowShape(1, 32, 256, True, False),
    RowShape(4, 256, 256, True, True),
    RowShape(1, 256, 256, False, True),
)
OPENCL_VERSIONS = ("CL1.2", "CL3.0")  # the first has no generic address space, so it is the stricter one


class MissingCompilerError(Exception):
    """A compiler is not installed: which one, and where it comes from."""


def all_rows() -> Iterator[Row]:
    """Every elementwise row, each followed by its gradients."""
    for row in ROWS:
        yield row
        yield from (gradient_row(row, index) for index, text in enumerate(row.gradients) if text)


def letter_choices(row: Update) -> Iterator[dict[str, DType]]:
    """Every choice of floating dtypes for an update's letters that compute in one type."""
    letters = sorted(set(row.letters))
    for chosen in product(FLOATING, repeat=len(letters)):
        if len({dtype.compute for dtype in chosen}) == 1:
            yield dict(zip(letters, chosen, strict=True))


def row_kernels(dialect: Dialect) -> Iterator[Kernel]:
    """Every elementwise kernel: rows and gradients, dtypes, layouts; of `quads`, which is `vector` with other places, one a row,
    and those of one row in all dtypes.
    """
    for row in all_rows():
        for number, stored in enumerate(assignments(row)):
            for layout in LAYOUTS:
                if layout != "quads" or not number or row.name == "where":
                    yield render_row(row, dialect, stored, layout)


def reduce_kernels(dialect: Dialect) -> Iterator[Kernel]:
    """Every reduction in every dtype and shape of launch."""
    for row in REDUCTIONS:
        for x, outs in reduction_dtypes(row):
            for shape in SHAPES:
                yield render_reduction(row, dialect, x, outs, shape)
            for rows in ROW_SHAPES:
                yield render_rows(row, dialect, x, outs, rows)
            yield render_columns(row, dialect, x, outs)


def fused_kernels(dialect: Dialect) -> Iterator[Kernel]:
    """Every fused row in every dtype: rows short and long, exact and not, with and without what may be left out."""
    for row, dtype in product(FUSED, FLOATING):
        stored = {"f": dtype, "n": compute_dtype(dtype), "i": int64}
        stored = {letter: stored[letter] for letter in row.signature.inputs}
        for n, vectors, absent in product((77, 1024), (False, True), sorted({(), tuple(row.absent)})):
            shape = geometry(n, vectors=vectors, aligned=True, group=256)
            if shape is not None:
                left_out = [name for name in absent if name in row.args]
                for shared in {frozenset[str](), row.single - set(left_out)}:
                    yield render_fused(row, dialect, stored, shape, absent=left_out, shared=shared)


def update_kernels(dialect: Dialect) -> Iterator[Kernel]:
    """Every update in every mix of floating dtypes."""
    for row in UPDATES:
        for stored in letter_choices(row):
            yield from render_update(row, dialect, stored)


def product_kernels(dialect: Dialect) -> Iterator[Kernel]:
    """Matrix products in every dtype and tile; in two, with every way of reading."""
    for dtype in (*FLOATING, *INTEGER):
        for tile, access in product(TILES, (Access(), Access("deep", "wide", True, True, True))):
            yield render_gemm(dialect, dtype, tile, shared=True, fused=True, access=access)
        if dialect is OPENCL:
            for tile in (REGISTER, REGISTER_WIDE):
                yield render_gemm(dialect, dtype, tile, shared=False, fused=True)
    for dtype, access in product((float32, float16), accesses()):
        yield render_gemm(dialect, dtype, TILES[-1], shared=True, fused=True, access=access, out=float32)


def moving_kernels(dialect: Dialect) -> Iterator[Kernel]:
    """Copies between any two dtypes, indexing, folds, sorts, scans and random numbers."""
    for source, target in product(ALL, repeat=2):
        yield indexing.render_copy(dialect, source, target)
        yield indexing.render_copy(dialect, source, target, fours=True)
        yield indexing.render_copy_rows(dialect, source, target)
        yield indexing.render_turn(dialect, source, target, tile=32, threads=256)
    for index in INTEGER:
        yield indexing.render_keys(dialect, index)
        for dtype in ALL:
            yield indexing.render_gather(dialect, dtype, index)
            yield indexing.render_gather_rows(dialect, dtype, index)
    for dtype in (*FLOATING, *INTEGER):
        for choice, n in product((False, True), range(1, indexing.FOLDED + 1)):
            yield indexing.render_fold(dialect, dtype, chosen=choice, axes=n, dilated=n % 2 > 0)
        for choice in (False, True):
            yield indexing.render_scatter(dialect, dtype, ordered=choice)
            for ways in (order, order_group):
                yield from ways.render_sort(dialect, dtype, descending=choice)
        for row in REDUCTIONS:
            if len(row.state) == len(row.finish) == 1 and row.integers != "float32" and row.signature.inputs == "n":
                for ways in (order, order_group):
                    yield from ways.render_scan(row, dialect, dtype, dtype if dtype.is_floating else int64)
    for dtype, dense in product(FLOATING, (False, True)):
        for kind in ("uniform", "normal"):
            yield render_random(dialect, kind, dtype, double=True, dense=dense)
    for dtype in FLOATING:
        yield render_dropout(dialect, dtype)
    for dense in (False, True):
        yield render_random(dialect, "bits", uint32, double=True, dense=dense)


@cache
def nvrtc() -> ctypes.CDLL:
    """NVIDIA's run-time compiler, from its wheel."""
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations or () if spec else ():
        for path in sorted(Path(folder).glob("cu*/lib/libnvrtc.so.*")):
            if ".alt." not in path.name:
                return ctypes.CDLL(str(path))
    raise MissingCompilerError("NVRTC: pip install nvidia-cuda-nvrtc-cu12 (the dependency group `render`)")


def compile_cuda(text: str) -> str:
    """The compiler's log if it refuses, else nothing."""
    library, program, size = nvrtc(), ctypes.c_void_p(), ctypes.c_size_t()
    source = text.encode()
    library.nvrtcCreateProgram(ctypes.byref(program), source, b"kernels.cu", 0, None, None)
    refused = library.nvrtcCompileProgram(program, len(NVRTC), (ctypes.c_char_p * len(NVRTC))(*NVRTC))
    library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    library.nvrtcGetProgramLog(program, log)
    library.nvrtcDestroyProgram(ctypes.byref(program))
    return log.value.decode() or f"NVRTC error {refused}" if refused else ""


@cache
def nvcc() -> Path:
    """NVIDIA's compiler of CUDA 13, from its wheel; it preprocesses with the system's C++ compiler."""
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations or () if spec else ():
        for path in sorted(Path(folder).glob("cu13/bin/nvcc")):
            if shutil.which("g++") is None:
                raise MissingCompilerError("g++, which nvcc preprocesses with: apt-get install g++")
            return path
    raise MissingCompilerError("nvcc 13: pip install 'nvidia-cuda-nvcc==13.*' (the dependency group `render`)")


def compile_nvcc(text: str) -> str:
    """As compile_cuda, by nvcc 13."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "kernels.cu")
        source.write_text(text)
        done = subprocess.run(
            (nvcc(), "-ptx", *NVCC, "-o", Path(folder, "kernels.ptx"), source),
            capture_output=True,
            text=True,
            check=False,
        )
    return (done.stderr or str(done.returncode)) if done.returncode else ""


def compile_opencl(text: str) -> str:
    """As compile_cuda, by clang; warnings are errors."""
    for version in OPENCL_VERSIONS:
        done = subprocess.run((*CLANG, f"-cl-std={version}"), input=text, capture_output=True, text=True, check=False)
        if done.returncode:
            return f"{version}: {done.stderr or done.returncode}"
    return ""


def validate_spirv(module: bytes) -> str:
    """As compile_cuda, by spirv-val, of a module as it is loaded; the text is that of spirv-dis."""
    words, command = controlled(module, EVERY), ("spirv-val", "--target-env", "vulkan1.2", "-")
    done = subprocess.run(command, input=words, capture_output=True, check=False)
    if not done.returncode:
        return ""
    shown = subprocess.run(("spirv-dis", "-"), input=words, capture_output=True, check=False)
    return f"{numbered(shown.stdout.decode())}\n{done.stderr.decode()}"


def numbered(text: str) -> str:
    """A text with line numbers."""
    return "\n".join(f"{number:5d}  {line}" for number, line in enumerate(text.splitlines(), 1))


COMPILERS: dict[str, tuple[Dialect, Callable[[str], str]]] = {
    "nvrtc": (CUDA, compile_cuda), "nvcc": (CUDA, compile_nvcc), "opencl": (OPENCL, compile_opencl),
}  # fmt: skip


def joined(kernels: Sequence[Kernel]) -> str:
    """One program of many kernels; one that two layouts render alike stands once."""
    return "".join({kernel.name: kernel.text for kernel in kernels}.values())


def compile_program(compiler: str, kernels: Sequence[Kernel]) -> str:
    """Nothing if all compile; else the first kernel at fault, with line numbers, and the compiler's log."""
    _, refusal = COMPILERS[compiler]
    log = refusal(joined(kernels))
    if not log:
        return ""
    for kernel in kernels:
        if alone := refusal(kernel.text):
            return f"{compiler}: {kernel.name}\n{numbered(kernel.text)}\n{alone}"
    return f"{compiler}: {kernels[0].name} ... {kernels[-1].name} compile alone, but not together:\n{log}"


def spirv_modules() -> Iterator[SpirvKernel]:
    """Every SPIR-V module that the emitter says it can make."""
    for row in all_rows():
        for stored in assignments(row):
            if all(spirv.supports(row, dtype) for dtype in stored.values()):
                for layout in spirv.LAYOUTS:
                    yield spirv.emit_row(row, stored, layout)
    for update in UPDATES:
        for stored in letter_choices(update):
            yield from spirv.emit_update(update, stored)
    for source in ALL:
        for target in ALL:
            for layout in spirv.LAYOUTS:
                yield spirv.emit_copy(source, target, layout)


def validate_modules(kernels: Sequence[SpirvKernel]) -> str:
    """Nothing if all are valid, else the first that is not."""
    return next((f"spirv: {kernel.name}\n{log}" for kernel in kernels if (log := validate_spirv(kernel.words))), "")


def require_compilers(names: Sequence[str]) -> None:
    """MissingCompilerError unless all are there."""
    for name, found in (("nvrtc", nvrtc), ("nvcc", nvcc)):
        if name in names:
            found()
    for name, tool, package in (("opencl", "clang", "clang"), ("spirv", "spirv-val", "spirv-tools")):
        if name in names and shutil.which(tool) is None:
            raise MissingCompilerError(f"{tool}: apt-get install {package} (nox -s system)")


def batches(kernels: Sequence[T]) -> Iterator[Sequence[T]]:
    """Slices of a list of kernels."""
    for start in range(0, len(kernels), PROGRAM):
        yield kernels[start : start + PROGRAM]


def report(what: str, count: int, jobs: Sequence[Future[str]]) -> int:
    """Print a line, after the first refusals; their number."""
    refused = [log for job in jobs if (log := job.result())]
    print(*refused[:3], sep="\n", end="\n" if refused else "")
    print(f"render: {what}: {count} kernels in {len(jobs)} programs, {len(refused)} refused", flush=True)
    return len(refused)


KINDS: dict[str, Callable[[Dialect], Iterator[Kernel]]] = {
    "rows": row_kernels,
    "reductions": reduce_kernels,
    "fused rows": fused_kernels,
    "updates": update_kernels,
    "products": product_kernels,
    "convolutions": convolution_kernels,
    "attention": attention_kernels,
    "batch normalization": batch_norm_kernels,
    "indexing, sorts, scans, random": moving_kernels,
}


def main() -> int:
    """Compile all, print counts per compiler and kind; 1 if one is missing or refuses."""
    every = (*COMPILERS, "spirv")
    names = sys.argv[1:] or every
    if unknown := set(names) - set(every):
        print(f"render: {', '.join(sorted(unknown))}: there are {', '.join(every)}")
        return 2
    try:
        require_compilers(names)
    except MissingCompilerError as error:
        print(f"render: no {error}")
        return 1
    start = time.perf_counter()
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        found = [report(*rest) for rest in [*compilations(pool, names), *validations(pool, names)]]
    print(f"render: {time.perf_counter() - start:.0f} s")
    return bool(sum(found))


def compilations(pool: ProcessPoolExecutor, names: Sequence[str]) -> Iterator[tuple[str, int, list[Future[str]]]]:
    """Every kind of kernel by every compiler: rendered once a dialect, here, while others compile."""
    for (kind, render), dialect in product(KINDS.items(), (CUDA, OPENCL)):
        compilers = [name for name in names if name in COMPILERS and COMPILERS[name][0] is dialect]
        kernels = list({kernel.text: kernel for kernel in render(dialect)}.values()) if compilers else []
        for name in compilers if kernels else ():
            jobs = [pool.submit(compile_program, name, batch) for batch in batches(kernels)]
            yield f"{name} {kind}", len(kernels), jobs


def validations(pool: ProcessPoolExecutor, names: Sequence[str]) -> Iterator[tuple[str, int, list[Future[str]]]]:
    """Every module once; rows that compute alike in two dtypes are one."""
    if "spirv" in names:
        modules = list({module.words: module for module in spirv_modules()}.values())
        jobs = [pool.submit(validate_modules, batch) for batch in batches(modules)]
        yield "spirv rows and updates", len(modules), jobs


if __name__ == "__main__":
    sys.exit(main())
