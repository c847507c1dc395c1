"""Which graphs and plans of cuDNN a convolution becomes, on a simulated device with a stand-in for the library.

That real plans are right is the shipped suite's.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import simulated_cuda  # conftest.py has brought it
import simulated_cudnn
from simulated_cudnn import Graph, NotSupportedError

from vsl_compute import dispatch
from vsl_compute.backends.cuda import convolution, plans
from vsl_compute.backends.cuda.convolution import Convolutions, order_of
from vsl_compute.backends.cuda.cudnn import Problem, first_line
from vsl_compute.backends.cuda.plans import FIRST, LAST, strides_in, turned_problem
from vsl_compute.backends.shared import tuning
from vsl_compute.determinism import use_deterministic_algorithms
from vsl_compute.dispatch import asarray, run
from vsl_compute.dtypes import float16, float32, float64
from vsl_compute.errors import DTypeError, UnavailableError
from vsl_compute.precision import set_float32_matmul_precision

pytestmark = pytest.mark.skipif(
    simulated_cuda.COMPILER is None, reason="the simulation needs a C++ compiler: clang++ or g++"
)


@pytest.fixture
def cudnn(simulated_device, monkeypatch):
    """The device with the stand-in as its library."""
    library = simulated_cudnn.stand_in(simulated_device)
    monkeypatch.setitem(sys.modules, "cudnn", library)
    convolutions = library.convolutions = Convolutions(simulated_device)
    simulated_device._overrides |= convolutions.overrides()
    simulated_device._preparing |= convolutions.preparing()
    return library


@pytest.fixture
def searched(cudnn, monkeypatch, tmp_path):
    """Has every plan searched for, by the seconds that a function gives for a graph, or for None: the copy and product."""
    monkeypatch.setenv("VSL_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(plans, "SEARCHED", 1)
    monkeypatch.setattr(tuning, "BUDGET_S", 60.0)  # a laden machine compiles for longer than a search may take

    def by(seconds):
        tuner = tuning.Tuner(cudnn.backend.info, cudnn.backend.queue.finish)
        tuner.searches = True
        monkeypatch.setattr(
            tuner,
            "_time",
            lambda trial, candidate, calls: seconds(candidate.graph) if type(candidate) is plans.Plan else 1.0,
        )
        monkeypatch.setattr(cudnn.backend, "tuner", tuner)

    # the frontend's graph behind ours, for `seconds`
    monkeypatch.setattr(convolution.Cudnn, "graph", lambda own, problem: _told(built(own, problem)))
    return by


built = convolution.Cudnn.graph


def _told(graph):
    graph.op = graph._graph.op
    return graph


def images(backend, rng, *shape, dtype=float32, last=False):
    array = rng.integers(-3, 4, shape).astype(np.float32)
    if last:
        return array, asarray(backend, array.transpose(LAST).copy(), dtype).permute((0, 3, 1, 2))
    return array, asarray(backend, array, dtype)


def body(op, *args, **options):
    with dispatch.overrides(False):
        return run(op, *args, **options).to_host()


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("last", [False, True], ids=["channels first", "channels last"])
def test_the_three_convolutions_are_the_body_s(cudnn, rng, last, groups):
    backend, options = cudnn.backend, {"stride": (2, 1), "padding": (1, 0), "dilation": (1, 2), "groups": groups}
    _, x = images(backend, rng, 2, 3 * groups, 7, 8, last=last)
    _, w = images(backend, rng, 4, 3, 3, 2)
    _, b = images(backend, rng, 4)
    y = run("conv2d", x, w, b, **options)
    _, g = images(backend, rng, *y.shape, last=last)
    assert np.array_equal(y.to_host(), body("conv2d", x, w, b, **options))
    assert np.array_equal(
        run("conv2d_input", g, w, shape=x.shape, **options).to_host(),
        body("conv2d_input", g, w, shape=x.shape, **options),
    )
    gradient = run("conv2d_weight", g, x, shape=w.shape, **options)
    assert np.array_equal(gradient.to_host(), body("conv2d_weight", g, x, shape=w.shape, **options))
    assert [graph.op for graph in cudnn.graphs] == ["conv2d", "conv2d_input", "conv2d_weight"]
    assert order_of(y) == order_of(gradient) == (LAST if last else FIRST)


@pytest.mark.parametrize("last", [False, True], ids=["channels first", "channels last"])
@pytest.mark.parametrize("biased", [True, False], ids=["bias", "no bias"])
def test_a_convolution_a_relu_and_pooling_are_the_body_s(cudnn, rng, last, biased):
    """Twice, the second made ready: one convolution and two launches, for bias and ReLU see the pooled image alone."""
    backend, options = cudnn.backend, {"padding": 1, "pool_size": (2, 3), "pool_stride": (2, 1)}
    _, x = images(backend, rng, 2, 3, 7, 8, last=last)
    _, w = images(backend, rng, 4, 3, 3, 2)
    args = (x, w, images(backend, rng, 4)[1]) if biased else (x, w)
    with dispatch.overrides(False):
        expected = [view.to_host() for view in run("conv2d_relu_max_pool2d", *args, **options)]
    assert expected[0].min() == 0 < expected[0].max()
    convolved = []  # launches of the stand-in's convolution
    for op, given in (("conv2d", {}), ("conv2d_relu_max_pool2d", {"pool_size": (2, 3), "pool_stride": (2, 1)})):
        for _ in range(2):
            launches = backend.cupy.launches
            got = run(op, *(args if given else (x, w)), padding=1, **given)
        convolved.append(backend.cupy.launches - launches)
    assert convolved[1] == convolved[0] + 2
    for _ in range(2):
        got = run("conv2d_relu_max_pool2d", *args, **options)
        assert all(np.array_equal(a.to_host(), b) for a, b in zip(got, expected, strict=True))
    assert [graph.op for graph in cudnn.graphs] == ["conv2d"]


def test_pooling_that_reaches_past_what_is_convolved_is_left_to_the_body(cudnn, rng):
    options = {"pool_size": 2, "pool_ceil": True}
    _, x = images(cudnn.backend, rng, 1, 1, 4, 6)
    _, w = images(cudnn.backend, rng, 2, 1, 2, 2)
    with dispatch.overrides(False):
        expected = [view.to_host() for view in run("conv2d_relu_max_pool2d", x, w, **options)]
    for _ in range(3):
        got = run("conv2d_relu_max_pool2d", x, w, **options)
        assert all(np.array_equal(a.to_host(), b) for a, b in zip(got, expected, strict=True))


def test_a_plan_that_cannot_be_built_is_passed_over(cudnn, rng):
    _, x = images(cudnn.backend, rng, 1, 2, 5, 5)
    _, w = images(cudnn.backend, rng, 2, 2, 3, 3)
    for _ in range(3):
        run("conv2d", x, w)
    (graph,) = cudnn.graphs
    assert graph.ran == [1, 1, 1]
    assert graph.built == [0, 1, 1]


def test_a_frontend_in_python_is_passed_by(cudnn, rng):
    """Later frontends wrap the compiled graph: its own call is taken, with its own numbers of the plan and the handle."""
    made = cudnn.pygraph

    def wrapped(**options):
        graph = made(**options)
        graph.plans = [SimpleNamespace(cpp_index=10 + index) for index in range(4)]
        graph._lowered_graph = SimpleNamespace(_execute_plan_at_index=graph.execute_plan_at_index)
        return graph

    cudnn.pygraph, cudnn.create_handle = wrapped, lambda: SimpleNamespace(backend_handle=77)
    _, x = images(cudnn.backend, rng, 1, 2, 5, 5)
    _, w = images(cudnn.backend, rng, 2, 2, 3, 3)
    assert np.array_equal(run("conv2d", x, w).to_host(), body("conv2d", x, w))
    assert cudnn.graphs[0].ran == [11]


def test_float32_is_strict_unless_tf32_was_chosen(cudnn, rng):
    _, x = images(cudnn.backend, rng, 1, 2, 5, 5)
    _, w = images(cudnn.backend, rng, 2, 2, 3, 3)
    try:
        run("conv2d", x, w)
        set_float32_matmul_precision("high")
        y = run("conv2d", x, w)
    finally:
        set_float32_matmul_precision("highest")
    strict, loose = cudnn.graphs
    assert "TENSOR_CORE" in strict.notes
    assert "TENSOR_CORE" not in loose.notes
    assert {"WINOGRAD", "FFT"} <= strict.notes & loose.notes
    assert order_of(y) == LAST


def test_plans_that_vary_are_left_out_where_that_is_asked_for(cudnn, rng):
    """The setting counts when a convolution is called, also one that was made ready before."""
    _, x = images(cudnn.backend, rng, 1, 2, 5, 5)
    _, w = images(cudnn.backend, rng, 2, 2, 3, 3)
    for wanted in (False, True, False):
        use_deterministic_algorithms(wanted)
        try:
            for _ in range(2):
                assert np.array_equal(run("conv2d", x, w).to_host(), body("conv2d", x, w))
        finally:
            use_deterministic_algorithms(False)
    free, fixed = cudnn.graphs
    assert ("NONDETERMINISTIC" in free.notes, "NONDETERMINISTIC" in fixed.notes) == (False, True)
    with pytest.raises(DTypeError, match="use_deterministic_algorithms: 1 is no bool"):
        use_deterministic_algorithms(1)


@pytest.mark.parametrize("stride", [2, (1, 3)])
@pytest.mark.parametrize("last", [False, True])
def test_gradients_of_one_tap_that_skips_are_a_copy_and_a_product(cudnn, rng, stride, last):
    _, x = images(cudnn.backend, rng, 3, 4, 7, 8, last=last)
    _, w = images(cudnn.backend, rng, 5, 4, 1, 1)
    steps = stride if isinstance(stride, tuple) else (stride, stride)
    _, g = images(cudnn.backend, rng, 3, 5, *((n - 1) // s + 1 for n, s in zip((7, 8), steps, strict=True)), last=last)
    for op, second, shape in (("conv2d_input", w, x.shape), ("conv2d_weight", x, w.shape)):
        for _ in range(2):
            got = run(op, g, second, shape=shape, stride=stride)
            assert np.array_equal(got.to_host(), body(op, g, second, shape=shape, stride=stride))
    assert not cudnn.graphs


@pytest.mark.parametrize("quicker", ["conv2d", "conv2d_weight", "neither"])
@pytest.mark.parametrize("last", [False, True], ids=["channels first", "channels last"])
def test_of_a_gradient_and_what_else_computes_it_the_quicker_is_taken(cudnn, rng, monkeypatch, searched, quicker, last):
    """An image's gradient without strides is a convolution, one of a tap that skips a copy and a product."""
    seconds = {"conv2d": 2.0, "conv2d_input": 2.0, "conv2d_weight": 2.0, "product": 1.9} | {quicker: 1.0}
    searched(lambda graph: seconds["product" if graph is None else graph.op])
    _, g = images(cudnn.backend, rng, 2, 4, 5, 6, last=last)
    _, w = images(cudnn.backend, rng, 4, 3, 3, 2)
    window = {"padding": (1, 0), "dilation": (1, 2)}
    for _ in range(2):
        got = run("conv2d_input", g, w, shape=(2, 3, 5, 8), **window)
        assert np.array_equal(got.to_host(), body("conv2d_input", g, w, shape=(2, 3, 5, 8), **window))
        assert order_of(got) == (LAST if last else FIRST)
    plan = next(iter(cudnn.convolutions._plans.values()))
    assert plan.turned == (quicker == "conv2d")
    _, x = images(cudnn.backend, rng, 2, 3, 9, 9, last=last)
    _, g = images(cudnn.backend, rng, 2, 4, 5, 5, last=last)
    for _ in range(2):
        got = run("conv2d_weight", g, x, shape=(4, 3, 1, 1), stride=2)
        assert np.array_equal(got.to_host(), body("conv2d_weight", g, x, shape=(4, 3, 1, 1), stride=2))
    plan = list(cudnn.convolutions._plans.values())[-1]
    assert (plan.graph is None) == (quicker != "conv2d_weight")


def test_a_plan_that_was_kept_and_cannot_be_had_any_more_is_left_out(cudnn, searched, rng, monkeypatch):
    """Of a file that another version of the library has left: the first that can be built is taken."""
    searched(lambda graph: 1.0)
    kept = "turned 0 eng0"
    monkeypatch.setattr(cudnn.backend.tuner, "choose", lambda key, found, trial: found.get(kept, next(iter(found.values()))))  # fmt: skip
    (_, g), (_, w) = images(cudnn.backend, rng, 2, 4, 6, 5), images(cudnn.backend, rng, 4, 3, 3, 3)
    options = {"shape": (2, 3, 6, 5), "padding": 1}
    for _ in range(2):
        assert np.array_equal(run("conv2d_input", g, w, **options).to_host(), body("conv2d_input", g, w, **options))
    (plan,) = cudnn.convolutions._plans.values()
    assert (plan.turned, plan.index) == (False, 1)


def test_only_what_is_a_convolution_is_turned():
    """Not what skips, has groups, or whose padding reaches further than its taps."""
    arrays = {"x": ((2, 4, 8, 8), ()), "weight": ((6, 4, 3, 3), ()), "y": ((2, 6, 8, 8), ())}
    window = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1)}
    problem = Problem("input", float32, True, **arrays, **window)
    found = turned_problem(problem, FIRST)
    assert (found.op, found.x, found.y, found.weight[0]) == ("forward", problem.y, problem.x, (4, 6, 3, 3))
    assert turned_problem(replace(problem, padding=(3, 1), dilation=(2, 1)), FIRST).padding == (1, 1)
    for other in (
        {"op": "forward"},
        {"op": "weight"},
        {"stride": (1, 2)},
        {"padding": (3, 0)},
        {"x": ((2, 8, 8, 8), ())},
    ):
        assert turned_problem(replace(problem, **other), FIRST) is None


def test_the_search_allows_a_long_sum_what_its_length_costs():
    """A plan that adds half a million products in another order was dropped at 1e-4."""
    shape = {"x": ((512, 64, 32, 32), ()), "weight": ((64, 64, 3, 3), ()), "y": ((512, 64, 32, 32), ())}
    window = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1)}
    terms = {op: Problem(op, float32, True, **shape, **window).terms for op in ("forward", "input", "weight")}
    assert terms == {"forward": 576, "input": 576, "weight": 524288}


def test_a_refusal_without_words_is_named_by_its_kind(cudnn, rng, monkeypatch):
    """The library has refused with an empty message."""
    assert first_line(RuntimeError("one\ntwo")) == "one"
    assert first_line(RuntimeError("")) == first_line(RuntimeError()) == "RuntimeError"

    def silent(graph, index):
        raise NotSupportedError

    monkeypatch.setattr(Graph, "build_plan_at_index", silent)
    _, x = images(cudnn.backend, rng, 1, 2, 5, 5)
    _, w = images(cudnn.backend, rng, 2, 2, 3, 3)
    assert np.array_equal(run("conv2d", x, w).to_host(), body("conv2d", x, w))  # by the body: no plan can be had


def test_tensor_cores_get_channels_last(cudnn, rng):
    cudnn.dtype = float16
    _, x = images(cudnn.backend, rng, 2, 4, 6, 6, dtype=float16)
    _, w = images(cudnn.backend, rng, 8, 4, 3, 3, dtype=float16)
    y = run("conv2d", x, w, padding=1)
    (graph,) = cudnn.graphs
    assert graph.first.stride == strides_in((2, 4, 6, 6), LAST)
    assert graph.second.stride == strides_in((8, 4, 3, 3), LAST)
    assert order_of(y) == LAST
    assert np.array_equal(y.to_host(), body("conv2d", x, w, padding=1))


def test_a_call_whose_weight_has_c_order_is_made_ready_too(cudnn, rng):
    """Images lie channels-last, as a layer before has left them, and weights as they were made."""
    cudnn.dtype, backend = float16, cudnn.backend
    _, x = images(backend, rng, 2, 4, 6, 6, dtype=float16, last=True)
    _, w = images(backend, rng, 8, 4, 3, 3, dtype=float16)
    _, g = images(backend, rng, 2, 8, 6, 6, dtype=float16, last=True)
    for _ in range(3):
        assert np.array_equal(run("conv2d", x, w, padding=1).to_host(), body("conv2d", x, w, padding=1))
        found = run("conv2d_input", g, w, shape=x.shape, padding=1)
        assert np.array_equal(found.to_host(), body("conv2d_input", g, w, shape=x.shape, padding=1))
    options = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    assert cudnn.convolutions._prepare("conv2d", (x, w), options) is not None
    assert cudnn.convolutions._prepare("conv2d_input", (g, w), options | {"shape": x.shape}) is not None


def test_what_lies_otherwise_is_copied_first(cudnn, rng):
    _, x = images(cudnn.backend, rng, 2, 3, 6, 12)
    _, w = images(cudnn.backend, rng, 4, 3, 3, 3)
    half = x.slice(slice(None), slice(None), slice(None), slice(None, None, 2))
    assert np.array_equal(run("conv2d", half, w).to_host(), body("conv2d", half, w))
    assert cudnn.graphs[0].first.stride == strides_in((2, 3, 6, 6), FIRST)


def test_addresses_are_aligned(cudnn, rng):
    """cuDNN refuses others; a view that begins anywhere is copied."""
    _, x = images(cudnn.backend, rng, 2, 3, 6, 6)
    part = asarray(cudnn.backend, rng.integers(-3, 4, 1 + 4 * 3 * 9).astype(np.float32)).slice(slice(1, None))
    w = part.reshape((4, 3, 3, 3))
    assert np.array_equal(run("conv2d", x, w).to_host(), body("conv2d", x, w))
    assert not any(address % 16 for address in cudnn.graphs[0].addresses)


def test_groups_are_told_by_the_weight(cudnn, rng):
    _, x = images(cudnn.backend, rng, 2, 4, 6, 6)
    _, w = images(cudnn.backend, rng, 6, 2, 3, 3)
    assert np.array_equal(run("conv2d", x, w, groups=2).to_host(), body("conv2d", x, w, groups=2))


def test_float64_empty_batches_and_what_cudnn_lacks_are_left_to_the_body(cudnn, rng):
    _, x = images(cudnn.backend, rng, 2, 3, 6, 6, dtype=float64)
    _, w = images(cudnn.backend, rng, 4, 3, 3, 3, dtype=float64)
    assert np.array_equal(run("conv2d", x, w).to_host(), body("conv2d", x, w))
    empty = asarray(cudnn.backend, np.zeros((0, 3, 6, 6), np.float32))
    _, w = images(cudnn.backend, rng, 4, 3, 3, 3)
    assert run("conv2d", empty, w).shape == (0, 4, 4, 4)
    assert not cudnn.graphs
    cudnn.refuses = True
    _, x = images(cudnn.backend, rng, 2, 3, 6, 6)
    for _ in range(2):
        assert np.array_equal(run("conv2d", x, w).to_host(), body("conv2d", x, w))
    assert len(cudnn.graphs) == 1


def test_large_convolutions_are_searched_for_the_quickest_plan(cudnn, rng, monkeypatch):
    """The first that builds is the safe one; a plan that computes something else is not taken, however quick."""
    monkeypatch.setattr(plans, "SEARCHED", 1)
    monkeypatch.setattr(tuning, "BUDGET_S", 60.0)  # a laden machine compiles for longer than a search may take
    cudnn.backend.tuner.searches = True
    _, x = images(cudnn.backend, rng, 1, 2, 5, 5)
    _, w = images(cudnn.backend, rng, 2, 2, 3, 3)
    honest = Graph.execute_plan_at_index

    def lying(graph, addresses, workspace, index, handle):
        if index == 3:
            graph.ran.append(index)
            return
        honest(graph, addresses, workspace, index, handle)

    monkeypatch.setattr(Graph, "execute_plan_at_index", lying)
    assert np.array_equal(run("conv2d", x, w).to_host(), body("conv2d", x, w))
    (graph,) = cudnn.graphs
    assert {1, 2, 3} <= set(graph.ran)
    assert graph.ran[-1] in (1, 2)


def test_a_library_that_is_missing_is_named_with_the_command(cudnn, rng, monkeypatch):
    """Once it was asked again with what the pool keeps given back: it takes memory past the pool."""
    (_, x), (_, w) = (images(cudnn.backend, rng, *shape) for shape in ((1, 2, 5, 5), (2, 2, 3, 3)))
    kept = []

    def absent():
        kept.append((memory := cudnn.backend.memory()).reserved - memory.live)
        raise RuntimeError("Unable to find symbol cudnnCreate")

    cudnn.backend.allocate(x.layout)  # and given up at once
    monkeypatch.setattr(cudnn, "create_handle", absent)
    with pytest.raises(
        UnavailableError, match=r"cuDNN cannot be loaded \(Unable to find symbol cudnnCreate\).*\[cuda12-ctk\]"
    ):
        run("conv2d", x, w)
    assert kept[0] > kept[1] == 0
    monkeypatch.setitem(sys.modules, "cudnn", None)
    with pytest.raises(UnavailableError, match="nvidia-cudnn-frontend cannot be loaded"):
        run("conv2d", x, w)
