"""Thousands of random configurations of every family against PyTorch, over processes: `nox -s fuzz -- --configurations 5000`.

A family that is done is written to benchmarks/results/<date>-differential-<device>.json at once, with the commit, and is left
out the next time (`--again` runs it again); configurations that disagree are named there, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(Path(__file__).parent))  # the families beside this file, which is no package
CHUNK = 100  # configurations a task: optimizers step so many at once
SEVERAL = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")  # a process is a thread here


@dataclass
class Outcome:
    """What came of a family."""

    family: str
    configurations: int
    violations: list[str] = field(default_factory=list)
    worst_fraction_of_allowance: float = 0.0
    worst_in_ulp_allowance: float = 0.0  # 1 is 8 ULP of scale in float32, 1e-12 in float64
    beyond_ulp_allowance: int = 0  # configurations that lose digits in PyTorch too, or by their inputs' last ones
    process_seconds: float = 0.0
    commit: str = ""
    date: str = ""

    def add(self, part: dict[str, Any]) -> None:
        """One task's."""
        self.violations += part["violations"]
        self.worst_fraction_of_allowance = max(self.worst_fraction_of_allowance, part["worst"])
        self.worst_in_ulp_allowance = max(self.worst_in_ulp_allowance, part["plain"])
        self.beyond_ulp_allowance += part["lossy"]
        self.process_seconds += part["seconds"]


def task(given: tuple[str, str, int, int, str]) -> dict[str, Any]:
    """Configurations `start` to `stop` of a family in a dtype; one by one where something is wrong, to name it."""
    import torch
    from differential import Verdict
    from families import FAMILIES

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    name, dtype, start, stop, device = given
    check, before = FAMILIES[name].check, time.process_time()
    verdict, violations = Verdict(), []
    try:
        verdict = check(range(start, stop), dtype, device)
    except Exception:  # noqa: BLE001  # of whatever kind: here it is a result, not the end of the run
        for number in range(start, stop):
            try:
                verdict |= check([number], dtype, device)
            except Exception as error:  # noqa: BLE001  # as above
                last = traceback.extract_tb(error.__traceback__)[-1]
                text = "" if isinstance(error, AssertionError) else f"{type(error).__name__} at {last.name}: "
                violations.append(f"{name} {number} {dtype}: {text}{error}")
    return {
        "violations": violations,
        "worst": verdict.worst,
        "plain": verdict.plain,
        "lossy": verdict.lossy,
        "seconds": time.process_time() - before,
    }


def tasks(name: str, configurations: int, device: str = "cpu") -> list[tuple[str, str, int, int, str]]:
    """All of a family's."""
    from families import FAMILIES

    starts = range(0, configurations, CHUNK)
    return [(name, d, k, min(k + CHUNK, configurations), device) for d in FAMILIES[name].dtypes for k in starts]


def commit() -> str:
    """What a result holds for; a plus if files differ from it."""
    command = ["git", "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return said.stdout.strip() or f"none: {said.stderr.strip()}"


def facts() -> dict[str, Any]:
    """Machine and versions."""
    import torch

    sys.path.insert(0, str(ROOT / "benchmarks"))
    import harness

    import vtl_core
    import vtl_nn

    versions = {"torch": torch.__version__, "vtl-core": vtl_core.__version__, "vtl-nn": vtl_nn.__version__}
    return harness.machine() | versions


def outcomes(path: Path, names: list[str], configurations: int, again: bool) -> Iterator[tuple[str, Outcome | None]]:
    """Each family, with what the file says of it if that still holds."""
    kept = {} if again or not path.exists() else {o["family"]: o for o in json.loads(path.read_text())["families"]}
    for name in names:
        old = kept.get(name)
        yield name, Outcome(**old) if old and old["configurations"] == configurations else None


def write(path: Path, done: dict[str, Outcome], device: str = "cpu") -> None:
    """All outcomes, whole or not at all; of a former run stays what was not run again."""
    former = {} if not path.exists() else {o["family"]: o for o in json.loads(path.read_text())["families"]}
    families = former | {name: asdict(outcome) for name, outcome in done.items()}
    text = json.dumps(
        {"subject": f"differential-{device}", "machine": facts(), "families": list(families.values())}, indent=1
    )
    fresh = path.with_suffix(".part")
    fresh.write_text(text + "\n")
    fresh.replace(path)


def main(arguments: list[str]) -> int:
    """Run, show, write; 1 if a configuration disagrees."""
    from families import FAMILIES
    from tqdm import tqdm

    parser = argparse.ArgumentParser(
        prog="campaign", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=f"of {', '.join(FAMILIES)}; all if none is named")
    parser.add_argument("--configurations", type=int, default=5000, metavar="N", help="a family and dtype: %(default)s")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), metavar="N", help="%(default)s")
    parser.add_argument("--device", default="cpu", metavar="NAME", help="where ours is computed: %(default)s")
    parser.add_argument("--again", action="store_true", help="run what the file has already, too")
    parser.add_argument("--output", type=Path, metavar="FILE", help="instead of benchmarks/results/<date>-...")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.families if name not in FAMILIES]:
        parser.error(f"no family is called {', '.join(unknown)}; there are {', '.join(FAMILIES)}")
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    path = options.output or ROOT / "benchmarks" / "results" / f"{today}-differential-{options.device}.json"
    done: dict[str, Outcome] = {}
    # spawned: a fork of a process with PyTorch's threads may wait for ever
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        names = options.families or [n for n, f in FAMILIES.items() if f.devices or options.device == "cpu"]
        for name, former in outcomes(path, names, options.configurations, options.again):
            if former is not None:
                done[name] = former
                continue
            outcome = Outcome(name, options.configurations, commit=commit(), date=datetime.now(UTC).isoformat(timespec="seconds"))  # fmt: skip
            work = tasks(name, options.configurations, options.device)
            with tqdm(
                pool.imap_unordered(task, work),
                name,
                len(work),
                unit_scale=min(CHUNK, options.configurations),
                unit=" configurations",
            ) as bar:
                for part in bar:
                    outcome.add(part)
                    bar.set_postfix(violations=len(outcome.violations), refresh=False)
            done[name] = outcome
            write(path, done, options.device)
            for line in outcome.violations[:5]:
                print(" ", line[:500])
    wrong = sum(len(outcome.violations) for outcome in done.values())
    print(f"{len(done)} families, {options.configurations} configurations each: {wrong} violations; {path}")
    return bool(wrong)


if __name__ == "__main__":
    for variable in SEVERAL:
        os.environ.setdefault(variable, "1")
    sys.exit(main(sys.argv[1:]))
