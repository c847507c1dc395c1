"""Logits of one sample, and transposed convolutions told how large to come out, against PyTorch."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

import vtl_core as vtl
import vtl_nn as nn

SHARED = list(itertools.product(("mean", "sum", "none"), (False, True), ("label", "ignored")))
CASES = [("nll_loss", {"reduction": r}, w, kind) for r, w, kind in SHARED] + [
    ("cross_entropy", {"reduction": r, "label_smoothing": s}, w, kind)
    for (r, w, kind), s in itertools.product(
        SHARED + [(r, True, "probabilities") for r in ("mean", "sum", "none")], (0.0, 0.2)
    )
]


@pytest.mark.parametrize(("name", "options", "weighted", "kind"), CASES)
def test_logits_of_one_sample_have_pytorch_s_loss(name, options, weighted, kind):
    rng = np.random.default_rng(len(repr(options)) + weighted)
    z, weight = rng.standard_normal(5), rng.uniform(0.5, 1.5, 5)
    target = {"label": np.array(2), "ignored": np.array(-100), "probabilities": rng.dirichlet(np.ones(5))}[kind]
    x, peer = vtl.tensor(z, requires_grad=True), torch.tensor(z, requires_grad=True)

    ours = getattr(nn.functional, name)(x, vtl.tensor(target), vtl.tensor(weight) if weighted else None, **options)
    theirs = getattr(torch.nn.functional, name)(
        peer, torch.tensor(target), torch.tensor(weight) if weighted else None, **options
    )
    ours.backward()
    theirs.backward()

    assert ours.shape == tuple(theirs.shape) == ()
    np.testing.assert_allclose(ours.item(), theirs.item(), rtol=1e-13)
    ignored = kind == "ignored"  # where the mean is NaN: zeros, as C01 has it
    np.testing.assert_allclose(x.grad.numpy(), np.zeros(5) if ignored else peer.grad.numpy(), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("axes", [1, 2])
def test_an_output_size_is_reached_or_refused_as_pytorch_does(axes):
    """With and without batch, with and without the leading axes in the size."""
    rng, reached, refused = np.random.default_rng(axes), 0, 0
    for trial in range(120):
        ranges = {"kernel_size": (2, 5), "stride": (1, 4), "padding": (0, 2), "dilation": (1, 3)}
        options = {name: tuple(map(int, rng.integers(*r, axes))) for name, r in ranges.items()}
        x = rng.standard_normal((2, 3, *rng.integers(2, 5, axes))[trial % 3 == 0 :])
        theirs = getattr(torch.nn, f"ConvTranspose{axes}d")(3, 2, **options).double()
        ours = getattr(nn, f"ConvTranspose{axes}d")(3, 2, **options, dtype=vtl.float64)
        ours.load_state_dict({name: value.numpy() for name, value in theirs.state_dict().items()})
        least = theirs(torch.tensor(x)).shape[-axes:]
        size = [int(n + extra) for n, extra in zip(least, rng.integers(-1, 4, axes), strict=True)]
        size = [*x.shape[:-axes], *size] if trial % 2 else size
        try:
            want = theirs(torch.tensor(x), output_size=size).detach().numpy()
        except ValueError:
            refused += 1
            with pytest.raises(vtl.AttributeValueError, match="output_size="):
                ours(vtl.tensor(x), output_size=size)
            continue
        reached += 1
        np.testing.assert_allclose(ours(vtl.tensor(x), output_size=size).numpy(), want, rtol=1e-11, atol=1e-12)

    assert min(reached, refused) > 10
