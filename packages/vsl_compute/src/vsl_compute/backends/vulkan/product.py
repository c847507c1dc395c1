"""Launching matrix products: tiles by the size of the result, transposes by strides, batches as the launch's third axis."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...dtypes import DType, int32
from ...rows.elementwise import TABLE
from ...view import Layout, View
from ..shared.axes import collapse
from .indexing import FLOATS, WIDE
from .launch import place

if TYPE_CHECKING:
    from .backend import VulkanBackend

Tile = tuple[int, int, int, int, int]  # BM, BN, BK, TM, TN
SOFTWARE: Tile = (
    32,
    64,
    8,
    8,
    8,
)  # groups of 32 threads: see Device.group_size; three times the smaller tile's speed, but slow to compile
SOFTWARE_SMALL: Tile = (32, 16, 8, 4, 4)
SMALL: Tile = (32, 32, 16, 4, 4)
MIDDLE: Tile = (64, 64, 16, 8, 8)
LARGE: Tile = (128, 128, 8, 8, 8)
MOST_GROUPS = 65535
MOST = MOST_GROUPS * 16  # rows and columns of one launch, by the narrowest tile


class Products:
    """gemm of one backend."""

    def __init__(self, backend: VulkanBackend) -> None:
        self.backend, self.device, self.commands = backend, backend.device, backend.commands

    def gemm(self, out: View, a: View, b: View, alpha: float, beta: float) -> None:
        """out = alpha * a @ b + beta * out."""
        if not out.size:
            return
        backend = self.backend
        if alpha == 0 or not a.shape[-1]:  # nothing is read: NaN in a does not matter, as in BLAS
            if beta == 0:
                backend.elementwise(TABLE["fill"], out, (), (0,))
            elif beta != 1:
                backend.elementwise(TABLE["scale"], out, (out,), (beta if out.dtype.is_floating else int(beta),))
            return
        m, n = out.shape[-2:]
        if max(m, n) > MOST:
            for i in range(0, m, MOST):
                for j in range(0, n, MOST):
                    rows, columns = slice(i, i + MOST), slice(j, j + MOST)
                    self.gemm(
                        _part(out, rows, columns),
                        _part(a, rows, slice(None)),
                        _part(b, slice(None), columns),
                        alpha,
                        beta,
                    )
            return
        if not out.dtype.is_floating and out.dtype.itemsize < 4:
            self._apart(out, a, b, alpha, beta, int32)
            return
        if out.strides[-1] != 1 and out.strides[-2] == 1 and out.shape[-1] != 1:
            self.gemm(_turned(out), _turned(b), _turned(a), alpha, beta)
            return
        if out.strides[-1] != 1 and out.shape[-1] != 1:
            self._apart(out, a, b, alpha, beta, out.dtype)
            return
        self._batches(out, self._matrix(a), self._matrix(b), alpha, beta)

    def _apart(self, out: View, a: View, b: View, alpha: float, beta: float, dtype: DType) -> None:
        """Through arrays of another dtype or of unit stride."""
        backend, made = self.backend, []
        for view, read in ((out, beta != 0), (a, True), (b, True)):
            if view is not out and view.dtype is dtype:
                made.append(view)
                continue
            fresh = backend.allocate(Layout.of(dtype, view.shape))
            if read:
                backend.copy(fresh, view)
            made.append(fresh)
        self.gemm(made[0], made[1], made[2], alpha, beta)
        backend.copy(out, made[0])

    def _matrix(self, x: View) -> View:
        """x if one of its last two axes has unit stride and the other does not go backwards, else a copy."""
        row, column = x.strides[-2:]
        m, n = x.shape[-2:]
        if ((column == 1 or n == 1) and (row >= 0 or m == 1)) or ((row == 1 or m == 1) and (column >= 0 or n == 1)):
            return x
        fresh = self.backend.allocate(Layout.of(x.dtype, x.shape))
        self.backend.copy(fresh, x)
        return fresh

    def _batches(self, out: View, a: View, b: View, alpha: float, beta: float) -> None:
        """Collapse the batch axes; the innermost goes along z, the others launch by launch."""
        lead = out.shape[:-2]
        strides = [out.strides[:-2], _batch_strides(a, lead), _batch_strides(b, lead)]
        sizes, (o, p, q) = collapse(lead, strides)
        inner = sizes[-1] if sizes else 1
        outer = sizes[:-1]
        total = 1
        for n in outer:
            total *= n
        for number in range(total):
            at, rest = [out.offset, a.offset, b.offset], number
            for d in reversed(range(len(outer))):
                rest, j = divmod(rest, outer[d])
                at = [at[0] + j * o[d], at[1] + j * p[d], at[2] + j * q[d]]
            steps = (o[-1], p[-1], q[-1]) if sizes else (0, 0, 0)
            for start in range(0, inner, MOST_GROUPS):
                moved = [x + start * s for x, s in zip(at, steps, strict=True)]
                self._launch((out, a, b), moved, steps, min(MOST_GROUPS, inner - start), alpha, beta)

    def _launch(
        self, views: Sequence[View], at: Sequence[int], steps: Sequence[int], batch: int, alpha: float, beta: float
    ) -> None:
        out, a, b = views
        item, dtype = out.dtype.itemsize, out.dtype
        m, n, k = out.shape[-2], out.shape[-1], a.shape[-1]
        turn_a, lda = _leading(a)
        turn_b, ldb = _leading(b)
        ldc = out.strides[-2] if m > 1 else n
        tile = self._tile(m, n, k, batch, dtype)
        bm, bn, bk, tm, tn = tile
        addresses = [v.buffer.handle.address + place * item for v, place in zip((out, a, b), at, strict=True)]
        whole = [_whole(x, lead, step, item) for x, lead, step in zip(addresses, (ldc, lda, ldb), steps, strict=True)]
        inner_a, inner_b = (m if turn_a else k), (k if turn_b else n)
        vector = 0
        if whole[1] and whole[2] and inner_a % 4 == 0 and inner_b % 4 == 0:
            vector = 1 if m % bm == 0 and n % bn == 0 and k % bk == 0 else 2
        count = (bm // tm) * (bn // tn)
        constants = {0: count, 1: bm, 2: bn, 3: bk, 4: tm, 5: tn, 6: turn_a, 7: turn_b, 8: vector, 9: count,
                     10: int(whole[0] and n % 4 == 0)}  # fmt: skip
        name = FLOATS.get(dtype.name, WIDE[item])
        pipeline = self.backend.pipelines.shipped(f"gemm_{name}", constants)
        numbers = (alpha, beta)
        form = "d" if name == "f64" else "f" if dtype.is_floating else "Q" if item == 8 else "I"
        if not dtype.is_floating:
            numbers = tuple(int(x) & ((1 << 8 * item) - 1) for x in numbers)  # type: ignore[assignment]
        byte_steps = [(s * item) & 0xFFFFFFFFFFFFFFFF for s in (steps[1], steps[2], steps[0])]
        data = struct.pack(
            f"<QQQQQQ{form}{form}IIIIII",
            addresses[1],
            addresses[2],
            addresses[0],
            *byte_steps,
            *numbers,
            m,
            n,
            k,
            lda,
            ldb,
            ldc,
        )
        reads = [place(a)[1], place(b)[1], *([place(out)[1]] if beta else [])]
        across, down = -(-n // bn), -(-m // bm)
        self.commands.dispatch(pipeline, data, (across, down, batch), reads, [place(out)[1]])

    def _tile(self, m: int, n: int, k: int, batch: int, dtype: DType) -> Tile:
        """The tile for a result's size; measured on an H200 for float32."""
        if self.device.kind == "software":
            return (
                SOFTWARE if min(m, n) >= 32 and m * n * k * batch >= 1 << 21 and dtype.is_floating else SOFTWARE_SMALL
            )
        tiles = -(-m // 128) * -(-n // 128) * batch
        if dtype.itemsize < 8 and min(m, n) >= 128 and tiles >= 128:
            return LARGE
        return MIDDLE if min(m, n) >= 64 and dtype.itemsize < 8 else SMALL


def _whole(address: int, leading: int, step: int, itemsize: int) -> bool:
    """Whether every row and batch of a matrix begins at a multiple of four elements."""
    return address % (4 * itemsize) == 0 and leading % 4 == 0 and step % 4 == 0


def _part(x: View, rows: slice, columns: slice) -> View:
    return x.slice(*(slice(None),) * (x.ndim - 2), rows, columns)


def _turned(x: View) -> View:
    return x.permute((*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def _leading(x: View) -> tuple[int, int]:
    """Whether the matrix is stored with its first axis innermost, and the stride of the other axis."""
    row, column = x.strides[-2:]
    m, n = x.shape[-2:]
    if (column == 1 or n == 1) and (row >= 0 or m == 1):
        return 0, row if m > 1 else max(1, n)
    return 1, column if n > 1 else max(1, m)


def _batch_strides(x: View, lead: tuple[int, ...]) -> tuple[int, ...]:
    strides = tuple(0 if n == 1 else s for n, s in zip(x.shape[:-2], x.strides[:-2], strict=True))
    return (0,) * (len(lead) - len(strides)) + strides
