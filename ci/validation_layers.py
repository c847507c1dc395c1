"""Run the conformance suite on Vulkan under the validation layers; any message of theirs is a failure.

The layers come with `nox -s system` (Debian: vulkan-validationlayers). Arguments go to pytest.
"""

from __future__ import annotations

import os
import subprocess
import sys

LAYER = "VK_LAYER_KHRONOS_validation"
WORDS = ("VUID-", "Validation Error", "Validation Warning", "Validation Performance")


def main() -> int:
    """1 if a test failed or the layers said anything."""
    command = [sys.executable, "-m", "vsl_compute.cli", "conformance", "--backend", "vulkan", "--", "-s", *sys.argv[1:]]
    run = subprocess.run(
        command, env={**os.environ, "VK_INSTANCE_LAYERS": LAYER}, capture_output=True, text=True, check=False
    )
    messages = [line for line in (run.stdout + run.stderr).splitlines() if any(word in line for word in WORDS)]
    print(*run.stdout.splitlines()[-8:], *dict.fromkeys(messages), sep="\n")
    print(f"{LAYER}: {len(messages)} messages")
    return 1 if run.returncode or messages else 0


if __name__ == "__main__":
    sys.exit(main())
