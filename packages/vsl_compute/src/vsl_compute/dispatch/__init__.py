"""run(op, ...): the one door to every op. Checks, promotes, lays out, records, then calls the backend.

What a call of given layouts needs is worked out once and kept as a plan, found by the identity of the op and of the
interned layouts. Only the outermost run records: a composite's expansion runs with recording suspended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import DTypeError, ShapeError, UnsupportedError
from ..ops.op import Op
from ..ops.table import TABLE, Entry, find
from ..rows.row import Reduction, Row
from ..view import View
from .arguments import asarray, numbers_of, require_fits, upload_ahead
from .composite import run_op
from .elementwise import run_row
from .expansion import run_backward
from .reductions import reduced_dtypes, run_reduction
from .state import overrides, record
from .updates import run_update

__all__ = [
    "asarray",
    "numbers_of",
    "overrides",
    "record",
    "reduced_dtypes",
    "require_fits",
    "run",
    "run_back",
    "run_checked",
    "run_update",
    "upload_ahead",
]


def run(op: str | Entry, /, *args: Any, out: Any = None, **attributes: Any) -> Any:
    """Run one op. Views of one device in, Views out; Python scalars among the arguments adapt their dtype (NEP 50).

    `out` is a View (or one an output) of the result's shape and dtype to write into: an argument that is exactly it
    is legal for elementwise rows, one that overlaps it is copied first.
    Errors: ShapeError, DTypeError, DeviceError, AttributeValueError, UnsupportedError, each naming op, given and rule.
    """
    entry: Any = (TABLE.get(op) or find(op)) if type(op) is str else op
    kind = type(entry)
    if out is not None and kind in (Row, Reduction, Op):
        _require_views(entry, out)
    if kind is Row:
        return run_row(entry, args, out, attributes)
    if kind is Reduction:
        return run_reduction(entry, args, out, attributes)
    if kind is Op:
        return run_op(run, entry, args, out, attributes)[0]
    raise UnsupportedError(f"run: {op!r} is neither a name nor an entry of the op table")


def run_checked(op: Op, /, *args: Any, **attributes: Any) -> tuple[Any, dict[str, Any]]:
    """`run` of a primitive or composite, and its options as they were checked: what a backward pass will be given."""
    return run_op(run, op, args, None, attributes)


def run_back(
    op: Op, needs: tuple[bool, ...], grads: Sequence[Any], saved: dict[str, Any], options: dict[str, Any]
) -> Any:
    """The way back through a primitive or composite, on Views: what its backward body gives, its calls found once."""
    return run_backward(run, op, needs, grads, saved, options)


def _require_views(entry: Any, out: Any) -> None:
    wanted = 1 if type(entry) is Row else len(entry.outputs if type(entry) is Op else entry.finish)
    views = tuple(out) if wanted > 1 and isinstance(out, tuple | list) else (out,)
    for view in views:
        if not isinstance(view, View):
            raise DTypeError(
                f"{entry.name}: out is of type {type(view).__name__}; it must be a View, or a tuple of {wanted}"
            )
    if len(views) != wanted:
        raise ShapeError(f"{entry.name}: out is {len(views)} Views; the op has {wanted} outputs")
