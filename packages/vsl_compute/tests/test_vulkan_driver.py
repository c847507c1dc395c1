"""Finding Vulkan devices, and what is said where there is none: no package, no loader, no driver, no device that will do."""

from __future__ import annotations

import builtins
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from vsl_compute import registry
from vsl_compute.backends.vulkan import api as vulkan_api
from vsl_compute.backends.vulkan.driver import VulkanDriver
from vsl_compute.backends.vulkan.features import Features
from vsl_compute.errors import (
    AttributeValueError,
    DeviceLostError,
    DeviceTimeoutError,
    OutOfMemoryError,
    UnavailableError,
    VslError,
)

vulkan_driver = sys.modules[VulkanDriver.__module__]  # the package's `driver` is the entry point


def importing(monkeypatch, error):
    """Let `import vulkan` raise this error."""
    real = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name == "vulkan":
            raise error
        return real(name, *args, **kwargs)

    monkeypatch.delitem(sys.modules, "vulkan", raising=False)
    monkeypatch.setattr(builtins, "__import__", refuse)


def test_without_the_package_the_command_that_brings_it_is_named(monkeypatch):
    importing(monkeypatch, ModuleNotFoundError("No module named 'vulkan'", name="vulkan"))
    with pytest.raises(UnavailableError, match=r"pip install 'vsl-compute\[vulkan\]'"):
        VulkanDriver().devices()


@pytest.mark.parametrize("name", ["_cffi_backend", "vulkan._vulkan", None])
def test_a_package_that_is_there_and_cannot_be_loaded_is_to_be_installed_anew(monkeypatch, name):
    """The extra's command would say that all is there."""
    error = ImportError("no libffi") if name is None else ModuleNotFoundError(f"No module named {name!r}", name=name)
    importing(monkeypatch, error)
    with pytest.raises(
        UnavailableError, match=r"vulkan cannot be loaded \(.*pip install --force-reinstall vulkan cffi"
    ):
        VulkanDriver().devices()


def test_without_a_loader_the_package_that_has_it_is_named(monkeypatch):
    """In the system's words: those of the Python package are about an SDK that nobody needs."""
    importing(monkeypatch, OSError("Cannot find Vulkan SDK version"))
    monkeypatch.setattr(vulkan_api.libraries, "refusal", lambda name: f"{name}: cannot open shared object file")
    monkeypatch.setattr(vulkan_api.sys, "platform", "linux")
    with pytest.raises(UnavailableError, match=r"no Vulkan loader \(libvulkan\.so\.1: cannot open.*libvulkan1"):
        VulkanDriver().devices()


class FakeLibrary:
    """The few calls of a probe, with as many devices as `devices` says; `code` is what vkCreateInstance gives."""

    def __init__(self, devices=(), code=0, version=1 << 22 | 3 << 12, listing=()):
        self.devices, self.code, self.version, self.listing = list(devices), code, version, list(listing)

    def vkEnumerateInstanceVersion(self, pointer):
        pointer[0] = self.version

    def vkCreateInstance(self, info, allocator, made):
        made[0] = "instance"
        return self.code

    def vkDestroyInstance(self, instance, allocator):
        self.destroyed = [*getattr(self, "destroyed", []), instance]

    def vkEnumeratePhysicalDevices(self, instance, count, array):
        count[0] = len(self.devices)
        for i, device in enumerate(self.devices if array is not None else ()):
            array[i] = device
        return self.listing.pop(0) if self.listing else 0

    def vkGetPhysicalDeviceProperties(self, device, properties):
        properties.__dict__.update(vars(device))

    def vkGetPhysicalDeviceMemoryProperties(self, device, properties):
        properties.memoryHeaps, properties.memoryHeapCount = [SimpleNamespace(size=1 << 30, flags=1)], 1


class FakeFFI:
    NULL = None

    def new(self, type_, *_):
        return [0] * 8 if "[" in type_ or type_.startswith(("uint32_t", "VkInstance ")) else SimpleNamespace(sType=0)

    def string(self, text):
        return text


def fake(monkeypatch, library, missing=()):
    constants = {"VK_ERROR_INITIALIZATION_FAILED": -3, "VK_ERROR_DEVICE_LOST": -4}
    names = ("APPLICATION_INFO", "INSTANCE_CREATE_INFO")
    constants |= {f"VK_STRUCTURE_TYPE_{name}": 1 for name in names}
    api = vulkan_api.Api(SimpleNamespace(ffi=FakeFFI(), lib=library, **constants))
    monkeypatch.setattr(vulkan_api, "load", lambda: api)
    found = Features(frozenset(), tuple(missing), frozenset())
    monkeypatch.setattr(vulkan_driver, "probe_features", lambda api, instance, physical, properties: found)
    return api


def device(name, kind):
    return SimpleNamespace(
        deviceName=name.encode(), deviceType=kind, driverVersion=1 << 22, apiVersion=1 << 22 | 3 << 12
    )


def test_without_a_driver_it_says_so(monkeypatch):
    fake(monkeypatch, FakeLibrary(code=-9))
    with pytest.raises(UnavailableError, match=r"loader is there, but no driver; .*mesa-vulkan-drivers"):
        VulkanDriver().devices()


def test_an_instance_that_fails_names_the_code(monkeypatch):
    fake(monkeypatch, FakeLibrary(code=-3))
    with pytest.raises(UnavailableError, match="VK_ERROR_INITIALIZATION_FAILED"):
        VulkanDriver().devices()


@pytest.mark.parametrize("code", [-9, -1])  # what the loader gives for a file that is not there, and for one of no JSON
def test_the_variable_that_hides_the_drivers_is_named(monkeypatch, code):
    fake(monkeypatch, FakeLibrary(code=code))
    monkeypatch.setenv("VK_ICD_FILENAMES", "/nowhere.json")
    with pytest.raises(UnavailableError, match=r"with VK_ICD_FILENAMES=/nowhere.json set; unset that, or install"):
        VulkanDriver().devices()


def test_threads_that_look_together_make_one_instance(monkeypatch):
    """The physical devices of one instance are of no use with another's."""
    fake(monkeypatch, FakeLibrary([device("dGPU", 2)]))
    real, made, driver = vulkan_api.create_instance, [], VulkanDriver()

    def slow(api):
        made.append(threading.get_ident())
        time.sleep(0.05)
        return real(api)

    monkeypatch.setattr(vulkan_api, "create_instance", slow)
    threads = [threading.Thread(target=driver.devices) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert [d.name for d in driver.devices()] == ["dGPU"]


def test_an_empty_variable_hides_the_drivers_too(monkeypatch):
    fake(monkeypatch, FakeLibrary(code=-9))
    monkeypatch.setenv("VK_ICD_FILENAMES", "")
    with pytest.raises(UnavailableError, match=r"with VK_ICD_FILENAMES= set; unset that, or install"):
        VulkanDriver().devices()


def test_a_file_that_should_have_led_to_a_driver_is_named(monkeypatch, tmp_path):
    fake(monkeypatch, FakeLibrary(code=-9))
    (tmp_path / "gpu.json").write_text("{")
    monkeypatch.setenv("VK_DRIVER_FILES", str(tmp_path))
    with pytest.raises(UnavailableError, match=r"gpu\.json is no description of a driver .* rm /"):
        VulkanDriver().devices()


def test_a_wrong_setting_is_not_laid_to_the_device(monkeypatch):
    """It says what is wrong with the setting, not that another process has the device."""

    def refused(*_):
        raise AttributeValueError("VSL_AUTOTUNE is 'yes'; it must be 0")

    fake(monkeypatch, FakeLibrary([device("dGPU", 2)]))
    monkeypatch.setattr(vulkan_driver, "VulkanBackend", refused)
    with pytest.raises(AttributeValueError, match=r"^VSL_AUTOTUNE is 'yes'"):
        VulkanDriver().open(0)


def test_a_list_of_devices_that_fails_is_unavailable_and_one_that_grew_is_read_again(monkeypatch):
    fake(monkeypatch, FakeLibrary([device("dGPU", 2)], listing=[0, -3]))
    with pytest.raises(UnavailableError, match=r"listing VkPhysicalDevice failed: VK_ERROR_INITIALIZATION_FAILED; "):
        VulkanDriver().devices()
    fake(monkeypatch, FakeLibrary([device("dGPU", 2)], listing=[0, 5, 0, 0]))
    assert [d.name for d in VulkanDriver().devices()] == ["dGPU"]


def test_a_name_that_is_no_text_can_be_shown(monkeypatch):
    odd = device("dGPU", 2)
    odd.deviceName = b"GPU \xff"
    fake(monkeypatch, FakeLibrary([odd]))
    assert [d.name for d in VulkanDriver().devices()] == ["GPU \ufffd"]


def test_a_device_that_refuses_to_be_opened_is_unavailable(monkeypatch):
    """As one in exclusive use: vkCreateDevice fails."""

    def refused(*_):
        raise VslError("vulkan: vkCreateDevice failed: VK_ERROR_INITIALIZATION_FAILED")

    fake(monkeypatch, FakeLibrary([device("dGPU", 2)]))
    monkeypatch.setattr(vulkan_driver, "VulkanBackend", refused)
    with pytest.raises(UnavailableError, match=r"vulkan:0: dGPU refuses to be opened \(.*INITIALIZATION_FAILED\)"):
        VulkanDriver().open(0)


def test_an_old_loader_is_refused_with_its_version(monkeypatch):
    fake(monkeypatch, FakeLibrary(version=1 << 22 | 1 << 12))
    with pytest.raises(UnavailableError, match=r"speaks 1\.1\.0"):
        VulkanDriver().devices()


def test_without_a_device_none_was_found(monkeypatch):
    fake(monkeypatch, FakeLibrary())
    with pytest.raises(UnavailableError, match="no device can be used"):
        VulkanDriver().devices()


def test_a_device_that_lacks_what_is_needed_is_refused_by_name_and_feature(monkeypatch):
    fake(monkeypatch, FakeLibrary([device("Old One", 2)]), missing=("timeline semaphores",))
    with pytest.raises(UnavailableError, match="Old One: has no timeline semaphores"):
        VulkanDriver().devices()


def test_g11_discrete_comes_before_integrated_before_software(monkeypatch):
    """G11: whatever order the loader lists them in; auto takes no software device."""
    fake(monkeypatch, FakeLibrary([device("llvmpipe", 4), device("iGPU", 1), device("dGPU", 2), device("dGPU two", 2)]))
    found = VulkanDriver().devices()
    assert [(d.spec, d.name, d.kind) for d in found] == [
        ("vulkan:0", "dGPU", "discrete"), ("vulkan:1", "dGPU two", "discrete"), ("vulkan:2", "iGPU", "integrated"),
        ("vulkan:3", "llvmpipe", "software"),
    ]  # fmt: skip
    assert [d.spec for d in VulkanDriver().devices()] == [d.spec for d in found]
    assert not any(kind == "software" for _, kind in registry.PREFERENCE)


def test_an_index_beyond_the_last_device_is_unavailable(monkeypatch):
    fake(monkeypatch, FakeLibrary([device("dGPU", 2)]))
    with pytest.raises(UnavailableError, match=r"vulkan:1: there is no such device; there are vulkan:0 \(dGPU\)"):
        VulkanDriver().open(1)


@pytest.mark.parametrize(
    ("code", "error"),
    [(-1, OutOfMemoryError), (-2, OutOfMemoryError), (-4, DeviceLostError), (2, DeviceTimeoutError), (-3, VslError)],
)
def test_result_codes_are_typed_errors_that_name_the_call(monkeypatch, code, error):
    api = fake(monkeypatch, FakeLibrary())
    with pytest.raises(error, match="vkSomething"):
        api.check(code, "vkSomething")
    api.check(0, "vkSomething")
