"""Matrix products: which variant, tile and pieces of k fit a device and a shape, and the launches.

What given layouts need is worked out once and kept as a plan. A result of few elements with many terms is computed in
pieces of k, which are added afterwards. How many pieces follows from the shape and the device alone, and the tile
does not change the order of the sum: so what a search finds quickest changes no bit of a result.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from ...dtypes import DType
from ...kernels.gemm import BATCH, BATCHED, FIELDS, REGISTER, REGISTER_WIDE, TILES, Access, Tile, pack_of, render_gemm
from ...rows.elementwise import TABLE as ROWS
from ...rows.kinds import compute_dtype
from ...rows.reductions import TABLE as REDUCTIONS
from ...view import Layout, View
from .axes import collapse, padded
from .parameters import BUFFER, Compiled, number, packed, struct_of
from .scratch import ViewTrial, drawn
from .tuning import Key, octave

if TYPE_CHECKING:
    from .backend import TextBackend

PRODUCT = struct_of(len(FIELDS) + BATCH * len(BATCHED))
SPEED = dict(zip(TILES, (1.0, 0.95, 0.87, 0.75, 0.63, 0.56), strict=True))  # on a full device: measured on an H200
UNIT = 8192  # elements of a result that keep one compute unit of a GPU busy
DEEP, PIECE = 2048, 256  # terms from which pieces of k pay for their sum, and the fewest of a piece
ALIGNED = 16  # terms of a piece are a multiple of this
WORTH = 1 << 27  # multiply-adds from which a search pays: what is smaller waits for its launch
LARGEST, MOST = 4096, 1 << 24  # sizes and elements of a search's operands
TRIED = 4  # candidates of a search
TOLERANCE = {2: 2e-2, 4: 2e-5, 8: 1e-13}  # by the bytes of a floating element
PLAN_LIMIT = 20_000  # a program with ever new shapes must not grow for ever


@dataclass(frozen=True)
class _Launch:
    """One launch: what the host passes but for offsets, how far they move, and whether the operands changed places."""

    kernel: Compiled
    threads: int  # of a group; 1 for the register variant
    tiles: int
    head: list[int]
    moved: tuple[int, int, int]
    tail: list[int]
    turned: bool


@dataclass(frozen=True)
class _Plan:
    """The launches of a product, and the dense pieces of k that they write, if there are several."""

    launches: list[_Launch]
    pieces: Layout | None


class Products:
    """The matrix products of one device.

    `shared` says that groups have memory of their own that is worth using, `shared_bytes` of it and `threads` at most.
    """

    def __init__(
        self, backend: TextBackend, *, shared: bool, shared_bytes: int, threads: int, fused: tuple[bool, bool]
    ) -> None:
        self._backend, self._shared, self._fused = backend, shared, fused
        self._most_threads, self._shared_bytes = threads, shared_bytes
        self._kernels: dict[tuple[DType, DType, Tile, Access], Compiled] = {}
        self._plans: dict[tuple[Any, ...], _Plan] = {}

    def gemm(self, out: View, a: View, b: View, *, alpha: float, beta: float) -> None:
        """out = alpha * a @ b + beta * out."""
        if not out.layout.size:
            return
        if alpha == 0 or not a.shape[-1]:  # nothing is read: NaN in a does not matter, as in BLAS
            self._scaled(out, beta)
            return
        key = (out.layout, a.layout, b.layout, out.offset % 4, a.offset % 4, b.offset % 4, beta == 0)
        plan = self._plans.get(key)
        if plan is None:
            if len(self._plans) > PLAN_LIMIT:
                self._plans.clear()
            plan = self._plans[key] = self._plan(out, a, b, kept=beta != 0)
        if plan.pieces is None:
            self._run(plan.launches, out, a, b, alpha, beta)
            return
        pieces = self._backend.allocate(plan.pieces)
        self._run(plan.launches, pieces, a, b, alpha, 0)
        self._backend.reduce(REDUCTIONS["sum"], (out,), pieces, (0,))

    def _scaled(self, out: View, beta: float) -> None:
        if beta == 0:
            self._backend.elementwise(ROWS["fill"], out, (), (0,))
        elif beta != 1:
            self._backend.elementwise(ROWS["scale"], out, (out,), (beta,))

    def _run(self, launches: list[_Launch], out: View, a: View, b: View, alpha: float, beta: float) -> None:
        queue, compute = self._backend.queue, compute_dtype(a.dtype)
        if not compute.is_floating or alpha != 1 or beta != 0:
            alpha, beta = number(alpha, compute), number(beta, compute)
        for launch in launches:
            left, right = (b, a) if launch.turned else (a, b)
            moved_out, moved_left, moved_right = launch.moved
            at = left.offset + moved_left, right.offset + moved_right, out.offset + moved_out
            fields = packed([*launch.head, *at, *launch.tail])
            memory = out.buffer.handle, left.buffer.handle, right.buffer.handle
            if launch.threads == 1:
                queue.launch(launch.kernel, launch.tiles, fields, *memory, alpha, beta)
            else:
                size = (launch.tiles * launch.threads,)
                queue.run(launch.kernel, size, (launch.threads,), (fields, *memory, alpha, beta))

    # plans
    def _plan(self, out: View, a: View, b: View, *, kept: bool) -> _Plan:
        """Pieces are not for a result that adds to what was there, nor for integers, which wrap as they are."""
        batch = out.shape[:-2]
        a, b = (x.expand((*batch, *x.shape[-2:])) for x in (a, b))
        parts = self._parts(out, a.shape[-1]) if out.dtype.is_floating and not kept else 1
        if parts > 1:
            pieces = Layout.of(compute_dtype(out.dtype), (parts, *out.shape))
            part = View(out.buffer, Layout.of(pieces.dtype, out.shape))  # its layout counts, not its memory
            tile = self._tile(part, a, b, parts)
            if tile.threads > 1:
                return _Plan(self._launches((part, a, b), parts, tile, turned=False), pieces)
        turned = out.strides[-1] != 1 and out.strides[-2] == 1  # the transposed product writes along rows
        if turned:
            last = (*range(len(batch)), out.ndim - 1, out.ndim - 2)
            out, a, b = (x.permute(last) for x in (out, b, a))
        return _Plan(self._launches((out, a, b), 1, self._tile(out, a, b, 1), turned=turned), None)

    def _parts(self, out: View, k: int) -> int:
        """Pieces of k, so that every compute unit has something to do."""
        parts = min(self._backend.units * UNIT // out.size, k // PIECE) if self._shared and k >= DEEP else 1
        return -(-k // _piece(k, parts)) if parts > 1 else 1

    def _launches(self, views: tuple[View, View, View], parts: int, tile: Tile, *, turned: bool) -> list[_Launch]:
        sizes, strides = collapse(views[0].shape[:-2], [v.strides[:-2] for v in views])
        return self._batches(views, sizes, strides, (0, 0, 0), parts, tile, turned)

    def _batches(
        self,
        views: tuple[View, View, View],
        sizes: list[int],
        strides: list[list[int]],
        moved: tuple[int, int, int],
        parts: int,
        tile: Tile,
        turned: bool,
    ) -> list[_Launch]:
        if len(sizes) > BATCH:  # more batch axes than a launch has: one an index of the outermost
            launches, steps = [], [s[0] for s in strides]
            for i in range(sizes[0]):
                at = (moved[0] + i * steps[0], moved[1] + i * steps[1], moved[2] + i * steps[2])
                launches += self._batches(views, sizes[1:], [s[1:] for s in strides], at, parts, tile, turned)
            return launches
        out, a, b = views
        m, n, k = out.shape[-2], out.shape[-1], a.shape[-1]
        access = self._access(views, strides, moved, tile)
        kernel = self._kernel(a.dtype, out.dtype, tile, access)
        out_batch, a_batch, b_batch = (padded(s, BATCH, 0) for s in strides)
        batches, piece = prod(sizes), _piece(k, parts)
        head = [m, n, piece, *a.strides[-2:], *b.strides[-2:], *out.strides[-2:]]
        tail = [batches, parts, k, m * n * batches, *padded(sizes, BATCH, 1), *a_batch, *b_batch, *out_batch]
        tiles = parts * batches * -(-m // tile.rows) * -(-n // tile.columns)
        return [_Launch(kernel, tile.threads, tiles, head, moved, tail, turned)]

    @staticmethod
    def _access(
        views: tuple[View, View, View], strides: list[list[int]], moved: tuple[int, int, int], tile: Tile
    ) -> Access:
        """How a tile's threads read and write these matrices."""
        if tile.threads == 1:
            return Access()
        out, a, b = views
        m, n, k = out.shape[-2], out.shape[-1], a.shape[-1]
        pack = pack_of(compute_dtype(a.dtype).itemsize)
        whole = [
            not ((v.offset + at) % pack or any(s % pack for s in steps))
            for v, at, steps in zip(views, moved, strides, strict=True)
        ]
        a_axis, a_packed = _side(a.strides[-2], a.strides[-1], m, k, tile.rows, pack)
        b_axis, b_packed = _side(b.strides[-1], b.strides[-2], n, k, tile.columns, pack)
        out_packed = whole[0] and out.strides[-1] == 1 and not (n % pack or (out.strides[-2] % pack and m > 1))
        return Access(a_axis, b_axis, a_packed and whole[1], b_packed and whole[2], out_packed)

    # tiles
    def _tile(self, out: View, a: View, b: View, parts: int) -> Tile:
        """The tile to use: by the table of speeds, or as a search found where it pays."""
        if not self._shared:
            return _register(a.dtype)
        m, n, k = out.shape[-2], out.shape[-1], a.shape[-1]
        batches = prod(out.shape[:-2])
        candidates = self._candidates(a.dtype, m, n, batches * parts)
        _, strides = collapse(out.shape[:-2], [v.strides[:-2] for v in (out, a, b)])
        access = self._access((out, a, b), strides, (0, 0, 0), candidates[0])
        if parts > 1 or m * n * k * batches < WORTH or "any" in (access.a, access.b):
            tile = candidates[0]
        else:
            sizes = [min(octave(x), LARGEST) for x in (m, n, k)]
            most = MOST // max(sizes[0] * sizes[1], sizes[1] * sizes[2], sizes[0] * sizes[2])
            count = min(octave(batches), max(1, most))
            key = Key("gemm", f"{access.name} {'x'.join(map(str, sizes))} by {count}", a.dtype.name)
            named = {tile.name: tile for tile in candidates[:TRIED]}
            tile = self._backend.tuner.choose(key, named, lambda: self._trial(a.dtype, access, sizes, count))
        if tile.threads > 1 and self._kernel(a.dtype, out.dtype, tile, access).limit < tile.threads:
            return _register(a.dtype)  # a group of this kernel has fewer threads than the tile needs
        return tile

    def _candidates(self, dtype: DType, m: int, n: int, count: int) -> list[Tile]:
        """Tiles that this device can run, the one first that should take the least time."""
        itemsize, units = compute_dtype(dtype).itemsize, self._backend.units

        def cost(tile: Tile) -> float:
            groups = count * -(-m // tile.rows) * -(-n // tile.columns)
            return -(-groups // units) * tile.rows * tile.columns / SPEED[tile]

        fitting = [
            tile
            for tile in TILES
            if tile.threads <= self._most_threads
            and tile.shared_bytes(itemsize) <= self._shared_bytes
            and tile.thread_rows * tile.thread_columns * itemsize <= 512  # bytes of a thread's sums, in registers
        ]
        return sorted(fitting, key=cost) or [_register(dtype)]

    def _trial(self, dtype: DType, access: Access, sizes: list[int], count: int) -> ViewTrial[Tile]:
        """Operands that are read and written in the same way: where packs do not fit, sizes are odd."""
        packed_all = access.a_packed and access.b_packed
        m, n, k = sizes if packed_all else [max(1, size - 1) for size in sizes]
        backend, made = self._backend, dict[Tile, list[_Launch]]()
        out = backend.allocate(Layout.of(dtype, (count, m, n)))
        a = drawn(backend, dtype, (count, m, k) if access.a == "deep" else (count, k, m), 1)
        b = drawn(backend, dtype, (count, n, k) if access.b == "deep" else (count, k, n), 2)
        a = a if access.a == "deep" else a.permute((0, 2, 1))
        b = b.permute((0, 2, 1)) if access.b == "deep" else b

        def run(tile: Tile) -> None:
            if tile not in made:
                made[tile] = self._launches((out, a, b), 1, tile, turned=False)
            self._run(made[tile], out, a, b, 1.0, 0.0)

        tolerance = TOLERANCE[dtype.itemsize] if dtype.is_floating else 0.0
        return ViewTrial(backend, out, run, backend.peek, tolerance=tolerance)

    def _kernel(self, dtype: DType, out: DType, tile: Tile, access: Access) -> Compiled:
        found = self._kernels.get((dtype, out, tile, access))
        if found is None:
            compute = compute_dtype(dtype)
            fused = compute.is_floating and self._fused[compute.itemsize == 8]
            text = render_gemm(
                self._backend.dialect, dtype, tile, shared=tile.threads > 1, fused=fused, access=access, out=out
            )
            kinds = [PRODUCT, BUFFER, BUFFER, BUFFER, compute.storage, compute.storage]
            found = self._kernels[dtype, out, tile, access] = self._backend.programs.kernel(text, kinds)
        return found


def _piece(k: int, parts: int) -> int:
    """Terms of a piece."""
    return k if parts <= 1 else -(-k // (parts * ALIGNED)) * ALIGNED


def _side(along: int, deep: int, size: int, k: int, rows: int, pack: int) -> tuple[str, bool]:
    """Which axis of an operand has its neighbours in memory, and whether its rows allow packs."""
    axis, leading, run, lines = ("deep", along, k, size) if deep == 1 or k == 1 else ("wide", deep, size, k)
    if (axis == "wide" and along != 1 and size != 1) or abs(leading) * rows >= 1 << 31:
        return "any", False
    return axis, not (run % pack or (leading % pack and lines > 1))


def _register(dtype: DType) -> Tile:
    """The part of the result that fits a thread's vector registers."""
    return REGISTER_WIDE if compute_dtype(dtype).itemsize == 8 else REGISTER
