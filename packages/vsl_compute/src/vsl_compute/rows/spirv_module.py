"""A SPIR-V module under construction: sections in the order of the standard, types and constants made once.

Written for SPIR-V 1.3 (Vulkan 1.1 and later). Memory is reached through buffer device addresses, so a module has no
descriptors: addresses and numbers arrive as push constants, or in a block whose address does.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from ..dtypes import DType

SECTIONS = ("capability", "extension", "import", "memory", "entry", "mode", "decoration", "type", "function")
PUSH_CONSTANT, PHYSICAL = 9, 5349  # storage classes
_FLOAT_FORMATS = {16: "<e", 32: "<f", 64: "<d"}


def string_words(text: str) -> list[int]:
    """A string literal: UTF-8, zero-terminated, padded to words."""
    raw = text.encode() + b"\0"
    raw += b"\0" * (-len(raw) % 4)
    return list(struct.unpack(f"<{len(raw) // 4}I", raw))


class Module:
    """Ids, sections, and the types and constants that elements of rows need."""

    def __init__(self) -> None:
        self.last = 0
        self.block = 0  # the label of the block that instructions now go to
        self.sections: dict[str, list[int]] = {name: [] for name in SECTIONS}
        self._unique: dict[tuple[object, ...], int] = {}
        self._capabilities: set[int] = set()
        self._extensions: set[str] = set()
        self.capability(1)  # Shader
        self.capability(5347)  # PhysicalStorageBufferAddresses
        self.extension("SPV_KHR_physical_storage_buffer")
        self.standard = self.new()
        self.op("import", 11, self.standard, *string_words("GLSL.std.450"))
        self.op("memory", 14, 5348, 1)  # PhysicalStorageBuffer64, GLSL450

    def new(self) -> int:
        """A fresh id."""
        self.last += 1
        return self.last

    def op(self, section: str, code: int, *operands: int) -> None:
        """Append one instruction."""
        if code == 248:
            self.block = operands[0]
        self.sections[section] += [(len(operands) + 1) << 16 | code, *operands]

    def capability(self, number: int) -> None:
        """Declare a capability, once."""
        if number not in self._capabilities:
            self._capabilities.add(number)
            self.op("capability", 17, number)

    def extension(self, name: str) -> None:
        """Declare an extension, once."""
        if name not in self._extensions:
            self._extensions.add(name)
            self.op("extension", 10, *string_words(name))

    def type(self, code: int, *operands: int) -> int:
        """The one type of this description."""
        return self._once(code, None, operands)

    def constant_op(self, code: int, type_: int, *operands: int) -> int:
        """The one constant instruction of this description."""
        return self._once(code, type_, operands)

    def _once(self, code: int, type_: int | None, operands: Sequence[int]) -> int:
        key = (code, type_, *operands)
        if key not in self._unique:
            found = self._unique[key] = self.new()
            self.op("type", code, *((found,) if type_ is None else (type_, found)), *operands)
        return self._unique[key]

    def scalar(self, name: str, width: int = 1) -> int:
        """The type of a bool, or of "f32", "i64", "u8", ...; a vector of it if `width` is not 1."""
        if width != 1:
            return self.type(23, self.scalar(name), width)
        if name == "bool":
            return self.type(20)
        kind, bits = name[0], int(name[1:])
        if bits == 8:
            self.extension("SPV_KHR_8bit_storage")
            self.capability(4448)  # StorageBuffer8BitAccess
        elif bits == 16:
            self.capability(4433)  # StorageBuffer16BitAccess
        elif bits == 64:
            self.capability(10 if kind == "f" else 11)  # Float64, Int64
        return self.type(22, bits) if kind == "f" else self.type(21, bits, int(kind == "i"))

    def constant(self, name: str, value: float, width: int = 1) -> int:
        """A constant of a scalar type, repeated in every component of a vector."""
        if width != 1:
            return self.constant_op(44, self.scalar(name, width), *[self.constant(name, value)] * width)
        if name == "bool":
            return self.constant_op(41 if value else 42, self.scalar(name))
        bits = int(name[1:])
        if name[0] == "f":
            try:
                raw = struct.pack(_FLOAT_FORMATS[bits], value)
            except OverflowError:  # too large for the format: rounds to infinity, as NumPy has it
                raw = struct.pack(_FLOAT_FORMATS[bits], float("inf") if value > 0 else -float("inf"))
        else:
            raw = (int(value) % (1 << bits)).to_bytes(bits // 8, "little")
        return self.constant_op(43, self.scalar(name), *struct.unpack(f"<{len(raw) // 4}I", raw))

    def pointer(self, storage: int, type_: int) -> int:
        """A pointer type."""
        return self.type(32, storage, type_)

    def array_of(self, name: str, width: int, nbytes: int) -> tuple[int, int]:
        """Types for elements in memory: pointer to a block holding a runtime array, pointer to an element."""
        element = self.scalar(name, width)
        key = ("array", name, width)
        if key not in self._unique:
            array, block = self.new(), self.new()
            self.op("type", 29, array, element)
            self.op("type", 30, block, array)
            self.op("decoration", 71, array, 6, nbytes)  # ArrayStride
            self.op("decoration", 71, block, 2)  # Block
            self.op("decoration", 72, block, 0, 35, 0)  # Offset
            self._unique[key] = block
        return self.pointer(PHYSICAL, self._unique[key]), self.pointer(PHYSICAL, element)

    def structure(self, members: Sequence[int], offsets: Sequence[int]) -> int:
        """A block with members at byte offsets."""
        block = self.new()
        self.op("type", 30, block, *members)
        self.op("decoration", 71, block, 2)
        for index, offset in enumerate(offsets):
            self.op("decoration", 72, block, index, 35, offset)
        return block

    def emit(self, code: int, type_: int, *operands: int) -> int:
        """Append an instruction with a result to the function."""
        result = self.new()
        self.op("function", code, type_, result, *operands)
        return result

    def words(self) -> bytes:
        """The module."""
        body = [0x07230203, 0x00010300, 0, self.last + 1, 0]
        for name in SECTIONS:
            body += self.sections[name]
        return struct.pack(f"<{len(body)}I", *body)


def type_name(dtype: DType) -> str:
    """What `Module.scalar` calls a compute dtype."""
    if dtype.kind == "b":
        return "bool"
    return f"{dtype.kind}{8 * dtype.itemsize}"


def storage_name(dtype: DType) -> str:
    """What it calls an element in memory: bool is a byte, bfloat16 its bits."""
    if dtype.kind == "b":
        return "u8"
    return "u16" if dtype.name == "bfloat16" else type_name(dtype)
