"""CIFAR-10 and CIFAR-100, from the official archives or from folders already unpacked, in either layout."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt

from vtl_data.archive import Progress, data_folder, download, extract, md5_of
from vtl_data.arguments import truth
from vtl_data.batches import Images, read_pickle, read_records
from vtl_data.dataset import TensorDataset, as_indices
from vtl_data.draw import Array, Indices
from vtl_data.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

SubsetSpec = int | npt.ArrayLike | Mapping[str, int] | None

_SITE = "https://www.cs.toronto.edu/~kriz/"


@dataclass(frozen=True)
class Release:
    """One official archive: its name, checksum, folder, and the files of each part."""

    archive: str
    md5: str
    folder: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    pickled: bool

    def files(self, train: bool) -> tuple[str, ...]:
        """Return the names of the files of one part."""
        return self.train if train else self.test


class _CIFAR(TensorDataset):
    """What the two data sets share: where to look, in which order, and what to say if nothing is there."""

    releases: ClassVar[tuple[Release, ...]]  # the first is the one to download
    keys: ClassVar[tuple[bytes, ...]]  # labels in the Python layout
    counts: ClassVar[tuple[int, ...]]  # labels in a binary record, each below its count
    classes: tuple[str, ...]
    images: Images
    labels: Indices

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        train: bool = True,
        subset: SubsetSpec = None,
        download: bool = True,
        transform: Callable[[Array], Array] | None = None,
        *,
        progress: Progress | None = None,
    ) -> None:
        self.root = data_folder(root)
        self.train, download = (
            truth(type(self).__name__, "train", train),
            truth(type(self).__name__, "download", download),
        )
        folder, release = self._locate(download, progress)
        images, labels = self._read(folder, release)
        if (chosen := self._chosen(subset, len(images))) is not None:
            images, labels = images[chosen], labels[chosen]
        self._hold((images, labels), transform)
        self.images, self.labels = images, labels

    def _locate(self, fetch: bool, progress: Progress | None) -> tuple[Path, Release]:
        """Return an unpacked folder: one that is there, else from an archive that is there, else from the network."""
        for release in self.releases:
            for folder in (self.root / release.folder, self.root):
                if any((folder / name).is_file() for name in release.files(self.train)):
                    return folder, release
        for release in self.releases:
            archive = self.root / release.archive
            if archive.is_file():
                found = md5_of(archive)
                if found != release.md5:
                    raise DataError(
                        f"{archive}: its MD5 is {found}, the official one {release.md5}; remove it to download again, or, "
                        f"if you trust it, unpack it by hand: tar -xzf {release.archive} -C {self.root}"
                    )
                return extract(archive, self.root, release.folder), release
        release = self.releases[0]
        url = _SITE + release.archive
        if not fetch:
            raise self._missing("download is off; pass download=True")
        try:
            download(url, self.root / release.archive, md5=release.md5, progress=progress)
        except (DataError, OSError) as error:
            raise self._missing(f"{error}; fetch it on another machine into that folder") from error
        return extract(self.root / release.archive, self.root, release.folder), release

    def _missing(self, why: str) -> DataError:
        wanted = " or ".join(
            f"{release.folder}/ with {release.files(self.train)[0]}{' ...' if len(release.files(self.train)) > 1 else ''}"
            for release in self.releases
        )
        return DataError(
            f"{type(self).__name__}: not in {self.root}, and {why}; or train on vtl_data.Shapes, which needs no files "
            f"(looked for {wanted}, or {self.releases[0].archive})"
        )

    def _read(self, folder: Path, release: Release) -> tuple[Images, Indices]:
        parts = list(self._parts(folder, release))
        images = np.concatenate([images for images, _ in parts])
        if not len(images):
            raise DataError(f"{type(self).__name__}: the files in {folder} hold no image; get the data set again")
        return images, np.concatenate([labels[self._label_place()] for _, labels in parts])

    def _parts(self, folder: Path, release: Release) -> Iterator[tuple[Images, list[Indices]]]:
        for name in release.files(self.train):
            path = folder / name
            try:
                if release.pickled:
                    yield read_pickle(path, self.keys, self.counts)
                else:
                    yield read_records(path, self.counts)
            except FileNotFoundError:
                raise DataError(f"{folder}: lacks {name}; remove the folder and get the data set again") from None
            except OSError as error:
                raise DataError(f"{path}: cannot be read: {error}") from error

    def _label_place(self) -> int:
        return 0

    def _chosen(self, subset: SubsetSpec, count: int) -> Indices | None:
        """Return the indices that `subset` asks for, None for all."""
        name = type(self).__name__
        if isinstance(subset, Mapping):
            if unknown := sorted(set(subset) - {"train_count", "test_count"}):
                raise ValueError(f"{name}: subset has unknown keys {unknown}; train_count and test_count are known")
            subset = subset.get("train_count" if self.train else "test_count")
        if subset is None:
            return None
        if isinstance(subset, bool):
            raise TypeError(f"{name}: subset is {subset}; a count, a sequence of indices, or counts by name are taken")
        if isinstance(subset, int | np.integer):
            if not 0 <= subset <= count:
                raise ValueError(f"{name}: subset asks for {subset} of {count} images")
            return np.arange(subset, dtype=np.int64)
        return as_indices(subset, count, f"{name} subset")


class CIFAR10(_CIFAR):
    """CIFAR-10: 50 000 training and 10 000 test images of ten classes.

    Looks in `root` (default: VTL_DATA_DIR, else ~/.cache/vtl/data) for an unpacked folder of the binary or the Python
    layout, then for an official archive, checked by MD5 before it is opened, then downloads the binary one, in which
    there is nothing to unpickle. Folders are checked by record size and label range, not by MD5.

    `subset` keeps the first so many, or the samples at given indices, or {"train_count": n, "test_count": m}.
    `transform` gets batches (N, 3, 32, 32) of uint8. `progress` is called with (bytes so far, bytes in all or None).

    Shapes:  images (N, 3, 32, 32), planes red, green, blue; labels (N,)
    Dtypes:  uint8; int64
    Errors:  DataError, one line with the remedy, if the data set is missing, damaged or tampered with; ValueError or
             IndexError if `subset` asks for more than there is
    Source:  Krizhevsky 2009, "Learning multiple layers of features from tiny images"; https://www.cs.toronto.edu/~kriz/cifar.html
    """

    mean: ClassVar[tuple[float, float, float]] = (0.4914, 0.4822, 0.4465)  # of the training images, in 0 .. 1
    std: ClassVar[tuple[float, float, float]] = (0.2470, 0.2435, 0.2616)
    classes = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
    keys = (b"labels",)
    counts = (10,)
    releases = (
        Release(
            archive="cifar-10-binary.tar.gz",
            md5="c32a1d4ab5d03f1284b67883e8d87530",
            folder="cifar-10-batches-bin",
            train=tuple(f"data_batch_{k}.bin" for k in range(1, 6)),
            test=("test_batch.bin",),
            pickled=False,
        ),
        Release(
            archive="cifar-10-python.tar.gz",
            md5="c58f30108f718f92721af3b95e74349a",
            folder="cifar-10-batches-py",
            train=tuple(f"data_batch_{k}" for k in range(1, 6)),
            test=("test_batch",),
            pickled=True,
        ),
    )


class CIFAR100(_CIFAR):
    """CIFAR-100: 50 000 training and 10 000 test images of a hundred classes in twenty superclasses.

    As CIFAR10; `coarse` gives the superclasses as labels.

    Shapes:  images (N, 3, 32, 32), planes red, green, blue; labels (N,)
    Dtypes:  uint8; int64
    Errors:  as CIFAR10
    Source:  Krizhevsky 2009, "Learning multiple layers of features from tiny images"; https://www.cs.toronto.edu/~kriz/cifar.html
    """

    mean: ClassVar[tuple[float, float, float]] = (0.5071, 0.4865, 0.4409)  # of the training images, in 0 .. 1
    std: ClassVar[tuple[float, float, float]] = (0.2673, 0.2564, 0.2762)
    keys = (b"coarse_labels", b"fine_labels")
    counts = (20, 100)
    releases = (
        Release(
            archive="cifar-100-binary.tar.gz",
            md5="03b5dce01913d631647c71ecec9e9cb8",
            folder="cifar-100-binary",
            train=("train.bin",),
            test=("test.bin",),
            pickled=False,
        ),
        Release(
            archive="cifar-100-python.tar.gz",
            md5="eb9058c3a382ffc7106e4002c42a8d85",
            folder="cifar-100-python",
            train=("train",),
            test=("test",),
            pickled=True,
        ),
    )

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        train: bool = True,
        subset: SubsetSpec = None,
        download: bool = True,
        transform: Callable[[Array], Array] | None = None,
        *,
        coarse: bool = False,
        progress: Progress | None = None,
    ) -> None:
        self.coarse = coarse
        self.classes = COARSE if coarse else FINE
        super().__init__(root, train, subset, download, transform, progress=progress)

    def _label_place(self) -> int:
        return 0 if self.coarse else 1


COARSE = tuple(
    """aquatic_mammals fish flowers food_containers fruit_and_vegetables household_electrical_devices household_furniture
    insects large_carnivores large_man-made_outdoor_things large_natural_outdoor_scenes large_omnivores_and_herbivores
    medium_mammals non-insect_invertebrates people reptiles small_mammals trees vehicles_1 vehicles_2""".split()
)
FINE = tuple(
    """apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
    caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish
    forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle
    mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
    possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
    sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle wardrobe whale
    willow_tree wolf woman worm""".split()
)
