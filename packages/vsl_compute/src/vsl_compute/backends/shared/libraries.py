"""Drivers that a file names and that cannot be loaded: loaders pass over them without a word, `vsl doctor` does not."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from pathlib import Path

OTHER_MACHINE = "wrong ELF class"  # a driver for 32-bit programs, which every loader of 64 bits passes over rightly


def files(place: Path, pattern: str) -> list[Path]:
    """The files of a folder, or of a file itself; none where the system does not let anybody look, the loader included."""
    try:
        return sorted(place.glob(pattern)) if place.is_dir() else [place] if place.is_file() else []
    except OSError:
        return []


def refusal(library: str) -> str | None:
    """Why the system does not load a library, or None if it does."""
    if not library:
        return "the name is empty"
    try:
        ctypes.CDLL(library)
    except (OSError, ValueError) as error:  # the latter of a name that cannot be one
        return " ".join(str(error).split())
    return None


def broken(named: Iterable[tuple[Path, str]]) -> list[str]:
    """Of files and the libraries that they name, those whose library cannot be loaded, and what helps."""
    found = []
    for file, library in named:
        said = refusal(library)
        if said is not None and OTHER_MACHINE not in said:
            found.append(
                f"{file} names {library[:200]!a}, which cannot be loaded ({said[:200]}); install the driver that it belongs to again, "
                f"or run: rm {file}"
            )
    return found
