"""Gates of shape operations: they move no data, and their gradients are shape operations too, or sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from vsl_compute.dispatch import asarray
from vsl_compute.dispatch import run as launch
from vsl_compute.ops.table import find
from vsl_compute.registry import get
from vsl_compute.view import Index, Layout, Shape, View

from . import node as graph
from .node import Node, Traced, Values, mode

if TYPE_CHECKING:
    from vtl_core.tensor import Tensor

Run = Callable[..., Any]
CONTIGUOUS = find("contiguous")


class ShapeGate:
    """Back through one kind of shape operation; `shares` says that its result looks at its input's memory."""

    __slots__ = ("_back", "name", "shares")
    origins: tuple[int, ...] = ()
    replays = False

    def __init__(self, name: str, back: Callable[[Run, Any, dict[str, Any]], Any], *, shares: bool = True) -> None:
        self.name, self._back, self.shares = name, back, shares

    def backward(self, run: Run, node: Node, saved: Values, grads: Values, needs: Values) -> Values:
        """One input, one gradient."""
        return (self._back(run, grads[0], node.options),)


class SplitGate:
    """Back through pieces along one axis: what they receive is joined in one pass, not put into zeros and added piece by piece."""

    __slots__ = ()
    name, shares, replays = "split", True, False
    origins: tuple[int, ...] = ()

    def backward(self, run: Run, node: Node, saved: Values, grads: Values, needs: Values) -> Values:
        """A piece that nothing arrived at received zeros."""
        axis, given = node.options["axis"], next(g for g in grads if g is not None)
        pieces = [_zeros(given, layout) if g is None else g for g, layout in zip(grads, node.results, strict=True)]
        return (run("concat", *pieces, axis=axis),)


def _zeros(like: Any, layout: Layout) -> Any:
    raw = like.raw if isinstance(like, Traced) else like
    zeros = get(raw.device).allocate(Layout.of(layout.dtype, layout.shape))
    launch("fill", alpha=0.0, out=zeros)
    return graph.wrap(zeros) if isinstance(like, Traced) else zeros


def _reshaped(run: Run, g: Any, shape: Shape) -> Any:
    if type(g) is View and not g.can_reshape(shape):
        g = run("contiguous", g)
    return g.reshape(shape)


def _moved(run: Run, g: Any, options: dict[str, Any]) -> Any:
    return move(g, options["device"]) if isinstance(g, Traced) else _transfer(g, options["device"])


RESHAPE = ShapeGate("reshape", lambda run, g, o: _reshaped(run, g, o["shape"]))
PERMUTE = ShapeGate("permute", lambda run, g, o: g.permute(o["back"]))
EXPAND = ShapeGate("expand", lambda run, g, o: g)  # summed by unbroadcast
SLICE = ShapeGate("slice", lambda run, g, o: run("slice_backward", g, shape=o["shape"], index=o["index"]))
WINDOW = ShapeGate("window", lambda run, g, o: run("fold", g, **o))
SPLIT = SplitGate()
MOVE = ShapeGate("to", _moved, shares=False)


def _result(gate: ShapeGate, x: Traced, raw: View, options: dict[str, Any]) -> Tensor:
    result = graph.wrap(raw)
    if x.tracked and mode.enabled:
        result.node = Node(gate, (x.node or x,), (x.output,), (), options, (raw.layout,))
        result.tracked = True
    return result


def reshape(x: Traced, shape: Shape) -> Tensor:
    """The elements in C order under another shape; copied where the strides ask for it."""
    raw = x.raw
    if not raw.can_reshape(shape):
        raw = launch("contiguous", raw) if graph.stage is None else graph.stage.forward(CONTIGUOUS, (x,), {})
    return _result(RESHAPE, x, raw.reshape(shape), {"shape": x.raw.layout.shape})


def permute(x: Traced, axes: Shape) -> Tensor:
    """Axis i of the result is axis axes[i] of x."""
    raw, ndim = x.raw.permute(axes), len(axes)
    back = [0] * ndim
    for i, axis in enumerate(axes):
        back[axis % ndim] = i
    return _result(PERMUTE, x, raw, {"back": tuple(back)})


def expand(x: Traced, shape: Shape) -> Tensor:
    """Broadcast to `shape` without copying."""
    return _result(EXPAND, x, x.raw.expand(shape), {})


def slice_(x: Traced, index: tuple[Index, ...]) -> Tensor:
    """Basic indexing: an int, slice or None an entry."""
    return _result(SLICE, x, x.raw.slice(*index), {"shape": x.raw.layout.shape, "index": index})


def split(x: Traced, sizes: Sequence[int], axis: int) -> tuple[Tensor, ...]:
    """Pieces of these sizes, which fill the axis."""
    before, ends = (slice(None),) * axis, list(accumulate(sizes))
    raws = [x.raw.slice(*before, slice(end - size, end)) for size, end in zip(sizes, ends, strict=True)]
    results = tuple(graph.wrap(raw) for raw in raws)
    if x.tracked and mode.enabled and results:
        node = Node(SPLIT, (x.node or x,), (x.output,), (), {"axis": axis}, tuple(raw.layout for raw in raws))
        for place, result in enumerate(results):
            result.node, result.output, result.tracked = node, place, True
    return results


def window(x: Traced, axes: Shape, sizes: Shape, steps: Shape, dilations: Shape) -> Tensor:
    """Slide a window over `axes`, without copying: see View.window."""
    options = {"shape": x.raw.layout.shape, "axes": axes, "steps": steps, "dilations": dilations}
    return _result(WINDOW, x, x.raw.window(axes, sizes, steps, dilations), options)


def move(x: Traced, device: str) -> Tensor:
    """Copy to another device."""
    return _result(MOVE, x, _transfer(x.raw, device), {"device": x.raw.device})


def _transfer(raw: View, device: str) -> View:
    return asarray(get(device), raw.to_host(), raw.dtype)
