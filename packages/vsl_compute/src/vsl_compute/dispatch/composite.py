"""Primitives and composites: arguments promoted letter by letter, the shape rule, then the call, override or body."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from operator import is_
from typing import Any

from ..backend import ComputeBackend
from ..dtypes import DType
from ..errors import AttributeValueError, DeviceError, DTypeError, ShapeError
from ..ops.op import REQUIRED, Op
from ..ops.table import TABLE
from ..program import Call
from ..rows.elementwise import TABLE as ROWS
from ..rows.row import Row
from ..rows.signature import Signature
from ..view import Layout, View, alike
from .arguments import SCALAR_TYPES, cast, described, other_device, prepare_out
from .elementwise import PLAN_LIMIT, made_ready, run_row
from .expansion import Expansion
from .state import state

Run = Callable[..., Any]
DRAWN = ("key", "counter")  # options that say which random words a call takes
ELEMENTWISE = ("copy", "update")  # primitives whose result may stand in place of an argument
_plans: dict[tuple[Any, ...], tuple[dict[str, Any], tuple[Layout, ...], tuple[Any, ...]]] = {}


def run_op(run: Run, op: Op, args: Sequence[Any], out: Any, attributes: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Run one primitive or composite: its result and the checked options. `run` is what a composite's body calls."""
    if out is None and state.program is None and state.overrides and "counter" not in attributes:
        try:  # the short way: a call of these layouts was made ready
            holder = args[0].buffer.backend  # the first is no optional one
            ready = holder.prepared.get((op, *[a if a is None else a.layout for a in args], *attributes.items()))
        except (AttributeError, IndexError, TypeError):  # a number among the arguments, or an option that is no key
            ready = None
        if ready is not None:
            for a in args:
                if a is not None and a.buffer.backend is not holder:
                    raise other_device(op.name, args)
            call, options, given, others = ready
            if all(map(is_, attributes.values(), given)) or alike(attributes.values(), given):
                result = call(*args)
                if result is not NotImplemented:
                    return result, options
                for other in others:
                    result = other(*args)
                    if result is not NotImplemented:
                        return result, options
    return _run_op(run, op, tuple(args), out, attributes)


def _run_op(
    run: Run, op: Op, args: tuple[Any, ...], out: Any, attributes: dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
    views, options, layouts, key = _prepared(op, args, attributes)
    backend: Any = next(v for v in views if v is not None).buffer.backend
    if key is not None and state.overrides and out is None and state.program is None:
        given = tuple(attributes.values())
        made_ready(backend, (op, *key[2:]), lambda: _make_ready(run, op, backend, views, options, layouts, given))
    if op.launch is not None:
        result = _launch(op, backend, views, options, layouts, out)
    else:
        program, state.program = state.program, None
        try:
            result = _expand(run, op, backend, views, options)
            if out is not None:
                result = _move(run, op.name, result, out)
        finally:
            state.program = program
    if state.program is not None:
        state.program.append(Call(op, tuple(views), options, result if isinstance(result, tuple) else (result,)))
    return result, options


def _make_ready(
    run: Run,
    op: Op,
    backend: Any,
    views: Sequence[Any],
    options: dict[str, Any],
    layouts: tuple[Layout, ...],
    given: Any,
) -> Any:
    """What a call of these layouts comes to, once they were checked: an override, a primitive or what a body comes to.

    With the options that a call is to have, as they were `given` when they were checked, and what takes a call that the
    first leaves: the override where that was made ready, then the body.
    """
    own = backend.prepare_op(op.name, views, options)
    ways: list[Any] = [] if own is None else [own]
    if op.launch is None:
        override = backend.override(op.name)
        if override is not None:
            ways.append(_with_options(op, override, options))
        body = _body(op, options)
        if not op.unchecked:
            ways.append(Expansion(run, body))
        else:  # hundreds of calls
            taped = backend.taped(lambda *views: body(_unchecked(run), views))
            ways += [] if taped is None else [taped]
    elif own is None and op.name != "contiguous" and not options.get("beta"):
        ways.append(_primitive(op, backend, options, layouts))
    return (ways[0], options, given, tuple(ways[1:])) if ways else None


def _body(op: Op, options: dict[str, Any]) -> Callable[[Run, Sequence[Any]], Any]:
    body, count = op.forward, 0 if op.is_variadic else len(op.args)

    def expand(run: Run, views: Sequence[Any]) -> Any:
        return body(run, *views, *(None,) * (count - len(views)), **options)  # type: ignore[misc]  # a composite has a body

    return expand


def _primitive(op: Op, backend: Any, options: dict[str, Any], layouts: tuple[Layout, ...]) -> Callable[..., Any]:
    launch: Any = op.launch
    allocate = backend.allocate

    def primitive(*views: Any) -> Any:
        outs = tuple([allocate(layout) for layout in layouts])
        launch(backend, outs, views, options)
        return outs if len(outs) > 1 else outs[0]

    return primitive


def _with_options(op: Op, override: Callable[..., Any], options: dict[str, Any]) -> Callable[..., Any]:
    if op.is_variadic:
        return lambda *views: override(*views, **options)
    count = len(op.args)
    return lambda *views: override(*views, *(None,) * (count - len(views)), **options)


def _prepared(
    op: Op, args: tuple[Any, ...], attributes: dict[str, Any]
) -> tuple[Sequence[Any], dict[str, Any], tuple[Layout, ...], tuple[Any, ...] | None]:
    """Views, checked options and, for a primitive, its outputs' layouts, from the plan where these layouts were seen before.

    Also the plan's key, (op, backend, *layouts, *options), if it was kept and the call is not a draw: the words that a draw
    takes are no part of its plan, and no second call is like it.
    """
    key: tuple[Any, ...] | None
    fixed: dict[str, Any] = attributes
    drawn: dict[str, Any] = {}
    if "counter" in attributes:
        fixed = {name: value for name, value in attributes.items() if name not in DRAWN}
        drawn = {name: value for name, value in attributes.items() if name in DRAWN}
    try:
        key = (op, args[0].buffer.backend, *[a if a is None else a.layout for a in args], *fixed.items(), *drawn)
        plan = _plans.get(key)
    except (AttributeError, IndexError, TypeError):  # a scalar argument, or an option that cannot be a key
        key, plan = None, None
    if plan is not None and alike(fixed.values(), plan[2]):
        views: Sequence[Any] = args if op.is_variadic else (*args, *(None,) * (len(op.args) - len(args)))
        backend = None
        for v in views:
            if v is not None:
                if backend is None:
                    backend = v.buffer.backend
                elif v.buffer.backend is not backend:
                    raise other_device(op.name, args)
        return (views, {**plan[0], **drawn}, plan[1], None) if drawn else (views, plan[0], plan[1], key)
    unknown = attributes.keys() - op.attributes.keys()
    if unknown:
        raise AttributeValueError(
            f"{op.name}: no option is called {', '.join(sorted(unknown))}; it takes {', '.join(op.attributes) or 'none'}"
        )
    options = {**op.attributes, **attributes}
    missing = [name for name, value in options.items() if value is REQUIRED]
    if missing:
        raise AttributeValueError(f"{op.name}: the option {', '.join(missing)} must be given")
    views = _arguments(op, args)
    if op.check is not None:
        options = op.check(views, options)
    first: Any = views[0]
    if op.launch is not None:
        first.buffer.backend.require_primitive(op.primitive, first.dtype)
    else:
        for v in views:
            if v is not None and v.dtype.is_floating:
                first.buffer.backend.require_dtype(op.name, v.dtype)
    layouts = op.infer(views, options) if op.infer is not None else ()
    for layout in layouts:
        if layout.dtype is not views[0].dtype:  # astype, random and others name a dtype of their own
            views[0].buffer.backend.require_primitive(op.primitive, layout.dtype)
    if key is not None and all(a is None or a is v for a, v in zip(args, views, strict=False)):
        if len(_plans) > PLAN_LIMIT:
            _plans.clear()
        _plans[key] = options, layouts, tuple(fixed.values())
        return views, options, layouts, None if drawn else key
    return views, options, layouts, None


def _arguments(op: Op, args: tuple[Any, ...]) -> list[Any]:
    """The arguments as Views of one device, promoted letter by letter; None for optional ones left out."""
    letters = op.signature.inputs * (len(args) if op.is_variadic else 1)
    if not op.is_variadic:
        args = (*args, *(None,) * (len(letters) - len(args)))
        if len(args) != len(letters) or any(a is None for a in args[: op.required]):
            raise ShapeError(
                f"{op.name}: takes the arguments {', '.join(op.args)}; given {sum(a is not None for a in args)}"
            )
    like = next((a for a in args if type(a) is View), None)
    if like is None:
        raise DeviceError(f"{op.name}: no argument is a View, so there is no device to run on")
    backend, views = like.buffer.backend, []
    for a in args:
        if a is not None and type(a) is not View:
            if type(a) not in SCALAR_TYPES:
                raise DTypeError(f"{op.name}: argument {described(a)} of type {type(a).__name__} is not a View")
            a = run_row(ROWS["fill"], (), backend.allocate(Layout.of(like.dtype, ())), {"alpha": a})  # type: ignore[attr-defined]  # a Buffer's holder is its backend
        elif a is not None and a.buffer.backend is not backend:
            raise other_device(op.name, args)
        views.append(a)
    if op.promotes:
        present = [(letter, v.dtype) for letter, v in zip(letters, views, strict=True) if v is not None]
        found = _resolve(op, letters, present)
        views = [
            v if v is None or v.dtype is found[letter] else cast(v, found[letter])
            for letter, v in zip(letters, views, strict=True)
        ]
    return views


def _resolve(op: Op, letters: str, present: list[tuple[str, DType]]) -> dict[str, DType]:
    names, dtypes = zip(*present, strict=True)
    return Signature("".join(names), op.signature.outputs).resolve(op.name, dtypes)


def _launch(
    op: Op,
    backend: ComputeBackend,
    views: Sequence[View],
    options: dict[str, Any],
    layouts: tuple[Layout, ...],
    out: Any,
) -> Any:
    if op.name == "contiguous" and out is None and views[0].is_contiguous:
        return views[0]
    if out is None and options.get("beta"):
        raise AttributeValueError(
            f"{op.name}: beta={options['beta']} adds to what out holds; give out=, or leave beta 0"
        )
    if out is None:
        outs: tuple[View, ...] = tuple(backend.allocate(layout) for layout in layouts)
    else:
        outs = (out,) if isinstance(out, View) else tuple(out)
        for target, layout in zip(outs, layouts, strict=True):
            dtype = target.dtype if op.primitive == "copy" else layout.dtype
            views = prepare_out(op.name, target, layout.shape, dtype, views, alias=op.primitive in ELEMENTWISE)
            target.buffer.version += 1
    op.launch(backend, outs, views, options)  # type: ignore[misc]  # a primitive has it
    return outs if len(outs) > 1 else outs[0]


def _expand(run: Run, op: Op, backend: ComputeBackend, views: Sequence[View], options: dict[str, Any]) -> Any:
    if state.overrides:
        override = backend.override(op.name)
        if override is not None:
            result = override(*views, **options)
            if result is not NotImplemented:
                return result
    return op.forward(_unchecked(run) if op.unchecked else run, *views, **options)  # type: ignore[misc]  # a composite has a body


@cache
def _unchecked(run: Run) -> Run:
    """`run` for a body whose calls fit by construction: what has `out` and no number is launched at once."""

    def launch(name: str, /, *args: Any, out: Any = None, **attributes: Any) -> Any:
        entry: Any = TABLE[name]
        if out is None or type(entry) is Row:
            if out is None or entry.scalars:
                return run(entry, *args, out=out, **attributes)
            out.buffer.version += 1
            out.buffer.backend.elementwise(entry, out, args, ())
            return out
        outs = (out,) if type(out) is View else out
        for target in outs:
            target.buffer.version += 1
        entry.launch(outs[0].buffer.backend, outs, args, {**entry.attributes, **attributes})
        return out

    return launch


def _move(run: Run, op: str, result: Any, out: Any) -> Any:
    pairs = list(
        zip((result,) if isinstance(result, View) else result, (out,) if isinstance(out, View) else out, strict=True)
    )
    for value, target in pairs:
        prepare_out(op, target, value.shape, value.dtype, ())
        if value.buffer is not target.buffer or value.offset != target.offset or value.layout is not target.layout:
            run("copy", value, out=target)
    return out
