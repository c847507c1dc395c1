"""Run the comparisons and write benchmarks/results: `python compare.py [SUBJECT ...]`, all subjects without one.

PyTorch must be installed in this Python (the session `bench` sees to it).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

from harness import Comparison, compare, save

HERE = Path(__file__).parent


def _worker(file: str, which: str) -> tuple[str, list[str]]:
    return which, [sys.executable, str(HERE / file), which]


def mlp_step() -> list[Comparison]:
    """A training step against PyTorch's; wanted: at most 1.0 of its time."""
    ours, peer = _worker("mlp_step.py", "vtl"), _worker("mlp_step.py", "torch")
    return [compare("MLP 512-512-10, batch 64, Adam, 2 threads", ours, peer, rounds=101)]


def host_cost() -> list[Comparison]:
    """A forward row through the Tensor path against bare NumPy; wanted: at most 6 us."""
    return [compare(f"(64, 10) + (64, 10), {kind}", _worker("host_cost.py", kind), _worker("host_cost.py", "numpy"), threads=1)
            for kind in ("untracked", "tracked")]  # fmt: skip


SUBJECTS: dict[str, Callable[[], list[Comparison]]] = {"mlp_step": mlp_step, "host_cost": host_cost}


def main(names: list[str]) -> int:
    """Run the named subjects, print and save them."""
    unknown = set(names) - set(SUBJECTS)
    if unknown:
        print(f"compare: no subject {', '.join(sorted(unknown))}; there are {', '.join(SUBJECTS)}", file=sys.stderr)
        return 2
    for name in names or SUBJECTS:
        results = SUBJECTS[name]()
        for result in results:
            print(result, flush=True)
        versions = {package: metadata.version(package) for package in ("torch", "vtl-core", "vsl-compute")}
        print(f"written to {save(name, results, **versions)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
