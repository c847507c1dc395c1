"""Muon: an orthogonal step, matrices alike in one batch, and matrices of nothing."""

from __future__ import annotations

import numpy as np
import pytest

import vtl_core as vtl
import vtl_nn as nn


def test_muon_steps_along_an_orthogonal_matrix(device):
    """All singular values of a step without decay lie near lr; in the momentum's own directions."""
    random = np.random.default_rng(0)
    for shape in ((6, 4), (4, 6)):
        p = vtl.zeros(*shape, device=device, requires_grad=True)
        optimizer = nn.optim.Muon([p], lr=0.5, weight_decay=0, nesterov=False)
        g = random.normal(size=shape).astype(np.float32)
        p.grad = vtl.tensor(g, device=device)
        optimizer.step()
        _, s, _ = np.linalg.svd(-p.numpy().astype(float))
        scale = 0.5 * max(1, shape[0] / shape[1]) ** 0.5
        assert (s > 0.6 * scale).all()
        assert (s < 1.3 * scale).all()
        gu, _, gvt = np.linalg.svd(g.astype(float), full_matrices=False)
        inner = np.sum((gu @ gvt) * -p.numpy()) / scale
        assert inner > 0.85 * min(shape)
    with pytest.raises(vtl.ShapeError, match=r"Muon: parameter 0 is \(3,\), no matrix; give it to AdamW"):
        nn.optim.Muon([vtl.ones(3, requires_grad=True)])


def test_muon_steps_over_matrices_without_elements():
    p = [vtl.ones(shape, requires_grad=True) for shape in ((2, 0), (0, 2))]
    for x in p:
        x.grad = vtl.zeros_like(x)
    nn.optim.Muon(p).step()
    assert [x.shape for x in p] == [(2, 0), (0, 2)]


@pytest.mark.parametrize("shape", [(2, 3), (3, 2), (1, 1)])
def test_muon_steps_matrices_alike_in_one_batch_or_alone(device, shape):
    """Shapes and their transposes share the launches of the iteration; each is stepped as if it were the only one."""
    rng = np.random.default_rng(3)
    shapes = [shape, shape[::-1], (2, 2), shape]
    starts, gradients = ([rng.normal(size=s).astype(np.float32) for s in shapes] for _ in range(2))

    def stepped(places):
        ps = [vtl.tensor(starts[k], device=device, requires_grad=True) for k in places]
        optimizer = nn.optim.Muon(ps, lr=0.1)
        for p, k in zip(ps, places, strict=True):
            p.grad = vtl.tensor(gradients[k], device=device)
        optimizer.step()
        return [p.numpy() for p in ps]

    together = stepped(range(4))
    for k in range(4):
        np.testing.assert_allclose(together[k], stepped([k])[0], rtol=0, atol=2e-3)


def test_groups_of_different_rates_share_the_iteration(device, monkeypatch):
    """What lr, momentum and decay are does not matter to it; a group with other coefficients has its own."""
    rng = np.random.default_rng(4)
    starts, gradients = (rng.normal(size=(5, 3, 2)).astype(np.float32) for _ in range(2))
    options = [
        {"lr": 0.1},
        {"lr": 0.02, "weight_decay": 0.3},
        {"momentum": 0.5, "nesterov": False},
        {"ns_steps": 3},
        {"adjust_lr_fn": "match_rms_adamw"},
    ]

    def stepped(places):
        ps = [vtl.tensor(starts[k], device=device, requires_grad=True) for k in places]
        optimizer = nn.optim.Muon([{"params": [p], **options[k]} for p, k in zip(ps, places, strict=True)])
        for _ in range(2):
            for p, k in zip(ps, places, strict=True):
                p.grad = vtl.tensor(gradients[k], device=device)
            optimizer.step()
        return [p.numpy() for p in ps]

    batches = []
    from vtl_nn.optim import muon

    plain = muon._newton_schulz
    monkeypatch.setattr(muon, "_newton_schulz", lambda u, group: batches.append(u.shape[0]) or plain(u, group))
    together = stepped(range(5))
    assert batches == [4, 1, 4, 1]
    for k in range(5):
        np.testing.assert_allclose(together[k], stepped([k])[0], rtol=0, atol=2e-3)
