"""ComputeContext: vsl-compute alone is a compute library."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import vsl_compute as vsl
from vsl_compute.backends.cpu import CPUBackend
from vsl_compute.dispatch import asarray


@pytest.fixture
def context():
    """The CPU."""
    with vsl.ComputeContext("cpu") as opened:
        yield opened


def test_methods_agree_with_numpy(context, rng):
    """D9, D34: each computes what its name says."""
    a, b, x = rng.standard_normal((3, 4)), rng.standard_normal((4, 5)), rng.standard_normal(4)
    put = context.asarray
    cases = {
        "gemm": (context.gemm(put(a), put(b)), a @ b),
        "gemv": (context.gemv(put(a), put(x)), a @ x),
        "add_vec": (context.add_vec(put(a), put(x)), a + x),
        "mul_vec": (context.mul_vec(put(a), put(x)), a * x),
        "add_scalar": (context.add_scalar(put(a), 2.5), a + 2.5),
        "mul_scalar": (context.mul_scalar(put(a), -3), a * -3),
        "relu": (context.relu(put(a)), np.maximum(a, 0)),
        "sigmoid": (context.sigmoid(put(a)), 1 / (1 + np.exp(-a))),
        "tanh": (context.tanh(put(a)), np.tanh(a)),
        "elu": (context.elu(put(a), 0.7), np.where(a > 0, a, 0.7 * np.expm1(a))),
        "softmax": (context.softmax(put(a), axis=0), np.exp(a) / np.exp(a).sum(0)),
        "layernorm": (
            context.layernorm(put(a)),
            (a - a.mean(-1, keepdims=True)) / np.sqrt(a.var(-1, keepdims=True) + 1e-5),
        ),
    }
    for name, (got, want) in cases.items():
        np.testing.assert_allclose(got.to_host(), want, rtol=1e-13, atol=1e-14, err_msg=name)


def test_conv2d_is_correlation_in_nchw(context, rng):
    """A window times the weight, no flip; stride and padding as named."""
    x, w = rng.standard_normal((2, 3, 6, 5)), rng.standard_normal((4, 3, 3, 2))
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 2), (2, 3))[:, :, ::2, ::1]
    got = context.conv2d(context.asarray(x), context.asarray(w), stride=(2, 1), padding=1)
    np.testing.assert_allclose(got.to_host(), np.einsum("nchwpq,ocpq->nohw", windows, w), rtol=1e-12)


def test_lists_become_float32_and_int64_and_arrays_keep_their_dtype(context):
    """The defaults."""
    assert context.asarray([1.0, 2.0]).dtype.name == "float32"
    assert context.asarray([1, 2]).dtype.name == "int64"
    assert context.asarray(np.zeros(2)).dtype.name == "float64"
    assert context.asarray([1.0], dtype="bfloat16").to_host().dtype == np.float32


def test_arrays_are_copied_once(context):
    """The caller may change the array afterwards."""
    array = np.ones(3)
    view = context.asarray(array)
    array[:] = 7
    np.testing.assert_array_equal(view.to_host(), [1, 1, 1])
    host = view.to_host()
    host[:] = 9
    np.testing.assert_array_equal(view.to_host(), [1, 1, 1])


@pytest.mark.parametrize("given", [[[1, 2], [3]], "text", [None], [1, "a"], {1: 2}, object()])
def test_what_is_no_array_of_numbers_is_refused(context, given):
    """One line, no object arrays."""
    with pytest.raises((vsl.DTypeError, ValueError)):
        context.asarray(given)


def test_supports_is_derived(context):
    """Floating ops have no integers, arithmetic no bool."""
    assert context.supports("conv2d", "float32")
    assert not context.supports("conv2d", "int32")
    assert context.supports("add", "int8")
    assert not context.supports("add", "bool")
    assert context.supports("sum", "bool")
    assert context.supports("concat", "bool")
    for op in ("where", "dropout", "embedding", "gather"):  # of truth values and indices the dtype is not asked
        assert context.supports(op, "float32"), op
    assert not context.supports("where", "bool")
    with pytest.raises(vsl.UnsupportedError, match="did you mean"):
        context.supports("convd", "float32")


@pytest.mark.parametrize(
    "method",
    ["gemm", "gemv", "add_vec", "mul_vec", "add_scalar", "mul_scalar", "relu", "elu", "softmax", "layernorm", "conv2d"],
)
def test_supports_knows_a_context_s_methods_by_their_names(context, method):
    """Whoever calls a method asks for it by its name; what takes integers is what the op takes."""
    assert callable(getattr(context, method))
    assert context.supports(method, "float32")
    integers = {"gemm", "gemv", "add_vec", "mul_vec", "add_scalar", "mul_scalar", "relu"}
    assert context.supports(method, "int32") == (method in integers)


def test_a_view_of_another_device_is_refused_and_not_computed_elsewhere(context):
    """D18: the device of a context does its work, or nobody does."""
    other = CPUBackend(replace(context.backend.info, spec="other:0"))
    x, w = asarray(other, np.ones((1, 1, 4, 4))), context.asarray(np.ones((1, 1, 3, 3)))
    for call in (lambda: context.relu(x), lambda: context.conv2d(x, w), lambda: context.run("add", w, x),
                 lambda: context.run("relu", w, out=asarray(other, np.ones((1, 1, 3, 3))))):  # fmt: skip
        with pytest.raises(
            vsl.DeviceError, match=r"is on other:0, this context on cpu:0; copy it here with context.asarray"
        ):
            call()
    assert context.relu(context.asarray(x)).device == "cpu:0"


def test_counters(context):
    """Nothing is transferred on the CPU; live bytes go up and down with the views."""
    before = context.memory()
    view = context.asarray(np.zeros(1000))
    during = context.memory()
    assert (during.live - before.live, during.buffers - before.buffers) == (8000, 1)
    del view
    assert context.memory() == before
    assert context.transfers() == vsl.ComputeContext("cpu").transfers()
    assert context.transfers().bytes_to_device == 0


def test_memory_asks_other_libraries_objects_nothing():
    """A proxy's `__class__` may load a model; a deprecated name's warns."""
    asked = []

    class Proxy:
        def __init__(self):
            self.held = []  # so that the collector knows it

        @property
        def __class__(self):
            asked.append(self)
            return Proxy

    proxy = Proxy()
    vsl.ComputeContext("cpu").memory()
    assert proxy.held == asked == []


def test_shapes_that_do_not_fit_name_the_op(context):
    """gemm, gemv, conv2d."""
    a, x = context.asarray(np.zeros((2, 3))), context.asarray(np.zeros(4))
    with pytest.raises(vsl.ShapeError, match="matmul"):
        context.gemm(a, a)
    with pytest.raises(vsl.ShapeError, match="gemv"):
        context.gemv(a, x)
    with pytest.raises(vsl.ShapeError, match="conv2d"):
        context.conv2d(a, a)
