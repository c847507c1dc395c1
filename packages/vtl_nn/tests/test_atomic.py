"""Files and folders appear whole or not at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from vtl_nn.atomic import check_writable, recover, replacing, replacing_folder


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_file_is_replaced_when_the_block_ends(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")
    with replacing(path) as file:
        file.write(b"new")
        assert path.read_text() == "old"

    assert path.read_text() == "new"
    assert names(tmp_path) == ["a"]


def test_a_block_that_raises_leaves_the_old_file_and_no_other(tmp_path):
    """F05: raise half-way through: the old file stays."""
    path = tmp_path / "a"
    path.write_text("old")

    def half():
        with replacing(path) as file:
            file.write(b"ne")
            raise RuntimeError("disk")

    with pytest.raises(RuntimeError, match="disk"):
        half()

    assert path.read_text() == "old"
    assert names(tmp_path) == ["a"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such permissions")
def test_a_replaced_file_keeps_its_permissions(tmp_path):
    """F05: weights that were private are so after the next save."""
    path = tmp_path / "a"
    path.write_text("old")
    path.chmod(0o600)
    with replacing(path) as file:
        file.write(b"new")

    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes in folders here")
@pytest.mark.parametrize("through", ["name", "link"])
def test_a_pipe_or_device_is_refused_and_stays(tmp_path, through):
    """F05: only files are replaced; root could otherwise put one in the place of /dev/null."""
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    path = pipe if through == "name" else link

    with pytest.raises(FileExistsError, match="is a device or a pipe"), replacing(path):
        pass
    with pytest.raises(FileExistsError, match=f"--save: {path} is a device or a pipe"):
        check_writable(path, "--save")

    assert pipe.is_fifo()
    assert names(tmp_path) == ["link", "pipe"]


def test_a_missing_folder_is_named_and_not_the_temporary_file(tmp_path):
    wanted = pytest.raises(FileNotFoundError, match=r"no.a: the folder .*no does not exist; create it")
    with wanted, replacing(tmp_path / "no" / "a"):
        pass


KILLED = """
import sys, time
from vtl_nn.atomic import replacing, replacing_folder
from pathlib import Path
if sys.argv[1] == "file":
    with replacing(sys.argv[2]) as file:
        file.write(b"ne"); file.flush(); print("half", flush=True); time.sleep(60)
else:
    with replacing_folder(Path(sys.argv[2])) as folder:
        (folder / "part").write_text("ne"); print("half", flush=True); time.sleep(60)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no kill -9")
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_kill_9_half_way_keeps_the_old_and_the_next_write_cleans_up(tmp_path, kind):
    """F05: kill -9 half-way through a save."""
    path = tmp_path / "a"
    if kind == "file":
        path.write_text("old")
    else:
        path.mkdir()
        (path / "part").write_text("old")
    process = subprocess.Popen([sys.executable, "-c", KILLED, kind, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "half\n"

    # while its writer lives, what it has written stays
    if kind == "file":
        with replacing(tmp_path / "a") as file:
            file.write(b"old")
        assert len(names(tmp_path)) == 2
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert len(names(tmp_path)) == 2
    assert (path if kind == "file" else path / "part").read_text() == "old"

    if kind == "file":
        with replacing(path) as file:
            file.write(b"new")
    else:
        with replacing_folder(path) as folder:
            (folder / "part").write_text("new")
    assert names(tmp_path) == ["a"]
    assert (path if kind == "file" else path / "part").read_text() == "new"


def test_a_folder_whose_replacement_stopped_between_renames_comes_back(tmp_path):
    """F05: the old folder is moved aside, the new one not there yet."""
    aside = tmp_path / ".a.replaced"
    aside.mkdir()
    (aside / "part").write_text("old")

    recover(tmp_path / "a")

    assert (tmp_path / "a" / "part").read_text() == "old"
    assert names(tmp_path) == ["a"]


def test_a_folder_that_fails_is_gone_and_the_old_one_stays(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "part").write_text("old")

    def half():
        with replacing_folder(tmp_path / "a") as folder:
            (folder / "part").write_text("new")
            raise RuntimeError("disk")

    with pytest.raises(RuntimeError, match="disk"):
        half()

    assert names(tmp_path) == ["a"]
    assert (tmp_path / "a" / "part").read_text() == "old"


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with replacing(tmp_path / "link") as file:
        file.write(b"new")

    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


def test_other_files_that_look_alike_are_left_alone(tmp_path):
    (tmp_path / ".b.0123.partial").write_text("of another file")
    with replacing(tmp_path / "a") as file:
        file.write(b"new")

    assert names(tmp_path) == [".b.0123.partial", "a"]


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("no/folder/a.png", FileNotFoundError, "does not exist; create it"),
        ("folder", IsADirectoryError, "is a folder; give the name of a file"),
        ("file/a.png", FileNotFoundError, "does not exist"),
    ],
)
def test_what_cannot_be_written_is_said_before(tmp_path, name, error, message):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()

    with pytest.raises(error, match=message) as caught:
        check_writable(tmp_path / name, "--plot")

    assert str(caught.value).startswith("--plot: ")


def test_asking_leaves_nothing_and_changes_nothing(tmp_path):
    (tmp_path / "a").write_text("old")
    before = time.time_ns()
    check_writable(tmp_path / "a", "--save")
    check_writable(tmp_path / "b", "--save")

    assert names(tmp_path) == ["a"]
    assert (tmp_path / "a").read_text() == "old"
    assert (tmp_path / "a").stat().st_mtime_ns <= before


@pytest.mark.skipif(sys.platform == "win32", reason="limits of a process are POSIX's")
def test_a_full_disk_is_said_with_the_files_name_and_the_old_file_stays(tmp_path):
    """F05: the system's error has a number and no name."""
    code = """
import resource, signal, sys
import vtl_core as vtl, vtl_nn as nn
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
nn.save({"a": vtl.ones(2)}, sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
try:
    nn.save({"a": vtl.ones(10_000)}, sys.argv[1])
except OSError as error:
    print(error.filename, error.strerror)
print(nn.load(sys.argv[1])["a"].tolist())
"""
    path = tmp_path / "a"
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)

    assert done.stdout == f"{path} File too large; what was there is as it was\n[1.0, 1.0]\n"
    assert names(tmp_path) == ["a"]
