"""`--backend NAME` for suites that say nothing of devices: what they make without a device is made on NAME."""

from __future__ import annotations

from functools import partial

import pytest

from vsl_compute.testing import RAN_ON, SELECTION, only

SUITES = ("vtl_core", "vtl_nn")


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    """Make it the default device before tests are collected: their tables hold tensors."""
    name = only(config)
    if name is not None and config.stash[SELECTION].why_absent(name) is None:
        import vtl_core as vtl

        config.add_cleanup(partial(vtl.set_default_device, vtl.default_context().device))
        vtl.set_default_device(name)


@pytest.fixture(autouse=True)
def counted(request, record_property):
    """A test of these suites has run on the default device, whatever it takes."""
    name = only(request.config)
    if name is not None and any(suite in request.path.parts for suite in SUITES):
        record_property(RAN_ON, name)
