"""What a module says of its floats when it is loaded: NaN, infinities and the signs of zeros are to be kept.

Without the execution mode SignedZeroInfNanPreserve a driver may assume that there are none, and NVIDIA's does. Emitted
and fixed modules alike get it here, for the widths of floats that they have and that the device keeps. DenormPreserve and
RoundingModeRTE are not asked for: a device need not let widths differ in them, and no result was seen to need them.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator

from ...rows.spirv_module import string_words

CAPABILITY, EXTENSION, ENTRY_POINT, EXECUTION_MODE, TYPE_FLOAT = 17, 10, 15, 16, 22
SIGNED_ZERO_INF_NAN_PRESERVE, ITS_CAPABILITY, ITS_EXTENSION = 4461, 4466, "SPV_KHR_float_controls"
HEADER = 5


def preserving_nan(words: bytes, widths: Collection[int]) -> bytes:
    """The module with that mode for each of `widths` that it has floats of; as it is if there are none."""
    module = list(struct.unpack(f"<{len(words) // 4}I", words))
    found, entries, after_capabilities, after_entries = [], [], HEADER, HEADER
    for code, operands, end in _instructions(module):
        if code == CAPABILITY:
            after_capabilities = end
        elif code == ENTRY_POINT:
            after_entries = end
            entries.append(operands[1])
        elif (
            code == TYPE_FLOAT and len(operands) == 2 and operands[1] in widths
        ):  # a third names another encoding: bfloat16
            found.append(operands[1])
    if not found:
        return words
    modes = [_op(EXECUTION_MODE, main, SIGNED_ZERO_INF_NAN_PRESERVE, width) for main in entries for width in found]
    head = [_op(CAPABILITY, ITS_CAPABILITY), _op(EXTENSION, *string_words(ITS_EXTENSION))]
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
