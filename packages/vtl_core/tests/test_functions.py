"""Functions of the package: the array API's names and arguments, NumPy's numbers."""

from __future__ import annotations

import numpy as np
import pytest

import vtl_core as vtl
from vtl_core import namespace, operations

RNG = np.random.default_rng(5)
FLOATS, OTHERS = RNG.uniform(0.1, 0.9, (3, 4)), RNG.uniform(0.1, 0.9, 4)
INTEGERS, SHIFTS = RNG.integers(1, 60, (3, 4)), RNG.integers(0, 4, 4)
BOOLS = RNG.random((3, 4)) < 0.5
ONE = {
    "abs": np.abs, "acos": np.arccos, "acosh": lambda x: np.arccosh(x + 1), "asin": np.arcsin, "asinh": np.arcsinh, "atan": np.arctan,
    "atanh": np.arctanh, "bitwise_invert": np.invert, "ceil": np.ceil, "cos": np.cos, "cosh": np.cosh, "exp": np.exp, "exp2": np.exp2,
    "expm1": np.expm1, "floor": np.floor, "isfinite": np.isfinite, "isinf": np.isinf, "isnan": np.isnan, "log": np.log, "log10": np.log10,
    "log1p": np.log1p, "log2": np.log2, "logical_not": np.logical_not, "negative": np.negative, "positive": np.positive,
    "reciprocal": np.reciprocal, "relu": lambda x: np.maximum(x, 0), "round": np.round, "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "sign": np.sign, "sin": np.sin, "sinh": np.sinh, "sqrt": np.sqrt, "square": np.square,
    "tan": np.tan, "tanh": np.tanh, "trunc": np.trunc, "erf": None,
}  # fmt: skip
TWO = (
    "add subtract multiply divide floor_divide remainder hypot copysign maximum minimum equal not_equal less less_equal greater greater_equal "
    "logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift atan2"
).split()
NUMPYS = {"bitwise_left_shift": np.left_shift, "bitwise_right_shift": np.right_shift, "atan2": np.arctan2}
WHOLE = {
    "concat": (lambda x: vtl.concat((x, x), axis=-1), lambda a: np.concatenate((a, a), -1)),
    "cat": (lambda x: vtl.cat((x, x)), lambda a: np.concatenate((a, a))),
    "stack": (lambda x: vtl.stack((x, x)), lambda a: np.stack((a, a))),
    "reshape": (lambda x: vtl.reshape(x, (2, 6)), lambda a: a.reshape(2, 6)),
    "permute_dims": (lambda x: vtl.permute_dims(x, (1, 0)), np.transpose),
    "expand_dims": (lambda x: vtl.expand_dims(x, axis=1), lambda a: a[:, None]),
    "squeeze": (lambda x: vtl.squeeze(x[:1], axis=0), lambda a: a[0]),
    "broadcast_to": (lambda x: vtl.broadcast_to(x, (2, 3, 4)), lambda a: np.broadcast_to(a, (2, 3, 4))),
    "take": (lambda x: vtl.take(x, vtl.tensor([3, 0]), axis=1), lambda a: np.take(a, [3, 0], 1)),
    "astype": (lambda x: vtl.astype(x, vtl.float32), lambda a: a.astype(np.float32)),
    "matmul": (lambda x: vtl.matmul(x, x.mT), lambda a: a @ a.T),
    "sum": (lambda x: vtl.sum(x, axis=0, keepdims=True), lambda a: a.sum(0, keepdims=True)),
    "sum in another dtype": (lambda x: vtl.sum(x, dtype=vtl.float32), lambda a: a.astype(np.float32).sum()),
    "prod": (lambda x: vtl.prod(x, axis=(0, 1)), np.prod),
    "mean": (lambda x: vtl.mean(x, axis=1), lambda a: a.mean(1)),
    "var": (lambda x: vtl.var(x, axis=1, correction=1), lambda a: a.var(1, ddof=1)),
    "std": (lambda x: vtl.std(x, axis=0), lambda a: a.std(0)),
    "max": (lambda x: vtl.max(x, axis=1), lambda a: a.max(1)),
    "min": (vtl.min, np.min),
    "argmax": (lambda x: vtl.argmax(x, axis=1), lambda a: a.argmax(1)),
    "argmin": (lambda x: vtl.argmin(x, axis=0, keepdims=True), lambda a: a.argmin(0, keepdims=True)),
    "all": (lambda x: vtl.all(x > 0.2, axis=1), lambda a: (a > 0.2).all(1)),
    "any": (lambda x: vtl.any(x > 0.8), lambda a: (a > 0.8).any()),
    "cumulative_sum": (lambda x: vtl.cumulative_sum(x, axis=1), lambda a: a.cumsum(1)),
    "logsumexp": (lambda x: vtl.logsumexp(x, axis=1), lambda a: np.log(np.exp(a).sum(1))),
    "softmax": (lambda x: vtl.softmax(x, axis=0), lambda a: np.exp(a) / np.exp(a).sum(0)),
    "log_softmax": (lambda x: vtl.log_softmax(x, axis=0), lambda a: np.log(np.exp(a) / np.exp(a).sum(0))),
    "sort": (lambda x: vtl.sort(x, axis=0), lambda a: np.sort(a, 0)),
    "argsort": (lambda x: vtl.argsort(x, descending=True), lambda a: np.argsort(-a, 1)),
    "where": (lambda x: vtl.where(x > 0.5, x, 0.0), lambda a: np.where(a > 0.5, a, 0)),
    "clip": (lambda x: vtl.clip(x, max=0.5), lambda a: np.clip(a, None, 0.5)),
    "pow": (lambda x: vtl.pow(x, 3), lambda a: a**3),
}


def arguments(name: str) -> tuple[np.ndarray, np.ndarray]:
    if name.startswith("bitwise"):
        return INTEGERS, SHIFTS
    return (BOOLS, BOOLS[1]) if name.startswith("logical") else (FLOATS, OTHERS)


@pytest.mark.parametrize("name", [name for name, numpys in ONE.items() if numpys])
def test_a_function_of_one_tensor_is_numpys(name):
    a = arguments(name)[0]
    shifted = a + 1 if name == "acosh" else a

    np.testing.assert_allclose(getattr(vtl, name)(vtl.tensor(shifted)).numpy(), ONE[name](a), rtol=1e-13)


@pytest.mark.parametrize("name", TWO)
def test_a_function_of_two_tensors_is_numpys(name):
    a, b = arguments(name)
    numpys = NUMPYS.get(name) or getattr(np, name)

    for got, want in (
        (getattr(vtl, name)(vtl.tensor(a), vtl.tensor(b)), numpys(a, b)),
        (getattr(vtl, name)(vtl.tensor(a), b[0].item()), numpys(a, b[0])),
        (getattr(vtl, name)(b, vtl.tensor(a)), numpys(b, a)),
    ):
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-14)


@pytest.mark.parametrize("name", WHOLE)
def test_a_function_of_whole_tensors_is_numpys(name):
    ours, numpys = WHOLE[name]
    got, want = ours(vtl.tensor(FLOATS)), numpys(FLOATS)

    assert got.shape == np.shape(want)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-6 if got.dtype is vtl.float32 else 1e-12)


def test_every_function_has_a_case():
    public = [
        name
        for module in (namespace, operations)
        for name, value in vars(module).items()
        if callable(value) and getattr(value, "__module__", "") == module.__name__ and not name.startswith("_")
    ]

    assert set(public) <= set(ONE) | set(TWO) | set(WHOLE) | {"apply", "guarded", "update", "update_all"}
    assert set(public) <= set(vtl.__all__)


def test_functions_refuse_what_does_not_fit():
    x = vtl.ones(2, 3)
    with pytest.raises(vtl.ShapeError, match="has size 3, not 1"):
        vtl.squeeze(x, axis=1)
    with pytest.raises(vtl.ShapeError, match="say which axis"):
        vtl.cumulative_sum(x)
    assert vtl.cumulative_sum(x[0]).tolist() == [1, 2, 3]
    assert vtl.astype(x, vtl.float32, copy=False) is x
    assert vtl.astype(x, vtl.float32) is not x
    assert vtl.erf(vtl.tensor([0.0])).tolist() == [0]


def test_axes_and_indices_that_mean_nothing_are_said_by_name():
    x = vtl.asarray(FLOATS)
    with pytest.raises(vtl.ShapeError, match="squeeze: axis 5"):
        vtl.squeeze(x, axis=5)
    for indices in ([[0]], 0):
        with pytest.raises(vtl.ShapeError, match="take: indices are"):
            vtl.take(x, vtl.tensor(indices), axis=1)
    with pytest.raises(vtl.DTypeError, match="matmul: argument 2 is the number 2, not a tensor"):
        vtl.matmul(x, 2)
    with pytest.raises(TypeError):
        x.round(decimals=1.5)


def test_a_list_too_deep_for_an_array_is_said_so_however_deep():
    """Also where masked arrays are known, which lists are then searched for."""
    assert np.ma.MaskedArray
    nested = 1.0
    for _ in range(5000):
        nested = [nested]
    with pytest.raises(vtl.DTypeError, match="more than 64 axes"):
        vtl.tensor(nested)
