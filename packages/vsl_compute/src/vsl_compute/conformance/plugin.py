"""pytest plugin of the conformance suite: its options, the subject that every test takes, and the summary line.

There are three outcomes: *passed*; *unsupported*, declared in the backend's capabilities, asserted to raise
UnsupportedError, and counted; *absent*, the backend could not be opened, which fails a run that required it.
`--backend` and what it requires come from vsl_compute.testing.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .. import registry
from ..backend import ComputeBackend
from ..dtypes import ALL, BY_NAME, DType
from .subject import Subject

pytest_plugins = ("vsl_compute.testing",)
LARGE = Path(__file__).with_name("test_large.py")
HERE = __name__.rpartition(".")[0]
OUTCOMES = pytest.StashKey["Counter[str]"]()
OUTCOME = "outcome of the suite"
DTYPES = pytest.StashKey[Sequence[DType]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--overrides`, `--dtype`, `--large` and `--fuzz`."""
    group = parser.getgroup("vsl_compute conformance")
    group.addoption(
        "--overrides",
        choices=("on", "off", "both"),
        default="on",
        help="let the backend use its own versions of composites",
    )
    group.addoption("--dtype", metavar="NAMES", help="test these dtypes only, separated by commas")
    group.addoption("--fuzz", type=int, default=20, metavar="COUNT", help="random calls a family; 20 by default")
    group.addoption("--fuzz-from", type=int, default=0, metavar="SEED", help="the first random call's seed")
    group.addoption("--large", action="store_true", help="arrays of 5 and 20 GiB too, on a device with 60 GiB")


def pytest_configure(config: pytest.Config) -> None:
    """Read the options."""
    config.addinivalue_line("markers", "slow: takes seconds or gigabytes; its docstring says why")
    config.addinivalue_line("filterwarnings", "ignore:.* is a software device:UserWarning")  # it is what was asked for
    config.stash[OUTCOMES] = Counter()
    config.pluginmanager.register(Tally(config.stash[OUTCOMES]), "vsl_compute.conformance.tally")
    names = config.getoption("--dtype")
    unknown = [name for name in (names or "").split(",") if name and name not in BY_NAME]
    if unknown:
        raise pytest.UsageError(f"--dtype {names}: {', '.join(unknown)} is none of {', '.join(BY_NAME)}")
    config.stash[DTYPES] = tuple(BY_NAME[name] for name in names.split(",")) if names else ALL


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave test_large.py alone unless asked for."""
    return True if collection_path == LARGE and not config.getoption("--large") else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test with overrides on, off, or both ways; both only in modules that say COMPOSITES: others reach none."""
    if "overrides" in metafunc.fixturenames:
        setting = metafunc.config.getoption("--overrides")
        both = ("on", "off") if getattr(metafunc.module, "COMPOSITES", False) else ("on",)
        metafunc.parametrize("overrides", both if setting == "both" else (setting,), scope="session")


@pytest.fixture(scope="session")
def opened(backend_name: str) -> ComputeBackend:
    """The backend under test."""
    return registry.get(backend_name)


@pytest.fixture
def subject(opened: ComputeBackend, overrides: str, request: pytest.FixtureRequest) -> Generator[Subject, None, None]:
    """The backend with all that a test needs of it; random numbers differ by test, not by run."""
    rng = np.random.default_rng(zlib.crc32(request.node.originalname.encode()))
    config = request.config
    found = Subject(opened, rng, config.stash[DTYPES], config.stash[OUTCOMES])
    with found.overriding(overrides == "on") as subject:
        yield subject


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Mark what came of the suite's tests; the marks travel with the report, from another process too."""
    report = yield
    module: Any = getattr(item, "module", None)
    if (module is not None and module.__name__.startswith(HERE)) or "conformance" in item.path.parts:
        if report.failed:
            report.user_properties.append((OUTCOME, "failed"))
        elif report.when == "call" and report.passed:
            report.user_properties.append((OUTCOME, "passed"))
        elif report.skipped:
            report.user_properties.append((OUTCOME, "absent" if report.when == "setup" else "skipped"))
        if report.when == "call":
            refused, item.config.stash[OUTCOMES]["refused"] = item.config.stash[OUTCOMES]["refused"], 0
            report.user_properties += [(OUTCOME, "unsupported")] * refused
    return report


class Tally:
    """Counts the marks where reports arrive."""

    def __init__(self, outcomes: Counter[str]) -> None:
        self.outcomes = outcomes

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count one report."""
        for key, outcome in report.user_properties if report.when == "call" or not report.passed else ():
            if key == OUTCOME:
                self.outcomes[str(outcome)] += 1


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line: passed, failed, unsupported, absent."""
    outcomes = terminalreporter.config.stash[OUTCOMES]
    if not any(outcomes.values()):
        return
    words = {
        "passed": f"{outcomes['passed']} passed",
        "failed": f"{outcomes['failed']} failed",
        "unsupported": f"{outcomes['unsupported']} unsupported (declared, and refused when asked)",
        "absent": f"{outcomes['absent']} absent (no such device here)",
        "skipped": f"{outcomes['skipped']} skipped (the reason stands above)",
    }
    colour = {"red": bool(outcomes["failed"]), "yellow": not outcomes["failed"] and bool(outcomes["absent"])}
    terminalreporter.write_line(
        "conformance: " + ", ".join(text for key, text in words.items() if key == "passed" or outcomes[key]), **colour
    )
