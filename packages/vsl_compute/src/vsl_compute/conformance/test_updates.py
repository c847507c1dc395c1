"""Fused optimizer steps: several steps against the papers, every layout, and many parameters at once."""

from __future__ import annotations

from math import log
from operator import attrgetter

import numpy as np
import pytest

from vsl_compute.dispatch import run_update
from vsl_compute.dtypes import float32
from vsl_compute.errors import AttributeValueError, DTypeError, ShapeError
from vsl_compute.rows.updates import TABLE, UPDATES, guarded
from vsl_compute.validation import oracle_updates
from vsl_compute.validation.cases import slot_domain, update_scalars


def start(subject, row, dtype, layout, shape):
    """Slots at zero where an optimizer starts them, a positive second moment otherwise; step count 3."""
    found = {}
    for name in row.arrays:
        if name in row.zero_d:
            found[name] = subject.put(np.array(3.0), float32 if dtype.itemsize < 4 else dtype)
        else:
            found[name] = subject.place(dtype, layout, shape, slot_domain(name)).view
    return found


@pytest.mark.parametrize("row", UPDATES, ids=attrgetter("name"))
def test_update_agrees_with_its_paper_in_every_layout(subject, row):
    """Every written array after one step from a random state; what is only read stays as it was."""
    for dtype in subject.floating():
        if dtype.itemsize < 4:
            continue
        for layout in ("dense", "transposed", "stepped", "pitched", "offset", "flipped"):
            for shape in ((5, 7), (1037,), (1,), (0, 3), (2, 0), ()) if layout == "dense" else ((5, 7),):
                arrays = start(subject, row, dtype, layout, shape)
                before = {name: view.to_host() for name, view in arrays.items()}
                expected = oracle_updates.update(row.name, before, update_scalars(row))
                run_update(row, [tuple(arrays.values())], update_scalars(row))
                for name, view in arrays.items():
                    what = f"{row.name} {dtype.name} {layout} {shape}: {name}"
                    if name not in row.written:
                        assert np.array_equal(view.to_host(), before[name]), f"{what} was written"
                        continue
                    subject.close(view.to_host(), expected[name], dtype, 4 if subject.on_cpu else 16, what, 4.0)


STEPS = [row for row in UPDATES if {"g", "p"} <= set(row.arrays)]


@pytest.mark.parametrize("row", STEPS, ids=attrgetter("name"))
def test_ten_steps_from_zero_follow_the_paper(subject, row):
    """t, the slots and the bias correction over a whole start; tolerance grows with the steps."""
    zeros = {name: np.zeros(() if name in row.zero_d else (6,), np.float32) for name in row.arrays}
    state = {**zeros, "p": subject.rng.standard_normal(6).astype(np.float32)}
    views = {name: subject.put(array) for name, array in state.items()}
    wide = {name: array.astype(np.longdouble) for name, array in state.items()}
    for step in range(10):
        g = subject.rng.standard_normal(6).astype(np.float32)
        subject.backend.upload(views["g"], g)
        run_update(row, [tuple(views.values())], update_scalars(row))
        wide |= oracle_updates.update(row.name, wide | {"g": g}, update_scalars(row))
        subject.close(views["p"].to_host(), wide["p"], float32, 4 * (step + 1), f"{row.name} step {step}", 2.0)
    if "t" in views:
        assert views["t"].to_host() == 10


@pytest.mark.parametrize("row", STEPS, ids=attrgetter("name"))
def test_guarded_step_takes_the_scale_out_or_leaves_everything(subject, row):
    """With found_inf 0 it is the row on g * inverse_scale; with 1 every array keeps its bits, whatever g holds."""
    for found, size in ((0.0, 5), (1.0, 5), (0.0, 1037)):
        arrays = start(subject, row, float32, "dense", (size,))
        before = {name: view.to_host() for name, view in arrays.items()}
        g = before["g"] * np.float32(1024)
        if found:
            g[1], g[3] = np.inf, np.nan
        subject.backend.upload(arrays["g"], g)
        flags = [subject.put(np.array(v, np.float32)) for v in (2.0**-10, found)]
        run_update(guarded(row), [(*arrays.values(), *flags)], update_scalars(row))
        expected = oracle_updates.update(row.name, before, update_scalars(row))
        for name in row.written:
            what = f"{row.name} guarded, {size} elements, found {found}: {name}"
            if found:
                assert arrays[name].to_host().tobytes() == before[name].tobytes(), what
            else:
                subject.close(arrays[name].to_host(), expected[name], float32, 4 if subject.on_cpu else 16, what, 4.0)


def test_loss_scale_backs_off_at_once_and_grows_after_clean_steps(subject):
    """Two clean steps double it, a bad one halves it and starts the count again; it never grows to infinity."""
    scale, tracker = (subject.put(np.array(v, np.float32)) for v in (1024.0, 0.0))
    seen = []
    for found in (0, 0, 1, 0, 0, 0, 1, 1):
        flag = subject.put(np.array(found, np.float32))
        run_update("loss_scale", [(flag, scale, tracker)], {"growth": 2.0, "backoff": 0.5, "interval": 2.0})
        seen.append((float(scale.to_host()), float(tracker.to_host())))
    assert seen == [(1024, 1), (2048, 0), (1024, 0), (1024, 1), (2048, 0), (2048, 1), (1024, 0), (512, 0)]
    top, tracker = (subject.put(np.array(v, np.float32)) for v in (2.0**127, 0.0))
    run_update("loss_scale", [(subject.put(np.array(0, np.float32)), top, tracker)],
               {"growth": 2.0, "backoff": 0.5, "interval": 1.0})  # fmt: skip
    assert float(top.to_host()) == 2.0**127


def test_rescale_by_nothing_drops_infinities(subject):
    """E06: what is clipped by an infinite norm becomes 0, not NaN."""
    p = subject.put(np.array([np.inf, np.nan, 1, -np.inf], np.float32))
    run_update("rescale", [(p, subject.put(np.array(0, np.float32)))], {})
    assert p.to_host().tolist() == [0, 0, 0, 0]


def test_clipping_keeps_nan_for_a_scaler_to_see(subject):
    """In a row of fours and beyond it; infinities become the bound."""
    p = subject.put(np.array([np.nan, np.inf, -0.25, -np.inf, 2, -3, 0, np.nan, np.nan], np.float32))
    run_update("clip", [(p,)], {"bound": 0.5})
    np.testing.assert_array_equal(p.to_host(), [np.nan, 0.5, -0.25, -0.5, 0.5, -0.5, 0, np.nan, np.nan])


def test_long_parameters_are_cut_without_a_seam(subject):
    """200 003 elements, dense and pitched: the slot counts once, however many pieces there are."""
    for layout, shape in (("dense", (200_003,)), ("pitched", (401, 499)), ("transposed", (401, 499))):
        arrays = start(subject, TABLE["adam"], float32, layout, shape)
        before = {name: view.to_host() for name, view in arrays.items()}
        expected = oracle_updates.update("adam", before, update_scalars(TABLE["adam"]))
        run_update("adam", [tuple(arrays.values())], update_scalars(TABLE["adam"]))
        for name in TABLE["adam"].written:
            subject.close(arrays[name].to_host(), expected[name], float32, 16, f"adam {layout} {shape}: {name}", 4.0)


def test_many_parameters_in_one_call_are_each_their_own(subject):
    row = TABLE["adam"]
    shapes = ((3,), (2, 5), (), (0,), (129,))
    groups = [start(subject, row, float32, "dense", shape) for shape in shapes]
    before = [{name: view.to_host() for name, view in group.items()} for group in groups]
    run_update("adam", [tuple(group.values()) for group in groups], update_scalars(row))
    for group, old in zip(groups, before, strict=True):
        expected = oracle_updates.update("adam", old, update_scalars(row))
        for name in row.written:
            subject.close(
                group[name].to_host(), expected[name], float32, 16, f"adam group {old['p'].shape}: {name}", 2.0
            )
    run_update("adam", [], update_scalars(row))


@pytest.mark.parametrize(
    ("name", "known"), [("adamw", [0.890000002, 0.78110000398]), ("adam_l2", [0.900000001667, 0.800047340488])]
)
def test_e02_decay_is_decoupled_in_adamw_only(subject, name, known):
    """E02: lr 0.1, decay 0.1, g = 0.5 twice from p = 1."""
    scalars = {
        "lr": 0.1,
        "b1": 0.9,
        "b2": 0.999,
        "log_b1": log(0.9),
        "log_b2": log(0.999),
        "eps": 1e-8,
        "weight_decay": 0.1,
    }
    views = [subject.put(np.array(x, np.float32)) for x in ([0.5], [1.0], [0.0], [0.0], 0.0)]
    for value in known:
        run_update(name, [tuple(views)], scalars)
        assert float(views[1].to_host()[0]) == pytest.approx(value, abs=3e-7)


@pytest.mark.parametrize(
    ("name", "keep", "decay", "known"),
    [("sgd_momentum", 1, 0, [0.9, 0.71, 0.439]), ("sgd_momentum", 0.5, 0, [0.9, 0.76, 0.584]), ("sgd_nesterov", 1, 0, [0.81, 0.539, 0.1951]),
     ("sgd_momentum", 1, 0.1, [0.89, 0.6821])],
)  # fmt: skip
def test_e03_momentum_conventions(subject, name, keep, decay, known):
    """E03: the first step is not dampened; Nesterov; decay joins the gradient."""
    views = [subject.put(np.array(x, np.float32)) for x in ([1.0], [1.0], [0.0], 0.0)]
    for value in known:
        run_update(name, [tuple(views)], {"lr": 0.1, "momentum": 0.9, "keep": keep, "weight_decay": decay})
        assert float(views[1].to_host()[0]) == pytest.approx(value, abs=3e-7)


def test_updates_bump_the_versions_of_what_they_write(subject):
    group = start(subject, TABLE["adam"], float32, "dense", (3,))
    before = {name: view.buffer.version for name, view in group.items()}
    run_update("adam", [tuple(group.values())], update_scalars(TABLE["adam"]))
    assert {name: view.buffer.version - before[name] for name, view in group.items()} == {
        "g": 0,
        "p": 1,
        "m": 1,
        "v": 1,
        "t": 1,
    }


def test_wrong_arrays_and_scalars_are_refused_by_name(subject):
    g, p = (subject.place(float32, "dense", (3,)).view for _ in range(2))
    with pytest.raises(AttributeValueError, match="sgd: takes the scalars lr, weight_decay; given lr"):
        run_update("sgd", [(g, p)], {"lr": 0.1})
    with pytest.raises(ShapeError, match=r"sgd: p is \(4,\), but g is \(3,\)"):
        run_update("sgd", [(g, subject.place(float32, "dense", (4,)).view)], {"lr": 0.1, "weight_decay": 0.0})
    with pytest.raises(ShapeError, match="sgd: takes the arrays g, p; given 1"):
        run_update("sgd", [(g,)], {"lr": 0.1, "weight_decay": 0.0})
    with pytest.raises(DTypeError, match="sgd: p is int32"):
        run_update("sgd", [(g, subject.put(np.zeros(3, np.int32)))], {"lr": 0.1, "weight_decay": 0.0})
    with pytest.raises(ShapeError, match=r"p has strides .* overlaps itself"):
        run_update(
            "sgd", [(g, subject.place(float32, "dense", (1,)).view.expand((3,)))], {"lr": 0.1, "weight_decay": 0.0}
        )
