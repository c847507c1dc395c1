"""Tensor as its users see it: methods with PyTorch's names, operators, shapes, conversions."""

from __future__ import annotations

import copy
import pickle

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
PARTS = {"multiply_add", "normalize", "standardize", "rstd", "add_where_equal", "dropout_apply"}


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


SHAPED = {
    "reshape": (lambda x: x.reshape(4, -1), lambda a: a.reshape(4, -1)),
    "view": (lambda x: x.view((6, 4)), lambda a: a.reshape(6, 4)),
    "flatten": (lambda x: x.flatten(), np.ravel),
    "flatten from 1": (lambda x: x.flatten(1), lambda a: a.reshape(2, 12)),
    "permute": (lambda x: x.permute(2, 0, 1), lambda a: a.transpose(2, 0, 1)),
    "permute, a tuple": (lambda x: x.permute((1, 0, -1)), lambda a: a.transpose(1, 0, 2)),
    "transpose": (lambda x: x.transpose(0, -1), lambda a: a.swapaxes(0, -1)),
    "mT": (lambda x: x.mT, lambda a: a.swapaxes(-1, -2)),
    "T": (lambda x: x[0].T, lambda a: a[0].T),
    "squeeze": (lambda x: x[:, :1].squeeze(), lambda a: a[:, 0]),
    "squeeze one": (lambda x: x[:1, :1].squeeze(1), lambda a: a[:1, 0]),
    "squeeze what is wider": (lambda x: x.squeeze(0), lambda a: a),
    "unsqueeze": (lambda x: x.unsqueeze(-1), lambda a: a[..., None]),
    "expand": (lambda x: x[:, :1].expand(-1, 3, 4), lambda a: np.broadcast_to(a[:, :1], (2, 3, 4))),
    "unfold": (lambda x: x.unfold(2, 2, 1), lambda a: np.lib.stride_tricks.sliding_window_view(a, 2, 2)),
    "contiguous": (lambda x: x.mT.contiguous(), lambda a: a.swapaxes(-1, -2)),
    "index": (lambda x: x[0, ..., 1:3], lambda a: a[0, ..., 1:3]),
    "index back": (lambda x: x[..., ::-2, -1], lambda a: a[..., ::-2, -1]),
    "index new axis": (lambda x: x[:, None, 1], lambda a: a[:, None, 1]),
    "index by numbers of other kinds": (lambda x: x[np.int64(1), vtl.tensor(2)], lambda a: a[1, 2]),
    "index by a list": (lambda x: x[[1, 0, 1]], lambda a: a[[1, 0, 1]]),
    "index by an array": (lambda x: x[np.array([[0, -1]])], lambda a: a[np.array([[0, -1]])]),
    "index by a tensor": (lambda x: x[vtl.tensor([1, -2])], lambda a: a[[1, -2]]),
    "index by nothing": (lambda x: x[[]], lambda a: a[[]]),
    "concat": (lambda x: vtl.concat([x, x * 2], axis=1), lambda a: np.concatenate([a, a * 2], 1)),
    "concat flat": (lambda x: vtl.concat([x, x], axis=None), lambda a: np.concatenate([a, a], None)),
    "cat": (lambda x: vtl.cat([x, x], 2), lambda a: np.concatenate([a, a], 2)),
    "stack": (lambda x: vtl.stack([x, x], axis=-1), lambda a: np.stack([a, a], -1)),
    "take": (lambda x: vtl.take(x, vtl.tensor([2, 0]), axis=1), lambda a: np.take(a, [2, 0], 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPED)
def test_a_shape_operation_is_numpys(name):
    ours, numpys = SHAPED[name]
    a = RNG.standard_normal((2, 3, 4))

    got = ours(vtl.tensor(a))

    assert got.shape == numpys(a).shape
    np.testing.assert_array_equal(got.numpy(), numpys(a))


def test_splits_are_pieces_in_order():
    x = vtl.arange(10)
    assert [p.tolist() for p in x.split(4)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert [p.shape for p in vtl.zeros(2, 5).split([2, 3], 1)] == [(2, 2), (2, 3)]
    with pytest.raises(vtl.ShapeError, match="add up to 10"):
        x.split([1, 2])


BAD_SHAPES = {
    "reshape": (lambda x: x.reshape(5), r"\(2, 3\) has 6 elements"),
    "view": (lambda x: x.T.view(6), "use reshape, which copies"),
    "permute": (lambda x: x.permute(0, 0), "not a permutation"),
    "transpose": (lambda x: x.transpose(0, 2), "axis 2 of a tensor of 2 axes"),
    "expand": (lambda x: x.expand(4, 3), "does not broadcast"),
    "expand -1": (lambda x: x.expand(-1, 2, 3), "does not have"),
    "T": (lambda x: x[0].T, "T is for matrices"),
    "stack": (lambda x: vtl.stack([x, x.T]), "differ"),
    "concat": (lambda x: vtl.concat([x, x.T]), "differ outside axis 0"),
    "concat nothing": (lambda x: vtl.concat([]), "nothing to join"),
    "sum": (lambda x: x.sum(2), "axes"),
    "item": (lambda x: x.item(), "has 6 elements"),
    "bool": (bool, "use any"),
    "add": (lambda x: x + vtl.ones(4), "do not broadcast"),
}


@pytest.mark.parametrize("name", BAD_SHAPES)
def test_a_shape_that_does_not_fit_is_a_value_error_that_says_what_would(name):
    function, message = BAD_SHAPES[name]

    with pytest.raises(ValueError, match=message):
        function(vtl.ones(2, 3))


BAD_INDICES = {
    "too many": (lambda x: x[0, 0, 0], IndexError, "3 indices for a tensor of 2 axes"),
    "outside": (lambda x: x[2], IndexError, "2 is outside axis 0 of size 2"),
    "outside, negative": (lambda x: x[0, -4], IndexError, "-4 is outside axis 1 of size 3"),
    "list outside": (lambda x: x[[0, 2]], IndexError, "2 is outside axis 0"),
    "text": (lambda x: x["a"], IndexError, "no int, slice, None"),
    "float": (lambda x: x[1.0], IndexError, "no int, slice, None"),
    "floats": (lambda x: x[[1.0]], IndexError, "must hold integers"),
    "two dots": (lambda x: x[..., ...], IndexError, "may stand once"),
    "mask": (lambda x: x[x > 0], vtl.UnsupportedError, "truth values"),
    "mask, a list": (lambda x: x[[True, False]], vtl.UnsupportedError, "truth values"),
    "two arrays": (lambda x: x[[0], [1]], vtl.UnsupportedError, "completes tensors"),
}


@pytest.mark.parametrize("name", BAD_INDICES)
def test_an_index_that_means_nothing_here_says_why(name):
    function, error, message = BAD_INDICES[name]

    with pytest.raises(error, match=message):
        function(vtl.ones(2, 3))


def test_index_assignment_writes_numbers_tensors_and_arrays():
    x, a = vtl.zeros(3, 4), np.zeros((3, 4), np.float32)
    for target in (x, a):
        target[0] = 5
        target[1:, ::2] = np.array([1.0, 2.0], np.float32)
        target[..., -1] = 7.5
        target[2, 1] = np.float32(3)
    x[2, 2] = vtl.tensor(4)
    a[2, 2] = 4

    np.testing.assert_array_equal(x.numpy(), a)
    with pytest.raises(vtl.ShapeError, match=r"\(3,\) does not broadcast to \(4,\)"):
        x[0] = vtl.ones(3)


def test_index_assignment_where_gradients_flow_raises():
    x = vtl.zeros(3, requires_grad=True)
    with pytest.raises(vtl.GraphError, match="where or concat"):
        x[0] = 1.0
    with pytest.raises(vtl.GraphError, match="where or concat"):
        vtl.zeros(3)[:] = x * 2
    with vtl.no_grad():
        x[0] = 1.0
    assert x.tolist() == [1, 0, 0]


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
    x = vtl.ones(3)

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
        x.to("cuda")
    with pytest.raises(vtl.DeviceError, match="no such backend"):
        x.to("abacus")


def test_casts_have_pytorchs_names():
    x = vtl.tensor([0.0, 2.7], requires_grad=True)

    got = {
        name: getattr(x, name)().dtype.name for name in ("double", "half", "bfloat16", "float", "int", "long", "bool")
    }

    assert got == dict(
        double="float64", half="float16", bfloat16="bfloat16", float="float32", int="int32", long="int64", bool="bool"
    )
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


def test_detach_shares_memory_and_clone_does_not():
    x = vtl.ones(2, requires_grad=True)
    shared, copied = x.detach(), x.clone()
    shared.mul_(3.0)

    assert x.tolist() == [3, 3]
    assert copied.tolist() == [1, 1]
    assert not shared.requires_grad
    assert copied.requires_grad


IN_PLACE = {
    "add_": (lambda x: x.add_(2.0), 5.0), "sub_": (lambda x: x.sub_(vtl.tensor([1.0])), 2.0), "mul_": (lambda x: x.mul_(2), 6.0),
    "div_": (lambda x: x.div_(2.0), 1.5), "zero_": (lambda x: x.zero_(), 0.0), "fill_": (lambda x: x.fill_(4), 4.0),
    "copy_": (lambda x: x.copy_(vtl.tensor(7, dtype=vtl.int32)), 7.0), "clamp_": (lambda x: x.clamp_(max=1.0), 1.0),
}  # fmt: skip


@pytest.mark.parametrize("name", IN_PLACE)
def test_a_method_that_ends_in_an_underscore_changes_the_memory_that_others_see(name):
    change, want = IN_PLACE[name]
    x = vtl.full((2, 3), 3.0)
    other = x.detach()
    version = x.raw.buffer.version

    assert change(x) is x

    assert np.all(other.numpy() == want)
    assert x.raw.buffer.version > version


@pytest.mark.parametrize("name", IN_PLACE)
def test_a_leaf_that_requires_gradients_is_changed_only_without_them(name):
    change, want = IN_PLACE[name]
    x = vtl.full((2, 3), 3.0, requires_grad=True)

    with pytest.raises(vtl.GraphError, match="leaf that requires gradients"):
        change(x)
    with vtl.no_grad():
        change(x)

    assert np.all(x.numpy() == want)
    assert x.is_leaf
    assert x.requires_grad


def test_augmented_assignment_is_in_place_without_gradients_and_a_new_tensor_with_them():
    w, seen = vtl.ones(2, requires_grad=True), []
    alias = w.detach()
    with vtl.no_grad():
        w -= 0.5 * vtl.ones(2)
        w += 1.0
        w *= 2.0
        w /= 4.0
    assert alias.tolist() == [0.75, 0.75]

    total = vtl.zeros(())
    for _ in range(3):
        total += (w * w).sum()
        seen.append(total)
    total.backward()
    assert w.grad.tolist() == [4.5, 4.5]
    assert seen[0].item() == pytest.approx(1.125)
    with pytest.raises(vtl.GraphError, match="leaf"):
        w += 1.0


def test_changing_a_tensor_that_gradients_flow_through_gives_it_a_new_value():
    x = vtl.tensor([1.0, 2.0], requires_grad=True)
    y = x * 3
    before = y.detach()
    y.mul_(y)
    y.add_(x)
    y.sum().backward()

    assert x.grad.tolist() == [18.0 + 1, 36.0 + 1]
    assert before.tolist() == [3, 6]
    z = x * 3
    z.zero_()
    assert (z.tolist(), z.requires_grad) == ([0, 0], False)


def test_changing_a_view_that_gradients_flow_through_raises():
    y = vtl.ones(4, requires_grad=True) * 2
    with pytest.raises(vtl.GraphError, match="view of another"):
        y[1:].add_(1.0)
    with pytest.raises(vtl.GraphError, match="view of another"):
        vtl.zeros(4)[1:].add_(y[1:])


def test_in_place_keeps_shape_and_dtype_or_raises():
    x = vtl.ones(2)
    with pytest.raises(vtl.ShapeError):
        x.add_(vtl.ones(3, 2))
    assert x.add_(vtl.ones(2, dtype=vtl.float64)).dtype is vtl.float32
    with pytest.raises(vtl.DTypeError, match="cannot be written into int64"):
        vtl.tensor([1, 2]).add_(x)


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


def test_apply_names_the_op_it_does_not_know():
    with pytest.raises(vtl.UnsupportedError, match=r"softmx.*did you mean softmax"):
        vtl.apply("softmx", vtl.ones(2))
