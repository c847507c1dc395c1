"""What tests of this package share."""

from __future__ import annotations

import zlib

import numpy as np
import pytest


@pytest.fixture
def rng(request):
    """Random numbers of the test's own: the same on each run, other ones in each test."""
    return np.random.default_rng(zlib.crc32(request.node.nodeid.encode()))
