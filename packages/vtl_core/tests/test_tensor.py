"""Tensor as Python sees it, conversions, printing, and the functions of the package."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import vtl_core as vtl


def test_a_tensor_is_a_sequence_along_its_first_axis():
    x = vtl.arange(6).reshape(3, 2)

    assert len(x) == 3
    assert [row.tolist() for row in x] == [[0, 1], [2, 3], [4, 5]]
    with pytest.raises(TypeError):
        len(vtl.ones(()))
    with pytest.raises(TypeError):
        iter(vtl.ones(()))


def test_one_element_is_a_number():
    assert float(vtl.tensor([2.5])) == 2.5
    assert int(vtl.tensor(3.7)) == 3
    assert bool(vtl.tensor([0])) is False
    assert [10, 20, 30][vtl.tensor(2)] == 30
    assert f"{vtl.tensor(1.23456):.2f}" == "1.23"
    assert vtl.tensor(True).item() is True
    assert vtl.tensor([[1, 2], [3, 4]]).tolist() == [[1, 2], [3, 4]]
    with pytest.raises(TypeError):
        [1][vtl.tensor(0.0)]


def test_to_changes_dtype_and_device_and_is_the_tensor_itself_where_nothing_changes():
    x = vtl.ones(3, device="cpu")

    assert x.to("cpu") is x
    assert x.to(vtl.float32) is x
    assert x.to_device("cpu:0") is x
    assert x.cpu() is x
    assert x.to(vtl.float64).dtype is vtl.float64
    assert x.to(vtl.tensor([1])).dtype is vtl.int64
    assert x.to("cpu", vtl.int32).dtype is vtl.int32
    assert x.device == "cpu:0"
    assert vtl.tensor([2.9, -2.9]).to(vtl.int32).tolist() == [2, -2]
    with pytest.raises(vtl.UnavailableError):
        x.to("cuda:99")
    with pytest.raises(vtl.DeviceError, match="no such backend"):
        x.to("abacus")


def test_casts_have_pytorchs_names():
    x = vtl.tensor([0.0, 2.7], requires_grad=True)

    got = {
        name: getattr(x, name)().dtype.name for name in ("double", "half", "bfloat16", "float", "int", "long", "bool")
    }

    assert got == {
        "double": "float64",
        "half": "float16",
        "bfloat16": "bfloat16",
        "float": "float32",
        "int": "int32",
        "long": "int64",
        "bool": "bool",
    }
    assert x.float() is x
    assert x.bool().tolist() == [False, True]
    assert (x.double().requires_grad, x.long().requires_grad) == (True, False)
    assert (x > 1).float().mean().item() == 0.5


def test_properties_say_what_a_tensor_is():
    x = vtl.zeros(2, 3, dtype=vtl.float16).T

    assert (x.shape, x.strides, x.size, x.numel(), x.ndim, x.dim(), x.nbytes, x.itemsize) == (
        (3, 2),
        (1, 3),
        6,
        6,
        2,
        2,
        12,
        2,
    )
    assert not x.is_contiguous()


def test_deep_copies_and_pickles_are_leaves_of_their_own():
    x = vtl.tensor([[1.0, 2.0]], dtype=vtl.bfloat16, requires_grad=True)
    x.sum().backward()

    for twin in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert twin.dtype is x.dtype
        assert twin.requires_grad
        twin.detach().zero_()
        assert x.tolist() == [[1, 2]]
    assert copy.deepcopy([x, x])[0].grad.tolist() == [[1, 1]]
    for refuse in (copy.deepcopy, pickle.dumps):
        with pytest.raises(vtl.GraphError, match="detach"):
            refuse(x * 2)


PRINTED = {
    "tensor([1., 2.])": lambda: vtl.tensor([1.0, 2.0]),
    "tensor([[1, 2],\n        [3, 4]])": lambda: vtl.tensor([[1, 2], [3, 4]]),
    "tensor(3.5, requires_grad=True)": lambda: vtl.tensor(3.5, requires_grad=True),
    "tensor([ True, False])": lambda: vtl.tensor([True, False]),
    "tensor([0.1235, 2.    ], dtype=float64)": lambda: vtl.tensor([0.123456, 2.0], dtype=vtl.float64),
    "tensor([], shape=(0, 2))": lambda: vtl.zeros(0, 2),
    "tensor([1.5], dtype=bfloat16)": lambda: vtl.tensor([1.5], dtype=vtl.bfloat16),
    "tensor([2.], gate=<multiply>)": lambda: vtl.tensor([1.0], requires_grad=True) * 2,
    "tensor([0., 0., 0., ..., 0., 0., 0.])": lambda: vtl.zeros(1001),
}


@pytest.mark.parametrize("text", PRINTED)
def test_a_tensor_prints_its_numbers_and_what_is_not_the_default(text):
    assert repr(PRINTED[text]()) == text


def test_a_thousand_elements_print_whole():
    assert "..." not in repr(vtl.zeros(1000))


def test_functions_are_the_methods():
    x, y = vtl.tensor([0.2, 0.7]), vtl.tensor([0.5, 0.1])
    assert vtl.add(x, 1).tolist() == (x + 1).tolist()
    assert vtl.subtract(1, x).tolist() == (1 - x).tolist()
    assert vtl.where(x > y, x, y).tolist() == vtl.maximum(x, y).tolist()
    assert vtl.where(x > y, True, False).dtype.name == "bool"
    assert vtl.pow(x, 2).tolist() == (x * x).tolist()
    assert vtl.pow(2.0, x).tolist() == (2.0**x).tolist()
    assert vtl.clip(x, 0.3, 0.5).tolist() == x.clamp(0.3, 0.5).tolist()
    assert vtl.var(x).item() == pytest.approx(x.var(correction=0).item())
    assert vtl.max(vtl.ones(2, 3), axis=1, keepdims=True).shape == (2, 1)
    with pytest.raises(TypeError, match="neither 1 nor 2 is a tensor"):
        vtl.add(1, 2)
    with pytest.raises(TypeError, match="'a' is neither"):
        vtl.add(x, "a")


@pytest.mark.parametrize(
    "name",
    [
        "exp",
        "sqrt",
        "tanh",
        "abs",
        "floor",
        "isnan",
        "sign",
        "square",
        "log1p",
        "erf",
        "relu",
        "sigmoid",
        "negative",
        "round",
    ],
)
def test_a_function_of_one_tensor_is_its_method(name):
    x = vtl.tensor([0.3, 1.7])
    method = {"negative": "neg"}.get(name, name)

    assert getattr(vtl, name)(x).tolist() == getattr(x, method)().tolist()


def test_everything_exported_exists_once():
    assert len(set(vtl.__all__)) == len(vtl.__all__)
    assert [name for name in vtl.__all__ if not hasattr(vtl, name)] == []


def test_update_runs_a_fused_row_over_tuples_of_tensors():
    p, g = [vtl.ones(2, requires_grad=True), vtl.ones(3)], [vtl.full((2,), 2.0), vtl.ones(3)]

    vtl.update("sgd", list(zip(g, p, strict=True)), {"lr": 0.5, "weight_decay": 0.0})

    assert [t.tolist() for t in p] == [[0, 0], [0.5, 0.5, 0.5]]


def test_update_takes_the_tensors_of_one_parameter_alone_and_scalars_in_their_order():
    """Two tensors of two rows passed for two parameters before: rows of the gradient were stepped with one another."""
    p, g = vtl.ones(2, 3), vtl.full((2, 3), 2.0)

    vtl.update("sgd", (g, p), (0.5, 0.0))

    assert p.tolist() == [[0, 0, 0]] * 2
    assert g.tolist() == [[2, 2, 2]] * 2


def test_update_says_what_it_cannot_take():
    p, g = vtl.ones(2, 3), vtl.full((2, 3), 2.0)
    with pytest.raises(vtl.DTypeError, match="sgd: tensors is one tensor; give a tuple of them"):
        vtl.update("sgd", g, (0.5, 0.0))
    with pytest.raises(vtl.DTypeError, match=r"sgd: argument 2 is a list, not a tensor"):
        vtl.update("sgd", (g, [1.0]), (0.5, 0.0))
    with pytest.raises(vtl.AttributeValueError, match="sgd: takes the scalars lr, weight_decay; given 1"):
        vtl.update("sgd", (g, p), (0.5,))
    with pytest.raises(vtl.UnsupportedError, match="no row is called 'sgdd'"):
        vtl.update("sgdd", (g, p), (0.5, 0.0))
    assert p.tolist() == [[1, 1, 1]] * 2


def test_apply_names_the_op_it_does_not_know():
    with pytest.raises(vtl.UnsupportedError, match=r"softmx.*did you mean softmax"):
        vtl.apply("softmx", vtl.ones(2))
    with pytest.raises(vtl.UnsupportedError, match="neither a name nor an entry"):
        vtl.apply(3, vtl.ones(2))


def test_apply_names_the_options_and_arguments_that_do_not_fit():
    x = vtl.ones(2, requires_grad=True)
    for call in (
        lambda: vtl.apply("sum", x, axis=0),
        lambda: vtl.apply("exp", x, base=2),
        lambda: vtl.apply("softmax", x, dim=0),
    ):
        with pytest.raises(vtl.AttributeValueError, match=r"axis|base|dim"):
            call()
    for call in (lambda: vtl.apply("sum", x, x), lambda: vtl.apply("add", x), lambda: vtl.apply("linear", x)):
        with pytest.raises(vtl.ShapeError, match="takes"):
            call()


def test_whatever_is_true_asks_for_gradients():
    """Not only True: what was kept as it was given was not found again."""
    x = vtl.tensor([3.0]).requires_grad_(np.True_)
    y = vtl.tensor([3.0]).requires_grad_("yes")
    assert x.requires_grad is y.requires_grad is True
    (x * y).clamp(0, 100).sum().backward()
    assert (x.grad.item(), y.grad.item()) == (3, 3)


def test_pythons_own_complaints_about_a_method_name_the_tensor():
    with pytest.raises(TypeError, match=r"^Tensor\.mean\(\) got an unexpected keyword argument 'axis'"):
        vtl.ones(2).mean(axis=0)
    with pytest.raises(TypeError, match=r"^Tensor\.unsqueeze\(\) missing 1 required positional argument: 'dim'"):
        vtl.ones(2).unsqueeze()
