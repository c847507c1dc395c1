"""Activations: their derivatives, and what they are at the ends of their ranges."""

from __future__ import annotations

import numpy as np
import pytest

import vtl_core as vtl
import vtl_nn as nn

ACTIVATIONS = {
    "ReLU": nn.ReLU(), "LeakyReLU": nn.LeakyReLU(0.2), "ELU": nn.ELU(1.3), "Sigmoid": nn.Sigmoid(), "Tanh": nn.Tanh(), "Softmax": nn.Softmax(-1),
    "GELU": nn.GELU(), "GELU of tanh": nn.GELU("tanh"), "Swish": nn.SiLU(), "Mish": nn.Mish(), "Softplus": nn.Softplus(), "SELU": nn.SELU(),
    "Hardswish": nn.Hardswish(), "LogSoftmax": nn.LogSoftmax(-1),
}  # fmt: skip


@pytest.mark.cpu_only("derivatives are shown on the CPU; devices are compared with it in values")
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_c10_the_gradient_of_every_activation_is_its_derivative(name):
    """C10: the layer's own, both orders, in float64, away from kinks."""
    x = np.random.default_rng(5).normal(size=(4, 7)) * 2
    x[np.abs(x) < 0.05] = 1.0
    for order in (1, 2):
        vtl.check_gradients(ACTIVATIONS[name], x, order=order)


@pytest.mark.parametrize("threshold", [20.0, 3.0, -1.0, float("inf")])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_softplus_is_its_input_above_the_threshold(dtype, threshold):
    x = vtl.tensor(np.random.default_rng().normal(scale=12, size=200), dtype=dtype, requires_grad=True)
    y = nn.Softplus(1.5, threshold)(x)
    y.sum().backward()
    a, above = x.detach().numpy().astype(np.float64), 1.5 * x.detach().numpy() > threshold
    with np.errstate(over="ignore"):
        expected = np.where(above, a, np.logaddexp(0, 1.5 * a) / 1.5)
        slope = np.where(above, 1, 1 / (1 + np.exp(-1.5 * a)))
    rtol = 1e-13 if dtype == "float64" else 2e-5  # of exp, whose argument was rounded
    assert np.allclose(y.detach().numpy(), expected, rtol=rtol, atol=1e-30)
    assert np.allclose(x.grad.numpy(), slope, rtol=rtol, atol=1e-30)


@pytest.mark.parametrize("threshold", [20.0, float("inf")])
@pytest.mark.parametrize(("dtype", "large"), [("float16", 6e4), ("float32", 3e38), ("float64", 1e308)])
def test_softplus_is_its_input_where_beta_times_it_is_no_number_of_the_dtype(dtype, large, threshold):
    x = vtl.tensor([large, -large, 1.0], dtype=dtype, requires_grad=True)
    y = nn.Softplus(1000.0, threshold)(x)
    y.sum().backward()
    assert np.array_equal(y.detach().numpy(), [x[0].item(), 0, 1])
    assert np.array_equal(x.grad.numpy(), [1, 0, 1])
