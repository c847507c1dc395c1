"""Imported first: vtl-data stands on NumPy alone, and on its second major version.

NumPy 1 promotes Python scalars by value, not by kind: a normalized float32 batch would quietly be float64 on it.
"""

from __future__ import annotations

import numpy

from vtl_data._version import __version__


def check() -> None:
    """Raise ImportError if NumPy is older than 2.0."""
    if int(numpy.__version__.split(".", 1)[0]) < 2:
        raise ImportError(
            f"vtl-data {__version__} needs numpy >= 2.0, but numpy {numpy.__version__} is installed. "
            "Run: python -m pip install --upgrade numpy"
        )


check()
