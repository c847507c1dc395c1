"""Which tapes a simulated CUDA device keeps when there are more forms than it has room for, and how it lets go of them."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import simulated_cuda  # conftest.py has brought it

from vsl_compute import dispatch
from vsl_compute.backends.cuda import tape
from vsl_compute.dispatch import asarray
from vsl_compute.dtypes import float32

pytestmark = pytest.mark.skipif(
    simulated_cuda.COMPILER is None, reason="the simulation needs a C++ compiler: clang++ or g++"
)
CALLS = 20  # of a body


@pytest.fixture
def counted(monkeypatch):
    """Tapes that were replayed, and keys that were recorded."""
    replayed, recorded = [], []
    replay, keep = tape.Tape.replay, tape.Tapes.keep
    monkeypatch.setattr(tape.Tape, "replay", lambda self, *rest: (replayed.append(self), replay(self, *rest))[1])
    monkeypatch.setattr(tape.Tapes, "keep", lambda self, key, *rest: (recorded.append(key), keep(self, key, *rest))[1])
    return replayed, recorded


def _turned(x):
    for _ in range(CALLS):
        x = dispatch.run("add", x, 1.0)
    return x


def _called(body, x):
    found = body(x)
    assert np.array_equal((_turned(x) if found is NotImplemented else found).to_host(), _turned(x).to_host())


def test_more_forms_than_there_is_room_for_are_not_recorded_again_and_again(
    simulated_device, counted, rng, monkeypatch
):
    """Packed batches that come round each epoch: three forms and room for two; what is kept is replayed, and a new form finds room."""
    replayed, recorded = counted
    monkeypatch.setattr(tape, "ROOM", 2 * (CALLS + tape.OVERHEAD))
    x = asarray(simulated_device, rng.standard_normal(9), float32)
    bodies, rounds = [simulated_device.taped(_turned) for _ in range(4)], 40
    for _ in range(rounds):
        for body in bodies[:3]:
            _called(body, x)
    assert len(recorded) <= 3 + 3 * rounds // tape.SELDOM
    assert len(replayed) >= rounds
    before = len(replayed)
    for _ in range(tape.SELDOM + 1):
        _called(bodies[3], x)
    assert len(replayed) > before


def test_a_device_without_tapes_records_every_form(simulated_device, counted, rng, monkeypatch):
    """What went for want of room long ago says nothing of now."""
    replayed, recorded = counted
    monkeypatch.setattr(tape, "ROOM", CALLS + tape.OVERHEAD)
    x = asarray(simulated_device, rng.standard_normal(9), float32)
    for _ in range(2):
        _called(simulated_device.taped(_turned), x)
    simulated_device._tapes.clear()
    recorded.clear()
    body = simulated_device.taped(_turned)
    _called(body, x)
    _called(body, x)
    assert len(recorded) == 1
    assert len(replayed) == 1


def test_a_childs_device_is_closed_whatever_its_parent_was_at(simulated_device):
    """A fork while another thread of the parent looks for a tape."""
    simulated_device._tapes._lock.acquire()
    simulated_device.queue.forked()
    closing = threading.Thread(target=simulated_device.close, daemon=True)
    closing.start()
    closing.join(10)
    assert not closing.is_alive()
