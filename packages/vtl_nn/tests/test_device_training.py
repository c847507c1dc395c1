"""`vtl train cifar10` on a device: it starts as on the CPU, bit for bit, stays near it, moves batches and losses only,
holds no more after 2 000 steps than after 20, and survives a full memory.

The images are drawn: ten kinds of coloured stripes under noise, in CIFAR-10's binary layout. Where VTL_DATA_DIR has the
real ones, those are used, in larger batches.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import vtl_core as vtl
import vtl_data
import vtl_nn as nn
from vsl_compute import registry
from vtl_nn.cli import main
from vtl_nn.cli import train as command

FOLDER = vtl_data.CIFAR10.releases[0].folder
DATA = os.environ.get("VTL_DATA_DIR", "")
REAL = bool(DATA) and (Path(DATA) / FOLDER).is_dir()
BATCH = 64 if REAL else 6
STEPS = 50


@pytest.fixture(scope="session")
def cifar(tmp_path_factory):
    """A folder with CIFAR-10's binary layout: 2 000 training images, or the real ones."""
    if REAL:
        yield Path(DATA)
        return
    root = tmp_path_factory.mktemp("cifar")
    release, generator = vtl_data.CIFAR10.releases[0], np.random.default_rng(11)
    (root / FOLDER).mkdir()
    hues = generator.integers(40, 216, (10, 3, 1, 1))
    stripes = np.sin(np.linspace(0, 1, 32) * np.arange(2, 12)[:, None] * 3)[:, None, None, :] * 60
    for name in (*release.train, *release.test):
        labels = generator.integers(0, 10, 400)
        images = hues[labels] + stripes[labels] + generator.normal(0, 25, (400, 3, 32, 32))
        records = np.concatenate([labels[:, None], images.clip(0, 255).reshape(400, -1)], axis=1)
        (root / FOLDER / name).write_bytes(records.astype(np.uint8).tobytes())
    yield root
    shutil.rmtree(root)


@pytest.fixture
def batches(cifar):
    """The first batches of a shuffled, normalized CIFAR-10, as NumPy arrays."""
    kind = vtl_data.CIFAR10
    loader = vtl_data.DataLoader(kind(cifar, transform=vtl_data.Normalize(kind.mean, kind.std)), batch_size=BATCH, shuffle=True, seed=3)  # fmt: skip

    def first(count):
        return [batch for batch, _ in zip(loader, range(count), strict=False)]

    return first


def elsewhere(device):
    """What is compared with the CPU must not be the CPU."""
    if device == "cpu":
        pytest.skip("this compares a device with the CPU")


def fresh(device):
    vtl.manual_seed(5)
    model = nn.models.SimpleCNN(10).to(device)
    return model, nn.optim.Adam(model.parameters(), lr=1e-3)


def step(model, optimizer, batch):
    device = next(iter(model.parameters())).device
    images, labels = (vtl.tensor(part, device=device) for part in batch)
    loss = nn.functional.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


class Stopped(Exception):
    """The command has come as far as it is watched."""


def watched(monkeypatch, device, cifar):
    """What `vtl train cifar10 --device DEVICE` would train: weights, slots and the order of its batches."""
    seen = {}

    def fit(model, loader, *, optimizer, **others):
        seen["device"] = {p.device for p in model.parameters()}
        seen["weights"] = {name: value.numpy() for name, value in model.state_dict().items()}
        seen["labels"] = [labels.tolist() for _, (_, labels) in zip(range(12), loader, strict=False)]
        raise Stopped

    monkeypatch.setattr(command, "fit", fit)
    main(["train", "cifar10", "--device", device, "--data", str(cifar), "--quiet", "--batch-size", "32"])
    assert seen
    return seen


def test_the_command_starts_with_the_cpu_s_weights_and_shuffles(device, cifar, monkeypatch):
    """Bit for bit."""
    elsewhere(device)
    there, here = watched(monkeypatch, device, cifar), watched(monkeypatch, "cpu", cifar)

    assert there["device"] == {f"{device}:0"}
    assert there["labels"] == here["labels"]
    assert len(here["labels"]) > 1
    assert list(there["weights"]) == list(here["weights"])
    for name, value in here["weights"].items():
        assert there["weights"][name].tobytes() == value.tobytes(), name


def test_b13_the_command_trains_on_the_device(device, cifar, capsys):
    code = main(["train", "cifar10", "--device", device, "--data", str(cifar), "--epochs", "2", "--subset", "96",
                 "--batch-size", "16", "--json"])  # fmt: skip
    printed = capsys.readouterr()
    assert (code, printed.err) == (0, "")
    found = json.loads(printed.out)
    assert found["device"] == f"{device}:0"
    assert found["epochs"][1]["loss"] < found["epochs"][0]["loss"]


@pytest.mark.parametrize("name", ["cuda", "vulkan", "opencl"])
def test_b12_d31_without_the_device_the_command_says_why_and_what_helps(name, cifar, capsys, monkeypatch):
    """One line and code 1, and nothing is trained: nothing is done on the CPU in its place."""

    class Nothing:
        def devices(self):
            raise vtl.UnavailableError(f"{name}: no driver found; install one")

        def open(self, index):
            self.devices()

    monkeypatch.setitem(registry._drivers, name, Nothing())
    for spec in [spec for spec in registry._opened if spec.startswith(name)]:
        monkeypatch.delitem(registry._opened, spec)
    assert main(["train", "cifar10", "--device", name, "--data", str(cifar)]) == 1
    assert capsys.readouterr() == ("", f"vtl: {name}: no driver found; install one\n")


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout_masks_are_the_cpu_s_bit_for_bit(device, p):
    """Also of shapes that no power of two divides, of transposed arrays, and after other draws."""
    elsewhere(device)
    for shape in ((1,), (64, 128), (7, 33, 5)):
        masks = []
        for place in (device, "cpu"):
            vtl.manual_seed(6)
            vtl.rand(3, device=place)
            x = vtl.ones(*reversed(shape), device=place).permute(*range(len(shape))[::-1])
            masks.append(nn.functional.dropout(x, p).numpy() != 0)
        assert np.array_equal(*masks), shape


def test_each_step_s_loss_is_the_cpu_s_from_equal_weights(device, batches, record_property):
    """Within 1e-5 of it, at every step of a training: the device gets the CPU's weights before each."""
    elsewhere(device)
    model, optimizer = fresh("cpu")
    twin, _ = fresh(device)
    worst = 0.0
    for batch in batches(STEPS if REAL else 12):
        twin.load_state_dict(model.state_dict())
        with vtl.no_grad():
            images, labels = (vtl.tensor(part, device=device) for part in batch)
            there = nn.functional.cross_entropy(twin(images), labels).item()
        here = step(model, optimizer, batch).item()
        worst = max(worst, abs(there - here) / abs(here))
    record_property("worst_relative_difference", worst)
    assert worst <= 1e-5


def test_fifty_free_steps_stay_near_the_cpu_s(device, batches, record_property):
    """Each loss within 3e-2 of the CPU's, and training gets somewhere."""
    elsewhere(device)
    chosen = batches(STEPS)
    runs = []
    for place in (device, "cpu"):
        model, optimizer = fresh(place)
        runs.append([step(model, optimizer, batch).item() for batch in chosen])
    there, here = np.array(runs)
    worst = float(np.max(np.abs(there - here) / np.abs(here)))
    record_property("worst_relative_difference", worst)
    assert len(here) == STEPS
    assert worst <= 3e-2
    assert here[-10:].mean() < here[:5].mean()


def test_a_step_moves_its_batch_and_its_loss_and_nothing_else(device, cifar, record_property):
    """Of `fit`, as `vtl train` calls it: up go images and labels, two calls a step; down come the losses of 16 steps in
    one call and the counts of right answers in another; kernels' parameters are counted apart."""
    elsewhere(device)
    model, optimizer = fresh(device)
    kind = vtl_data.CIFAR10
    dataset = vtl_data.Subset(kind(cifar, transform=vtl_data.Normalize(kind.mean, kind.std)), range(32 * BATCH))
    loader = vtl_data.DataLoader(dataset, batch_size=BATCH, shuffle=True, seed=3)
    backend = vtl.Context(device).backend
    before = backend.transfers()
    history = nn.fit(model, loader, optimizer=optimizer, progress=False)
    after = backend.transfers()

    assert len(history.losses) == 32
    assert after.calls_to_device - before.calls_to_device == 32 * 2
    assert after.bytes_to_device - before.bytes_to_device == 32 * BATCH * (3 * 32 * 32 * 4 + 8)
    assert after.calls_to_host - before.calls_to_host == 2 * 2
    assert after.bytes_to_host - before.bytes_to_host == 32 * (4 + 8)
    record_property("metadata_bytes_a_step", (after.metadata_bytes - before.metadata_bytes) / 32)


def tiny(device):
    """A model with a convolution, a norm and dropout that steps in a millisecond."""
    vtl.manual_seed(1)
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(8, 3)
    )
    model.to(device)
    return model, nn.optim.Adam(model.parameters(), lr=1e-3)


def held(backend):
    gc.collect()
    backend.synchronize()
    found = backend.memory()
    return found.live, found.reserved, found.buffers


def resident():
    """Bytes of this process's memory; 0 where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


@pytest.mark.slow
def test_two_thousand_steps_hold_no_more_than_twenty(device):
    """G13: Buffers and pool bytes are those of step 20, and the process has not grown by what 2 000 leaks would make.

    Slow: 2 000 steps.
    """
    model, optimizer = tiny(device)
    backend = vtl.Context(device).backend
    generator = np.random.default_rng(2)
    batch = generator.normal(size=(4, 1, 4, 4)).astype(np.float32), generator.integers(0, 3, 4)
    marks = {}
    for number in range(1, 2001):
        loss = step(model, optimizer, batch)
        if number % 16 == 0 or number in (20, 2000):
            loss.item()
        del loss
        if number in (20, 500, 2000):
            marks[number] = held(backend), resident()
    assert marks[20][0] == marks[500][0] == marks[2000][0]
    assert marks[2000][1] - marks[500][1] < 4 << 20, f"{marks}: more than 2.8 kB a step"


@pytest.fixture
def full(device):
    """Take all of the device's memory but a little: for real from a GPU that no other worker of this run shares, else by a limit."""
    backend = vtl.Context(device).backend
    if device == "cpu":
        pytest.skip("cpu has the host's memory, which a test must not fill")
    hoard = []

    def take():
        if backend.info.kind != "discrete" or "PYTEST_XDIST_WORKER" in os.environ:
            backend.empty_cache()
            backend.limit_memory(backend.memory().reserved)
            return
        size = backend.info.memory_bytes // 16
        while size > 1 << 20:
            try:
                hoard.append(vtl.empty(size, dtype="uint8", device=device))
            except vtl.OutOfMemoryError:
                size //= 4

    def let_go():
        hoard.clear()
        backend.limit_memory(None)
        gc.collect()

    yield take, let_go
    let_go()
    backend.empty_cache()


@pytest.fixture
def same_bits():
    """Without those of cuDNN's plans whose sums have no order of their own."""
    vtl.use_deterministic_algorithms(True)
    yield
    vtl.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("same_bits")
def test_training_goes_on_after_the_memory_was_full(device, full):
    """OutOfMemoryError with sizes from the middle of a step; what then is trained is what would have been."""
    take, let_go = full
    generator = np.random.default_rng(2)
    images, labels = generator.normal(size=(6, 16, 3, 32, 32)).astype(np.float32), generator.integers(0, 10, (6, 16))
    undisturbed = fresh(device)
    expected = [step(*undisturbed, batch).item() for batch in zip(images, labels, strict=True)]
    model, optimizer = fresh(device)
    losses = [step(model, optimizer, (images[0], labels[0])).item()]
    take()
    large = np.zeros((2048, 3, 32, 32), np.float32), np.zeros(2048, np.int64)
    with pytest.raises(vtl.OutOfMemoryError, match=r"asked for \d+ bytes, held \d+"):
        step(model, optimizer, large)
    let_go()
    losses += [step(model, optimizer, batch).item() for batch in list(zip(images, labels, strict=True))[1:]]
    assert losses == expected


SECOND = """
import sys
import vsl_compute
from vtl_nn.cli import main
code = main(sys.argv[1:])
print("compiled:", vsl_compute.get("opencl").programs.compilations)
sys.exit(code)
"""


@pytest.mark.skipif(
    os.environ.get("VTL_TEST_OPENCL") != "1",
    reason="counts what an OpenCL driver compiles: VTL_TEST_OPENCL=1 asks for one",
)
def test_a_second_run_of_the_command_compiles_nothing(tmp_path):
    """Kernels are kept on disk by their text and the device: the first process compiles them, the second none."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "VSL_CACHE_DIR": str(tmp_path)}
    options = [
        "train",
        "shapes",
        "--device",
        "opencl",
        "--subset",
        "8",
        "--epochs",
        "1",
        "--batch-size",
        "4",
        "--quiet",
    ]
    counts = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", SECOND, *options], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        counts.append(int(done.stdout.rpartition("compiled:")[2]))
    assert counts[0] > 20
    assert counts[1] == 0
