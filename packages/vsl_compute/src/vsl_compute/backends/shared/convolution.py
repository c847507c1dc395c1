"""conv2d, conv2d_input and conv2d_weight as products whose windows are never made, for backends that can launch the kernel.

A backend supplies a `Launcher`; what is said here is which views, sizes and strides each of the three ops hands to it. Results
are laid out channels-last, as the bodies lay them out. Weights are turned into a matrix first: they are small beside the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, Protocol

from ...dtypes import DType
from ...kernels.convolution import CONSTANTS, MOST, TAPS, WINDOWS, Axis, Tile, packed, phases
from ...rows.elementwise import TABLE as ROWS
from ...rows.kinds import compute_dtype
from ...rows.reductions import TABLE as REDUCTIONS
from ...view import Layout, Shape, View
from .axes import dense
from .scratch import ViewTrial, drawn
from .tuning import Key, Trial, Tuner, octave

Pair = tuple[int, int]
Geometry = tuple[Axis, Axis, int]  # of rows, of columns, groups of channels
ALL = slice(None)
MOST_GROUPS = 65535  # along y and z
SHORTEST = 128  # positions of a part, at least
FEW_PARTS, MOST_PARTS, FEW = 64, 256, 1 << 13  # parts of a sum, at most: more of them if the results are few
DEEPEST = 32  # positions that any tile holds at a time: parts are multiples, so that every tile adds up in one order
SEARCHED = 1 << 28  # multiply-adds from which a search for the quickest tile is worth its second
SCRATCH = 1 << 24  # elements of a search's operands


@dataclass(eq=False)
class Product:
    """One launch made ready: out = windows of x @ b (+ bias)."""

    form: str
    dtype: DType
    tile: Tile
    constants: tuple[int, ...]  # the values of CONSTANTS
    parameters: bytes
    groups: tuple[int, int, int]
    kernel: Any = None  # the backend's, once it has made it


class Launcher(Protocol):
    """What a backend does with a product."""

    def launch(self, product: Product, out: View, x: View, b: View, bias: View | None) -> None:
        """Enqueue it."""

    def tiles(self, rows: int, columns: int, dtype: DType, *, tall: bool) -> list[Tile]:
        """As kernels.convolution.tiles, for this device."""


class Convolutions:
    """The three ops of one backend, which besides the contract has `peek`, a download that is not counted.

    `busy` is how many tiles of 64 x 64 a device works on at a time.
    """

    def __init__(self, backend: Any, launcher: Launcher, *, busy: int, tuner: Tuner) -> None:
        self.backend, self.launcher, self.busy, self.tuner = backend, launcher, busy, tuner
        self._ready: dict[Any, Any] = {}  # products by layouts and options

    def overrides(self) -> dict[str, Callable[..., Any]]:
        """The ops by their names."""
        return {"conv2d": self.conv2d, "conv2d_input": self.conv2d_input, "conv2d_weight": self.conv2d_weight}

    def conv2d(
        self, x: View, weight: View, bias: View | None, *, stride: Pair, padding: Pair, dilation: Pair, groups: int
    ) -> Any:
        """y = x correlated with weight (+ bias)."""
        key = "conv2d", x.layout, weight.layout, stride, padding, dilation, groups
        found = self._ready.get(key)
        if found is None:
            down, across = (
                _axis(x.shape[2 + i], weight.shape[2 + i], stride[i], padding[i], dilation[i]) for i in (0, 1)
            )
            layout = _channels_last(x.dtype, (x.shape[0], weight.shape[0], down.positions, across.positions))
            found = self._kept(key, (_suits(x.layout, weight.layout, layout, groups), layout, down, across))
        suits, layout, down, across = found
        if not suits:
            return NotImplemented
        out = self.backend.allocate(layout)
        bias = bias if bias is None else dense(self.backend, bias)
        self._windows(out, x, dense(self.backend, weight.permute((2, 3, 1, 0))), bias, down, across, groups)
        return out

    def conv2d_input(
        self, g: View, weight: View, *, shape: Shape, stride: Pair, padding: Pair, dilation: Pair, groups: int
    ) -> Any:
        """What x receives: for each phase of the stride, g correlated with turned weights."""
        layout = _channels_last(g.dtype, shape)
        key = "conv2d_input", g.layout, weight.layout, shape, groups
        suits = self._ready.get(key)
        if suits is None:
            suits = self._kept(key, _suits(g.layout, weight.layout, layout, groups))
        if not suits:
            return NotImplemented
        out = self.backend.allocate(layout)
        filters, channels, *taps = weight.shape
        grouped = weight.reshape((groups, filters // groups, channels, *taps)).permute((3, 4, 1, 0, 2))
        parts: list[tuple[View, View | None, Axis, Axis]] = []
        for row in phases(shape[2], taps[0], stride[0], padding[0], dilation[0]):
            for column in phases(shape[3], taps[1], stride[1], padding[1], dilation[1]):
                part, seen, matrix = out, grouped, None
                if stride != (1, 1):
                    part = out.slice(ALL, ALL, slice(row.start, None, stride[0]), slice(column.start, None, stride[1]))
                    seen = grouped.slice(row.taps, column.taps)
                if row.axis.taps and column.axis.taps:
                    matrix = dense(self.backend, seen).reshape((*seen.shape[:3], shape[1]))
                parts.append((part, matrix, row.axis, column.axis))
        for part, matrix, down, across in parts:  # after all copies, so that these and the launches need not alternate
            if matrix is None:
                self.backend.elementwise(ROWS["fill"], part, (), (0,))
            else:
                self._windows(part, g, matrix, None, down, across, groups)
        return out

    def conv2d_weight(
        self, g: View, x: View, *, shape: Shape, stride: Pair, padding: Pair, dilation: Pair, groups: int
    ) -> Any:
        """What weight receives: positions are added up in parts side by side, and the parts in their order."""
        key = "conv2d_weight", g.layout, x.layout, x.offset & 3, shape, stride, padding, dilation, groups
        found = self._ready.get(key)
        if found is None:
            suits = _suits(g.layout, x.layout, Layout.of(x.dtype, shape), groups)
            most = min(_images(g.layout), _images(x.layout), (MOST - 1) // (g.shape[2] * g.shape[3]))
            axes = [Axis(g.shape[2 + i], shape[2 + i], stride[i], -padding[i], dilation[i]) for i in (0, 1)]
            found = self._kept(key, (suits and g.shape[0] <= most, shape[1] % 4 == 0 and not _whole(x), *axes))
        suits, turns, down, across = found
        if not suits:
            return NotImplemented
        g = self._last(g)
        if turns:
            x = self._last(x)
        product, parts = self._taps(g, x, shape, down, across, groups)
        compute = compute_dtype(x.dtype)
        held = self.backend.allocate(Layout.of(compute, (parts, *shape[2:], shape[1], shape[0])))
        self.launcher.launch(product, held, x, g, None)
        out = self.backend.allocate(Layout.of(x.dtype, shape))
        turned = out.permute((2, 3, 1, 0))
        if parts == 1:
            self.backend.copy(turned, held.slice(0))
            return out
        total = turned if compute is x.dtype else self.backend.allocate(Layout.of(compute, turned.shape))
        self.backend.reduce(REDUCTIONS["sum"], (total,), held, (0,))
        if total is not turned:
            self.backend.copy(turned, total)
        return out

    def _windows(self, out: View, x: View, b: View, bias: View | None, down: Axis, across: Axis, groups: int) -> None:
        """out = windows of x @ b, b being (P, Q, channels of a group, filters)."""
        aligned = x.offset & 3, out.offset & 3, b.offset & 3, None if bias is None else bias.offset & 3
        key = WINDOWS, out.layout, x.layout, b.layout, aligned, down, across, groups
        found: list[tuple[slice | None, Product]] | None = self._ready.get(key)
        if found is None:
            geometry = down, across, groups
            tile = self._tile(WINDOWS, x, out.shape[1], geometry, lambda: self._windows_trial(x, b, geometry))
            found = self._kept(key, list(_windows_ready(tile, out, x, b, bias, geometry)))
        for cut, product in found:
            if cut is None:
                self.launcher.launch(product, out, x, b, bias)
            else:
                self.launcher.launch(product, out.slice(cut), x.slice(cut), b, bias)

    def _taps(self, g: View, x: View, shape: Shape, down: Axis, across: Axis, groups: int) -> tuple[Product, int]:
        """The launch, and into how many parts it cuts the sum over positions; the cut is the same for every tile."""
        key = TAPS, g.layout, x.layout, g.offset & 3, x.offset & 3, down, across, groups
        found: tuple[Product, int] | None = self._ready.get(key)
        if found is None:
            geometry = down, across, groups
            chunk = self._chunk(x.shape[0], shape, geometry)
            tile = self._tile(TAPS, x, shape[0], geometry, lambda: self._taps_trial(x, shape, geometry))
            found = self._kept(key, _taps_ready(tile, g, x, shape[0], chunk, geometry))
        return found

    def _chunk(self, n: int, shape: Shape, geometry: Geometry) -> int:
        """Positions of one part: the parts of all tiles should fill the device, once or several times over."""
        down, across, groups = geometry
        rows, columns, positions = prod(shape[1:]), shape[0] // groups, n * down.positions * across.positions
        beside = -(-rows // 64) * -(-columns // 64) * groups
        most = MOST_PARTS if rows * columns * groups < FEW else FEW_PARTS
        waves = 1 if beside * 8 <= self.busy else 8  # of many, the last one, which is not full, weighs less
        parts = max(1, min(waves * self.busy // beside, most, positions // SHORTEST, MOST_GROUPS // groups))
        return -(-positions // (parts * DEEPEST)) * DEEPEST

    def _tile(self, form: str, x: View, filters: int, geometry: Geometry, trial: Callable[[], Trial[Tile]]) -> Tile:
        """The table's tile, or for large work what a search found quickest; all give the same bits."""
        down, across, groups = geometry
        positions, taps = x.shape[0] * down.positions * across.positions, x.shape[1] // groups * down.taps * across.taps
        rows, depth = (positions, taps) if form == WINDOWS else (taps, positions)
        found = self.launcher.tiles(rows, filters // groups, x.dtype, tall=form == WINDOWS and _whole(x))
        if len(found) == 1 or positions * taps * filters < SEARCHED:
            return found[0]
        shape = f"{octave(rows)}x{octave(filters // groups)}x{octave(depth)}, {groups} groups, {'vectors' if _whole(x) else 'elements'}"
        named = {
            f"{t.rows}x{t.columns}x{t.depth} by {t.thread_rows}x{t.thread_columns}{' twice' * t.double}": t
            for t in found
        }
        return self.tuner.choose(Key(f"convolution {form}", shape, x.dtype.name), named, trial)

    def _windows_trial(self, x: View, b: View, geometry: Geometry) -> Trial[Tile]:
        """The same geometry over scratch operands."""
        down, across, _ = geometry
        image = self._drawn_like(x, b.shape[3] * down.positions * across.positions)
        matrix = drawn(self.backend, x.dtype, b.shape, 1)
        out = self.backend.allocate(
            _channels_last(x.dtype, (image.shape[0], b.shape[3], down.positions, across.positions))
        )

        def run(tile: Tile) -> None:
            for cut, product in _windows_ready(tile, out, image, matrix, None, geometry):
                parts = (out, image) if cut is None else (out.slice(cut), image.slice(cut))
                self.launcher.launch(product, *parts, matrix, None)

        return ViewTrial(self.backend, out, run, self.backend.peek, tolerance=0.0)

    def _taps_trial(self, x: View, shape: Shape, geometry: Geometry) -> Trial[Tile]:
        """The same geometry over scratch operands."""
        down, across, _ = geometry
        image = self._drawn_like(x, shape[0] * down.positions * across.positions)
        n = image.shape[0]
        g = drawn(self.backend, x.dtype, (n, down.positions, across.positions, shape[0]), 1).permute((0, 3, 1, 2))
        chunk = self._chunk(n, shape, geometry)
        parts = -(-n * down.positions * across.positions // chunk)
        held = self.backend.allocate(Layout.of(compute_dtype(x.dtype), (parts, *shape[2:], shape[1], shape[0])))

        def run(tile: Tile) -> None:
            product, _ = _taps_ready(tile, g, image, shape[0], chunk, geometry)
            self.launcher.launch(product, held, image, g, None)

        return ViewTrial(self.backend, held, run, self.backend.peek, tolerance=0.0)

    def _drawn_like(self, x: View, results: int) -> View:
        """Images that lie as x's do, as many as scratch memory takes together with `results` elements for each."""
        n, c, h, w = x.shape
        n = max(1, min(n, SCRATCH // (c * h * w + results)))
        if _whole(x):
            return drawn(self.backend, x.dtype, (n, h, w, c), 0).permute((0, 3, 1, 2))
        return drawn(self.backend, x.dtype, (n, c, h, w), 0)

    def _kept(self, key: Any, value: Any) -> Any:
        if len(self._ready) > 10_000:  # ever new shapes must not grow for ever
            self._ready.clear()
        self._ready[key] = value
        return value

    def _last(self, x: View) -> View:
        """x if it lies channels-last without gaps, else a copy that does."""
        if x.layout is _channels_last(x.dtype, x.shape):
            return x
        return dense(self.backend, x.permute((0, 2, 3, 1))).permute((0, 3, 1, 2))


def _windows_ready(
    tile: Tile, out: View, x: View, b: View, bias: View | None, geometry: Geometry
) -> Iterator[tuple[slice | None, Product]]:
    """The launches of WINDOWS; the batch is cut where one cannot count on."""
    down, across, groups = geometry
    n, channels, columns = x.shape[0], x.shape[1] // groups, out.shape[1] // groups
    plane, depth = down.positions * across.positions, down.taps * across.taps * channels
    most = max(1, min(n, MOST_GROUPS * tile.rows // plane, _images(x.layout), _images(out.layout)))
    whole = columns % 4 == 0 and b.offset % 4 == 0
    constants = _constants(tile, down, across) | {
        "VECTOR_X": int(_whole(x) and channels % 4 == 0),
        "UNIFORM": int(channels % tile.depth == 0),
        "VECTOR_B": int(whole),
        "WHOLE": int(whole and _whole(out) and (bias is None or bias.offset % 4 == 0)),
        "BIAS": int(bias is not None),
    }
    for start in range(0, n, most):
        rows = min(most, n - start) * plane
        parameters = _parameters(x, channels, down, across) | {
            "rows": rows, "columns": columns, "depth": depth, "b_row": b.shape[3],
            "out_batch": out.strides[0], "out_row": out.strides[2], "out_column": out.strides[3],
        }  # fmt: skip
        count = (-(-columns // tile.columns), -(-rows // tile.rows), groups)
        cut = None if most == n else slice(start, start + most)
        yield cut, _product(WINDOWS, x.dtype, tile, constants, parameters, count)


def _taps_ready(tile: Tile, g: View, x: View, filters: int, chunk: int, geometry: Geometry) -> tuple[Product, int]:
    """The launch of TAPS, `chunk` positions a part, and how many parts that makes."""
    down, across, groups = geometry
    channels, columns = x.shape[1] // groups, filters // groups
    rows, depth = channels * down.taps * across.taps, g.shape[0] * down.positions * across.positions
    parts = -(-depth // chunk)
    constants = _constants(tile, down, across) | {
        "VECTOR_X": int(_whole(x) and channels % 4 == 0),
        "UNIFORM": int(across.positions % tile.depth == 0),
        "VECTOR_B": int(columns % 4 == 0 and g.offset % 4 == 0),
        "WHOLE": int(columns % 4 == 0),
        "BIAS": 0,
    }
    parameters = _parameters(x, channels, down, across) | {
        "rows": rows, "columns": columns, "depth": depth, "b_row": filters, "groups": groups, "chunk": chunk,
    }  # fmt: skip
    count = (-(-columns // tile.columns), -(-rows // tile.rows), parts * groups)
    return _product(TAPS, x.dtype, tile, constants, parameters, count), parts


def _axis(size: int, taps: int, step: int, padding: int, dilation: int) -> Axis:
    return Axis((size + 2 * padding - dilation * (taps - 1) - 1) // step + 1, taps, step, -padding, dilation)


def _whole(x: View) -> bool:
    """Whether channels are neighbours in memory and each position's begin at a multiple of four elements."""
    if x.strides[1] != 1 or x.offset % 4:
        return False
    return all(x.strides[a] % 4 == 0 or x.shape[a] == 1 for a in (0, 2, 3))


@lru_cache(1024)
def _channels_last(dtype: DType, shape: Shape) -> Layout:
    _, c, h, w = shape
    return Layout.of(dtype, shape, (h * w * c, 1, w * c, c))


def _images(x: Layout) -> int:
    """How many images of x a launch can address."""
    within = sum(abs(s) * (n - 1) for n, s in zip(x.shape[1:], x.strides[1:], strict=True))
    return max(0, MOST - 1 - within) // max(1, abs(x.strides[0]))


def _suits(a: Layout, b: Layout, out: Layout, groups: int) -> bool:
    """Whether there is something to add up, and each image, and a launch for the groups, can be counted; else it is the body's."""
    if not a.size or not b.size or not out.size or groups > MOST_GROUPS:
        return False
    return all(_images(x) > 0 and x.shape[2] * x.shape[3] < MOST for x in (a, b, out))


def _constants(tile: Tile, down: Axis, across: Axis) -> dict[str, int]:
    return {
        "BM": tile.rows, "BN": tile.columns, "BK": tile.depth, "TM": tile.thread_rows, "TN": tile.thread_columns,
        "COUNT": tile.threads, "DOUBLE": int(tile.double), "TAPS_ACROSS": across.taps,
        "STEP_H": down.step, "STEP_W": across.step, "DILATE_H": down.dilation, "DILATE_W": across.dilation,
    }  # fmt: skip


def _parameters(x: View, channels: int, down: Axis, across: Axis) -> dict[str, int]:
    batch, channel, row, column = x.strides
    return {
        "channels": channels, "width": across.positions, "plane": down.positions * across.positions,
        "x_batch": batch, "x_channel": channel, "x_row": row, "x_column": column,
        "x_height": x.shape[2], "x_width": x.shape[3], "first_row": down.first, "first_column": across.first,
    }  # fmt: skip


def _product(
    form: str,
    dtype: DType,
    tile: Tile,
    constants: dict[str, int],
    parameters: dict[str, int],
    groups: tuple[int, int, int],
) -> Product:
    return Product(form, dtype, tile, tuple(constants[name] for name in CONSTANTS), packed(parameters), groups)
