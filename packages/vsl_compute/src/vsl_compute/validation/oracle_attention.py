"""The independent meaning of attention, row by row from its definition. Source: Vaswani et al. 2017, equation 1."""

from __future__ import annotations

import numpy as np

from .wide import LONG, Array


def weights(
    q: Array, k: Array, mask: Array | None = None, causal: bool = False, scale: float | None = None
) -> tuple[Array, Array]:
    """The share that each query gives each key, and the logarithm of the sum of exponentials; nothing where all is cut."""
    length, count = q.shape[-2], k.shape[-2]
    batch = np.broadcast_shapes(q.shape[:-2], k.shape[:-2])
    factor = 1 / np.sqrt(LONG(q.shape[-1])) if scale is None else LONG(scale)
    shares, sums = np.zeros((*batch, length, count), LONG), np.full((*batch, length, 1), -np.inf, LONG)
    left = np.broadcast_to(q.astype(LONG), (*batch, *q.shape[-2:]))
    right = np.broadcast_to(k.astype(LONG), (*batch, *k.shape[-2:]))
    cut = None if mask is None else np.broadcast_to(mask, (*batch, length, count))
    for at in np.ndindex(*batch, length):
        row = np.full(count, -np.inf, LONG)
        for j in range(count):
            if not (causal and j > at[-1]) and not (cut is not None and cut.dtype == bool and not cut[(*at, j)]):
                row[j] = factor * np.sum(left[at] * right[(*at[:-1], j)])
                row[j] += cut[(*at, j)] if cut is not None and cut.dtype != bool else 0
        top = np.max(row)
        if top > -np.inf:
            powers = np.exp(row - top)
            shares[at], sums[at] = powers / np.sum(powers), np.log(np.sum(powers)) + top
    return shares, sums


def attention(
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None = None,
    causal: bool = False,
    scale: float | None = None,
    keep: Array | None = None,
    dropout: float = 0.0,
) -> tuple[Array, Array]:
    """Each query's mean of the values, by its shares; `keep` says which shares dropout leaves."""
    shares, sums = weights(q, k, mask, causal, scale)
    if keep is not None:
        shares = np.where(keep, shares / (1 - LONG(dropout)), 0)
    return np.sum(shares[..., None] * v.astype(LONG)[..., None, :, :], axis=-2), sums
