"""Steps of an LSTM and a GRU with several results, as primitives: one `update` of the contract, over gates that lie side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from ..errors import ShapeError
from ..rows.recurrent import GRU_STEP_BACK, LSTM_STEP, LSTM_STEP_BACK
from ..rows.row import Update
from ..rows.signature import Signature
from ..view import Layout, View
from .op import Attributes, Op


@lru_cache(4096)
def _narrow(layout: Layout, count: int) -> tuple[Layout, int]:
    """The layout of one of `count` parts of the last axis, and elements from one to the next."""
    width = layout.shape[-1] // count
    return Layout.of(layout.dtype, (*layout.shape[:-1], width), layout.strides), width * layout.strides[-1]


def _cut(view: View, count: int) -> list[View]:
    if count == 1:
        return [view]
    layout, step = _narrow(view.layout, count)
    return [View(view.buffer, layout, view.offset + k * step) for k in range(count)]


def _launch(row: Update, results: Sequence[int], given: Sequence[int]) -> Callable[..., None]:
    """The call of the contract; each array is so many parts of its op's output or argument."""

    def launch(backend: Any, outs: Sequence[View], views: Sequence[View], a: Attributes) -> None:
        arrays: list[View] = []
        for view, count in zip((*outs, *views), (*results, *given), strict=True):
            arrays += _cut(view, count)
        backend.update(row, (arrays,), ())

    return launch


def _step(row: Update, outputs: dict[str, int], args: dict[str, int]) -> Op:
    """`outputs` and `args` say of how many parts the last axis of each is made."""
    every = {**outputs, **args}
    assert sum(every.values()) == len(row.arrays)

    def infer(views: Sequence[View], a: Attributes) -> tuple[Layout, ...]:
        single = next(v for v, count in zip(views, args.values(), strict=True) if count == 1)
        batch, width = single.shape[:-1], single.shape[-1]
        for (name, count), view in zip(args.items(), views, strict=True):
            if len(view.shape) != 2 or view.shape != (*batch, count * width):
                raise ShapeError(f"{row.name}: {name} is {view.shape}; it must be {(*batch, count * width)}")
        return tuple(Layout.of(single.dtype, (*batch, count * width)) for count in outputs.values())

    signature = Signature.parse(f"{'f' * len(args)}>{'f' * len(outputs)}")
    launch = _launch(row, tuple(outputs.values()), tuple(args.values()))
    return Op(row.name, signature, tuple(args), tuple(outputs), infer=infer, launch=launch, primitive="update")


OPS = (
    _step(LSTM_STEP, {"c": 1, "h": 1}, {"gates": 4, "old": 1}),
    _step(LSTM_STEP_BACK, {"d": 4, "kept": 1}, {"p": 1, "e": 1, "gates": 4, "c": 1, "old": 1, "k": 1}),
    _step(GRU_STEP_BACK, {"dx": 3, "dy": 3, "direct": 1}, {"p": 1, "e": 1, "x": 3, "y": 3, "old": 1}),
)  # fmt: skip
