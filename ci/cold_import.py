"""What `import vtl_nn` loads and costs in a fresh process: no device library, and little beyond NumPy.

Processes of the two kinds alternate, and the least of each kind decides: whatever else a machine does only adds. CPU time
is what counts, since on a busy machine the wall clock measures the others.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile

LIMIT_MS = 60.0
PAIRS = 15
TRIES = 3  # rounds of so many: a machine may be slower for seconds, and is never quicker than it is
DEVICE_LIBRARIES = ("cupy", "pyopencl", "vulkan", "numba", "torch", "nvmath", "matplotlib")


def python(script: str, bytecode: str) -> str:
    """What a new interpreter prints that keeps its .pyc files in `bytecode`, whatever PYTHONDONTWRITEBYTECODE says."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    env["PYTHONPYCACHEPREFIX"] = bytecode
    env["OPENBLAS_NUM_THREADS"] = "1"  # the start of NumPy's threads costs more CPU, and more variously, than all else
    return subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, env=env).stdout


def import_ms(module: str, bytecode: str) -> tuple[float, float]:
    """Milliseconds of CPU and of wall that one import takes in a new process, the interpreter's own start left out."""
    clocks = "time.process_time(), time.perf_counter()"
    script = f"import time; a = {clocks}; import {module}; b = {clocks}; print(*((y - x) * 1e3 for x, y in zip(a, b)))"
    cpu, wall = map(float, python(script, bytecode).split())
    return cpu, wall


def loaded(module: str, bytecode: str) -> list[str]:
    """The device libraries that importing `module` brings in."""
    return python(f"import sys, {module}; print(*set({DEVICE_LIBRARIES!r}) & set(sys.modules))", bytecode).split()


def main(module: str = "vtl_nn") -> int:
    """Print both findings; 1 if either is out of bounds."""
    with tempfile.TemporaryDirectory() as bytecode:
        return int(all(weigh(module, bytecode) for _ in range(TRIES)))


def weigh(module: str, bytecode: str) -> int:
    """The same, with a place for .pyc files; the first look at what is loaded writes them."""
    if names := loaded(module, bytecode):
        print(f"cold import: `import {module}` loads {', '.join(sorted(names))}: import it where it is used")
        return 1
    taken: dict[str, list[tuple[float, float]]] = {"numpy": [], module: []}
    for pair in range(PAIRS):
        for name in ("numpy", module) if pair % 2 == 0 else (module, "numpy"):
            taken[name].append(import_ms(name, bytecode))
    (cpu, wall), (numpy_cpu, numpy_wall) = (
        (min(c), min(w)) for c, w in (zip(*t, strict=True) for t in reversed(taken.values()))
    )
    middle = statistics.median(a - b for (a, _), (b, _) in zip(taken[module], taken["numpy"], strict=True))
    print(
        f"cold import: {module} costs {cpu - numpy_cpu:.1f} ms of CPU over numpy's {numpy_cpu:.1f} ms (the least of {PAIRS}; "
        f"limit {LIMIT_MS:.0f} ms; median of the paired differences {middle:.1f} ms; on the wall {wall - numpy_wall:.1f} ms)"
    )
    return int(cpu - numpy_cpu >= LIMIT_MS)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
