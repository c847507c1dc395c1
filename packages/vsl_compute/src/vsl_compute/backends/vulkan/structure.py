"""Structured control flow over a SPIR-V Module: variables, loops, branches, shared memory, push constants, elements by address."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...dtypes import DType, int64, uint32
from ...rows.spirv import Field
from ...rows.spirv_module import PUSH_CONSTANT, Module, storage_name, string_words

SHARED, FUNCTION = 4, 7  # storage classes
_TYPES = {"Q": "u64", "I": "u32", "i": "i32", "f": "f32", "d": "f64"}


@dataclass(frozen=True)
class Shared:
    """An array in shared memory."""

    module: Module
    variable: int
    pointer: int
    type_: int

    def get(self, index: int) -> int:
        """The element there."""
        return self.module.emit(61, self.type_, self.module.emit(65, self.pointer, self.variable, index))

    def set(self, index: int, value: int) -> None:
        """Put an element there."""
        self.module.op("function", 62, self.module.emit(65, self.pointer, self.variable, index), value)


class Body:
    """The entry point of a compute module under construction; specialization constant 0 is the group's size."""

    def __init__(self, parameters: Sequence[tuple[str, str]]) -> None:
        """`parameters` are (name, format) from the widest to the narrowest."""
        module = self.module = Module()
        self.u32, self.boolean = module.scalar("u32"), module.scalar("bool")
        main, label = module.new(), module.new()
        thread, groups, local, group, self.size = self._builtins(main)
        void = module.type(19)
        module.op("function", 54, void, main, 0, module.type(33, void))
        module.op("function", 248, label)
        self._start = len(module.sections["function"])
        self._declared: list[int] = []
        v3 = module.scalar("u32", 3)
        self.thread = module.emit(81, self.u32, module.emit(61, v3, thread), 0)
        self.groups = module.emit(81, self.u32, module.emit(61, v3, groups), 0)
        self.threads = module.emit(132, self.u32, self.groups, self.size)
        self.local = module.emit(81, self.u32, module.emit(61, v3, local), 0)
        self.group = module.emit(81, self.u32, module.emit(61, v3, group), 0)
        self.fields, self.given = self._load_parameters(parameters)

    def _builtins(self, main: int) -> tuple[int, int, int, int, int]:
        module = self.module
        v3 = module.scalar("u32", 3)
        pointer = module.pointer(1, v3)
        thread, groups, local, group, size, whole = (module.new() for _ in range(6))
        # GlobalInvocationId, NumWorkgroups, LocalInvocationId, WorkgroupId
        for variable, builtin in ((thread, 28), (groups, 24), (local, 27), (group, 26)):
            module.op("type", 59, pointer, variable, 1)
            module.op("decoration", 71, variable, 11, builtin)
        module.op("type", 50, self.u32, size, 64)
        module.op("decoration", 71, size, 1, 0)
        one = module.constant("u32", 1)
        module.op("type", 51, v3, whole, size, one, one)
        module.op("decoration", 71, whole, 11, 25)  # WorkgroupSize
        module.op("entry", 15, 5, main, *string_words("main"), thread, groups, local, group)
        module.op("mode", 16, main, 17, 64, 1, 1)
        return thread, groups, local, group, size

    def _load_parameters(self, parameters: Sequence[tuple[str, str]]) -> tuple[tuple[Field, ...], dict[str, int]]:
        module, fields, offset = self.module, [], 0
        for name, form in parameters:
            fields.append(Field(name, form, offset))
            offset += 8 if form in "Qd" else 4
        types = [module.scalar(_TYPES[f.format]) for f in fields]
        structure = module.structure(types, [f.offset for f in fields])
        base = module.new()
        module.op("type", 59, module.pointer(PUSH_CONSTANT, structure), base, PUSH_CONSTANT)
        given = {}
        for i, (field, type_) in enumerate(zip(fields, types, strict=True)):
            place = module.emit(65, module.pointer(PUSH_CONSTANT, type_), base, module.constant("u32", i))
            given[field.name] = module.emit(61, type_, place)
        return tuple(fields), given

    def variable(self, type_: int, value: int) -> tuple[int, int]:
        """A variable that starts as `value`: its pointer and type."""
        pointer = self.module.new()
        self._declared += [4 << 16 | 59, self.module.pointer(FUNCTION, type_), pointer, FUNCTION]
        self.set((pointer, type_), value)
        return pointer, type_

    def get(self, variable: tuple[int, int]) -> int:
        """What a variable holds."""
        return self.module.emit(61, variable[1], variable[0])

    def set(self, variable: tuple[int, int], value: int) -> None:
        """Assign to a variable."""
        self.module.op("function", 62, variable[0], value)

    def loop(self, condition: Callable[[], int], body: Callable[[], None]) -> None:
        """While the condition holds."""
        module = self.module
        header, test, inside, after, end = (module.new() for _ in range(5))
        module.op("function", 249, header)
        module.op("function", 248, header)
        module.op("function", 246, end, after, 0)
        module.op("function", 249, test)
        module.op("function", 248, test)
        module.op("function", 250, condition(), inside, end)
        module.op("function", 248, inside)
        body()
        module.op("function", 249, after)
        module.op("function", 248, after)
        module.op("function", 249, header)
        module.op("function", 248, end)

    def when(self, condition: int, body: Callable[[], None]) -> None:
        """If the condition holds."""
        module = self.module
        inside, end = module.new(), module.new()
        module.op("function", 247, end, 0)
        module.op("function", 250, condition, inside, end)
        module.op("function", 248, inside)
        body()
        module.op("function", 249, end)
        module.op("function", 248, end)

    def shared(self, type_: int, count: int) -> Shared:
        """An array that a group of threads shares."""
        module, variable = self.module, self.module.new()
        array = module.type(28, type_, self.constant(count))
        module.op("type", 59, module.pointer(SHARED, array), variable, SHARED)
        return Shared(module, variable, module.pointer(SHARED, type_), type_)

    def barrier(self) -> None:
        """All threads of the group have come here, and see what the others put into shared memory."""
        scope = self.constant(2)  # Workgroup
        self.module.op("function", 224, scope, scope, self.constant(0x108))  # AcquireRelease, WorkgroupMemory

    def u32_op(self, code: int, *operands: int) -> int:
        """One instruction on 32-bit unsigned numbers."""
        return self.module.emit(code, self.u32, *operands)

    def constant(self, value: int) -> int:
        """A 32-bit unsigned constant."""
        return self.module.constant("u32", value)

    def less(self, a: int, b: int) -> int:
        """a < b, unsigned."""
        return self.module.emit(176, self.boolean, a, b)

    def _pointer(self, dtype: DType, address: int) -> tuple[int, int]:
        module = self.module
        block, element = module.array_of(storage_name(dtype), 1, dtype.itemsize)
        zero = module.constant("u32", 0)
        return module.emit(65, element, module.emit(120, block, address), zero, zero), module.scalar(
            storage_name(dtype)
        )

    def load(self, dtype: DType, address: int) -> int:
        """The element at a byte address, as it is stored."""
        pointer, type_ = self._pointer(dtype, address)
        return self.module.emit(61, type_, pointer, 2, dtype.itemsize)

    def store(self, dtype: DType, address: int, value: int) -> None:
        """Put a stored element at a byte address."""
        pointer, _ = self._pointer(dtype, address)
        self.module.op("function", 62, pointer, value, 2, dtype.itemsize)

    def block(self, dtype: DType, width: int, address: int) -> int:
        """A pointer to elements, `width` at a time, from a byte address on; for `load_at` and `store_at`."""
        return self.module.emit(
            120, self.module.array_of(storage_name(dtype), width, dtype.itemsize * width)[0], address
        )

    def load_at(self, dtype: DType, width: int, block: int, index: int) -> int:
        """The index-th vector of `width` stored elements."""
        return self.module.emit(
            61,
            self.module.scalar(storage_name(dtype), width),
            self._at(dtype, width, block, index),
            2,
            dtype.itemsize * width,
        )

    def store_at(self, dtype: DType, width: int, block: int, index: int, value: int) -> None:
        """Put a vector of `width` stored elements."""
        self.module.op("function", 62, self._at(dtype, width, block, index), value, 2, dtype.itemsize * width)

    def _at(self, dtype: DType, width: int, block: int, index: int) -> int:
        _, element = self.module.array_of(storage_name(dtype), width, dtype.itemsize * width)
        return self.module.emit(65, element, block, self.constant(0), index)

    def address(self, base: int, index: int, itemsize: int) -> int:
        """base + index * itemsize for a 32-bit unsigned index."""
        module, u64 = self.module, self.module.scalar("u64")
        wide = module.emit(113, u64, index)
        return module.emit(128, u64, base, module.emit(132, u64, wide, module.constant("u64", itemsize)))

    def wide(self, dtype: DType, element: int) -> int:
        """A stored integer as i64."""
        module, i64 = self.module, self.module.scalar("i64")
        if dtype.itemsize == 8:
            return element if dtype.kind == "i" else module.emit(124, i64, element)
        if dtype.kind == "i":
            return module.emit(114, i64, element)
        return module.emit(124, i64, module.emit(113, module.scalar("u64"), element))

    def report(self, address: int, launch: int, size: int, index: int) -> None:
        """Write (launch, size, index) to a report that is empty; the launch as an atomic of the device, for others may be at it."""
        module, u64 = self.module, self.module.scalar("u64")
        zero, device = self.constant(0), self.constant(1)
        pointer, _ = self._pointer(uint32, address)
        before = module.emit(230, self.u32, pointer, device, zero, zero, launch, zero)  # OpAtomicCompareExchange

        def write() -> None:
            for offset, dtype, value in ((4, uint32, size), (8, int64, index)):
                self.store(dtype, module.emit(128, u64, address, module.constant("u64", offset)), value)

        self.when(module.emit(170, self.boolean, before, zero), write)

    def words(self) -> bytes:
        """The finished module."""
        module = self.module
        module.op("function", 253)
        module.op("function", 56)
        module.sections["function"][self._start : self._start] = self._declared
        return module.words()

    def strided(self, index: int, sizes: Sequence[int], strides: Sequence[int]) -> int:
        """The element offset (i64) of the index-th place of axes; `sizes` lacks the outermost."""
        module, i64 = self.module, self.module.scalar("i64")
        rest, total = index, module.constant("i64", 0)
        for size, stride in zip([*reversed(sizes), None], reversed(strides), strict=True):
            coordinate = rest if size is None else module.emit(137, self.u32, rest, size)
            if size is not None:
                rest = module.emit(134, self.u32, rest, size)
            wide = module.emit(124, i64, module.emit(113, module.scalar("u64"), coordinate))
            total = module.emit(128, i64, total, module.emit(132, i64, wide, module.emit(114, i64, stride)))
        return total
