"""Run every suite there is for GPUs on this machine, side by side, and write what each said to benchmarks/results.

    python ci/device_suites.py cuda vulkan opencl --seconds 560

A machine with a GPU is often lent for minutes. So suites of different backends run beside each other, each backend's one
after the other, the longest first: a GPU serves its processes in turns, and among sixteen of them four took 236 s for CUDA's
conformance, where one alone had taken 50 for three quarters of it (H200). What fills the memory comes last, alone. Each
suite has a limit, and one that is stopped at it still counts what had passed and names what had failed. Whole logs go to
`--logs`. The exit status is 1 if a test failed, a suite was stopped or did not start.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OUTCOME = re.compile(r"(PASSED|FAILED|ERROR|SKIPPED) +(?:\[[^]]*\] +)?(\S+::.+?)\s*$")
CONFORMANCE = ("-p", "vsl_compute.conformance.plugin", "--pyargs", "vsl_compute.conformance")


SHARED = tuple(f"packages/vsl_compute/tests/test_{name}.py" for name in ("convolution", "validate_devices"))


@dataclass(frozen=True)
class Suite:
    """One command: arguments of pytest, or of `vsl` where `pytest` is False. Units: seconds of `limit`."""

    name: str
    arguments: tuple[str, ...]
    required: tuple[str, ...]
    limit: int = 500
    pytest: bool = True
    alone: bool = False


@dataclass(frozen=True)
class Outcome:
    """What a suite said."""

    suite: str
    command: str
    passed: int
    failed: tuple[str, ...]
    skipped: int
    ended: str
    seconds: float


@dataclass
class Tally:
    """Outcomes, read line by line, so that a suite that was stopped counts for what it did."""

    passed: int = 0
    skipped: int = 0
    failed: list[str] = field(default_factory=list)

    def read(self, line: str) -> None:
        """Count a line of `pytest -v`, with or without workers."""
        words = OUTCOME.search(line) or re.search(r"^(?:(\S+::.+?) )(PASSED|FAILED|ERROR|SKIPPED)", line)
        if words is None or line.startswith(("FAILED", "ERROR")):  # the summary names failures once more
            return
        outcome, name = (words[1], words[2]) if words[1].isupper() else (words[2], words[1])
        if outcome == "PASSED":
            self.passed += 1
        elif outcome == "SKIPPED":
            self.skipped += 1
        else:
            self.failed.append(name)


def suites(backends: Sequence[str], large: bool) -> list[Suite]:
    """The longest first. A pair of backends is compared once, at stress sizes."""
    found = []
    for name in backends:
        one: tuple[str, ...] = (name,)
        tests = sorted(
            str(p.relative_to(ROOT)) for p in (ROOT / "packages/vsl_compute/tests").glob(f"test_{name}_*.py")
        )
        found += [
            Suite(f"conformance {name}", (*CONFORMANCE, "--backend", name, "--overrides", "both"), one),
            Suite(f"tensors and layers {name}", ("packages/vtl_core", "packages/vtl_nn", "--backend", name), one),
            Suite(f"backend {name}", (*tests, *SHARED), one),
            Suite(f"validate {name}", ("validate", "--backend", name, "--json"), one, pytest=False),
            Suite(f"memory {name}", ("packages/vtl_nn", "--backend", name, "-k", "memory_was_full"), one, alone=True),
        ]
        if large:
            arguments = (*CONFORMANCE, "--backend", name, "--large", "-k", "test_large")
            found.append(Suite(f"large {name}", arguments, one, alone=True))
    for name in backends[1:]:
        compared = ("validate", "--backend", backends[0], "--against", name, "--stress", "--json")
        found.append(Suite(f"validate {backends[0]} against {name}", compared, (), pytest=False))
    placement = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").glob("test_*.py"))
    found.append(Suite("root", tuple(placement), tuple(backends)))
    return sorted(found, key=lambda suite: not suite.name.startswith("conformance"))


def run(suite: Suite, workers: int, logs: Path, deadline: float) -> Outcome:
    """Start it with its backends required, read it to its end or its limit, and stop all that it started."""
    # processes share the cores: NumPy's threads would spin for each other
    threads = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    required = {f"VTL_TEST_{n.upper()}": str(int(n in suite.required)) for n in ("cuda", "vulkan", "opencl")}
    env = threads | dict(os.environ) | required
    # no:benchmark, where a machine has that plugin: its warning that workers disturb timings would be an error here
    tail = ("-v", "-n", "0" if suite.alone else str(workers), "-p", "no:benchmark") if suite.pytest else ()
    module = "pytest" if suite.pytest else "vsl_compute.cli"
    command = [sys.executable, "-m", module, *suite.arguments, *tail]
    log = logs / f"{suite.name.replace(' ', '-')}.txt"
    started = time.monotonic()
    limit = min(suite.limit, deadline - started)
    if limit < 1:
        return Outcome(suite.name, " ".join(command[1:]), 0, (), 0, "not started: no time was left", 0.0)
    with log.open("w", encoding="utf-8") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, env=env, cwd=ROOT, start_new_session=True
        )
        try:
            status = process.wait(limit)
            ended = "passed" if status == 0 else f"exit status {status}"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            ended = f"stopped at its limit of {limit:.0f} s"
    tally = Tally()
    text = log.read_text(encoding="utf-8", errors="replace")
    if suite.pytest:
        for line in text.splitlines():
            tally.read(line)
    else:
        tally = judged(text)
    seconds = round(time.monotonic() - started, 1)
    return Outcome(suite.name, " ".join(command[1:]), tally.passed, tuple(tally.failed), tally.skipped, ended, seconds)


def judged(text: str) -> Tally:
    """Verdicts of `vsl validate --json`; what is unsupported counts as skipped."""
    try:
        rows = json.loads(text[text.index("{") :])["rows"]
    except ValueError:  # it was stopped, or died: its log says how
        return Tally()
    failed = [f"{row['op']} {row['part']} {row['dtype']}" for row in rows if row["verdict"] == "fail"]
    passed = sum(row["verdict"] == "pass" for row in rows)
    return Tally(passed, len(rows) - passed - len(failed), failed)


def main() -> int:
    """Run what was asked for, several at once."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("backends", nargs="+", choices=("cuda", "vulkan", "opencl"))
    parser.add_argument("--seconds", type=int, default=1700, help="for everything")
    parser.add_argument("--workers", type=int, default=2, help="processes of one suite")
    parser.add_argument("--large", action="store_true", help="arrays of 5 and 20 GiB too")
    parser.add_argument("--only", default="", help="suites whose name has this")
    parser.add_argument("--logs", type=Path, default=ROOT / "demo" / "logs")
    parser.add_argument("--out", type=Path, help="default: benchmarks/results/DATE-suites.json")
    options = parser.parse_args()
    options.logs.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + options.seconds
    wanted = [suite for suite in suites(options.backends, options.large) if options.only in suite.name]
    lanes: dict[tuple[str, ...], list[Suite]] = {}
    for suite in wanted:
        if not suite.alone:
            lanes.setdefault(suite.required, []).append(suite)
    outcomes: list[Outcome] = []

    def one_by_one(lane: Sequence[Suite]) -> None:
        for suite in lane:
            outcome = run(suite, options.workers, options.logs, deadline)
            outcomes.append(outcome)
            print(f"{outcome.suite}: {outcome.passed} passed, {len(outcome.failed)} failed, {outcome.skipped} skipped, "
                  f"{outcome.ended} ({outcome.seconds} s)", *outcome.failed, sep="\n    ", flush=True)  # fmt: skip

    with ThreadPoolExecutor(len(lanes) or 1) as pool:
        list(pool.map(one_by_one, lanes.values()))
    one_by_one([suite for suite in wanted if suite.alone])
    date = datetime.now(UTC).date().isoformat()
    out = options.out or ROOT / "benchmarks" / "results" / f"{date}-suites.json"
    listed = subprocess.run(
        [sys.executable, "-m", "vsl_compute.cli", "devices", "--json"], capture_output=True, check=True
    )
    devices = [{k: d[k] for k in ("spec", "name", "driver")} for d in json.loads(listed.stdout)]
    machine = {"date": date, "system": platform.system(), "python": platform.python_version(), "cores": os.cpu_count(),
               "devices": devices}  # fmt: skip
    results = [{**asdict(o), "failed": list(o.failed)} for o in outcomes]
    out.write_text(
        json.dumps({"subject": "suites on devices", "machine": machine, "results": results}, indent=1) + "\n"
    )
    return int(any(o.failed or o.ended != "passed" for o in outcomes))


if __name__ == "__main__":
    sys.exit(main())
