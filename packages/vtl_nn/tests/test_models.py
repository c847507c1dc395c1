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


def learned(model, steps, *batches, rate=0.01):
    """Losses of a few steps of AdamW on one batch."""
    optimizer = nn.optim.AdamW(model.parameters(), rate)
    *inputs, labels = batches
    losses = []
    for _ in range(steps):
        loss = nn.functional.cross_entropy(model(*inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_vgg_has_torchvisions_features_and_learns(device):
    vtl.manual_seed(0)
    names = list(nn.models.vgg11().state_dict())
    assert names[0] == "features.0.weight"
    assert {"features.1.running_mean", "features.25.weight", "classifier.bias"} <= set(names)
    model = nn.models.VGG((4, "M", 8, "M", 8, 8, "M"), 3).to(device)
    images = vtl.randn((6, 3, 16, 16)).to(device)
    losses = learned(model, 4, images, vtl.tensor([0, 1, 2, 0, 1, 2], device=device))
    assert losses[-1] < losses[0]
    with vtl.no_grad():
        assert nn.models.vgg11(7).eval()(vtl.zeros(2, 3, 32, 32)).shape == (2, 7)


def test_airbench_whitens_patches_and_starts_as_the_identity():
    """After whitening the patches of the images have unit variance in all directions but those of hardly any."""
    random = np.random.default_rng(0)
    images = random.normal(size=(64, 3, 8, 8)).cumsum(2).cumsum(3) * 0.3
    model = nn.models.AirbenchNet(widths=(8, 8, 8))
    model.whiten(vtl.tensor(images, dtype=vtl.float32))
    with vtl.no_grad():
        y = nn.functional.conv2d(vtl.tensor(images, dtype=vtl.float32), model.whitening.weight).numpy()
    flat = y.transpose(1, 0, 2, 3).reshape(24, -1)
    np.testing.assert_allclose(flat[:12], -flat[12:], rtol=1e-4, atol=1e-4)
    second = flat[:12] @ flat[:12].T / flat.shape[1]
    assert np.abs(second - np.diag(np.diag(second))).max() < 0.02
    assert np.diag(second)[0] == pytest.approx(1, abs=0.01)
    conv = model.group2.conv1
    x = vtl.randn((1, 8, 5, 5))
    np.testing.assert_allclose(conv(x).numpy(), x.numpy(), rtol=1e-6)
    trained = [name for name, p in model.named_parameters() if p.requires_grad]
    assert "whitening.bias" in trained
    assert not {"whitening.weight", "group1.norm1.weight"} & set(trained)
    with pytest.raises(vtl.ShapeError, match=r"images \(8, 8\) must be \(N, 3, H, W\)"):
        model.whiten(np.zeros((8, 8)))


def test_airbench_learns_on_the_device(device):
    vtl.manual_seed(0)
    model = nn.models.AirbenchNet(4, widths=(8, 16, 16)).to(device)
    losses = learned(model, 4, vtl.randn((4, 3, 32, 32)).to(device), vtl.tensor([0, 1, 2, 3], device=device))
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("name", ["LSTMClassifier", "TransformerClassifier"])
def test_classifiers_of_text_learn_and_do_not_see_padding(name, device):
    vtl.manual_seed(0)
    sizes = (
        {"embed_dim": 8, "hidden_size": 6}
        if name == "LSTMClassifier"
        else {"d_model": 8, "nhead": 2, "dim_feedforward": 16, "dropout": 0.0}
    )
    model = getattr(nn.models, name)(20, 2, **sizes).to(device)
    ids = np.random.default_rng(0).integers(1, 20, (4, 7))
    lengths = [7, 3, 5, 1]
    for row, n in enumerate(lengths):
        ids[row, n:] = 0
    more = (lengths,) if name == "LSTMClassifier" else ()
    y = model(vtl.tensor(ids, device=device), *more).numpy()
    short = model(vtl.tensor(ids[1:2, :3], device=device)).numpy()
    np.testing.assert_allclose(y[1:2], short, rtol=1e-4, atol=1e-5)
    losses = learned(model, 5, vtl.tensor(ids, device=device), *more, vtl.tensor([0, 1, 1, 0], device=device))
    assert losses[-1] < losses[0]
    with pytest.raises(vtl.ShapeError, match=rf"{name}: ids \(4,\) must be \(N, L\)"):
        model(vtl.tensor([1, 2, 3, 4], device=device))
