"""Gradients of strided convolutions of one tap: a copy of the elements that were read, and a product.

cuDNN has no quick plan for them in strict float32: of a 1x1 convolution of stride 2, batch 512, on an H200 both took 410 us.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...rows.elementwise import TABLE as ROWS
from ...view import Layout, Shape, View

if TYPE_CHECKING:
    from .backend import CUDABackend


def takes(weight: Shape, options: Mapping[str, Any]) -> bool:
    """Whether each output reads one place, and some places are read by none."""
    one = weight[2:] == (1, 1) and options["padding"] == (0, 0) and options["groups"] == 1
    return one and options["stride"] != (1, 1)


def _read(x: View, size: Shape, stride: Shape) -> View:
    """The elements of images that the outputs read."""
    rows, columns = (slice(0, (n - 1) * step + 1, step) for n, step in zip(size, stride, strict=True))
    return x.slice(slice(None), slice(None), rows, columns)


def conv2d_weight(backend: CUDABackend, g: View, x: View, options: Mapping[str, Any]) -> View:
    """What the weight receives: g by channels @ x by channels, transposed, over the batch and all places."""
    operands = []
    for view in (g, _read(x, g.shape[2:], options["stride"])):
        n, channels, *size = view.shape
        fresh = backend.allocate(Layout.of(view.dtype, (channels, n, *size)))
        backend.copy(fresh, view.permute((1, 0, 2, 3)))
        operands.append(fresh.reshape((channels, -1)))
    out = backend.allocate(Layout.of(g.dtype, tuple(options["shape"])))
    first, second = operands
    backend.gemm(out.reshape(out.shape[:2]), first, second.permute((1, 0)))
    return out


def conv2d_input(backend: CUDABackend, g: View, weight: View, options: Mapping[str, Any]) -> View:
    """What the images receive: weight, transposed, @ g where an output read them, and 0 elsewhere."""
    filters, channels = weight.shape[:2]
    n, _, *size = g.shape
    places = size[0] * size[1]
    made = backend.allocate(Layout.of(g.dtype, (n, channels, places)))
    backend.gemm(
        made, weight.reshape((filters, channels)).permute((1, 0)), backend.dense(g).reshape((n, filters, places))
    )
    out = backend.allocate(Layout.of(g.dtype, tuple(options["shape"])))
    backend.elementwise(ROWS["fill"], out, (), (0.0,))
    backend.copy(_read(out, g.shape[2:], options["stride"]), made.reshape((n, channels, *size)))
    return out
