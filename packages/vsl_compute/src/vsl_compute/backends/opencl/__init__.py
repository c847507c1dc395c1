"""The OpenCL backend, on pyopencl: any device with OpenCL C 1.2, from the kernel texts that all C-like backends share."""

from .driver import OpenCLDriver


def driver() -> OpenCLDriver:
    """The entry point of this backend."""
    return OpenCLDriver()


__all__ = ["OpenCLDriver", "driver"]
