"""Rows as SPIR-V modules: no shader compiler, no descriptors.

Layouts: `vector` (all dense; four elements a thread; the count is a multiple of 4 and addresses are aligned to it),
`dense`, `rows` (two axes, any strides, 64-bit offsets) and `general` (up to four). shaderInt64 is needed for the last two, for
elements narrower than 32 bits and for 64-bit integers. Parameters are push constants, where `fields` says: addresses
(of the first element, offset included), the count, for `rows` and `general` the sizes of all axes but the outermost and per
array the strides of all axes, the hoisted numbers.
Where they exceed 128 bytes, `block` is true and the one push constant is the address of a block that holds them. The
group size is specialization constant 0. A module strides over its grid, so any launch is right; fewer than 2^31 elements.

An update's 0-d slots are written by a module of their own, as in kernels/update.py: launch it after the step, behind a
barrier and by one thread. `supports` says what is there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .. import dtypes
from ..dtypes import DType
from .dag import Value, uses
from .expression import functions_in, parse
from .functions import FUNCTIONS
from .hoist import Hoisted
from .kinds import Lowered, argument_dtype, compute_dtype, lower_row, lower_update, number_dtype, update_parts
from .row import Row, Update
from .spirv_math import NATIVE, SINGLE, macros_of
from .spirv_module import PHYSICAL, PUSH_CONSTANT, Module, storage_name, string_words, type_name
from .spirv_values import Emitter

LAYOUTS = ("vector", "dense", "rows", "general")
PUSH_BYTES = 128  # what every Vulkan device has
RANKS = {"rows": 2, "general": 4}  # axes of the layouts with strides
LONG = 24  # operations from which on a thread takes two vectors at a time
INTEGER = frozenset({"abs", "sign", "maximum", "minimum", "where", "isnan", "isinf"})
FLOATING = NATIVE | {"where"} | SINGLE.keys() - {"%", "//"} | {"erfc_tail"}


@dataclass(frozen=True)
class Field:
    """One parameter: its name, its struct format (Q, I, i, f, d, q) and its byte offset."""

    name: str
    format: str
    offset: int


@dataclass(frozen=True)
class SpirvKernel:
    """One module: its words, where parameters stand, and what the host must evaluate for h0, h1, ..."""

    name: str
    words: bytes
    fields: tuple[Field, ...]
    block: bool
    hoisted: Hoisted
    span: int = 1  # elements that a thread takes at a time


def native(function: str, dtype: DType) -> bool:
    """Whether the emitter has an instruction, or a few, for this function."""
    return function in (NATIVE if dtype.is_floating else INTEGER)


def supports(row: Row, dtype: DType) -> bool:
    """Whether a row's functions can be said in the dtype that `dtype` is computed in."""
    if dtype.kind != "f":
        return all(FUNCTIONS[name].kind == "n" for name in row.functions)
    return row.functions <= FLOATING


def supports_update(row: Update, dtype: DType) -> bool:
    """Likewise for an update whose numbers are computed like `dtype`."""
    names = tuple(sorted({*row.arrays, *row.scalars, *(target for target, _ in row.statements)}))
    called = functions_in(*(parse(text, names) for _, text in row.statements))
    return dtype.kind == "f" and called <= FLOATING


def emit_row(row: Row, stored: Mapping[str, DType], layout: str, *, host: frozenset[str] = frozenset()) -> SpirvKernel:
    """The module of a row for these storage dtypes (by signature letter); RowError where a function is missing.

    Arguments named in `host` are numbers, not arrays.
    """
    used = {letter: stored[letter] for letter in row.signature.inputs + row.signature.outputs}
    lowered = lower_row(row, stored, native, host=host, macros=macros_of(number_dtype(row.name, used)))
    letters = dict(zip(row.args, row.signature.inputs, strict=True))
    arrays = {name: stored[letters[name]] for name in lowered.read}
    computed = {name: argument_dtype(letters[name], d, lowered.number) for name, d in arrays.items()}
    shell = _Shell({"out": stored[row.signature.outputs], **arrays}, lowered, layout)
    return shell.finish(row.name, computed, [("out", lowered.results[0][1])], frozenset())


def emit_copy(source: DType, target: DType, layout: str) -> SpirvKernel:
    """The module of out = x, converting: floats to integers are cut towards zero, narrowing rounds once, integers wrap.

    Without a conversion every bit is kept.
    """
    if source is target:
        source = target = dtypes.BY_NAME[f"uint{8 * source.itemsize}"]
    held, wanted = compute_dtype(source), compute_dtype(target)
    x = Value("name", held, (), "x")
    if wanted.itemsize == 4 and wanted.is_floating and held is dtypes.float64 and target.itemsize == 2:
        wanted = held  # the store rounds, once
    value = x if held is wanted else Value("convert", wanted, (x,))
    shell = _Shell({"out": target, "x": source}, Lowered(wanted, (("y", value),), (), (), ("x",)), layout)
    return shell.finish("copy", {"x": held}, [("out", value)], frozenset())


def emit_update(row: Update, stored: Mapping[str, DType], layout: str = "dense") -> tuple[SpirvKernel, ...]:
    """The modules of an update for these storage dtypes (by letter): the step and, if there are 0-d slots, theirs."""
    every, once = update_parts(row)
    by_array = {name: stored[letter] for name, letter in zip(row.arrays, row.letters, strict=True)}
    number = number_dtype(row.name, by_array)
    kernels = []
    for statements, slots in ((every, False), (once, True)):
        if statements:
            lowered = lower_update(row, statements, by_array, native, macros=macros_of(number))
            arrays = {name: d for name, d in by_array.items() if not slots or name in row.zero_d}
            results = [(name, value) for name, value in lowered.results if (name in row.zero_d) == slots]
            shell = _Shell(arrays, lowered, "slots" if slots else layout)
            read = dict.fromkeys(lowered.read, lowered.number)
            kernels.append(shell.finish(f"{row.name}.slots" if slots else row.name, read, results, row.zero_d))
    return tuple(kernels)


@dataclass(frozen=True)
class _Body:
    """What is done for each element: arrays read with what they are computed in, results, and what is known beforehand."""

    reads: Mapping[str, DType]
    results: Sequence[tuple[str, Value]]
    known: Mapping[str, int]
    scalars: frozenset[str]


class _Shell:
    """The loop around a row's value."""

    def __init__(self, arrays: Mapping[str, DType], lowered: Lowered, layout: str) -> None:
        self.arrays, self.lowered, self.layout = arrays, lowered, layout
        self.width = 4 if layout == "vector" else 1
        # a second vector hides the latency of long chains: gelu of 67M numbers 147 us, with two 131, a copy 128 (H200)
        self.vectors = 2 if layout == "vector" and len(uses([v for _, v in lowered.results])) > LONG else 1
        self.rank = RANKS.get(layout, 0)
        self.module = Module()
        self.emitter = Emitter(self.module, self.width)
        self.u32, self.boolean = self.module.scalar("u32"), self.module.scalar("bool")
        self.fields, self.types = self._parameters()
        self.block = self.fields[-1].offset + 8 > PUSH_BYTES
        self.loaded: dict[str, int] = {}
        self.blocks: dict[str, int] = {}

    def _parameters(self) -> tuple[tuple[Field, ...], tuple[int, ...]]:
        """Fields from the widest to the narrowest, so that none needs padding."""
        module, rank = self.module, self.rank
        numbers = [
            (name, type_name(d)) for (name, _), d in zip(self.lowered.hoisted, self.lowered.numbers, strict=True)
        ]
        formats = {"f64": "d", "i64": "q", "u64": "Q", "f32": "f", "i32": "i", "u32": "I"}
        wanted = [
            (name, "Q", module.scalar("u64") if self._is_wide(name) else module.scalar("u32", 2))
            for name in self.arrays
        ]
        wanted += [(name, formats[t], module.scalar(t)) for name, t in numbers if t.endswith("64")]
        wanted.append(("count", "I", self.u32))
        if rank:
            wanted += [(f"size{d}", "I", self.u32) for d in range(1, rank)]
            wanted += [(f"{name}_stride{d}", "i", module.scalar("i32")) for name in self.arrays for d in range(rank)]
        wanted += [(name, formats[t], module.scalar(t)) for name, t in numbers if not t.endswith("64")]
        fields, offset = [], 0
        for name, format_, _ in wanted:
            fields.append(Field(name, format_, offset))
            offset += 8 if format_ in "Qqd" else 4
        return tuple(fields), tuple(type_ for _, _, type_ in wanted)

    def _is_wide(self, name: str) -> bool:
        """Whether an address is a 64-bit integer, for which the device needs shaderInt64, and not two words.

        spirv-val (2023) takes a bitcast from words to a pointer to narrow elements for a conversion of narrow numbers.
        """
        return self.rank > 0 or self.arrays[name].itemsize < 4

    def finish(
        self, name: str, reads: Mapping[str, DType], results: Sequence[tuple[str, Value]], scalars: frozenset[str]
    ) -> SpirvKernel:
        """Emit main; arrays named in `scalars` have one element, at index 0."""
        module, emitter = self.module, self.emitter
        void = module.type(19)
        main, label = module.new(), module.new()
        group = self._builtins(main)
        module.op("function", 54, void, main, 0, module.type(33, void))
        module.op("function", 248, label)
        thread, step = self._thread(group)
        self._load_parameters()
        zero, end = module.constant("u32", 0), module.new()
        if self.layout == "slots":  # for the first thread alone, or a count would be stepped once a group
            body = module.new()
            first = module.emit(170, self.boolean, thread, zero)
            module.op("function", 247, end, 0)
            module.op("function", 250, first, body, end)
            module.op("function", 248, body)
        known = {name: self.loaded[name] for name, _ in self.lowered.hoisted}
        for array in reads:
            if array in scalars:
                known[array] = emitter.load(self.arrays[array], reads[array], self._element(array, zero))
        every = [value for _, value in results]
        self._emit_known(every, known)
        if self.layout == "slots":
            for array, value in results:
                self._store(array, zero, emitter.value(value), value.dtype)
            module.op("function", 249, end)
        else:
            count = self.loaded["count"]
            if self.width != 1:
                count = module.emit(194, self.u32, count, module.constant("u32", 2))
            work = _Body(reads, results, known, scalars)
            if self.vectors == 2:
                thread = self._loop(thread, count, step, work, 2)
                last, tail = module.new(), module.new()
                inside = module.emit(176, self.boolean, thread, count)
                module.op("function", 247, last, 0)
                module.op("function", 250, inside, tail, last)
                module.op("function", 248, tail)
                self._elements([thread], work)
                module.op("function", 249, last)
                module.op("function", 248, last)
            else:
                self._loop(thread, count, step, work, 1)
            module.op("function", 249, end)
        module.op("function", 248, end)
        module.op("function", 253)
        module.op("function", 56)
        stored = dict.fromkeys(self.arrays.values())
        tag = "_".join([name, *("bf16" if d.name == "bfloat16" else storage_name(d) for d in stored), self.layout])
        span = self.width * self.vectors
        return SpirvKernel(tag, module.words(), self.fields, self.block, self.lowered.hoisted, span)

    def _loop(self, first: int, count: int, step: int, body: _Body, vectors: int) -> int:
        """Take `vectors` at a time, `step` apart, while all lie below `count`; the first that was not taken."""
        module = self.module
        header, test, inner, after, end, next_index = (module.new() for _ in range(6))
        before = module.block
        module.op("function", 249, header)
        module.op("function", 248, header)
        index = module.emit(245, self.u32, first, before, next_index, after)
        module.op("function", 246, end, after, 0)
        module.op("function", 249, test)
        module.op("function", 248, test)
        indices = [index]
        for _ in range(vectors - 1):
            indices.append(module.emit(128, self.u32, indices[-1], step))
        inside = module.emit(176, self.boolean, indices[-1], count)
        module.op("function", 250, inside, inner, end)
        module.op("function", 248, inner)
        self._elements(indices, body)
        module.op("function", 249, after)
        module.op("function", 248, after)
        module.op("function", 128, self.u32, next_index, indices[-1], step)
        module.op("function", 249, header)
        module.op("function", 248, end)
        return index

    def _elements(self, indices: Sequence[int], body: _Body) -> None:
        """Load, compute and store the elements of these indices."""
        invariant, places, known = dict(self.emitter.known), [self._places(i) for i in indices], []
        for place in places:
            loaded = {
                a: self.emitter.load(self.arrays[a], d, self._element(a, place[a]))
                for a, d in body.reads.items()
                if a not in body.scalars
            }
            known.append({**body.known, **loaded})
        for place, names in zip(places, known, strict=True):
            self.emitter.known = dict(invariant)
            self._emit_known([value for _, value in body.results], names)
            held = [(array, self.emitter.value(value), value.dtype) for array, value in body.results]
            for array, value_id, dtype in held:
                self._store(array, place[array], value_id, dtype)
        self.emitter.known = invariant

    def _emit_known(self, roots: Sequence[Value], known: Mapping[str, int]) -> None:
        """Emit what depends on known names alone: before the loop, what is the same for every element."""
        ready: set[Value] = set()
        for value in uses(roots):
            if value.op == "name" and str(value.data) in known:
                self.emitter.known[value] = known[str(value.data)]
                ready.add(value)
            elif value.op == "constant" or (value.args and all(a in ready for a in value.args)):
                ready.add(value)
                if value.op != "constant":
                    self.emitter.value(value)

    def _builtins(self, main: int) -> tuple[int, int, int]:
        """Entry point, execution mode, and the variables that say which thread this is."""
        module = self.module
        v3 = module.scalar("u32", 3)
        pointer = module.pointer(1, v3)
        thread, groups = module.new(), module.new()
        for variable, builtin in ((thread, 28), (groups, 24)):  # GlobalInvocationId, NumWorkgroups
            module.op("type", 59, pointer, variable, 1)
            module.op("decoration", 71, variable, 11, builtin)
        size = module.new()
        module.op("type", 50, self.u32, size, 64)  # a specialization constant
        module.op("decoration", 71, size, 1, 0)
        one = module.constant("u32", 1)
        whole = module.new()
        module.op("type", 51, v3, whole, size, one, one)
        module.op("decoration", 71, whole, 11, 25)  # WorkgroupSize
        module.op("entry", 15, 5, main, *string_words("main"), thread, groups)
        module.op("mode", 16, main, 17, 64, 1, 1)
        return thread, groups, size

    def _thread(self, group: tuple[int, int, int]) -> tuple[int, int]:
        """This thread's number and how many there are."""
        module, (thread, groups, size) = self.module, group
        v3 = module.scalar("u32", 3)
        first = module.emit(81, self.u32, module.emit(61, v3, thread), 0)
        count = module.emit(81, self.u32, module.emit(61, v3, groups), 0)
        return first, module.emit(132, self.u32, count, size)

    def _load_parameters(self) -> None:
        module = self.module
        structure = module.structure(self.types, [f.offset for f in self.fields])
        storage, memory = PUSH_CONSTANT, tuple[int, ...]()
        if self.block:
            inner = module.pointer(PHYSICAL, structure)
            outer = module.structure([inner], [0])
            variable = self._variable(outer)
            place = module.emit(65, module.pointer(PUSH_CONSTANT, inner), variable, module.constant("u32", 0))
            base, storage = module.emit(61, inner, place), PHYSICAL
        else:
            base = self._variable(structure)
        numbers = {name: d for (name, _), d in zip(self.lowered.hoisted, self.lowered.numbers, strict=True)}
        for index, (field, type_) in enumerate(zip(self.fields, self.types, strict=True)):
            place = module.emit(65, module.pointer(storage, type_), base, module.constant("u32", index))
            memory = (2, 8 if field.format in "Qqd" else 4) if self.block else ()
            value = module.emit(61, type_, place, *memory)
            if field.name in numbers and self.width != 1:
                kind = next(
                    type_name(d)
                    for (n, _), d in zip(self.lowered.hoisted, self.lowered.numbers, strict=True)
                    if n == field.name
                )
                value = module.emit(80, module.scalar(kind, self.width), *[value] * self.width)
            self.loaded[field.name] = value
        if not self.rank:
            for name, dtype in self.arrays.items():
                block, _ = module.array_of(storage_name(dtype), self.width, dtype.itemsize * self.width)
                self.blocks[name] = module.emit(120 if self._is_wide(name) else 124, block, self.loaded[name])

    def _variable(self, structure: int) -> int:
        variable = self.module.new()
        self.module.op("type", 59, self.module.pointer(PUSH_CONSTANT, structure), variable, PUSH_CONSTANT)
        return variable

    def _places(self, index: int) -> dict[str, int]:
        """For each array its index, or, where it has strides, the byte offset of its element."""
        if not self.rank:
            return dict.fromkeys(self.arrays, index)
        module, i64 = self.module, self.module.scalar("i64")
        coordinates: list[int] = []
        rest = index
        for d in reversed(range(1, self.rank)):
            size = self.loaded[f"size{d}"]
            coordinates.insert(0, module.emit(137, self.u32, rest, size))
            rest = module.emit(134, self.u32, rest, size)
        coordinates.insert(0, rest)
        wide = [module.emit(124, i64, module.emit(113, module.scalar("u64"), c)) for c in coordinates]
        places = {}
        for name, dtype in self.arrays.items():
            total = module.constant("i64", 0)
            for d in range(self.rank):
                stride = module.emit(114, i64, self.loaded[f"{name}_stride{d}"])
                total = module.emit(128, i64, total, module.emit(132, i64, wide[d], stride))
            places[name] = module.emit(132, i64, total, module.constant("i64", dtype.itemsize))
        return places

    def _pointer_to(self, name: str, place: int) -> tuple[int, int, int]:
        """Pointer, element type and alignment of an array's element."""
        module, dtype = self.module, self.arrays[name]
        nbytes = dtype.itemsize * self.width
        block, element = module.array_of(storage_name(dtype), self.width, nbytes)
        type_ = module.scalar(storage_name(dtype), self.width)
        zero = module.constant("u32", 0)
        if self.rank:
            u64 = module.scalar("u64")
            address = module.emit(128, u64, self.loaded[name], module.emit(124, u64, place))
            return module.emit(65, element, module.emit(120, block, address), zero, zero), type_, nbytes
        return module.emit(65, element, self.blocks[name], zero, place), type_, nbytes

    def _element(self, name: str, place: int) -> int:
        pointer, type_, nbytes = self._pointer_to(name, place)
        return self.module.emit(61, type_, pointer, 2, nbytes)  # 2: aligned to

    def _store(self, name: str, place: int, value: int, dtype: DType) -> None:
        converted = self.emitter.store(dtype, self.arrays[name], value)
        pointer, _, nbytes = self._pointer_to(name, place)
        self.module.op("function", 62, pointer, converted, 2, nbytes)
