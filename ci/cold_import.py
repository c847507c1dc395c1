"""What `import vtl_nn` loads and costs in a fresh process: no device library, and little beyond NumPy.

Processes of the two kinds alternate, and the median of the paired differences decides. CPU time is what counts, since on
a busy machine the wall clock measures the others.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile

LIMIT_MS = 60.0
PAIRS = 15
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
        return weigh(module, bytecode)


def weigh(module: str, bytecode: str) -> int:
    """The same, with a place for .pyc files; the first look at what is loaded writes them."""
    if names := loaded(module, bytecode):
        print(f"cold import: `import {module}` loads {', '.join(sorted(names))}: import it where it is used")
        return 1
    differences, walls, bases = [], [], []
    for pair in range(PAIRS):
        order = ("numpy", module) if pair % 2 == 0 else (module, "numpy")
        times = {name: import_ms(name, bytecode) for name in order}
        differences.append(times[module][0] - times["numpy"][0])
        walls.append(times[module][1] - times["numpy"][1])
        bases.append(times["numpy"][0])
    quarter = statistics.quantiles(differences, n=4)
    median = statistics.median(differences)
    print(
        f"cold import: {module} costs {median:.1f} ms of CPU over numpy's {statistics.median(bases):.1f} ms "
        f"(quartiles {quarter[0]:.1f} to {quarter[2]:.1f}, {PAIRS} pairs, limit {LIMIT_MS:.0f} ms; "
        f"on the wall {statistics.median(walls):.1f} ms)"
    )
    return median >= LIMIT_MS


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
