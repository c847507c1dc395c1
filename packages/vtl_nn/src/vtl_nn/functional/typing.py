"""Types, shapes and refusals that the functions share."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, cast

from vtl_core import AttributeValueError, Tensor
from vtl_core.foreign import refusal

Size = int | tuple[int, ...] | list[int]  # one for all axes or one each; lists as JSON has them

LONGEST = 2**31  # past it a window's steps are longer than any axis, and their products than an index


def as_tensor(result: Any) -> Tensor:
    """What vtl.apply gives for an op of one output."""
    return cast("Tensor", result)


def require_tensors(op: str, *values: object, first: int = 1) -> None:
    """DTypeError for the first of an op's arguments, counted from `first`, that is no tensor.

    For functions that ask an argument for its shape or dtype before vtl.apply, which checks too, has seen it.
    """
    for place, value in enumerate(values):
        if not isinstance(value, Tensor):
            raise refusal(op, first + place, value)


def batched(op: str, input: Tensor, ndim: int) -> Tensor:
    """One sample as a batch of one; a batch as it is, and what is neither too: the op says what is wrong."""
    require_tensors(op, input)
    return input.unsqueeze(0) if input.ndim == ndim - 1 else input


def unbatched(result: Tensor, input: Tensor) -> Tensor:
    """The way back from `batched`."""
    return result.squeeze(0) if input.ndim == result.ndim - 1 else result


def is_whole(value: object) -> bool:
    """Whether it is an integer, Python's or NumPy's, and no truth value."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Whether it is a real number, Python's or NumPy's: an option that is compared, and not a text or None."""
    return isinstance(value, Real)


def each(op: str, name: str, size: Any, axes: int, least: int) -> tuple[int, ...]:
    """A size as one int an axis; AttributeValueError for what is neither one int of at least `least` nor one an axis."""
    sizes = tuple(size) if isinstance(size, tuple | list) else (size,) * axes
    if len(sizes) != axes or not all(is_whole(n) and least <= n < LONGEST for n in sizes):
        many = f"an int or {axes} ints" if axes > 1 else "one int"
        raise AttributeValueError(
            f"{op}: {name}={size!r} must be {many} of at least {least}, below 2**31".replace("2 ints", "two ints")
        )
    return tuple(map(int, sizes))


def wide(op: str, name: str, size: Any, least: int) -> tuple[int, int]:
    """A size along a sequence as one of an image of a single row, where it is the least that there is."""
    return (least, *each(op, name, size, 1, least))  # type: ignore[return-value]  # one axis, one int
