"""Imported first: vsl-compute stands on NumPy alone, and on its second major version.

NumPy 1 promotes Python scalars by value, not by kind: every dtype rule here would be quietly wrong on it.
"""

from __future__ import annotations

import numpy

from vsl_compute._version import __version__
from vsl_compute.errors import InterfaceError


def check() -> None:
    """Raise InterfaceError if NumPy is older than 2.0."""
    if int(numpy.__version__.split(".", 1)[0]) < 2:
        raise InterfaceError(
            f"vsl-compute {__version__} needs numpy >= 2.0, but numpy {numpy.__version__} is installed. "
            "Run: python -m pip install --upgrade numpy"
        )


check()
