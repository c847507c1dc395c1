"""What tests of this package share."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from vsl_compute import registry
from vsl_compute.testing import SELECTION


@pytest.fixture
def rng(request):
    """Random numbers of the test's own: the same on each run, other ones in each test."""
    return np.random.default_rng(zlib.crc32(request.node.nodeid.encode()))


@pytest.fixture(scope="session")
def opencl(request):
    """The first OpenCL device, opened; skipped with the reason where there is none, or where the run leaves it out."""
    selection = request.config.stash[SELECTION]
    if selection.setting.get("opencl", "0") == "0":
        pytest.skip("opencl: left out by --backend or VTL_TEST_OPENCL=0")
    if reason := selection.why_absent("opencl"):
        pytest.skip(reason)
    return registry.get("opencl")
