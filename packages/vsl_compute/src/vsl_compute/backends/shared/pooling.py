"""What folding kernels share, and the override that makes max pooling's gradient one launch of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ...backend import ComputeBackend
from ...dtypes import int32
from ...errors import UnsupportedError
from ...kernels.indexing import FOLDED
from ...ops.pooling import padded_shape, windows_of
from ...rows.reductions import TABLE as REDUCTIONS
from ...view import Layout, Shape, View
from .axes import Axes, collapse, dense, padded

Fold = Callable[..., None]  # a backend's fold, with index and origin
Numbers = tuple[int, ...]


class Part(NamedTuple):
    """What one launch of a folding kernel does: arrays, and the axes without windows, merged, with out's strides and x's."""

    out: View
    x: View
    chosen: View | None
    sizes: Axes
    strides: list[Axes]

    def folded(self, axes: Numbers, steps: Numbers, dilations: Numbers, origin: Numbers | None) -> dict[str, Axes]:
        """What a kernel asks of each axis with windows, by the names that the kernels have for it; axes not in use come first."""
        out, x = self.out, self.x
        taps = range(out.ndim, x.ndim)
        given: dict[str, tuple[Sequence[int], int]] = {
            "extent": ([out.shape[a] for a in axes], 1),
            "positions": ([x.shape[a] for a in axes], 1),
            "out_stride": ([out.strides[a] for a in axes], 0),
            "x_stride": ([x.strides[a] for a in axes], 0),
            "taps": ([x.shape[t] for t in taps], 1),
            "tap_stride": ([x.strides[t] for t in taps], 0),
            "step": (steps, 1),
            "dilation": (dilations, 1),
            "origin": (origin or (0,) * len(axes), 0),
        }
        return {name: padded(values, FOLDED, fill) for name, (values, fill) in given.items()}


def folds(
    backend: ComputeBackend,
    out: View,
    x: View,
    index: View | None,
    axes: Numbers,
    steps: Numbers,
    dilations: Numbers,
    *,
    rank: int,
    most: int,
) -> Iterator[Part]:
    """The launches of a fold: each of fewer than `most` elements, with at most `rank` axes besides those folded.

    What they need is copied between them, so the caller launches each as it comes. More folded axes than a kernel has
    are folded one after the other by the backend, without a launch of the caller's.

    Errors: UnsupportedError if folded axes alone have `most` elements, or taps were chosen along more than a kernel has
    """  # fmt: skip
    if not out.size:
        return
    if len(axes) > FOLDED:
        if index is not None:
            raise UnsupportedError(
                f"fold: {backend.spec} follows chosen taps along at most {FOLDED} axes, not {len(axes)}; fold some axes first"
            )
        _fold_by_steps(backend, out, x, axes, steps, dilations)
        return
    free = [a for a in range(out.ndim) if a not in axes]
    if out.size >= most:  # a half at a time, along the longest axis
        long = [a for a in free if out.shape[a] > 1]
        if not long:
            raise UnsupportedError(
                f"fold: {backend.spec} takes fewer than {most} elements in folded axes alone; take it in slices"
            )
        axis = max(long, key=lambda a: out.shape[a])
        middle = out.shape[axis] // 2
        for half in (slice(0, middle), slice(middle, None)):
            cut = (*[slice(None)] * axis, half)
            chosen = None if index is None else index.slice(*cut)
            part = out.slice(*cut), x.slice(*cut), chosen
            yield from folds(backend, *part, axes, steps, dilations, rank=rank, most=most)
        return
    sizes, strides = collapse([out.shape[a] for a in free], [[v.strides[a] for a in free] for v in (out, x)])
    if len(sizes) <= rank:
        yield Part(out, x, index, sizes, strides)
        return
    fresh = backend.allocate(
        Layout.of(out.dtype, out.shape)
    )  # in C order no more axes are left than lie between folded ones
    chosen = None if index is None else dense(backend, index)
    yield from folds(backend, fresh, dense(backend, x), chosen, axes, steps, dilations, rank=rank, most=most)
    backend.copy(out, fresh)


def _fold_by_steps(
    backend: ComputeBackend, out: View, x: View, axes: Numbers, steps: Numbers, dilations: Numbers
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


def prepare_max_pool(
    backend: ComputeBackend, views: Sequence[View | None], options: Mapping[str, Any]
) -> Callable[[View], tuple[View, View]] | None:
    """The op max_pool2d without padding made ready: one reduction over windows whose layout is worked out here."""
    (x,) = views
    assert x is not None
    if not x.size or padded_shape(x.shape, dict(options)) != x.shape:
        return None
    windows = windows_of(x, dict(options))
    layout, moved, row = windows.layout, windows.offset - x.offset, REDUCTIONS["max_index"]
    values = Layout.of(x.dtype, windows.shape[:4], windows.strides[:4]).like(x.dtype)
    allocate, reduce, places = backend.allocate, backend.reduce, values.like(int32)

    def max_pool2d(x: View) -> tuple[View, View]:
        outs = allocate(values), allocate(places)
        reduce(row, outs, View(x.buffer, layout, x.offset + moved), (4, 5))
        return outs

    return max_pool2d


def prepare_max_pool_backward(
    backend: ComputeBackend, fold: Fold, views: Sequence[View | None], options: Mapping[str, Any]
) -> Callable[[View, View], View] | None:
    """The op max_pool2d_backward made ready, for gradients and places in C order: one fold."""
    g, index = views
    assert g is not None
    assert index is not None
    shape, kernel = tuple(options["shape"]), options["kernel_size"]
    if index.dtype is not int32 or not g.size or 0 in shape or not (g.layout.c_order and index.layout.c_order):
        return None
    given, chosen = (v.reshape((*v.shape, 1, 1)).expand((*v.shape, *kernel)).layout for v in (g, index))
    out, allocate = Layout.of(g.dtype, shape), backend.allocate
    stride, dilation, padding = options["stride"], options["dilation"], options["padding"]

    def max_pool2d_backward(g: View, index: View) -> View:
        fresh = allocate(out)
        places = View(index.buffer, chosen, index.offset)
        fold(fresh, View(g.buffer, given, g.offset), (2, 3), stride, dilation, index=places, origin=padding)
        return fresh

    return max_pool2d_backward
