"""Launching convolutions: tiles that fit the device, and the push constants of a launch."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ...dtypes import DType
from ...kernels.convolution import Tile, tiles
from ...rows.kinds import compute_dtype
from ..shared.convolution import Convolutions, Product
from .indexing import FLOATS
from .launch import place

if TYPE_CHECKING:
    from ...view import View
    from .backend import VulkanBackend

SOFTWARE, SOFTWARE_SMALL = Tile(32, 64, 8, 8, 8), Tile(32, 16, 8, 4, 4)  # groups of 32 threads: see Device.group_size
BUSY, BUSY_SOFTWARE = 512, 8  # tiles of 64 x 64 at a time; an H200 has room for 528
ADDRESSES = struct.Struct("<QQQQ").pack


class ConvolutionLauncher:
    """The convolutions of one backend."""

    def __init__(self, backend: VulkanBackend) -> None:
        self.backend, self.device = backend, backend.device
        self._software = backend.device.kind == "software"
        self.ops = Convolutions(backend, self, busy=BUSY_SOFTWARE if self._software else BUSY, tuner=backend.tuner)

    def launch(self, product: Product, out: View, x: View, b: View, bias: View | None) -> None:
        """Append one launch."""
        pipeline = product.kernel
        if pipeline is None:
            constants = {0: product.tile.threads} | {i: v & 0xFFFFFFFF for i, v in enumerate(product.constants, 1)}
            name = f"convolution_{product.form}_{FLOATS[product.dtype.name]}"
            pipeline = product.kernel = self.backend.pipelines.shipped(name, constants)
        (x_at, x_place, _), (b_at, b_place, _), (out_at, out_place, _) = place(x), place(b), place(out)
        bias_at, reads = 0, [x_place, b_place]
        if bias is not None:
            bias_at, bias_place, _ = place(bias)
            reads.append(bias_place)
        data = ADDRESSES(x_at, b_at, out_at, bias_at) + product.parameters
        self.backend.commands.dispatch(pipeline, data, product.groups, reads, [out_place])

    def tiles(self, rows: int, columns: int, dtype: DType, *, tall: bool) -> list[Tile]:
        """As kernels.convolution.tiles, for this device."""
        if self._software:
            return [SOFTWARE if min(rows, columns) >= 32 else SOFTWARE_SMALL]
        limits = self.device.properties.limits
        threads, shared = int(limits.maxComputeWorkGroupInvocations), int(limits.maxComputeSharedMemorySize)
        return tiles(rows, columns, compute_dtype(dtype).itemsize, threads, shared, tall=tall)
