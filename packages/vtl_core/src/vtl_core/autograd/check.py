"""check_gradients: is what backward computes the derivative? Decided in float64, on the default device, from values alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from vsl_compute.dispatch import asarray
from vsl_compute.dtypes import float64
from vsl_compute.errors import AttributeValueError, GraphError

from ..arguments import explain
from . import node
from .backward import grad
from .context import default_context
from .node import Traced, no_grad

Array = np.ndarray[Any, Any]


def check_gradients(
    function: Callable[..., Any],
    *inputs: Any,
    order: int = 1,
    tolerance: float = 1e-7,
    seed: int = 0,
    allow_unused: bool = False,
) -> float:
    """Compare gradients of `function` with differences of its values; return the worst relative error.

    One random covector and one random direction an input see the whole Jacobian. With order=2 the gradient itself is
    checked as a function of the inputs and of the gradient that arrives.

    Shapes: any; the function gives a tensor or several
    Dtypes: inputs of float64 are checked, others are held fixed
    Errors: AssertionError names the input and the error where it is above `tolerance`; GraphError names a float64
            input from which nothing reaches the result, unless `allow_unused`
    Cost:   some eighty calls of the function an input
    """
    from vsl_compute.validation.derivative import check_vjp  # only tests need it

    if order not in (1, 2):
        raise AttributeValueError(f"check_gradients: order={order} must be 1 or 2")
    arrays = [np.array(x.numpy() if isinstance(x, Traced) else x) for x in inputs]  # type: ignore[attr-defined]  # a Traced is a Tensor
    if not any(a.dtype == np.float64 for a in arrays):
        raise AttributeValueError("check_gradients: no input is float64; differences mean nothing in less")
    rng = np.random.default_rng(seed)
    if order == 2:
        return _check_second(function, arrays, rng, tolerance, check_vjp, allow_unused)

    def value(*given: Array) -> Array:
        with no_grad():
            return _flat(_outputs(function, _tensors(given)))

    def vjp(covector: Array, *given: Array) -> list[Array | None]:
        return _gradients(lambda *xs: _outputs(function, xs), given, covector, allow_unused)

    return check_vjp(value, vjp, arrays, rng, tolerance=tolerance, what="check_gradients")


def _check_second(
    function: Callable[..., Any],
    arrays: list[Array],
    rng: np.random.Generator,
    tolerance: float,
    check_vjp: Any,
    allow_unused: bool,
) -> float:
    with no_grad():
        outputs = _outputs(function, _tensors(arrays))
    covectors = [rng.standard_normal(y.shape) for y in outputs if y.dtype.is_floating]

    def first(*given: Any) -> list[Any]:
        """The gradients of the float64 inputs, as tensors of the graph; the last of `given` are the covectors."""
        xs, gs = given[: len(arrays)], given[len(arrays) :]
        ys = [y for y in _outputs(function, xs) if y.dtype.is_floating]
        pairs = [(y, g) for y, g in zip(ys, gs, strict=True) if y.tracked]
        wanted = [x for x in xs if x.tracked]
        found = grad([y for y, _ in pairs], wanted, [g for _, g in pairs], create_graph=True, allow_unused=True)
        if not allow_unused:
            _all_reach(xs, dict(zip(map(id, wanted), found, strict=True)))
        return [x * 0.0 if g is None else g for x, g in zip(wanted, found, strict=True)]

    def value(*given: Array) -> Array:
        return _flat(first(*_tensors(given, tracked=True)))

    def vjp(covector: Array, *given: Array) -> list[Array | None]:
        return _gradients(first, given, covector, True)  # a linear function's gradient is constant

    return float(
        check_vjp(value, vjp, [*arrays, *covectors], rng, tolerance=tolerance, what="check_gradients, second order")
    )


def _tensors(arrays: Sequence[Array], tracked: bool = False) -> list[Any]:
    backend = default_context().backend
    return [node.wrap(asarray(backend, a), tracked and a.dtype == np.float64) for a in arrays]


def _outputs(function: Callable[..., Any], tensors: Sequence[Any]) -> list[Any]:
    result = function(*tensors)
    return list(result) if isinstance(result, tuple | list) else [result]


def _flat(tensors: Sequence[Any]) -> Array:
    return np.concatenate([np.ravel(t.numpy()).astype(np.float64) for t in tensors if t.dtype.is_floating])


def _all_reach(xs: Sequence[Any], gradients: dict[int, Any]) -> None:
    for place, x in enumerate(xs):
        if x.tracked and gradients.get(id(x)) is None:
            raise GraphError(
                f"check_gradients: input {place + 1} of {len(xs)} does not reach the result, so nothing is known of its "
                "gradient; use it in the function, leave it out, or pass allow_unused=True"
            )


def _gradients(
    function: Callable[..., Any], arrays: Sequence[Array], covector: Array, allow_unused: bool
) -> list[Array | None]:
    xs = _tensors(arrays, tracked=True)
    ys = [y for y in function(*xs) if y.dtype.is_floating]
    parts, start = [], 0
    for y in ys:
        parts.append(
            node.wrap(asarray(y.raw.buffer.backend, covector[start : start + y.size].reshape(y.shape), y.dtype))
        )
        start += y.size
    pairs = [(y, g) for y, g in zip(ys, parts, strict=True) if y.tracked]
    checked = [x for x in xs if x.dtype is float64]
    gradients = grad([y for y, _ in pairs], checked, [g for _, g in pairs], allow_unused=True)
    if not allow_unused:
        _all_reach(xs, dict(zip(map(id, checked), gradients, strict=True)))
    found = iter(gradients)
    result: list[Array | None] = []
    for x in xs:
        if not x.tracked:
            result.append(None)
            continue
        g = next(found)
        result.append(np.zeros(x.shape) if g is None else g.numpy())
    return result


explain(globals())
