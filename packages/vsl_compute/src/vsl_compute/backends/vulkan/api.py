"""The raw calls of the PyPI package `vulkan` (cffi, ABI mode): structs, result codes as typed errors, the instance.

Only `ffi`, `lib` and the VK_ constants of the package are used: its wrappers free inline structs too early and cost
three times as much a call. A struct is held by a named variable until the call that reads it has returned.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from ...errors import DeviceLostError, DeviceTimeoutError, OutOfMemoryError, UnavailableError, VslError
from ..shared import libraries
from . import manifests

INSTALL = "run: python -m pip install 'vsl-compute[vulkan]'"
AGAIN = "reinstall it: python -m pip install --force-reinstall vulkan cffi"
NAMED = "libvulkan.so.1"  # the loader, as the package asks for it
LOADER = "install it: apt install libvulkan1 (Debian, Ubuntu), dnf install vulkan-loader (Fedora), or the GPU vendor's driver (Windows)"
DRIVERS = "install the GPU vendor's driver, or apt install mesa-vulkan-drivers"
VERSION_1_2 = 1 << 22 | 2 << 12
TIMEOUT, INCOMPLETE, OUT_OF_HOST, OUT_OF_DEVICE, LOST, INCOMPATIBLE = 2, 5, -1, -2, -4, -9
CHOOSE_DRIVERS = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES", "VK_LOADER_DRIVERS_SELECT", "VK_LOADER_DRIVERS_DISABLE")


class Api:
    """ffi, lib and the constants, with what every call needs."""

    def __init__(self, vk: Any) -> None:
        self.vk, self.ffi, self.lib = vk, vk.ffi, vk.lib
        self.names = {
            value: name for name, value in vars(vk).items() if name.startswith("VK_ERROR_") and isinstance(value, int)
        }

    def struct(self, type_: str, structure: str | None = None, **fields: Any) -> Any:
        """A zeroed struct with its sType (VK_STRUCTURE_TYPE_...) and fields set; pointers in `fields` must be held by the caller."""
        made = self.ffi.new(f"{type_} *")
        if structure is not None:
            made.sType = getattr(self.vk, f"VK_STRUCTURE_TYPE_{structure}")
        for name, value in fields.items():
            setattr(made, name, value)
        return made

    def check(self, code: int, what: str) -> None:
        """Raise what a result code means."""
        if code == 0:
            return
        name = self.names.get(code, str(code))
        if code in (OUT_OF_HOST, OUT_OF_DEVICE):
            raise OutOfMemoryError(f"vulkan: {what}: {name}")
        if code == LOST:
            raise DeviceLostError(
                f"vulkan: {what}: the device was lost; start the process again, and if it recurs, look at the driver's log"
            )
        if code == TIMEOUT:
            raise DeviceTimeoutError(
                f"vulkan: {what}: the device did not finish in time; a kernel hangs or the work was very long: give it smaller pieces, or "
                "raise backend.device.timeout_s; the device counts as lost, start the process again"
            )
        raise VslError(f"vulkan: {what} failed: {name}")

    def listed(self, function: Any, type_: str, *arguments: Any) -> list[Any]:
        """What a two-call enumeration gives; the array it lies in is held by the result."""
        count, code = self.ffi.new("uint32_t *"), INCOMPLETE
        while code == INCOMPLETE:  # there are more than a moment ago
            self.check(function(*arguments, count, self.ffi.NULL) or 0, f"listing {type_}")
            array = self.ffi.new(f"{type_}[]", max(1, count[0]))
            code = function(*arguments, count, array) or 0
        self.check(code, f"listing {type_}")
        return [_Held(array, i) for i in range(count[0])]


class _Held:
    """One element of an enumerated array, which keeps the array alive."""

    def __init__(self, array: Any, index: int) -> None:
        self.array, self.value = array, array[index]


def load() -> Api:
    """The binding; UnavailableError says what is missing and how to get it."""
    try:
        import vulkan
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "vulkan":
            raise UnavailableError(f"vulkan: the package vulkan is not installed; {INSTALL}") from error
        raise UnavailableError(f"vulkan: the package vulkan cannot be loaded ({error}); {AGAIN}") from error
    except OSError as error:  # the package's own words are about an SDK, which nobody needs
        said = libraries.refusal(NAMED) if sys.platform.startswith("linux") else str(error)
        raise UnavailableError(f"vulkan: found no Vulkan loader ({said or error}); {LOADER}") from error
    return Api(vulkan)


def create_instance(api: Api) -> Any:
    """A Vulkan instance of version 1.2 or later; UnavailableError without a driver."""
    version = api.ffi.new("uint32_t *")
    api.lib.vkEnumerateInstanceVersion(version)
    if version[0] < VERSION_1_2:
        raise UnavailableError(f"vulkan: the loader speaks {version_text(version[0])}, and 1.2 is needed; {LOADER}")
    application = api.struct("VkApplicationInfo", "APPLICATION_INFO", apiVersion=1 << 22 | 3 << 12)
    info = api.struct("VkInstanceCreateInfo", "INSTANCE_CREATE_INFO", pApplicationInfo=application)
    made = api.ffi.new("VkInstance *")
    code = api.lib.vkCreateInstance(info, api.ffi.NULL, made)
    if code == INCOMPATIBLE:
        raise UnavailableError(f"vulkan: the loader is there, but no driver{_chosen()}{DRIVERS}{_broken()}")
    if code:  # a file of the loader's that is no JSON comes here too, as a lack of memory
        raise UnavailableError(
            f"vulkan: vkCreateInstance failed: {api.names.get(code, code)}{_chosen()}{DRIVERS}{_broken()}"
        )
    return made[0]


def _chosen() -> str:
    """The variables by which the user chose drivers, for messages: they hide those that are installed."""
    chosen = [
        f"{name}={os.environ[name]}" for name in CHOOSE_DRIVERS if name in os.environ
    ]  # an empty one hides them too
    return f", with {', '.join(chosen)} set; unset that, or " if chosen else "; "


def _broken() -> str:
    """The files that should have led to a driver, for messages."""
    return "".join(f"; {said}" for said in manifests.broken())


def version_text(version: int) -> str:
    """A packed version as people write it."""
    return f"{version >> 22}.{version >> 12 & 0x3FF}.{version & 0xFFF}"
