"""checkpoint: the same numbers and gradients, with less memory between."""

from __future__ import annotations

import weakref

import numpy as np
import pytest

import vtl_core as vtl

RNG = np.random.default_rng(1)


def leaf(*shape: int) -> vtl.Tensor:
    return vtl.tensor(RNG.standard_normal(shape), requires_grad=True)


def dropped(x: vtl.Tensor, generator: vtl.Generator) -> vtl.Tensor:
    key, counter = generator.reserve(x.size)
    return vtl.apply("dropout", x, p=0.5, key=key, counter=counter)[0]


def test_gradients_reach_the_inputs_and_what_the_function_closes_over():
    x, w = leaf(3, 4), leaf(4, 2)
    hidden = x.exp()
    (hidden @ w).tanh().sum().backward()
    want = x.grad.numpy().copy(), w.grad.numpy().copy()
    x.grad = w.grad = None

    hidden = x.exp()
    vtl.checkpoint(lambda a: (a @ w).tanh(), hidden).sum().backward()

    np.testing.assert_array_equal(x.grad.numpy(), want[0])
    np.testing.assert_array_equal(w.grad.numpy(), want[1])


def test_grad_walks_through_a_checkpoint():
    x, w = leaf(3, 4), leaf(4, 2)
    y = vtl.checkpoint(lambda a: (a @ w).tanh(), x.exp()).sum()

    gx, gw = vtl.grad(y, [x, w], retain_graph=True)

    want = vtl.grad((x.exp() @ w).tanh().sum(), [x, w])
    np.testing.assert_array_equal(gx.numpy(), want[0].numpy())
    np.testing.assert_array_equal(gw.numpy(), want[1].numpy())


def test_random_numbers_are_the_same_the_second_time():
    x, own = leaf(100), vtl.Generator(4)
    vtl.manual_seed(7)

    def noisy(a):
        return dropped(dropped(a * 2, vtl.default_context().generator), own)

    y = vtl.checkpoint(noisy, x, generators=[own])
    after = vtl.default_context().generator.offset, own.offset
    y.sum().backward()

    np.testing.assert_array_equal(x.grad.numpy() != 0, y.numpy() != 0)
    assert (vtl.default_context().generator.offset, own.offset) == after


def test_nothing_between_is_kept():
    kept = []

    def function(a):
        h = a.exp()
        kept.append(weakref.ref(h.raw.buffer))
        return h.sin()

    x = leaf(1000)
    y = vtl.checkpoint(function, x)

    assert kept[0]() is None
    y.sum().backward()
    assert len(kept) == 2


def test_without_gradients_it_is_only_a_call():
    with vtl.no_grad():
        assert not vtl.checkpoint(lambda a: a * 2, leaf(2)).requires_grad


def test_several_outputs_and_arguments_that_are_no_tensors():
    x = leaf(3)
    a, b, indices, word = vtl.checkpoint(lambda t, k: (t * k, t.exp(), t.argsort(), "word"), x, 3.0)
    a.sum().backward(retain_graph=True)

    np.testing.assert_array_equal(x.grad.numpy(), 3)
    assert word == "word"
    assert b.requires_grad
    assert not indices.requires_grad


def test_a_function_that_does_something_else_the_second_time_is_found():
    calls = []

    def fickle(a):
        calls.append(1)
        return (a * 2,) if len(calls) == 1 else (a * 2, a)

    (y,) = vtl.checkpoint(fickle, leaf(2))
    with pytest.raises(vtl.GraphError, match="must do the same each time"):
        y.sum().backward()


def test_an_input_changed_in_place_is_found():
    x = vtl.ones(2, dtype=vtl.float64)
    w = leaf(2)
    y = vtl.checkpoint(lambda a, b: a * b, x, w)
    x.zero_()

    with pytest.raises(vtl.VersionError, match="checkpoint"):
        y.sum().backward()


def test_checkpoints_stand_inside_checkpoints():
    vtl.check_gradients(
        lambda x: vtl.checkpoint(lambda a: vtl.checkpoint(lambda b: b.exp(), a).sin(), x),
        RNG.standard_normal(4),
        order=2,
    )


@pytest.mark.parametrize("wrapped", [lambda y: {"y": y}, lambda y: (y, [y]), lambda y: [({"y": [y]},)]])
def test_tensors_inside_other_things_are_refused_as_no_gradient_would_reach_them(wrapped):
    x = vtl.tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(vtl.GraphError, match="holds tensors"):
        vtl.checkpoint(lambda a: wrapped(a * 2), x)
