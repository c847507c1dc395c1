"""fit and evaluate."""

from __future__ import annotations

import json

import numpy as np
import pytest

import vtl_core as vtl
import vtl_data
import vtl_nn as nn


def blobs(count, seed=0, dtype=np.float32):
    """Two classes on two sides of a line, as a data set."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 2, count)
    points = generator.normal(size=(count, 2)) + np.where(labels, 2.5, -2.5)[:, None]
    return vtl_data.TensorDataset(points.astype(dtype), labels)


def model_and_optimizer(rate=0.05, dtype=vtl.float32):
    vtl.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2)).to(dtype)
    return model, nn.optim.Adam(model.parameters(), lr=rate)


def test_fit_learns_and_remembers_how():
    """B11: the loss is finite and goes down; accuracy, speed and rate are in the history."""
    model, optimizer = model_and_optimizer()
    loader = vtl_data.DataLoader(blobs(200), batch_size=32, shuffle=True)

    history = nn.fit(model, loader, optimizer=optimizer, epochs=3, validation=vtl_data.DataLoader(blobs(100, 1), 64))

    assert [e.epoch for e in history.epochs] == [1, 2, 3]
    assert len(history.losses) == 3 * 7
    assert history.epochs[0].loss > history.epochs[1].loss > history.epochs[2].loss
    assert history.epochs[-1].validation_accuracy > 0.97
    assert history.epochs[-1].accuracy > 0.97
    assert all(e.seconds > 0 and e.images_per_s > 0 and e.lr == 0.05 for e in history.epochs)
    assert nn.History.from_dict(json.loads(json.dumps(history.to_dict()))) == history
    assert model.training


def test_means_weigh_samples_not_batches():
    """The short last batch counts for what it has."""
    model, _ = model_and_optimizer()
    part = blobs(37)
    result = nn.evaluate(model, vtl_data.DataLoader(part, batch_size=16))
    with vtl.no_grad():
        logits = model(vtl.tensor(part.arrays[0]))
        expected = nn.functional.cross_entropy(logits, vtl.tensor(part.arrays[1])).item()

    assert result.loss == pytest.approx(expected, rel=1e-5)
    assert result.accuracy == pytest.approx((logits.numpy().argmax(1) == part.arrays[1]).mean())
    assert result.count == 37


def test_evaluation_changes_neither_weights_nor_modes():
    model = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2))
    model[2].eval()
    before = {name: value.numpy().copy() for name, value in model.state_dict().items()}
    first, second = (nn.evaluate(model, vtl_data.DataLoader(blobs(20), 8)).loss for _ in range(2))

    assert first == second
    assert [module.training for module in model.modules()] == [True, True, True, False, True]
    for name, value in model.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), before[name])


def test_regression_has_no_accuracy_and_batches_take_the_models_dtype():
    """B10: MSE forward and backward; float32 batches feed a float64 model."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(64, 2)).astype(np.float32)
    data = vtl_data.TensorDataset(x, (x @ [[1.0], [-2.0]]).astype(np.float32))
    model = nn.Sequential(nn.Linear(2, 1)).to(vtl.float64)
    optimizer = nn.optim.SGD(model.parameters(), lr=0.3)

    history = nn.fit(model, vtl_data.DataLoader(data, 16), optimizer=optimizer, loss=nn.MSELoss(), epochs=20)

    assert history.epochs[-1].accuracy is None
    assert history.epochs[-1].loss < 1e-3
    np.testing.assert_allclose(model[0].weight.numpy(), [[1, -2]], atol=0.02)


class Empty:
    def __len__(self):
        return 0

    def __getitem__(self, index):
        raise IndexError


@pytest.mark.parametrize(
    "loader", [vtl_data.DataLoader(Empty(), 4), vtl_data.DataLoader(blobs(3), 4, drop_last=True), iter([])]
)
def test_an_empty_data_set_is_refused(loader):
    model, optimizer = model_and_optimizer()
    with pytest.raises(nn.TrainingError, match="the data set is empty"):
        nn.fit(model, loader, optimizer=optimizer)
    with pytest.raises(nn.TrainingError, match="the data set is empty"):
        nn.evaluate(model, iter([]))


def fit_bad_points():
    points = np.ones((12, 2), np.float32)
    points[6] = np.nan
    model, optimizer = model_and_optimizer()
    loader = vtl_data.DataLoader(vtl_data.TensorDataset(points, np.zeros(12, np.int64)), 4)

    with pytest.raises(nn.TrainingError, match="the loss is nan at epoch 1, step 2; lower the learning rate"):
        nn.fit(model, loader, optimizer=optimizer)
    return model


def test_a_loss_that_is_no_number_names_epoch_and_step():
    fit_bad_points()


@pytest.mark.cpu_only("a device's losses are read up to 16 steps later")
def test_a_loss_that_is_no_number_changes_nothing():
    model = fit_bad_points()
    assert all(np.isfinite(p.numpy()).all() for p in model.parameters())


def test_a_batch_that_is_no_pair_is_refused():
    model, optimizer = model_and_optimizer()
    with pytest.raises(nn.TrainingError, match=r"\(inputs, targets\) is needed"):
        nn.fit(model, [np.ones((2, 2))], optimizer=optimizer)


class Stop(nn.Callback):
    def __init__(self):
        self.steps, self.epochs = [], []

    def on_step_end(self, training):
        self.steps.append(training.step)
        training.stop = training.step == 9

    def on_epoch_end(self, training, epoch):
        self.epochs.append((epoch.epoch, training.epochs))


def test_callbacks_see_steps_and_epochs_and_can_stop():
    model, optimizer = model_and_optimizer()
    stop = Stop()
    history = nn.fit(model, vtl_data.DataLoader(blobs(28), 4), optimizer=optimizer, epochs=5, callbacks=[stop])

    assert stop.steps == list(range(1, 10))
    assert stop.epochs == [(1, 5), (2, 5)]
    assert len(history.losses) == 9


def test_a_history_is_continued():
    model, optimizer = model_and_optimizer()
    loader = vtl_data.DataLoader(blobs(28), 4)
    history = nn.fit(model, loader, optimizer=optimizer, epochs=1)
    assert nn.fit(model, loader, optimizer=optimizer, epochs=3, history=history) is history
    assert [e.epoch for e in history.epochs] == [1, 2, 3]


class Terminal:
    """A stderr that is a terminal and keeps what is written to it."""

    def __init__(self):
        self.text = ""

    def isatty(self):
        return True

    def write(self, text):
        self.text += text

    def flush(self):
        pass

    def fileno(self):
        raise OSError


def test_the_bar_shows_loss_accuracy_and_speed(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    model, optimizer = model_and_optimizer()
    nn.fit(model, vtl_data.DataLoader(blobs(64), 8), optimizer=optimizer, epochs=1)

    assert "epoch 1/1" in terminal.text
    assert "/64" in terminal.text
    assert "img/s" in terminal.text
    nn.fit(model, vtl_data.DataLoader(blobs(64), 8), optimizer=optimizer, epochs=1, progress=False)
    assert terminal.text.count("epoch 1/1") < 20


def test_nothing_is_drawn_where_nobody_watches(capsys):
    model, optimizer = model_and_optimizer()
    nn.fit(model, vtl_data.DataLoader(blobs(8), 8), optimizer=optimizer)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("epochs", [-1, 1.5, "3", True])
def test_epochs_that_are_no_count_are_refused(epochs):
    model, optimizer = model_and_optimizer()
    with pytest.raises(vtl.AttributeValueError, match=r"fit: epochs=.* must be an integer of at least 0"):
        nn.fit(model, vtl_data.DataLoader(blobs(8), 8), optimizer=optimizer, epochs=epochs)


class StopAfter(nn.Callback):
    """Save a checkpoint after a step, and end there as the keyboard would."""

    def __init__(self, checkpointer, step):
        self.checkpointer, self.step = checkpointer, step

    def on_step_end(self, training):
        if training.step == self.step:
            parts = {"model": training.model, "optimizer": training.optimizer, "loader": training.loader}
            self.checkpointer.save(self.step, **parts, extra={"history": training.history.to_dict()})
            raise KeyboardInterrupt


@pytest.mark.parametrize("step", range(1, 7))
def test_a_run_stopped_after_any_step_goes_on_as_if_it_had_not(tmp_path, step):
    """E07: within an epoch, and after the last step of one, before the epoch's end was noted."""

    def parts():
        model, optimizer = model_and_optimizer()
        return {"model": model, "optimizer": optimizer, "loader": vtl_data.DataLoader(blobs(20), 8, shuffle=True)}

    whole, checkpointer = parts(), nn.Checkpointer(tmp_path)
    history = nn.fit(**whole, epochs=2)
    with pytest.raises(KeyboardInterrupt):
        nn.fit(**parts(), epochs=2, callbacks=[StopAfter(checkpointer, step)])
    rest = parts()
    found = checkpointer.restore_latest(**rest)
    resumed = nn.fit(**rest, epochs=2, history=nn.History.from_dict(found.extra["history"]))

    assert resumed.losses == history.losses
    assert [epoch.epoch for epoch in resumed.epochs] == [1, 2]
    for ours, theirs in zip(rest["model"].parameters(), whole["model"].parameters(), strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


class Stream(vtl_data.IterableDataset):
    """Blobs one by one; how many is not known beforehand."""

    def __iter__(self):
        return iter(list(blobs(20)))


def test_fit_takes_a_stream_of_unknown_length():
    """F03: a loader over a stream has no length, in training and in validation."""
    model, optimizer = model_and_optimizer()
    loader = vtl_data.DataLoader(Stream(), 8)

    history = nn.fit(model, loader, optimizer=optimizer, epochs=2, validation=vtl_data.DataLoader(Stream(), 16))

    assert len(history.losses) == 2 * 3


def test_batches_that_can_be_read_once_are_refused_for_several_epochs():
    model, optimizer = model_and_optimizer()
    batches = list(vtl_data.DataLoader(blobs(8), 8))
    with pytest.raises(nn.TrainingError, match="fit: loader is a list_iterator, which can be read once only"):
        nn.fit(model, iter(batches), optimizer=optimizer, epochs=2)
    with pytest.raises(nn.TrainingError, match="fit: validation is a generator, which can be read once only"):
        nn.fit(model, batches, optimizer=optimizer, epochs=2, validation=(batch for batch in batches))

    assert len(nn.fit(model, iter(batches), optimizer=optimizer, epochs=1).losses) == 1


def test_a_validation_that_cannot_be_measured_is_refused():
    """An empty one before the first step, one whose loss is no number when it is seen."""
    model, optimizer = model_and_optimizer()
    train, before = vtl_data.DataLoader(blobs(8), 8), model[0].weight.numpy().copy()
    with pytest.raises(nn.TrainingError, match="fit: the validation loader has no batch"):
        nn.fit(model, train, optimizer=optimizer, validation=vtl_data.DataLoader(blobs(0), 8))
    np.testing.assert_array_equal(model[0].weight.numpy(), before)

    bad = [(np.full((1, 2), np.nan, np.float32), np.zeros(1, np.int64))]
    with pytest.raises(nn.TrainingError, match="fit: the validation loss is nan after epoch 1; lower the learning"):
        nn.fit(model, train, optimizer=optimizer, validation=bad)


def test_the_curve_is_a_picture(tmp_path):
    pytest.importorskip("matplotlib", reason="curves are drawn with the extra plot")
    epochs = [nn.Epoch(k, 1 / k, 0.5 + k / 10, 1.0, 100.0, 1e-3, 1.1 / k, 0.4 + k / 10) for k in (1, 2, 3)]
    nn.plot_history(nn.History(epochs, [1.0, 0.9, 0.5, 0.4, 0.3, 0.2]), tmp_path / "a.png", title="a run")

    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]


def test_without_matplotlib_the_remedy_is_said(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(vtl.UnavailableError, match=r"pip install 'vtl-nn\[plot\]'"):
        nn.plot_history(nn.History(), tmp_path / "a.png")
    assert not list(tmp_path.iterdir())


def test_a_missing_optimizer_is_said_before_anything_runs():
    with pytest.raises(nn.TrainingError, match=r"^fit: optimizer is None; give one, such as nn\.optim\.Adam\("):
        nn.fit(nn.Linear(2, 2), [], optimizer=None)


def test_an_optimizer_of_another_model_is_refused():
    """It would run to the end and train nothing."""
    (model, _), (_, optimizer) = model_and_optimizer(), model_and_optimizer()
    with pytest.raises(nn.TrainingError, match=r"steps no parameter of this \w+; make it from"):
        nn.fit(model, [(np.zeros((2, 2), np.float32), np.zeros(2, np.int64))], optimizer=optimizer, progress=False)


def test_a_history_reads_as_one_short_line():
    history = nn.History([], [1.0] * 1000)

    assert repr(history) == "History(0 epochs, 1000 steps)"
