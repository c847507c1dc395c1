"""Updates: a fused optimizer's step over each parameter's arrays, in place; what given layouts need is worked out once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ...dtypes import DType
from ...errors import UnsupportedError
from ...rows.row import Update
from ...rows.spirv import emit_update, supports_update
from ...view import Layout, View
from ..shared.axes import collapse
from .launch import Launch, place
from .rows import PLANS, Part, Rows, most_of

if TYPE_CHECKING:
    from .backend import VulkanBackend

Numbers = Mapping[str, Any]
Values = tuple[list[float], list[float]]


class Step(NamedTuple):
    """Launches over one parameter's arrays: which of its arrays they take, and which of those they write."""

    launch: Launch
    takes: tuple[int, ...]
    writes: tuple[int, ...]  # positions in `takes`
    parts: tuple[Part, ...]


class Updates:
    """The updates of one backend."""

    def __init__(self, backend: VulkanBackend, rows: Rows) -> None:
        self.backend, self.device, self.commands, self.rows = backend, backend.device, backend.commands, rows
        self._launches: dict[tuple[Update, tuple[DType, ...]], tuple[Launch, ...]] = {}
        self._plans: dict[tuple[Any, ...], tuple[Step, ...] | None] = {}

    def update(self, row: Update, arrays: Sequence[Sequence[View]], scalars: Sequence[Any]) -> None:
        """Each tuple in place."""
        numbers = dict(zip(row.scalars, scalars, strict=True))
        slots = [i for i, name in enumerate(row.arrays) if name in row.zero_d]
        shared = slots and len({place(group[i])[0] for group in arrays for i in slots}) < len(arrays) * len(slots)
        if shared:  # a slot of two parameters counts after each of them
            for group in arrays:
                self._update(row, [group], numbers)
        else:
            self._update(row, arrays, numbers)

    def _update(self, row: Update, arrays: Sequence[Sequence[View]], numbers: Numbers) -> None:
        """The steps of all parameters, then their slots: one barrier between them, not one a parameter."""
        later: list[tuple[Step, Sequence[View]]] = []
        values: dict[Launch, Values] = {}  # what the numbers come to is the same for all parameters
        for group in arrays:
            key = (row, *[v.layout for v in group])
            steps = self._plans[key] if key in self._plans else self._planned(key, row, group)
            if steps is None:
                self._apart(row, group, numbers)
                continue
            for step in steps:
                if step.launch.alone:
                    later.append((step, group))
                else:
                    self._run(step, group, numbers, values)
        for step, group in later:
            self._run(step, group, numbers, values)

    def _run(self, step: Step, group: Sequence[View], numbers: Numbers, values: dict[Launch, Values]) -> None:
        launch, _, writes, parts = step
        given = values.get(launch)
        if given is None:
            given = values[launch] = launch.values(numbers)
        wide, narrow = given
        taken = [group[i] for i in step.takes]
        places = [v.native or place(v) for v in taken]
        addresses, touched = [p[0] for p in places], [p[1] for p in places]
        written = [touched[i] for i in writes]
        for part in parts:
            moved = [a + m for a, m in zip(addresses, part.moves, strict=True)] if part.moves else addresses
            data = launch.pack(*moved, *wide, *part.layout, *narrow)
            if not launch.kernel.block:
                self.commands.dispatch(launch.pipeline, data, part.groups, touched, written)
                continue
            with self.device.lock:  # the block belongs to the commands that are open now
                self.commands.dispatch(launch.pipeline, self.backend.blocks.put(data), part.groups, touched, written)

    def _planned(self, key: tuple[Any, ...], row: Update, group: Sequence[View]) -> tuple[Step, ...] | None:
        if len(self._plans) > PLANS:
            self._plans.clear()
        self._plans[key] = self._plan(row, group)
        return self._plans[key]

    def _plan(self, row: Update, group: Sequence[View]) -> tuple[Step, ...] | None:
        """The launches of these layouts; None where arrays must be made dense first, since a slot steps with them."""
        flat = [i for i, name in enumerate(row.arrays) if name not in row.zero_d]
        layouts, first = [v.layout for v in group], group[flat[0]].layout
        launches = self._made(row, tuple(v.dtype for v in layouts))
        _, strides = collapse(first.shape, [layouts[i].strides for i in flat])
        if first.size and any(s not in ([1], []) for s in strides):
            return None if row.zero_d else self._strided(row, layouts)
        steps = []
        if first.size:
            parts, most = [], most_of([v.dtype.itemsize for v in layouts])
            items = [0 if name in row.zero_d else v.dtype.itemsize for name, v in zip(row.arrays, layouts, strict=True)]
            for start in range(0, first.size, most):
                n = min(most, first.size - start)
                moves = tuple(start * items[row.arrays.index(name)] for name in launches[0].arrays)
                parts.append(Part(launches[0], (n,), moves, self.rows.groups(n, 1)))
            steps.append(_step(row, launches[0], parts))
        if len(launches) > 1:
            steps.append(_step(row, launches[1], [Part(launches[1], (1,), (0,) * len(launches[1].arrays), 1)]))
        return tuple(steps)

    def _made(self, row: Update, dtypes: tuple[DType, ...]) -> tuple[Launch, ...]:
        found = self._launches.get((row, dtypes))
        if found is None:
            stored = dict(zip(row.letters, dtypes, strict=True))
            widest = max(dtypes, key=lambda d: d.itemsize)
            if not supports_update(row, widest):
                raise UnsupportedError(
                    f'{row.name}: {self.backend.spec} has no {widest.name} for it; move the data with .to("cpu") or cast it'
                )
            # each thread of a slots module would count the step again
            found = self._launches[row, dtypes] = tuple(
                Launch(k, self.device, self.backend.pipelines, 1, alone=i > 0)
                for i, k in enumerate(emit_update(row, stored))
            )
        return found

    def _strided(self, row: Update, layouts: Sequence[Layout]) -> tuple[Step, ...]:
        """Arrays that are parts of wider ones, stepped where they lie."""
        dtypes = tuple(v.dtype for v in layouts)
        stored = dict(zip(row.letters, dtypes, strict=True))
        parts = self.rows.plan(
            (row, *layouts), (row, dtypes), layouts, lambda layout: emit_update(row, stored, layout)[0], aligned=False
        )
        return tuple(_step(row, part.launch, [part]) for part in parts)

    def _apart(self, row: Update, group: Sequence[View], numbers: Numbers) -> None:
        """Arrays that are not dense in one order: copies are updated, and copied back."""
        fresh = list(group)
        for i, name in enumerate(row.arrays):
            if name not in row.zero_d:
                fresh[i] = self.backend.allocate(Layout.of(group[i].dtype, group[i].shape))
                self.rows.copy(fresh[i], group[i])
        self._update(row, [fresh], numbers)
        for i, name in enumerate(row.arrays):
            if name in row.written and name not in row.zero_d:
                self.rows.copy(group[i], fresh[i])


def _step(row: Update, launch: Launch, parts: Sequence[Part]) -> Step:
    """What a launch takes and writes; one that steps slots writes those, else they are only read."""
    written = [name for name in row.written if (name in row.zero_d) == launch.alone]
    writes = tuple(k for k, name in enumerate(launch.arrays) if name in written)
    return Step(launch, tuple(row.arrays.index(name) for name in launch.arrays), writes, tuple(parts))
