"""What must hold on every backend: same weights from a seed, same masks, same training, state that follows the model."""

from __future__ import annotations

import numpy as np
import pytest

import vtl_core as vtl
import vtl_data
import vtl_nn as nn

TOLERANCE = {"rtol": 2e-4, "atol": 2e-5}


def small_model():
    vtl.manual_seed(2)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(0.25), nn.Linear(64, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 5),
    )  # fmt: skip


def images(count=24):
    generator = np.random.default_rng(4)
    return generator.normal(size=(count, 3, 8, 8)).astype(np.float32), generator.integers(0, 5, count)


def trained(device, make):
    model = small_model().to(device)
    optimizer = make(model.parameters())
    loader = vtl_data.DataLoader(vtl_data.TensorDataset(*images()), batch_size=8, shuffle=True, seed=1)
    return model, optimizer, nn.fit(model, loader, optimizer=optimizer, epochs=2).losses


def test_initial_weights_of_a_seed_are_the_same(device):
    for (name, a), b in zip(
        small_model().to(device).state_dict().items(), small_model().state_dict().values(), strict=True
    ):
        np.testing.assert_array_equal(a.numpy(), b.numpy(), err_msg=name)


def test_dropout_masks_are_the_same(device):
    """D10: the same bits on every backend."""
    vtl.manual_seed(6)
    here = nn.functional.dropout(vtl.ones(7, 33, device=device), 0.4).numpy()
    vtl.manual_seed(6)
    np.testing.assert_array_equal(here != 0, nn.functional.dropout(vtl.ones(7, 33), 0.4).numpy() != 0)


@pytest.mark.parametrize(
    "make",
    [
        lambda p: nn.optim.SGD(p, 0.05, momentum=0.9, weight_decay=0.01),
        lambda p: nn.optim.Adam(p, 0.01),
        lambda p: nn.optim.AdamW(p, 0.01),
    ],
    ids=["SGD", "Adam", "AdamW"],
)
def test_training_is_the_same(device, make):
    _, _, losses = trained(device, make)
    _, _, expected = trained("cpu", make)

    np.testing.assert_allclose(losses, expected, **TOLERANCE)


def test_everything_lives_where_the_model_is(device):
    model, optimizer, _ = trained(device, lambda p: nn.optim.Adam(p, 0.01))
    spec = vtl.empty(0, device=device).device

    tensors = [*model.state_dict().values(), *(p.grad for p in model.parameters())]
    tensors += [slot for slots in optimizer.state.values() for slot in slots.values()]
    assert {t.device for t in tensors} == {spec}
    model.to("cpu")
    optimizer.step()
    assert {slot.device for slots in optimizer.state.values() for slot in slots.values()} == {"cpu:0"}


def test_weights_and_checkpoints_move_between_devices(device, tmp_path):
    """F08: a file from any device loads on the CPU, and on the device again."""
    model, optimizer, _ = trained(device, lambda p: nn.optim.Adam(p, 0.01))
    nn.save(model, tmp_path / "w")
    nn.Checkpointer(tmp_path / "run").save(6, model=model, optimizer=optimizer)
    for place in ("cpu", device):
        other = small_model().to(place)
        stepped = nn.optim.Adam(other.parameters(), 0.01)
        nn.Checkpointer(tmp_path / "run").restore_latest(model=other, optimizer=stepped)
        for name, value in nn.load(tmp_path / "w").items():
            np.testing.assert_array_equal(other.state_dict()[name].numpy(), value.numpy())
        assert stepped.state[id(other[0].weight)]["step"].item() == 6


def test_one_seed_gives_one_run(device):
    """G14: twenty-four samples, two epochs, twice: bit-equal losses."""
    first, second = (trained(device, lambda p: nn.optim.Adam(p, 0.01))[2] for _ in range(2))
    assert first == second


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_worker_processes_of_the_loader_do_not_disturb_the_device(device):
    """They are forked beside an open device, and never touch it: the run is that of a loader without workers."""
    runs = []
    for workers in (0, 2):
        model = small_model().to(device)
        loader = vtl_data.DataLoader(
            vtl_data.TensorDataset(*images()), batch_size=8, shuffle=True, seed=1, num_workers=workers
        )
        runs.append(nn.fit(model, loader, optimizer=nn.optim.SGD(model.parameters(), 0.05), epochs=2).losses)
    assert runs[0] == runs[1]
