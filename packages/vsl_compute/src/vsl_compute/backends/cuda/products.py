"""Matrix products by cuBLAS: what a product of given layouts is in its terms, worked out once, and the calls.

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
from ...precision import get_float32_matmul_precision
from ...view import Layout, View
from ..shared.axes import collapse
from .cublaslt import COMPUTE_32, COMPUTE_64, COMPUTE_TF32, WORKSPACE, CublasLt, Matrix, Product

if TYPE_CHECKING:
    from .backend import CUDABackend

TRANSPOSED = 1  # CUBLAS_OP_T
BIASED = (float32, float16, bfloat16)
ALIGNED = 256  # bytes; more is of no use to the library
BATCHES = 65535  # products of one call
OUTER = 8  # calls that one product may take before its operands are copied dense
PLAN_LIMIT = 10_000  # a program with ever new shapes must not grow for ever


class Plan(NamedTuple):
    """The calls of one product, each with the bytes to where its out, a and b begin; `turned` swaps the operands."""

    turned: bool
    calls: tuple[tuple[Product, int, int, int], ...]


class Copies(NamedTuple):
    """What is copied dense before a product: out, a, b; the operands are broadcast with it if `widen`."""

    out: bool
    a: bool
    b: bool
    widen: bool


def matrix(shape: Sequence[int], strides: Sequence[int]) -> Matrix | None:
    """The last two axes as cuBLAS takes them, flag 0 where rows are dense; None where neither rows nor columns are."""
    (rows, columns), (down, along) = shape[-2:], strides[-2:]
    if (along == 1 or columns == 1) and (rows == 1 or down >= max(1, columns)):
        return Matrix(0, down if rows > 1 else max(1, columns))
    if (down == 1 or rows == 1) and (columns == 1 or along >= max(1, rows)):
        return Matrix(TRANSPOSED, along if columns > 1 else max(1, rows))
    return None


class CublasProducts:
    """The matrix products of floating dtypes."""

    def __init__(self, backend: CUDABackend) -> None:
        self._backend = backend
        self._plans: dict[tuple[Layout, Layout, Layout, int, int, bool], Plan | Copies] = {}
        self._library: CublasLt | None = None
        self._lock = threading.Lock()
        numbers = np.array([0, 1], np.float32), np.array([0, 1], np.float64)
        self._numbers = numbers  # cuBLAS reads alpha and beta in host memory
        zero, zero_wide = (int(array.ctypes.data) for array in numbers)
        self._known = ({0.0: zero, 1.0: zero + 4}, {0.0: zero_wide, 1.0: zero_wide + 8})

    def loaded(self) -> CublasLt:
        """The library, loaded at the first product; not for a device that was closed or lost."""
        if self._library is None:
            self._backend.queue.check()
            with self._lock:
                if self._library is None:
                    self._library = CublasLt(self._backend)
        return self._library

    def close(self) -> None:
        """Give the library's handle back, if it was loaded."""
        if self._library is not None:
            self._forget()
            self._library.close()
            self._library = None

    def _forget(self) -> None:
        plans, self._plans = self._plans, {}
        for plan in plans.values():
            if isinstance(plan, Plan):
                for product in {id(call[0]): call[0] for call in plan.calls}.values():
                    self.loaded().forget(product)

    def gemm(self, out: View, a: View, b: View, *, alpha: float, beta: float, bias: View | None = None) -> None:
        """out = alpha * a @ b + beta * out (+ bias, one for each column), of a dtype in DATA, with at least one term."""
        dtype = out.layout.dtype
        item, compute = dtype.itemsize, _compute(dtype)
        out_at = out.buffer.handle + out.offset * item
        a_at = a.buffer.handle + a.offset * item
        b_at = b.buffer.handle + b.offset * item
        bias_at = 0 if bias is None else bias.buffer.handle + bias.offset * item
        low = out_at | a_at | b_at | bias_at | ALIGNED
        key = (out.layout, a.layout, b.layout, low & -low, compute, bias is not None)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._planned(key, out, a, b, bias_at)
        if isinstance(plan, Copies):
            self._copied(plan, out, a, b, alpha, beta, bias)
            return
        if plan.turned:
            a_at, b_at = b_at, a_at
        known = self._known[dtype is float64]
        alpha_at, beta_at = known.get(alpha), known.get(beta)
        if alpha_at is None or beta_at is None:
            with np.errstate(over="ignore"):
                numbers = np.array([alpha, beta], self._numbers[dtype is float64].dtype)
            alpha_at = int(numbers.ctypes.data)  # `numbers` lives until this returns
            beta_at = alpha_at + numbers.itemsize
        if bias is None:
            self._call(plan, out_at, a_at, b_at, alpha_at, beta_at)
            return
        with self._lock:  # another thread's bias must not come between
            for product, *_ in plan.calls:
                self.loaded().set_bias(product.description, bias_at)
            self._call(plan, out_at, a_at, b_at, alpha_at, beta_at)

    def _call(self, plan: Plan, out_at: int, a_at: int, b_at: int, alpha_at: int, beta_at: int) -> None:
        library, backend = self._library or self.loaded(), self._backend
        if backend.queue.refusal is not None:
            backend.queue.check()
        calls, stream = library.calls, backend.queue.pointer
        before = backend.context.enter()
        try:
            for product, out, first, second in plan.calls:
                to = out_at + out
                calls.matmul(library.handle, product.description, alpha_at, b_at + second, product.first, a_at + first, product.second, beta_at,
                             to, product.out, to, product.out, product.algorithm, library.workspace, WORKSPACE, stream)  # fmt: skip
        except calls.cuBLASLtError as error:
            raise library.meaning(error) from error
        finally:
            backend.context.leave(before)

    def linear(self, x: View, weight: View, bias: View | None) -> Any:
        """The op `linear`, its bias added by the product's kernel; what that cannot is left to the body."""
        dtype, rows = x.dtype, (x.size // max(1, weight.shape[1]), weight.shape[1])
        if bias is None or dtype not in BIASED or not (x.size and bias.size) or bias.strides != (1,):
            return NotImplemented
        if not x.can_reshape(rows):
            return NotImplemented
        y = self._backend.allocate(Layout.of(dtype, (rows[0], weight.shape[0])))
        self.gemm(y, x.reshape(rows), weight.permute((1, 0)), alpha=1.0, beta=0.0, bias=bias)
        return y.reshape((*x.shape[:-1], weight.shape[0]))

    def _copied(
        self, copies: Copies, out: View, a: View, b: View, alpha: float, beta: float, bias: View | None
    ) -> None:
        backend, batch = self._backend, out.shape[:-2]
        target = out
        if copies.out:
            target = backend.allocate(Layout.of(out.dtype, out.shape))
            if beta:
                backend.copy(target, out)
        operands = []
        for view, needed in ((a, copies.a), (b, copies.b)):
            if needed:
                wide = view.expand((*batch, *view.shape[-2:])) if copies.widen else view
                view = backend.allocate(Layout.of(view.dtype, wide.shape))
                backend.copy(view, wide)
            operands.append(view)
        self.gemm(target, *operands, alpha=alpha, beta=beta, bias=bias)
        if target is not out:
            backend.copy(out, target)

    def _planned(
        self, key: tuple[Layout, Layout, Layout, int, int, bool], out: View, a: View, b: View, bias: int
    ) -> Plan | Copies:
        with self._lock:
            if len(self._plans) > PLAN_LIMIT:
                self._forget()
        library = self.loaded()
        with self._lock:
            found = self._plans[key] = self._plan(library, out, a, b, key[3], key[4], bias)
        return found

    def _plan(
        self, library: CublasLt, out: View, a: View, b: View, alignment: int, compute: int, bias: int
    ) -> Plan | Copies:
        batch = out.shape[:-2]
        a_wide, b_wide = (x.expand((*batch, *x.shape[-2:])) for x in (a, b))
        target = matrix(out.shape, out.strides)
        first, second = matrix(a.shape, a.strides), matrix(b.shape, b.strides)
        sizes, strides = collapse(batch, [v.strides[:-2] for v in (out, a_wide, b_wide)])
        back = [any(step < 0 for step in s) for s in strides]
        if target is None or first is None or second is None or any(back):
            return Copies(target is None or back[0], first is None or back[1], second is None or back[2], widen=False)
        outer = list(_outer(sizes[:-1], [s[:-1] for s in strides]))
        if len(outer) > OUTER:
            return Copies(not out.layout.c_order, not a_wide.layout.c_order, not b_wide.layout.c_order, widen=True)
        (m, n), k = out.shape[-2:], a.shape[-1]
        steps = [s[-1] if s else 0 for s in strides]
        turned = target.flag == TRANSPOSED
        if turned:  # out's columns are dense: out^T = b^T @ a^T has dense rows
            if bias:
                return Copies(True, False, False, widen=False)
            m, n = n, m
            first, second = (Matrix(TRANSPOSED - f.flag, f.line) for f in (second, first))
            steps, outer = [steps[0], steps[2], steps[1]], [(o, y, x) for o, x, y in outer]
        count, item = sizes[-1] if sizes else 1, out.dtype.itemsize
        moves = [number * item for number in (*steps, *(at for moved in outer for at in moved)) if number]
        low = alignment
        for move in moves:
            low |= move
        products: dict[int, Product] = {}
        calls = []
        for begin in range(0, count, BATCHES):
            number = min(BATCHES, count - begin)
            if number not in products:
                products[number] = library.product(
                    out.dtype, compute, (m, n, k), first, second, target.line, number, steps, low & -low, bias=bias
                )
            for moved in outer:
                places = [(at + begin * step) * item for at, step in zip(moved, steps, strict=True)]
                calls.append((products[number], places[0], places[1], places[2]))
        return Plan(turned, tuple(calls))


def _compute(dtype: DType) -> int:
    if dtype is float64:
        return COMPUTE_64
    return COMPUTE_TF32 if dtype is float32 and get_float32_matmul_precision() == "high" else COMPUTE_32


def _outer(sizes: Sequence[int], strides: Sequence[Sequence[int]]) -> Iterator[tuple[int, int, int]]:
    """How far out, a and b move for each index of the axes that one call does not have."""
    for index in np.ndindex(*sizes):
        to, left, right = (sum(i * s for i, s in zip(index, steps, strict=True)) for steps in strides)
        yield to, left, right
