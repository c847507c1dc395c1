"""Kernel texts to kernels: built once a process, kept as the device's binaries on disk."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ...errors import KernelCompileError
from ...kernels.shell import Kernel
from ..shared.cache import FileCache, key_of
from ..shared.parameters import Compiled, Kind, complaint, numbers_of
from ..shared.programs import Programs

FORMAT = 1  # of the files; part of each key


class OpenCLPrograms(Programs):
    """What was compiled for one device."""

    def __init__(self, cl: Any, context: Any, device: Any) -> None:
        super().__init__()
        self._cl, self._context, self._device = cl, context, device
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

    def _made(self, kernel: Kernel, kinds: Sequence[Kind]) -> Compiled:
        return self._entry(self._program(kernel), kernel, kinds)

    def together(self, kernels: Iterable[tuple[Kernel, Sequence[Kind]]]) -> None:
        """One program on a CPU, not kept on disk: PoCL takes 130 ms for one kernel and 5 ms for each of many.

        A GPU's driver compiles all of a program at once, those too that nobody will ask for.
        """
        if not self._device.type & self._cl.device_type.CPU:
            return
        with self._lock:
            new = {kernel.name: (kernel, kinds) for kernel, kinds in kernels if kernel.text not in self._built}
            if not new:
                return
            name, text = f"{len(new)} kernels, {next(iter(new))} first", "".join(k.text for k, _ in new.values())
            program = self._compiled(Kernel(name, text, (), ()))
            self._built.update({k.text: self._entry(program, k, kinds) for k, kinds in new.values()})

    def _entry(self, program: Any, kernel: Kernel, kinds: Sequence[Kind]) -> Compiled:
        call = self._cl.Kernel(program, kernel.name)
        call.set_scalar_arg_dtypes([*kinds, *(d.compute for d in kernel.dtypes)])
        limit = call.get_work_group_info(self._cl.kernel_work_group_info.WORK_GROUP_SIZE, self._device)
        return Compiled(call, max(1, int(limit)), numbers_of(kernel))

    def _program(self, kernel: Kernel) -> Any:
        key = key_of(*self._identity, kernel.text)
        binary = self._files.read(key)
        if binary is not None:
            try:
                return self._quietly(lambda: self._cl.Program(self._context, [self._device], [binary]))
            except (self._cl.Error, ValueError):  # the driver changed and kept its version: compiled again below
                self._files.forget(key)
        program = self._compiled(kernel)
        if self._files.path is None:  # PoCL compiles every kernel once more to give its binary
            return program
        try:
            (binary,) = program.get_info(self._cl.program_info.BINARIES)
        except (self._cl.Error, ValueError):
            binary = None
        if binary:
            self._files.write(key, bytes(binary))
        return program

    def _compiled(self, kernel: Kernel) -> Any:
        self.compilations += 1
        try:
            return self._quietly(lambda: self._cl.Program(self._context, kernel.text))
        except self._cl.Error as error:
            raise KernelCompileError(complaint(kernel, self._device.name, str(error))) from error

    def _quietly(self, program: Callable[[], Any]) -> Any:
        """Built, without a compiler's remarks, which pyopencl passes on as warnings."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return program().build(self._options)
