"""How a tensor is shown: its numbers as NumPy would write them, then what is not the default."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vsl_compute.dtypes import bool_, float32, int64

from .autograd.context import default_context

if TYPE_CHECKING:
    from .tensor import Tensor

THRESHOLD = 1000  # elements above which the middle is left out
EDGE = 3
_TOLD_BY_DIGITS = (bool_, float32, int64)


def text(x: Tensor) -> str:
    """tensor([1., 2.], dtype=float64, device='vulkan:0', requires_grad=True)."""
    prefix = "tensor("
    numbers = np.array2string(
        x.numpy(),
        precision=4,
        threshold=THRESHOLD,
        edgeitems=EDGE,
        separator=", ",
        prefix=prefix,
        suffix=")",
        floatmode="maxprec",
    )
    parts = [numbers]
    if not x.size:
        parts.append(f"shape={x.shape}")
    if x.dtype not in _TOLD_BY_DIGITS:
        parts.append(f"dtype={x.dtype.name}")
    if x.device != default_context().device:
        parts.append(f"device='{x.device}'")
    if x.node is not None:
        parts.append(f"gate=<{x.node.gate.name}>")
    elif x.tracked:
        parts.append("requires_grad=True")
    return f"{prefix}{', '.join(parts)})"
