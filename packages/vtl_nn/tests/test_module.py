"""Module: what you see is what there is."""

from __future__ import annotations

import copy
import pickle
import weakref

import numpy as np
import pytest

import vtl_core as vtl
import vtl_nn as nn


class Block(nn.Module):
    def __init__(self):
        self.scale = nn.Parameter(vtl.ones(3))
        self.seen = nn.Buffer(vtl.zeros(2))
        self.layers = [nn.Linear(3, 3), nn.Linear(3, 2, bias=False)]
        self.norm = nn.BatchNorm1d(2)
        self.note, self.cache = "text", vtl.zeros(3)

    def forward(self, x):
        return self.norm(self.layers[1](self.layers[0](x * self.scale)))


NAMES = ["scale", "layers.0.weight", "layers.0.bias", "layers.1.weight", "norm.weight", "norm.bias"]
BUFFERS = ["seen", "norm.running_mean", "norm.running_var", "norm.num_batches_tracked"]


def test_parameters_and_buffers_are_the_fields_in_order():
    block = Block()

    assert [name for name, _ in block.named_parameters()] == NAMES
    assert [name for name, _ in block.named_buffers()] == BUFFERS
    assert [name for name, _ in block.named_modules()] == ["", "layers.0", "layers.1", "norm"]
    assert [type(child).__name__ for child in block.children()] == ["Linear", "Linear", "BatchNorm1d"]
    assert all(parameter.requires_grad for parameter in block.parameters())
    assert not any(buffer.requires_grad for buffer in block.buffers())
    assert list(block.state_dict()) == [*NAMES[:1], *BUFFERS[:1], *NAMES[1:], *BUFFERS[1:]]


def test_a_field_set_later_counts_and_one_deleted_does_not():
    block = Block()
    block.extra = nn.Linear(1, 1)
    del block.scale

    names = [name for name, _ in block.named_parameters()]
    assert names == [*NAMES[1:], "extra.weight", "extra.bias"]


class Tied(nn.Module):
    def __init__(self):
        self.embed, self.out = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, x):
        return self.out(self.embed(x))


def test_what_lists_tuples_and_dicts_hold_is_trained_moved_and_saved():
    """A list of weights that looks like a field and is not trained would be found out late."""
    held = nn.Module()
    held.scales = [nn.Parameter(vtl.ones(2)), nn.Parameter(vtl.ones(3))]
    held.heads = {"up": nn.Linear(2, 1), "down": (nn.Linear(2, 1, bias=False),)}
    held.blocks = [[nn.ReLU(), nn.BatchNorm1d(2, affine=False)]]
    held.names = ["up", "down"]

    assert [n for n, _ in held.named_parameters()] == [
        "scales.0", "scales.1", "heads.up.weight", "heads.up.bias", "heads.down.0.weight",
    ]  # fmt: skip
    assert [n for n, _ in held.named_children()] == ["heads.up", "heads.down.0", "blocks.0.0", "blocks.0.1"]
    assert {"scales.1", "blocks.0.1.running_mean"} <= held.state_dict().keys()
    held.to(vtl.float64).eval()
    assert {t.dtype for t in held.parameters()} == {vtl.float64}
    assert not held.blocks[0][1].training
    held.load_state_dict({name: value * 2 for name, value in held.state_dict().items()})
    assert held.scales[1].tolist() == [2, 2, 2]
    assert copy.deepcopy(held).scales[0] is not held.scales[0]


def test_a_part_that_holds_what_holds_it_says_so():
    """A reference to the parent is a common wish, and an endless walk."""
    model = nn.Sequential(nn.Linear(2, 2))
    model[0].owner = model
    for walk in (model.state_dict, lambda: list(model.parameters()), model.eval):
        with pytest.raises(nn.StateError, match=r"Sequential: 0\.owner holds the Sequential that holds it; .*weakref"):
            walk()
    model[0].owner = weakref.ref(model)

    assert len(model.state_dict()) == 2


def test_a_plain_tensor_in_the_place_of_a_parameter_is_neither_trained_nor_saved():
    """Gradients can be taken of a layer as a function of its weight so; PyTorch refuses it, and docs/from-pytorch.md says that."""
    layer = nn.Linear(3, 2)
    weight = vtl.randn(2, 3, requires_grad=True)

    layer.weight = weight
    layer(vtl.ones(1, 3)).sum().backward()

    assert weight.grad is not None
    assert list(layer.state_dict()) == ["bias"]
    layer.weight = nn.Parameter(weight)
    assert sorted(layer.state_dict()) == ["bias", "weight"]


def test_a_shared_weight_counts_once_and_has_both_names_in_the_state():
    tied = Tied()

    assert [name for name, _ in tied.named_parameters()] == ["embed.weight"]
    assert list(tied.state_dict()) == ["embed.weight", "out.weight"]
    optimizer = nn.optim.SGD(tied.parameters(), lr=1.0)
    ids = vtl.tensor([0, 4])
    nn.functional.cross_entropy(tied(ids), ids).backward()
    before = tied.embed.weight.numpy().copy()
    optimizer.step()
    assert tied.out.weight is tied.embed.weight
    assert not np.array_equal(before, tied.out.weight.numpy())


def test_a_shared_module_counts_once():
    layer = nn.Linear(2, 2)
    model = nn.Sequential(layer, nn.ReLU(), layer)

    assert len(list(model.modules())) == 3
    assert len(list(model.parameters())) == 2
    assert list(model.state_dict()) == ["0.weight", "0.bias", "2.weight", "2.bias"]


def test_mode_reaches_every_part():
    block = Block()
    assert block.training
    assert block.eval() is block
    assert not any(module.training for module in block.modules())
    block.train()
    assert all(module.training for module in block.modules())


def test_frozen_parameters_stay_parameters_and_get_no_gradient():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    model[0].requires_grad_(False)
    model(vtl.ones(1, 2)).sum().backward()

    assert len(list(model.parameters())) == 4
    assert model[0].weight.grad is None
    assert model[1].weight.grad is not None


def test_apply_reaches_parts_before_the_whole():
    seen = []
    nn.Sequential(nn.ReLU(), nn.Sequential(nn.Tanh())).apply(lambda module: seen.append(type(module).__name__))

    assert seen == ["ReLU", "Tanh", "Sequential", "Sequential"]


def test_state_round_trip_is_in_place():
    """B1: parameters keep their identity, and writing bumps their version."""
    a, b = Block(), Block()
    weight, version = b.layers[0].weight, b.layers[0].weight.raw.buffer.version
    a(vtl.tensor(np.random.default_rng(0).normal(size=(6, 3)), dtype=vtl.float32))

    result = b.load_state_dict(a.state_dict())

    assert result.missing_keys == result.unexpected_keys == []
    assert b.layers[0].weight is weight
    assert weight.raw.buffer.version > version
    for name, value in a.state_dict().items():
        np.testing.assert_array_equal(b.state_dict()[name].numpy(), value.numpy())
    assert b.norm.num_batches_tracked.item() == 1
    np.testing.assert_array_equal(a.norm.running_mean.numpy(), b.norm.running_mean.numpy())


def test_loading_copies():
    a, b = nn.Linear(2, 2), nn.Linear(2, 2)
    b.load_state_dict(a.state_dict())
    with vtl.no_grad():
        a.weight.fill_(7.0)

    assert not (b.weight.numpy() == 7).any()


def test_a_state_that_does_not_fit_lists_every_name_and_changes_nothing():
    """F08: missing and unexpected keys and shape mismatches, every name."""
    block = Block()
    before = {name: value.numpy().copy() for name, value in block.state_dict().items()}
    state = {name: value + 1 for name, value in block.state_dict().items()}
    state["more"], state["stray.bias"] = vtl.zeros(1), vtl.zeros(1)
    del state["scale"], state["norm.running_var"]
    state["layers.0.weight"], state["norm.bias"] = vtl.zeros(4, 3), vtl.zeros(5)

    with pytest.raises(nn.StateError) as caught:
        block.load_state_dict(state)

    for part in (
        "missing: scale, norm.running_var",
        "unexpected: more, stray.bias",
        "layers.0.weight is (4, 3), here (3, 3)",
        "norm.bias is (5,), here (2,)",
    ):
        assert part in str(caught.value)
    assert isinstance(caught.value, RuntimeError)
    for name, value in block.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), before[name])


def test_without_strict_names_may_differ_but_not_shapes():
    layer = nn.Linear(2, 2)
    result = layer.load_state_dict({"weight": np.ones((2, 2)), "more": np.ones(1)}, strict=False)

    assert (result.missing_keys, result.unexpected_keys) == (["bias"], ["more"])
    assert (layer.weight.numpy() == 1).all()
    with pytest.raises(nn.StateError, match=r"weight is \(3, 2\)"):
        layer.load_state_dict({"weight": np.ones((3, 2))}, strict=False)


def test_moving_keeps_parameters_and_gradients_the_same_objects():
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    weight, optimizer = model[0].weight, nn.optim.SGD(model.parameters(), lr=0.5)
    model(vtl.tensor([[1.0, 2.0], [3.0, 5.0]])).square().sum().backward()

    model.to(vtl.float64)

    assert model[0].weight is weight
    assert weight.dtype is vtl.float64
    assert weight.grad.dtype is vtl.float64
    assert model[1].running_mean.dtype is vtl.float64
    assert model[1].num_batches_tracked.dtype is vtl.int64
    before = weight.numpy().copy()
    optimizer.step()
    np.testing.assert_allclose(weight.numpy(), before - 0.5 * weight.grad.numpy())


def test_to_takes_a_device_a_dtype_or_both():
    layer = nn.Linear(2, 2)
    assert layer.to("cpu") is layer
    assert layer.to("cpu", dtype="float64").weight.dtype is vtl.float64
    assert layer.to(dtype=vtl.float32).weight.dtype is vtl.float32
    assert layer.to("cpu", vtl.float64).weight.dtype is vtl.float64
    with pytest.raises(vtl.AttributeValueError, match="int64 is no dtype for weights"):
        layer.to(vtl.int64)
    with pytest.raises(vtl.DeviceError):
        layer.to("nothing:0")


def test_zero_grad_forgets_or_fills():
    layer = nn.Linear(2, 1)
    layer(vtl.ones(1, 2)).sum().backward()
    layer.zero_grad(set_to_none=False)
    assert (layer.weight.grad.numpy() == 0).all()
    layer.zero_grad()
    assert layer.weight.grad is None


def test_deep_copies_and_pickles_are_models_of_their_own():
    block = Block()
    for other in (copy.deepcopy(block), pickle.loads(pickle.dumps(block))):
        assert [name for name, _ in other.named_parameters()] == NAMES
        assert [name for name, _ in other.named_buffers()] == BUFFERS
        with vtl.no_grad():
            other.scale.fill_(5.0)
        assert (block.scale.numpy() == 1).all()
    tied = copy.deepcopy(Tied())
    assert tied.out.weight is tied.embed.weight


def test_an_integer_is_no_parameter_unless_it_is_frozen():
    with pytest.raises(vtl.AttributeValueError, match="int64 cannot require gradients"):
        nn.Parameter(vtl.tensor([1, 2]))
    assert not nn.Parameter(vtl.tensor([1, 2]), requires_grad=False).requires_grad


def test_a_module_without_forward_says_so():
    with pytest.raises(NotImplementedError, match="Module must define forward"):
        nn.Module()(1)


def test_repr_shows_the_tree():
    assert repr(nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.Dropout(0.1)))) == (
        "Sequential(\n  (0): Linear(in_features=2, out_features=3, bias=True)\n  (1): Sequential(\n    (0): Dropout(p=0.1)\n  )\n)"
    )


def test_sequential_is_indexed_sliced_and_extended():
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))

    assert len(model) == 3
    assert model[-1] is model[2]
    assert [type(layer).__name__ for layer in model[:2]] == ["Linear", "ReLU"]
    assert model[:1][0] is model[0]
    assert model.append(nn.Tanh()) is model
    assert len(model) == 4
    with pytest.raises(IndexError):
        model[4]
    with pytest.raises(TypeError, match="layer 1 is function"):
        nn.Sequential(nn.ReLU(), lambda x: x)


def test_sequential_takes_names_from_a_dict_as_pytorchs_does():
    vtl.manual_seed(0)
    model = nn.Sequential({"first": nn.Linear(2, 3), "between": nn.ReLU(), "last": nn.Linear(3, 1)})
    x = vtl.randn(4, 2)

    assert list(model.state_dict()) == ["first.weight", "first.bias", "last.weight", "last.bias"]
    assert model[0] is model.first
    assert [name for name, _ in model[1:].named_children()] == ["between", "last"]
    np.testing.assert_array_equal(model(x).numpy(), nn.Sequential(*model)(x).numpy())
    with pytest.raises(TypeError, match="'last' is int"):
        nn.Sequential({"last": 3})
