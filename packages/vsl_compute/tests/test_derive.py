"""Derived rows: the first derivative is the written one, and every second derivative is right, also off the branch."""

from __future__ import annotations

import ast

import numpy as np
import pytest

from vsl_compute.errors import RowError
from vsl_compute.rows.derive import derivative, gradient_row
from vsl_compute.rows.elementwise import ROWS, TABLE
from vsl_compute.rows.evaluate import values
from vsl_compute.rows.row import Row, row

POINTS = 64
SCALARS = {"low": -1.3, "high": 2.1, "slope": 0.07, "alpha": 0.83, "factor": 1.25, "eps": 0.1, "k": 1,
           "beta": 0.7, "delta": 0.7, "margin": 0.5, "gamma": 1.5, "positive": 0.25, "negative": 0.75, "bound": 0.6, "value": 0.3}  # fmt: skip
WITH_GRADIENT = [(r, i) for r in ROWS for i, text in enumerate(r.gradients) if text]
IDS = [f"{r.name}.{i}" for r, i in WITH_GRADIENT]
Arrays = dict[str, np.ndarray]


def draw(r: Row) -> Arrays:
    rng = np.random.default_rng(sum(r.name.encode()))
    arrays: Arrays = {}
    for name, letter in zip(r.args, r.signature.inputs, strict=True):
        drawn = {"b": rng.random(POINTS) < 0.5, "i": rng.integers(0, 3, POINTS)}
        arrays[name] = drawn[letter] if letter in drawn else rng.uniform(*r.domain, POINTS)
    return arrays | {s: np.float64(SCALARS[s]) for s in r.scalars}


def evaluate(text: str, arrays: Arrays) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.broadcast_to(values((text,), tuple(arrays))(**arrays), (POINTS,))


def gradient(r: Row, i: int, arrays: Arrays, g: np.ndarray) -> np.ndarray:
    """What argument i receives, y being computed from the arguments."""
    g_name, y_name = r.reserved
    text = r.gradients[i]
    return np.zeros(POINTS) if text is None else evaluate(text, arrays | {g_name: g, y_name: evaluate(r.value, arrays)})


def difference(function, x: np.ndarray, direction: np.ndarray, h: float) -> np.ndarray:
    """Central difference of eighth order."""
    weights = (4 / 5, -1 / 5, 4 / 105, -1 / 280)
    return (
        sum(w * (function(x + k * h * direction) - function(x - k * h * direction)) for k, w in enumerate(weights, 1))
        / h
    )


@pytest.mark.parametrize(("r", "i"), WITH_GRADIENT, ids=IDS)
def test_derived_first_derivative_is_the_written_gradient(r: Row, i: int):
    arrays = draw(r)
    g = np.random.default_rng(1).normal(size=POINTS)
    tree = derivative(r.tree, r.args[i], ast.Name("g", ast.Load()))
    derived = 0 * g if tree is None else evaluate(ast.unparse(ast.fix_missing_locations(tree)), arrays | {"g": g})

    written = gradient(r, i, arrays, g)

    np.testing.assert_allclose(derived, written, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize(("r", "i"), WITH_GRADIENT, ids=IDS)
def test_second_derivative_is_that_of_central_differences(r: Row, i: int):
    """Along a random direction of all arguments and g, with y following the arguments: what double backward computes."""
    rng = np.random.default_rng(2)
    arrays, g = draw(r), rng.normal(size=POINTS)
    numbers = [n for n, letter in zip(r.args, r.signature.inputs, strict=True) if letter not in "bi"]
    along = {name: rng.normal(size=POINTS) for name in ("g", *numbers)}
    second = gradient_row(r, i)

    def moved(h: float) -> np.ndarray:
        there = arrays | {n: arrays[n] + h * along[n] for n in numbers}
        return gradient(r, i, there, g + h * along["g"])

    by_difference = difference(lambda h: moved(float(h)), np.float64(0), np.float64(1), 2e-4)
    known = arrays | {"g": g, "y": evaluate(r.value, arrays)}
    one = np.ones(POINTS)
    inputs = {name: known[name] for name in second.args} | {s: known[s] for s in r.scalars}
    received = {name: gradient(second, k, inputs, one) for k, name in enumerate(second.args)}
    derived = received.get("g", 0) * along["g"]
    derived = derived + sum(received[n] * along[n] for n in numbers if n in received)
    if "y" in received:
        derived = derived + sum(
            gradient(r, k, arrays, received["y"]) * along[n] for k, n in enumerate(r.args) if n in numbers
        )

    scale = np.maximum(np.abs(by_difference), np.abs(derived)) + 1
    smooth = np.abs(by_difference) < 1e3 * scale.min() * np.median(scale)  # a kink between two samples shows as 1 / h
    assert smooth.mean() > 0.9
    np.testing.assert_array_less((np.abs(derived - by_difference) / scale)[smooth], 1e-7)


def chain(r: Row, x: float, order: int) -> float:
    """The order-th derivative of a row of one argument, by repeated derivation of its value."""
    tree: ast.expr | None = r.tree
    for _ in range(order):
        tree = derivative(tree, "x", ast.Constant(1.0)) if tree is not None else None
    text = ast.unparse(ast.fix_missing_locations(tree)) if tree is not None else "0"
    return float(evaluate(text, {"x": np.full(POINTS, x)})[0])


def test_b07_higher_order_gradients_of_a_cube_and_of_tanh():
    cube = row("cube", "f>f", "x * x * x", "3 * g * x * x")

    assert [chain(cube, 2.0, order) for order in (1, 2, 3, 4)] == [12, 12, 6, 0]
    assert chain(TABLE["tanh"], 0.7, 1) == pytest.approx(0.6347395900, abs=1e-10)
    assert chain(TABLE["tanh"], 0.7, 2) == pytest.approx(-0.7672323101, abs=1e-10)


def test_gradient_rows_name_every_order_apart():
    first = gradient_row(TABLE["tanh"], 0)
    second = gradient_row(first, first.args.index("y"))

    assert (first.name, first.args, first.reserved) == ("tanh.0", ("g", "y"), ("gg", "yy"))
    assert (second.name, second.reserved) == ("tanh.0.1", ("ggg", "yyy"))
    assert set(second.args) <= {"gg", "g", "y"}
    assert gradient_row(TABLE["tanh"], 0) is first


def test_gradient_rows_carry_signature_letters_and_scalars():
    assert gradient_row(TABLE["where"], 1).signature.inputs == "fb"
    assert gradient_row(TABLE["add"], 0).signature.outputs == "f"
    assert gradient_row(TABLE["leaky_relu"], 0).scalars == ("slope",)


def test_derivative_drops_what_the_branch_not_taken_holds():
    guarded = row("root", "f>f", "sqrt(where(x > 0, x, 0))", "g")
    tree = derivative(guarded.tree, "x", ast.Name("g", ast.Load()))
    assert tree is not None

    got = evaluate(ast.unparse(ast.fix_missing_locations(tree)), {"x": np.full(POINTS, -1.0), "g": np.ones(POINTS)})

    np.testing.assert_array_equal(got, 0)


FAR = ("sigmoid", "softplus", "logsigmoid", "silu", "mish", "tanh", "gelu", "elu")


@pytest.mark.parametrize("x", [-900.0, 900.0])
@pytest.mark.parametrize("name", FAR)
def test_second_derivative_is_finite_far_out(name: str, x: float):
    r = TABLE[name]
    arrays = {"x": np.full(POINTS, x)} | {s: np.float64(SCALARS[s]) for s in r.scalars}
    second = gradient_row(r, 0)
    known = arrays | {"g": np.ones(POINTS), "y": evaluate(r.value, arrays)}

    for k in range(len(second.args)):
        got = gradient(second, k, {n: known[n] for n in (*second.args, *r.scalars)}, np.ones(POINTS))
        assert np.isfinite(got).all(), second.gradients[k]


def test_a_row_without_gradient_says_which_argument():
    with pytest.raises(RowError, match="nothing flows back to argument 'c'"):
        gradient_row(TABLE["where"], 0)
