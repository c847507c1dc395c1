"""Decision 26: each environment variable is read in one file of its package, and docs/environment.md lists it."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OURS = re.compile(r"\b(?:VSL|VTL)(?:_[A-Z]+)+\b(?!_)")
READ = re.compile(r"environ(?:\.get\(|\[)\s*\"(\w+)\"")


def sources(package):
    return {path: path.read_text(encoding="utf-8") for path in sorted((package / "src").rglob("*.py"))}


def test_every_variable_is_listed_and_every_listed_one_exists():
    page = (ROOT / "docs" / "environment.md").read_text(encoding="utf-8")
    named = {
        name
        for package in ROOT.glob("packages/*/")
        for text in sources(package).values()
        for name in OURS.findall(text)
    }
    assert set(OURS.findall(page)) == named


def test_a_variable_is_read_in_one_file_of_a_package():
    for package in ROOT.glob("packages/*/"):
        readers = defaultdict(set)
        for path, text in sources(package).items():
            for name in READ.findall(text):
                readers[name].add(path.name)
        assert {name: files for name, files in readers.items() if len(files) > 1} == {}


def test_the_page_names_files_that_speak_of_the_variable():
    page = (ROOT / "docs" / "environment.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`V.*?) \| (`.*?) \|", page, re.MULTILINE)
    assert len(rows) == page.count("\n| `V")
    for names, files in rows:
        for file in re.findall(r"`(.*?)`", files):
            package = file.partition("/")[0]
            text = (ROOT / "packages" / package / "src" / file).read_text(encoding="utf-8")
            assert "environ" in text
            assert set(OURS.findall(names)) <= set(OURS.findall(text)), file
