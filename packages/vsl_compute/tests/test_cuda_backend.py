"""The CUDA backend on a simulated device: launches, updates, transfers, lending, contexts, what goes wrong."""

from __future__ import annotations

import gc
import struct
import weakref

import numpy as np
import pytest
import simulated_cuda  # conftest.py has brought it
from simulated_cuda import STREAM, RuntimeFault, Simulation

from vsl_compute import dispatch
from vsl_compute.backends.cuda import staging
from vsl_compute.backends.cuda.backend import CUDABackend
from vsl_compute.backends.cuda.context import Context
from vsl_compute.backends.cuda.program import addresses, parameters
from vsl_compute.backends.shared.cache import FileCache
from vsl_compute.backends.shared.dlpack import Foreign
from vsl_compute.backends.shared.parameters import BUFFER, LONG, UINT, struct_of
from vsl_compute.conformance.unsupported import declared, kept
from vsl_compute.context import ComputeContext
from vsl_compute.dispatch import asarray
from vsl_compute.dtypes import bfloat16, float32, int32
from vsl_compute.errors import DeviceLostError, IndexRangeError, KernelCompileError, OutOfMemoryError, ReleasedError
from vsl_compute.kernels.shell import Kernel
from vsl_compute.view import Layout

pytestmark = pytest.mark.skipif(
    simulated_cuda.COMPILER is None, reason="the simulation needs a C++ compiler: clang++ or g++"
)


def put(simulated_device, array, dtype=None):
    return asarray(simulated_device, np.asarray(array), dtype)


def run(op, *args, **options):
    return dispatch.run(op, *args, **options)


# launches
def test_parameters_are_packed_as_c_lays_them_out():
    packing = parameters(
        [UINT, struct_of(2), BUFFER, np.dtype(np.float32), LONG, np.dtype(np.bool_), np.dtype(np.float64)]
    )
    assert packing.size == 8 + 8 + 16 + 8 + 8 + 8 + 8 + 8
    data = packing.pack(1, 7, b"\0" * 16, 2**63, 1.5, -1, True, 2.5)
    assert np.frombuffer(data[8:12], np.uint32) == 7
    assert np.frombuffer(data[40:44], np.float32) == 1.5
    assert np.frombuffer(data[64:], np.float64) == 2.5


def test_addresses_among_parameters_are_known_from_their_kinds():
    kinds = [UINT, BUFFER, np.dtype(np.float32), struct_of(4, (1, 3)), struct_of(2), BUFFER]
    data = parameters(kinds).pack(0, 7, 101, 1.5, struct.pack("4Q", 7, 102, 7, 103), struct.pack("2Q", 7, 7), 104)
    assert [struct.unpack_from("Q", data, at)[0] for at in addresses(kinds)] == [101, 102, 103, 104]


@pytest.mark.parametrize("n", [1, 255, 256, 257, 5000])
def test_rows_reductions_and_sorts_are_right_at_every_size(simulated_device, rng, n):
    x = rng.integers(-9, 9, n).astype(np.float32)
    view = put(simulated_device, x)
    assert np.array_equal(run("add", view, 1.0).to_host(), x + 1)
    assert run("sum", view).to_host() == x.sum()
    assert np.array_equal(run("sort", view)[1].to_host(), np.argsort(x, kind="stable"))


@pytest.mark.parametrize("shape", [(3, 7), (1000, 3), (3, 1000), (70000, 2)])
def test_planes_of_any_form_are_covered(simulated_device, rng, shape):
    """Groups are narrow where rows are; more rows than a launch has groups of the second axis are strided over."""
    x, bias = rng.integers(-9, 9, shape).astype(np.float32), rng.integers(-9, 9, shape[1]).astype(np.float32)
    simulated_device.queue._most = 512
    assert np.array_equal(run("add", put(simulated_device, x), put(simulated_device, bias)).to_host(), x + bias)


@pytest.mark.parametrize(
    ("name", "axes"),
    [
        *((name, axes) for name in ("sum", "moments", "norm") for axes in ((0,), (1,), (0, 1), (0, 2, 3))),
        *(("max_index", axes) for axes in ((0,), (1,))),  # an index is along one axis
    ],
    ids=str,
)
def test_a_long_reduction_is_one_launch_whose_last_group_joins_the_parts(simulated_device, rng, name, axes):
    """Again and again on other numbers, since the counters are 0 behind each; neighbours, strides and everything at once."""
    shape = (16, 3, 24, 40) if len(axes) == 3 else (40_000, 2) if axes == (0,) else (3, 40_000)
    for launched in (None, 1, 1, 1):
        x = rng.standard_normal(shape).astype(np.float32)
        view = (
            put(simulated_device, np.ascontiguousarray(x.T)).permute((1, 0))
            if axes == (0,)
            else put(simulated_device, x)
        )
        launches = simulated_device.cupy.launches
        result = run(name, view, axes=axes)
        assert launched is None or simulated_device.cupy.launches == launches + launched
        wide = x.astype(np.float64)
        expected = {
            "sum": lambda wide: (wide.sum(axes),),
            "moments": lambda wide: (wide.mean(axes), wide.var(axes)),
            "norm": lambda wide: (np.sqrt((wide**2).sum(axes)),),
            "max_index": lambda wide: (wide.max(axes[0]), wide.argmax(axes[0])),
        }[name](wide)
        for got, value in zip(result if isinstance(result, tuple) else (result,), expected, strict=True):
            np.testing.assert_allclose(got.to_host(), value, rtol=2e-6, atol=2e-5 * np.sqrt(x.size))


def test_a_text_that_does_not_compile_is_shown_with_its_numbers(simulated_device):
    text = Kernel("broken", 'extern "C" __global__ void broken(float *x)\n{\n    x[0] = nonsense;\n}\n', (), ())
    with pytest.raises(
        KernelCompileError,
        match=r"broken: Simulated 0 refuses this text:\n(.*\n)*   3     x\[0\] = nonsense;(.*\n)*.*nonsense",
    ):
        simulated_device.programs.kernel(text, [BUFFER])


def test_the_next_process_reads_the_binary(kernel_cache, monkeypatch):
    monkeypatch.setenv("VSL_CACHE_DIR", kernel_cache)
    run("add", put(simulated_cuda.opened(), np.ones(3)), 1.0)
    second = simulated_cuda.opened()
    monkeypatch.setattr(second.programs, "compiled", lambda kernel: pytest.fail("compiled again"))
    assert run("add", put(second, np.ones(3)), 1.0).to_host().tolist() == [2, 2, 2]


def test_a_binary_that_the_driver_refuses_is_compiled_again(tmp_path, monkeypatch):
    monkeypatch.setenv("VSL_CACHE_DIR", str(tmp_path))
    run("add", put(simulated_cuda.opened(), np.ones(3)), 1.0)
    for path in (tmp_path / "cuda").iterdir():
        FileCache("cuda").write(path.name, b"of another version")
    assert run("add", put(simulated_cuda.opened(), np.ones(3)), 1.0).to_host().tolist() == [2, 2, 2]


# memory and transfers
def test_uploads_and_downloads_are_counted_where_bytes_move(simulated_device):
    before = simulated_device.transfers()
    view = put(simulated_device, np.arange(100, dtype=np.float32))
    run("gather", view, put(simulated_device, np.array([3, 5]))).to_host()
    after = simulated_device.transfers()
    assert (after.bytes_to_device - before.bytes_to_device, after.calls_to_device - before.calls_to_device) == (416, 2)
    assert (after.bytes_to_host - before.bytes_to_host, after.calls_to_host - before.calls_to_host) == (8, 1)


def test_d23_d24_arrays_longer_than_pinned_memory_pass_through_it(simulated_device, rng, monkeypatch):
    """D23, D24: whatever is staged, both ways are exact, and the host array may change as soon as upload returns."""
    monkeypatch.setattr(staging, "PART", 1000)
    monkeypatch.setattr("vsl_compute.backends.cuda.queue.PART", 1000)
    x = rng.standard_normal(5000).astype(np.float32)
    kept = x.copy()
    views = []
    for _ in range(5):
        views.append(put(simulated_device, x))
        x[:] = np.nan
        x[:] = kept
    for view in views:
        assert np.array_equal(view.to_host(), kept)


def test_out_of_memory_frees_the_cache_and_tries_again_once(kernel_cache, monkeypatch):
    monkeypatch.setenv("VSL_CACHE_DIR", kernel_cache)
    simulated_device = simulated_cuda.opened(memory=1 << 20)
    cached = [simulated_device.allocate(Layout.of(float32, (100_000,))) for _ in range(2)]
    del cached
    assert simulated_device.memory().reserved > 800_000
    kept = simulated_device.allocate(Layout.of(float32, (200_000,)))
    with pytest.raises(
        OutOfMemoryError,
        match=r"cuda:0: asked for 1200000 bytes, held \d+ in 1 buffers; the largest free piece has at most \d+",
    ):
        simulated_device.allocate(Layout.of(float32, (300_000,)))
    del kept
    assert simulated_device.allocate(Layout.of(float32, (200_000,))).size == 200_000


def test_a_closed_backend_says_so_and_holds_nothing(simulated_device):
    view = put(simulated_device, np.ones(3, np.float32))
    dispatch.run_update(
        "sgd", [(view, put(simulated_device, np.ones(3, np.float32)))], {"lr": 0.5, "weight_decay": 0.0}
    )
    kernels = [weakref.ref(kernel) for kernel in simulated_device.programs._built.values()]
    assert kernels
    square = put(simulated_device, np.ones((2, 2)))
    run("matmul", square, square, out=(product := put(simulated_device, np.ones((2, 2)))))
    simulated_device.close()
    for use in (
        lambda: run("add", view, 1.0),
        lambda: run("matmul", square, square, out=product),
        view.to_host,
        lambda: put(simulated_device, np.ones(2)),
        simulated_device.synchronize,
    ):
        with pytest.raises(ReleasedError, match="cuda:0: this backend was closed"):
            use()
    gc.collect()
    assert not [kernel for kernel in kernels if kernel() is not None]
    assert simulated_device._cublas._library is None
    simulated_device.close()


def test_what_is_declared_unsupported_is_the_list_that_is_kept(simulated_device):
    path, lines = kept(simulated_device)
    assert path.name == "cuda.txt"
    assert declared(simulated_device) == lines


def test_an_index_outside_is_an_error_at_the_next_read(simulated_device):
    for bad, dtype in ((9, np.int64), (-1, np.int64), (-1, np.int32)):
        run(
            "gather", put(simulated_device, np.zeros((4, 2), np.float32)), put(simulated_device, np.array([bad], dtype))
        )
        with pytest.raises(IndexRangeError, match=rf"gather: index {bad} is outside an axis of size 4"):
            simulated_device.synchronize()


# lending
def test_what_is_lent_is_held_and_ordered(simulated_device, rng):
    """The consumer's stream waits for ours when it takes, ours for the consumer's once it lets go."""
    x = rng.standard_normal((3, 4)).astype(np.float32)
    view, order = put(simulated_device, x), simulated_device.cupy.order
    capsule = simulated_device.lend(view.permute((1, 0)), 42, versioned=True, copied=False)
    assert order == [("record", STREAM), ("wait", 42)]
    held = simulated_device.memory().buffers
    del view
    foreign = Foreign(capsule)
    assert (foreign.shape, foreign.strides, foreign.dtype, foreign.device) == ((4, 3), (1, 4), float32, (2, 0))
    assert simulated_device.memory().buffers == held
    foreign.release()
    assert order[2:] == [("record", 42), ("wait", STREAM)]
    gc.collect()
    assert simulated_device.memory().buffers == held - 1
    with pytest.raises(BufferError, match="taken already"):
        Foreign(capsule)
    with pytest.raises(BufferError, match="stream=0"):
        simulated_device.lend(put(simulated_device, x), 0, versioned=True, copied=False)


def test_a_capsule_that_nobody_takes_lets_go(simulated_device):
    view = put(simulated_device, np.ones(3))
    capsule = simulated_device.lend(view, None, versioned=False, copied=True)
    held = simulated_device.memory().buffers
    del view, capsule
    gc.collect()
    assert simulated_device.memory().buffers == held - 1


@pytest.mark.parametrize("dtype", [float32, bfloat16, int32], ids=str)
def test_what_is_borrowed_is_copied(simulated_device, rng, dtype):
    x = rng.integers(-9, 9, (3, 4)).astype(np.int64)
    source = put(simulated_device, x, dtype).permute((1, 0))

    class Lender:
        def __dlpack__(self, *, stream, max_version=None):
            assert stream == STREAM
            return simulated_device.lend(source, stream, versioned=max_version is not None, copied=False)

    got = simulated_device.borrow(Lender())
    run("fill", alpha=0, out=source)
    assert got.dtype is dtype
    assert np.array_equal(got.to_host(), x.T)


# threads, forks, faults
def test_the_device_that_a_thread_has_chosen_stays_chosen(simulated_device):
    driver = simulated_device.cupy.cuda.driver
    driver.ctxSetCurrent(4321)
    try:
        view = run("add", put(simulated_device, np.ones(3, np.float32)), 1.0)
        assert view.to_host().tolist() == [2, 2, 2]
        assert driver.ctxGetCurrent() == 4321
    finally:
        driver.ctxSetCurrent(1000)


def test_a_second_device_leaves_a_thread_on_none():
    """Else a user's later arrays would land on the device that a tensor was last used on."""
    simulation = Simulation(devices=2)
    context = Context(simulation, 1)
    assert simulation.cuda.driver.ctxGetCurrent() == 0
    with context.current():
        assert simulation.cuda.driver.ctxGetCurrent() == context.handle == 1001
    assert simulation.cuda.driver.ctxGetCurrent() == 0


@pytest.mark.parametrize(
    ("status", "error", "lasting"),
    [
        (2, OutOfMemoryError, False),
        (700, DeviceLostError, True),
        (719, DeviceLostError, True),
        (1, RuntimeFault, False),
    ],
)
def test_what_cuda_says_has_a_type(simulated_device, status, error, lasting):
    view = put(simulated_device, np.ones(3, np.float32))
    simulated_device.cupy.fault = RuntimeFault(status, "cudaErrorSomething: said the driver")
    with pytest.raises(error, match="said the driver"):
        run("add", view, 1.0, out=view)
    if lasting:
        with pytest.raises(DeviceLostError, match="Simulated 0 stopped answering"):
            view.to_host()
    else:
        assert view.to_host().tolist() == [1, 1, 1]


def test_a_lost_device_is_closed_without_a_word_to_the_driver(simulated_device):
    """It answers nothing; a driver whose kernel hangs would even wait for it."""
    view = put(simulated_device, np.ones(3, np.float32))
    simulated_device.cupy.fault = RuntimeFault(719, "cudaErrorSomething: said the driver")
    with pytest.raises(DeviceLostError):
        run("add", view, 1.0, out=view)
    asked, runtime = [], simulated_device.cupy.cuda.runtime
    runtime.free = runtime.streamSynchronize = lambda *given: asked.append(given)
    simulated_device.close()
    assert not asked
    with pytest.raises(DeviceLostError, match="stopped answering"):
        view.to_host()


def test_d18_the_chosen_device_does_the_work(kernel_cache, monkeypatch):
    """D18: device_id() of a context on the second device, and its memory and launches are that device's."""
    monkeypatch.setenv("VSL_CACHE_DIR", kernel_cache)
    simulation = Simulation(devices=2)
    simulated_device = CUDABackend(simulated_cuda.info(1), simulation)
    seen = []
    launch = simulation.cuda.driver.launchKernel
    simulated_device.queue._launch = lambda *given: (
        seen.append(simulation.cuda.driver.ctxGetCurrent()),
        launch(*given),
    )
    assert run("add", put(simulated_device, np.ones(3, np.float32)), 1.0).to_host().tolist() == [2, 2, 2]
    assert simulated_device.index == 1
    assert set(seen) == {1001}


def test_a_limit_of_memory_refuses_what_would_pass_it(simulated_device):
    backend, context = simulated_device, object.__new__(ComputeContext)
    context.backend = backend
    held = backend.memory().reserved
    context.limit_memory(held + (1 << 20))
    kept = backend.allocate(Layout.of(float32, (1 << 17,)))
    with pytest.raises(OutOfMemoryError, match="the limit is"):
        backend.allocate(Layout.of(float32, (1 << 18,)))
    context.limit_memory(None)
    more = backend.allocate(Layout.of(float32, (1 << 18,)))
    assert context.memory().peak >= kept.nbytes + more.nbytes
    for wrong in (-1, 1.5, True):
        with pytest.raises(ValueError, match="limit_memory"):
            context.limit_memory(wrong)
