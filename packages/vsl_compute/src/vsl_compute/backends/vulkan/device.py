"""Device: the logical device, its one queue, its device functions and memory types, and how it ends.

Once the device is lost, or the process is a child made by fork, `broken` holds the error that every later call raises.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any

from ... import locks
from ...errors import DeviceLostError, DeviceTimeoutError, ReleasedError, VslError
from .api import Api
from .features import VERSION_1_3, Features, enable

TIMEOUT_S = 120.0  # how long a wait may take before DeviceTimeoutError
NVIDIA = 0x10DE  # of vendorID
PUSH_BYTES = 128
FUNCTIONS = (
    "vkCmdBindPipeline", "vkCmdPushConstants", "vkCmdDispatch", "vkCmdPipelineBarrier", "vkCmdCopyBuffer", "vkBeginCommandBuffer",
    "vkEndCommandBuffer", "vkQueueSubmit", "vkWaitSemaphores", "vkGetSemaphoreCounterValue",
)  # fmt: skip
LOCAL, VISIBLE, COHERENT, CACHED = 1, 2, 4, 8
_open: weakref.WeakSet[Device] = weakref.WeakSet()
# llvmpipe leaves a loop after so many turns, those of all loops of a thread counted together, and says nothing: Mesa 22,
# src/gallium/auxiliary/gallivm/lp_bld_limits.h, LP_MAX_TGSI_LOOP_ITERATIONS
TURNS = 65535


class Device:
    """One logical device; everything that talks to it holds `lock`."""

    def __init__(self, api: Api, physical: Any, features: Features, kind: str) -> None:
        self.api, self.physical, self.features, self.kind = api, physical, features, kind
        self.ffi, self.lib = api.ffi, api.lib
        self.lock = locks.reentrant()
        self.broken: VslError | None = None
        self.drop: Callable[[], None] = lambda: None  # set by what records commands
        self.timeout_s = TIMEOUT_S
        self.properties = self.ffi.new("VkPhysicalDeviceProperties *")
        self.lib.vkGetPhysicalDeviceProperties(physical, self.properties)
        self.memory = self.ffi.new("VkPhysicalDeviceMemoryProperties *")
        self.lib.vkGetPhysicalDeviceMemoryProperties(physical, self.memory)
        self.has_budget = "VK_EXT_memory_budget" in features.extensions
        self.family = self._compute_family()
        self.layout: Any = self.ffi.NULL
        self.handle: Any = self._create()
        try:
            self._set_up()
        except BaseException:
            self.destroy()
            raise
        _open.add(self)

    def _set_up(self) -> None:
        queue = self.ffi.new("VkQueue *")
        self.lib.vkGetDeviceQueue(self.handle, self.family, 0, queue)
        self.queue = queue[0]
        self.call = {name: self._function(name) for name in FUNCTIONS}
        self.layout = self._pipeline_layout()
        self._choose_memory()
        self.largest_buffer, self.promised_bytes = self._largest()
        software = self.kind == "software"
        # lavapipe: a barrier's cost explodes with the group's size (measured 3.7 ms at 32, 370 ms at 1024)
        self.group_size = 32 if software else min(256, self.properties.limits.maxComputeWorkGroupInvocations)
        self.most_groups = 128 if software else min(65535, self.properties.limits.maxComputeWorkGroupCount[0])
        self.most_turns = TURNS if software else 1 << 31

    def check(self, code: int, what: str) -> None:
        """As `Api.check`; a lost device stays lost, and so does one that hangs."""
        try:
            self.api.check(code, what)
        except (DeviceLostError, DeviceTimeoutError) as error:
            self.give_up(error)
            raise

    def give_up(self, error: VslError) -> None:
        """Let every later call raise this error; what is being recorded is dropped."""
        self.broken = error
        self.drop()

    def require(self) -> None:
        """Raise if the device cannot be used any more."""
        if self.broken is not None:
            raise type(self.broken)(str(self.broken))

    def _compute_family(self) -> int:
        families = self.api.listed(
            lambda *a: self.lib.vkGetPhysicalDeviceQueueFamilyProperties(self.physical, *a), "VkQueueFamilyProperties"
        )
        return next(i for i, held in enumerate(families) if held.value.queueFlags & 2)

    def _create(self) -> Any:
        ffi = self.ffi
        priority = ffi.new("float[]", [1.0])
        queue = self.api.struct("VkDeviceQueueCreateInfo", "DEVICE_QUEUE_CREATE_INFO", queueFamilyIndex=self.family,
                                queueCount=1, pQueuePriorities=priority)  # fmt: skip
        chain = enable(self.api, self.features)
        wanted = [*(["VK_EXT_memory_budget"] if self.has_budget else []), *sorted(self.features.matrix_extensions)]
        names = [ffi.new("char[]", name.encode()) for name in wanted]
        array = ffi.new("char *[]", names)
        info = self.api.struct("VkDeviceCreateInfo", "DEVICE_CREATE_INFO", pNext=chain[0], queueCreateInfoCount=1, pQueueCreateInfos=queue,
                               enabledExtensionCount=len(names), ppEnabledExtensionNames=array)  # fmt: skip
        made = ffi.new("VkDevice *")
        self.api.check(self.lib.vkCreateDevice(self.physical, info, ffi.NULL, made), "vkCreateDevice")
        return made[0]

    def _function(self, name: str) -> Any:
        """A device function: a call through it skips the loader."""
        text = self.ffi.new("char[]", name.encode())
        return self.ffi.cast(f"PFN_{name}", self.lib.vkGetDeviceProcAddr(self.handle, text))

    def _pipeline_layout(self) -> Any:
        """The one layout of all pipelines: push constants and no sets."""
        pushed = self.api.struct("VkPushConstantRange", stageFlags=0x20, size=PUSH_BYTES)
        info = self.api.struct(
            "VkPipelineLayoutCreateInfo",
            "PIPELINE_LAYOUT_CREATE_INFO",
            pushConstantRangeCount=1,
            pPushConstantRanges=pushed,
        )
        made = self.ffi.new("VkPipelineLayout *")
        self.check(self.lib.vkCreatePipelineLayout(self.handle, info, self.ffi.NULL, made), "vkCreatePipelineLayout")
        return made[0]

    def _choose_memory(self) -> None:
        """Memory types of arrays, of uploads and of downloads; `unified` if the host can map the arrays themselves."""
        types = [
            (self.memory.memoryTypes[i].propertyFlags, self.memory.memoryTypes[i].heapIndex)
            for i in range(self.memory.memoryTypeCount)
        ]
        heaps = [self.memory.memoryHeaps[i] for i in range(self.memory.memoryHeapCount)]
        shared = LOCAL | VISIBLE | COHERENT
        self.unified = (self.kind in ("software", "integrated") or all(h.flags & 1 for h in heaps)) and any(
            flags & shared == shared for flags, _ in types
        )

        def best(required: int, liked: int, disliked: int) -> int:
            fitting = [i for i, (flags, _) in enumerate(types) if flags & required == required]
            return max(
                fitting,
                key=lambda i: (
                    (types[i][0] & liked).bit_count() - (types[i][0] & disliked).bit_count(),
                    heaps[types[i][1]].size,
                ),
            )

        self.arrays = best(shared, CACHED, 0) if self.unified else best(LOCAL, 0, VISIBLE)
        self.uploads = best(VISIBLE | COHERENT, 0, LOCAL | CACHED)
        self.downloads = best(VISIBLE | COHERENT, CACHED, LOCAL)
        self.heap_bytes = int(heaps[types[self.arrays][1]].size)

    def _largest(self) -> tuple[int, int]:
        """Bytes that one buffer has at most, and that the driver promises to one.

        NVIDIA's says 4 GiB and gave 40, so what it says counts for neither.
        """
        if self.properties.vendorID == NVIDIA:
            return 1 << 64, 1 << 64
        promised = self.api.struct("VkPhysicalDeviceMaintenance3Properties", "PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES")
        most = self.api.struct(
            "VkPhysicalDeviceMaintenance4Properties", "PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES", pNext=promised
        )
        known = self.properties.apiVersion >= VERSION_1_3
        query = self.api.struct(
            "VkPhysicalDeviceProperties2", "PHYSICAL_DEVICE_PROPERTIES_2", pNext=most if known else promised
        )
        self.lib.vkGetPhysicalDeviceProperties2(self.physical, query)
        buffer = int(most.maxBufferSize) if known else 1 << 64
        return buffer, min(buffer, int(promised.maxMemoryAllocationSize))

    def budget(self) -> int:
        """Bytes that this process may hold in the arrays' heap: what the driver says, else the heap."""
        if not self.has_budget:
            return self.heap_bytes
        told = self.api.struct(
            "VkPhysicalDeviceMemoryBudgetPropertiesEXT", "PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT"
        )
        query = self.api.struct("VkPhysicalDeviceMemoryProperties2", "PHYSICAL_DEVICE_MEMORY_PROPERTIES_2", pNext=told)
        self.lib.vkGetPhysicalDeviceMemoryProperties2(self.physical, query)
        return int(told.heapBudget[self.memory.memoryTypes[self.arrays].heapIndex])

    def destroy(self) -> None:
        """Give the device back; everything made on it must be gone."""
        if self.handle is not None and not isinstance(self.broken, DeviceTimeoutError):
            self.lib.vkDestroyPipelineLayout(self.handle, self.layout, self.ffi.NULL)
            self.lib.vkDestroyDevice(self.handle, self.ffi.NULL)
        self.handle = None
        self.give_up(self.broken or ReleasedError("vulkan: the device was closed; its arrays went with it"))


def _after_fork() -> None:
    """A child cannot use its parent's devices (its first wait would hang); it must not destroy them either."""
    for device in list(_open):
        device.give_up(
            DeviceLostError(
                "vulkan: this process was made by fork, and its parent's device cannot be used in it; start it with multiprocessing's 'spawn'"
            )
        )
        device.handle = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
