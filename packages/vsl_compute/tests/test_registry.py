"""Finding and opening devices: specs, reasons, preference, and drivers of others."""

from __future__ import annotations

import subprocess
import sys
import warnings
from dataclasses import replace
from types import ModuleType

import pytest

import vsl_compute as vsl
from vsl_compute import cli, registry
from vsl_compute.backends.cpu import CPUBackend, CPUDriver


class Machine:
    """A driver with devices of given kinds; opening gives a CPU backend under its name."""

    def __init__(self, name, *kinds):
        self.name, self.kinds, self.opened = name, kinds, 0

    def devices(self):
        base = CPUDriver().devices()[0]
        return [
            replace(base, spec=f"{self.name}:{i}", backend=self.name, index=i, kind=kind)
            for i, kind in enumerate(self.kinds)
        ]

    def open(self, index):
        self.opened += 1
        return CPUBackend(self.devices()[index])


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """Each test sees a registry of its own."""
    monkeypatch.setattr(registry, "_drivers", {})
    monkeypatch.setattr(registry, "_opened", {})


def place(*machines):
    """Pretend that these drivers are the ones of their names."""
    for machine in machines:
        registry._drivers[machine.name] = machine


@pytest.mark.parametrize(
    ("machines", "chosen"),
    [
        ((Machine("vulkan", "software", "integrated", "discrete"),), "vulkan:2"),
        ((Machine("vulkan", "software", "integrated"),), "vulkan:1"),
        ((Machine("vulkan", "software"),), "cpu:0"),
        ((Machine("vulkan", "discrete"), Machine("cuda", "discrete")), "cuda:0"),
        ((Machine("opencl", "software", "discrete"), Machine("vulkan", "integrated")), "opencl:1"),
        ((), "cpu:0"),
    ],
)
def test_auto_prefers_discrete_then_integrated_and_never_software(machines, chosen):
    """G11: a software device is opened only when it is named."""
    place(*machines)
    assert vsl.get("auto").spec == chosen


@pytest.mark.parametrize("name", ["vulkan", "opencl"])
@pytest.mark.parametrize("ask", [vsl.ComputeContext, vsl.get], ids=["context", "get"])
def test_a_software_device_opens_when_named_with_one_warning(ask, name):
    """G11: whatever way it is asked for; what is done on it afterwards says nothing more."""
    place(Machine(name, "software"))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        ask(f"{name}:0")
        ask(name)
        vsl.get(f"{name}:0")
    (warning,) = said
    assert warning.category is UserWarning
    assert str(warning.message).startswith(f"{name}:0: ")
    assert "is a software device, slower than 'cpu'; 'vsl doctor' says" in str(warning.message)


@pytest.mark.parametrize("kind", ["discrete", "integrated"])
def test_a_gpu_opens_without_a_warning(kind):
    """G11."""
    place(Machine("vulkan", kind))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert vsl.get("vulkan").info.kind == kind


def test_a_command_says_a_warning_in_one_line(capsys, monkeypatch):
    """G11: `vsl validate` on a software device."""
    place(Machine("opencl", "software"))
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert cli.main(["validate", "--backend", "opencl", "--op", "tanh"]) == 0
    said = capsys.readouterr().err.splitlines()
    assert [line for line in said if "software device" in line] == said[:1]
    assert said[0].startswith("vsl: opencl:0: ")


def test_one_backend_a_spec_and_process():
    """A bare name is index 0."""
    machine = Machine("vulkan", "discrete", "discrete")
    place(machine)
    assert vsl.get("vulkan") is vsl.get("vulkan:0") is not vsl.get("vulkan:1")
    assert machine.opened == 2


@pytest.mark.parametrize("spec", ["", ":0", "cpu:", "cpu:x", "cpu:-1", "cpu:1.0", 3, None, "auto:1"])
def test_what_is_no_spec_is_a_device_error(spec):
    """The message shows a right one."""
    with pytest.raises(vsl.DeviceError, match=r"device .*(must be|no such)"):
        vsl.get(spec)


def test_an_unknown_name_lists_the_known_ones():
    """No backend is guessed."""
    with pytest.raises(vsl.DeviceError, match="no such backend; there are cpu, cuda, vulkan, opencl"):
        vsl.get("cud")


@pytest.mark.parametrize("name", ["cuda", "vulkan", "opencl"])
def test_a_backend_that_cannot_be_opened_says_why(name):
    """Typed, with a reason, and listed by `backends`."""
    reason = vsl.backends()[name]
    if reason is None:
        pytest.skip(f"{name} can be opened here")
    with pytest.raises(vsl.UnavailableError, match=name):
        vsl.get(name)


def test_a_missing_package_is_named_with_the_extra_that_brings_it(monkeypatch):
    """As when cupy is not installed."""

    def missing(name):
        raise ModuleNotFoundError("No module named 'cupy'", name="cupy")

    monkeypatch.setattr(registry.importlib, "import_module", missing)
    with pytest.raises(vsl.UnavailableError, match=r"'cupy'.*vsl-compute\[cuda12\]"):
        vsl.get("cuda")


def test_there_is_one_cpu():
    """cpu:1 is not the second core."""
    with pytest.raises(vsl.UnavailableError, match="one CPU"):
        vsl.get("cpu:1")


def test_a_strangers_driver_is_registered_and_opened():
    """And shows among the devices."""
    vsl.register(Machine("mine", "discrete"))
    assert vsl.get("mine").spec == "mine:0"
    assert "mine:0" in [d.spec for d in vsl.devices()]
    assert vsl.backends()["mine"] is None


def test_built_in_names_cannot_be_shadowed():
    """Nobody replaces the CPU unnoticed."""
    with pytest.raises(vsl.DeviceError, match="built-in"):
        vsl.register(Machine("cpu", "cpu"))


def test_registration_names_what_a_driver_lacks():
    """At once, not at first use."""
    broken = ModuleType("broken")
    broken.name = "broken"
    with pytest.raises(vsl.InterfaceError, match=r"devices\(\)"):
        vsl.register(broken)


def test_a_backend_of_another_interface_is_refused(monkeypatch):
    """The older one is to be upgraded."""
    machine = Machine("mine", "discrete")
    vsl.register(machine)
    monkeypatch.setattr(CPUBackend, "interface", (2, 0))
    with pytest.raises(vsl.InterfaceError, match="speaks interface"):
        vsl.get("mine")


def test_strict_auto_refuses_the_cpu():
    """D9: strict is enforced, with the reasons of the others."""
    with pytest.raises(vsl.UnavailableError, match="strict"):
        vsl.ComputeContext("auto", strict=True)
    place(Machine("vulkan", "discrete"))
    assert vsl.ComputeContext("auto", strict=True).backend.spec == "vulkan:0"


def test_import_loads_no_device_library():
    """Cheap by default."""
    code = "import sys, vsl_compute; print([m for m in ('cupy', 'vulkan', 'pyopencl', 'numba', 'torch') if m in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


def test_backends_is_a_function_and_a_folder():
    """In whatever order they are imported."""
    for first, second in (("import vsl_compute.backends.cpu as cpu", "import vsl_compute as vsl"),) * 2:
        code = f"{first}\n{second}\nassert vsl.backends()['cpu'] is None\nassert vsl.backends.cpu is cpu"
        subprocess.run([sys.executable, "-c", code], check=True)
        code = f"{second}\nassert vsl.backends()['cpu'] is None\n{first}\nassert vsl.backends()['cpu'] is None"
        subprocess.run([sys.executable, "-c", code], check=True)
