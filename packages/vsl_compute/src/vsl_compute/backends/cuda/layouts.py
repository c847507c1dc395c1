"""How the matrices of a product lie in memory, as cuBLAS takes them, and copies of those that lie otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...view import Layout, View
from ..shared.axes import collapse, dense
from .cublaslt import Matrix

if TYPE_CHECKING:
    from .backend import CUDABackend

TRANSPOSED = 1  # CUBLAS_OP_T


def matrix(shape: Sequence[int], strides: Sequence[int]) -> Matrix | None:
    """The last two axes as cuBLAS takes them, flag 0 where rows are dense; None where neither rows nor columns are."""
    (rows, columns), (down, along) = shape[-2:], strides[-2:]
    if (along == 1 or columns == 1) and (rows == 1 or down >= max(1, columns)):
        return Matrix(0, down if rows > 1 else max(1, columns))
    if (down == 1 or rows == 1) and (columns == 1 or along >= max(1, rows)):
        return Matrix(TRANSPOSED, along if columns > 1 else max(1, rows))
    return None


def in_steps(view: View) -> bool:
    """Whether the matrices of a batch lie at equal distances, in the order of the batch."""
    order = Layout.of(view.dtype, view.shape[:-2]).strides
    return len(collapse(view.shape[:-2], [order, view.strides[:-2]])[0]) <= 1


def dense_matrices(backend: CUDABackend, view: View) -> View:
    """A dense copy whose matrices keep dense columns where they have them: a product takes either, and turning them costs more."""
    found, axes = matrix(view.shape, view.strides), tuple(range(view.ndim))
    if found is not None and found.flag == TRANSPOSED:
        axes = (*axes[:-2], axes[-1], axes[-2])
    return dense(backend, view.permute(axes)).permute(axes)


def outer_moves(sizes: Sequence[int], strides: Sequence[Sequence[int]]) -> Iterator[tuple[int, int, int]]:
    """How far out, a and b move for each index of the axes that one call does not have."""
    for index in np.ndindex(*sizes):
        to, left, right = (sum(i * s for i, s in zip(index, steps, strict=True)) for steps in strides)
        yield to, left, right
