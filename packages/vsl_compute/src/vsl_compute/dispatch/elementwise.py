"""Elementwise rows: a plan (result layout, casts) is worked out once for given layouts and found by their identity."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..backend import Scalar
from ..dtypes import DType, dtype_of, float32, int64
from ..errors import AttributeValueError, DeviceError, DTypeError, ShapeError, UnsupportedError
from ..ops.primitives import broadcast_shapes
from ..program import Call
from ..rows.row import Row
from ..view import Layout, Shape, View, packed_strides
from .arguments import SCALAR_TYPES, asarray, cast, cast_scalar, described, other_device, prepare_out, require_float
from .state import state

PLAN_LIMIT = 50_000  # a program with ever new shapes must not grow for ever
_plans: dict[tuple[Any, ...], _Plan] = {}


class _Plan:
    """What one elementwise call of given layouts needs: the result's layout and, per argument, a cast or None."""

    __slots__ = ("casts", "compute", "direct", "layout")

    def __init__(self, layout: Layout, casts: tuple[Any, ...]) -> None:
        self.layout, self.casts = layout, casts
        self.direct = not any(casts)


def run_row(row: Row, args: Sequence[Any], out: View | None, attributes: dict[str, Any]) -> View:
    """Run one row; see `run`."""
    if out is None and not attributes and state.program is None:
        try:  # the short way: a call of these layouts was made ready
            first = args[0]
            holder = first.buffer.backend
            if len(args) == 1:
                ready = holder.prepared.get((row, first.layout))
            else:
                ready = holder.prepared.get((row, *[a.layout for a in args]))
                for a in args:
                    if a.buffer.backend is not holder:
                        raise other_device(row.name, args)
        except (AttributeError, IndexError):  # a number among the arguments, or none
            ready = None
        if ready is not None:
            return ready(*args)  # type: ignore[no-any-return]  # a View
    return _run_row(row, tuple(args), out, attributes)


def _run_row(row: Row, args: tuple[Any, ...], out: View | None, attributes: dict[str, Any]) -> View:
    backend: Any = None
    key: list[Any] = [row, None]
    for a in args:
        if type(a) is View:
            if backend is None:
                key[1] = backend = a.buffer.backend
            elif a.buffer.backend is not backend:
                raise other_device(row.name, args)
            key.append(a.layout)
        else:
            key.append(type(a))
    if backend is None and type(out) is View:  # such as fill: the result alone says where and in which dtype
        key[1:2] = out.buffer.backend, out.layout
    plan = _plans.get(tuple(key))
    if plan is None:
        args = tuple(_as_argument(row.name, a, args) for a in args)
        backend = next((a.buffer.backend for a in args if type(a) is View), None)
        plan = _plan_row(row, args, out)
    elif out is None and plan.direct and not row.scalars and not attributes and state.program is None:
        if all(type(a) is View for a in args):
            made_ready(backend, (row, *key[2:]), lambda: backend.prepare(row, plan.layout, key[2:]))
        fresh: View = backend.allocate(plan.layout)  # nothing to cast, nothing to check again
        backend.elementwise(row, fresh, args, ())
        return fresh
    if row.scalars:
        if len(attributes) != len(row.scalars) or any(name not in attributes for name in row.scalars):
            raise AttributeValueError(
                f"{row.name}: takes the options {', '.join(row.scalars)}; given {', '.join(attributes) or 'none'}"
            )
        scalars: tuple[Scalar, ...] = tuple(attributes[name] for name in row.scalars)
    elif attributes:
        raise AttributeValueError(f"{row.name}: takes no options; given {', '.join(attributes)}")
    else:
        scalars = ()
    inputs: Sequence[Any] = args
    if not plan.direct:
        try:
            inputs = [a if cast is None else cast(a) for a, cast in zip(args, plan.casts, strict=True)]
        except OverflowError as error:
            if not str(error).startswith(row.name):  # float()'s own words
                require_float(row.name, *args)
            raise
    if out is None:
        if backend is None:
            raise DeviceError(f"{row.name}: no argument is a View, so there is no device to run on; give out=")
        result: View = backend.allocate(plan.layout)
    else:
        backend, result = out.buffer.backend, out
        inputs = prepare_out(row.name, out, plan.layout.shape, plan.layout.dtype, inputs)
        out.buffer.version += 1
    if scalars:
        dtype = next(
            (a.layout.dtype for a in inputs if type(a) is View and a.layout.dtype.kind != "b"), result.layout.dtype
        )
        scalars = tuple(cast_scalar(row.name, s, dtype) for s in scalars)
    backend.elementwise(row, result, inputs, scalars)
    if state.program is not None:
        state.program.append(Call(row, args, attributes, (result,)))
    return result


def made_ready(backend: Any, key: tuple[Any, ...], make: Callable[[], Any]) -> None:
    """Keep with the backend what the next call of this key takes, if it keeps such; None where there is nothing."""
    prepared = backend.prepared
    if type(prepared) is dict and key not in prepared:
        if len(prepared) > PLAN_LIMIT:
            prepared.clear()
        prepared[key] = make()


def _as_argument(op: str, a: Any, args: tuple[Any, ...]) -> Any:
    """Views and Python scalars as they are; NumPy scalars and arrays are typed, so they become Views."""
    if type(a) is View or type(a) in SCALAR_TYPES:
        return a
    if isinstance(a, np.generic | np.ndarray):
        like = next((b for b in args if type(b) is View), None)
        if like is not None and (isinstance(a, np.generic) or not a.ndim):
            return asarray(like.buffer.backend, a)  # type: ignore[arg-type]  # a Buffer's holder is its backend
    raise DTypeError(
        f"{op}: argument {described(a)} of type {type(a).__name__} is neither a View nor a number; make it a View with context.asarray"
    )


def _plan_row(row: Row, args: tuple[Any, ...], out: View | None) -> _Plan:
    if len(args) != len(row.args):
        raise ShapeError(f"{row.name}: takes {len(row.args)} arguments ({', '.join(row.args)}), given {len(args)}")
    views = [a for a in args if type(a) is View]
    dtypes = tuple(a.dtype if type(a) is View else None for a in args)
    letters = dict(row.signature.resolve(row.name, dtypes))
    kinds = {bool: "b", int: "i", float: "f"}
    for letter, a in zip(row.signature.inputs, args, strict=True):
        if type(a) is not View:
            letters[letter] = _with_scalar(row.name, letter, letters.get(letter), kinds[type(a)], row.signature.resolve)
    for letter in row.signature.outputs:
        if letter not in letters:
            if out is None:
                raise DTypeError(f"{row.name}: no argument tells the result's dtype; give out=")
            letters[letter] = out.dtype
    if not views and out is None:
        raise DeviceError(f"{row.name}: no argument is a View, so there is no device to run on; give out=")
    shape = broadcast_shapes(row.name, *(v.shape for v in views)) if views else out.shape if out is not None else ()
    dtype = letters[row.signature.outputs]
    backend: Any = (views[0] if views else out).buffer.backend  # type: ignore[union-attr]  # one of them is there, or run has raised
    for letter in dict.fromkeys(row.signature.inputs or row.signature.outputs):
        if not backend.supports_row(row, letters[letter]):
            raise UnsupportedError(
                f'{row.name}: {backend.spec} has no {letters[letter].name} for it; move the data with .to("cpu") or cast it'
            )
    casts = tuple(_caster(row.name, a, letters[letter]) for letter, a in zip(row.signature.inputs, args, strict=True))
    plan = _Plan(_result_layout(dtype, shape, views), casts)
    if len(_plans) > PLAN_LIMIT:
        _plans.clear()
    if views and (row.signature.outputs in row.signature.inputs or row.signature.outputs == "b"):
        _plans[(row, backend, *(a.layout if type(a) is View else type(a) for a in args))] = plan
    elif not views and out is not None:
        _plans[(row, backend, out.layout, *map(type, args))] = plan
    return plan


def _with_scalar(op: str, letter: str, found: DType | None, kind: str, resolve: Any) -> DType:
    """The dtype of a letter once a Python scalar of `kind` has joined it: the array's, unless it cannot hold the kind."""
    if found is None:
        found = {"b": dtype_of("bool"), "i": int64, "f": float32}[kind if letter != "f" else "f"]
    elif kind == "f" and found.is_integer:
        found = float32
    elif kind != "b" and found.kind == "b":
        found = int64 if kind == "i" else float32
    if letter == "i" and found.is_floating:
        raise DTypeError(f"{op}: a float was given where an integer is needed; cast it")
    return found


def _caster(op: str, a: Any, dtype: DType) -> Any:
    if type(a) is View:
        return None if a.dtype is dtype else lambda view: cast(view, dtype)
    if dtype.is_floating:  # what cast_scalar would do, on the path of every x * 2.0
        return None if type(a) is float else float
    return lambda value: cast_scalar(op, value, dtype)


def _result_layout(dtype: DType, shape: Shape, views: Sequence[View]) -> Layout:
    """Dense, its axes nested as in the first argument of the full shape, so that channels-last survives a ReLU."""
    for view in views:
        if view.layout.shape == shape:
            return (
                Layout.of(dtype, shape)
                if view.layout.c_order
                else Layout.of(dtype, shape, packed_strides(shape, view.strides))
            )
    return Layout.of(dtype, shape)
