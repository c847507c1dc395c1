"""Rows A15, A15b, A15c and A16 of the roadmap: an optimizer that steps on the device while parameters are the host's."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import vtl_core as vtl
import vtl_nn as nn

MAKERS = {
    "sgd": lambda p: nn.optim.SGD(p, 0.05),
    "momentum": lambda p: nn.optim.SGD(p, 0.05, momentum=0.9, nesterov=True),
    "adam": lambda p: nn.optim.Adam(p, 0.02),
    "adamw": lambda p: nn.optim.AdamW(p, 0.02, weight_decay=0.1),
}


@pytest.fixture(autouse=True)
def seeded():
    vtl.manual_seed(0)


def on_device(spec, **stages):
    return vtl.Placement(**{"forward": spec, "activations": spec, "backward": spec, "optimizer": spec, **stages})


def parts(dtype=vtl.float32):
    """Two parameters of one shape, one of another."""
    generator = np.random.default_rng(3)
    return [nn.Parameter(vtl.tensor(generator.normal(size=s), dtype=dtype)) for s in ((4, 3), (4, 3), (5,))]


def gradients(step, params):
    generator = np.random.default_rng(100 + step)
    for p in params:
        p.grad = vtl.tensor(generator.normal(size=p.shape), dtype=p.dtype)


def weights(params):
    return [p.numpy().copy() for p in params]


def slots(stepper):
    return [slot.numpy().copy() for state in stepper.state.values() for slot in state.values()]


def stepped(params, stepper, steps):
    for step in steps:
        gradients(step, params)
        stepper.step()
    return weights(params)


def equal(got, wanted, tolerance=0.0):
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", MAKERS)
def test_a15_steps_on_the_device_equal_the_host_s(staged_on, attach, name):
    """A15: within 1e-6 after one step and 1e-5 after ten."""
    params, there = parts(), parts()
    plain = MAKERS[name](params)
    attach(on_device(staged_on))
    stepper = MAKERS[name](there)

    equal(stepped(there, stepper, [0]), stepped(params, plain, [0]), 1e-6)
    equal(stepped(there, stepper, range(1, 10)), stepped(params, plain, range(1, 10)), 1e-5)
    equal(slots(stepper), slots(plain), 1e-5)


def test_a15_slots_stay_on_the_device(staged_on, attach):
    """A15: m, v and the step count are made there and never travel; parameters come down once a step."""
    session = attach(on_device(staged_on))
    params = parts()
    stepper = nn.optim.Adam(params)
    nbytes = sum(p.nbytes for p in params)
    for step in range(3):
        before = session.transfers()
        stepped(params, stepper, [step])
        after = session.transfers()
        fresh = nbytes if step == 0 else 0  # nothing has used the parameters there before
        assert after.bytes_to_device - before.bytes_to_device == nbytes + fresh  # the gradients, made on the host here
        assert after.bytes_to_host - before.bytes_to_host == nbytes


def test_a15_slots_can_be_read_saved_and_restored(staged_on, attach, tmp_path):
    """Reading a slot brings it down; what was read keeps its values when the optimizer goes on; a restored run is the same."""
    attach(on_device(staged_on))
    params = parts()
    stepper = nn.optim.Adam(params, 0.02)
    stepped(params, stepper, range(2))
    saved = stepper.state_dict()
    kept = copy.deepcopy({number: {k: v.numpy().copy() for k, v in s.items()} for number, s in saved["state"].items()})
    start, model = weights(params), {str(i): vtl.tensor(p.numpy()) for i, p in enumerate(params)}
    frozen = {number: {k: vtl.tensor(v) for k, v in s.items()} for number, s in kept.items()}
    wanted = stepped(params, stepper, range(2, 5))

    other = [nn.Parameter(value) for value in model.values()]
    second = nn.optim.Adam(other, 0.02)
    second.load_state_dict({"state": frozen, "param_groups": saved["param_groups"]})
    equal(weights(other), start)
    equal(stepped(other, second, range(2, 5)), wanted)
    assert stepper.state[id(params[0])]["step"].item() == 5


def test_a15b_loaded_weights_and_host_edits_are_noticed(staged_on, attach):
    """A15b: a step after load_state_dict, an in-place change or a new slot value starts from the new value."""
    results = []
    for placement in (vtl.Placement(), on_device(staged_on)):
        vtl.manual_seed(1)
        session = attach(placement)
        model = nn.Linear(3, 2)
        stepper = nn.optim.Adam(model.parameters(), 0.1)
        x = vtl.tensor(np.random.default_rng(0).normal(size=(5, 3)), dtype=vtl.float32)

        def step(model=model, stepper=stepper, x=x):
            stepper.zero_grad()
            model(x).square().sum().backward()
            stepper.step()
            return weights(model.parameters())

        seen = [*step(), *step()]
        model.load_state_dict({"weight": np.full((2, 3), 0.25, np.float32), "bias": np.array([0.5, -0.5], np.float32)})
        seen += step()
        with vtl.no_grad():
            model.weight.mul_(2)
            model.bias[0] = 3.0
        seen += step()
        stepper.state[id(model.weight)]["exp_avg"].fill_(0.125)
        seen += step()
        model.weight.grad.fill_(1.0)
        stepper.step()
        seen += weights(model.parameters())
        stepper.reset_state()
        seen += step()
        results.append(seen)
        session.close()
    equal(results[1], results[0], 1e-5)


def test_a15b_gradients_accumulate_on_the_device(staged_on, attach):
    results = []
    for placement in (vtl.Placement(), on_device(staged_on), on_device(staged_on, optimizer="cpu")):
        vtl.manual_seed(1)
        session = attach(placement)
        model = nn.Linear(3, 2)
        for seed in range(3):
            x = vtl.tensor(np.random.default_rng(seed).normal(size=(5, 3)), dtype=vtl.float32)
            model(x).square().sum().backward()
        results.append([p.grad.numpy().copy() for p in model.parameters()])
        session.close()
    equal(results[1], results[0], 1e-5)
    equal(results[2], results[0], 1e-5)


def test_a15c_a_failure_at_any_call_leaves_the_old_state(stand_in, attach):
    """A15c: wherever the device fails in a step of two groups, weights and slots are as before, and the step can be done again."""
    device = stand_in("cuda")
    attach(on_device("cuda"))

    def started():
        params = parts()
        stepper = nn.optim.Adam([{"params": params[:2]}, {"params": params[2:], "lr": 0.3}], 0.02)
        stepped(params, stepper, range(2))
        gradients(2, params)
        return params, stepper

    params, stepper = started()
    calls = len(device.launched)
    stepper.step()
    calls = len(device.launched) - calls
    wanted, wanted_slots = weights(params), slots(stepper)
    assert calls >= 20
    for failing in range(calls):
        params, stepper = started()
        old, before = weights(params), slots(copy.deepcopy(stepper))
        device.fails_after = failing
        with pytest.raises(vtl.DeviceLostError):
            stepper.step()
        device.fails_after = None
        equal(weights(params), old)
        equal(slots(copy.deepcopy(stepper)), before)
        stepper.step()
        equal(weights(params), wanted)
        equal(slots(stepper), wanted_slots)


def test_a16_slots_belong_to_their_parameter(staged_on, attach):
    """A16: parameters of equal shape keep separate state; resetting the optimizer clears it."""
    results = []
    for placement in (vtl.Placement(), on_device(staged_on)):
        session = attach(placement)
        params = parts()
        stepper = nn.optim.Adam(params, 0.02)
        stepped(params, stepper, range(3))
        first, second = (stepper.state[id(p)]["exp_avg"].numpy().copy() for p in params[:2])
        assert not np.allclose(first, second)
        gradients(3, params)
        params[0].grad = None  # one is left out: the other's state goes on alone
        stepper.step()
        assert [int(stepper.state[id(p)]["step"].item()) for p in params] == [3, 4, 4]
        results.append([*weights(params), *slots(stepper)])
        stepper.reset_state()
        assert not any(slot.any() for slot in slots(stepper))
        session.close()
    equal(results[1], results[0], 1e-5)


def test_slots_made_before_the_session_go_up_once(staged_on, attach):
    params = parts()
    stepper = nn.optim.SGD(params, 0.05, momentum=0.9)
    nbytes = sum(p.nbytes for p in params)
    session = attach(on_device(staged_on))
    stepped(params, stepper, [0])
    assert session.transfers().bytes_to_device == 3 * nbytes + 3 * 4  # gradients, parameters, momenta and step counts
    stepped(params, stepper, [1])
    assert session.transfers().bytes_to_device == 4 * nbytes + 3 * 4
