"""Examples in Markdown that are run: `<!-- example: NAME -->` stands on the line before the fence.

`readme.py FILE NAME` prints the example's code, so that `readme.py README.md compute | python -` runs it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

FENCE = re.compile(r"<!-- example: (?P<name>[\w-]+) -->\n```python\n(?P<code>.*?)```", re.DOTALL)


def examples(path: Path) -> dict[str, str]:
    """Every named example of a Markdown file, by name."""
    return {match["name"]: match["code"] for match in FENCE.finditer(path.read_text(encoding="utf-8"))}


def main() -> int:
    """Print one example."""
    path, name = sys.argv[1:]
    found = examples(Path(path))
    if name not in found:
        print(f"{path}: no example {name!r}; it has {', '.join(found) or 'none'}", file=sys.stderr)
        return 1
    print(found[name])
    return 0


if __name__ == "__main__":
    sys.exit(main())
