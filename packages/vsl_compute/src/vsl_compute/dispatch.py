"""run(op, ...): the one door to every op. Checks, promotes, lays out, records, then calls the backend.

What a call of given layouts needs (result layout, casts) is worked out once and kept as a plan; a plan is found
by the identity of the op and of the interned layouts. Only the outermost run records: a composite's expansion
runs with recording suspended.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from .backend import ComputeBackend, Scalar
from .dtypes import DType, dtype_of, float32, int32, int64
from .errors import AttributeValueError, DeviceError, DTypeError, ShapeError, UnsupportedError
from .ops.op import REQUIRED, Op, axes_of
from .ops.primitives import broadcast_shapes
from .ops.table import Entry, find
from .program import Call, Program
from .rows.row import Reduction, Row, Update
from .rows.updates import TABLE as UPDATES
from .view import Layout, Shape, View, _packed


class _State(threading.local):
    """Per thread: the program that records, and whether overrides are used."""

    program: Program | None = None
    overrides: bool = True


_state = _State()
_plans: dict[tuple[Any, ...], _Plan] = {}
_PLAN_LIMIT = 50_000
_SCALAR_TYPES = (int, float, bool)


class _Plan:
    """What one elementwise call of given layouts needs: the result's layout and, per argument, a cast or None."""

    __slots__ = ("casts", "compute", "direct", "layout")

    def __init__(self, layout: Layout, casts: tuple[Any, ...]) -> None:
        self.layout, self.casts = layout, casts
        self.direct = not any(casts)


@contextmanager
def record(program: Program) -> Iterator[Program]:
    """Append the outermost calls of this thread to `program`."""
    if _state.program is not None:
        raise AttributeValueError("record: a program is already recording in this thread; end it first")
    _state.program = program
    try:
        yield program
    finally:
        _state.program = None


@contextmanager
def overrides(enabled: bool) -> Iterator[None]:
    """Use backends' overrides of composites, or always their bodies (each suite runs both ways)."""
    before, _state.overrides = _state.overrides, enabled
    try:
        yield
    finally:
        _state.overrides = before


def run(op: str | Entry, /, *args: Any, out: Any = None, **attributes: Any) -> Any:
    """Run one op. Views of one device in, Views out; Python scalars among the arguments adapt their dtype (NEP 50).

    `out` is a View (or one an output) of the result's shape and dtype to write into: an argument that is exactly it
    is legal for elementwise rows, one that overlaps it is copied first.
    Errors: ShapeError, DTypeError, DeviceError, AttributeValueError, UnsupportedError, each naming op, given and rule.
    """
    entry = find(op) if type(op) is str else op
    kind = type(entry)
    if kind is Row:
        return _run_row(entry, args, out, attributes)  # type: ignore[arg-type]  # kind says so
    if kind is Reduction:
        return _run_reduction(entry, args, out, attributes)  # type: ignore[arg-type]
    if kind is Op:
        return _run_op(entry, args, out, attributes)  # type: ignore[arg-type]
    raise UnsupportedError(f"run: {op!r} is neither a name nor an entry of the op table")


# rows
def _run_row(row: Row, args: tuple[Any, ...], out: View | None, attributes: dict[str, Any]) -> View:
    try:  # the short way: only Views, nothing to cast, nothing to check again
        plan = _plans[(row, *[a.layout for a in args])]
        if plan.direct and out is None and not attributes and _state.program is None:
            short: Any = args[0].buffer.backend
            for a in args:
                if a.buffer.backend is not short:
                    raise _other_device(row.name, args)
            fresh: View = short.allocate(plan.layout)
            short.elementwise(row, fresh, args, ())
            return fresh
    except (KeyError, AttributeError, IndexError):
        pass
    key = (row, *[a.layout if type(a) is View else type(a) for a in args])
    plan = _plans.get(key)
    if plan is None:
        args = tuple(_as_argument(row.name, a, args) for a in args)
        key = (row, *[a.layout if type(a) is View else type(a) for a in args])
        plan = _plans.get(key) or _plan_row(row, args, key, out)
    if row.scalars:
        if len(attributes) != len(row.scalars) or any(name not in attributes for name in row.scalars):
            raise AttributeValueError(f"{row.name}: takes the options {', '.join(row.scalars)}; given {', '.join(attributes) or 'none'}")
        scalars: tuple[Scalar, ...] = tuple(attributes[name] for name in row.scalars)
    elif attributes:
        raise AttributeValueError(f"{row.name}: takes no options; given {', '.join(attributes)}")
    else:
        scalars = ()
    backend: Any = None
    for a in args:
        if type(a) is View:
            if backend is None:
                backend = a.buffer.backend
            elif a.buffer.backend is not backend:
                raise _other_device(row.name, args)
    inputs: Sequence[Any] = args
    if not plan.direct:
        inputs = [a if cast is None else cast(a) for a, cast in zip(args, plan.casts, strict=True)]
    if out is None:
        if backend is None:
            raise DeviceError(f"{row.name}: no argument is a View, so there is no device to run on; give out=")
        result: View = backend.allocate(plan.layout)
    else:
        backend, result = out.buffer.backend, out
        inputs = _prepare_out(row.name, out, plan.layout.shape, plan.layout.dtype, inputs)
        out.buffer.version += 1
    if scalars:
        dtype = next((a.layout.dtype for a in inputs if type(a) is View and a.layout.dtype.kind != "b"), result.layout.dtype)
        scalars = tuple(cast_scalar(row.name, s, dtype) for s in scalars)
    backend.elementwise(row, result, inputs, scalars)
    if _state.program is not None:
        _state.program.append(Call(row, args, attributes, (result,)))
    return result


def _as_argument(op: str, a: Any, args: tuple[Any, ...]) -> Any:
    """Views and Python scalars as they are; NumPy scalars and arrays are typed, so they become Views."""
    if type(a) is View or type(a) in _SCALAR_TYPES:
        return a
    if isinstance(a, np.generic | np.ndarray):
        like = next((b for b in args if type(b) is View), None)
        if like is not None and (isinstance(a, np.generic) or not a.ndim):
            return asarray(like.buffer.backend, np.asarray(a))  # type: ignore[arg-type]  # a Buffer's holder is its backend
    raise DTypeError(f"{op}: argument {a!r:.60} of type {type(a).__name__} is neither a View nor a number; make it a View with context.asarray")


def _plan_row(row: Row, args: tuple[Any, ...], key: tuple[Any, ...], out: View | None) -> _Plan:
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
    shape = broadcast_shapes(row.name, *(v.shape for v in views)) if views else out.shape if out is not None else ()
    dtype = letters[row.signature.outputs]
    backend: Any = (views[0] if views else out).buffer.backend  # type: ignore[union-attr]  # one of them is there, or run has raised
    for letter in dict.fromkeys(row.signature.inputs or row.signature.outputs):
        if not backend.supports_row(row, letters[letter]):
            raise UnsupportedError(f'{row.name}: {backend.spec} has no {letters[letter].name} for it; move the data with .to("cpu") or cast it')
    casts = tuple(_caster(row.name, a, letters[letter]) for letter, a in zip(row.signature.inputs, args, strict=True))
    plan = _Plan(_result_layout(dtype, shape, views), casts)
    if len(_plans) > _PLAN_LIMIT:
        _plans.clear()
    if views and (row.signature.outputs in row.signature.inputs or row.signature.outputs == "b"):
        _plans[key] = plan
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
        return None if a.dtype is dtype else lambda view: run("astype", view, dtype=dtype)
    return lambda value: cast_scalar(op, value, dtype)


def cast_scalar(op: str, value: Scalar, dtype: DType) -> Scalar:
    """A Python number as the dtype takes it: OverflowError for integers that do not fit, floats round (to inf if large)."""
    if dtype.is_integer:
        if isinstance(value, float) and value != int(value):
            raise DTypeError(f"{op}: {value} is no integer, and the array is {dtype.name}; cast the array")
        if not dtype.min <= int(value) <= dtype.max:
            raise OverflowError(f"{op}: {value} does not fit {dtype.name}, which holds {dtype.min} to {dtype.max}")
        return int(value)
    return bool(value) if dtype.kind == "b" else float(value)


def _result_layout(dtype: DType, shape: Shape, views: Sequence[View]) -> Layout:
    """Dense, its axes nested as in the first argument of the full shape, so that channels-last survives a ReLU."""
    for view in views:
        if view.layout.shape == shape:
            return Layout.of(dtype, shape) if view.layout.c_order else Layout.of(dtype, shape, _packed(shape, view.strides))
    return Layout.of(dtype, shape)


def _other_device(op: str, args: Sequence[Any]) -> DeviceError:
    devices = ", ".join(a.device for a in args if type(a) is View)
    return DeviceError(f"{op}: arguments are on {devices}; move them to one device with .to(...)")


def _prepare_out(op: str, out: View, shape: Shape, dtype: DType, args: Sequence[Any], *, alias: bool = True) -> Sequence[Any]:
    """Check `out` and copy the arguments that overlap it in any way but, where `alias` allows, exactly."""
    if out.shape != shape or out.dtype is not dtype:
        raise ShapeError(f"{op}: out is {out.dtype.name}{list(out.shape)}, but the result is {dtype.name}{list(shape)}")
    if out.overlaps_itself:
        raise ShapeError(f"{op}: out has strides {out.strides} and overlaps itself; write into a dense array")
    low, high = out.extent()
    checked: list[Any] = []
    for a in args:
        if type(a) is View:
            if a.buffer.backend is not out.buffer.backend:
                raise DeviceError(f"{op}: an argument is on {a.device} and out on {out.device}; move one with .to(...)")
            if a.buffer is out.buffer and not (alias and a.layout is out.layout and a.offset == out.offset):
                first, last = a.extent()
                if first < high and low < last:
                    a = _copied(a)
        checked.append(a)
    return checked


def _copied(view: View) -> View:
    backend: Any = view.buffer.backend
    fresh: View = backend.allocate(view.layout.like(view.dtype))
    backend.copy(fresh, view)
    return fresh


# reductions
def _run_reduction(row: Reduction, args: tuple[Any, ...], out: Any, attributes: dict[str, Any]) -> Any:
    if len(args) != 1 or type(args[0]) is not View:
        raise ShapeError(f"{row.name}: takes one View, given {len(args)} arguments")
    unknown = attributes.keys() - {"axes", "keepdims"}
    if unknown:
        raise AttributeValueError(f"{row.name}: no option is called {', '.join(sorted(unknown))}; it takes axes and keepdims")
    x = args[0]
    axes, keepdims = axes_of(row.name, attributes.get("axes"), x.ndim), bool(attributes.get("keepdims"))
    dtypes = reduced_dtypes(row, x.dtype)
    kept = tuple(n for i, n in enumerate(x.shape) if i not in axes)
    if not row.empty and any(x.shape[a] == 0 for a in axes):
        raise ShapeError(f"{row.name}: x is {x.shape} and has no element along axes {axes}; this reduction of nothing has no value")
    backend: Any = x.buffer.backend
    backend.require_primitive("reduce", x.dtype)
    source = x if x.dtype.kind != "b" or row.booleans else run("astype", x, dtype=int32)
    if row.integers == "float32" and x.dtype.is_integer or (row.signature.inputs == "f" and x.dtype.is_integer):
        source = run("astype", x, dtype=float32)
    shape = tuple(1 if i in axes else n for i, n in enumerate(x.shape)) if keepdims else kept
    if out is not None:
        given = (out,) if isinstance(out, View) else tuple(out)
        for target, dtype in zip(given, dtypes, strict=True):
            (source,) = _prepare_out(row.name, target, shape, dtype, (source,), alias=False)
            target.buffer.version += 1
        results = given
    else:
        order = Layout.of(x.dtype, kept, tuple(s for i, s in enumerate(x.strides) if i not in axes))
        results = tuple(backend.allocate(order.like(dtype)) for dtype in dtypes)
        if keepdims:
            results = tuple(_keep_axes(result, shape, axes) for result in results)
    targets = [_drop_axes(result, axes) for result in results] if keepdims else results
    backend.reduce(row, targets, source, axes)
    if _state.program is not None:
        _state.program.append(Call(row, args, attributes, results))
    return results if len(results) > 1 else results[0]


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
        value = {"int64": dtype_of("uint64") if dtype.kind == "u" else int64, "same": dtype, "float32": float32}[row.integers]
        return (float32 if row.signature.inputs == "f" else value,)
    return (dtype,)


def _keep_axes(view: View, shape: Shape, axes: Shape) -> View:
    strides = iter(view.strides)
    return View(view.buffer, Layout.of(view.dtype, shape, tuple(1 if i in axes else next(strides) for i in range(len(shape)))), view.offset)


def _drop_axes(view: View, axes: Shape) -> View:
    return view.slice(*(0 if i in axes else slice(None) for i in range(view.ndim)))


# primitives and composites
def _run_op(op: Op, args: tuple[Any, ...], out: Any, attributes: dict[str, Any]) -> Any:
    unknown = attributes.keys() - op.attributes.keys()
    if unknown:
        raise AttributeValueError(f"{op.name}: no option is called {', '.join(sorted(unknown))}; it takes {', '.join(op.attributes) or 'none'}")
    options = {**op.attributes, **attributes}
    missing = [name for name, value in options.items() if value is REQUIRED]
    if missing:
        raise AttributeValueError(f"{op.name}: the option {', '.join(missing)} must be given")
    views = _arguments(op, args)
    if op.check is not None:
        options = op.check(views, options)
    backend: Any = views[0].buffer.backend
    if op.launch is not None:
        result = _launch(op, backend, views, options, out)
    else:
        program, _state.program = _state.program, None
        try:
            result = _expand(op, backend, views, options)
            if out is not None:
                result = _move(op.name, result, out)
        finally:
            _state.program = program
    if _state.program is not None:
        _state.program.append(Call(op, tuple(views), options, result if isinstance(result, tuple) else (result,)))
    return result


def _arguments(op: Op, args: tuple[Any, ...]) -> list[Any]:
    """The arguments as Views of one device, promoted letter by letter; None for optional ones left out."""
    letters = op.signature.inputs * (len(args) if op.is_variadic else 1)
    if not op.is_variadic:
        args = (*args, *(None,) * (len(letters) - len(args)))
        if len(args) != len(letters) or any(a is None for a in args[: op.required]):
            raise ShapeError(f"{op.name}: takes the arguments {', '.join(op.args)}; given {sum(a is not None for a in args)}")
    like = next((a for a in args if type(a) is View), None)
    if like is None:
        raise DeviceError(f"{op.name}: no argument is a View, so there is no device to run on")
    backend, views = like.buffer.backend, []
    for a in args:
        if a is not None and type(a) is not View:
            if type(a) not in _SCALAR_TYPES:
                raise DTypeError(f"{op.name}: argument {a!r:.60} of type {type(a).__name__} is not a View")
            a = run("fill", alpha=a, out=backend.allocate(Layout.of(like.dtype, ())))  # type: ignore[attr-defined]
        elif a is not None and a.buffer.backend is not backend:
            raise _other_device(op.name, args)
        views.append(a)
    if op.promotes:
        present = [(letter, v.dtype) for letter, v in zip(letters, views, strict=True) if v is not None]
        found = _resolve(op, letters, present)
        views = [v if v is None or v.dtype is found[letter] else run("astype", v, dtype=found[letter]) for letter, v in zip(letters, views, strict=True)]
    return views


def _resolve(op: Op, letters: str, present: list[tuple[str, DType]]) -> dict[str, DType]:
    from .rows.signature import Signature

    names, dtypes = zip(*present, strict=True)
    return Signature("".join(names), op.signature.outputs).resolve(op.name, dtypes)


def _launch(op: Op, backend: ComputeBackend, views: Sequence[View], options: dict[str, Any], out: Any) -> Any:
    backend.require_primitive(op.primitive, views[0].dtype)
    if op.name == "contiguous" and out is None and views[0].is_contiguous:
        return views[0]
    layouts = op.infer(views, options)  # type: ignore[misc]  # a primitive has both
    if out is None and options.get("beta"):
        raise AttributeValueError(f"{op.name}: beta={options['beta']} adds to what out holds; give out=, or leave beta 0")
    if out is None:
        outs: tuple[View, ...] = tuple(backend.allocate(layout) for layout in layouts)
    else:
        outs = (out,) if isinstance(out, View) else tuple(out)
        for target, layout in zip(outs, layouts, strict=True):
            dtype = target.dtype if op.primitive == "copy" else layout.dtype
            views = _prepare_out(op.name, target, layout.shape, dtype, views, alias=op.primitive == "copy")
            target.buffer.version += 1
    op.launch(backend, outs, views, options)  # type: ignore[misc]
    return outs if len(outs) > 1 else outs[0]


def _expand(op: Op, backend: ComputeBackend, views: Sequence[View], options: dict[str, Any]) -> Any:
    if _state.overrides:
        override = backend.override(op.name)
        if override is not None:
            result = override(*views, **options)
            if result is not NotImplemented:
                return result
    return op.forward(run, *views, **options)  # type: ignore[misc]  # a composite has a body


def _move(op: str, result: Any, out: Any) -> Any:
    pairs = list(zip((result,) if isinstance(result, View) else result, (out,) if isinstance(out, View) else out, strict=True))
    for value, target in pairs:
        _prepare_out(op, target, value.shape, value.dtype, ())
        if value.buffer is not target.buffer or value.offset != target.offset or value.layout is not target.layout:
            run("copy", value, out=target)
    return out


# updates, uploads
def run_update(row: str | Update, arrays: Sequence[Sequence[View]], scalars: dict[str, float]) -> None:
    """Run a fused update over tuples of arrays (one a parameter), in place; versions of what it writes go up.

    Shapes: all arrays of a tuple alike, 0-d slots apart; Dtypes: by the row's letters. Errors: as `run`.
    """
    update = UPDATES[row] if isinstance(row, str) else row
    if set(scalars) != set(update.scalars):
        raise AttributeValueError(f"{update.name}: takes the scalars {', '.join(update.scalars)}; given {', '.join(scalars) or 'none'}")
    written = [update.arrays.index(name) for name in update.written]
    for group in arrays:
        _check_update(update, group)
        for i in written:
            group[i].buffer.version += 1
    if arrays:
        backend: Any = arrays[0][0].buffer.backend
        backend.update(update, arrays, tuple(float(scalars[name]) for name in update.scalars))
    if _state.program is not None:
        _state.program.append(Call(update, tuple(map(tuple, arrays)), dict(scalars), ()))


def _check_update(update: Update, group: Sequence[View]) -> None:
    if len(group) != len(update.arrays):
        raise ShapeError(f"{update.name}: takes the arrays {', '.join(update.arrays)}; given {len(group)}")
    shape, dtypes = group[0].shape, {}
    for name, letter, view in zip(update.arrays, update.letters, group, strict=True):
        if view.buffer.backend is not group[0].buffer.backend:
            raise _other_device(update.name, group)
        if view.shape != (() if name in update.zero_d else shape):
            raise ShapeError(f"{update.name}: {name} is {view.shape}, but {update.arrays[0]} is {shape}; all must agree")
        if name not in update.zero_d and (not view.dtype.is_floating or dtypes.setdefault(letter, view.dtype) is not view.dtype):
            raise DTypeError(f"{update.name}: {name} is {view.dtype.name}, but arrays of letter {letter!r} are {dtypes.get(letter, view.dtype).name}")
        if name in update.written and view.overlaps_itself:
            raise ShapeError(f"{update.name}: {name} has strides {view.strides} and overlaps itself; it cannot be written")


def asarray(backend: ComputeBackend, array: Any, dtype: DType | str | None = None) -> View:
    """Copy a NumPy array (or what becomes one) to a fresh View; float64 Python lists become float32 by default."""
    from .dtypes import bfloat16, float64_to_bfloat16

    host = np.asarray(array)
    wanted = dtype_of(dtype) if dtype is not None else _default_dtype(array, host)
    if wanted is bfloat16:
        host = float64_to_bfloat16(host.astype(np.float64))
    elif host.dtype != wanted.storage:
        with np.errstate(all="ignore"):
            host = host.astype(wanted.storage)
    view = backend.allocate(Layout.of(wanted, host.shape))
    backend.upload(view, host)
    return view


def _default_dtype(given: Any, host: np.ndarray[Any, Any]) -> DType:
    if isinstance(given, np.ndarray | np.generic):
        return dtype_of(host.dtype)
    if host.dtype.kind == "O" or host.dtype.kind in "USMmV":
        raise DTypeError(f"asarray: {given!r:.60} is not an array of numbers; give nested lists of equal length, or a NumPy array")
    return float32 if host.dtype.kind == "f" else dtype_of(host.dtype)
