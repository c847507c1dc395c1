"""Bodies that are replayed: what is written down of one call must be right for every other call of these layouts.

The rule is that a body is a function of layouts and options, never of data. Every body of the table is held to it, and
bodies that break it, each in its own way, are seen to be caught.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from vsl_compute import registry
from vsl_compute.backends.cpu.backend import CPUBackend
from vsl_compute.dispatch import asarray, expansion, run, run_back
from vsl_compute.dispatch import composite as dispatching
from vsl_compute.ops.op import composite
from vsl_compute.ops.table import find
from vsl_compute.validation import pullback
from vsl_compute.validation.cases_ops import CASES, VALUES, Statistic

CALLS = 4  # as it is, watched, and twice from what was written down


class Replaying(CPUBackend):
    """The CPU, which keeps what bodies come to as devices do."""

    def __init__(self, info):
        super().__init__(info)
        self.prepared = {}


@pytest.fixture
def pair():
    """One that replays, and one that runs every body anew: both in NumPy, so results are the same bits."""
    dispatching._plans.clear()  # kept by backend, of which no other test may find these
    info = registry.driver("cpu").devices()[0]
    yield Replaying(info), CPUBackend(info)
    dispatching._plans.clear()


def drawn(makers, rng):
    hosts = []
    for maker in makers:
        host = None if maker is None else maker(rng, *hosts) if isinstance(maker, Statistic) else maker(rng)
        hosts.append(host if host is None or host.dtype != np.float64 else host.astype(np.float32))
    return hosts


def all_of(made):
    return made if isinstance(made, tuple | list) else (made,)


def on(backend, hosts):
    return [None if host is None else asarray(backend, host) for host in hosts]


def check_replays(pair, op, options, makers, rng):
    """Calls of one op, and the way back, on numbers drawn anew each time: replayed, the results are those of the body."""
    through = op if op.backward is None else replace(op, backward=_as_autograd_does(op))
    for _ in range(CALLS):
        hosts, covector, results = drawn(makers, rng), rng.integers(1 << 30), []
        for backend in pair:
            views = on(backend, hosts)
            made = all_of(run(op, *views, **options))
            if op.backward is not None:
                grads = [_gradient(v, np.random.default_rng(covector)) for v in made]
                made += tuple(pullback.of_op(run, through, views, made, grads, options))
            results.append([v if v is None else v.to_host() for v in made])
        for replayed, anew in zip(*results, strict=True):
            np.testing.assert_array_equal(replayed, anew, err_msg=f"{op.name} {options}")


def _as_autograd_does(op):
    return lambda run, needs, grads, saved, **options: run_back(op, needs, grads, saved, options)


def _gradient(view, rng):
    if not view.dtype.is_floating:
        return None
    return asarray(view.buffer.backend, rng.standard_normal(view.shape).astype(np.float32), view.dtype)


def replayed(backend):
    """The bodies whose calls were written down."""
    kept = (ready[0] if type(ready) is tuple else ready for ready in backend.prepared.values())
    return [body for body in kept if isinstance(body, expansion.Expansion) and body._replayed is not None]


COMPOSITES = [case for case in CASES + VALUES if find(case[0]).forward is not None]


@pytest.mark.parametrize("case", COMPOSITES, ids=lambda c: f"{c[0]}-{len(c[1])}-{sum(a is None for a in c[2])}")
def test_every_body_of_the_table_is_a_function_of_layouts_and_options(pair, case, rng):
    name, options, makers, _ = case
    op = find(name)

    check_replays(pair, op, options, makers, rng)

    kept = not op.unchecked and "counter" not in op.attributes and not any(map(_holds_slices, options.values()))
    assert bool(replayed(pair[0])) >= kept


def _holds_slices(value):
    """Which are no keys before Python 3.12."""
    return isinstance(value, tuple) and any(isinstance(part, slice) for part in value)


def normal(*shape):
    return lambda rng: rng.standard_normal(shape)


_held = {}  # by backend: each counts and draws for itself, so that only a replay can differ


@pytest.fixture(autouse=True)
def forgotten():
    _held.clear()


def reads_what_it_is_given(run, x):
    return run("scale", x, alpha=float(x.to_host().max()))


def looks_before_it_chooses(run, x):
    return run("exp" if x.to_host().flat[0] > 0 else "sin", x)


def counts_its_calls(run, x):
    count = _held[id(x.buffer.backend)] = _held.get(id(x.buffer.backend), 0) + 1
    return run("add", x, float(count))


def draws_by_itself(run, x):
    generator = _held.setdefault(id(x.buffer.backend), np.random.default_rng(0))
    return run("multiply", x, float(generator.random()))


def leaves_out_what_is_zero(run, x):
    return run("sum", x.slice(slice(0, int((x.to_host()[:, 0] > 0).sum()))), axes=(0,))


BROKEN = [reads_what_it_is_given, looks_before_it_chooses, counts_its_calls, draws_by_itself, leaves_out_what_is_zero]


@pytest.mark.parametrize("body", BROKEN, ids=lambda b: b.__name__)
def test_a_body_that_breaks_the_rule_is_caught(pair, body, rng):
    with pytest.raises(AssertionError, match="planted"):
        check_replays(pair, composite("planted", "f>f", "x", body), {}, (normal(8, 6),), rng)


def test_a_way_back_that_breaks_the_rule_is_caught(pair, rng):
    def back(run, needs, grads, saved):
        return (run("scale", grads[0], alpha=float(saved["x"].to_host().max())),)

    op = composite("planted", "f>f", "x", lambda run, x: run("exp", x), back, saves="x")
    with pytest.raises(AssertionError, match="planted"):
        check_replays(pair, op, {}, (normal(8, 6),), rng)


def test_a_body_that_keeps_the_rule_passes(pair, rng):
    """What catches the broken ones catches those alone."""
    op = composite(
        "planted",
        "f>f",
        "x",
        lambda run, x: run("exp", x),
        lambda run, n, g, s: (run("multiply", g[0], s["y"]),),
        saves="y",
    )

    check_replays(pair, op, {}, (normal(8, 6),), rng)

    assert len(replayed(pair[0])) == 2


def test_a_body_that_holds_memory_of_its_own_is_run_each_time(pair, rng):
    """A view of nothing that it was given or made: there is no telling what it will hold next time."""
    held = {}

    def body(run, x):
        kept = held.setdefault(id(x.buffer.backend), asarray(x.buffer.backend, np.ones(6, np.float32)))
        run("multiply", kept, 2.0, out=kept)
        return run("add", x, kept)

    check_replays(pair, composite("planted", "f>f", "x", body), {}, (normal(8, 6),), rng)

    assert replayed(pair[0]) == []


def test_a_body_of_many_calls_is_run_each_time(pair, rng):
    def body(run, x):
        for _ in range(expansion.MOST + 1):
            x = run("sin", x)
        return x

    check_replays(pair, composite("planted", "f>f", "x", body), {}, (normal(8, 6),), rng)

    assert replayed(pair[0]) == []


def test_arguments_of_one_memory_are_told_apart_wherever_they_lie_in_it(pair, rng):
    """As queries, keys and values of one projection do; a call whose arguments lie otherwise is another body's."""
    op = composite(
        "planted",
        "ff>f",
        "a,b",
        lambda run, a, b: run("subtract", a.slice(slice(0, 2)), run("exp", b.slice(slice(1, 3)))),
    )
    x = rng.normal(size=(12, 6)).astype(np.float32)
    starts = [(0, 3)] * CALLS + [(3, 0), (0, 6), (3, 6), (6, 3), (2, 2), (0, 3)]
    for apart in (False, True, False):
        for a, b in starts:
            results = []
            for backend in pair:
                left = asarray(backend, x)
                right = asarray(backend, x) if apart else left
                results.append(run(op, left.slice(slice(a, a + 3)), right.slice(slice(b, b + 3))).to_host())
            np.testing.assert_array_equal(*results)
            np.testing.assert_allclose(results[0], x[a : a + 2] - np.exp(x[b + 1 : b + 3]), rtol=1e-6)

    assert replayed(pair[0])[0]._shared == [(1, 0, 18)]
