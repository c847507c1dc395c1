"""Hoisting: numbers that the host can evaluate are evaluated there, in float64, once."""

from __future__ import annotations

import ast

import numpy as np
import pytest

from vsl_compute.rows.expression import names_in, parse
from vsl_compute.rows.hoist import hoist, hoist_all, host_numbers


def test_one_minus_beta_keeps_its_digits():
    tree, hoisted = hoist(parse("b2 * v + (1 - b2) * g * g", ("v", "g", "b2")), ("b2",))

    numbers = dict(zip((text for _, text in hoisted), host_numbers(hoisted, {"b2": 0.999}), strict=True))
    assert ast.unparse(tree) == "h0 * v + h1 * g * g"
    assert numbers["1 - b2"] == 1 - 0.999
    assert np.float32(numbers["1 - b2"]) != np.float32(1) - np.float32(0.999)


def test_the_largest_subexpression_is_taken():
    _, hoisted = hoist(
        parse("p * (1 - lr * weight_decay) - lr * g", ("p", "g", "lr", "weight_decay")), ("lr", "weight_decay")
    )

    assert [text for _, text in hoisted] == ["1 - lr * weight_decay", "lr"]


def test_an_expression_that_occurs_twice_is_one_number():
    names = ("m", "v", "b")
    trees, hoisted = hoist_all((parse("(1 - b) * m", names), parse("(1 - b) * v", names)), ("b",))

    assert hoisted == (("h0", "1 - b"),)
    assert [ast.unparse(t) for t in trees] == ["h0 * m", "h0 * v"]


def test_constants_and_arrays_stay_in_the_kernel():
    tree, hoisted = hoist(parse("2 * 3 * x + 1", ("x",)), ())

    assert (ast.unparse(tree), hoisted) == ("2 * 3 * x + 1", ())


def test_a_condition_on_scalars_stays_while_its_sides_are_hoisted():
    tree, hoisted = hoist(parse("where(s > 0, x, s + 1)", ("x", "s")), ("s",))

    assert ast.unparse(tree) == "where(h0 > 0, x, h1)"
    assert [text for _, text in hoisted] == ["s", "s + 1"]


def test_integers_stay_exact():
    _, hoisted = hoist(parse("x + (k - 1)", ("x", "k")), ("k",))

    assert host_numbers(hoisted, {"k": 2**62 + 1}) == (2**62,)


@pytest.mark.parametrize("text", ["-expm1(t * log_b)", "sqrt(v) * log_b"])
def test_a_number_alone_is_hoisted_too(text: str):
    _, hoisted = hoist(parse(text, ("t", "v", "log_b")), ("log_b",))

    assert hoisted == (("h0", "log_b"),)


@pytest.mark.parametrize("text", ["~isnan(a)", "(a > 1) & ~isinf(a)", "(a == 0) | (b == 0)", "~(a < 1)"])
def test_a_truth_value_is_no_number_from_the_host(text):
    """What is made of one argument that is a number, as kl_div_log asks of a."""
    tree, hoisted = hoist(parse(f"where((x == 0) & ({text}), 0, x * (a + 1))", ("x", "a", "b")), ("a", "b"))
    assert "a + 1" in [found for _, found in hoisted]
    assert {found for _, found in hoisted} <= {"a + 1", "a", "b"}
    assert not {"a", "b"} & names_in(tree)
