"""Hooks: each program below is run with PyTorch and with ours, and what its hooks saw and left behind must be the same."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
import torch

import vtl_core as vtl
import vtl_nn as nn

RANDOM = np.random.default_rng(7)
A, B, W = (RANDOM.standard_normal(s) for s in ((4, 3), (4, 3), (2, 3)))


class Ours:
    nn, tensor, float64, grad = nn, staticmethod(vtl.tensor), vtl.float64, staticmethod(vtl.grad)
    no_grad = vtl.no_grad


class Theirs:
    nn, tensor, float64, grad = torch.nn, staticmethod(torch.tensor), torch.float64, staticmethod(torch.autograd.grad)
    no_grad = torch.no_grad


def plain(value):
    """What a program wrote down, as nested lists of float64 arrays and None."""
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return np.asarray(value.detach().numpy(), np.float64) if hasattr(value, "detach") else value


def leaves(lib, *arrays):
    return [lib.tensor(a, requires_grad=True) for a in arrays]


def layer(lib, inputs=3, outputs=2):
    made = lib.nn.Linear(inputs, outputs, dtype=lib.float64)
    weight = W[:outputs, :inputs] if inputs == 3 else np.resize(W, (outputs, inputs))
    with lib.no_grad():
        made.weight.copy_(lib.tensor(weight))
        made.bias.copy_(lib.tensor(np.arange(outputs) / 4.0))
    return made


def noting(log, result=None):
    def hook(*given):
        log.append([g for g in given if not isinstance(g, Ours.nn.Module | Theirs.nn.Module)])
        return result(*given) if result is not None else None

    return hook


# tensors
def of_a_leaf(lib, log):
    x, y = leaves(lib, A, B)
    x.register_hook(noting(log))
    x.register_hook(noting(log, lambda g: g * 2))
    x.register_hook(noting(log))
    for _ in range(2):  # the second adds to what the first left
        (x * y + x).sum().backward()
    log += [x.grad, y.grad]


def of_a_tensor_in_the_middle(lib, log):
    x, y = leaves(lib, A, B)
    m = x * y
    m.register_hook(noting(log, lambda g: g.clamp(-0.5, 0.5)))
    m.retain_grad()  # keeps what hooks leave, those that come later too
    m.register_hook(noting(log, lambda g: g + 1))
    (m * m + m.exp()).sum().backward()
    log += [x.grad, y.grad, m.grad]


def of_one_that_two_read(lib, log):
    """Called once, with the sum."""
    (x,) = leaves(lib, A)
    m = x.tanh()
    m.register_hook(noting(log))
    (m * m).sum().backward(retain_graph=True)
    (m + m * 3).sum().backward()
    log.append(x.grad)


def of_the_loss(lib, log):
    (x,) = leaves(lib, A)
    for _ in range(2):
        loss = (x * x).sum()
        loss.register_hook(noting(log, lambda g: g * 5))
        loss.backward()
    log.append(x.grad)


def of_what_grad_is_asked_for(lib, log):
    x, y = leaves(lib, A, B)
    m = x * y
    x.register_hook(noting(log, lambda g: g * 2))
    m.register_hook(noting(log, lambda g: g * 3))
    log += list(lib.grad((m * m).sum(), [x, y], retain_graph=True))
    log += list(lib.grad((m * m).sum(), [m]))


def of_a_gradient_s_gradient(lib, log):
    (x,) = leaves(lib, A)
    m = x * x
    m.register_hook(lambda g: g * g)
    (slope,) = lib.grad((m * m).sum(), [x], create_graph=True)
    slope.sum().backward()
    log += [slope, x.grad]


def removed(lib, log):
    (x,) = leaves(lib, A)
    handle = x.register_hook(noting(log))
    with x.register_hook(noting(log, lambda g: g * 2)):
        (x * 2).sum().backward()
    handle.remove()
    handle.remove()
    (x * 3).sum().backward()
    log.append(x.grad)


def that_takes_itself_off(lib, log):
    (x,) = leaves(lib, A)
    handle = x.register_hook(lambda g: (log.append(g), handle.remove(), None)[2])
    for _ in range(2):
        (x * 2).sum().backward()
    log.append(x.grad)


# modules
def around_forward(lib, log):
    (x,) = leaves(lib, A)
    model = layer(lib)
    model.register_forward_pre_hook(noting(log, lambda module, args: args[0] * 2))
    model.register_forward_pre_hook(noting(log), prepend=True)
    model.register_forward_hook(noting(log, lambda module, args, output: output + 1))
    model.register_forward_hook(noting(log))
    y = model(x)
    y.sum().backward()
    log += [y, x.grad]


def with_keywords(lib, log):
    (x,) = leaves(lib, A)

    class Scaled(lib.nn.Module):
        def forward(self, x, *, scale):
            return x * scale

    model = Scaled()
    model.register_forward_pre_hook(lambda m, args, kwargs: (args, {"scale": kwargs["scale"] + 1}), with_kwargs=True)
    model.register_forward_hook(
        lambda m, args, kwargs, y: log.append([args, sorted(kwargs.items()), y]), with_kwargs=True
    )
    model(x, scale=2.0).sum().backward()
    log.append(x.grad)


def after_an_error(lib, log):
    model = layer(lib)
    model.register_forward_hook(noting(log), always_call=True)
    model.register_forward_hook(noting(log))
    with contextlib.suppress(Exception):
        model(lib.tensor(np.ones((2, 99))))
    log.append(len(log))


def full_backward(lib, log):
    (x,) = leaves(lib, A)
    model = lib.nn.Sequential(layer(lib), lib.nn.ReLU(), layer(lib, 2, 3))
    for part in model:
        part.register_full_backward_hook(noting(log))
    model[0].register_full_backward_hook(noting(log, lambda m, gi, go: (gi[0] * 3,)))
    (model(x) * lib.tensor(np.resize(B, (4, 3)))).sum().backward()
    log += [x.grad, *[p.grad for p in model.parameters()]]


def full_backward_of_several(lib, log):
    """Two inputs, a number between, two outputs of which one is read, and a hook that changes one gradient."""
    x, y = leaves(lib, A, B)

    class Several(lib.nn.Module):
        def forward(self, a, k, b):
            return a * b * k, a + b

    model = Several()
    model.register_full_backward_hook(noting(log, lambda m, gi, go: (gi[0] * 2, None, gi[2])))
    model.register_full_backward_hook(noting(log), prepend=True)
    first, _ = model(x, 3.0, y)
    first.sum().backward()
    log += [x.grad, y.grad]


def full_backward_without_inputs(lib, log):
    model = layer(lib)
    model.register_full_backward_hook(noting(log))
    model(lib.tensor(A)).sum().backward()
    log.append(model.weight.grad)


def full_backward_of_frozen(lib, log):
    model = layer(lib)
    model.register_full_backward_hook(noting(log))
    with lib.no_grad():
        log.append(model(lib.tensor(A)))


def full_backward_twice(lib, log):
    """One module called twice: once for each call."""
    (x,) = leaves(lib, A[:3])
    model = lib.nn.Tanh()
    model.register_full_backward_hook(noting(log))
    model(model(x) * 2).sum().backward()
    log.append(x.grad)


def full_backward_of_a_gradient(lib, log):
    (x,) = leaves(lib, A)
    model = lib.nn.Tanh()
    model.register_full_backward_hook(noting(log, lambda m, gi, go: (gi[0] * go[0],)))
    (slope,) = lib.grad((model(x) ** 2).sum(), [x], create_graph=True)
    log.append(slope)
    (slope**2).sum().backward()
    log.append(x.grad)


PROGRAMS = [
    of_a_leaf, of_a_tensor_in_the_middle, of_one_that_two_read, of_the_loss, of_what_grad_is_asked_for,
    of_a_gradient_s_gradient, removed, that_takes_itself_off, around_forward, with_keywords, after_an_error, full_backward,
    full_backward_of_several, full_backward_without_inputs, full_backward_of_frozen, full_backward_twice,
    full_backward_of_a_gradient,
]  # fmt: skip


def assert_same(ours, theirs, where):
    assert type(ours) is type(theirs), where
    if isinstance(theirs, list):
        assert len(ours) == len(theirs), where
        for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            assert_same(a, b, f"{where}[{i}]")
    elif isinstance(theirs, np.ndarray):
        np.testing.assert_allclose(ours, theirs, rtol=1e-13, atol=1e-14, err_msg=where)
    else:
        assert ours == theirs, where


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_hooks_see_and_leave_what_pytorch_s_do(program):
    logs = []
    for lib in (Ours, Theirs):
        logs.append([])
        program(lib, logs[-1])

    assert_same(plain(logs[0]), plain(logs[1]), program.__name__)
    assert logs[0]
