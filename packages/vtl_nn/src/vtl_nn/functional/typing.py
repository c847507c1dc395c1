"""Types that the functions share."""

from __future__ import annotations

from typing import Any, cast

from vtl_core import Tensor

Size = int | tuple[int, int] | list[int]  # lists as JSON has them, of two


def as_tensor(result: Any) -> Tensor:
    """What vtl.apply gives for an op of one output."""
    return cast("Tensor", result)
