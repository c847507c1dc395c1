"""The environment variables of this package, vtl_core's apart, read here and nowhere else, when they are asked for."""

from __future__ import annotations

import os


def data_folder() -> str | None:
    """VTL_DATA_DIR: where data sets lie unless --data says otherwise."""
    return os.environ.get("VTL_DATA_DIR") or None
