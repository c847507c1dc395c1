"""What a module says of its floats when it is loaded: NaN, infinities, the signs of zeros and denormal numbers are to be kept.

Without the execution mode SignedZeroInfNanPreserve a driver may assume that there are none, and NVIDIA's does; without
DenormPreserve it may take denormal numbers for 0, and `x <= 0` is then true of 1e-40. Emitted and fixed modules alike get
both here, for the widths of floats that they have and that the device keeps. RoundingModeRTE is not asked for: no result
was seen to need it.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from ...rows.spirv_module import string_words

CAPABILITY, EXTENSION, ENTRY_POINT, EXECUTION_MODE, TYPE_FLOAT = 17, 10, 15, 16, 22
DENORM_PRESERVE, DENORM_CAPABILITY = 4459, 4464
NAN_PRESERVE, NAN_CAPABILITY = 4461, 4466
ITS_EXTENSION = "SPV_KHR_float_controls"
HEADER = 5
WIDTHS = (16, 32, 64)
APART_32, APART = 0, 1  # VkShaderFloatControlsIndependence: widths that may differ in a mode; 2 is none


class FloatControls(NamedTuple):
    """Widths of floats of which a device keeps NaN, and sets of widths whose denormals it keeps if it keeps those of all."""

    nan: Collection[int] = ()
    denormals: Sequence[Collection[int]] = ()


NO_CONTROLS = FloatControls()


def together(kept: Collection[int], independence: int) -> tuple[tuple[int, ...], ...]:
    """The sets of widths that one mode is declared for, if at all: those that the device does not let differ."""
    apart: dict[int, list[tuple[int, ...]]] = {APART: [(w,) for w in WIDTHS], APART_32: [(32,), (16, 64)]}
    every = apart.get(independence, [WIDTHS])
    return tuple(group for group in every if set(group) <= set(kept))


def controlled(words: bytes, controls: FloatControls) -> bytes:
    """The module with those modes for the floats that it has; as it is if there are none."""
    module = list(struct.unpack(f"<{len(words) // 4}I", words))
    found, entries, after_capabilities, after_entries = set(), [], HEADER, HEADER
    for code, operands, end in _instructions(module):
        if code == CAPABILITY:
            after_capabilities = end
        elif code == ENTRY_POINT:
            after_entries = end
            entries.append(operands[1])
        elif code == TYPE_FLOAT and len(operands) == 2:  # a third names another encoding: bfloat16
            found.add(operands[1])
    nan = sorted(found & set(controls.nan))
    denormals = sorted(w for group in controls.denormals if found & set(group) for w in group)
    asked = [(NAN_CAPABILITY, NAN_PRESERVE, nan), (DENORM_CAPABILITY, DENORM_PRESERVE, denormals)]
    modes = [
        _op(EXECUTION_MODE, main, mode, width) for main in entries for _, mode, widths in asked for width in widths
    ]
    if not modes:
        return words
    head = [_op(CAPABILITY, capability) for capability, _, widths in asked if widths]
    head.append(_op(EXTENSION, *string_words(ITS_EXTENSION)))
    module[after_entries:after_entries] = [word for mode in modes for word in mode]
    module[after_capabilities:after_capabilities] = [word for line in head for word in line]
    return struct.pack(f"<{len(module)}I", *module)


def _instructions(module: list[int]) -> Iterator[tuple[int, list[int], int]]:
    """Each instruction's code, its operands and where the next begins."""
    at = HEADER
    while at < len(module):
        end = at + (module[at] >> 16)
        yield module[at] & 0xFFFF, module[at + 1 : end], end
        at = end


def _op(code: int, *operands: int) -> list[int]:
    return [(len(operands) + 1) << 16 | code, *operands]
