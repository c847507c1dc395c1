"""Models by name: their states are torchvision's, their shapes and counts known."""

from __future__ import annotations

import numpy as np
import pytest

import vtl_core as vtl
import vtl_nn as nn

COUNTS = {
    ("resnet18", "imagenet", 1000): 11_689_512,
    ("resnet34", "imagenet", 1000): 21_797_672,
    ("resnet18", "cifar", 10): 11_173_962,
}


@pytest.mark.parametrize(("name", "stem", "classes"), COUNTS)
def test_resnets_have_as_many_parameters_as_they_should(name, stem, classes):
    """torchvision's page says 11 689 512 and 21 797 672."""
    model = getattr(nn.models, name)(classes, stem=stem)
    assert sum(p.size for p in model.parameters()) == COUNTS[name, stem, classes]


def test_resnet_names_are_torchvisions():
    names = list(nn.models.resnet18().state_dict())
    assert names[:8] == ["conv1.weight", "bn1.weight", "bn1.bias", "bn1.running_mean", "bn1.running_var",
                         "bn1.num_batches_tracked", "layer1.0.conv1.weight", "layer1.0.bn1.weight"]  # fmt: skip
    assert names[-2:] == ["fc.weight", "fc.bias"]
    assert {"layer2.0.downsample.0.weight", "layer2.0.downsample.1.running_var", "layer4.1.bn2.bias"} <= set(names)
    assert not any(".downsample." in name for name in names if name.startswith(("layer1", "layer2.1")))
    assert len(names) == 122


def test_stems_see_other_sizes():
    with vtl.no_grad():
        assert nn.models.resnet18().eval()(vtl.zeros(2, 3, 32, 32)).shape == (2, 10)
        assert nn.models.resnet18(7, stem="imagenet").eval()(vtl.zeros(1, 3, 64, 64)).shape == (1, 7)
    with pytest.raises(vtl.AttributeValueError, match="stem='mnist' must be one of 'cifar', 'imagenet'"):
        nn.models.resnet18(stem="mnist")


def test_zero_init_residual_starts_each_block_as_its_shortcut():
    model = nn.models.resnet18(zero_init_residual=True)
    assert all(not block.bn2.weight.numpy().any() for block in model.layer1)
    x = vtl.rand((2, 64, 4, 4))  # not negative, so that the last relu passes it
    np.testing.assert_array_equal(model.layer1.eval()(x).numpy(), x.numpy())


def test_a_resnet_learns_on_the_device(device, moved):
    """A14: a step of forward, backward and update without a transfer but the reads of the loss."""
    vtl.manual_seed(0)
    net = nn.models.ResNet((1, 1, 1, 1), 4).to(device)
    optimizer = nn.optim.SGD(net.parameters(), 0.02, momentum=0.9)
    random = np.random.default_rng(0)
    images = vtl.tensor(random.normal(size=(4, 3, 8, 8)), dtype=vtl.float32, device=device)
    labels = vtl.tensor([0, 1, 2, 3], device=device)
    losses = []
    for _ in range(4):
        before = moved(images)
        loss = nn.functional.cross_entropy(net(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert moved(images) == before
        losses.append(loss.item())
    assert losses[-1] < losses[0]
