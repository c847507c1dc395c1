"""pytest plugin: which backends a test run uses, which it requires, and what it does when one is absent.

Load it with `-p vsl_compute.testing`. A test that takes `backend_name` or `device` then runs once per backend:

    def test_relu_keeps_nan(device):
        x = vtl.tensor([nan], device=device)

The CPU always takes part. VTL_TEST_CUDA, VTL_TEST_VULKAN and VTL_TEST_OPENCL each say one of

    auto   (the default) run where a device is, else skip with the reason
    1      required: a missing device fails the run, and so does a run in which no test touched it
    0      left out: not even parametrized

and `--backend NAME` runs those tests on NAME alone and requires it. Absent hardware is never counted as success.
Kernels are those of the built-in tables unless VSL_AUTOTUNE says otherwise: tests judge results, not speed.

A suite whose tests say nothing of devices can be run on one as a whole: its conftest asks `only(config)` for the NAME of
`--backend` and makes that the default device. A test that holds on the CPU alone says why, and is skipped elsewhere:
`@pytest.mark.cpu_only("the host reads its memory without a copy")`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass, field

import pytest

SWITCHED = ("cuda", "vulkan", "opencl")
SETTINGS = ("auto", "1", "0")


@dataclass
class Selection:
    """What this run was told about each backend, and what came of it."""

    setting: dict[str, str]  # backend name -> auto, 1 or 0, in the order of parametrization
    only: str | None = None
    ran: Counter[str] = field(default_factory=Counter)
    reasons: dict[str, str | None] | None = None

    @property
    def names(self) -> list[str]:
        """The backends that tests are parametrized with."""
        return [name for name, setting in self.setting.items() if setting != "0"]

    @property
    def required(self) -> list[str]:
        """The backends without which the run fails."""
        return [name for name, setting in self.setting.items() if setting == "1"]

    def why_absent(self, name: str) -> str | None:
        """Why the backend cannot be opened here, in words that begin with its name; None if it can."""
        if self.reasons is None:
            self.reasons = availability()
        return self.reasons.get(name, f"{name}: no backend of this name is installed")

    def demand(self, name: str) -> str:
        """The words that required this backend, for messages."""
        return f"--backend {name}" if name == self.only else f"VTL_TEST_{name.upper()}=1"


SELECTION = pytest.StashKey[Selection]()
RAN_ON = "backend it ran on"


def only(config: pytest.Config) -> str | None:
    """The NAME of `--backend NAME`, or None."""
    return config.stash[SELECTION].only


def availability() -> dict[str, str | None]:
    """Ask vsl_compute which backends can be opened; None means that one can."""
    try:
        from vsl_compute import registry
    except ImportError as error:  # a broken package under test is reported by its tests, not by a crash of pytest
        return dict.fromkeys(("cpu", *SWITCHED), f"vsl_compute.registry: {error}")
    return registry.backends()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--backend`."""
    group = parser.getgroup("vsl_compute", "compute backends")
    group.addoption("--backend", metavar="NAME", help="run tests that take a backend on this one only, and require it")


def pytest_configure(config: pytest.Config) -> None:
    """Read the settings; a word that means nothing is a usage error."""
    # a search for each shape that one test has once would take the suites hours
    os.environ.setdefault("VSL_AUTOTUNE", "0")
    config.addinivalue_line("markers", "cpu_only(reason): holds on the CPU alone; --backend NAME skips it")
    setting = {"cpu": "auto"}
    for name in SWITCHED:
        variable = f"VTL_TEST_{name.upper()}"
        setting[name] = os.environ.get(variable, "auto")
        if setting[name] not in SETTINGS:
            raise pytest.UsageError(f"{variable}={setting[name]}: it is one of {', '.join(SETTINGS)}")
    only = config.getoption("--backend")
    if only:
        setting = dict.fromkeys(setting, "0") | {only: "1"}
    selection = config.stash[SELECTION] = Selection(setting, only)
    config.pluginmanager.register(RanCounter(selection), "vsl_compute.testing.counter")


def pytest_report_header(config: pytest.Config) -> list[str]:
    """One line a backend: used, required, left out or absent, and why."""
    selection = config.stash[SELECTION]
    lines = []
    for name, setting in selection.setting.items():
        if setting == "0":
            finding = "left out"
        elif reason := selection.why_absent(name):
            finding = f"absent ({reason})"
        else:
            finding = "required" if setting == "1" else "used"
        lines.append(f"backend {name}: {finding}")
    return lines


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that takes a backend once for each that is not left out."""
    if "backend_name" in metafunc.fixturenames:
        metafunc.parametrize("backend_name", metafunc.config.stash[SELECTION].names, indirect=True, scope="session")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what holds on the CPU alone where the run is for another backend."""
    mark = item.get_closest_marker("cpu_only")
    if mark is None:
        return
    if len(mark.args) != 1:
        raise pytest.UsageError(f"{item.nodeid}: cpu_only takes the reason, a sentence")
    if only(item.config) not in (None, "cpu"):
        pytest.skip(f"holds on the CPU alone: {mark.args[0]}")


@pytest.fixture(scope="session")
def backend_name(request: pytest.FixtureRequest) -> str:
    """The name of the backend under test; the test is skipped, with the reason, where it cannot be opened."""
    name = str(request.param)
    if reason := request.config.stash[SELECTION].why_absent(name):
        pytest.skip(reason)
    return name


@pytest.fixture(scope="session")
def device(backend_name: str) -> str:
    """The device under test as users name it: the backend's first."""
    return backend_name


def require(request: pytest.FixtureRequest, name: str) -> None:
    """For a fixture or a test of one backend: skip, with the reason, where the run leaves it out or the machine has none."""
    selection = request.config.stash[SELECTION]
    if selection.setting.get(name, "0") == "0":
        pytest.skip(f"{name}: left out by --backend or VTL_TEST_{name.upper()}=0")
    if reason := selection.why_absent(name):
        pytest.skip(reason)
    if request.scope == "function":
        request.node.user_properties.append((RAN_ON, name))


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Stop before the first test if a required backend is absent: each of its tests would say the same."""
    selection = session.config.stash[SELECTION]
    if session.config.option.collectonly:
        return
    for name in selection.required:
        if reason := selection.why_absent(name):
            message = f"UnavailableError: {selection.demand(name)}, but it is absent: {reason}"
            pytest.exit(message, returncode=pytest.ExitCode.TESTS_FAILED)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Mark the tests that really ran with their backend; the mark travels with the report, from another process too."""
    report = yield
    if report.when == "call" and not report.skipped and isinstance(item, pytest.Function) and hasattr(item, "callspec"):
        name = item.callspec.params.get("backend_name")
        if isinstance(name, str):
            report.user_properties.append((RAN_ON, name))
    return report


class RanCounter:
    """Counts the marks where reports arrive: in this process, or in the one that runs others."""

    def __init__(self, selection: Selection) -> None:
        self.selection = selection

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count one report."""
        if report.when == "call" and not report.skipped:
            for key, name in report.user_properties:
                if key == RAN_ON:
                    self.selection.ran[str(name)] += 1


def untouched(config: pytest.Config) -> list[str]:
    """The required backends that are here, and that no test ran on."""
    selection = config.stash[SELECTION]
    return [name for name in selection.required if not selection.ran[name] and not selection.why_absent(name)]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail a run that required a backend and never touched it: a typo in -k must not look like success."""
    if hasattr(session.config, "workerinput"):  # of pytest-xdist: the process that started it sees all reports
        return
    green = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    if exitstatus in green and not session.config.option.collectonly and untouched(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which required backends were not touched."""
    config = terminalreporter.config
    if config.option.collectonly:
        return
    for name in untouched(config):
        terminalreporter.write_line(f"{config.stash[SELECTION].demand(name)}, but no test ran on {name}", red=True)
