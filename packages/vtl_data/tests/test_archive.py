"""Downloads that break off, lie or are killed; archives that are truncated or reach outside."""

from __future__ import annotations

import hashlib
import io
import os
import signal
import subprocess
import sys
import tarfile
import time

import numpy as np
import pytest

from vtl_data import DataError
from vtl_data.archive import data_folder, download, extract

CONTENT = np.random.default_rng(3).bytes(300_000)
MD5 = hashlib.md5(CONTENT).hexdigest()


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_download_brings_the_bytes_and_reports_progress(server, tmp_path):
    server.content, seen = CONTENT, []

    download(server.url, tmp_path / "deep" / "file", md5=MD5, progress=lambda done, total: seen.append((done, total)))

    assert (tmp_path / "deep" / "file").read_bytes() == CONTENT
    assert names(tmp_path / "deep") == ["file"]
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_download_shows_nothing_where_stderr_is_no_terminal(server, tmp_path, capsys):
    server.content = CONTENT

    download(server.url, tmp_path / "file", md5=MD5)

    assert capsys.readouterr() == ("", "")


def test_download_rewrites_one_line_on_a_terminal(server, tmp_path, monkeypatch):
    server.content, terminal = CONTENT, io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr("sys.stderr", terminal)

    download(server.url, tmp_path / "file", md5=MD5)

    assert terminal.getvalue().endswith("\rfile: 0.3 of 0.3 MB (100 %)\n")


def test_broken_connection_is_taken_up_where_it_broke(server, tmp_path):
    server.content, server.cuts = CONTENT, [100_000, 50_000]

    download(server.url, tmp_path / "file", md5=MD5)

    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.ranges == [None, "bytes=100000-", "bytes=150000-"]


def test_server_without_ranges_sends_it_all_again(server, tmp_path):
    server.content, server.cuts, server.takes_range = CONTENT, [100_000], False

    download(server.url, tmp_path / "file", md5=MD5)

    assert (tmp_path / "file").read_bytes() == CONTENT


def test_truncated_download_is_an_error_and_leaves_nothing(server, tmp_path):
    """F04: a download that stays truncated leaves no half file behind."""
    server.content, server.cuts = CONTENT, [100_000, *[0] * 10]

    with pytest.raises(DataError, match="ended early after 100000 bytes"):
        download(server.url, tmp_path / "file", md5=MD5)

    assert names(tmp_path) == []


def test_wrong_md5_is_an_error_and_leaves_nothing(server, tmp_path):
    """F04: the MD5 is checked before the file gets its name."""
    server.content = CONTENT[:-1] + b"x"

    with pytest.raises(DataError, match=f"not {MD5}"):
        download(server.url, tmp_path / "file", md5=MD5)

    assert names(tmp_path) == []


def test_absent_file_is_an_error_at_once_and_names_the_status(server, tmp_path):
    server.status = 404

    with pytest.raises(DataError, match="answers 404") as caught:
        download(server.url, tmp_path / "file", md5=MD5)

    assert len(server.ranges) == 1
    assert "\n" not in str(caught.value)
    assert names(tmp_path) == []


def test_unreachable_server_is_an_error_at_once(server, tmp_path):
    url = server.url
    server.server_close()
    start = time.monotonic()

    with pytest.raises(DataError, match="cannot be fetched"):
        download(url, tmp_path / "file", md5=MD5)

    assert time.monotonic() - start < 15
    assert names(tmp_path) == []


def test_next_run_resumes_what_a_killed_one_left(server, tmp_path):
    server.content, server.cuts = CONTENT, [120_000]
    script = (
        "import sys, time, vtl_data.archive as a\n"
        "def stop(done, total):\n    if done >= 120000: print('there', flush=True); time.sleep(60)\n"
        "from pathlib import Path; a._BLOCK = 4096; a.download(sys.argv[1], Path(sys.argv[2]), md5='0', progress=stop)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, server.url, str(tmp_path / "file")], stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout.readline() == "there\n"
        process.send_signal(signal.SIGKILL)
    held = (tmp_path / "file.part").stat().st_size
    server.cuts = []

    download(server.url, tmp_path / "file", md5=MD5)

    assert held > 0
    assert server.ranges[-1] == f"bytes={held}-"
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize(
    "left", [b"something else" * 1000, CONTENT + b"more", CONTENT], ids=["other", "longer", "whole"]
)
def test_left_over_of_another_file_is_fetched_anew(server, tmp_path, left):
    server.content = CONTENT
    (tmp_path / "file.part").write_bytes(left)

    download(server.url, tmp_path / "file", md5=MD5)

    assert (tmp_path / "file").read_bytes() == CONTENT
    assert names(tmp_path) == ["file"]


def test_two_processes_may_download_at_once(server, tmp_path):
    server.content = CONTENT
    script = "import sys, vtl_data.archive as a; from pathlib import Path\na.download(sys.argv[1], Path(sys.argv[2]), md5=sys.argv[3])"
    command = [sys.executable, "-c", script, server.url, str(tmp_path / "file"), MD5]

    both = [subprocess.Popen(command) for _ in range(2)]

    assert [process.wait(30) for process in both] == [0, 0]
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert len(server.ranges) == 1
    assert names(tmp_path) == ["file"]


def make_tar(path, *members):
    with tarfile.open(path, "w:gz") as tar:
        for name, kind, target in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, target
            member.size = 4 if kind == tarfile.REGTYPE else 0
            tar.addfile(member, io.BytesIO(b"evil"))
    return path


OUTSIDE = {
    "parent": ("../evil", tarfile.REGTYPE, ""),
    "parent inside": ("data/../../evil", tarfile.REGTYPE, ""),
    "absolute": ("/var/vtl-data-evil", tarfile.REGTYPE, ""),
    "drive": ("C:evil", tarfile.REGTYPE, ""),
    "backslash": ("..\\evil", tarfile.REGTYPE, ""),
    "symlink": ("data/link", tarfile.SYMTYPE, "/etc/passwd"),
    "symlink inside": ("data/link", tarfile.SYMTYPE, "good"),
    "hard link": ("data/link", tarfile.LNKTYPE, "../../evil"),
    "device": ("data/null", tarfile.CHRTYPE, ""),
    "fifo": ("data/pipe", tarfile.FIFOTYPE, ""),
    "second of its name": ("data/./good", tarfile.REGTYPE, ""),
}


@pytest.mark.parametrize("member", OUTSIDE.values(), ids=OUTSIDE)
def test_member_that_reaches_outside_is_refused_and_nothing_is_written(tmp_path, member):
    """F04: `../evil`, an absolute path, a link or a device raise, and nothing is unpacked, inside or outside."""
    root = tmp_path / "root"
    root.mkdir()
    make_tar(root / "a.tar.gz", ("data/good", tarfile.REGTYPE, ""), member)

    with pytest.raises(DataError, match=r"member .*; nothing was unpacked"):
        extract(root / "a.tar.gz", root, "data")

    assert names(root) == ["a.tar.gz"]
    assert names(tmp_path) == ["root"]
    assert not os.path.lexists("/var/vtl-data-evil")


def test_an_empty_archive_is_one_line(tmp_path):
    """F04: tarfile gives a reason for each compression, on lines of their own."""
    (tmp_path / "a.tar.gz").write_bytes(b"")

    with pytest.raises(DataError, match=r"cannot be unpacked: .*; get the archive again") as caught:
        extract(tmp_path / "a.tar.gz", tmp_path, "data")

    assert "\n" not in str(caught.value)
    assert names(tmp_path) == ["a.tar.gz"]


def test_file_through_a_link_of_the_same_archive_is_refused(tmp_path):
    """F04: a link to a folder outside and then a file through it."""
    make_tar(tmp_path / "a.tar.gz", ("data", tarfile.SYMTYPE, str(tmp_path)), ("data/evil", tarfile.REGTYPE, ""))

    with pytest.raises(DataError, match="is a link"):
        extract(tmp_path / "a.tar.gz", tmp_path, "data")

    assert names(tmp_path) == ["a.tar.gz"]


@pytest.mark.parametrize("keep", [0, 10, 200, -8])
def test_truncated_archive_is_an_error_and_leaves_no_folder(tmp_path, keep):
    """F04: nothing stays of an archive that ends early."""
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as tar:
        member = tarfile.TarInfo("data/file")
        member.size = len(CONTENT)
        tar.addfile(member, io.BytesIO(CONTENT))
    whole = (tmp_path / "a.tar.gz").read_bytes()
    (tmp_path / "a.tar.gz").write_bytes(whole[: len(whole) // 2] if keep == -8 else whole[:keep])

    with pytest.raises(DataError, match=r"a\.tar\.gz: cannot be unpacked"):
        extract(tmp_path / "a.tar.gz", tmp_path, "data")

    assert names(tmp_path) == ["a.tar.gz"]


def test_archive_without_the_folder_is_an_error(tmp_path):
    make_tar(tmp_path / "a.tar.gz", ("other/file", tarfile.REGTYPE, ""))

    with pytest.raises(DataError, match="has no folder data"):
        extract(tmp_path / "a.tar.gz", tmp_path, "data")

    assert names(tmp_path) == ["a.tar.gz"]


def test_unpacking_replaces_what_a_killed_process_left(tmp_path):
    make_tar(tmp_path / "a.tar.gz", ("data/file", tarfile.REGTYPE, ""))
    (tmp_path / ".data.unpacking" / "data").mkdir(parents=True)
    (tmp_path / ".data.unpacking" / "data" / "half").write_bytes(b"")

    extract(tmp_path / "a.tar.gz", tmp_path, "data")

    assert names(tmp_path) == ["a.tar.gz", "data"]
    assert names(tmp_path / "data") == ["file"]


def test_data_folder_is_the_argument_then_the_variable_then_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("VTL_DATA_DIR", str(tmp_path))

    assert data_folder("here").name == "here"
    assert data_folder(None) == tmp_path
    monkeypatch.delenv("VTL_DATA_DIR")
    assert data_folder(None).parts[-3:] == (".cache", "vtl", "data")
