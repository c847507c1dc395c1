"""download_size.py FOLDER: what installing vtl-nn into an empty environment downloads, NumPy included.

FOLDER holds the four wheels (ci/wheels.py). Nothing is installed: pip downloads what it would install.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

LIMIT_MB = 25.0


def main() -> int:
    """Print each file's size; 1 if the sum is over the limit."""
    wheels = sorted(Path(sys.argv[1]).glob("v*.whl"))
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "-q",
            "--no-cache-dir",
            "--only-binary",
            ":all:",
            "-d",
            folder,
        ]
        subprocess.run([*command, *map(str, wheels)], check=True)
        sizes = {path.name: path.stat().st_size / 1e6 for path in Path(folder).iterdir()}
    for name, size in sorted(sizes.items(), key=lambda item: -item[1]):
        print(f"{size:8.3f} MB  {name}")
    total = sum(sizes.values())
    print(f"download size: {total:.1f} MB in {len(sizes)} files, limit {LIMIT_MB:.0f} MB")
    return total >= LIMIT_MB


if __name__ == "__main__":
    sys.exit(main())
