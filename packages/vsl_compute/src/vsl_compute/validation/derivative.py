"""The gradient check: a vector-Jacobian product against differences of the function, along random directions.

<v, J u> is estimated from function values alone and compared with <vjp(v), u>. One random covector v and one
random direction u see every entry of the Jacobian at once, so a wrong factor, a missing sum over a broadcast
axis or a swapped argument shows, at the cost of a few calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
# Central differences of order 8: Fornberg 1988, "Generation of finite difference formulas", table 1.
STENCIL = ((1, 4 / 5), (2, -1 / 5), (3, 4 / 105), (4, -1 / 280))
STEPS = tuple(2.0**-k for k in range(3, 17))


def directional(function: Callable[[float], Array], step: float) -> Array:
    """Derivative of `function` at 0, from eight values around it."""
    total: Any = 0.0
    for k, weight in STENCIL:
        total = total + weight * (np.asarray(function(k * step)) - np.asarray(function(-k * step)))
    return np.asarray(total / step)


def best_directional(function: Callable[[float], Array]) -> Array:
    """The derivative at 0 by the step that changes it least when halved.

    Too large a step errs by truncation, too small a one by rounding; where two neighbouring steps agree best,
    both are least.
    """
    estimates = [directional(function, step) for step in STEPS]
    changes = []
    for first, second in pairwise(estimates):
        change = float(np.max(np.abs(first - second), initial=0.0))
        changes.append(change if np.isfinite(change) else np.inf)
    return estimates[int(np.argmin(changes)) + 1]


def check_vjp(
    function: Callable[..., Array],
    vjp: Callable[..., Sequence[Array | None]],
    inputs: Sequence[Array],
    rng: np.random.Generator,
    *,
    tolerance: float = 1e-7,
    what: str = "",
) -> float:
    """Compare `vjp` with differences of `function` at `inputs`; return the worst relative error.

    `function(*inputs)` is one float64 array, `vjp(covector, *inputs)` one gradient an input, None for an input
    that has none (an index, a mask). Inputs that are not float64 are held fixed. Each input is checked alone, so
    the message names the argument. The error is relative to the root of the sum of the squared terms of the inner
    product: a sum that happens to cancel is no excuse, and no accident either.

    Errors: AssertionError if a gradient has another shape than its input, or is off by more than `tolerance`
    """
    label = f"{what}: " if what else ""
    covector = rng.standard_normal(np.shape(function(*inputs)))
    gradients = vjp(covector, *inputs)
    assert len(gradients) == len(inputs), f"{label}{len(gradients)} gradients for {len(inputs)} inputs"
    worst = 0.0
    for index, (x, given) in enumerate(zip(inputs, gradients, strict=True)):
        if given is None or np.asarray(x).dtype != np.float64:
            continue
        gradient = np.asarray(given)
        assert gradient.shape == np.shape(x), f"{label}gradient {index} has shape {gradient.shape}, not {np.shape(x)}"
        direction = rng.standard_normal(np.shape(x))

        def moved(t: float, index: int = index, x: Array = x, direction: Array = direction) -> Array:
            return function(*inputs[:index], x + t * direction, *inputs[index + 1 :])

        wanted = covector * best_directional(moved)
        found = gradient * direction
        nearby = covector * np.nan_to_num(moved(STEPS[0]), posinf=0, neginf=0)
        noise = 1e-6 * float(
            np.sqrt(np.sum(nearby**2))
        )  # where the derivative is 0, differences leave rounding of the values
        size = max(float(np.sqrt(np.sum(wanted**2))), float(np.sqrt(np.sum(found**2))), noise, 1e-30)
        error = abs(float(np.sum(found)) - float(np.sum(wanted))) / size
        assert error <= tolerance, (
            f"{label}gradient of argument {index} is off by {error:.3g} relative, {tolerance:g} allowed: "
            f"<vjp(v), u> = {float(np.sum(found))!r}, <v, J u> = {float(np.sum(wanted))!r}"
        )
        worst = max(worst, error)
    return worst


def partial(function: Callable[..., Array], inputs: Sequence[Array], index: int) -> tuple[Array, Array]:
    """Derivative of an elementwise function in argument `index`, and where it has one: not at a kink or a step.

    Inputs are longdouble (or bool, or integer) and of one shape. Each element takes the step that changes it least.
    """

    def moved(t: float) -> Array:
        return np.asarray(function(*inputs[:index], inputs[index] + np.longdouble(t), *inputs[index + 1 :]))

    with np.errstate(all="ignore"):
        estimates = np.stack([directional(moved, step) for step in STEPS])
        changes = np.nan_to_num(np.abs(np.diff(estimates, axis=0)), nan=np.inf)
        best = np.take_along_axis(estimates[1:], np.argmin(changes, axis=0)[None], axis=0)[0]
        least = STEPS[-1] * 4
        right, left = (moved(least) - moved(0)) / least, (moved(0) - moved(-least)) / least
        smooth = np.abs(right - left) <= 1e-2 * (1 + np.abs(best))
    return best, smooth


def adjoint(
    function: Callable[..., Array], inputs: Sequence[Array | None], index: int, covector: Array, step: float
) -> Array:
    """The gradient of <covector, function(inputs)> in argument `index`, element by element.

    A step above 1/16 is for a function that is linear in the argument: one difference is exact. So are two values at a
    step below 2**-16 for one that chooses among its inputs. Others take the differences of `directional`.
    """
    x = np.asarray(inputs[index]).astype(np.longdouble)
    result, wide = np.zeros(x.shape, np.longdouble), covector.astype(np.longdouble)
    here = np.asarray(function(*inputs[:index], x, *inputs[index + 1 :])) if step > 2.0**-4 else None
    for at in np.ndindex(*x.shape):

        def moved(t: float, at: tuple[int, ...] = at) -> Array:
            place = x.copy()
            place[at] += np.longdouble(t)
            return np.asarray(function(*inputs[:index], place, *inputs[index + 1 :]))

        if here is not None:
            slope = (moved(step) - here) / np.longdouble(step)
        elif step < 2.0**-16:
            slope = (moved(step) - moved(-step)) / (2 * np.longdouble(step))
        else:
            slope = directional(moved, step)
        result[at] = np.sum(wide * slope)
    return result
