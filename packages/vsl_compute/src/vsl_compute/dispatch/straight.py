"""A watched body as one Python function: its calls one after the other, each result a local variable.

What a loop over the calls costs (finding each one's arguments in a list, looking at what kind each is) was a third of what a
replayed body costs the host, so the function's text is made once and compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..view import Layout, View


class Reference:
    """A view of what stands in a slot: the arguments first, then results as they are made. Without `layout`, the view itself."""

    __slots__ = ("layout", "moved", "slot")

    def __init__(self, slot: int, layout: Layout | None, moved: int) -> None:
        self.slot, self.layout, self.moved = slot, layout, moved


class Step(NamedTuple):
    """One call: `ready` takes its arguments if it is one that was made ready, and `done` are slots that nobody reads after it."""

    entry: Any
    ready: Callable[..., Any] | None
    args: tuple[Any, ...]
    attributes: dict[str, Any]
    out: Any
    made: tuple[int | None, ...]
    done: tuple[int, ...]


class _Text:
    """Expressions of the function, and the objects that they name."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {"View": View}

    def name(self, value: Any) -> str:
        """A name for an object."""
        if value is None:
            return "None"
        found = f"c{len(self.names)}"
        self.names[found] = value
        return found

    def of(self, value: Any) -> str:
        """What a call is given."""
        if type(value) is tuple:
            return f"({''.join(f'{self.of(v)}, ' for v in value)})"
        if type(value) is not Reference:
            return self.name(value)
        slot = f"s{value.slot}"
        if value.layout is None:
            return slot
        return f"View({slot}.buffer, {self.name(value.layout)}, {slot}.offset + {value.moved})"


def straight(run: Callable[..., Any], steps: Sequence[Step], result: Any, count: int) -> Callable[..., Any]:
    """A function of `count` arguments that makes these calls and returns `result`."""
    text, lines = _Text(), list[str]()
    general = text.name(run)
    refused = text.name(NotImplemented)
    for entry, ready, args, attributes, out, made, done in steps:
        given = "".join(f"{text.of(a)}, " for a in args)
        whole = f"{general}({text.name(entry)}, {given}out={text.of(out)}, **{text.name(attributes)})"
        if ready is None:
            lines.append(f"r = {whole}")
        else:
            lines += [f"r = {text.name(ready)}({given})", f"if r is {refused}: r = {whole}"]
        if len(made) > 1:
            lines.append(f"{', '.join('_' if slot is None else f's{slot}' for slot in made)} = r")
        elif made[0] is not None:
            lines.append(f"s{made[0]} = r")
        lines.append(" = ".join(["r", *(["_"] if len(made) > 1 else []), *(f"s{slot}" for slot in done), "None"]))
    lines.append(f"return {text.of(result)}")
    source = f"def replayed({', '.join(f's{k}' for k in range(count))}):\n" + "".join(f"    {line}\n" for line in lines)
    exec(compile(source, "<replayed body>", "exec"), text.names)  # noqa: S102  # of text that is made above, from no input
    made_function: Callable[..., Any] = text.names["replayed"]
    return made_function
