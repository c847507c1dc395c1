"""Kernel texts to kernels: compiled by NVRTC once a process, kept as the device's binaries on disk."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import KernelCompileError
from ...kernels.shell import Kernel
from ..shared.cache import FileCache, key_of
from ..shared.parameters import Compiled, Kind, complaint, numbers_of
from ..shared.programs import Programs

FORMAT = 1  # of the files; part of each key
# --fmad=false: a contracted a * b - c * d is not NumPy's. Division and roots are rounded right and denormals kept by default.
OPTIONS = ("--std=c++17", "--fmad=false", "--diag-suppress=177")  # 177: a helper that nobody calls
_LETTERS = {"b1": "?", "i4": "i", "u4": "I", "i8": "q", "u8": "Q", "f4": "f", "f8": "d"}


def target(capability: tuple[int, int], supported: Sequence[int]) -> str:
    """What NVRTC compiles for: the device itself, or the newest virtual device that it knows, for the driver to translate."""
    mine = 10 * capability[0] + capability[1]
    if mine in supported:
        return f"sm_{mine}"
    return f"compute_{max(arch for arch in supported if arch <= mine)}"


def parameters(kinds: Sequence[Kind]) -> struct.Struct:
    """How a launch's parameters lie in memory, after the number of their bytes; C's alignment is struct's own."""
    return struct.Struct("Q" + "".join(_letter(kind) for kind in kinds))


def _letter(kind: Kind) -> str:
    if kind is None:
        return "Q"  # an address
    if kind.kind == "V":
        return f"0q{kind.itemsize}s"
    return _LETTERS[f"{kind.kind}{kind.itemsize}"]


def addresses(kinds: Sequence[Kind]) -> tuple[int, ...]:
    """Where, in what `parameters` packs, addresses stand: bytes from its start."""
    found, letters = list[int](), "Q"
    for kind in kinds:
        letters += _letter(kind)
        end = struct.calcsize(letters)
        if kind is None:
            found.append(end - 8)
        elif kind.fields:
            found += [end - kind.itemsize + field[1] for field in kind.fields.values()]
    return tuple(found)


class Entry:
    """A function on the device, how its parameters are packed, and where `addresses` are among them; it holds the function's module."""

    __slots__ = ("addresses", "function", "module", "nbytes", "pack")

    def __init__(self, module: Any, function: int, packing: struct.Struct, addresses: tuple[int, ...]) -> None:
        self.module, self.function, self.pack, self.nbytes = module, function, packing.pack_into, packing.size - 8
        self.addresses = addresses


class CUDAPrograms(Programs):
    """What was compiled for one device."""

    def __init__(self, cupy: Any, name: str, capability: tuple[int, int]) -> None:
        super().__init__()
        self._driver, self._nvrtc, self._module = cupy.cuda.driver, cupy.cuda.nvrtc, cupy.cuda.function.Module
        self._name = name
        self._files = FileCache("cuda")
        self._target = target(capability, self._nvrtc.getSupportedArchs())
        self._options = (f"--gpu-architecture={self._target}", *OPTIONS)
        self._identity = (str(FORMAT), str(self._nvrtc.getVersion()), *self._options)

    def _made(self, kernel: Kernel, kinds: Sequence[Kind]) -> Compiled:
        module = self._loaded(kernel)
        function = module.get_function(kernel.name).ptr
        packing = parameters([*kinds, *(np.dtype(d.compute) for d in kernel.dtypes)])
        limit = self._driver.funcGetAttribute(self._driver.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function)
        return Compiled(Entry(module, function, packing, addresses(kinds)), max(1, int(limit)), numbers_of(kernel))

    def _loaded(self, kernel: Kernel) -> Any:
        key = key_of(*self._identity, kernel.text)
        binary = self._files.read(key)
        if binary is not None:
            module = self._module()
            try:
                module.load(binary)
            except self._driver.CUDADriverError:  # the driver is older than the binary: compiled again below
                self._files.forget(key)
            else:
                return module
        binary = self.compiled(kernel)
        self._files.write(key, binary)
        module = self._module()
        module.load(binary)
        return module

    def compiled(self, kernel: Kernel) -> bytes:
        """The binary of a text (PTX where NVRTC is older than the device)."""
        nvrtc = self._nvrtc
        self.compilations += 1
        program = nvrtc.createProgram(kernel.text, f"{kernel.name}.cu", (), ())
        try:
            nvrtc.compileProgram(program, self._options)
            found: bytes = nvrtc.getCUBIN(program) if self._target.startswith("sm_") else nvrtc.getPTX(program)
        except nvrtc.NVRTCError as error:
            log = nvrtc.getProgramLog(program) or str(error)
            raise KernelCompileError(complaint(kernel, self._name, log)) from error
        finally:
            nvrtc.destroyProgram(program)
        return found
