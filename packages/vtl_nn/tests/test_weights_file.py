"""The safetensors format: what is refused, and agreement with the reference implementation."""

from __future__ import annotations

import json
import os
import struct
import time

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import vtl_nn
from vtl_nn import FileFormatError, weights_file

F32 = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}


def written(path, header, data=b"\0" * 16, length=None):
    """A file with this header, as JSON unless it is bytes already."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)
    return path


WRONG = {
    "header longer than the file": ({"a": F32}, {"length": 10_000}),
    "header longer than memory": ({"a": F32}, {"length": 2**63}),
    "offsets too short for the shape": (
        {"a": F32 | {"data_offsets": [0, 12]}},
        {"data": b"\0" * 12},
    ),
    "offsets backwards": ({"a": F32 | {"data_offsets": [16, 0]}}, {}),
    "three offsets": ({"a": F32 | {"data_offsets": [0, 16, 16]}}, {}),
    "overlap": ({"a": F32, "b": F32 | {"data_offsets": [8, 24]}}, {"data": b"\0" * 24}),
    "the same bytes twice": ({"a": F32, "b": F32}, {}),
    "gap": ({"a": F32, "b": F32 | {"data_offsets": [20, 36]}}, {"data": b"\0" * 36}),
    "gap at the start": ({"a": F32 | {"data_offsets": [4, 20]}}, {"data": b"\0" * 20}),
    "bytes left over": ({"a": F32}, {"data": b"\0" * 17}),
    "bytes missing": ({"a": F32}, {"data": b"\0" * 15}),
    "data without arrays": ({}, {}),
    "a name twice": (b'{"a":%s,"a":%s}' % ((json.dumps(F32).encode(),) * 2), {}),
    "a field twice": (b'{"a":{"dtype":"F32","dtype":"F32","shape":[4],"data_offsets":[0,16]}}', {}),
    "negative size": ({"a": F32 | {"shape": [-2, -2]}}, {}),
    "huge size": ({"a": F32 | {"shape": [2**40]}}, {}),
    "sizes whose product wraps in 64 bits": (
        {"a": F32 | {"shape": [2**62, 4], "data_offsets": [0, 0]}},
        {"data": b""},
    ),
    "size that is no integer": ({"a": F32 | {"shape": [2.0, 2]}}, {}),
    "size that is a bool": ({"a": F32 | {"shape": [True, 4]}}, {}),
    "size beyond 64 bits": (
        {"a": F32 | {"shape": [2**70, 0], "data_offsets": [0, 0]}},
        {"data": b""},
    ),
    "too many axes": ({"a": F32 | {"shape": [1] * 70 + [4]}}, {}),
    "unknown dtype": ({"a": F32 | {"dtype": "F31"}}, {}),
    "field missing": ({"a": {"dtype": "F32", "shape": [4]}}, {}),
    "entry that is no object": ({"a": 5}, {}),
    "metadata that is no text": ({"__metadata__": {"a": 1}}, {"data": b""}),
    "no JSON": (b"{'a': 1}", {}),
    "no object": (b"[]", {"data": b""}),
    "no UTF-8": (b'{"\xff": 1}', {}),
    "nested without end": (b'{"a":' * 100_000, {}),
    "number without end": (b'{"a":' + b"9" * 10_000 + b"}", {}),
    "bool of 2": ({"a": {"dtype": "BOOL", "shape": [16], "data_offsets": [0, 16]}}, {"data": b"\2" * 16}),
}


@pytest.mark.parametrize("case", WRONG)
def test_damaged_file_is_refused_in_one_line(tmp_path, case):
    """F07: header length, offsets, overlaps, gaps, duplicates, sizes, text."""
    header, options = WRONG[case]
    path = written(tmp_path / "a.safetensors", header, **options)

    with pytest.raises(FileFormatError) as caught:
        weights_file.read(path)

    assert "damaged or no safetensors file" in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("size", [0, 4, 8, 20, -1])
def test_truncated_file_is_refused(tmp_path, size):
    """F05, F07: a file cut anywhere is refused whole."""
    path = tmp_path / "a.safetensors"
    save_file({"a": np.arange(12.0), "b": np.arange(3)}, path)
    path.write_bytes(path.read_bytes()[:size])

    with pytest.raises(FileFormatError):
        weights_file.read(path)


def test_a_flipped_byte_of_the_header_never_gives_other_arrays(tmp_path):
    """F07: each byte of a header, damaged in turn: the file is refused, or says the same sizes."""
    path = tmp_path / "a.safetensors"
    with path.open("wb") as file:
        weights_file.write(file, {"a": ("float32", np.ones((2, 3), np.float32)), "b": ("int64", np.arange(4))}, {})
    whole = path.read_bytes()
    refused = 0
    for place in range(8 + struct.unpack("<Q", whole[:8])[0]):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        try:
            arrays, _ = weights_file.read(path)
        except FileFormatError:
            refused += 1
        else:
            assert sum(array.nbytes for _, array in arrays.values()) == 56

    assert refused > 100


def test_every_dtype_and_shape_comes_back(tmp_path):
    """F07: 0-d, zero-size and strided arrays of every dtype are kept."""
    generator = np.random.default_rng(0)
    arrays = {}
    for name, (_, storage) in weights_file.STORAGE.items():
        values = generator.integers(0, 2, (3, 4)).astype(storage)
        arrays |= {
            f"{name}.matrix": (name, values.T),
            f"{name}.scalar": (name, values[0, 0, ...]),
            f"{name}.none": (name, values[:0]),
        }
    path = tmp_path / "a.safetensors"
    with path.open("wb") as file:
        weights_file.write(file, arrays, {"who": "me"})

    found, metadata = weights_file.read(path)

    assert metadata == {"who": "me"}
    assert found.keys() == arrays.keys()
    for name, (dtype, values) in arrays.items():
        assert found[name][0] == dtype
        assert found[name][1].shape == np.shape(values)
        np.testing.assert_array_equal(found[name][1], values)


def test_the_reference_implementation_reads_what_is_written(tmp_path):
    values = {
        "w": np.random.default_rng(1).normal(size=(3, 5)).astype(np.float32),
        "é.n": np.arange(7),
        "h": np.float16([[1.5]]),
    }
    path = tmp_path / "a.safetensors"
    with path.open("wb") as file:
        weights_file.write(file, {name: (array.dtype.name, array) for name, array in values.items()}, {"k": "v"})

    found = load_file(path)

    assert found.keys() == values.keys()
    for name, value in values.items():
        np.testing.assert_array_equal(found[name], value)
        assert found[name].dtype == value.dtype
    with safe_open(path, "numpy") as opened:
        assert opened.metadata() == {"k": "v"}


def test_what_the_reference_implementation_writes_is_read(tmp_path):
    values = {
        "w": np.random.default_rng(1).normal(size=(3, 5)),
        "n": np.arange(7, dtype=np.uint8),
        "none": np.zeros((0, 3), np.float32),
    }
    save_file(values, tmp_path / "a.safetensors", {"k": "v"})

    found, metadata = weights_file.read(tmp_path / "a.safetensors")

    assert metadata == {"k": "v"}
    for name, value in values.items():
        np.testing.assert_array_equal(found[name][1], value)


def test_arrays_are_aligned(tmp_path):
    path = tmp_path / "a.safetensors"
    with path.open("wb") as file:
        weights_file.write(
            file,
            {
                "a": ("uint8", np.zeros(3, np.uint8)),
                "b": ("float64", np.zeros(2)),
                "c": ("int16", np.zeros(1, np.int16)),
            },
            {},
        )
    raw = path.read_bytes()
    length = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8 : 8 + length])

    assert (8 + length) % 8 == 0
    assert {name: entry["data_offsets"][0] % 8 for name, entry in header.items() if name == "b"} == {"b": 0}
    assert header["c"]["data_offsets"][0] % 2 == 0


def test_two_saves_of_one_state_are_the_same_bytes(tmp_path):
    """G14: metadata stands in the order given, and the reference implementation reads it."""
    arrays = {"ü": ("uint8", np.arange(3, dtype=np.uint8)), "w": ("float64", np.arange(2.0))}
    metadata = {name: f"{name} \n☃" for name in "edcba"}
    for name in "ab":
        with (tmp_path / name).open("wb") as file:
            weights_file.write(file, arrays, metadata)

    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    found, text = weights_file.read(tmp_path / "a")
    assert list(text.items()) == list(metadata.items())
    assert found["w"][1].tolist() == [0, 1]
    assert found["ü"][1].tolist() == [0, 1, 2]
    with (tmp_path / "a").open("wb") as file, pytest.raises(FileFormatError, match="metadata is text by names"):
        weights_file.write(file, arrays, {"n": 1})


def test_the_formats_own_name_is_refused(tmp_path):
    with (tmp_path / "a").open("wb") as file, pytest.raises(FileFormatError, match="__metadata__"):
        weights_file.write(file, {"__metadata__": ("float32", np.zeros(1, np.float32))}, {})


def test_ten_thousand_tensors_are_read_in_a_moment(tmp_path):
    """F07: the search for names that stand twice takes one look at each name; their square took seconds."""
    path, count = tmp_path / "a", 10_000
    one = np.zeros(1, np.uint8)
    with path.open("wb") as file:
        weights_file.write(file, {f"layer.{i}": ("uint8", one) for i in range(count)}, {})
    before = time.process_time()

    assert len(weights_file.read(path)[0]) == count
    assert time.process_time() - before < 1.5


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")], ids=["pipe", "device"])
def test_a_pipe_or_a_device_is_not_read(tmp_path, make):
    """One never begins, the other never ends."""
    make(tmp_path / "a")
    with pytest.raises(FileFormatError, match="is a device or a pipe, and only files are read"):
        weights_file.read(tmp_path / "a")


@pytest.mark.parametrize("name", ["", "a\0b"], ids=repr)
def test_a_name_that_no_file_can_have_is_refused(name):
    for call in (lambda: weights_file.read(name), lambda: vtl_nn.save({}, name)):
        with pytest.raises(FileNotFoundError, match="names no file"):
            call()


def test_a_file_of_torch_save_is_told_apart_from_a_damaged_one(tmp_path):
    (tmp_path / "model.pt").write_bytes(b"PK\x03\x04" + b"model/data.pkl" * 9)
    with pytest.raises(
        FileFormatError, match=r"model\.pt: is a zip archive, as torch\.save writes.* safetensors\.torch\.save_file"
    ):
        weights_file.read(tmp_path / "model.pt")
