"""Row D17: what `vsl.devices()` lists is what the machine's drivers count, each with its properties."""

from __future__ import annotations

import pytest

import vsl_compute as vsl
from vsl_compute import registry


def _opencl():
    """(names, bytes) of every device of every platform, as pyopencl lists them."""
    import pyopencl

    found = [d for platform in pyopencl.get_platforms() for d in platform.get_devices()]
    return [(d.name.strip(), d.global_mem_size) for d in found]


def _vulkan():
    """(names, bytes of the largest heap) of every physical device, through the binding's own functions."""
    import vulkan as vk

    info = vk.VkApplicationInfo(pApplicationName="count", applicationVersion=1, apiVersion=vk.VK_MAKE_VERSION(1, 2, 0))
    instance = vk.vkCreateInstance(vk.VkInstanceCreateInfo(pApplicationInfo=info), None)
    try:
        found = []
        for physical in vk.vkEnumeratePhysicalDevices(instance):
            heaps = vk.vkGetPhysicalDeviceMemoryProperties(physical)
            sizes = [heaps.memoryHeaps[i].size for i in range(heaps.memoryHeapCount)]
            found.append((vk.vkGetPhysicalDeviceProperties(physical).deviceName, max(sizes)))
        return found
    finally:
        vk.vkDestroyInstance(instance, None)


def _cuda():
    from cupy.cuda import runtime

    found = map(runtime.getDeviceProperties, range(runtime.getDeviceCount()))
    return [(properties["name"].decode(), properties["totalGlobalMem"]) for properties in found]


COUNTED = {"opencl": _opencl, "vulkan": _vulkan, "cuda": _cuda}


def test_d17_the_list_is_what_the_driver_counts_with_properties(backend_name):
    """Every device of the driver is listed, or kept with the reason why it cannot be used."""
    if backend_name not in COUNTED:
        pytest.skip("the CPU is one device, and has no driver to count it")
    listed = [d for d in vsl.devices() if d.backend == backend_name]
    told = registry.driver(backend_name).unusable()
    refused = [
        said for said in told if ": has no device" not in said and not said.startswith("/")
    ]  # platforms, and files
    counted = COUNTED[backend_name]()

    assert len(listed) + len(refused) == len(counted)
    assert {d.name for d in listed} <= {name for name, _ in counted}
    assert [d.spec for d in listed] == [f"{backend_name}:{d.index}" for d in listed]
    assert len({d.index for d in listed}) == len(listed)
    for device in listed:
        assert device.kind in ("discrete", "integrated", "software")
        assert device.memory_bytes in {nbytes for name, nbytes in counted if name == device.name}
        assert {"float32", "int32", "bool"} <= set(device.dtypes)
        assert device.driver
