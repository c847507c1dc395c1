"""Checkpoints: a resumed run is the uninterrupted one, bit for bit."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

import vtl_core as vtl
import vtl_data
import vtl_nn as nn


class Run:
    """A model with dropout and batch norm, an optimizer, a schedule and a shuffled loader."""

    def __init__(self, make, seed=3):
        vtl.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 3))
        self.optimizer = make(self.model.parameters())
        self.scheduler = nn.optim.lr_scheduler.StepLR(self.optimizer, 3, 0.5)
        generator = np.random.default_rng(0)
        data = vtl_data.TensorDataset(generator.normal(size=(30, 6)).astype(np.float32), generator.integers(0, 3, 30))
        self.loader = vtl_data.DataLoader(data, batch_size=4, shuffle=True, seed=5)

    def step(self, count):
        """`count` steps, over the ends of epochs."""
        done = 0
        while done < count:
            for x, y in self.loader:
                self.optimizer.zero_grad()
                nn.functional.cross_entropy(self.model(vtl.tensor(x)), vtl.tensor(y)).backward()
                self.optimizer.step()
                self.scheduler.step()
                done += 1
                if done == count:
                    break

    def parts(self):
        return {"model": self.model, "optimizer": self.optimizer, "loader": self.loader, "scheduler": self.scheduler}


MAKERS = {
    "Adam": lambda p: nn.optim.Adam(p, 0.05),
    "AdamW": lambda p: nn.optim.AdamW(p, 0.05),
    "SGD": lambda p: nn.optim.SGD(p, 0.1, momentum=0.9, dampening=0.2),
    "plain SGD": lambda p: nn.optim.SGD(p, 0.1),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_five_and_five_steps_are_ten(tmp_path, make):
    """E07: moments, step count, schedule, dropout, running statistics and shuffling; bit for bit on the CPU."""
    whole = Run(make)
    whole.step(10)
    first = Run(make)
    first.step(5)
    nn.Checkpointer(tmp_path).save(5, **first.parts(), extra={"note": [1, 2]})
    del first

    second = Run(make, seed=99)
    vtl.rand(1000)
    restored = nn.Checkpointer(tmp_path).restore_latest(**second.parts())
    second.step(5)

    assert (restored.step, restored.extra) == (5, {"note": [1, 2]})
    for (name, a), b in zip(whole.model.state_dict().items(), second.model.state_dict().values(), strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy(), err_msg=name)
    assert whole.optimizer.param_groups[0]["lr"] == second.optimizer.param_groups[0]["lr"]


def test_losing_the_step_count_would_show():
    """E07's other half: without Adam's count the second step differs."""
    p = vtl.ones(1, requires_grad=True)
    optimizer = nn.optim.Adam([p], lr=0.1)
    for _ in range(2):
        p.grad = vtl.full((1,), 0.5)
        optimizer.step()
    assert p.item() == pytest.approx(0.800000004, rel=1e-6)


def test_a_state_from_a_cuda_like_index_goes_where_the_model_is(tmp_path):
    """F08: nothing in a checkpoint names a device."""
    run = Run(MAKERS["Adam"])
    folder = nn.Checkpointer(tmp_path).save(1, **run.parts())
    assert "cpu" not in (folder / "state.json").read_text()


def test_the_last_few_stay(tmp_path):
    checkpointer, run = nn.Checkpointer(tmp_path, keep=2), Run(MAKERS["SGD"])
    for step in (1, 2, 10):
        checkpointer.save(step, model=run.model)

    assert checkpointer.steps() == [2, 10]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000002", "step-00000010"]
    assert checkpointer.restore_latest(model=run.model).step == 10


def test_nothing_is_restored_from_nothing(tmp_path):
    assert nn.Checkpointer(tmp_path / "absent").restore_latest(model=nn.Linear(1, 1)) is None
    assert nn.Checkpointer(tmp_path).peek() == {}


def test_a_step_saved_again_replaces_its_checkpoint(tmp_path):
    layer = nn.Linear(1, 1)
    checkpointer = nn.Checkpointer(tmp_path)
    checkpointer.save(1, model=layer)
    with vtl.no_grad():
        layer.weight.fill_(7.0)
    checkpointer.save(1, model=layer)

    other = nn.Linear(1, 1)
    checkpointer.restore_latest(model=other)
    assert other.weight.item() == 7
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]


def test_a_crash_between_the_renames_loses_nothing(tmp_path):
    """F05."""
    layer, checkpointer = nn.Linear(1, 1), nn.Checkpointer(tmp_path)
    folder = checkpointer.save(4, model=layer)
    folder.rename(tmp_path / f".{folder.name}.replaced")

    assert checkpointer.steps() == [4]


def test_a_save_that_fails_keeps_what_was_there(tmp_path, monkeypatch):
    """F05."""
    layer, checkpointer = nn.Linear(1, 1), nn.Checkpointer(tmp_path)
    checkpointer.save(1, model=layer)

    def full(path):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("vtl_nn.checkpoint.replacing", full)  # after the weights, before state.json
    with pytest.raises(OSError, match="No space left"):
        checkpointer.save(2, model=layer)

    assert checkpointer.steps() == [1]
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]


def edited(**changes):
    """Write other values into state.json."""

    def damage(folder):
        state = json.loads((folder / "state.json").read_text())
        (folder / "state.json").write_text(json.dumps(state | changes))

    return damage


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda f: (f / "model.safetensors").write_bytes((f / "model.safetensors").read_bytes()[:-4]),
            "model.safetensors: cannot be read .*; remove .*step-00000002 to go on from the checkpoint before",
        ),
        (lambda f: (f / "model.safetensors").unlink(), "model.safetensors: cannot be read .*No such file.*; remove"),
        (lambda f: (f / "optimizer.safetensors").write_bytes(b""), "optimizer.safetensors: .*damaged"),
        (lambda f: (f / "state.json").write_text("{"), "state.json: cannot be read"),
        (lambda f: (f / "state.json").unlink(), "state.json: cannot be read"),
        (lambda f: (f / "state.json").write_text('{"format": 9}'), "is of format 9, and this vtl-nn reads 1"),
        (lambda f: (f / "state.json").write_text('{"format": 1}'), "state.json: lacks"),
        (edited(extra=5), "state.json: extra is not what was saved; remove"),
        (edited(step="2"), "state.json: step is not"),
        (edited(generator=3), "state.json: generator is not"),
        (edited(optimizer=[{}]), "state.json: optimizer is not"),
        (edited(optimizer=[{"params": 3}]), "state.json: optimizer is not"),
        (edited(step=3), "state.json: step is not"),
        (edited(step=-2), "state.json: step is not"),
        (edited(loader=7), "state.json: loader: DataLoader: a state is a dict, not 7; .* or remove .*step-00000002"),
        (edited(loader={"epoch": 0}), r"state.json: loader: DataLoader: the state lacks \['batch_size'"),
        (
            lambda f: ((f / "model.safetensors").unlink(), (f / "model.safetensors").mkdir()),
            "model.safetensors: cannot be read .*is a folder",
        ),
    ],
)
def test_a_damaged_checkpoint_is_named_and_nothing_is_changed(tmp_path, damage, message):
    """F05: a truncated file raises, and never loads partially."""
    run = Run(MAKERS["Adam"])
    run.step(2)
    damage(nn.Checkpointer(tmp_path).save(2, **run.parts()))
    fresh = Run(MAKERS["Adam"], seed=8)
    before = {name: value.numpy().copy() for name, value in fresh.model.state_dict().items()}

    with pytest.raises(nn.FileFormatError, match=message):
        nn.Checkpointer(tmp_path).restore_latest(**fresh.parts())
    for name, value in fresh.model.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), before[name])


def test_another_model_or_optimizer_is_refused_before_anything_changes(tmp_path):
    run = Run(MAKERS["Adam"])
    nn.Checkpointer(tmp_path).save(1, model=run.model, optimizer=run.optimizer)
    other = Run(MAKERS["SGD"], seed=8)
    before = other.model[0].weight.numpy().copy()

    with pytest.raises(nn.StateError, match="SGD: the state does not fit: parameter 0 has slots"):
        nn.Checkpointer(tmp_path).restore_latest(model=other.model, optimizer=other.optimizer)
    with pytest.raises(nn.StateError, match="was saved without loader="):
        nn.Checkpointer(tmp_path).restore_latest(model=other.model, loader=other.loader)
    np.testing.assert_array_equal(other.model[0].weight.numpy(), before)


def test_a_loader_of_another_batch_size_is_refused_before_anything_changes(tmp_path):
    """E07."""
    run = Run(MAKERS["Adam"])
    nn.Checkpointer(tmp_path).save(1, **run.parts())
    other = Run(MAKERS["Adam"], seed=8)
    other.loader = vtl_data.DataLoader(other.loader.dataset, batch_size=5, shuffle=True, seed=5)
    before = other.model[0].weight.numpy().copy()

    with pytest.raises(ValueError, match="the state has batch_size 4, this loader 5"):
        nn.Checkpointer(tmp_path).restore_latest(**other.parts())
    np.testing.assert_array_equal(other.model[0].weight.numpy(), before)


@pytest.mark.parametrize("step", [-1, 2.0, "3", None, True])
def test_a_step_that_is_no_count_is_refused(tmp_path, step):
    """It would be written under a name that is never found again."""
    with pytest.raises(vtl.AttributeValueError, match=r"step=.* must be an integer of at least 0"):
        nn.Checkpointer(tmp_path / "run").save(step, model=nn.Linear(1, 1))
    assert not list(tmp_path.iterdir())


def test_a_numpy_step_and_one_before_those_kept_are_saved(tmp_path):
    layer, checkpointer = nn.Linear(1, 1), nn.Checkpointer(tmp_path, keep=2)
    for step in (np.int64(20), 30, 10):
        assert checkpointer.save(step, model=layer).is_dir()

    assert checkpointer.steps() == [10, 20, 30]
    (tmp_path / "step-00000040").write_text("a file is no checkpoint")
    assert checkpointer.restore_latest(model=layer).step == 30


SAVING = """
import sys
import vtl_nn as nn
model = nn.Linear(30, 30)
checkpointer = nn.Checkpointer(sys.argv[1])
for _ in range(12):
    checkpointer.save(5, model=model, optimizer=nn.optim.Adam(model.parameters()))
"""


def test_processes_may_save_one_step_at_once(tmp_path):
    """F05: the ranks of a launch that all save; one of them stays, whole, and nothing beside it."""
    command = [sys.executable, "-c", SAVING, str(tmp_path)]
    ranks = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]

    assert [rank.communicate(timeout=60)[1] for rank in ranks] == ["", "", ""]
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000005"]
    model = nn.Linear(30, 30)
    assert nn.Checkpointer(tmp_path).restore_latest(model=model, optimizer=nn.optim.Adam(model.parameters())).step == 5


def test_options_survive_json(tmp_path):
    run = Run(lambda p: nn.optim.Adam(p, 0.05, betas=(0.8, 0.99)))
    folder = nn.Checkpointer(tmp_path).save(1, **run.parts())
    assert json.loads((folder / "state.json").read_text())["optimizer"][0]["betas"] == [0.8, 0.99]
    other = Run(MAKERS["Adam"])
    nn.Checkpointer(tmp_path).restore_latest(**other.parts())
    assert other.optimizer.param_groups[0]["betas"] == (0.8, 0.99)


def test_at_least_one_is_kept():
    with pytest.raises(vtl.AttributeValueError, match="keep=0"):
        nn.Checkpointer(".", keep=0)


@pytest.mark.parametrize("part", ["generator", "scheduler", "loader", "model"])
def test_after_a_refused_restoration_everything_is_as_it_was(tmp_path, part):
    """Model, optimizer, loader, schedule and random numbers: whichever of them does not fit, none has moved."""
    saved = Run(MAKERS["Adam"])
    saved.step(5)
    folder = nn.Checkpointer(tmp_path).save(5, **saved.parts())
    run = Run(MAKERS["Adam"], seed=4)
    run.step(2)
    if part == "model":
        run.model.append(nn.Linear(3, 3))
    elif part == "loader":
        run.loader = vtl_data.DataLoader(run.loader.dataset, batch_size=5, shuffle=True, seed=5)
    elif part == "scheduler":
        run.scheduler = nn.optim.lr_scheduler.ReduceLROnPlateau(run.optimizer)
    else:
        state = json.loads((folder / "state.json").read_text())
        state["generator"] = {"seed": -5}
        (folder / "state.json").write_text(json.dumps(state))

    def all_of_it():
        tensors = [*run.model.state_dict().values(), *(s for p in run.optimizer.state.values() for s in p.values())]
        small = (run.loader, run.scheduler, vtl.default_context().generator)
        return [t.tolist() for t in tensors], run.optimizer.param_groups[0]["lr"], [x.state_dict() for x in small]

    before = all_of_it()
    kind, text = {
        "generator": (nn.FileFormatError, "Generator: the state has no rank, stream, offset; .*remove"),
        "scheduler": (nn.StateError, "ReduceLROnPlateau: the state has no"),
        "loader": (ValueError, "the state has batch_size 4, this loader 5"),
        "model": (nn.StateError, "missing: 5.weight, 5.bias"),
    }[part]
    with pytest.raises(kind, match=text):
        nn.Checkpointer(tmp_path).restore_latest(**run.parts())

    assert all_of_it() == before


def test_numbers_of_numpy_and_tensors_of_one_are_kept_as_numbers(tmp_path):
    model = nn.Linear(2, 2)
    optimizer = nn.optim.SGD(model.parameters(), lr=np.float32(0.25))
    extra = {"best": np.float64(0.5), "epoch": np.int64(3), "loss": vtl.tensor(2.0)}
    nn.Checkpointer(tmp_path).save(1, model=model, optimizer=optimizer, extra=extra)

    assert nn.Checkpointer(tmp_path).peek() == {"best": 0.5, "epoch": 3, "loss": 2.0}
    optimizer.param_groups[0]["lr"] = 1.0
    nn.Checkpointer(tmp_path).restore_latest(model=model, optimizer=optimizer)
    assert optimizer.param_groups[0]["lr"] == 0.25


def test_what_is_no_json_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(vtl.AttributeValueError, match=r"state\.json cannot hold .* of type ndarray; give numbers"):
        nn.Checkpointer(tmp_path).save(1, model=nn.Linear(2, 2), extra={"curve": np.ones(3)})
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_run_left_goes_with_the_next_checkpoint_of_any_step(tmp_path):
    """F05: a run that goes on elsewhere, or with other batches, never saves at that step again."""
    left = tmp_path / ".step-00000007.0123456789abcdef.partial"
    left.mkdir()
    (left / "model.safetensors").write_bytes(b"half")

    nn.Checkpointer(tmp_path).save(9, model=nn.Linear(1, 1))

    assert [path.name for path in tmp_path.iterdir()] == ["step-00000009"]


def test_a_group_that_lost_an_option_is_refused(tmp_path):
    """E07: the run would go on with this one's, in silence."""
    run = Run(MAKERS["Adam"])
    folder = nn.Checkpointer(tmp_path).save(1, **run.parts())
    text = (folder / "state.json").read_text()
    (folder / "state.json").write_text(text.replace('"betas"', '"b3tas"'))

    with pytest.raises(nn.StateError, match="a group has no betas"):
        nn.Checkpointer(tmp_path).restore_latest(**run.parts())


@pytest.mark.parametrize("given", [3, None, "model", nn.Linear], ids=repr)
def test_what_is_no_model_is_refused_before_anything_is_written(tmp_path, given):
    with pytest.raises(vtl.ArgumentTypeError, match=r"^Checkpointer\.save: model=.* must be a Module$"):
        nn.Checkpointer(tmp_path / "run").save(1, model=given)
    assert not list(tmp_path.iterdir())
