"""ModuleList and ModuleDict, weight tying, Unflatten."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import vtl_core as vtl
import vtl_nn as nn


class Tower(nn.Module):
    """Parts in a list and a dictionary."""

    def __init__(self) -> None:
        self.layers = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
        self.heads = nn.ModuleDict({"left": nn.Linear(3, 1), "right": nn.Linear(3, 2)})

    def forward(self, x: vtl.Tensor, head: str) -> vtl.Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.heads[head](x)


def test_parts_of_lists_and_dictionaries_have_pytorchs_names():
    names = [name for name, _ in Tower().named_parameters()]
    assert names == [
        "layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias",
        "heads.left.weight", "heads.left.bias", "heads.right.weight", "heads.right.bias",
    ]  # fmt: skip
    assert Tower()(vtl.ones(4, 3), "right").shape == (4, 2)


def test_a_list_is_indexed_sliced_and_changed():
    layers = nn.ModuleList([nn.ReLU()])
    layers.append(nn.Tanh()).extend([nn.Sigmoid()])
    assert len(layers) == 3
    assert isinstance(layers[-1], nn.Sigmoid)
    assert [type(m) for m in layers[1:]] == [nn.Tanh, nn.Sigmoid]
    layers[-2] = nn.Identity()
    assert isinstance(list(layers)[1], nn.Identity)
    with pytest.raises(TypeError, match="item 3 is int, not a Module"):
        layers.append(3)


def test_a_dictionary_is_read_and_changed_by_name():
    heads = nn.ModuleDict([("a", nn.ReLU())])
    heads["b"] = nn.Tanh()
    assert (list(heads), "a" in heads, "c" in heads, len(heads)) == (["a", "b"], True, False, 2)
    assert [type(m) for m in heads.values()] == [nn.ReLU, nn.Tanh]
    del heads["a"]
    assert [name for name, _ in heads.items()] == ["b"]
    for name, message in (("x.y", "a name without a dot"), ("keys", "'keys' is a method here")):
        with pytest.raises(TypeError, match=message):
            heads[name] = nn.ReLU()
    with pytest.raises(KeyError):
        heads["training"]


def test_tied_weights_are_one_parameter_and_receive_both_gradients():
    class Tied(nn.Module):
        def __init__(self) -> None:
            self.embedding, self.out = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
            self.out.weight = self.embedding.weight

        def forward(self, ids: vtl.Tensor) -> vtl.Tensor:
            return self.out(self.embedding(ids))

    model, ids = Tied().to(vtl.float64), vtl.tensor([0, 3, 3])
    assert len(list(model.parameters())) == 1
    assert list(model.state_dict()) == ["embedding.weight", "out.weight"]
    model(ids).sum().backward()
    table = model.embedding.weight
    e = table.numpy()
    expected = np.tile(e[[0, 3, 3]].sum(0), (5, 1))
    np.add.at(expected, [0, 3, 3], e.sum(0))
    np.testing.assert_allclose(table.grad.numpy(), expected)
    optimizer = nn.optim.SGD(model.parameters(), 0.5)
    optimizer.step()
    np.testing.assert_array_equal(model.out.weight.numpy(), table.numpy())
    twin = copy.deepcopy(model)
    assert twin.out.weight is twin.embedding.weight


def test_unflatten_refuses_what_does_not_fit():
    x = vtl.ones(2, 12)
    assert nn.Unflatten(1, (3, -1))(x).shape == (2, 3, 4)
    for dim, sizes in ((1, (5, -1)), (2, (2,)), (1, (-1, -1)), (1, (3, 3)), (1, ())):
        with pytest.raises(vtl.AttributeValueError, match=r"Unflatten: axis \d of an input \(2, 12\) cannot become"):
            nn.Unflatten(dim, sizes)(x)


def apart(layers, x):
    for layer in layers:
        x = layer(x)
    return x


@pytest.mark.parametrize("biases", [(True, True), (False, True), (True, False), (False, False)], ids=str)
@pytest.mark.parametrize("shape", [(5, 4), (2, 3, 4)])
def test_a_linear_layer_a_relu_and_a_linear_layer_are_one_op_and_the_same(draw, biases, shape):
    """Values and all gradients of a chain of three linear layers, against the layers one after the other, in float64."""
    first, second = biases
    layers = [nn.Linear(4, 6, first), nn.ReLU(), nn.Linear(6, 5, second), nn.ReLU(), nn.Linear(5, 3), nn.ReLU()]
    model = nn.Sequential(*layers).to(vtl.float64)
    x, g = draw(*shape, requires_grad=True), draw(*shape[:-1], 3)
    found = []
    for run in (model, lambda x: apart(layers, x)):
        y = run(x)
        y.backward(g)
        found.append([y.numpy(), x.grad.numpy(), *(p.grad.numpy() for p in model.parameters())])
        x.grad = None
        model.zero_grad()
    for together, one_by_one in zip(*found, strict=True):
        np.testing.assert_allclose(together, one_by_one, rtol=1e-13, atol=1e-15)


POOLS = {
    "halves": {"kernel_size": 2},
    "overlapping": {"kernel_size": 3, "stride": (1, 2)},
    "to the border": {"kernel_size": 2, "ceil_mode": True, "dilation": (2, 1)},
    "padded": {"kernel_size": 3, "padding": 1},
}


@pytest.mark.parametrize("pool", POOLS.values(), ids=POOLS)
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("padding", [1, "same"], ids=str)
def test_a_convolution_a_relu_and_pooling_are_one_op_and_the_same(draw, monkeypatch, pool, bias, padding):
    """Values and all gradients, against the layers one after the other, in float64; padded windows are left apart."""
    layers = [nn.Conv2d(2, 3, 3, padding=padding, bias=bias), nn.ReLU(), nn.MaxPool2d(**pool), nn.Conv2d(3, 2, 2)]
    model = nn.Sequential(*layers).to(vtl.float64)
    x, found, ops = draw(2, 2, 7, 8, requires_grad=True), [], []
    plain = vtl.apply
    monkeypatch.setattr(vtl, "apply", lambda op, *args, **options: ops.append(op) or plain(op, *args, **options))
    for run in (model, lambda x: apart(layers, x)):
        y = run(x)
        y.backward(y.detach())
        found.append([y.numpy(), x.grad.numpy(), *(p.grad.numpy() for p in model.parameters())])
        x.grad = None
        model.zero_grad()
    for together, one_by_one in zip(*found, strict=True):
        np.testing.assert_allclose(together, one_by_one, rtol=1e-12, atol=1e-14)
    assert ("conv2d_relu_max_pool2d" in ops) == ("padding" not in pool)


def test_a_window_of_padding_alone_stays_minus_infinity():
    """Its ReLU comes before it: behind it, it would be 0."""
    layers = [nn.Conv2d(1, 1, 1), nn.ReLU(), nn.MaxPool2d(2, padding=1, dilation=3)]
    x = vtl.ones(1, 1, 2, 2)
    np.testing.assert_array_equal(nn.Sequential(*layers)(x).numpy(), apart(layers, x).numpy())


def test_layers_with_a_forward_of_their_own_are_not_joined():
    """A subclass, or an object whose forward somebody replaced, computes what it says, wherever it stands in the chain."""

    class Doubled(nn.Linear):
        def forward(self, input):
            return 2 * super().forward(input)

    x, image = vtl.ones(2, 4), vtl.ones(1, 1, 4, 4)
    for place in range(3):
        layers = [nn.Conv2d(1, 1, 1), nn.ReLU(), nn.MaxPool2d(2)]
        plain = layers[place].forward
        layers[place].forward = lambda input, plain=plain: plain(input) + 1
        np.testing.assert_array_equal(nn.Sequential(*layers)(image).numpy(), apart(layers, image).numpy())
    for place in range(3):
        layers = [nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)]
        plain = layers[place].forward
        layers[place].forward = lambda input, plain=plain: plain(input) + 1
        np.testing.assert_array_equal(nn.Sequential(*layers)(x).numpy(), apart(layers, x).numpy())
    layers = [nn.Linear(4, 4), nn.ReLU(), Doubled(4, 4)]
    np.testing.assert_array_equal(nn.Sequential(*layers)(x).numpy(), apart(layers, x).numpy())


@pytest.mark.parametrize("modules", [[3], ["ab"], [(1,)], [("a", nn.ReLU(), 3)], range(2)], ids=repr)
def test_a_dict_of_modules_is_a_dict_or_pairs(modules):
    with pytest.raises(vtl.DTypeError, match="ModuleDict: "):
        nn.ModuleDict(modules)
