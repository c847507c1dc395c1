"""Optimizers given options, states and groups that are not as they should be."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import vtl_core as vtl
import vtl_nn as nn
from vtl_nn.optim import SGD, Adam, AdamW


def test_options_of_a_state_are_checked_before_anything_changes():
    """E07, F05: a state.json that was edited does not reach the weights."""
    optimizer = Adam(nn.Linear(3, 2).parameters())
    state = optimizer.state_dict()
    state["param_groups"][0]["lr"] = float("nan")

    with pytest.raises(nn.StateError, match="Adam: lr=nan must be a number of at least 0"):
        optimizer.load_state_dict(state)

    assert optimizer.param_groups[0]["lr"] == 1e-3


@pytest.mark.parametrize("slot", [3.0, None, np.float32(3)])
def test_a_state_whose_slots_are_no_tensors_is_refused(slot):
    optimizer = Adam([vtl.ones(2, requires_grad=True)])
    state = optimizer.state_dict()
    state["state"][0]["step"] = slot
    with pytest.raises(nn.StateError, match=f"step is {type(slot).__name__}, no tensor"):
        optimizer.load_state_dict(state)
    del state["param_groups"][0]["params"]
    with pytest.raises(nn.StateError, match="this is no optimizer's state"):
        optimizer.load_state_dict(state)


@pytest.mark.parametrize("value", ["0.1", None, float("nan"), -1, [0.1]], ids=repr)
@pytest.mark.parametrize(
    "make",
    [
        SGD,
        Adam,
        AdamW,
        nn.optim.NAdam,
        nn.optim.RAdam,
        nn.optim.Adagrad,
        nn.optim.RMSprop,
        nn.optim.Lion,
        nn.optim.Muon,
    ],
)
def test_an_option_that_is_no_number_is_refused_by_name(make, value):
    with pytest.raises(vtl.AttributeValueError, match=r"lr=.* must be a number of at least 0"):
        make([vtl.ones(2, 2, requires_grad=True)], lr=value)
    optimizer = make([vtl.ones(2, 2, requires_grad=True)])
    if "betas" in optimizer.defaults:
        with pytest.raises(vtl.AttributeValueError, match=r"betas=.* must be two numbers in"):
            make([vtl.ones(2, 2, requires_grad=True)], betas=value)
    state = optimizer.state_dict()
    state["param_groups"][0]["lr"] = value
    with pytest.raises(nn.StateError, match=r"lr=.* must be a number of at least 0"):
        optimizer.load_state_dict(state)


@pytest.mark.parametrize(
    "state",
    [
        None, [], {}, {"state": {}}, {"state": [], "param_groups": []}, {"state": {}, "param_groups": None},
        {"state": {}, "param_groups": [3]}, {"state": {}, "param_groups": [{"params": 3}]},
    ],
    ids=repr,
)  # fmt: skip
def test_what_is_no_state_is_refused_as_such(state):
    with pytest.raises(nn.StateError, match=r"Adam: this is no optimizer's state.*give what state_dict\(\) returned"):
        Adam([vtl.ones(2, requires_grad=True)]).load_state_dict(state)


def test_a_parameter_put_into_a_group_by_hand_is_stepped_and_saved():
    """As in PyTorch, whose slots begin at the first step; one taken out is not saved."""
    p, q = (vtl.ones(2, requires_grad=True) for _ in range(2))
    optimizer = Adam([p])
    optimizer.param_groups[0]["params"].append(q)
    assert optimizer.state_dict()["state"].keys() == {0, 1}
    p.grad = q.grad = vtl.ones(2)
    optimizer.step()
    np.testing.assert_array_equal(p.numpy(), q.numpy())
    optimizer.load_state_dict(optimizer.state_dict())

    optimizer.param_groups[0]["params"].remove(p)

    assert optimizer.state_dict()["state"].keys() == {0}
    copy.deepcopy(optimizer).step()


OPTIONS = {
    SGD: ("lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize"),
    Adam: ("lr", "betas", "eps", "weight_decay", "amsgrad", "maximize"),
    AdamW: ("lr", "betas", "eps", "weight_decay"),
    nn.optim.NAdam: ("lr", "betas", "momentum_decay", "decoupled_weight_decay"),
    nn.optim.RAdam: ("lr", "betas", "decoupled_weight_decay"),
    nn.optim.Adagrad: ("lr", "lr_decay", "eps", "weight_decay"),
    nn.optim.RMSprop: ("lr", "alpha", "eps", "momentum", "centered"),
    nn.optim.Lion: ("lr", "betas", "weight_decay"),
    nn.optim.Muon: ("lr", "momentum", "nesterov", "ns_coefficients", "ns_steps", "eps", "adjust_lr_fn"),
}
NO_OPTION = {
    "text": "0.1", "None": None, "a list": [[0.1]], "an array": np.ones(2), "nan": float("nan"), "a function": len,
    "a complex number": 1j,
}  # fmt: skip


@pytest.mark.parametrize("what", NO_OPTION)
@pytest.mark.parametrize("make", OPTIONS)
def test_what_is_written_into_a_group_is_refused_by_name_at_the_next_step(make, what):
    """Before anything moves, and each time until it is mended."""
    for option in OPTIONS[make]:
        p = vtl.ones(2, 2, requires_grad=True)
        optimizer, p.grad = make([p]), vtl.ones(2, 2)
        optimizer.step()
        before, right = p.numpy().copy(), optimizer.param_groups[0][option]
        if isinstance(right, bool | None) and what in ("nan", "None", "a complex number"):
            continue  # true, or false, or what stands for neither
        optimizer.param_groups[0][option] = NO_OPTION[what]

        for _ in range(2):
            if option == "dampening" and what == "nan":
                break
            with pytest.raises(vtl.AttributeValueError, match=f"{make.__name__}: {option}="):
                optimizer.step()
        np.testing.assert_array_equal(p.numpy(), before)
        optimizer.param_groups[0][option] = right
        optimizer.step()


def test_an_option_that_was_taken_out_of_a_group_is_missed_at_the_next_step():
    p = vtl.ones(2, requires_grad=True)
    optimizer, p.grad = Adam([p]), vtl.ones(2)
    del optimizer.param_groups[0]["eps"]

    with pytest.raises(vtl.AttributeValueError, match="Adam: the group has no eps any more"):
        optimizer.step()


def test_a_rate_that_is_a_tensor_or_numpys_or_a_list_of_betas_steps():
    for lr in (vtl.tensor(0.5), np.float32(0.5), np.array(0.5)):
        p = vtl.ones(2, requires_grad=True)
        optimizer, p.grad = SGD([p], lr=1.0), vtl.ones(2)
        optimizer.param_groups[0]["lr"] = lr
        optimizer.step()
        assert p.tolist() == [0.5, 0.5]
    p = vtl.ones(2, requires_grad=True)
    optimizer, p.grad = Adam([p]), vtl.ones(2)
    optimizer.param_groups[0]["betas"] = [0.5, 0.5]
    optimizer.step()


def test_a_model_in_the_place_of_its_parameters_is_told_what_to_give():
    model = nn.Sequential(nn.Linear(2, 1))
    for given in (model, nn.Linear(2, 1), model.parameters):
        with pytest.raises(
            vtl.DTypeError, match=r"^Adam: params is a module or its method; give what it returns: model\.parameters"
        ):
            Adam(given)
    with pytest.raises(
        vtl.DTypeError, match=r"^Adam: parameter 0 is Linear, not a tensor of floats; give its parameters\(\)$"
    ):
        Adam([model[0]])
    with pytest.raises(vtl.DTypeError, match=r"^Adam: parameter 0 is int64, not a tensor of floats$"):
        Adam([vtl.tensor([1])])
