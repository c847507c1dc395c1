"""How far a large number is from the nearest multiple of pi / 2, to every digit that its dtype has, in 32-bit integers.

M. Payne & R. Hanek 1983, "Radian reduction for trigonometric functions", SIGNUM 18: of x = m 2^s with a whole m, only those
bits of 2 / pi count whose product with m 2^s is neither a multiple of 4 nor too small to be seen. They are a window of the
table below, found by x's exponent; m times it is a fraction of four quarter turns. The number nearest to a multiple of
pi / 2 leaves 2^-30 of a quarter in float32 and 2^-62 in float64 (K. C. Ng 1992, "Argument reduction for huge arguments"),
so a fraction of 62 and of 126 bits has all digits. Words are listed from the highest down. The work is behind a branch:
what is near takes a cheaper way, and large numbers are rare.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from ..dtypes import DType

if TYPE_CHECKING:
    from .spirv_values import Emitter

TWO_OVER_PI = int(
    "a2f9836e4e441529fc2757d1f534ddc0db6295993c439041fe5163abdebbc561b7246e3a424d"
    "d2e006492eea09d1921cfe1deb1cb129a73ee88235f52ebb4484e99c7026b45f7e413991d639"
    "835339f49c845f8bbdf9283b1ff897ffde05980fef2f118b5a0a6d1f6d367ecf27cb09b74f46"
    "3f669e5fea2d7527bac7ebe5f17b3d0739f78a5292ea6bfb5fb11f8d5d0856033046fc7b6bab", 16
)  # fmt: skip
BITS = 1216  # of it, after the point
HALF_PI = (0xC90FDAA2, 0x2168C234)  # pi / 2 times 2^63


@dataclass(frozen=True)
class Kind:
    """What a dtype needs: its exponents' bias and the bits of its mantissa; from which exponent on a number is large; words
    of the window and of the fraction. Where the window is short, what it lacks of the product stays below the fraction."""

    bias: int
    digits: int
    large: int
    window: int
    fraction: int

    def words(self) -> list[int]:
        """2 / pi from the bit on whose product with the least large number's last place weighs 2."""
        first = self.large - self.bias - self.digits + 30
        most = (2 * self.bias - self.large) // 32 + self.window + 1
        return [TWO_OVER_PI >> BITS - (first + 32 * k) & 0xFFFFFFFF for k in range(most)]


KINDS = {4: Kind(127, 23, 140, 3, 2), 8: Kind(1023, 52, 1042, 6, 4)}  # large from 2^13 and from 2^19 on


def turned(e: Emitter, dtype: DType, x: int, near: tuple[int, int]) -> tuple[int, int]:
    """x less a multiple of pi / 2, and that multiple modulo 4: `near` where x is not large, NaN for infinities and NaN."""
    kind, module = KINDS[dtype.itemsize], e.module
    high = _split(e, dtype, x)[0]
    exponent = _u(e, 199, _u(e, 194, high, 20 if dtype.itemsize == 8 else 23), 2 * kind.bias + 1)
    large = e.raw(174, "bool", exponent, e.fixed("u32", kind.large))
    some = large if e.width == 1 else module.emit(154, module.scalar("bool"), large)
    before, inside, end = module.block, module.new(), module.new()
    module.op("function", 247, end, 0)
    module.op("function", 250, some, inside, end)
    module.op("function", 248, inside)
    far = _far(e, dtype, x, exponent)
    chosen = [e.op(169, dtype, large, f, n) for f, n in zip(far, near, strict=True)]
    last = module.block
    module.op("function", 249, end)
    module.op("function", 248, end)
    r, quarter = (e.op(245, dtype, c, last, n, before) for c, n in zip(chosen, near, strict=True))
    return r, quarter


def _u(e: Emitter, code: int, a: int, b: int) -> int:
    """One instruction on a word and a constant."""
    return e.raw(code, "u32", a, e.fixed("u32", b))


def _split(e: Emitter, dtype: DType, x: int) -> list[int]:
    """The bits of x in words."""
    if dtype.itemsize == 4:
        return [e.raw(124, "u32", x)]
    bits = e.raw(124, "u64", x)
    return [e.raw(113, "u32", e.raw(194, "u64", bits, e.fixed("u32", 32))), e.raw(113, "u32", bits)]


def _far(e: Emitter, dtype: DType, x: int, exponent: int) -> tuple[int, int]:
    kind = KINDS[dtype.itemsize]
    high, *low = _split(e, dtype, x)
    top = 1 << kind.digits - 32 * len(low)  # the digit before the point
    mantissa = [_u(e, 197, _u(e, 199, high, top - 1), top), *low]
    words = _product(e, mantissa, _window(e, kind, exponent))[: kind.fraction]
    quarter = _u(e, 194, _u(e, 128, words[0], 1 << 29), 30)  # the nearest; what is left is signed
    words[0] = e.raw(130, "u32", words[0], _u(e, 196, quarter, 30))
    ones = _u(e, 195, words[0], 31)  # where it is negative; its complement is its size, less one in the last place
    size = _radians(e, dtype, [e.raw(198, "u32", word, ones) for word in words])
    minus = e.raw(177, "bool", _signed(e, e.raw(198, "u32", words[0], high)), e.fixed("i32", 0))
    r = e.op(169, dtype, minus, e.op(127, dtype, size), size)
    finite = e.raw(171, "bool", exponent, e.fixed("u32", 2 * kind.bias + 1))
    negative = e.raw(177, "bool", _signed(e, high), e.fixed("i32", 0))
    back = _u(e, 199, e.raw(130, "u32", e.fixed("u32", 4), quarter), 3)
    k = e.raw(169, "u32", negative, back, quarter)
    return e.op(169, dtype, finite, r, e.constant(dtype, float("nan"))), e.op(112, dtype, k)


def _signed(e: Emitter, word: int) -> int:
    return e.raw(124, "i32", word)


def _window(e: Emitter, kind: Kind, exponent: int) -> list[int]:
    """The words of 2 / pi that count, from the bit that the exponent names on."""
    place = e.raw(130, "u32", exponent, e.fixed("u32", kind.large))
    words = [e.fixed("u32", word) for word in kind.words()]
    step = 1 << (len(words) - kind.window - 1).bit_length() - 1
    while step:
        far = e.raw(171, "bool", _u(e, 199, place, 32 * step), e.fixed("u32", 0))
        words = [e.raw(169, "u32", far, b, a) for a, b in zip(words, words[step:], strict=False)]
        step //= 2
    return _moved(e, words[: kind.window + 1], _u(e, 199, place, 31))


def _moved(e: Emitter, words: Sequence[int], by: int) -> list[int]:
    """All words but the last, moved up by less than a word."""
    rest = e.raw(130, "u32", e.fixed("u32", 31), by)
    return [
        e.raw(197, "u32", e.raw(196, "u32", a, by), e.raw(194, "u32", _u(e, 194, b, 1), rest))
        for a, b in pairwise(words)
    ]


def _product(e: Emitter, mantissa: Sequence[int], window: Sequence[int]) -> list[int]:
    """Their product modulo the window's size."""
    total: list[int | None] = [None] * len(window)  # the lowest first, here
    for i, m in enumerate(reversed(mantissa)):
        carry: int | None = None
        for j, w in enumerate([*reversed(window)][: len(window) - i]):
            low, high = _multiplied(e, m, w)
            for more in (carry, total[i + j]):
                if more is not None:
                    low, over = _added(e, low, more)
                    high = e.raw(128, "u32", high, over)
            total[i + j], carry = low, high
    return [word for word in reversed(total) if word is not None]


def _multiplied(e: Emitter, a: int, b: int) -> tuple[int, int]:
    """The low and the high word of a product."""
    u32 = e.module.scalar("u32", e.width)
    pair = e.module.emit(151, e.module.type(30, u32, u32), a, b)  # OpUMulExtended
    return e.module.emit(81, u32, pair, 0), e.module.emit(81, u32, pair, 1)


def _added(e: Emitter, a: int, b: int) -> tuple[int, int]:
    """The sum of two words, and 1 or 0 for the word above."""
    total = e.raw(128, "u32", a, b)
    return total, e.raw(169, "u32", e.raw(176, "bool", total, a), e.fixed("u32", 1), e.fixed("u32", 0))


def _radians(e: Emitter, dtype: DType, words: list[int]) -> int:
    """A fraction of four quarter turns, below an eighth of them, as a number: normalized, times pi / 2, rounded once."""
    zero, empty = e.fixed("u32", 0), e.fixed("u32", 0)
    for _ in range(len(words) // 2):  # whole words of zeros
        none = e.raw(170, "bool", words[0], zero)
        words = [e.raw(169, "u32", none, b, a) for a, b in zip(words, [*words[1:], zero], strict=True)]
        empty = e.raw(128, "u32", empty, e.raw(169, "u32", none, e.fixed("u32", 32), zero))
    first = e.raw(12, "u32", e.module.standard, 75, words[0])  # FindUMsb
    up = _u(e, 199, e.raw(130, "u32", e.fixed("u32", 31), first), 31)
    empty = e.raw(128, "u32", empty, up)
    half_pi = [e.fixed("u32", word) for word in HALF_PI]
    high, *low = _moved(e, words, up)[: dtype.itemsize // 4]
    least, most = _multiplied(e, high, half_pi[0])
    if not low:
        return e.op(133, dtype, e.op(112, dtype, most), _power(e, dtype, -29, empty))
    for a, b in ((high, half_pi[1]), (low[0], half_pi[0])):
        least, over = _added(e, least, _multiplied(e, a, b)[1])
        most = e.raw(128, "u32", most, over)
    above = e.op(133, dtype, e.op(112, dtype, most), e.constant(dtype, 4294967296.0))
    return e.op(133, dtype, e.op(129, dtype, above, e.op(112, dtype, least)), _power(e, dtype, -61, empty))


def _power(e: Emitter, dtype: DType, exponent: int, less: int) -> int:
    """2^(exponent - less)."""
    kind = KINDS[dtype.itemsize]
    biased = e.raw(130, "u32", e.fixed("u32", kind.bias + exponent), less)
    if dtype.itemsize == 4:
        return e.raw(124, "f32", _u(e, 196, biased, kind.digits))
    return e.raw(124, "f64", e.raw(196, "u64", e.raw(113, "u64", biased), e.fixed("u32", kind.digits)))
