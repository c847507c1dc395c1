"""Launching convolutions: tiles that fit the device, and a launch's arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...dtypes import DType
from ...kernels.convolution import Tile, fields, render_convolution, tiles
from ...rows.kinds import compute_dtype
from ..shared.convolution import Convolutions, Product
from ..shared.parameters import BUFFER, LONG, Compiled, struct_of

if TYPE_CHECKING:
    from ...view import View
    from .backend import OpenCLBackend

PARAMETERS = struct_of(len(fields()) // 2)  # of 32 bits each
KINDS = [PARAMETERS, BUFFER, LONG, BUFFER, LONG, BUFFER, LONG, BUFFER, LONG]


class ConvolutionLauncher:
    """The convolutions of one backend, in groups of at most `threads`; `fused` as in `render_convolution`, by float32 and float64."""

    def __init__(self, backend: OpenCLBackend, *, threads: int, shared_bytes: int, fused: tuple[bool, bool]) -> None:
        self.backend, self._threads, self._shared, self._fused = backend, threads, shared_bytes, fused
        self.ops = Convolutions(
            backend, self, busy=4 * backend.units if threads > 1 else backend.units, tuner=backend.tuner
        )
        self._kernels: dict[Any, Compiled] = {}

    def launch(self, product: Product, out: View, x: View, b: View, bias: View | None) -> None:
        """Enqueue one launch."""
        kernel = product.kernel
        if kernel is None:
            kernel = product.kernel = self._made(product)
        unused = b if bias is None else bias
        threads = product.tile.threads
        across, down, deep = product.groups
        arguments = (product.parameters, out.buffer.handle, out.offset, x.buffer.handle, x.offset, b.buffer.handle, b.offset,
                     unused.buffer.handle, unused.offset)  # fmt: skip
        self.backend.queue.run(kernel, (across * threads, down, deep), (threads, 1, 1), arguments)

    def _made(self, product: Product) -> Compiled:
        key = product.form, product.dtype, product.constants
        if key not in self._kernels:
            fused = self._fused[compute_dtype(product.dtype).itemsize == 8]
            text = render_convolution(product.form, product.dtype, product.constants, fused=fused)
            self._kernels[key] = self.backend.programs.kernel(text, KINDS)
        return self._kernels[key]

    def tiles(self, rows: int, columns: int, dtype: DType, *, tall: bool) -> list[Tile]:
        """As kernels.convolution.tiles, for this device."""
        return tiles(rows, columns, compute_dtype(dtype).itemsize, self._threads, self._shared, tall=tall)
