"""What a kernel's parameters take, and a kernel that can be launched."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...dtypes import DType
from ...kernels.shell import Kernel
from ...rows.hoist import host_numbers

LONG, UINT, BUFFER = np.dtype(np.int64), np.dtype(np.uint32), None
Kind = np.dtype[Any] | None  # BUFFER is memory, a Buffer's handle


def struct_of(longs: int, addresses: Sequence[int] = ()) -> Kind:
    """A parameter that is a struct of so many int64, passed as bytes; the dtype's fields are those that are `addresses` of memory."""
    if not addresses:
        return np.dtype((np.void, 8 * longs))
    names = [str(k) for k in addresses]
    return np.dtype(
        {
            "names": names,
            "formats": [np.uint64] * len(names),
            "offsets": [8 * k for k in addresses],
            "itemsize": 8 * longs,
        }
    )


def packed(values: Sequence[int]) -> bytes:
    """int64 fields of a struct."""
    return struct.pack(f"{len(values)}q", *values)


def number(value: float, dtype: DType) -> float:
    """A Python number as a kernel's parameter of this compute dtype takes it: too large is infinite, integers wrap."""
    if dtype.is_floating:
        if dtype.itemsize == 4:
            return ctypes.c_float(value).value
        return float(value)
    bits = 8 * dtype.itemsize
    whole = int(value) & ((1 << bits) - 1)
    return whole - (1 << bits) if dtype.kind == "i" and whole >> (bits - 1) else whole


@dataclass(frozen=True, eq=False)
class Compiled:
    """A kernel that can be launched: `limit` is the most threads that a group of it may have."""

    call: Any  # the backend's own
    limit: int
    numbers: Callable[[Mapping[str, float]], tuple[float, ...]]


def numbers_of(kernel: Kernel) -> Callable[[Mapping[str, float]], tuple[float, ...]]:
    """The hoisted numbers as parameters; one that is a scalar itself needs no evaluation."""
    parts = list(zip(kernel.hoisted, kernel.dtypes, strict=True))
    if not parts:
        return lambda scalars: ()

    def numbers(scalars: Mapping[str, float]) -> tuple[float, ...]:
        return tuple(
            [
                number(scalars[text] if text in scalars else host_numbers(((name, text),), scalars)[0], dtype)
                for (name, text), dtype in parts
            ]
        )

    return numbers


def complaint(kernel: Kernel, device: str, log: str) -> str:
    """The message of a KernelCompileError: the text with line numbers, and what the compiler says."""
    numbered = "\n".join(f"{i:4} {line}" for i, line in enumerate(kernel.text.splitlines(), 1))
    return f"{kernel.name}: {device.strip()} refuses this text:\n{numbered}\n{log.strip()}"
