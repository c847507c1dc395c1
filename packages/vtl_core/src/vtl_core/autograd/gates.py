"""Gates: run an op on tensors, and remember how to go back through it.

`run` has dispatch.run's call shape on tensors, so the backward bodies of the op table serve both: with dispatch.run
they compute a gradient, with this one a gradient that can be differentiated again.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vsl_compute import dispatch
from vsl_compute.errors import UnsupportedError
from vsl_compute.ops.op import Op, axes_of
from vsl_compute.ops.reduction import reduce_backward, saved_by
from vsl_compute.ops.table import TABLE, Entry, find
from vsl_compute.rows.derive import gradient_row
from vsl_compute.rows.elementwise import TABLE as ROWS
from vsl_compute.rows.row import Reduction, Row
from vsl_compute.view import Layout, Shape, View

from . import node as graph
from .casting import casts
from .node import Node, Traced, Values, mode

if TYPE_CHECKING:
    from vtl_core.tensor import Tensor

Run = Callable[..., Any]
launch = dispatch.run
checked, back = dispatch.run_checked, dispatch.run_back
_NO_OPTIONS: dict[str, Any] = {}
_ALONE = (True,)
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "equal": operator.eq, "not_equal": operator.ne, "less": operator.lt, "less_equal": operator.le, "greater": operator.gt,
    "greater_equal": operator.ge,
}  # fmt: skip


def run(op: str | Entry, /, *args: Any, **attributes: Any) -> Any:
    """Run one op on tensors; numbers among the arguments adapt their dtype. One tensor back, or a tuple of them."""
    entry: Any = (TABLE.get(op) or find(op)) if type(op) is str else op
    kind = type(entry)
    if kind is Row:
        return run_row(entry, args, attributes)
    if kind is Reduction:
        if len(args) != 1 or not isinstance(args[0], Traced) or attributes.keys() - {"axes", "keepdims"}:
            return launch(
                entry, *[a.raw if isinstance(a, Traced) else a for a in args], **attributes
            )  # which says what is wrong
        return run_reduction(entry, args[0], attributes.get("axes"), attributes.get("keepdims", False))
    if kind is Op:
        return run_op(entry, args, attributes)
    raise UnsupportedError(f"run: {op!r} is neither a name nor an entry of the op table")


# rows
class RowGate:
    """Back through a row, where the arguments in `needs` want gradients: each is a row of its own, derived from the first."""

    __slots__ = ("name", "origins", "steps")
    replays = False

    def __init__(self, row: Row, needs: tuple[bool, ...]) -> None:
        self.name, (arriving, output) = row.name, row.reserved
        if len(row.gradients) != len(row.args):
            raise UnsupportedError(
                f"{row.name}: the row states no gradients; state one an argument (or None), or detach() what goes in"
            )
        flowing = [i for i, need in enumerate(needs) if need and row.gradients[i] is not None]
        derived = {i: gradient_row(row, i) for i in flowing}
        read = {name for step in derived.values() for name in step.args}
        kept = [i for i, name in enumerate(row.args) if name in read]
        place = {row.args[i]: k for k, i in enumerate(kept)} | {arriving: -1, output: len(kept)}
        self.origins = (*kept, -1) if output in read else tuple(kept)
        self.steps = tuple(
            (i, None if step.value == arriving else step, tuple(place[name] for name in step.args))
            for i, step in derived.items()
        )

    def backward(self, run: Run, node: Node, saved: Values, grads: Values, needs: Values) -> Values:
        """Run the derived row of each argument."""
        g, result = grads[0], [None] * len(needs)
        for i, step, places in self.steps:
            if needs[i]:
                result[i] = (
                    g if step is None else run(step, *[g if p < 0 else saved[p] for p in places], **node.options)
                )
        return result


_row_gates: dict[tuple[Row, tuple[bool, ...]], RowGate] = {}


def _row_gate(row: Row, needs: tuple[bool, ...]) -> RowGate:
    found = _row_gates[row, needs] = RowGate(row, needs)
    return found


def unary(row: Row, x: Traced) -> Tensor:
    """A row of one argument and no scalars."""
    if mode.narrow is not None:
        (x,) = casts(row, (x,), mode.narrow)
    raw = x.raw
    made = launch(row, raw) if graph.stage is None else graph.stage.forward(row, (x,), _NO_OPTIONS)
    result = graph.wrap(made)
    if x.tracked and mode.enabled:
        gate = _row_gates.get((row, _ALONE)) or _row_gate(row, _ALONE)
        if gate.steps:
            saved = [made if i < 0 else raw for i in gate.origins]
            result.node = Node(gate, (x.node or x,), (x.output,), saved, _NO_OPTIONS, (made.layout,))
            result.tracked = True
    return result


def binary(row: Row, a: Any, b: Any) -> Tensor:
    """A row of two arguments, tensors or numbers, at least one a tensor."""
    if mode.narrow is not None:
        a, b = casts(row, (a, b), mode.narrow)
    first, second = isinstance(a, Traced), isinstance(b, Traced)
    raws = (a.raw if first else a, b.raw if second else b)
    try:
        made = launch(row, *raws) if graph.stage is None else graph.stage.forward(row, (a, b), _NO_OPTIONS)
    except OverflowError:
        compare = _COMPARISONS.get(row.name)
        if compare is None or not (a if first else b).dtype.is_integer:
            raise
        # the number lies beyond all that the integers can be, so all are told by any of them
        x, truth = (a, compare(0, b)) if first else (b, compare(a, 0))
        return binary(ROWS["equal" if truth else "not_equal"], x, x)
    result = graph.wrap(made)
    if mode.enabled:
        first, second = first and a.tracked, second and b.tracked
        if first or second:
            needs = (first, second)
            gate = _row_gates.get((row, needs)) or _row_gate(row, needs)
            if gate.steps:
                edges = ((a.node or a) if first else None, (b.node or b) if second else None)
                places = (a.output if first else 0, b.output if second else 0)
                saved = [made if i < 0 else raws[i] for i in gate.origins]
                result.node = Node(gate, edges, places, saved, _NO_OPTIONS, (made.layout,))
                result.tracked = True
    return result


def run_row(row: Row, args: Values, attributes: dict[str, Any]) -> Tensor:
    """A row of any number of arguments."""
    if mode.narrow is not None:
        args = casts(row, args, mode.narrow)
    raws = [a.raw if isinstance(a, Traced) else a for a in args]
    made = launch(row, *raws, **attributes) if graph.stage is None else graph.stage.forward(row, args, attributes)
    result = graph.wrap(made)
    if mode.enabled:
        needs = tuple([isinstance(a, Traced) and a.tracked for a in args])
        if True in needs:
            gate = _row_gates.get((row, needs)) or _row_gate(row, needs)
            if gate.steps:
                _attach(gate, (result,), args, needs, [made if i < 0 else raws[i] for i in gate.origins], attributes)
    return result


def _attach(
    gate: Any, results: tuple[Tensor, ...], args: Values, needs: Values, saved: Values, options: dict[str, Any]
) -> None:
    edges, places = [], []
    for i, a in enumerate(args):
        if needs[i]:
            edges.append(a.node or a)
            places.append(a.output)
        else:
            edges.append(None)
            places.append(0)
    if len(results) == 1:  # the common case, written out
        result = results[0]
        layout = result.raw.layout
        if layout.dtype.kind == "f":
            result.node, result.tracked = Node(gate, edges, places, saved, options, (layout,)), True
        return
    node = Node(gate, edges, places, saved, options, tuple([result.raw.layout for result in results]))
    for k, result in enumerate(results):
        if result.raw.layout.dtype.kind == "f":
            result.node, result.output, result.tracked = node, k, True


# reductions
class ReductionGate:
    """Back through a reduction."""

    __slots__ = ("name", "names", "origins", "reduction")
    replays = False

    def __init__(self, reduction: Reduction) -> None:
        self.name, self.reduction = reduction.name, reduction
        kept = saved_by(reduction)
        self.names = tuple(name for name in "xy" if name in kept)
        self.origins = tuple(0 if name == "x" else -1 for name in self.names)

    def backward(self, run: Run, node: Node, saved: Values, grads: Values, needs: Values) -> Values:
        """What the op table says, of the views or tensors given."""
        values = dict(zip(self.names, saved, strict=True))
        shape = node.options["shape"]
        axes = axes_of(self.name, node.options["axes"], len(shape))
        return (reduce_backward(run, self.reduction, tuple(grads), values, shape=shape, axes=axes),)


_reduction_gates: dict[Reduction, ReductionGate] = {}


def _reduction_gate(reduction: Reduction) -> ReductionGate:
    found = _reduction_gates[reduction] = ReductionGate(reduction)
    return found


def run_reduction(reduction: Reduction, x: Traced, axes: int | Shape | None, keepdims: bool) -> Any:
    """A reduction over `axes` (None: all of them)."""
    if mode.narrow is not None:
        (x,) = casts(reduction, (x,), mode.narrow)
    raw = x.raw
    options = {"axes": axes, "keepdims": keepdims}
    made = launch(reduction, raw, **options) if graph.stage is None else graph.stage.forward(reduction, (x,), options)
    outputs: tuple[View, ...] = made if type(made) is tuple else (made,)
    results = tuple([graph.wrap(view) for view in outputs])
    if x.tracked and mode.enabled:
        gate = _reduction_gates.get(reduction) or _reduction_gate(reduction)
        saved = [raw if origin == 0 else outputs[0] for origin in gate.origins]
        _attach(gate, results, (x,), _ALONE, saved, {"shape": raw.layout.shape, "axes": axes})
    return results if len(results) > 1 else results[0]


# primitives and composites
class OpGate:
    """Back through an entry of the op table that has a backward body."""

    __slots__ = ("name", "names", "op", "origins", "sources")
    replays = False

    def __init__(self, op: Op) -> None:
        self.name, self.op, self.names = op.name, op, op.saves
        self.sources: list[tuple[int, str]] = []  # of each saved value: where it is found, and which attribute of it
        for text in op.saves:
            base, _, attribute = text.partition(".")
            self.sources.append((op.names.index(base) if base in op.names else -1 - op.outputs.index(base), attribute))
        self.origins = tuple(origin for origin, _ in self.sources)

    def save(self, args: Values, outputs: Values) -> list[Any]:
        """What the backward body will read."""
        saved = []
        for origin, attribute in self.sources:
            value = args[origin] if origin >= 0 else outputs[-1 - origin]
            raw = value.raw if isinstance(value, Traced) else value
            saved.append(getattr(raw, attribute) if attribute else raw)
        return saved

    def backward(self, run: Run, node: Node, saved: Values, grads: Values, needs: Values) -> Values:
        """What the op table says, of the views or tensors given."""
        body: Any = self.op.backward
        if grads[0] is None and any(
            g is not None for g in grads
        ):  # only a saved output was used: bodies expect the first
            grads = (_zeros(node.results[0], next(g for g in grads if g is not None)), *grads[1:])
        values = dict(zip(self.names, saved, strict=True))
        if run is launch:
            return back(self.op, tuple(needs), grads, values, node.options)  # type: ignore[no-any-return]
        return body(run, tuple(needs), tuple(grads), values, **node.options)  # type: ignore[no-any-return]


_op_gates: dict[Op, OpGate] = {}


def _op_gate(op: Op) -> OpGate:
    found = _op_gates[op] = OpGate(op)
    return found


def _zeros(layout: Layout, like: Any) -> Any:
    backend: Any = (like.raw if isinstance(like, Traced) else like).buffer.backend
    zeros = launch("fill", alpha=0, out=backend.allocate(Layout.of(layout.dtype, layout.shape)))
    return graph.wrap(zeros) if isinstance(like, Traced) else zeros


def run_op(op: Op, args: Values, attributes: dict[str, Any]) -> Any:
    """A primitive or a composite."""
    if mode.narrow is not None:
        args = casts(op, args, mode.narrow)
    tracked, raws, needs = False, [], []
    for a in args:
        if isinstance(a, Traced):
            raws.append(a.raw)
            needs.append(a.tracked)
            tracked = tracked or a.tracked
        else:
            raws.append(a)
            needs.append(False)
    tracked = tracked and mode.enabled
    if (tracked and op.expands) or (op.parts and graph.stage is not None):
        padded = _padded(op, args)
        body: Any = op.expands or op.forward
        return body(run, *padded, **_options(op, padded, attributes))
    if graph.stage is None:
        made, options = checked(op, *raws, **attributes)
    else:
        made, options = graph.stage.forward(op, args, attributes), None
    outputs: tuple[View, ...] = made if type(made) is tuple else (made,)
    results = tuple([graph.wrap(view) for view in outputs])
    if tracked and op.names != ("like",):  # of a `like` only shape and device are read
        if op.backward is None:
            raise UnsupportedError(f"{op.name}: has no gradient; detach() what goes in")
        if len(args) < len(op.args):
            args, needs = _padded(op, args), [*needs, *[False] * (len(op.args) - len(args))]
        gate = _op_gates.get(op) or _op_gate(op)
        _attach(
            gate,
            results,
            args,
            needs,
            gate.save(args, outputs),
            _options(op, args, attributes) if options is None else options,
        )
    return results if len(results) > 1 else results[0]


def _padded(op: Op, args: Values) -> Values:
    return args if op.is_variadic else (*args, *(None,) * (len(op.args) - len(args)))


def _options(op: Op, args: Values, attributes: dict[str, Any]) -> dict[str, Any]:
    options = {**op.attributes, **attributes}
    return op.check(args, options) if op.check is not None else options
