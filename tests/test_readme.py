"""The README's examples run as they stand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("name", ["compute", "train"])
def test_readme_example_runs(name, tmp_path):
    extract = [sys.executable, str(ROOT / "ci" / "readme.py"), str(ROOT / "README.md"), name]
    code = subprocess.run(extract, capture_output=True, text=True, check=True).stdout

    done = subprocess.run(
        [sys.executable, "-W", "error", "-"], input=code, cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_the_page_of_vsl_compute_prints_what_it_says(tmp_path):
    page = ROOT / "packages" / "vsl_compute" / "README.md"
    extract = [sys.executable, str(ROOT / "ci" / "readme.py"), str(page), "compute"]
    code = subprocess.run(extract, capture_output=True, text=True, check=True).stdout

    done = subprocess.run([sys.executable, "-"], input=code, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert f"prints `{first}` and `{second}`." in page.read_text(encoding="utf-8")


def test_the_two_commands_stand_on_the_first_screen():
    first = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:24]

    assert any("python3 run.py demo" in line for line in first)
    assert any("python3 run.py tests" in line for line in first)
