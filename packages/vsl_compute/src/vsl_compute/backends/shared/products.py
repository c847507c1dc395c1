"""Matrix products: which variant and tile fits a device and a shape, and the launch."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from ...dtypes import DType
from ...kernels.gemm import BATCH, BATCHED, FIELDS, LARGE, NARROW, REGISTER, REGISTER_WIDE, SMALL, Tile, render_gemm
from ...kernels.shell import Kernel
from ...rows.elementwise import TABLE as ROWS
from ...rows.kinds import compute_dtype
from ...view import View
from .axes import collapse, padded
from .parameters import BUFFER, Compiled, number, packed, struct_of

if TYPE_CHECKING:
    from .backend import TextBackend

PRODUCT = struct_of(len(FIELDS) + BATCH * len(BATCHED))


class Products:
    """The matrix products of one device. `shared` says that groups have memory of their own that is worth using."""

    def __init__(self, backend: TextBackend, *, shared: bool, fused: tuple[bool, bool]) -> None:
        self._backend, self._shared, self._fused = backend, shared, fused
        self._kernels: dict[tuple[DType, Tile], Compiled] = {}

    def gemm(self, out: View, a: View, b: View, *, alpha: float, beta: float) -> None:
        """out = alpha * a @ b + beta * out."""
        if not out.size:
            return
        m, n, k = out.shape[-2], out.shape[-1], a.shape[-1]
        if alpha == 0 or not k:  # nothing is read: NaN in a does not matter, as in BLAS
            self._scaled(out, beta)
            return
        batch = out.shape[:-2]
        wide_a, wide_b = (x.expand((*batch, *x.shape[-2:])) for x in (a, b))
        sizes, strides = collapse(batch, [v.strides[:-2] for v in (out, wide_a, wide_b)])
        self._launch(out, a, b, (m, n, k), sizes, strides, (0, 0, 0), alpha, beta)

    def _scaled(self, out: View, beta: float) -> None:
        if beta == 0:
            self._backend.elementwise(ROWS["fill"], out, (), (0,))
        elif beta != 1:
            self._backend.elementwise(ROWS["scale"], out, (out,), (beta,))

    def _launch(self, out: View, a: View, b: View, shape: tuple[int, int, int], sizes: list[int], strides: list[list[int]],
                moved: tuple[int, int, int], alpha: float, beta: float) -> None:  # fmt: skip
        if len(sizes) > BATCH:  # more batch axes than a launch has: one an index of the outermost
            for i in range(sizes[0]):
                at = (moved[0] + i * strides[0][0], moved[1] + i * strides[1][0], moved[2] + i * strides[2][0])
                self._launch(out, a, b, shape, sizes[1:], [s[1:] for s in strides], at, alpha, beta)
            return
        m, n, k = shape
        batches = prod(sizes)
        tile = self._tile(out.dtype, m, n, batches)
        kernel = self._kernel(out.dtype, tile)
        if kernel.limit < tile.threads:  # fewer threads a group than the tile needs
            tile = _register(out.dtype)
            kernel = self._kernel(out.dtype, tile)
        (out_batch, a_batch, b_batch) = (padded(s, BATCH, 0) for s in strides)
        fields = [m, n, k, *a.strides[-2:], *b.strides[-2:], *out.strides[-2:], a.offset + moved[1], b.offset + moved[2],
                  out.offset + moved[0], batches, *padded(sizes, BATCH, 1), *a_batch, *b_batch, *out_batch]  # fmt: skip
        compute = compute_dtype(out.dtype)
        arguments: tuple[Any, ...] = (
            packed(fields),
            out.buffer.handle,
            a.buffer.handle,
            b.buffer.handle,
            number(alpha, compute),
            number(beta, compute),
        )
        tiles = batches * -(-m // tile.rows) * -(-n // tile.columns)
        queue = self._backend.queue
        if tile.threads == 1:
            queue.launch(kernel, tiles, *arguments)
        else:
            queue.run(kernel, (min(tiles, 1 << 20) * tile.threads,), (tile.threads,), arguments)

    def _tile(self, dtype: DType, m: int, n: int, batches: int) -> Tile:
        """The largest tile that still gives every compute unit something to do."""
        if not self._shared:
            return _register(dtype)
        for tile in (LARGE, SMALL):
            if (
                batches * -(-m // tile.rows) * -(-n // tile.columns) >= self._backend.units
                and min(m, n) > tile.rows // 2
            ):
                return tile
        return NARROW

    def _kernel(self, dtype: DType, tile: Tile) -> Compiled:
        found = self._kernels.get((dtype, tile))
        if found is None:
            compute = compute_dtype(dtype)
            fused = compute.is_floating and self._fused[compute.itemsize == 8]
            text: Kernel = render_gemm(self._backend.dialect, dtype, tile, shared=tile.threads > 1, fused=fused)
            kinds = [PRODUCT, BUFFER, BUFFER, BUFFER, compute.storage, compute.storage]
            found = self._kernels[dtype, tile] = self._backend.programs.kernel(text, kinds)
        return found


def _register(dtype: DType) -> Tile:
    """The part of the result that fits a thread's vector registers."""
    return REGISTER_WIDE if compute_dtype(dtype).itemsize == 8 else REGISTER
