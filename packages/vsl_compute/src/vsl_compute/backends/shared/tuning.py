"""Which of several kernels is quickest on this device: a small timed search on first use, kept on disk.

A backend makes one `Tuner(info, finish)` and asks it wherever it has a choice:

    tile = tuner.choose(Key("gemm", "nn 2048x2048x2048", "float32"), {"64x64": SMALL, "128x128": LARGE}, trial)

The candidates have names, which must mean the same in the next process, and the first is the safe one: what the table
of the backend takes for this shape, right by the conformance suite. `trial()` is called only if there is something to
search; it makes scratch operands (random, of bounded size, never the user's arrays) and returns a `Trial`: mostly a
`scratch.ViewTrial` over arrays that `scratch.drawn` makes. A candidate's result is compared with the safe one's before
it is timed, and the winner's once more afterwards; one that is wrong, raises or does not compile is dropped with its
reason in the log `vsl_compute.tuning`. So a kernel that lies cannot be cached, and a choice never changes within a
process.

    VSL_AUTOTUNE   unset: search on GPUs, the table on software devices; 1: search everywhere; 0: the table everywhere

This module alone reads it. Keys are classes of shapes (see `octave`), or a model with many shapes would search for each.
On disk a choice lies under (device, driver, key, names of the candidates), so a new driver or a new list searches anew.
Before a candidate runs its name is written down: if the process dies in it, later ones leave it out.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from ... import locks
from ...backend import DeviceInfo
from ...errors import AttributeValueError, DeviceLostError, DeviceTimeoutError, OutOfMemoryError, UnsupportedError
from .cache import FileCache, key_of

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)
BUDGET_S = 1.0  # after this no further candidate is begun,
TRIED = 2  # but these are tried at any rate: seen on an H200, compiling the safe one took it all, and was kept at an eighth of the speed
BLOCK_S = 2e-3  # a timed block of calls takes about this long
ROUNDS = 3  # blocks of each finalist; the quickest counts
CLOSE = 1.5  # finalists took at most this many times the quickest's first time
GAIN = 0.98  # the safe candidate stays unless another takes less than this part of its time
FRESH_S = 30.0  # a note this young may be of a process that is still at it
TOLD_S = 10.0  # a word after so much searching, and after as much again: a model of many shapes may take a minute at its first step
FORMAT = "4"  # of the files and of how they were timed; part of each key
log = logging.getLogger("vsl_compute.tuning")


class Key(NamedTuple):
    """What one choice holds for: the kernels, a class of shapes and layouts, and the storage dtype, each in words."""

    family: str
    shape: str
    dtype: str


class Trial(Protocol[T_contra]):
    """Scratch operands, and how to run a candidate on them. None of it may count as a transfer of the user's."""

    tolerance: (
        float  # largest difference from the safe candidate's result, as a part of that result's largest magnitude
    )
    # What counts: the device's seconds and this part of the host's, so that of two that the device takes as long for the one
    # of fewer launches is taken; or, if it is None, calls back to back, for candidates that differ in their launches.
    host_share: float | None

    def clear(self) -> None:
        """Overwrite the result, with NaN where there is one: a candidate that writes nothing must not pass."""
        ...

    def launch(self, candidate: T_contra) -> None:
        """Enqueue the candidate once; it may return before it is done."""
        ...

    def result(self) -> np.ndarray[Any, Any]:
        """Wait, and bring the result to the host."""
        ...


class Wrong(Exception):  # a finding about a candidate; nobody outside this file sees it
    """A candidate's result differs from the safe one's."""


def octave(n: int) -> int:
    """The class of a size: the nearest power of two at or above it; odd multiples of small powers share their classes."""
    return 1 << max(0, n - 1).bit_length()


def wanted(kind: str, setting: str | None) -> bool:
    """Whether a device of this kind searches, VSL_AUTOTUNE being `setting`."""
    if setting in (None, ""):
        return kind in ("discrete", "integrated")
    if setting not in ("0", "1"):
        raise AttributeValueError(
            f"VSL_AUTOTUNE is {setting!r}; it must be 0 (never search), 1 (always search) or unset: unset VSL_AUTOTUNE"
        )
    return setting == "1"


def check_setting() -> None:
    """AttributeValueError if VSL_AUTOTUNE says nothing that is known: what every device that is opened would raise."""
    wanted("software", os.environ.get("VSL_AUTOTUNE"))


class Tuner:
    """The choices of one device. `finish` waits until it is idle; `clock` counts seconds.

    `timed` gives the device's seconds of one of so many calls and a part of the host's, where a backend can tell them; without
    it calls are timed back to back, which is the longer of what the host and what the device spends on one.
    """

    def __init__(
        self,
        info: DeviceInfo,
        finish: Callable[[], None],
        *,
        clock: Callable[[], float] = time.perf_counter,
        timed: Callable[[Callable[[], None], int, float], float] | None = None,
    ) -> None:
        self._identity = (FORMAT, info.backend, info.name, info.driver)
        self._finish, self._clock, self._timed = finish, clock, timed
        self.searches = wanted(info.kind, os.environ.get("VSL_AUTOTUNE"))
        self._files = FileCache("tuning")
        self._chosen: dict[tuple[Any, ...], str] = {}
        self._lock = locks.reentrant()
        self._name, self._searched, self._spent_s, self._told_s = info.name, 0, 0.0, 0.0

    def choose(self, key: Key, candidates: Mapping[str, T], trial: Callable[[], Trial[T]]) -> T:
        """The candidate to use for `key` from now on.

        Errors: DeviceLostError and DeviceTimeoutError if a candidate took the device with it; the next process leaves
        that one out. Whatever else a candidate does drops it.
        Cost:   a look into a dict once chosen; else a file, or a search of about a second
        """
        names = tuple(candidates)
        if not self.searches or len(names) == 1:
            return candidates[names[0]]
        found = self._chosen.get((key, names))
        if found is None:
            with self._lock:
                found = self._chosen.get((key, names))
                if found is None:
                    found = self._chosen[key, names] = self._decide(key, candidates, trial)
        return candidates[found]

    def _decide(self, key: Key, candidates: Mapping[str, T], trial: Callable[[], Trial[T]]) -> str:
        safe, file = next(iter(candidates)), key_of(*self._identity, *key, *candidates)
        data = self._files.read(file)
        kept = {} if data is None else json.loads(data)
        if kept.get("choice"):
            return str(kept["choice"])
        suspect = kept.get("trying")
        fresh = suspect is not None and time.time() - float(kept["since"]) < FRESH_S
        left = {name: c for name, c in candidates.items() if name != suspect or name == safe}
        start = self._clock()
        try:
            choice, seconds = self._search(left, trial(), file)
        except OutOfMemoryError as error:  # no room for scratch: the table, and another process may find room
            log.info("%s: not searched: %s", " ".join(key), error)
            self._files.forget(file)
            return safe
        log.info("%s: %s of %s", " ".join(key), choice, {n: f"{s * 1e6:.0f} us" for n, s in seconds.items()})
        self._tell(self._clock() - start)
        if fresh:  # another process may be trying the one that was left out
            self._files.forget(file)
        else:
            self._files.write(file, json.dumps({"key": list(key), "choice": choice, "seconds": seconds}).encode())
        return choice

    def _tell(self, spent_s: float) -> None:
        """Say what takes so long, if it does."""
        self._searched, self._spent_s = self._searched + 1, self._spent_s + spent_s
        if self._spent_s >= self._told_s + TOLD_S:
            self._told_s = self._spent_s
            kept = "kept on disk for the next run" if self._files.path else "not kept, as there is no cache folder"
            log.warning("%s: %d searches for the quickest kernels took %.0f s so far; each shape is searched for once, and what is found is %s. "
                        "VSL_AUTOTUNE=0 does without", self._name, self._searched, self._spent_s, kept)  # fmt: skip

    def _search(self, candidates: Mapping[str, T], trial: Trial[T], file: str) -> tuple[str, dict[str, float]]:
        start, safe = self._clock(), next(iter(candidates))
        trial.clear()
        trial.launch(candidates[safe])  # what it raises, its first use raises as well
        expected = trial.result()
        seconds = {safe: self._time(trial, candidates[safe], 1)}
        for number, name in enumerate(n for n in candidates if n != safe):
            if number >= TRIED and self._clock() - start > BUDGET_S:
                log.info("%s and what follows was not tried: the search took %.1f s", name, BUDGET_S)
                break
            self._files.write(file, json.dumps({"trying": name, "since": time.time()}).encode())
            with self._dropping(name, seconds):
                seconds[name] = self._first(trial, candidates[name], expected)
        quickest = min(seconds.values())
        finalists = [n for n, s in seconds.items() if s <= CLOSE * quickest or n == safe]
        calls = max(1, min(64, int(BLOCK_S / max(quickest, 1e-6))))
        for _ in range(ROUNDS if len(finalists) > 1 else 0):
            for name in [n for n in finalists if n in seconds]:
                with self._dropping(name, seconds):
                    seconds[name] = min(seconds[name], self._time(trial, candidates[name], calls))
        for name in sorted(seconds, key=seconds.__getitem__):
            if name == safe or seconds[name] > GAIN * seconds.get(safe, float("inf")):
                break
            with self._dropping(name, seconds):
                self._first(trial, candidates[name], expected)  # right still, after so many runs
                return name, seconds
        return safe, seconds

    @contextmanager
    def _dropping(self, name: str, seconds: dict[str, float]) -> Iterator[None]:
        """Drop a candidate that raises, unless the device went with it."""
        try:
            yield
        except (DeviceLostError, DeviceTimeoutError):  # its name stays in the file
            log.warning("%s: took the device with it; the next process leaves it out", name)
            raise
        except Exception as error:  # noqa: BLE001  # whatever a driver's compiler raises; the log has it
            seconds.pop(name, None)
            level = logging.INFO if isinstance(error, UnsupportedError) else logging.WARNING  # declared, or a surprise
            log.log(level, "%s: dropped: %s: %s", name, type(error).__name__, str(error).splitlines()[0])

    def _first(self, trial: Trial[T], candidate: T, expected: np.ndarray[Any, Any]) -> float:
        """Seconds of a call whose result is the safe one's; Wrong if it is not."""
        trial.clear()
        trial.launch(candidate)
        worst = _difference(trial.result(), expected)
        if not worst <= trial.tolerance:  # NaN as well
            raise Wrong(f"its result is off by {worst:.2g} of the largest value; {trial.tolerance:.2g} is allowed")
        return self._time(trial, candidate, 1)

    def _time(self, trial: Trial[T], candidate: T, calls: int) -> float:
        if self._timed is not None and trial.host_share is not None:
            return self._timed(lambda: trial.launch(candidate), calls, trial.host_share)
        self._finish()
        start = self._clock()
        for _ in range(calls):
            trial.launch(candidate)
        self._finish()
        return (self._clock() - start) / calls


def _difference(got: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> float:
    """The largest difference as a part of the largest magnitude expected; NaN where either has one."""
    if got.shape != expected.shape:
        return float("inf")
    if not got.size:
        return 0.0
    scale = float(np.abs(expected).max())
    return float(np.abs(got.astype(np.float64) - expected).max()) / (scale or 1.0)
