"""Tensors with automatic differentiation on any device that vsl-compute reaches."""

from vtl_core import _compat  # noqa: F401 - first: it refuses what does not fit
from vtl_core._version import __version__

__all__ = ["__version__"]
