"""What rows, reductions and updates are tested on: scalars, domains and scales, for the conformance suite and `validate`."""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import Any

import numpy as np

from ..dtypes import DType
from ..rows.evaluate import values
from ..rows.row import Reduction, Row, Update
from . import oracle
from .wide import Array

# rows
GRID = (5, 7)
SHIFTS = {"bitwise_left_shift": (0, 7), "bitwise_right_shift": (0, 7)}
SCALARS = {"slope": 0.0625, "alpha": 1.375, "factor": 1.4375, "low": -1.5, "high": 2.25, "eps": 0.03125, "k": 2,
           "beta": 1.25, "delta": 1.25, "margin": 1.5, "gamma": 2.0, "positive": 0.25, "negative": 0.75, "bound": 0.75, "value": 0.5}  # fmt: skip


def scalars_of(row: Row, dtype: DType) -> dict[str, Any]:
    """Values that every dtype holds exactly; whole numbers for integers."""
    if row.name == "fill" and dtype.kind == "b":
        return {"alpha": True}
    whole = {"low": 2 if dtype.kind == "u" else -2, "high": 3, "alpha": 3}
    return {name: (whole.get(name, 2) if dtype.is_integer else SCALARS[name]) for name in row.scalars}


def letters_of(row: Row) -> str:
    """The letters of what a row reads; of its output, if it reads nothing."""
    return row.signature.inputs or row.signature.outputs


def scalar_letter(row: Row) -> str:
    """The letter whose dtype a row's scalars have."""
    return letters_of(row)[-1] if row.name != "add_where_equal" else "n"


def domain_of(row: Row, position: int, dtype: DType) -> tuple[float, float]:
    """What an argument is drawn from."""
    if row.name in SHIFTS:
        return SHIFTS[row.name] if position else (0, 120)
    if row.name == "add_where_equal" and row.args[position] == "i":
        return (0, 4)
    return row.domain


def scale_of(row: Row, inputs: Sequence[Any]) -> Any:
    """The magnitude at which a row counts its error, or None."""
    if row.scale is None:
        return None
    with np.errstate(all="ignore"):
        return values((row.scale,), row.args)(*(np.asarray(x, np.longdouble) for x in inputs))


# reductions
BLOCK = (4, 5, 6)
AXES = ((0,), (1,), (2,), (0, 2), (1, 2), (0, 1, 2))
UNBIASED = {"prod": (0.5, 1.5), "logsumexp": (-4.0, 4.0)}  # a product of large numbers says nothing about digits


def takes(row: Reduction, dtype: DType) -> bool:
    """Whether a reduction has a meaning for this dtype."""
    if dtype.kind == "b":
        return row.booleans
    return row.signature.inputs != "b" and not (row.signature.inputs == "f" and dtype.is_integer)


def reduction_scales(row: Reduction, x: Array, axes: Sequence[int], keepdims: bool = False) -> tuple[Any, ...]:
    """The magnitude at which each output counts its error: a sum at the sum of its terms' magnitudes, else None."""
    if row.name not in ("sum", "mean", "moments", "logsumexp"):
        return (None,) * len(row.signature.outputs)
    name = "sum" if row.name == "sum" else "mean"
    size = oracle.reduction(name, np.abs(x).astype(np.longdouble), axes, keepdims)
    return (size, size**2) if row.name == "moments" else (size,)


# updates
B1, B2 = 0.875, 0.984375  # exact in float32, so that the scalars are the same in every dtype
STEP = {
    "lr": 0.03125, "weight_decay": 0.0625, "momentum": 0.875, "keep": 0.75, "b1": B1, "b2": B2, "log_b1": log(B1), "log_b2": log(B2),
    "eps": 2.0**-20, "growth": 2.0, "backoff": 0.5, "interval": 4.0, "bound": 0.75,
    "lr_decay": 0.125, "alpha": 0.875, "rate": -0.0078125, "fresh": 0.25, "decay": 0.875, "factor": 1.125,
}  # fmt: skip


def update_scalars(row: Update) -> dict[str, float]:
    """An optimizer's numbers."""
    return {name: STEP[name] for name in row.scalars}


def slot_domain(name: str) -> tuple[float, float]:
    """What an array of an update is drawn from; a second moment is positive, and above the square of an average."""
    return {"v": (0.0625, 2.0), "x": (0.0625, 2.0), "a": (-0.125, 0.125)}.get(name, (-2.0, 2.0))
