"""Layers, losses, optimizers and initial weights against PyTorch's of the same name."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

import vtl_core as vtl
import vtl_nn as nn

LAYERS = {
    "Linear": ("Linear", (5, 3), {}, (4, 5)),
    "Linear of 3 axes": ("Linear", (5, 3), {"bias": False}, (2, 4, 5)),
    "MaxPool2d": ("MaxPool2d", (3,), {"stride": 2, "padding": 1}, (2, 3, 9, 8)),
    "MaxPool2d dilated": ("MaxPool2d", ((2, 3),), {"stride": (1, 2), "dilation": 2, "ceil_mode": True}, (2, 3, 9, 8)),
    "AvgPool2d": ("AvgPool2d", (3,), {"stride": 2, "padding": 1, "ceil_mode": True}, (2, 3, 8, 7)),
    "AvgPool2d uncounted": ("AvgPool2d", (2,), {"padding": 1, "count_include_pad": False}, (2, 3, 8, 7)),
    "AdaptiveAvgPool2d": ("AdaptiveAvgPool2d", ((3, 5),), {}, (2, 3, 8, 7)),
    "AdaptiveAvgPool2d even": ("AdaptiveAvgPool2d", ((4, None),), {}, (2, 3, 8, 7)),
    "AdaptiveAvgPool2d wider": ("AdaptiveAvgPool2d", (9,), {}, (2, 3, 8, 7)),
    "AdaptiveAvgPool2d global": ("AdaptiveAvgPool2d", (1,), {}, (2, 3, 8, 7)),
    "BatchNorm1d": ("BatchNorm1d", (5,), {"momentum": 0.3}, (6, 5)),
    "BatchNorm1d of 3 axes": ("BatchNorm1d", (5,), {"momentum": None}, (6, 5, 3)),
    "BatchNorm2d": ("BatchNorm2d", (3,), {"eps": 1e-3}, (4, 3, 5, 6)),
    "BatchNorm2d plain": ("BatchNorm2d", (3,), {"affine": False, "track_running_stats": False}, (4, 3, 5, 6)),
    "LayerNorm": ("LayerNorm", ((4, 5),), {}, (3, 4, 5)),
    "LayerNorm unbiased": ("LayerNorm", (5,), {"bias": False}, (3, 4, 5)),
    "GroupNorm": ("GroupNorm", (2, 6), {}, (3, 6, 4)),
    "Flatten": ("Flatten", (0, 1), {}, (3, 6, 4)),
    "Softmax": ("Softmax", (1,), {}, (3, 6, 4)),
    "LogSoftmax": ("LogSoftmax", (-1,), {}, (3, 6, 4)),
} | {
    name + str(arguments or ""): (name, arguments, {}, (50,))
    for name, arguments in [
        ("ReLU", ()), ("ReLU6", ()), ("LeakyReLU", (0.2,)), ("ELU", (1.5,)), ("SELU", ()), ("Sigmoid", ()), ("Tanh", ()), ("GELU", ()),
        ("GELU", ("tanh",)), ("SiLU", ()), ("Mish", ()), ("Softplus", ()), ("Softplus", (2.0,)), ("Softsign", ()), ("Hardswish", ()),
        ("Hardsigmoid", ()), ("LogSigmoid", ()), ("Identity", ()),
    ]
}  # fmt: skip
CONVOLUTIONS = [
    {"stride": s, "padding": p, "dilation": d, "groups": g, "bias": b}
    for s, p, d, (g, b) in itertools.product((1, (2, 3)), (0, (2, 1)), (1, (1, 2)), ((1, True), (2, False), (4, True)))
] + [{"padding": "same", "dilation": d} for d in (1, 2, 3)] + [{"padding": "valid", "stride": 2}]  # fmt: skip


def same(name, arguments, options, shape, train=True, tolerance=1e-9):
    """Output, input gradient and parameter gradients agree to 1e-12 or so in float64, running statistics too."""
    ours, theirs = (
        getattr(nn, name)(*arguments, **options).to(vtl.float64),
        getattr(torch.nn, name)(*arguments, **options).double(),
    )
    generator = np.random.default_rng(1)
    state = {
        key: torch.tensor(generator.uniform(0.5, 1.5, tuple(v.shape)), dtype=v.dtype)
        for key, v in theirs.state_dict().items()
    }
    assert list(ours.state_dict()) == list(state)
    theirs.load_state_dict(state)
    ours.load_state_dict({key: value.numpy() for key, value in state.items()})
    ours.train(train)
    theirs.train(train)
    for _ in range(2):  # twice: running statistics move
        array, weight = generator.normal(size=shape) * 3, None
        x, tx = vtl.tensor(array, requires_grad=True), torch.tensor(array, requires_grad=True)
        y, ty = ours(x), theirs(tx)
        weight = generator.normal(size=tuple(ty.shape))
        (y * vtl.tensor(weight)).sum().backward()
        (ty * torch.tensor(weight)).sum().backward()
        np.testing.assert_allclose(y.numpy(), ty.detach().numpy(), rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(x.grad.numpy(), tx.grad.numpy(), rtol=tolerance, atol=1e-11)
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-9, atol=1e-10)
    for key, value in theirs.state_dict().items():
        np.testing.assert_allclose(ours.state_dict()[key].numpy(), value.numpy(), rtol=1e-11, err_msg=key)


@pytest.mark.parametrize("case", LAYERS)
@pytest.mark.parametrize("train", [True, False], ids=["train", "eval"])
def test_layers_agree(case, train):
    same(
        *LAYERS[case], train=train, tolerance=1e-7 if case == "Hardsigmoid" else 1e-9
    )  # PyTorch's 1/6 there is a float32


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize("options", CONVOLUTIONS, ids=str)
def test_convolutions_agree(options):
    """C1: forward and backward, over strides, padding, dilation, groups and bias."""
    same("Conv2d", (4, 8, (3, 2)), options, (2, 4, 9, 8))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses_agree(reduction):
    generator = np.random.default_rng(2)
    logits, labels = generator.normal(size=(6, 5, 3)) * 4, generator.integers(0, 5, (6, 3))
    labels[1, 2] = labels[4, 0] = -100
    for ours, theirs, target in (
        (nn.CrossEntropyLoss(reduction=reduction), torch.nn.CrossEntropyLoss(reduction=reduction), labels),
        (nn.MSELoss(reduction), torch.nn.MSELoss(reduction=reduction), generator.normal(size=logits.shape)),
    ):
        x, tx = vtl.tensor(logits, requires_grad=True), torch.tensor(logits, requires_grad=True)
        loss, their_loss = ours(x, vtl.tensor(target)), theirs(tx, torch.tensor(target))
        loss.sum().backward()
        their_loss.sum().backward()
        np.testing.assert_allclose(loss.numpy(), their_loss.detach().numpy(), rtol=1e-11, atol=1e-13)
        np.testing.assert_allclose(x.grad.numpy(), tx.grad.numpy(), rtol=1e-10, atol=1e-13)


def test_embeddings_agree():
    ours, theirs = nn.Embedding(9, 3, padding_idx=2).to(vtl.float64), torch.nn.Embedding(9, 3, padding_idx=2).double()
    theirs.load_state_dict({"weight": torch.tensor(ours.weight.numpy())})
    ids = np.random.default_rng(0).integers(0, 9, (4, 200))
    weight = np.random.default_rng(1).normal(size=(4, 200, 3))
    (ours(vtl.tensor(ids)) * vtl.tensor(weight)).sum().backward()
    (theirs(torch.tensor(ids)) * torch.tensor(weight)).sum().backward()

    np.testing.assert_allclose(ours.weight.grad.numpy(), theirs.weight.grad.numpy(), rtol=1e-11)


RULES = {
    "SGD": {},
    "SGD momentum": {"momentum": 0.9},
    "SGD damped": {"momentum": 0.8, "dampening": 0.3, "weight_decay": 0.1},
    "SGD nesterov": {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
    "SGD up": {"momentum": 0.9, "weight_decay": 0.1, "maximize": True},
    "Adam": {},
    "Adam L2": {"weight_decay": 0.1, "betas": (0.8, 0.95), "eps": 1e-6},
    "Adam up": {"weight_decay": 0.1, "maximize": True},
    "AdamW": {},
    "AdamW up": {"weight_decay": 0.2, "maximize": True},
}


@pytest.mark.parametrize("case", RULES)
def test_optimizers_agree_over_a_hundred_steps(case):
    """C12, C13, C14, E02, E03: in float64, the rate changed half-way, one parameter without a gradient at times."""
    name, options, generator = case.split()[0], {"lr": 0.05} | RULES[case], np.random.default_rng(0)
    starts = [generator.normal(size=shape) for shape in ((3, 4), (5,), ())]
    ours = [vtl.tensor(a, requires_grad=True) for a in starts]
    theirs = [torch.tensor(a, requires_grad=True) for a in starts]
    optimizer, torch_optimizer = getattr(nn.optim, name)(ours, **options), getattr(torch.optim, name)(theirs, **options)
    for step in range(100):
        if step == 50:
            optimizer.param_groups[0]["lr"] = torch_optimizer.param_groups[0]["lr"] = 0.01
        for k, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            gradient = generator.normal(size=a.shape)
            skipped = k == 1 and step % 3 == 0
            a.grad, b.grad = (None, None) if skipped else (vtl.tensor(gradient), torch.tensor(gradient))
        optimizer.step()
        torch_optimizer.step()

    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.numpy(), b.detach().numpy(), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("name", ["Adam", "AdamW"])
def test_optimizer_states_have_pytorchs_names_and_values(name):
    start, gradient = np.ones((2, 3)), np.full((2, 3), 0.5)
    p, q = vtl.tensor(start, requires_grad=True), torch.tensor(start, requires_grad=True)
    optimizer, theirs = getattr(nn.optim, name)([p]), getattr(torch.optim, name)([q])
    p.grad, q.grad = vtl.tensor(gradient), torch.tensor(gradient)
    optimizer.step()
    theirs.step()
    state, expected = optimizer.state_dict(), theirs.state_dict()

    assert state["param_groups"][0]["params"] == expected["param_groups"][0]["params"] == [0]
    assert set(state["state"][0]) == set(expected["state"][0])
    for slot, value in expected["state"][0].items():
        np.testing.assert_allclose(state["state"][0][slot].numpy(), value.numpy(), rtol=1e-13)


SCHEDULES = {
    "StepLR": {"step_size": 3, "gamma": 0.5},
    "CosineAnnealingLR": {"T_max": 7, "eta_min": 0.01},
    "OneCycleLR": {"max_lr": 0.4, "total_steps": 20, "pct_start": 0.25},
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_agree(name):
    """E05."""
    ours, theirs = (
        nn.optim.SGD([vtl.ones(1, requires_grad=True)], lr=0.1),
        torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1),
    )
    schedule = getattr(nn.optim.lr_scheduler, name)(ours, **SCHEDULES[name])
    their_schedule = getattr(torch.optim.lr_scheduler, name)(
        theirs, **SCHEDULES[name], **({"cycle_momentum": False} if "One" in name else {})
    )
    for _ in range(19):
        assert ours.param_groups[0]["lr"] == pytest.approx(theirs.param_groups[0]["lr"], rel=1e-9)
        theirs.step()
        schedule.step()
        their_schedule.step()


INITIALIZERS = {
    "uniform_": (-1.0, 2.0),
    "normal_": (0.5, 2.0),
    "xavier_uniform_": (1.5,),
    "xavier_normal_": (),
    "kaiming_uniform_": (5**0.5,),
    "kaiming_normal_": (0.0, "fan_out", "relu"),
}


@pytest.mark.parametrize("name", INITIALIZERS)
@pytest.mark.parametrize("shape", [(200, 300), (64, 48, 3, 3)], ids=str)
def test_initial_weights_are_distributed_alike(name, shape):
    """C29: mean, deviation, range and quantiles of tens of thousands of draws."""
    mine = getattr(nn.init, name)(vtl.empty(shape), *INITIALIZERS[name]).numpy().reshape(-1)
    expected = getattr(torch.nn.init, name)(torch.empty(shape), *INITIALIZERS[name]).numpy().reshape(-1)

    spread = float(expected.std())
    assert float(mine.mean()) == pytest.approx(float(expected.mean()), abs=8 * spread / len(mine) ** 0.5)
    assert float(mine.std()) == pytest.approx(spread, rel=0.03)
    quantiles = np.linspace(0.02, 0.98, 25)
    np.testing.assert_allclose(np.quantile(mine, quantiles), np.quantile(expected, quantiles), atol=0.04 * spread)


@pytest.mark.parametrize("shape", [(3, 5), (8, 4, 3, 3), (6, 2, 5)])
def test_fans_agree(shape):
    """C29."""
    assert nn.init.compute_fans(shape) == torch.nn.init._calculate_fan_in_and_fan_out(torch.empty(shape))


@pytest.mark.parametrize("nonlinearity", ["linear", "conv2d", "sigmoid", "tanh", "relu", "selu", "leaky_relu"])
def test_gains_agree(nonlinearity):
    assert nn.init.calculate_gain(nonlinearity) == pytest.approx(torch.nn.init.calculate_gain(nonlinearity))


@pytest.mark.parametrize(
    ("name", "arguments"), [("Linear", (50, 400)), ("Conv2d", (10, 300, 3)), ("Embedding", (200, 100))]
)
def test_layers_start_alike(name, arguments):
    """C29: bound of weight and bias, deviation of both."""
    ours, theirs = getattr(nn, name)(*arguments), getattr(torch.nn, name)(*arguments)
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        mine, expected = a.numpy(), b.detach().numpy()
        assert float(mine.std()) == pytest.approx(float(expected.std()), rel=0.1)
        if name != "Embedding":
            assert float(abs(mine).max()) == pytest.approx(float(abs(expected).max()), rel=0.05)
