"""Run the conformance suite on Vulkan under the validation layers; any message of theirs is a failure.

The layers come with `nox -s system` (Debian: vulkan-validationlayers). Arguments go to pytest.
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

LAYER = "VK_LAYER_KHRONOS_validation"
WORDS = ("VUID-", "Validation Error", "Validation Warning", "Validation Performance")


HALVES = ("test_gradients", "not test_gradients")  # of the suite, by time


def main() -> int:
    """1 if a test failed or the layers said anything. Halves run beside each other: pytest's own workers swallow what is said."""
    command = [sys.executable, "-m", "vsl_compute.cli", "conformance", "--backend", "vulkan", "--", "-s", *sys.argv[1:]]
    halves = [[]] if "-k" in sys.argv else [["-k", half] for half in HALVES]
    environment = {**os.environ, "VK_INSTANCE_LAYERS": LAYER}
    started = [
        subprocess.Popen(
            [*command, *half], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for half in halves
    ]
    with ThreadPoolExecutor(len(started)) as pool:  # both pipes are read, so that neither waits for the other
        said = list(pool.map(lambda process: process.communicate()[0], started))
    messages = [line for text in said for line in text.splitlines() if any(word in line for word in WORDS)]
    for text in said:
        print(*text.splitlines()[-8:], sep="\n")
    print(*dict.fromkeys(messages), f"{LAYER}: {len(messages)} messages", sep="\n")
    return 1 if messages or any(process.returncode for process in started) else 0


if __name__ == "__main__":
    sys.exit(main())
