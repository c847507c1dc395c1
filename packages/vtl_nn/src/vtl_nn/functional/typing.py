"""Types and shapes that the functions share."""

from __future__ import annotations

from typing import Any, cast

from vtl_core import AttributeValueError, Tensor

Size = int | tuple[int, ...] | list[int]  # one for all axes or one each; lists as JSON has them


def as_tensor(result: Any) -> Tensor:
    """What vtl.apply gives for an op of one output."""
    return cast("Tensor", result)


def batched(input: Tensor, ndim: int) -> Tensor:
    """One sample as a batch of one; a batch as it is, and what is neither too: the op says what is wrong."""
    return input.unsqueeze(0) if input.ndim == ndim - 1 else input


def unbatched(result: Tensor, input: Tensor) -> Tensor:
    """The way back from `batched`."""
    return result.squeeze(0) if input.ndim == result.ndim - 1 else result


def pair(size: Size) -> tuple[int, int]:
    """One int as two alike; two as they are."""
    return (size, size) if isinstance(size, int) else (size[0], size[-1])


def wide(op: str, name: str, size: Size, alone: int) -> tuple[int, int]:
    """A size along a sequence as one of an image of a single row, where it is `alone`."""
    if isinstance(size, tuple | list):
        if len(size) != 1:
            raise AttributeValueError(f"{op}: {name}={size} must be one int")
        (size,) = size
    return (alone, size)
