"""attention and attention_backward by kernels that store no weights, for backends that can launch them.

A backend supplies a `Launcher`; what is said here is which views, sizes and strides each of the three launches gets. What the
kernels do not have is the body's: float64, dropout, heads that fill no group's shared memory, batches of three axes or more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any, Protocol

from ...dtypes import bfloat16, float16, float32
from ...kernels.attention import (
    CONSTANTS,
    FORWARD,
    KEYS,
    MOST,
    NO_MASK,
    QUERIES,
    SUMMANDS,
    TRUTHS,
    Tile,
    packed,
)
from ...ops.primitives import broadcast_shapes
from ...rows.elementwise import TABLE as ROWS
from ...rows.reductions import TABLE as REDUCTIONS
from ...view import Layout, Shape, View, packed_strides
from .axes import collapse, dense, padded

STORED = (float32, float16, bfloat16)
MOST_BATCHES = 65535  # groups of one launch along y
KEYS_A_TURN = 8  # times the numbers of a head, of the smallest tile; measured forward: twice as many
Arrays = dict[str, View]  # by the kernel's names


@dataclass(eq=False)
class Launch:
    """One launch made ready, for arrays of these layouts."""

    form: str
    dtype: Any
    tile: Tile
    constants: tuple[int, ...]  # the values of CONSTANTS
    parameters: bytes
    groups: tuple[int, int]
    kernel: Any = field(default=None)  # the backend's, once it has made it


class Launcher(Protocol):
    """What a backend does with a launch."""

    def launch(self, launch: Launch, arrays: Arrays) -> None:
        """Enqueue it; arrays that its form does not have are missing."""

    def tiles(self, form: str, e: int, v: int) -> list[Tile]:
        """As kernels.attention.tiles, for this device."""


class Attentions:
    """The two ops of one backend.

    `fits` says whether scores of so many bytes are better made than not stored; `turns` is how many a thread's loops may make.
    """

    def __init__(
        self, backend: Any, launcher: Launcher, *, fits: Callable[[int], bool] = lambda nbytes: False, turns: int = MOST
    ) -> None:
        self.backend, self.launcher, self._fits, self._turns = backend, launcher, fits, turns
        self._ready: dict[Any, Launch] = {}

    def overrides(self) -> dict[str, Callable[..., Any]]:
        """The ops by their names."""
        return {"attention": self.attention, "attention_backward": self.attention_backward}

    def attention(
        self, q: View, k: View, v: View, mask: View | None, *, causal: bool, scale: float, dropout: float, **draws: Any
    ) -> Any:
        """y, and the logarithm of each row's sum."""
        batch = self._batch(q, k, v, mask, dropout)
        tiles = self._tiles((FORWARD,), q, v) if batch is not None else []
        if batch is None or not tiles:
            return NotImplemented
        y = self.like(q, (*batch, q.shape[-2], v.shape[-1]))
        lse = self.backend.allocate(Layout.of(float32, (*batch, q.shape[-2], 1)))
        arrays = self._given({"a": q, "c": k, "d": v}, mask)
        self._run(FORWARD, tiles[0], batch, arrays | {"to": y, "lse_of": lse}, scale, causal=causal)
        return y, lse

    def attention_backward(
        self, g: View, q: View, k: View, v: View, y: View, lse: View, mask: View | None, g_lse: View | None, *, causal: bool, scale: float,
        dropout: float, **draws: Any,
    ) -> Any:  # fmt: skip
        """What q, k and v receive, in the shape of the batch."""
        batch = self._batch(q, k, v, mask, dropout)
        tiles = self._tiles((QUERIES, KEYS), q, v) if batch is not None else []
        if batch is None or not tiles or g.shape[:-2] != batch:
            return NotImplemented
        both = {"lse_of": dense(self.backend, lse), "delta_of": self._delta(g, y, g_lse)}
        seen = self._given({"a": q, "b": g, "c": k, "d": v}, mask)
        dq = self.like(q, (*batch, *q.shape[-2:]))
        self._run(QUERIES, tiles[0], batch, seen | both | {"to": dq}, scale, causal=causal)
        turned = {"a": seen["c"], "b": seen["d"], "c": seen["a"], "d": seen["b"]}
        if mask is not None:
            turned["mask"] = seen["mask"].permute((*range(mask.ndim - 2), mask.ndim - 1, mask.ndim - 2))
        dk, dv = self.like(k, (*batch, *k.shape[-2:])), self.like(v, (*batch, *v.shape[-2:]))
        self._run(KEYS, tiles[1], batch, turned | both | {"to": dk, "more": dv}, scale, causal=causal)
        return dq, dk, dv

    def _batch(self, q: View, k: View, v: View, mask: View | None, dropout: float) -> Shape | None:
        """The batch's shape, or None for what is the body's."""
        if (
            q.dtype not in STORED
            or dropout
            or not (q.size and k.size and v.size)
            or (mask is not None and mask.ndim < 2)
        ):
            return None
        batch = broadcast_shapes("attention", q.shape[:-2], k.shape[:-2], v.shape[:-2])
        count, (length, e), (keys, value) = prod(batch), q.shape[-2:], v.shape[-2:]
        if sum(n != 1 for n in batch) > 2 or count > MOST_BATCHES or self._fits(4 * count * length * keys):
            return None
        if max(length, keys) * (e + value) > KEYS_A_TURN * self._turns:
            return None
        largest = max(count * max(length, keys) * max(e, value), *(_span(x) for x in (q, k, v, mask) if x is not None))
        return batch if largest < MOST else None

    def _tiles(self, forms: tuple[str, ...], q: View, v: View) -> list[Tile]:
        """The first tile of each form, or none at all."""
        found = [self.launcher.tiles(form, q.shape[-1], v.shape[-1]) for form in forms]
        return [tiles[0] for tiles in found] if all(found) else []

    def like(self, x: View, shape: Shape) -> View:
        """A fresh dense array whose axes are nested as those of x are, so that heads that are turned back join again."""
        if x.shape[:-2] != shape[:-2] or 0 in x.strides[:-2] or x.strides[-1] != 1:
            return self.backend.allocate(Layout.of(x.dtype, shape))  # type: ignore[no-any-return]
        return self.backend.allocate(Layout.of(x.dtype, shape, packed_strides(shape, x.strides)))  # type: ignore[no-any-return]

    def _given(self, arrays: Arrays, mask: View | None) -> Arrays:
        """With heads whose elements are neighbours, and a mask of bytes or float32."""
        found = {
            name: x if x.strides[-1] == 1 or x.shape[-1] == 1 else dense(self.backend, x) for name, x in arrays.items()
        }
        if mask is not None and mask.dtype.kind != "b" and mask.dtype is not float32:
            wide = self.backend.allocate(mask.layout.like(float32))
            self.backend.copy(wide, mask)
            mask = wide
        return found if mask is None else found | {"mask": mask}

    def _delta(self, g: View, y: View, g_lse: View | None) -> View:
        """sum(g y) of each query, less what its logarithm receives."""
        wide = []
        for x in (g, y):
            if x.dtype is not float32:
                fresh = self.backend.allocate(x.layout.like(float32))
                self.backend.copy(fresh, x)
                x = fresh
            wide.append(x)
        product = self.backend.allocate(Layout.of(float32, g.shape))
        self.backend.elementwise(ROWS["multiply"], product, wide, ())
        delta: View = self.backend.allocate(Layout.of(float32, g.shape[:-1]))
        self.backend.reduce(REDUCTIONS["sum"], (delta,), product, (g.ndim - 1,))
        if g_lse is not None:
            self.backend.elementwise(
                ROWS["subtract"], delta, (delta, dense(self.backend, g_lse).reshape(delta.shape)), ()
            )
        return delta

    def _run(self, form: str, tile: Tile, batch: Shape, arrays: Arrays, scale: float, *, causal: bool) -> None:
        aligned = tuple(x.offset & 3 for x in arrays.values())
        key = form, tile, batch, tuple((name, x.layout) for name, x in arrays.items()), aligned, scale, causal
        launch = self._ready.get(key)
        if launch is None:
            if len(self._ready) > 10_000:  # ever new shapes must not grow for ever
                self._ready.clear()
            launch = self._ready[key] = _ready(form, tile, batch, arrays, scale, causal=causal)
        self.launcher.launch(launch, arrays)


def _ready(form: str, tile: Tile, batch: Shape, arrays: Arrays, scale: float, *, causal: bool) -> Launch:
    own, other = arrays["a"], arrays["c"]
    rows, columns, e, v = own.shape[-2], other.shape[-2], own.shape[-1], arrays["d"].shape[-1]
    mask = arrays.get("mask")
    whole = {
        "WHOLE_E": [arrays["a"], arrays["c"], *([arrays["to"]] if form != FORWARD else [])],
        "WHOLE_V": [arrays[n] for n in ("b", "d", *(("to",) if form == FORWARD else ("more",))) if n in arrays],
    }
    constants = {
        "BM": tile.rows, "BN": tile.columns, "TM": tile.thread_rows, "TN": tile.thread_columns, "COUNT": tile.threads, "E": e, "V": v,
        "CAUSAL": int(causal), "MASK": NO_MASK if mask is None else TRUTHS if mask.dtype.kind == "b" else SUMMANDS,
        **{name: int(all(_fours(x) for x in views)) for name, views in whole.items()},
    }  # fmt: skip
    strided = [name for name in ("a", "b", "c", "d", "to", "more", "mask") if name in arrays]
    seen = {name: arrays[name].expand((*batch, *arrays[name].shape[-2:])) for name in strided}
    sizes, strides = collapse(batch, [seen[name].strides[:-2] for name in strided], reorder=False)
    outer, inner = padded(sizes, 2, 1)
    parameters: dict[str, float] = {"rows": rows, "columns": columns, "inner": inner, "scale": scale}
    for name, steps in zip(strided, strides, strict=True):
        parameters[f"{name}_outer"], parameters[f"{name}_inner"] = padded(steps, 2, 0)
        parameters[f"{name}_row"] = 0 if seen[name].shape[-2] == 1 else seen[name].strides[-2]
    if mask is not None:
        wide = mask.expand((*mask.shape[:-2], rows, columns))
        parameters["mask_row"], parameters["mask_column"] = wide.strides[-2:]
    groups = -(-rows // tile.rows), outer * inner
    return Launch(form, own.dtype, tile, tuple(constants[n] for n in CONSTANTS), packed(parameters), groups)


def _fours(x: View) -> bool:
    """Whether four neighbours are one load: rows begin at multiples of four elements."""
    return (
        x.shape[-1] % 4 == 0
        and not x.offset & 3
        and all(s % 4 == 0 or n == 1 for n, s in zip(x.shape[:-1], x.strides[:-1], strict=True))
    )


def _span(x: View) -> int:
    """Elements from the first to the last that a view addresses."""
    return 1 + sum((n - 1) * abs(s) for n, s in zip(x.shape, x.strides, strict=True))
