"""Bodies of composites, and their ways back, worked out once for given layouts: which calls they come to, on which views.

A body is a function of layouts and options, never of data. So the second time that it is met with these it is watched: each
call, with what it reads of the arguments and of earlier results. From then on the calls are made without it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..ops.op import Op
from ..ops.table import TABLE, find
from ..rows.row import Row
from ..view import View
from .state import state
from .straight import Reference, Step, straight

Run = Callable[..., Any]
Body = Callable[[Run, Sequence[Any]], Any]
MOST = 24  # calls of a body that is worth it; one with more waits for its device


class _Watch:
    """`run` for a body, writing down what it does."""

    def __init__(self, run: Run, inputs: Sequence[Any]) -> None:
        self._run, self.calls = run, list[tuple[Any, ...]]()
        self.slots: list[View | None] = [v if type(v) is View else None for v in inputs]
        self._places: dict[int, int] = {}
        self.shared: list[tuple[int, int, int]] = []  # arguments in the memory of an earlier one, and how far behind it
        for k, v in enumerate(self.slots):
            first = k if v is None else self._places.setdefault(id(v.buffer), k)
            if v is not None and first != k:
                self.shared.append((k, first, v.offset - inputs[first].offset))
        self.plain = True  # whether all that was read is of arguments' or of results' memory

    def __call__(self, op: Any, /, *args: Any, out: Any = None, **attributes: Any) -> Any:
        entry = (TABLE.get(op) or find(op)) if type(op) is str else op
        given, to = tuple([self.reference(a) for a in args]), _each(self.reference, out)
        result = self._run(entry, *args, out=out, **attributes)
        made = []
        for view in result if type(result) is tuple else (result,):
            known = id(view.buffer) in self._places
            made.append(None if known else len(self.slots))
            if not known:
                self._places[id(view.buffer)] = len(self.slots)
                self.slots.append(view)  # held, so that no other Buffer gets its id
        self.calls.append((entry, given, attributes, to, tuple(made), [a.layout for a in args if type(a) is View]))
        return result

    def reference(self, value: Any) -> Any:
        """What a replay finds this value by; what is no View is itself."""
        if type(value) is not View:
            return value
        slot = self._places.get(id(value.buffer))
        if slot is None:
            self.plain = False
            return value
        base: Any = self.slots[slot]
        moved = value.offset - base.offset
        return Reference(slot, None if value.layout is base.layout and not moved else value.layout, moved)


def _each(function: Callable[[Any], Any], value: Any) -> Any:
    return tuple([function(v) for v in value]) if isinstance(value, tuple | list) else function(value)


class Expansion:
    """A body with these layouts: a function of its arguments. NotImplemented where it is to be run as it is."""

    def __init__(self, run: Run, body: Body) -> None:
        self._run, self._body = run, body
        self._replayed: Callable[..., Any] | None = None
        self._shared: list[tuple[int, int, int]] = []
        self._given_up = False

    def __call__(self, *inputs: Any) -> Any:
        """Run it: watched the first time, from what was written down then."""
        if self._replayed is None:
            return NotImplemented if self._given_up else self._watched(inputs)
        for (
            k,
            first,
            moved,
        ) in self._shared:  # what was read of their memory was written down by where the first one lies
            one, other = inputs[k], inputs[first]
            if one.buffer is not other.buffer or one.offset - other.offset != moved:
                return NotImplemented
        return self._replayed(*inputs)

    def _watched(self, inputs: Sequence[Any]) -> Any:
        watch = _Watch(self._run, inputs)
        result = self._body(watch, inputs)
        found = _each(watch.reference, result)
        if len(watch.calls) > MOST or not watch.plain:
            self._given_up = True
        else:
            backend: Any = next(v for v in watch.slots if v is not None).buffer.backend
            kept = {r.slot for r in _flat(found) if type(r) is Reference}
            steps = [_step(backend, watch.calls, k, kept) for k in range(len(watch.calls))]
            self._shared, self._replayed = watch.shared, straight(self._run, steps, found, len(inputs))
        return result


def _step(backend: Any, calls: Sequence[tuple[Any, ...]], place: int, kept: set[int]) -> Step:
    entry, args, attributes, out, made, layouts = calls[place]
    read = {r.slot for call in calls[place + 1 :] for r in (*call[1], *_flat(call[3])) if type(r) is Reference}
    mine = {r.slot for r in (*args, *_flat(out)) if type(r) is Reference} | {s for s in made if s is not None}
    ready = None
    if out is None and len(layouts) == sum(a is not None for a in args):
        try:
            each = iter(layouts)
            ready = backend.prepared.get(
                (entry, *[None if a is None else next(each) for a in args], *attributes.items())
            )
        except TypeError:  # an option that is no key
            ready = None
    if ready is not None and type(entry) is not Row:
        ready = ready[0]
    return Step(entry, ready, args, attributes, out, made, tuple(sorted(mine - read - kept)))


def _flat(value: Any) -> tuple[Any, ...]:
    return value if type(value) is tuple else (value,)


def run_backward(run: Run, op: Op, needs: tuple[bool, ...], grads: Sequence[Any], saved: dict[str, Any], options: dict[str, Any]) -> Any:  # fmt: skip
    """The way back through a composite or primitive, on Views."""
    body: Any = op.backward
    first = next(g for g in grads if g is not None)
    prepared = first.buffer.backend.prepared
    drawn = "counter" in options and options["counter"] != op.attributes["counter"]  # no second call is like it
    if not drawn and type(prepared) is dict and state.program is None and state.overrides:
        values = [*grads, *saved.values()]
        try:
            key = ("backward", op, needs, *[v.layout if type(v) is View else v for v in values], *options.items())
            expansion = prepared.get(key)
        except TypeError:  # an option that is no key
            key, expansion = None, None
        if expansion is not None:
            result = expansion(*values)
            if result is not NotImplemented:
                return result
        elif key is not None and key not in prepared:
            count, names = len(grads), tuple(saved)

            def again(run: Run, values: Sequence[Any]) -> Any:
                return body(run, needs, tuple(values[:count]), dict(zip(names, values[count:], strict=True)), **options)

            prepared[key] = Expansion(run, again)
    return body(run, needs, tuple(grads), saved, **options)
