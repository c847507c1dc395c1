"""Neural networks that train on the GPU you have: layers, losses, optimizers, training loop and command line."""

from vtl_nn import _compat  # noqa: F401 - first: it refuses what does not fit
from vtl_nn._version import __version__

__all__ = ["__version__"]
