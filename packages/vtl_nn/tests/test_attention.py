"""Attention: masks, causality, dropout, and a Transformer that trains on every backend."""

from __future__ import annotations

import numpy as np
import pytest

import vtl_core as vtl
import vtl_nn as nn

attend = nn.functional.scaled_dot_product_attention


def made(values, device, requires_grad=False):
    return vtl.tensor(values, dtype=vtl.float32, device=device, requires_grad=requires_grad)


def test_d13_fully_masked_rows_are_zero(device):
    """D13: a query that may see nothing gets zeros and sends none back; unmasked values are known."""
    q, k = (made(np.eye(2), device, True) for _ in range(2))
    v = made([[1, 2], [3, 4]], device, True)
    y = attend(q, k, v, vtl.tensor([[True, False], [False, False]], device=device))
    assert y.tolist() == [[1, 2], [0, 0]]
    y.sum().backward()
    assert not q.grad.numpy().any()
    assert v.grad.tolist() == [[1, 1], [0, 0]]
    np.testing.assert_allclose(attend(q, k, v).numpy(), [[1.6604768, 2.6604768], [2.3395232, 3.3395232]], rtol=1e-6)
    cut = made([[0, -np.inf], [-np.inf, -np.inf]], device)
    assert attend(q, k, v, cut).tolist() == [[1, 2], [0, 0]]


def test_d13_causality_is_aligned_at_the_first_key(device):
    """D13: L = 2, S = 3, equal scores."""
    ones = made(np.ones((3, 1)), device)
    y = attend(ones[:2], ones, made([[1], [2], [4]], device), is_causal=True)
    np.testing.assert_allclose(y.numpy(), [[1], [1.5]], rtol=1e-6)


def test_causal_results_do_not_depend_on_what_comes_later(device, draw):
    q, k, v = (draw(2, 6, 4, dtype=vtl.float32).to(device) for _ in range(3))
    whole = attend(q, k, v, is_causal=True).numpy()
    np.testing.assert_allclose(whole[:, :3], attend(q[:, :3], k[:, :3], v[:, :3], is_causal=True).numpy(), rtol=1e-5)


def test_weights_of_a_shift_of_all_scores_stay(draw):
    q, k, v = draw(5, 4), draw(6, 4), draw(6, 3)
    np.testing.assert_allclose(
        attend(q, k, v, vtl.full((5, 6), 100.0, dtype=vtl.float64)).numpy(), attend(q, k, v).numpy(), rtol=1e-10
    )


@pytest.mark.parametrize("need_weights", [True, False])
def test_a_query_that_sees_one_key_sends_nothing_to_the_scores(need_weights, draw):
    """Its weight is 1 whatever the score, so what q and k receive is 0, not the rounding of two sums that should be equal.

    Kernels in tiles have the one sum by another road (ADR 0051), so of them a few roundings are left.
    """
    layer = nn.MultiheadAttention(6, 2, batch_first=True)
    query, key, value = (vtl.tensor(draw(3, n, 6) * 4, dtype="float32", requires_grad=True) for n in (2, 4, 4))
    hidden = np.ones((3, 4), bool)
    hidden[[0, 1, 2], [2, 0, 3]] = False

    y, _ = layer(query, key, value, vtl.tensor(hidden), need_weights=need_weights)
    (y * vtl.tensor(draw(3, 2, 6), dtype="float32")).sum().backward()

    on_host = y.device.startswith("cpu")
    left = 0 if on_host else 2.0**-20 * np.abs(value.grad.numpy()).max()
    assert np.abs(query.grad.numpy()).max() <= left
    assert np.abs(key.grad.numpy()).max() <= left
    assert value.grad.numpy().any()


def test_dropout_of_weights_keeps_the_mean_and_is_the_same_backward():
    """Averaged over many draws it is attention without dropout; gradients use the forward pass's mask."""
    vtl.manual_seed(0)
    random = np.random.default_rng(0)
    q, k, v = (vtl.tensor(random.normal(size=(400, 4, 3))) for _ in range(3))
    q, k, v = (t[:1].expand(400, 4, 3) for t in (q, k, v))
    mean = attend(q, k, v, dropout_p=0.3).numpy().mean(0)
    np.testing.assert_allclose(mean, attend(q[0], k[0], v[0]).numpy(), atol=0.12)

    def seeded(q, k, v):
        vtl.manual_seed(3)
        return attend(q, k, v, dropout_p=0.4)

    assert vtl.check_gradients(seeded, *(random.normal(size=(4, 3)) for _ in range(3))) < 1e-7
    assert not attend(q[0], k[0], v[0], dropout_p=1.0).numpy().any()


def test_grouped_queries_share_keys(draw):
    q, k, v = draw(2, 4, 3, 5), draw(2, 2, 6, 5), draw(2, 2, 6, 5)
    y = attend(q, k, v, enable_gqa=True)
    for head in range(4):
        np.testing.assert_allclose(
            y.numpy()[:, head], attend(q[:, head], k[:, head // 2], v[:, head // 2]).numpy(), rtol=1e-12
        )
    with pytest.raises(vtl.ShapeError, match="4 heads of queries do not divide among 3"):
        attend(q, draw(2, 3, 6, 5), draw(2, 3, 6, 5), enable_gqa=True)


def test_bad_attention_is_named(draw):
    q, k, v = draw(3, 4), draw(5, 4), draw(5, 2)
    with pytest.raises(vtl.ShapeError, match=r"attention: q \(3, 4\), k \(5, 3\)"):
        attend(q, draw(5, 3), v)
    with pytest.raises(vtl.ShapeError, match=r"attention: mask \(4, 5\) does not broadcast|do not broadcast"):
        attend(q, k, v, vtl.ones(4, 5, dtype=vtl.bool))
    with pytest.raises(vtl.DTypeError, match="mask is int64; it must be bool, or floats"):
        attend(q, k, v, vtl.ones(3, 5, dtype=vtl.int64))
    with pytest.raises(vtl.AttributeValueError, match="give attn_mask or is_causal, not both"):
        attend(q, k, v, vtl.ones(3, 5, dtype=vtl.bool), is_causal=True)
    with pytest.raises(vtl.AttributeValueError, match=r"dropout_p=1\.5 must lie in"):
        attend(q, k, v, dropout_p=1.5)
    with pytest.raises(vtl.AttributeValueError, match="num_heads=3 must divide embed_dim=4"):
        nn.MultiheadAttention(4, 3)
    with pytest.raises(vtl.UnsupportedError, match="add_bias_kv and add_zero_attn are not here"):
        nn.MultiheadAttention(4, 2, add_bias_kv=True)
    layer = nn.MultiheadAttention(4, 2, batch_first=True)
    x = vtl.ones(2, 3, 4)
    with pytest.raises(vtl.ShapeError, match=r"attn_mask \(2, 3\) must be \(3, 3\) or \(4, 3, 3\)"):
        layer(x, x, x, attn_mask=vtl.ones(2, 3, dtype=vtl.bool))
    with pytest.raises(vtl.ShapeError, match=r"key_padding_mask \(2, 2\) must be \(2, 3\)"):
        layer(x, x, x, key_padding_mask=vtl.ones(2, 2, dtype=vtl.bool))


def test_padding_hides_keys(draw, device):
    """What stands at hidden keys changes nothing, with weights and without; hidden weights are 0."""
    layer = nn.MultiheadAttention(4, 2, batch_first=True).to(device)
    x = draw(2, 5, 4, dtype=vtl.float32).numpy()
    hidden = np.array([[False] * 5, [False, False, True, True, True]])
    changed = np.where(hidden[..., None], 7.0, x).astype(np.float32)
    for need in (True, False):
        found = []
        for keys in (x, changed):
            q, k = vtl.tensor(x, device=device), vtl.tensor(keys, device=device)
            y, w = layer(q, k, k, key_padding_mask=vtl.tensor(hidden, device=device), need_weights=need)
            found.append(y.numpy())
        np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-6)
        if need:
            assert not w.numpy()[1, :, 2:].any()
            np.testing.assert_allclose(w.numpy().sum(-1), 1, rtol=1e-5)


def test_positions_are_vaswani_s_and_stay_in_the_graph(device):
    """C5: the table of section 3.5; the input's gradient passes."""
    layer = nn.PositionalEncoding(6, max_len=50).to(device)
    x = vtl.zeros(2, 9, 6, device=device, requires_grad=True)
    y = layer(x)
    t, i = np.arange(9)[:, None], np.arange(3)[None]
    angle = t / 10000 ** (2 * i / 6)
    np.testing.assert_allclose(y.numpy()[1, :, 0::2], np.sin(angle), atol=1e-6)
    np.testing.assert_allclose(y.numpy()[0, :, 1::2], np.cos(angle), atol=1e-6)
    y.sum().backward()
    assert (x.grad.numpy() == 1).all()
    assert nn.PositionalEncoding(5, batch_first=False)(vtl.zeros(3, 2, 5)).shape == (3, 2, 5)
    with pytest.raises(vtl.ShapeError, match="at most 50 positions"):
        layer(vtl.zeros(1, 51, 6))


@pytest.mark.parametrize("options", [{}, {"norm_first": True, "activation": "gelu"}], ids=["after", "before"])
def test_a_transformer_trains_on_the_device(device, moved, options):
    """A14: attention, norms and dropout forward and backward without a transfer; the first losses equal the CPU's."""
    losses = {}
    for place in dict.fromkeys(("cpu", device)):
        vtl.manual_seed(1)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True, **options)
        net = nn.Sequential(
            nn.PositionalEncoding(8), nn.TransformerEncoder(layer, 2, nn.LayerNorm(8)), nn.Linear(8, 3)
        ).to(place)
        optimizer = nn.optim.AdamW(net.parameters(), 0.01)
        random = np.random.default_rng(0)
        x = vtl.tensor(random.normal(size=(3, 5, 8)), dtype=vtl.float32, device=place)
        target = vtl.tensor(random.integers(0, 3, (3, 5)), device=place)
        found = []
        for _ in range(3):
            before = moved(x)
            loss = nn.functional.cross_entropy(net(x).transpose(1, 2), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            assert moved(x) == before
            found.append(loss.item())
        losses[place] = found
    np.testing.assert_allclose(losses[device], losses["cpu"], rtol=1e-3)
    assert losses[device][-1] < losses[device][0]


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("floats", [True, False])
def test_padding_beside_is_causal_hides_the_future_too(device, need_weights, floats):
    """Both as one mask: what later positions hold does not count, nor what padding holds."""
    layer = nn.MultiheadAttention(4, 2, batch_first=True).to(device)
    x = vtl.randn(2, 5, 4, device=device)
    padded = vtl.tensor([[False] * 5, [False] * 3 + [True] * 2], device=device)
    padding = vtl.where(padded, -np.inf, vtl.zeros((), device=device)) if floats else padded
    future = vtl.tensor(np.triu(np.ones((5, 5), bool), 1), device=device)
    y, weights = layer(x, x, x, padding, need_weights, is_causal=True)
    expected, _ = layer(x, x, x, padding, need_weights, attn_mask=future)
    np.testing.assert_allclose(y.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)
    if need_weights:
        assert not np.triu(weights.numpy(), 1).any()


def test_queries_and_keys_of_other_batches_are_refused():
    """A batch of one is not spread over the queries of others, nor the other way."""
    layer = nn.MultiheadAttention(4, 2)
    one, two = vtl.ones(3, 1, 4), vtl.ones(3, 2, 4)
    for query, key in ((two, one), (one, two)):
        with pytest.raises(vtl.ShapeError, match="batches of"):
            layer(query, key, key)
    with pytest.raises(vtl.ShapeError, match="a batch, or none"):
        layer(vtl.ones(3, 4), two, two)


def test_grouped_heads_need_an_axis_of_heads():
    with pytest.raises(vtl.ShapeError, match="axis of heads"):
        attend(vtl.ones(3, 4), vtl.ones(5, 4), vtl.ones(5, 4), enable_gqa=True)
    with pytest.raises(vtl.ShapeError, match="do not divide among 0"):
        attend(vtl.ones(4, 3, 4), vtl.ones(0, 5, 4), vtl.ones(0, 5, 4), enable_gqa=True)


def test_arguments_of_attention_are_checked_and_shown():
    with pytest.raises(vtl.AttributeValueError, match="dropout=2"):
        nn.MultiheadAttention(4, 2, dropout=2)
    assert repr(nn.MultiheadAttention(4, 2)) == (
        "MultiheadAttention(\n"
        "  4, 2, dropout=0.0, batch_first=False\n"
        "  (out_proj): Linear(in_features=4, out_features=4, bias=True)\n"
        ")"
    )
