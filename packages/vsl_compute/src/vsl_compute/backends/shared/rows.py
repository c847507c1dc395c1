"""Elementwise and update rows: which kernel of a row fits the layouts, and its launch.

What given layouts need is worked out once and kept as a plan. Where arrays have more axes than the general kernel
walks, they are copied dense first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

from ...backend import Scalar
from ...dtypes import DType, bool_, float32, int64
from ...kernels.shell import FOURS, LAYOUTS, RANK, render_row
from ...kernels.update import apart, render_plane, render_update
from ...rows.elementwise import TABLE
from ...rows.kinds import in_one_kind
from ...rows.row import Row, Update
from ...view import Buffer, Layout, View
from .axes import LIMIT, collapse, padded, pieces
from .parameters import BUFFER, LONG, UINT, Compiled, Kind, packed, struct_of

if TYPE_CHECKING:
    from .backend import TextBackend
    from .queue import Queue

Launch = Callable[[View, Sequence[View], Mapping[str, float]], None]
NOTHING: Mapping[str, float] = {}
Plane = tuple[Compiled, int, int, list[list[int]]]  # a kernel, rows, columns, the strides of each array
_nowhere = Buffer(None, None, 0)  # type: ignore[arg-type]  # of views of which only the layout is read
MANY = 1024  # elements from which a thread takes four
PLAN_LIMIT = 20_000  # a program with ever new shapes must not grow for ever


def strides_in(view: View, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The view's strides once it is broadcast to `shape`."""
    lead = len(shape) - view.ndim
    return (0,) * lead + tuple(0 if n == 1 else s for n, s in zip(view.shape, view.strides, strict=True))


def lettered_by(row: Update, dtypes: Sequence[DType]) -> tuple[Update, dict[str, DType]]:
    """The row with a letter for each dtype that its arrays have here (a 0-d slot may have one of its own), and what they stand for."""
    distinct = list(dict.fromkeys(dtypes))
    letters = "".join("abcdefgh"[distinct.index(d)] for d in dtypes)
    return replace(row, letters=letters), dict(zip(letters, dtypes, strict=True))


class DenseLaunch:
    """A launch over arrays without gaps in one order, four neighbours a thread where they are aligned and many."""

    def __init__(self, queue: Queue, count: int, kernel: Callable[[str], Compiled]) -> None:
        self._queue, self.count, self._kernel = queue, count, kernel
        self._dense = kernel("dense")
        self._vectors = queue.vectors and count >= MANY

    def __call__(self, out: View, views: Sequence[View], named: Mapping[str, float]) -> None:
        places: list[Any] = [out.buffer.handle, out.offset]
        low = out.offset
        for v in views:
            places += [v.buffer.handle, v.offset]
            low |= v.offset
        kernel, threads = self._chosen(vector=not low & 3)
        self._queue.launch(kernel, threads, self.count, *places, *kernel.numbers(named))

    def _chosen(self, *, vector: bool) -> tuple[Compiled, int]:
        """The kernel and its threads."""
        if vector and self._vectors:
            return self._kernel("vector"), -(-self.count // 4)
        return self._dense, self.count

    def ready(self, *, vector: bool) -> Callable[..., None]:
        """The launch of a row without numbers made ready: count, then each array and its offset."""
        return self._queue.ready(*self._chosen(vector=vector))


def _kinds(row: Row, host: frozenset[str], layout: str) -> list[Kind]:
    """The parameters of a row's kernel before its numbers, as `render_row` has them."""
    arrays = 1 + len(row.args) - len(host)
    if layout == "rows":
        return [LONG, LONG, *[BUFFER, LONG, LONG, LONG] * arrays]
    if layout in ("quads", "general"):
        return [UINT, struct_of(RANK + arrays * RANK + arrays), *[BUFFER] * arrays]
    return [LONG, *[BUFFER, LONG] * arrays]


def _completed(row: Row, stored: Mapping[str, DType]) -> dict[str, DType]:
    """With a dtype for letters that only Python numbers have."""
    others = {letter: {"b": bool_, "i": int64}.get(letter, float32) for letter in row.signature.inputs}
    return {row.signature.outputs: bool_} | others | dict(stored)


def _in_fours(sizes: Sequence[int], strides: Sequence[Sequence[int]]) -> bool:
    """Whether four neighbours on the last axis are neighbours, or one element, in each array, the result's first."""
    if sizes[-1] % 4 or not MANY <= prod(sizes) < LIMIT or strides[0][-1] != 1:
        return False
    return all(s[-1] == 0 or (s[-1] == 1 and not any(step % 4 for step in s[:-1])) for s in strides)


class Rows:
    """The rows of one device."""

    def __init__(self, backend: TextBackend) -> None:
        self._backend = backend
        self._plans: dict[tuple[Any, ...], Launch] = {}
        self._kernels: dict[tuple[Any, ...], Compiled] = {}
        self._truths: dict[bool, View] = {}
        self._updates: dict[tuple[Any, ...], tuple[Compiled, Compiled | None]] = {}
        self._planes: dict[tuple[Any, ...], Plane | None] = {}

    def compile_ahead(self, rows: Iterable[tuple[Row, Mapping[str, DType], frozenset[str]]]) -> None:
        """Compile the kernels of these rows in every layout, together; of those whose arguments will be cast, none."""
        layouts = [layout for layout in LAYOUTS if layout not in FOURS or self._backend.queue.vectors]
        self._backend.programs.together(
            (
                render_row(row, self._backend.dialect, _completed(row, stored), layout, host=host),
                _kinds(row, host, layout),
            )
            for row, stored, host in rows
            if in_one_kind(stored)
            for layout in layouts
        )

    def _kernel(self, row: Row, stored: Mapping[str, DType], host: frozenset[str], layout: str) -> Compiled:
        key = (row, tuple(stored.items()), host, layout)
        found = self._kernels.get(key)
        if found is None:
            text = render_row(row, self._backend.dialect, stored, layout, host=host)
            found = self._kernels[key] = self._backend.programs.kernel(text, _kinds(row, host, layout))
        return found

    def elementwise(self, row: Row, out: View, args: Sequence[View | Scalar], scalars: Sequence[Scalar]) -> None:
        """out = row(args)."""
        if not out.layout.size:
            return
        key = (row, out.layout, *[a.layout if type(a) is View else type(a) for a in args])
        plan = self._plans.get(key)
        if plan is None:
            if len(self._plans) > PLAN_LIMIT:
                self._plans.clear()
            plan = self._plans[key] = self._plan(row, out, args)
        views = [a for a in args if type(a) is View]
        if len(views) == len(args) and not scalars:
            plan(out, views, NOTHING)
            return
        named: dict[str, Any] = {n: a for n, a in zip(row.args, args, strict=True) if type(a) is not View}
        if scalars:
            named.update(zip(row.scalars, scalars, strict=True))
        plan(out, views, named)

    def prepare(self, row: Row, out: Layout, args: Sequence[Layout]) -> Callable[..., View]:
        """`elementwise` into a fresh View of arrays alone, made ready; one launch of neighbours is written out."""
        allocate, given = self._backend.allocate, [View(_nowhere, layout) for layout in args]
        if not out.size:
            return lambda *views: allocate(out)
        plan = self._plan(row, View(_nowhere, out), given)
        if not isinstance(plan, DenseLaunch) or len(args) > 2 or not args:

            def call(*views: View) -> View:
                fresh = allocate(out)
                plan(fresh, views, NOTHING)
                return fresh

            return call
        aligned, unaligned, count = plan.ready(vector=True), plan.ready(vector=False), plan.count
        if len(args) == 1:

            def unary(x: View) -> View:
                fresh, at = allocate(out), x.offset
                (unaligned if at & 3 else aligned)(count, fresh.buffer.handle, 0, x.buffer.handle, at)
                return fresh

            return unary

        def binary(a: View, b: View) -> View:
            fresh, at, other = allocate(out), a.offset, b.offset
            (unaligned if (at | other) & 3 else aligned)(
                count, fresh.buffer.handle, 0, a.buffer.handle, at, b.buffer.handle, other
            )
            return fresh

        return binary

    def _plan(self, row: Row, out: View, args: Sequence[View | Scalar]) -> Launch:
        host = frozenset(n for n, a in zip(row.args, args, strict=True) if not isinstance(a, View))
        if any(letter == "b" and n in host for n, letter in zip(row.args, row.signature.inputs, strict=True)):
            return self._with_truths(row, host)
        views = [a for a in args if isinstance(a, View)]
        stored = {row.signature.outputs: out.dtype}
        for letter, a in zip(row.signature.inputs, args, strict=True):
            if isinstance(a, View):
                stored[letter] = a.dtype
        stored = _completed(row, stored)
        sizes, strides = collapse(out.shape, [out.strides, *(strides_in(v, out.shape) for v in views)])
        if len(sizes) <= 1 and all(s in ([], [1]) for s in strides):
            return self._dense(row, stored, host, prod(sizes))
        if len(sizes) > RANK:
            return self._copied(row, out, args)

        def strided() -> Launch:
            if len(sizes) <= 2:
                return self._plane(row, stored, host, padded(sizes, 2, 1), [padded(s, 2, 0) for s in strides])
            return self._general(row, stored, host, sizes, strides)

        if self._backend.queue.vectors and _in_fours(sizes, strides):
            return self._quads(row, stored, host, sizes, strides, strided)
        return strided()

    def _with_truths(self, row: Row, host: frozenset[str]) -> Launch:
        """Python's truth values as arrays of one element: a kernel's numbers have the dtype that it computes in."""

        def launch(out: View, views: Sequence[View], named: Mapping[str, float]) -> None:
            rest, given = iter(views), list[View | Scalar]()
            for name, letter in zip(row.args, row.signature.inputs, strict=True):
                if name not in host:
                    given.append(next(rest))
                else:
                    given.append(self._truth(bool(named[name])) if letter == "b" else named[name])
            self.elementwise(row, out, given, [named[n] for n in row.scalars])

        return launch

    def _truth(self, value: bool) -> View:
        """A truth value on the device."""
        found = self._truths.get(value)
        if found is None:
            found = self._truths[value] = self._backend.allocate(Layout.of(bool_, ()))
            self.elementwise(TABLE["fill"], found, (), (value,))
        return found

    def _dense(self, row: Row, stored: Mapping[str, DType], host: frozenset[str], count: int) -> Launch:
        return DenseLaunch(self._backend.queue, count, lambda layout: self._kernel(row, stored, host, layout))

    def _plane(
        self, row: Row, stored: Mapping[str, DType], host: frozenset[str], sizes: list[int], strides: list[list[int]]
    ) -> Launch:
        queue = self._backend.queue
        kernel = self._kernel(row, stored, host, "rows")
        rows, columns = sizes

        def launch(out: View, views: Sequence[View], named: Mapping[str, float]) -> None:
            places: list[Any] = []
            for v, steps in zip((out, *views), strides, strict=True):
                places += [v.buffer.handle, v.offset, *steps]
            queue.launch_plane(kernel, columns, rows, rows, columns, *places, *kernel.numbers(named))

        return launch

    def _quads(
        self,
        row: Row,
        stored: Mapping[str, DType],
        host: frozenset[str],
        sizes: list[int],
        strides: list[list[int]],
        otherwise: Callable[[], Launch],
    ) -> Launch:
        """Arrays that do not begin at four elements, as parts of others may, are left to what `otherwise` makes."""
        queue, kernel = self._backend.queue, self._kernel(row, stored, host, "quads")
        count, aligned = prod(sizes) // 4, [s[-1] == 1 for s in strides]
        shape = padded([*sizes[:-1], sizes[-1] // 4], RANK, 1)
        head = packed([*shape, *(s for step in strides for s in padded(step, RANK, 0))])
        second: list[Launch] = []

        def launch(out: View, views: Sequence[View], named: Mapping[str, float]) -> None:
            memory, offsets, low = [out.buffer.handle], [out.offset], out.offset
            for v, counts in zip(views, aligned[1:], strict=True):
                memory.append(v.buffer.handle)
                offsets.append(v.offset)
                if counts:
                    low |= v.offset
            if low & 3:
                if not second:
                    second.append(otherwise())
                second[0](out, views, named)
                return
            queue.launch(kernel, count, count, head + packed(offsets), *memory, *kernel.numbers(named))

        return launch

    def _general(
        self, row: Row, stored: Mapping[str, DType], host: frozenset[str], sizes: list[int], strides: list[list[int]]
    ) -> Launch:
        queue = self._backend.queue
        kernel = self._kernel(row, stored, host, "general")
        parts = []
        for part, steps, ats in pieces(sizes, strides, RANK):
            head = packed([*padded(part, RANK, 1), *(s for step in steps for s in padded(step, RANK, 0))])
            count = prod(part)
            parts.append((count, queue.ready(kernel, count), head, ats, head + packed(ats)))

        def launch(out: View, views: Sequence[View], named: Mapping[str, float]) -> None:
            numbers = kernel.numbers(named)
            memory, offsets, moved = [out.buffer.handle], [out.offset], out.offset
            for v in views:
                memory.append(v.buffer.handle)
                offsets.append(v.offset)
                moved |= v.offset
            for count, ready, head, ats, first in parts:
                layout = head + packed([o + a for o, a in zip(offsets, ats, strict=True)]) if moved else first
                ready(count, layout, *memory, *numbers)

        return launch

    def _copied(self, row: Row, out: View, args: Sequence[View | Scalar]) -> Launch:
        places = [k for k, a in enumerate(args) if isinstance(a, View)]
        dense = out.layout.like(out.dtype)

        def launch(out: View, views: Sequence[View], named: Mapping[str, float]) -> None:
            given: list[Any] = [named.get(n) for n in row.args]
            for k, v in zip(places, views, strict=True):
                given[k] = self._backend.allocate(dense.like(v.dtype))
                self._backend.copy(given[k], v.expand(out.shape))
            result = out if out.layout is dense else self._backend.allocate(dense)
            self.elementwise(row, result, given, [named[n] for n in row.scalars])
            if result is not out:
                self._backend.copy(out, result)

        return launch

    def update(self, row: Update, arrays: Sequence[Sequence[View]], scalars: Sequence[Scalar]) -> None:
        """Run an update row over each tuple of arrays, in place."""
        named = dict(zip(row.scalars, map(float, scalars), strict=True))
        for group in arrays:
            if not self.update_plane(row, group, named):
                self._update(row, group, named)

    def update_plane(self, row: Update, group: Sequence[View], named: Mapping[str, float]) -> bool:
        """Step arrays that are parts of wider ones where they lie; False where they are dense in one order, or not of two axes."""
        key = (row, *[v.layout for v in group])
        if key in self._planes:
            plane = self._planes[key]
        else:
            if len(self._planes) > PLAN_LIMIT:
                self._planes.clear()
            plane = self._planes[key] = self._plane_of(row, group)
        if plane is None:
            return False
        kernel, rows, columns, strides = plane
        places: list[Any] = []
        for v, steps in zip(group, strides, strict=True):
            places += (v.buffer.handle, v.offset, *steps)
        self._backend.queue.launch_plane(kernel, columns, rows, rows, columns, *places, *kernel.numbers(named))
        return True

    def _plane_of(self, row: Update, group: Sequence[View]) -> Plane | None:
        if row.zero_d or not group[0].size:
            return None
        sizes, strides = collapse(group[0].shape, [v.strides for v in group])
        if len(sizes) > 2 or all(s in ([], [1]) for s in strides):
            return None
        dtypes = tuple(v.dtype for v in group)
        key = (row, "plane", *dtypes)
        found = self._updates.get(key)
        if found is None:
            lettered, stored = lettered_by(row, dtypes)
            kinds: list[Kind] = [LONG, LONG, *[BUFFER, LONG, LONG, LONG] * len(group)]
            text = render_plane(lettered, self._backend.dialect, stored)
            found = self._updates[key] = self._backend.programs.kernel(text, kinds), None
        rows, columns = padded(sizes, 2, 1)
        return found[0], rows, columns, [padded(s, 2, 0) for s in strides]

    def _update(self, row: Update, group: Sequence[View], named: Mapping[str, float]) -> None:
        flat = [k for k, name in enumerate(row.arrays) if name not in row.zero_d]
        first, used = group[flat[0]], list(group)
        strides, away = apart(row, tuple([v.layout for v in group]))
        for k in away:
            used[k] = self._backend.allocate(Layout.of(group[k].dtype, first.shape, strides))
            self._backend.copy(used[k], group[k])
        step, slots = self._update_kernels(row, tuple(v.dtype for v in group))
        places: list[Any] = []
        for v in used:
            places += [v.buffer.handle, v.offset]
        if first.size:
            self._backend.queue.launch(step, -(-first.size // 4), first.size, *places, *step.numbers(named))
        if slots is not None:
            held: list[Any] = []
            for name, v in zip(row.arrays, used, strict=True):
                if name in row.zero_d:
                    held += [v.buffer.handle, v.offset]
            self._backend.queue.launch(slots, 1, *held, *slots.numbers(named))
        for k in flat:
            if used[k] is not group[k] and row.arrays[k] in row.written:
                self._backend.copy(group[k], used[k])

    def _update_kernels(self, row: Update, dtypes: tuple[DType, ...]) -> tuple[Compiled, Compiled | None]:
        found = self._updates.get((row, *dtypes))
        if found is None:
            lettered, stored = lettered_by(row, dtypes)
            texts = render_update(lettered, self._backend.dialect, stored)
            kinds: list[Kind] = [LONG, *[BUFFER, LONG] * len(dtypes)]
            step = self._backend.programs.kernel(texts[0], kinds)
            slots = (
                self._backend.programs.kernel(texts[1], [BUFFER, LONG] * len(row.zero_d)) if len(texts) > 1 else None
            )
            found = self._updates[row, *dtypes] = step, slots
        return found
