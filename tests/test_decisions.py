"""docs/adr: numbered without gaps, one shape, all in the index."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "adr"
PAGES = sorted(FOLDER.glob("[0-9]*.md"))


def test_decisions_are_numbered_without_gaps():
    assert [int(page.name[:4]) for page in PAGES] == list(range(1, len(PAGES) + 1))


def test_every_decision_says_context_decision_and_consequence():
    for page in PAGES:
        text = page.read_text(encoding="utf-8")

        assert re.match(rf"# {page.name[:4]} · \S", text), page.name
        assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["Context", "Decision", "Consequence"], page.name


def test_the_index_lists_every_decision():
    linked = re.findall(r"\]\(([^)]+)\)", (FOLDER / "index.md").read_text(encoding="utf-8"))

    assert linked == [page.name for page in PAGES]
