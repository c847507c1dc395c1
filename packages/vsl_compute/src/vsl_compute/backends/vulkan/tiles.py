"""Which tile of the product kernel fits a device and a shape: a table of tiles, and one rule that estimates their times."""

from __future__ import annotations

from typing import NamedTuple

PARTS = (1, 2, 4, 8, 16, 32, 64)  # into which k may be cut
SHORTEST_PART = 256  # k's of a part that are worth a launch of their own
JOIN_S, JOIN_BYTES = 8e-6, 1.5e12  # what adding partial products up takes: at least, and bytes a second
TILE_S = 0.5e-6  # what fetching and using one tile of k takes at least


class Tile(NamedTuple):
    """One variant of gemm.comp: a group's share of the result and of k, and a thread's share of that."""

    rows: int
    columns: int
    depth: int
    down: int  # results of a thread, both multiples of four
    across: int
    buffers: int = 1
    width: int = 8  # threads across in a block of 32
    teams: int = 1  # that share a tile's k's

    @property
    def threads(self) -> int:
        """Of a group."""
        return self.teams * (self.rows // self.down) * (self.columns // self.across)

    @property
    def constants(self) -> dict[int, int]:
        """The kernel's, by id."""
        return {0: self.threads, 1: self.rows, 2: self.columns, 3: self.depth, 4: self.down, 5: self.across,
                9: self.threads, 11: self.buffers, 12: self.width, 13: self.teams}  # fmt: skip

    def shared_bytes(self, itemsize: int) -> int:
        """Of a group, numbers being `itemsize` bytes each."""
        tiles = self.buffers * self.depth * (self.rows + self.columns + 8)
        return itemsize * max(tiles, self.rows * self.columns if self.teams > 1 else 0)

    def groups(self, m: int, n: int, batch: int) -> int:
        """Of a launch."""
        return -(-m // self.rows) * -(-n // self.columns) * batch


class UnitTile(NamedTuple):
    """One variant of gemm_units.comp: a group's share of the result and of k, and a subgroup's share of the result."""

    rows: int
    columns: int
    depth: int
    down: int  # results of a subgroup, both multiples of 16
    across: int

    @property
    def threads(self) -> int:
        """Of a group."""
        return 32 * (self.rows // self.down) * (self.columns // self.across)

    @property
    def constants(self) -> dict[int, int]:
        """The kernel's, by id."""
        return {
            0: self.threads,
            1: self.rows,
            2: self.columns,
            3: self.depth,
            4: self.down,
            5: self.across,
            9: self.threads,
        }

    def shared_bytes(self, itemsize: int) -> int:
        """Of a group, in the layout of operands that takes most; elements have two bytes, whatever sums have."""
        sides = (self.rows, self.columns)
        along = (side * (self.depth + 8) for side in sides), (self.depth * (side + 8) for side in sides)
        leaving = self.threads // 32 * 16 * (self.across + 8)  # rows of results, once the operands are done with
        return 2 * max(sum(max(pair) for pair in zip(*along, strict=True)), leaving)

    def groups(self, m: int, n: int, batch: int) -> int:
        """Of a launch."""
        return m // self.rows * (n // self.columns) * batch

    def divides(self, m: int, n: int, k: int) -> bool:
        """Whether it takes a product of these sizes: there are no edges."""
        return not (m % self.rows or n % self.columns or k % self.depth)


class Room(NamedTuple):
    """What a device gives a group, and how many groups it takes to keep it busy."""

    kind: str
    threads: int
    shared_bytes: int

    def holds(self, tile: Tile | UnitTile, itemsize: int) -> bool:
        """Whether a group of this tile can be launched, and its sums stay in registers."""
        sums = tile.down * tile.across * itemsize if isinstance(tile, Tile) else 0
        return tile.threads <= self.threads and tile.shared_bytes(itemsize) <= self.shared_bytes and sums <= 512

    @property
    def units(self) -> int:
        """Groups that run side by side: the multiprocessors of a large GPU; Vulkan does not tell the number."""
        return {"discrete": 132, "integrated": 24}.get(self.kind, 2)

    @property
    def join_threads(self) -> int:
        """Of a group of gemm_join."""
        return 32 if self.kind == "software" else min(256, self.threads)


class Choice(NamedTuple):
    """A tile, and the parts that k is cut into."""

    tile: Tile | UnitTile
    parts: int

    @property
    def by_units(self) -> bool:
        """Whether it takes the device's matrix units."""
        return isinstance(self.tile, UnitTile)

    @property
    def name(self) -> str:
        """What it is called where choices are kept."""
        return f"{'units ' if self.by_units else ''}{'x'.join(map(str, self.tile))} in {self.parts}"

    @property
    def order(self) -> tuple[int, ...]:
        """Choices of equal order add the terms of a sum alike, and give equal bits; those by units differ in the last ones."""
        if isinstance(self.tile, UnitTile):
            return ()
        return self.parts, self.tile.teams, self.tile.depth if self.tile.teams > 1 or self.parts > 1 else 0


class Rate(NamedTuple):
    """TFLOP/s in float32 of a tile on an H200 at the size that suits it: whole vectors of both operands, and single elements."""

    tile: Tile
    fours: float
    ones: float


# The quickest of some 40 variants at 256 to 4097 in all transposes; cuBLAS has 51 at 4096 and 38 at 1024.
RATES = (
    Rate(Tile(128, 256, 16, 8, 16), 47.5, 36.0),
    Rate(Tile(128, 256, 8, 8, 16, buffers=2), 44.5, 42.2),
    Rate(Tile(128, 128, 8, 16, 8, buffers=2), 46.0, 41.2),
    Rate(Tile(128, 128, 16, 8, 8), 44.2, 41.0),
    Rate(Tile(128, 128, 8, 8, 8), 41.5, 41.8),
    Rate(Tile(64, 128, 32, 8, 8, teams=2), 41.4, 32.5),
    Rate(Tile(128, 64, 32, 8, 8, teams=2), 39.0, 32.8),
    Rate(Tile(64, 64, 32, 8, 8, teams=2), 38.1, 30.9),
    Rate(Tile(64, 64, 32, 8, 8, teams=4), 37.0, 29.0),
    Rate(Tile(32, 64, 32, 4, 8, buffers=2, teams=2), 22.0, 18.0),
    Rate(Tile(64, 32, 32, 8, 4, buffers=2, teams=2), 21.7, 18.0),
    Rate(Tile(32, 32, 32, 4, 4, buffers=2, teams=2), 20.0, 16.0),
    Rate(Tile(32, 16, 32, 4, 4, width=4, teams=4), 16.0, 12.0),
    Rate(Tile(16, 64, 64, 4, 4, teams=4), 17.0, 12.0),
    Rate(Tile(32, 32, 16, 4, 4), 15.0, 12.0),
)


class UnitRate(NamedTuple):
    """TFLOP/s in float16 of a tile for matrix units on an H200 at 4096, for each way that a and b may lie; cuBLAS has 740."""

    tile: UnitTile
    nn: float
    nt: float
    tn: float
    tt: float


UNIT_RATES = (
    UnitRate(UnitTile(128, 256, 32, 64, 64), 321.0, 291.0, 343.0, 303.0),
    UnitRate(UnitTile(256, 128, 32, 64, 64), 309.0, 292.0, 342.0, 316.0),
    UnitRate(UnitTile(128, 128, 32, 64, 64), 302.0, 285.0, 327.0, 304.0),
    UnitRate(UnitTile(128, 128, 64, 64, 32), 282.0, 287.0, 292.0, 280.0),
    UnitRate(UnitTile(64, 128, 32, 32, 64), 207.0, 174.0, 223.0, 183.0),
    UnitRate(UnitTile(64, 64, 64, 32, 32), 175.0, 175.0, 175.0, 172.0),
)
# llvmpipe: groups of 32 threads, since its barriers cost by the thread; the larger has three times the speed of the
# smaller, but is slow to compile
SOFTWARE = Tile(32, 64, 8, 8, 8)
SOFTWARE_SMALL = Tile(32, 16, 8, 4, 4, width=4)
TILES = (SOFTWARE, SOFTWARE_SMALL, *(rate.tile for rate in RATES))


def choices(room: Room, itemsize: int, m: int, n: int, k: int, batch: int, *, fours: bool) -> list[Choice]:
    """What suits a product of numbers of `itemsize` bytes, by estimated time; `fours` says that operands are read as whole vectors."""
    if room.kind == "software":
        wide = min(m, n) >= 32 and m * n * k * batch >= 1 << 21 and itemsize == 4
        return [Choice(SOFTWARE if wide else SOFTWARE_SMALL, 1)]
    found = [
        (_seconds(room, rate.tile, rate.fours if fours else rate.ones, parts, m, n, k, batch), number, Choice(rate.tile, parts))
        for number, rate in enumerate(RATES)
        if room.holds(rate.tile, itemsize)
        for parts in PARTS
        if parts == 1 or (k >= parts * SHORTEST_PART and rate.tile.groups(m, n, batch) <= room.units)
    ]  # fmt: skip
    return [choice for _, _, choice in sorted(found)] or [Choice(SOFTWARE_SMALL, 1)]


def unit_choices(room: Room, sides: str, m: int, n: int, k: int, batch: int) -> list[Choice]:
    """What matrix units can do of a product of 16-bit floats that lie so, by estimated time."""
    found = []
    for number, rate in enumerate(UNIT_RATES):
        tile, tflops = rate.tile, float(getattr(rate, sides))
        few = tile.groups(m, n, batch) <= room.units
        for parts in PARTS if few else (1,):
            fits = room.holds(tile, 2) and k % parts == 0 and tile.divides(m, n, k // parts)
            if fits and (parts == 1 or k >= parts * SHORTEST_PART):
                found.append((_seconds(room, tile, tflops, parts, m, n, k, batch), number, Choice(tile, parts)))
    return [choice for _, _, choice in sorted(found)]


def _seconds(room: Room, tile: Tile | UnitTile, tflops: float, parts: int, m: int, n: int, k: int, batch: int) -> float:
    """Whole rounds of groups, each at the tile's rate, and a pass over partial products."""
    rounds = -(-tile.groups(m, n, batch) * parts // room.units)
    steps = -(-k // (parts * tile.depth))
    busy = rounds * tile.rows * tile.columns * 2 * tile.depth * room.units / (tflops * 1e12)
    time = steps * max(busy, TILE_S)
    return time if parts == 1 else time + JOIN_S + (parts + 1) * m * n * batch * 4 / JOIN_BYTES


def vector_shape(room: Room, *, turn: bool) -> tuple[int, int]:
    """Lanes and rows of a group of gemv.comp; llvmpipe's must not wait for one another."""
    if room.kind == "software":
        return (32, 1) if turn else (1, 32)
    return (16, 16) if turn else (64, 4)


def vector_parts(room: Room, m: int, k: int, batch: int, *, turn: bool) -> int:
    """Parts to cut k into where m alone is too short to keep a device busy."""
    if room.kind == "software":
        return 1
    lanes, rows = vector_shape(room, turn=turn)
    groups = batch * -(-m // (4 * lanes if turn else rows))
    return max(1, min(4 * room.units // groups, k // SHORTEST_PART, PARTS[-1]))
