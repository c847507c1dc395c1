"""Shape operations, indexing and what each says of shapes that do not fit."""

from __future__ import annotations

import numpy as np
import pytest

import vtl_core as vtl

RNG = np.random.default_rng(3)


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
    "index by unsigned integers": (lambda x: x[vtl.tensor([1], dtype=vtl.uint8)], lambda a: a[[1]]),
    "flatten no axis": (lambda x: x[0, 0, 0].flatten(), lambda a: a[0, 0, 0].reshape(1)),
    "transpose no axis": (lambda x: x[0, 0, 0].permute(), lambda a: a[0, 0, 0]),
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
    "mT": (lambda x: x[0].mT, "at least 2 axes"),
    "flatten": (lambda x: x.flatten(1, 0), "comes after"),
    "split": (lambda x: x.split(0), "must be positive"),
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
    "a mask tensor in a tuple": (lambda x: x[:, x[0] > 0], vtl.UnsupportedError, "truth value"),
    "a tensor of floats": (lambda x: x[vtl.ones(1)], IndexError, "must hold integers"),
    "a tensor outside": (lambda x: x[vtl.tensor([2])], IndexError, "outside|axis"),
    "no axis": (lambda x: x.sum()[[0]], IndexError, "no axis to index"),
    "two arrays": (lambda x: x[[0], [1]], vtl.UnsupportedError, "completes tensors"),
}


@pytest.mark.parametrize("name", BAD_INDICES)
def test_an_index_that_means_nothing_here_says_why(name):
    function, error, message = BAD_INDICES[name]

    with pytest.raises(error, match=message):
        function(vtl.ones(2, 3)).numpy()  # a device says at the next read what an index in its memory did


def test_index_assignment_writes_numbers_tensors_and_arrays():
    x, a = vtl.zeros(3, 4), np.zeros((3, 4), np.float32)
    for target in (x, a):
        target[0] = 5
        target[1:, ::2] = np.array([1.0, 2.0], np.float32)
        target[..., -1] = 7.5
        target[2, 1] = np.float32(3)
    x[2, 2] = vtl.tensor(4)
    x[0, :1] = vtl.tensor([[9.0]])
    a[0, :1] = 9
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


@pytest.mark.parametrize("axis", ["1", 1.0, None, [0], np.ones(2)], ids=repr)
def test_an_axis_that_is_no_integer_is_refused_by_every_method(axis):
    x = vtl.ones(1, 3)
    for name, call in {
        "unsqueeze": lambda: x.unsqueeze(axis), "transpose": lambda: x.transpose(0, axis), "flatten": lambda: x.flatten(axis),
        "split": lambda: x.split(1, axis), "unfold": lambda: x.unfold(axis, 1, 1), "sort": lambda: x.sort(axis),
    }.items():  # fmt: skip
        with pytest.raises(vtl.ArgumentTypeError, match=f"^{name}: axis .* must be an integer"):
            call()


def test_axes_and_sizes_of_numpy_are_axes_and_sizes():
    x, one = vtl.ones(1, 4), np.int64(1)
    assert x.squeeze(np.int64(0)).shape == vtl.squeeze(x, np.int32(0)).shape == x.squeeze([0]).shape == (4,)
    assert x.unsqueeze(one).shape == (1, 1, 4)
    assert [part.shape for part in x.split(np.int64(3), one)] == [(1, 3), (1, 1)]
    assert [part.shape for part in x.split(np.array([1, 3]).tolist(), one)] == [(1, 1), (1, 3)]
    assert x.unfold(one, np.int64(2), one).shape == (1, 3, 2)


def test_parts_of_other_shapes_do_not_make_a_tensor():
    with pytest.raises(vtl.ShapeError, match=r"tensor: the parts have shapes \(2,\), \(3,\); all must be alike"):
        vtl.tensor([vtl.ones(2), vtl.ones(3)])
