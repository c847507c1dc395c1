"""Compute on any device from one op table: NumPy, CUDA, Vulkan and OpenCL, and the suite that proves them right."""

from vsl_compute import _compat  # noqa: F401 - first: it refuses what does not fit
from vsl_compute._version import __version__

__all__ = ["__version__"]
