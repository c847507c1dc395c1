"""The gradient check sees what it should: each kind of wrong gradient fails, right ones pass to 1e-9."""

from __future__ import annotations

import numpy as np
import pytest

from vsl_compute.validation.derivative import check_vjp


def draw(*shape):
    return np.random.default_rng(list(shape)).standard_normal(shape) + 2.0


def quotient(a, b):
    return a / b


def test_a_right_gradient_passes_far_below_the_tolerance():
    def vjp(v, a, b):
        return v / b, (-v * a / b**2).sum(axis=0)

    error = check_vjp(quotient, vjp, [draw(3, 4), draw(4)], np.random.default_rng(0))

    assert error < 1e-9


@pytest.mark.parametrize(
    ("vjp", "index"),
    [
        (lambda v, a, b: (v / b, (-v * a / (2 * b)).sum(axis=0)), 1),  # 2b for b squared, as in the original
        (lambda v, a, b: (v / b, (v * a / b**2).sum(axis=0)), 1),  # sign
        (lambda v, a, b: (v / b * (1 + 1e-6), (-v * a / b**2).sum(axis=0)), 0),  # a millionth
        (lambda v, a, b: (v / b, np.roll((-v * a / b**2).sum(axis=0), 1)), 1),  # the wrong place
    ],
)
def test_a_wrong_gradient_is_caught_and_its_argument_named(vjp, index):
    with pytest.raises(AssertionError, match=f"divide: gradient of argument {index} is off by"):
        check_vjp(quotient, vjp, [draw(3, 4), draw(4)], np.random.default_rng(0), what="divide")


def test_a_gradient_not_summed_over_a_broadcast_axis_is_caught():
    """B02: the gradient must have the argument's own shape."""
    with pytest.raises(AssertionError, match=r"gradient 1 has shape \(3, 4\), not \(4,\)"):
        check_vjp(quotient, lambda v, a, b: (v / b, -v * a / b**2), [draw(3, 4), draw(4)], np.random.default_rng(0))


def test_a_gradient_of_nan_is_caught():
    with pytest.raises(AssertionError, match="off by nan"):
        check_vjp(np.sqrt, lambda v, x: (v * np.nan,), [draw(5)], np.random.default_rng(0))


def test_inputs_without_a_gradient_are_held_fixed():
    def take(x, index):
        return x[index]

    def vjp(v, x, index):
        result = np.zeros_like(x)
        np.add.at(result, index, v)
        return result, None

    check_vjp(take, vjp, [draw(4), np.array([1, 1, 3])], np.random.default_rng(0))


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_stiff_and_flat_functions_are_differentiated_alike(size):
    """The step is chosen: exp at a scale where a fixed step would err by truncation or by rounding."""
    x = draw(6)
    check_vjp(
        lambda x: size * np.exp(3 * x), lambda v, x: (v * 3 * size * np.exp(3 * x),), [x], np.random.default_rng(0)
    )
