"""Gradients of every row of the op table, first and second, against differences of its values in float64."""

from __future__ import annotations

from operator import attrgetter

import numpy as np
import pytest

import vtl_core as vtl
from vsl_compute.rows.elementwise import ROWS
from vsl_compute.rows.row import Row

OPTIONS = {"low": -1.5, "high": 1.5, "slope": 0.1, "alpha": 0.7, "eps": 1e-3, "k": 1, "factor": 1.25,
           "beta": 0.7, "delta": 0.7, "margin": 0.5, "gamma": 1.5, "positive": 0.25, "negative": 0.75, "bound": 0.6, "value": 0.3}  # fmt: skip
DIFFERENTIABLE = [row for row in ROWS if any(row.gradients) and set(row.signature.inputs) & set("fn")]
MANY = [row for row in DIFFERENTIABLE if len(row.args) > 1]
SHAPES = [((3, 4), (3, 1)), ((3, 4), (4,)), ((3, 4), ()), ((3, 1), (4,)), ((), (3, 4)), ((2, 1, 4), (3, 1))]
LAYOUTS = {
    "dense": lambda x: x,
    "transposed": lambda x: x.mT,
    "flipped": lambda x: x[::-1, ::-1],
    "stepped": lambda x: x[::2, 1::2],
    "broadcast": lambda x: x[:1].expand(3, -1),
}


def draw(row: Row, shapes: list[tuple[int, ...]], seed: int = 0) -> list[np.ndarray]:
    """Arguments inside the row's domain and away from integers, where its pieces meet."""
    rng = np.random.default_rng(seed)
    low, high = max(row.domain[0], -4), min(row.domain[1], 4)
    drawn = []
    for letter, shape in zip(row.signature.inputs, shapes, strict=True):
        if letter == "b":
            drawn.append(rng.random(shape) < 0.5)
        elif letter == "i":
            drawn.append(rng.integers(0, 3, shape))
        else:
            x = rng.uniform(low, high, shape)
            moved = np.where(np.abs(x - np.round(x)) < 0.05, np.floor(x) + 0.4, x)
            drawn.append(np.clip(moved, row.domain[0] + 1e-2, row.domain[1]) if row.domain != (-4.0, 4.0) else moved)
    return drawn


def call(row: Row):
    options = {name: OPTIONS[name] for name in row.scalars}
    return lambda *xs: vtl.apply(row, *xs, **options)


@pytest.mark.parametrize("row", DIFFERENTIABLE, ids=attrgetter("name"))
def test_gradient_of_a_row_is_its_derivative(row):
    vtl.check_gradients(call(row), *draw(row, [(3, 4)] * len(row.args)), allow_unused=None in row.gradients)


@pytest.mark.parametrize("row", DIFFERENTIABLE, ids=attrgetter("name"))
def test_gradient_of_the_gradient_of_a_row_is_its_derivative(row):
    vtl.check_gradients(call(row), *draw(row, [(3, 4)] * len(row.args)), order=2, allow_unused=None in row.gradients)


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("row", MANY, ids=attrgetter("name"))
def test_gradient_of_a_row_is_summed_over_broadcast_axes(row, shapes):
    given = [shapes[i % 2] for i in range(len(row.args))]

    vtl.check_gradients(call(row), *draw(row, given), allow_unused=None in row.gradients)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("row", DIFFERENTIABLE, ids=attrgetter("name"))
def test_gradient_of_a_row_goes_back_through_any_layout(row, layout):
    lay = LAYOUTS[layout]

    vtl.check_gradients(
        lambda *xs: call(row)(*map(lay, xs)), *draw(row, [(4, 4)] * len(row.args)), allow_unused=None in row.gradients
    )


@pytest.mark.parametrize("row", [r for r in MANY if len(r.args) == 2 and not r.scalars], ids=attrgetter("name"))
def test_a_number_beside_a_tensor_has_no_gradient_and_changes_none(row):
    x, number = draw(row, [(3,)] * 2)[0], min(1.7, row.domain[1] * 0.8)
    options = {name: OPTIONS[name] for name in row.scalars}
    if row.gradients[0]:
        vtl.check_gradients(lambda a: vtl.apply(row, a, number, **options), x, order=2)
    if row.gradients[1]:
        vtl.check_gradients(lambda b: vtl.apply(row, number, b, **options), x, order=2)


@pytest.mark.parametrize("dtype", [vtl.float16, vtl.bfloat16, vtl.float32, vtl.float64], ids=attrgetter("name"))
@pytest.mark.parametrize("row", DIFFERENTIABLE, ids=attrgetter("name"))
def test_gradient_of_a_row_has_the_dtype_of_its_argument(row, dtype):
    xs = []
    for letter, array in zip(row.signature.inputs, draw(row, [(3, 4)] * len(row.args)), strict=True):
        floating = letter in "fn"
        xs.append(vtl.tensor(array, dtype=dtype if floating else None, requires_grad=floating))

    call(row)(*xs).sum().backward()

    for x, text in zip(xs, row.gradients, strict=True):
        if x.requires_grad and text is not None:
            assert x.grad.dtype is dtype
            assert x.grad.shape == x.shape


def test_rows_without_a_gradient_give_tensors_that_require_none():
    x = vtl.tensor([1.5, -2.5], requires_grad=True)

    for result in (x > 0, x == x, x // 2.0, x.isnan(), x.argmax()):
        assert not result.requires_grad


@pytest.mark.parametrize("wide", [vtl.float64, vtl.float32], ids=attrgetter("name"))
def test_mixed_dtypes_bring_each_gradient_back_to_its_own(wide):
    a, b = (
        vtl.tensor([1.0, 2.0], dtype=vtl.float16, requires_grad=True),
        vtl.tensor([3.0, 4.0], dtype=wide, requires_grad=True),
    )

    (a * b).sum().backward()

    assert (a.grad.dtype, b.grad.dtype) == (vtl.float16, wide)
    assert a.grad.tolist() == [3.0, 4.0]
    assert b.grad.tolist() == [1.0, 2.0]


def test_integers_beside_floats_are_constants():
    a, i = vtl.tensor([1.5, 2.5], requires_grad=True), vtl.tensor([2, 3])

    (a * i / i.to(vtl.int32)).sum().backward()

    assert a.grad.tolist() == [1.0, 1.0]
