"""Copies that turn rows into columns: which copies are such, for kernels that go through a tile in shared memory.

Read one way such a copy's lines lie apart in memory, written the other way too; a tile is read along the one and written
along the other, so that neighbours stay together in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

TILE = 32  # rows and columns
LEAST = 16  # of both, below which most of a tile would be empty


class Turn(NamedTuple):
    """out[b, i, j] = x[b, i, j], where out's neighbours are along j and x's along i; steps count elements."""

    batch: int
    rows: int
    columns: int
    out_batch: int
    out_row: int
    x_batch: int
    x_column: int

    @property
    def across(self) -> int:
        """Tiles side by side."""
        return -(-self.columns // TILE)

    @property
    def tiles(self) -> int:
        """Of one batch."""
        return self.across * -(-self.rows // TILE)


def turn_of(sizes: Sequence[int], strides: Sequence[Sequence[int]]) -> Turn | None:
    """The copy of collapsed axes, out's strides and x's, if it is such."""
    out, x = strides
    if not 2 <= len(sizes) <= 3 or out[-1] != 1 or sizes[-1] < LEAST or x[-1] <= 1:
        return None
    for row in range(len(sizes) - 1):
        if x[row] == 1 and sizes[row] >= LEAST:
            others = [axis for axis in range(len(sizes) - 1) if axis != row]
            batch, out_batch, x_batch = (sizes[others[0]], out[others[0]], x[others[0]]) if others else (1, 0, 0)
            found = Turn(batch, sizes[row], sizes[-1], out_batch, out[row], x_batch, x[-1])
            return found if min(out_batch, x_batch, out[row]) >= 0 and batch * found.tiles < 1 << 31 else None
    return None
