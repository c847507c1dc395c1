"""Strided arrays as kernels want them: axes merged where all operands allow it, and cut where numbers grow too long."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from ...backend import ComputeBackend
from ...view import Layout, View

Axes = list[int]
LIMIT = 1 << 31  # elements that a kernel with several axes addresses in one launch: it divides in 32 bits


def dense(backend: ComputeBackend, view: View) -> View:
    """The view itself if it lies in C order without gaps, else a copy that does."""
    if view.layout.c_order:
        return view
    fresh = backend.allocate(Layout.of(view.dtype, view.shape))
    backend.copy(fresh, view)
    return fresh


def collapse(
    shape: Sequence[int], strides: Sequence[Sequence[int]], *, reorder: bool = True
) -> tuple[Axes, list[Axes]]:
    """Sizes and each operand's strides with as few axes as describe the same elements.

    With `reorder`, axes are nested as in the first operand's memory; without, the order of elements stays.
    """
    axes = [(n, tuple(s[a] for s in strides)) for a, n in enumerate(shape) if n != 1]
    if reorder and len(axes) > 1:
        axes.sort(key=lambda axis: [-abs(s) for s in axis[1]])
    merged: list[tuple[int, tuple[int, ...]]] = []
    for n, steps in axes:
        if merged and all(outer == inner * n for outer, inner in zip(merged[-1][1], steps, strict=True)):
            merged[-1] = (merged[-1][0] * n, steps)
        else:
            merged.append((n, steps))
    return [n for n, _ in merged], [[steps[k] for _, steps in merged] for k in range(len(strides))]


def padded(values: Sequence[int], rank: int, fill: int) -> Axes:
    """`values` with `fill` before them, `rank` in all."""
    return [fill] * (rank - len(values)) + list(values)


def pieces(
    sizes: Sequence[int], strides: Sequence[Sequence[int]], rank: int
) -> Iterator[tuple[Axes, list[Axes], list[int]]]:
    """Parts of at most `rank` axes that one launch can address: their sizes, strides, and how far each operand moves."""
    inner = list(sizes[max(0, len(sizes) - rank) :])
    lead = len(sizes) - len(inner)
    fits = len(inner) <= 1 or prod(inner) < LIMIT
    if not lead and fits:
        yield inner, [list(s) for s in strides], [0] * len(strides)
        return
    if lead:  # one launch an index of the outermost axis
        cuts, drop = [(i, 1) for i in range(sizes[0])], True
    else:  # cut along the outermost axis
        step = max(1, (LIMIT - 1) // prod(sizes[1:]))
        cuts, drop = [(i, min(step, sizes[0] - i)) for i in range(0, sizes[0], step)], step == 1
    for start, count in cuts:
        part = list(sizes[1:]) if drop else [count, *sizes[1:]]
        moved = [start * s[0] for s in strides]
        for below, steps, ats in pieces(part, [s[1:] if drop else s for s in strides], rank):
            yield below, steps, [m + a for m, a in zip(moved, ats, strict=True)]
