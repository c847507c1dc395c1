"""Products on a simulated CUDA device: which calls of cuBLAS a product of given layouts becomes, and that they are right."""

from __future__ import annotations

import numpy as np
import pytest
import simulated_cuda  # conftest.py has brought it

from vsl_compute import dispatch
from vsl_compute.backends.cuda import products
from vsl_compute.backends.cuda.layouts import matrix
from vsl_compute.dispatch import asarray
from vsl_compute.dtypes import bfloat16, float16, float32, float64, int32
from vsl_compute.precision import set_float32_matmul_precision

pytestmark = pytest.mark.skipif(
    simulated_cuda.COMPILER is None, reason="the simulation needs a C++ compiler: clang++ or g++"
)


def put(backend, array, dtype=None):
    return asarray(backend, np.asarray(array), dtype)


def run(op, *args, **options):
    return dispatch.run(op, *args, **options)


LAYOUTS = ("rows", "columns", "stepped", "flipped", "repeated")


def laid(backend, array, layout, dtype):
    """The matrix on the device, in one of LAYOUTS."""
    if layout == "columns":
        return put(backend, np.swapaxes(array, -1, -2).copy(), dtype).permute(
            (*range(array.ndim - 2), array.ndim - 1, array.ndim - 2)
        )
    if layout == "stepped":
        wide = np.repeat(array, 2, axis=-1)
        return put(backend, wide, dtype).slice(*[slice(None)] * (array.ndim - 1), slice(None, None, 2))
    if layout == "flipped":
        return put(backend, array[..., ::-1, :].copy(), dtype).slice(
            *[slice(None)] * (array.ndim - 2), slice(None, None, -1)
        )
    if layout == "repeated":
        return put(backend, array[..., :1, :].copy(), dtype).expand(array.shape)
    return put(backend, array, dtype)


@pytest.mark.parametrize("dtype", [float32, float64, float16, bfloat16], ids=str)
@pytest.mark.parametrize("left", LAYOUTS)
@pytest.mark.parametrize("right", LAYOUTS)
def test_d05_every_order_of_memory_gives_the_same_product(simulated_device, rng, dtype, left, right):
    """D5, D23: rows or columns dense are flags; the result's order likewise; whole numbers are exact."""
    m, n, k = rng.integers(1, 9, 3)
    a, b, c = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((m, k), (k, n), (m, n)))
    if left == "repeated":
        a[:] = a[:1]
    if right == "repeated":
        b[:] = b[:1]
    for result in ("rows", "columns", "stepped"):
        out = laid(simulated_device, c, result, dtype)
        run(
            "matmul",
            laid(simulated_device, a, left, dtype),
            laid(simulated_device, b, right, dtype),
            out=out,
            alpha=2,
            beta=-1,
        )
        assert np.array_equal(out.to_host(), 2 * (a @ b) - c), (m, n, k, result)


def test_d23_transposition_moves_nothing(simulated_device, rng):
    """D23: one call of the library, no kernel, no memory but the result."""
    a, b = (put(simulated_device, rng.standard_normal((6, 6)).astype(np.float32)) for _ in range(2))
    before, launches = simulated_device.memory().buffers, simulated_device.cupy.launches
    outs = [run("matmul", x, y) for x in (a, a.permute((1, 0))) for y in (b, b.permute((1, 0)))]
    assert simulated_device.memory().buffers == before + 4
    assert simulated_device.cupy.launches == launches
    assert len(simulated_device._cublas.loaded().made) == len(outs) == 4


def test_d05_a_matrix_is_read_one_way_or_its_transpose_the_other(rng):
    """D5: the conversion is its own inverse for random shapes."""
    for _ in range(200):
        rows, columns = (int(v) for v in rng.integers(1, 6, 2))
        down = columns + int(rng.integers(0, 3))
        found, turned = matrix((rows, columns), (down, 1)), matrix((columns, rows), (1, down))
        assert found is not None
        assert turned is not None
        assert found.line == turned.line or 1 in (rows, columns)
        if 1 not in (rows, columns):
            assert (found.flag, turned.flag) == (0, 1)
    assert matrix((3, 4), (0, 1)) is None
    assert matrix((3, 4), (8, 2)) is None
    assert matrix((3, 4), (-4, 1)) is None


def test_batches_of_any_axes(simulated_device, rng):
    """Broadcast, permuted, and more calls than are made before operands are copied."""
    a = rng.integers(-3, 4, (2, 1, 5, 3, 4)).astype(np.float32)
    b = rng.integers(-3, 4, (3, 1, 4, 2)).astype(np.float32)
    assert np.array_equal(run("matmul", put(simulated_device, a), put(simulated_device, b)).to_host(), a @ b)
    turned = put(simulated_device, a).permute((2, 1, 0, 3, 4))
    assert np.array_equal(run("matmul", turned, put(simulated_device, b)).to_host(), a.transpose(2, 1, 0, 3, 4) @ b)
    wide = rng.integers(-3, 4, (20, 4, 3, 2)).astype(np.float32)
    view = put(simulated_device, wide).permute((1, 0, 2, 3))
    made = len(simulated_device._cublas.loaded().made)
    got = run("matmul", view, view.permute((0, 1, 3, 2)))
    assert np.array_equal(got.to_host(), wide.transpose(1, 0, 2, 3) @ wide.transpose(1, 0, 3, 2))
    assert len(simulated_device._cublas.loaded().made) <= made + products.OUTER


def test_integers_are_multiplied_by_our_own_tiles(simulated_device, rng):
    a, b = rng.integers(-9, 9, (5, 7)), rng.integers(-9, 9, (7, 3))
    assert np.array_equal(
        run("matmul", put(simulated_device, a, int32), put(simulated_device, b, int32)).to_host(), a @ b
    )
    assert not simulated_device._cublas.loaded().made


def test_tf32_is_asked_for_where_it_was_chosen(simulated_device):
    a = put(simulated_device, np.ones((4, 4), np.float32))
    wide = put(simulated_device, np.ones((4, 4)))
    try:
        for precision in ("highest", "high", "highest"):
            set_float32_matmul_precision(precision)
            run("matmul", a, a)
            run("matmul", wide, wide)
    finally:
        set_float32_matmul_precision("highest")
    assert simulated_device._cublas.loaded().tf32 == [False, False, True, False, False, False]


@pytest.mark.parametrize("dtype", [float32, float16, bfloat16], ids=str)
def test_a_bias_is_added_by_the_product(simulated_device, rng, dtype):
    """One call and no kernel; leading axes are merged, and another bias is another address."""
    x, w, b = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((2, 3, 5), (4, 5), (8,)))
    views = [put(simulated_device, v, dtype) for v in (x, w, b)]
    run("linear", *views[:2], views[2].slice(slice(0, 4)))
    launches, made = simulated_device.cupy.launches, len(simulated_device._cublas.loaded().made)
    for start in (0, 4):
        y = run("linear", *views[:2], views[2].slice(slice(start, start + 4)))
        assert np.array_equal(y.to_host(), x @ w.T + b[start : start + 4])
    assert simulated_device.cupy.launches == launches
    assert len(simulated_device._cublas.loaded().made) == made + 2


def test_what_a_product_cannot_add_is_left_to_the_body(simulated_device, rng):
    x, w, b = (rng.integers(-3, 4, shape).astype(np.float64) for shape in ((3, 5), (4, 5), (4,)))
    assert np.array_equal(run("linear", *(put(simulated_device, v) for v in (x, w, b))).to_host(), x @ w.T + b)
    stepped = put(simulated_device, np.repeat(b, 2).astype(np.float32)).slice(slice(None, None, 2))
    narrow = [put(simulated_device, v.astype(np.float32)) for v in (x, w)]
    assert np.array_equal(run("linear", *narrow, stepped).to_host(), x @ w.T + b)
    assert np.array_equal(run("linear", *narrow, None).to_host(), x @ w.T)
