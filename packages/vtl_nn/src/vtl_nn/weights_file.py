"""The safetensors format, on NumPy arrays: written in one pass, and checked to the last byte before anything is used.

The format, which https://github.com/huggingface/safetensors defines: eight bytes, little-endian, that count the bytes
of a JSON header; the header, name -> dtype, shape and [begin, end) in what follows; then the data, without gaps.
The checks are ours, so that they are the same with every release of the reference implementation, which the tests
read and write against: its low-level functions differ between releases, and know no bfloat16 through NumPy.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from vtl_nn.errors import FileFormatError

Array = np.ndarray[Any, Any]

# dtype name -> (the format's code, how its elements are stored); bfloat16 is its upper 16 bits
STORAGE = {
    "bool": ("BOOL", "?"), "uint8": ("U8", "u1"), "int8": ("I8", "i1"), "uint16": ("U16", "<u2"), "int16": ("I16", "<i2"),
    "float16": ("F16", "<f2"), "bfloat16": ("BF16", "<u2"), "uint32": ("U32", "<u4"), "int32": ("I32", "<i4"),
    "float32": ("F32", "<f4"), "uint64": ("U64", "<u8"), "int64": ("I64", "<i8"), "float64": ("F64", "<f8"),
}  # fmt: skip
NAMES = {code: name for name, (code, _) in STORAGE.items()}
HEADER_LIMIT = 100_000_000  # bytes, as in the reference implementation
METADATA = "__metadata__"


class Entry(NamedTuple):
    """One array of a file: where it lies, counted from the end of the header."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def write(file: IO[bytes], arrays: Mapping[str, tuple[str, Array]], metadata: Mapping[str, str]) -> None:
    """Write arrays, each with its dtype's name, in C order; the widest dtypes first, so that all are aligned.

    Errors:  FileFormatError for the name __metadata__, which the format keeps for itself
    """
    if METADATA in arrays:
        raise FileFormatError(f"save: no array may be called {METADATA!r}: the format uses that name; choose another")
    order = sorted(arrays, key=lambda name: -np.dtype(STORAGE[arrays[name][0]][1]).itemsize)
    header: dict[str, Any] = {METADATA: dict(metadata)} if metadata else {}
    end = 0
    for name in order:
        dtype, array = arrays[name]
        code, storage = STORAGE[dtype]
        begin, end = end, end + array.size * np.dtype(storage).itemsize
        header[name] = {"dtype": code, "shape": list(array.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    file.write(struct.pack("<Q", len(text)) + text)
    for name in order:
        dtype, array = arrays[name]
        file.write(np.asarray(array, STORAGE[dtype][1], order="C").tobytes())


def read(path: str | os.PathLike[str]) -> tuple[dict[str, tuple[str, Array]], dict[str, str]]:
    """Return the arrays of a file, each with its dtype's name, in the order they lie there, and the metadata.

    Errors:  FileFormatError, one line, for anything that the format does not allow; OSError if it cannot be opened
    """
    with Path(path).open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        header, start = _header(file, size, path)
        metadata = _metadata(header.pop(METADATA, {}), path)
        entries = {name: _entry(name, fields, path) for name, fields in header.items()}
        _check_layout(entries, size - start, path)
        arrays = {}
        for name, entry in sorted(entries.items(), key=lambda item: item[1][2:]):
            file.seek(start + entry.begin)
            data = file.read(entry.end - entry.begin)
            if len(data) != entry.end - entry.begin:
                raise _wrong(path, f"ends inside {name!r}")
            storage = np.dtype(STORAGE[entry.dtype][1])
            array = np.frombuffer(data, storage).reshape(entry.shape)
            if entry.dtype == "bool" and array.view(np.uint8).max(initial=0) > 1:
                raise _wrong(path, f"{name!r} is BOOL and holds bytes other than 0 and 1")
            arrays[name] = (entry.dtype, array)
    return arrays, metadata


def _wrong(path: str | os.PathLike[str], what: str) -> FileFormatError:
    text = f"{os.fspath(path)}: {what}; the file is damaged or no safetensors file: copy it or save it again"
    return FileFormatError(text.replace("\n", " "))


def _header(file: IO[bytes], size: int, path: str | os.PathLike[str]) -> tuple[dict[str, Any], int]:
    if size < 8:
        raise _wrong(path, f"is {size} bytes, shorter than the 8 that say how long the header is")
    (length,) = struct.unpack("<Q", file.read(8))
    if length > min(HEADER_LIMIT, size - 8):
        raise _wrong(
            path, f"says its header is {length} bytes, but {size - 8} follow (and {HEADER_LIMIT} are the limit)"
        )

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            names = [name for name, _ in pairs]
            raise ValueError(f"the name {next(n for n in names if names.count(n) > 1)!r} stands twice")
        return found

    try:
        text = file.read(length).decode("utf-8")
        header = json.loads(text, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise _wrong(
            path, f"the header is not JSON of the format ({str(error) or type(error).__name__:.100})"
        ) from error
    if not isinstance(header, dict):
        raise _wrong(path, "the header is JSON, but no object of names")
    if not text.startswith("{"):
        raise _wrong(path, "the header must begin with {")
    return header, 8 + length


def _metadata(found: Any, path: str | os.PathLike[str]) -> dict[str, str]:
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise _wrong(path, f"{METADATA} must map names to texts")
    return found


def _entry(name: str, fields: Any, path: str | os.PathLike[str]) -> Entry:
    if not isinstance(fields, dict) or fields.keys() != {"dtype", "shape", "data_offsets"}:
        raise _wrong(path, f"{name!r} must have dtype, shape and data_offsets")
    code, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
    if not isinstance(code, str) or code not in NAMES:
        raise _wrong(path, f"{name!r} has dtype {code!r:.40}, and {', '.join(NAMES)} are known")
    for what, numbers in (("shape", shape), ("data_offsets", offsets)):
        if not isinstance(numbers, list) or not all(type(n) is int and 0 <= n < 2**63 for n in numbers):
            raise _wrong(path, f"{name!r} has {what} {numbers!r:.60}, not a list of sizes")
    if len(offsets) != 2 or offsets[0] > offsets[1]:
        raise _wrong(path, f"{name!r} has data_offsets {offsets!r:.60}, not [begin, end]")
    if len(shape) > 32:
        raise _wrong(path, f"{name!r} has {len(shape)} axes, and 32 are the limit")
    entry = Entry(NAMES[code], tuple(shape), *offsets)
    needed = prod(entry.shape) * np.dtype(STORAGE[entry.dtype][1]).itemsize
    if needed != entry.end - entry.begin:
        raise _wrong(
            path,
            f"{name!r} is {code} of shape {shape}, {needed} bytes, but data_offsets {offsets} span {entry.end - entry.begin}",
        )
    return entry


def _check_layout(entries: Mapping[str, Entry], size: int, path: str | os.PathLike[str]) -> None:
    """Every byte of the data belongs to exactly one array."""
    ordered = sorted(entries.items(), key=lambda item: item[1][2:])
    for (before, a), (name, b) in pairwise(ordered):
        if a.end != b.begin:
            what = "overlap" if a.end > b.begin else "leave a gap"
            raise _wrong(path, f"{before!r} ends at {a.end} and {name!r} begins at {b.begin}: they {what}")
    first, last = (ordered[0][1].begin, ordered[-1][1].end) if ordered else (0, 0)
    if first != 0 or last != size:
        raise _wrong(path, f"the arrays span bytes {first} to {last}, but {size} bytes of data are there")
