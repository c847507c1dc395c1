"""Files that survive a process: compiled kernels by what they were compiled from, in VSL_CACHE_DIR.

The directory is VSL_CACHE_DIR, else XDG_CACHE_HOME/vsl, else ~/.cache/vsl; this module alone reads the variables. An
empty VSL_CACHE_DIR keeps nothing. A file is written under another name and renamed, so a reader never sees a part of
one. A cache that cannot be read or written is no error: the work is done again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path


def directory() -> Path | None:
    """Where files are kept; None if nothing is to be kept."""
    chosen = os.environ.get("VSL_CACHE_DIR")
    if chosen is not None:
        return Path(chosen).expanduser() if chosen else None
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "vsl"
    except RuntimeError:  # no home directory
        return None


def key_of(*parts: str) -> str:
    """A file name for what is known by these texts."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


class FileCache:
    """Byte strings by key in one folder of the cache directory."""

    def __init__(self, folder: str) -> None:
        base = directory()
        self.path = None if base is None else base / folder

    def read(self, key: str) -> bytes | None:
        """What was written under this key, if it is still there."""
        if self.path is None:
            return None
        try:
            return (self.path / key).read_bytes() or None
        except OSError:
            return None

    def write(self, key: str, data: bytes) -> None:
        """Keep `data`; a full or read-only disk is passed over in silence."""
        if self.path is None:
            return
        name = None
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self.path)
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            Path(name).replace(self.path / key)
        except OSError:
            if name is not None:
                with contextlib.suppress(OSError):
                    Path(name).unlink()

    def forget(self, key: str) -> None:
        """Drop what turned out to be of no use."""
        if self.path is not None:
            with contextlib.suppress(OSError):
                (self.path / key).unlink()
