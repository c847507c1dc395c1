"""Which plan of cuDNN a convolution takes: one of its own graph's, or for an image's gradient one of the convolution's that it is.

The gradient of the images of a convolution without strides is a convolution itself: of the gradient, with the weight whose
taps are turned around and whose two kinds of channels change places. cuDNN's plans for convolutions are quicker than those
for gradients: 943 us and 1622 for 512 x 64 x 32 x 32 in strict float32 on an H200 (docs/adr/0061).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ...dtypes import bfloat16, float16, float32
from ...errors import UnsupportedError
from ...rows.elementwise import TABLE as ROWS
from ...view import Layout, Shape, View
from ..shared.scratch import drawn
from ..shared.tuning import Key
from . import pointwise
from .cudnn import Graph, Problem

if TYPE_CHECKING:
    from .backend import CUDABackend

log = logging.getLogger("vsl_compute.cudnn")
Order = tuple[int, int, int, int]
LAST = (0, 2, 3, 1)  # channels last: the order in memory of axes (N, C, H, W)
FIRST = (0, 1, 2, 3)
SEARCHED = 5e7  # multiply-adds from which a search is worth its second
SAMPLE = 1 << 16  # elements of each part of a result that a search compares
SHORT = 1 << 14  # terms of a sum up to which these hold; beyond, they grow with the root of its length
TOLERANCE = {float32: 1e-4, float16: 4e-3, bfloat16: 4e-2}  # of the largest value
TF32 = 5e-3


def strides_in(shape: Shape, order: Order) -> tuple[int, ...]:
    """Dense strides whose axes are nested in memory as `order` says."""
    strides, step = [0] * len(shape), 1
    for axis in reversed(order):
        strides[axis] = step
        step *= shape[axis]
    return tuple(strides)


@dataclass(frozen=True)
class Plan:
    """A graph's plan; `turned` says that it takes the weight turned. Without a graph, a copy and a product (pointwise.py)."""

    graph: Graph | None
    index: int = 0
    turned: bool = False


def turned_problem(problem: Problem, order: Order) -> Problem | None:
    """The convolution that an image's gradient is; None where it is none."""
    shape, taps = problem.weight[0], problem.weight[0][2:]
    first, second = (d * (n - 1) - p for d, n, p in zip(problem.dilation, taps, problem.padding, strict=True))
    grouped = problem.x[0][1] != shape[1]
    if problem.op != "input" or problem.stride != (1, 1) or grouped or min(first, second) < 0:
        return None
    swapped = (shape[1], shape[0], *taps)
    weight = swapped, strides_in(swapped, order)
    return replace(problem, op="forward", x=problem.y, weight=weight, y=problem.x, padding=(first, second))


def turned(backend: CUDABackend, weight: View, order: Order) -> View:
    """A copy with taps turned around and channels swapped, which lies in this order."""
    view = weight.permute((1, 0, 2, 3)).slice(slice(None), slice(None), slice(None, None, -1), slice(None, None, -1))
    fresh = backend.allocate(Layout.of(view.dtype, view.shape, strides_in(view.shape, order)))
    backend.copy(fresh, view)
    return fresh


class _Trial:
    """Operands of the problem's own shapes, compared by samples of the result."""

    host_share: float | None = 0.03

    def __init__(self, backend: CUDABackend, problem: Problem, order: Order) -> None:
        layouts = {"forward": (problem.x, problem.weight, problem.y), "input": (problem.y, problem.weight, problem.x),
                   "weight": (problem.y, problem.x, problem.weight)}[problem.op]  # fmt: skip
        self._backend, self._problem, self._order = backend, problem, order
        self._first, self._second, self._out = (
            View(drawn(backend, problem.dtype, (prod(shape),), seed).buffer, Layout.of(problem.dtype, shape, strides))
            for seed, (shape, strides) in enumerate(layouts)
        )
        self._made = self._out
        least = TOLERANCE[problem.dtype] if problem.strict or problem.dtype is not float32 else TF32
        self.tolerance = least * max(1.0, (problem.terms / SHORT) ** 0.5)  # roundings of a sum walk at random

    def clear(self) -> None:
        self._backend.elementwise(ROWS["fill"], self._out, (), (float("nan"),))

    def launch(self, candidate: Plan) -> None:
        if candidate.graph is None:
            self._made = pointwise.RUN[self._problem.op](self._backend, self._first, self._second, self._problem)
            return
        self._made = self._out
        second = turned(self._backend, self._second, self._order) if candidate.turned else self._second
        candidate.graph.run(candidate.index, *(int(view.buffer.handle) for view in (self._first, second, self._out)))

    def result(self) -> np.ndarray[Any, Any]:
        if self._made is not self._out:
            self._backend.copy(self._out, self._made)
        flat = View(self._out.buffer, Layout.of(self._out.dtype, (self._out.size,)))
        starts = sorted({0, max(0, flat.size // 2 - SAMPLE), max(0, flat.size - SAMPLE)})
        return np.concatenate([self._backend.peek(flat.slice(slice(s, s + SAMPLE))) for s in starts])


def choose(
    backend: CUDABackend, problem: Problem, order: Order, graph_of: Callable[[Problem], Graph | None]
) -> Plan | None:
    """The heuristics' first plan that can be built, or the quickest by a search; None where the library has none."""
    searches = backend.tuner.searches and prod(problem.y[0]) * prod(problem.weight[0][1:]) >= SEARCHED
    candidates = {"a copy and a product": Plan(None)} if pointwise.takes(problem) else {}
    if candidates and not searches:
        return Plan(None)
    graph = graph_of(problem)
    names = [] if graph is None else list(graph.names)
    while graph is not None and names and not graph.builds(graph.names[names[0]]):
        del names[0]
    candidates |= {name: Plan(graph, graph.names[name]) for name in names if graph is not None}
    if not candidates:
        return None
    if not searches:
        return _selected(candidates[names[0]])
    other = turned_problem(problem, order)
    found = None if other is None else graph_of(other)
    if found is not None:
        candidates = _in_turns(candidates, {f"turned {n}": Plan(found, k, True) for n, k in found.names.items()})
    precision = "strict" if problem.strict else "tensor cores"
    key = Key("cudnn", problem.words(), f"{problem.dtype.name} {precision}{' deterministic' * problem.deterministic}")
    chosen = backend.tuner.choose(key, candidates, lambda: _Trial(backend, problem, order))
    try:
        return _selected(chosen)
    except UnsupportedError as error:  # kept on disk by a process with another cuDNN or more memory
        log.warning("%s: a plan that was the quickest is left out: %s", problem.words(), error)
        return _selected(next(iter(candidates.values())))


def _in_turns(first: dict[str, Plan], second: dict[str, Plan]) -> dict[str, Plan]:
    """Both lists, an entry of each in turn, for a search stops after a second."""
    lists, found = [list(first.items()), list(second.items())], dict[str, Plan]()
    for place in range(max(map(len, lists))):
        found.update(entry for entries in lists for entry in entries[place : place + 1])
    return found


def _selected(plan: Plan) -> Plan:
    if plan.graph is not None:
        plan.graph.select(plan.index)
    return plan
