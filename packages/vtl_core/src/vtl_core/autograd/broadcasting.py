"""The one place where broadcasting is undone: what flowed to one element from many is summed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vsl_compute.errors import ShapeError
from vsl_compute.view import Layout


def unbroadcast(run: Callable[..., Any], g: Any, wanted: Layout) -> Any:
    """A gradient brought to the shape and dtype of the input it belongs to.

    Shapes: axes that the input lacks, or has with size 1, are summed over
    Dtypes: cast to the input's after summing
    """
    shape = wanted.shape
    if g.shape != shape:
        lead = len(g.shape) - len(shape)
        if lead < 0 or any(n not in (1, m) for n, m in zip(shape, g.shape[lead:], strict=True)):
            raise ShapeError(f"backward: a gradient of shape {g.shape} does not belong to an input of shape {shape}")
        stretched = (lead + i for i, (n, m) in enumerate(zip(shape, g.shape[lead:], strict=True)) if n != m)
        g = run("sum", g, axes=(*range(lead), *stretched), keepdims=True).reshape(shape)
    return g if g.dtype is wanted.dtype else run("astype", g, dtype=wanted.dtype)
