"""conv2d, conv2d_input and conv2d_weight by cuDNN: the layout, the plan for each shape, and what is left to the body.

Strict float32 keeps the order of axes that the images have; on tensor cores (float16, bfloat16, TF32) channels go last, as
those want them. The plan is the heuristics' first, or the quickest of all by a search on first use (docs/tuning.md).
float64 is left to the body: unrolled windows and cuBLAS took 0.3 ms where cuDNN's plans took 0.5 to 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

from ... import locks
from ...determinism import are_deterministic_algorithms_enabled as deterministic
from ...dtypes import DType, float32
from ...ops.convolution import POOLED, output_size, pool_options, result_shape, window_options
from ...ops.pooling import padded_shape
from ...precision import get_float32_matmul_precision
from ...rows.elementwise import TABLE as ROWS
from ...rows.row import row
from ...view import Layout, View
from ..shared.fused import Preparing
from ..shared.pooling import prepare_max_pool
from . import pointwise
from .cudnn import ALIGNED, TYPES, Cudnn, Problem
from .plans import FIRST, LAST, Order, Plan, choose, strides_in, turned

if TYPE_CHECKING:
    from .backend import CUDABackend

OPS = {"conv2d": "forward", "conv2d_relu": "forward", "conv2d_input": "input", "conv2d_weight": "weight"}
SUM = "a + b"
BIAS_RELU = row("bias_relu", "nn>n", f"where({SUM} > 0, {SUM}, where({SUM} != {SUM}, {SUM}, 0))")  # a relu of the sum


def order_of(view: View) -> Order | None:
    """The order that a view's elements lie in, without gaps; None for another."""
    if view.layout.c_order:
        return FIRST
    return LAST if view.permute(LAST).layout.c_order else None


def _lies(view: View, order: Order) -> bool:
    """Whether the elements lie in this order without gaps."""
    return view.layout.c_order if order == FIRST else view.permute(order).layout.c_order


def _fits(x: View | None, weight: View | None, options: Mapping[str, Any]) -> bool:
    """Whether the windows that are pooled lie within what is convolved to, and there is something."""
    assert x is not None
    assert weight is not None
    shape = result_shape(x.shape, weight.shape, dict(options))
    return 0 not in shape and padded_shape(shape, pool_options(dict(options))) == shape


@dataclass(frozen=True)
class Case:
    """A convolution as cuDNN runs it."""

    problem: Problem
    order: Order
    plan: Plan

    @property
    def out(self) -> Layout:
        """The result's layout."""
        problem = self.problem
        shape, strides = {"forward": problem.y, "input": problem.x, "weight": problem.weight}[problem.op]
        return Layout.of(problem.dtype, shape, strides)


class Convolutions:
    """The convolutions of one device."""

    def __init__(self, backend: CUDABackend) -> None:
        self._backend = backend
        self._plans: dict[Problem, Plan | None] = {}
        self._library: Cudnn | None = None
        self._lock = locks.reentrant()

    def close(self) -> None:
        """Give the library's handle back, if it was loaded."""
        if self._library is not None:
            self._plans.clear()
            self._library.close()
            self._library = None

    def overrides(self) -> dict[str, Callable[..., Any]]:
        """By the op's name: see ops.convolution. A weight's gradient lies as the images do."""
        return {op: partial(self._run, op) for op in OPS} | {POOLED: self._pooled}

    def preparing(self) -> dict[str, Preparing]:
        """By the op's name, what makes a call of given layouts ready."""
        return {op: partial(self._prepare, op) for op in OPS} | {POOLED: self._prepare_pooled}

    def _case(self, op: str, views: Sequence[View | None], options: Mapping[str, Any]) -> Case | None:
        """What cuDNN is asked for; None for what is left to the body."""
        first, second = views[:2]
        assert first is not None
        assert second is not None
        stride, padding, dilation = options["stride"], options["padding"], options["dilation"]
        if op == "conv2d_input":
            images, x, weight, y = first, tuple(options["shape"]), second.shape, first.shape
        elif op == "conv2d_weight":
            images, x, weight, y = second, second.shape, tuple(options["shape"]), first.shape
        else:
            images, x, weight = first, first.shape, second.shape
            size = [output_size(x[2 + i], weight[2 + i], stride[i], padding[i], dilation[i]) for i in (0, 1)]
            y = (x[0], weight[0], *size)
        dtype, order = first.dtype, self._order(images)
        if dtype not in TYPES or not (prod(x) and prod(weight) and prod(y)):
            return None
        given, filters, results = ((shape, strides_in(shape, order)) for shape in (x, weight, y))
        strict, window = self._strict(dtype), (stride, padding, dilation)
        problem = Problem(OPS[op], dtype, strict, given, filters, results, *window, deterministic())
        plan = self._plans[problem] if problem in self._plans else self._planned(problem, order)
        return None if plan is None else Case(problem, order, plan)

    def _run(self, op: str, first: View, second: View, bias: View | None = None, **options: Any) -> Any:
        case = self._case(op, (first, second), options)
        if case is None:
            return NotImplemented
        if case.plan.graph is None:
            return pointwise.RUN[case.problem.op](self._backend, first, second, case.problem)
        weight = turned(self._backend, second, case.order) if case.plan.turned else self._placed(second, case.order)
        args = [self._placed(first, case.order), weight]
        out = self._backend.allocate(case.out)
        item = out.dtype.itemsize
        case.plan.graph.run(case.plan.index, *(view.buffer.handle + view.offset * item for view in (*args, out)))
        return self._finished(op, out, bias)

    def _finished(self, op: str, out: View, bias: View | None) -> View:
        """What comes after cuDNN."""
        if bias is not None:
            row = BIAS_RELU if op == "conv2d_relu" else ROWS["add"]
            self._backend.elementwise(row, out, (out, bias.reshape((1, -1, 1, 1))), ())
        elif op == "conv2d_relu":
            self._backend.elementwise(ROWS["relu"], out, (out,), ())
        return out

    def _prepare(self, op: str, views: Sequence[View | None], options: Mapping[str, Any]) -> Callable[..., Any] | None:
        case = self._case(op, views, options)
        if case is None:
            return None
        graph = case.plan.graph
        if graph is None:
            return self._prepared_pointwise(case.problem)
        (x, weight), turns = (view for view in views[:2] if view is not None), case.plan.turned
        places = not turns and not _lies(weight, case.order)  # a weight in C order where channels go last
        if not _lies(x, case.order) or (places and op == "conv2d_weight"):
            return None
        problem, order, layout, backend = case.problem, case.order, case.out, self._backend
        run, item, allocate = graph.ready(case.plan.index), problem.dtype.itemsize, backend.allocate
        chosen = problem.strict, problem.deterministic
        plain = op in ("conv2d_input", "conv2d_weight")

        def call(first: View, second: View, bias: View | None = None) -> Any:
            if turns:
                second = turned(backend, second, order)
            elif places:
                second = self._placed(second, order)
            a, b = first.buffer.handle + first.offset * item, second.buffer.handle + second.offset * item
            if (a | b) % ALIGNED or (self._strict(problem.dtype), deterministic()) != chosen:  # the override sees to it
                return NotImplemented
            out = allocate(layout)
            run(a, b, out.buffer.handle)
            return out if plain else self._finished(op, out, bias)

        return call

    def _prepared_pointwise(self, problem: Problem) -> Callable[..., Any]:
        run, backend, chosen = pointwise.RUN[problem.op], self._backend, (problem.strict, problem.deterministic)

        def call(first: View, second: View) -> Any:
            if (self._strict(problem.dtype), deterministic()) != chosen:
                return NotImplemented
            return run(backend, first, second, problem)

        return call

    def _pooled(self, x: View, weight: View, bias: View | None, **options: Any) -> Any:
        """A convolution, a ReLU and max pooling: bias and ReLU come last, over the pooled image."""
        if not _fits(x, weight, options):
            return NotImplemented
        out = self._run("conv2d", x, weight, **window_options(options))
        if out is NotImplemented:
            return NotImplemented
        prepared = prepare_max_pool(self._backend, (out,), pool_options(options))
        assert prepared is not None  # it fits
        largest, places = prepared(out)
        return self._finished("conv2d_relu", largest, bias), places

    def _prepare_pooled(self, views: Sequence[View | None], options: Mapping[str, Any]) -> Callable[..., Any] | None:
        window, pool = window_options(dict(options)), pool_options(dict(options))
        (x, weight), convolved = views[:2], self._prepare("conv2d", views[:2], window)
        if convolved is None or not _fits(x, weight, options):
            return None
        made: list[Callable[[View], tuple[View, View]]] = []  # of what the first call convolves to

        def call(x: View, weight: View, bias: View | None = None) -> Any:
            out = convolved(x, weight)
            if out is NotImplemented:
                return NotImplemented
            if not made:
                found = prepare_max_pool(self._backend, (out,), pool)
                assert found is not None  # it fits
                made.append(found)
            largest, places = made[0](out)
            return self._finished("conv2d_relu", largest, bias), places

        return call

    def _order(self, images: View) -> Order:
        if self._strict(images.dtype):
            return order_of(images) or FIRST
        return LAST

    @staticmethod
    def _strict(dtype: DType) -> bool:
        return dtype is float32 and get_float32_matmul_precision() == "highest"

    def _placed(self, view: View, order: Order) -> View:
        """The view itself if it lies in this order without gaps and aligned, else a copy that does."""
        if _lies(view, order) and not (view.buffer.handle + view.offset * view.dtype.itemsize) % ALIGNED:
            return view
        fresh = self._backend.allocate(Layout.of(view.dtype, view.shape, strides_in(view.shape, order)))
        self._backend.copy(fresh, view)
        return fresh

    def _planned(self, problem: Problem, order: Order) -> Plan | None:
        with self._lock:
            if problem not in self._plans:
                if self._library is None:
                    self._library = Cudnn(self._backend)
                self._plans[problem] = choose(self._backend, problem, order, self._library.graph)
            return self._plans[problem]
