"""Which of cuBLASLt's algorithms a product takes, on the simulated library, whose algorithms take what time the test says."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import simulated_cuda  # conftest.py has brought it

from vsl_compute.backends.cuda import algorithms
from vsl_compute.backends.cuda.cublaslt import BGRADB
from vsl_compute.backends.shared.tuning import Tuner
from vsl_compute.dispatch import asarray, run
from vsl_compute.dtypes import bfloat16, float16, float32, float64
from vsl_compute.precision import set_float32_matmul_precision

pytestmark = pytest.mark.skipif(
    simulated_cuda.COMPILER is None, reason="the simulation needs a C++ compiler: clang++ or g++"
)
DTYPES = pytest.mark.parametrize("dtype", [float32, float64, float16, bfloat16], ids=str)
EPILOGUES = pytest.mark.parametrize("dtype", [float32, float16, bfloat16], ids=str)
QUICK = {0: 22e-6, 1: 25e-6, 2: 9e-6, 100: 11e-6, 101: 30e-6, 102: 30e-6}


class Searching(Tuner):
    """On a clock that only products move; epilogues are taken wherever there are any."""

    def __init__(self, backend, *, searches=True):
        library = backend._cublas.loaded()
        super().__init__(backend.info, backend.queue.finish, clock=lambda: library.spent)
        self.searches, self.families = searches, []

    def choose(self, key, candidates, trial):
        self.families.append(key.family)
        return candidates["joined"] if "joined" in candidates else super().choose(key, candidates, trial)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def cached(folder, monkeypatch):
    """Compiled kernels of the tests before this one, but no choices."""
    shutil.rmtree(folder / "tuning", ignore_errors=True)
    monkeypatch.setenv("VSL_CACHE_DIR", str(folder))


def opened(*, searches=True, named=3):
    backend = simulated_cuda.opened()
    library = backend._cublas.loaded()
    library.named, library.seconds = named, dict(QUICK)
    backend.tuner = Searching(backend, searches=searches)
    return backend, library


def product(backend, dtype=float32, shape=(8, 24, 16)):
    """A product of whole numbers, and what it is."""
    m, k, n = shape
    a, b = (np.random.default_rng(k).integers(-2, 3, s).astype(np.float32) for s in ((m, k), (k, n)))
    return run("matmul", asarray(backend, a, dtype), asarray(backend, b, dtype)).to_host(), a @ b


@DTYPES
def test_the_quickest_right_algorithm_is_taken_and_kept(dtype):
    """Number 2 is quicker than 100, which cuts no sum, but wrong; the next process searches no more."""
    backend, library = opened()
    library.wrong = {2}
    for _ in range(3):
        got, expected = product(backend, dtype)
        np.testing.assert_array_equal(got, expected)
    assert library.taken[-3:] == [100] * 3
    assert {0, 1, 2, 100, 101} <= set(library.taken)

    later, other = opened()
    product(later, dtype)
    assert other.taken == [100]


def test_without_a_search_the_first_algorithm_is_taken_and_no_other_asked_for():
    backend, library = opened(searches=False)
    for _ in range(3):
        product(backend)
    assert library.taken == [0] * 3
    assert backend.tuner.families == []


@pytest.mark.parametrize("precision", ["highest", "high"])
def test_each_way_of_computing_has_a_choice_of_its_own(precision):
    backend, library = opened()
    before = set_float32_matmul_precision(precision)
    try:
        product(backend)
    finally:
        set_float32_matmul_precision("highest" if before is None else before)
    assert library.taken[-1] == 2
    assert set(library.tf32) == {precision == "high"}


def test_what_keeps_a_device_busy_is_not_searched_for(monkeypatch):
    monkeypatch.setattr(algorithms, "SMALL", 8 * 24 * 16)
    backend, library = opened()
    product(backend)
    assert library.taken == [0]
    product(backend, shape=(8, 24, 15))
    assert library.taken[-1] == 2


@EPILOGUES
def test_an_algorithm_that_adds_up_wrong_in_its_epilogue_is_dropped(dtype):
    """The product itself being right."""
    backend, library = opened()
    library.wrong_sums = {2}
    rng = np.random.default_rng(1)
    g, x = (rng.integers(-2, 3, s).astype(np.float32) for s in ((32, 16), (32, 24)))
    for _ in range(2):
        weight, bias = run("linear_weight", asarray(backend, g, dtype), asarray(backend, x, dtype))
        np.testing.assert_array_equal(weight.to_host(), g.T @ x)
        np.testing.assert_array_equal(bias.to_host(), g.sum(0))
    assert library.epilogues[-2:] == [BGRADB] * 2
    assert library.taken[-2:] == [100] * 2


@EPILOGUES
def test_layers_with_epilogues_are_right_after_a_search(dtype):
    """Forward with its mask and back through it; biases of the calls, not of the search."""
    backend, library = opened()
    rng = np.random.default_rng(2)
    shapes = ((24, 40), (136, 40), (10, 136), (136,), (10,))
    x, first, second, one, two = host = [rng.integers(-2, 3, s).astype(np.float32) for s in shapes]
    one += 0.5
    hidden = np.maximum(x @ first.T + one, 0)
    for _ in range(3):
        y, kept = run("feed_forward", *(asarray(backend, v, dtype) for v in host))
        if dtype is float32:  # whose sums are not rounded
            np.testing.assert_array_equal(kept.to_host(), hidden)
            np.testing.assert_array_equal(y.to_host(), hidden @ second.T + two)
        g = rng.integers(-2, 3, (24, 10)).astype(np.float32)
        dx, bias = run("linear_relu_input", asarray(backend, g, dtype), asarray(backend, second, dtype), kept)
        np.testing.assert_array_equal(dx.to_host(), np.where(hidden > 0, g @ second, 0))
        if dtype is float32:  # whose sums are not rounded
            np.testing.assert_array_equal(bias.to_host(), np.where(hidden > 0, g @ second, 0).sum(0))
    assert library.taken[-1] == 2


def test_a_search_is_no_transfer_and_leaves_what_it_multiplies_alone():
    """Batches with steps of their own, columns dense, rows apart: operands and what lies between the rows of out."""
    backend, library = opened()
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-2, 3, s).astype(np.float32) for s in ((3, 8, 24), (16, 24)))
    wide = asarray(backend, np.full((3, 8, 20), 5, np.float32))
    out, left, right = (
        wide.slice(slice(None), slice(None), slice(0, 16)),
        asarray(backend, a),
        asarray(backend, b).permute((1, 0)),
    )
    before = backend.transfers()
    run("matmul", left, right.expand((3, 24, 16)), out=out)
    after = backend.transfers()
    assert library.taken[-1] == 2
    assert (after.bytes_to_device, after.bytes_to_host) == (before.bytes_to_device, before.bytes_to_host)
    np.testing.assert_array_equal(out.to_host(), a @ b.T)
    assert (wide.to_host()[..., 16:] == 5).all()
    np.testing.assert_array_equal(left.to_host(), a)
