"""Launching fused rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...view import View
from ..shared.fused import Call
from .fused_module import emit_fused
from .launch import Launch, place

if TYPE_CHECKING:
    from .backend import VulkanBackend

MOST = 1 << 31  # rows that one launch counts


class FusedLaunches:
    """The fused rows of one backend, by what they were made for."""

    def __init__(self, backend: VulkanBackend) -> None:
        self.device, self.commands, self.pipelines = backend.device, backend.commands, backend.pipelines
        self._report = backend.report_place
        self._launches: dict[Any, Launch] = {}

    def ready(self, call: Call, arrays: int, scalars: Mapping[str, float]) -> None:
        """See Launcher: parameters hold what each call asks hazards about."""

    def launch(self, call: Call, outs: Sequence[View], args: Sequence[View], scalars: Mapping[str, float]) -> bool:
        """See Launcher. Append one launch; False where there are more rows than it counts."""
        if call.rows >= MOST:
            return False
        key = (call.row, *call.stored.items(), call.absent, call.shared, call.shape)
        launch = self._launches.get(key)
        if launch is None:
            kernel = emit_fused(call.row, call.stored, call.shape, absent=call.absent, shared=call.shared)
            launch = self._launches[key] = Launch(kernel, self.device, self.pipelines, call.shape.width)
        to, come = [place(v) for v in outs], [place(v) for v in args]
        addresses, counts = [p[0] for p in (*to, *come)], [call.rows, call.n]
        if call.row.report is not None:
            report, number = self._report(call.row.name)
            addresses, counts = [*addresses, report], [*counts, number]
        data = launch.parameters(addresses, counts, scalars)
        groups = min(self.device.most_groups, -(-call.rows // call.shape.rows))
        self.commands.dispatch(launch.pipeline, data, (groups, 1, 1), [p[1] for p in come], [p[1] for p in to])
        return True
