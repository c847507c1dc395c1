"""Structured control flow over a SPIR-V Module: variables, loops, branches, push constants, elements by address."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...dtypes import DType
from ...rows.spirv import Field
from ...rows.spirv_module import PUSH_CONSTANT, Module, storage_name, string_words

FUNCTION = 7  # storage class
_TYPES = {"Q": "u64", "I": "u32", "i": "i32"}


class Body:
    """The entry point of a compute module under construction; specialization constant 0 is the group's size."""

    def __init__(self, parameters: Sequence[tuple[str, str]]) -> None:
        """`parameters` are (name, format) from the widest to the narrowest."""
        module = self.module = Module()
        self.u32, self.boolean = module.scalar("u32"), module.scalar("bool")
        main, label = module.new(), module.new()
        thread, groups, size = self._builtins(main)
        void = module.type(19)
        module.op("function", 54, void, main, 0, module.type(33, void))
        module.op("function", 248, label)
        self._start = len(module.sections["function"])
        self._declared: list[int] = []
        v3 = module.scalar("u32", 3)
        self.thread = module.emit(81, self.u32, module.emit(61, v3, thread), 0)
        count = module.emit(81, self.u32, module.emit(61, v3, groups), 0)
        self.threads = module.emit(132, self.u32, count, size)
        self.fields, self.given = self._load_parameters(parameters)

    def _builtins(self, main: int) -> tuple[int, int, int]:
        module = self.module
        v3 = module.scalar("u32", 3)
        pointer = module.pointer(1, v3)
        thread, groups, size, whole = (module.new() for _ in range(4))
        for variable, builtin in ((thread, 28), (groups, 24)):  # GlobalInvocationId, NumWorkgroups
            module.op("type", 59, pointer, variable, 1)
            module.op("decoration", 71, variable, 11, builtin)
        module.op("type", 50, self.u32, size, 64)
        module.op("decoration", 71, size, 1, 0)
        one = module.constant("u32", 1)
        module.op("type", 51, v3, whole, size, one, one)
        module.op("decoration", 71, whole, 11, 25)  # WorkgroupSize
        module.op("entry", 15, 5, main, *string_words("main"), thread, groups)
        module.op("mode", 16, main, 17, 64, 1, 1)
        return thread, groups, size

    def _load_parameters(self, parameters: Sequence[tuple[str, str]]) -> tuple[tuple[Field, ...], dict[str, int]]:
        module, fields, offset = self.module, [], 0
        for name, form in parameters:
            fields.append(Field(name, form, offset))
            offset += 8 if form == "Q" else 4
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

    def address(self, base: int, index: int, itemsize: int) -> int:
        """base + index * itemsize for a 32-bit unsigned index."""
        module, u64 = self.module, self.module.scalar("u64")
        wide = module.emit(113, u64, index)
        return module.emit(128, u64, base, module.emit(132, u64, wide, module.constant("u64", itemsize)))

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
