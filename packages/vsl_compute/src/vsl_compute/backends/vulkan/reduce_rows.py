"""Reductions of elements that lie side by side: several threads ("lanes") an output read vectors, and a butterfly joins them.

The reduced elements are rows of `inner` neighbours, `outer` of them a step apart (one, mostly). A lane takes every
`lanes`-th vector of its output's part, RUN at a time so that their loads are under way together, combines component by
component, then the components, then the lanes through shared memory. The order depends on shapes alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...dtypes import DType, int64
from ...rows.row import Reduction
from ...rows.spirv import SpirvKernel
from ...rows.spirv_module import type_name
from .reduce_module import RANK, Reducer
from .structure import Shared

RUN = 4  # vectors that a lane loads before it combines them


@dataclass(frozen=True)
class RowPass:
    """What one module does: where it begins and ends, elements a vector, lanes an output, and whether there are steps."""

    from_states: bool
    to_states: bool
    width: int
    lanes: int
    group: int
    kept_rank: int = 1
    stepped: bool = False

    @property
    def outputs(self) -> int:
        """Outputs (or parts of them) of one group."""
        return self.group // self.lanes


def row_parameters(row: Reduction, shape: RowPass) -> list[tuple[str, str]]:
    """Names and formats: addresses, counts, and for elements the sizes and strides of kept axes and of the steps."""
    sources = [f"from_{s}" for s in row.state] if shape.from_states else ["x"]
    targets = [f"to_{s}" for s in row.state] if shape.to_states else [f"out{i}" for i in range(len(row.finish))]
    found = [(name, "Q") for name in (*sources, *targets, "n", "first")]
    found += [(name, "I") for name in ("kept", "reduced", "parts")]  # reduced counts vectors
    if not shape.from_states:
        found += [("inner", "I"), ("step", "i")]
        found += [(f"kept_size{d}", "I") for d in range(1, RANK)] + [(f"kept_stride{d}", "i") for d in range(RANK)]
    return found


def emit_rows(row: Reduction, x: DType, outs: Sequence[DType], shape: RowPass) -> SpirvKernel:
    """The module of one pass."""
    return _Rows(row, x, outs, row_parameters(row, shape), shape).kernel()


class _Rows(Reducer):
    def kernel(self) -> SpirvKernel:
        body, module, shape, given = self.body, self.module, self.shape, self.body.given
        width = shape.width
        types = [module.scalar(type_name(d), width) for d in self.states]
        narrow = [module.scalar(type_name(d)) for d in self.states]
        identity = [i for _, i in self.values(self.row.identity, {}, self.states, width)]
        held = [body.shared(t, 2 * shape.group) for t in narrow] if shape.lanes > 1 else []
        lane = body.u32_op(137, body.local, body.constant(shape.lanes))
        mine = body.u32_op(134, body.local, body.constant(shape.lanes))
        total = body.u32_op(132, given["kept"], given["parts"])
        last = body.u32_op(130, total, body.constant(1))
        group = body.variable(body.u32, body.group)
        every = [body.variable(t, i) for t, i in zip(types, identity, strict=True)]
        at = body.variable(body.u32, body.constant(0))
        turns = body.u32_op(128, body.u32_op(134, last, body.constant(shape.outputs)), body.constant(1))

        def outputs_of_group() -> None:
            number = body.u32_op(128, body.u32_op(132, body.get(group), body.constant(shape.outputs)), mine)
            there = body.less(number, total)
            number = body.u32_op(169, there, number, last)
            output, part = body.u32_op(134, number, given["parts"]), body.u32_op(137, number, given["parts"])
            rounded = body.u32_op(130, body.u32_op(128, given["reduced"], given["parts"]), body.constant(1))
            share = body.u32_op(134, rounded, given["parts"])
            self.begin = body.u32_op(132, part, share)
            end = body.u32_op(128, self.begin, share)
            end = body.u32_op(169, body.less(end, given["reduced"]), end, given["reduced"])
            some = body.less(self.begin, end)
            count = body.u32_op(169, some, body.u32_op(130, end, self.begin), body.constant(0))
            self.base = self.block = 0
            if not shape.from_states:
                self.base = self.place(given["x"], "kept", shape.kept_rank, output)
                if (
                    not shape.stepped
                ):  # NVIDIA's driver wraps an access chain's offset at 2**32 bytes, so a part begins at 0
                    nbytes = self.x.itemsize * width
                    self.block = body.block(self.x, width, body.address(self.base, self.begin, nbytes))
            self.assign(every, identity)
            body.set(at, lane)
            for run in (RUN, 1):
                ahead = (run - 1) * shape.lanes

                def inside(ahead: int = ahead, count: int = count) -> int:
                    return body.less(body.u32_op(128, body.get(at), body.constant(ahead)), count)

                def taken(run: int = run, output: int = output) -> None:
                    self._take(run, output, at, every)

                body.loop(inside, taken)
            state = self._across([body.get(v) for v in every], narrow, held)
            first = module.emit(170, body.boolean, lane, body.constant(0))
            body.when(module.emit(167, body.boolean, there, first), lambda: self.write(output, part, state))
            if held:
                body.barrier()
            body.set(group, body.u32_op(128, body.get(group), body.groups))

        body.loop(lambda: body.less(body.get(group), turns), outputs_of_group)
        name = f"{self.row.name}_{self.x.name}_{'_'.join(d.name for d in self.outs)}_rows"
        return SpirvKernel(name, body.words(), body.fields, False, ())

    def _take(self, run: int, output: int, at: tuple[int, int], every: Sequence[tuple[int, int]]) -> None:
        """The next `run` vectors, joined in a tree, then to what there is."""
        body, shape = self.body, self.shape
        numbers = [body.get(at)]
        for _ in range(run - 1):
            numbers.append(body.u32_op(128, numbers[-1], body.constant(shape.lanes)))
        states = [self._vector(n, output) for n in numbers]
        while len(states) > 1:
            states = [self.joined(a, b, shape.width) for a, b in zip(states[::2], states[1::2], strict=True)]
        self.assign(every, self.joined([body.get(v) for v in every], states[0], shape.width))
        body.set(at, body.u32_op(128, numbers[-1], body.constant(shape.lanes)))

    def _vector(self, number: int, output: int) -> list[int]:
        """The states of one vector of elements of this part, or the state that a pass before left."""
        body, given, width = self.body, self.body.given, self.shape.width
        within, number = number, body.u32_op(128, self.begin, number)
        if self.shape.from_states:
            index = body.u32_op(128, body.u32_op(132, number, given["kept"]), output)
            return [
                body.load(d, body.address(given[f"from_{s}"], index, d.itemsize))
                for s, d in zip(self.row.state, self.states, strict=True)
            ]
        element = self._stepped(number) if self.shape.stepped else body.load_at(self.x, width, self.block, within)
        k = self._numbers(number) if self.row.index else 0  # read by rows that count elements only
        names = {"x": (self.number, self.loaded(element, width)), "k": (int64, k)}
        return [i for _, i in self.values(self.row.map, names, self.states, width)]

    def _stepped(self, number: int) -> int:
        """The vector of the row that it lies in."""
        body, module, given, width = self.body, self.module, self.body.given, self.shape.width
        row, within = body.u32_op(134, number, given["inner"]), body.u32_op(137, number, given["inner"])
        i64, u64 = module.scalar("i64"), module.scalar("u64")
        far = module.emit(
            132, i64, module.emit(124, i64, module.emit(113, u64, row)), module.emit(114, i64, given["step"])
        )
        nbytes = module.emit(132, i64, far, module.constant("i64", self.x.itemsize))
        address = module.emit(128, u64, self.base, module.emit(124, u64, nbytes))
        address = body.address(address, within, self.x.itemsize * width)
        return body.load_at(self.x, width, body.block(self.x, width, address), body.constant(0))

    def _numbers(self, number: int) -> int:
        """The numbers of a vector's elements among all that are reduced."""
        module, width = self.module, self.shape.width
        u64, i64 = module.scalar("u64"), module.scalar("i64")
        wide = module.emit(132, u64, module.emit(113, u64, number), module.constant("u64", width))
        start = module.emit(124, i64, module.emit(128, u64, wide, self.body.given["first"]))
        if width == 1:
            return start
        each = [module.emit(128, i64, start, module.constant("i64", c)) for c in range(width)]
        return module.emit(80, module.scalar("i64", width), *each)

    def _across(self, states: list[int], narrow: Sequence[int], held: Sequence[Shared]) -> list[int]:
        """One state of all lanes' and components'."""
        body, module, shape = self.body, self.module, self.shape
        if shape.width > 1:
            parts = [
                [module.emit(81, t, s, c) for t, s in zip(narrow, states, strict=True)] for c in range(shape.width)
            ]
            while len(parts) > 1:
                parts = [self.joined(a, b) for a, b in zip(parts[::2], parts[1::2], strict=True)]
            states = parts[0]
        distance, turn = 1, 0
        while distance < shape.lanes:
            half, step = body.constant(turn * shape.group), body.constant(distance)
            here, there = body.u32_op(128, half, body.local), body.u32_op(128, half, body.u32_op(198, body.local, step))
            for array, value in zip(held, states, strict=True):
                array.set(here, value)
            body.barrier()
            upper = module.emit(171, body.boolean, body.u32_op(199, body.local, step), body.constant(0))
            other = [array.get(there) for array in held]
            low = [module.emit(169, t, upper, o, s) for t, o, s in zip(narrow, other, states, strict=True)]
            high = [module.emit(169, t, upper, s, o) for t, o, s in zip(narrow, other, states, strict=True)]
            states, turn, distance = self.joined(low, high), 1 - turn, 2 * distance
        return states
