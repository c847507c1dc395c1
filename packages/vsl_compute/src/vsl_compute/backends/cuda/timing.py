"""Seconds that the device takes for a call, whatever the host takes to enqueue it.

A block of calls waits behind a kernel that turns in place for longer than the host needs, and stands between two events of the
stream. Timed by the host's clock, all plans of a small convolution take what their launch takes: of 10 us on the device
and 25 on the host the quickest of ten was taken by chance, up to 1.9 times the best (docs/adr/0061).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...kernels.shell import Kernel
from ..shared.parameters import LONG, Compiled

if TYPE_CHECKING:
    from .backend import CUDABackend

TEXT = """extern "C" __global__ void turn_in_place(long long cycles)
{
    const long long start = clock64();
    while (clock64() - start < cycles) { }
}
"""
CYCLES_S = 2.0e9  # of the device's clock at its quickest: a slower one waits longer
SPARE = 1.5  # of the host's time that was measured
SPARE_S = 50e-6
MOST_S = 20e-3  # of waiting, for what the host takes once may be a compiler's time


class DeviceClock:
    """Times calls on one device's stream."""

    def __init__(self, backend: CUDABackend) -> None:
        self._backend = backend
        self._kernel: Compiled | None = None
        self._events: tuple[Any, Any] | None = None

    def __call__(self, launch: Callable[[], None], calls: int, host_share: float) -> float:
        """Device seconds of one of `calls` calls, and this part of the host's."""
        backend, (begin, end) = self._backend, self._made()
        backend.queue.finish()
        start = time.perf_counter()
        launch()
        host_s = time.perf_counter() - start
        wait_s = min(MOST_S, SPARE * host_s * calls + SPARE_S)
        backend.queue.launch_groups(self._turning(), 1, 32, int(wait_s * CYCLES_S))
        stream = backend.queue.stream
        with backend.context.current():
            begin.record(stream)
        start = time.perf_counter()
        for _ in range(calls):
            launch()
        host_s = (time.perf_counter() - start) / calls
        with backend.context.current():
            end.record(stream)
            backend.queue.finish()
            elapsed_ms = float(backend.cupy.cuda.get_elapsed_time(begin, end))
        return elapsed_ms * 1e-3 / calls + host_share * host_s

    def _made(self) -> tuple[Any, Any]:
        if self._events is None:
            with self._backend.context.current():
                self._events = self._backend.cupy.cuda.Event(), self._backend.cupy.cuda.Event()
        return self._events

    def _turning(self) -> Compiled:
        if self._kernel is None:
            self._kernel = self._backend.programs.kernel(Kernel("turn_in_place", TEXT, (), ()), [LONG])
        return self._kernel
