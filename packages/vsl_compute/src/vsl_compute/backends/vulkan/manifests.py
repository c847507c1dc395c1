"""The files by which Vulkan's loader finds drivers, on Linux: what they name, and which of them are of no use.

The loader reads every *.json of some folders, or what VK_DRIVER_FILES or VK_ICD_FILENAMES name instead of them, and
passes over what it cannot use without a word.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from ..shared import libraries

NAMED = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES")  # each a list of files and folders; the first wins
FOLDER = Path("vulkan/icd.d")


def places() -> list[Path]:
    """Files and folders in the order in which the loader looks."""
    for variable in NAMED:
        if variable in os.environ:
            return [Path(name) for name in os.environ[variable].split(os.pathsep) if name]
    try:
        home = Path.home()
    except RuntimeError:
        home = Path("/nonexistent")
    bases = [os.environ.get("XDG_CONFIG_HOME") or str(home / ".config")]
    bases += (os.environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(os.pathsep)
    bases += ["/etc", os.environ.get("XDG_DATA_HOME") or str(home / ".local/share")]
    bases += (os.environ.get("XDG_DATA_DIRS") or "/usr/local/share:/usr/share").split(os.pathsep)
    return [Path(base) / FOLDER for base in bases if base]


def broken() -> list[str]:
    """The files that name no driver, or one that cannot be loaded, each with what helps."""
    if not sys.platform.startswith("linux"):
        return []
    found, named = [], []
    for place in places():
        for file in libraries.files(place, "*.json"):
            try:
                library = json.loads(file.read_text(encoding="utf-8"))["ICD"]["library_path"]
                named.append((file, str(file.parent / library) if "/" in library else str(library)))
            except (OSError, ValueError, KeyError, TypeError) as error:
                found.append(
                    f"{file} is no description of a driver ({type(error).__name__}: {error}); install the driver that it belongs to again, "
                    f"or run: rm {file}"
                )
    return found + libraries.broken(named)
