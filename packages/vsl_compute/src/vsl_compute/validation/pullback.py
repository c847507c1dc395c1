"""Gradients on the device as autograd takes them: of rows, of reductions, of primitives and composites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..ops.op import REQUIRED, Op, Run
from ..ops.reduction import reduce_backward, saved_by
from ..rows.derive import gradient_row
from ..rows.row import Reduction, Row
from ..view import Layout, View


def of_row(run: Run, row: Row, xs: Sequence[View], y: View, g: View, scalars: Mapping[str, Any]) -> list[View | None]:
    """What each argument of an elementwise row receives, by its gradient rows; all have one shape."""
    arriving, output = row.reserved
    views = {**dict(zip(row.args, xs, strict=True)), arriving: g, output: y}
    found: list[View | None] = []
    for index, text in enumerate(row.gradients):
        if text is None:
            found.append(None)
            continue
        derived = gradient_row(row, index)
        if derived.args:
            result = run(derived, *(views[a] for a in derived.args), **scalars)
        else:  # a constant
            backend: Any = g.buffer.backend
            result = run(derived, out=backend.allocate(Layout.of(g.dtype, g.shape)), **scalars)
        found.append(result.expand(g.shape))
    return found


def of_reduction(run: Run, row: Reduction, x: View, outputs: Sequence[View], grads: Sequence[View | None],
                 axes: tuple[int, ...]) -> View:  # fmt: skip
    """What x receives from the outputs of a reduction over `axes`."""
    saved = {name: {"x": x, "y": outputs[0]}[name] for name in saved_by(row)}
    result: View = reduce_backward(run, row, tuple(grads), saved, shape=x.shape, axes=axes)
    return result


def of_op(run: Run, op: Op, xs: Sequence[View | None], outputs: Sequence[View], grads: Sequence[View | None],
          attributes: Mapping[str, Any]) -> list[View | None]:  # fmt: skip
    """What each floating argument of a primitive or composite receives; None for the others and those left out."""
    options = {**op.attributes, **attributes}
    given = len(xs)
    xs = xs if op.is_variadic else [*xs, *[None] * (len(op.names) - given)]
    assert REQUIRED not in options.values(), f"{op.name}: an option is missing"
    if op.check is not None:
        options = op.check(xs, options)
    known: dict[str, Any] = {
        **dict(zip(op.names, xs, strict=False)),
        **dict(zip(op.outputs, outputs, strict=True)),
    }
    for name, view in list(known.items()):
        if view is not None:
            known |= {f"{name}.shape": view.shape, f"{name}.dtype": view.dtype, f"{name}.ndim": view.ndim}
    needs = tuple(x is not None and x.dtype.is_floating for x in xs)
    assert op.backward is not None
    found = op.backward(run, needs, tuple(grads), {name: known[name] for name in op.saves}, **options)
    return [g if need else None for g, need in zip(found, needs, strict=True)][:given]
