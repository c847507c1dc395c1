"""Fused rows as SPIR-V modules: kernels/fused.py's plan, emitted."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import reduce

from ...dtypes import DType
from ...kernels.fused import Geometry
from ...rows.dag import Value, uses
from ...rows.fused import PLACE, Fused, LoweredFused, Step, lower_fused, output_dtypes
from ...rows.kinds import compute_dtype, number_dtype
from ...rows.spirv import SpirvKernel, native
from ...rows.spirv_math import macros_of
from ...rows.spirv_module import type_name
from ...rows.spirv_values import Emitter
from .structure import Body


def emit_fused(
    row: Fused,
    stored: Mapping[str, DType],
    shape: Geometry,
    *,
    absent: Collection[str] = (),
    shared: Collection[str] = (),
) -> SpirvKernel:
    """The module of a fused row for these storage dtypes (by letter), arguments in `absent` left out.

    Of `single` arguments, those in `shared` are one number for all rows. Parameters: the addresses of the outputs, of the
    arguments and, where the row reports an index, of the report; wide numbers, rows, n, the report's launch, numbers.
    """
    lowered = lower_fused(row, stored, native, absent=absent, macros=macros_of(number_dtype(row.name, stored)))
    return _Module(row, stored, shape, lowered, frozenset(shared)).kernel()


class _Module:
    def __init__(self, row: Fused, stored: Mapping[str, DType], shape: Geometry, lowered: LoweredFused,
                 shared: frozenset[str]) -> None:  # fmt: skip
        self.row, self.shape, self.lowered, self.number, self.shared = row, shape, lowered, lowered.number, shared
        self.outs = dict(zip(row.outputs, output_dtypes(row, stored), strict=True))
        letters = dict(zip(row.args, row.signature.inputs, strict=True))
        self.args = {name: stored[letters[name]] for name in lowered.read}
        wide = self.number.itemsize == 8
        numbers = [(name, "d" if wide else "f") for name, _ in lowered.hoisted]
        parameters = [(f"out_{name}", "Q") for name in self.outs] + [(f"in_{name}", "Q") for name in self.args]
        reports = row.report is not None
        parameters += ([("report", "Q")] if reports else []) + (numbers if wide else []) + [("rows", "I"), ("n", "I")]
        parameters += ([("launch", "I")] if reports else []) + ([] if wide else numbers)
        self.body = Body(parameters)
        self.module, self.given = self.body.module, self.body.given
        self.type_ = self.module.scalar(type_name(self.number))
        self.single: dict[str, int] = {name: self.given[name] for name, _ in lowered.hoisted}
        self.splat: dict[str, int] = {}
        self.each: dict[str, list[int]] = {}
        self.turns = 0

    def kernel(self) -> SpirvKernel:
        body, shape = self.body, self.shape
        self.held = body.shared(self.type_, 2 * shape.group) if shape.lanes > 1 else None
        self.lane = body.u32_op(137, body.local, body.constant(shape.lanes))
        group = body.variable(body.u32, body.group)
        last = body.u32_op(130, self.given["rows"], body.constant(1))

        def rows_of_group() -> None:
            first = body.u32_op(132, body.get(group), body.constant(shape.rows))
            at = body.u32_op(128, first, body.u32_op(134, body.local, body.constant(shape.lanes)))
            self.there = body.less(at, self.given["rows"])
            self.place = body.u32_op(169, self.there, at, last)
            self._row()
            if self.held is not None:
                body.barrier()
            body.set(group, body.u32_op(128, body.get(group), body.groups))

        total = body.u32_op(134, body.u32_op(128, last, body.constant(shape.rows)), body.constant(shape.rows))
        body.loop(lambda: body.less(body.get(group), total), rows_of_group)
        dtypes = "_".join(dict.fromkeys(d.name for d in (*self.outs.values(), *self.args.values())))
        name = f"{self.row.name}_{dtypes}_{shape.width}x{shape.chunks}x{shape.lanes}"
        return SpirvKernel(name, body.words(), body.fields, False, self.lowered.hoisted)

    def _row(self) -> None:
        body, shape = self.body, self.shape
        count = self.given["n"] if shape.width == 1 else body.u32_op(194, self.given["n"], body.constant(2))
        self.units = [
            body.u32_op(128, body.constant(k * shape.lanes), self.lane) if k else self.lane for k in range(shape.chunks)
        ]
        self.inside = None if shape.exact else [body.less(unit, count) for unit in self.units]
        reach = self.units
        if self.inside is not None:
            reach = [body.u32_op(169, i, u, body.constant(0)) for i, u in zip(self.inside, self.units, strict=True)]
        if any(one.data == PLACE for step in self.lowered.steps for one in uses([step.value]) if one.op == "name"):
            self.each[PLACE] = self._places()
        for name, dtype in self.args.items():
            self._load(name, dtype, reach)
        for step in self.lowered.steps:
            self._step(step)
        for name, dtype in self.outs.items():
            self._store(name, dtype)
        if self.row.report is not None:
            self._report(*self.row.report)

    def _report(self, index: str, wrong: str) -> None:
        """Write what shaders/common.glsl's report_index does."""
        body, module = self.body, self.module
        first = module.emit(170, body.boolean, self.lane, body.constant(0))
        zero = Emitter(module, 1).value(Value("constant", self.number, (), 0.0))
        outside = module.emit(183, body.boolean, self.single[wrong], zero)  # OpFUnordNotEqual
        both = module.emit(167, body.boolean, module.emit(167, body.boolean, self.there, first), outside)
        body.when(both, lambda: body.report(self.given["report"], self.given["launch"], self.given["n"], self.index))

    def _base(self, address: int, dtype: DType) -> int:
        """Where this row begins."""
        module, u64 = self.module, self.module.scalar("u64")
        far = module.emit(132, u64, module.emit(113, u64, self.place), module.emit(113, u64, self.given["n"]))
        return module.emit(128, u64, address, module.emit(132, u64, far, module.constant("u64", dtype.itemsize)))

    def _load(self, name: str, dtype: DType, reach: list[int]) -> None:
        body, address, width = self.body, self.given[f"in_{name}"], self.shape.width
        if name in self.row.single:
            place = body.constant(0) if name in self.shared else self.place
            element = body.load(dtype, body.address(address, place, dtype.itemsize))
            self.single[name] = self._number(dtype, element)
            if self.row.report is not None and name == self.row.report[0]:
                self.index = body.wide(dtype, element)
            return
        block = body.block(dtype, width, address if name in self.row.along else self._base(address, dtype))
        emitter = Emitter(self.module, width)
        elements = [body.load_at(dtype, width, block, unit) for unit in reach]
        self.each[name] = [emitter.load(dtype, self.number, element) for element in elements]

    def _number(self, dtype: DType, element: int) -> int:
        """One element as a number of the row; integers are converted."""
        emitter = Emitter(self.module, 1)
        if not dtype.is_integer:
            return emitter.load(dtype, self.number, element)
        held = compute_dtype(dtype)
        name = Value("name", held, (), "x")
        emitter.known[name] = emitter.load(dtype, held, element)
        return emitter.value(Value("convert", self.number, (name,)))

    def _places(self) -> list[int]:
        """The elements' places in the row, as numbers."""
        module, width = self.module, self.shape.width
        type_ = module.scalar(type_name(self.number))
        found = []
        for unit in self.units:
            first = self.body.u32_op(132, unit, self.body.constant(width))
            each = [module.emit(112, type_, self.body.u32_op(128, first, self.body.constant(c))) for c in range(width)]
            found.append(
                each[0] if width == 1 else module.emit(80, module.scalar(type_name(self.number), width), *each)
            )
        return found

    def _value(self, value: Value, chunk: int | None) -> int:
        """A Value for one chunk, or for the row."""
        emitter = Emitter(self.module, 1 if chunk is None else self.shape.width)
        for one in uses([value]):
            if one.op == "name":
                name = str(one.data)
                if name in self.each and chunk is not None:
                    emitter.known[one] = self.each[name][chunk]
                else:
                    emitter.known[one] = self._wide(name) if chunk is not None else self.single[name]
        return emitter.value(value)

    def _wide(self, name: str) -> int:
        """One number of the row in every component."""
        if self.shape.width == 1:
            return self.single[name]
        if name not in self.splat:
            type_ = self.module.scalar(type_name(self.number), self.shape.width)
            self.splat[name] = self.module.emit(80, type_, *[self.single[name]] * self.shape.width)
        return self.splat[name]

    def _step(self, step: Step) -> None:
        s, chunks = step.statement, range(self.shape.chunks)
        if s.first:
            dtype = self.args[s.text]
            element = self.body.load(dtype, self._base(self.given[f"in_{s.text}"], dtype))
            self.single[s.target] = Emitter(self.module, 1).load(dtype, self.number, element)
        elif s.each:
            self.each[s.target] = [self._value(step.value, k) for k in chunks]
        elif s.reduction is None:
            self.single[s.target] = self._value(step.value, None)
        else:
            self.single[s.target] = self._reduced(step, [self._value(step.value, k) for k in chunks])

    def _joined(self, step: Step, width: int, left: int, right: int) -> int:
        assert step.joined is not None
        emitter = Emitter(self.module, width)
        for value in uses([step.joined]):
            if value.op == "name":
                emitter.known[value] = left if value.data == "s1" else right
        return emitter.value(step.joined)

    def _reduced(self, step: Step, states: list[int]) -> int:
        body, module, shape = self.body, self.module, self.shape
        if self.inside is not None:
            assert step.identity is not None
            identity = Emitter(module, shape.width).value(step.identity)
            type_ = module.scalar(type_name(self.number), shape.width)
            states = [module.emit(169, type_, self._wide_truth(i), s, identity) for i, s in zip(self.inside, states, strict=True)]  # fmt: skip
        mine = reduce(lambda a, b: self._joined(step, shape.width, a, b), states)
        if shape.width == 4:
            parts = [module.emit(81, self.type_, mine, c) for c in range(4)]
            mine = self._joined(step, 1, self._joined(step, 1, *parts[:2]), self._joined(step, 1, *parts[2:]))
        distance = 1
        while distance < shape.lanes:
            assert self.held is not None
            half, step_ = body.constant((self.turns % 2) * shape.group), body.constant(distance)
            self.held.set(body.u32_op(128, half, body.local), mine)
            body.barrier()
            other = self.held.get(body.u32_op(128, half, body.u32_op(198, body.local, step_)))
            upper = module.emit(171, body.boolean, body.u32_op(199, body.local, step_), body.constant(0))
            low, high = (
                module.emit(169, self.type_, upper, other, mine),
                module.emit(169, self.type_, upper, mine, other),
            )
            mine = self._joined(step, 1, low, high)
            self.turns += 1
            distance *= 2
        return mine

    def _wide_truth(self, truth: int) -> int:
        width = self.shape.width
        return truth if width == 1 else self.module.emit(80, self.module.scalar("bool", width), *[truth] * width)

    def _store(self, name: str, dtype: DType) -> None:
        body, width, address = self.body, self.shape.width, self.given[f"out_{name}"]
        if name not in self.each:
            value = Emitter(self.module, 1).store(self.number, dtype, self.single[name])
            first = self.module.emit(170, body.boolean, self.lane, body.constant(0))
            both = self.module.emit(167, body.boolean, self.there, first)
            body.when(both, lambda: body.store(dtype, body.address(address, self.place, dtype.itemsize), value))
            return
        block, emitter = body.block(dtype, width, self._base(address, dtype)), Emitter(self.module, width)
        values = [emitter.store(self.number, dtype, value) for value in self.each[name]]

        def every() -> None:
            for unit, value in zip(self.units, values, strict=True):
                body.store_at(dtype, width, block, unit, value)

        if self.inside is None:
            body.when(self.there, every)
            return
        for unit, value, inside in zip(self.units, values, self.inside, strict=True):
            both = self.module.emit(167, body.boolean, self.there, inside)
            body.when(both, lambda u=unit, v=value: body.store_at(dtype, width, block, u, v))  # type: ignore[misc]
