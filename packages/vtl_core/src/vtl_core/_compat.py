"""Imported first: does the installed vsl-compute speak what this vtl-core needs?"""

from __future__ import annotations

import vsl_compute
from vtl_core._interface import REQUIRES
from vtl_core._version import __version__


def check() -> None:
    """Raise InterfaceError (or ImportError, of a vsl-compute from before interfaces) if the two do not fit."""
    provider = f"vsl-compute {vsl_compute.__version__}"
    try:
        from vsl_compute.interface import PROVIDES, require
    except ImportError as error:
        raise ImportError(
            f"vtl-core {__version__} needs a newer vsl-compute than {provider}. "
            "Run: python -m pip install --upgrade vtl-core vsl-compute"
        ) from error
    require(PROVIDES, REQUIRES, by=f"vtl-core {__version__}", provider=provider)


check()
