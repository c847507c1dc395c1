"""checkpoint: keep the inputs of a function, not what it computes on the way, and compute it again in backward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from vsl_compute.errors import GraphError
from vsl_compute.random import Generator

from ..arguments import explain
from . import node as graph
from .context import default_context
from .node import Node, Traced, Values, enable_grad, mode, no_grad


class CheckpointGate:
    """Runs the function again on its saved inputs; what comes out takes the place of what came out before."""

    name, replays = "checkpoint", True

    def __init__(self, function: Callable[..., Any], inputs: Values, generators: Sequence[Generator]) -> None:
        self.function, self.generators = function, generators
        self.narrow = mode.narrow
        self.states = [generator.state_dict() for generator in generators]
        self.places = [i for i, a in enumerate(inputs) if isinstance(a, Traced)]
        self.others = [None if isinstance(a, Traced) else a for a in inputs]  # tensors come back as saved values
        self.origins = tuple(range(len(self.places)))

    def backward(self, run: Callable[..., Any], node: Node, saved: Values, grads: Values, needs: Values) -> Values:
        """The outputs, made again from the same inputs and random numbers."""
        arguments = list(self.others)
        for i, tensor in zip(self.places, saved, strict=True):
            arguments[i] = tensor
        narrow, mode.narrow = mode.narrow, self.narrow
        now = [generator.state_dict() for generator in self.generators]
        for generator, state in zip(self.generators, self.states, strict=True):
            generator.load_state_dict(state)
        try:
            with enable_grad():
                outputs = _tensors(self.function(*arguments))
        finally:
            mode.narrow = narrow
            for generator, state in zip(self.generators, now, strict=True):
                generator.load_state_dict(state)
        if len(outputs) != len(grads):
            raise GraphError(
                f"checkpoint: the function gave {len(grads)} tensors, and {len(outputs)} when it ran again; it must do the same each time"
            )
        return [(made, g) for made, g in zip(outputs, grads, strict=True) if g is not None and made.tracked]


def _tensors(outputs: Any) -> list[Any]:
    return [y for y in (outputs if isinstance(outputs, tuple | list) else (outputs,)) if isinstance(y, Traced)]


def checkpoint(function: Callable[..., Any], *inputs: Any, generators: Sequence[Generator] = ()) -> Any:
    """function(*inputs), keeping no intermediate value: backward runs the function a second time.

    The function must do the same both times; the default generator, and those in `generators`, are set back for it.
    Gradients reach the inputs and whatever else the function uses. It gives a tensor, or a tuple of tensors and others.

    Cost: one more forward pass; memory of the inputs instead of everything between
    """
    if not mode.enabled:
        return function(*inputs)
    gate = CheckpointGate(function, inputs, [default_context().generator, *generators])
    with no_grad():
        given = function(*inputs)
    for part in given if isinstance(given, tuple | list) else (given,):
        if not isinstance(part, Traced) and _holds_tensors(part):
            raise GraphError(
                f"checkpoint: the function gave a {type(part).__name__} that holds tensors, which gradients would not flow through; "
                "return a tensor or a flat tuple of them"
            )
    outputs, tensors = _tensors(given), [inputs[i] for i in gate.places]
    edges = [(t.node or t) if t.tracked else None for t in tensors]
    results = tuple([y.layout for y in outputs])
    node = Node(gate, edges, [t.output for t in tensors], [t.raw for t in tensors], {}, results)
    made = {id(y): graph.wrap(y.raw, True, node, k) for k, y in enumerate(outputs) if y.dtype.is_floating}
    if not isinstance(given, tuple | list):
        return made.get(id(given), given)
    return tuple([made.get(id(y), y) for y in given])


def _holds_tensors(value: Any) -> bool:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, tuple | list) else ()
    return any(isinstance(part, Traced) or _holds_tensors(part) for part in parts)


explain(globals())
