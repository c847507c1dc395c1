"""Emitted SPIR-V run on the CPU, one rounding an operation: what a device that keeps SPIR-V's own promises computes.

Values of a row go through the emitter into a function, whose instructions are then done on arrays, one element a thread; of
a branch both sides are done, and the phi behind it takes what each element's condition says; a loop goes on while one
element's does. What a comparison says where an
operand is NaN is the test's to choose, for a driver may assume that there is none, unless it was told otherwise.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from vsl_compute.dtypes import DType, bool_, int32
from vsl_compute.rows.dag import Value, uses
from vsl_compute.rows.kinds import lower_row
from vsl_compute.rows.row import Row
from vsl_compute.rows.spirv import native
from vsl_compute.rows.spirv_math import macros_of
from vsl_compute.rows.spirv_module import Module
from vsl_compute.rows.spirv_values import Emitter

Array = np.ndarray
Fma = Callable[[Array, Array, Array], Array]
Instruction = tuple[int, Sequence[int]]
Judge = Callable[[Array, Array], Array]  # a comparison's result, and where NaN is involved: what the device has
SIGNED = {32: np.int32, 64: np.int64}
UNSIGNED = {32: np.uint32, 64: np.uint64}
FLOATING = {32: np.float32, 64: np.float64}
BINARY = {
    128: np.add, 129: np.add, 130: np.subtract, 131: np.subtract, 132: np.multiply, 133: np.multiply, 136: np.divide, 137: np.remainder,
    166: np.logical_or, 167: np.logical_and, 170: np.equal, 171: np.not_equal, 172: np.greater, 173: np.greater,
    174: np.greater_equal, 175: np.greater_equal, 176: np.less, 177: np.less, 178: np.less_equal, 179: np.less_equal,
    194: np.right_shift, 195: np.right_shift, 196: np.left_shift, 197: np.bitwise_or, 198: np.bitwise_xor, 199: np.bitwise_and,
}  # fmt: skip
COMPARED = {
    180: np.equal,
    183: np.not_equal,
    184: np.less,
    186: np.greater,
    188: np.less_equal,
    190: np.greater_equal,
}


def loose_exp(x: Array) -> Array:
    """exp as far off as Vulkan allows, 3 + 2 |x| ULP, to one side or the other by the last bit of x."""
    bits = x.view(UNSIGNED[8 * x.dtype.itemsize])
    off = (3 + 2 * np.abs(x)) * np.finfo(x.dtype).eps / 2 * np.where(bits & 1, 1, -1)
    return (np.exp(x.astype(np.float64)) * (1 + off)).astype(x.dtype)


STANDARD = {
    2: np.rint,
    3: np.trunc,
    4: np.abs,
    8: np.floor,
    9: np.ceil,
    27: loose_exp,
    31: np.sqrt,
    75: lambda x: np.where(x == 0, -1, np.frexp(x.astype(np.float64))[1] - 1).astype(np.int32).view(np.uint32),
}


def once(x: Array, y: Array, z: Array) -> Array:
    """x * y + z as hardware fuses it: the product of two float32 is exact in float64; float64 itself has no wider one."""
    return (x.astype(np.float64) * y + z).astype(x.dtype)


def twice(x: Array, y: Array, z: Array) -> Array:
    """x * y + z as a device without fma has it, which GLSL.std.450 allows."""
    return x * y + z


def honest(result: Array, nan: Array) -> Array:
    """IEEE 754's comparisons."""
    return result


class Emitted:
    """The instructions of some Values of a row."""

    def __init__(self, roots: Sequence[Value]) -> None:
        self.module = Module()
        emitter = Emitter(self.module, 1)
        self.names: dict[str, tuple[int, Any]] = {}
        for value in uses(roots):
            if value.op == "name":
                emitter.known[value] = place = self.module.new()
                self.names[str(value.data)] = place, value.dtype.compute
        self.roots = [emitter.value(root) for root in roots]
        self.types: dict[int, Any] = {}
        self.constants: dict[int, Any] = {}
        for code, operands in _instructions(self.module.sections["type"]):
            _declare(code, operands, self.types, self.constants)

    def run(self, inputs: Mapping[str, Array], *, fma: Fma = once, judge: Judge = honest) -> list[Array]:
        """What they make of `inputs`."""
        held = dict(self.constants)
        for name, (place, dtype) in self.names.items():
            held[place] = np.asarray(inputs[name], dtype)
        with np.errstate(all="ignore"):
            self._run(list(_instructions(self.module.sections["function"])), held, fma, judge)
        return [held[place] for place in self.roots]

    def _run(self, instructions: Sequence[Instruction], held: dict[int, Any], fma: Fma, judge: Judge) -> None:
        """Do them one after the other; what a loop holds is changed where the loop goes on."""
        sides: list[Array] = []  # conditions of the branches that have not met again: the innermost is last
        at, block = 0, 0
        while at < len(instructions):
            code, operands = instructions[at]
            if code == 248:
                block = operands[0]
            if code == 250:
                sides.append(held[operands[0]])
            elif code == 245:
                _, result, inside, _, outside, _ = operands
                held[result] = np.where(sides[-1], held[inside], held[outside])
                if at + 1 == len(instructions) or instructions[at + 1][0] != 245:
                    sides.pop()
            elif code == 249 and instructions[at + 1] == (248, operands) and instructions[at + 2][0] == 245:
                if any(i[0] == 246 for i in instructions[at + 2 : at + 5]):
                    at = self._loop(instructions, at + 2, block, held, fma, judge)
            elif code not in (247, 248, 249):
                type_, result, *rest = operands
                held[result] = _done(code, self.types[type_], rest, held, fma, judge)
                assert isinstance(held[result], tuple) or held[result].dtype == self.types[type_], code
            at += 1

    def _loop(
        self, instructions: Sequence[Instruction], at: int, before: int, held: dict[int, Any], fma: Fma, judge: Judge
    ) -> int:
        """A loop whose phis start at `at`; where its end is."""
        phis = []
        while instructions[at][0] == 245:
            _, result, start, label, after, _ = instructions[at][1]
            assert label == before
            held[result] = held[start]
            phis.append((result, after))
            at += 1
        end = instructions[at][1][0]
        test = next(i for i in range(at, len(instructions)) if instructions[i][0] == 250)
        last = next(i for i in range(test, len(instructions)) if instructions[i] == (248, [end]))
        for _ in range(10_000):
            self._run([i for i in instructions[at:test] if i[0] != 246], held, fma, judge)
            goes_on = held[instructions[test][1][0]]
            if not np.any(goes_on):
                return last
            self._run([i for i in instructions[test + 1 : last] if i[0] not in (248, 249)], held, fma, judge)
            for result, value in [(result, np.where(goes_on, held[after], held[result])) for result, after in phis]:
                held[result] = value
        raise AssertionError("the simulated loop does not end")


def computed(row: Row, dtype: DType, fma: Fma = once, **inputs: Array) -> Array:
    """A row of one dtype, of these arguments."""
    lowered = lower_row(row, dict.fromkeys("fn", dtype) | {"b": bool_, "i": int32}, native, macros=macros_of(dtype))
    arrays = {name: np.atleast_1d(np.asarray(x, dtype.compute)) for name, x in inputs.items()}
    return Emitted([lowered.results[0][1]]).run(arrays, fma=fma)[0]


def _instructions(words: Sequence[int]) -> Iterator[Instruction]:
    at = 0
    while at < len(words):
        length = words[at] >> 16
        yield words[at] & 0xFFFF, words[at + 1 : at + length]
        at += length


def _declare(code: int, operands: Sequence[int], types: dict[int, Any], held: dict[int, Any]) -> None:
    match code:
        case 20:
            types[operands[0]] = np.bool_
        case 21:
            types[operands[0]] = (SIGNED if operands[2] else UNSIGNED)[operands[1]]
        case 22:
            types[operands[0]] = FLOATING[operands[1]]
        case 30:  # the pair that an extended product makes
            types[operands[0]] = tuple
        case 41 | 42:
            held[operands[1]] = np.asarray(code == 41)
        case 43:
            raw = struct.pack(f"<{len(operands) - 2}I", *operands[2:])
            held[operands[1]] = np.frombuffer(raw, types[operands[0]])[0]
        case _:
            raise AssertionError(f"the simulation does not know the declaration {code}")


def _done(code: int, type_: Any, operands: Sequence[int], held: Mapping[int, Any], fma: Fma, judge: Judge) -> Any:
    if code == 12:
        args = [held[o] for o in operands[2:]]
        return np.asarray(fma(*args) if operands[1] == 50 else STANDARD[operands[1]](*args)).astype(type_)
    if code == 81:
        return held[operands[0]][operands[1]]
    args = [np.asarray(held[o]) for o in operands]
    if code in COMPARED:
        return judge(COMPARED[code](*args), np.isnan(args[0]) | np.isnan(args[1]))
    if code in (172, 174, 176, 178):  # unsigned, whatever the type says
        args = [a.view(UNSIGNED[8 * a.dtype.itemsize]) for a in args]
    if code in (194, 195, 196):
        kind = (SIGNED if code == 195 else UNSIGNED)[8 * args[0].dtype.itemsize]
        return BINARY[code](args[0].view(kind), args[1].astype(kind)).view(type_)
    if code in BINARY:
        return BINARY[code](*args).astype(type_, copy=False)
    match code:
        case 109 | 110:  # of what no integer holds the result is undefined
            return np.where(np.abs(args[0]) < 2.0 ** (8 * type_(0).itemsize - 1), args[0], 0).astype(type_)
        case 111 | 112 | 113 | 114 | 115:
            return args[0].astype(type_)
        case 124:
            return args[0].view(type_)
        case 126 | 127:
            return np.negative(args[0])
        case 151:  # OpUMulExtended
            product = args[0].astype(np.uint64) * args[1]
            return product.astype(np.uint32), (product >> np.uint64(32)).astype(np.uint32)
        case 168:
            return np.logical_not(args[0])
        case 169:
            return np.where(*args)
        case 200:
            return np.invert(args[0])
    raise AssertionError(f"the simulation does not know the instruction {code}")
