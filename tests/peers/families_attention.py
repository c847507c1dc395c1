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


def _mask(rng: Rng, shape: tuple[int, ...]) -> np.ndarray:
    """Truth values, True where not to look, or numbers that are added; of each query's keys the first is seen."""
    hidden = rng.random(shape) < 0.3
    hidden[..., 0] = False
    return hidden if rng.random() < 0.5 else np.where(hidden, -np.inf, rng.normal(size=shape))


def multihead(rng: Rng) -> Case:
    """Heads, bias, other sizes of keys and values, orders of axes, no batch, masks of all and of each head, weights averaged or not."""
    heads = _int(rng, 1, 3)
    size, batch, length, count = heads * _int(rng, 1, 3), _int(rng, 1, 3), _int(rng, 1, 5), _int(rng, 1, 5)
    first, need, average = bool(rng.random() < 0.5), bool(rng.random() < 0.6), bool(rng.random() < 0.5)
    kdim, vdim = (None, None) if rng.random() < 0.6 else (_int(rng, 1, 6), _int(rng, 1, 6))
    options = {"bias": bool(rng.random() < 0.7), "kdim": kdim, "vdim": vdim, "batch_first": first}
    shapes = [(batch, length, size), (batch, count, kdim or size), (batch, count, vdim or size)]
    arrays = [rng.normal(size=s if first else (s[1], s[0], s[2])) for s in shapes]
    alone = rng.random() < 0.15
    if alone:
        batch, arrays = 1, [a[0] if first else a[:, 0] for a in arrays]
    masks = {}
    if rng.random() < 0.5:
        every = (batch * heads, length, count) if rng.random() < 0.3 else (length, count)
        masks["attn_mask"] = _mask(rng, every)
    if rng.random() < 0.4:
        masks["key_padding_mask"] = rng.random(count if alone else (batch, count)) < 0.3
        masks["key_padding_mask"][..., 0] = False

    def make(library):
        layer = library.nn.MultiheadAttention(size, heads, **options)
        plain = layer.forward
        layer.forward = lambda q, k, v, *given: plain(
            q, k, v, need_weights=need, average_attn_weights=average, **dict(zip(masks, given, strict=True))
        )
        return layer

    text = (
        f"MultiheadAttention({size}, {heads}, {options}) {batch=} {length=} {count=} {need=} {average=} {alone=} "
        f"{[(name, m.dtype, m.shape) for name, m in masks.items()]}"
    )
    return Case(text, make, [*arrays, *masks.values()], constant=frozenset({3, 4}), tiled=LOGSUM)


def encoder(rng: Rng) -> Case:
    """A layer, in either order of norms and of axes, with either activation, bias and masks or without."""
    heads = _int(rng, 1, 2)
    size, wide, batch, length = heads * _int(rng, 1, 3), _int(rng, 1, 8), _int(rng, 1, 3), _int(rng, 1, 5)
    options = {
        "activation": str(rng.choice(["relu", "gelu"])),
        "norm_first": bool(rng.random() < 0.5),
        "batch_first": bool(rng.random() < 0.5),
        "layer_norm_eps": float(rng.choice([1e-5, 1e-3])),
        "bias": bool(rng.random() < 0.8),
        "dropout": 0.0,
    }
    size = max(size, 2 * heads)
    masks = {"src_mask": _mask(rng, (length, length))} if rng.random() < 0.4 else {}
    if rng.random() < 0.4:
        masks["src_key_padding_mask"] = rng.random((batch, length)) < 0.3
        masks["src_key_padding_mask"][:, 0] = False

    def make(library):
        layer = library.nn.TransformerEncoderLayer(size, heads, wide, **options)
        plain = layer.forward
        layer.forward = lambda x, *given: plain(x, **dict(zip(masks, given, strict=True)))
        return layer

    text = f"TransformerEncoderLayer({size}, {heads}, {wide}, {options}) {batch=} {length=} {[(name, m.dtype) for name, m in masks.items()]}"
    x = rng.normal(size=(batch, length, size) if options["batch_first"] else (length, batch, size))
    return Case(text, make, [x, *masks.values()], constant=frozenset({1, 2}), tiled=LOGSUM)


FAMILIES = (attention, multihead, encoder)
