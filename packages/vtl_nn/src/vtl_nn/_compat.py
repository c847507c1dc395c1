"""Imported first: do the installed vtl-core and vtl-data speak what this vtl-nn needs?"""

from __future__ import annotations

import vtl_core
import vtl_data
from vtl_core import interface
from vtl_data import _interface as data_interface
from vtl_nn._interface import REQUIRES
from vtl_nn._version import __version__


def check() -> None:
    """Raise InterfaceError, which names both versions, unless both siblings fit."""
    installed = (
        ("vtl.core", interface.PROVIDES, f"vtl-core {vtl_core.__version__}"),
        ("vtl.data", data_interface.PROVIDES, f"vtl-data {vtl_data.__version__}"),
    )
    for name, provides, provider in installed:
        interface.require(provides, {name: REQUIRES[name]}, by=f"vtl-nn {__version__}", provider=provider)


check()
