"""Reductions as SPIR-V modules, emitted whole from their rows: a thread a part of an output's elements.

A pass maps elements to states (or reads states that a pass before it left), combines every `parts`-th of them, runs of 16
in a tree, then run after run, and finishes into the outputs or leaves states for the next pass. No shared memory and no
barriers within a kernel: neighbouring threads read neighbouring elements, and the order depends on shapes alone, so the
same shape always gives the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ... import dtypes
from ...dtypes import DType
from ...kernels.reduce import accumulator
from ...rows.dag import Builder, Value
from ...rows.expression import parse
from ...rows.kinds import compute_dtype
from ...rows.row import Reduction
from ...rows.spirv import SpirvKernel, native
from ...rows.spirv_math import macros_of
from ...rows.spirv_module import type_name
from ...rows.spirv_values import Emitter
from .structure import Body

RANK = 4
RUNS = (4, 16)  # elements that a thread combines in a tree before they join the rest


@dataclass(frozen=True, eq=True)
class Pass:
    """What one module does: where it begins and ends, whether neighbouring threads take neighbouring outputs, and its ranks."""

    from_states: bool
    to_states: bool
    outputs_fast: bool
    run: int
    kept_rank: int = 1
    reduced_rank: int = 1


def state_dtypes(row: Reduction, x: DType, outs: Sequence[DType]) -> tuple[DType, ...]:
    """The dtypes of the parts of a state."""
    number = accumulator(row, x, outs)
    return tuple(dtypes.int64 if s in row.index else number for s in row.state)


def parameters_of(row: Reduction, shape: Pass) -> list[tuple[str, str]]:
    """Names and formats: addresses, counts, and for elements the sizes and strides of kept and reduced axes.

    `n` is what `finish` calls so, `first` the number of the first element of this pass among all that are reduced.
    """
    sources = [f"from_{s}" for s in row.state] if shape.from_states else ["x"]
    targets = [f"to_{s}" for s in row.state] if shape.to_states else [f"out{i}" for i in range(len(row.finish))]
    found = [(name, "Q") for name in (*sources, *targets)]
    found += [("n", "Q")] if shape.from_states else [("n", "Q"), ("first", "Q")]
    found += [(name, "I") for name in ("kept", "reduced", "parts")]
    if not shape.from_states:
        found += [(f"{side}_size{d}", "I") for side in ("kept", "reduced") for d in range(1, RANK)]
        found += [(f"{side}_stride{d}", "i") for side in ("kept", "reduced") for d in range(RANK)]
    return found


def emit_reduction(row: Reduction, x: DType, outs: Sequence[DType], shape: Pass) -> SpirvKernel:
    """The module of one pass."""
    return Reducer(row, x, outs, parameters_of(row, shape), shape).kernel()


class Reducer:
    """What both kinds of modules have in common: the state's values, elements as numbers, and the way out."""

    def __init__(
        self, row: Reduction, x: DType, outs: Sequence[DType], parameters: Sequence[tuple[str, str]], shape: Any
    ) -> None:
        self.row, self.x, self.outs, self.shape = row, x, outs, shape
        self.number = accumulator(row, x, outs)
        self.states = state_dtypes(row, x, outs)
        self.limits = x if x.kind in "iu" and row.integers == "same" else self.number
        self.body = Body(parameters)
        self.module = self.body.module

    def values(
        self, texts: Sequence[str], names: Mapping[str, tuple[DType, int]], hints: Sequence[DType], width: int = 1
    ) -> list[tuple[DType, int]]:
        """The dtype and id of each text over names that have dtypes and ids, in vectors of `width`."""
        builder = Builder(self.number, native=native, limits=self.limits, macros=macros_of(self.number))
        emitter = Emitter(self.module, width)
        known = {}
        for name, (dtype, held) in names.items():
            known[name] = builder.name(name, dtype)
            emitter.known[known[name]] = held
        built = [builder.build(parse(t, tuple(names)), known, hint) for t, hint in zip(texts, hints, strict=True)]
        return [(value.dtype, emitter.value(value)) for value in built]

    def kernel(self) -> SpirvKernel:
        body, shape, given = self.body, self.shape, self.body.given
        total = body.u32_op(132, given["kept"], given["parts"])
        identity = [i for _, i in self.values(self.row.identity, {}, self.states)]
        types = [self.module.scalar(type_name(d)) for d in self.states]
        thread = body.variable(body.u32, body.thread)
        every = [body.variable(t, i) for t, i in zip(types, identity, strict=True)]
        at = body.variable(body.u32, body.constant(0))

        def one_output() -> None:
            t = body.get(thread)
            by = given["kept"] if shape.outputs_fast else given["parts"]
            low, high = body.u32_op(137, t, by), body.u32_op(134, t, by)
            output, part = (low, high) if shape.outputs_fast else (high, low)
            base = self._base(output)
            body.set(at, part)
            self.assign(every, identity)
            body.loop(lambda: body.less(body.get(at), given["reduced"]), lambda: run(base, output))
            self.write(output, part, [body.get(v) for v in every])
            body.set(thread, body.u32_op(128, t, body.threads))

        def run(base: int, output: int) -> None:
            k = body.get(at)
            states = []
            last = body.u32_op(130, given["reduced"], body.constant(1))
            for _ in range(shape.run):
                inside = body.less(k, given["reduced"])
                state = self._element(base, output, body.u32_op(169, inside, k, last))
                states.append(
                    [self.module.emit(169, t, inside, s, i) for t, s, i in zip(types, state, identity, strict=True)]
                )
                k = body.u32_op(128, k, given["parts"])
            body.set(at, k)
            while len(states) > 1:
                states = [self.joined(left, right) for left, right in zip(states[::2], states[1::2], strict=True)]
            self.assign(every, self.joined([body.get(v) for v in every], states[0]))

        body.loop(lambda: body.less(body.get(thread), total), one_output)
        name = f"{self.row.name}_{self.x.name}_{'_'.join(d.name for d in self.outs)}"
        return SpirvKernel(name, body.words(), body.fields, False, ())

    def assign(self, variables: Sequence[tuple[int, int]], values: Sequence[int]) -> None:
        """To each variable its value."""
        for variable, value in zip(variables, values, strict=True):
            self.body.set(variable, value)

    def joined(self, left: Sequence[int], right: Sequence[int], width: int = 1) -> list[int]:
        """Two states combined, in this order."""
        names = {}
        for state, dtype, one, two in zip(self.row.state, self.states, left, right, strict=True):
            names[f"{state}1"], names[f"{state}2"] = (dtype, one), (dtype, two)
        return [i for _, i in self.values(self.row.combine, names, self.states, width)]

    def _base(self, output: int) -> int:
        """Where an output's elements begin, in bytes; nothing for states."""
        if self.shape.from_states:
            return 0
        return self.place(self.body.given["x"], "kept", self.shape.kept_rank, output)

    def place(self, base: int, side: str, rank: int, index: int) -> int:
        """base + the bytes to the index-th place of the kept or the reduced axes."""
        body, module, given = self.body, self.module, self.body.given
        sizes = [given[f"{side}_size{d}"] for d in range(RANK - rank + 1, RANK)]
        strides = [given[f"{side}_stride{d}"] for d in range(RANK - rank, RANK)]
        offset = body.strided(index, sizes, strides)
        nbytes = module.emit(132, module.scalar("i64"), offset, module.constant("i64", self.x.itemsize))
        return module.emit(128, module.scalar("u64"), base, module.emit(124, module.scalar("u64"), nbytes))

    def _element(self, base: int, output: int, k: int) -> list[int]:
        """The state of the k-th element."""
        body, module = self.body, self.module
        if self.shape.from_states:
            index = body.u32_op(128, body.u32_op(132, k, body.given["kept"]), output)
            return [
                body.load(dtype, body.address(body.given[f"from_{s}"], index, dtype.itemsize))
                for s, dtype in zip(self.row.state, self.states, strict=True)
            ]
        place = self.place(base, "reduced", self.shape.reduced_rank, k)
        x = self.loaded(body.load(self.x, place))
        u64 = module.scalar("u64")
        number = module.emit(128, u64, module.emit(113, u64, k), body.given["first"])
        wide = module.emit(124, module.scalar("i64"), number)
        return [
            i for _, i in self.values(self.row.map, {"x": (self.number, x), "k": (dtypes.int64, wide)}, self.states)
        ]

    def loaded(self, element: int, width: int = 1) -> int:
        """An element as a number of the state."""
        emitter, apart = Emitter(self.module, width), self.number.is_floating and self.x.is_integer
        held = compute_dtype(self.x) if apart else self.number
        loaded = emitter.load(self.x, held, element)
        if not apart:
            return loaded
        name = Value("name", held, (), "x")
        emitter.known[name] = loaded
        return emitter.value(Value("convert", self.number, (name,)))

    def write(self, output: int, part: int, state: Sequence[int]) -> None:
        """Finish into the outputs, or leave the state for the next pass."""
        body, given = self.body, self.body.given
        if self.shape.to_states:
            index = body.u32_op(128, body.u32_op(132, part, given["kept"]), output)
            for s, dtype, value in zip(self.row.state, self.states, state, strict=True):
                body.store(dtype, body.address(given[f"to_{s}"], index, dtype.itemsize), value)
            return
        emitter, count = Emitter(self.module, 1), self._count()
        names = {s: (d, i) for s, d, i in zip(self.row.state, self.states, state, strict=True)}
        hints = [
            self.number if d.is_floating or self.number.is_floating or not self.row.index else dtypes.int64
            for d in self.outs
        ]
        results = self.values(self.row.finish, names | {"n": (self.number, count)}, hints)
        for i, ((computed, value), dtype) in enumerate(zip(results, self.outs, strict=True)):
            body.store(
                dtype, body.address(given[f"out{i}"], output, dtype.itemsize), emitter.store(computed, dtype, value)
            )

    def _count(self) -> int:
        """n as a number."""
        module, n = self.module, self.body.given["n"]
        if self.number.is_floating:
            return module.emit(112, module.scalar(type_name(self.number)), n)
        if self.number.itemsize < 8:
            n = module.emit(113, module.scalar("u32"), n)
        return n if self.number.kind == "u" else module.emit(124, module.scalar(type_name(self.number)), n)
