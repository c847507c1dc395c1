"""Rows D4 to D24 of the roadmap on CUDA, on a simulated device and on a real one where there is one."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from vsl_compute import registry
from vsl_compute.context import ComputeContext
from vsl_compute.dispatch import asarray, overrides, run
from vsl_compute.ops.table import TABLE
from vsl_compute.validation.pullback import of_row

SIZES = (1, 2, 7, 31, 64, 65, 129, 257)
STRESS = (1023, 2048, 4097)


@pytest.fixture
def context(cuda_device, monkeypatch):
    """A ComputeContext of the device."""
    monkeypatch.setitem(registry._opened, "cuda:0", cuda_device)
    return ComputeContext("cuda:0")


def test_d04_a_device_is_opened_once(context):
    """D4: each context of a device is on the same stream, pool and kernels."""
    assert registry.get("cuda:0") is context.backend is ComputeContext("cuda:0").backend
    info = context.backend.info
    assert info.spec == "cuda:0"
    assert info.name
    assert info.memory_bytes > 0


@pytest.mark.parametrize("size", SIZES)
def test_d06_float64_products_agree_with_the_cpu(cuda_device, rng, size):
    """D6: to 1e-10, square and not, each transposition."""
    _product(cuda_device, rng, size, int(rng.integers(1, 300)), int(rng.integers(1, 300)))


@pytest.mark.parametrize("size", STRESS)
def test_d06_large_float64_products_agree_with_the_cpu(cuda_device, rng, size):
    """D6: the sizes at which libraries change their kernels; a real device's matter, but a simulated one must not differ."""
    _product(cuda_device, rng, size, 65, 1025)


def _product(backend, rng, m, n, k):
    a, b = rng.standard_normal((m, k)), rng.standard_normal((k, n))
    x, y = asarray(backend, a), asarray(backend, b)
    turned_x, turned_y = (asarray(backend, v.T.copy()).permute((1, 0)) for v in (a, b))
    for left in (x, turned_x):
        for right in (y, turned_y):
            assert_allclose(run("matmul", left, right).to_host(), a @ b, rtol=0, atol=1e-10)


ACTIVATIONS = ("relu", "sigmoid", "tanh", "gelu", "silu", "softplus", "mish", "elu", "leaky_relu", "hardswish")


@pytest.mark.parametrize("op", [*ACTIVATIONS, "softmax", "log_softmax", "layer_norm", "conv2d"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_d07_activations_softmax_layernorm_and_conv2d_agree_with_the_cpu(cuda_device, rng, op, dtype):
    """D7: odd shapes, magnitudes from 0.01 to 100."""
    arrays = [rng.standard_normal((5, 3, 7, 9)) * 10.0 ** rng.integers(-2, 3)]
    options = {"softmax": {"axis": -1}, "log_softmax": {"axis": 1}, "layer_norm": {"normalized_shape": (7, 9)}, "elu": {"alpha": 0.7},
               "leaky_relu": {"slope": 0.01}, "conv2d": {"stride": (2, 1), "padding": (1, 2)}}.get(op, {})  # fmt: skip
    if op == "layer_norm":
        arrays += [rng.standard_normal((7, 9)) for _ in range(2)]
    if op == "conv2d":
        arrays += [rng.standard_normal((4, 3, 3, 5)), rng.standard_normal(4)]
    found = [
        run(op, *(asarray(backend, a, dtype) for a in arrays), **options)
        for backend in (cuda_device, registry.get("cpu"))
    ]
    got, expected = ((f[0] if isinstance(f, tuple) else f).to_host() for f in found)
    scale = max(1.0, float(np.abs(expected).max()))
    assert_allclose(got, expected, rtol=0, atol=scale * (1e-12 if dtype == "float64" else 2e-6))


def test_d10_compute_methods_run_on_the_device(context, rng):
    """D10: products, elementwise, activations, softmax and convolution; nothing comes to the host before it is read."""
    a, b, x = (rng.standard_normal(s).astype(np.float32) for s in ((5, 7), (7, 3), (5, 7)))
    image, kernel = (rng.standard_normal(s).astype(np.float32) for s in ((2, 3, 6, 6), (4, 3, 3, 3)))
    da, db, dx, di, dk = (context.asarray(v) for v in (a, b, x, image, kernel))
    before = context.transfers()
    found = {
        "gemm": context.gemm(da, db), "gemv": context.gemv(da, dx.slice(0)), "add_vec": context.add_vec(da, dx),
        "mul_vec": context.mul_vec(da, dx), "mul_scalar": context.mul_scalar(da, 3.0), "relu": context.relu(da),
        "sigmoid": context.sigmoid(da), "tanh": context.tanh(da), "elu": context.elu(da), "softmax": context.softmax(da),
        "conv2d": context.conv2d(di, dk, padding=1),
    }  # fmt: skip
    after = context.transfers()
    assert (after.bytes_to_host, after.bytes_to_device) == (before.bytes_to_host, before.bytes_to_device)
    cpu = ComputeContext("cpu")
    ca, cb, cx, ci, ck = (cpu.asarray(v) for v in (a, b, x, image, kernel))
    expected = {
        "gemm": cpu.gemm(ca, cb), "gemv": cpu.gemv(ca, cx.slice(0)), "add_vec": cpu.add_vec(ca, cx), "mul_vec": cpu.mul_vec(ca, cx),
        "mul_scalar": cpu.mul_scalar(ca, 3.0), "relu": cpu.relu(ca), "sigmoid": cpu.sigmoid(ca), "tanh": cpu.tanh(ca),
        "elu": cpu.elu(ca), "softmax": cpu.softmax(ca), "conv2d": cpu.conv2d(ci, ck, padding=1),
    }  # fmt: skip
    for name, view in found.items():
        assert_allclose(view.to_host(), expected[name].to_host(), rtol=2e-5, atol=2e-6, err_msg=name)


def test_d11_layer_norm_agrees_with_and_without_overrides(cuda_device, rng):
    """D11: the library's way, where there is one, and the body's."""
    x, gamma, beta = (rng.standard_normal(s).astype(np.float32) for s in ((6, 33), (33,), (33,)))
    views = [asarray(cuda_device, v) for v in (x, gamma, beta)]
    mean, variance = x.mean(-1, keepdims=True, dtype=np.float64), x.var(-1, keepdims=True, dtype=np.float64)
    expected = (x - mean) / np.sqrt(variance + 1e-5) * gamma + beta
    for enabled in (True, False):
        with overrides(enabled):
            assert_allclose(
                run("layer_norm", *views, normalized_shape=(33,))[0].to_host(), expected, rtol=1e-4, atol=1e-5
            )


def test_d12_bias_and_gradients_stay_on_the_device(context, rng):
    """D12: a bias is added and its gradient summed by kernels; only the parameters go up."""
    x, w, b, g = (rng.standard_normal(s).astype(np.float32) for s in ((8, 5), (5, 3), (3,), (8, 3)))
    dx, dw, db, dg = (context.asarray(v) for v in (x, w, b, g))
    before = context.transfers()
    y = context.add_vec(context.gemm(dx, dw), db)
    bias, weight = run("sum", dg, axes=(0,)), context.gemm(dx.permute((1, 0)), dg)
    after = context.transfers()
    assert after.bytes_to_device == before.bytes_to_device
    assert after.bytes_to_host == before.bytes_to_host
    assert_allclose(y.to_host(), x @ w + b, rtol=1e-5, atol=1e-5)
    assert_allclose(bias.to_host(), g.sum(0), rtol=1e-5, atol=1e-5)
    assert_allclose(weight.to_host(), x.T @ g, rtol=1e-5, atol=1e-5)


GRADIENTS = {
    "relu": "g x", "softmax_backward": "g p", "conv2d_input": "h k", "conv2d_weight": "h i", "layer_norm_input": "g x mean variance gamma",
}  # fmt: skip


def test_d12_gradient_kernels_run_on_the_device(cuda_device, rng):
    """D12: of activations, softmax, layer norm and convolution: equal to the CPU's, and nothing crosses before it is read."""
    x, g, gamma = (rng.standard_normal(s).astype(np.float32) for s in ((6, 33), (6, 33), (33,)))
    arrays = {"g": g, "x": x, "gamma": gamma, "p": np.exp(x) / np.exp(x).sum(-1, keepdims=True),
              "mean": x.mean(-1, keepdims=True), "variance": x.var(-1, keepdims=True),
              "i": rng.standard_normal((2, 3, 6, 6)).astype(np.float32), "k": rng.standard_normal((4, 3, 3, 3)).astype(np.float32),
              "h": rng.standard_normal((2, 4, 6, 6)).astype(np.float32)}  # fmt: skip
    options = {"conv2d_input": {"shape": (2, 3, 6, 6), "padding": 1}, "conv2d_weight": {"shape": (4, 3, 3, 3), "padding": 1},
               "layer_norm_input": {"normalized_shape": (33,)}, "softmax_backward": {"axis": -1}}  # fmt: skip
    found = []
    for backend in (cuda_device, registry.get("cpu")):
        views = {name: asarray(backend, a) for name, a in arrays.items()}
        before = backend.transfers()
        results = {}
        for op, names in GRADIENTS.items():
            args = [views[name] for name in names.split()]
            if op == "relu":
                (results[op],) = of_row(run, TABLE[op], args[1:], run(op, args[1]), args[0], {})
            else:
                results[op] = run(op, *args, **options.get(op, {}))
        after = backend.transfers()
        assert (after.bytes_to_device, after.bytes_to_host) == (before.bytes_to_device, before.bytes_to_host)
        found.append({op: (y[0] if isinstance(y, tuple) else y).to_host() for op, y in results.items()})
    for op, expected in found[1].items():
        assert_allclose(found[0][op], expected, rtol=2e-5, atol=1e-5 * np.abs(expected).max(), err_msg=op)


def test_d18_a_context_says_which_device_it_is(context):
    """D18: the index is the device's, and what is made there names it."""
    assert context.device_id() == 0
    assert context.asarray([1.0]).device == "cuda:0"


def test_d24_both_ways_are_explicit_and_exact(context, rng):
    """D24: a copy each way, bit for bit; later changes of one are not seen by the other."""
    host = rng.standard_normal((300, 70)).astype(np.float32)
    view = context.asarray(host)
    back = view.to_host()
    assert np.array_equal(back, host)
    host[:] = 0
    back[:] = 1
    assert not (view.to_host() == 0).any()
    assert not (view.to_host() == 1).all()
