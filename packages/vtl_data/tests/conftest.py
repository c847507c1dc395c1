"""A CIFAR-10 of a few random images in either layout, and a web server that can misbehave."""

from __future__ import annotations

import hashlib
import pickle
import re
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest


class Fixture:
    """Random images of one CIFAR-10, as arrays and as the official layouts write them."""

    def __init__(self, folder: Path, each: int = 4) -> None:
        generator = np.random.default_rng(5)
        self.folder = folder
        self.images = generator.integers(0, 256, (5 * each, 3, 32, 32), dtype=np.uint8)
        self.labels = generator.integers(0, 10, 5 * each)
        self.parts = np.array_split(np.arange(5 * each), 5)

    def records(self, places: np.ndarray) -> bytes:
        return b"".join(bytes([self.labels[i]]) + self.images[i].tobytes() for i in places)

    def pickled(self, places: np.ndarray) -> bytes:
        content = {b"data": self.images[places].reshape(-1, 3072), b"labels": self.labels[places].tolist()}
        return pickle.dumps({**content, b"batch_label": b"one", b"filenames": [b"a.png"]}, 2)

    def write_binary(self, root: Path | None = None) -> Path:
        folder = (root or self.folder) / "cifar-10-batches-bin"
        folder.mkdir(parents=True)
        for number, places in enumerate(self.parts, 1):
            (folder / f"data_batch_{number}.bin").write_bytes(self.records(places))
        (folder / "test_batch.bin").write_bytes(self.records(self.parts[0]))
        return folder

    def write_python(self, root: Path | None = None) -> Path:
        folder = (root or self.folder) / "cifar-10-batches-py"
        folder.mkdir(parents=True)
        for number, places in enumerate(self.parts, 1):
            (folder / f"data_batch_{number}").write_bytes(self.pickled(places))
        (folder / "test_batch").write_bytes(self.pickled(self.parts[0]))
        return folder

    def pack(self, source: Path, archive: Path) -> str:
        """Pack a folder and return the MD5."""
        with tarfile.open(archive, "w:gz") as tar:
            tar.add(source, arcname=source.name)
        return hashlib.md5(archive.read_bytes()).hexdigest()


@pytest.fixture
def cifar(tmp_path):
    return Fixture(tmp_path / "data")


class Server(ThreadingHTTPServer):
    """Serves `content` at any path; `cuts` are the numbers of bytes after which the next answers break off."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content = b""
        self.status = 200
        self.takes_range = True
        self.cuts: list[int] = []
        self.ranges: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/file.tar.gz"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.server.ranges.append(wanted)
        if self.server.status != 200:
            self.send_error(self.server.status)
            return
        body = self.server.content
        start = int(re.fullmatch(r"bytes=(\d+)-", wanted).group(1)) if wanted and self.server.takes_range else 0
        if start and start >= len(body):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        body = body[start:]
        if self.server.cuts:
            body = body[: self.server.cuts.pop(0)]
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server():
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()
