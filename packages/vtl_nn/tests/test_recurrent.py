"""RNN, LSTM and GRU: known answers, packed sequences, and training on every backend."""

from __future__ import annotations

import numpy as np
import pytest

import vtl_core as vtl
import vtl_nn as nn

rnn = nn.utils.rnn


def filled(layer, device, **values):
    with vtl.no_grad():
        for name, p in layer.named_parameters():
            p.copy_(vtl.tensor(values.get(name, np.zeros(p.shape)), dtype=p.dtype).reshape(*p.shape))
    return layer.to(device)


def test_d12_gate_order_of_an_lstm(device):
    """D12: hidden size 1, gates input, forget, cell, output; read in another order h would be 0.3189468."""
    layer = filled(nn.LSTM(1, 1), device, weight_ih_l0=[0.1, 0.2, 0.3, 0.4], weight_hh_l0=[0.5, 0.6, 0.7, 0.8])
    y, (h, c) = layer(vtl.tensor([[[1.0]], [[2.0]]], device=device))
    np.testing.assert_allclose(y.numpy().ravel(), [0.0908519, 0.2795890], rtol=1e-5)
    assert (h.item(), c.item()) == (pytest.approx(0.2795890, rel=1e-5), pytest.approx(0.4193819, rel=1e-5))


def test_d12_gate_order_of_a_gru(device):
    """D12: the reset gate acts after the product, bias inside; before it the last state would be 0.5842581."""
    layer = filled(
        nn.GRU(1, 1), device, weight_ih_l0=[0.1, 0.2, 0.3], weight_hh_l0=[0.4, 0.5, 0.6], bias_hh_l0=[0, 0, 1]
    )
    y, _ = layer(vtl.tensor([[[1.0]], [[2.0]]], device=device))
    np.testing.assert_allclose(y.numpy().ravel(), [0.3051094, 0.5070892], rtol=1e-5)


def test_weights_have_pytorchs_names_and_bounds():
    layer = nn.LSTM(3, 4, num_layers=2, bidirectional=True)
    names = [name for name, _ in layer.named_parameters()]
    assert names[:8] == [
        f"{kind}_l0{end}" for end in ("", "_reverse") for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    ]
    assert {n: p.shape for n, p in layer.named_parameters()}["weight_ih_l1_reverse"] == (16, 8)
    assert all(np.abs(p.numpy()).max() <= 0.5 for p in layer.parameters())
    assert max(np.abs(p.numpy()).max() for p in layer.parameters()) > 0.4


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_packed_sequences_are_what_each_alone_gives(kind, bidirectional, device):
    """Lengths in any order: outputs and last states of each sequence as if it had run by itself."""
    vtl.manual_seed(0)
    layer = getattr(nn, kind)(3, 4, 2, bidirectional=bidirectional).to(device)
    x, lengths = vtl.randn((5, 3, 3)).to(device), [2, 5, 3]
    y, counts = rnn.pad_packed_sequence(layer(rnn.pack_padded_sequence(x, lengths, enforce_sorted=False))[0])
    _, last = layer(rnn.pack_padded_sequence(x, lengths, enforce_sorted=False))
    last = last if isinstance(last, tuple) else (last,)
    assert counts.tolist() == lengths
    for i, n in enumerate(lengths):
        alone, ends = layer(x[:n, i : i + 1])
        np.testing.assert_allclose(y.numpy()[:n, i], alone.numpy()[:, 0], rtol=1e-4, atol=1e-6)
        assert not y.numpy()[n:, i].any()
        for one, many in zip(ends if isinstance(ends, tuple) else (ends,), last, strict=True):
            np.testing.assert_allclose(many.numpy()[:, i], one.numpy()[:, 0], rtol=1e-4, atol=1e-6)


def test_packing_leaves_out_padding_and_padding_puts_it_back():
    x = vtl.tensor(np.arange(12.0).reshape(3, 2, 2), requires_grad=True)
    packed = rnn.pack_padded_sequence(x, [3, 1])
    assert packed.batch_sizes == (2, 1, 1)
    assert packed.data.tolist() == [[0, 1], [2, 3], [4, 5], [8, 9]]
    y, lengths = rnn.pad_packed_sequence(packed, batch_first=True, padding_value=-1.0, total_length=4)
    assert y.shape == (2, 4, 2)
    assert lengths.tolist() == [3, 1]
    assert y.tolist()[1] == [[2, 3], [-1, -1], [-1, -1], [-1, -1]]
    y.sum().backward()
    assert x.grad.tolist() == [[[1, 1], [1, 1]], [[1, 1], [0, 0]], [[1, 1], [0, 0]]]


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_recurrent_layers_train_on_the_device(kind, device, moved):
    """A14: forward and back through time without a transfer; the losses are the CPU's."""
    losses = {}
    for place in dict.fromkeys(("cpu", device)):
        vtl.manual_seed(1)
        net, head = (
            getattr(nn, kind)(3, 5, 2, batch_first=True, bidirectional=True).to(place),
            nn.Linear(10, 2).to(place),
        )
        optimizer = nn.optim.NAdam([*net.parameters(), *head.parameters()], 0.01)
        random = np.random.default_rng(0)
        x = vtl.tensor(random.normal(size=(4, 6, 3)), dtype=vtl.float32, device=place)
        target = vtl.tensor([0, 1, 1, 0], device=place)
        found = []
        for _ in range(3):
            before = moved(x)
            loss = nn.functional.cross_entropy(head(net(x)[0][:, -1]), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            assert moved(x) == before
            found.append(loss.item())
        losses[place] = found
    np.testing.assert_allclose(losses[device], losses["cpu"], rtol=1e-3)
    assert losses[device][-1] < losses[device][0]


def test_bad_sequences_are_named():
    layer = nn.LSTM(3, 4)
    for shape in ((5, 2, 4), (3,), (0, 2, 3)):
        with pytest.raises(vtl.ShapeError, match=r"LSTM: input .* must be \(L, N, 3\) or \(L, 3\)"):
            layer(vtl.zeros(*shape))
    with pytest.raises(vtl.ShapeError, match=r"LSTM: the start \(1, 2, 5\), \(1, 2, 4\) must be 2 of \(1, 2, 4\)"):
        layer(vtl.zeros(5, 2, 3), (vtl.zeros(1, 2, 5), vtl.zeros(1, 2, 4)))
    with pytest.raises(vtl.AttributeValueError, match="nonlinearity='gelu'"):
        nn.RNN(3, 4, nonlinearity="gelu")
    with pytest.raises(vtl.AttributeValueError, match="hidden_size=0"):
        nn.GRU(3, 0)
    with pytest.raises(vtl.UnsupportedError, match="proj_size=2 is not here"):
        nn.LSTM(3, 4, proj_size=2)
    x = vtl.zeros(5, 2, 3)
    for lengths in ([5], [6, 1], [3, 0]):
        with pytest.raises(vtl.ShapeError, match="one a sequence, from 1 to its steps"):
            rnn.pack_padded_sequence(x, lengths)
    with pytest.raises(vtl.AttributeValueError, match="must fall, the longest first; or pass enforce_sorted=False"):
        rnn.pack_padded_sequence(x, [2, 5])


@pytest.mark.cpu_only("differences need float64 and many calls; the pieces are ops that every device's suite has")
@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
def test_second_derivatives_are_right_with_packed_lengths_in_both_directions(kind, draw):
    """B07: a gradient of a gradient, as PyTorch's layers have it outside cuDNN."""
    layer = kind(2, 3, bidirectional=True, dtype=vtl.float64)

    def packed(x):
        output, last = layer(rnn.pack_padded_sequence(x, [2, 3], enforce_sorted=False))
        return output.data, *(last if kind is nn.LSTM else (last,))

    vtl.check_gradients(packed, draw(3, 2, 2), order=2)


def test_a_penalty_on_a_gradient_trains_the_weights(device, draw):
    """Gulrajani et al. 2017: the norm of the input's gradient, differentiated by the weights, on every device."""
    layer = nn.LSTM(2, 3).to(device)
    x = vtl.tensor(draw(4, 2, 2), dtype=vtl.float32, device=device, requires_grad=True)
    (slope,) = vtl.grad(layer(x)[0].sum(), [x], create_graph=True)
    slope.square().sum().backward()
    for name, p in layer.named_parameters():
        assert np.isfinite(p.grad.numpy()).all(), name
        assert p.grad.numpy().any(), name


@pytest.mark.parametrize(("layer", "what"), [(nn.RNN, "one tensor h"), (nn.GRU, "one tensor h"), (nn.LSTM, "a pair")])
def test_a_start_of_another_kind_is_refused(layer, what):
    h = vtl.zeros(1, 2, 4)
    with pytest.raises(vtl.DTypeError, match=what):
        layer(3, 4)(vtl.ones(5, 2, 3), (h, None) if layer is nn.LSTM else (h, h))


def test_no_sequences_cannot_be_packed():
    with pytest.raises(vtl.ShapeError, match="one sequence at least"):
        rnn.pack_padded_sequence(vtl.ones(5, 0, 3), [])


@pytest.mark.parametrize("lengths", [[4.5, 3], vtl.tensor([4.0, 3.0]), vtl.tensor([[5, 3]])])
def test_lengths_are_integers(lengths):
    """4.5 steps are not 4."""
    with pytest.raises(vtl.DTypeError, match="must be integers, one a sequence"):
        rnn.pack_padded_sequence(vtl.ones(5, 2, 3), lengths)
