"""Random configurations of attention and of the Transformer's encoder."""

from __future__ import annotations

import numpy as np
from differential import LOGSUM, Case
from families_layers import _int

Rng = np.random.Generator


def attention(rng: Rng) -> Case:
    """Masks of truth values and numbers, causality, keys of another count, values of another size."""
    lead = tuple(_int(rng, 1, 3) for _ in range(_int(rng, 1, 2)))
    length, size, wide, count = (_int(rng, 1, 6) for _ in range(4))
    q, k, v = (rng.normal(size=(*lead, *shape)) for shape in ((length, size), (count, size), (count, wide)))
    kind = str(rng.choice(["none", "bool", "float", "causal"]))
    scale = float(rng.uniform(0.1, 2)) if rng.random() < 0.3 else None
    more = []
    if kind == "bool":
        more = [rng.random((length, count)) < 0.7]
        more[0][:, 0] = True
    elif kind == "float":
        more = [rng.normal(size=(length, count))]

    def make(library):
        def attend(q, k, v, *mask):
            return library.F.scaled_dot_product_attention(
                q, k, v, attn_mask=mask[0] if mask else None, is_causal=kind == "causal", scale=scale
            )

        return attend

    return Case(
        f"{q.shape} {k.shape} {v.shape} {kind} {scale=}", make, [q, k, v, *more], tiled=LOGSUM
    )  # weights near 1 cancel


def multihead(rng: Rng) -> Case:
    """Heads, bias, other sizes of keys and values, orders of axes, masks, weights averaged or not."""
    heads = _int(rng, 1, 3)
    size, batch, length, count = heads * _int(rng, 1, 3), _int(rng, 1, 3), _int(rng, 1, 5), _int(rng, 1, 5)
    first, need, average = bool(rng.random() < 0.5), bool(rng.random() < 0.6), bool(rng.random() < 0.5)
    kdim, vdim = (None, None) if rng.random() < 0.6 else (_int(rng, 1, 6), _int(rng, 1, 6))
    options = {"bias": bool(rng.random() < 0.7), "kdim": kdim, "vdim": vdim, "batch_first": first}
    shapes = [(batch, length, size), (batch, count, kdim or size), (batch, count, vdim or size)]
    arrays = [rng.normal(size=s if first else (s[1], s[0], s[2])) for s in shapes]
    masks = {}
    if rng.random() < 0.4:
        masks["attn_mask"] = rng.random((length, count)) < 0.3
        masks["attn_mask"][:, 0] = False
    if rng.random() < 0.4:
        masks["key_padding_mask"] = rng.random((batch, count)) < 0.3
        masks["key_padding_mask"][:, 0] = False

    def make(library):
        layer = library.nn.MultiheadAttention(size, heads, **options)
        plain = layer.forward
        given = {name: library.tensor(m) for name, m in masks.items()}
        layer.forward = lambda q, k, v: plain(q, k, v, need_weights=need, average_attn_weights=average, **given)
        return layer

    text = (
        f"MultiheadAttention({size}, {heads}, {options}) {batch=} {length=} {count=} {need=} {average=} {sorted(masks)}"
    )
    return Case(text, make, arrays, tiled=LOGSUM)


def encoder(rng: Rng) -> Case:
    """A layer, in either order of norms, with either activation; dropout in evaluation does nothing."""
    heads = _int(rng, 1, 2)
    size, wide, batch, length = heads * _int(rng, 1, 3), _int(rng, 1, 8), _int(rng, 1, 3), _int(rng, 1, 5)
    options = {
        "activation": str(rng.choice(["relu", "gelu"])),
        "norm_first": bool(rng.random() < 0.5),
        "batch_first": True,
        "dropout": 0.0,
    }
    size = max(size, 2 * heads)
    text = f"TransformerEncoderLayer({size}, {heads}, {wide}, {options}) {batch=} {length=}"
    x = rng.normal(size=(batch, length, size))
    return Case(text, lambda t: t.nn.TransformerEncoderLayer(size, heads, wide, **options), [x], tiled=LOGSUM)


FAMILIES = (attention, multihead, encoder)
