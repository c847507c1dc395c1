"""Elementwise rows and copies: axes collapsed, the fastest layout chosen, a plan kept for each combination.

`vector` where all arrays are dense and aligned to four elements, `dense` where they are dense, `rows` where two axes are
left (a row or a column broadcast, a transposition), else `general` in parts of up to four axes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from ...backend import Scalar
from ...dtypes import bool_
from ...rows.kinds import compute_dtype
from ...rows.row import Row
from ...rows.spirv import RANKS, SpirvKernel, emit_copy, emit_row
from ...view import Layout, View
from ..shared.axes import collapse, padded, pieces
from .launch import REACH, Launch, Place, place

if TYPE_CHECKING:
    from .backend import VulkanBackend

MOST = (1 << 31) - 4  # elements of one launch; the modules count in 32 bits
PLANS = 50_000  # a program with ever new shapes must not grow for ever


class Part:
    """One launch of a plan: where its arrays begin, in bytes from their views, and the fixed parameters."""

    __slots__ = ("direct", "groups", "launch", "layout", "moves")

    def __init__(self, launch: Launch, layout: tuple[int, ...], moves: tuple[int, ...], groups: int) -> None:
        self.launch, self.layout, self.groups = launch, layout, (groups, 1, 1)
        self.moves = moves if any(moves) else ()
        self.direct = not self.moves and not launch.numbers and not launch.kernel.block


class Rows:
    """Launches of one backend's rows."""

    def __init__(self, backend: VulkanBackend) -> None:
        self.backend, self.device, self.commands = backend, backend.device, backend.commands
        self.pipelines, self.blocks = backend.pipelines, backend.blocks
        self._plans: dict[Hashable, tuple[Part, ...]] = {}
        self._launches: dict[Hashable, Launch] = {}
        self._truths: dict[bool, View] = {}

    def elementwise(self, row: Row, out: View, args: Sequence[View | Scalar], scalars: Sequence[Scalar]) -> None:
        """out = row(args)."""
        if not out.layout.size:
            return
        to: Place = out.native or place(out)
        key, places, aligned = [row, out.layout], [to], to[2]
        for argument in args:
            if type(argument) is not View:
                break
            one: Place = argument.native or place(argument)
            key.append(argument.layout)
            places.append(one)
            aligned = aligned and one[2]
        else:  # the short way: only Views, and a plan that was made before
            key.append(aligned)
            parts = self._plans.get(tuple(key))
            if parts is not None:
                numbers = dict(zip(row.scalars, scalars, strict=True)) if scalars else {}
                self._run(parts, places, places[1:], places[:1], numbers)
                return
        self._elementwise(row, out, args, scalars)

    def prepare(self, row: Row, out: Layout, args: Sequence[Layout]) -> Callable[..., View] | None:
        """`elementwise` of one or two arrays into a fresh View made ready, where it is one launch over neighbours."""
        if not out.size or len(args) not in (1, 2) or _mixes(row):
            return None
        kernel, emit = self._kernel(row, out, args, frozenset())
        whole, found = [out, *args], []
        for aligned in (False, True):
            parts = self.plan((row, *whole, aligned), kernel, whole, emit, aligned=aligned)
            if len(parts) != 1 or not parts[0].direct or len(parts[0].layout) != 1:
                return None
            found.append((parts[0].launch.pipeline, parts[0].launch.pack, parts[0].layout[0], parts[0].groups))
        allocate, dispatch, nbytes = self.backend.allocate, self.commands.dispatch, out.nbytes

        def unary(x: View) -> View:
            fresh, (at, read, aligned) = allocate(out), x.native or place(x)
            chunk = fresh.buffer.handle
            write = (chunk, 0, nbytes)
            fresh.native = (chunk.address, write, True)
            pipeline, pack, count, groups = found[aligned]
            dispatch(pipeline, pack(chunk.address, at, count), groups, (read,), (write,))
            return fresh

        def binary(a: View, b: View) -> View:
            fresh, (at, read, aligned), (other, second, too) = allocate(out), a.native or place(a), b.native or place(b)
            chunk = fresh.buffer.handle
            write = (chunk, 0, nbytes)
            fresh.native = (chunk.address, write, True)
            pipeline, pack, count, groups = found[aligned and too]
            dispatch(pipeline, pack(chunk.address, at, other, count), groups, (read, second), (write,))
            return fresh

        return unary if len(args) == 1 else binary

    def _kernel(
        self, row: Row, out: Layout, args: Sequence[Layout], absent: frozenset[str]
    ) -> tuple[Hashable, Callable[[str], SpirvKernel]]:
        """What a row's launches are kept by, and what emits its module; `args` are those that are arrays."""
        given = iter(args)
        stored = {row.signature.outputs: out.dtype}
        stored |= {
            letter: next(given).dtype
            for name, letter in zip(row.args, row.signature.inputs, strict=True)
            if name not in absent
        }
        letters = tuple(sorted((letter, d.name) for letter, d in stored.items()))
        return (row, letters, absent), lambda layout: emit_row(row, stored, layout, host=absent)

    def _elementwise(self, row: Row, out: View, args: Sequence[View | Scalar], scalars: Sequence[Scalar]) -> None:
        mixed = _mixes(row)
        if mixed:
            args = self._floats(row, out, args)
        views, host, numbers = [out], [], dict(zip(row.scalars, scalars, strict=True))
        for name, letter, argument in zip(row.args, row.signature.inputs, args, strict=True):
            if type(argument) is View:
                views.append(argument)
            elif letter == "b":
                views.append(self._truth(bool(argument)))
            else:
                host.append(name)
                numbers[name] = argument  # type: ignore[assignment]  # what is no View is a number
        places = [place(v) for v in views]
        key = (row, *[v.layout for v in views], *host, all(p[2] for p in places))
        parts = self._plans.get(key)
        if parts is None:
            layouts = [v.layout for v in views]
            kernel, emit = self._kernel(row, layouts[0], layouts[1:], frozenset(host))
            parts = self.plan(key, kernel, layouts, emit, aligned=all(p[2] for p in places))
        self._run(parts, places, places[1:], places[:1], numbers)

    def _floats(self, row: Row, out: View, args: Sequence[View | Scalar]) -> list[View | Scalar]:
        """Integers beside floating arguments as floats: a module has numbers of one dtype."""
        kinds = [
            a.dtype
            for a, letter in zip(args, row.signature.inputs, strict=True)
            if isinstance(a, View) and letter == "f"
        ]
        number = compute_dtype(next(iter(kinds), out.dtype))
        found: list[View | Scalar] = []
        for argument, letter in zip(args, row.signature.inputs, strict=True):
            if letter == "n" and isinstance(argument, View) and argument.dtype.is_integer and number.is_floating:
                fresh = self.backend.allocate(argument.layout.like(number))
                self.copy(fresh, argument)
                argument = fresh
            found.append(argument)
        return found

    def copy(self, out: View, x: View) -> None:
        """out = x, converted."""
        if not out.layout.size:
            return
        source, target = x.layout.dtype, out.layout.dtype
        to, come = out.native or place(out), x.native or place(x)
        key = ("copy", to[2] and come[2], out.layout, x.layout)
        parts = self._plans.get(key)
        if parts is None:
            kernel = ("copy", f"u{8 * source.itemsize}") if source is target else ("copy", source, target)
            parts = self.plan(key, kernel, [out.layout, x.layout], lambda layout: emit_copy(source, target, layout),
                               aligned=to[2] and come[2])  # fmt: skip
        self._run(parts, (to, come), (come,), (to,), {})

    def _truth(self, value: bool) -> View:
        """A truth value on the device."""
        if value not in self._truths:
            from ...rows.elementwise import TABLE

            view = self.backend.allocate(Layout.of(bool_, ()))
            self.elementwise(TABLE["fill"], view, (), (value,))
            self._truths[value] = view
        return self._truths[value]

    def plan(
        self,
        key: Hashable,
        kernel: Hashable,
        layouts: Sequence[Layout],
        emit: Callable[[str], SpirvKernel],
        *,
        aligned: bool,
    ) -> tuple[Part, ...]:
        """Collapse the axes of these arrays and make the launches; `emit` gives the module of a layout."""
        shape = layouts[0].shape
        sizes, strides = collapse(shape, [_broadcast(v, len(shape)) for v in layouts])
        items = [v.dtype.itemsize for v in layouts]
        parts: list[Part] = []
        if all(s in ([1], []) for s in strides):
            count = sizes[0] if sizes else 1
            most = most_of(items)
            for start in range(0, count, most):
                n = min(most, count - start)
                launch = self._launch(kernel, "vector" if aligned and n % 4 == 0 else "dense", emit)
                moves = tuple(start * item for item in items)
                parts.append(Part(launch, (n,), moves, self.groups(n, launch.width)))
        else:
            for inner, steps, moved in _cut(sizes, strides):
                count = 1
                for n in inner:
                    count *= n
                name = "rows" if len(inner) <= RANKS["rows"] else "general"
                launch = self._launch(kernel, name, emit)
                layout = [count, *padded(inner, RANKS[name], 1)[1:]]
                for one in steps:
                    layout += padded(one, RANKS[name], 0)
                moves = tuple(m * item for m, item in zip(moved, items, strict=True))
                parts.append(Part(launch, tuple(layout), moves, self.groups(count, 1)))
        if len(self._plans) > PLANS:
            self._plans.clear()
        found = self._plans[key] = tuple(parts)
        return found

    def _launch(self, kernel: Hashable, layout: str, emit: Callable[[str], SpirvKernel]) -> Launch:
        found = self._launches.get((kernel, layout))
        if found is None:
            kernel = emit(layout)
            found = Launch(kernel, self.device, self.pipelines, kernel.span)
            self._launches[kernel, layout] = found
        return found

    def groups(self, count: int, width: int) -> int:
        return max(1, min(self.device.most_groups, -(-count // (width * self.device.group_size))))

    def _run(
        self,
        parts: Sequence[Part],
        places: Sequence[Place],
        read: Sequence[Place],
        written: Sequence[Place],
        numbers: Mapping[str, Any],
    ) -> None:
        addresses = [p[0] for p in places]
        reads, writes = [p[1] for p in read], [p[1] for p in written]
        if len(parts) == 1:
            (part,) = parts
            launch = part.launch
            if part.direct:
                self.commands.dispatch(
                    launch.pipeline, launch.pack(*addresses, *part.layout), part.groups, reads, writes
                )
                return
        for part in parts:
            launch = part.launch
            moved = [a + m for a, m in zip(addresses, part.moves, strict=True)] if part.moves else addresses
            data = (
                launch.parameters(moved, part.layout, numbers) if launch.numbers else launch.pack(*moved, *part.layout)
            )
            if not launch.kernel.block:
                self.commands.dispatch(launch.pipeline, data, part.groups, reads, writes)
                continue
            with self.device.lock:  # the block belongs to the commands that are open now
                self.commands.dispatch(launch.pipeline, self.blocks.put(data), part.groups, reads, writes)


def most_of(items: Sequence[int]) -> int:
    """Elements of one launch over arrays of these element sizes that lie without gaps."""
    return min(MOST, REACH // max(items))


def _cut(sizes: list[int], strides: list[list[int]]) -> Iterator[tuple[list[int], list[list[int]], list[int]]]:
    """`pieces`, a single axis too: the modules count in 32 bits."""
    if len(sizes) == 1 and sizes[0] > MOST:
        for start in range(0, sizes[0], MOST):
            yield [min(MOST, sizes[0] - start)], strides, [start * s[0] for s in strides]
    else:
        yield from pieces(sizes, strides, RANKS["general"])


@cache
def _mixes(row: Row) -> bool:
    """Whether integers may stand beside floating arguments."""
    return {"n", "f"} <= set(row.signature.inputs + row.signature.outputs)


def _broadcast(layout: Layout, rank: int) -> tuple[int, ...]:
    """An array's strides over a shape that it broadcasts to."""
    strides = tuple(0 if n == 1 else s for n, s in zip(layout.shape, layout.strides, strict=True))
    return (0,) * (rank - len(strides)) + strides
