"""What a device reports, what of it is enabled, and which dtypes and functions follow from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ... import dtypes
from ...dtypes import ALL, DType
from ...rows.functions import FUNCTIONS
from ...rows.spirv import FLOATING
from . import matrices
from .api import VERSION_1_2, Api, version_text
from .float_controls import NO_CONTROLS, WIDTHS, FloatControls, together

# field: where it stands, and what it is called in a message; without these a device is refused
REQUIRED = {
    "bufferDeviceAddress": ("1.2", "buffer device addresses"),
    "timelineSemaphore": ("1.2", "timeline semaphores"),
    "storageBuffer8BitAccess": ("1.2", "8-bit storage (bool)"),
    "shaderInt64": ("1.0", "64-bit integers (int64, addresses)"),
}
OPTIONAL = {
    "shaderFloat64": "1.0",
    "storageBuffer16BitAccess": "1.1",
    "shaderFloat16": "1.2",
    "vulkanMemoryModel": "1.2",
    "vulkanMemoryModelDeviceScope": "1.2",
}
VERSION_1_3 = 1 << 22 | 3 << 12
_INTEGER = frozenset(name for name, f in FUNCTIONS.items() if f.kind == "n")


@dataclass(frozen=True)
class Features:
    """The features that will be enabled, and the names of those that are missing."""

    enabled: frozenset[str]
    missing: tuple[str, ...]
    extensions: frozenset[str]
    matrix_extensions: frozenset[str] = frozenset()  # to enable, for the element types that matrix units multiply:
    matrix_elements: frozenset[str] = frozenset()
    float_controls: FloatControls = NO_CONTROLS

    def has_dtype(self, dtype: DType) -> bool:
        """Whether arrays of the dtype can be stored and computed on."""
        if dtype is dtypes.float64:
            return "shaderFloat64" in self.enabled
        return dtype.itemsize != 2 or "storageBuffer16BitAccess" in self.enabled

    def functions(self) -> Mapping[DType, frozenset[str]]:
        """The row functions of each dtype."""
        known = frozenset(FUNCTIONS)
        return {d: FLOATING & known if d.is_floating else _INTEGER for d in ALL if self.has_dtype(d)}


def feature_chain(api: Api) -> tuple[Any, Any, Any]:
    """VkPhysicalDeviceFeatures2 and the structs of 1.1 and 1.2, chained; all three must be held."""
    newer = api.struct("VkPhysicalDeviceVulkan12Features", "PHYSICAL_DEVICE_VULKAN_1_2_FEATURES")
    new = api.struct("VkPhysicalDeviceVulkan11Features", "PHYSICAL_DEVICE_VULKAN_1_1_FEATURES", pNext=newer)
    return api.struct("VkPhysicalDeviceFeatures2", "PHYSICAL_DEVICE_FEATURES_2", pNext=new), new, newer


def probe_features(api: Api, instance: Any, physical: Any, properties: Any) -> Features:
    """Ask a physical device."""
    if properties.apiVersion < VERSION_1_2:
        return Features(frozenset(), (f"Vulkan 1.2 (it speaks {version_text(properties.apiVersion)})",), frozenset())
    names = api.listed(
        lambda *a: api.lib.vkEnumerateDeviceExtensionProperties(physical, api.ffi.NULL, *a), "VkExtensionProperties"
    )
    extensions = frozenset(api.ffi.string(held.value.extensionName).decode() for held in names)
    chain, new, newer = feature_chain(api)
    structs = matrices.feature_structs(api, extensions, wanted=False)
    matrices.chain(api, structs, newer)
    api.lib.vkGetPhysicalDeviceFeatures2(physical, chain)
    holders = {"1.0": chain.features, "1.1": new, "1.2": newer}
    missing = tuple(words for name, (where, words) in REQUIRED.items() if not getattr(holders[where], name))
    enabled = frozenset(name for name, where in OPTIONAL.items() if getattr(holders[where], name))
    if "vulkanMemoryModelDeviceScope" not in enabled:  # kernels report through atomics of the device's scope
        enabled -= {"vulkanMemoryModel"}
    threads = matrices.subgroup_threads(api, physical) if properties.apiVersion >= VERSION_1_3 else (0, 0)
    usable = matrices.usable(structs, enabled, threads)
    elements = matrices.probe_elements(api, instance, physical, usable)
    return Features(
        enabled | frozenset(REQUIRED), missing, extensions, usable, elements, _float_controls(api, physical)
    )


def _float_controls(api: Api, physical: Any) -> FloatControls:
    told = api.struct("VkPhysicalDeviceFloatControlsProperties", "PHYSICAL_DEVICE_FLOAT_CONTROLS_PROPERTIES")
    query = api.struct("VkPhysicalDeviceProperties2", "PHYSICAL_DEVICE_PROPERTIES_2", pNext=told)
    api.lib.vkGetPhysicalDeviceProperties2(physical, query)
    nan = frozenset(w for w in WIDTHS if getattr(told, f"shaderSignedZeroInfNanPreserveFloat{w}"))
    denormals = [w for w in WIDTHS if getattr(told, f"shaderDenormPreserveFloat{w}")]
    return FloatControls(nan, together(denormals, int(told.denormBehaviorIndependence)))


def enable(api: Api, features: Features) -> tuple[Any, ...]:
    """The chain that asks for these features and no other, and all that must be held for it."""
    chain, new, newer = feature_chain(api)
    holders = {"1.0": chain.features, "1.1": new, "1.2": newer}
    for name in features.enabled:
        setattr(holders[OPTIONAL[name] if name in OPTIONAL else REQUIRED[name][0]], name, 1)
    structs = matrices.feature_structs(api, features.matrix_extensions, wanted=True)
    matrices.chain(api, structs, newer)
    return chain, new, newer, *structs.values()
