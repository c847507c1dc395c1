"""Weights files: save then load is identity, for every layer, and nothing of a file is run."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import warnings

import numpy as np
import pytest
from safetensors.numpy import load_file

import vtl_core as vtl
import vtl_nn as nn

LAYERS = [
    nn.Linear(3, 2),
    nn.Linear(3, 2, bias=False),
    nn.Conv2d(4, 6, 3, groups=2),
    nn.BatchNorm1d(3),
    nn.BatchNorm2d(3, affine=False),
    nn.LayerNorm((2, 3)),
    nn.GroupNorm(2, 4),
    nn.Embedding(5, 3, padding_idx=1),
    nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Sequential(nn.Linear(2, 2))),
    nn.models.SimpleCNN(image_size=8),
]


@pytest.mark.parametrize("model", LAYERS, ids=lambda layer: type(layer).__name__)
@pytest.mark.parametrize("dtype", [vtl.float32, vtl.float64, vtl.bfloat16, vtl.float16], ids=lambda dtype: dtype.name)
def test_save_then_load_is_identity(tmp_path, model, dtype):
    """B1, F08: every layer type, batch norm's buffers included, bit for bit."""
    path = tmp_path / "m.safetensors"
    model.to(dtype)
    nn.save(model, path)
    loaded = nn.load(path)

    state = model.state_dict()
    assert loaded.keys() == state.keys()
    for name, value in state.items():
        assert loaded[name].dtype is value.dtype
        np.testing.assert_array_equal(loaded[name].numpy(), value.numpy())
    assert nn.load_into(model, path).missing_keys == []


def test_layouts_and_empty_tensors_are_kept(tmp_path):
    """F07: a transposed, a stepped, a 0-d and an empty tensor; A.T saved and loaded equals A.T."""
    a = vtl.tensor(np.arange(12.0).reshape(3, 4))
    state = {"t": a.T, "s": a[:, ::2], "n": vtl.tensor(3), "e": vtl.zeros(0, 5), "b": vtl.tensor([True, False])}
    nn.save(state, tmp_path / "m")

    for name, value in nn.load(tmp_path / "m").items():
        assert value.dtype is state[name].dtype
        np.testing.assert_array_equal(value.numpy(), state[name].numpy())


def test_every_bfloat16_survives(tmp_path):
    """F07: all 65 536 bit patterns that are numbers, infinities included."""
    bits = np.arange(65536, dtype=np.uint32) << 16
    values = bits.view(np.float32)
    values = values[~np.isnan(values)]
    nn.save({"x": vtl.tensor(values, dtype=vtl.bfloat16)}, tmp_path / "m")

    np.testing.assert_array_equal(nn.load(tmp_path / "m")["x"].numpy().view(np.uint32), values.view(np.uint32))


def test_names_and_layouts_are_pytorchs(tmp_path):
    nn.save(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)), tmp_path / "m")
    found = load_file(tmp_path / "m")

    assert {name: value.shape for name, value in found.items()} == {
        "0.weight": (2, 3), "0.bias": (2,), "1.weight": (2,), "1.bias": (2,),
        "1.running_mean": (2,), "1.running_var": (2,), "1.num_batches_tracked": (),
    }  # fmt: skip


def test_metadata_is_kept(tmp_path):
    nn.save(nn.Linear(1, 1), tmp_path / "m", metadata={"classes": "[1]"})
    assert nn.load_metadata(tmp_path / "m") == {"classes": "[1]"}


def test_a_model_that_does_not_fit_lists_every_name(tmp_path):
    """F08."""
    nn.save(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)), tmp_path / "m")
    with pytest.raises(nn.StateError) as caught:
        nn.load_into(nn.Sequential(nn.Linear(4, 2), nn.ReLU(), nn.Linear(2, 1)), tmp_path / "m")

    for part in (
        "0.weight is (2, 3), here (2, 4)",
        "missing: 2.weight, 2.bias",
        "unexpected: ",
        "1.running_var",
        "1.num_batches_tracked",
    ):
        assert part in str(caught.value)
    assert nn.load_into(nn.Linear(3, 2), tmp_path / "m", strict=False).missing_keys == ["weight", "bias"]


class Trap:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("write", ["pickle", "npy"])
def test_loading_runs_nothing(tmp_path, write):
    """F06: a pickle that makes a folder is refused, and the folder is not there."""
    trap, path = tmp_path / "made", tmp_path / "m"
    if write == "pickle":
        path.write_bytes(pickle.dumps(Trap(str(trap))))
    else:
        with path.open("wb") as file:
            np.save(file, np.array([Trap(str(trap))], object), allow_pickle=True)

    with pytest.raises(nn.FileFormatError):
        nn.load(path)
    assert not trap.exists()


def test_a_file_says_nothing_of_devices_and_loads_without_one(tmp_path):
    """F08: CPU tensors, whatever they were saved from; no driver is imported."""
    nn.save(nn.Linear(2, 2), tmp_path / "m")
    assert {value.device for value in nn.load(tmp_path / "m").values()} == {"cpu:0"}
    assert b"cpu" not in (tmp_path / "m").read_bytes()
    with pytest.raises((vtl.UnavailableError, vtl.DeviceError)):
        nn.load(tmp_path / "m", device="nothing:0")


KILLED = """
import sys, time, os, signal
import numpy as np, vtl_core as vtl, vtl_nn as nn
from vtl_nn import weights_file
write = weights_file.write
def half(file, arrays, metadata):
    write(file, arrays, metadata)
    file.flush()
    file.truncate(file.tell() // 2)
    os.kill(os.getpid(), signal.SIGKILL)
weights_file.write = half
nn.save({"x": vtl.zeros(1000)}, sys.argv[1])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no kill -9")
def test_kill_9_half_way_through_a_save_keeps_the_old_file(tmp_path):
    """F05."""
    path = tmp_path / "m.safetensors"
    nn.save({"x": vtl.ones(3)}, path)
    result = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)

    assert result.returncode == -signal.SIGKILL
    assert nn.load(path)["x"].tolist() == [1, 1, 1]
    nn.save({"x": vtl.zeros(3)}, path)
    assert [p.name for p in tmp_path.iterdir()] == ["m.safetensors"]


def test_a_save_that_fails_keeps_the_old_file(tmp_path):
    """F05."""
    path = tmp_path / "m"
    nn.save({"x": vtl.ones(3)}, path)
    with pytest.raises(nn.FileFormatError, match="__metadata__"):
        nn.save({"__metadata__": vtl.zeros(3)}, path)
    with pytest.raises(OSError, match="no/folder"):
        nn.save({"x": vtl.zeros(3)}, tmp_path / "no/folder/m")

    assert nn.load(path)["x"].tolist() == [1, 1, 1]
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="absent"), warnings.catch_warnings():
        nn.load(tmp_path / "absent")


def test_what_is_no_tensor_is_named_with_the_place_for_it(tmp_path):
    optimizer = nn.optim.SGD(nn.Linear(2, 1).parameters(), lr=0.1)
    with pytest.raises(
        vtl.DTypeError, match=r"^save: 'state' is \{.*, no tensor; what optimizers.* goes into a nn\.Checkpointer$"
    ):
        nn.save(optimizer.state_dict(), tmp_path / "optimizer.safetensors")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "bool"])
def test_integers_in_a_file_do_not_pass_for_weights(tmp_path, dtype):
    """F08: quantized weights without their scale are other numbers; every name is listed, and nothing is changed."""
    layer = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    before = {name: value.numpy().copy() for name, value in layer.state_dict().items()}
    state = dict(layer.state_dict()) | {"0.bias": vtl.ones(2)}
    state |= {"0.weight": vtl.ones(2, 2).to(dtype=dtype), "1.weight": vtl.ones(2).to(dtype=dtype)}
    nn.save(state, tmp_path / "m.safetensors")

    with pytest.raises(nn.StateError, match=f"0.weight is {dtype}, here float32; 1.weight is {dtype}, here float32"):
        nn.load_into(layer, tmp_path / "m.safetensors")
    for name, value in layer.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), before[name])


def test_floats_in_a_file_do_not_pass_for_counts(tmp_path):
    """F08: a count of 2.5 would become 2; other widths of one kind are converted."""
    layer = nn.BatchNorm1d(2)
    nn.save(layer.state_dict() | {"num_batches_tracked": vtl.tensor(2.5)}, tmp_path / "m.safetensors")
    with pytest.raises(nn.StateError, match="num_batches_tracked is float32, here int64"):
        nn.load_into(layer, tmp_path / "m.safetensors")

    narrow = {
        name: value.half() if value.dtype.is_floating else value.int() for name, value in layer.state_dict().items()
    }
    nn.save(narrow, tmp_path / "m.safetensors")
    nn.load_into(layer, tmp_path / "m.safetensors")
    assert layer.running_var.tolist() == [1, 1]
    assert layer.running_var.dtype is vtl.float32
