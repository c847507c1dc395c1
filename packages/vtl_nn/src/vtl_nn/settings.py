"""The environment variables of this package, read here and nowhere else, when they are asked for."""

from __future__ import annotations

import os

from vtl_core import AttributeValueError


def backend() -> str | None:
    """VTL_BACKEND: the device that commands use unless --device says otherwise."""
    return os.environ.get("VTL_BACKEND") or None


def backend_is_strict() -> bool:
    """VTL_BACKEND_STRICT=1: a VTL_BACKEND that cannot be opened is an error, not a warning.

    Errors:  AttributeValueError for a value that says neither yes nor no
    """
    value = os.environ.get("VTL_BACKEND_STRICT", "").strip().lower()
    if value not in ("", "0", "1", "false", "true"):
        raise AttributeValueError(f"VTL_BACKEND_STRICT={value} must be 1 or 0")
    return value in ("1", "true")


def data_folder() -> str | None:
    """VTL_DATA_DIR: where data sets lie unless --data says otherwise."""
    return os.environ.get("VTL_DATA_DIR") or None
