"""Gradients of rows, reductions and composites as autograd takes them, on host arrays: what the gradient checks call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..ops.op import REQUIRED, Op
from ..ops.reduction import reduce_backward, saved_by
from ..rows.derive import gradient_row
from ..rows.row import Reduction, Row
from ..view import View
from .placement import Array
from .subject import Subject

Function = Callable[..., Array]
Pullback = Callable[..., Sequence[Array | None]]


def _host(value: Any) -> Array | None:
    return None if value is None else np.asarray(value.to_host())


def row_functions(subject: Subject, row: Row, scalars: dict[str, Any]) -> tuple[Function, Pullback]:
    """(function, vjp) of an elementwise row, the vjp being its gradient rows; arguments have one shape."""

    def function(*xs: Array) -> Array:
        return np.asarray(subject.value(row, *map(subject.put, xs), **scalars))

    def vjp(covector: Array, *xs: Array) -> list[Array | None]:
        views = dict(zip(row.args, map(subject.put, xs), strict=True))
        arriving, output = row.reserved
        views |= {arriving: subject.put(covector), output: subject.run(row, *(views[a] for a in row.args), **scalars)}
        found: list[Array | None] = []
        for index, text in enumerate(row.gradients):
            if text is None:
                found.append(None)
                continue
            derived = gradient_row(row, index)
            if not derived.args:  # a constant
                derived_value = subject.run(derived, out=subject.put(np.empty_like(covector)), **scalars)
            else:
                derived_value = subject.run(derived, *(views[a] for a in derived.args), **scalars)
            found.append(np.broadcast_to(derived_value.to_host(), np.shape(covector)).copy())
        return found

    return function, vjp


def reduction_functions(
    subject: Subject, row: Reduction, axes: tuple[int, ...], output: int = 0
) -> tuple[Function, Pullback]:
    """(function, vjp) of one output of a reduction over `axes`."""

    def function(x: Array) -> Array:
        y = subject.value(row, subject.put(x), axes=axes)
        return np.asarray(y[output] if isinstance(y, tuple) else y)

    def vjp(covector: Array, x: Array) -> list[Array | None]:
        view = subject.put(x)
        y = subject.run(row, view, axes=axes)
        outputs = y if isinstance(y, tuple) else (y,)
        grads = tuple(subject.put(covector) if i == output else None for i in range(len(outputs)))
        saved = {name: {"x": view, "y": outputs[0]}[name] for name in saved_by(row)}
        g = reduce_backward(subject.run, row, grads, saved, shape=np.shape(x), axes=axes)
        return [_host(g)]

    return function, vjp


def op_functions(subject: Subject, op: Op, attributes: dict[str, Any], output: int = 0) -> tuple[Function, Pullback]:
    """(function, vjp) of one output of a primitive or composite; arguments that are None are left out."""

    def views_of(xs: Sequence[Array | None]) -> list[View | None]:
        return [None if x is None else subject.put(x) for x in xs]

    def function(*xs: Array | None) -> Array:
        y = subject.run(op, *views_of(xs), **attributes)
        return np.asarray((y[output] if isinstance(y, tuple) else y).to_host())

    def vjp(covector: Array, *xs: Array | None) -> list[Array | None]:
        views = views_of(xs)
        y = subject.run(op, *views, **attributes)
        outputs = y if isinstance(y, tuple) else (y,)
        options = {**op.attributes, **attributes}
        assert REQUIRED not in options.values(), f"{op.name}: an option is missing"
        if op.check is not None:
            options = op.check(views, options)
        known: dict[str, Any] = {
            **dict(zip(op.names, views, strict=False)),
            **dict(zip(op.outputs, outputs, strict=True)),
        }
        for name, view in list(known.items()):
            if view is not None:
                known |= {f"{name}.shape": view.shape, f"{name}.dtype": view.dtype, f"{name}.ndim": view.ndim}
        # a saved output's gradient may be missing; the first one's is zeros where nothing flows
        grads = tuple(
            subject.put(covector) if i == output else subject.put(np.zeros(y.shape)) if i == 0 else None
            for i, y in enumerate(outputs)
        )
        needs = tuple(x is not None and np.asarray(x).dtype.kind == "f" for x in xs)
        assert op.backward is not None
        found = op.backward(subject.run, needs, grads, {name: known[name] for name in op.saves}, **options)
        return [_host(g) if need else None for g, need in zip(found, needs, strict=True)]

    return function, vjp
