"""Files that survive a process: where they lie, and what becomes of those that are damaged or were never finished."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from vsl_compute.backends.shared import cache
from vsl_compute.backends.shared.cache import ABANDONED_S, UNFINISHED, FileCache


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """The folder of the cache called `a`."""
    monkeypatch.setenv("VSL_CACHE_DIR", str(tmp_path))
    return tmp_path / "a"


def test_an_empty_cache_directory_keeps_nothing(monkeypatch):
    monkeypatch.setenv("VSL_CACHE_DIR", "")
    assert cache.directory() is None
    files = FileCache("a")
    files.write("key", b"data")
    assert files.read("key") is None
    files.forget("key")


def test_a_directory_that_cannot_be_written_is_passed_over(monkeypatch, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    monkeypatch.setenv("VSL_CACHE_DIR", str(blocked))
    files = FileCache("a")
    files.write("key", b"data")
    assert files.read("key") is None


def test_the_home_of_a_user_that_does_not_exist_keeps_nothing(monkeypatch):
    monkeypatch.setenv("VSL_CACHE_DIR", "~nobody-of-this-name/cache")
    assert cache.directory() is None


def test_the_cache_lies_where_the_system_keeps_caches(monkeypatch, tmp_path):
    monkeypatch.delenv("VSL_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.directory() == tmp_path / "vsl"
    files = FileCache("a")
    files.write("key", b"data")
    assert files.read("key") == b"data"
    assert [p.name for p in (tmp_path / "vsl" / "a").iterdir()] == ["key"]
    assert cache.key_of("a", "bc") != cache.key_of("ab", "c")


def test_bytes_come_back_as_they_were(folder, rng):
    files = FileCache("a")
    for data in (b"", b"\n", b"\n\n" + bytes(3), rng.bytes(5000)):
        files.write("key", data)
        assert FileCache("a").read("key") == data


@pytest.mark.parametrize("damage", ["a bit", "cut", "longer", "only its head"])
def test_a_damaged_file_is_dropped_with_one_warning(folder, rng, damage):
    files = FileCache("a")
    for key in ("one", "two"):
        files.write(key, rng.bytes(1000))
        data = bytearray((folder / key).read_bytes())
        match damage:
            case "a bit":
                data[int(rng.integers(200, 1000))] ^= 1 << int(rng.integers(0, 8))
            case "cut":
                del data[int(rng.integers(100, 1000)) :]
            case "longer":
                data += b"x"
            case "only its head":
                del data[70:]
        (folder / key).write_bytes(data)
    with pytest.warns(RuntimeWarning, match="one is damaged; it is ignored and made anew") as caught:
        assert (files.read("one"), files.read("two")) == (None, None)
    assert len(caught) == 1
    assert not list(folder.iterdir())


@pytest.mark.parametrize("foreign", [b"", b"\0" * 100, b"of an older version"])
def test_a_file_that_is_none_of_ours_is_not_read_and_may_be_overwritten(folder, foreign):
    folder.mkdir()
    (folder / "key").write_bytes(foreign)
    files = FileCache("a")
    assert files.read("key") is None
    files.write("key", b"data")
    assert files.read("key") == b"data"


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL on this system")
def test_a_writer_that_is_killed_leaves_no_part_of_a_file_and_its_rest_is_swept_up(folder):
    text = """
from vsl_compute.backends.shared.cache import FileCache
files, number = FileCache("a"), 0
while True:
    files.write("key", bytes([number % 256]) * 3_000_000)
    number += 1
    if number == 3:
        print("writing", flush=True)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for delay in (0.0, 0.005, 0.011, 0.017):
        with subprocess.Popen([sys.executable, "-c", text], env=environment, stdout=subprocess.PIPE) as writer:
            writer.stdout.readline()
            time.sleep(delay)
            writer.send_signal(signal.SIGKILL)
        data = FileCache("a").read("key")
        assert data == data[:1] * 3_000_000
    (folder / f"{UNFINISHED}old").write_bytes(b"half")
    os.utime(folder / f"{UNFINISHED}old", times=(1, time.time() - 2 * ABANDONED_S))
    (folder / f"{UNFINISHED}young").write_bytes(b"half")
    FileCache("a").write("other", b"data")
    left = {p.name for p in folder.iterdir()}
    assert left >= {"key", "other", f"{UNFINISHED}young"}
    assert f"{UNFINISHED}old" not in left
