"""Models against PyTorch's modules of the same names: logits, gradients and files both ways."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))  # the families beside this file, which is no package

from families_models import BasicBlock

import vtl_core as vtl
import vtl_nn as nn

t = torch.nn


class ResNet(t.Module):
    """The network in PyTorch."""

    def __init__(self, layers, classes, stem):
        super().__init__()
        small = stem == "cifar"
        self.conv1 = t.Conv2d(3, 64, 3 if small else 7, 1 if small else 2, 1 if small else 3, bias=False)
        self.bn1, self.maxpool = t.BatchNorm2d(64), t.Identity() if small else t.MaxPool2d(3, 2, 1)
        inplanes = 64
        for k, (planes, count) in enumerate(zip((64, 128, 256, 512), layers, strict=True)):
            blocks = [
                BasicBlock(inplanes if i == 0 else planes, planes, 2 if k and i == 0 else 1) for i in range(count)
            ]
            setattr(self, f"layer{k + 1}", t.Sequential(*blocks))
            inplanes = planes
        self.fc = t.Linear(512, classes)

    def forward(self, x):
        x = self.maxpool(self.bn1(self.conv1(x)).relu())
        for k in range(4):
            x = getattr(self, f"layer{k + 1}")(x)
        return self.fc(x.mean((2, 3)))


@pytest.mark.parametrize("stem", ["cifar", "imagenet"])
def test_resnet18_agrees_forward_and_backward(stem, tmp_path):
    """Logits to 1e-5 from a file that PyTorch's side wrote, gradients in float64, and the file that we write loads there."""
    safetensors = pytest.importorskip("safetensors.torch", reason="files are exchanged as safetensors")
    torch.manual_seed(1)
    theirs, ours = ResNet((2, 2, 2, 2), 10, stem), nn.models.resnet18(10, stem=stem)
    for module in theirs.modules():
        if isinstance(module, t.BatchNorm2d):
            module.running_mean.normal_(std=0.1)
            module.running_var.uniform_(0.5, 2)
    safetensors.save_file(theirs.state_dict(), tmp_path / "theirs.safetensors")
    nn.load_into(ours, tmp_path / "theirs.safetensors")
    array = np.random.default_rng(0).normal(size=(2, 3, 32, 32)).astype(np.float32)
    ours.eval()
    theirs.eval()
    y, ty = ours(vtl.tensor(array)), theirs(torch.tensor(array))
    np.testing.assert_allclose(y.numpy(), ty.detach().numpy(), rtol=0, atol=1e-5 * float(ty.detach().abs().max()))
    ours.train().to(vtl.float64)
    theirs.train().double()
    labels = np.array([3, 7])
    nn.functional.cross_entropy(ours(vtl.tensor(array.astype(np.float64))), vtl.tensor(labels)).backward()
    t.functional.cross_entropy(theirs(torch.tensor(array).double()), torch.tensor(labels)).backward()
    for (name, a), b in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        scale = float(b.grad.abs().max())
        np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=0, atol=1e-8 * scale, err_msg=name)
    ours.to(vtl.float32)
    theirs.float()
    nn.save(ours, tmp_path / "ours.safetensors")
    theirs.load_state_dict(safetensors.load_file(tmp_path / "ours.safetensors"))
    theirs.eval()
    ours.eval()
    with torch.no_grad():
        expected = theirs(torch.tensor(array)).numpy()
    np.testing.assert_allclose(ours(vtl.tensor(array)).numpy(), expected, rtol=0, atol=1e-5 * np.abs(expected).max())
