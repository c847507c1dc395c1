"""Hooks on tensors, and gradients that are put in place by hand."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import vtl_core as vtl
from vtl_core.autograd.node import leaf_hooks
from vtl_core.hooks import intercept


def drawn(rng, *shape, **options):
    return vtl.tensor(rng.standard_normal(shape, dtype=np.float32), **options)


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def test_a_hook_may_change_its_gradient_in_place_and_nobody_else_s(rng):
    """What arrives at both terms of a sum is one piece of memory."""
    x, y = drawn(rng, 4, 3, requires_grad=True), drawn(rng, 4, 3, requires_grad=True)
    m = x * 1.0
    m.register_hook(lambda g: (g.mul_(3), None)[1])

    (m + y).sum().backward()

    np.testing.assert_array_equal(x.grad.numpy(), np.full((4, 3), 3, np.float32))
    np.testing.assert_array_equal(y.grad.numpy(), np.ones((4, 3), np.float32))


def test_the_seed_of_a_loss_survives_a_hook_that_writes_to_it(rng):
    """A device keeps its ones from one backward pass to the next."""
    x = drawn(rng, 3, requires_grad=True)
    for _ in range(3):
        x.grad = None
        loss = x.sum()
        loss.register_hook(lambda g: (g.fill_(7), None)[1])
        loss.backward()
        assert x.grad.tolist() == [7, 7, 7]
    x.grad = None
    x.sum().backward()
    assert x.grad.tolist() == [1, 1, 1]


def test_what_a_hook_keeps_stays_as_it_was(rng):
    """The next backward pass adds to the gradient in place."""
    x, kept = drawn(rng, 3, requires_grad=True), []
    x.register_hook(kept.append)
    m = x * 2.0
    m.register_hook(kept.append)
    m.sum().backward()
    (x * 4.0).sum().backward()

    assert [g.tolist() for g in kept] == [[1, 1, 1], [2, 2, 2], [4, 4, 4]]
    assert x.grad.tolist() == [6, 6, 6]


def test_hooks_of_a_leaf_go_with_it(rng):
    before = len(leaf_hooks)
    x = drawn(rng, 3, requires_grad=True)
    handle = x.register_hook(lambda g: None)
    assert len(leaf_hooks) == before + 1
    del x
    gc.collect()
    assert len(leaf_hooks) == before
    handle.remove()


def test_hooks_of_a_tensor_go_with_its_graph_and_need_no_garbage_collector(rng):
    m = drawn(rng, 3, requires_grad=True) * 2.0
    handle = m.register_hook(lambda g: g)
    gc.disable()
    try:
        assert handle._hooks() is not None
        del m
        assert handle._hooks() is None
    finally:
        gc.enable()


def test_a_hook_of_a_tensor_without_gradients_is_refused(rng):
    with pytest.raises(vtl.GraphError, match="register_hook: no gradient flows"):
        drawn(rng, 3).register_hook(lambda g: g)
    with pytest.raises(TypeError, match="register_hook: the hook is 3"):
        drawn(rng, 3, requires_grad=True).register_hook(3)


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (lambda g: g[:2], vtl.ShapeError),
        (lambda g: g.to(vtl.float64), vtl.DTypeError),
        (lambda g: g.numpy(), vtl.DTypeError),
        (lambda g: 1.0, vtl.DTypeError),
    ],
)
def test_a_hook_that_returns_no_such_gradient_is_named(rng, wrong, error, linked):
    x = drawn(rng, 3, requires_grad=True)
    m = x * 2.0
    for tensor in (x, m):
        with tensor.register_hook(wrong), pytest.raises(error, match="register_hook: what the hook returned"):
            m.sum().backward(retain_graph=True, create_graph=linked)
        assert x.grad is None


def test_hooks_are_called_with_gradients_of_a_checkpoint(rng):
    x, seen = drawn(rng, 3, requires_grad=True), []
    y = vtl.checkpoint(lambda x: x.exp(), x * 2.0)
    y.register_hook(lambda g: seen.append(g) or g * 2)
    y.sum().backward()

    assert [g.tolist() for g in seen] == [[1, 1, 1]]
    np.testing.assert_allclose(x.grad.numpy(), 4 * np.exp(2 * x.numpy()), rtol=1e-6)


def test_an_intercepted_gradient_comes_once_with_all_others(rng):
    x, y, z = drawn(rng, 3, requires_grad=True), drawn(rng, 2, requires_grad=True), drawn(rng, 2)
    seen = []

    def back(grads):
        seen.append(grads)
        return grads[0] * 2, None, None

    a, b, c = intercept(back, x, y, z)
    assert c is z
    assert not c.requires_grad
    (a.sum() + b.sum() * 5).backward()

    assert len(seen) == 1
    assert [None if g is None else g.tolist() for g in seen[0]] == [[1, 1, 1], [5, 5], None]
    assert x.grad.tolist() == [2, 2, 2]
    assert y.grad is None
    with vtl.no_grad():
        assert intercept(back, x, y)[0] is x


def test_an_intercepted_tensor_is_not_changed_in_place(rng):
    x = drawn(rng, 3, requires_grad=True)
    (a,) = intercept(lambda grads: None, x)
    with pytest.raises(vtl.GraphError, match="view of another"):
        a.mul_(2)


# gradients put in place by hand
@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        (np.zeros(3, np.float32), vtl.DTypeError, "ndarray is no tensor"),
        (1.0, vtl.DTypeError, "float is no tensor"),
        ("x", vtl.DTypeError, "str is no tensor"),
        (lambda: vtl.zeros(4), vtl.ShapeError, r"\(4,\), the tensor \(3,\)"),
        (lambda: vtl.zeros(1, 3), vtl.ShapeError, r"\(1, 3\), the tensor \(3,\)"),
        (lambda: vtl.zeros(3, dtype=vtl.float64), vtl.DTypeError, "float64, the tensor float32"),
        (lambda: vtl.zeros(3, dtype=vtl.int32), vtl.DTypeError, "int32, the tensor float32"),
    ],
    ids=["array", "number", "text", "longer", "more axes", "wider", "integers"],
)
def test_what_cannot_be_the_gradient_is_refused_where_it_is_assigned(rng, given, error, said):
    """As PyTorch; an optimizer's step would be the first to notice."""
    x = drawn(rng, 3, requires_grad=True)
    x.sum().backward()
    before = x.grad
    with pytest.raises(error, match=f"grad: .*{said}"):
        x.grad = given() if callable(given) else given
    with pytest.raises(vtl.GraphError, match="own gradient"):
        x.grad = x
    assert x.grad is before
    x.grad = vtl.ones(3) * 2
    assert x.grad.tolist() == [2, 2, 2]
    x.grad = None
    assert x.grad is None
