"""VulkanDriver: finds devices, says why others cannot be used, and opens one.

Order: discrete, integrated, software; within a kind as the loader lists them, which is stable per driver. Software
devices are listed, so that a spec can name them; `auto` never takes one.
"""

from __future__ import annotations

import os
from typing import Any

from ... import locks
from ...backend import DeviceInfo
from ...errors import AttributeValueError, UnavailableError, VslError
from . import api as vulkan_api
from . import manifests
from .api import DRIVERS, Api, version_text
from .backend import VulkanBackend
from .features import Features, probe_features

KINDS = {
    1: "integrated",
    2: "discrete",
    3: "discrete",
    4: "software",
}  # VkPhysicalDeviceType; 3 is a GPU given to a virtual machine
ORDER = ("discrete", "integrated", "software")


class VulkanDriver:
    """Finds and opens Vulkan devices; probes once a process."""

    name = "vulkan"

    def __init__(self) -> None:
        self._lock = locks.lock()
        self._process = 0
        self._found: list[tuple[DeviceInfo, Any, Features]] = []
        self._unusable: list[str] = []

    def devices(self) -> list[DeviceInfo]:
        return [info for info, _, _ in self._probe()]

    def unusable(self) -> list[str]:
        """Devices that were found and files of drivers that cannot be used, each with its reason; no device before the first look."""
        return [*self._unusable, *manifests.broken()]

    def open(self, index: int) -> VulkanBackend:
        found = self._probe()
        if not 0 <= index < len(found):
            names = ", ".join(f"{info.spec} ({info.name})" for info, _, _ in found)
            raise UnavailableError(f"vulkan:{index}: there is no such device; there are {names}")
        info, physical, features = found[index]
        try:
            return VulkanBackend(info, self.api, self.instance, physical, features)
        except AttributeValueError:  # a setting of the user's
            raise
        except VslError as error:
            raise UnavailableError(
                f"vulkan:{index}: {info.name} refuses to be opened ({error}); another process may have it, or its driver is broken: {DRIVERS}"
            ) from error

    def _probe(self) -> list[tuple[DeviceInfo, Any, Features]]:
        with self._lock:  # a physical device belongs to its instance: two threads must not make two
            return self._found if self._process == os.getpid() else self._look()

    def _look(self) -> list[tuple[DeviceInfo, Any, Features]]:
        self.api = vulkan_api.load()
        self.instance = vulkan_api.create_instance(self.api)  # a child made by fork needs its own
        try:
            self._found = self._usable()
        except BaseException:
            self.api.lib.vkDestroyInstance(self.instance, self.api.ffi.NULL)
            raise
        self._process = os.getpid()
        return self._found

    def _usable(self) -> list[tuple[DeviceInfo, Any, Features]]:
        api, usable = self.api, []
        self._unusable = []
        try:
            physical = api.listed(api.lib.vkEnumeratePhysicalDevices, "VkPhysicalDevice", self.instance)
        except VslError as error:
            raise UnavailableError(f"{error}; {DRIVERS}") from error
        for held in physical:
            properties = api.ffi.new("VkPhysicalDeviceProperties *")
            api.lib.vkGetPhysicalDeviceProperties(held.value, properties)
            name = api.ffi.string(properties.deviceName).decode(errors="replace")
            features = probe_features(api, self.instance, held.value, properties)
            if features.missing:
                self._unusable.append(f"{name}: has no {', '.join(features.missing)}")
            else:
                usable.append((KINDS.get(properties.deviceType, "software"), name, held, features, properties))
        if not usable:
            raise UnavailableError(
                f"vulkan: no device can be used ({'; '.join(self.unusable()) or 'none was found'}); {DRIVERS}"
            )
        usable.sort(key=lambda entry: ORDER.index(entry[0]))
        found = []
        for index, (kind, name, held, features, properties) in enumerate(usable):
            driver = f"{version_text(properties.driverVersion)}, Vulkan {version_text(properties.apiVersion)}"
            info = DeviceInfo(f"vulkan:{index}", "vulkan", index, name, kind, _memory(api, held.value),
                              tuple(d.name for d in features.functions()), driver)  # fmt: skip
            found.append((info, held.value, features))
        return found


def _memory(api: Api, physical: Any) -> int:
    """Bytes of the largest heap of the device's own."""
    properties = api.ffi.new("VkPhysicalDeviceMemoryProperties *")
    api.lib.vkGetPhysicalDeviceMemoryProperties(physical, properties)
    return max((h.size for h in properties.memoryHeaps[0 : properties.memoryHeapCount] if h.flags & 1), default=0)
