"""Files from the network onto the disk: fetched whole or not at all, checked before they are opened, unpacked inside.

What only a download or an archive needs is imported there: `import vtl_data` is part of every program's start.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from vtl_data.arguments import short
from vtl_data.errors import DataError

if TYPE_CHECKING:
    import tarfile
    from http.client import HTTPResponse
    from pathlib import Path

Progress = Callable[[int, int | None], None]  # (bytes so far, bytes in all or None)

_BLOCK = 1 << 18
_ATTEMPTS = 4
_TIMEOUT_S = 30.0
_LARGEST_UNPACKED = 4 << 30  # bytes; the largest official archive unpacks to 186 MB


def data_folder(root: str | os.PathLike[str] | None) -> Path:
    """Return where data sets live: `root`, else VTL_DATA_DIR, else ~/.cache/vtl/data."""
    from pathlib import Path

    if root is not None:
        if not isinstance(root, str | os.PathLike):
            raise TypeError(f"data_folder: root must be the name of a folder, not {short(root)}")
        return Path(root).expanduser()
    return Path(os.environ.get("VTL_DATA_DIR") or Path.home() / ".cache" / "vtl" / "data").expanduser()


def md5_of(path: Path) -> str:
    """Return the MD5 of a file in hexadecimal."""
    import hashlib

    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def show_progress(name: str) -> Progress:
    """Return a progress callback: one line on stderr, rewritten, and none at all where stderr is no terminal."""
    last = [-1.0]

    def show(done: int, total: int | None) -> None:
        now = time.monotonic()
        if sys.stderr.isatty() and (done == total or now - last[0] > 0.2):
            last[0] = now
            share = f" of {total / 1e6:.1f} MB ({100 * done // max(total, 1)} %)" if total else " MB"
            print(f"\r{name}: {done / 1e6:.1f}{share}", end="\n" if done == total else "", file=sys.stderr, flush=True)

    return show


@contextmanager
def _locked(path: Path, mode: str) -> Iterator[IO[bytes]]:
    """Open `path` while no other process of ours has it open so: ranks of one launch share a data folder."""
    while True:
        with path.open(mode) as file:
            if sys.platform != "win32":
                import fcntl

                fcntl.flock(file, fcntl.LOCK_EX)  # let go on close, even by kill -9
                try:
                    same = os.path.samestat(os.fstat(file.fileno()), path.stat())
                except FileNotFoundError:
                    same = False
                if not same:  # renamed or removed by who held it before us
                    if "a" not in mode:
                        raise FileNotFoundError(path)
                    continue
            yield file
            return


def download(url: str, path: Path, *, md5: str, progress: Progress | None = None) -> None:
    """Fetch `url` into `path`, which appears only whole and with the right MD5.

    The bytes go to `path` + ".part". A connection that breaks is taken up where it broke (HTTP Range), and so is the
    .part of a process that was killed; an error removes it.

    Units:   progress is called with bytes
    Errors:  DataError, one line with the cause, if the server cannot be reached, refuses, keeps breaking off, or sends
             bytes of another MD5
    """
    report = progress or show_progress(path.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    with _locked(part, "ab") as file:
        if path.exists():  # another process fetched it while this one waited
            part.unlink(missing_ok=True)
            return
        try:
            resumed = file.tell() > 0
            _fetch(url, file, report)
            found = md5_of(part)
            if found != md5 and resumed:  # what an earlier run left was of something else
                file.truncate(0)
                _fetch(url, file, report)
                found = md5_of(part)
            if found != md5:
                raise DataError(
                    f"{url}: the MD5 of what was sent is {found}, not {md5}; nothing was kept, try again later"
                )
            file.flush()
            os.fsync(file.fileno())
            part.replace(path)
        except Exception:  # and not KeyboardInterrupt: the next run goes on from what is there
            part.unlink(missing_ok=True)
            raise


def _fetch(url: str, file: IO[bytes], report: Progress) -> None:
    """Append what `file` lacks of `url`, taking a broken connection up again while it brings something."""
    from http.client import HTTPException

    attempts = 0
    while True:
        before = file.seek(0, os.SEEK_END)
        try:
            if _continue(url, file, report):
                file.flush()
                return
            cause = "the connection ended early"
        except (HTTPException, OSError) as error:  # URLError, HTTPError and timeouts are OSErrors
            cause = str(getattr(error, "reason", None) or error) or type(error).__name__
            status = getattr(error, "code", None)
            if status is not None:
                raise DataError(f"{url}: the server answers {status} {cause}") from error
        file.flush()
        held = file.seek(0, os.SEEK_END)
        attempts = attempts + 1 if held <= before else 1
        if held == 0 or attempts >= _ATTEMPTS:
            raise DataError(f"{url}: cannot be fetched: {cause}" + (f" after {held} bytes" if held else ""))
        time.sleep(0.2 * attempts)


def _continue(url: str, file: IO[bytes], report: Progress) -> bool:
    """Ask for the bytes from file's end on; return whether all have come."""
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    have = file.tell()
    request = Request(url, headers={"User-Agent": "vtl-data", "Accept-Encoding": "identity"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        response: HTTPResponse = urlopen(request, timeout=_TIMEOUT_S)
    except HTTPError as error:
        error.close()
        if error.code == 416 and have:  # nothing after what we have: whole, or of something else; the MD5 tells
            return True
        raise
    with response:
        if have and (
            response.status != 206 or not response.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        ):
            file.truncate(0)  # the server sends it all
            have = 0
        length = response.headers.get("Content-Length")
        total = have + int(length) if length and length.isdigit() else None
        while block := response.read1(_BLOCK):
            file.write(block)
            have += len(block)
            report(have, total)
    return total is None or have >= total


def extract(archive: Path, root: Path, folder: str) -> Path:
    """Unpack the tar file `archive` and move its `folder` to `root`/`folder`, which appears only whole.

    Every member is looked at before anything is written: only folders and regular files inside are let through.

    Errors:  DataError, naming the member, for an absolute path, a path that leaves the target, a link, a device, a
             file that stands twice or more than 4 GiB; and for an archive that is truncated, no tar file, or without `folder`
    """
    import shutil
    import tarfile
    import zlib
    from pathlib import PurePosixPath

    final = root / folder
    scratch = root / f".{folder}.unpacking"
    with _locked(archive, "rb"):
        if final.exists():  # another process unpacked it while this one waited
            return final
        shutil.rmtree(scratch, ignore_errors=True)  # of a process that was killed
        try:
            with tarfile.open(archive, "r:*") as tar:
                members = tar.getmembers()
                seen: set[PurePosixPath] = set()
                for member in members:
                    _check(member, archive.name)
                    if (path := PurePosixPath(member.name)) in seen and not member.isdir():
                        raise DataError(f"{archive.name}: member {member.name!r} stands twice; nothing was unpacked")
                    seen.add(path)
                if (size := sum(member.size for member in members)) > _LARGEST_UNPACKED:
                    raise DataError(f"{archive.name}: would unpack to {size} bytes; more than 4 GiB is refused")
                scratch.mkdir()
                for member in members:
                    _write(tar, member, scratch)
            if not (scratch / folder).is_dir():
                raise DataError(f"{archive.name}: has no folder {folder}")
            (scratch / folder).rename(final)
        except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
            why = " ".join(str(error).split())  # tarfile's reasons are a line for each compression
            raise DataError(f"{archive}: cannot be unpacked: {why}; get the archive again") from error
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return final


def _check(member: tarfile.TarInfo, archive: str) -> None:
    from pathlib import PurePosixPath, PureWindowsPath

    # Python 3.11.2 has no tarfile.data_filter. Both kinds of path: on Windows a\..\b and C:b leave as well.
    posix, windows = PurePosixPath(member.name), PureWindowsPath(member.name)
    if posix.is_absolute() or windows.anchor or ".." in posix.parts or ".." in windows.parts or "\0" in member.name:
        raise DataError(f"{archive}: member {member.name!r} lies outside the target folder; nothing was unpacked")
    if not (member.isfile() or member.isdir()):
        kind = "a link" if member.islnk() or member.issym() else "neither file nor folder"
        raise DataError(f"{archive}: member {member.name!r} is {kind}; nothing was unpacked")


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    path = target / member.name
    if member.isdir():
        path.mkdir(parents=True, exist_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    source = tar.extractfile(member)
    if source is None:  # isfile() held, so this cannot be; mypy wants it said
        raise DataError(f"{member.name}: has no content")
    with source, path.open("wb") as file:
        while block := source.read(_BLOCK):
            file.write(block)
