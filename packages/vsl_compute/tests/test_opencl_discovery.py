"""Finding OpenCL devices on machines that this one is not: no loader, no driver, software only, many platforms."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import pytest

from vsl_compute.backends.opencl import backend as opencl_backend
from vsl_compute.backends.opencl import loader
from vsl_compute.backends.opencl.driver import OpenCLDriver, functions_of
from vsl_compute.errors import OutOfMemoryError, UnavailableError

opencl_driver = sys.modules[OpenCLDriver.__module__]  # the package's `driver` is the entry point
CPU, GPU, ACCELERATOR, CUSTOM = 2, 4, 8, 16


class ClError(Exception):
    pass


def machine(*platforms, error=None):
    """A module like pyopencl whose loader finds these platforms."""

    def get_platforms():
        if error:
            raise ClError(error)
        return list(platforms)

    types = SimpleNamespace(CPU=CPU, GPU=GPU, ACCELERATOR=ACCELERATOR, CUSTOM=CUSTOM)
    return SimpleNamespace(Error=ClError, get_platforms=get_platforms, device_type=types)


def platform(name, *devices, error=None):
    def get_devices():
        if error:
            raise ClError(error)
        return list(devices)

    return SimpleNamespace(name=name, version="OpenCL 3.0", get_devices=get_devices)


def device(name, type_=GPU, **changes):
    found = {
        "name": name, "type": type_, "host_unified_memory": False, "available": True, "compiler_available": True, "endian_little": True,
        "profile": "FULL_PROFILE", "version": "OpenCL 3.0 CUDA", "driver_version": "1.0", "extensions": "cl_khr_fp64", "double_fp_config": 63,
        "global_mem_size": 8 << 30,
    }  # fmt: skip
    return SimpleNamespace(**(found | changes))


POCL = platform("Portable Computing Language", device("pthread-EPYC", CPU, host_unified_memory=True))


@pytest.fixture
def on(monkeypatch):
    """A driver on a machine with these platforms."""

    def made(*platforms, **options):
        monkeypatch.setattr(loader, "pyopencl", lambda: machine(*platforms, **options))
        return OpenCLDriver()

    return made


def test_g11_discrete_comes_before_integrated_before_software(on):
    gpus = platform("Vendor", device("iGPU", host_unified_memory=True), device("dGPU"))
    infos = on(POCL, gpus).devices()
    assert [i.name for i in infos] == ["dGPU", "iGPU", "pthread-EPYC"]
    assert [i.kind for i in infos] == ["discrete", "integrated", "software"]
    assert [i.spec for i in infos] == ["opencl:0", "opencl:1", "opencl:2"]


def test_indices_do_not_depend_on_the_order_of_platforms(on):
    a, b = platform("A", device("a0"), device("a1")), platform("B", device("b0"))
    names = [i.name for i in on(a, b, POCL).devices()]
    assert [i.name for i in on(POCL, b, a).devices()] == names == ["a0", "a1", "b0", "pthread-EPYC"]


def test_software_alone_is_listed_as_software(on):
    (info,) = on(POCL).devices()
    assert info.kind == "software"
    assert info.driver == "Portable Computing Language 1.0"


def test_a_machine_without_a_driver_says_where_it_looked_and_what_helps(on):
    for found in (on(error="PLATFORM_NOT_FOUND_KHR"), on()):
        with pytest.raises(UnavailableError, match=r"opencl: no .*searched .*pip install 'vsl-compute\[pocl\]'"):
            found.devices()


@pytest.mark.parametrize(("said", "error", "remedy"), [
    ("Context failed: OUT_OF_HOST_MEMORY", OutOfMemoryError, "has no memory left to be opened .*end other processes"),
    ("Context failed: INVALID_PLATFORM", UnavailableError, "refuses to be opened .*install a driver"),
])  # fmt: skip
def test_a_device_that_cannot_be_opened_says_why_and_what_helps(on, monkeypatch, said, error, remedy):
    driver = on(POCL)

    def refuse(info, device):
        raise ClError(said)

    monkeypatch.setattr(opencl_backend, "OpenCLBackend", refuse)
    with pytest.raises(error, match=f"opencl:0: pthread-EPYC {remedy}"):
        driver.open(0)


def test_a_package_that_is_missing_is_named_with_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyopencl", None)
    monkeypatch.setattr(loader, "import_module", lambda name: (_ for _ in ()).throw(ModuleNotFoundError(name=name)))
    with pytest.raises(UnavailableError, match=r"pyopencl is not installed; run: .*vsl-compute\[opencl\]"):
        OpenCLDriver().devices()


@pytest.mark.parametrize(
    "error",
    [
        ImportError("libOpenCL.so.1: cannot open shared object file"),
        ModuleNotFoundError("No module named 'pyopencl._cl'", name="pyopencl._cl"),
        ModuleNotFoundError("No module named 'pytools'", name="pytools"),
    ],
    ids=["loader", "half", "dependency"],
)
def test_a_package_that_is_there_and_cannot_be_loaded_is_to_be_installed_anew(monkeypatch, error):
    monkeypatch.setitem(sys.modules, "pyopencl", None)
    monkeypatch.setattr(loader, "import_module", lambda name: (_ for _ in ()).throw(error))
    with pytest.raises(UnavailableError, match=r"pyopencl cannot be loaded \(.*pip install --force-reinstall pyopencl"):
        OpenCLDriver().devices()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"available": False}, "not available"),
        ({"compiler_available": False}, "no compiler"),
        ({"endian_little": False}, "big-endian"),
        ({"profile": "EMBEDDED_PROFILE"}, "embedded profile"),
        ({"version": "OpenCL 1.1 Mesa"}, "OpenCL 1.1, 1.2 is needed"),
        ({"version": "nonsense"}, "1.2 is needed"),
        ({"type": CUSTOM}, "custom device"),
    ],
)
def test_devices_that_cannot_be_used_are_kept_with_their_reasons(on, change, reason):
    found = on(platform("Vendor", device("odd", **change)), POCL)
    assert [i.name for i in found.devices()] == ["pthread-EPYC"]
    (told,) = found.unusable()
    assert told.startswith("odd on Vendor: ")
    assert reason in told
    with pytest.raises(UnavailableError, match=reason):
        on(platform("Vendor", device("odd", **change))).devices()


def test_a_platform_without_devices_does_not_hide_the_others(on):
    found = on(platform("Clover", error="DEVICE_NOT_FOUND"), POCL)
    assert len(found.devices()) == 1
    assert found.unusable() == ["Clover: has no device (DEVICE_NOT_FOUND)"]


def test_pocl_without_a_folder_for_its_cache_says_what_helps(on):
    """It then lists no device, and no error either."""
    with pytest.raises(UnavailableError, match=r"Portable Computing Language: has no device; .*set POCL_CACHE_DIR"):
        on(platform("Portable Computing Language")).devices()


@pytest.mark.parametrize("variable", ["POCL_CACHE_DIR", "XDG_CACHE_HOME", "HOME"])
def test_pocl_on_a_full_disk_is_refused_and_other_platforms_are_not(on, monkeypatch, tmp_path, variable):
    """It would abort the process at the first kernel; the folder need not be there yet."""
    for name in ("POCL_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, str(tmp_path / "new"))
    asked = []

    def usage(place):
        asked.append(place)
        return SimpleNamespace(free=left)

    monkeypatch.setattr(opencl_driver.shutil, "disk_usage", usage)
    left = 1 << 16
    found = on(platform("Vendor", device("dGPU")), POCL)
    assert [i.name for i in found.devices()] == ["dGPU"]
    assert asked == [tmp_path]
    (told,) = found.unusable()
    assert f"no room for compiled kernels below {tmp_path} " in told
    assert "set POCL_CACHE_DIR" in told
    with pytest.raises(UnavailableError, match="no room for compiled kernels"):
        on(POCL).devices()
    left = 1 << 30
    assert [i.name for i in on(POCL).devices()] == ["pthread-EPYC"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_of_a_process_that_has_looked_is_told_so_and_does_not_hang(on):
    """PoCL's threads stay in the parent; a child that opened a device would wait for them for ever."""
    driver = on(POCL)
    driver.devices()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            driver.open(0)
        except UnavailableError as error:
            code = 0 if "before this process was forked" in str(error) and "spawn" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(driver.devices()) == 1


def test_an_index_without_a_device_lists_what_there_is(on):
    with pytest.raises(
        UnavailableError, match=r"opencl:3: there is no such device; there are opencl:0 \(pthread-EPYC\)"
    ):
        on(POCL).open(3)


def test_float64_is_declared_only_where_the_device_has_it(on):
    poor = platform("Vendor", device("phone", extensions="cl_khr_fp16", double_fp_config=0))
    (info,) = on(poor).devices()
    assert "float64" not in info.dtypes
    assert {"float16", "bfloat16", "float32", "int64"} <= set(info.dtypes)


def test_g10_half_precision_needs_no_extension():
    """G10: float16 is stored as bits and computed in float32, so devices without cl_khr_fp16 have it too."""
    names = {d.name for d in functions_of(device("old", extensions="", double_fp_config=0))}
    assert names >= {"float16", "bfloat16"}


def fake_vendors(monkeypatch, tmp_path, *files, nvidia=True):
    vendors = tmp_path / "vendors"
    vendors.mkdir()
    for name, text in files:
        (vendors / name).write_text(text)
    monkeypatch.setattr(loader, "VENDORS", vendors)
    monkeypatch.setattr(loader, "_added", None)
    monkeypatch.setattr(loader.libraries, "refusal", lambda library: None if nvidia else "no such file")
    monkeypatch.setattr(loader, "find_spec", lambda name: None)
    monkeypatch.setattr(loader.sys, "platform", "linux")
    for name in loader.SET_BY_USER:
        monkeypatch.delenv(name, raising=False)


def test_nvidia_s_library_is_found_where_no_file_names_it(monkeypatch, tmp_path):
    fake_vendors(monkeypatch, tmp_path, ("pocl.icd", "libpocl.so.2\n"))
    loader._add_nvidia()
    made = loader._added
    assert loader.os.environ["OCL_ICD_VENDORS"] == str(made)
    assert sorted(file.read_text() for file in made.iterdir()) == ["libnvidia-opencl.so.1\n", "libpocl.so.2\n"]
    loader.loaded()
    assert "OCL_ICD_VENDORS" not in loader.os.environ
    assert not made.exists()


@pytest.mark.parametrize(
    ("files", "nvidia"), [((("nvidia.icd", "libnvidia-opencl.so.1"),), True), ((("pocl.icd", "libpocl.so.2"),), False)]
)
def test_nothing_is_added_where_a_file_names_it_or_it_is_not_there(monkeypatch, tmp_path, files, nvidia):
    fake_vendors(monkeypatch, tmp_path, *files, nvidia=nvidia)
    loader._add_nvidia()
    assert loader._added is None
    assert "OCL_ICD_VENDORS" not in loader.os.environ


def test_what_the_user_set_is_left_alone(monkeypatch, tmp_path):
    fake_vendors(monkeypatch, tmp_path)
    monkeypatch.setenv("OCL_ICD_VENDORS", "/somewhere")
    loader._add_nvidia()
    assert loader._added is None
    assert loader.searched() == "OCL_ICD_VENDORS=/somewhere"
