"""Functions that are called with gradients on their way: on one tensor, or on several at once.

Where there is no hook nothing is paid for one: a node has one field for all who watch it, and leaves with hooks stand in a
table that a backward pass looks at once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, Self
from weakref import ref

from vsl_compute.errors import DeviceError, DTypeError, GraphError, ShapeError

from .autograd import node as graph
from .autograd.node import Node, Traced, Values, leaf_hooks, mode

if TYPE_CHECKING:
    from .autograd.backward import Walk
    from .tensor import Tensor

_numbers = count().__next__


class Hooks(OrderedDict[int, Any]):
    """Hooks in the order in which they are called, by number."""

    def arrive(self, walk: Walk, g: Any) -> Any:
        """What goes on of a gradient, a View or where it is differentiated again a tensor, after all hooks have seen it.

        They are given a copy: what they keep or change is nobody else's, though a gradient may be read in two places.
        """
        if not self:
            return g
        given = walk.run("copy", g)
        if not walk.linked:
            given = graph.wrap(given)
        for hook in tuple(self.values()):
            found = hook(given)
            if found is not None:
                _require_like("register_hook", found, given)
                given = found
        walk.shown.append(given.raw)
        return given if walk.linked else given.raw


class RemovableHandle:
    """What takes a hook off again: `handle.remove()`, or the end of `with handle:`."""

    def __init__(self, hooks: OrderedDict[int, Any], hook: Any, *, first: bool = False) -> None:
        self._hooks, self._number = ref(hooks), _numbers()
        hooks[self._number] = hook
        if first:
            hooks.move_to_end(self._number, last=False)

    def remove(self) -> None:
        """Take the hook off; nothing if it was, or what it was on is gone."""
        hooks = self._hooks()
        if hooks is not None:
            hooks.pop(self._number, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.remove()


def require_callable(op: str, hook: object) -> None:
    """TypeError for a hook that cannot be called."""
    if not callable(hook):
        raise DTypeError(f"{op}: the hook is {hook!r:.40} of type {type(hook).__name__}; give a function")


def register(tensor: Traced, hook: Callable[[Tensor], Tensor | None]) -> RemovableHandle:
    """See Tensor.register_hook."""
    require_callable("register_hook", hook)
    if not tensor.tracked:
        raise GraphError("register_hook: no gradient flows through this tensor; set requires_grad first")
    node = tensor.node
    if node is None:
        key = id(tensor)
        found = leaf_hooks.get(key)
        if found is None:
            found = leaf_hooks[key] = (ref(tensor, lambda _: leaf_hooks.pop(key, None)), Hooks())
        return RemovableHandle(found[1], hook)
    for place, watcher in node.watched or ():
        if place == tensor.output and isinstance(watcher, Hooks):
            return RemovableHandle(watcher, hook)
    hooks = Hooks()
    node.watched = [*(node.watched or ()), (tensor.output, hooks)]
    return RemovableHandle(hooks, hook)


class InterceptGate:
    """Back through several tensors at once, by a function of all their gradients."""

    __slots__ = ("back",)
    name, origins = "intercept", ()
    replays, shares, asks = False, True, True

    def __init__(self, back: Callable[[tuple[Any, ...]], Sequence[Any] | None]) -> None:
        self.back = back

    def backward(self, run: Callable[..., Any], node: Node, saved: Values, grads: Values, needs: Values) -> Values:
        """What the function gives, or what arrived."""
        linked = any(isinstance(g, Traced) for g in grads)
        given = tuple([g if g is None or linked else graph.wrap(run("copy", g)) for g in grads])
        found = self.back(given)
        if found is None:
            found = given
        for place, (g, layout) in enumerate(zip(found, node.results, strict=True)):
            if g is not None:
                _require_fits(f"intercept: gradient {place}", g, layout)
        return found if linked else [None if g is None else g.raw for g in found]


def intercept(back: Callable[[tuple[Any, ...]], Sequence[Any] | None], *tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors as they are, through which gradients flow back by way of one function of all of them.

    `back` is called once in a backward pass, with a gradient a tensor, None for one that none arrived at, and gives as
    many that go on in their place, or None to leave them as they are. Tensors through which no gradient flows come back
    themselves; so do all where gradients are not remembered.

    Errors: ShapeError, DTypeError or DeviceError, in the backward pass, for a gradient that is not like the one it replaces
    """
    if not mode.enabled or not any(t.tracked for t in tensors):
        return tensors
    edges = [(t.node or t) if t.tracked else None for t in tensors]
    results = tuple([t.raw.layout for t in tensors])
    node = Node(InterceptGate(back), edges, [t.output for t in tensors], (), {}, results)
    return tuple([graph.wrap(t.raw, True, node, k) if t.tracked else t for k, t in enumerate(tensors)])


def _require_like(op: str, found: Any, given: Tensor) -> None:
    _require_fits(f"{op}: what the hook returned", found, given.layout)
    if found.device != given.device:
        raise DeviceError(f"{op}: the hook returned a tensor on {found.device}, the gradient is on {given.device}")


def _require_fits(what: str, found: Any, layout: Any) -> None:
    if not isinstance(found, Traced):
        raise DTypeError(f"{what} is {found!r:.40} of type {type(found).__name__}; it must be a tensor, or None")
    if found.shape != layout.shape:
        raise ShapeError(f"{what} is {found.shape}; it must have the gradient's shape {layout.shape}")
    if found.dtype is not layout.dtype:
        raise DTypeError(f"{what} is {found.dtype.name}; it must have the gradient's dtype {layout.dtype.name}")
