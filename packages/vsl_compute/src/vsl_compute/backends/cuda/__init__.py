"""The CUDA backend, on CuPy for devices, memory, streams and NVRTC, and on cuBLAS through nvmath-python."""

from .driver import CUDADriver


def driver() -> CUDADriver:
    """The entry point of this backend."""
    return CUDADriver()


__all__ = ["CUDADriver", "driver"]
