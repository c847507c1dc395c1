"""Second derivatives of recurrent layers against PyTorch's, whose layers have them outside cuDNN."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import vtl_core as vtl
import vtl_nn as nn


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_a_penalty_on_the_input_s_gradient_gives_pytorch_s_gradients(kind):
    """Two layers in both directions, float64: what the squared gradient of the input gives every weight and the input."""
    rng = np.random.default_rng(2)
    theirs = getattr(torch.nn, kind)(3, 4, num_layers=2, bidirectional=True).double()
    ours = getattr(nn, kind)(3, 4, num_layers=2, bidirectional=True, dtype=vtl.float64)
    ours.load_state_dict({name: vtl.tensor(value.numpy()) for name, value in theirs.state_dict().items()})
    x, weights = rng.standard_normal((5, 2, 3)), rng.standard_normal((5, 2, 8))

    peer = torch.tensor(x, requires_grad=True)
    (slope,) = torch.autograd.grad((theirs(peer)[0] * torch.tensor(weights)).sum(), peer, create_graph=True)
    (slope**2).sum().backward()
    mine = vtl.tensor(x, requires_grad=True)
    (slope,) = vtl.grad((ours(mine)[0] * vtl.tensor(weights)).sum(), [mine], create_graph=True)
    (slope**2).sum().backward()

    np.testing.assert_allclose(mine.grad.numpy(), peer.grad.numpy(), rtol=1e-12, atol=1e-14)
    for name, want in theirs.named_parameters():
        got = dict(ours.named_parameters())[name].grad.numpy()
        np.testing.assert_allclose(got, want.grad.numpy(), rtol=1e-11, atol=1e-12, err_msg=name)
