"""conv2d, conv2d_input and conv2d_weight by cuDNN: the layout, the plan for each shape, and what is left to the body.

Strict float32 keeps the order of axes that the images have; on tensor cores (float16, bfloat16, TF32) channels go last, as
those want them. The plan is the heuristics' first, or the quickest of all by a search on first use (docs/tuning.md).
float64 is left to the body: unrolled windows and cuBLAS took 0.3 ms where cuDNN's plans took 0.5 to 4.3.
"""

from __future__ import annotations

import threading
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ...dtypes import DType, bfloat16, float16, float32
from ...ops.convolution import output_size
from ...precision import get_float32_matmul_precision
from ...rows.elementwise import TABLE as ROWS
from ...view import Layout, Shape, View
from ..shared.scratch import drawn
from ..shared.tuning import Key
from .cudnn import ALIGNED, TYPES, Cudnn, Graph, Problem

if TYPE_CHECKING:
    from .backend import CUDABackend

LAST = (0, 2, 3, 1)  # channels last: the order in memory of axes (N, C, H, W)
FIRST = (0, 1, 2, 3)
SEARCHED = 5e7  # multiply-adds from which a search is worth its second
SAMPLE = 1 << 16  # elements of each part of a result that a search compares
TOLERANCE = {float32: 1e-4, float16: 4e-3, bfloat16: 4e-2}  # of the largest value
TF32 = 5e-3

Order = tuple[int, int, int, int]
Pair = tuple[int, int]


def strides_in(shape: Shape, order: Order) -> tuple[int, ...]:
    """Dense strides whose axes are nested in memory as `order` says."""
    strides, step = [0] * len(shape), 1
    for axis in reversed(order):
        strides[axis] = step
        step *= shape[axis]
    return tuple(strides)


def order_of(view: View) -> Order | None:
    """The order that a view's elements lie in, without gaps; None for another."""
    if view.layout.c_order:
        return FIRST
    return LAST if view.permute(LAST).layout.c_order else None


class _Trial:
    """Operands of the problem's own shapes, compared by samples of the result."""

    def __init__(self, backend: CUDABackend, graph: Graph, problem: Problem) -> None:
        layouts = {"forward": (problem.x, problem.weight, problem.y), "input": (problem.y, problem.weight, problem.x),
                   "weight": (problem.y, problem.x, problem.weight)}[problem.op]  # fmt: skip
        self._backend, self._graph = backend, graph
        self._views = [drawn(backend, problem.dtype, (prod(shape),), seed) for seed, (shape, _) in enumerate(layouts)]
        self.tolerance = TOLERANCE[problem.dtype] if problem.strict or problem.dtype is not float32 else TF32

    def clear(self) -> None:
        self._backend.elementwise(ROWS["fill"], self._views[2], (), (float("nan"),))

    def launch(self, candidate: int) -> None:
        self._graph.run(candidate, *(int(view.buffer.handle) for view in self._views))

    def result(self) -> np.ndarray[Any, Any]:
        out = self._views[2]
        starts = sorted({0, max(0, out.size // 2 - SAMPLE), max(0, out.size - SAMPLE)})
        return np.concatenate([self._backend.peek(out.slice(slice(s, s + SAMPLE))) for s in starts])


class Convolutions:
    """The convolutions of one device."""

    def __init__(self, backend: CUDABackend) -> None:
        self._backend = backend
        self._plans: dict[Problem, tuple[Graph, int] | None] = {}
        self._library: Cudnn | None = None
        self._lock = threading.RLock()

    def close(self) -> None:
        """Give the library's handle back, if it was loaded."""
        if self._library is not None:
            self._plans.clear()
            self._library.close()
            self._library = None

    def conv2d(
        self, x: View, weight: View, bias: View | None, *, stride: Pair, padding: Pair, dilation: Pair, groups: int
    ) -> Any:
        """See ops.convolution."""
        size = [output_size(x.shape[2 + i], weight.shape[2 + i], stride[i], padding[i], dilation[i]) for i in (0, 1)]
        shape = (x.shape[0], weight.shape[0], *size)
        order = self._order(x)
        y = self._run("forward", order, x.dtype, (x, weight), x.shape, weight.shape, shape, (stride, padding, dilation))
        if y is not NotImplemented and bias is not None:
            self._backend.elementwise(ROWS["add"], y, (y, bias.reshape((1, -1, 1, 1))), ())
        return y

    def conv2d_input(
        self, g: View, weight: View, *, shape: Shape, stride: Pair, padding: Pair, dilation: Pair, groups: int
    ) -> Any:
        """See ops.convolution."""
        return self._run(
            "input", self._order(g), g.dtype, (g, weight), shape, weight.shape, g.shape, (stride, padding, dilation)
        )

    def conv2d_weight(
        self, g: View, x: View, *, shape: Shape, stride: Pair, padding: Pair, dilation: Pair, groups: int
    ) -> Any:
        """See ops.convolution. The result has the weight's own order, C, whatever that of the images is."""
        out = self._run("weight", self._order(x), g.dtype, (g, x), x.shape, shape, g.shape, (stride, padding, dilation))
        return out if out is NotImplemented else self._backend.dense(out)

    def _order(self, images: View) -> Order:
        if self._strict(images.dtype):
            return order_of(images) or FIRST
        return LAST

    @staticmethod
    def _strict(dtype: DType) -> bool:
        return dtype is float32 and get_float32_matmul_precision() == "highest"

    def _run(self, op: str, order: Order, dtype: DType, args: tuple[View, View], x: Shape, weight: Shape, y: Shape,
             window: tuple[Pair, Pair, Pair]) -> Any:  # fmt: skip
        if dtype not in TYPES or not (prod(x) and prod(weight) and prod(y)):
            return NotImplemented
        images, filters, results = ((shape, strides_in(shape, order)) for shape in (x, weight, y))
        problem = Problem(op, dtype, self._strict(dtype), images, filters, results, *window)
        plan = self._plans[problem] if problem in self._plans else self._planned(problem)
        if plan is None:
            return NotImplemented
        graph, index = plan
        first, second = (self._placed(view, order) for view in args)
        shape = {"forward": y, "input": x, "weight": weight}[op]
        out = self._backend.allocate(Layout.of(dtype, shape, strides_in(shape, order)))
        item = dtype.itemsize
        graph.run(index, *(view.buffer.handle + view.offset * item for view in (first, second, out)))
        return out

    def _placed(self, view: View, order: Order) -> View:
        """The view itself if it lies in this order without gaps and aligned, else a copy that does."""
        lies = view.layout.c_order if order == FIRST else view.permute(order).layout.c_order
        if lies and not (view.buffer.handle + view.offset * view.dtype.itemsize) % ALIGNED:
            return view
        fresh = self._backend.allocate(Layout.of(view.dtype, view.shape, strides_in(view.shape, order)))
        self._backend.copy(fresh, view)
        return fresh

    def _planned(self, problem: Problem) -> tuple[Graph, int] | None:
        with self._lock:
            if problem not in self._plans:
                self._plans[problem] = self._plan(problem)
            return self._plans[problem]

    def _plan(self, problem: Problem) -> tuple[Graph, int] | None:
        if self._library is None:
            self._library = Cudnn(self._backend)
        graph = self._library.graph(problem)
        if graph is None:
            return None
        names = list(graph.names)
        safe = next((name for name in names if graph.builds(graph.names[name])), None)
        if safe is None:
            return None
        if prod(problem.y[0]) * prod(problem.weight[0][1:]) < SEARCHED:
            return self._selected(graph, graph.names[safe])
        candidates = {name: graph.names[name] for name in names[names.index(safe) :]}
        precision = "strict" if problem.strict else "tensor cores"
        key = Key("cudnn", problem.words(), f"{problem.dtype.name} {precision}")
        chosen = self._backend.tuner.choose(key, candidates, lambda: _Trial(self._backend, graph, problem))
        return self._selected(graph, chosen)

    @staticmethod
    def _selected(graph: Graph, index: int) -> tuple[Graph, int]:
        graph.select(index)
        return graph, index
