"""What `grad` and `backward` are given and give: gradients in memory of their own, and errors that say what is wrong."""

from __future__ import annotations

import numpy as np
import pytest

import vtl_core as vtl


def leaf(*values: float) -> vtl.Tensor:
    return vtl.tensor(list(values), dtype=vtl.float64, requires_grad=True)


def test_a_gradient_can_be_changed_and_no_other_changes_with_it():
    """B06, for `grad`: neither that of the other input, nor what was passed as grad_outputs."""
    a, b = leaf(1.0, 2.0), leaf(3.0, 4.0)
    of_a, of_b = vtl.grad((a + b).sum(), [a, b])
    of_a *= 10
    assert (of_a.tolist(), of_b.tolist()) == ([10, 10], [1, 1])

    seed = vtl.ones(2, dtype=vtl.float64)
    first, second = vtl.grad(a + 0.0, [a, a], [seed])
    first.mul_(10)
    assert (seed.tolist(), second.tolist()) == ([1, 1], [1, 1])


def test_a_graph_that_was_used_is_an_error_and_not_a_missing_gradient():
    """allow_unused=True says None of what was not used, never of what cannot be known any more."""
    x = leaf(2.0)
    hidden = x * x
    first, second = hidden * 3, hidden * hidden
    vtl.grad(first.sum(), [x])
    with pytest.raises(vtl.GraphError, match="already used"):
        vtl.grad(second.sum(), [x], allow_unused=True)


@pytest.mark.parametrize("gradient", [np.ones(1), 1.0, [1.0]])
def test_a_gradient_is_a_tensor(gradient):
    with pytest.raises(vtl.GraphError, match=r"backward: gradient is .* must be a tensor"):
        (leaf(1.0) * 2).backward(gradient)


def test_inputs_of_grad_are_tensors_and_its_gradients_as_many_as_outputs():
    x = leaf(1.0)
    with pytest.raises(vtl.GraphError, match="grad: input 0 is None"):
        vtl.grad(x.sum(), [None])
    with pytest.raises(vtl.GraphError, match="2 grad_outputs for 1 outputs"):
        vtl.grad([x.sum()], [x], [None, None])
