"""Kernel texts to kernels: built once a process, kept as the device's binaries on disk."""

from __future__ import annotations

import struct
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...dtypes import DType
from ...errors import KernelCompileError
from ...kernels.shell import Kernel
from ...rows.hoist import host_numbers
from ..shared.cache import FileCache, key_of

LONG, UINT, BUFFER = np.dtype(np.int64), np.dtype(np.uint32), None  # what a kernel's parameter takes
Kind = np.dtype[Any] | None
FORMAT = 1  # of the files; part of each key


def struct_of(longs: int) -> Kind:
    """A parameter that is a struct of so many int64, passed as bytes."""
    return np.dtype((np.void, 8 * longs))


def packed(values: Sequence[int]) -> bytes:
    """int64 fields of a struct."""
    return struct.pack(f"{len(values)}q", *values)


def number(value: float, dtype: DType) -> float:
    """A Python number as a kernel's parameter of this compute dtype takes it: too large is infinite, integers wrap."""
    if dtype.is_floating:
        if dtype.itemsize == 4:
            with np.errstate(over="ignore"):
                return float(np.float32(value))
        return float(value)
    bits = 8 * dtype.itemsize
    whole = int(value) & ((1 << bits) - 1)
    return whole - (1 << bits) if dtype.kind == "i" and whole >> (bits - 1) else whole


@dataclass(frozen=True)
class Compiled:
    """A kernel that can be launched: `limit` is the most threads that a group of it may have."""

    call: Any  # pyopencl.Kernel
    limit: int
    numbers: Callable[[Mapping[str, float]], tuple[float, ...]]


class Programs:
    """What was compiled for one device."""

    def __init__(self, cl: Any, context: Any, device: Any) -> None:
        self._cl, self._context, self._device = cl, context, device
        self._built: dict[str, Compiled] = {}
        self._lock = threading.Lock()
        self._files = FileCache("opencl")
        exact = int(getattr(device, "single_fp_config", 0)) & int(cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT)
        # never -cl-fast-relaxed-math and its parts: NaN, infinity and signed zero mean what IEEE 754 says
        self._options = "-cl-fp32-correctly-rounded-divide-sqrt" if exact else ""
        platform = device.platform
        self._identity = (
            str(FORMAT),
            platform.name,
            platform.version,
            device.name,
            device.version,
            device.driver_version,
            self._options,
        )

    def kernel(self, kernel: Kernel, kinds: Sequence[Kind]) -> Compiled:
        """The kernel of this text, whose parameters before its hoisted numbers are of these kinds.

        Errors: KernelCompileError with the numbered text and the compiler's log
        """
        found = self._built.get(kernel.text)
        if found is None:
            with self._lock:
                found = self._built.get(kernel.text)
                if found is None:
                    found = self._built[kernel.text] = self._made(kernel, kinds)
        return found

    def _made(self, kernel: Kernel, kinds: Sequence[Kind]) -> Compiled:
        call = self._cl.Kernel(self._program(kernel), kernel.name)
        call.set_scalar_arg_dtypes([*kinds, *(d.compute for d in kernel.dtypes)])
        limit = call.get_work_group_info(self._cl.kernel_work_group_info.WORK_GROUP_SIZE, self._device)
        return Compiled(call, max(1, int(limit)), _numbers_of(kernel))

    def _program(self, kernel: Kernel) -> Any:
        key = key_of(*self._identity, kernel.text)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a compiler's remarks, which pyopencl passes on
            binary = self._files.read(key)
            if binary is not None:
                try:
                    return self._cl.Program(self._context, [self._device], [binary]).build(self._options)
                except (self._cl.Error, ValueError):  # of another version, or cut short: compiled again below
                    self._files.forget(key)
            try:
                program = self._cl.Program(self._context, kernel.text).build(self._options)
            except self._cl.Error as error:
                raise KernelCompileError(_complaint(kernel, self._device.name, str(error))) from error
        if self._files.path is None:  # PoCL compiles every kernel once more to give its binary
            return program
        try:
            (binary,) = program.get_info(self._cl.program_info.BINARIES)
        except (self._cl.Error, ValueError):
            binary = None
        if binary:
            self._files.write(key, bytes(binary))
        return program


def _complaint(kernel: Kernel, device: str, log: str) -> str:
    numbered = "\n".join(f"{i:4} {line}" for i, line in enumerate(kernel.text.splitlines(), 1))
    return f"{kernel.name}: {device.strip()} refuses this text:\n{numbered}\n{log.strip()}"


def _numbers_of(kernel: Kernel) -> Callable[[Mapping[str, float]], tuple[float, ...]]:
    """The hoisted numbers as parameters; one that is a scalar itself needs no evaluation."""
    parts = list(zip(kernel.hoisted, kernel.dtypes, strict=True))

    def numbers(scalars: Mapping[str, float]) -> tuple[float, ...]:
        return tuple(
            number(scalars[text] if text in scalars else host_numbers(((name, text),), scalars)[0], dtype)
            for (name, text), dtype in parts
        )

    return numbers
