"""What tests of this package share."""

from __future__ import annotations

import importlib.util
import os
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

from vsl_compute import registry
from vsl_compute.testing import require


def _load(name):
    """A module that lies beside this file, which with importlib's import mode is no package."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


_load("simulated_cublaslt")
simulated_cuda = _load("simulated_cuda")
_load("simulated_cudnn")
_load("simulated_spirv")


@pytest.fixture
def rng(request):
    """Random numbers of the test's own: the same on each run, other ones in each test."""
    return np.random.default_rng(zlib.crc32(request.node.nodeid.encode()))


@pytest.fixture(scope="session")
def opencl(request):
    """The first OpenCL device, opened."""
    require(request, "opencl")
    return registry.get("opencl")


@pytest.fixture
def fresh(request, tmp_path, monkeypatch):
    """A Vulkan backend of this test's own, to break."""
    require(request, "vulkan")
    monkeypatch.setenv("VSL_CACHE_DIR", str(tmp_path))
    backend = registry.driver("vulkan").open(0)
    yield backend
    backend.close()


@pytest.fixture(scope="session")
def kernel_cache(tmp_path_factory):
    """Kernels that one test has compiled are there for the next, and for those of other workers."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "kernels"
    folder.mkdir(exist_ok=True)
    return str(folder)


@pytest.fixture(autouse=True)
def _switched_off():
    """Simulated devices hold a hundred megabytes each."""
    yield
    simulated_cuda.switch_off()


@pytest.fixture
def simulated_device(kernel_cache, monkeypatch):
    """A CUDA backend on a simulated device of this test's own."""
    if simulated_cuda.COMPILER is None:
        pytest.skip("the simulation needs a C++ compiler: clang++ or g++")
    monkeypatch.setenv("VSL_CACHE_DIR", kernel_cache)
    return simulated_cuda.opened()


@pytest.fixture(params=["opencl", "simulated_cuda"])
def text_device(request):
    """A device of each backend that compiles texts."""
    return (
        request.getfixturevalue("opencl") if request.param == "opencl" else request.getfixturevalue("simulated_device")
    )


@pytest.fixture(params=["simulated", "device"])
def cuda_device(request):
    """CUDA twice: on a simulated device, and on the machine's own where the run asks for it."""
    if request.param == "simulated":
        return request.getfixturevalue("simulated_device")
    require(request, "cuda")
    return registry.get("cuda")
