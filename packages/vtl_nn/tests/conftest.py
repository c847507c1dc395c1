"""Seeds, random arrays, and a look at what tensors hold."""

from __future__ import annotations

import numpy as np
import pytest

import vtl_core as vtl


@pytest.fixture(autouse=True)
def seeded():
    """Every test starts from the same random numbers."""
    vtl.manual_seed(0)


@pytest.fixture
def draw():
    """Random tensors from a generator of the test's own: draw(2, 3) is float64 unless told."""
    generator = np.random.default_rng(7)

    def make(*shape, dtype=vtl.float64, requires_grad=False):
        return vtl.tensor(generator.normal(size=shape), dtype=dtype, requires_grad=requires_grad)

    return make


@pytest.fixture
def moved():
    """How many bytes have gone to and from a tensor's device; what a backend moves for itself is left out."""

    def count(tensor):
        found = tensor.raw.buffer.backend.transfers()
        return found.bytes_to_device, found.bytes_to_host

    return count
