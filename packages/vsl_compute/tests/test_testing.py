"""The pytest plugin: what is used, required, left out, and that absence is never success."""

from __future__ import annotations

import pytest

from vsl_compute import registry

pytest_plugins = ("pytester",)

ABSENT = {"cpu": None, "cuda": "cuda: no driver", "vulkan": "vulkan: no loader", "opencl": "opencl: no platform"}
PRESENT = dict.fromkeys(ABSENT)

TESTS = """
def test_on_each(backend_name, device):
    assert device == backend_name

def test_without_backend():
    pass
"""


@pytest.fixture
def suite(pytester, monkeypatch):
    """Run pytest on TESTS with given availability, settings and arguments."""

    def run(available, *arguments, **settings):
        for name in ("CUDA", "VULKAN", "OPENCL"):
            monkeypatch.delenv(f"VTL_TEST_{name}", raising=False)
        for name, value in settings.items():
            monkeypatch.setenv(f"VTL_TEST_{name}", value)
        monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # else each run imports hypothesis anew, 0.9 s
        monkeypatch.setattr(registry, "backends", lambda: available)
        pytester.makepyfile(TESTS)
        return pytester.runpytest_inprocess("-p", "vsl_compute.testing", "-p", "no:cacheprovider", "-ra", *arguments)

    return run


def test_auto_skips_an_absent_backend_with_its_reason(suite):
    result = suite(ABSENT)

    result.assert_outcomes(passed=2, skipped=3)
    result.stdout.fnmatch_lines(
        ["backend cpu: used", "backend cuda: absent (cuda: no driver)", "SKIPPED*cuda: no driver"]
    )
    assert result.ret == 0


def test_auto_uses_a_backend_that_is_there(suite):
    suite(PRESENT).assert_outcomes(passed=5)


def test_zero_does_not_even_parametrize(suite):
    result = suite(PRESENT, CUDA="0", VULKAN="0", OPENCL="0")

    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["backend cuda: left out"])


def test_one_fails_where_the_device_is_missing(suite):
    result = suite(ABSENT, CUDA="1")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*UnavailableError: VTL_TEST_CUDA=1, but it is absent: cuda: no driver*"])


def test_one_fails_when_no_test_ran_on_the_device(suite):
    result = suite(PRESENT, "-k", "without_backend", VULKAN="1")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=1, deselected=4)
    result.stdout.fnmatch_lines(["VTL_TEST_VULKAN=1, but no test ran on vulkan"])


def test_one_passes_when_a_test_ran_on_the_device(suite):
    result = suite(PRESENT, CUDA="0", VULKAN="0", OPENCL="1")

    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["backend opencl: required"])
    assert result.ret == 0


def test_a_test_that_skips_itself_has_not_touched_the_device(suite, pytester):
    pytester.makepyfile(test_skips="import pytest\n\ndef test_on(backend_name):\n    pytest.skip('not today')\n")

    result = suite(PRESENT, "test_skips.py", CUDA="1", VULKAN="0", OPENCL="0")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["VTL_TEST_CUDA=1, but no test ran on cuda"])


NAMED = """
import pytest
from vsl_compute.testing import require

@pytest.fixture
def card(request):
    require(request, "vulkan")

def test_on_it(card):
    {}
"""


@pytest.mark.parametrize(("body", "ran"), [("pass", True), ("pytest.skip('not today')", False)])
def test_a_test_that_requires_one_backend_by_name_has_run_on_it(suite, pytester, body, ran):
    pytester.makepyfile(test_named=NAMED.format(body))

    result = suite(PRESENT, "test_named.py", CUDA="0", VULKAN="1", OPENCL="0")

    assert (result.ret == 0) is ran


@pytest.mark.parametrize(("settings", "reason"), [({"VULKAN": "0"}, "left out by"), ({}, "no loader")])
def test_a_test_that_requires_one_backend_is_skipped_without_it(suite, pytester, settings, reason):
    pytester.makepyfile(test_named=NAMED.format("pass"))

    result = suite(ABSENT, "test_named.py", **settings)

    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines([f"SKIPPED*vulkan: {reason}*"])


def test_any_other_word_is_a_usage_error(suite):
    result = suite(PRESENT, CUDA="yes")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: VTL_TEST_CUDA=yes: it is one of auto, 1, 0"])


def test_backend_option_runs_on_that_backend_alone_and_requires_it(suite):
    suite(PRESENT, "--backend", "vulkan").assert_outcomes(passed=2)

    result = suite(ABSENT, "--backend", "vulkan")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*--backend vulkan, but it is absent: vulkan: no loader*"])


def test_backend_option_names_a_stranger(suite):
    result = suite(PRESENT, "--backend", "metal")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*it is absent: metal: no backend of this name is installed*"])


def test_collecting_only_requires_nothing(suite):
    assert suite(ABSENT, "--collect-only", CUDA="1").ret == 0


ALONE = """
import pytest

@pytest.mark.cpu_only("the host reads its memory")
def test_of_the_host():
    pass

def test_of_any():
    pass
"""


def test_what_holds_on_the_cpu_alone_is_skipped_elsewhere_with_its_reason(suite, pytester):
    pytester.makepyfile(test_alone=ALONE)

    suite(PRESENT, "test_alone.py", CUDA="0", VULKAN="0", OPENCL="0").assert_outcomes(passed=2)
    suite(PRESENT, "test_alone.py", "--backend", "cpu").assert_outcomes(passed=2)
    result = suite(PRESENT, "test_alone.py", "--backend", "vulkan")
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*holds on the CPU alone: the host reads its memory"])


def test_a_mark_without_a_reason_is_an_error(suite, pytester):
    pytester.makepyfile(test_alone=ALONE.replace('("the host reads its memory")', ""))

    result = suite(PRESENT, "test_alone.py", CUDA="0", VULKAN="0", OPENCL="0")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*cpu_only takes the reason, a sentence*"])


def test_a_whole_suite_can_say_that_it_ran_on_the_default_device(suite, pytester):
    """As packages/conftest.py does: --backend NAME then has been touched by tests that take no backend."""
    pytester.makeconftest(
        """
import pytest
from vsl_compute.testing import RAN_ON, only

@pytest.fixture(autouse=True)
def counted(request, record_property):
    record_property(RAN_ON, only(request.config))
"""
    )
    pytester.makepyfile(test_alone=ALONE)

    assert suite(PRESENT, "test_alone.py", "--backend", "vulkan").ret == 0
