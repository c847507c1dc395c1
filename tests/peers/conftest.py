"""PyTorch, which only these tests have, with one thread and fixed seeds."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is installed by `nox -s peers` alone")


@pytest.fixture(autouse=True)
def seeded():
    """Every test starts from the same random numbers, here and there."""
    import vtl_core as vtl

    torch.manual_seed(0)
    torch.set_num_threads(1)  # more only spin where the machine is shared
    vtl.manual_seed(0)


def pytest_addoption(parser):
    """How many random configurations a family is tried on."""
    parser.addoption("--configurations", type=int, default=40, metavar="N", help="random configurations a family")


@pytest.fixture
def configurations(request):
    """The number that was asked for."""
    return request.config.getoption("--configurations")
