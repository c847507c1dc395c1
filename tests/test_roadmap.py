"""ML_ROADMAP.md says done only of what a named test or a dated result shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROW = re.compile(r"^\| (?P<row>[A-D]\d+[bc]?) \| [^|]+ \| [^|]+ \| (?P<state>[^|]*) \|(?P<test>[^|]*)\|$")
TEST = re.compile(r"`(?P<path>[\w/.-]+\.py)::(?P<function>\w+)`")
RESULT = re.compile(r"`(?P<path>benchmarks/results/[\w/.-]+\.json)`")

ALL_ROWS = (
    {f"A{n}" for n in range(1, 30)}
    | {"A15b", "A15c"}
    | {f"B{n}" for n in range(1, 24)}
    | {f"C{n}" for n in range(1, 30)}
    | {f"D{n}" for n in range(1, 37)}
)


def roadmap_rows(text: str) -> list[dict[str, str]]:
    """The rows of every table, as row, state and test."""
    found = (ROW.match(line) for line in text.splitlines())
    return [match.groupdict() for match in found if match]


def missing(row: dict[str, str]) -> list[str]:
    """What a row that says done names and the tree has not; a done row that names nothing lacks everything."""
    tests = list(TEST.finditer(row["test"]))
    results = list(RESULT.finditer(row["test"]))
    if not tests and not results:
        return ["the name of a test"]
    lacking = [match[0] for match in results if not (ROOT / match["path"]).is_file()]
    for match in tests:
        path = ROOT / match["path"]
        source = path.read_text(encoding="utf-8") if path.is_file() else ""
        if not re.search(rf"^\s*def {match['function']}\(", source, re.MULTILINE):
            lacking.append(match[0])
    return lacking


def test_every_capability_has_exactly_one_row():
    rows = [row["row"] for row in roadmap_rows((ROOT / "ML_ROADMAP.md").read_text(encoding="utf-8"))]

    assert sorted(rows) == sorted(ALL_ROWS)


def test_a_row_is_done_with_evidence_or_open_with_its_work():
    rows = roadmap_rows((ROOT / "ML_ROADMAP.md").read_text(encoding="utf-8"))

    assert {row["row"]: row["state"] for row in rows if not re.fullmatch(r"done|open: \w.*", row["state"])} == {}
    assert {row["row"]: lacking for row in rows if row["state"] == "done" and (lacking := missing(row))} == {}


@pytest.mark.parametrize(
    ("test", "lacking"),
    [
        ("`tests/test_roadmap.py::test_every_capability_has_exactly_one_row`", []),
        ("`tests/test_roadmap.py::test_that_nobody_wrote`", ["`tests/test_roadmap.py::test_that_nobody_wrote`"]),
        ("`tests/test_nowhere.py::test_x`", ["`tests/test_nowhere.py::test_x`"]),
        ("`benchmarks/results/nowhere.json`", ["`benchmarks/results/nowhere.json`"]),
        ("works on my machine", ["the name of a test"]),
    ],
)
def test_the_check_itself_can_fail(test, lacking):
    assert missing({"row": "A1", "state": "done", "test": test}) == lacking
