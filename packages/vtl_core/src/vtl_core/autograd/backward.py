"""backward: from outputs to leaves by descending sequence number, without recursion and without a list of all ops.

A node is made after the nodes of its inputs, so the one with the highest number has received all its gradients.
Gradients are let go as they are used, and so are saved values unless the graph is retained.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, ref

from vsl_compute.dispatch import run as launch
from vsl_compute.errors import DTypeError, GraphError, ShapeError
from vsl_compute.view import Buffer, Layout, View

from ..arguments import explain
from . import gates
from . import node as graph
from .broadcasting import unbroadcast
from .node import Node, Traced, leaf_hooks, mode

if TYPE_CHECKING:
    from vtl_core.tensor import Tensor


class Walk:
    """One way through the graph: with views, or (`linked`) with tensors, so that it can be differentiated again."""

    def __init__(
        self, *, linked: bool, retain: bool, useful: set[Node] | None = None, wanted: set[int] | None = None
    ) -> None:
        stage = graph.stage
        self.stage = stage if stage is not None and stage.moves_backward and not linked else None
        self.run: Any = gates.run if linked else launch if self.stage is None else self.stage.run
        self.linked, self.retain = linked, retain
        self.useful, self.wanted = (
            useful,
            wanted,
        )  # nodes on the way to `wanted` leaves (by id) and known to be, or None for all
        self.known: set[Node] = set()
        self.heap: list[tuple[int, Node]] = []
        self.pending: dict[Node, list[Any]] = {}
        self.leaves: dict[int, tuple[Tensor, Any]] = {}
        self.captured: dict[tuple[Node, int], Any] = {}
        self.stops: set[tuple[Node, int]] = set()
        self.ones: list[View] = []  # what was given to outputs, and belongs to nobody
        self.shown: list[View] = []  # what hooks were given, or gave, and may have kept

    def give(self, target: Any, place: int, g: Any) -> None:
        """Add g to what output `place` of a node, or a leaf, has received."""
        if type(target) is Node:
            grads = self.pending.get(target)
            if grads is None:
                grads = self.pending[target] = [None] * len(target.results)
                heappush(self.heap, (-target.sequence, target))
            before = grads[place]
            grads[place] = g if before is None else self.run("add", before, g)
        else:
            found = self.leaves.get(id(target))
            self.leaves[id(target)] = (target, g if found is None else self.run("add", found[1], g))

    def walk(self) -> None:
        """Go on until every gradient has arrived."""
        while self.heap:
            node = heappop(self.heap)[1]
            grads = self.pending.pop(node)
            if node.watched is not None or self.stops:
                self._keep(node, grads)
            if self.wanted is None:
                needs = [edge is not None for edge in node.edges]
            else:
                needs = [edge is not None and self._leads_on(edge) for edge in node.edges]
                if True not in needs and not node.gate.replays and any(stop is node for stop, _ in self.stops):
                    continue  # what was asked for ends here
            if node.gate.replays:
                for tensor, g in node.gate.backward(self.run, node, node.unpack_linked(), grads, needs):
                    self.give(tensor.node or tensor, tensor.output, g)
            else:
                self._pass_on(node, node.unpack_linked() if self.linked else node.unpack(), grads, needs)
            if not self.retain:
                node.release()
        if leaf_hooks:
            for key, (leaf, g) in self.leaves.items():
                if (found := leaf_hooks.get(key)) is not None:
                    self.leaves[key] = (leaf, found[1].arrive(self, g))

    def _pass_on(self, node: Node, saved: Any, grads: list[Any], needs: list[bool]) -> None:
        edges, places = node.edges, node.places
        back = node.gate.backward if self.stage is None else self.stage.backward
        for i, g in enumerate(back(self.run, node, saved, grads, needs)):
            if g is not None and (edge := edges[i]) is not None:
                place, arrived = places[i], g.layout
                wanted = edge.results[place] if type(edge) is Node else edge.raw.layout
                if arrived.shape != wanted.shape or arrived.dtype is not wanted.dtype:
                    g = unbroadcast(self.run, g, wanted)
                self.give(edge, place, g)

    def _keep(self, node: Node, grads: list[Any]) -> None:
        """Gradients that somebody asked for, of tensors that are no leaves; hooks see them first."""
        watched = node.watched or ()
        for place, watcher in watched:
            if type(watcher) is not ref and grads[place] is not None:
                grads[place] = watcher.arrive(self, grads[place])
        for place, g in enumerate(grads):
            if g is not None and (node, place) in self.stops:
                self.captured[node, place] = g
        for place, watcher in watched:
            tensor = watcher() if type(watcher) is ref else None
            if tensor is not None and grads[place] is not None:
                self.leaves[id(tensor)] = (tensor, grads[place])

    def _leads_on(self, edge: Any) -> bool:
        if type(edge) is Node:
            return self.useful is None or edge in self.useful or edge not in self.known
        return self.wanted is None or id(edge) in self.wanted


def backward(
    tensors: Sequence[Tensor], gradients: Sequence[Tensor | None], *, retain_graph: bool, create_graph: bool
) -> None:
    """Add to `.grad` of every leaf the gradient of the tensors, each weighted with its gradient (1 for a single element)."""
    walk = Walk(linked=create_graph, retain=retain_graph or create_graph)
    _start(walk, tensors, gradients, create_graph)
    if walk.stage is not None:
        walk.stage.arrived(list(walk.leaves.values()))
    seen: dict[int, Buffer] = {id(g.raw.buffer): g.raw.buffer for g in gradients if g is not None}
    seen |= {id(known.buffer): known.buffer for known in (*walk.ones, *walk.shown)}
    before, mode.enabled = mode.enabled, create_graph
    try:
        for leaf, g in walk.leaves.values():
            _accumulate(leaf, g if create_graph else graph.wrap(g), seen, create_graph)
    finally:
        mode.enabled = before


def _start(walk: Walk, tensors: Sequence[Tensor], gradients: Sequence[Tensor | None], create_graph: bool) -> None:
    before, mode.enabled = mode.enabled, create_graph
    narrow, mode.narrow = mode.narrow, None  # gradients run in the dtypes that the forward pass had
    try:
        for tensor, gradient in zip(tensors, gradients, strict=True):
            if gradient is None and not create_graph and (one := _one(tensor)) is not None:
                walk.ones.append(one)
                walk.give(tensor.node or tensor, tensor.output, one)
                continue
            seed = _seed(tensor, gradient)
            walk.give(tensor.node or tensor, tensor.output, seed if create_graph else seed.raw)
        with nullcontext() if graph.stage is None or not create_graph else graph.stage.linked():
            walk.walk()
    finally:
        mode.enabled, mode.narrow = before, narrow


def _one(tensor: Tensor) -> View | None:
    """A 1 that the device keeps, for an output of one element; nobody may write to it. None where `_seed` makes one."""
    layout, backend = tensor.raw.layout, tensor.raw.buffer.backend
    if layout.size != 1 or not tensor.tracked:
        return None
    kept = _ones.get(backend)
    if kept is None:
        kept = _ones[backend] = {}
    found = kept.get(layout)
    if found is None:
        found = kept[layout] = _seed(tensor, None).raw
    return found


_ones: WeakKeyDictionary[Any, dict[Layout, View]] = WeakKeyDictionary()


def _seed(tensor: Tensor, gradient: Tensor | None) -> Tensor:
    if not tensor.tracked:
        raise GraphError(
            "backward: this tensor does not require gradients and was made from none that do; set requires_grad on an input"
        )
    raw = tensor.raw
    if gradient is None:
        if raw.size != 1:
            raise ShapeError(
                f"backward: the tensor is {raw.shape}, and without gradient= it must have one element; sum it, or give a gradient"
            )
        backend: Any = raw.buffer.backend
        return graph.wrap(launch("fill", alpha=1, out=backend.allocate(Layout.of(raw.dtype, raw.shape))))
    if not isinstance(gradient, Traced):
        raise GraphError(
            f"backward: gradient is {gradient!r:.40} of type {type(gradient).__name__}; it must be a tensor"
        )
    if gradient.shape != raw.shape:
        raise ShapeError(f"backward: gradient is {gradient.shape}, the tensor {raw.shape}; they must have one shape")
    if not gradient.dtype.is_floating:
        raise DTypeError(f"backward: gradient is {gradient.dtype.name}; it must be floating")
    return gradient if gradient.dtype is raw.dtype else gates.run("astype", gradient, dtype=raw.dtype)


def _accumulate(leaf: Tensor, g: Tensor, seen: dict[int, Buffer], create_graph: bool) -> None:
    """Into leaf.grad, which is memory of its own: what two leaves received may be one buffer, or a piece of one."""
    before = leaf._grad
    if before is None:
        leaf._grad = _own(g, seen)
    elif create_graph:
        leaf._grad = gates.run("add", before, g)
    elif graph.stage is not None:
        graph.stage.accumulate(before, g.raw)
    else:
        launch("add", before.raw, g.raw, out=before.raw)


def _own(g: Tensor, seen: dict[int, Buffer]) -> Tensor:
    """g in memory of its own, which can be written to without changing what others have received."""
    raw: View = g.raw
    if id(raw.buffer) in seen or raw.layout.nbytes != raw.buffer.nbytes or not (raw.layout.c_order or raw.is_dense):
        g = gates.run("copy", g)
    seen[id(g.raw.buffer)] = g.raw.buffer
    return g


def grad(
    outputs: Tensor | Sequence[Tensor], inputs: Tensor | Sequence[Tensor], grad_outputs: Tensor | Sequence[Tensor | None] | None = None, *,
    retain_graph: bool | None = None, create_graph: bool = False, allow_unused: bool = False,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Gradients of `outputs` with respect to `inputs`; no `.grad` is touched, and only the ways to `inputs` are walked.

    With create_graph=True the gradients are tensors of the graph, to be differentiated again.

    Shapes: a gradient an input, of its shape; `grad_outputs` likewise for outputs, not needed for single elements
    Errors: GraphError if an input was not used (allow_unused=True gives None), or the graph was used before
    """
    ys = [outputs] if isinstance(outputs, Traced) else list(outputs)
    xs = [inputs] if isinstance(inputs, Traced) else list(inputs)
    given: list[Any] = (
        [None] * len(ys)
        if grad_outputs is None
        else [grad_outputs]
        if isinstance(grad_outputs, Traced)
        else list(grad_outputs)
    )
    if len(given) != len(ys):
        raise GraphError(f"grad: {len(given)} grad_outputs for {len(ys)} outputs; give one an output, or None")
    for i, x in enumerate(xs):
        if not isinstance(x, Traced):
            raise GraphError(f"grad: input {i} is {x!r:.40} of type {type(x).__name__}; it must be a tensor")
        if not x.tracked:
            raise GraphError(f"grad: input {i} does not require gradients; create it with requires_grad=True")
    leaves = {id(x) for x in xs if x.node is None}
    stops = {(x.node, x.output) for x in xs if x.node is not None}
    retain = create_graph if retain_graph is None else retain_graph
    walk = Walk(linked=create_graph, retain=retain, wanted=leaves)
    walk.stops = stops
    walk.known, walk.useful = _ways(ys, leaves, {node for node, _ in stops})
    _start(walk, ys, given, create_graph)
    found: list[Any] = [
        walk.captured.get((x.node, x.output)) if x.node is not None else walk.leaves.get(id(x), (x, None))[1]
        for x in xs
    ]
    for i, g in enumerate(found):
        if g is None and not allow_unused:
            raise GraphError(
                f"grad: input {i}, {xs[i].shape}, was not used to compute the outputs; allow_unused=True gives None for it"
            )
    if create_graph:
        return tuple(found)
    seen = {id(v.raw.buffer): v.raw.buffer for v in given if v is not None}
    seen |= {id(known.buffer): known.buffer for known in (*walk.ones, *walk.shown)}
    with graph.no_grad():
        return tuple([None if g is None else _own(graph.wrap(g), seen) for g in found])


def _ways(outputs: Sequence[Tensor], leaves: set[int], targets: set[Node]) -> tuple[set[Node], set[Node]]:
    """All nodes behind `outputs`, and those through which a target or one of the leaves can be reached."""
    known: set[Node] = set()
    stack = [y.node for y in outputs if y.node is not None]
    while stack:
        node = stack.pop()
        if node not in known:
            known.add(node)
            stack.extend(edge for edge in node.edges if type(edge) is Node)
    useful: set[Node] = set(targets)
    for node in sorted(known, key=lambda n: n.sequence):
        used = node.saved is None  # whither it led is not known any more: it is walked, which says so
        if (used or node.gate.replays) or any(
            edge in useful if type(edge) is Node else id(edge) in leaves for edge in node.edges if edge is not None
        ):
            useful.add(node)
    return known, useful


explain(globals())
