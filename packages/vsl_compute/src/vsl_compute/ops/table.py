"""The op table: every name that `run` understands, rows and reductions included, and which are differentiable."""

from __future__ import annotations

from ..errors import UnsupportedError
from ..rows.elementwise import ROWS
from ..rows.reductions import REDUCTIONS
from ..rows.row import Reduction, Row
from . import (
    attention,
    convolution,
    indexing,
    linear,
    losses,
    normalization,
    norms,
    pooling,
    primitives,
    recurrent,
    recurrent_steps,
    softmax,
)
from .op import Op

Entry = Row | Reduction | Op
FAMILIES = (
    primitives,
    linear,
    convolution,
    pooling,
    normalization,
    softmax,
    losses,
    indexing,
    norms,
    attention,
    recurrent_steps,
    recurrent,
)
OPS: tuple[Op, ...] = tuple(op for family in FAMILIES for op in family.OPS)
ENTRIES: tuple[Entry, ...] = (*ROWS, *REDUCTIONS, *OPS)
TABLE: dict[str, Entry] = {entry.name: entry for entry in ENTRIES}

if len(TABLE) != len(ENTRIES):
    names = [entry.name for entry in ENTRIES]
    raise AssertionError(f"op table: names defined twice: {sorted({n for n in names if names.count(n) > 1})}")


def find(name: str) -> Entry:
    """The entry of this name; UnsupportedError suggests near ones."""
    try:
        return TABLE[name]
    except KeyError:
        from difflib import get_close_matches

        near = ", ".join(get_close_matches(name, TABLE))
        remedy = f"did you mean {near}?" if near else "vsl_compute.ops.table.TABLE has them all"
        raise UnsupportedError(f"run: no op is called {name!r}; {remedy}") from None
