"""The two layouts of CIFAR's files, read and checked: binary records, and Python pickles without running them."""

from __future__ import annotations

import codecs
import pickle
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from vtl_data.draw import Indices
from vtl_data.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

Images = npt.NDArray[np.uint8]

PIXELS = 3 * 32 * 32


def read_records(path: Path, classes: tuple[int, ...]) -> tuple[Images, list[Indices]]:
    """Read a file of binary records: for each entry of `classes` a label byte below it, then the three planes.

    Shapes:  images (N, 3, 32, 32); one array of labels (N,) for each entry of `classes`
    Dtypes:  uint8; int64
    Errors:  DataError, naming the file, if the size is no multiple of a record or a label is out of range
    """
    record = len(classes) + PIXELS
    raw = np.fromfile(path, np.uint8)
    if not raw.size:
        raise DataError(f"{path}: is empty; get the file again")
    if raw.size % record:
        raise DataError(
            f"{path}: {raw.size} bytes is no multiple of a record's {record}; the file is damaged, get it again"
        )
    records = raw.reshape(-1, record)
    labels = [_labels(records[:, place], count, path) for place, count in enumerate(classes)]
    return np.ascontiguousarray(records[:, len(classes) :]).reshape(-1, 3, 32, 32), labels


def read_pickle(path: Path, keys: tuple[bytes, ...], classes: tuple[int, ...]) -> tuple[Images, list[Indices]]:
    """Read a batch of the Python layout: a dict with the images under b"data" and labels under `keys`.

    Shapes:  images (N, 3, 32, 32); one array of labels (N,) for each of `keys`
    Dtypes:  uint8; int64
    Errors:  DataError, naming the file, if it holds anything but arrays, numbers and strings, or if a shape, a dtype,
             a count or a label is wrong
    """
    content = load_plain(path)
    data = content.get(b"data") if isinstance(content, Mapping) else None
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != PIXELS:
        raise DataError(f"{path}: has no uint8 images of shape (N, {PIXELS}) under b'data'")
    labels = []
    for key, count in zip(keys, classes, strict=True):
        try:
            values = np.asarray(content.get(key))
        except ValueError:
            values = np.empty(0)
        if values.shape != (len(data),) or (values.dtype.kind not in "iu" and values.size):
            raise DataError(f"{path}: has no {len(data)} integer labels under {key!r}")
        labels.append(_labels(values, count, path))
    return np.array(data, np.uint8).reshape(-1, 3, 32, 32), labels


def _labels(values: npt.NDArray[Any], count: int, path: Path) -> Indices:
    bad = (values < 0) | (values >= count)
    if bad.any():
        place = int(np.argmax(bad))
        raise DataError(
            f"{path}: label {values[place]} of record {place} is not in 0 .. {count - 1}; get the file again"
        )
    return values.astype(np.int64)


def load_plain(path: Path) -> Any:
    """Load a pickle that holds arrays, numbers, strings and containers, and refuse any other before it can run.

    Errors:  DataError, naming what the file asked for, or that it is damaged
    """
    try:
        with path.open("rb") as file:
            return _PlainUnpickler(file, encoding="bytes").load()
    except DataError as error:
        raise DataError(f"{path}: {error}; the file is refused, get the official one") from None
    except Exception as error:  # a damaged pickle raises nearly anything
        raise DataError(
            f"{path}: is no readable pickle ({type(error).__name__}: {' '.join(str(error).split())}); get the file again"
        ) from error


class _PlainUnpickler(pickle.Unpickler):
    """Admits by name what NumPy's arrays are pickled with, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if (found := _ADMITTED.get((module, name))) is None:
            raise DataError(f"asks for {module}.{name}, and only NumPy arrays are admitted")
        return found


def _latin1(text: str, encoding: str = "latin1") -> bytes:
    # Protocol 2 writes bytes as _codecs.encode(text, "latin1"); other codecs reach compression and more.
    if encoding != "latin1":
        raise DataError(f"asks for the codec {encoding!r}, and only latin1 is admitted")
    return codecs.encode(text, "latin1")


def _reconstruct() -> Callable[..., Any]:
    function: Callable[..., Any] = np.empty(0).__reduce__()[0]  # type: ignore[assignment]
    return function


_ADMITTED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct(),  # as files written by NumPy 1 name it
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct(),
    ("_codecs", "encode"): _latin1,
}
