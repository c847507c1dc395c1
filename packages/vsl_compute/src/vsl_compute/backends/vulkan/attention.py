"""Launching attention: tiles that fit the device, and where a launch finds its parameters."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ...kernels.attention import FORWARD, SMALL, Tile, tiles
from ..shared.attention import Arrays, Attentions, Launch
from .commands import Access
from .indexing import FLOATS
from .launch import place

if TYPE_CHECKING:
    from .backend import VulkanBackend

ORDER = ("a", "b", "c", "d", "mask", "lse_of", "delta_of", "to", "more")
ADDRESSES = struct.Struct(f"<{len(ORDER)}Q").pack


class AttentionLauncher:
    """The attention of one backend."""

    def __init__(self, backend: VulkanBackend) -> None:
        self.backend, self.device = backend, backend.device
        self.ops = Attentions(backend, self, turns=backend.device.most_turns)

    def launch(self, launch: Launch, arrays: Arrays) -> None:
        """Append one launch."""
        pipeline = launch.kernel
        if pipeline is None:
            constants = {0: launch.tile.threads} | dict(enumerate(launch.constants, 1))
            pipeline = launch.kernel = self.backend.pipelines.shipped(
                f"attention_{launch.form}_{FLOATS[launch.dtype.name]}", constants
            )
        addresses: list[int] = []
        reads: list[Access] = []
        writes: list[Access] = []
        for name in ORDER:
            view = arrays.get(name)
            if view is None:
                addresses.append(0)
                continue
            address, access, _ = place(view)
            addresses.append(address)
            written = name in ("to", "more") or (name == "lse_of" and launch.form == FORWARD)
            (writes if written else reads).append(access)
        across, down = launch.groups
        with self.device.lock:  # the block belongs to the commands that are open now
            data = self.backend.blocks.put(launch.parameters) + ADDRESSES(*addresses)
            self.backend.commands.dispatch(pipeline, data, (across, down, 1), reads, writes)

    def tiles(self, form: str, e: int, v: int) -> list[Tile]:
        """As kernels.attention.tiles, for this device."""
        limits = self.device.properties.limits
        threads, shared = int(limits.maxComputeWorkGroupInvocations), int(limits.maxComputeSharedMemorySize)
        found = tiles(form, e, v, threads, shared)
        return [t for t in found if t == SMALL] if self.device.kind == "software" else found
