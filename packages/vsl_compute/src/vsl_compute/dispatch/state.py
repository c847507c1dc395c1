"""Per thread: which program records, and whether overrides are used."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import GraphError
from ..program import Program


class State(threading.local):
    """What `run` looks up on each call."""

    program: Program | None = None
    overrides: bool = True


state = State()


@contextmanager
def record(program: Program) -> Iterator[Program]:
    """Append the outermost calls of this thread to `program`."""
    if state.program is not None:
        raise GraphError("record: a program is already recording in this thread; end it first")
    state.program = program
    try:
        yield program
    finally:
        state.program = None


@contextmanager
def overrides(enabled: bool) -> Iterator[None]:
    """Use backends' overrides of composites, or always their bodies (each suite runs both ways)."""
    before, state.overrides = state.overrides, enabled
    try:
        yield
    finally:
        state.overrides = before
