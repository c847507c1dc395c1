"""Arguments that are not what they must be, refused by name in one line: who asked, what was given, what is wanted."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sized
from numbers import Real
from typing import Any

import numpy as np


def whole(what: str, name: str, value: Any, least: int | None = None) -> int:
    """An integer, Python's or NumPy's; TypeError for what is none, ValueError below `least`."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{what}: {name} must be an integer, not {short(value)}") from None
    if isinstance(value, bool) or (least is not None and number < least):
        raise ValueError(f"{what}: {name} is {value}; it must be an integer of at least {least}")
    return number


def real(what: str, name: str, value: Any) -> float:
    """A real number; TypeError for what is none."""
    if not isinstance(value, Real):
        raise TypeError(f"{what}: {name} must be a number, not {short(value)}")
    return float(value)


def truth(what: str, name: str, value: Any) -> bool:
    """A truth value, or a number for one; TypeError for texts and arrays, whose truth is not what is meant."""
    if not (value is None or isinstance(value, bool | np.bool_ | Real)):
        raise TypeError(f"{what}: {name} must be True or False, not {short(value)}")
    return bool(value)


def sized(what: str, dataset: Any) -> Any:
    """A data set that has a length; TypeError for what has none."""
    if not isinstance(dataset, Sized) or isinstance(dataset, type):
        raise TypeError(f"{what}: {short(dataset)} is no data set: it has no length")
    return dataset


def function(what: str, name: str, value: Any) -> Callable[..., Any] | None:
    """What can be called, or None; TypeError for anything else."""
    if value is not None and not callable(value):
        raise TypeError(f"{what}: {name} must be callable, not {short(value)}")
    return value  # type: ignore[no-any-return]  # Any that was asked


def short(value: Any) -> str:
    """What was given, on one short line."""
    if isinstance(value, np.ndarray):
        return f"a {value.dtype} array {value.shape}"
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
