"""Methods of one element, a row each, operators, reductions and products: NumPy's numbers, PyTorch's names."""

from __future__ import annotations

import numpy as np
import pytest

import vtl_core as vtl
from vsl_compute.rows.elementwise import ROWS

RNG = np.random.default_rng(3)
# rows whose method has PyTorch's name for it
NAMES = {
    "subtract": "sub", "multiply": "mul", "divide": "div", "power": "pow", "absolute": "abs", "negative": "neg", "bitwise_invert": "bitwise_not",
    "equal": "eq", "not_equal": "ne", "less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge", "where_bool": "where",
    "gelu_tanh": "gelu", "fill": "fill_", "fill_like": "fill_", "scale": "mul",
}  # fmt: skip
# rows that only composites are made of: apply() runs them, no method does
PARTS = {
    "multiply_add",
    "normalize",
    "normalize_add_relu",
    "normalize_back",
    "normalize_mask",
    "normalize_relu",
    "standardize",
    "project",
    "rstd",
    "scaled_product",
    "add_where_equal",
    "dropout_apply",
    "celu",
    "hardtanh",
    "hardshrink",
    "softshrink",
    "threshold",
    "tanhshrink",
    "prelu",
    "glu",
} | {
    row.name
    for row in ROWS
    if row.name.endswith("_loss")
    or row.name.startswith(("binary_cross_entropy", "kl_div", "attention_", "rnn_", "gru_"))
}


@pytest.mark.parametrize("name", [r.name for r in ROWS if r.name not in PARTS])
def test_every_row_has_a_method(name):
    assert callable(getattr(vtl.Tensor, NAMES.get(name, name)))


@pytest.mark.parametrize(
    "row", [r for r in ROWS if r.name not in PARTS | {"fill", "fill_like", "scale"}], ids=lambda r: r.name
)
def test_a_method_gives_what_its_row_gives(row):
    options = {"clamp": {"low": -1.0, "high": 1.0}, "leaky_relu": {"slope": 0.1}, "elu": {"alpha": 0.5}}.get(
        row.name, {}
    )
    draws = {"b": lambda: RNG.random(5) < 0.5, "i": lambda: RNG.integers(0, 7, 5)}
    xs = [vtl.tensor(draws.get(letter, lambda: RNG.uniform(0.1, 0.9, 5))()) for letter in row.signature.inputs]
    method = getattr(vtl.Tensor, NAMES.get(row.name, row.name))

    if row.signature.inputs[0] == "b" and len(xs) == 3:
        got = method(xs[1], xs[0], xs[2])
    elif row.name == "gelu_tanh":
        got = method(*xs, approximate="tanh")
    else:
        got = method(*xs, *options.values())

    np.testing.assert_array_equal(got.numpy(), vtl.apply(row, *xs, **options).numpy())


OPERATORS = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": lambda a, b: a / b, "//": lambda a, b: a // b,
    "%": lambda a, b: a % b, "**": lambda a, b: a**b, "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
}  # fmt: skip


@pytest.mark.parametrize("sign", OPERATORS)
def test_an_operator_is_numpys_with_tensors_numbers_and_arrays_on_either_side(sign):
    f = OPERATORS[sign]
    a, b = RNG.uniform(0.5, 3, (2, 3)), RNG.uniform(0.5, 3, 3)
    x, y = vtl.tensor(a), vtl.tensor(b)
    pairs = [
        (f(x, y), f(a, b)),
        (f(x, 2.5), f(a, 2.5)),
        (f(2.5, x), f(2.5, a)),
        (f(x, b), f(a, b)),
        (f(a, y), f(a, b)),
        (f(x, np.float64(2)), f(a, 2.0)),
    ]

    for got, want in pairs:
        assert type(got) is vtl.Tensor
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-15)


@pytest.mark.parametrize("name", ["__and__", "__or__", "__xor__"])
def test_bit_operators_are_logical_on_bools_and_bitwise_on_integers(name):
    for a, b in ((RNG.random(9) < 0.5, RNG.random(9) < 0.5), (RNG.integers(0, 99, 9), RNG.integers(0, 99, 9))):
        got = getattr(vtl.tensor(a), name)(vtl.tensor(b))
        np.testing.assert_array_equal(got.numpy(), getattr(a, name)(b))
        np.testing.assert_array_equal((~vtl.tensor(a)).numpy(), ~a)


def test_shifts_and_signs():
    i = vtl.tensor([1, 2, 3])
    assert (i << 2).tolist() == [4, 8, 12]
    assert (i >> 1).tolist() == [0, 1, 1]
    assert [(-i).tolist(), (+i).tolist(), abs(-i).tolist()] == [[-1, -2, -3], [1, 2, 3], [1, 2, 3]]


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint8"])
def test_an_integer_to_an_integer_power_is_an_integer(dtype):
    x = vtl.tensor([0, 1, 2, 3], dtype=dtype)

    for n in range(5):
        got = x**n
        assert got.dtype is x.dtype
        assert got.tolist() == [v**n for v in range(4)]
    assert (x**0.5).dtype is vtl.float32


@pytest.mark.parametrize("other", ["text", None, [1.0], object()], ids=["text", "None", "list", "object"])
def test_an_operator_with_what_is_no_array_is_a_type_error(other):
    with pytest.raises(TypeError):
        vtl.ones(1) + other


def test_equality_with_what_is_no_array_is_pythons():
    assert (vtl.ones(1) == "text") is False
    assert (vtl.ones(1) != None) is True


def test_options_outside_their_range_are_value_errors():
    x, i = vtl.tensor([-2.25, 0.0, 2.25]), vtl.tensor([-5, 0, 5])
    with pytest.raises(vtl.AttributeValueError, match="give min, max or both"):
        x.clamp()
    with pytest.raises(vtl.AttributeValueError, match="'none' or 'tanh'"):
        x.gelu("sigmoid")
    assert i.clamp(min=-1).tolist() == [-1, 0, 5]
    assert i.clamp(max=1).tolist() == [-5, 0, 1]
    assert i.clamp(-1, 1).dtype is vtl.int64
    assert x.clamp(max=vtl.tensor(1.0)).tolist() == [-2.25, 0, 1]
    assert x.round(decimals=1).tolist() == pytest.approx([-2.2, 0, 2.2])
    assert [i.round().tolist(), i.floor().tolist()] == [[-5, 0, 5]] * 2


def test_a_tensor_is_a_key_of_its_own():
    a, b = vtl.ones(2), vtl.ones(2)

    assert {a: 1, b: 2}[a] == 1


REDUCTIONS = {
    "sum": np.sum, "mean": np.mean, "prod": np.prod, "amax": np.max, "amin": np.min, "all": np.all, "any": np.any,
    "var": lambda x, **k: np.var(x, ddof=1, **k), "std": lambda x, **k: np.std(x, ddof=1, **k),
    "logsumexp": lambda x, **k: np.log(np.sum(np.exp(x), **k)),
}  # fmt: skip


@pytest.mark.parametrize("dim", [None, 0, -1, (0, 2)], ids=str)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_a_reduction_is_numpys(name, dim):
    a = RNG.standard_normal((2, 3, 4))
    for keepdim in (False, True):
        got = getattr(vtl.tensor(a), name)(dim, keepdim=keepdim)
        np.testing.assert_allclose(got.numpy(), REDUCTIONS[name](a, axis=dim, keepdims=keepdim), rtol=1e-12)


def test_extremes_come_with_their_first_index():
    x = vtl.tensor([[1.0, 3.0, 3.0], [2.0, 0.0, 2.0]])

    values, indices = x.max(1)
    assert (values.tolist(), indices.tolist()) == ([3, 2], [1, 0])
    least = x.min(dim=1, keepdim=True)
    assert (least.values.tolist(), least.indices.tolist()) == ([[1], [0]], [[0], [1]])
    assert (x.argmax().item(), x.argmin().item(), x.max().item(), x.min().item()) == (1, 4, 3, 0)
    assert (x.argmax(0).tolist(), x.argmax(1, keepdim=True).shape) == ([1, 0, 0], (2, 1))


def test_sorting_and_running_sums():
    a = RNG.permutation(12).reshape(3, 4).astype(float)
    x = vtl.tensor(a)
    np.testing.assert_array_equal(x.sort(0).values.numpy(), np.sort(a, 0))
    np.testing.assert_array_equal(x.argsort(-1, descending=True).numpy(), np.argsort(-a, -1))
    np.testing.assert_array_equal(x.cumsum(0).numpy(), np.cumsum(a, 0))


def test_softmax_rows_add_up_to_one():
    x = vtl.tensor(RNG.standard_normal((3, 4)))
    np.testing.assert_allclose(x.softmax(0).sum(0).numpy(), 1, rtol=1e-14)
    np.testing.assert_allclose(x.log_softmax(-1).exp().numpy(), x.softmax(-1).numpy(), rtol=1e-13)


@pytest.mark.parametrize(
    "shapes",
    [((2, 3), (3, 4)), ((3,), (3, 4)), ((2, 3), (3,)), ((3,), (3,)), ((5, 1, 2, 3), (4, 3, 2)), ((3,), (5, 3, 2))],
    ids=str,
)
def test_matmul_is_numpys(shapes):
    a, b = (RNG.standard_normal(s) for s in shapes)
    want = a @ b

    for got in (
        vtl.tensor(a) @ vtl.tensor(b),
        vtl.tensor(a) @ b,
        a @ vtl.tensor(b),
        vtl.tensor(a).matmul(vtl.tensor(b)),
        vtl.matmul(vtl.tensor(a), vtl.tensor(b)),
    ):
        assert got.shape == want.shape
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-12)


def test_matmul_of_unlike_shapes_names_both():
    with pytest.raises(vtl.ShapeError, match=r"a is \(2, 3\) and b is \(4, 2\)"):
        vtl.ones(2, 3) @ vtl.ones(4, 2)
    with pytest.raises(vtl.ShapeError, match="a number multiplies with"):
        vtl.ones(()) @ vtl.ones(2)


def test_bools_are_compared_with_bools_and_numbers():
    """By operator, method and function; True is 1."""
    x = vtl.tensor([True, False])
    for equal in (
        x == vtl.tensor([True, True]),
        x == True,
        x.eq(True),
        vtl.equal(True, x),
        x == 1,
        x == np.True_,
        x != 0.0,
    ):
        assert equal.tolist() == [True, False]
        assert equal.dtype is vtl.bool
    assert (x != vtl.tensor([[True], [False]])).tolist() == [[False, True], [True, False]]
    assert (vtl.tensor([1, 2]) == vtl.tensor([True, True])).tolist() == [True, False]
