"""Values as SPIR-V instructions, with NumPy's meaning where SPIR-V leaves one undefined.

Decisions: arithmetic is NoContraction, for the series in spirv_math.py need every rounding and rows must agree with NumPy
(of b / h / h NVIDIA's makes b / (h * h) otherwise, infinite where h * h is 0; polynomials ask for fma by name, and are right
where a device rounds twice); NaN is found in the bits, for an implementation may assume that there is none (float controls
are not required), so what a comparison says of NaN counts for nothing: its result is joined with the bits' (NVIDIA's makes
min and max of where(x > 90, 90, x), which drops NaN); floats are compared as integers where both may be denormal, which a
device may take for 0 (NVIDIA's does, in float32); maximum and minimum are selects whose last choice is by the bits; a
division's divisor is replaced where the quotient would be undefined. Every instruction works on vectors of `width` alike.
"""

from __future__ import annotations

from ..dtypes import DType, bool_
from .dag import Value
from .spirv_module import Module, storage_name, type_name
from .spirv_remainders import divided
from .spirv_turns import turned

NO_CONTRACTION, ROUNDING_MODE = 42, 39
# operator: floating, signed, unsigned, truth value
_ARITHMETIC = {"+": (129, 128, 128), "-": (131, 130, 130), "*": (133, 132, 132), "/": (136,)}
_COMPARE = {
    ">": (186, 173, 172), ">=": (190, 175, 174), "<": (184, 177, 176), "<=": (188, 179, 178), "==": (180, 170, 170), "!=": (183, 171, 171),
}  # fmt: skip
_BITS = {"&": (199, 167), "|": (197, 166), "^": (198, 165)}
_KINDS = "fiu"
_PARTS = {4: ("i32", "f32", 23, 127), 8: ("i64", "f64", 52, 1023)}  # integer, floating type; bits of the mantissa, bias
_NORMAL = {4: 2.0**-126, 8: 2.0**-1022}  # the least numbers that no device takes for 0
GLSL = {
    "rint": 2, "trunc": 3, "abs": 4, "floor": 8, "ceil": 9, "sqrt": 31, "fma": 50, "loose_exp": 27,
}  # fmt: skip
# NaN exactly where their first operand is
_PASSING = frozenset({"abs", "neg", "copysign", "floor", "ceil", "rint", "trunc", "sign"})


def _seed(value: Value) -> Value:
    """What decides whether a value is NaN."""
    return _seed(value.args[0]) if value.op in _PASSING else value


def _may_be_nan(value: Value) -> bool:
    value = _seed(value)
    if value.op == "select":
        return any(map(_may_be_nan, value.args[1:]))
    if value.op == "constant":
        return value.data != value.data  # NaN's own test
    return (
        value.dtype.is_floating
        and value.op not in ("exponent", "quarter")
        and not (value.op == "convert" and value.args[0].dtype.kind != "f")
    )


class Emitter:
    """Emits Values into a module's function; what was emitted once is not emitted again."""

    def __init__(self, module: Module, width: int) -> None:
        self.module, self.width = module, width
        # also of an id ("number", id), that its bits are no NaN's, and ("order", id), the integer that is ordered as it is
        self.known: dict[Value | tuple[str, int], int] = {}
        self._normal: set[int] = set()  # constants that no device takes for 0

    def type_of(self, dtype: DType) -> int:
        """The type of a value of a compute dtype."""
        return self.module.scalar(type_name(dtype), self.width)

    def constant(self, dtype: DType, value: float) -> int:
        """A constant of a compute dtype."""
        made = self.module.constant(type_name(dtype), value, self.width)
        if dtype.is_floating and abs(value) >= _NORMAL[dtype.itemsize]:
            self._normal.add(made)
        return made

    def op(self, code: int, dtype: DType, *operands: int) -> int:
        """One instruction on values of a compute dtype."""
        return self.module.emit(code, self.type_of(dtype), *operands)

    def raw(self, code: int, name: str, *operands: int) -> int:
        """One instruction whose result has a named type."""
        return self.module.emit(code, self.module.scalar(name, self.width), *operands)

    def fixed(self, name: str, value: float) -> int:
        """A constant of a named type."""
        return self.module.constant(name, value, self.width)

    def value(self, value: Value) -> int:
        """The id that holds a Value."""
        if value not in self.known:
            self.known[value] = self._make(value, [self.value(a) for a in value.args])
        return self.known[value]

    def _make(self, value: Value, args: list[int]) -> int:
        op, dtype = value.op, value.dtype
        operand = value.args[0].dtype if value.args else dtype
        kind = _KINDS.find(operand.kind)
        if op == "constant":
            return self.constant(dtype, value.data)  # type: ignore[arg-type]  # a number
        if op in _ARITHMETIC:
            result = self.op(_ARITHMETIC[op][kind], dtype, *args)
            if operand.is_floating:
                self.module.op("decoration", 71, result, NO_CONTRACTION)
            return result
        if op in ("==", "!=") and operand.is_floating and args[0] == args[1]:
            nan = self.is_nan(args[0], operand)
            return nan if op == "!=" else self.op(168, bool_, nan)
        if op in _COMPARE:
            a, b = args
            return self._compared(op, operand, a, b, self._numbers(value, args))
        if op in _BITS:
            return self.op(_BITS[op][dtype.kind == "b"], dtype, *args)
        match op:
            case "select":
                return self.op(169, dtype, *args)
            case "~":
                return self.op(168 if dtype.kind == "b" else 200, dtype, *args)
            case "neg":
                return self.op(127 if dtype.is_floating else 126, dtype, *args)
            case "<<" | ">>":
                return self._shift(op, dtype, *args)
            case "//" | "%":
                return self._divide(op, dtype, *args)
            case "maximum" | "minimum":
                first = self.op(_COMPARE[">" if op == "maximum" else "<"][kind], bool_, *args)
                chosen = self.op(169, dtype, first, *args)
                for test, x in self._numbers(value, args):
                    chosen = self.op(169, dtype, test, chosen, x)
                return chosen
            case "isnan":
                return self.is_nan(args[0], operand)
            case "isinf":
                bits, size, infinity = self._size(args[0], operand)
                return self.raw(170, "bool", size, self.fixed(bits, infinity))
            case "sign":
                return self._sign(operand, args[0])
            case "abs" if not dtype.is_floating:
                return args[0] if dtype.kind == "u" else self._absolute(dtype, args[0])
            case "copysign":
                return self._copysign(dtype, *args)
            case "pow2":
                i, f, digits, bias = _PARTS[dtype.itemsize]
                biased = self.raw(128, i, self.raw(110, i, args[0]), self.fixed(i, bias))
                return self.raw(124, f, self.raw(196, i, biased, self.fixed(i, digits)))
            case "exponent" | "mantissa":
                return self._split(op, dtype, args[0])
            case "turned" | "quarter":
                return self._turned(op, operand, *args)
            case "rest" | "lack" | "more":
                return self._left(op, operand, *args)
            case "convert":
                return self._converted(operand, dtype, args[0])
        return self.op(12, dtype, self.module.standard, GLSL[op], *args)

    def _left(self, op: str, dtype: DType, x: int, y: int, near: int) -> int:
        """One of what a division leaves."""
        parts = ("rest", "lack", "more")
        if (f"{op} {y}", x) not in self.known:
            for name, made in zip(parts, divided(self, dtype, x, y, near), strict=True):
                self.known[f"{name} {y}", x] = made
        return self.known[f"{op} {y}", x]

    def _turned(self, op: str, dtype: DType, x: int, r: int, k: int) -> int:
        """x less the nearest multiple of pi / 2, or that multiple modulo 4; r and k are so while x is not large."""
        if (op, x) not in self.known:
            self.known["turned", x], self.known["quarter", x] = turned(self, dtype, x, (r, k))
        return self.known[op, x]

    def _converted(self, source: DType, target: DType, x: int) -> int:
        """A number of one compute dtype in another: to integers towards zero and wrapping, to bool whether it is not 0."""
        if target.kind == "b":
            return self._truth(source, x)
        if source.kind == "b":
            return self.op(169, target, x, self.constant(target, 1), self.constant(target, 0))
        if source.is_floating:
            if target.is_floating:
                return self.op(115, target, x)
            if target.name == "uint64":
                return self.op(109, target, x)
            wide = self.raw(110, "i64", x)  # what is outside int32 wraps, as C and NumPy have it
            return wide if target.itemsize == 8 else self._narrowed(target, wide)
        if target.is_floating:
            return self.op(111 if source.kind == "i" else 112, target, x)
        if source.itemsize == target.itemsize:
            return x if source.kind == target.kind else self.op(124, target, x)
        signed = self.raw(114 if source.kind == "i" else 113, f"{source.kind}{8 * target.itemsize}", x)
        return signed if source.kind == target.kind else self.op(124, target, signed)

    def _narrowed(self, target: DType, wide: int) -> int:
        short = self.raw(114, "i32", wide)
        return short if target.kind == "i" else self.op(124, target, short)

    def _size(self, x: int, dtype: DType) -> tuple[str, int, int]:
        """The bits of a floating number without its sign: their type, themselves, and what infinity's are."""
        bits, infinity = ("u32", 0x7F800000) if dtype.itemsize == 4 else ("u64", 0x7FF0000000000000)
        sign = 1 << (8 * dtype.itemsize - 1)
        return bits, self.raw(199, bits, self.raw(124, bits, x), self.fixed(bits, sign - 1)), infinity

    def is_nan(self, x: int, dtype: DType) -> int:
        """Whether a floating number is NaN, by its bits."""
        return self.op(168, bool_, self._is_number(x, dtype))

    def _is_number(self, x: int, dtype: DType) -> int:
        key = ("number", x)
        if key not in self.known:
            bits, size, infinity = self._size(x, dtype)
            self.known[key] = self.raw(178, "bool", size, self.fixed(bits, infinity))
        return self.known[key]

    def _numbers(self, value: Value, args: list[int]) -> list[tuple[int, int]]:
        """For each operand that may be NaN the test that it is none, and the operand."""
        held = zip(value.args, args, strict=True)
        return [(self._is_number(self.known.get(_seed(a), x), a.dtype), x) for a, x in held if _may_be_nan(a)]

    def _compared(self, op: str, operand: DType, a: int, b: int, numbers: list[tuple[int, int]]) -> int:
        """A comparison; with NaN among the operands, of which `numbers` has what may be, only != holds."""
        if operand.is_floating and not {a, b} & self._normal:
            result = self.raw(_COMPARE[op][1], "bool", self._order(operand, a), self._order(operand, b))
        else:
            result = self.op(_COMPARE[op][_KINDS.find(operand.kind)], bool_, a, b)
        for test in dict.fromkeys(test for test, _ in numbers):
            result = (
                self.op(166, bool_, result, self.op(168, bool_, test))
                if op == "!="
                else self.op(167, bool_, result, test)
            )
        return result

    def _order(self, dtype: DType, x: int) -> int:
        """A signed integer for each float, ordered as they are, the zeros alike: of a negative one the bits of its size, negated."""
        key = ("order", x)
        if key not in self.known:
            name = _PARTS[dtype.itemsize][0]
            if x == self.constant(dtype, 0):
                self.known[key] = self.fixed(name, 0)
            else:
                bits, least = self.raw(124, name, x), self.fixed(name, -(1 << (8 * dtype.itemsize - 1)))
                negative = self.raw(177, "bool", bits, self.fixed(name, 0))
                self.known[key] = self.raw(169, name, negative, self.raw(130, name, least, bits), bits)
        return self.known[key]

    def _truth(self, dtype: DType, x: int) -> int:
        """Whether a number is not 0; NaN is not."""
        numbers = [(self._is_number(x, dtype), x)] if dtype.is_floating else []
        return self._compared("!=", dtype, x, self.constant(dtype, 0), numbers)

    def _copysign(self, dtype: DType, size: int, sign: int) -> int:
        bits, top = ("u32", 1 << 31) if dtype.itemsize == 4 else ("u64", 1 << 63)
        kept = self.raw(199, bits, self.raw(124, bits, size), self.fixed(bits, top - 1))
        taken = self.raw(199, bits, self.raw(124, bits, sign), self.fixed(bits, top))
        return self.op(124, dtype, self.raw(197, bits, kept, taken))

    def _split(self, op: str, dtype: DType, x: int) -> int:
        """e or m of a normal x = 2^e m with m between the roots of 1/2 and 2."""
        i, f, digits, _ = _PARTS[dtype.itemsize]
        root = 0x3F3504F3 if f == "f32" else 0x3FE6A09E667F3BCD
        bits = self.raw(124, i, x)
        e = self.raw(195, i, self.raw(130, i, bits, self.fixed(i, root)), self.fixed(i, digits))
        if op == "exponent":
            return self.raw(111, f, e)
        return self.raw(124, f, self.raw(130, i, bits, self.raw(196, i, e, self.fixed(i, digits))))

    def _sign(self, dtype: DType, x: int) -> int:
        zero, one = self.constant(dtype, 0), self.constant(dtype, 1)
        if not dtype.is_floating:
            positive, negative = (self._compared(sign, dtype, x, zero, []) for sign in "><")
            below = zero if dtype.kind == "u" else self.op(169, dtype, negative, self.constant(dtype, -1), zero)
            return self.op(169, dtype, positive, one, below)
        number = self._is_number(x, dtype)
        some, negative = (self._compared(sign, dtype, x, zero, [(number, x)]) for sign in ("!=", "<"))
        size = self.op(169, dtype, some, one, zero)
        # its sign is set in its bits: Mesa makes -b of `b ? -1 : 0`, which is a zero with a sign
        bits, top = ("u32", 1 << 31) if dtype.itemsize == 4 else ("u64", 1 << 63)
        minus = self.raw(169, bits, negative, self.fixed(bits, top), self.fixed(bits, 0))
        signed = self.op(124, dtype, self.raw(197, bits, self.raw(124, bits, size), minus))
        return self.op(169, dtype, number, signed, x)

    def _absolute(self, dtype: DType, x: int) -> int:
        return self.op(169, dtype, self.op(177, bool_, x, self.constant(dtype, 0)), self.op(126, dtype, x), x)

    def _shift(self, op: str, dtype: DType, a: int, b: int) -> int:
        """A shift by the width or more, or by less than nothing, empties the number (all ones for a negative >>)."""
        width = 8 * dtype.itemsize
        inside = self.op(176, bool_, b, self.constant(dtype, width))  # unsigned: a negative count is large
        count = self.op(169, dtype, inside, b, self.constant(dtype, width - 1))
        if op == ">>" and dtype.kind == "i":
            return self.op(195, dtype, a, count)
        shifted = self.op(196 if op == "<<" else 194, dtype, a, count)
        return self.op(169, dtype, inside, shifted, self.constant(dtype, 0))

    def _divide(self, op: str, dtype: DType, a: int, b: int) -> int:
        """Towards minus infinity; 0 for a divisor of 0. SRem and SMod are undefined for negative numbers, so % is a - q b."""
        zero, one = self.constant(dtype, 0), self.constant(dtype, 1)
        none = self.op(170, bool_, b, zero)
        if dtype.kind == "u":
            safe = self.op(169, dtype, none, one, b)
            return self.op(169, dtype, none, zero, self.op(134 if op == "//" else 137, dtype, a, safe))
        minus = self.op(170, bool_, b, self.constant(dtype, -1))  # the least integer over -1 would overflow
        safe = self.op(169, dtype, self.op(166, bool_, none, minus), one, b)
        q = self.op(135, dtype, a, safe)
        r = self.op(130, dtype, a, self.op(132, dtype, q, safe))
        signs = self.op(165, bool_, self.op(177, bool_, a, zero), self.op(177, bool_, safe, zero))
        down = self.op(167, bool_, self.op(171, bool_, r, zero), signs)
        if op == "%":
            floored = self.op(169, dtype, down, self.op(128, dtype, r, safe), r)
            return self.op(169, dtype, self.op(166, bool_, none, minus), zero, floored)
        floored = self.op(169, dtype, down, self.op(130, dtype, q, one), q)
        return self.op(169, dtype, none, zero, self.op(169, dtype, minus, self.op(126, dtype, a), floored))

    def load(self, stored: DType, computed: DType, element: int) -> int:
        """From what memory holds to the compute dtype; bool counts as 0 or 1 where numbers are wanted."""
        name = storage_name(stored)
        if stored.kind == "b":
            wide = self.raw(113, "u32", element)
            truth = self.raw(171, "bool", wide, self.fixed("u32", 0))
            return (
                truth
                if computed.kind == "b"
                else self.op(169, computed, truth, self.constant(computed, 1), self.constant(computed, 0))
            )
        if stored.name == "bfloat16":
            element = self.raw(124, "f32", self.raw(196, "u32", self.raw(113, "u32", element), self.fixed("u32", 16)))
            name = "f32"
        if name == type_name(computed):
            return element
        if stored.is_floating:
            return self.op(115, computed, element)
        if stored.kind == "i":
            return self.op(114, computed, element)
        if computed.kind == "u":
            return self.op(113, computed, element)
        return self.op(124, computed, self.raw(113, f"u{8 * computed.itemsize}", element))

    def store(self, computed: DType, stored: DType, value: int) -> int:
        """To what memory holds, rounded to nearest even; integers wrap."""
        name = storage_name(stored)
        if stored.kind == "b":
            if computed.kind != "b":
                value = self._truth(computed, value)
            return self.raw(113, "u8", self.raw(169, "u32", value, self.fixed("u32", 1), self.fixed("u32", 0)))
        if name == type_name(computed):
            return value
        if stored.name == "bfloat16":
            return self._to_bfloat(self._to_odd(value) if computed.itemsize == 8 else value)
        if stored.is_floating:
            if stored.itemsize == 2 and computed.itemsize == 8:
                value = self._to_odd(value)
            result = self.raw(115, name, value)
            if stored.itemsize == 2:
                self.module.op("decoration", 71, result, ROUNDING_MODE, 0)  # to nearest even
            return result
        return self.raw(114 if stored.kind == "i" else 113, name, value)

    def _to_odd(self, value: int) -> int:
        """float64 to float32, rounded to odd: what is then rounded again is rounded as if once."""
        narrow = self.raw(115, "f32", value)
        back = self.raw(115, "f64", narrow)
        bits = self.raw(124, "u32", narrow)
        size, wanted = (self.raw(12, "f64", self.module.standard, GLSL["abs"], v) for v in (back, value))
        away = self.raw(186, "bool", size, wanted)
        lower = self.raw(169, "u32", away, self.raw(130, "u32", bits, self.fixed("u32", 1)), bits)
        odd = self.raw(197, "u32", lower, self.fixed("u32", 1))
        finite = self.raw(184, "bool", wanted, self.fixed("f64", float("inf")))
        inexact = self.raw(167, "bool", self.raw(183, "bool", back, value), finite)
        return self.raw(124, "f32", self.raw(169, "u32", inexact, odd, bits))

    def _to_bfloat(self, value: int) -> int:
        bits = self.raw(124, "u32", value)
        high = self.raw(194, "u32", bits, self.fixed("u32", 16))
        odd = self.raw(199, "u32", high, self.fixed("u32", 1))
        up = self.raw(128, "u32", bits, self.raw(128, "u32", odd, self.fixed("u32", 0x7FFF)))
        rounded = self.raw(194, "u32", up, self.fixed("u32", 16))
        nan = self.raw(197, "u32", high, self.fixed("u32", 0x40))
        size = self.raw(199, "u32", bits, self.fixed("u32", 0x7FFFFFFF))
        chosen = self.raw(169, "u32", self.raw(172, "bool", size, self.fixed("u32", 0x7F800000)), nan, rounded)
        return self.raw(113, "u16", chosen)
