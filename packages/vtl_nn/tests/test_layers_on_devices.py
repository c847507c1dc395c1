"""Roadmap rows A22 to A27 and B10, on every device: each layer's values and gradients are the CPU's in float32, and nothing comes
to the host on the way.

The bounds are a hundred times tighter than the rows ask for.
"""

from __future__ import annotations

import numpy as np
import pytest

import vtl_core as vtl
import vtl_nn as nn

TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}
RNG = np.random.default_rng(8)


def moved(device):
    """Bytes and calls of arrays, up and down."""
    found = vtl.Context(device).backend.transfers()
    return found.bytes_to_device, found.calls_to_device, found.bytes_to_host, found.calls_to_host


def passes(make, x, device, *, still=True):
    """A layer's value on x, and the gradients of a random covector: of x, then of each parameter; on `device`."""
    vtl.manual_seed(3)
    layer = make().to(device)
    inputs = vtl.tensor(x, device=device, requires_grad=True)
    layer(inputs)  # what is made once is made
    weights = vtl.randn(*layer(inputs).shape, generator=vtl.Generator(9), device=device)
    before = moved(device)
    y = layer(inputs)
    (y * weights).sum().backward()
    assert moved(device) == before or not still, "a pass moved something"
    tensors = [y, inputs.grad, *(p.grad for p in layer.parameters())]
    assert {t.device for t in tensors} == {vtl.empty(0, device=device).device}
    return [t.numpy() for t in tensors]


def agree(make, x, device):
    for got, expected in zip(passes(make, x, device), passes(make, x, "cpu"), strict=True):
        np.testing.assert_allclose(got, expected, **TOLERANCE)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("batch", [(), (1,), (5,), (2, 3), (0,)])
def test_a22_linear_forward_and_backward(device, batch, bias):
    agree(lambda: nn.Linear(7, 9, bias=bias), RNG.standard_normal((*batch, 7)).astype(np.float32), device)


@pytest.mark.parametrize(("stride", "dilation", "groups"), [(1, 1, 1), (2, 1, 1), ((2, 3), (2, 1), 2)])
@pytest.mark.parametrize("padding", [0, 1, 2, (0, 3), (3, 1)])
def test_a23_a24_conv2d_forward_and_both_gradients(device, padding, stride, dilation, groups):
    """Values, and gradients of input, weight and bias, computed on the device."""
    agree(
        lambda: nn.Conv2d(4, 6, 3, stride=stride, padding=padding, dilation=dilation, groups=groups),
        RNG.standard_normal((2, 4, 9, 8)).astype(np.float32),
        device,
    )


@pytest.mark.parametrize("layer", [nn.ReLU, nn.Sigmoid])
def test_a25_relu_and_sigmoid(device, layer):
    """Also of zero, infinities, NaN, and where sigmoid saturates."""
    x = RNG.standard_normal((4, 33)).astype(np.float32) * 5
    x[0, :8] = [0, -0.0, np.inf, -np.inf, np.nan, 100, -100, 1e-40]
    agree(layer, x, device)


def test_a26_a_fused_adam_step(device):
    """Ten steps of equal gradients: weights and slots stay where they are, and are the CPU's."""
    runs = []
    for place in (device, "cpu"):
        vtl.manual_seed(4)
        model = nn.Sequential(nn.Linear(6, 5), nn.Conv2d(1, 2, 3)).to(place)
        optimizer = nn.optim.Adam(model.parameters(), lr=1e-2)
        generator = np.random.default_rng(2)
        gradients = [
            [generator.standard_normal(p.shape).astype(np.float32) for p in model.parameters()] for _ in range(10)
        ]
        for step in gradients:
            for p, g in zip(model.parameters(), step, strict=True):
                p.grad = vtl.tensor(g, device=place)
            before = moved(place)
            optimizer.step()
            assert moved(place) == before, "a step moved something"
        slots = [slot.numpy() for held in optimizer.state.values() for slot in held.values()]
        runs.append([*(p.numpy() for p in model.parameters()), *slots])
    for got, expected in zip(*runs, strict=True):
        np.testing.assert_allclose(got, expected, rtol=2e-6, atol=1e-7)


def test_a27_activations_stay_on_the_device_between_layers(device):
    """Forward, loss, backward and step of a whole model move nothing; the loss alone is read."""
    vtl.manual_seed(1)
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.AvgPool2d(2), nn.Flatten(),
        nn.Dropout(0.3), nn.Linear(16, 8), nn.LayerNorm(8), nn.GELU(), nn.Sigmoid(), nn.Linear(8, 5),
    ).to(device)  # fmt: skip
    optimizer = nn.optim.Adam(model.parameters())
    images = vtl.tensor(RNG.standard_normal((3, 3, 8, 8)).astype(np.float32), device=device)
    labels = vtl.tensor(np.array([0, 4, 2]), device=device)
    backend, loss = vtl.Context(device).backend, None
    for _ in range(3):
        before = moved(device)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        backend.synchronize()
        assert moved(device) == before
    loss.item()
    up, up_calls, down, calls = (b - a for a, b in zip(before, moved(device), strict=True))
    assert (up, up_calls, down, calls) in ((0, 0, 4, 1), (0, 0, 0, 0)), "the CPU transfers nothing"


def test_b10_a_sequential_under_mse_has_float32_gradients(device):
    """B10: value and every gradient are float32, and those of the formulas in float64."""
    vtl.manual_seed(2)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).to(device)
    x, target = RNG.standard_normal((5, 6)), RNG.standard_normal((5, 3))
    inputs = vtl.tensor(x, dtype=vtl.float32, device=device, requires_grad=True)
    loss = nn.MSELoss()(model(inputs), vtl.tensor(target, dtype=vtl.float32, device=device))
    loss.backward()

    w, b, v, c = (p.numpy().astype(np.float64) for p in model.parameters())
    h = np.tanh(x @ w.T + b)
    dy = 2 * (h @ v.T + c - target) / target.size
    dh = dy @ v * (1 - h**2)
    expected = [dh.T @ x, dh.sum(0), dy.T @ h, dy.sum(0), dh @ w]
    found = [*(p.grad for p in model.parameters()), inputs.grad]
    assert {t.dtype for t in (loss, *found)} == {vtl.float32}
    assert loss.item() == pytest.approx(np.square(h @ v.T + c - target).mean(), rel=1e-5)
    for got, want in zip(found, expected, strict=True):
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)),
        lambda: nn.Sequential(nn.LayerNorm(6), nn.GELU(), nn.Linear(6, 3)),
    ],
)
def test_g15_gradients_of_parameters_alone_are_those_of_the_full_backward(device, make):
    """G15: also with everything but one layer frozen."""
    x = RNG.standard_normal((5, 6)).astype(np.float32)
    runs = []
    for wants_input in (True, False):
        vtl.manual_seed(3)
        model = make().to(device)
        inputs = vtl.tensor(x, device=device, requires_grad=wants_input)
        model(inputs).square().sum().backward()
        runs.append([p.grad.numpy() for p in model.parameters()])
    for full, alone in zip(*runs, strict=True):
        np.testing.assert_array_equal(full, alone)
    vtl.manual_seed(3)
    model = make().to(device)
    for p in list(model.parameters())[:-1]:
        p.requires_grad_(False)
    model(vtl.tensor(x, device=device)).square().sum().backward()
    np.testing.assert_array_equal(list(model.parameters())[-1].grad.numpy(), runs[0][-1])


def test_g15_the_identity_has_the_gradient_one(device):
    """y = x at 2: Taichi's Vulkan gave 4 and 0."""
    x = vtl.tensor([2.0], device=device, requires_grad=True)
    y = x * 1.0
    y.backward(vtl.ones(1, device=device))
    assert (y.tolist(), x.grad.tolist()) == ([2.0], [1.0])
