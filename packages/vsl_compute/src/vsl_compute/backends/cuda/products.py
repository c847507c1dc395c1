"""Matrix products by cuBLAS: which of its calls a product of given layouts is, worked out once, and the calls.

cuBLAS knows matrices whose columns are dense; ours have dense rows. So out^T = b^T a^T is computed: a matrix with dense
rows is its own transpose there, one with dense columns carries the flag, and nothing is copied. float16 and bfloat16 are
added up in float32. float32 is computed in float32 unless vsl_compute.precision says "high".
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...dtypes import DType, bfloat16, float16, float32, float64
from ...errors import DeviceLostError, OutOfMemoryError, UnavailableError
from ...precision import float32_matmul_precision
from ...view import Layout, View
from ..shared.axes import collapse
from . import loader

if TYPE_CHECKING:
    from .backend import CUDABackend

WORKSPACE = 1 << 25  # bytes; what cuBLAS asks for on Hopper, more than it asks for elsewhere
DATA = {float32: 0, float64: 1, float16: 2, bfloat16: 14}  # cudaDataType_t
COMPUTE_32, COMPUTE_TF32, COMPUTE_64 = 68, 77, 70  # cublasComputeType_t
TRANSPOSED = 1  # CUBLAS_OP_T
DISALLOW_REDUCED = 16  # CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION: parts of a float16 sum are joined in float32
BATCHES = 65535  # products of one call
OUTER = 8  # calls that one product may take before its operands are copied dense
PLAN_LIMIT = 10_000  # a program with ever new shapes must not grow for ever
NO_MEMORY, FAILED = 3, frozenset({13, 14})  # CUBLAS_STATUS_ALLOC_FAILED; EXECUTION_FAILED, INTERNAL_ERROR


class Matrix(NamedTuple):
    """How cuBLAS reads the last two axes of a view: transposed or not, and elements from one dense line to the next."""

    flag: int
    line: int


class Plan(NamedTuple):
    """One product: whether out is transposed, whether operands are copied first, and cuBLAS's numbers."""

    turned: bool
    copies: tuple[bool, bool, bool]
    a: Matrix
    b: Matrix
    out_line: int
    batches: int
    steps: tuple[int, int, int]  # out, a, b: elements from one product of a batch to the next
    outer: tuple[tuple[int, int, int], ...]  # where each call's out, a and b begin


def matrix(shape: Sequence[int], strides: Sequence[int]) -> Matrix | None:
    """The last two axes as cuBLAS takes them, flag 0 where rows are dense; None where neither rows nor columns are."""
    (rows, columns), (down, along) = shape[-2:], strides[-2:]
    if (along == 1 or columns == 1) and (rows == 1 or down >= max(1, columns)):
        return Matrix(0, down if rows > 1 else max(1, columns))
    if (down == 1 or rows == 1) and (columns == 1 or along >= max(1, rows)):
        return Matrix(TRANSPOSED, along if columns > 1 else max(1, rows))
    return None


class Cublas:
    """A handle of the library on the backend's stream, with a workspace of its own, so that products can be captured."""

    def __init__(self, backend: CUDABackend) -> None:
        try:
            from nvmath.bindings import cublas
        except ImportError as error:
            raise UnavailableError(f"cuda: nvmath-python cannot be loaded ({error}); run: {loader.INSTALL}") from error
        self.calls, self._backend = cublas, backend
        with backend.context.current():
            try:
                self.handle = cublas.create()
            except cublas.cuBLASError as error:
                raise self.meaning(error) from error
            except Exception as error:  # nvmath's search for the library has errors of its own
                raise UnavailableError(
                    f"cuda: cuBLAS cannot be loaded ({error}); run: python -m pip install 'vsl-compute[cuda12-ctk]' (or [cuda13-ctk])"
                ) from error
            self._workspace = backend.take(WORKSPACE)
            cublas.set_stream(self.handle, backend.queue.pointer)
            cublas.set_workspace(self.handle, self._workspace, WORKSPACE)
            cublas.set_math_mode(self.handle, DISALLOW_REDUCED)

    def close(self) -> None:
        """Give the handle and its workspace back."""
        with self._backend.context.current():
            self.calls.destroy(self.handle)
            self._backend.give(self._workspace)

    def meaning(self, error: Any) -> Exception:
        """The library's error as ours."""
        spec, status = self._backend.spec, int(getattr(error, "status", -1))
        if status == NO_MEMORY:
            return OutOfMemoryError(
                f"{spec}: cuBLAS found no memory ({error}); free some arrays or use smaller batches"
            )
        if status in FAILED:
            return DeviceLostError(f"{spec}: cuBLAS could not run a product ({error}); start the process again")
        return error  # type: ignore[no-any-return]  # an exception


class CublasProducts:
    """The matrix products of floating dtypes."""

    def __init__(self, backend: CUDABackend) -> None:
        self._backend = backend
        self._plans: dict[tuple[Layout, Layout, Layout], Plan] = {}
        self._numbers: dict[tuple[float, bool], np.ndarray[Any, Any]] = {}
        self._library: Cublas | None = None
        self._lock = threading.Lock()

    def library(self) -> Cublas:
        """The library, loaded at the first product."""
        if self._library is None:
            with self._lock:
                if self._library is None:
                    self._library = Cublas(self._backend)
        return self._library

    def close(self) -> None:
        """Give the library's handle back, if it was loaded."""
        if self._library is not None:
            self._library.close()
            self._library = None

    def gemm(self, out: View, a: View, b: View, *, alpha: float, beta: float) -> None:
        """out = alpha * a @ b + beta * out, of a dtype in DATA, with at least one term."""
        key = (out.layout, a.layout, b.layout)
        plan = self._plans.get(key)
        if plan is None:
            if len(self._plans) > PLAN_LIMIT:
                self._plans.clear()
            plan = self._plans[key] = self._plan(out, a, b)
        if any(plan.copies):
            self._copied(plan, out, a, b, alpha, beta)
            return
        (m, n), k = out.shape[-2:], a.shape[-1]
        if plan.turned:
            m, n, a, b = n, m, b, a
        self._call(plan, out, a, b, (m, n, k), alpha, beta)

    def _copied(self, plan: Plan, out: View, a: View, b: View, alpha: float, beta: float) -> None:
        backend, batch = self._backend, out.shape[:-2]
        target = out
        if plan.copies[0]:
            target = backend.allocate(Layout.of(out.dtype, out.shape))
            if beta:
                backend.copy(target, out)
        operands = []
        for view, needed in ((a, plan.copies[1]), (b, plan.copies[2])):
            wide = view.expand((*batch, *view.shape[-2:])) if len(batch) > len(view.shape) - 2 else view
            fresh = backend.allocate(Layout.of(view.dtype, wide.shape)) if needed else view
            if needed:
                backend.copy(fresh, wide)
            operands.append(fresh)
        self.gemm(target, *operands, alpha=alpha, beta=beta)
        if target is not out:
            backend.copy(out, target)

    def _plan(self, out: View, a: View, b: View) -> Plan:
        batch = out.shape[:-2]
        a_wide, b_wide = (x.expand((*batch, *x.shape[-2:])) for x in (a, b))
        target = matrix(out.shape, out.strides)
        first, second = matrix(a.shape, a.strides), matrix(b.shape, b.strides)
        sizes, strides = collapse(batch, [v.strides[:-2] for v in (out, a_wide, b_wide)])
        outer = list(_outer(sizes[:-1], [s[:-1] for s in strides]))
        backwards = [any(step < 0 for step in s) for s in strides]
        many = len(outer) > OUTER
        copies = (
            target is None or backwards[0] or (many and not out.layout.c_order),
            first is None or backwards[1] or (many and not a_wide.layout.c_order),
            second is None or backwards[2] or (many and not b_wide.layout.c_order),
        )
        if target is None or first is None or second is None or any(copies):
            nothing = Matrix(0, 1)
            return Plan(False, copies, nothing, nothing, 1, 1, (0, 0, 0), ())
        turned = target.flag == TRANSPOSED
        steps: Sequence[int] = [s[-1] if s else 0 for s in strides]
        if turned:  # out's columns are dense: out^T = b^T @ a^T has dense rows
            first, second = (Matrix(TRANSPOSED - f.flag, f.line) for f in (second, first))
            steps, outer = (steps[0], steps[2], steps[1]), [(o, y, x) for o, x, y in outer]
        count = sizes[-1] if sizes else 1
        return Plan(turned, copies, first, second, target.line, count, (steps[0], steps[1], steps[2]), tuple(outer))

    def _call(
        self, plan: Plan, out: View, a: View, b: View, shape: tuple[int, int, int], alpha: float, beta: float
    ) -> None:
        (m, n, k), dtype = shape, out.dtype
        library = self.library()
        item, kind, compute = dtype.itemsize, DATA[dtype], _compute(dtype)
        wide = dtype is float64
        with self._lock:
            alpha_at, beta_at = self._number(alpha, wide), self._number(beta, wide)
            context = self._backend.context
            before = context.enter()
            try:
                for moved in plan.outer:
                    for begin in range(0, plan.batches, BATCHES):
                        count = min(BATCHES, plan.batches - begin)
                        to, left, right = (
                            v.buffer.handle + (v.offset + at + begin * step) * item
                            for v, at, step in zip((out, a, b), moved, plan.steps, strict=True)
                        )
                        library.calls.gemm_strided_batched_ex_64(
                            library.handle, plan.b.flag, plan.a.flag, n, m, k, alpha_at, right, kind, plan.b.line, plan.steps[2],
                            left, kind, plan.a.line, plan.steps[1], beta_at, to, kind, plan.out_line, plan.steps[0], count, compute, -1,
                        )  # fmt: skip
            except library.calls.cuBLASError as error:
                raise library.meaning(error) from error
            finally:
                context.leave(before)

    def _number(self, value: float, wide: bool) -> int:
        """The address of a number in host memory, where cuBLAS reads it during the call."""
        found = self._numbers.get((value, wide))
        if found is None:
            if len(self._numbers) > 1000:
                self._numbers.clear()
            with np.errstate(over="ignore"):
                found = self._numbers[value, wide] = np.array([value], np.float64 if wide else np.float32)
        return int(found.ctypes.data)


def _compute(dtype: DType) -> int:
    if dtype is float64:
        return COMPUTE_64
    return COMPUTE_TF32 if dtype is float32 and float32_matmul_precision() == "high" else COMPUTE_32


def _outer(sizes: Sequence[int], strides: Sequence[Sequence[int]]) -> Iterator[tuple[int, int, int]]:
    """How far out, a and b move for each index of the axes that one call does not have."""
    for index in np.ndindex(*sizes):
        to, left, right = (sum(i * s for i, s in zip(index, steps, strict=True)) for steps in strides)
        yield to, left, right
