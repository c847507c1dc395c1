"""Batch normalization's training step, alone or with the ReLU behind it, by two passes over memory forward and two back.

Taken are arrays that lie in C order, or with channels as neighbours; what comes with x and lies otherwise is copied. What
else there is, vectors in a wider dtype than x is computed in too, is the bodies' (ops/normalization.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ...dtypes import DType
from ...kernels.batch_norm import LEFT, Pass, Share, arrays_of, join_arrays
from ...kernels.batch_norm_text import render_join, render_pass
from ...kernels.shell import Kernel
from ...ops.op import Op
from ...ops.table import TABLE
from ...rows.kinds import compute_dtype
from ...view import Layout, View
from .fused import Preparing
from .parameters import BUFFER, LONG, UINT, Compiled, number

if TYPE_CHECKING:
    from .backend import TextBackend

FORWARD = ("batch_norm", "batch_norm_relu", "batch_norm_add_relu")
BACKWARD = tuple(f"{name}_backward" for name in FORWARD)
SUMMED = 3  # groups of a multiprocessor that sum: what each leaves has to be joined
STREAMED = 32  # and of those that only read and write
SOFTWARE = 4  # groups of a core
LONGEST = 256  # batches that a thread adds one after the other, for the sake of rounding
MOST = 1 << 31  # positions of a channel, and whatever else a kernel counts
PLAN_LIMIT = 20_000
Places = tuple[int, int, int]  # outer, channels, inner: how dense memory is counted
Arrays = dict[str, View]
Launch = Callable[[Arrays], None]


class _Unfit(Exception):
    """The device's groups are too small for a kernel."""


def places_of(layout: Layout) -> Places | None:
    """How (N, C, ...) lies in memory: runs of `inner` elements of a channel, or channels as neighbours; None for neither."""
    shape, ndim = layout.shape, len(layout.shape)
    inner = prod(shape[2:])
    if layout.c_order:
        return shape[0], shape[1], inner
    order = (0, *range(2, ndim), 1)
    last = Layout.of(layout.dtype, tuple(shape[a] for a in order), tuple(layout.strides[a] for a in order))
    return (shape[0] * inner, shape[1], 1) if last.c_order else None


class BatchNorms:
    """The six ops of one backend, in groups of `group` threads, a power of two; 1 where that is what the device likes."""

    def __init__(self, backend: TextBackend, group: int, counters: Callable[[], View]) -> None:
        self.backend, self.group, self.counters = backend, group, counters
        self._kernels: dict[tuple[Any, ...], Compiled] = {}
        self._plans: dict[tuple[Any, ...], Callable[..., Any] | None] = {}

    def overrides(self) -> dict[str, Callable[..., Any]]:
        """By the op's name."""
        return {name: partial(self._run, name) for name in (*FORWARD, *BACKWARD)}

    def preparing(self) -> dict[str, Preparing]:
        """By the op's name, what makes a call of given layouts ready."""
        return {name: partial(self._prepare, name) for name in (*FORWARD, *BACKWARD)}

    def _run(self, name: str, *views: View | None, eps: float) -> Any:
        aligned = not any(v.offset & 3 for v in views if v is not None and v.ndim > 1)
        key = (name, aligned, eps, *[None if v is None else v.layout for v in views])
        plans = self._plans
        if key not in plans:
            if len(plans) > PLAN_LIMIT:
                plans = self._plans = {}  # not cleared: another thread may be about to read it
            plans[key] = self._plan(name, [None if v is None else v.layout for v in views], eps, aligned=aligned)
        plan = plans[key]
        return NotImplemented if plan is None else plan(*views)

    def _prepare(
        self, name: str, views: Sequence[View | None], options: Mapping[str, Any]
    ) -> Callable[..., Any] | None:
        eps, missing, run = options["eps"], len(views), self._run
        whole = [k for k, v in enumerate(views) if v is not None and v.ndim > 1]
        plan = self._plan(name, [None if v is None else v.layout for v in views], eps, aligned=True)
        if plan is None:
            return None

        def call(*views: Any) -> Any:
            for k in whole:
                if views[k].offset & 3:
                    return run(name, *views, *(None,) * (missing - len(views)), eps=eps)
            return plan(*views)

        return call

    def _plan(
        self, name: str, layouts: Sequence[Layout | None], eps: float, *, aligned: bool
    ) -> Callable[..., Any] | None:
        """What a call of these layouts comes to; None where it is the body's."""
        op: Op = TABLE[name]  # type: ignore[assignment]  # composites all
        names = op.names
        given = {n: layout for n, layout in zip(names, layouts, strict=True) if layout is not None}
        x = given["x"]
        places, wide = places_of(x), compute_dtype(x.dtype)
        functions = self.backend.capabilities.functions.get(x.dtype)
        narrow = all(given[n].dtype.itemsize <= wide.itemsize for n in ("weight", "bias") if n in given)
        moments = all(given[n].dtype is wide for n in ("mean", "variance") if n in given)
        if not x.size or places is None or functions is None or "sqrt" not in functions or not (narrow and moments):
            return None
        if places[0] * places[2] >= MOST or places[1] >= MOST:
            return None
        calls = _Calls(self, x, places, eps, aligned=aligned)
        try:
            made = calls.forward(name, given) if name in FORWARD else calls.backward(name, given)
        except _Unfit:
            return None
        turned = {n: v.like(v.dtype) if len(v.shape) == 1 else x.like(v.dtype) for n, v in given.items()
                  if (not v.c_order if len(v.shape) == 1 else places_of(v) != places)}  # fmt: skip
        allocate, copy = self.backend.allocate, self.backend.copy

        def call(*views: View | None) -> Any:
            arrays = {n: v for n, v in zip(names, views, strict=False) if v is not None}
            for n, layout in turned.items():
                fresh = allocate(layout)
                copy(fresh, arrays[n])
                arrays[n] = fresh
            return made(arrays)

        return call

    def share(self, places: Places, *, aligned: bool) -> Share:
        """How launches over memory of this kind are shared out."""
        _, channels, inner = places
        planes, run = inner > 1, inner if inner > 1 else channels
        if self.group == 1:
            width = next((w for w in (16, 4) if aligned and run % w == 0), 1)
            return Share(planes, width, 1, 1)
        width = 4 if aligned and run % 4 == 0 else 1
        vectors = channels // width
        across = next((n for n in (32, 16, 8) if vectors % n == 0), min(32, 1 << (vectors - 1).bit_length()))
        return Share(planes, width, 1 if planes else min(across, self.group), self.group)

    def kernel(self, key: Any, render: Callable[[], Kernel], count: int, wide: DType) -> Compiled:
        """A kernel of so many arrays, compiled once."""
        found = self._kernels.get(key)
        if found is None:
            real = np.dtype(wide.compute)
            kinds = [*[UINT] * 5, real, real, *[BUFFER, LONG] * count]
            found = self._kernels[key] = self.backend.programs.kernel(render(), kinds)
        if found.limit < self.group:
            raise _Unfit
        return found


class _Calls:
    """The launches for arrays that lie as x does."""

    def __init__(self, owner: BatchNorms, x: Layout, places: Places, eps: float, *, aligned: bool) -> None:
        outer, channels, inner = places
        self._owner, self._backend, self._dialect = owner, owner.backend, owner.backend.dialect
        self._x, self._wide, self._channels = x, compute_dtype(x.dtype), channels
        self._share = share = owner.share(places, aligned=aligned)
        self._inner = inner // share.width if share.planes else 1
        self._count = outer * self._inner
        self._blocks = -(-channels // share.channels)
        self._reals = number(eps, self._wide), number(1 / (outer * inner), self._wide)
        self._statistic = Layout.of(self._wide, (channels,))

    def forward(self, name: str, given: Mapping[str, Layout]) -> Callable[[Arrays], Any]:
        """Moments, then what is normalized by them."""
        x, statistic, allocate = self._x.like(self._x.dtype), self._statistic, self._backend.allocate
        first, second = (
            self._summing(Pass("moments", self._x.dtype)),
            self._streaming("normalize", given, relu=name != FORWARD[0]),
        )

        def call(arrays: Arrays) -> tuple[View, View, View]:
            arrays["mean"], arrays["variance"] = allocate(statistic), allocate(statistic)
            first(arrays)
            y = arrays["y"] = allocate(x)
            second(arrays)
            return y, arrays["mean"], arrays["variance"]

        return call

    def backward(self, name: str, given: Mapping[str, Layout]) -> Callable[[Arrays], Any]:
        """Sums, then dx; behind a residual the first writes what arrives there, and the second reads it."""
        x, statistic, allocate = self._x.like(self._x.dtype), self._statistic, self._backend.allocate
        relu, residual = name == BACKWARD[1], name == BACKWARD[2]
        vectors = _vectors(given) if relu else (None, None)
        first = self._summing(Pass("sums", self._x.dtype, *vectors, relu, residual))
        second = self._streaming("back", given, relu=relu)

        def call(arrays: Arrays) -> tuple[View, ...]:
            arrays["dweight"], arrays["dbias"] = allocate(statistic), allocate(statistic)
            if residual:
                arrays["d"] = allocate(x)
            first(arrays)
            if residual:
                arrays["g"] = arrays["d"]
            dx = arrays["dx"] = allocate(x)
            second(arrays)
            made = dx, arrays["dweight"], arrays["dbias"]
            return (*made, arrays["d"]) if residual else made

        return call

    def _streaming(self, name: str, given: Mapping[str, Layout], *, relu: bool) -> Launch:
        """A pass that reads and writes."""
        what = Pass(name, self._x.dtype, *_vectors(given), relu, "residual" in given)
        parts, positions = self._parts(what, STREAMED)
        return self._launch(
            what,
            arrays_of(what, self._dialect),
            lambda share: render_pass(what, self._dialect, share),
            parts,
            positions,
        )

    def _summing(self, what: Pass) -> Launch:
        """A pass that sums; what its parts leave is joined by the last of them, or by a launch of its own."""
        counters = self._owner.counters() if self._dialect.counts else None
        parts, positions = self._parts(what, SUMMED)
        if counters is not None and self._blocks > counters.size:
            parts, positions = 1, self._count
        what, name = replace(what, parts=parts > 1), what.name
        run = self._launch(
            what,
            arrays_of(what, self._dialect),
            lambda share: render_pass(what, self._dialect, share),
            parts,
            positions,
        )
        if parts == 1:
            return run
        names = [f"left_{n}" for n in LEFT[name]]
        left, allocate, wide = Layout.of(self._wide, (parts * self._channels,)), self._backend.allocate, self._wide
        if counters is not None:
            return lambda arrays: run(arrays | {n: allocate(left) for n in names} | {"counters": counters})
        join = self._launch((name, wide), join_arrays(name, wide), lambda share: render_join(name, self._dialect, wide, share), 1,
                            positions, given=parts)  # fmt: skip

        def call(arrays: Arrays) -> None:
            held = arrays | {n: allocate(left) for n in names}
            run(held)
            join(held)

        return call

    def _parts(self, what: Pass, busy: int) -> tuple[int, int]:
        """Into how many parts a channel's positions are cut, and how many each has."""
        batch = self._share.rows * what.batch
        room = self._backend.units * (busy if self._owner.group > 1 else SOFTWARE) // self._blocks
        parts = max(1, min(room, -(-self._count // batch)), -(-self._count // (batch * LONGEST)))
        positions = -(-self._count // parts)
        positions = -(-positions // batch) * batch  # in whole batches: the rest is loaded one by one
        return -(-self._count // positions), positions

    def _launch(
        self,
        what: Any,
        arrays: Mapping[str, Any],
        render: Callable[[Share], Kernel],
        parts: int,
        positions: int,
        *,
        given: int = 0,
    ) -> Launch:
        """One launch made ready: so many parts of the positions, of which a kernel that joins is told in `given`."""
        share = self._share
        kernel = self._owner.kernel((what, share), lambda: render(share), len(arrays), self._wide)
        run = self._backend.queue.ready_run(kernel, self._blocks * parts * share.group, share.group)
        head = self._count, self._channels, self._inner, given or parts, positions, *self._reals
        names = tuple(arrays)

        def launch(arrays: Arrays) -> None:
            places: list[Any] = []
            for n in names:
                view = arrays[n]
                places += (view.buffer.handle, view.offset)
            run(*head, *places)

        return launch


def _vectors(given: Mapping[str, Layout]) -> tuple[DType | None, DType | None]:
    """The dtypes of weight and bias."""
    weight, bias = (given[n].dtype if n in given else None for n in ("weight", "bias"))
    return weight, bias
