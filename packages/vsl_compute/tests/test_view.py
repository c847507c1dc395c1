"""Views: shape operations agree with NumPy's on the same memory, and copy nothing."""

from __future__ import annotations

import numpy as np
import pytest

import vsl_compute as vsl
from vsl_compute.dtypes import float32
from vsl_compute.errors import IndexRangeError, ShapeError
from vsl_compute.view import Layout, dense_strides, resolve_shape


@pytest.fixture
def pair(rng):
    """A View and the array that it holds."""
    array = rng.standard_normal((3, 4, 5))
    return vsl.ComputeContext("cpu").asarray(array), array


SLICES = [(1,), (slice(1, 3),), (slice(None), -1), (slice(None, None, -1), slice(3, None, -2)), (None, 2, None, slice(1, None)), (slice(5, 2),),
          (slice(None), slice(None), slice(-3, -1)), (), (0, 0, 0), (slice(2, 0, -1), slice(10), slice(-100, 100, 3))]  # fmt: skip


@pytest.mark.parametrize("index", SLICES, ids=str)
def test_slicing_is_numpys_and_shares_memory(pair, index):
    """Positions, negative steps and None included."""
    view, array = pair
    cut = view.slice(*index)
    np.testing.assert_array_equal(cut.to_host(), array[index])
    assert cut.buffer is view.buffer


def test_chains_of_shape_operations_agree_with_numpy(pair):
    """Flipped, stepped, transposed, broadcast and reshaped, one on the other."""
    view, array = pair
    got = (
        view.slice(slice(None, None, -1), slice(None, None, 2))
        .permute((2, 0, 1))
        .reshape((5, 3, 2, 1))
        .expand((5, 3, 2, 4))
    )
    want = np.broadcast_to(array[::-1, ::2].transpose(2, 0, 1).reshape(5, 3, 2, 1), (5, 3, 2, 4))
    np.testing.assert_array_equal(got.to_host(), want)
    assert got.overlaps_itself


def test_windows_are_numpys_sliding_windows(pair):
    """With steps and dilation; overlapping ones say so."""
    view, array = pair
    got = view.window((1, 2), (2, 2), (1, 2), (2, 1))
    want = np.lib.stride_tricks.sliding_window_view(array, (3, 2), (1, 2))[:, ::1, ::2, ::2, :]
    np.testing.assert_array_equal(got.to_host(), want)
    assert view.window((2,), (3,), (1,), (1,)).overlaps_itself
    assert not view.window((2,), (2,), (2,), (1,)).overlaps_itself


@pytest.mark.parametrize("new", [(60,), (2, 2, 3, 5), (15, 4), (-1, 6), (3, 1, 4, 1, 5), (60, 1, 1)], ids=str)
def test_reshape_views_what_is_in_line(pair, new):
    """C order, one size by -1."""
    view, array = pair
    np.testing.assert_array_equal(view.reshape(new).to_host(), array.reshape(new))


def test_reshape_refuses_what_only_a_copy_could(pair):
    """And says so beforehand."""
    view, _ = pair
    turned = view.permute((1, 0, 2))
    assert not turned.can_reshape((60,))
    with pytest.raises(ShapeError, match="copy it first"):
        turned.reshape((60,))
    assert turned.can_reshape((4, 3, 5, 1))


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda v: v.reshape((7, -1)), ShapeError, "60 elements"),
        (lambda v: v.permute((0, 1)), ShapeError, "permutation"),
        (lambda v: v.permute((0, 1, 1)), ShapeError, "permutation"),
        (lambda v: v.permute((0, 1, 3)), ShapeError, "permutation"),
        (lambda v: v.expand((4, 5)), ShapeError, "more axes"),
        (lambda v: v.expand((2, 4, 5)), ShapeError, "does not broadcast"),
        (lambda v: v.slice(3), IndexRangeError, "index 3 is outside axis 0 of size 3"),
        (lambda v: v.slice(-4), IndexRangeError, "index -4"),
        (lambda v: v.slice(0, 0, 0, 0), ShapeError, "4 indices"),
        (lambda v: v.window((2,), (6,), (1,), (1,)), ShapeError, "do not fit"),
        (lambda v: v.window((2,), (0,), (1,), (1,)), ShapeError, "do not fit"),
    ],
)
def test_what_does_not_fit_is_named(pair, call, error, words):
    """Op, given, rule."""
    with pytest.raises(error, match=words):
        call(pair[0])


@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0, 2), (1, 5, 1), (2, 3)], ids=str)
def test_dense_layouts_know_that_they_are(shape):
    """Empty and one-element axes included."""
    layout = Layout.of(float32, shape)
    assert layout.c_order
    assert layout.strides == dense_strides(shape)
    assert Layout.of(layout.dtype, shape) is layout


def test_like_keeps_the_order_of_axes():
    """Channels-last stays so, gaps and repeats do not."""
    last = Layout.of(float32, (2, 3, 4, 5), (60, 1, 15, 3))
    assert last.like(float32) is last
    assert Layout.of(float32, (3, 4), (0, 2)).like(float32).strides == (4, 1)
    assert Layout.of(float32, (3, 4), (-4, -1)).like(float32).strides == (4, 1)


def test_density_and_overlap_are_told_apart():
    """A gap is neither dense nor overlapping."""
    context = vsl.ComputeContext("cpu")
    base = context.asarray(np.zeros((4, 6)))
    assert base.permute((1, 0)).is_dense
    assert not base.slice(slice(None), slice(None, None, 2)).is_dense
    assert not base.slice(slice(None), slice(None, None, 2)).overlaps_itself
    assert base.slice(slice(None, None, -1)).extent() == (0, 4 * 6 * 8)


def test_shapes_resolve_one_unknown_size():
    """Zero sizes leave nothing to resolve by."""
    assert resolve_shape((2, 6), (-1, 3)) == (4, 3)
    with pytest.raises(ShapeError):
        resolve_shape((0, 3), (-1, 0))
    with pytest.raises(ShapeError):
        resolve_shape((2, 3), (-1, -1))
    with pytest.raises(ShapeError):
        resolve_shape((2, 3), (-2, -3))
