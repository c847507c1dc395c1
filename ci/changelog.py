"""A change under packages/X/src needs a fragment in packages/X/changes: one sentence for a user, present tense.

`changelog.py [BASE]` compares with BASE. Without one it takes the fork from origin/main, else the package's last
tag; where there is neither, all of the package is unreleased and needs a fragment.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

NAME = re.compile(r"\d+\.(breaking|added|fixed|performance)(\.\d+|-[a-z]+)?\.md")


def git(root: Path, *arguments: str) -> str:
    """What git prints, or nothing if it fails."""
    return subprocess.run(["git", *arguments], cwd=root, check=False, capture_output=True, text=True).stdout.strip()


def base_of(root: Path, distribution: str, given: str | None) -> str | None:
    """The commit to compare a package with."""
    if given:
        return given
    fork = git(root, "merge-base", "HEAD", "origin/main")
    if fork and fork != git(root, "rev-parse", "HEAD"):
        return fork
    return git(root, "describe", "--tags", "--abbrev=0", "--match", f"{distribution}-v*") or None


def findings(root: Path, given: str | None = None) -> list[str]:
    """What is missing or badly named, a line each."""
    wrong = []
    for package in sorted(path.parent for path in root.glob("packages/*/pyproject.toml")):
        folder = f"packages/{package.name}"
        fragments = sorted(path.name for path in (package / "changes").iterdir() if path.name != ".gitkeep")
        wrong += [
            f"{folder}/changes/{name}: named ISSUE.(breaking|added|fixed|performance)[-word].md"
            for name in fragments
            if not NAME.fullmatch(name)
        ]
        base = base_of(root, package.name.replace("_", "-"), given)
        touched = git(root, "diff", "--name-only", base, "--", f"{folder}/src") if base else "everything"
        fresh = (
            git(root, "diff", "--name-only", "--diff-filter=AM", base, "--", f"{folder}/changes") if base else fragments
        )
        if touched and not fresh:
            since = f"since {base[:12]}" if base else "and never released"
            wrong.append(f"{folder}: src/ changed {since}, but no fragment in {folder}/changes says so")
    return wrong


def main() -> int:
    """Print what is wrong; 1 if anything is."""
    wrong = findings(Path(__file__).resolve().parents[1], *sys.argv[1:2])
    print(*wrong, f"changelog: {len(wrong)} findings", sep="\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
