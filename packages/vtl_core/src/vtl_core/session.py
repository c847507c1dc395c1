"""Session: runs each stage of training where a Placement says, while tensors stay on the host.

It stands behind the gates: `forward` in place of dispatch.run for an op on tensors, `backward` for the way back through
a node, `update` for an optimizer's step. What an op reads goes up unless it is resident; what it makes is a View of
host memory again, whose values come down when the placement says so, or when the host asks.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

from vsl_compute import registry
from vsl_compute.backend import ComputeBackend, Transfers
from vsl_compute.dispatch import asarray, run_update
from vsl_compute.dispatch import run as launch
from vsl_compute.errors import DeviceError, GraphError, UnavailableError, UnsupportedError
from vsl_compute.rows.row import Update
from vsl_compute.rows.updates import TABLE as UPDATES
from vsl_compute.view import Buffer, Layout, View

from .autograd import node as graph
from .autograd.node import Node, Traced, Values
from .placement import HOST, Placement
from .staging import Mirrors, StagedBuffer

Step = tuple[str | Update, Sequence[Sequence[Traced]], Mapping[str, float]]


def open_or_fall_back(spec: str, placement: Placement) -> ComputeBackend:
    """The device; where it cannot be opened and the placement is not strict, the CPU, with a warning."""
    try:
        return registry.get(spec)
    except (UnavailableError, DeviceError) as error:
        if placement.strict:
            raise
        warnings.warn(f"{placement.asked_by} cannot be used, going on on the CPU: {error}", stacklevel=4)
        return registry.get(HOST)


class _Asked(threading.local):
    """Who runs ops in this thread: "layer" is `vtl.apply`, "backward" a backward pass over tensors, "" anybody else."""

    by: str = ""


class Session:
    """One device on which stages of a placement run. It is in force, in the whole process, until it is closed.

    Made by `Context.attach_session`. A session whose placement stages nothing has no device, and everything runs where
    its tensors are. Closing it brings the one before back into force; values that are still on the device stay readable.
    """

    def __init__(self, placement: Placement, home: str = HOST) -> None:
        self._home = home
        spec = placement.staged_device
        opened = open_or_fall_back(spec, placement) if spec is not None else None
        self.placement = placement
        self._host = registry.get(HOST)
        self.device: ComputeBackend | None = opened if opened is not None and opened is not self._host else None
        if self.device is None:
            self.placement = Placement()
        self._mirrors = Mirrors(self.device or self._host)
        self._start = (self.device or self._host).transfers()
        self._asked = _Asked()
        self.closed = False
        self._before, graph.stage = graph.stage, self if self.device is not None else None
        self._in_force = graph.stage

    def transfers(self) -> Transfers:
        """Bytes and calls between the host and the device since the session opened, counted at the lowest call."""
        now, start = vars((self.device or self._host).transfers()), vars(self._start)
        return Transfers(**{name: now[name] - start[name] for name in now})

    @property
    def home(self) -> str:
        """Where parameters and results live: the spec of a device, "cpu:0" where stages are placed."""
        return self._home

    def close(self) -> None:
        """Put the session out of force. GraphError if one that was opened later still is in force."""
        if self.closed:
            return
        if graph.stage is not self._in_force:
            raise GraphError("session: one that was attached later is still in force; close that one first")
        graph.stage, self.closed = self._before, True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Session({self.device.spec if self.device is not None else 'nothing staged'}: {self.placement})"

    # forward
    def layer(self, run: Callable[..., Any], op: Any, tensors: Values, attributes: Mapping[str, Any]) -> Any:
        """Run an op of a layer: it belongs to the forward stage."""
        before, self._asked.by = self._asked.by, "layer"
        try:
            return run(op, *tensors, **attributes)
        finally:
            self._asked.by = before

    @contextmanager
    def linked(self) -> Iterator[None]:
        """Ops on tensors are now part of a backward pass that can be differentiated again."""
        before, self._asked.by = self._asked.by, "backward"
        try:
            yield
        finally:
            self._asked.by = before

    def forward(self, op: Any, args: Values, attributes: Mapping[str, Any]) -> Any:
        """dispatch.run for an op on tensors: on the device if its stage is there.

        An op that no layer asked for belongs to no stage: it runs where its arguments are, so on the device if one of
        them is only there.
        """
        raws = [a.raw if isinstance(a, Traced) else a for a in args]
        asked, placement = self._asked.by, self.placement
        if not self._on_host(raws):
            return launch(op, *raws, **attributes)
        if asked == "layer":
            staged = placement.forward != HOST
        elif asked == "backward":
            staged = placement.backward != HOST
        else:
            staged = self._any_only_there(raws)
        if not staged:
            return launch(op, *raws, **attributes)
        keep = asked != "layer" or placement.activations != HOST
        made = self._run(op, raws, [keep or parameter for parameter in parameters(args)], attributes)
        if not keep:
            for view in made if type(made) is tuple else (made,):
                self._settle(view)
        return made

    # backward
    @property
    def moves_backward(self) -> bool:
        """Whether gradients are computed on the device."""
        return self.placement.backward != HOST

    def backward(self, run: Callable[..., Any], node: Node, saved: Values, grads: Values, needs: Values) -> Values:
        """The way back through one node, on the device; a shape operation's, which computes nothing, where its gradient is.

        A gate that `asks` gives its gradients to a function of the user's, whose tensors are the host's.
        """
        moves_only, asks = not node.gate.origins, getattr(node.gate, "asks", False)
        if asks or not self._on_host([*saved, *grads]) or (moves_only and not self._any_only_there(grads)):
            return node.gate.backward(run, node, saved, grads, needs)
        call = _Call(self)
        keep = self.placement.activations != HOST
        with self._explained(node.gate.name):
            there = [call.put(v, keep=keep) for v in saved]
            made = node.gate.backward(launch, node, there, [call.put(g, keep=keep) for g in grads], needs)
        found = [g if type(g) is not View else call.back(g) for g in made]
        if self.placement.gradients == HOST:
            for edge, g in zip(node.edges, found, strict=True):
                if type(edge) is Node and g is not None:
                    self._settle(g)
        return found

    def run(self, op: Any, *raws: Any, **attributes: Any) -> Any:
        """dispatch.run between nodes: where the arguments are."""
        if not self._on_host(raws) or not self._any_only_there(raws):
            return launch(op, *raws, **attributes)
        return self._run(op, raws, [True] * len(raws), attributes)

    def arrived(self, leaves: Sequence[tuple[Traced, View]]) -> None:
        """Gradients have come to leaves: bring down those that the host's optimizer will read, and what is not to stay."""
        wanted = parameters([leaf for leaf, _ in leaves])
        for (_, g), parameter in zip(leaves, wanted, strict=True):
            if (self.placement.optimizer if parameter else self.placement.gradients) == HOST:
                self._settle(g)

    def accumulate(self, grad: Traced, g: View) -> None:
        """Add to a leaf's gradient: in its memory, or if a value is on the device only, there, in new memory."""
        raws = (grad.raw, g)
        if self._on_host(raws) and self._any_only_there(raws):
            grad.raw = self._run("add", raws, [True, True], {})
        else:
            launch("add", *raws, out=grad.raw)

    # optimizers
    def zeros(self, backend: ComputeBackend, layout: Layout) -> View | None:
        """Zeros of the host that are nowhere until somebody asks, so that slots never travel; None if the host steps."""
        if self.placement.optimizer == HOST or backend is not self._host:
            return None
        return View(StagedBuffer(self._host, layout, None), layout)

    def update(self, steps: Sequence[Step]) -> bool:
        """Step on the device: all of it, or after an error nothing. False if this is the host's, or another device's, to do.

        The row runs on copies. Only when all rows have run and all parameters have come down are the copies put in
        place, which cannot fail: parameters are overwritten on the host, slots get new memory.
        """
        rows: Sequence[Any] = [UPDATES.get(row) if isinstance(row, str) else row for row, _, _ in steps]
        groups_of = [(row, group) for row, (_, groups, _) in zip(rows, steps, strict=True) for group in groups]
        if (
            self.placement.optimizer == HOST
            or None in rows
            or not self._on_host([t.raw for _, group in groups_of for t in group])
            or any(len(group) != len(row.arrays) for row, group in groups_of)  # run_update says what is wrong
        ):
            return False
        call = _Call(self)
        written: list[tuple[Traced, View]] = []
        for row, (_, groups, scalars) in zip(rows, steps, strict=True):
            outs = [row.arrays.index(name) for name in row.written]
            with self._explained(row.name):
                arrays = [[call.put(t.raw, keep=True) for t in group] for group in groups]
                for views, group in zip(arrays, groups, strict=True):
                    for i in outs:
                        views[i] = launch("copy", views[i])
                        written.append((group[i], views[i]))
                run_update(row, arrays, dict(scalars))
        new: list[tuple[Traced, View, View]] = []
        for tensor, there in written:
            stays = not (tensor.kept or (tensor.tracked and tensor.node is None))
            here = self._staged(there) if stays else asarray(self._host, there.to_host(), there.dtype)
            new.append((tensor, there, here))
        for tensor, there, here in new:
            raw = tensor.raw
            if type(here.buffer) is StagedBuffer:
                tensor.raw = here
            else:
                launch("copy", here, out=raw)
                if there.layout is raw.layout and raw.nbytes == raw.buffer.nbytes:
                    self._mirrors.set(raw.buffer, there)
        return True

    # staging
    def _on_host(self, raws: Sequence[Any]) -> bool:
        return all(v.buffer.backend is self._host for v in raws if type(v) is View)

    def _any_only_there(self, raws: Sequence[Any]) -> bool:
        return any(type(v) is View and self._mirrors.is_only_there(v) for v in raws)

    def _run(self, op: Any, raws: Sequence[Any], keep: Sequence[bool], attributes: Mapping[str, Any]) -> Any:
        call = _Call(self)
        with self._explained(getattr(op, "name", op)):
            made = launch(op, *[call.put(v, keep=k) for v, k in zip(raws, keep, strict=True)], **attributes)
        return tuple([call.back(v) for v in made]) if type(made) is tuple else call.back(made)

    def _staged(self, there: View) -> View:
        """Host memory whose values are on the device."""
        if not (there.layout.c_order or there.is_dense):
            there = launch("contiguous", there)
        made = View(StagedBuffer(self._host, there.layout, there), there.layout)
        self._mirrors.set(made.buffer, there)
        return made

    def _settle(self, view: View) -> None:
        """Bring the values down, and let go of the device's."""
        buffer = view.buffer
        if type(buffer) is StagedBuffer:
            _ = buffer.handle
            self._mirrors.forget(buffer)

    @contextmanager
    def _explained(self, op: str) -> Iterator[None]:
        try:
            yield
        except UnsupportedError as error:
            by = self.placement.asked_by or "the placement"
            raise UnsupportedError(
                f"{op}: {by} runs it on {self.placement.staged_device}, which cannot ({error}); "
                "use another dtype, or leave this stage on the CPU"
            ) from error


class _Call:
    """The arguments of one call on the device, each uploaded once, and the way back from their memory to the host's."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._put: dict[tuple[int, Layout, int], View] = {}
        self._from: dict[int, tuple[Buffer, int]] = {}  # by id of a device Buffer: whose copy, and how offsets differ
        self._held: list[View] = []  # keeps those ids from being given out again

    def put(self, value: Any, *, keep: bool) -> Any:
        """A View's elements on the device; what is no View is itself."""
        if type(value) is not View:
            return value
        key = (id(value.buffer), value.layout, value.offset)
        found = self._put.get(key)
        if found is None:
            found = self._put[key] = self._session._mirrors.put(value, keep=keep)
            self._held += (value, found)
            if found.layout is value.layout:
                self._from[id(found.buffer)] = (value.buffer, found.offset - value.offset)
        return found

    def back(self, there: View) -> View:
        """The host's View for one of the device: of an argument's memory if it looks at that, else of new memory."""
        if there.buffer.backend is not self._session.device:  # the way back through `to`
            return there
        known = self._from.get(id(there.buffer))
        if known is not None:
            return View(known[0], there.layout, there.offset - known[1])
        return self._session._staged(there)


def parameters(tensors: Values) -> list[bool]:
    """Which of an op's tensors are parameters: a module's state, or if none is, leaves that require gradients."""
    kept = [isinstance(t, Traced) and t.kept for t in tensors]
    return kept if True in kept else [isinstance(t, Traced) and t.tracked and t.node is None for t in tensors]
