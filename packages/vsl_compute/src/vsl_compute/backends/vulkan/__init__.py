"""The Vulkan backend: any GPU with a driver, no compiler, no descriptors; the `vulkan` package's raw calls only."""

from .driver import VulkanDriver


def driver() -> VulkanDriver:
    """The entry point of this backend."""
    return VulkanDriver()


__all__ = ["VulkanDriver", "driver"]
