"""Matrix products by cuBLAS: what a product of given layouts is in its terms, worked out once, and the calls.

cuBLAS knows matrices whose columns are dense; ours have dense rows. So out^T = b^T a^T is computed: a matrix with dense
rows is its own transpose there, one with dense columns carries the flag, and nothing is copied. float16 and bfloat16 are
added up in float32. float32 is computed in float32 unless vsl_compute.precision says "high".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ... import locks
from ...dtypes import DType, bfloat16, float16, float32, float64
from ...errors import UnsupportedError
from ...ops.primitives import broadcast_shapes
from ...precision import get_float32_matmul_precision
from ...view import Layout, View
from ..shared.axes import collapse
from ..shared.fused import Preparing
from .algorithms import candidates, choose
from .cublaslt import (
    BIAS,
    COMPUTE_32,
    COMPUTE_64,
    COMPUTE_TF32,
    DATA,
    RELU_BIAS,
    WORKSPACE,
    CublasLt,
    Matrix,
    Problem,
    Product,
)
from .layouts import TRANSPOSED, dense_matrices, in_steps, matrix, outer_moves

if TYPE_CHECKING:
    from .backend import CUDABackend

BIASED = (float32, float16, bfloat16)
ALIGNED = 256  # bytes; more is of no use to the library
BATCHES = 65535  # products of one call
log = logging.getLogger("vsl_compute.cublas")
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


class CublasProducts:
    """The matrix products of floating dtypes."""

    def __init__(self, backend: CUDABackend) -> None:
        self._backend = backend
        self._plans: dict[tuple[Layout, Layout, Layout, int, int, int], Plan | Copies] = {}
        self._refused: set[Any] = set()  # keys of products with an epilogue that the library lacks
        self._library: CublasLt | None = None
        self._lock = locks.lock()
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
            self._plans = {}
            self._library.close()
            self._library = None

    def gemm(self, out: View, a: View, b: View, *, alpha: float, beta: float, epilogue: int = 0, bias: View | None = None) -> None:  # fmt: skip
        """out = alpha * a @ b + beta * out, of a dtype in DATA, with at least one term.

        An epilogue adds `bias`, one for each column, to the product, and may take what is positive of the sum.
        """
        dtype = out.layout.dtype
        item, compute = dtype.itemsize, _compute(dtype)
        out_at = out.buffer.handle + out.offset * item
        a_at = a.buffer.handle + a.offset * item
        b_at = b.buffer.handle + b.offset * item
        bias_at = 0 if bias is None else bias.buffer.handle + bias.offset * item
        low = out_at | a_at | b_at | bias_at | ALIGNED
        key = (out.layout, a.layout, b.layout, low & -low, compute, epilogue)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._planned(key, out, a, b, bias_at)
        if isinstance(plan, Copies):
            self._copied(plan, out, a, b, alpha, beta, epilogue, bias)
            return
        if plan.turned:
            a_at, b_at = b_at, a_at
        known = self._known[dtype is float64]
        alpha_at, beta_at = known.get(alpha), known.get(beta)
        if alpha_at is None or beta_at is None:
            self._backend.queue.unrecorded("numbers that are kept for one call")
            with np.errstate(over="ignore"):
                numbers = np.array([alpha, beta], self._numbers[dtype is float64].dtype)
            alpha_at = int(numbers.ctypes.data)  # `numbers` lives until this returns
            beta_at = alpha_at + numbers.itemsize
        if bias is None:
            self._call(plan, out_at, a_at, b_at, alpha_at, beta_at)
            return
        with self._lock:  # another thread's bias must not come between
            for product, *_ in plan.calls:
                self.loaded().point(product, bias_at)
            self._call(plan, out_at, a_at, b_at, alpha_at, beta_at)

    def joined(self, out: View, a: View, b: View, epilogue: int, vector: int, mask: int = 0) -> bool:
        """out = a @ b in one call that also writes or reads what its epilogue says; False where the library has none.

        `vector` and `mask` are addresses.
        """
        item, compute = out.dtype.itemsize, _compute(out.dtype)
        out_at, a_at, b_at = (v.buffer.handle + v.offset * item for v in (out, a, b))
        low = out_at | a_at | b_at | vector | ALIGNED
        key = (out.layout, a.layout, b.layout, low & -low, compute, epilogue)
        if key in self._refused:
            return False
        plan = self._plans.get(key)
        if plan is None:
            try:
                plan = self._planned(key, out, a, b, vector, mask)
            except UnsupportedError as error:
                log.info("epilogue %d: %s", epilogue, error)
                if len(self._refused) > PLAN_LIMIT:
                    self._refused.clear()
                self._refused.add(key)
                return False
        if type(plan) is not Plan or plan.turned or len(plan.calls) > 1:
            return False
        known = self._known[0]
        with self._lock:  # another thread's vector must not come between
            self.loaded().point(plan.calls[0][0], vector, mask)
            self._call(plan, out_at, a_at, b_at, known[1.0], known[0.0])
        return True

    def _call(self, plan: Plan, out_at: int, a_at: int, b_at: int, alpha_at: int, beta_at: int) -> None:
        library, backend = self._library or self.loaded(), self._backend
        if backend.queue.refusal is not None:
            backend.queue.check()
        calls, stream = library.calls, backend.queue.pointer
        if backend.queue.recorders and (recording := backend.queue.recording) is not None:
            for product, out, first, second in plan.calls:
                recording.product(library, product, alpha_at, beta_at, out_at + out, a_at + first, b_at + second)
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

    def linear(self, x: View, weight: View, bias: View | None, epilogue: int = BIAS) -> Any:
        """The op `linear`, its bias added by the product's kernel; what that cannot is left to the body."""
        if not self.takes(x, weight, bias):
            return NotImplemented
        assert bias is not None  # or it was not taken
        rows = (x.size // weight.shape[1], weight.shape[1])
        y = self._backend.allocate(Layout.of(x.dtype, (rows[0], weight.shape[0])))
        self.gemm(y, x.reshape(rows), weight.permute((1, 0)), alpha=1.0, beta=0.0, epilogue=epilogue, bias=bias)
        return y.reshape((*x.shape[:-1], weight.shape[0]))

    def linear_relu(self, x: View, weight: View, bias: View | None) -> Any:
        """The op `linear_relu`, likewise."""
        return self.linear(x, weight, bias, RELU_BIAS)

    @staticmethod
    def takes(x: View, weight: View, bias: View | None) -> bool:
        """Whether a layer's bias can be added by its product."""
        if bias is None or x.dtype not in BIASED or not (x.size and bias.size) or bias.strides != (1,):
            return False
        return x.can_reshape((x.size // weight.shape[1], weight.shape[1]))

    def preparing(self) -> dict[str, Preparing]:
        """By the op's name, what makes a call of given layouts ready."""
        return {
            "matmul": self._prepare_matmul,
            "linear": partial(self._prepare_linear, BIAS),
            "linear_relu": partial(self._prepare_linear, RELU_BIAS),
        }

    def _prepare_matmul(self, views: Sequence[View | None], options: Mapping[str, Any]) -> Callable[..., Any] | None:
        a, b = (v for v in views if v is not None)
        if options["alpha"] != 1 or options["beta"] or a.dtype not in DATA or not (a.size and b.size):
            return None
        batch = broadcast_shapes("matmul", a.shape[:-2], b.shape[:-2])
        out, backend = Layout.of(a.dtype, (*batch, a.shape[-2], b.shape[-1])), self._backend
        run, allocate, item = self.ready(out, a.layout, b.layout, 0), backend.allocate, a.dtype.itemsize

        def matmul(a: View, b: View) -> View:
            fresh = allocate(out)
            if not run(fresh.buffer.handle, a.buffer.handle + a.offset * item, b.buffer.handle + b.offset * item):
                self.gemm(fresh, a, b, alpha=1.0, beta=0.0)
            return fresh

        return matmul

    def _prepare_linear(self, epilogue: int, views: Sequence[View | None], options: Mapping[str, Any]) -> Callable[..., Any] | None:  # fmt: skip
        x, weight, bias = views
        assert x is not None
        assert weight is not None
        if not self.takes(x, weight, bias):
            return None
        rows = (x.size // weight.shape[1], weight.shape[1])
        first, second = x.reshape(rows).layout, weight.permute((1, 0)).layout
        result, item = Layout.of(x.dtype, (*x.shape[:-1], weight.shape[0])), x.dtype.itemsize
        run = self.ready(Layout.of(x.dtype, (rows[0], weight.shape[0])), first, second, epilogue)
        allocate = self._backend.allocate

        def linear(x: View, weight: View, bias: View) -> View:
            fresh = allocate(result)
            if run(fresh.buffer.handle, x.buffer.handle + x.offset * item, weight.buffer.handle + weight.offset * item,
                   bias.buffer.handle + bias.offset * item):  # fmt: skip
                return fresh
            return self.linear(x, weight, bias, epilogue)  # type: ignore[no-any-return]  # a View, for it was taken

        return linear

    def ready(self, out: Layout, a: Layout, b: Layout, epilogue: int) -> Callable[..., bool]:
        """A product of alpha 1 and beta 0 made ready: a function of addresses (out, a, b, the epilogue's vector and mask).

        False where there is no plan of one call yet.
        """
        backend, dtype = self._backend, out.dtype
        queue, enter, leave = backend.queue, backend.context.enter, backend.context.leave
        known = self._known[dtype is float64]
        zero, one, lock = known[0.0], known[1.0], self._lock

        def run(out_at: int, a_at: int, b_at: int, vector: int = 0, mask: int = 0) -> bool:
            low = out_at | a_at | b_at | vector | ALIGNED
            plan = self._plans.get((out, a, b, low & -low, _compute(dtype), epilogue))
            if type(plan) is not Plan or len(plan.calls) > 1 or queue.refusal is not None or queue.recorders:
                return False
            product, _, first, second = plan.calls[0]
            if plan.turned:
                a_at, b_at = b_at, a_at
            library: Any = self._library
            calls = library.calls
            before = enter()
            try:
                with lock:  # another thread's vector must not come between
                    if epilogue:
                        library.point(product, vector, mask)
                    calls.matmul(library.handle, product.description, one, b_at + second, product.first, a_at + first, product.second,
                                 zero, out_at, product.out, out_at, product.out, product.algorithm, library.workspace, WORKSPACE,
                                 queue.pointer)  # fmt: skip
            except calls.cuBLASLtError as error:
                raise library.meaning(error) from error
            finally:
                leave(before)
            return True

        return run

    def _copied(
        self, copies: Copies, out: View, a: View, b: View, alpha: float, beta: float, epilogue: int, bias: View | None
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
                view = dense_matrices(backend, view.expand((*batch, *view.shape[-2:])) if copies.widen else view)
            operands.append(view)
        self.gemm(target, *operands, alpha=alpha, beta=beta, epilogue=epilogue, bias=bias)
        if target is not out:
            backend.copy(out, target)

    def _planned(
        self, key: tuple[Layout, Layout, Layout, int, int, int], out: View, a: View, b: View, bias: int, mask: int = 0
    ) -> Plan | Copies:
        with self._lock:
            if len(self._plans) > PLAN_LIMIT:
                self._plans = {}
        library = self.loaded()
        with self._lock:
            plan = self._plan(library, out, a, b, key[3], key[4], key[5], bias, mask)
        if (
            type(plan) is Plan
        ):  # outside the lock: a search launches, and another may wait for this lock with the tuner's
            for product in {id(call[0]): call[0] for call in plan.calls}.values():
                choose(self._backend, library, product)
        self._plans[key] = plan
        return plan

    def _plan(
        self,
        library: CublasLt,
        out: View,
        a: View,
        b: View,
        alignment: int,
        compute: int,
        epilogue: int,
        bias: int,
        mask: int,
    ) -> Plan | Copies:
        batch = out.shape[:-2]
        a_wide, b_wide = (x.expand((*batch, *x.shape[-2:])) for x in (a, b))
        target = matrix(out.shape, out.strides)
        first, second = matrix(a.shape, a.strides), matrix(b.shape, b.strides)
        sizes, strides = collapse(batch, [v.strides[:-2] for v in (out, a_wide, b_wide)])
        back = [any(step < 0 for step in s) for s in strides]
        if target is None or first is None or second is None or any(back):
            return Copies(target is None or back[0], first is None or back[1], second is None or back[2], widen=False)
        outer = list(outer_moves(sizes[:-1], [s[:-1] for s in strides]))
        if len(outer) > OUTER:  # then one operand at least is not in steps, and once its copy is, this is one call
            return Copies(not in_steps(out), not in_steps(a_wide), not in_steps(b_wide), widen=True)
        (m, n), k = out.shape[-2:], a.shape[-1]
        steps = [s[-1] if s else 0 for s in strides]
        turned = target.flag == TRANSPOSED
        if turned:  # out's columns are dense: out^T = b^T @ a^T has dense rows
            if epilogue:
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
                problem = Problem(out.dtype, compute, (m, n, k), first, second, target.line, number,
                                  (steps[0], steps[1], steps[2]), low & -low, epilogue)  # fmt: skip
                products[number] = library.product(problem, bias, mask, candidates(self._backend, problem))
            for moved in outer:
                places = [(at + begin * step) * item for at, step in zip(moved, steps, strict=True)]
                calls.append((products[number], places[0], places[1], places[2]))
        return Plan(turned, tuple(calls))


def _compute(dtype: DType) -> int:
    if dtype is float64:
        return COMPUTE_64
    return COMPUTE_TF32 if dtype is float32 and get_float32_matmul_precision() == "high" else COMPUTE_32
