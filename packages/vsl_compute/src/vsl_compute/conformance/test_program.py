"""Recording: one entry for each outermost call, whatever it expands to, and a replay that equals the eager run."""

from __future__ import annotations

import numpy as np
import pytest

from vsl_compute import dispatch
from vsl_compute.dtypes import float32
from vsl_compute.errors import GraphError
from vsl_compute.program import Program


def test_only_outermost_calls_are_recorded(subject):
    """conv2d is one entry, however its body runs; a cast that dispatch inserts is none."""
    x, w = subject.place(float32, "dense", (2, 3, 6, 6)).view, subject.place(float32, "dense", (4, 3, 3, 3)).view
    ids = subject.put(np.arange(6, dtype=np.int32))
    with dispatch.record(Program()) as program:
        y = subject.run("conv2d", x, w, padding=1)
        subject.run("softmax", y, axis=1)
        subject.run("add", y, ids)
        subject.run("mean", ids)
        subject.run("max", y, axes=1)
    assert [call.op.name for call in program.calls] == ["conv2d", "softmax", "add", "mean", "max"]
    assert "conv2d" in str(program)
    subject.run("add", y, y)
    assert len(program) == 5


def test_replay_equals_the_eager_run_on_new_inputs(subject):
    x, w = subject.place(float32, "dense", (2, 3, 6, 6)), subject.place(float32, "dense", (4, 3, 3, 3))

    def body(x, w):
        y = subject.run("relu", subject.run("conv2d", x, w, padding=1))
        y, _ = subject.run("max_pool2d", y, kernel_size=2)
        return subject.run("log_softmax", subject.run("sum", y, axes=(2, 3)), axis=1)

    with dispatch.record(Program()) as program:
        out = body(x.view, w.view)
    first = out.to_host()
    subject.backend.upload(x.view, x.host[::-1].copy())
    program.replay(subject.run)
    assert np.array_equal(out.to_host(), body(x.view, w.view).to_host())
    assert np.array_equal(out.to_host(), first[::-1])


def test_updates_are_recorded_and_replayed(subject):
    g, p = subject.put(np.ones(3, np.float32)), subject.put(np.zeros(3, np.float32))
    with dispatch.record(Program()) as program:
        dispatch.run_update("sgd", [(g, p)], {"lr": 0.5, "weight_decay": 0.0})
    program.replay(lambda op, *args, **scalars: dispatch.run_update(op, args, scalars))
    assert p.to_host().tolist() == [-1, -1, -1]


def test_a_second_recording_in_one_thread_is_refused(subject):
    with dispatch.record(Program()), pytest.raises(GraphError, match="already recording"), dispatch.record(Program()):
        pass
    with dispatch.record(Program()) as program:
        subject.run("negative", subject.place(float32, "dense", (2,)).view)
    assert len(program) == 1


def test_an_error_ends_the_recording(subject):
    with pytest.raises(ZeroDivisionError), dispatch.record(Program()):
        raise ZeroDivisionError
    with dispatch.record(Program()) as program:
        subject.run("negative", subject.place(float32, "dense", (2,)).view)
    assert len(program) == 1
