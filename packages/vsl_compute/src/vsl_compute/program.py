"""A Program: the op-level calls that dispatch made while it was recording, with the views they read and wrote."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .view import View


@dataclass(frozen=True)
class Call:
    """One op as the user (or a composite's caller) asked for it: name, arguments, options, outputs."""

    op: Any  # Row, Reduction, Op or Update
    args: tuple[Any, ...]
    attributes: dict[str, Any]
    outs: tuple[View, ...]

    def __str__(self) -> str:
        options = "".join(f", {k}={v!r}" for k, v in self.attributes.items())
        return f"{', '.join(map(_name, self.outs))} = {self.op.name}({', '.join(map(_name, self.args))}{options})"


def _name(value: object) -> str:
    if isinstance(value, View):
        return f"%{id(value.buffer) % 0xFFFF:04x}:{value.dtype.name}{list(value.shape)}"
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_name, value))}]"
    return repr(value)


@dataclass
class Program:
    """Calls in the order they ran. It owns every view that it names, so replay never writes to memory of another."""

    calls: list[Call] = field(default_factory=list)

    def append(self, call: Call) -> None:
        """Add one call; dispatch does this while the program is active."""
        self.calls.append(call)

    def replay(self, run: Callable[..., Any]) -> None:
        """Run the calls again through `run`, writing into the same outputs."""
        for call in self.calls:
            if call.outs:
                run(call.op, *call.args, out=call.outs if len(call.outs) > 1 else call.outs[0], **call.attributes)
            else:
                run(call.op, *call.args, **call.attributes)

    def __str__(self) -> str:
        return "\n".join(map(str, self.calls))

    def __len__(self) -> int:
        return len(self.calls)
