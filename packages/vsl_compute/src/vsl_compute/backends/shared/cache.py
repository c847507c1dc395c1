"""Files that survive a process: compiled kernels by what they were compiled from, in VSL_CACHE_DIR.

The directory is VSL_CACHE_DIR, else XDG_CACHE_HOME/vsl, else ~/.cache/vsl; this module alone reads the variables. An
empty VSL_CACHE_DIR keeps nothing. A file is written under another name and renamed, so a reader never sees a part of
one. A cache that cannot be read or written is no error: the work is done again.

A file begins with a line that has its contents' SHA-256: a binary with one wrong bit has taken a driver's loader, and
with it every process that found the file, down (PoCL).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import time
import warnings
from pathlib import Path

MARK = b"vsl-1 "  # what a file begins with; a file that does not is of another version, or none of ours
UNFINISHED = ".unfinished-"
PAGE = 1 << 16  # bytes that have room where a kernel's binary has
ABANDONED_S = 3600.0  # a file still unfinished after so long was left by a process that was killed


def directory() -> Path | None:
    """Where files are kept; None if nothing is to be kept."""
    chosen = os.environ.get("VSL_CACHE_DIR")
    if chosen == "":
        return None
    try:
        if chosen is not None:
            return Path(chosen).expanduser()
    except RuntimeError:  # ~name of nobody
        return None
    base = caches()
    return None if base is None else base / "vsl"


def caches() -> Path | None:
    """The user's folder for whatever can be made again; None without a home directory."""
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return Path(base) if base else Path.home() / ".cache"
    except RuntimeError:
        return None


def problem() -> str | None:
    """Why nothing can be kept in the directory, in the system's words; None if it can, or if nothing is to be kept."""
    chosen = directory()
    if chosen is None:
        return None
    try:
        chosen.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=chosen, prefix=UNFINISHED) as file:
            file.write(bytes(PAGE))
            file.flush()
    except OSError as error:
        return error.strerror or str(error)
    return None


def key_of(*parts: str) -> str:
    """A file name for what is known by these texts."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


class FileCache:
    """Byte strings by key in one folder of the cache directory."""

    def __init__(self, folder: str) -> None:
        base = directory()
        self.path = None if base is None else base / folder
        self._swept = self._warned = False

    def read(self, key: str) -> bytes | None:
        """What was written under this key, if it is still there and whole; a RuntimeWarning for the first that is not."""
        if self.path is None:
            return None
        try:
            line, _, data = (self.path / key).read_bytes().partition(b"\n")
        except OSError:
            return None
        if not line.startswith(MARK):
            return None
        if line == _head(data):
            return data
        self.forget(key)
        if not self._warned:
            self._warned = True
            words = f"{self.path / key} is damaged; it is ignored and made anew"
            warnings.warn(words, RuntimeWarning, stacklevel=2)
        return None

    def write(self, key: str, data: bytes) -> None:
        """Keep `data`; a full or read-only disk is passed over in silence."""
        if self.path is None:
            return
        name = None
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._sweep(self.path)
            handle, name = tempfile.mkstemp(dir=self.path, prefix=UNFINISHED)
            with os.fdopen(handle, "wb") as file:
                file.write(_head(data) + b"\n" + data)
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

    def _sweep(self, folder: Path) -> None:
        """Once: remove what processes that were killed while they wrote have left."""
        if self._swept:
            return
        self._swept = True
        for left in folder.glob(UNFINISHED + "*"):
            with contextlib.suppress(OSError):  # another process sweeps too
                if time.time() - left.stat().st_mtime > ABANDONED_S:
                    left.unlink()


def _head(data: bytes) -> bytes:
    return MARK + hashlib.sha256(data).hexdigest().encode()
