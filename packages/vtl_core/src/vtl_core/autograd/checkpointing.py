"""checkpoint: keep the inputs of a function, not what it computes on the way, and compute it again in backward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from vsl_compute.errors import GraphError
from vsl_compute.random import Generator

from . import node as graph
from .context import default_context
from .node import Node, Traced, Values, enable_grad, mode, no_grad


class CheckpointGate:
    """Runs the function again on its saved inputs; what comes out takes the place of what came out before."""

    name, replays = "checkpoint", True

    def __init__(self, function: Callable[..., Any], arguments: Values, generators: Sequence[Generator]) -> None:
        self.function, self.arguments, self.generators = function, arguments, generators
        self.states = [generator.state_dict() for generator in generators]
        self.places = [i for i, a in enumerate(arguments) if isinstance(a, Traced)]
        self.origins = tuple(range(len(self.places)))

    def backward(self, run: Callable[..., Any], node: Node, saved: Values, grads: Values, needs: Values) -> Values:
        """The outputs, made again from the same inputs and random numbers."""
        arguments = list(self.arguments)
        for i, tensor in zip(self.places, saved, strict=True):
            arguments[i] = tensor
        now = [generator.state_dict() for generator in self.generators]
        for generator, state in zip(self.generators, self.states, strict=True):
            generator.load_state_dict(state)
        try:
            with enable_grad():
                outputs = _tuple(self.function(*arguments))
        finally:
            for generator, state in zip(self.generators, now, strict=True):
                generator.load_state_dict(state)
        if len(outputs) != len(grads):
            raise GraphError(
                f"checkpoint: the function gave {len(grads)} tensors, and {len(outputs)} when it ran again; it must do the same each time"
            )
        return [(made, g) for made, g in zip(outputs, grads, strict=True) if g is not None and made.tracked]


def _tuple(outputs: Any) -> tuple[Any, ...]:
    return tuple(outputs) if isinstance(outputs, tuple | list) else (outputs,)


def checkpoint(function: Callable[..., Any], *inputs: Any, generators: Sequence[Generator] = ()) -> Any:
    """function(*inputs), keeping no intermediate value: backward runs the function a second time.

    The function must do the same both times; the default generator, and those in `generators`, are set back for it.
    Gradients reach the inputs and whatever else the function uses.

    Cost: one more forward pass; memory of the inputs instead of everything between
    """
    if not mode.enabled:
        return function(*inputs)
    gate = CheckpointGate(
        function, [None if isinstance(a, Traced) else a for a in inputs], [default_context().generator, *generators]
    )
    gate.places = [i for i, a in enumerate(inputs) if isinstance(a, Traced)]
    gate.origins = tuple(range(len(gate.places)))
    with no_grad():
        given = function(*inputs)
    outputs = _tuple(given)
    tensors = [inputs[i] for i in gate.places]
    edges = [(t.node or t) if t.tracked else None for t in tensors]
    results_of = tuple([y.layout for y in outputs])
    node = Node(gate, edges, [t.output for t in tensors], [t.raw for t in tensors], {}, results_of)
    results = tuple(
        graph.wrap(y.raw, y.dtype.is_floating, node, k) if y.dtype.is_floating else y for k, y in enumerate(outputs)
    )
    return results if isinstance(given, tuple | list) else results[0]
