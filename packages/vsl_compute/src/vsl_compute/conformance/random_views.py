"""Random shapes, and Views of random strides over random values: what no list of layouts thinks of."""

from __future__ import annotations

from math import prod

import numpy as np

from ..dtypes import DType
from ..view import Shape, View
from .placement import Input, draw, upload
from .subject import Subject

SIZES = (0, 1, 1, 2, 3, 4, 5, 7, 9, 17, 33, 65, 130)
SMALL = (0, 1, 1, 2, 2, 3, 3, 4, 5)  # of arrays with many axes
RANKS = (0, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 5, 6, 7, 8)
SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 57344.0)  # which every floating dtype holds


def shape(rng: np.random.Generator, most: int = 6000, ranks: tuple[int, ...] = RANKS) -> Shape:
    """At most `most` elements; one shape in ten may have an empty axis."""
    rank = int(rng.choice(ranks))
    while True:
        sizes = tuple(int(n) for n in rng.choice(SIZES if rank < 4 else SMALL, rank))
        if rng.random() < 0.9:
            sizes = tuple(max(1, n) for n in sizes)
        if prod(sizes) <= most:
            return sizes


def part(rng: np.random.Generator, whole: Shape) -> Shape:
    """A shape that broadcasts to `whole`: leading axes left out, others of size 1."""
    if rng.random() < 0.6:
        return whole
    kept = whole[int(rng.integers(0, len(whole) + 1)) :]
    return tuple(1 if rng.random() < 0.4 else n for n in kept)


def _axis(rng: np.random.Generator, n: int, repeats: bool) -> tuple[int, slice, bool]:
    """The size of an axis in memory, the slice of it that has n elements, and whether one element is repeated."""
    kind = rng.random()
    if not n or kind < 0.4:
        return n, slice(None), False
    if kind < 0.5 and repeats:
        return 1, slice(None), True
    step, start, spare = (int(k) for k in rng.integers((1, 0, 0), (4, 3, 3)))
    if kind < 0.75:
        return start + (n - 1) * step + 1 + spare, slice(start, start + (n - 1) * step + 1, step), False
    return (n - 1) * step + 1, slice(None, None, -step), False


def arranged(
    subject: Subject, dtype: DType, wanted: Shape, domain: tuple[float, float] = (-4.0, 4.0), *, special: bool = False
) -> Input:
    """Random values of this shape under random strides: steps, gaps, backwards, repeated, axes in any order."""
    rng = subject.rng
    axes = [_axis(rng, n, repeats=True) for n in wanted]
    turn = rng.permutation(len(wanted)).tolist()
    values = draw(rng, dtype, prod(axes[a][0] for a in turn), domain)
    if special and dtype.is_floating and values.size:
        values[rng.integers(0, values.size, 1 + values.size // 8)] = rng.choice(SPECIAL)
    array = values.reshape([axes[a][0] for a in turn])
    view, back = upload(subject.backend, array, dtype), tuple(int(i) for i in np.argsort(turn))
    cuts = tuple(cut for _, cut, _ in axes)
    view, array = view.permute(back).slice(*cuts).expand(wanted), np.broadcast_to(array.transpose(back)[cuts], wanted)
    return Input(view, array)


def room(subject: Subject, dtype: DType, wanted: Shape) -> View:
    """A View to write to, under random strides; no element is repeated."""
    rng = subject.rng
    axes = [_axis(rng, n, repeats=False) for n in wanted]
    turn = rng.permutation(len(wanted)).tolist()
    base = upload(subject.backend, draw(rng, dtype, prod(axes[a][0] for a in turn), (0.0, 1.0)), dtype)
    view = base.reshape(tuple(axes[a][0] for a in turn)).permute(tuple(int(i) for i in np.argsort(turn)))
    return view.slice(*(cut for _, cut, _ in axes))
