"""Matrix units: which 16-bit element types a device multiplies with float32 sums, as its own table lists them.

What is used are cooperative matrices of a subgroup, 16 x 16 x 16 (VK_KHR_cooperative_matrix), on devices whose subgroups
all have 32 threads: elsewhere a group's number of subgroups is not known when it is launched. The PyPI binding knows
neither bfloat16's component type nor its feature struct, so those are read and written as words: sType, a pad, pNext (two
words), then the fields in the specification's order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .api import Api

MATRICES, BFLOAT16 = "VK_KHR_cooperative_matrix", "VK_KHR_shader_bfloat16"
FEATURES = {  # extension: its feature struct's type, how many booleans that has, and which of them are needed
    MATRICES: (1000506000, 2, (0,)),
    BFLOAT16: (1000141000, 3, (0, 2)),
}
ALSO = ("vulkanMemoryModel", "shaderFloat16", "storageBuffer16BitAccess")  # features that the modules need besides
ELEMENTS = {0: "float16", 1000141000: "bfloat16"}  # VkComponentTypeKHR
FLOAT32, SUBGROUP, SIDE, THREADS = 1, 3, 16, 32
QUERY = "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR"


def feature_structs(api: Api, extensions: frozenset[str], *, wanted: bool) -> dict[str, Any]:
    """A feature struct of each extension that is there, unchained; what is needed of it set if `wanted`."""
    made = {}
    for name, (kind, count, needed) in FEATURES.items():
        if name in extensions:
            words = made[name] = api.ffi.new("uint32_t[]", 4 + count + count % 2)
            words[0] = kind
            for i in needed:
                words[4 + i] = int(wanted)
    return made


def chain(api: Api, structs: Mapping[str, Any], last: Any) -> None:
    """Append the structs to the chain that ends with `last`; the caller holds them all."""
    previous = None
    for words in structs.values():
        if previous is None:
            last.pNext = api.ffi.cast("void *", words)
        else:
            address = int(api.ffi.cast("uintptr_t", words))
            previous[2], previous[3] = address & 0xFFFFFFFF, address >> 32
        previous = words


def usable(structs: Mapping[str, Any], enabled: Iterable[str], threads: tuple[int, int]) -> frozenset[str]:
    """The extensions to enable: none unless the device has all that the modules need. `threads` are a subgroup's, least and most."""
    found = frozenset(name for name, words in structs.items() if all(words[4 + i] for i in FEATURES[name][2]))
    return found if MATRICES in found and set(ALSO) <= set(enabled) and threads == (THREADS, THREADS) else frozenset()


def subgroup_threads(api: Api, physical: Any) -> tuple[int, int]:
    """The least and the most threads that a subgroup may have, of a device with Vulkan 1.3."""
    told = api.struct("VkPhysicalDeviceVulkan13Properties", "PHYSICAL_DEVICE_VULKAN_1_3_PROPERTIES")
    query = api.struct("VkPhysicalDeviceProperties2", "PHYSICAL_DEVICE_PROPERTIES_2", pNext=told)
    api.lib.vkGetPhysicalDeviceProperties2(physical, query)
    return int(told.minSubgroupSize), int(told.maxSubgroupSize)


def probe_elements(api: Api, instance: Any, physical: Any, extensions: frozenset[str]) -> frozenset[str]:
    """The element types of the device's table that are of use, by dtype name."""
    if not extensions:
        return frozenset()
    name = api.ffi.new("char[]", QUERY.encode())
    query = api.lib.vkGetInstanceProcAddr(instance, name)
    if query == api.ffi.NULL:
        return frozenset()
    query = api.ffi.cast(f"PFN_{QUERY}", query)
    count = api.ffi.new("uint32_t *")
    api.check(query(physical, count, api.ffi.NULL), QUERY)
    rows = api.ffi.new("VkCooperativeMatrixPropertiesKHR[]", max(1, count[0]))
    for row in rows:
        row.sType = api.vk.VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR
    api.check(query(physical, count, rows), QUERY)
    words = api.ffi.cast("uint32_t *", rows)  # component types newer than the binding's enumeration occur
    width = api.ffi.sizeof("VkCooperativeMatrixPropertiesKHR") // 4
    return elements_of([list(words[width * i + 4 : width * i + 13]) for i in range(count[0])], extensions)


def elements_of(rows: Iterable[list[int]], extensions: frozenset[str]) -> frozenset[str]:
    """The element types of rows of the table: sizes m, n, k; component types of a, b, c and the result; saturating; scope."""
    found = set()
    for m, n, k, a, b, c, result, saturating, scope in rows:
        fits = m == n == k == SIDE and a == b and c == result == FLOAT32 and scope == SUBGROUP and not saturating
        if fits and a in ELEMENTS and (ELEMENTS[a] != "bfloat16" or BFLOAT16 in extensions):
            found.add(ELEMENTS[a])
    return frozenset(found)
