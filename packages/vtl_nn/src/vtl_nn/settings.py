"""The environment variables of this package, read here and nowhere else, when they are asked for."""

from __future__ import annotations

import os


def backend() -> str | None:
    """VTL_BACKEND: the device that commands use unless --device says otherwise."""
    return os.environ.get("VTL_BACKEND") or None


def backend_is_strict() -> bool:
    """VTL_BACKEND_STRICT=1: a VTL_BACKEND that cannot be opened is an error, not a warning."""
    return os.environ.get("VTL_BACKEND_STRICT") == "1"


def data_folder() -> str | None:
    """VTL_DATA_DIR: where data sets lie unless --data says otherwise."""
    return os.environ.get("VTL_DATA_DIR") or None
