"""The checks of ci/ can fail: each is shown a tree with a planted fault."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("vsl_compute", "vtl_core", "vtl_data", "vtl_nn")


def load(name):
    """A script of ci/ as a module."""
    spec = importlib.util.spec_from_file_location(f"ci_{name}", ROOT / "ci" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tree(tmp_path):
    """A copy of what ci/pins.py reads, to plant faults in."""
    for name in ("LICENSE", "pyproject.toml", ".pre-commit-config.yaml", "run.py", "noxfile.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    for package in PACKAGES:
        source = Path("packages", package, "src", package)
        (tmp_path / source).mkdir(parents=True)
        for name in (source / "_version.py", source / "_interface.py"):
            shutil.copy(ROOT / name, tmp_path / name)
        for name in ("pyproject.toml", "LICENSE"):
            shutil.copy(ROOT / "packages" / package / name, tmp_path / "packages" / package / name)
    return tmp_path


def plant(path, old, new):
    """Replace text that must be there."""
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_pins_of_this_tree_agree(tree):
    assert load("pins").findings(tree) == []


@pytest.mark.parametrize(
    ("file", "old", "new", "finding"),
    [
        ("packages/vsl_compute/src/vsl_compute/_version.py", "0.1.0", "0.2.0", "but the tree has vsl-compute 0.2.0"),
        ("packages/vtl_core/pyproject.toml", "vsl-compute>=0.1,<0.2", "vsl-compute>=0.1", "needs an upper bound"),
        ("packages/vsl_compute/src/vsl_compute/_interface.py", '"1.1"', '"2.0"', "but vsl-compute provides 2.0"),
        ("packages/vtl_nn/src/vtl_nn/_interface.py", "vtl.data", "vtl.date", "which nobody provides"),
        ("packages/vtl_core/pyproject.toml", "vsl-compute[vulkan]", "vsl-compute[opencl]", "extra vulkan should be"),
        ("packages/vtl_nn/LICENSE", "MIT", "BSD", "LICENSE differs"),
        ("run.py", "packaging>=24", "packaging>=25", "lacks run.py's packaging>=25"),
        (".pre-commit-config.yaml", "mirrors-mypy\n    rev: v", "mirrors-mypy\n    rev: v0.", "mypy 0."),
    ],
)
def test_pins_finds_what_does_not_agree(tree, file, old, new, finding):
    plant(tree / file, old, new)

    assert any(finding in line for line in load("pins").findings(tree))


def test_shape_finds_long_files_and_drawers(tmp_path):
    shape = load("shape")
    files = {
        "a/long.py": 401,
        "a/utils.py": 1,
        "helpers/b.py": 1,
        "a/fine.py": 400,
        "a/listed.py": 500,
        "a/short.py": 3,
    }
    for name, lines in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x = 1\n" * lines, encoding="utf-8")

    found = shape.findings(tmp_path, list(files), {"a/listed.py": "a table", "a/short.py": "was long", "gone.py": "?"})

    assert [line.split(":")[0] for line in found] == [
        "a/long.py",
        "a/utils.py",
        "helpers/b.py",
        "a/short.py",
        "gone.py",
    ]


def test_changelog_wants_a_fragment_for_a_change_under_src(tmp_path):
    changelog = load("changelog")
    package = tmp_path / "packages" / "thing"
    (package / "src").mkdir(parents=True)
    (package / "changes").mkdir()
    (package / "pyproject.toml").touch()
    (package / "changes" / ".gitkeep").touch()

    def commit() -> str:
        git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]
        subprocess.run(["git", "add", "-A"], cwd=tmp_path, check=True)
        subprocess.run([*git, "commit", "-qm", "x"], cwd=tmp_path, check=True)
        return subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout.strip()

    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    base = commit()
    assert changelog.findings(tmp_path, base) == []
    (package / "src" / "a.py").write_text("x = 1\n", encoding="utf-8")
    commit()
    assert len(changelog.findings(tmp_path, base)) == 1
    assert len(changelog.findings(tmp_path)) == 1
    (package / "changes" / "7.added.md").write_text("It adds.\n", encoding="utf-8")
    commit()
    assert changelog.findings(tmp_path, base) == []
    (package / "changes" / "news.md").write_text("It adds.\n", encoding="utf-8")
    assert any("named ISSUE" in line for line in changelog.findings(tmp_path, base))


def test_readme_examples_are_found_by_name(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("<!-- example: one -->\n```python\nprint(1)\n```\n\n```python\nprint(2)\n```\n", encoding="utf-8")

    assert load("readme").examples(page) == {"one": "print(1)\n"}


LOG = """\
tests/test_a.py::test_one[x y]
[gw0] [ 33%] PASSED tests/test_a.py::test_one[x y]
[gw1] [ 66%] FAILED tests/test_a.py::test_two
tests/test_a.py::test_three PASSED                                       [ 75%]
tests/test_a.py::test_four SKIPPED (no such device)                      [100%]
=========================== short test summary info ============================
FAILED tests/test_a.py::test_two - assert 1 == 2
"""


def test_a_suite_that_was_stopped_counts_what_it_did():
    tally = load("device_suites").Tally()
    for line in LOG.splitlines():
        tally.read(line)
    assert (tally.passed, tally.skipped, tally.failed) == (2, 1, ["tests/test_a.py::test_two"])


def test_a_suite_past_its_limit_is_stopped_with_all_that_it_started(tmp_path):
    suites = load("device_suites")
    test = tmp_path / "test_slow.py"
    test.write_text("import time\ndef test_quick(): pass\ndef test_slow(): time.sleep(600)\n", encoding="utf-8")
    suite = suites.Suite("slow one", (str(test),), (), limit=5)
    outcome = suites.run(suite, 0, tmp_path, suites.time.monotonic() + 60)
    assert outcome.ended == "stopped at its limit of 5 s"
    assert suites.run(suite, 0, tmp_path, suites.time.monotonic()).ended == "not started: no time was left"


def test_every_backend_has_its_suites_and_each_pair_is_compared():
    names = [suite.name for suite in load("device_suites").suites(["cuda", "vulkan"], large=True)]
    assert [n for n in names if "conformance" in n] == ["conformance cuda", "conformance vulkan"]
    assert {"tensors and layers vulkan", "backend cuda", "large vulkan", "validate cuda against vulkan", "root"} <= set(
        names
    )


def test_verdicts_of_validate_are_counted_and_failures_named():
    rows = [
        {"op": "exp", "part": "value", "dtype": "float32", "verdict": verdict}
        for verdict in ("pass", "fail", "unsupported")
    ]
    tally = load("device_suites").judged("noise\n" + json.dumps({"rows": rows}))
    assert (tally.passed, tally.skipped, tally.failed) == (1, 1, ["exp value float32"])
    assert load("device_suites").judged("Killed").passed == 0
