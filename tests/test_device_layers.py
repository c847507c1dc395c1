"""Row A14 of the roadmap: every layer's gradients, computed on the device while its parameters are the host's."""

from __future__ import annotations

import numpy as np
import pytest

import vtl_core as vtl
import vtl_nn as nn

IMAGES, ROWS, SEQUENCES = (3, 4, 7, 6), (5, 8), (4, 3, 8)
ACTIVATIONS = (
    nn.ReLU,
    nn.Sigmoid,
    nn.Tanh,
    nn.Softmax,
    nn.LogSoftmax,
    nn.GELU,
    nn.SiLU,
    nn.Mish,
    nn.ELU,
    nn.SELU,
    nn.LeakyReLU,
    nn.Softplus,
)


class First(nn.Module):
    """The output of a layer that also returns states or weights, called with x in all `count` places."""

    def __init__(self, layer, count=1):
        self.layer, self.count = layer, count

    def forward(self, x):
        return self.layer(*[x] * self.count)[0]


LAYERS = {
    **{make.__name__: (make, ROWS) for make in ACTIVATIONS},
    "Linear": (lambda: nn.Linear(8, 3), ROWS),
    "Conv2d": (lambda: nn.Conv2d(4, 6, 3, padding=1, groups=2), IMAGES),
    "LayerNorm": (lambda: nn.LayerNorm(8), ROWS),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), IMAGES),
    "BatchNorm1d": (lambda: nn.BatchNorm1d(8), ROWS),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(4), IMAGES),
    "MaxPool2d": (lambda: nn.MaxPool2d(3, stride=2, padding=1), IMAGES),
    "AvgPool2d": (lambda: nn.AvgPool2d(3, stride=2, padding=1), IMAGES),
    "AdaptiveAvgPool2d": (lambda: nn.AdaptiveAvgPool2d((1, 3)), IMAGES),
    "Dropout": (lambda: nn.Dropout(0.4), ROWS),
    "Embedding": (lambda: nn.Embedding(10, 4), None),
    "RNN": (lambda: First(nn.RNN(8, 5)), SEQUENCES),
    "LSTM": (lambda: First(nn.LSTM(8, 5, bidirectional=True)), SEQUENCES),
    "GRU": (lambda: First(nn.GRU(8, 5)), SEQUENCES),
    "MultiheadAttention": (lambda: First(nn.MultiheadAttention(8, 2), 3), SEQUENCES),
    "TransformerEncoderLayer": (lambda: nn.TransformerEncoderLayer(8, 2, 16), SEQUENCES),
}


def played(name, step):
    """Output, gradients and state after a pass each way."""
    make, shape = LAYERS[name]
    vtl.manual_seed(4)
    layer, generator = make(), np.random.default_rng(2)
    if shape is None:
        x = vtl.tensor(generator.integers(0, 10, (3, 5)))
    else:
        x = vtl.tensor(generator.normal(size=shape), dtype=vtl.float32, requires_grad=True)
    y = layer(x)
    dy = vtl.tensor(generator.normal(size=y.shape), dtype=vtl.float32)
    step(lambda: y.backward(dy))
    found = (
        {"y": y, "dx": x.grad} | {f"d{n}": p.grad for n, p in layer.named_parameters()} | dict(layer.named_buffers())
    )
    return {key: value.numpy().copy() for key, value in found.items() if value is not None}


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_a14_gradients_of_every_layer_agree(staged_on, attach, name, kept):
    wanted = played(name, lambda backward: backward())
    session = attach(vtl.Placement("cpu", staged_on, staged_on if kept else "cpu", staged_on, staged_on))
    moved = []

    def counted(backward):
        before = session.transfers()
        backward()
        after = session.transfers()
        moved.append(after.bytes_to_device - before.bytes_to_device)
        assert after.bytes_to_host == before.bytes_to_host, "a part of backward was the host's"

    got = played(name, counted)

    assert moved[0] >= wanted["y"].nbytes  # what arrives went up: the device did it
    assert got.keys() == wanted.keys()
    for key, value in wanted.items():
        np.testing.assert_allclose(got[key], value, rtol=2e-5, atol=2e-5 * max(1e-30, np.abs(value).max()), err_msg=key)
