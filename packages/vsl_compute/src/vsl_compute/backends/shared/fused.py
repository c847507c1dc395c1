"""Overrides by fused rows: softmax, layer norm and their gradients as one kernel where a row fits a group's registers.

A row is the op's axis (or its trailing axes). Where it is not the innermost of dense memory, is too long, or nothing is
there to reduce, the override leaves the call to the op's body.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, Protocol

from ...backend import ComputeBackend
from ...dtypes import DType
from ...kernels.fused import Geometry, geometry, render_fused
from ...rows.fused import TABLE, Fused, output_dtypes
from ...rows.kinds import number_dtype
from ...view import Layout, Shape, View
from .axes import dense
from .parameters import BUFFER, LONG, Compiled

PLAN_LIMIT = 20_000
MOST_GROUPS = 1 << 22  # of one launch: kernels stride over the rest, which costs a tenth, so only where it must be
ORDERS: Mapping[str, Callable[[int, Mapping[str, Any]], Shape]] = {
    # which axes of x make a row, from the op's options; the last where there is no such option
    "axis": lambda ndim, options: (options["axis"] % ndim,),
    "normalized_shape": lambda ndim, options: tuple(range(ndim - len(options["normalized_shape"]), ndim)),
}


@dataclass(frozen=True)
class Call:
    """One launch: rows of n elements, stored so by letter, arguments in `absent` left out, in `shared` alike for all rows."""

    row: Fused
    stored: dict[str, DType]
    absent: frozenset[str]
    shared: frozenset[str]
    shape: Geometry
    rows: int
    n: int


@dataclass(frozen=True)
class _Plan:
    """What given layouts need: the outputs' layouts, for each argument the order it is made dense in, numbers, and how axes go back."""

    call: Call
    outs: tuple[Layout, ...]
    dense: tuple[Shape | None, ...]
    scalars: Mapping[str, float]
    back: Shape | None


Preparing = Callable[[Sequence[View | None], Mapping[str, Any]], Callable[..., Any] | None]  # views, options


class Launcher(Protocol):
    """What runs fused rows on one device."""

    def launch(self, call: Call, outs: Sequence[View], args: Sequence[View], scalars: Mapping[str, float]) -> bool:
        """Run one; False where the device cannot."""

    def ready(self, call: Call, layouts: Sequence[Layout], scalars: Mapping[str, float]) -> Callable[..., None] | None:
        """`launch` over arrays of these layouts made ready: a function of handle and offset of each out and argument; or None."""


class FusedRows:
    """The overrides of one device; `group` is a group's threads."""

    def __init__(
        self,
        backend: ComputeBackend,
        launcher: Launcher,
        *,
        group: int,
        vectors: bool = True,
    ) -> None:
        self._backend, self._launcher, self._group, self._vectors = backend, launcher, group, vectors
        self._plans: dict[tuple[Any, ...], _Plan | None] = {}

    def overrides(self) -> dict[str, Callable[..., Any]]:
        """By the op's name."""
        return {name: self._override(row) for name, row in TABLE.items()}

    def _override(self, row: Fused) -> Callable[..., Any]:
        return lambda *views, **options: self._run(row, views, options)

    def preparing(self) -> dict[str, Preparing]:
        """By the op's name, what makes a call of given layouts ready."""
        return {name: partial(self._prepare, row) for name, row in TABLE.items()}

    def _prepare(
        self, row: Fused, views: Sequence[View | None], options: Mapping[str, Any]
    ) -> Callable[..., Any] | None:
        plan = self._planned(row, [v and View(v.buffer, v.layout) for v in views], options)
        if plan is None or plan.back is not None or any(order is not None for order in plan.dense):
            return None
        present = [k for k, v in enumerate(views) if v is not None]
        taken = [v.layout for v in views if v is not None]
        ready = self._launcher.ready(plan.call, (*plan.outs, *taken), plan.scalars)
        if ready is None:
            return None
        allocate, layouts, single = self._backend.allocate, plan.outs, len(plan.outs) == 1
        run, given, missing = self._run, dict(options), len(views)

        def call(*views: View | None) -> Any:
            outs = [allocate(layout) for layout in layouts]
            places: list[Any] = []
            for out in outs:
                places += (out.buffer.handle, 0)
            low = 0
            for k in present:
                view: Any = views[k]
                at = view.offset
                low |= at
                places += (view.buffer.handle, at)
            if low & 3:  # the kernel was made for fours
                return run(row, (*views, *(None,) * (missing - len(views))), given)
            ready(*places)
            return outs[0] if single else tuple(outs)

        return call

    def _run(self, row: Fused, views: Sequence[View | None], options: Mapping[str, Any]) -> Any:
        plan = self._planned(row, views, options)
        if plan is None:
            return NotImplemented
        outs = [self._backend.allocate(layout) for layout in plan.outs]
        args = [
            v if order is None else dense(self._backend, v.permute(order))
            for v, order in zip((v for v in views if v is not None), plan.dense, strict=True)
        ]
        if not self._launcher.launch(plan.call, outs, args, plan.scalars):
            return NotImplemented
        if plan.back is not None:
            outs = [o.permute(plan.back) for o in outs]
        return outs[0] if len(outs) == 1 else tuple(outs)

    def _planned(self, row: Fused, views: Sequence[View | None], options: Mapping[str, Any]) -> _Plan | None:
        """What these layouts need; None where the body is the better or the only way."""
        key = (row, *[v if v is None else (v.layout, v.offset & 3) for v in views], *options.items())
        plans = self._plans
        if key not in plans:
            if len(plans) > PLAN_LIMIT:
                plans = self._plans = {}  # not cleared: another thread may be about to read it
            plans[key] = self._plan(row, views, options)
        return plans[key]

    def _plan(self, row: Fused, views: Sequence[View | None], options: Mapping[str, Any]) -> _Plan | None:
        given = dict(zip(row.args, views, strict=True))
        first = next(v for name, v in given.items() if v is not None and name not in row.along | row.single)
        axes = next(
            (rule(first.ndim, options) for option, rule in ORDERS.items() if option in options), (first.ndim - 1,)
        )
        call = self._call(row, given, first, axes, options)
        if call is None:
            return None
        identity = tuple(range(first.ndim))
        order = (*(a for a in identity if a not in axes), *axes)
        shape = tuple(first.shape[a] for a in order)
        kept = shape[: -len(axes)] + (1,) * len(axes)
        outs = tuple(
            Layout.of(dtype, shape if row.is_each(output) else kept)
            for output, dtype in zip(row.outputs, output_dtypes(row, call.stored), strict=True)
        )
        dense = []
        for name, v in given.items():
            if v is not None:
                moved = order if name not in row.along | row.single else tuple(range(v.ndim))
                lies = name in call.shared or (moved == tuple(range(v.ndim)) and v.layout.c_order)
                dense.append(None if lies else moved)
        scalars = {name: float(options[name]) for name in row.scalars} | {"n": float(call.n)}
        back = None if order == identity else tuple(order.index(a) for a in identity)
        return _Plan(call, outs, tuple(dense), scalars, back)

    def _call(self, row: Fused, given: Mapping[str, View | None], first: View, axes: Shape,
              options: Mapping[str, Any]) -> Call | None:  # fmt: skip
        """What is launched; None where the body is the better or the only way."""
        order = (*(a for a in range(first.ndim) if a not in axes), *axes)
        n = prod(first.shape[a] for a in axes)
        if not first.size or not first.permute(order).layout.c_order:
            return None
        stored = {
            letter: v.dtype for letter, v in zip(row.signature.inputs, given.values(), strict=True) if v is not None
        }
        known = self._backend.capabilities.functions.get(first.dtype)
        wide = [v for name, v in given.items() if v is not None and name not in row.single]
        aligned = all(not v.offset % 4 or not v.layout.c_order for v in wide)
        shape = geometry(n, vectors=self._vectors, aligned=aligned, group=self._group)
        if shape is None or known is None or not row.functions <= known:
            return None
        most = 1 << (53 if number_dtype(row.name, stored).itemsize == 8 else 24)
        if any(isinstance(options[name], int) and abs(options[name]) >= most for name in row.scalars):
            return None  # as a number of the kernel it would be its neighbour
        absent = frozenset(name for name, v in given.items() if v is None)
        shared = frozenset(name for name in row.single - absent if _is_one(given[name]))
        return Call(row, stored, absent, shared, shape, first.size // n, n)


def _is_one(view: View | None) -> bool:
    """Whether all of its indices address one element."""
    assert view is not None  # no argument that was left out is asked about
    return all(n == 1 or s == 0 for n, s in zip(view.shape, view.strides, strict=True))


class TextLauncher:
    """The fused rows of a backend that compiles C-like texts."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self._kernels: dict[tuple[Any, ...], Compiled] = {}

    def _kernel(self, call: Call, arrays: int) -> Compiled | None:
        """The kernel; None where the device's groups may not be that large."""
        key = (call.row, *call.stored.items(), call.absent, call.shared, call.shape)
        kernel = self._kernels.get(key)
        if kernel is None:
            text = render_fused(
                call.row, self._backend.dialect, call.stored, call.shape, absent=call.absent, shared=call.shared
            )
            report = [LONG, BUFFER] if call.row.report is not None else []
            kernel = self._kernels[key] = self._backend.programs.kernel(
                text, [LONG, LONG, *report, *[BUFFER, LONG] * arrays]
            )
        return kernel if kernel.limit >= call.shape.group else None

    @staticmethod
    def _threads(call: Call) -> int:
        return min(-(-call.rows // call.shape.rows), MOST_GROUPS) * call.shape.group

    def ready(self, call: Call, layouts: Sequence[Layout], scalars: Mapping[str, float]) -> Callable[..., None] | None:
        """See Launcher."""
        kernel = self._kernel(call, len(layouts))
        if kernel is None:
            return None
        run = self._backend.queue.ready_run(kernel, self._threads(call), call.shape.group)
        rows, n, numbers, name, slot = (
            call.rows,
            call.n,
            kernel.numbers(scalars),
            call.row.name,
            self._backend.report_slot,
        )
        if call.row.report is not None:
            return lambda *places: run(rows, n, *slot(name, n), *places, *numbers)
        return lambda *places: run(rows, n, *places, *numbers)

    def launch(self, call: Call, outs: Sequence[View], args: Sequence[View], scalars: Mapping[str, float]) -> bool:
        """See Launcher."""
        ready = self.ready(call, [v.layout for v in (*outs, *args)], scalars)
        if ready is None:
            return False
        ready(*[part for v in (*outs, *args) for part in (v.buffer.handle, v.offset)])
        return True
