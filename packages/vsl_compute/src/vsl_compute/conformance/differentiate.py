"""Gradients of rows, reductions and composites as autograd takes them, on host arrays: what the gradient checks call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..ops.op import Op
from ..rows.elementwise import TABLE as ROWS
from ..rows.row import Reduction, Row
from ..validation import pullback
from ..view import View
from .placement import Array
from .subject import Subject

Function = Callable[..., Array]
Pullback = Callable[..., Sequence[Array | None]]


def _host(value: View | None) -> Array | None:
    return None if value is None else np.asarray(value.to_host())


def _outputs(y: Any) -> tuple[View, ...]:
    return y if isinstance(y, tuple) else (y,)


def row_functions(subject: Subject, row: Row, scalars: dict[str, Any]) -> tuple[Function, Pullback]:
    """(function, vjp) of an elementwise row, the vjp being its gradient rows; arguments have one shape."""

    def function(*xs: Array) -> Array:
        return np.asarray(subject.value(row, *map(subject.put, xs), **scalars))

    def vjp(covector: Array, *xs: Array) -> list[Array | None]:
        views = [subject.put(x) for x in xs]
        y = subject.run(row, *views, **scalars)
        return list(map(_host, pullback.of_row(subject.run, row, views, y, subject.put(covector), scalars)))

    return function, vjp


def grads(subject: Subject, name: str, x: Sequence[Any], g: Any, **options: Any) -> Sequence[Array | None]:
    """What each argument of a row receives from g, in float64."""
    _, vjp = row_functions(subject, ROWS[name], options)
    return vjp(np.asarray(g, np.float64), *(np.asarray(v, np.float64) for v in x))


def reduction_functions(
    subject: Subject, row: Reduction, axes: tuple[int, ...], output: int = 0
) -> tuple[Function, Pullback]:
    """(function, vjp) of one output of a reduction over `axes`."""

    def function(x: Array) -> Array:
        return np.asarray(_outputs(subject.value(row, subject.put(x), axes=axes))[output])

    def vjp(covector: Array, x: Array) -> list[Array | None]:
        view = subject.put(x)
        outputs = _outputs(subject.run(row, view, axes=axes))
        grads = [subject.put(covector) if i == output else None for i in range(len(outputs))]
        return [_host(pullback.of_reduction(subject.run, row, view, outputs, grads, axes))]

    return function, vjp


def op_functions(subject: Subject, op: Op, attributes: dict[str, Any], output: int = 0) -> tuple[Function, Pullback]:
    """(function, vjp) of one output of a primitive or composite; arguments that are None are left out."""

    def views_of(xs: Sequence[Array | None]) -> list[View | None]:
        return [None if x is None else subject.put(x) for x in xs]

    def function(*xs: Array | None) -> Array:
        return np.asarray(_outputs(subject.run(op, *views_of(xs), **attributes))[output].to_host())

    def vjp(covector: Array, *xs: Array | None) -> list[Array | None]:
        views = views_of(xs)
        outputs = _outputs(subject.run(op, *views, **attributes))
        # a saved output's gradient may be missing; the first one's is zeros where nothing flows
        grads = [
            subject.put(covector) if i == output else subject.put(np.zeros(y.shape)) if i == 0 else None
            for i, y in enumerate(outputs)
        ]
        return list(map(_host, pullback.of_op(subject.run, op, views, outputs, grads, attributes)))

    return function, vjp
