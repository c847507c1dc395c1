"""Matrix products: operands brought into a form that the kernels take, and the launches of a plan."""

from __future__ import annotations

import struct
from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any

from ...dtypes import DType, float32, int32
from ...rows.elementwise import TABLE
from ...view import Layout, View
from ..shared.scratch import ViewTrial, drawn
from ..shared.tuning import Key, Trial, octave
from .launch import place
from .product_plan import Matrix, Plan, Planner, Problem
from .tiles import Choice, Room

if TYPE_CHECKING:
    from .backend import VulkanBackend

MOST = 65535 * 16  # rows and columns of one launch, by the narrowest tile
ALIGNED = 31  # the bits of an address that decide how it can be read: four elements of eight bytes
SEARCHED = 1 << 27  # multiplications from which a search is worth its second
CANDIDATES = 5
ROUNDING = {
    "float16": 2.0**-10,
    "bfloat16": 2.0**-7,
}  # two roundings of a result, whose sums may differ in float32's last bits
PADDED = 1 << 28  # multiplications from which copies to whole tiles for matrix units are worth their time
WHOLE = (128, 128, 64)  # m, n and k that most of those tiles divide
SCRATCH = 1 << 26  # elements of a search's operands, if one product has fewer
PLAN_LIMIT = 10_000  # a program with ever new shapes must not grow for ever


Way = Callable[[View, View, View], None]  # of out, a and b


class Products:
    """gemm of one backend. What a call of given layouts launches is worked out once."""

    def __init__(self, backend: VulkanBackend) -> None:
        self.backend, self.device, self.commands = backend, backend.device, backend.commands
        limits = backend.device.properties.limits
        room = Room(backend.device.kind, limits.maxComputeWorkGroupInvocations, limits.maxComputeSharedMemorySize)
        self.planner = Planner(backend.pipelines, room, backend.device.features.matrix_elements)
        self.tuner = backend.tuner
        self._ways: dict[tuple[Any, ...], Plan | Way] = {}

    def gemm(self, out: View, a: View, b: View, alpha: float, beta: float) -> None:
        """out = alpha * a @ b + beta * out."""
        to, left, right = place(out), place(a), place(b)
        low = (to[0] & ALIGNED, left[0] & ALIGNED, right[0] & ALIGNED)
        key = (out.layout, a.layout, b.layout, alpha, beta, low)
        way = self._ways.get(key)
        if way is None:
            if len(self._ways) > PLAN_LIMIT:
                self._ways.clear()
            way = self._ways[key] = self._way(out, a, b, low, alpha, beta)
        if isinstance(way, Plan):
            self.launch(way, out, a, b)
        else:
            way(out, a, b)

    def launch(self, plan: Plan, out: View, a: View, b: View) -> None:
        """Enqueue a plan that was made for these layouts and alignments."""
        to, left, right = place(out), place(a), place(b)
        reads = [left[1], right[1], to[1]] if plan.reads_out else [left[1], right[1]]
        target = to
        if plan.partial is not None:
            target = place(self.backend.allocate(plan.partial))
        if plan.swapped:
            left, right = right, left
        for step in plan.steps:
            moved_to, moved_a, moved_b = step.moved
            data = struct.pack("<QQQ", left[0] + moved_a, right[0] + moved_b, target[0] + moved_to) + step.data
            self.commands.dispatch(step.pipeline, data, step.groups, reads, [target[1]])
        for step in plan.joins:
            moved_to, moved, _ = step.moved
            data = struct.pack("<QQ", target[0] + moved, to[0] + moved_to) + step.data
            self.commands.dispatch(step.pipeline, data, step.groups, [target[1], to[1]], [to[1]])

    def _way(self, out: View, a: View, b: View, low: tuple[int, int, int], alpha: float, beta: float) -> Plan | Way:
        """The plan of a product that the kernels take as it is; else what does it by other means."""
        if not out.size:
            return _nothing
        if alpha == 0 or not a.shape[-1]:  # nothing is read: NaN in a does not matter, as in BLAS
            return lambda out, a, b: self._scale(out, beta)
        m, n = out.shape[-2:]
        if max(m, n) > MOST:
            return lambda out, a, b: self._cut(out, a, b, alpha, beta)
        if not out.dtype.is_floating and out.dtype.itemsize < 4:
            return lambda out, a, b: self._apart(out, a, b, alpha, beta, int32)
        if a.shape[-1] > 2 * self.device.most_turns:  # a turn takes four terms at least
            return lambda out, a, b: self._in_turns(out, a, b, alpha, beta)
        lead = out.shape[:-2]
        to, left, right = (Matrix.of(x, lead) for x in (out, a, b))
        problem = Problem(out.dtype, lead, to, left, right, low, alpha, beta)
        if min(m, n) == 1:
            straight = problem if n == 1 else problem.turned
            if straight.a.is_plain:
                return self.planner.vector(straight)
        if not to.is_plain:
            return lambda out, a, b: self._apart(out, a, b, alpha, beta, out.dtype)
        if not (left.is_plain and right.is_plain):
            plain = left.is_plain, right.is_plain
            return lambda out, a, b: self.gemm(
                out, a if plain[0] else self._dense(a), b if plain[1] else self._dense(b), alpha, beta
            )
        problem = problem if to.lies_along_columns else problem.turned
        if self._wants_padding(problem):
            return lambda out, a, b: self._pad(out, a, b, alpha)
        return self.planner.tiled(problem, self._choose(problem))

    def _choose(self, problem: Problem) -> Choice:
        """The tile for this class of problems: the table's, or what a search found quickest among those that give equal bits."""
        found = self.planner.choices(problem)
        alike = [choice for choice in found if choice.order == found[0].order or choice.by_units][:CANDIDATES]
        if problem.work < SEARCHED or len(alike) == 1:
            return found[0]
        m, n, k, batch = problem.sizes
        shape = f"{problem.sides} {-(-m // 64)}x{-(-n // 64)} tiles of 64, {octave(k)} terms, {octave(batch)} times"
        shape += ", vectors" if self.planner.reads_fours(problem) else ", elements"
        named = {choice.name: choice for choice in alike}
        return self.tuner.choose(Key("gemm", shape, problem.dtype.name), named, lambda: self._trial(problem))

    def _trial(self, problem: Problem) -> Trial[Choice]:
        """A product of the same sizes over scratch operands that lie as the problem's do."""
        (m, n, k, batch), dtype, backend = problem.sizes, problem.dtype, self.backend
        lead = (max(1, min(batch, SCRATCH // (m * k + k * n + m * n))),)
        turns = [(0, 2, 1) if side == "t" else (0, 1, 2) for side in problem.sides]
        sizes = ((m, k) if turns[0][1] == 1 else (k, m)), ((k, n) if turns[1][1] == 1 else (n, k))
        a, b = (
            drawn(backend, dtype, lead + size, seed).permute(turn)
            for seed, (size, turn) in enumerate(zip(sizes, turns, strict=True))
        )
        out = backend.allocate(Layout.of(dtype, (*lead, m, n)))
        alone = Problem(dtype, lead, Matrix.of(out, lead), Matrix.of(a, lead), Matrix.of(b, lead), (0, 0, 0), 1.0, 0.0)
        plans: dict[Choice, Plan] = {}

        def run(choice: Choice) -> None:
            if choice not in plans:
                plans[choice] = self.planner.tiled(alone, choice)
            self.launch(plans[choice], out, a, b)

        tolerance = ROUNDING[dtype.name] if problem.dtype.name in self.planner.elements else 0.0
        return ViewTrial(backend, out, run, backend.peek, tolerance=tolerance)

    def _scale(self, out: View, beta: float) -> None:
        if beta == 0:
            self.backend.elementwise(TABLE["fill"], out, (), (0,))
        elif beta != 1:
            factor = beta if out.dtype.is_floating else int(beta)
            self.backend.elementwise(TABLE["scale"], out, (out,), (factor,))

    def _cut(self, out: View, a: View, b: View, alpha: float, beta: float) -> None:
        """More rows or columns than one launch takes."""
        m, n = out.shape[-2:]
        whole = slice(None)
        for i in range(0, m, MOST):
            for j in range(0, n, MOST):
                rows, columns = slice(i, i + MOST), slice(j, j + MOST)
                self.gemm(_part(out, rows, columns), _part(a, rows, whole), _part(b, whole, columns), alpha, beta)

    def _in_turns(self, out: View, a: View, b: View, alpha: float, beta: float) -> None:
        """More terms than the loop of one launch adds, in float32 or wider."""
        if out.dtype.itemsize == 2:
            self._apart(out, a, b, alpha, beta, float32)
            return
        few, whole = 2 * self.device.most_turns, slice(None)
        for k in range(0, a.shape[-1], few):
            terms = slice(k, k + few)
            self.gemm(out, _part(a, whole, terms), _part(b, terms, whole), alpha, 1.0 if k else beta)

    def _apart(self, out: View, a: View, b: View, alpha: float, beta: float, dtype: DType) -> None:
        """Through arrays of another dtype or of unit stride."""
        backend, made = self.backend, []
        for view, read in ((out, beta != 0), (a, True), (b, True)):
            if view is not out and view.dtype is dtype:
                made.append(view)
                continue
            fresh = backend.allocate(Layout.of(dtype, view.shape))
            if read:
                backend.copy(fresh, view)
            made.append(fresh)
        self.gemm(made[0], made[1], made[2], alpha, beta)
        backend.copy(out, made[0])

    def _wants_padding(self, problem: Problem) -> bool:
        """Whether matrix units could do a product if it were a little larger."""
        if (
            problem.dtype.name not in self.planner.elements
            or problem.work < PADDED
            or problem.beta != 0
            or not self.tuner.searches
        ):
            return False
        larger = (
            prod(-(-n // whole) * whole for n, whole in zip(problem.sizes, WHOLE, strict=False)) * problem.sizes[-1]
        )
        return larger <= 1.25 * problem.work and not self.planner.choices(problem)[-1].by_units

    def _pad(self, out: View, a: View, b: View, alpha: float) -> None:
        """Through arrays of whole tiles; terms past k are zero, rows and columns past m and n are never looked at."""
        (m, n), k = out.shape[-2:], a.shape[-1]
        high, wide, deep = (-(-size // whole) * whole for size, whole in zip((m, n, k), WHOLE, strict=True))
        made = []
        for view, rows, columns in ((out, high, wide), (a, high, deep), (b, deep, wide)):
            fresh = self.backend.allocate(Layout.of(view.dtype, (*view.shape[:-2], rows, columns)))
            if deep > k and view is not out:
                self.backend.elementwise(TABLE["fill"], fresh, (), (0,))
            if view is not out:
                self.backend.copy(_part(fresh, slice(view.shape[-2]), slice(view.shape[-1])), view)
            made.append(fresh)
        self.gemm(made[0], made[1], made[2], alpha, 0.0)
        self.backend.copy(out, _part(made[0], slice(m), slice(n)))

    def _dense(self, x: View) -> View:
        fresh = self.backend.allocate(Layout.of(x.dtype, x.shape))
        self.backend.copy(fresh, x)
        return fresh


def _nothing(out: View, a: View, b: View) -> None:
    """The product of no elements."""


def _part(x: View, rows: slice, columns: slice) -> View:
    return x.slice(*(slice(None),) * (x.ndim - 2), rows, columns)
