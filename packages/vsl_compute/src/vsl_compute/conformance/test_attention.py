"""Attention around the edges of tiles: lengths, heads, masks, causality and batches, with its gradients, against float64."""

from __future__ import annotations

import numpy as np
import pytest

from ..dtypes import BY_NAME

CASES = (  # queries, keys, head size, value size; mask, causality, dtype: each a kernel of its own, which software devices compile slowly
    ((33, 40, 12, 20), "float", True, "float32"),
    ((70, 65, 16, 16), "bool", False, "float32"),
    ((16, 37, 64, 64), "none", True, "float32"),
    ((17, 9, 6, 8), "bool", True, "float16"),
    ((17, 9, 8, 4), "float", False, "bfloat16"),
)


def meaning(q, k, v, mask, causal, scale, g=None, g_lse=None):
    """y and lse, or the gradients of q, k, v and the scores, in float64."""
    scores = scale * np.einsum("...le,...se->...ls", q, k)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    top = np.max(scores, axis=-1, keepdims=True)
    top = np.where(np.isneginf(top), 0, top)
    total = np.sum(np.exp(scores - top), axis=-1, keepdims=True)
    p = np.exp(scores - top) / np.where(total == 0, 1, total)
    y = p @ v
    if g is None:
        with np.errstate(divide="ignore"):
            return y, np.log(total) + top
    dp = np.einsum("...lv,...sv->...ls", g, v)
    ds = p * (dp - np.sum(g * y, axis=-1, keepdims=True) + (0 if g_lse is None else g_lse))
    turned = np.swapaxes(ds, -1, -2)
    return ds @ k * scale, turned @ q * scale, np.swapaxes(p, -1, -2) @ g, ds


def heads(subject, dtype, batch, length, size):
    """(N, heads, length, size), as a projection leaves it: heads lie side by side in memory."""
    n, count = batch
    host = subject.rng.normal(size=(n, length, count * size))
    view = subject.put(host, dtype).reshape((n, length, count, size)).permute((0, 2, 1, 3))
    return view, view.to_host().astype(np.float64)


def judged(subject, dtype, got, want, what, scale, ulp):
    """Of narrow dtypes a few roundings of theirs are all that is seen."""
    subject.close(got, want, dtype, ulp if dtype.itemsize >= 4 else 12, what, scale)


@pytest.mark.parametrize(("shape", "kind", "causal", "name"), CASES, ids=str)
def test_tiles_of_any_size_agree_with_their_meaning(subject, shape, kind, causal, name):
    (length, count, e, size), dtype = shape, BY_NAME[name]
    if not subject.computes(dtype):
        return
    q, host_q = heads(subject, dtype, (2, 2), length, e)
    (k, host_k), (v, host_v) = (heads(subject, dtype, (2, 2), count, n) for n in (e, size))
    mask, host = None, None
    if kind == "bool":
        host = subject.rng.random((2, 1, length, count)) < 0.7
        host[0, 0, length // 2] = False  # D13: a query that sees nothing
        mask = subject.put(host)
    elif kind == "float":
        host = subject.rng.normal(size=(length, count))
        host[:, 0] = -np.inf
        mask = subject.put(host, dtype)
        host = mask.to_host().astype(np.float64)
    options = {"causal": causal, "scale": 0.4}
    y, lse = subject.run("attention", q, k, v, mask, **options)
    want, want_lse = meaning(host_q, host_k, host_v, host, causal, 0.4)
    judged(subject, dtype, y.to_host(), want, "y", 4.0, 8)
    subject.close(lse.to_host(), want_lse, lse.dtype, 8, "lse", 8.0)
    g, host_g = heads(subject, dtype, (2, 2), length, size)
    g_lse = subject.put(subject.rng.normal(size=lse.shape), lse.dtype)
    found = subject.run("attention_backward", g, q, k, v, y, lse, mask, g_lse, **options)
    *wanted, slopes = meaning(host_q, host_k, host_v, host, causal, 0.4, host_g, g_lse.to_host())
    for letter, got, right in zip("qkv", found, wanted, strict=True):
        judged(subject, dtype, got.to_host(), right, f"gradient of {letter}", 32.0, 8)
    if kind == "float":
        got = subject.value("attention_mask_backward", g, q, k, v, y, lse, mask, g_lse, **options)
        judged(subject, dtype, got, slopes, "gradient of the mask", 32.0, 8)


def test_keys_that_batches_share_are_read_where_they_lie(subject):
    """A batch that broadcasts: gradients come in the batch's shape, for the caller to sum."""
    rng = subject.rng
    q, k, v = rng.normal(size=(3, 7, 5)), rng.normal(size=(6, 5)), rng.normal(size=(1, 6, 4))
    views = [subject.put(x, "float32") for x in (q, k, v)]
    y, lse = subject.run("attention", *views)
    scale = 1 / np.sqrt(5)
    np.testing.assert_allclose(y.to_host(), meaning(q, k, v, None, False, scale)[0], rtol=2e-5, atol=2e-5)
    g = rng.normal(size=(3, 7, 4))
    found = subject.value("attention_backward", subject.put(g, "float32"), *views, y, lse, None, None, scale=scale)
    for got, want in zip(found, meaning(q, k, v, None, False, scale, g), strict=False):
        assert got.shape == (3, *want.shape[1:])
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_scores_of_hundreds_do_not_overflow_and_what_causality_cuts_is_not_looked_at(subject):
    """A peak of 700 between others, in the last tile; NaN among keys that no query sees."""
    q, k = np.ones((40, 4), np.float32), np.zeros((40, 4), np.float32)
    k[37] = 350.0
    v = np.arange(160, dtype=np.float32).reshape(40, 4)
    y, lse = subject.value("attention", *map(subject.put, (q, k, v)), scale=0.5)
    np.testing.assert_allclose(y, np.broadcast_to(v[37], y.shape), rtol=1e-6)
    np.testing.assert_allclose(lse, 700.0, rtol=1e-6)
    y, _ = subject.value("attention", *map(subject.put, (q, k, v)), scale=0.5, causal=True)
    np.testing.assert_allclose(y[:37], [v[: i + 1].mean(0) for i in range(37)], rtol=1e-5)


def test_of_many_keys_none_is_left_out(subject):
    """llvmpipe leaves a loop after 65535 turns: 12000 keys of heads of 128 numbers are more."""
    keys, e = 12_000, 128
    q, k = np.zeros((1, 2, e)), np.zeros((1, keys, e))
    v = np.arange(keys)[None, :, None] / keys * np.ones(e)
    given = [subject.put(x, "float32") for x in (q, k, v)]
    y, lse = subject.run("attention", *given, None)
    np.testing.assert_allclose(y.to_host(), v.mean(), rtol=1e-4)
    np.testing.assert_allclose(lse.to_host(), np.log(keys), rtol=1e-6)
    g = subject.put(np.ones((1, 2, e)), "float32")
    _, _, dv = subject.run("attention_backward", g, *given, y, lse, None, None)
    np.testing.assert_allclose(dv.to_host(), 2 / keys, rtol=1e-4)
