"""Hooks on modules: what they see where ours differs from PyTorch, and that they cost nothing where there are none."""

from __future__ import annotations

import copy
import gc
import sys

import numpy as np
import pytest

import vtl_core as vtl
import vtl_nn as nn


@pytest.fixture
def x():
    return vtl.tensor(np.random.default_rng(3).standard_normal((4, 3), dtype=np.float32), requires_grad=True)


def test_a_layer_and_a_relu_behind_it_are_two_calls_where_either_has_hooks(x):
    """Else they are one op, and the layer's own output would never be seen."""
    model, seen = nn.Sequential(nn.Linear(3, 5), nn.ReLU()), []
    with vtl.no_grad():
        joined = model(x)
    handle = model[0].register_forward_hook(lambda module, args, output: seen.append(output))
    with vtl.no_grad():
        apart = model(x)
        np.testing.assert_array_equal(np.maximum(seen[0].numpy(), 0), apart.numpy())
        np.testing.assert_allclose(apart.numpy(), joined.numpy(), rtol=1e-6, atol=1e-7)
        handle.remove()
        with model[1].register_forward_pre_hook(lambda module, args: seen.append(args[0])):
            model(x)
        model(x)

    assert len(seen) == 2


def calls(function):
    """Calls of functions, Python's and C's, that one call of `function` makes."""
    made = []

    def profile(frame, event, arg):
        made.append(event in ("call", "c_call"))

    function()
    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(None)
    return sum(made)


def test_a_module_without_hooks_makes_no_call_for_them(x):
    """`__call__` and forward are all: one look at a field says that there is none."""

    class Plain(nn.Module):
        def forward(self, x):
            return x

    model = Plain()
    assert calls(lambda: model(x)) == calls(lambda: model.forward(x)) + 1
    handle = model.register_forward_hook(lambda module, args, output: None)
    assert calls(lambda: model(x)) > calls(lambda: model.forward(x)) + 1
    handle.remove()


def test_a_copy_of_a_module_has_hooks_of_its_own(x):
    model, seen = nn.Linear(3, 2), []
    handle = model.register_forward_hook(lambda module, args, output: seen.append(module))
    other = copy.deepcopy(model)
    handle.remove()

    model(x)
    assert seen == []
    other(x)
    assert seen == [other]
    assert list(other.state_dict()) == list(model.state_dict()) == ["weight", "bias"]


def test_a_hook_is_no_part_of_what_is_trained(x):
    """A module may be a hook; it stays outside the model."""

    class Scale(nn.Module):
        def __init__(self):
            self.factor = nn.Parameter(vtl.ones(1))

        def forward(self, module, args, output):
            return output * self.factor

    model, scale = nn.Linear(3, 2), Scale()
    model.register_forward_hook(scale)
    assert [name for name, _ in model.named_parameters()] == ["weight", "bias"]
    model(x).sum().backward()
    assert scale.factor.grad is not None


def test_a_module_with_a_way_back_is_let_go_without_the_garbage_collector(x):
    import weakref

    model = nn.Linear(3, 2)
    model.register_full_backward_hook(lambda module, given, arrived: None)
    model(x).sum().backward()
    reference = weakref.ref(model)
    gc.disable()
    try:
        del model
        assert reference() is None
    finally:
        gc.enable()


def test_what_a_hook_may_not_return_is_said(x):
    model = nn.Linear(3, 2)
    with (
        model.register_forward_pre_hook(lambda m, a, k: 3, with_kwargs=True),
        pytest.raises(TypeError, match="args, kwargs"),
    ):
        model(x)
    with (
        model.register_full_backward_hook(lambda m, given, arrived: (None, None)),
        pytest.raises(vtl.GraphError, match="2 gradients for 1 inputs"),
    ):
        model(x).sum().backward()
    with (
        model.register_full_backward_hook(lambda m, given, arrived: (given[0][:1],)),
        pytest.raises(vtl.ShapeError, match="gradient 0"),
    ):
        model(x).sum().backward()
    with (
        model.register_full_backward_hook(lambda m, given, arrived: (vtl.zeros(1),)),
        pytest.raises(vtl.GraphError, match="no input requires any"),
    ):
        model(x.detach()).sum().backward()
    with pytest.raises(TypeError, match="give a function"):
        model.register_forward_hook("print")


def test_hooks_of_a_failing_forward_that_fail_too_leave_the_first_error(x):
    model = nn.Linear(3, 2)

    def failing(module, args, output):
        raise KeyError("second")

    model.register_forward_hook(failing, always_call=True)
    with pytest.warns(UserWarning, match="second"), pytest.raises(vtl.ShapeError):
        model(x[:, :2])
