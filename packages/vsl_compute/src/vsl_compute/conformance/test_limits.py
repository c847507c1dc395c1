"""What is far out: losses of certain predictions, and gradients whose squares leave the dtype; a limit is a number, not NaN."""

from __future__ import annotations

import numpy as np
import pytest

from vsl_compute.conformance.differentiate import row_functions
from vsl_compute.conformance.subject import Subject
from vsl_compute.dtypes import DType, float32, float64
from vsl_compute.rows.elementwise import TABLE

INF = np.inf
# row, options, arguments (columns), value, and the gradient of the first argument; None where there is none to speak of
CERTAIN = [
    ("binary_cross_entropy_with_logits", {}, ([-INF, INF, -INF, INF, 3e38], [0, 1, 1, 0, 1], [3] * 5),
     [0, 0, INF, INF, 0], [0, 0, -3, 1, 0]),
    ("sigmoid_focal_loss", {"positive": 0.25, "negative": 0.75, "gamma": 2.0},
     ([-INF, INF, -INF, INF, 3e38, -3e38], [0, 1, 1, 0, 1, 0]), [0, 0, INF, INF, 0, 0], [0, 0, -0.25, 0.75, 0, 0]),
    ("sigmoid_focal_loss", {"positive": 1.0, "negative": 1.0, "gamma": 0.0},
     ([-INF, INF, -INF, INF, 1e30], [0, 1, 1, 0, 0]), [0, 0, INF, INF, 1e30], [0, 0, -1, 1, 1]),
    ("sigmoid_focal_loss", {"positive": 1.0, "negative": 1.0, "gamma": 2.0}, ([3e38, -3e38], [0, 1]), [3e38, 3e38], [1, -1]),
    ("kl_div_log", {}, ([0, -2, -INF, 3e38], [-INF, -INF, -INF, -3e38]), [0, 0, 0, 0], [0, 0, 0, 0]),
    ("kl_div", {}, ([0, -2, -INF], [0, 0, 0]), [0, 0, 0], [0, 0, 0]),
]  # fmt: skip


def found(subject: Subject, name: str, dtype: DType, xs: object, options: dict[str, float]) -> list[np.ndarray]:
    """The value, then what each argument receives from ones."""
    arrays = [np.asarray(x, dtype.name) for x in xs]
    function, vjp = row_functions(subject, TABLE[name], options)
    return [function(*arrays), *vjp(np.ones_like(arrays[0]), *arrays)]


@pytest.mark.parametrize(("name", "options", "xs", "value", "gradient"), CERTAIN)
def test_a_certain_prediction_that_is_right_costs_nothing_and_moves_nothing(
    subject, name, options, xs, value, gradient
):
    """C04, A02: 0 times an infinite logarithm is 0; one that is wrong costs infinity, or its logit, and has its slope."""
    for dtype in {float32, float64} & set(subject.floating()):
        y, g, *_ = found(subject, name, dtype, xs, options)
        np.testing.assert_allclose(y, value, rtol=1e-6, err_msg=dtype.name)
        np.testing.assert_allclose(g, gradient, rtol=1e-6, atol=1e-30, err_msg=dtype.name)


def test_targets_that_are_certain_have_finite_gradients_of_their_own(subject):
    """C04: what the second argument receives, where the logarithm it multiplies is of what is certain."""
    for dtype in {float32, float64} & set(subject.floating()):
        *_, g = found(subject, "kl_div_log", dtype, ([0, -1], [-INF, -3e38]), {})
        assert g.tolist() == [0, 0], dtype.name


@pytest.mark.parametrize(("dtype", "sizes"), [(float32, (1e-30, 1e-25, 1.0, 1e25)), (float64, (1e-200, 1.0, 1e200))])
def test_gradients_of_lengths_and_angles_hold_at_any_size(subject, dtype, sizes):
    """D09, E06: the square of the length leaves the dtype, and the gradient, which is one over the length, does not."""
    if dtype not in subject.floating():
        return
    for size in sizes:
        xs = ([3 * size, 0, -3 * size, 3 * size], [4 * size, 4 * size, 4 * size, 0])
        for name, first, second in (
            ("atan2", [4 / 25, 1 / 4, 4 / 25, 0], [-3 / 25, 0, 3 / 25, -1 / 3]),
            ("hypot", [0.6, 0, -0.6, 1], [0.8, 1, 0.8, 0]),
        ):
            scale = 1 if name == "hypot" else size
            _, a, b = found(subject, name, dtype, xs, {})
            np.testing.assert_allclose(a * scale, first, rtol=2e-6, atol=1e-12, err_msg=f"{name} {size}")
            np.testing.assert_allclose(b * scale, second, rtol=2e-6, atol=1e-12, err_msg=f"{name} {size}")


@pytest.mark.parametrize(("dtype", "size"), [(float32, 1e25), (float64, 1e200)])
def test_gradients_of_inverse_hyperbolics_hold_where_squares_overflow(subject, dtype, size):
    """A16: 1 / |x|, which is a number."""
    if dtype not in subject.floating():
        return
    for name, x in (("asinh", [size, -size]), ("acosh", [size])):
        _, g = found(subject, name, dtype, (x,), {})
        np.testing.assert_allclose(g * size, 1, rtol=2e-6, err_msg=name)


@pytest.mark.parametrize("name", ["silu", "mish", "gelu", "gelu_tanh"])
def test_gradients_of_activations_are_finite_wherever_x_is(subject, name):
    """A16: of gelu_tanh in float32 it was NaN from 1.9e19 on, where the square overflows."""
    x = [-3e38, -2e19, -1e19, -1e13, 1e13, 1e19, 2e19, 3e38, -INF, INF]
    if float32 in subject.floating():
        _, g = found(subject, name, float32, (x,), {})
        assert g.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 0, 1]
