"""Rows A2, A18 to A20, B5 to B9 of the roadmap: the environment's switches, what they mean and what happens without a device."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from itertools import product

import numpy as np
import pytest

import vtl_core as vtl
import vtl_nn as nn
from vsl_compute import registry
from vtl_core.autograd import node

SUB_SWITCHES = ("VTL_GPU_ACTIVATIONS", "VTL_CUDA_BACKWARD", "VTL_CUDA_OPTIMIZER")
COMBINATIONS = list(product("01", repeat=3))
STAGES = ("forward", "activations", "backward", "optimizer")


def placement_of(environment, **switches):
    environment(**switches)
    return vtl.Placement.from_environment()


def stages(placement):
    return {name for name in STAGES if getattr(placement, name) != "cpu:0"}


# what they say
def test_a18_each_switch_moves_its_own_stage(environment):
    """A18: the variable and the stage it moves, in every combination."""
    moves = dict(zip(SUB_SWITCHES, ("activations", "backward", "optimizer"), strict=True))
    for values in COMBINATIONS:
        switches = dict(zip(SUB_SWITCHES, values, strict=True))
        placement = placement_of(environment, VTL_USE_CUDA="1", **switches)

        assert stages(placement) == {"forward"} | {moves[name] for name, value in switches.items() if value == "1"}
        assert placement.parameters == "cpu:0"
        assert placement.staged_device == "cuda:0"
        assert stages(placement_of(environment, **switches)) == set()  # without VTL_USE_CUDA they do nothing


@pytest.mark.parametrize("name", ["VTL_USE_CUDA", "VTL_USE_VULKAN", "VTL_USE_OPENCL"])
@pytest.mark.parametrize("value", ["0", "", "true", "yes", "2", "on", " 1", "1 "])
def test_a18_only_1_is_on(environment, name, value):
    assert stages(placement_of(environment, **{name: value})) == set()


@pytest.mark.parametrize("value", ["0", "", "true", "2"])
def test_a18_only_1_is_on_for_the_others_too(environment, value):
    switches = dict.fromkeys(SUB_SWITCHES, value)
    placement = placement_of(environment, VTL_USE_CUDA="1", VTL_BACKEND_STRICT=value, **switches)

    assert stages(placement) == {"forward"}
    assert not placement.strict
    assert placement_of(environment, VTL_USE_CUDA="1", VTL_BACKEND_STRICT="1").strict


@pytest.mark.parametrize("name", ["vulkan", "opencl"])
def test_a18_vulkan_and_opencl_move_all_stages_and_keep_nothing(environment, name):
    placement = placement_of(environment, **{f"VTL_USE_{name.upper()}": "1"}, **dict.fromkeys(SUB_SWITCHES, "1"))

    assert stages(placement) == {"forward", "backward", "optimizer"}
    assert placement.gradients == "cpu:0"
    assert placement.staged_device == f"{name}:0"


@pytest.mark.parametrize("pair", [("CUDA", "VULKAN"), ("VULKAN", "OPENCL"), ("CUDA", "OPENCL")])
def test_two_devices_at_once_are_refused(environment, pair):
    environment(**{f"VTL_USE_{name}": "1" for name in pair})

    with pytest.raises(vtl.AttributeValueError, match=f"VTL_USE_{pair[0]}=1 and VTL_USE_{pair[1]}=1.*unset"):
        vtl.Placement.from_environment()


def test_an_explicit_device_wins_over_vtl_backend_and_that_over_vtl_use(environment, stand_in):
    for name in ("cuda", "opencl", "vulkan"):
        stand_in(name)
    environment(VTL_BACKEND="opencl", VTL_USE_CUDA="1")

    assert vtl.Context("vulkan").device == "vulkan:0"
    assert vtl.Context().device == "opencl:0"
    assert vtl.Context().placement.staged_device is None
    environment(VTL_USE_CUDA="1")
    assert (vtl.Context().device, vtl.Context().placement.staged_device) == ("cpu:0", "cuda:0")
    assert vtl.Context("cpu").placement.staged_device is None
    environment(VTL_BACKEND="cpu", VTL_USE_CUDA="1")
    assert vtl.Context().placement.staged_device is None


@pytest.mark.parametrize(
    ("stages", "error", "words"),
    [
        ({"forward": "cuda", "backward": "vulkan"}, vtl.AttributeValueError, "stages on cuda:0 and vulkan:0"),
        ({"activations": "cuda"}, vtl.AttributeValueError, "activations='cuda:0', but forward='cpu'"),
        ({"forward": "cuda", "gradients": "cuda"}, vtl.AttributeValueError, "gradients='cuda:0', but backward='cpu'"),
        ({"parameters": "cuda", "forward": "cuda"}, vtl.AttributeValueError, "everything is there"),
        ({"forward": "cuda:x"}, vtl.DeviceError, "must be 'auto' or name"),
        ({"forward": None}, vtl.DeviceError, "must be a device spec"),
    ],
    ids=str,
)
def test_a_placement_that_makes_no_sense_is_refused_in_one_line(stages, error, words):
    with pytest.raises(error, match=words) as caught:
        vtl.Placement(**stages)
    assert "\n" not in str(caught.value)


def test_a_context_is_on_one_device_or_placed(stand_in):
    stand_in("cuda")
    with pytest.raises(vtl.AttributeValueError, match="give one of them"):
        vtl.Context("cuda", vtl.Placement(forward="cuda"))
    assert vtl.Context("cpu", vtl.Placement(forward="cuda")).device == "cpu:0"
    assert repr(vtl.Context(placement=vtl.Placement(forward="cuda"))).startswith(
        "Context(placement=Placement(parameters='cpu:0', forward='cuda:0'"
    )


# without a device
class Absent:
    """A backend whose package is there and whose device is not."""

    name = "cuda"

    def devices(self):
        raise vtl.UnavailableError("cuda: no NVIDIA driver; install one from nvidia.com")

    def open(self, index):
        return self.devices()


@pytest.fixture(params=["not installed", "no device"])
def without(request, monkeypatch):
    """A machine without CUDA: A19, or A20."""
    for spec in ("cuda", "cuda:0"):
        monkeypatch.delitem(registry._opened, spec, raising=False)
    if request.param == "no device":
        monkeypatch.setitem(registry._drivers, "cuda", Absent())
        return "no NVIDIA driver"
    monkeypatch.delitem(registry._drivers, "cuda", raising=False)
    real = registry.importlib.import_module

    def without_cupy(name, *rest):
        if name.endswith("backends.cuda"):
            raise ModuleNotFoundError("No module named 'cupy'", name="cupy")
        return real(name, *rest)

    monkeypatch.setattr(registry.importlib, "import_module", without_cupy)
    return "pip install"


def tiny(dtype):
    vtl.manual_seed(3)
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.2),
        nn.Linear(36, 8), nn.Sigmoid(), nn.Linear(8, 5),
    ).to(dtype=dtype)  # fmt: skip


def batch(step, dtype):
    generator = np.random.default_rng(step)
    images = generator.normal(size=(6, 2, 6, 6))
    return vtl.tensor(images, dtype=dtype), vtl.tensor(generator.integers(0, 5, 6))


def train(steps, dtype=vtl.float64, load=None):
    """Losses, and each step's weights; `load` are weights to start each step from."""
    model = tiny(dtype)
    stepper = nn.optim.Adam(model.parameters(), lr=5e-3)
    losses, states = [], []
    for step in range(steps):
        if load is not None:
            model.load_state_dict(load[step])
        states.append({name: value.numpy().copy() for name, value in model.state_dict().items()})
        images, labels = batch(step, dtype)
        stepper.zero_grad()
        (loss := nn.functional.cross_entropy(model(images), labels)).backward()
        stepper.step()
        losses.append(loss.item())
    return losses, states


def test_a19_a20_without_a_device_the_cpu_trains_with_one_warning(environment, without):
    """A19, A20: the same numbers."""
    wanted, _ = train(3)
    environment(VTL_USE_CUDA="1", VTL_CUDA_OPTIMIZER="1")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        session = vtl.Context().attach_session()
        got, _ = train(3)
        session.close()

    assert len(caught) == 1
    assert str(caught[0].message).startswith("VTL_USE_CUDA=1 cannot be used, going on on the CPU: ")
    assert without in str(caught[0].message)
    assert got == wanted
    assert session.placement.staged_device is None


def test_a20_strict_refuses(environment, without):
    for switches in ({"VTL_USE_CUDA": "1"}, {"VTL_BACKEND": "cuda"}):
        environment(VTL_BACKEND_STRICT="1", **switches)
        before = node.stage
        with pytest.raises(vtl.UnavailableError, match=without):
            vtl.Context().attach_session()
        assert node.stage is before


def test_a20_vtl_backend_falls_back_with_one_warning(environment, without):
    environment(VTL_BACKEND="cuda")
    with pytest.warns(UserWarning, match="VTL_BACKEND=cuda cannot be used, going on on the CPU: ") as caught:
        assert vtl.Context().device == "cpu:0"
    assert len(caught) == 1


def test_an_explicit_placement_never_falls_back(environment, without):
    with pytest.raises(vtl.UnavailableError, match=without):
        vtl.Context(placement=vtl.Placement(forward="cuda")).attach_session()
    with pytest.raises(vtl.UnavailableError, match=without):
        vtl.Context("cuda")


class Untouchable:
    """A driver of which nobody may ask anything."""

    def __init__(self, name):
        self.name = name

    def devices(self):
        raise AssertionError(f"{self.name} was touched")

    def open(self, index):
        self.devices()


@pytest.mark.parametrize("value", [None, "0", "true"])
def test_a02_without_the_switch_the_driver_is_not_touched(environment, monkeypatch, value):
    """A2: it is not even asked what there is; the sub-switches alone change nothing of that."""
    for name in ("cuda", "vulkan", "opencl"):
        monkeypatch.setitem(registry._drivers, name, Untouchable(name))
        for spec in (name, f"{name}:0"):
            monkeypatch.delitem(registry._opened, spec, raising=False)
    switches = dict.fromkeys(("VTL_USE_CUDA", "VTL_USE_VULKAN", "VTL_USE_OPENCL"), value) if value else {}
    environment(VTL_GPU_ACTIVATIONS="1", VTL_CUDA_BACKWARD="1", VTL_CUDA_OPTIMIZER="1", **switches)
    with vtl.Context().attach_session():
        train(1)


# the same losses
@pytest.fixture(scope="module")
def plain():
    """Fifty steps on the CPU in float64, thirty in float32."""
    return {vtl.float64: train(50), vtl.float32: train(30, vtl.float32)}


@pytest.mark.parametrize("values", COMBINATIONS, ids="".join)
def test_b05_b08_every_combination_of_switches_gives_the_cpu_s_losses(environment, device, stand_in, plain, values):
    """B5 to B8: float64 to 1e-9 over 50 steps, float32 each step to 1e-5 from equal weights; on CUDA, or on its stand-in."""
    if device not in ("cpu", "cuda"):
        pytest.skip(f"{device} has one switch: test_b09")
    if device == "cpu":
        stand_in("cuda")
    environment(VTL_USE_CUDA="1", **dict(zip(SUB_SWITCHES, values, strict=True)))
    with vtl.Context().attach_session() as session:
        losses, _ = train(50)
        assert session.transfers().bytes_to_device > 0
        np.testing.assert_allclose(losses, plain[vtl.float64][0], rtol=1e-9)
        wanted, states = plain[vtl.float32]
        losses, _ = train(30, vtl.float32, load=states)
        np.testing.assert_allclose(losses, wanted, rtol=1e-5)


def test_b09_a_sequential_model_trains_under_its_switch_on_every_device(environment, device, plain):
    """B9, A22 to A27: VTL_USE_VULKAN=1 and its like, on the device itself."""
    if device == "cpu":
        pytest.skip("the CPU has no switch; the stand-in runs every combination above")
    environment(**{f"VTL_USE_{device.upper()}": "1"})
    with vtl.Context().attach_session() as session:
        losses, _ = train(12)
        np.testing.assert_allclose(losses, plain[vtl.float64][0][:12], rtol=1e-9)
        losses, _ = train(12, vtl.float32, load=plain[vtl.float32][1])
        np.testing.assert_allclose(losses, plain[vtl.float32][0][:12], rtol=1e-5)
        assert session.transfers().bytes_to_device > 0


# the environment of a process
SCRIPT = """
import sys, warnings
sys.path.insert(0, {tests!r})
from conftest import StandInDriver
from vsl_compute import registry
if {device}:
    registry._drivers["cuda"] = StandInDriver("cuda")
else:
    class Absent(StandInDriver):
        def open(self, index):
            import vtl_core
            raise vtl_core.UnavailableError("cuda: no driver")
    registry._drivers["cuda"] = Absent("cuda")
import vtl_core as vtl, vtl_nn as nn
vtl.manual_seed(0)
layer = nn.Linear(3, 2)
loss = layer(vtl.ones(2, 3)).square().sum()
loss.backward()
nn.optim.Adam(layer.parameters()).step()
backend = registry._opened.get("cuda:0")
print(repr(loss.item()), len(backend.launched) if backend else 0)
"""


def ran(device, **switches):
    """Loss and number of launches of a script that knows nothing of sessions; and what it wrote to stderr."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("VTL_")} | switches
    script = SCRIPT.format(tests=os.path.dirname(__file__), device=device)  # noqa: PTH120 - it goes into a text
    done = subprocess.run([sys.executable, "-c", script], env=variables, capture_output=True, text=True, check=False)
    return done.stdout.split(), done.stderr, done.returncode


def test_a18_a_script_that_knows_nothing_of_sessions_obeys_the_environment():
    """The first op opens the session: with a device, without one, and strictly."""
    (plain, none), _, _ = ran(True)
    (staged, launches), _, _ = ran(True, VTL_USE_CUDA="1", VTL_CUDA_BACKWARD="1", VTL_CUDA_OPTIMIZER="1")
    assert none == "0"
    assert int(launches) > 8
    assert float(staged) == pytest.approx(float(plain), rel=1e-5)
    (fallen, none), stderr, _ = ran(False, VTL_USE_CUDA="1")
    assert (fallen, none) == (plain, "0")
    assert stderr.count("VTL_USE_CUDA=1 cannot be used, going on on the CPU: cuda: no driver") == 1
    _, stderr, code = ran(False, VTL_USE_CUDA="1", VTL_BACKEND_STRICT="1")
    assert code == 1
    assert "UnavailableError: cuda: no driver" in stderr


def test_vtl_train_works_under_the_switches(stand_in, environment, capsys):
    """The command trains staged, says where, and learns what it learns on the CPU."""
    from vtl_nn.cli import main

    device = stand_in("cuda")
    small = ["train", "shapes", "--subset", "48", "--epochs", "1", "--batch-size", "16"]
    assert main([*small, "--device", "cpu"]) == 0
    plain = capsys.readouterr().out
    environment(VTL_USE_CUDA="1", VTL_GPU_ACTIVATIONS="1", VTL_CUDA_BACKWARD="1", VTL_CUDA_OPTIMIZER="1")
    assert main([*small, "--device", "cpu"]) == 0  # an explicit device wins
    assert device.launched == []
    assert capsys.readouterr().out.splitlines()[0] == plain.splitlines()[0]
    assert main(small) == 0
    staged = capsys.readouterr()
    assert "on cpu:0 (forward, backward, optimizer on cuda:0)" in staged.out
    assert staged.err == ""
    assert "update" in device.launched

    def loss(out):
        return float(out.splitlines()[1].split()[3])

    assert loss(staged.out) == pytest.approx(loss(plain), rel=1e-3)
