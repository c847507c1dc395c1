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


def required(request, name):
    """Skip, with the reason, where the run leaves this backend out or the machine has none."""
    selection = request.config.stash[SELECTION]
    if selection.setting.get(name, "0") == "0":
        pytest.skip(f"{name}: left out by --backend or VTL_TEST_{name.upper()}=0")
    if reason := selection.why_absent(name):
        pytest.skip(reason)


@pytest.fixture(scope="session")
def opencl(request):
    """The first OpenCL device, opened."""
    required(request, "opencl")
    return registry.get("opencl")


@pytest.fixture
def fresh(request, tmp_path, monkeypatch):
    """A Vulkan backend of this test's own, to break."""
    required(request, "vulkan")
    monkeypatch.setenv("VSL_CACHE_DIR", str(tmp_path))
    backend = registry.driver("vulkan").open(0)
    yield backend
    backend.close()
