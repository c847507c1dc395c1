"""Backward: one walk by sequence numbers, no recursion, no list of all ops, nothing left behind."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref

import numpy as np
import pytest

import vtl_core as vtl
from vsl_compute.view import Buffer
from vtl_core.autograd.node import Node


def leaf(*values: float) -> vtl.Tensor:
    return vtl.tensor(list(values), dtype=vtl.float64, requires_grad=True)


def alive(kind: type) -> int:
    return sum(type(o) is kind for o in gc.get_objects())


@pytest.fixture
def no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_two_losses_from_one_forward_each_have_their_gradient():
    x = leaf(1.0, 2.0)
    hidden = (x * 3).exp()
    first, second = hidden.sum(), (hidden * hidden).sum()

    first.backward(retain_graph=True)
    once = x.grad.numpy().copy()
    second.backward()

    e = np.exp(3 * x.numpy())
    np.testing.assert_allclose(once, 3 * e, rtol=1e-14)
    np.testing.assert_allclose(x.grad.numpy(), 3 * e + 6 * e * e, rtol=1e-14)


def test_two_losses_that_share_nothing_but_leaves_need_no_retained_graph():
    x = leaf(2.0)
    (x * x).sum().backward()
    (x * x * x).sum().backward()

    assert x.grad.tolist() == [4.0 + 12.0]


def test_a_thousand_forwards_without_backward_leave_nothing(no_collector):
    x, w = vtl.ones(8, 8, requires_grad=True), vtl.ones(8, 8, requires_grad=True)

    def forward():
        h = vtl.apply("linear", x, w).relu()
        n, mean, _ = vtl.apply("layer_norm", h, normalized_shape=(8,))
        return (
            (n.softmax(-1).log() + h.std(0) + h.max(1).values + mean + vtl.checkpoint(lambda a: a.exp(), h))
            .reshape(-1)[2:]
            .sum()
        )

    forward()
    before = alive(Node), alive(Buffer)
    for _ in range(1000):
        forward()

    assert (alive(Node), alive(Buffer)) == before


@pytest.mark.parametrize("create_graph", [False, True])
def test_a_thousand_steps_leave_nothing(no_collector, create_graph):
    x, w = vtl.ones(4, 4, requires_grad=True), vtl.ones(4, 4, requires_grad=True)

    def step():
        loss = (x @ w).tanh().softmax(1).var().sum()
        if create_graph:
            (g,) = vtl.grad(loss, [w], create_graph=True)
            loss = (g * g).sum() + loss
        loss.backward()
        x.grad = w.grad = None

    step()
    before = alive(Node), alive(Buffer)
    for _ in range(1000 if not create_graph else 200):
        step()

    assert (alive(Node), alive(Buffer)) == before


def test_twenty_thousand_chained_ops_need_no_recursion_forward_backward_or_when_they_die():
    """In a process of its own with a small stack: a recursion in C would end it, not raise."""
    script = """
import threading
threading.stack_size(1 << 19)
import vtl_core as vtl

def work():
    x = vtl.ones((), dtype="float64", requires_grad=True)
    y = x
    for _ in range(20_000):
        y = y * 1.00001 + x * 0
    y.backward(retain_graph=True)
    assert abs(x.grad.item() / 1.00001**20_000 - 1) < 1e-9
    del y
    y = x
    for _ in range(20_000):
        y = y.reshape(1)[0]
    (g,) = vtl.grad(y.exp(), [x], create_graph=True)
    (h,) = vtl.grad(g, [x])
    assert abs(h.item() - 2.718281828459045) < 1e-12
    del y, g
    print("done")

thread = threading.Thread(target=work)
thread.start()
thread.join()
"""

    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert (result.returncode, result.stdout) == (0, "done\n"), result.stderr


def test_a_graph_used_twice_says_how_to_retain_it():
    x = leaf(3.0)
    y = x + x
    y.backward()

    with pytest.raises(vtl.GraphError, match=r"retain_graph=True"):
        y.backward()
    assert x.grad.tolist() == [2.0]


def test_a_failed_backward_leaves_gradients_as_they_were():
    x = leaf(3.0)
    shared = x.exp()
    shared.sum().backward()
    before = x.grad.tolist()
    y = (x * 2 + shared).sum()

    with pytest.raises(vtl.GraphError):
        y.backward()

    assert x.grad.tolist() == before


def test_saved_values_go_with_their_last_use():
    x = vtl.ones(1000, requires_grad=True)
    y = x.exp()
    saved = weakref.ref(y.raw.buffer)
    loss = y.sum()
    del y
    assert saved() is not None

    loss.backward()

    assert saved() is None


def test_nothing_is_saved_that_no_gradient_reads():
    x, y = vtl.ones(4, requires_grad=True), vtl.ones(4) * 2
    kept, dropped = weakref.ref(y.raw.buffer), weakref.ref((z := x * y).raw.buffer)
    w = z.exp()
    del y, z

    assert kept() is not None  # x's gradient is g * y
    assert dropped() is None  # exp's gradient reads its result
    del w
    assert kept() is None


def test_grad_touches_no_grad_and_walks_only_where_it_must():
    x, w = leaf(2.0), leaf(5.0)
    y = (x * x + w.exp()).sum()

    (g,) = vtl.grad(y, [x], retain_graph=True)

    assert g.tolist() == [4.0]
    assert x.grad is None
    assert w.grad is None
    y.backward()
    assert w.grad is not None


def test_grad_of_a_tensor_in_the_middle():
    x = leaf(2.0)
    h = x * 3
    y = (h * h).sum()

    middle, first = vtl.grad(y, [h, x])

    assert (middle.tolist(), first.tolist()) == ([12.0], [36.0])


def test_grad_stops_where_it_was_asked_to_and_leaves_the_rest_usable():
    x = leaf(2.0)
    h = x.exp()
    (g,) = vtl.grad((h * h).sum(), [h])
    h.sum().backward()

    assert g.tolist() == [2 * h.item()]
    assert x.grad.tolist() == [h.item()]


def test_grad_of_what_requires_none_names_the_input():
    with pytest.raises(vtl.GraphError, match="input 0 does not require gradients"):
        vtl.grad(leaf(1.0).sum(), [vtl.ones(1)])


def test_a_gradient_of_another_shape_than_its_input_is_found():
    from vtl_core.autograd.broadcasting import unbroadcast

    with pytest.raises(vtl.ShapeError, match=r"\(2, 3\) does not belong to an input of shape \(2,\)"):
        unbroadcast(None, vtl.ones(2, 3), vtl.ones(2).raw.layout)


def test_grad_says_which_input_was_not_used():
    x, w = leaf(2.0), leaf(5.0)
    y = (x * x).sum()

    with pytest.raises(vtl.GraphError, match=r"input 1, \(1,\), was not used.*allow_unused=True"):
        vtl.grad(y, [x, w], retain_graph=True)
    assert vtl.grad(y, [x, w], allow_unused=True)[1] is None


def test_grad_with_covectors_of_several_outputs():
    x = leaf(1.0, 2.0)

    (g,) = vtl.grad(
        [x * 2, x * x], [x], [vtl.tensor([1.0, 10.0], dtype=vtl.float64), vtl.tensor([1.0, 1.0], dtype=vtl.float64)]
    )

    assert g.tolist() == [2.0 + 2.0, 20.0 + 4.0]


def test_backward_with_create_graph_leaves_gradients_that_can_be_differentiated():
    x = leaf(2.0)
    (x**3).sum().backward(create_graph=True)
    g, x.grad = x.grad, None

    g.sum().backward(create_graph=True)
    assert x.grad.tolist() == [12.0]
    (x**2).sum().backward(create_graph=True)

    assert x.grad.tolist() == [16.0]


def test_retained_gradient_of_a_tensor_in_the_middle():
    x = leaf(2.0)
    h = x * 3
    h.retain_grad()
    (h * h).sum().backward()

    assert h.grad.tolist() == [12.0]
    assert not h.is_leaf
    assert x.is_leaf


def test_gradients_accumulate_until_they_are_cleared():
    """C27."""
    x = leaf(1.0)
    for _ in range(3):
        (x * 2).sum().backward()
    assert x.grad.tolist() == [6.0]

    x.grad = None
    (x * 2).sum().backward()

    assert x.grad.tolist() == [2.0]


def test_accumulating_writes_into_the_gradient_that_is_there():
    x = leaf(1.0)
    (x * 2).sum().backward()
    held = x.grad
    (x * 2).sum().backward()

    assert x.grad is held
    assert held.tolist() == [4.0]


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: a + b,
        lambda a, b: vtl.concat([a, b]),
        lambda a, b: vtl.stack([a, b]),
        lambda a, b: a.sum() + b.sum(),
    ],
)
def test_no_two_gradients_are_one_memory(function):
    """B06."""
    a, b = leaf(1.0, 2.0), leaf(3.0, 4.0)
    function(a, b).sum().backward()

    a.grad.mul_(10.0)

    assert b.grad.tolist() == [1.0, 1.0]
    assert a.grad.is_contiguous()


def test_a_gradient_given_to_backward_is_not_taken_over():
    x, g = leaf(1.0, 2.0), vtl.tensor([1.0, 1.0], dtype=vtl.float64)
    (x + 0.0).backward(g)

    x.grad.zero_()

    assert g.tolist() == [1.0, 1.0]


def test_backward_refuses_what_has_no_meaning():
    x = leaf(1.0, 2.0)
    with pytest.raises(vtl.ShapeError, match=r"backward: the tensor is \(2,\)"):
        (x * 2).backward()
    with pytest.raises(vtl.ShapeError, match=r"gradient is \(3,\), the tensor \(2,\)"):
        (x * 2).backward(vtl.ones(3))
    with pytest.raises(vtl.GraphError, match="does not require gradients"):
        vtl.ones(1).backward()
    with pytest.raises(vtl.DTypeError, match="only floating tensors have gradients"):
        vtl.tensor([1], requires_grad=True)
    with pytest.raises(vtl.DTypeError, match="gradient is int64"):
        (x * 2).backward(vtl.tensor([1, 2]))
    with pytest.raises(vtl.GraphError, match="detach"):
        (x * 2).requires_grad = False
    with pytest.raises(vtl.GraphError, match="no gradient flows"):
        vtl.ones(1).retain_grad()


def test_a_leaf_is_its_own_gradient():
    x = vtl.tensor(3.0, requires_grad=True)
    x.backward()

    assert x.grad.item() == 1.0


def test_unused_outputs_of_an_op_need_no_gradient():
    x = vtl.tensor(np.random.default_rng(0).standard_normal((3, 4)), requires_grad=True)
    _, mean, _ = vtl.apply("layer_norm", x, normalized_shape=(4,))

    mean.sum().backward()

    np.testing.assert_allclose(x.grad.numpy(), 0.25)


def test_float32_and_float64_models_do_not_touch_each_other():
    """B10, B19."""
    grads = []
    for dtype in (vtl.float32, vtl.float64):
        w = vtl.full((3, 2), 0.5, dtype=dtype, requires_grad=True)
        x = vtl.ones(4, 2, dtype=dtype)
        vtl.apply("mse_loss", vtl.apply("linear", x, w).tanh(), vtl.zeros(4, 3, dtype=dtype)).backward()
        assert w.grad.dtype is dtype
        grads.append(w.grad.numpy())
    np.testing.assert_allclose(grads[0], grads[1], rtol=1e-6)


def test_convolution_has_gradients_of_weight_and_bias():
    """B14."""
    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(s) for s in ((2, 3, 5, 5), (4, 3, 3, 3), (4,)))

    vtl.check_gradients(lambda w, b: vtl.apply("conv2d", vtl.tensor(x), w, b, padding=1).tanh(), w, b)
    weight, bias = vtl.tensor(w, requires_grad=True), vtl.tensor(b, requires_grad=True)
    vtl.apply("conv2d", vtl.tensor(x), weight, bias).square().sum().backward()
    assert np.abs(weight.grad.numpy()).min() > 0
    assert np.abs(bias.grad.numpy()).min() > 0
