"""What is left of a number less the largest multiple of another, to every digit and however large the quotient.

Through a / b it is right only while the quotient's error stays below one, and while nothing over- or underflows. Beyond,
x = m 2^i and y = n 2^k are divided as on paper, in integers: m's digits go on by as many zeros as a word has room for, and
each time the multiples of n are taken off. No step rounds. That stands in a loop and behind a branch, for such quotients
are rare; the reduction of large angles (spirv_turns.py) knows its divisor beforehand and needs no loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..dtypes import DType
from .spirv_module import type_name

if TYPE_CHECKING:
    from .spirv_values import Emitter

# of a dtype: its words, the bits of its mantissa, its exponents' bias, and quotients, in bits, that the short way is right for
KINDS = {4: ("u32", 23, 127, 20), 8: ("u64", 52, 1023, 48)}


def divided(e: Emitter, dtype: DType, x: int, y: int, near: int) -> tuple[int, int, int]:
    """Of |x| and |y|: what x has more than the largest multiple of y in it, what it lacks to the next, and whether it is no multiple.

    `near` is the first where that is right. Any number where one is NaN, infinite or y is 0. The third is told apart from
    the first, and the second is no difference of floats: a device may take a denormal rest for 0, and % would be 0 where
    it is nearly y.
    """
    module, (word, digits, bias, bits) = e.module, KINDS[dtype.itemsize]
    size = e.fixed(word, (1 << 8 * dtype.itemsize - 1) - 1)
    a, b = (e.raw(199, word, e.raw(124, word, v), size) for v in (x, y))
    # y in the middle of the exponents, so that what rounding took from a product is a number too
    middle = e.raw(130, word, b, e.fixed(word, bias // 2 << digits))
    outside = e.raw(174, "bool", middle, e.fixed(word, bias << digits))
    steep = e.raw(174, "bool", a, e.raw(128, word, b, e.fixed(word, bits << digits)))
    far = e.raw(166, "bool", outside, steep)
    some = far if e.width == 1 else module.emit(154, module.scalar("bool"), far)
    types = type_name(dtype), type_name(dtype), "bool"
    size_near = e.raw(199, word, e.raw(124, word, near), size)
    direct = near, e.op(131, dtype, y, near), e.raw(171, "bool", size_near, e.fixed(word, 0))
    before, inside, end = module.block, module.new(), module.new()
    module.op("function", 247, end, 0)
    module.op("function", 250, some, inside, end)
    module.op("function", 248, inside)
    rest, short, more = (
        e.raw(169, *which) for which in zip(types, [far] * 3, _on_paper(e, dtype, a, b), direct, strict=True)
    )
    last = module.block
    module.op("function", 249, end)
    module.op("function", 248, end)
    rest, short, more = (
        e.raw(245, type_, value, last, otherwise, before)
        for type_, value, otherwise in zip(types, (rest, short, more), direct, strict=True)
    )
    return rest, short, more


def _on_paper(e: Emitter, dtype: DType, a: int, b: int) -> tuple[int, int, int]:
    word, digits, bias, _ = KINDS[dtype.itemsize]
    (i, m), (k, n) = (_parts(e, dtype, v) for v in (a, b))
    none = e.raw(170, "bool", n, e.fixed(word, 0))
    n = e.raw(169, word, none, e.fixed(word, 1), n)
    smaller = e.raw(176, "bool", a, b)
    zeros = e.raw(169, word, smaller, e.fixed(word, 0), e.raw(130, word, i, k))  # i is at least k where x is at least y
    rest = _taken(e, word, e.raw(137, word, m, n), n, zeros, 8 * dtype.itemsize - digits - 1)
    # signed, of what is below 2^digits: in two steps, each a number
    power = e.raw(130, word, k, e.fixed(word, bias + digits))
    half = e.raw(195, word, power, e.fixed("u32", 1))
    steps = [
        e.op(124, dtype, e.raw(196, word, e.raw(128, word, step, e.fixed(word, bias)), e.fixed("u32", digits)))
        for step in (half, e.raw(130, word, power, half))
    ]
    x, y = (e.op(124, dtype, bits) for bits in (a, b))
    found = []
    for whole, small in ((rest, x), (e.raw(130, word, n, rest), e.op(131, dtype, y, x))):
        value = e.op(112, dtype, whole)
        for step in steps:
            value = e.op(133, dtype, value, step)
        found.append(e.op(169, dtype, smaller, small, value))
    more = e.raw(171, "bool", e.raw(169, word, smaller, a, rest), e.fixed(word, 0))
    return found[0], found[1], more


def _parts(e: Emitter, dtype: DType, bits: int) -> tuple[int, int]:
    """The exponent and the mantissa as whole numbers; of the smallest numbers they are 1 and the bits themselves."""
    word, digits, _, _ = KINDS[dtype.itemsize]
    exponent, mantissa = (
        e.raw(194, word, bits, e.fixed("u32", digits)),
        e.raw(199, word, bits, e.fixed(word, (1 << digits) - 1)),
    )
    zero = e.raw(170, "bool", exponent, e.fixed(word, 0))
    hidden = e.raw(169, word, zero, e.fixed(word, 0), e.fixed(word, 1 << digits))
    return e.raw(169, word, zero, e.fixed(word, 1), exponent), e.raw(197, word, mantissa, hidden)


def _taken(e: Emitter, word: str, m: int, n: int, zeros: int, room: int) -> int:
    """m 2^zeros modulo n, which m is below: `room` zeros at a time."""
    module = e.module
    header, test, inner, after, end = (module.new() for _ in range(5))
    next_m, next_zeros, before = module.new(), module.new(), module.block
    type_ = module.scalar(word, e.width)
    module.op("function", 249, header)
    module.op("function", 248, header)
    held = module.emit(245, type_, m, before, next_m, after)
    more = module.emit(245, type_, zeros, before, next_zeros, after)
    module.op("function", 246, end, after, 0)
    module.op("function", 249, test)
    module.op("function", 248, test)
    unfinished = e.raw(171, "bool", more, e.fixed(word, 0))
    some = unfinished if e.width == 1 else module.emit(154, module.scalar("bool"), unfinished)
    module.op("function", 250, some, inner, end)
    module.op("function", 248, inner)
    short = e.raw(176, "bool", more, e.fixed(word, room))
    step = e.raw(169, word, short, more, e.fixed(word, room))
    longer = e.raw(196, word, held, step)
    module.op("function", 249, after)
    module.op("function", 248, after)
    module.op("function", 137, type_, next_m, longer, n)
    module.op("function", 130, type_, next_zeros, more, step)
    module.op("function", 249, header)
    module.op("function", 248, end)
    return held
