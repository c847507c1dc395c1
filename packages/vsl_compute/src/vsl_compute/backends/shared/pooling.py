"""What folding kernels share, and the override that makes max pooling's gradient one launch of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...backend import ComputeBackend
from ...dtypes import int32
from ...view import Layout, Shape, View
from .axes import dense

Fold = Callable[..., None]  # a backend's fold, with index and origin


def fold_by_steps(
    backend: ComputeBackend,
    out: View,
    x: View,
    axes: tuple[int, ...],
    steps: tuple[int, ...],
    dilations: tuple[int, ...],
) -> None:
    """A fold over more axes than a kernel has: the last first, which leaves a fold over one less, with its taps behind."""
    ndim, last = out.ndim, axes[-1]
    others = x.shape[ndim:-1]
    shape = tuple(out.shape[a] if a == last else x.shape[a] for a in range(ndim))
    middle = backend.allocate(Layout.of(x.dtype, (*shape, *others)))
    backend.fold(middle, x, axes=(last,), steps=steps[-1:], dilations=dilations[-1:])
    backend.fold(out, middle, axes=axes[:-1], steps=steps[:-1], dilations=dilations[:-1])


def pooling_overrides(backend: ComputeBackend, fold: Fold) -> dict[str, Callable[..., Any]]:
    """By the op's name."""

    def max_pool2d_backward(g: View, index: View, *, shape: Shape, **options: Any) -> Any:
        """Each element gathers from the windows that chose it, where the body adds a pass for each place of a window."""
        if index.dtype is not int32 or not g.size or any(n == 0 for n in shape):
            return NotImplemented
        kernel = options["kernel_size"]
        out = backend.allocate(Layout.of(g.dtype, tuple(shape)))
        given, chosen = (
            v.reshape((*v.shape, 1, 1)).expand((*v.shape, *kernel)) for v in (dense(backend, g), dense(backend, index))
        )
        fold(out, given, (2, 3), options["stride"], options["dilation"], index=chosen, origin=options["padding"])
        return out

    return {"max_pool2d_backward": max_pool2d_backward}
