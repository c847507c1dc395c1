"""run.py brings nox to a bare Python, says so when it cannot, and passes on what nox says."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def run(tmp_path):
    """A copy of run.py in an empty tree, as a module."""
    shutil.copy(ROOT / "run.py", tmp_path / "run.py")
    spec = importlib.util.spec_from_file_location("run_copy", tmp_path / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def call(run, *arguments):
    """Run the copy in a process that reaches no index."""
    env = os.environ | {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""}
    command = [sys.executable, run.__file__, *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def plant_nox(run, exit_code):
    """Put something called nox where run.py puts the real one."""
    (run.BOOT / "nox").mkdir(parents=True)
    (run.BOOT / "nox" / "__init__.py").touch()
    text = f"import os, sys\nprint(sys.argv[1:], os.getcwd())\nsys.exit({exit_code})\n"
    (run.BOOT / "nox" / "__main__.py").write_text(text, encoding="utf-8")


def test_an_old_python_is_told_what_is_needed(run, monkeypatch):
    spec = importlib.util.spec_from_file_location("run_on_an_old_python", run.__file__)
    monkeypatch.setattr(sys, "version_info", (3, 10, 4, "final", 0))
    with pytest.raises(SystemExit, match=r"^run\.py: needs Python 3\.11 or newer, and this is 3\.10: "):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def test_a_failing_pip_is_one_line_and_leaves_no_stamp(run):
    result = call(run, "tests")

    assert result.returncode == 1
    assert result.stderr.splitlines()[-1].startswith("run.py: pip could not install nox[uv]")
    assert not run.STAMP.exists()


@pytest.mark.parametrize("exit_code", [0, 3])
def test_sessions_and_exit_code_pass_through(run, exit_code):
    plant_nox(run, exit_code)
    run.STAMP.write_text(run.wanted())

    result = call(run, "tests", "--", "-k", "relu")

    assert result.returncode == exit_code
    assert f"'-s', 'tests', '--', '-k', 'relu'] {run.ROOT}" in result.stdout


def test_without_a_session_nox_lists_them(run):
    plant_nox(run, 0)
    run.STAMP.write_text(run.wanted())

    assert "'-l']" in call(run).stdout


@pytest.mark.parametrize("stamp", [None, "another Python or another list"])
def test_an_install_without_its_stamp_is_redone(run, stamp):
    plant_nox(run, 0)
    if stamp:
        run.STAMP.write_text(stamp)

    result = call(run, "tests")

    assert result.returncode == 1
    assert not (run.BOOT / "nox").exists()
