"""Which of cuDNN's graphs attention becomes, and what is left to our kernels, on a simulated device with a stand-in for the library.

The stand-in records what is asked and computes by the op's own body; that real plans are right is the shipped suite's.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import simulated_cuda  # conftest.py has brought it

from vsl_compute.dispatch import asarray, overrides, run
from vsl_compute.dtypes import BY_NAME, float32
from vsl_compute.view import Buffer, Layout, View

pytestmark = pytest.mark.skipif(
    simulated_cuda.COMPILER is None, reason="the simulation needs a C++ compiler: clang++ or g++"
)


class NotSupportedError(Exception):
    pass


class Tensor:
    count = 0

    def __init__(self, dim=(), stride=(), kind="FLOAT"):
        Tensor.count += 1
        self.uid, self.dim, self.stride, self.kind, self.output = Tensor.count, tuple(dim), tuple(stride), kind, False

    def get_uid(self):
        return self.uid

    def set_output(self, wanted):
        self.output = wanted
        return self

    def set_data_type(self, kind):
        self.kind = kind
        return self

    def set_dim(self, dim):
        self.dim = tuple(dim)
        return self

    def set_stride(self, stride):
        self.stride = tuple(stride)
        return self


class Graph:
    """A graph of one attention with two plans, of which the first cannot be built."""

    def __init__(self, library, io_data_type, intermediate_data_type, compute_data_type, handle):
        assert (intermediate_data_type, compute_data_type, handle) == ("FLOAT", "FLOAT", 4)
        self.library, self.ran = library, 0
        library.graphs.append(self)

    def tensor(self, name, dim, stride, data_type):
        return Tensor(dim, stride, data_type)

    def sdpa(self, q, k, v, generate_stats, attn_scale, use_causal_mask, name):
        assert generate_stats
        return self._made("attention", (q, k, v), 2, attn_scale, use_causal_mask)

    def sdpa_backward(
        self, q, k, v, o, dO, stats, use_deterministic_algorithm, attn_scale, use_causal_mask, name
    ):  # its own
        assert use_deterministic_algorithm
        return self._made("attention_backward", (dO, q, k, v, o, stats), 3, attn_scale, use_causal_mask)

    def _made(self, op, inputs, count, scale, causal):
        if self.library.refuses:
            raise self.library.refuses
        self.op, self.inputs, self.outputs = op, inputs, [Tensor() for _ in range(count)]
        self.options = {"scale": scale, "causal": causal}
        return self.outputs

    def validate(self):
        assert all(t.output and len(t.dim) == len(t.stride) == 4 for t in self.outputs)

    def build_operation_graph(self):
        pass

    check_support = build_operation_graph

    def create_execution_plans(self, modes):
        assert modes == ["A", "FALLBACK"]

    def get_execution_plan_count(self):
        return 2

    def build_plan_at_index(self, index):
        if index == 0:
            raise NotSupportedError("this plan cannot be built")

    def get_workspace_size_plan_at_index(self, index):
        return 64

    def execute_plan_at_index(self, addresses, workspace, index, handle):
        assert (index, handle) == (1, 4)
        assert workspace > 0
        self.ran += 1
        backend = self.library.backend

        def view(tensor):
            dtype = (
                float32 if tensor.kind == "FLOAT" else BY_NAME[{"HALF": "float16", "BFLOAT16": "bfloat16"}[tensor.kind]]
            )
            layout = Layout.of(dtype, tensor.dim, tensor.stride)
            return View(Buffer(backend, addresses[tensor.uid], layout.nbytes), layout)

        with overrides(False):
            made = run(self.op, *map(view, self.inputs), **self.options)
        for out, result in zip(self.outputs, made, strict=True):
            backend.copy(view(out), result)


@pytest.fixture
def cudnn(monkeypatch):
    """A device whose attention asks the stand-in."""
    device = simulated_cuda.opened()
    library = SimpleNamespace(
        graphs=[], refuses=None, backend=device, cudnnGraphNotSupportedError=NotSupportedError, create_handle=lambda: 4,
        destroy_handle=lambda handle: None, set_stream=lambda handle, stream: None,
        data_type=SimpleNamespace(FLOAT="FLOAT", HALF="HALF", BFLOAT16="BFLOAT16"), heur_mode=SimpleNamespace(A="A", FALLBACK="FALLBACK"),
    )  # fmt: skip
    library.pygraph = lambda **options: Graph(library, **options)
    monkeypatch.setitem(sys.modules, "cudnn", library)
    device._overrides |= device._attention.overrides()
    return library


def heads(device, dtype, rng, length, size):
    """(N, heads, length, size), heads side by side in memory."""
    return asarray(device, rng.normal(size=(2, length, 3, size)), dtype).permute((0, 2, 1, 3))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_heads_go_to_the_library_in_the_order_that_they_lie_in(cudnn, dtype):
    rng, device = np.random.default_rng(5), cudnn.backend
    q, k, v = (heads(device, dtype, rng, n, 16) for n in (5, 7, 7))
    for _ in range(2):
        y, lse = run("attention", q, k, v, causal=True)
    (graph,) = cudnn.graphs  # a plan is built once
    assert graph.ran == 2
    assert graph.inputs[0].stride == q.strides
    assert y.strides == q.strides  # so that heads that are turned back join without a copy
    with overrides(False):
        want, want_lse = run("attention", q, k, v, causal=True)
    assert (y.to_host() == want.to_host()).all()
    assert (lse.to_host() == want_lse.to_host()).all()
    g = heads(device, dtype, rng, 5, 16)
    found = run("attention_backward", g, q, k, v, y, lse, causal=True, scale=0.25)
    assert [graph.op for graph in cudnn.graphs] == ["attention", "attention_backward"]
    with overrides(False):
        wanted = run("attention_backward", g, q, k, v, y, lse, causal=True, scale=0.25)
    for one, other in zip(found, wanted, strict=True):
        assert (one.to_host() == other.to_host()).all()


def test_what_the_library_does_not_take_is_our_kernels(cudnn):
    """Masks, heads of no whole eights, batches that broadcast, and what it refuses; each agrees with the body."""
    rng, device = np.random.default_rng(6), cudnn.backend
    mask = asarray(device, rng.random((5, 7)) < 0.7)
    cases = [(16, 2, mask), (12, 2, None), (16, 1, None)]
    for size, batch, seen in cases:
        q, v = (heads(device, "float16", rng, n, size) for n in (5, 7))
        k = heads(device, "float16", rng, 7, size).slice(slice(0, batch))
        y, _ = run("attention", q, k, v, seen)
        with overrides(False):
            want, _ = run("attention", q, k, v, seen)
        np.testing.assert_allclose(y.to_host(), want.to_host(), atol=4e-3)
    assert cudnn.graphs == []


@pytest.mark.parametrize(
    ("refusal", "said"),
    [
        (NotSupportedError("no such attention"), False),
        (RuntimeError("set_attribute(...) failed with code: CUDNN_STATUS_BAD_PARAM"), True),
    ],
)
def test_what_the_library_refuses_is_our_kernels_and_a_misfit_of_versions_is_said(cudnn, caplog, refusal, said):
    """cudnn-frontend 1.26 with cuDNN 9.19 cannot build the way back (seen on an H200)."""
    rng, device = np.random.default_rng(6), cudnn.backend
    cudnn.refuses = refusal
    q, k, v = (heads(device, "float16", rng, n, 16) for n in (5, 7, 7))
    y, _ = run("attention", q, k, v)
    with overrides(False):
        np.testing.assert_allclose(y.to_host(), run("attention", q, k, v)[0].to_host(), atol=4e-3)
    run("attention", q, k, v)
    assert len(cudnn.graphs) == 1
    assert bool([r for r in caplog.records if r.levelname == "WARNING" and "own kernel" in r.getMessage()]) == said


def test_float32_is_two_products_while_its_scores_fit_and_tiles_beyond(cudnn):
    """docs/adr/0051: cuBLAS is quicker than tiles on float32 units, and needs the scores' memory."""
    rng, device = np.random.default_rng(7), cudnn.backend
    q, k, v = (heads(device, "float32", rng, n, 8) for n in (5, 7, 7))
    products, gemm = [], device.gemm
    device.gemm = lambda *args, **options: (products.append(1), gemm(*args, **options))
    device._attention._tiled._fits = device.scores_fit
    few = run("attention", q, k, v)[0].to_host()
    assert len(products) == 2
    device._attention._tiled._fits = lambda nbytes: False
    many = run("attention", q, k, v)[0].to_host()
    assert len(products) == 2
    np.testing.assert_allclose(few, many, rtol=1e-5, atol=1e-6)
    assert device.scores_fit(device.scratch_bytes)
    assert not device.scores_fit(device.scratch_bytes + 1)
