"""Pipelines: made once for each module and its specialization constants, with the driver's own cache on disk."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from ...errors import KernelCompileError, VslError
from ..shared.cache import FileCache
from .device import Device
from .float_controls import controlled


class Pipelines:
    """Modules by their words' hash; the driver's cache is read when the device is opened and written when it is closed."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._made: dict[tuple[bytes, tuple[tuple[int, int], ...]], Any] = {}
        self._disk = FileCache("vulkan")
        self._saved = 0
        self._cache = self._open_cache()

    def get(self, name: str, words: bytes, constants: Mapping[int, int]) -> Any:
        """The pipeline of a module, constants by id."""
        key = (hashlib.sha256(words).digest(), tuple(sorted(constants.items())))
        with self.device.lock:
            if key not in self._made:
                self.device.require()
                self._made[key] = self._create(name, words, constants)
            return self._made[key]

    def shipped(self, name: str, constants: Mapping[int, int]) -> Any:
        """The pipeline of a module that came with the package."""
        return self.get(name, shipped_module(name), constants)

    def _create(self, name: str, words: bytes, constants: Mapping[int, int]) -> Any:
        device, api, ffi = self.device, self.device.api, self.device.ffi
        words = controlled(words, device.features.float_controls)
        code = ffi.new("uint32_t[]", list(struct.unpack(f"<{len(words) // 4}I", words)))
        info = api.struct("VkShaderModuleCreateInfo", "SHADER_MODULE_CREATE_INFO", codeSize=len(words), pCode=code)
        module = ffi.new("VkShaderModule *")
        self._checked(
            device.lib.vkCreateShaderModule(device.handle, info, ffi.NULL, module), name, "vkCreateShaderModule"
        )
        entries, values = (
            ffi.new("VkSpecializationMapEntry[]", max(1, len(constants))),
            ffi.new("uint32_t[]", max(1, len(constants))),
        )
        for i, (constant, value) in enumerate(sorted(constants.items())):
            entries[i].constantID, entries[i].offset, entries[i].size, values[i] = constant, 4 * i, 4, value
        special = api.struct(
            "VkSpecializationInfo",
            mapEntryCount=len(constants),
            pMapEntries=entries,
            dataSize=4 * len(constants),
            pData=values,
        )
        entry = ffi.new("char[]", b"main")
        info = api.struct("VkComputePipelineCreateInfo", "COMPUTE_PIPELINE_CREATE_INFO", layout=device.layout)
        info.stage.sType = api.vk.VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO
        info.stage.stage, info.stage.module, info.stage.pName, info.stage.pSpecializationInfo = (
            0x20,
            module[0],
            entry,
            special,
        )
        made = ffi.new("VkPipeline *")
        try:
            code_ = device.lib.vkCreateComputePipelines(device.handle, self._cache, 1, info, ffi.NULL, made)
            self._checked(code_, name, "vkCreateComputePipelines")
        finally:
            device.lib.vkDestroyShaderModule(device.handle, module[0], ffi.NULL)
        return made[0]

    def _checked(self, code: int, name: str, what: str) -> None:
        try:
            self.device.check(code, f"{what} of {name}")
        except VslError as error:
            if type(error) is VslError:
                raise KernelCompileError(
                    f"{error}; the module was written for SPIR-V 1.3 and passes spirv-val"
                ) from error
            raise

    def _identity(self) -> str:
        """A key for the driver's cache: it is of use to this device and driver only."""
        properties = self.device.properties
        identity = bytes(self.device.ffi.buffer(properties.pipelineCacheUUID)).hex()
        return f"{properties.vendorID:x}-{properties.deviceID:x}-{properties.driverVersion:x}-{identity}"

    def _open_cache(self) -> Any:
        device, ffi = self.device, self.device.ffi
        data = self._disk.read(self._identity()) or b""
        self._saved = len(data)
        held = ffi.new("char[]", data) if data else ffi.NULL
        info = device.api.struct(
            "VkPipelineCacheCreateInfo", "PIPELINE_CACHE_CREATE_INFO", initialDataSize=len(data), pInitialData=held
        )
        made = ffi.new("VkPipelineCache *")
        device.check(device.lib.vkCreatePipelineCache(device.handle, info, ffi.NULL, made), "vkCreatePipelineCache")
        return made[0]

    def save(self) -> None:
        """Write the driver's cache to disk if it has grown."""
        device, ffi = self.device, self.device.ffi
        if device.handle is None:
            return
        size = ffi.new("size_t *")
        device.check(
            device.lib.vkGetPipelineCacheData(device.handle, self._cache, size, ffi.NULL), "vkGetPipelineCacheData"
        )
        if size[0] <= self._saved:
            return
        data = ffi.new("char[]", int(size[0]))
        device.check(
            device.lib.vkGetPipelineCacheData(device.handle, self._cache, size, data), "vkGetPipelineCacheData"
        )
        self._disk.write(self._identity(), bytes(ffi.buffer(data, size[0])))
        self._saved = int(size[0])

    def destroy(self) -> None:
        """Give all pipelines back."""
        device = self.device
        if device.handle is not None:
            for pipeline in self._made.values():
                device.lib.vkDestroyPipeline(device.handle, pipeline, device.ffi.NULL)
            device.lib.vkDestroyPipelineCache(device.handle, self._cache, device.ffi.NULL)
        self._made.clear()


@cache
def shipped_module(name: str) -> bytes:
    """The words of spv/NAME.spv, as the manifest knows them."""
    folder = resources.files(__package__) / "spv"
    words = (folder / f"{name}.spv").read_bytes()
    listed = json.loads((folder / "manifest.json").read_text())["modules"].get(name)
    if listed is None or hashlib.sha256(words).hexdigest() != listed["module"]:
        raise KernelCompileError(f"vulkan: spv/{name}.spv is not what its manifest says; install vsl-compute again")
    return words
