"""A value that backward needs and that was changed since is found, and only then."""

from __future__ import annotations

import pytest

import vtl_core as vtl


@pytest.mark.parametrize(
    "change",
    [lambda t: t.add_(1.0), lambda t: t.zero_(), lambda t: t.copy_(vtl.ones(2)), lambda t: t.__setitem__(0, 5.0)],
)
def test_changing_a_saved_value_is_found_and_names_the_op(change):
    x, w = vtl.ones(2, requires_grad=True), vtl.ones(2)
    y = (x * w).sum()
    change(w)

    with pytest.raises(vtl.VersionError, match="multiply: a float32"):
        y.backward()


def test_changing_a_saved_output_is_found_and_names_the_op():
    x = vtl.ones(2, requires_grad=True)
    y = x.exp()
    y.detach().mul_(2.0)

    with pytest.raises(vtl.VersionError, match="exp"):
        y.sum().backward()


def test_an_update_of_a_parameter_before_backward_is_found():
    p, m = vtl.ones(3, requires_grad=True), vtl.zeros(3)
    loss = (p * p).sum()
    vtl.update("sgd", [(m, p)], {"lr": 0.1, "weight_decay": 0.1})

    with pytest.raises(vtl.VersionError):
        loss.backward()


def test_changing_what_is_not_saved_is_no_error():
    x, w = vtl.ones(2, requires_grad=True), vtl.ones(2)
    y = (x + w).sum()
    w.add_(1.0)

    y.backward()

    assert x.grad.tolist() == [1.0, 1.0]


def test_a_leaf_given_other_memory_cannot_be_differentiated_twice():
    x = vtl.ones(2, requires_grad=True)
    y = (x * x).sum()
    x.raw = vtl.zeros(2).raw

    with pytest.raises(vtl.VersionError, match="other memory"):
        vtl.grad(y, [x], create_graph=True)
