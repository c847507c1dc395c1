"""NumPy arrays, lists and numbers where tensors are wanted: one line that names the op, the argument and the remedy."""

from __future__ import annotations

import numpy as np
import pytest

import vtl_core as vtl

ONES, X = np.ones((4, 2)), vtl.ones(2)
CALLS = {
    "relu: argument 1 is a NumPy array (4, 2)": lambda: vtl.relu(ONES),
    "exp: argument 1 is a list": lambda: vtl.exp([1, 2]),
    "sum: argument 1 is a NumPy array (4, 2)": lambda: vtl.sum(ONES),
    "reshape: argument 1 is a NumPy array (4, 2)": lambda: vtl.reshape(ONES, (8,)),
    "tanh: argument 1 is a NumPy array (4, 2)": lambda: vtl.apply("tanh", ONES),
    "linear: argument 2 is a NumPy array (4, 2)": lambda: vtl.apply("linear", X, ONES),
    "softmax: argument 1 is a tuple": lambda: vtl.apply("softmax", (1, 2), axis=0),
    "concat: argument 2 is a NumPy array (4, 2)": lambda: vtl.concat([X, ONES]),
    "concat: argument 2 is a list": lambda: vtl.concat([X, [1.0]], axis=None),
    "stack: argument 1 is the number 3": lambda: vtl.stack([3, X]),
    "where: argument 1 is a NumPy array (4, 2)": lambda: vtl.where(ONES, X, X),
    "sgd: argument 1 is a NumPy array (4, 2)": lambda: vtl.update("sgd", [(ONES, X)], {"lr": 0.1, "weight_decay": 0.0}),
    "sgd: argument 2 is a list": lambda: vtl.update("sgd", [(X, X), (X, [1.0])], {"lr": 0.0, "weight_decay": 0.0}),
    "where: argument 3 is a NumPy array (4, 2)": lambda: vtl.where(X > 0, X, ONES),
    "matmul: argument 2 is a NumPy array (4, 2)": lambda: vtl.matmul(X, ONES),
}


@pytest.mark.parametrize("said", CALLS)
def test_what_is_no_tensor_is_named_with_its_place_and_the_remedy(said):
    with pytest.raises(vtl.DTypeError) as caught:
        CALLS[said]()

    assert str(caught.value) == f"{said}, not a tensor; wrap it: vtl.asarray(x)"


def test_another_error_of_an_op_is_as_it_was():
    with pytest.raises(vtl.ShapeError, match="add: shapes"):
        vtl.apply("add", vtl.ones(2), vtl.ones(3))


@pytest.mark.parametrize("arguments", [(), ([1, 2],), (ONES,)], ids=["nothing", "a list", "an array"])
def test_a_tensor_made_by_its_class_says_what_makes_one(arguments):
    with pytest.raises(TypeError, match=r"^Tensor: make one with vtl\.tensor\(\.\.\.\)$"):
        vtl.Tensor(*arguments)


def test_checked_functions_keep_their_names_and_texts():
    assert vtl.exp.__name__ == "exp"
    assert vtl.exp.__doc__
    assert vtl.exp.__module__ == "vtl_core.namespace"
