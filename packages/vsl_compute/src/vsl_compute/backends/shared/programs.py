"""Kernel texts to kernels, each compiled once a process; a backend says how."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from ... import locks
from ...kernels.shell import Kernel
from .parameters import Compiled, Kind


class Programs(ABC):
    """What was compiled for one device; `compilations` counts the texts that no file of an earlier run had."""

    compilations = 0

    def __init__(self) -> None:
        self._built: dict[str, Compiled] = {}
        self._lock = locks.lock()

    @abstractmethod
    def _made(self, kernel: Kernel, kinds: Sequence[Kind]) -> Compiled:
        """Compile the text, or find its binary on disk."""

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

    def together(self, kernels: Iterable[tuple[Kernel, Sequence[Kind]]]) -> None:  # noqa: B027  # not every compiler starts slowly
        """Compile those that are new as one program, where the compiler starts slowly; else each waits until it is asked for."""

    def forget(self) -> None:
        """Let go of every kernel."""
        with self._lock:
            self._built.clear()
