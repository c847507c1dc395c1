"""The OpenCL backend beyond the contract: groups of many threads, reports, long arrays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from vsl_compute import dispatch
from vsl_compute.backends.opencl.backend import OpenCLBackend
from vsl_compute.backends.shared import indexing
from vsl_compute.backends.shared.fused import FusedRows, TextLauncher
from vsl_compute.dispatch import asarray
from vsl_compute.dtypes import float32, float64
from vsl_compute.errors import DeviceLostError, IndexRangeError, OutOfMemoryError, ReleasedError, UnsupportedError
from vsl_compute.view import Layout


@pytest.fixture(scope="module")
def grouped(opencl):
    """The device with groups of 64 threads and shared memory, as on a GPU."""
    return OpenCLBackend(opencl.info, opencl.programs._device, group=64)


@pytest.fixture(params=["alone", "grouped"])
def backend(request, opencl):
    """The device as it comes, and with groups of many threads."""
    return opencl if request.param == "alone" else request.getfixturevalue("grouped")


def put(backend, array, dtype=None):
    return asarray(backend, np.asarray(array), dtype)


def run(op, *args, **options):
    return dispatch.run(op, *args, **options)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sum", "max_index", "moments"])
def test_groups_of_threads_reduce_as_single_ones_do(opencl, grouped, rng, name):
    """Short, long and very long outputs, and one output alone: each shape of launch. Slow: PoCL compiles barriers for seconds."""
    for shape, axes in (((3, 40), (1,)), ((5, 1000), (1,)), ((2, 30000), (1,)), ((50000,), (0,)), ((300, 7), (0,))):
        x = rng.uniform(0.9, 1.1, shape).astype(np.float32)
        alone, together = (run(name, put(b, x), axes=axes) for b in (opencl, grouped))
        pairs = zip(alone, together, strict=True) if isinstance(alone, tuple) else [(alone, together)]
        for a, b in pairs:
            np.testing.assert_allclose(a.to_host(), b.to_host(), rtol=2e-5)


@pytest.mark.slow
def test_kernels_made_for_gpus_are_right_where_vectors_are_read(grouped, rng, monkeypatch):
    """A software device takes single elements; here it takes vectors. Slow: PoCL compiles barriers for seconds."""
    monkeypatch.setattr(grouped.queue, "vectors", True)
    for shape, axes in (((70000,), 0), ((3, 4000), 1), ((7, 40), 1), ((4, 6, 64), (0, 2)), ((3000, 40), 0)):
        x = rng.uniform(-1, 1, shape).astype(np.float32)
        np.testing.assert_allclose(
            run("sum", put(grouped, x), axes=axes).to_host(), x.sum(axis=axes, dtype=float), atol=1e-4
        )
    rows = FusedRows(grouped, TextLauncher(grouped), group=64).overrides()
    for n in (12, 256, 1000):
        x = rng.uniform(-8, 8, (5, n)).astype(np.float32)
        e = np.exp(x - x.max(axis=1, keepdims=True, initial=-9))
        np.testing.assert_allclose(
            rows["softmax"](put(grouped, x), axis=-1).to_host(), e / e.sum(axis=1, keepdims=True), rtol=2e-5
        )


def test_more_batch_axes_than_a_launch_has(backend, rng):
    a = rng.integers(-3, 4, (2, 1, 2, 1, 2, 3, 4)).astype(np.float32)
    b = rng.integers(-3, 4, (1, 3, 1, 2, 1, 4, 2)).astype(np.float32)
    assert np.array_equal(run("matmul", put(backend, a), put(backend, b)).to_host(), a @ b)


def test_rows_of_more_axes_than_the_general_kernel(backend, rng):
    """Six axes that do not merge: operands are copied dense first, whatever the output's layout."""
    shape = (2, 3, 2, 3, 2, 3)
    a, b = (rng.standard_normal(shape).astype(np.float32) for _ in range(2))
    turn = (5, 3, 1, 4, 2, 0)
    got = run("subtract", put(backend, a), put(backend, b.transpose(turn).copy()).permute((5, 2, 4, 1, 3, 0)))
    assert np.array_equal(got.to_host(), a - b)
    out = (
        put(backend, np.zeros((3, 3, 3, 2, 2, 4), np.float32))
        .slice(*[slice(None)] * 5, slice(0, 2))
        .permute((5, 0, 4, 1, 3, 2))
    )
    run("subtract", put(backend, a), put(backend, b), out=out)
    assert np.array_equal(out.to_host(), a - b)


def test_reductions_of_more_axes_than_a_kernel_has(backend, rng):
    x = rng.integers(-3, 4, (2,) * 10).astype(np.float32)
    turned = put(backend, x).permute((9, 1, 7, 3, 5, 4, 6, 2, 8, 0))
    got = run("sum", turned, axes=(0, 2, 4, 6, 8)).to_host()
    assert np.array_equal(got, x.transpose(9, 1, 7, 3, 5, 4, 6, 2, 8, 0).sum(axis=(0, 2, 4, 6, 8)))


def test_a_fold_over_more_axes_than_a_kernel_has(backend, rng):
    """Four window axes: one is folded after the other."""
    shape, sizes = (4, 3, 5, 4), (2, 2, 3, 2)
    axes, ones = (0, 1, 2, 3), (1, 1, 1, 1)
    window = put(backend, np.zeros(shape, np.float32)).window(axes, sizes, ones, ones)
    x = rng.integers(-3, 4, window.shape).astype(np.float32)
    expected = np.zeros(shape, np.float32)
    for tap in np.ndindex(*sizes):
        cut = tuple(slice(t, t + n) for t, n in zip(tap, window.shape[:4], strict=True))
        expected[cut] += x[(..., *tap)]
    got = run("fold", put(backend, x), shape=shape, axes=axes, steps=ones, dilations=ones).to_host()
    assert np.array_equal(got, expected)


def test_g02_more_than_65535_groups_of_elements(opencl):
    """G02: y = x + 1 on zeros is 1 everywhere, and the sum is their number."""
    n = 65535 * 256 + 1
    y = run("add", run("fill", alpha=0.0, out=opencl.allocate(Layout.of(float32, (n,)))), 1.0)
    assert run("sum", run("astype", y, dtype="int32")).to_host() == n
    assert run("min", y).to_host() == run("max", y).to_host() == 1


@pytest.mark.parametrize("n", [1, 63, 64, 65, 255, 256, 257])
def test_g08_sizes_around_a_group(backend, rng, n):
    """G08: one element, one fewer than a group and one more, in rows, reductions and scans."""
    x = rng.integers(-9, 9, n).astype(np.float32)
    view = put(backend, x)
    assert np.array_equal(run("add", view, 1.0).to_host(), x + 1)
    assert run("sum", view).to_host() == x.sum()
    assert np.array_equal(run("cumsum", view).to_host(), np.cumsum(x))
    values, index = run("sort", view)
    assert np.array_equal(index.to_host(), np.argsort(x, kind="stable"))
    assert np.array_equal(values.to_host(), np.sort(x))


def test_g08_a_kernel_s_own_limit_bounds_its_groups(opencl):
    """G08: a kernel that takes many registers may have fewer threads a group than the device."""
    launched = []
    queue = opencl.queue

    class Small:
        limit = 7
        call = staticmethod(lambda q, size, group, *arguments: launched.append((size, group)))

    queue.launch(Small, 1000)
    queue.launch_plane(Small, 10, 3)
    assert [group[0] for _, group in launched] == [7, 7]
    assert all(size[0] % 7 == 0 for size, _ in launched)


def test_sorts_and_scans_are_right_over_many_levels(backend, rng):
    x = rng.integers(0, 1000, (2, 5000)).astype(np.int32)
    values, index = run("sort", put(backend, x))
    assert np.array_equal(index.to_host(), np.argsort(x, axis=-1, kind="stable"))
    assert np.array_equal(run("cumsum", put(backend, x)).to_host(), np.cumsum(x, axis=-1))
    assert np.array_equal(values.to_host(), np.sort(x, axis=-1))


def test_scatter_adds_the_same_by_runs_and_by_rows(opencl, rng, monkeypatch):
    x, index = rng.integers(-4, 5, (3, 50, 2)).astype(np.float32), rng.integers(0, 9, (3, 50))
    found = []
    for few in (0, 10**9):
        monkeypatch.setattr(indexing, "FEW", few)
        found.append(run("scatter", put(opencl, x), put(opencl, index), shape=(3, 9, 2), batch=1).to_host())
    expected = np.zeros((3, 9, 2), np.float32)
    for b in range(3):
        np.add.at(expected[b], index[b], x[b])
    assert np.array_equal(found[0], expected)
    assert np.array_equal(found[1], expected)


def test_long_folds_are_cut_along_a_free_axis(opencl, rng, monkeypatch):
    """As for arrays that one launch cannot address, with the limit at 20 elements."""
    x = rng.integers(-3, 4, (5, 3, 2, 4)).astype(np.float32)  # (batch, positions, channels, taps)
    options = {"shape": (5, 6, 2), "axes": (1,), "steps": (1,), "dilations": (1,)}
    expected = run("fold", put(opencl, x), **options).to_host()
    monkeypatch.setattr(indexing, "LIMIT", 20)
    assert np.array_equal(run("fold", put(opencl, x), **options).to_host(), expected)


def test_a_device_without_float64_refuses_it_and_draws_without_it(opencl):
    """Normal numbers in float32 alone stay within 16 units at 4 of those made in float64; float64 is refused by name."""
    backend = OpenCLBackend(opencl.info, opencl.programs._device)
    held = {d: f for d, f in backend.capabilities.functions.items() if d is not float64}
    backend.capabilities = replace(backend.capabilities, functions=held)
    options = {"shape": (200_000,), "kind": "normal", "key": (3, 1), "counter": (0, 0, 0, 0)}
    narrow, wide = (run("random", put(b, np.zeros(1, np.float32)), **options).to_host() for b in (backend, opencl))
    np.testing.assert_allclose(narrow, wide, rtol=0, atol=16 * 2.0**-21)
    with pytest.raises(UnsupportedError, match="float64"):
        run("astype", put(backend, np.zeros(1, np.float32)), dtype="float64")
    image = put(backend, np.ones((1, 1, 3, 3)))
    same = {"shape": (1, 1, 3, 3), "padding": 1}
    for op, options in (("conv2d", {}), ("conv2d_input", same), ("softmax", {}), ("max_pool2d", {"kernel_size": 2})):
        with pytest.raises(UnsupportedError, match=rf"opencl:0: no {op} for float64; move .* or cast it"):
            run(op, *[image] * (1 + ("conv" in op)), **options)


def test_many_lookups_before_a_read_are_all_checked(opencl):
    """More launches than the report has slots; the wrong one is the first."""
    x = put(opencl, np.zeros((4, 2), np.float32))
    good, bad = put(opencl, np.array([0, 3])), put(opencl, np.array([9]))
    run("gather", x, bad)
    for _ in range(indexing.SLOTS + 5):
        run("gather", x, good)
    with pytest.raises(
        IndexRangeError, match=r"gather: index 9 is outside an axis of size 4; indices must lie in \[0, 4\)"
    ):
        opencl.synchronize()
    opencl.synchronize()


def test_reading_the_report_is_no_transfer_of_the_user_s(opencl):
    x, index = put(opencl, np.zeros((4, 2), np.float32)), put(opencl, np.array([0, 3]))
    before = opencl.transfers()
    run("gather", x, index).to_host()
    after = opencl.transfers()
    assert (after.calls_to_host - before.calls_to_host, after.bytes_to_host - before.bytes_to_host) == (1, 16)


def test_a_closed_backend_says_so_and_holds_nothing(opencl):
    backend = OpenCLBackend(opencl.info, opencl.programs._device)
    view = put(backend, np.ones(3, np.float32))
    backend.close()
    with pytest.raises(ReleasedError, match="opencl:0: this backend was closed"):
        run("add", view, 1.0)
    with pytest.raises(ReleasedError, match="closed"):
        view.to_host()
    with pytest.raises(ReleasedError, match="closed"):
        put(backend, np.ones(2))
    backend.close()
    del view
    assert backend.memory().live == 0


def test_g13_empty_cache_gives_memory_back(opencl):
    backend = OpenCLBackend(opencl.info, opencl.programs._device)
    views = [put(backend, np.ones(1000, np.float32)) for _ in range(3)]
    held = backend.memory()
    assert (held.buffers, held.live, held.reserved) == (3, 3 * 4096, 3 * 4096)
    del views
    assert (backend.memory().live, backend.memory().reserved) == (0, 3 * 4096)
    backend.empty_cache()
    assert backend.memory().reserved == 0


@pytest.mark.parametrize(
    ("code", "error", "lasting"),
    [
        ("MEM_OBJECT_ALLOCATION_FAILURE", OutOfMemoryError, False),
        ("OUT_OF_HOST_MEMORY", OutOfMemoryError, False),
        ("OUT_OF_RESOURCES", DeviceLostError, False),
        ("DEVICE_NOT_AVAILABLE", DeviceLostError, True),
        ("INVALID_COMMAND_QUEUE", DeviceLostError, True),
    ],
)
def test_what_the_driver_says_becomes_a_typed_error(opencl, code, error, lasting):
    """A launch that the driver refuses; a lost device refuses all that follows too."""
    backend = OpenCLBackend(opencl.info, opencl.programs._device)
    view, cl = put(backend, np.ones(3, np.float32)), backend._cl

    failed = type("Failed", (cl.RuntimeError,), {"code": getattr(cl.status_code, code)})

    class Refused:
        limit = 64

        @staticmethod
        def call(*arguments):
            raise failed(f"enqueue_nd_range_kernel failed: {code}")

    with pytest.raises(error, match="opencl:0: "):
        backend.queue.launch(Refused, 10)
    if lasting:
        with pytest.raises(DeviceLostError, match="stopped answering"):
            view.to_host()
    else:
        assert view.to_host().tolist() == [1, 1, 1]


@pytest.mark.parametrize("beyond", [4, 1 << 30, 1 << 62])
def test_g03_an_array_larger_than_a_buffer_may_be_is_refused_with_both_numbers(opencl, beyond):
    """G03: the driver's own limit, CL_DEVICE_MAX_MEM_ALLOC_SIZE; what it holds is as before, and the device goes on."""
    backend = OpenCLBackend(opencl.info, opencl.programs._device)
    most = int(opencl.programs._device.max_mem_alloc_size)
    nbytes = most // 4 * 4 + beyond
    with pytest.raises(OutOfMemoryError, match=rf"asked for {nbytes} bytes, held 0 .*at most {most} of"):
        backend.allocate(Layout.of(float32, (nbytes // 4,)))
    assert backend.memory().reserved == 0
    assert run("add", put(backend, np.ones(3, np.float32)), 1.0).to_host().tolist() == [2, 2, 2]


def test_out_of_memory_leaves_the_device_usable(opencl, monkeypatch):
    """The driver refuses once, though the cache was given back: a typed error with sizes; afterwards all is well."""
    backend = OpenCLBackend(opencl.info, opencl.programs._device)
    cl = backend._cl

    class Full:
        def __getattr__(self, name):
            return getattr(cl, name)

        def Buffer(self, *args):
            raise cl.MemoryError("clCreateBuffer", -4)

    monkeypatch.setattr(backend, "_cl", Full())
    with pytest.raises(OutOfMemoryError, match="opencl:0: asked for 4000 bytes, held 0"):
        backend.allocate(Layout.of(float32, (1000,)))
    monkeypatch.undo()
    assert run("add", put(backend, np.ones(3, np.float32)), 1.0).to_host().tolist() == [2, 2, 2]
