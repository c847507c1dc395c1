"""The extra cuda12 where there is no device: the error says why and what helps, and the backend's own way compiles.

ci/render.py compiles every text; here one of each kind passes through CuPy's NVRTC with the options that a device gets,
to a binary for each generation that this NVRTC knows.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice

import vsl_compute as vsl
from render import KINDS
from vsl_compute.backends.cuda import loader
from vsl_compute.backends.cuda.program import CUDAPrograms
from vsl_compute.kernels.shell import Kernel
from vsl_compute.rows.dialect import CUDA

CAPABILITIES = ((7, 0), (7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0))
EACH = 211  # every so-manieth kernel of a kind is compiled here


def findings() -> Iterator[str]:
    """What is wrong, a line each."""
    try:
        vsl.get("cuda")
        yield "vsl.get('cuda') opened a device: run the suite instead (nox -s cuda)"
    except vsl.UnavailableError as error:
        print(f"vsl.get: UnavailableError: {error}")
        if "driver" not in str(error):
            yield f"the reason is not the missing driver: {error}"
    doctor = subprocess.run(
        (sys.executable, "-m", "vsl_compute.cli", "doctor", "--json"), capture_output=True, text=True, check=False
    )
    rows = {row["part"]: row for row in json.loads(doctor.stdout)}
    if rows["cuda"]["state"] != "absent" or "driver" not in rows["cuda"]["detail"]:
        yield f"vsl doctor says {rows['cuda']}"
    module = loader.cupy()
    supported = module.cuda.nvrtc.getSupportedArchs()
    for capability in CAPABILITIES:
        if 10 * capability[0] + capability[1] <= max(supported):
            yield from refusals(CUDAPrograms(module, "absent device", capability), capability)


def refusals(programs: CUDAPrograms, capability: tuple[int, int]) -> Iterator[str]:
    """Compile some kernels of each kind for one generation."""
    count = 0
    for render in KINDS.values():
        kernels: Iterator[Kernel] = islice(render(CUDA), 0, None, EACH if capability == (9, 0) else 10 * EACH)
        for kernel in kernels:
            count += 1
            try:
                programs.compiled(kernel)
            except vsl.KernelCompileError as error:
                yield str(error)
    print(f"compute capability {capability[0]}.{capability[1]}: {count} kernels compiled")


def main() -> int:
    """Print what is wrong; 1 if anything is."""
    wrong = list(findings())
    print(*wrong, f"cuda_absent: {len(wrong)} findings", sep="\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
