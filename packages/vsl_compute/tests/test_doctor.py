"""`vsl doctor` on machines that this one is not: each missing piece is named with the command that mends it."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from vsl_compute import cli, doctor, registry
from vsl_compute.backend import DeviceInfo
from vsl_compute.errors import UnavailableError


class Machine:
    """A driver that finds these devices, refuses those, or says why there is none."""

    def __init__(self, name, *devices, refused=(), reason=None):
        self.name, self.reason, self.refused = name, reason, refused
        self.infos = [
            DeviceInfo(f"{name}:{i}", name, i, title, kind, 8 << 30, ("float32",), "driver 1.0")
            for i, (title, kind) in enumerate(devices)
        ]

    def devices(self):
        if self.reason:
            raise UnavailableError(self.reason)
        return self.infos

    def unusable(self):
        return list(self.refused)


@pytest.fixture
def told(monkeypatch, tmp_path):
    """The findings of a backend on a machine with this driver."""
    monkeypatch.setattr(doctor, "PCI", tmp_path)

    def look(driver):
        monkeypatch.setitem(registry._drivers, driver.name, driver)
        return [(finding.state, finding.detail) for finding in doctor.findings() if finding.part == driver.name]

    return look


@pytest.mark.parametrize("name", ["cuda", "vulkan", "opencl"])
def test_an_absent_backend_is_told_with_its_driver_s_reason(told, name):
    """No package, no loader, no driver: the texts are the drivers' own, whose tests look for the command in each."""
    assert told(Machine(name, reason=f"{name}: no loader; apt install it")) == [
        ("absent", f"{name}: no loader; apt install it")
    ]


@pytest.mark.parametrize(
    ("name", "command"), [("vulkan", "apt install mesa-vulkan-drivers"), ("opencl", "apt install intel-opencl-icd")]
)
def test_a_software_device_alone_is_told_with_the_command_that_brings_a_gpu(told, name, command):
    ((state, detail),) = told(Machine(name, ("llvmpipe", "software")))
    assert state == "software"
    assert f"{name}:0 llvmpipe, software" in detail
    assert "slower than 'cpu'" in detail
    assert command in detail


def test_a_gpu_on_the_bus_names_its_maker(told, tmp_path):
    for place, kind, maker in (("0", "0x030000", "0x10de"), ("1", "0x038000", "0x1002"), ("2", "0x020000", "0x8086")):
        (tmp_path / place).mkdir()
        (tmp_path / place / "class").write_text(kind + "\n")
        (tmp_path / place / "vendor").write_text(maker + "\n")
    ((_, detail),) = told(Machine("vulkan", ("llvmpipe", "software")))
    assert "this machine has a GPU (AMD, NVIDIA): install the GPU's driver" in detail


def test_refused_devices_stand_beside_the_usable_ones_with_the_reason(told):
    found = told(
        Machine(
            "vulkan", ("dGPU", "discrete"), ("llvmpipe", "software"), refused=("Old One: has no timeline semaphores",)
        )
    )
    assert [state for state, _ in found] == ["ok", "ok", "refused"]
    assert found[2] == ("refused", "Old One: has no timeline semaphores")
    assert "8.0 GiB, driver 1.0" in found[0][1]


def test_a_driver_from_elsewhere_need_not_tell_what_it_refused(told):
    driver = Machine("vulkan", ("dGPU", "discrete"))
    plain = SimpleNamespace(name="vulkan", devices=driver.devices, open=None)
    assert [state for state, _ in told(plain)] == ["ok"]


def installed(monkeypatch, names):
    """Let these distributions be installed."""
    found = [SimpleNamespace(metadata={"Name": name}) for name in names]
    monkeypatch.setattr(doctor, "metadata", SimpleNamespace(distributions=lambda: found))


def test_two_cupy_wheels_are_broken_and_the_commands_leave_one(monkeypatch, capsys):
    names = ["numpy", "cupy-cuda12x", "cupy-cuda13x", None]
    installed(monkeypatch, names)
    assert cli.main(["doctor", "--json"]) == 1
    (row,) = [row for row in json.loads(capsys.readouterr().out) if row["part"] == "cupy"]
    assert row["state"] == "broken"
    assert "cupy-cuda12x and cupy-cuda13x shadow each other" in row["detail"]
    assert "pip uninstall -y cupy-cuda12x cupy-cuda13x" in row["detail"]
    assert "pip install cupy-cuda13x" in row["detail"]


def test_one_cupy_wheel_is_no_finding(monkeypatch):
    installed(monkeypatch, ["cupy-cuda12x"])
    assert [finding for finding in doctor.findings() if finding.part == "cupy"] == []


def test_what_is_absent_here_is_told_with_a_command():
    """Whatever this machine lacks, the text has something to type or to install."""
    for finding in doctor.findings():
        if finding.state == "absent":
            assert any(word in finding.detail for word in ("pip install", "apt install", "install")), finding
