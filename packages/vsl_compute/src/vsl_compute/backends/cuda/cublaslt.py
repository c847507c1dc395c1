"""cuBLASLt: one product of given layouts described once, its algorithm chosen once, so that a call is one call.

cublasGemmEx asks its heuristic on every call; here its answer is kept (on an H200's host, calls from Python: 13.2 and 11.4
us), and a bias is added by the product's kernel.
Source: https://docs.nvidia.com/cuda/cublas/#using-the-cublaslt-api
"""

from __future__ import annotations

import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...dtypes import DType, bfloat16, float16, float32, float64
from ...errors import DeviceLostError, OutOfMemoryError, UnavailableError, UnsupportedError
from . import loader

if TYPE_CHECKING:
    from .backend import CUDABackend

WORKSPACE = 1 << 25  # bytes; what the library asks for on Hopper, more than it asks for elsewhere
DATA = {float32: 0, float64: 1, float16: 2, bfloat16: 14}  # cudaDataType_t
COMPUTE_32, COMPUTE_TF32, COMPUTE_64 = 68, 77, 70  # cublasComputeType_t
TRANSPOSE_FIRST, TRANSPOSE_SECOND, EPILOGUE, BIAS_POINTER = 3, 4, 7, 8  # cublasLtMatmulDescAttributes_t
AUX_POINTER, AUX_LINE = 11, 12
# cublasLtEpilogue_t; 0 is none. With AUX a bit for each element of the result says whether it was positive; BGRADB adds up the second
# operand over the terms of the product, DRELU_BGRAD the result over its columns, into the vector that BIAS_POINTER names
BIAS, RELU_BIAS, RELU_AUX_BIAS, DRELU_BGRAD, BGRADB = 4, 6, 134, 152, 512
AUX = 128  # the bit of all that have such a mask
MASK_LINE = 128  # bits; a column of the mask begins at a multiple of so many
BATCH_COUNT, BATCH_STEP = 5, 6  # cublasLtMatrixLayoutAttribute_t
MOST_WORKSPACE, REDUCTIONS, ALIGNMENTS = 1, 3, (5, 6, 7, 8)  # cublasLtMatmulPreferenceAttributes_t
# cublasLtReductionScheme_t: sums are not cut into parts, or these are joined in float32 or wider, never in float16
NOT_CUT, IN_COMPUTE_TYPE = 0, 2
# bytes of a cublasLtMatmulHeuristicResult_t, of the algorithm that it begins with, and where its status begins
RESULT, ALGORITHM, STATE = 96, 64, 72
NO_MEMORY, NOT_SUPPORTED = 3, 15  # CUBLAS_STATUS_ALLOC_FAILED, NOT_SUPPORTED
FAILED = frozenset({13, 14})  # EXECUTION_FAILED, INTERNAL_ERROR


class Matrix(NamedTuple):
    """How the library reads the last two axes of a view: transposed or not, and elements from one dense line to the next."""

    flag: int
    line: int


class Problem(NamedTuple):
    """A product by columns: out^T = second^T @ first^T for out (m, n), first (m, k), second (k, n); `batch` of them.

    `steps` are the elements from one out, first and second to the next; `alignment` is what all addresses are multiples of.
    """

    dtype: DType
    compute: int
    shape: tuple[int, int, int]  # m, n, k
    first: Matrix
    second: Matrix
    out_line: int
    batch: int
    steps: tuple[int, int, int]
    alignment: int
    epilogue: int


class Product:
    """A product as the library knows it: a description, three layouts, and an algorithm, the first of those it names.

    Plans and tapes hold it; once none does, the library's own is given back.
    """

    def __init__(
        self, problem: Problem, description: int, layouts: tuple[int, int, int], results: np.ndarray[Any, Any]
    ) -> None:
        self.problem, self.description, (self.first, self.second, self.out) = problem, description, layouts
        self._results = results  # the memory of the algorithms
        self.algorithms = [int(results.ctypes.data) + at * RESULT for at in range(results.size // RESULT)]
        self.algorithm = self.algorithms[0]
        self._places = np.zeros(2, np.int64)  # where bias and mask are, as the library was told last
        self.bias, self.bias_at = int(self._places.ctypes.data), 0
        self.mask, self.mask_at = self.bias + 8, 0

    def put(self, bias: int, mask: int) -> None:
        """Write the addresses where `bias` and `mask` point."""
        self._places[0], self._places[1] = self.bias_at, self.mask_at = bias, mask


class CublasLt:
    """The library with a workspace of its own on the backend's stream, so that products can be captured."""

    def __init__(self, backend: CUDABackend) -> None:
        try:
            from nvmath.bindings import cublasLt
        except ImportError as error:
            raise UnavailableError(f"cuda: nvmath-python cannot be loaded ({error}); run: {loader.INSTALL}") from error
        self.calls, self._backend = cublasLt, backend
        with backend.context.current():
            try:
                self.handle = int(cublasLt.create())
            except cublasLt.cuBLASLtError as error:
                raise self.meaning(error) from error
            except Exception as error:  # nvmath's search for the library has errors of its own
                raise UnavailableError(
                    f"cuda: cuBLAS cannot be loaded ({error}); run: python -m pip install 'vsl-compute[cuda12-ctk]' (or [cuda13-ctk])"
                ) from error
            self.version = int(cublasLt.get_version())
            self.workspace = backend.take(WORKSPACE)

    def close(self) -> None:
        """Give the handle and its workspace back."""
        with self._backend.context.current():
            self.calls.destroy(self.handle)
            self._backend.give(self.workspace)

    def product(self, problem: Problem, bias: int, mask: int, wanted: int = 1) -> Product:
        """What describes a product, with `wanted` algorithms at most, and as many that cut no sum into parts.

        The epilogue's vector and mask are at these addresses when this is called; `point` says where they are later.
        Errors: UnsupportedError where the library has no algorithm for it
        """
        dtype, compute, _, first, second, out_line, count, steps, alignment, epilogue = problem
        calls, kind, (m, n, k) = self.calls, DATA[dtype], problem.shape
        description = int(calls.matmul_desc_create(compute, DATA[float64 if dtype is float64 else float32]))
        options = [
            (TRANSPOSE_FIRST, second.flag),
            (TRANSPOSE_SECOND, first.flag),
            *([(EPILOGUE, epilogue)] if epilogue else []),
        ]
        for attribute, value in options:
            _set(calls.matmul_desc_set_attribute, description, attribute, value, np.int32)
        if epilogue:
            _set(calls.matmul_desc_set_attribute, description, BIAS_POINTER, bias, np.int64)
        if epilogue & AUX:
            _set(calls.matmul_desc_set_attribute, description, AUX_POINTER, mask, np.int64)
            _set(calls.matmul_desc_set_attribute, description, AUX_LINE, mask_line(n), np.int64)
        sizes = (
            ((k, n) if second.flag else (n, k), second.line, steps[2]),
            ((m, k) if first.flag else (k, m), first.line, steps[1]),
            ((n, m), out_line, steps[0]),
        )
        layouts = []
        for (rows, columns), line, step in sizes:
            layouts.append(int(calls.matrix_layout_create(kind, rows, columns, line)))
            if count > 1:
                _set(calls.matrix_layout_set_attribute, layouts[-1], BATCH_COUNT, count, np.int32)
                _set(calls.matrix_layout_set_attribute, layouts[-1], BATCH_STEP, step, np.int64)
        preference = int(calls.matmul_preference_create())
        _set(calls.matmul_preference_set_attribute, preference, MOST_WORKSPACE, WORKSPACE, np.uint64)
        for attribute in ALIGNMENTS:
            _set(calls.matmul_preference_set_attribute, preference, attribute, alignment, np.uint32)
        try:
            found = self._algorithms(description, layouts, preference, IN_COMPUTE_TYPE, wanted)
            if wanted > 1 and found.size:
                with suppress(calls.cuBLASLtError):  # each algorithm of this product may cut its sums
                    found = np.concatenate([found, self._algorithms(description, layouts, preference, NOT_CUT, wanted)])
        except calls.cuBLASLtError as error:
            raise self.meaning(error) from error
        finally:
            calls.matmul_preference_destroy(preference)
        if not found.size:
            raise UnsupportedError(f"matmul: cuBLAS has no algorithm for {dtype.name} {m}x{k} @ {k}x{n}")
        made = Product(problem, description, (layouts[0], layouts[1], layouts[2]), found)
        weakref.finalize(made, _give_back, calls, description, tuple(layouts)).atexit = False
        return made

    def _algorithms(
        self, description: int, layouts: list[int], preference: int, reductions: int, wanted: int
    ) -> np.ndarray[Any, Any]:
        """Those that the library names first for this scheme, RESULT bytes each."""
        _set(self.calls.matmul_preference_set_attribute, preference, REDUCTIONS, reductions, np.uint32)
        results, found = np.zeros(wanted * RESULT, np.uint8), np.zeros(1, np.int32)
        self.calls.matmul_algo_get_heuristic(self.handle, description, *layouts[:2], layouts[2], layouts[2], preference, wanted,
                                             int(results.ctypes.data), int(found.ctypes.data))  # fmt: skip
        each = results[: int(found[0]) * RESULT].reshape(-1, RESULT)
        return each[~each[:, STATE : STATE + 4].any(axis=1)].reshape(-1)  # status 0 is success

    def point(self, product: Product, bias: int, mask: int = 0) -> None:
        """Where the vector and the mask of the next call's epilogue are."""
        if product.bias_at != bias or product.mask_at != mask:
            moved = product.mask_at != mask
            product.put(bias, mask)
            self.calls.matmul_desc_set_attribute(product.description, BIAS_POINTER, product.bias, 8)
            if moved:
                self.calls.matmul_desc_set_attribute(product.description, AUX_POINTER, product.mask, 8)

    def meaning(self, error: Any) -> Exception:
        """The library's error as ours."""
        spec, status = self._backend.spec, int(getattr(error, "status", -1))
        if status == NO_MEMORY:
            return OutOfMemoryError(
                f"{spec}: cuBLAS found no memory ({error}); free some arrays or use smaller batches"
            )
        if status == NOT_SUPPORTED:
            return UnsupportedError(f"{spec}: cuBLAS has no such product ({error})")
        if status in FAILED:
            return DeviceLostError(f"{spec}: cuBLAS could not run a product ({error}); start the process again")
        return error  # type: ignore[no-any-return]  # an exception


def mask_line(columns: int) -> int:
    """Bits from one row of a mask to the next, for a result of so many columns; cuBLAS calls our rows columns."""
    return -(-columns // MASK_LINE) * MASK_LINE


def _give_back(calls: Any, description: int, layouts: tuple[int, ...]) -> None:
    """What described a product that nobody holds any more."""
    calls.matmul_desc_destroy(description)
    for layout in layouts:
        calls.matrix_layout_destroy(layout)


def _set(setter: Any, thing: int, attribute: int, value: int, dtype: Any) -> None:
    held = np.array([value], dtype)  # until the call returns
    setter(thing, attribute, int(held.ctypes.data), held.nbytes)
