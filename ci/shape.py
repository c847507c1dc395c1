"""Files stay small and have a subject: over 400 lines, or named like a drawer of odds and ends, is a failure."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path, PurePosixPath

LIMIT = 400
FORBIDDEN = {"utils", "common", "misc", "helpers"}

LONGER: dict[str, str] = {}  # path -> why this one is longer

EXCEPTED = {"packages/vtl_nn/src/vtl_nn/utils": "PyTorch's nn.utils, by its name"}


def python_files(root: Path) -> list[str]:
    """Every .py that is tracked or would be: paths from the root."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.py"]
    listed = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    return sorted({name for name in listed.split("\0") if name and (root / name).is_file()})


def findings(root: Path, files: list[str], longer: dict[str, str] = LONGER) -> list[str]:
    """What is wrong, a line each."""
    wrong = []
    for name in files:
        lines = len((root / name).read_text(encoding="utf-8").splitlines())
        if lines > LIMIT and name not in longer:
            wrong.append(f"{name}: {lines} lines, the limit is {LIMIT}: is there a second subject in it?")
        if lines <= LIMIT and name in longer:
            wrong.append(f"{name}: {lines} lines, no exception needed: take it off the list in ci/shape.py")
        path = PurePosixPath(name)
        for part in (path.with_suffix(""), *path.parents):
            if part.name in FORBIDDEN and str(part) not in EXCEPTED:
                wrong.append(f"{name}: '{part.name}' is no subject; a helper lives with its one user, or has a name")
    wrong += [f"{name}: listed in ci/shape.py, but gone" for name in longer if name not in files]
    return wrong


def main() -> int:
    """Print what is wrong; 1 if anything is."""
    root = Path(__file__).resolve().parents[1]
    files = python_files(root)
    wrong = findings(root, files)
    print(*wrong, f"shape: {len(files)} files, {len(wrong)} findings", sep="\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
