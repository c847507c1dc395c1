"""Convolutions of one axis, transposes, padding modes: known answers and properties on every backend."""

from __future__ import annotations

import numpy as np
import pytest

import vtl_core as vtl
import vtl_nn as nn

F = nn.functional


def row(values, device):
    return vtl.tensor(values, dtype=vtl.float32, device=device).reshape(1, 1, -1)


@pytest.mark.parametrize(
    ("kernel", "options", "expected"),
    [
        ([1, 1], {"stride": 3}, [1, 1, 0, 2, 2, 0, 3, 3]),
        ([1, 1], {"stride": 3, "output_padding": 2}, [1, 1, 0, 2, 2, 0, 3, 3, 0, 0]),
        ([1, 10, 100], {"stride": 2, "padding": 1}, [10, 102, 20, 203, 30]),
        ([1, 10, 100], {"stride": 2, "padding": 1, "output_padding": 1}, [10, 102, 20, 203, 30, 300]),
        ([1, 10], {"dilation": 3, "output_padding": 2}, [1, 2, 3, 10, 20, 30, 0, 0]),
    ],
)
def test_d05_output_padding(device, kernel, options, expected):
    """D05: cells that output padding adds are computed where the kernel reaches them."""
    y = F.conv_transpose1d(row([1, 2, 3], device), row(kernel, device), **options)
    assert y.reshape(-1).tolist() == expected


def test_d05_too_much_output_padding_is_refused():
    with pytest.raises(vtl.AttributeValueError, match="output_padding=2 must be below stride=2 or dilation=1"):
        nn.ConvTranspose2d(1, 1, 3, stride=2, output_padding=2)(vtl.ones(1, 1, 4, 4))


def test_transpose_is_the_adjoint_of_the_convolution(device, draw):
    """<conv(x), y> = <x, conv_transpose(y)> for any options, groups included."""
    x, weight = draw(2, 4, 9, 8, dtype=vtl.float32).to(device), draw(6, 2, 3, 2, dtype=vtl.float32).to(device)
    options = {"stride": (2, 1), "padding": (1, 1), "dilation": (1, 2), "groups": 2}
    y = F.conv2d(x, weight, None, **options)
    z = draw(*y.shape, dtype=vtl.float32).to(device)
    back = F.conv_transpose2d(z, weight, None, output_padding=(0, 0), **options)
    grown = F.pad(back, (0, x.shape[3] - back.shape[3], 0, x.shape[2] - back.shape[2]))
    assert (y * z).sum().item() == pytest.approx((x * grown).sum().item(), rel=1e-3)


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_padding_modes_are_numpys(device, draw, mode):
    x = draw(2, 3, 5, 4, dtype=vtl.float32).to(device).requires_grad_()
    numpys = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}[mode]
    y = F.pad(x, (1, 2, 3, 0), mode)
    np.testing.assert_array_equal(
        y.detach().numpy(), np.pad(x.detach().numpy(), ((0, 0), (0, 0), (3, 0), (1, 2)), mode=numpys)
    )
    y.sum().backward()
    assert x.grad.sum().item() == y.size


def test_bad_padding_is_named():
    for pad, mode in (
        ((1,), "constant"),
        ((1, 1), "mirror"),
        ((5, 0), "reflect"),
        ((-1, 0), "circular"),
        ((1,) * 6, "constant"),
    ):
        with pytest.raises(vtl.AttributeValueError, match="pad: "):
            F.pad(vtl.ones(2, 5), pad, mode)
    with pytest.raises(vtl.AttributeValueError, match="padding_mode='mirror' must be one of 'zeros'"):
        nn.Conv2d(1, 1, 3, padding_mode="mirror")
    with pytest.raises(vtl.AttributeValueError, match="padding_mode='reflect' must be one of 'zeros'"):
        nn.ConvTranspose2d(1, 1, 3, padding_mode="reflect")


def test_d06_nothing_in_nothing_out(device):
    """D06: a batch of none has a result of none, and weights receive zeros, not None."""
    for layer, shape, expected in (
        (nn.Conv1d(2, 3, 3), (0, 2, 7), (0, 3, 5)),
        (nn.ConvTranspose2d(2, 3, 2, stride=2), (0, 2, 3, 3), (0, 3, 6, 6)),
        (nn.Linear(3, 2), (0, 3), (0, 2)),
        (nn.RMSNorm(3), (0, 3), (0, 3)),
    ):
        layer.to(device)
        y = layer(vtl.zeros(*shape, device=device))
        assert y.shape == expected
        y.sum().backward()
        for p in layer.parameters():
            assert p.grad is not None
            assert not p.grad.numpy().any()


def test_layers_of_sequences_train_on_the_device(device, moved):
    """A14: forward, backward and step of the new layers without a transfer."""
    vtl.manual_seed(0)
    net = nn.Sequential(
        nn.Conv1d(2, 4, 3, padding="same", padding_mode="circular"), nn.InstanceNorm1d(4, affine=True), nn.PReLU(4), nn.MaxPool1d(2),
        nn.ConvTranspose1d(4, 4, 2, stride=2), nn.GLU(1), nn.Dropout1d(0.25), nn.AvgPool1d(2), nn.AdaptiveAvgPool1d(3),
        nn.Flatten(), nn.RMSNorm(6), nn.Hardtanh(), nn.Linear(6, 4), nn.Unflatten(1, (2, 2)),
    ).to(device)  # fmt: skip
    optimizer = nn.optim.NAdam(net.parameters(), 0.01)
    x = vtl.randn((3, 2, 8)).to(device)
    target = vtl.zeros(3, 2, 2, device=device)
    for _ in range(2):
        before = moved(x)
        optimizer.zero_grad()
        F.huber_loss(net(x), target).backward()
        optimizer.step()
        assert moved(x) == before
    assert all(p.grad is not None for p in net.parameters())


@pytest.mark.parametrize("pool", [nn.MaxPool1d(2), nn.AvgPool1d(2), nn.AdaptiveAvgPool1d(2)])
def test_pools_of_sequences_name_the_shapes_that_they_take(pool):
    for shape in ((9,), (1, 2, 3, 4)):
        with pytest.raises(vtl.ShapeError, match=r"must be \(N, C, L\) or \(C, L\)"):
            pool(vtl.ones(shape))
    with pytest.raises(vtl.AttributeValueError, match="output_size=None must be an int"):
        F.adaptive_avg_pool1d(vtl.ones(1, 2, 3), None)


def test_a_transposed_convolution_shows_its_output_padding():
    assert "stride=2, padding=1, output_padding=1" in repr(nn.ConvTranspose2d(2, 3, 3, 2, 1, 1))
    assert "output_padding" not in repr(nn.ConvTranspose1d(2, 3, 3))


@pytest.mark.parametrize(("layer", "shape"), [(nn.Conv1d, (1, 2, 5)), (nn.Conv2d, (1, 2, 5, 5))])
def test_a_convolution_without_filters_is_refused(device, layer, shape):
    """As in PyTorch; without channels it is its bias, as a sum of nothing is 0."""
    with pytest.raises(vtl.ShapeError, match="its 0 filters must be one at least"):
        layer(2, 0, 3, device=device)(vtl.zeros(*shape, device=device))
    empty = layer(0, 3, 3, device=device)
    x = vtl.zeros(shape[0], 0, *shape[2:], device=device, requires_grad=True)
    y = empty(x)
    y.sum().backward()

    np.testing.assert_array_equal(
        y.numpy(), np.broadcast_to(empty.bias.numpy().reshape(-1, *[1] * (y.ndim - 2)), y.shape)
    )
    assert (empty.bias.grad.numpy() == y.numel() / 3).all()
    assert x.grad.shape == x.shape
