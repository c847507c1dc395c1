"""The context of one device, made current for a call and given back: threads and other libraries keep the device they chose."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Context:
    """The primary context of a device, which CuPy, PyTorch and the runtime share.

    Between `enter` and `leave`, or `with context.current()`, it is current in this thread, whatever device that has chosen.
    """

    def __init__(self, cupy: Any, index: int) -> None:
        self._driver, runtime = cupy.cuda.driver, cupy.cuda.runtime
        self._index = index
        before = self._current()
        runtime.setDevice(index)
        self.handle = int(self._driver.ctxGetCurrent())
        self._leave(before)

    def _current(self) -> int:
        try:
            return int(self._driver.ctxGetCurrent())
        except self._driver.CUDADriverError:  # nobody in this process has asked the driver for anything yet
            return 0

    def enter(self) -> int:
        """Make it current; what `leave` wants."""
        before = int(self._driver.ctxGetCurrent())
        if before != self.handle:
            self._driver.ctxSetCurrent(self.handle)
        return before

    def leave(self, before: int) -> None:
        """Restore what was current."""
        if before != self.handle:
            self._leave(before)

    def _leave(self, before: int) -> None:
        if before or self._index:  # a thread that has chosen nothing is on device 0: it may as well stay there
            self._driver.ctxSetCurrent(before)

    @contextmanager
    def current(self) -> Iterator[None]:
        """With it current."""
        before = self.enter()
        try:
            yield
        finally:
            self.leave(before)
