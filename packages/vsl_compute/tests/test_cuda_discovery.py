"""Finding CUDA devices on machines that this one is not: no CuPy, two of them, no driver, an old one, no device, several."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace

import pytest

from vsl_compute.backends.cuda import loader
from vsl_compute.backends.cuda.driver import CUDADriver
from vsl_compute.backends.cuda.program import target
from vsl_compute.errors import UnavailableError


class CUDARuntimeError(RuntimeError):
    def __init__(self, status, words):
        super().__init__(words)
        self.status = status


def machine(*devices, error=None, driver=13000, runtime=12090, version="14.2.0"):
    """A module like cupy on a machine with these devices."""

    def count():
        if error is not None:
            raise error
        return len(devices)

    calls = SimpleNamespace(
        CUDARuntimeError=CUDARuntimeError, getDeviceCount=count, driverGetVersion=lambda: driver, runtimeGetVersion=lambda: runtime,
        getDeviceProperties=lambda index: devices[index],
    )  # fmt: skip
    return SimpleNamespace(__version__=version, cuda=SimpleNamespace(runtime=calls))


def device(name, **changes):
    found = {"name": name.encode(), "major": 9, "minor": 0, "integrated": 0, "totalGlobalMem": 1 << 36}
    return found | changes


@pytest.fixture
def on(monkeypatch):
    """A driver on such a machine, with nvmath-python and one wheel of CuPy unless told otherwise."""

    def made(*devices, wheels=("cupy-cuda12x",), nvmath=True, **options):
        monkeypatch.setattr(loader, "installed", lambda: list(wheels))
        monkeypatch.setattr(loader, "import_module", lambda name: machine(*devices, **options))
        found = import_module("vsl_compute.backends.cuda.driver")  # of the package, `driver` is the function
        monkeypatch.setattr(found, "find_spec", lambda name: object() if nvmath else None)
        return CUDADriver()

    return made


def raising(error):
    def import_module(name):
        raise error

    return import_module


def test_d04_devices_are_listed_with_their_properties(on):
    """D4: count, name and properties, in the order of the runtime, which CUDA_VISIBLE_DEVICES decides."""
    first, second = on(device("H200"), device("Orin", integrated=1, totalGlobalMem=1 << 34)).devices()
    assert (first.spec, first.name, first.kind, first.memory_bytes) == ("cuda:0", "H200", "discrete", 1 << 36)
    assert (second.spec, second.index, second.kind) == ("cuda:1", 1, "integrated")
    assert first.driver == "CUDA 13.0, CuPy 14.2.0"
    assert {"float16", "bfloat16", "float64", "uint64", "bool"} <= set(first.dtypes)


def test_a_device_that_is_too_old_keeps_its_number_and_says_why(on):
    driver = on(device("Old", major=6, minor=1), device("New"))
    assert [d.spec for d in driver.devices()] == ["cuda:1"]
    assert driver.unusable() == ["Old: its compute capability is 6.1, 7.0 is needed"]
    with pytest.raises(UnavailableError, match=r"no usable device; Old: .*6\.1"):
        on(device("Old", major=6, minor=1)).devices()


def test_a_wrong_index_lists_the_devices_that_there_are(on):
    with pytest.raises(
        UnavailableError, match=r"cuda:7: there is no such device; there are cuda:0 \(A\), cuda:1 \(B\)"
    ):
        on(device("A"), device("B")).open(7)


def test_no_cupy_names_the_command(on, monkeypatch):
    driver = on()
    monkeypatch.setattr(loader, "import_module", raising(ModuleNotFoundError("No module named 'cupy'", name="cupy")))
    with pytest.raises(
        UnavailableError, match=r"cupy is not installed; run: python -m pip install 'vsl-compute\[cuda12\]'"
    ):
        driver.devices()


def test_cupy_without_a_toolkit_names_the_extra_that_brings_one(on, monkeypatch):
    driver = on()
    monkeypatch.setattr(loader, "import_module", raising(ImportError("libnvrtc.so.12: cannot open shared object file")))
    with pytest.raises(UnavailableError, match=r"cannot be loaded \(libnvrtc.*\[cuda12-ctk\]"):
        driver.devices()


def test_two_wheels_of_cupy_are_named_with_the_command(on):
    with pytest.raises(
        UnavailableError,
        match=r"cupy-cuda12x and cupy-cuda13x .* shadow each other.*uninstall -y cupy-cuda12x cupy-cuda13x",
    ):
        on(wheels=("cupy-cuda12x", "cupy-cuda13x")).devices()


def test_an_old_cupy_is_refused(on):
    with pytest.raises(UnavailableError, match=r"CuPy 13\.6\.0 is older than 14"):
        on(device("A"), version="13.6.0").devices()


def test_nvmath_is_named_where_it_is_missing(on):
    with pytest.raises(UnavailableError, match=r"nvmath-python.* is not installed; run: "):
        on(device("A"), nvmath=False).devices()


def test_no_driver_is_told_from_an_old_one(on):
    insufficient = CUDARuntimeError(35, "cudaErrorInsufficientDriver: CUDA driver version is insufficient")
    with pytest.raises(UnavailableError, match=r"no driver found .*install NVIDIA's driver"):
        on(error=insufficient, driver=0).devices()
    with pytest.raises(
        UnavailableError, match=r"the driver knows CUDA 11\.4, CuPy is built for 12\.9; update the driver"
    ):
        on(error=insufficient, driver=11040).devices()


def test_no_device_says_what_hides_them(on, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    for found in (on(), on(error=CUDARuntimeError(100, "cudaErrorNoDevice"))):
        with pytest.raises(UnavailableError, match="lists no device; CUDA_VISIBLE_DEVICES='' leaves none visible"):
            found.devices()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    with pytest.raises(UnavailableError, match="lists no device; install"):
        on().devices()


def test_a_driver_that_refuses_and_a_runtime_that_is_missing_are_said(on):
    with pytest.raises(UnavailableError, match=r"the driver refuses \(cudaErrorSystemNotReady"):
        on(error=CUDARuntimeError(802, "cudaErrorSystemNotReady: system not yet initialized")).devices()
    with pytest.raises(UnavailableError, match=r"runtime cannot be loaded \(Failed to load libcudart"):
        on(error=RuntimeError("Failed to load libcudart.so.12\nand more")).devices()


def test_nvrtc_older_than_the_device_compiles_for_the_newest_it_knows():
    assert target((9, 0), (80, 86, 90, 100)) == "sm_90"
    assert target((12, 1), (80, 90, 100)) == "compute_100"
    assert target((8, 9), (70, 80, 90)) == "compute_80"
