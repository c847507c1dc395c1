"""Tapes on a simulated CUDA device: what a replay computes is what the body does, bit for bit, and no other memory is touched."""

from __future__ import annotations

import threading
from contextlib import contextmanager

import numpy as np
import pytest
import simulated_cuda  # conftest.py has brought it
from simulated_cuda import RuntimeFault

from vsl_compute import dispatch
from vsl_compute.backends.cuda import products, tape
from vsl_compute.dispatch import asarray
from vsl_compute.dtypes import bfloat16, float16, float32, float64
from vsl_compute.errors import DeviceLostError, OutOfMemoryError, ReleasedError
from vsl_compute.ops.table import TABLE
from vsl_compute.precision import set_float32_matmul_precision
from vsl_compute.program import Program
from vsl_compute.view import Layout

pytestmark = pytest.mark.skipif(
    simulated_cuda.COMPILER is None, reason="the simulation needs a C++ compiler: clang++ or g++"
)
GATES = {"rnn_tanh": 1, "rnn_relu": 1, "gru": 3, "lstm": 4}


@pytest.fixture
def replays(monkeypatch):
    """How many calls were replayed: the list of their tapes."""
    made, replay = [], tape.Tape.replay
    monkeypatch.setattr(tape.Tape, "replay", lambda self, *rest: (made.append(self), replay(self, *rest))[1])
    return made


def values(rng, op, steps, batch, width):
    """Arguments of a layer, or of its way back with the gradients that may be left out, as arrays."""
    name = op.removesuffix("_backward")
    gates = GATES[name] * width
    wide, state, states = (steps, batch, gates), (batch, width), (steps + 1, batch, width)
    weight, bias = (gates, width), (gates,)
    shapes = {
        "rnn_tanh": (wide, state, weight),
        "gru": (wide, state, weight, bias),
        "lstm": (wide, state, weight, state),
        "rnn_tanh_backward": (states, states, weight),
        "gru_backward": (states, wide, states, wide, weight, wide),
        "lstm_backward": (states, states, states, wide, weight, states, wide),
    }[op.replace("relu", "tanh")]
    return [rng.standard_normal(shape) for shape in shapes]


def bits(result):
    views = result if isinstance(result, tuple) else (result,)
    return [v.to_host().tobytes() for v in views]


def both(op, views, **options):
    """What dispatch gives, and what the body does."""
    got = dispatch.run(op, *views, **options)
    with dispatch.overrides(False):
        expected = dispatch.run(op, *views, **options)
    versions = [[v.buffer.version for v in (r if isinstance(r, tuple) else (r,))] for r in (got, expected)]
    assert versions[0] == versions[1]
    return bits(got), bits(expected)


def agree(op, views, **options):
    got, expected = both(op, views, **options)
    assert got == expected, op


OPS = [f"{name}{end}" for name in GATES for end in ("", "_backward")]


@pytest.mark.parametrize("op", OPS)
def test_replays_on_other_data_and_memory_are_the_body_bit_for_bit(simulated_device, replays, rng, op):
    steps, batch, width = (int(n) for n in rng.integers(1, 9, 3))
    held = []
    for _ in range(5):
        held.append([asarray(simulated_device, x, float32) for x in values(rng, op, steps, batch, width)])
        agree(op, held[-1], sizes=(batch,) * steps)
    assert len(replays) == 3
    for views in held:  # the first arguments were not written to
        agree(op, views, sizes=(batch,) * steps)


@pytest.mark.parametrize("op", OPS)
def test_packed_sequences_and_arguments_left_out_have_tapes_of_their_own(simulated_device, replays, rng, op):
    sizes = (5, 4, 4, 2, 1)
    optional = sum(a.endswith("?") for a in TABLE[op].args)
    for given in range(optional + 1):
        for again in range(4):
            views = [asarray(simulated_device, x, float32) for x in values(rng, op, len(sizes), 5, 3)]
            agree(op, views[: len(views) - given] if again % 2 else [*views[: len(views) - given], *[None] * given], sizes=sizes)  # fmt: skip
    agree(op, views, sizes=sizes[::-1])
    assert len(simulated_device._tapes) >= optional + 1
    assert replays


@pytest.mark.parametrize("dtype", [float64, float16, bfloat16], ids=str)
@pytest.mark.parametrize("op", ["lstm", "lstm_backward", "gru_backward"])
def test_other_dtypes_and_a_batch_of_one_are_replayed(simulated_device, replays, rng, op, dtype):
    """With one sequence the arrays of a step lie dense: their addresses travel in a table."""
    for batch in (1, 3):
        for _ in range(3):
            views = [asarray(simulated_device, x, dtype) for x in values(rng, op, 4, batch, 5)]
            agree(op, views, sizes=(batch,) * 4)
    assert len(replays) == 2
    assert len(simulated_device._tapes) == 2


def test_layers_and_directions_share_a_tape_wherever_their_arguments_begin(simulated_device, replays, rng):
    """Starts are parts of one array, a backward direction is a flipped view; what is as well aligned has the same form."""
    layers = 4
    x = asarray(simulated_device, rng.standard_normal((layers, 6, 4, 64)), float32)
    h, c = (asarray(simulated_device, rng.standard_normal((layers, 4, 16)), float32) for _ in range(2))
    w = asarray(simulated_device, rng.standard_normal((layers, 64, 16)), float32)
    for flip in (slice(None), slice(None, None, -1)):
        for k in range(layers):
            agree("lstm", [x.slice(k, flip), h.slice(k), w.slice(k), c.slice(k)], sizes=(4,) * 6)
    assert len(simulated_device._tapes) == 2
    assert len(replays) == 2 * (layers - 2)


def test_an_argument_that_is_less_aligned_has_a_tape_of_its_own(simulated_device, replays, rng):
    arrays = values(rng, "lstm", 5, 4, 16)
    sizes = {k: array.size for k, array in enumerate(arrays)}
    for moved in (0, 1, 64, 2, 4, 0, 1, 2, 4, 128):
        views = [
            asarray(simulated_device, np.pad(array.ravel(), (moved, 0)), float32)
            .slice(slice(moved, moved + sizes[k]))
            .reshape(array.shape)
            for k, array in enumerate(arrays)
        ]
        agree("lstm", views, sizes=(4,) * 5)
    assert len(simulated_device._tapes) == 4
    assert len(replays) == 5


def test_arguments_in_one_memory_are_told_from_others(simulated_device, replays, rng):
    states, wide = (6, 4, 8), (5, 4, 32)
    w, gates = (asarray(simulated_device, rng.standard_normal(s), float32) for s in ((32, 8), wide))
    for turn in range(9):
        many = asarray(simulated_device, rng.standard_normal((4, *states)), float32)
        alone = asarray(simulated_device, rng.standard_normal(states), float32)
        g, c, s = [(alone, many.slice(1), many.slice(0)), (many.slice(1),) * 3, (many.slice(3), alone, many.slice(1))][turn % 3]  # fmt: skip
        agree("lstm_backward", [g, s, c, gates, w], sizes=(4,) * 5)
    assert len(simulated_device._tapes) == 3
    assert len(replays) >= 5


def test_what_products_copy_is_taken_again_as_the_body_would(simulated_device, replays, rng):
    """A weight that no product reads as it lies is copied for each of them; a tape holds as much memory as the body did."""
    x, h, w, c = (asarray(simulated_device, array, float32) for array in values(rng, "lstm", 6, 3, 4))
    wide = asarray(simulated_device, np.repeat(np.repeat(w.to_host(), 2, 1), 2, 0)).slice(
        slice(None, None, 2), slice(None, None, 2)
    )
    for _ in range(4):
        agree("lstm", [x, h, wide, c], sizes=(3,) * 6)
    assert len(replays) == 2
    assert len(replays[0]._pieces) == 4  # three results and one copy at a time


def test_tf32_is_asked_for_as_it_is_set_at_the_call(simulated_device, rng):
    library = simulated_device._cublas.loaded()
    try:
        for precision in ("highest", "high", "highest", "high", "high", "highest"):
            set_float32_matmul_precision(precision)
            agree("gru", [asarray(simulated_device, x, float32) for x in values(rng, "gru", 3, 2, 4)], sizes=(2, 2, 2))
            assert set(library.tf32) == {precision == "high"}
            library.tf32.clear()
    finally:
        set_float32_matmul_precision("highest")
    assert len(simulated_device._tapes) == 2


def test_threads_replay_one_tape_at_once(simulated_device, rng):
    cases = [[asarray(simulated_device, x, float32) for x in values(rng, "lstm", 4, 3, 8)] for _ in range(4)]
    expected = [both("lstm", views, sizes=(3,) * 4)[1] for views in cases]
    wrong = []

    def work(k):
        for _ in range(25):
            if bits(dispatch.run("lstm", *cases[k], sizes=(3,) * 4)) != expected[k]:
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_another_threads_calls_are_not_recorded(simulated_device, rng):
    x = asarray(simulated_device, rng.standard_normal(50), float32)
    dispatch.run("exp", x)

    def beside(view):
        thread = threading.Thread(target=lambda: [dispatch.run("exp", view) for _ in range(3)])
        thread.start()
        thread.join()
        return dispatch.run("negative", view)

    taped = simulated_device.taped(beside)
    taped(x)
    (known,) = simulated_device._tapes._kept.values()
    assert len(known) == 1
    assert np.array_equal(taped(x).to_host(), -x.to_host())


@contextmanager
def prepared(backend, rng, op="lstm"):
    """A tape that was recorded, and the arguments to call it with."""
    views = [asarray(backend, x, float32) for x in values(rng, op, 3, 2, 3)]
    for _ in range(2):
        agree(op, views, sizes=(2,) * 3)
    (known,) = backend._tapes._kept.values()
    yield known, views


def test_every_address_counts(simulated_device, rng):
    """Meta: one that is off by an element is noticed, wherever it stands."""
    with prepared(simulated_device, rng) as (known, views):
        for k in range(len(known._distances)):
            known._distances[k] += 4
            try:
                got, expected = both("lstm", views, sizes=(2,) * 3)
            except AssertionError:  # the library sees that it was told of another alignment, or that c is not d
                got, expected = "refused", ""
            assert got != expected, k
            known._distances[k] -= 4
        agree("lstm", views, sizes=(2,) * 3)


def test_a_lost_device_is_said_to_be(simulated_device, replays, rng):
    with prepared(simulated_device, rng) as (_, views):
        simulated_device.cupy.fault = RuntimeFault(719)
        for _ in range(2):
            with pytest.raises(DeviceLostError, match="stopped answering"):
                dispatch.run("lstm", *views, sizes=(2,) * 3)
    assert len(replays) == 1


def test_errors_of_the_library_are_translated(simulated_device, replays, rng, monkeypatch):
    with prepared(simulated_device, rng) as (known, views):
        library = simulated_device._cublas.loaded()

        def fail(*arguments):
            raise library.cuBLASLtError("CUBLAS_STATUS_ALLOC_FAILED (3)", 3)

        calls = known._calls
        known._calls = [(fail if call[2] else call[0], *call[1:]) for call in calls]
        with pytest.raises(OutOfMemoryError, match="cuBLAS found no memory"):
            dispatch.run("lstm", *views, sizes=(2,) * 3)
        known._calls = calls
        agree("lstm", views, sizes=(2,) * 3)
    assert len(replays) == 2


def test_without_memory_a_replay_makes_no_call(simulated_device, rng):
    with prepared(simulated_device, rng) as (_, views):
        simulated_device.empty_cache()
        simulated_device.limit_memory(simulated_device.memory().reserved)
        launches = simulated_device.cupy.launches
        with pytest.raises(OutOfMemoryError, match="asked for"):
            dispatch.run("lstm", *views, sizes=(2,) * 3)
        assert simulated_device.cupy.launches == launches
        simulated_device.limit_memory(None)
        agree("lstm", views, sizes=(2,) * 3)


def test_what_is_cached_is_given_back_before_a_replay_fails(simulated_device, rng):
    with prepared(simulated_device, rng) as (_, views):
        simulated_device.empty_cache()
        simulated_device.allocate(Layout.of(float32, (4096,)))  # free at once, and of no class that the replay wants
        simulated_device.limit_memory(simulated_device.memory().reserved)
        agree("lstm", views, sizes=(2,) * 3)


def test_the_callers_context_is_left_as_it_was(simulated_device, replays, rng):
    with prepared(simulated_device, rng) as (_, views):
        driver = simulated_device.cupy.cuda.driver
        before = driver.ctxGetCurrent()
        driver.ctxSetCurrent(4321)
        agree("lstm", views, sizes=(2,) * 3)
        assert driver.ctxGetCurrent() == 4321
        driver.ctxSetCurrent(before)
    assert len(replays) == 1


def test_a_closed_device_has_no_tapes_and_all_descriptions_are_given_back(simulated_device, rng):
    with prepared(simulated_device, rng) as (_, views):
        ready = next(v for k, v in simulated_device.prepared.items() if k[0].name == "lstm")[0]
    library = simulated_device._cublas.loaded()
    del _
    simulated_device.close()
    assert not library.things
    assert not len(simulated_device._tapes)
    with pytest.raises(ReleasedError):
        ready(*views)


def test_a_tape_keeps_what_plans_let_go_of(simulated_device, replays, rng, monkeypatch):
    monkeypatch.setattr(products, "PLAN_LIMIT", 0)
    with prepared(simulated_device, rng) as (_, views):
        for _ in range(3):
            dispatch.run("matmul", views[1], views[2].permute((1, 0)))
            agree("lstm", views, sizes=(2,) * 3)
    assert len(replays) == 3


def test_so_many_calls_are_kept_and_the_least_recently_used_go(simulated_device, replays, rng, monkeypatch):
    """Three forms of about 30 calls and room for two; one too long for all room is run as it is."""
    monkeypatch.setattr(tape, "ROOM", 100)
    monkeypatch.setattr(tape, "SELDOM", 1)
    cases = {n: [asarray(simulated_device, x, float32) for x in values(rng, "lstm", n, 2, 3)] for n in (9, 10, 11, 70)}
    for n in (9, 9, 10, 10, 9, 11, 11, 9, 10, 70, 70, 70):
        agree("lstm", cases[n], sizes=(2,) * n)
        assert simulated_device._tapes._calls == sum(
            len(t) + tape.OVERHEAD for t in simulated_device._tapes._kept.values()
        )
        assert simulated_device._tapes._calls <= 100
    assert [len(t) for t in replays] == [len(replays[0])] * 2
    assert len(simulated_device._tapes) == 2


def _downloads(x):
    return dispatch.run("add", x, float(x.to_host().sum()))


def _waits(x):
    x.buffer.backend.synchronize()
    return dispatch.run("negative", x)


def _uploads(x):
    return dispatch.run("add", x, asarray(x.buffer.backend, np.ones(x.shape), float32))


def _writes(x):
    return dispatch.run("add", x, 1.0, out=x)


@pytest.mark.parametrize("body", [_downloads, _waits, _uploads, _writes], ids=lambda f: f.__name__.strip("_"))
def test_what_cannot_be_made_again_is_run_as_it_is(simulated_device, replays, rng, body):
    taped = simulated_device.taped(body)
    for _ in range(tape.TRIES + 2):
        x = asarray(simulated_device, rng.standard_normal(9), float32)
        expected = body(asarray(simulated_device, x.to_host(), float32)).to_host()
        result = taped(x)
        assert np.array_equal((body(x) if result is NotImplemented else result).to_host(), expected)
    assert result is NotImplemented
    assert not replays


def test_memory_from_elsewhere_is_no_slot(simulated_device, replays, rng):
    """A view that the body holds may be gone, or another's, when it is made again."""
    held = [asarray(simulated_device, rng.standard_normal(9), float32)]
    taped = simulated_device.taped(lambda x: dispatch.run("add", x, held[0]))
    for _ in range(tape.TRIES):
        taped(asarray(simulated_device, rng.standard_normal(9), float32))
    assert taped(held[0]) is NotImplemented
    assert not len(simulated_device._tapes)


def test_a_tape_within_a_body_is_recorded_with_it(simulated_device, replays, rng):
    inner = simulated_device.taped(lambda x: dispatch.run("exp", x))

    def body(x):
        found = inner(x)
        return dispatch.run("negative", dispatch.run("exp", x) if found is NotImplemented else found)

    outer = simulated_device.taped(body)
    for _ in range(3):
        x = asarray(simulated_device, rng.standard_normal(9), float32)
        assert np.array_equal(outer(x).to_host(), dispatch.run("negative", dispatch.run("exp", x)).to_host())
    assert [len(t) for t in replays] == [2, 2]


def test_results_may_be_parts_of_arguments(simulated_device, rng):
    taped = simulated_device.taped(lambda x, y: (x, y.slice(slice(1, None)), dispatch.run("add", x, y).slice(1), None))
    for moved in (0, 64, 128):
        x, y = (asarray(simulated_device, rng.standard_normal(300), float32).slice(slice(moved, moved + 100)) for _ in range(2))  # fmt: skip
        first, second, third, nothing = taped(x, y)
        assert first is x
        assert nothing is None
        assert np.array_equal(second.to_host(), y.to_host()[1:])
        assert third.to_host() == x.to_host()[1] + y.to_host()[1]


def test_a_program_sees_the_call_and_no_tape_is_used(simulated_device, replays, rng):
    with prepared(simulated_device, rng) as (_, views):
        program = Program()
        with dispatch.record(program):
            dispatch.run("lstm", *views, sizes=(2,) * 3)
    assert [call.op.name for call in program.calls] == ["lstm"]
    assert not replays
