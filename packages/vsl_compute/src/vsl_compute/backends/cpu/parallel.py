"""Splits long elementwise work over threads: NumPy lets go of the interpreter lock inside its loops."""

from __future__ import annotations

import contextvars
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

CHUNK = 1 << 15  # elements a call works on: operands of it stay in a second-level cache
UPDATE_CHUNK = 1 << 16  # elements of a fused update: thirteen operations on five operands, so calls count for more
# below this many elements handing the interpreter lock back and forth costs more than a second core saves
ALONE = 1 << 19

_local = threading.local()
_pool: ThreadPoolExecutor | None = None
_pool_process = 0


def threads() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def quiet() -> contextvars.Context:
    """A context of this thread in which NumPy reports no floating-point events.

    Running a function inside it costs 0.1 us, numpy.errstate 1 us. A context must not be entered twice at a time,
    so only leaf calls run in it.
    """
    context: contextvars.Context | None = getattr(_local, "context", None)
    if context is None:
        context = contextvars.Context()
        context.run(np.seterr, all="ignore")
        _local.context = context
    return context


def _executor() -> ThreadPoolExecutor:
    global _pool, _pool_process
    if _pool is None or _pool_process != os.getpid():  # threads do not survive a fork
        _pool = ThreadPoolExecutor(max(1, threads() - 1), thread_name_prefix="vsl-cpu")
        _pool_process = os.getpid()
    return _pool


def for_ranges(count: int, work: Callable[[int, int], None], *, step: int = 1) -> None:
    """Call work(start, stop) over [0, count), on all cores if `count` is worth it; `step` aligns the cuts."""
    share = threads()
    if count < ALONE or share == 1:
        work(0, count)
        return
    size = -(-count // share)
    size += -size % step
    jobs: list[Future[None]] = [
        _executor().submit(work, start, min(start + size, count)) for start in range(size, count, size)
    ]
    try:
        work(0, min(size, count))
    finally:
        for job in jobs:
            job.result()


def for_ranges_rows(count: int, width: int, work: Callable[[int, int], None]) -> None:
    """As for_ranges, over rows of `width` elements."""
    for_ranges(count * width, lambda start, stop: work(-(-start // width), -(-stop // width)))


def for_slabs(array: np.ndarray[Any, Any], work: Callable[[tuple[slice, ...]], None]) -> None:
    """Call work(index) over slabs that together are the array, cut along the outermost axis in memory that is long enough."""
    order = sorted(range(array.ndim), key=lambda a: -abs(array.strides[a]))
    axis = next((a for a in order if array.shape[a] >= threads()), order[0])
    lead = (slice(None),) * axis
    count = array.shape[axis]
    for_ranges_rows(count, array.size // count, lambda start, stop: work((*lead, slice(start, stop))))
