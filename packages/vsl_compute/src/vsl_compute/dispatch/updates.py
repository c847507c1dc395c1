"""Fused optimizer steps: tuples of arrays, one a parameter, changed in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..dtypes import DType
from ..errors import AttributeValueError, DTypeError, ShapeError, UnsupportedError
from ..program import Call
from ..rows.row import Update
from ..rows.updates import TABLE as UPDATES
from ..view import View
from .arguments import other_device
from .state import state

CHECKED = 20_000  # groups whose layouts were found to fit; a program with ever new shapes must not grow for ever
_checked: set[tuple[Any, ...]] = set()


def run_update(row: str | Update, arrays: Sequence[Sequence[View]], scalars: dict[str, float]) -> None:
    """Run a fused update over tuples of arrays (one a parameter), in place; versions of what it writes go up.

    Shapes: all arrays of a tuple alike, 0-d slots apart; Dtypes: by the row's letters. Errors: as `run`, and DeviceError
    for arrays of two devices.
    """
    update = UPDATES.get(row) if isinstance(row, str) else row
    if update is None:
        raise UnsupportedError(f"update: no row is called {row!r}; there are {', '.join(UPDATES)}")
    if set(scalars) != set(update.scalars):
        raise AttributeValueError(
            f"{update.name}: takes the scalars {', '.join(update.scalars)}; given {', '.join(scalars) or 'none'}"
        )
    written = [update.arrays.index(name) for name in update.written]
    holder: Any = arrays[0][0].buffer.backend if arrays and arrays[0] else None
    for group in arrays:
        for view in group:
            if view.buffer.backend is not holder:
                raise other_device(update.name, [arrays[0][0], *group])
        key = (update, *[view.layout for view in group])
        if key not in _checked:
            _check_update(update, group)
            if len(_checked) > CHECKED:
                _checked.clear()
            _checked.add(key)
        for i in written:
            group[i].buffer.version += 1
    if arrays:
        holder.update(update, arrays, tuple([float(scalars[name]) for name in update.scalars]))
    if state.program is not None:
        state.program.append(Call(update, tuple(map(tuple, arrays)), dict(scalars), ()))


def _check_update(update: Update, group: Sequence[View]) -> None:
    if len(group) != len(update.arrays):
        raise ShapeError(f"{update.name}: takes the arrays {', '.join(update.arrays)}; given {len(group)}")
    shape = group[0].shape
    dtypes: dict[str, DType] = {}
    for name, letter, view in zip(update.arrays, update.letters, group, strict=True):
        if view.shape != (() if name in update.zero_d else shape):
            raise ShapeError(
                f"{update.name}: {name} is {view.shape}, but {update.arrays[0]} is {shape}; all must agree"
            )
        if not view.dtype.is_floating or dtypes.setdefault(letter, view.dtype) is not view.dtype:
            raise DTypeError(
                f"{update.name}: {name} is {view.dtype.name}, but must be {dtypes.get(letter, 'floating')}"
            )
        if view.dtype.compute != group[0].dtype.compute:
            raise DTypeError(
                f"{update.name}: {name} is {view.dtype.name} and {update.arrays[0]} {group[0].dtype.name}; float64 steps with float64 only"
            )
        if name in update.written and view.overlaps_itself:
            raise ShapeError(
                f"{update.name}: {name} has strides {view.strides} and overlaps itself; it cannot be written"
            )
