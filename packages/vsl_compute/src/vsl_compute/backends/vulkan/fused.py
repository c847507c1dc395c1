"""Launching fused rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...view import Layout, View
from ..shared.fused import Call
from .fused_module import emit_fused
from .launch import Launch, extent

if TYPE_CHECKING:
    from .backend import VulkanBackend

MOST = 1 << 31  # rows that one launch counts


class FusedLaunches:
    """The fused rows of one backend, by what they were made for."""

    def __init__(self, backend: VulkanBackend) -> None:
        self.device, self.commands, self.pipelines = backend.device, backend.commands, backend.pipelines
        self._report = backend.report_place
        self._launches: dict[Any, Launch] = {}

    def ready(self, call: Call, layouts: Sequence[Layout], scalars: Mapping[str, float]) -> Callable[..., None] | None:
        """See Launcher. None where there are more rows than a launch counts."""
        if call.rows >= MOST:
            return None
        launch, counts, others = self._launch(call), [call.rows, call.n], []
        if call.row.report is not None:
            report, number = self._report(call.row.name)
            others, counts = [report], [*counts, number]
        pack, pipeline, dispatch = launch.packed(counts, scalars), launch.pipeline, self.commands.dispatch
        groups = (min(self.device.most_groups, -(-call.rows // call.shape.rows)), 1, 1)
        stretches = [(layout.dtype.itemsize, *extent(layout)) for layout in layouts]
        written = len(call.row.outputs)

        def run(*places: Any) -> None:
            addresses, touched = [], []
            for (item, low, high), chunk, at in zip(stretches, places[::2], places[1::2], strict=True):
                start = at * item
                addresses.append(chunk.address + start)
                touched.append((chunk, start + low, start + high))
            dispatch(pipeline, pack(*addresses, *others), groups, touched[written:], touched[:written])

        return run

    def launch(self, call: Call, outs: Sequence[View], args: Sequence[View], scalars: Mapping[str, float]) -> bool:
        """See Launcher."""
        ready = self.ready(call, [v.layout for v in (*outs, *args)], scalars)
        if ready is None:
            return False
        ready(*[part for v in (*outs, *args) for part in (v.buffer.handle, v.offset)])
        return True

    def _launch(self, call: Call) -> Launch:
        key = (call.row, *call.stored.items(), call.absent, call.shared, call.shape)
        launch = self._launches.get(key)
        if launch is None:
            kernel = emit_fused(call.row, call.stored, call.shape, absent=call.absent, shared=call.shared)
            launch = self._launches[key] = Launch(kernel, self.device, self.pipelines, call.shape.width)
        return launch
