"""Merging and cutting the axes of strided arrays: the same elements in the same places."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from vsl_compute.backends.shared import axes
from vsl_compute.backends.shared.axes import collapse, padded, pieces


def places(sizes, strides, at=0):
    """Where each element lies, in C order."""
    found = np.full(tuple(sizes), at)
    for axis, (n, step) in enumerate(zip(sizes, strides, strict=True)):
        found += (np.arange(n) * step).reshape(-1, *[1] * (len(sizes) - axis - 1))
    return found.ravel().tolist()


CASES = [
    ((2, 3, 4), ((12, 4, 1),)),
    ((2, 3, 4), ((12, 4, 1), (12, 4, 1))),
    ((2, 3, 4), ((1, 2, 6), (12, 4, 1))),
    ((2, 1, 4), ((4, 99, 1), (0, 7, 1))),
    ((3, 4), ((-4, -1), (4, 1))),
    ((5,), ((0,),)),
    ((), ((), ())),
    ((2, 3, 2, 3), ((18, 6, 3, 1), (1, 2, 6, 12), (0, 0, 3, 1))),
]


@pytest.mark.parametrize(("shape", "strides"), CASES)
@pytest.mark.parametrize("reorder", [True, False])
def test_collapsed_axes_pair_the_same_elements(shape, strides, reorder):
    sizes, merged = collapse(shape, strides, reorder=reorder)
    before = list(zip(*(places(shape, s) for s in strides), strict=True))
    after = list(zip(*(places(sizes, s) for s in merged), strict=True))
    assert sorted(after) == sorted(before)
    if not reorder:
        assert after == before
    assert len(sizes) <= len(shape)


def test_dense_arrays_of_one_order_collapse_to_one_axis():
    assert collapse((2, 3, 4), [(12, 4, 1), (12, 4, 1)]) == ([24], [[1], [1]])
    assert collapse((2, 3, 4), [(1, 2, 6), (1, 2, 6)]) == ([24], [[1], [1]])
    assert collapse((1, 1), [(5, 7)]) == ([], [[]])


@pytest.mark.parametrize("limit", [3, 7, 1000])
@pytest.mark.parametrize("rank", [1, 2, 4])
def test_pieces_cover_every_element_once(monkeypatch, rank, limit):
    monkeypatch.setattr(axes, "LIMIT", limit)
    sizes, strides = [3, 2, 4], [[8, 4, 1], [1, 3, 6]]
    found = []
    for part, steps, ats in pieces(sizes, strides, rank):
        assert len(part) <= rank
        assert len(part) <= 1 or prod(part) < limit
        found += zip(*(places(part, s, at) for s, at in zip(steps, ats, strict=True)), strict=True)
    assert sorted(found) == sorted(zip(*(places(sizes, s) for s in strides), strict=True))


def test_padding_goes_before():
    assert padded([5, 6], 4, 1) == [1, 1, 5, 6]
