"""Safetensors files on NumPy arrays, through the reference implementation, which checks the header to the last byte.

Two things it lets through are checked here: a name that stands twice in the header, and truth values other than 0
and 1, which NumPy would take for true and false at once. The library is loaded when a file is written or read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from vtl_nn.atomic import require_name
from vtl_nn.errors import FileFormatError

Array = np.ndarray[Any, Any]

# dtype name -> (the format's code, how its elements are stored); bfloat16 is its upper 16 bits
STORAGE = {
    "bool": ("BOOL", "?"), "uint8": ("U8", "u1"), "int8": ("I8", "i1"), "uint16": ("U16", "<u2"), "int16": ("I16", "<i2"),
    "float16": ("F16", "<f2"), "bfloat16": ("BF16", "<u2"), "uint32": ("U32", "<u4"), "int32": ("I32", "<i4"),
    "float32": ("F32", "<f4"), "uint64": ("U64", "<u8"), "int64": ("I64", "<i8"), "float64": ("F64", "<f8"),
}  # fmt: skip
NAMES = {code: name for name, (code, _) in STORAGE.items()}
METADATA = "__metadata__"


def write(file: IO[bytes], arrays: Mapping[str, tuple[str, Array]], metadata: Mapping[str, str]) -> None:
    """Write arrays, each with its dtype's name, in C order.

    Errors:  FileFormatError for the name __metadata__, which the format keeps for itself, and metadata that is no text
    """
    from safetensors import TensorSpec, serialize

    if METADATA in arrays:
        raise FileFormatError(f"save: no array may be called {METADATA!r}: the format uses that name; choose another")
    stored = {name: np.asarray(array, STORAGE[dtype][1], order="C") for name, (dtype, array) in arrays.items()}
    specs = {
        name: TensorSpec(dtype=arrays[name][0], shape=array.shape, data_ptr=array.ctypes.data, data_len=array.nbytes)
        for name, array in stored.items()  # `stored` holds the memory that the specs point at until they are written
    }
    data = serialize(specs)
    if metadata:  # the library writes it in an order of chance: two saves of one model would differ
        if not all(isinstance(part, str) for pair in metadata.items() for part in pair):
            raise FileFormatError("save: metadata is text by names; turn other values into text: json.dumps(value)")
        length = int.from_bytes(data[:8], "little")
        header = {METADATA: dict(metadata), **json.loads(data[8 : 8 + length])}
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        text += b" " * (-len(text) % 8)
        file.write(len(text).to_bytes(8, "little") + text)
        file.write(memoryview(data)[8 + length :])
    else:
        file.write(data)


def read(path: str | os.PathLike[str]) -> tuple[dict[str, tuple[str, Array]], dict[str, str]]:
    """Return the arrays of a file, each with its dtype's name, in the header's order, and the metadata.

    Errors:  FileFormatError, one line, for anything that the format does not allow; OSError if it cannot be opened
    """
    from safetensors import SafetensorError, deserialize

    data = _bytes_of(path)
    try:
        found = dict(deserialize(data))  # type: ignore[no-untyped-call]  # the library has no annotations there
    except SafetensorError as error:
        if data[:4] == b"PK\x03\x04":
            raise FileFormatError(
                f"{path}: is a zip archive, as torch.save writes, and no safetensors file; "
                "write it anew from PyTorch: safetensors.torch.save_file(model.state_dict(), file)"
            ) from error
        raise _wrong(path, str(error)) from error
    header = _header(data, path)
    arrays = {}
    for name in header.keys() - {METADATA}:
        code = found[name]["dtype"]
        if code not in NAMES:
            raise _wrong(path, f"{name!r} has dtype {code}, and {', '.join(NAMES)} are known")
        shape = found[name]["shape"]
        if len(shape) > 64:
            raise _wrong(path, f"{name!r} has {len(shape)} axes, and NumPy's limit is 64")
        array = np.frombuffer(found[name]["data"], STORAGE[NAMES[code]][1]).reshape(shape)
        if code == "BOOL" and array.view(np.uint8).max(initial=0) > 1:
            raise _wrong(path, f"{name!r} is BOOL and holds bytes other than 0 and 1")
        arrays[name] = (NAMES[code], array)
    return {name: arrays[name] for name in header if name != METADATA}, header.get(METADATA, {})


def _bytes_of(path: str | os.PathLike[str]) -> bytes:
    """A file's bytes; what is no file may have no end, as /dev/zero, or never begin, as a pipe that nobody writes to."""
    place = Path(require_name(path))
    if place.is_dir():
        raise IsADirectoryError(f"{place} is a folder; give the name of a file in it")
    if place.exists() and not place.is_file():
        raise FileFormatError(f"{place} is a device or a pipe, and only files are read; give the name of a file")
    return place.read_bytes()


def _header(data: bytes, path: str | os.PathLike[str]) -> dict[str, Any]:
    """The header of data that the library has accepted: it is JSON of the format, but a name may stand twice in it."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        seen: dict[str, Any] = {}
        for name, value in pairs:
            if name in seen:
                raise _wrong(path, f"the name {name!r} stands twice in the header")
            seen[name] = value
        return seen

    length = int.from_bytes(data[:8], "little")
    header: dict[str, Any] = json.loads(data[8 : 8 + length], object_pairs_hook=once)
    return header


def _wrong(path: str | os.PathLike[str], what: str) -> FileFormatError:
    text = f"{os.fspath(path)}: {what}; the file is damaged or no safetensors file: copy it or save it again"
    return FileFormatError(text.replace("\n", " "))
