"""The conformance suite is shown a broken backend of each kind, and must say so in a named test.

A check that nobody has seen fail is not a check. The backends are in planted.py.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from vsl_compute import dispatch, registry
from vsl_compute.backend import Capabilities, DeviceInfo
from vsl_compute.conformance import test_fuzz, unsupported
from vsl_compute.dtypes import float16
from vsl_compute.errors import UnavailableError, UnsupportedError


def _load():
    """planted.py lies beside this file; with importlib's import mode that is no package."""
    spec = importlib.util.spec_from_file_location("planted", Path(__file__).with_name("planted.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules["planted"] = module
    spec.loader.exec_module(module)
    return module


planted = _load()
pytest_plugins = ("pytester",)
LAYOUT = f"vsl_compute.conformance.test_rows::{planted.LAYOUT}"


class Driver:
    """One device: the backend under test."""

    name = planted.NAME

    def __init__(self, make, absent):
        self.make, self.absent = make, absent

    def devices(self):
        if self.absent:
            raise UnavailableError(self.absent)
        host = registry.driver("cpu").devices()[0]
        return [
            DeviceInfo(f"{self.name}:0", self.name, 0, "planted", "cpu", host.memory_bytes, host.dtypes, host.driver)
        ]

    def open(self, index):
        return self.make(self.devices()[index])


@pytest.fixture(scope="module", autouse=True)
def loaded():
    """The backends' packages, before `pytester` looks: it forgets what is imported later, and pyopencl's library ends a
    process that loads it twice.
    """
    registry.backends()


@pytest.fixture
def suite(pytester, monkeypatch):
    """Run some tests of the conformance suite on a backend."""
    for variable in ("VTL_TEST_CUDA", "VTL_TEST_VULKAN", "VTL_TEST_OPENCL"):
        monkeypatch.delenv(variable, raising=False)

    def run(make, nodes, *options, absent=None):
        monkeypatch.setitem(registry._drivers, planted.NAME, Driver(make, absent))
        for spec in (planted.NAME, f"{planted.NAME}:0"):
            monkeypatch.delitem(registry._opened, spec, raising=False)
        result = pytester.runpytest_inprocess(
            "-p", "vsl_compute.conformance.plugin", "--pyargs", *nodes, "--backend", planted.NAME,
            "-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-q", "--tb=line", *options,
        )  # fmt: skip
        for spec in (planted.NAME, f"{planted.NAME}:0"):
            registry._opened.pop(spec, None)
        return result

    return run


def failed(result):
    """Names of the tests that failed."""
    return {line.split("::")[1].partition("[")[0].split()[0] for line in result.outlines if line.startswith("FAILED")}


def test_the_unbroken_backend_passes_all_that_is_used_here(suite):
    result = suite(planted.Planted, sorted({broken.node for broken in planted.BREAKS.values()}))

    assert result.ret == 0
    assert result.parseoutcomes()["passed"] > 200


@pytest.mark.parametrize("name", planted.BREAKS)
def test_planted_break_is_caught_by_name(suite, monkeypatch, name):
    broken = planted.BREAKS[name]
    if name == "overlap":
        monkeypatch.setattr(dispatch.arguments, "_copied", lambda view: view)

    result = suite(broken.backend, [broken.node], *(["-k", broken.cases] if broken.cases else []))

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert failed(result) == {broken.test}


def test_a_broken_override_is_seen_with_overrides_and_only_then(suite):
    node = planted.BREAKS["override"].node
    assert suite(planted.KernelFlipped, [node], "--overrides", "off").ret == 0
    suite(planted.KernelFlipped, [node], "--overrides", "both", "-k", "dense").assert_outcomes(passed=1, failed=1)


class WithoutHalf(planted.Planted):
    """Declares no float16, and refuses it."""

    def __init__(self, info):
        super().__init__(info)
        functions = {d: f for d, f in self.capabilities.functions.items() if d is not float16}
        self.capabilities = Capabilities(functions)


class SaysNoButDoes(WithoutHalf):
    """Declares no float16, and runs it all the same."""

    def supports_row(self, row, dtype):
        return True


class SaysYesButRefuses(planted.Planted):
    """Declares float16, and refuses it."""

    def elementwise(self, row, out, args, scalars):
        if out.dtype is float16:
            raise UnsupportedError("planted: no float16 after all")
        super().elementwise(row, out, args, scalars)


PRODUCT = "vsl_compute.conformance.test_gemm::test_product_takes_every_layout"


def test_what_is_declared_unsupported_is_counted_and_not_failed(suite):
    result = suite(WithoutHalf, [PRODUCT])

    assert result.ret == 0
    result.stdout.fnmatch_lines(["conformance: 8 passed, 8 unsupported (declared, and refused when asked)"])


FUZZ = "vsl_compute.conformance.test_fuzz::test_random_calls_agree_with_their_meaning"


@pytest.mark.parametrize(
    ("name", "family"),
    [("tail", "rows"), ("stride", "rows"), ("offset", "rows"), ("axis", "reductions"), ("operands", "rows")],
)
def test_random_calls_find_a_planted_break_and_say_how_to_repeat_it(suite, name, family):
    result = suite(planted.BREAKS[name].backend, [FUZZ], "-k", family, "--tb=short", "--fuzz", "400")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    line = next(line for line in result.outlines if "the call of --fuzz-from" in line)
    seed = line.split("--fuzz-from ")[1].split()[0]
    again = suite(planted.BREAKS[name].backend, [FUZZ], "-k", family, "--fuzz", "1", "--fuzz-from", seed)
    again.assert_outcomes(failed=1, deselected=len(test_fuzz.FAMILIES) - 1)
    suite(planted.Planted, [FUZZ], "-k", family, "--fuzz", "1", "--fuzz-from", seed).assert_outcomes(
        passed=1, deselected=len(test_fuzz.FAMILIES) - 1
    )


LISTED = "vsl_compute.conformance.test_contract::test_what_is_declared_unsupported_is_the_list_that_is_kept"


@pytest.fixture
def list_kept(monkeypatch, tmp_path):
    """Keep a list of the planted driver: these lines."""

    def keep(*lines):
        (tmp_path / "planted.txt").write_text("# what it lacks\n" + "\n".join(lines))
        monkeypatch.setattr(unsupported, "FOLDER", tmp_path)
        monkeypatch.setattr(unsupported, "DRIVERS", ((planted.NAME, "", "planted"),))

    return keep


def test_what_is_unsupported_is_compared_with_the_list_that_is_kept(suite, list_kept):
    """Support that went, support that came, and the list as it is; each op of it is asked for and counted."""
    lacking = unsupported.declared(WithoutHalf(registry.driver("cpu").devices()[0]))
    assert {"exp float16", "sum float16", "matmul float16", "softmax float16"} < set(lacking)
    assert all(line.endswith(" float16") for line in lacking)

    list_kept(*lacking)
    result = suite(WithoutHalf, [LISTED])
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [f"conformance: 1 passed, {len(lacking)} unsupported (declared, and refused when asked)"]
    )
    assert suite(planted.Planted, [LISTED]).ret == pytest.ExitCode.TESTS_FAILED
    list_kept(*lacking[1:])
    result = suite(WithoutHalf, [LISTED])
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*planted.txt is not what planted declares*"])


def test_a_driver_without_a_list_is_told_what_it_declares(suite):
    result = suite(planted.Planted, [LISTED, PRODUCT], "-rs")

    assert result.ret == 0
    result.stdout.fnmatch_lines(["*no list is kept of *; it declares nothing unsupported*"])


def test_only_the_dtypes_asked_for_are_tested(suite):
    assert suite(SaysYesButRefuses, [LAYOUT], "-k", "exp]", "--dtype", "float32,float64").ret == 0
    assert suite(planted.Planted, [LAYOUT], "--dtype", "float8").ret == pytest.ExitCode.USAGE_ERROR


@pytest.mark.parametrize("backend", [SaysNoButDoes, SaysYesButRefuses])
def test_a_declaration_that_is_not_true_is_caught(suite, backend):
    assert suite(backend, [PRODUCT, LAYOUT], "-k", "takes_every_layout or exp]").ret == pytest.ExitCode.TESTS_FAILED


def test_a_method_with_other_parameter_names_is_caught(suite):
    class Renamed(planted.Planted):
        def reduce(self, row, outs, view, axes):
            super().reduce(row, outs, view, axes)

    result = suite(Renamed, ["vsl_compute.conformance.test_contract::test_method_has_the_contract_s_parameters"])

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["FAILED *test_method_has_the_contract_s_parameters*reduce*"])


def test_an_absent_backend_is_a_failure_that_says_why(suite):
    result = suite(planted.Planted, [PRODUCT], absent="planted: no such hardware")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*UnavailableError: --backend planted, but it is absent: planted: no such hardware*"])
