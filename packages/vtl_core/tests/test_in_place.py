"""Changing tensors in place, and where gradients flow."""

from __future__ import annotations

import numpy as np
import pytest

import vtl_core as vtl


def test_detach_shares_memory_and_clone_does_not():
    x = vtl.ones(2, requires_grad=True)
    shared, copied = x.detach(), x.clone()
    shared.mul_(3.0)

    assert x.tolist() == [3, 3]
    assert copied.tolist() == [1, 1]
    assert not shared.requires_grad
    assert copied.requires_grad


IN_PLACE = {
    "add_": (lambda x: x.add_(2.0), 5.0), "sub_": (lambda x: x.sub_(vtl.tensor([1.0])), 2.0), "mul_": (lambda x: x.mul_(2), 6.0),
    "div_": (lambda x: x.div_(2.0), 1.5), "zero_": (lambda x: x.zero_(), 0.0), "fill_": (lambda x: x.fill_(4), 4.0),
    "copy_": (lambda x: x.copy_(vtl.tensor(7, dtype=vtl.int32)), 7.0), "clamp_": (lambda x: x.clamp_(max=1.0), 1.0),
}  # fmt: skip


@pytest.mark.parametrize("name", IN_PLACE)
def test_a_method_that_ends_in_an_underscore_changes_the_memory_that_others_see(name):
    change, want = IN_PLACE[name]
    x = vtl.full((2, 3), 3.0)
    other = x.detach()
    version = x.raw.buffer.version

    assert change(x) is x

    assert np.all(other.numpy() == want)
    assert x.raw.buffer.version > version


@pytest.mark.parametrize("name", IN_PLACE)
def test_a_leaf_that_requires_gradients_is_changed_only_without_them(name):
    change, want = IN_PLACE[name]
    x = vtl.full((2, 3), 3.0, requires_grad=True)

    with pytest.raises(vtl.GraphError, match="leaf that requires gradients"):
        change(x)
    with vtl.no_grad():
        change(x)

    assert np.all(x.numpy() == want)
    assert x.is_leaf
    assert x.requires_grad


def test_augmented_assignment_is_in_place_without_gradients_and_a_new_tensor_with_them():
    w, seen = vtl.ones(2, requires_grad=True), []
    alias = w.detach()
    with vtl.no_grad():
        w -= 0.5 * vtl.ones(2)
        w += 1.0
        w *= 2.0
        w /= 4.0
    assert alias.tolist() == [0.75, 0.75]

    total = vtl.zeros(())
    for _ in range(3):
        total += (w * w).sum()
        seen.append(total)
    total.backward()
    assert w.grad.tolist() == [4.5, 4.5]
    assert seen[0].item() == pytest.approx(1.125)
    with pytest.raises(vtl.GraphError, match="leaf"):
        w += 1.0


def test_changing_a_tensor_that_gradients_flow_through_gives_it_a_new_value():
    x = vtl.tensor([1.0, 2.0], requires_grad=True)
    y = x * 3
    before = y.detach()
    y.mul_(y)
    y.add_(x)
    y.sum().backward()

    assert x.grad.tolist() == [18.0 + 1, 36.0 + 1]
    assert before.tolist() == [3, 6]
    z = x * 3
    z.zero_()
    assert (z.tolist(), z.requires_grad) == ([0, 0], False)


def test_changing_a_view_that_gradients_flow_through_raises():
    y = vtl.ones(4, requires_grad=True) * 2
    with pytest.raises(vtl.GraphError, match="view of another"):
        y[1:].add_(1.0)
    with pytest.raises(vtl.GraphError, match="view of another"):
        vtl.zeros(4)[1:].add_(y[1:])


def test_in_place_keeps_shape_and_dtype_or_raises():
    x = vtl.ones(2)
    y = vtl.ones(2, requires_grad=True) * 2
    with pytest.raises(vtl.ShapeError, match=r"the result is float32\[3, 2\]"):
        y.add_(vtl.ones(3, 2))
    y.copy_(vtl.tensor([5, 6]))
    assert y.tolist() == [5, 6]
    with pytest.raises(TypeError):
        x += "text"
    with pytest.raises(vtl.ShapeError):
        x.add_(vtl.ones(3, 2))
    assert x.add_(vtl.ones(2, dtype=vtl.float64)).dtype is vtl.float32
    with pytest.raises(vtl.DTypeError, match="cannot be written into int64"):
        vtl.tensor([1, 2]).add_(x)
