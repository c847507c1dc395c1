"""Tapes: what a body of hundreds of calls asks of the driver, recorded once and asked again with other memory.

A body is a function of layouts, options and settings, never of data. So the calls that it ends in (launches, products,
copies on the device) are the same each time but for the addresses in them, and each address lies so many bytes behind the
start of an argument, or of a piece of memory that the body allocates. A replay allocates those, adds the starts to the
distances for all calls at once, in the memory that holds the parameters of all launches, and makes the calls.

Which parameters are addresses is known from their kinds, never from their values. What a body does besides (transfers,
waiting, memory that is neither an argument's nor allocated) cannot be made again: then it runs as it is.
"""

from __future__ import annotations

import ctypes
import logging
import struct
import weakref
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ... import locks
from ...determinism import are_deterministic_algorithms_enabled
from ...precision import get_float32_matmul_precision
from ...view import Layout, View
from .cublaslt import WORKSPACE, CublasLt, Product
from .products import ALIGNED
from .program import Entry
from .queue import ON_DEVICE, extra

if TYPE_CHECKING:
    from .backend import CUDABackend

ROOM = 1 << 16  # calls on all tapes of a device, about a kilobyte of the host each; the least recently used goes first
OVERHEAD = 16  # a tape itself counts as so many calls
TRIES = 3  # recordings of one form that may fail: the first may have searched for a kernel, which waits for the device
FORMS = 256  # forms whose failures are counted
# Once a tape had to go for another, one call in so many is recorded: more forms than there is room for, each called once a
# round, would have every call recorded, which takes 2.4 times the body, and every tape gone before it is replayed.
SELDOM = 16
Key = tuple[Any, ...]
Array = np.ndarray[Any, Any]
log = logging.getLogger("vsl_compute.tape")


class Place(NamedTuple):
    """An address: so many bytes behind where the memory of a slot starts."""

    slot: int
    distance: int


class Call(NamedTuple):
    """One call. `places` stand in its arguments at `spots`; a launch has parameters instead, with places at bytes of them."""

    function: Callable[..., None]
    arguments: list[Any]
    places: tuple[Place, ...]
    spots: tuple[int, ...]
    parameters: bytes = b""


class Memory(NamedTuple):
    """Memory that a body knows: what it is a slot's, where that starts, and one past its last byte."""

    slot: int
    start: int
    end: int


class Result(NamedTuple):
    """A view that a body gives back: of a slot, this layout, so many elements behind the slot's; the layout None for no view."""

    slot: int
    layout: Layout | None
    moved: int


class Recording:
    """What a body does, as it does it; slots are the arguments, then pieces of memory. `refused` says what stands against a tape.

    Memory that the body lets go of may be taken by a later piece of its class, as the pool would have it.
    """

    def __init__(self, backend: CUDABackend, inputs: Sequence[View | None], starts: Sequence[int]) -> None:
        self._backend, self._inputs = backend, inputs
        self.calls, self.pieces, self.refused = list[Call](), list[Layout](), ""
        self.held = list[Any]()  # what descriptions and functions in the calls belong to
        self.library: CublasLt | None = None
        self._bases, self._memory = list[int](), dict[int, Memory]()
        self._idle, self._watched = dict[int, list[int]](), list[Any]()
        seen = set[int]()
        for slot, (view, start) in enumerate(zip(inputs, starts, strict=True)):
            if view is not None and id(view.buffer) not in seen:
                seen.add(id(view.buffer))
                self._know(view, slot, start)

    def refuse(self, why: str) -> None:
        """Give up: the first reason is kept."""
        self.refused = self.refused or why

    def _know(self, view: View, slot: int, start: int) -> None:
        base = view.buffer.handle
        end = base + max(1, view.buffer.nbytes)
        at = bisect_left(self._bases, base)
        at -= at > 0 and self._memory[self._bases[at - 1]].end > base
        while at < len(self._bases) and self._bases[at] < end:  # what lay there was let go of
            if self._memory.pop(self._bases.pop(at)).slot < len(self._inputs):
                self.refuse("arguments that overlap")
        self._bases.insert(bisect_left(self._bases, base), base)
        self._memory[base] = Memory(slot, start, end)

    def _place(self, address: int) -> Place:
        at = bisect_right(self._bases, address) - 1
        if at >= 0:
            slot, start, end = self._memory[self._bases[at]]
            if address < end:
                return Place(slot, address - start)
        self.refuse("memory that is no argument's and was not allocated")
        return Place(0, 0)

    def allocated(self, view: View) -> None:
        """A piece of memory."""
        idle = self._idle.setdefault(id(view.buffer.home), [])  # type: ignore[attr-defined]  # a pool's Buffer has it
        piece = idle.pop() if idle else len(self.pieces)
        if piece == len(self.pieces):
            self.pieces.append(view.layout)
        self.pieces[piece] = view.layout
        self._watched.append(weakref.ref(view.buffer, lambda _: idle.append(piece)))
        self._know(view, len(self._inputs) + piece, view.buffer.handle)

    def launch(self, entry: Entry, grid: tuple[int, ...], arguments: Sequence[Any]) -> None:
        """A kernel on (blocks, threads), its parameters as they are packed."""
        parameters = bytearray(-(-(entry.nbytes + 8) // 8) * 8)
        entry.pack(parameters, 0, entry.nbytes, *arguments)
        found = [(at, struct.unpack_from("Q", parameters, at)[0]) for at in entry.addresses]
        found = [(at, address) for at, address in found if address]  # lines of a table may be left out
        self.held.append(entry)
        self.calls.append(
            Call(self._backend.queue.calls.launch, [entry.function, *grid, 0, self._backend.queue.pointer, 0],
                 tuple(self._place(address) for _, address in found), tuple(at for at, _ in found), bytes(parameters))
        )  # fmt: skip

    def product(
        self, library: CublasLt, product: Product, alpha: int, beta: int, out: int, first: int, second: int
    ) -> None:
        """A call of the library; `alpha` and `beta` are where numbers stand that stay."""
        if product.problem.epilogue:
            self.refuse("a product with a vector of its own")
        self.library = library
        self.held.append(product)
        result = self._place(out)
        arguments = [library.handle, product.description, alpha, 0, product.first, 0, product.second, beta,
                     0, product.out, 0, product.out, product.algorithm, library.workspace, WORKSPACE, self._backend.queue.pointer]  # fmt: skip
        places = (self._place(second), self._place(first), result, result)
        self.calls.append(Call(library.calls.matmul, arguments, places, (3, 5, 8, 10)))

    def copy(self, out: int, x: int, nbytes: int) -> None:
        """Bytes moved on the device."""
        queue = self._backend.queue
        self.calls.append(
            Call(queue.calls.copy, [0, 0, nbytes, ON_DEVICE, queue.pointer], (self._place(out), self._place(x)), (0, 1))
        )

    def result(self, value: Any) -> Result:
        """How a replay finds what the body gives back."""
        if value is None:
            return Result(0, None, 0)
        if type(value) is not View:
            self.refuse("a result that is no view")
            return Result(0, None, 0)
        slot = self._place(value.buffer.handle).slot
        base = self._inputs[slot] if slot < len(self._inputs) else None
        return Result(slot, value.layout, value.offset - (0 if base is None else base.offset))


class Tape:
    """The calls of a body with arguments of one form."""

    def __init__(self, backend: CUDABackend, recording: Recording, result: Any) -> None:
        single = not isinstance(result, tuple)
        found = [recording.result(value) for value in ((result,) if single else result)]
        self._backend, self._single, self._results = backend, single, found
        self._pieces, self._library, self._held = recording.pieces, recording.library, recording.held
        inputs = len(recording._inputs)
        self._versions = [
            (r.slot, value.buffer.version)
            for r, value in zip(found, (result,) if single else result, strict=True)
            if r.layout is not None and r.slot >= inputs
        ]
        self._lock = locks.lock()  # over the parameters and the arguments
        self._prepare(recording.calls)

    def _prepare(self, calls: Sequence[Call]) -> None:
        """Put the parameters of all launches into one block of memory."""
        block = b"".join(call.parameters for call in calls)
        self._words: Array = np.array(struct.unpack(f"{len(block) // 8}q", block), np.int64)
        self._extras, words = list[Any](), list[int]()
        launched, given, at = list[Place](), list[Place](), 0
        start = int(self._words.ctypes.data)
        self._calls: list[tuple[Callable[..., None], list[Any], tuple[int, ...]]] = []
        for call in calls:
            arguments, spots = call.arguments, call.spots
            if call.parameters:
                parameters = extra(start + at)
                self._extras.append(parameters)
                arguments, spots = [*arguments, ctypes.addressof(parameters)], ()
                words += [(at + byte) // 8 for byte in call.spots]
                launched += call.places
                at += len(call.parameters)
            else:
                given += call.places
            self._calls.append((call.function, arguments, spots))
        self._where: Array = np.array(words, np.intp)
        self._slots: Array = np.array([p.slot for p in (*launched, *given)], np.intp)
        self._distances: Array = np.array([p.distance for p in (*launched, *given)], np.int64)

    def __len__(self) -> int:
        return len(self._calls)

    def replay(self, inputs: Sequence[View | None], starts: Sequence[int]) -> Any:
        """Make the calls with these arguments and fresh memory: the body's results."""
        allocate = self._backend.allocate
        fresh = [allocate(layout) for layout in self._pieces]
        known = np.array([*starts, *[view.buffer.handle for view in fresh]], np.int64)
        addresses = known[self._slots] + self._distances
        launched = len(self._where)
        with self._lock:
            self._words[self._where] = addresses[:launched]
            self._run(addresses[launched:].tolist())
        views = [*inputs, *fresh]
        for slot, version in self._versions:
            views[slot].buffer.version = version  # type: ignore[union-attr]  # a piece of memory
        results = [_view(views[slot], layout, moved) for slot, layout, moved in self._results]
        return results[0] if self._single else tuple(results)

    def _run(self, addresses: list[int]) -> None:
        queue, context, library = self._backend.queue, self._backend.context, self._library
        each = iter(addresses)
        before = context.enter()
        try:
            for function, arguments, spots in self._calls:
                for spot in spots:
                    arguments[spot] = next(each)
                function(*arguments)
        except queue.calls.errors as error:
            raise queue.meaning(error) from error
        except Exception as error:
            if library is not None and isinstance(error, library.calls.cuBLASLtError):
                raise library.meaning(error) from error
            raise
        finally:
            context.leave(before)


def _view(base: View | None, layout: Layout | None, moved: int) -> View | None:
    if base is None or layout is None:
        return None
    return base if layout is base.layout and not moved else View(base.buffer, layout, base.offset + moved)


class Taped:
    """A body with arguments of given layouts: a function of Views. NotImplemented where it is to be run as it is."""

    def __init__(self, tapes: Tapes, body: Callable[..., Any]) -> None:
        self._tapes, self._body = tapes, body

    def __call__(self, *views: View | None) -> Any:
        """Replay it, or run it and record what it does."""
        backend = self._tapes.backend
        queue = backend.queue
        if queue.refusal is not None:
            queue.check()
        if queue.recording is not None:  # part of a body that is being recorded
            return NotImplemented
        key, starts = self._form(views)
        tape = self._tapes.find(key)
        if tape is not None:
            return tape.replay(views, starts)
        if not self._tapes.worth(key):
            return NotImplemented
        recording = Recording(backend, views, starts)
        written = [v and v.buffer.version for v in views]
        with queue.recorded(recording):
            result = self._body(*views)
        if written != [v and v.buffer.version for v in views]:
            recording.refuse("an argument that is written")
        self._tapes.keep(key, None if recording.refused else Tape(backend, recording, result), recording)
        return result

    def _form(self, views: Sequence[View | None]) -> tuple[Key, list[int]]:
        """What calls depend on besides layouts and options: settings, alignment, which arguments share memory; and where each starts."""
        key: list[Any] = [self, get_float32_matmul_precision(), are_deterministic_algorithms_enabled()]
        starts, seen = list[int](), dict[int, tuple[int, int]]()
        for k, view in enumerate(views):
            if view is None:
                key.append(None)
                starts.append(0)
                continue
            start = view.buffer.handle + view.offset * view.layout.dtype.itemsize
            first, at = seen.setdefault(id(view.buffer), (k, start))
            key += (start % ALIGNED, first, start - at)
            starts.append(start)
        return tuple(key), starts


class Tapes:
    """The tapes of one device."""

    def __init__(self, backend: CUDABackend) -> None:
        self.backend = backend
        self._kept: OrderedDict[Key, Tape] = OrderedDict()
        self._failures: dict[Key, int] = {}
        self._calls, self._lock = 0, locks.lock()
        self._full, self._turns = False, 0

    def __len__(self) -> int:
        return len(self._kept)

    def taped(self, body: Callable[..., Any]) -> Taped:
        """A body with arguments of given layouts."""
        return Taped(self, body)

    def find(self, key: Key) -> Tape | None:
        """The tape of this form, from now on the most recently used."""
        with self._lock:
            tape = self._kept.get(key)
            if tape is not None:
                self._kept.move_to_end(key)
            return tape

    def worth(self, key: Key) -> bool:
        """Whether it should be recorded."""
        if self._failures.get(key, 0) >= TRIES:
            return False
        self._turns += 1
        return not self._full or self._turns % SELDOM == 0

    def keep(self, key: Key, tape: Tape | None, recording: Recording) -> None:
        """Keep a tape, unless something stands against it or it is too long."""
        size = len(recording.calls) + OVERHEAD
        if tape is None or recording.refused or size > ROOM:
            log.info("no tape of %d calls: %s", len(recording.calls), recording.refused or "too many")
            if len(self._failures) > FORMS:
                self._failures.clear()
            self._failures[key] = self._failures.get(key, 0) + 1
            return
        with self._lock:
            known = self._kept.pop(key, None)
            self._calls += size - (0 if known is None else len(known) + OVERHEAD)
            self._kept[key] = tape
            while self._calls > ROOM:
                self._full = True
                _, oldest = self._kept.popitem(last=False)
                self._calls -= len(oldest) + OVERHEAD

    def clear(self) -> None:
        """Let go of all."""
        with self._lock:
            self._kept.clear()
            self._failures.clear()
            self._calls, self._full = 0, False
