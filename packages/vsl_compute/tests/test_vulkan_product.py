"""Matrix products on Vulkan: every way that a matrix can lie and every path of the kernel, on whole numbers, so exactly."""

from __future__ import annotations

import numpy as np
import pytest

from vsl_compute import dispatch, registry
from vsl_compute.backends.vulkan import product
from vsl_compute.dispatch import asarray
from vsl_compute.testing import SELECTION

SIZES = (  # m n k: multiples of the tile, of four, and of nothing; thin ones
    (64, 64, 64), (33, 64, 12), (36, 20, 4), (35, 21, 7), (4, 4, 4), (1, 8, 8), (8, 1, 16), (70, 66, 40),
)  # fmt: skip


@pytest.fixture
def vulkan(request):
    """The device; skipped, with the reason, where there is none or VTL_TEST_VULKAN=0."""
    selection = request.config.stash[SELECTION]
    if selection.setting.get("vulkan") == "0":
        pytest.skip("vulkan: left out (VTL_TEST_VULKAN=0)")
    if reason := selection.why_absent("vulkan"):
        pytest.skip(f"vulkan: {reason}")
    return registry.get("vulkan")


def matrix(backend, rng, shape, dtype, turned):
    """A matrix of whole numbers on the device, its transpose in memory if `turned`; and as the host sees it."""
    values = rng.integers(-4, 5, (*shape[:-2], shape[-1], shape[-2]) if turned else shape)
    view = asarray(backend, values.astype(np.float64), dtype)
    swap = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
    return (view.permute(swap), values.swapaxes(-1, -2)) if turned else (view, values)


def check(backend, rng, sizes, dtype, turned):
    for number, (m, n, k) in enumerate(sizes):
        batch = (3,) if number % 2 else ()
        a, left = matrix(backend, rng, (*batch, m, k), dtype, turned[0])
        b, right = matrix(backend, rng, (*batch, k, n), dtype, turned[1])
        out, old = matrix(backend, rng, (*batch, m, n), dtype, False)
        dispatch.run("matmul", a, b, alpha=0.5, beta=2.0, out=out)
        expected = asarray(backend, 0.5 * (left @ right) + 2.0 * old, dtype).to_host()
        assert np.array_equal(out.to_host(), expected), (m, n, k)


@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_products_of_whole_numbers_are_exact(vulkan, rng, monkeypatch, turned, dtype):
    tile = product.SOFTWARE_SMALL if dtype == "float32" else product.SMALL
    monkeypatch.setattr(product.Products, "_tile", lambda *_: tile)
    check(vulkan, rng, SIZES, dtype, turned)


@pytest.mark.slow
@pytest.mark.parametrize("tile", ["SOFTWARE", "MIDDLE", "LARGE"])
def test_larger_tiles_are_exact_too(vulkan, rng, monkeypatch, tile):
    """Slow: llvmpipe takes seconds to compile one of them."""
    monkeypatch.setattr(product.Products, "_tile", lambda *_: getattr(product, tile))
    check(vulkan, rng, SIZES[2:4] if tile == "LARGE" else SIZES[1:4], "float32", (True, True))


def test_a_matrix_of_many_rows_is_cut(vulkan, rng, monkeypatch):
    monkeypatch.setattr(product, "MOST", 40)
    a, left = matrix(vulkan, rng, (90, 20), "float32", False)
    b, right = matrix(vulkan, rng, (20, 81), "float32", True)
    assert np.array_equal(dispatch.run("matmul", a, b).to_host(), left @ right)
