"""Gradients of strided convolutions of one tap: a copy of the elements that were read, and a product.

cuDNN has few quick plans for them in strict float32: of a 1x1 convolution of stride 2, batch 512, on an H200 both took 410 us,
and without plans that vary from run to run mostly still do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...rows.elementwise import TABLE as ROWS
from ...view import Layout, Shape, View
from .cudnn import Problem

if TYPE_CHECKING:
    from .backend import CUDABackend


def takes(problem: Problem) -> bool:
    """Whether it is a gradient in strict float32 of a convolution whose outputs read one place each, and some places none."""
    shape = problem.weight[0]
    one = shape[2:] == (1, 1) and problem.padding == (0, 0) and problem.x[0][1] == shape[1]
    return one and problem.stride != (1, 1) and problem.strict and problem.op in RUN


def _read(x: View, size: Shape, stride: Shape) -> View:
    """The elements of images that the outputs read."""
    rows, columns = (slice(0, (n - 1) * step + 1, step) for n, step in zip(size, stride, strict=True))
    return x.slice(slice(None), slice(None), rows, columns)


def _weight(backend: CUDABackend, g: View, x: View, problem: Problem) -> View:
    """What the weight receives: g by channels @ x by channels, transposed, over the batch and all places."""
    operands = []
    for view in (g, _read(x, g.shape[2:], problem.stride)):
        n, channels, *size = view.shape
        fresh = backend.allocate(Layout.of(view.dtype, (channels, n, *size)))
        backend.copy(fresh, view.permute((1, 0, 2, 3)))
        operands.append(fresh.reshape((channels, -1)))
    out = backend.allocate(Layout.of(g.dtype, problem.weight[0]))
    first, second = operands
    backend.gemm(out.reshape(out.shape[:2]), first, second.permute((1, 0)))
    return out


def _input(backend: CUDABackend, g: View, weight: View, problem: Problem) -> View:
    """What the images receive: weight, transposed, @ g where an output read them, and 0 elsewhere."""
    filters, channels = weight.shape[:2]
    n, _, *size = g.shape
    places = size[0] * size[1]
    made = backend.allocate(Layout.of(g.dtype, (n, channels, places)))
    backend.gemm(
        made, weight.reshape((filters, channels)).permute((1, 0)), backend.dense(g).reshape((n, filters, places))
    )
    out = backend.allocate(Layout.of(g.dtype, problem.x[0]))
    backend.elementwise(ROWS["fill"], out, (), (0.0,))
    backend.copy(_read(out, g.shape[2:], problem.stride), made.reshape((n, channels, *size)))
    return out


RUN = {"input": _input, "weight": _weight}
