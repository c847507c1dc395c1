"""`vsl doctor` on machines that this one is not: each missing piece is named with the command that mends it."""

from __future__ import annotations

import errno
import json
import os
import sys
from types import SimpleNamespace

import pytest

from vsl_compute import cli, doctor, registry
from vsl_compute.backend import DeviceInfo
from vsl_compute.backends.cuda import loader as cuda_loader
from vsl_compute.backends.cuda.driver import CUDADriver
from vsl_compute.backends.opencl import loader
from vsl_compute.backends.shared import libraries
from vsl_compute.backends.vulkan import manifests
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


def test_a_driver_that_fails_takes_neither_the_report_nor_the_other_backends_down(told, capsys, monkeypatch):
    """Its own fault, of any kind: `auto`, `vsl devices` and the report go on, and the text says where to look."""

    class Faulty(Machine):
        def devices(self):
            raise AttributeError("no attribute\n'clGetPlatformIDs'")

        def open(self, index):
            return self.devices()[index]

    monkeypatch.setattr(registry, "_opened", {})
    ((state, detail),) = told(Faulty("vulkan"))
    assert state == "absent"
    assert "looking for devices failed (AttributeError: no attribute 'clGetPlatformIDs')" in detail
    assert "'vsl validate --backend vulkan --debug' shows where" in detail
    assert [device.spec for device in registry.devices() if device.backend == "cpu"] == ["cpu:0"]
    assert registry.normalize("auto")
    assert cli.main(["validate", "--backend", "vulkan"]) == 1
    said = capsys.readouterr().err
    assert said == "vsl: AttributeError: no attribute 'clGetPlatformIDs' (--debug shows where)\n"


def one(part):
    """The finding of this part."""
    (found,) = [finding for finding in doctor.findings() if finding.part == part]
    return found


def test_a_cache_that_is_kept_is_told_with_its_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("VSL_CACHE_DIR", str(tmp_path / "new" / "cache"))
    assert (one("cache").state, one("cache").detail) == ("ok", str(tmp_path / "new" / "cache"))
    assert list((tmp_path / "new" / "cache").iterdir()) == []
    monkeypatch.setenv("VSL_CACHE_DIR", "")
    assert one("cache").state == "ok"
    assert "nothing is kept" in one("cache").detail


@pytest.mark.parametrize("fault", ["a file", "below a file", "no room", "read-only"])
def test_a_cache_that_cannot_be_written_is_broken_and_the_command_mends_it(monkeypatch, tmp_path, fault):
    """Nothing else tells: without it all works, and each start compiles and searches anew."""
    place = tmp_path / "cache"
    if fault in ("a file", "below a file"):
        place.write_text("")
        place = place if fault == "a file" else place / "below"
    else:
        code = errno.ENOSPC if fault == "no room" else errno.EROFS

        def refuse(*_, **__):
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(doctor.cache.tempfile, "NamedTemporaryFile", refuse)
    monkeypatch.setenv("VSL_CACHE_DIR", str(place))
    found = one("cache")
    assert found.state == "broken"
    assert found.detail.startswith(f"{place}: ")
    assert "export VSL_CACHE_DIR=" in found.detail
    monkeypatch.setenv("VSL_CACHE_DIR", str(tmp_path / "other"))
    monkeypatch.undo()
    assert one("cache").state == "ok"


@pytest.mark.parametrize("value", ["2", "yes", "on", " ", "-1"])
def test_a_setting_that_means_nothing_is_broken_and_every_command_says_it_in_one_line(monkeypatch, capsys, value):
    monkeypatch.setenv("VSL_AUTOTUNE", value)
    assert one("settings").state == "broken"
    assert one("settings").detail.startswith(f"VSL_AUTOTUNE is {value!r}; it must be 0")
    assert "unset VSL_AUTOTUNE" in one("settings").detail
    assert cli.main(["doctor"]) == 1
    capsys.readouterr()
    for right in ("0", "1", ""):
        monkeypatch.setenv("VSL_AUTOTUNE", right)
        assert [finding for finding in doctor.findings() if finding.part == "settings"] == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("libnowhere.so.7", "names 'libnowhere.so.7', which cannot be loaded (libnowhere.so.7: cannot open"),
        ("/no/lib.so", "names '/no/lib.so', which cannot be loaded"),
        ("", "the name is empty"),
        ("a\0b", "which cannot be loaded"),
    ],
)
def test_an_icd_file_of_opencl_whose_driver_cannot_be_loaded_is_named(monkeypatch, tmp_path, text, said):
    """The loader passes over it, as over NVIDIA's file in a container without the library."""
    (tmp_path / "gpu.icd").write_text(text + "\n")
    for variable in loader.SET_BY_USER:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(loader, "VENDORS", tmp_path)
    monkeypatch.setattr(loader, "find_spec", lambda name: None)
    (found,) = loader.broken_files()
    assert found.startswith(f"{tmp_path / 'gpu.icd'} names ")
    assert said in found
    assert f"rm {tmp_path / 'gpu.icd'}" in found
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path / "gpu.icd"))  # a file, or a folder
    monkeypatch.setattr(loader, "VENDORS", tmp_path / "none")
    assert loader.broken_files() == [found]
    assert loader.remedy().startswith("unset OCL_ICD_VENDORS, or install")


def manifest(place, library):
    """A file by which Vulkan's loader finds a driver."""
    place.write_text(json.dumps({"file_format_version": "1.0.0", "ICD": {"library_path": library}}))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems do not keep such files")
def test_files_of_vulkan_that_lead_to_no_driver_are_named_and_the_others_are_not(monkeypatch, tmp_path):
    for variable in (*manifests.NAMED, "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS", "XDG_DATA_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_DATA_DIRS", str(tmp_path))
    folder = tmp_path / "vulkan" / "icd.d"
    folder.mkdir(parents=True)
    manifest(folder / "a.json", "libGLX_nowhere.so.0")
    manifest(folder / "b.json", "./beside.so")
    manifest(folder / "c.json", "libc.so.6")
    (folder / "d.json").write_text("{")
    (folder / "e.json").write_text("[]")
    told = [said for said in manifests.broken() if said.startswith(str(folder))]
    assert [said.split(" ")[0] for said in told] == [str(folder / f"{name}.json") for name in "deab"]
    assert "is no description of a driver (JSONDecodeError" in told[0]
    assert "names 'libGLX_nowhere.so.0', which cannot be loaded" in told[2]
    assert f"names '{folder / 'beside.so'}'" in told[3]
    monkeypatch.setenv("VK_ICD_FILENAMES", f"{folder / 'a.json'}:/nowhere.json")
    assert manifests.broken() == [told[2]]
    monkeypatch.setenv("VK_DRIVER_FILES", "")
    assert manifests.broken() == []


def test_a_place_that_may_not_be_looked_into_holds_nothing(monkeypatch, tmp_path):
    """Another user's home directory, as after sudo: the loaders find nothing there, and the report goes on."""

    def refuse(self, *_, **__):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))

    (tmp_path / "a.json").write_text("{")
    (tmp_path / "a.icd").write_text("libnowhere.so")
    for variable in (*manifests.NAMED, *loader.SET_BY_USER):
        monkeypatch.setenv(variable, str(tmp_path))
    assert len(manifests.broken()) == 1
    assert any(str(tmp_path) in said for said in loader.broken_files())
    monkeypatch.setattr(type(tmp_path), "is_dir", refuse)
    monkeypatch.setattr(type(tmp_path), "is_file", refuse)
    assert manifests.broken() == []
    assert loader.broken_files() == []
    assert doctor.findings()


def test_a_driver_that_cannot_tell_what_it_refused_does_not_stop_the_report(told):
    class Silent(Machine):
        def unusable(self):
            raise PermissionError("no entry")

    found = told(Silent("vulkan", ("dGPU", "discrete")))
    assert found[0][0] == "ok"
    assert found[1] == ("refused", "what it refused cannot be told (PermissionError: no entry)")


@pytest.mark.parametrize("said", ["x.so: wrong ELF class: ELFCLASS32"])
def test_a_driver_for_programs_of_32_bits_is_no_finding(monkeypatch, tmp_path, said):
    monkeypatch.setattr(libraries, "refusal", lambda library: said)
    assert libraries.broken([(tmp_path / "i686.json", "x.so")]) == []


def installed(monkeypatch, *names):
    """Let these wheels of CuPy be installed, and nobody have looked for devices."""

    def distribution(name):
        if name not in names:
            raise cuda_loader.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(cuda_loader.metadata, "distribution", distribution)
    monkeypatch.setitem(registry._drivers, "cuda", CUDADriver())
    monkeypatch.setattr(registry, "_opened", {})


def test_two_cupy_wheels_are_broken_and_the_commands_leave_one(monkeypatch, capsys):
    """One line, whose commands are those of the error that training on cuda ends in."""
    installed(monkeypatch, "cupy-cuda12x", "cupy-cuda13x")
    assert cli.main(["doctor", "--json"]) == 1
    (row,) = [row for row in json.loads(capsys.readouterr().out) if "cu" in row["part"]]
    assert row["state"] == "broken"
    assert "cupy-cuda12x and cupy-cuda13x are installed and shadow each other" in row["detail"]
    assert "pip uninstall -y cupy-cuda12x cupy-cuda13x" in row["detail"]
    assert "pip install 'vsl-compute[cuda12]'" in row["detail"]
    with pytest.raises(UnavailableError) as caught:
        registry.get("cuda")
    assert str(caught.value) == row["detail"]


def test_one_cupy_wheel_is_not_broken(monkeypatch):
    installed(monkeypatch, "cupy-cuda12x")
    assert {finding.state for finding in doctor.findings() if finding.part == "cuda"} <= {"ok", "absent", "refused"}


def test_what_is_absent_here_is_told_with_a_command():
    """Whatever this machine lacks, the text has something to type or to install."""
    for finding in doctor.findings():
        if finding.state == "absent":
            assert any(word in finding.detail for word in ("pip install", "apt install", "install")), finding
