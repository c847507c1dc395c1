"""CIFAR in both layouts, unpacked and packed, good and bad; every file is made by the test."""

from __future__ import annotations

import dataclasses
import os
import pickle

import numpy as np
import pytest

import vtl_data.cifar
from vtl_data import CIFAR10, CIFAR100, DataError


@pytest.fixture
def releases(monkeypatch, server):
    """Let the small archives of a test pass for the official ones, and the server for the official site."""
    monkeypatch.setattr(vtl_data.cifar, "_SITE", server.url.removesuffix("file.tar.gz"))

    def accept(place, md5):
        changed = list(CIFAR10.releases)
        changed[place] = dataclasses.replace(changed[place], md5=md5)
        monkeypatch.setattr(CIFAR10, "releases", tuple(changed))

    return accept


def test_official_checksums_and_record_sizes_are_as_published():
    """F04: the python archive's MD5; a record of 3073 bytes in CIFAR-10 and 3074 in CIFAR-100."""
    assert CIFAR10.releases[1].md5 == "c58f30108f718f92721af3b95e74349a"
    assert CIFAR10.releases[0].md5 == "c32a1d4ab5d03f1284b67883e8d87530"
    assert len(CIFAR10.counts) + vtl_data.batches.PIXELS == 3073
    assert len(CIFAR100.counts) + vtl_data.batches.PIXELS == 3074


@pytest.mark.parametrize("layout", ["binary", "python"])
@pytest.mark.parametrize("inside", [True, False])
def test_both_layouts_are_read_from_the_root_or_the_folder_itself(cifar, layout, inside):
    folder = cifar.write_binary() if layout == "binary" else cifar.write_python()

    train = CIFAR10(folder if inside else folder.parent, download=False)
    test = CIFAR10(folder if inside else folder.parent, train=False, download=False)

    np.testing.assert_array_equal(train.images, cifar.images)
    np.testing.assert_array_equal(train.labels, cifar.labels)
    assert (train.images.dtype, train.labels.dtype) == (np.uint8, np.int64)
    np.testing.assert_array_equal(test.images, cifar.images[cifar.parts[0]])
    image, label = train[7]
    np.testing.assert_array_equal(image, cifar.images[7])
    assert label == cifar.labels[7]
    assert train.classes[0] == "airplane"


def test_planes_decode_to_red_green_blue(tmp_path):
    """F04: a row of 1024 x 1, 1024 x 2, 1024 x 3 is the planes 1, 2, 3."""
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    (folder / "test_batch.bin").write_bytes(bytes([9]) + bytes([1]) * 1024 + bytes([2]) * 1024 + bytes([3]) * 1024)

    image, label = CIFAR10(tmp_path, train=False, download=False)[0]

    assert label == 9
    assert [(plane.min(), plane.max()) for plane in image] == [(1, 1), (2, 2), (3, 3)]


@pytest.mark.parametrize("coarse", [False, True])
def test_cifar100_has_a_coarse_and_a_fine_label(tmp_path, coarse):
    image = np.random.default_rng(1).integers(0, 256, 3072, dtype=np.uint8)
    (tmp_path / "cifar-100-binary").mkdir()
    (tmp_path / "cifar-100-binary" / "train.bin").write_bytes(bytes([19, 99]) + image.tobytes())
    (tmp_path / "cifar-100-python").mkdir()
    content = {b"data": image[None], b"fine_labels": [41], b"coarse_labels": [3]}
    (tmp_path / "cifar-100-python" / "test").write_bytes(pickle.dumps(content, 2))

    train = CIFAR100(tmp_path, download=False, coarse=coarse)
    test = CIFAR100(tmp_path, train=False, download=False, coarse=coarse)

    np.testing.assert_array_equal(train.images[0].ravel(), image)
    assert train.labels.tolist() == ([19] if coarse else [99])
    assert test.labels.tolist() == ([3] if coarse else [41])
    assert train.classes[train.labels[0]] == ("vehicles_2" if coarse else "worm")


SUBSETS = {"count": 6, "indices": [3, 17, 3], "array": np.array([19, 0]), "config": {"train_count": 5, "test_count": 2}}
CHOSEN = {"count": range(6), "indices": [3, 17, 3], "array": [19, 0], "config": range(5)}


@pytest.mark.parametrize("kind", SUBSETS)
def test_subset_keeps_what_it_asks_for(cifar, kind):
    """C20: a subset by count, by indices or by VTL's train_count and test_count."""
    cifar.write_binary()

    train = CIFAR10(cifar.folder, subset=SUBSETS[kind], download=False)

    np.testing.assert_array_equal(train.images, cifar.images[list(CHOSEN[kind])])
    np.testing.assert_array_equal(train.labels, cifar.labels[list(CHOSEN[kind])])


def test_subset_by_name_applies_to_its_own_part(cifar):
    """C20: test_count is the test part's."""
    cifar.write_binary()

    assert len(CIFAR10(cifar.folder, train=False, subset=SUBSETS["config"], download=False)) == 2
    assert len(CIFAR10(cifar.folder, train=False, subset={"train_count": 3}, download=False)) == 4


@pytest.mark.parametrize(
    ("subset", "error", "message"),
    [
        (21, ValueError, "asks for 21 of 20"),
        (-1, ValueError, "asks for -1 of 20"),
        (True, TypeError, "subset is True"),
        ([20], IndexError, "index 20 is outside a data set of 20"),
        ([0.5], TypeError, "integers"),
        ({"train": 3}, ValueError, r"unknown keys \['train'\]"),
    ],
)
def test_subset_that_cannot_be_is_refused(cifar, subset, error, message):
    cifar.write_binary()

    with pytest.raises(error, match=message):
        CIFAR10(cifar.folder, subset=subset, download=False)


@pytest.mark.parametrize("place", [0, 1], ids=["binary", "python"])
def test_archive_in_the_root_is_checked_and_unpacked(cifar, releases, tmp_path, place):
    folder = cifar.write_python(tmp_path) if place else cifar.write_binary(tmp_path)
    cifar.folder.mkdir()
    releases(place, cifar.pack(folder, cifar.folder / CIFAR10.releases[place].archive))

    train = CIFAR10(cifar.folder, download=False)

    np.testing.assert_array_equal(train.images, cifar.images)
    assert (cifar.folder / folder.name).is_dir()


def test_archive_of_another_md5_is_not_opened_and_the_message_says_what_to_do(cifar, tmp_path):
    """F04: MD5 first, tar second."""
    cifar.folder.mkdir()
    cifar.pack(cifar.write_binary(tmp_path), cifar.folder / "cifar-10-binary.tar.gz")

    with pytest.raises(DataError, match=r"the official one c32a1d.*unpack it by hand: tar -xzf") as caught:
        CIFAR10(cifar.folder)

    assert "\n" not in str(caught.value)
    assert [path.name for path in cifar.folder.iterdir()] == ["cifar-10-binary.tar.gz"]


def test_missing_data_set_is_downloaded_checked_and_unpacked(cifar, releases, server, tmp_path):
    releases(0, cifar.pack(cifar.write_binary(tmp_path), tmp_path / "a.tar.gz"))
    server.content, seen = (tmp_path / "a.tar.gz").read_bytes(), []

    train = CIFAR10(cifar.folder, progress=lambda done, total: seen.append((done, total)))
    again = CIFAR10(cifar.folder, train=False)

    np.testing.assert_array_equal(train.images, cifar.images)
    assert len(again) == 4
    assert len(server.ranges) == 1
    assert seen[-1] == (len(server.content), len(server.content))


def test_tampered_download_is_refused_and_nothing_is_left(cifar, releases, server, tmp_path):
    """F04: bytes of another MD5 are neither kept nor opened."""
    releases(0, "0" * 32)
    cifar.pack(cifar.write_binary(tmp_path), tmp_path / "a.tar.gz")
    server.content = (tmp_path / "a.tar.gz").read_bytes()

    with pytest.raises(DataError, match="MD5 of what was sent"):
        CIFAR10(cifar.folder)

    assert list(cifar.folder.iterdir()) == []


@pytest.mark.parametrize("download", [False, True])
def test_missing_data_set_names_the_folder_the_files_and_the_remedies(cifar, releases, server, download):
    """C20: offline, one line says where it looked, what it wants, what to do, and that Shapes needs no files."""
    releases(0, "0" * 32)
    server.status = 503

    with pytest.raises(DataError) as caught:
        CIFAR10(cifar.folder, download=download)

    message = str(caught.value)
    for part in [
        str(cifar.folder),
        "cifar-10-batches-bin/",
        "data_batch_1.bin",
        "cifar-10-batches-py/",
        "vtl_data.Shapes",
    ]:
        assert part in message
    assert ("503" in message) == download
    assert ("pass download=True" in message) != download
    assert "\n" not in message
    assert not cifar.folder.exists() or list(cifar.folder.iterdir()) == []


def spoil_size(folder):
    (folder / "data_batch_2.bin").write_bytes((folder / "data_batch_2.bin").read_bytes()[:-1])


def spoil_label(folder):
    (folder / "data_batch_2.bin").write_bytes(bytes([10]) + bytes(3072))


def spoil_absence(folder):
    (folder / "data_batch_2.bin").unlink()


def spoil_one(folder):
    (folder / "data_batch_3.bin").write_bytes(b"")


def spoil_all(folder):
    for path in folder.iterdir():
        path.write_bytes(b"")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (spoil_size, r"data_batch_2\.bin: 12291 bytes is no multiple of a record's 3073"),
        (spoil_label, r"data_batch_2\.bin: label 10 of record 0 is not in 0 \.\. 9"),
        (spoil_absence, r"lacks data_batch_2\.bin; remove the folder"),
        (spoil_all, r"data_batch_1\.bin: is empty; get the file again"),
        (spoil_one, r"data_batch_3\.bin: is empty; get the file again"),
    ],
)
def test_damaged_folder_is_refused(cifar, spoil, message):
    """F04: an unpacked folder is checked by record size and label range."""
    spoil(cifar.write_binary())

    with pytest.raises(DataError, match=message):
        CIFAR10(cifar.folder, download=False)


class Evil:
    """Makes a folder when unpickled by anything that lets it."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_pickle_that_asks_for_more_than_arrays_is_refused_and_does_not_run(cifar, tmp_path, protocol):
    """F04: python batches go through an Unpickler that admits what arrays need and nothing else."""
    folder = cifar.write_python()
    content = {b"data": np.zeros((1, 3072), np.uint8), b"labels": [0], b"x": Evil(tmp_path / "ran")}
    (folder / "data_batch_1").write_bytes(pickle.dumps(content, protocol))

    with pytest.raises(DataError, match=r"data_batch_1: asks for posix\.mkdir|data_batch_1: asks for nt\.mkdir"):
        CIFAR10(cifar.folder, download=False)

    assert not (tmp_path / "ran").exists()


BAD_BATCHES = {
    "no dict": [1, 2],
    "no data": {b"labels": [0]},
    "float data": {b"data": np.zeros((1, 3072)), b"labels": [0]},
    "wide data": {b"data": np.zeros((1, 3073), np.uint8), b"labels": [0]},
    "few labels": {b"data": np.zeros((2, 3072), np.uint8), b"labels": [0]},
    "no labels": {b"data": np.zeros((2, 3072), np.uint8)},
    "float labels": {b"data": np.zeros((1, 3072), np.uint8), b"labels": [0.5]},
    "ragged labels": {b"data": np.zeros((2, 3072), np.uint8), b"labels": [[0], [0, 1]]},
    "high label": {b"data": np.zeros((1, 3072), np.uint8), b"labels": [10]},
    "negative label": {b"data": np.zeros((1, 3072), np.uint8), b"labels": [-1]},
}


@pytest.mark.parametrize("content", BAD_BATCHES.values(), ids=BAD_BATCHES)
def test_python_batch_of_wrong_content_is_refused(cifar, content):
    folder = cifar.write_python()
    (folder / "data_batch_3").write_bytes(pickle.dumps(content, 2))

    with pytest.raises(DataError, match="data_batch_3"):
        CIFAR10(cifar.folder, download=False)


@pytest.mark.parametrize("keep", [0, 1, 100, 5000])
def test_truncated_python_batch_is_refused(cifar, keep):
    folder = cifar.write_python()
    whole = (folder / "data_batch_3").read_bytes()
    (folder / "data_batch_3").write_bytes(whole[:keep])

    with pytest.raises(DataError, match="data_batch_3: is no readable pickle"):
        CIFAR10(cifar.folder, download=False)


def test_codec_other_than_latin1_is_refused(cifar):
    folder = cifar.write_python()
    (folder / "data_batch_1").write_bytes(b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x05\x00\x00\x00rot13\x86R.")

    with pytest.raises(DataError, match="codec 'rot13'"):
        CIFAR10(cifar.folder, download=False)


def test_transform_gets_whole_batches(cifar):
    cifar.write_binary()
    train = CIFAR10(cifar.folder, download=False, transform=lambda images: images[:, :, ::2, ::2])

    images, labels = train.get_batch([4, 9])

    np.testing.assert_array_equal(images, cifar.images[[4, 9], :, ::2, ::2])
    np.testing.assert_array_equal(labels, cifar.labels[[4, 9]])
