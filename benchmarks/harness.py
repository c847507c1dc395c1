"""Paired measurement: two programs take turns, each in a process of its own, and the ratio of each pair is what counts.

Thread pools of two libraries in one process disturb each other, and a machine's speed drifts: so neither minima of one
run nor two runs side by side mean much. A worker imports its library, warms up, and then times one block whenever it
is told to; blocks alternate, the order flips each round, and the median of the paired ratios is reported with its
quartiles.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


def serve(step: Callable[[], object], *, calls: int, warm_up: int = 3) -> None:
    """A worker's whole life: warm up, say "ready", then answer each line with the seconds of one call, measured over `calls`."""
    for _ in range(warm_up * calls):
        step()
    print("ready", flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        for _ in range(calls):
            step()
        print((time.perf_counter() - start) / calls, flush=True)


@dataclass(frozen=True)
class Comparison:
    """Paired ratios of `ours` to `peer`. Units: seconds a call, the ratio without one."""

    name: str
    ours: str
    peer: str
    ratio: float
    quartiles: tuple[float, float]
    ours_s: float
    peer_s: float
    rounds: int

    def __str__(self) -> str:
        low, high = self.quartiles
        return (f"{self.name}: {self.ours} {self.ours_s * 1e6:.0f} us, {self.peer} {self.peer_s * 1e6:.0f} us, "
                f"ratio {self.ratio:.2f} ({low:.2f} to {high:.2f}, {self.rounds} rounds)")  # fmt: skip


class Worker:
    """One program in its process."""

    def __init__(self, command: Sequence[str], *, threads: int) -> None:
        environment = os.environ | {
            "OMP_NUM_THREADS": str(threads),
            "OPENBLAS_NUM_THREADS": str(threads),
            "MKL_NUM_THREADS": str(threads),
        }
        for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):  # where set, they hold NumPy back
            environment.pop(name, None)
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self._expect("ready")

    def _read(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        if not line:
            raise RuntimeError(f"worker {self.process.args!r} ended with {self.process.wait()}; its message is above")
        return line

    def _expect(self, word: str) -> None:
        if (line := self._read()) != word:
            raise RuntimeError(f"worker {self.process.args!r} said {line!r} instead of {word!r}")

    def block(self) -> float:
        """Seconds a call, over one block."""
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return float(self._read())

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=30)


def compare(
    name: str, ours: tuple[str, Sequence[str]], peer: tuple[str, Sequence[str]], *, rounds: int = 21, threads: int = 2
) -> Comparison:
    """Alternate two workers' blocks and pair them."""
    a, b = Worker(ours[1], threads=threads), Worker(peer[1], threads=threads)
    pairs = []
    for number in range(rounds):
        if number % 2:
            right = b.block()
            left = a.block()
        else:
            left = a.block()
            right = b.block()
        pairs.append((left, right))
    a.close()
    b.close()
    ratios = sorted(left / right for left, right in pairs)
    quarter = statistics.quantiles(ratios, n=4)
    return Comparison(name, ours[0], peer[0], statistics.median(ratios), (quarter[0], quarter[2]), statistics.median(p[0] for p in pairs),
                      statistics.median(p[1] for p in pairs), rounds)  # fmt: skip


def machine() -> dict[str, object]:
    """What a figure must carry to mean anything."""
    import numpy as np

    processor = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else ():
        if line.startswith("model name"):
            processor = line.partition(":")[2].strip()
            break
    return {"date": datetime.now(UTC).isoformat(timespec="seconds"), "processor": processor, "cores": os.cpu_count(), "system": platform.system(),
            "python": platform.python_version(), "numpy": np.__version__}  # fmt: skip


def save(subject: str, results: Sequence[Comparison], **versions: str) -> Path:
    """Write a dated result file; figures without one are not claimed."""
    RESULTS.mkdir(exist_ok=True)
    facts = machine()
    path = RESULTS / f"{str(facts['date'])[:10]}-{subject}.json"
    path.write_text(
        json.dumps({"subject": subject, "machine": facts | versions, "results": [asdict(r) for r in results]}, indent=1)
        + "\n"
    )
    return path
