"""Node and Traced: what autograd remembers of an op, and what it knows of a tensor.

A node holds edges to where its inputs came from (a node, or the leaf itself), and views of what its backward reads.
It never holds a tensor that is not a leaf, and no tensor that it made: so nothing refers in a circle, and memory goes
with the last reference, without the garbage collector.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import wraps
from itertools import count
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from vsl_compute.dtypes import DType
from vsl_compute.errors import DeviceError, DTypeError, GraphError, ShapeError, VersionError
from vsl_compute.view import Layout, Shape, View

if TYPE_CHECKING:
    from vtl_core.session import Session
    from vtl_core.tensor import Tensor

Values = Sequence[Any]
P = ParamSpec("P")
R = TypeVar("R")


class Mode(threading.local):
    """Per thread: whether gates remember, and the dtype that autocast runs products in."""

    enabled: bool = True
    narrow: DType | None = None


mode = Mode()
next_sequence = count().__next__


class Traced:
    """A tensor as autograd sees it.

    `raw` is the View that holds the elements; `tracked` says whether gradients flow here; `node` and `output` say which
    op made it and as which of its outputs (None for a leaf); `grad` is the gradient that backward left.
    """

    __slots__ = ("__weakref__", "_grad", "node", "output", "raw", "tracked")
    kept = False  # whether it belongs to a module's state: where stages are placed, it stays on the device while it is unchanged

    def __init__(self, raw: Any = None, tracked: bool = False, node: Node | None = None, output: int = 0) -> None:
        if type(raw) is not View:
            raise TypeError("Tensor: make one with vtl.tensor(...)")
        self.raw: View = raw
        self.tracked, self.node, self.output = tracked, node, output
        self._grad: Tensor | None = None

    @property
    def grad(self) -> Tensor | None:
        """The gradient that backward left, or None.

        Errors: on assignment, as PyTorch, DTypeError, ShapeError or DeviceError for what cannot be this tensor's gradient
        """
        return self._grad

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            if not isinstance(value, Traced):
                raise DTypeError(f"grad: a {type(value).__name__} is no tensor; wrap it: vtl.asarray(x)")
            mine, theirs = self.raw, value.raw
            if value is self:
                raise GraphError("grad: a tensor cannot be its own gradient; give a clone()")
            if theirs.shape != mine.shape:
                raise ShapeError(f"grad: the gradient is {theirs.shape}, the tensor {mine.shape}; they must be alike")
            if theirs.dtype is not mine.dtype:
                raise DTypeError(
                    f"grad: the gradient is {theirs.dtype.name}, the tensor {mine.dtype.name}; cast it with to()"
                )
            if theirs.buffer.backend is not mine.buffer.backend:
                raise DeviceError(
                    f"grad: the gradient is on {theirs.device}, the tensor on {mine.device}; move it with to()"
                )
        self._grad = value

    @property
    def layout(self) -> Layout:
        """Interned dtype, shape and strides."""
        return self.raw.layout

    @property
    def shape(self) -> Shape:
        """Sizes of the axes."""
        return self.raw.layout.shape

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self.raw.layout.dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.raw.layout.shape)


# Read without a call of a Python function: an optimizer asks every parameter for its gradient at each step.
Traced.grad = Traced.grad.getter(attrgetter("_grad"))  # type: ignore[attr-defined, method-assign]  # a property has it

# Hooks of leaves, by id(), with a weak reference to the leaf that takes them out; see hooks.py.
leaf_hooks: dict[int, tuple[Any, Any]] = {}

# What runs ops instead of dispatch, where stages of training run on a device while tensors stay on the host; None where
# nothing does. context.py puts in what looks at the environment when the first op runs.
stage: Session | None = None

# Makes a tensor of a View. tensor.py puts Tensor here: its methods are made of gates, and gates make tensors.
wrap: Callable[..., Tensor] = Traced  # type: ignore[assignment]


class Gate(Protocol):
    """What knows how to go backwards through one kind of op.

    `origins` says of each saved array whether it was input i (i) or output k (-1 - k). A gate that `replays` runs the op
    again: its backward gives tensors made again, each with the gradient that its first making received.
    """

    @property
    def name(self) -> str:
        """What messages call the op."""

    @property
    def origins(self) -> Sequence[int]:
        """Where each saved array came from."""

    @property
    def replays(self) -> bool:
        """Whether gradients go on from tensors made again, not to the inputs."""

    def backward(self, run: Callable[..., Any], node: Node, saved: Values, grads: Values, needs: Values) -> Values:
        """A gradient an input, None where nothing flows or `needs` is False; views in and out, or tensors in and out."""


class Node:
    """One op that ran while gradients were wanted.

    `edges` has, an input, the node or leaf that gradients go to (None: nowhere), `places` which output of that node it
    was, `results` the layouts of what the op made. `saved` is None once backward has used it.
    """

    __slots__ = ("edges", "gate", "options", "places", "results", "saved", "sequence", "versions", "watched")

    def __init__(
        self,
        gate: Gate,
        edges: Values,
        places: Sequence[int],
        saved: Values | None,
        options: dict[str, Any],
        results: tuple[Layout, ...],
    ) -> None:
        self.gate, self.edges, self.places = gate, edges, places
        self.saved, self.options, self.results = saved, options, results
        self.versions = [v.buffer.version if type(v) is View else -1 for v in saved] if saved else ()
        # of an output: a tensor that keeps its gradient, by a weak reference, or hooks
        self.watched: list[tuple[int, Any]] | None = None
        self.sequence = next_sequence()

    def unpack(self) -> Values:
        """The saved values; GraphError if they are gone, VersionError if one was written to since."""
        saved = self.saved
        if saved is None:
            raise GraphError(
                f"backward: the graph through {self.gate.name!r} was already used and its saved values are gone; "
                "pass retain_graph=True to the first backward to use it twice"
            )
        for value, version in zip(saved, self.versions, strict=True):
            if version >= 0 and value.buffer.version != version:
                raise VersionError(
                    f"{self.gate.name}: a {value.dtype.name}{list(value.shape)} that its backward pass needs was changed in place "
                    f"afterwards (version {value.buffer.version}, saved at {version}); change a clone() instead, or later"
                )
        return saved

    def unpack_linked(self) -> Values:
        """The saved values as tensors of the graph, so that what is computed from them can be differentiated again."""
        return [self._link(value, origin) for value, origin in zip(self.unpack(), self.gate.origins, strict=True)]

    def _link(self, value: Any, origin: int) -> Any:
        if type(value) is not View:
            return value
        if origin < 0:
            return wrap(value, value.dtype.is_floating, self, -1 - origin)
        edge = self.edges[origin]
        if edge is None:
            return wrap(value)
        if type(edge) is Node:
            return wrap(value, True, edge, self.places[origin])
        if edge.raw.buffer is not value.buffer:
            raise VersionError(
                f"{self.gate.name}: an input was given other memory after it was used; call backward before moving or replacing it"
            )
        return edge

    def release(self) -> None:
        """Let go of everything that backward has used."""
        self.saved, self.edges, self.versions = None, (), ()


class no_grad:
    """Remember nothing; PyTorch's name: `with vtl.no_grad():`, or `@vtl.no_grad()` on a function."""

    enabled = False

    def __init__(self) -> None:
        self._before: list[bool] = []

    def __enter__(self) -> None:
        self._before.append(mode.enabled)
        mode.enabled = self.enabled

    def __exit__(self, *exception: object) -> None:
        mode.enabled = self._before.pop()

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Run `function` in this mode each time it is called."""

        @wraps(function)
        def inside(*args: P.args, **kwargs: P.kwargs) -> R:
            with type(self)():
                return function(*args, **kwargs)

        return inside


class enable_grad(no_grad):
    """Remember again, inside `no_grad`: a context manager and a decorator."""

    enabled = True


def is_grad_enabled() -> bool:
    """Whether ops on tensors that require gradients are remembered in this thread."""
    return mode.enabled
