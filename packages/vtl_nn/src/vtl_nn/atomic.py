"""Files and folders that appear whole or not at all, whatever kills the process that writes them.

Bytes go to a temporary name in the same folder, reach the disk, and take the final name in one step. A temporary name
that a killed process left behind is removed by the next write to the same place: its writer's lock is gone.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

_MARK = ".partial"  # temporary names are .NAME.<random>.partial


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a file that takes the place of `path` when the block ends, and leaves no trace if it raises.

    A file that stands there already keeps its permissions.

    Errors:  OSError if the folder is missing or cannot be written to, or `path` is a folder, a device or a pipe
    """
    target = Path(os.path.realpath(require_name(path)))  # a link stays a link: what it points to is replaced
    _check_target(target, str(target), str(target))
    _remove_stale(target.parent, f".{target.name}.")
    temporary = _temporary_name(target)
    file = _open_locked(temporary)
    try:
        with file:
            with suppress(OSError):
                shutil.copymode(target, temporary)
            yield file
            file.flush()
            os.fsync(file.fileno())
            if sys.platform != "win32":
                temporary.replace(target)  # while the lock is held
        if sys.platform == "win32":
            temporary.replace(target)  # an open file cannot be renamed there
    except OSError as error:
        temporary.unlink(missing_ok=True)
        if error.filename is None and error.errno is not None:  # a full disk is an error of a number, not of a name
            raise OSError(error.errno, f"{error.strerror}; what was there is as it was", str(target)) from error
        raise
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """Give a temporary folder that takes the place of `path` when the block ends, files and all; gone if it raises.

    A folder that stands there already is moved aside first; `recover` brings it back after a crash in between. Of
    several processes that write one folder, such as the ranks of a launch, the last to end its block stays.
    """
    temporary, aside = _temporary_name(path), _aside(path)
    try:
        with _alone_in(path.parent):  # without its lock a temporary folder would be taken for stale
            _recover(path)
            _remove_stale(path.parent, f".{path.name}.")
            temporary.mkdir()
            lock = _open_locked(temporary / "lock")
        with lock:
            yield temporary
            with _alone_in(path.parent):
                (temporary / "lock").unlink()
                _sync_folder(temporary)
                _recover(path)
                if path.exists():
                    path.rename(aside)
                temporary.rename(path)
                _sync_folder(path.parent)
                shutil.rmtree(aside, ignore_errors=True)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        recover(path)
        raise


def recover(path: Path) -> None:
    """Undo a folder's replacement that stopped between its two renames."""
    if _aside(path).exists():
        with _alone_in(path.parent):  # it may have stopped, or be under way
            _recover(path)


def _recover(path: Path) -> None:
    aside = _aside(path)
    if aside.exists():
        if path.exists():
            shutil.rmtree(aside, ignore_errors=True)
        else:
            aside.rename(path)


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Let one writer at a time move folders about in `folder`, as far as the file system has locks."""
    if sys.platform == "win32":
        yield
        return
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def require_name(path: str | os.PathLike[str]) -> str:
    """The path as text; FileNotFoundError for one that no system can have."""
    name = os.fspath(path)
    if not name or "\0" in name:
        raise FileNotFoundError(f"{name!r} names no file; give the name of one")
    return name


def check_writable(path: str | os.PathLike[str], option: str) -> None:
    """Raise a one-line OSError unless a file of this name could be written: asked before hours of training.

    Errors:  FileNotFoundError, IsADirectoryError, FileExistsError or PermissionError, naming `option` and the remedy
    """
    target = Path(os.path.realpath(path))
    _check_target(target, f"{option}: {path}", option)
    try:
        _open_locked(temporary := _temporary_name(target)).close()
        temporary.unlink()
    except OSError as error:
        raise PermissionError(f"{option}: {path} cannot be written: {error.strerror}; choose another folder") from error


def _check_target(target: Path, what: str, who: str) -> None:
    """Refuse a place where no file can appear, and one where something other than a file would be lost."""
    if target.is_dir():
        raise IsADirectoryError(f"{what} is a folder; give the name of a file in it")
    if target.exists() and not target.is_file():  # root could put a file in the place of /dev/null
        raise FileExistsError(f"{what} is a device or a pipe, and only files are replaced; give the name of a file")
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"{who}: the folder {target.parent} does not exist; create it: mkdir -p {target.parent}"
        )


def _aside(path: Path) -> Path:
    return path.with_name(f".{path.name}.replaced")


def _temporary_name(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.urandom(8).hex()}{_MARK}")


def _open_locked(path: Path) -> IO[bytes]:
    """Create `path` and hold its lock until it is closed, or the process ends in any way."""
    while True:
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666), "r+b")
        if sys.platform == "win32" or _lock(file, wait=True):
            with suppress(FileNotFoundError):
                if sys.platform == "win32" or os.path.samestat(os.fstat(file.fileno()), path.stat()):
                    return file
        file.close()  # somebody took it for stale between its creation and its lock


def _lock(file: IO[Any], *, wait: bool) -> bool:
    if sys.platform == "win32":
        return True
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return wait  # a file system without locks: the writer goes on, nothing is taken for stale
    return True


def remove_stale(folder: Path, prefix: str) -> None:
    """Remove temporary folders whose names begin so, and whose writers were killed."""
    with _alone_in(folder):
        _remove_stale(folder, f".{prefix}")


def _remove_stale(folder: Path, prefix: str) -> None:
    """Remove what earlier writers left there when they were killed; what still has a writer stays."""
    if not folder.is_dir():
        return
    for found in folder.iterdir():
        if not (found.name.startswith(prefix) and found.name.endswith(_MARK)):
            continue
        with suppress(OSError):
            if not found.is_dir():
                if _is_abandoned(found):
                    found.unlink()
            elif not (lock := found / "lock").exists() or _is_abandoned(lock):
                shutil.rmtree(found)


def _is_abandoned(path: Path) -> bool:
    if sys.platform == "win32":
        return True  # removing an open file fails there
    with path.open("rb") as file:
        return _lock(file, wait=False)


def _sync_folder(path: Path) -> None:
    """Bring a rename to the disk, where the system can."""
    if sys.platform != "win32":
        descriptor = os.open(path, os.O_RDONLY)
        try:
            with suppress(OSError):
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
