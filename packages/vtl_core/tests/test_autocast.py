"""autocast: which ops run narrow, which wide, what stays, and where gradients go."""

from __future__ import annotations

import numpy as np
import pytest

import vtl_core as vtl
from vsl_compute.ops.table import TABLE
from vtl_core.autograd.casting import NARROW, WIDE

HALVES = pytest.mark.parametrize("dtype", [vtl.float16, vtl.bfloat16], ids=str)


def drawn(*shape, dtype=vtl.float32, requires_grad=False):
    array = np.random.default_rng(sum(shape)).normal(size=shape)
    return vtl.tensor(array, dtype=dtype, requires_grad=requires_grad)


def test_both_lists_are_of_ops_that_are_there():
    assert set(TABLE) >= NARROW | WIDE
    assert not NARROW & WIDE


@HALVES
def test_products_run_narrow_and_gradients_come_back_wide(dtype):
    a, b = drawn(4, 5, requires_grad=True), drawn(5, 3, requires_grad=True)
    with vtl.autocast(dtype):
        y = a @ b
        assert vtl.apply("linear", a, drawn(2, 5)).dtype is dtype
    assert y.dtype is dtype
    expected = a.detach().to(dtype) @ b.detach().to(dtype)
    np.testing.assert_array_equal(y.numpy(), expected.numpy())
    y.sum().backward()
    assert a.grad.dtype is b.grad.dtype is vtl.float32


@HALVES
def test_sums_and_losses_run_in_float32(dtype):
    x = drawn(6, 4, dtype=dtype)
    with vtl.autocast(dtype):
        for y in (x.exp(), x.sum(), x.softmax(1), x.logsumexp(1), vtl.pow(x, 2.0)):
            assert y.dtype is vtl.float32
        assert vtl.apply("cross_entropy", x, vtl.tensor([0, 1, 2, 3, 0, 1]))[0].dtype is vtl.float32
        assert x.relu().dtype is (x + x).dtype is dtype


@HALVES
def test_normalization_keeps_its_input_s_dtype_and_its_statistics_wide(dtype):
    x, weight = drawn(8, 3, 5, dtype=dtype), drawn(3)
    with vtl.autocast(dtype):
        y, mean, variance = vtl.apply("batch_norm", x, weight, weight)
    assert (y.dtype, mean.dtype, variance.dtype) == (dtype, vtl.float32, vtl.float32)


def test_float64_and_what_stands_outside_are_left_alone():
    wide, x = drawn(3, 3, dtype=vtl.float64), drawn(3, 3)
    with vtl.autocast(vtl.float16):
        assert (wide @ wide).dtype is vtl.float64
        with vtl.autocast(enabled=False):
            assert (x @ x).dtype is vtl.float32
        assert (x @ x).dtype is vtl.float16
        assert vtl.autocast_dtype() is vtl.float16
    assert (x @ x).dtype is vtl.float32
    assert vtl.autocast_dtype() is None


def test_it_ends_where_an_error_leaves_it():
    with pytest.raises(vtl.ShapeError), vtl.autocast():
        drawn(2, 3) @ drawn(2, 3)
    assert vtl.autocast_dtype() is None


def test_as_a_decorator_it_works_each_time():
    @vtl.autocast(vtl.float16)
    def product(x):
        return x @ x

    assert [product(drawn(2, 2)).dtype for _ in range(2)] == [vtl.float16] * 2


def test_second_derivatives_and_checkpoints_run_as_the_forward_pass_did():
    x = drawn(3, 3, requires_grad=True)
    with vtl.autocast(vtl.float16):
        y = vtl.checkpoint(lambda a: (a @ a).relu(), x)
        (g,) = vtl.grad((x @ x).sum(), [x], create_graph=True)
    assert y.dtype is vtl.float16
    y.sum().backward()
    first = x.grad.numpy().copy()
    x.grad = None
    with vtl.autocast(vtl.float16):
        z = (x @ x).relu()
    z.sum().backward()
    np.testing.assert_array_equal(first, x.grad.numpy())
    assert g.dtype is vtl.float32
    (again,) = vtl.grad(g.sum(), [x])
    np.testing.assert_allclose(again.numpy(), np.full((3, 3), 6.0), rtol=1e-3)  # d2 of sum(x @ x) along ones: 2 * 3


def test_other_dtypes_are_refused():
    for dtype in (vtl.float32, vtl.int8):
        with pytest.raises(vtl.DTypeError, match="use bfloat16 or float16"):
            vtl.autocast(dtype)


def test_a_device_in_the_place_of_the_dtype_is_refused_with_what_is_written_here():
    with pytest.raises(
        vtl.DTypeError, match=r"^autocast: dtype 'cuda' is not one of .*device_type is not given here.*vtl\.bfloat16"
    ):
        vtl.autocast("cuda")
    with pytest.raises(
        TypeError, match=r"^autocast: .*'device_type'; it takes \(dtype=bfloat16, enabled=True\); .*leave it out$"
    ):
        vtl.autocast(device_type="cuda")
