"""The same model, weights, batches and optimizer here and in PyTorch: the losses agree, step by step."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import vtl_core as vtl
import vtl_nn as nn

DTYPES = {"float64": (vtl.float64, torch.float64), "float32": (vtl.float32, torch.float32)}


def simple_cnn(classes, side):
    """SimpleCNN in PyTorch."""
    t = torch.nn
    return t.Sequential(
        t.Conv2d(3, 32, 3, padding=1), t.ReLU(), t.MaxPool2d(2), t.Conv2d(32, 64, 3, padding=1), t.ReLU(), t.MaxPool2d(2),
        t.Flatten(), t.Linear(64 * (side // 4) ** 2, 128), t.ReLU(), t.Linear(128, classes),
    )  # fmt: skip


def copied(ours, theirs):
    """Our weights, in PyTorch."""
    theirs.load_state_dict({name: torch.tensor(value.numpy()) for name, value in ours.state_dict().items()})


def batches(count, size, side, dtype):
    """Classes are bright in different corners, and 40 % of the labels are noise: the loss goes down, but not to zero."""
    generator = np.random.default_rng(3)
    for _ in range(count):
        labels = generator.integers(0, 4, size)
        images = generator.normal(size=(size, 3, side, side))
        half = side // 2
        for k, label in enumerate(labels):
            images[k, :, half * (label // 2) :, half * (label % 2) :][:, :half, :half] += 0.7
        yield images.astype(dtype), np.where(generator.random(size) < 0.4, generator.integers(0, 4, size), labels)


def pair(name, side, make, make_torch):
    dtype, torch_dtype = DTYPES[name]
    ours, theirs = nn.models.SimpleCNN(4, image_size=side).to(dtype), simple_cnn(4, side).to(torch_dtype)
    copied(ours, theirs)
    return ours, theirs, make(ours.parameters()), make_torch(theirs.parameters())


def our_step(model, optimizer, images, labels):
    loss = nn.functional.cross_entropy(model(vtl.tensor(images)), vtl.tensor(labels))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def their_step(model, optimizer, images, labels):
    loss = torch.nn.functional.cross_entropy(model(torch.tensor(images)), torch.tensor(labels))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


OPTIMIZERS = {
    "Adam": (lambda p: nn.optim.Adam(p, lr=1e-3), lambda p: torch.optim.Adam(p, lr=1e-3)),
    "Adam with L2": (
        lambda p: nn.optim.Adam(p, lr=1e-3, weight_decay=0.01),
        lambda p: torch.optim.Adam(p, lr=1e-3, weight_decay=0.01),
    ),
    "AdamW": (lambda p: nn.optim.AdamW(p, lr=1e-3), lambda p: torch.optim.AdamW(p, lr=1e-3)),
    "SGD": (
        lambda p: nn.optim.SGD(p, lr=0.02, momentum=0.9, nesterov=True, weight_decay=1e-3),
        lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9, nesterov=True, weight_decay=1e-3),
    ),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_float64_losses_agree_over_fifty_steps(name):
    """Relative 1e-9: nothing but the order of sums differs."""
    side = 16 if name == "Adam" else 8
    ours, theirs, optimizer, torch_optimizer = pair("float64", side, *OPTIMIZERS[name])
    losses = []
    for images, labels in batches(50, 16, side, np.float64):
        losses.append((our_step(ours, optimizer, images, labels), their_step(theirs, torch_optimizer, images, labels)))

    mine, expected = np.array(losses).T
    assert expected[-10:].mean() < 0.9 * expected[0], "the model must learn, or the test shows little"
    np.testing.assert_allclose(mine, expected, rtol=1e-9)
    for (key, value), their_value in zip(ours.state_dict().items(), theirs.state_dict().values(), strict=True):
        np.testing.assert_allclose(value.numpy(), their_value.numpy(), rtol=1e-6, atol=1e-9, err_msg=key)


def test_float32_losses_agree_at_each_step_from_the_same_weights():
    """1e-5 a step: trajectories in float32 part by rounding, so each step starts from our weights."""
    ours, theirs, optimizer, torch_optimizer = pair("float32", 8, *OPTIMIZERS["Adam"])
    for images, labels in batches(50, 32, 8, np.float32):
        copied(ours, theirs)
        mine, expected = our_step(ours, optimizer, images, labels), their_step(theirs, torch_optimizer, images, labels)
        assert mine == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("name", "tolerance"), [("float64", 1e-9), ("float32", 1e-5)])
def test_losses_agree_at_the_real_size(name, tolerance):
    """Batch 64 of 3x32x32, as `vtl train` has them: five steps, gradients of the first included."""
    ours, theirs, optimizer, torch_optimizer = pair(name, 32, *OPTIMIZERS["Adam"])
    for step, (images, labels) in enumerate(batches(5, 64, 32, name)):
        if name == "float32":
            copied(ours, theirs)
        assert our_step(ours, optimizer, images, labels) == pytest.approx(
            their_step(theirs, torch_optimizer, images, labels), rel=tolerance
        )
        if step == 0:
            for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
                scale = b.grad.abs().max().item()
                np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=0, atol=scale * tolerance * 10)
