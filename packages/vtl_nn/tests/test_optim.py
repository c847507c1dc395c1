"""Optimizers: conventions, state, and what they refuse; PyTorch's own steps are compared in tests/peers."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import vtl_core as vtl
import vtl_nn as nn
from vtl_nn.optim import SGD, Adam, AdamW


def steps(make, gradients, start=1.0, rates=None):
    """The parameter after each step with these gradients."""
    p = vtl.tensor([start], dtype=vtl.float64, requires_grad=True)
    optimizer, seen = make([p]), []
    for k, g in enumerate(gradients):
        if rates:
            optimizer.param_groups[0]["lr"] = rates[k]
        p.grad = vtl.tensor([g], dtype=vtl.float64)
        optimizer.step()
        seen.append(p.numpy().item())
    return seen


def test_adamw_decays_the_weight_and_adam_the_gradient():
    """E02: decay is decoupled and uses the weight before the step."""
    options = {"lr": 0.1, "weight_decay": 0.1}
    assert steps(lambda p: AdamW(p, **options), [0, 0]) == pytest.approx([0.99, 0.9801], rel=1e-12)
    assert steps(lambda p: Adam(p, **options), [0, 0]) == pytest.approx([0.90000001, 0.800412248082], rel=1e-10)
    assert steps(lambda p: AdamW(p, **options), [0.5, 0.5]) == pytest.approx([0.890000002, 0.78110000398], rel=1e-10)
    assert steps(lambda p: Adam(p, **options), [0.5, 0.5]) == pytest.approx([0.900000001667, 0.800047340488], rel=1e-10)


@pytest.mark.parametrize(
    ("options", "gradients", "expected"),
    [
        ({"momentum": 0.9}, [1, 1, 1], [0.9, 0.71, 0.439]),
        ({"momentum": 0.9, "dampening": 0.5}, [1, 1, 1], [0.9, 0.76, 0.584]),
        ({"momentum": 0.9, "nesterov": True}, [1, 1, 1], [0.81, 0.539, 0.1951]),
        ({"weight_decay": 0.1}, [1, 1], [0.89, 0.7811]),
        ({"momentum": 0.9, "weight_decay": 0.1}, [1, 1], [0.89, 0.6821]),
    ],
)
def test_sgd_has_pytorchs_conventions(options, gradients, expected):
    """E03: undamped first step, nesterov, decay."""
    assert steps(lambda p: SGD(p, lr=0.1, **options), gradients) == pytest.approx(expected, rel=1e-12)


def test_the_momentum_buffer_holds_gradients_so_a_new_rate_acts_at_once():
    """E03: lr 0.1 then 0.01 gives 0.881."""
    assert steps(lambda p: SGD(p, lr=0.1, momentum=0.9), [1, 1], rates=[0.1, 0.01])[-1] == pytest.approx(
        0.881, rel=1e-12
    )


@pytest.mark.parametrize("make", [SGD, lambda p, **o: SGD(p, momentum=0.9, nesterov=True, **o), Adam, AdamW])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_maximizing_is_minimizing_the_negative(make, decay):
    up = steps(lambda p: make(p, lr=0.1, maximize=True, weight_decay=decay), [1, -0.5, 2])
    down = steps(lambda p: make(p, lr=0.1, weight_decay=decay), [-1, 0.5, -2])

    assert up == pytest.approx(down, rel=1e-12)


def test_parameters_without_gradients_are_left_alone():
    a, b = vtl.ones(2, requires_grad=True), vtl.ones(3, requires_grad=True)
    optimizer = Adam([a, b], lr=0.1)
    a.grad = vtl.ones(2)
    optimizer.step()

    assert (a.numpy() != 1).all()
    assert (b.numpy() == 1).all()
    assert optimizer.state[id(b)]["step"].item() == 0


def test_groups_have_their_own_options():
    a, b = vtl.ones(1, requires_grad=True), vtl.ones(1, requires_grad=True)
    optimizer = SGD([{"params": [a]}, {"params": b, "lr": 0.5}], lr=0.1)
    a.grad, b.grad = vtl.ones(1), vtl.ones(1)
    optimizer.step()

    np.testing.assert_allclose([a.item(), b.item()], [0.9, 0.5])
    with pytest.raises(vtl.AttributeValueError, match="no option is called rate"):
        optimizer.add_param_group({"params": [vtl.ones(1)], "rate": 1})


def test_what_cannot_be_stepped_is_refused():
    p = vtl.ones(2, requires_grad=True)
    cases = [
        ([], vtl.AttributeValueError, "Adam: got no parameter to step"),
        ([p, p], vtl.AttributeValueError, r"parameter 1 \(2,\) is given twice"),
        ([{"params": [p]}, {"params": [p]}], vtl.AttributeValueError, "given twice"),
        ([p, np.ones(2)], vtl.DTypeError, "parameter 1 is ndarray, not a tensor"),
        (p, vtl.DTypeError, "params is one tensor"),
        ([vtl.tensor([1, 2])], vtl.DTypeError, "not a tensor of floats"),
        ([p * 2], vtl.AttributeValueError, "result of an op"),
    ]
    for params, error, message in cases:
        with pytest.raises(error, match=message):
            Adam(params)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: SGD(p, lr=-1), "SGD: lr=-1 must be a number of at least 0"),
        (lambda p: SGD(p, lr=float("nan")), "lr=nan"),
        (lambda p: SGD(p, momentum=-0.1), "momentum=-0.1"),
        (lambda p: SGD(p, nesterov=True), "nesterov needs a momentum"),
        (lambda p: Adam(p, betas=(0.9, 1.0)), r"betas=\(0.9, 1.0\) must be two numbers in \[0, 1\)"),
        (lambda p: Adam(p, betas=(0.9,)), r"betas=\(0.9,\) must be two numbers"),
        (lambda p: SGD([{"lr": 0.1}]), "a group is a dict with the key 'params'; given one with lr"),
        (lambda p: SGD([{"params": p}, *p]), "a group is a dict with the key 'params'; given Tensor"),
        (lambda p: AdamW(p, weight_decay=-1), "AdamW: weight_decay=-1"),
    ],
)
def test_options_out_of_range_are_refused(make, message):
    with pytest.raises(vtl.AttributeValueError, match=message):
        make([vtl.ones(1, requires_grad=True)])


@pytest.mark.parametrize(
    ("make", "steps"),
    [
        (lambda p: nn.optim.RMSprop(p, lr=0.1), [1e-07, -0.708881054757]),
        (lambda p: nn.optim.RMSprop(p, lr=0.1, centered=True), [-0.005037714249]),
        (lambda p: nn.optim.Adagrad(p, lr=0.1), [0.9, 0.829289321896]),
    ],
)
def test_e04_first_steps(make, steps):
    """E04: eps outside the root, sums that start at nothing."""
    p = vtl.ones(1, dtype=vtl.float64, requires_grad=True)
    optimizer = make([p])
    for expected in steps:
        p.grad = vtl.ones(1, dtype=vtl.float64)
        optimizer.step()
        assert p.item() == pytest.approx(expected, abs=1e-9)


def test_e04_a_centered_variance_never_falls_below_nothing(device):
    """E04: a constant gradient's variance rounds to either side of 0; no NaN."""
    p = vtl.zeros(64, device=device, requires_grad=True)
    optimizer = nn.optim.RMSprop([p], lr=1e-3, centered=True)
    g = vtl.tensor(np.linspace(0.1, 3, 64), dtype=vtl.float32, device=device)
    for _ in range(300):
        p.grad = g
        optimizer.step()
    assert np.isfinite(p.numpy()).all()


def test_e04_a_huge_gradient_leaves_no_nan_behind(device):
    """E04: where both moments' squares leave float32, infinity less infinity is no variance; the step is 0, as without centering."""
    for options in ({}, {"momentum": 0.9}):
        p = vtl.ones(3, device=device, requires_grad=True)
        optimizer = nn.optim.RMSprop([p], lr=0.1, centered=True, **options)
        for _ in range(3):
            p.grad = vtl.tensor([1e25, -3e38, 0.0], device=device)
            optimizer.step()
        assert p.tolist() == [1, 1, 1]


def test_lion_steps_by_the_sign_of_what_is_new_and_old():
    """Chen et al. 2023: with decay 0.5 and rate 0.1 from 1, gradients 2 then -1."""
    p = vtl.ones(1, dtype=vtl.float64, requires_grad=True)
    optimizer = nn.optim.Lion([p], lr=0.1, betas=(0.9, 0.5), weight_decay=0.5)
    for g, expected in ((2.0, 0.95 - 0.1), (-1.0, 0.85 * 0.95 - 0.1)):  # 0.9 * 1 - 0.1 is above 0 too
        p.grad = vtl.full((1,), g, dtype=vtl.float64)
        optimizer.step()
        assert p.item() == pytest.approx(expected, rel=1e-14)


def test_options_turned_on_later_make_their_slots():
    p = vtl.ones(2, requires_grad=True)
    optimizer = nn.optim.RMSprop([p])
    optimizer.param_groups[0].update(momentum=0.9, centered=True)
    for _ in range(2):
        p.grad = vtl.ones(2)
        optimizer.step()
    assert list(optimizer.state[id(p)]) == ["square_avg", "step", "momentum_buffer", "grad_avg"]
    assert optimizer.state[id(p)]["step"].item() == 2


def test_slots_exist_from_construction_under_pytorchs_names():
    p = vtl.ones(3, requires_grad=True)
    assert {n: s.shape for n, s in Adam([p]).state[id(p)].items()} == {"exp_avg": (3,), "exp_avg_sq": (3,), "step": ()}
    assert list(SGD([p], momentum=0.9).state[id(p)]) == ["momentum_buffer", "step"]
    assert SGD([p]).state[id(p)] == {}


def trained(make, count):
    """A model and its optimizer after `count` steps on fixed data."""
    vtl.manual_seed(1)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    optimizer, x = make(model.parameters()), vtl.tensor(np.random.default_rng(0).normal(size=(8, 3)), dtype=vtl.float32)
    for _ in range(count):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    return model, optimizer, x


@pytest.mark.parametrize("make", [lambda p: SGD(p, 0.1, momentum=0.9), lambda p: Adam(p, 0.1), lambda p: AdamW(p, 0.1)])
def test_a_loaded_state_goes_on_as_if_never_saved(make):
    """E07: Adam's step count and moments are in the state."""
    whole, _, _ = trained(make, 6)
    model, optimizer, x = trained(make, 3)
    other, fresh, _ = trained(make, 0)
    other.load_state_dict(model.state_dict())
    fresh.load_state_dict(optimizer.state_dict())
    for _ in range(3):
        fresh.zero_grad()
        other(x).square().mean().backward()
        fresh.step()

    for a, b in zip(whole.parameters(), other.parameters(), strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_a_state_that_does_not_fit_names_everything_and_changes_nothing():
    """E07: state maps by order, and shapes are checked."""
    _, optimizer, _ = trained(Adam, 2)
    state = optimizer.state_dict()
    state["state"][0]["exp_avg"], state["param_groups"][0]["lr"] = vtl.zeros(9), 5.0
    del state["state"][1]["step"]

    with pytest.raises(nn.StateError) as caught:
        optimizer.load_state_dict(state)

    assert "parameter 0: exp_avg is (9,), here (4, 3)" in str(caught.value)
    assert "parameter 1 has slots ['exp_avg', 'exp_avg_sq'], here" in str(caught.value)
    assert optimizer.param_groups[0]["lr"] == 1e-3
    with pytest.raises(nn.StateError, match=r"groups have \[4\] parameters, here \[1\]"):
        Adam([vtl.ones(1, requires_grad=True)]).load_state_dict(optimizer.state_dict())


def test_slots_follow_a_model_that_is_cast_after_the_optimizer_was_made():
    model, optimizer, x = trained(Adam, 2)
    model.to(vtl.float64)
    optimizer.zero_grad()
    model(x.to(vtl.float64)).square().mean().backward()
    optimizer.step()

    assert optimizer.state[id(model[0].weight)]["exp_avg"].dtype is vtl.float64


def test_momentum_may_be_turned_on_and_off_between_steps():
    """E03: a step reads its group's options, as PyTorch's does: the buffer begins when momentum does, and waits."""
    p = vtl.ones(1, dtype=vtl.float64, requires_grad=True)
    optimizer, seen = SGD([p], lr=0.1), []
    for momentum in (0, 0.9, 0.9, 0, 0.9):
        optimizer.param_groups[0]["momentum"] = momentum
        p.grad = vtl.ones(1, dtype=vtl.float64)
        optimizer.step()
        seen.append(p.item())

    assert seen == pytest.approx([0.9, 0.8, 0.61, 0.51, 0.239], rel=1e-12)


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda both: pickle.loads(pickle.dumps(both))], ids=["copy", "pickle"]
)
def test_a_copied_optimizer_steps_the_copied_model(copied):
    model, optimizer, x = trained(Adam, 2)
    twin, other = copied((model, optimizer))
    for net, each in ((model, optimizer), (twin, other)):
        each.zero_grad()
        net(x).square().mean().backward()
        each.step()

    for (name, ours), theirs in zip(model.named_parameters(), twin.parameters(), strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy(), err_msg=name)


def test_zero_grad_forgets_or_fills():
    p = vtl.ones(2, requires_grad=True)
    optimizer = SGD([p])
    p.grad = vtl.ones(2)
    optimizer.zero_grad(set_to_none=False)
    assert p.grad.tolist() == [0, 0]
    optimizer.zero_grad()
    assert p.grad is None


def test_a_closure_computes_the_loss_first():
    p = vtl.ones(1, requires_grad=True)
    optimizer = SGD([p], lr=1.0)

    def closure():
        loss = (p * 3).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 3
    assert p.item() == -2


def test_a_step_bumps_versions_so_a_stale_graph_is_refused():
    p = vtl.ones(2, requires_grad=True)
    optimizer = SGD([p], lr=0.1)
    loss, stale = (p * p).sum(), (p * p).sum()
    loss.backward()
    optimizer.step()

    with pytest.raises(vtl.VersionError):
        stale.backward()


@pytest.mark.parametrize("make", [SGD, Adam, nn.optim.Lion, nn.optim.Muon])
def test_nothing_and_parameters_of_two_devices_are_refused(make, device):
    """A group may be empty, as in PyTorch; what is added to it later must live where the others do."""
    for nothing in ([], iter([])):
        with pytest.raises(vtl.AttributeValueError, match=f"{make.__name__}: got no parameter to step"):
            make(nothing)
    here = vtl.ones(2, 2, device=device, requires_grad=True)
    optimizer = make([{"params": []}, {"params": [here]}])
    optimizer.step()
    there = vtl.ones(2, 2, device="cpu", requires_grad=True)
    if here.device == there.device:
        return  # the devices' own runs have two
    for groups in ([here, there], [{"params": [here]}, {"params": [there]}]):
        with pytest.raises(vtl.DeviceError, match=f"parameters are on {here.device} and {there.device}; move"):
            make(groups)
    with pytest.raises(vtl.DeviceError, match="move them to one device"):
        optimizer.add_param_group({"params": [there]})
    assert len(optimizer.param_groups) == 2
