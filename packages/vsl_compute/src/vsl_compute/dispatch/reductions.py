"""Reductions: what they come out as, which axes stay, and the state row run over the rest."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from types import NoneType
from typing import Any

from ..dtypes import DType, dtype_of, float32, int32, int64
from ..errors import AttributeValueError, DTypeError, ShapeError, UnsupportedError
from ..ops.op import axes_of
from ..program import Call
from ..rows.row import Reduction
from ..view import Layout, Shape, View, alike
from .arguments import cast, prepare_out
from .elementwise import made_ready
from .state import state


def run_reduction(row: Reduction, args: tuple[Any, ...], out: Any, attributes: dict[str, Any]) -> Any:
    """Run one reduction; see `run`."""
    if len(args) != 1 or type(args[0]) is not View:
        raise ShapeError(f"{row.name}: takes one View, given {len(args)} arguments")
    unknown = attributes.keys() - {"axes", "keepdims"}
    if unknown:
        raise AttributeValueError(
            f"{row.name}: no option is called {', '.join(sorted(unknown))}; it takes axes and keepdims"
        )
    x: View = args[0]
    if out is None and state.program is None:
        try:  # the short way: a call of these layouts was made ready
            ready = x.buffer.backend.prepared.get((row, x.layout, *attributes.items()))  # type: ignore[attr-defined]  # a Buffer's holder is its backend
        except TypeError:  # axes in a list
            ready = None
        if ready is not None and alike(attributes.values(), ready[1]):
            return ready[0](x)
    if type(given := attributes.get("axes")) not in (tuple, int, NoneType):
        attributes = attributes | {"axes": axes_of(row.name, given, x.ndim)}
    axes, keepdims = axes_of(row.name, attributes.get("axes"), x.ndim), bool(attributes.get("keepdims"))
    dtypes = reduced_dtypes(row, x.dtype)
    kept = tuple(n for i, n in enumerate(x.shape) if i not in axes)
    if not row.empty and any(x.shape[a] == 0 for a in axes):
        raise ShapeError(
            f"{row.name}: x is {x.shape} and has no element along axes {axes}; this reduction of nothing has no value"
        )
    if row.name == "max_index" and prod(x.shape[a] for a in axes) > int32.max:
        raise UnsupportedError(
            f"{row.name}: x is {x.shape}, and int32 does not number {prod(x.shape[a] for a in axes)} elements; use argmax, in int64"
        )
    backend: Any = x.buffer.backend
    backend.require_primitive("reduce", x.dtype)
    source = x if x.dtype.kind != "b" or row.booleans else cast(x, int32)
    if (row.integers == "float32" and x.dtype.is_integer) or (row.signature.inputs == "f" and x.dtype.is_integer):
        source = cast(x, float32)
    shape = tuple(1 if i in axes else n for i, n in enumerate(x.shape)) if keepdims else kept
    if out is None and source is x and state.program is None:  # seen again, all of this is known
        flat = [
            Layout.of(x.dtype, kept, tuple(s for i, s in enumerate(x.strides) if i not in axes)).like(dtype)
            for dtype in dtypes
        ]
        whole = [_keep_axes(f, shape, axes) if keepdims else f for f in flat]
        given = tuple(attributes.values())
        key = (row, x.layout, *attributes.items())
        made_ready(backend, key, lambda: (_ready(backend, row, axes, whole, flat), given))
    if out is not None:
        targets_given = (out,) if isinstance(out, View) else tuple(out)
        for target, dtype in zip(targets_given, dtypes, strict=True):
            (source,) = prepare_out(row.name, target, shape, dtype, (source,), alias=False)
            target.buffer.version += 1
        results = targets_given
    else:
        order = Layout.of(x.dtype, kept, tuple(s for i, s in enumerate(x.strides) if i not in axes))
        flats = [backend.allocate(order.like(dtype)) for dtype in dtypes]
        results = tuple(View(f.buffer, _keep_axes(f.layout, shape, axes)) if keepdims else f for f in flats)
    targets = [_drop_axes(result, axes) for result in results] if keepdims else results
    backend.reduce(row, targets, source, axes)
    if state.program is not None:
        state.program.append(Call(row, args, attributes, results))
    return results if len(results) > 1 else results[0]


def _ready(backend: Any, row: Reduction, axes: Shape, whole: Sequence[Layout], flat: Sequence[Layout]) -> Any:
    """The reduction of a checked View: outputs `whole`, which are `flat` without the reduced axes."""
    allocate, reduce, pairs = backend.allocate, backend.reduce, list(zip(whole, flat, strict=True))
    if len(pairs) == 1:
        ((kept, inner),) = pairs

        def one(x: View) -> View:
            made = allocate(kept)
            reduce(row, (made if kept is inner else View(made.buffer, inner),), x, axes)
            return made  # type: ignore[no-any-return]  # a View

        return one

    def several(x: View) -> tuple[View, ...]:
        made = [(allocate(kept), inner) for kept, inner in pairs]
        reduce(row, [v if v.layout is inner else View(v.buffer, inner) for v, inner in made], x, axes)
        return tuple([v for v, _ in made])

    return several


def reduced_dtypes(row: Reduction, dtype: DType) -> tuple[DType, ...]:
    """What a reduction of this dtype comes out as; DTypeError where it has no meaning."""
    if dtype.kind == "b" and not row.booleans:
        raise DTypeError(f"{row.name}: x is bool; cast it with astype to a number")
    if row.signature.inputs == "b":
        return (dtype_of("bool"),)
    if row.name == "max_index":
        return (dtype, int32)
    if row.name == "moments":
        stat = dtype if dtype.itemsize == 8 and dtype.is_floating else float32
        return (stat, stat)
    if row.signature.outputs == "i":
        return (int64,)
    if not dtype.is_floating:
        value = {"int64": dtype_of("uint64") if dtype.kind == "u" else int64, "same": dtype, "float32": float32}[
            row.integers
        ]
        return (float32 if row.signature.inputs == "f" else value,)
    return (dtype,)


def _keep_axes(layout: Layout, shape: Shape, axes: Shape) -> Layout:
    """The layout with the reduced axes back, of size 1."""
    strides = iter(layout.strides)
    return Layout.of(layout.dtype, shape, tuple(1 if i in axes else next(strides) for i in range(len(shape))))


def _drop_axes(view: View, axes: Shape) -> View:
    return view.slice(*(0 if i in axes else slice(None) for i in range(view.ndim)))
