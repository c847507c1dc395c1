"""Values that are no tensors where tensors are wanted: what they are called, and how they are refused, in one line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from types import FunctionType, NoneType
from typing import Any

import numpy as np

from vsl_compute.errors import DTypeError

from .autograd.node import Traced


def refusal(op: object, place: int, value: object) -> DTypeError:
    """The error that says which argument of `op`, from 1, is no tensor, and what makes it one."""
    if isinstance(value, np.ndarray):
        what = f"a NumPy array {value.shape}"
    elif isinstance(value, np.generic | int | float):
        what = f"the number {value}"
    else:
        name = type(value).__name__
        what = "None" if value is None else f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
    return DTypeError(f"{op}: argument {place} is {what}, not a tensor; wrap it: vtl.asarray(x)")


PLAIN = (Traced, bool, int, float, np.generic, NoneType)


def foreign(op: object, values: Sequence[object], known: tuple[type, ...] = PLAIN) -> DTypeError | None:
    """The refusal of the first value that is none of `known`, by default a tensor, a number or None."""
    for place, value in enumerate(values):
        if not isinstance(value, known):
            return refusal(op, place + 1, value)
    return None


def check_first(namespace: dict[str, Any]) -> None:
    """Give every public function of a module whose first, unnamed argument is a Tensor a check that it is one.

    Such a function is its tensor's method of that name: anything else would be asked for a method that it lacks, or
    has, with other arguments.
    """
    for name, function in namespace.items():
        if isinstance(function, FunctionType) and function.__module__ == namespace["__name__"]:
            code = function.__code__
            first = code.co_varnames[0] if code.co_posonlyargcount else ""
            if function.__annotations__.get(first) == "Tensor":
                namespace[name] = _checked(function)


def _checked(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def checked(x: Any, /, *args: Any, **options: Any) -> Any:
        if not isinstance(x, Traced):
            raise refusal(function.__name__, 1, x)
        return function(x, *args, **options)

    return checked
