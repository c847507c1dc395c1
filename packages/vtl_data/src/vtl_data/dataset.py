"""What a data set is, and the ones made of arrays, of parts of others, and of streams."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from vtl_data.arguments import real, short, sized, whole
from vtl_data.draw import Array, Draw, Indices, permutation
from vtl_data.errors import DataError
from vtl_data.transforms import Transform

ItemT = TypeVar("ItemT")
ItemT_co = TypeVar("ItemT_co", covariant=True)


@runtime_checkable
class Dataset(Protocol[ItemT_co]):
    """Anything with a length whose items are reached by number; a loader asks for no base class.

    An item is a tuple such as (image, label), a mapping, an array or a number. A data set may also have
    `get_batch(indices)`, which returns many items already stacked: loaders then do not loop in Python. If
    `get_batch` names `seed` and `epoch`, it gets the loader's, for augmentation that can be repeated.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> ItemT_co: ...


class IterableDataset(Generic[ItemT]):
    """A stream of items: subclass it and define `__iter__`.

    A loader with W workers runs the stream in every one of them, each keeps every W-th batch and drops the rest,
    so each item comes once and the batches do not depend on W. The stream must yield the same items in the same
    order every time it is started in an epoch; NumPy's global generator is seeded alike in all workers for that.
    """

    def __iter__(self) -> Iterator[ItemT]:
        raise NotImplementedError(f"{type(self).__name__} must define __iter__")


def collate(items: Sequence[Any]) -> Any:
    """Stack items of one kind into a batch, item by item of their tuples and mappings.

    Shapes:  items of shape S; result (len(items), *S); all S must be alike
    Dtypes:  arrays and NumPy numbers keep theirs; Python's int becomes int64, float float32, bool bool
    Errors:  DataError if shapes or kinds differ, or an item is not made of arrays and numbers
    """
    given: object = items
    if not isinstance(given, list | tuple | np.ndarray) or getattr(given, "shape", None) == () or not len(given):
        raise DataError(f"collate: {short(given)} is no list of items; give one at least")
    first = items[0]
    odd = next(
        (item for item in items if isinstance(first, Mapping | tuple | list) and not isinstance(item, _kind(first))),
        None,
    )
    if odd is not None:
        raise DataError(f"collate: items are {type(first).__name__} and {type(odd).__name__}; all must be of one kind")
    if isinstance(first, Mapping):
        other = next((item for item in items if item.keys() != first.keys()), None)
        if other is not None:  # else what only some items have would be left out in silence
            raise DataError(f"collate: items have keys {list(first)} and {list(other)}; all must have the same")
        return {key: collate([item[key] for item in items]) for key in first}
    if isinstance(first, tuple | list):
        if any(len(item) != len(first) for item in items):
            raise DataError(f"collate: items have {sorted({len(item) for item in items})} parts; all must have as many")
        return tuple(collate([item[part] for item in items]) for part in range(len(first)))
    if isinstance(first, np.ndarray) and any(
        getattr(item, "mask", None) is not None and np.any(item.mask) for item in items
    ):
        raise DataError(
            "collate: items have masked elements, which would count; give x.filled(...), or your own collate_fn"
        )
    arrays = [np.asarray(item) for item in items]
    if len(shapes := {array.shape for array in arrays}) > 1:
        raise DataError(f"collate: items have shapes {sorted(shapes)}; make them alike, or pass your own collate_fn")
    try:
        batch = np.stack(arrays)
    except TypeError as error:
        raise DataError(
            f"collate: items of {sorted({str(array.dtype) for array in arrays})} do not stack: {error}"
        ) from error
    if batch.dtype.kind not in "biufc":
        raise DataError(
            f"collate: items of type {type(first).__name__} do not stack into a numeric array; pass your own collate_fn"
        )
    if isinstance(first, int | float) and not isinstance(first, bool | np.generic):
        batch = batch.astype(np.float32 if batch.dtype.kind == "f" else np.int64)
    return batch


def _kind(first: object) -> Any:
    return Mapping if isinstance(first, Mapping) else (tuple, list)


@lru_cache(maxsize=64)
def _takes_epoch(function: Callable[..., Any]) -> bool:
    parameters = inspect.signature(function).parameters
    return {"seed", "epoch"} <= parameters.keys() or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def fetch(dataset: Dataset[Any], indices: Indices, *, seed: int = 0, epoch: int = 0) -> Any:
    """Return the items at `indices` as one batch: through `get_batch` where there is one, else item by item."""
    get_batch = getattr(dataset, "get_batch", None)
    if get_batch is None:
        return collate([dataset[index] for index in indices.tolist()])
    if _takes_epoch(getattr(get_batch, "__func__", get_batch)):
        return get_batch(indices, seed=seed, epoch=epoch)
    return get_batch(indices)


def as_indices(indices: npt.ArrayLike, length: int, what: str) -> Indices:
    """Return `indices` as int64 in [0, length), negative ones counted from the end.

    Errors:  TypeError if they are not integers; IndexError, with the first bad one, if out of range
    """
    try:
        array = np.asarray(indices)
    except ValueError:
        raise TypeError(f"{what}: indices must be one-dimensional integers, not {short(indices)}") from None
    if array.size == 0:
        return np.zeros(0, np.int64)
    if array.dtype.kind not in "iu" or array.ndim != 1:
        raise TypeError(f"{what}: indices must be one-dimensional integers, not {array.dtype} of shape {array.shape}")
    array = array.astype(np.int64)
    outside = (array < -length) | (array >= length)
    if outside.any():
        raise IndexError(f"{what}: index {array[outside][0]} is outside a data set of {length}")
    return np.where(array < 0, array + length, array)


class TensorDataset:
    """Arrays that share their first axis; item i is the tuple of their i-th rows.

    The arrays are copied on construction and read-only afterwards: a caller who changes a list or an array later does
    not change the data set. `transform` is applied to the first array.

    Shapes:  arrays (N, ...) each; transforms take (N, C, H, W)
    Dtypes:  NumPy arrays keep theirs; in lists, Python's floats become float32 and its ints int64
    Errors:  DataError if lengths differ or an array does not hold numbers; TypeError without arrays
    """

    def __init__(self, *arrays: npt.ArrayLike, transform: Callable[[Array], Array] | None = None) -> None:
        if not arrays:
            raise TypeError("TensorDataset needs at least one array")
        self._hold(tuple(_owned(array, place) for place, array in enumerate(arrays)), transform)

    def _hold(self, arrays: tuple[Array, ...], transform: Callable[[Array], Array] | None) -> None:
        """Take arrays that nobody else writes to."""
        if any(len(array) != len(arrays[0]) for array in arrays):
            raise DataError(f"{type(self).__name__}: arrays have lengths {[len(a) for a in arrays]}; all must be alike")
        if transform is not None and not callable(transform):
            raise TypeError(f"{type(self).__name__}: transform must be callable, not {transform!r}")
        for array in arrays:
            array.flags.writeable = False
        self.arrays = arrays
        self.transform = transform

    def __len__(self) -> int:
        return len(self.arrays[0])

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        """Return sample `index`, transformed as in epoch 0 of seed 0."""
        batch = self.get_batch(np.asarray([index]))
        return tuple(array[0] for array in batch)

    def get_batch(self, indices: npt.ArrayLike, *, seed: int = 0, epoch: int = 0) -> tuple[Array, ...]:
        """Return the samples at `indices`, stacked; (seed, epoch, index) fixes what random transforms draw."""
        places = as_indices(indices, len(self), type(self).__name__)
        first, *rest = (array[places] for array in self.arrays)
        if isinstance(self.transform, Transform):
            first = self.transform(first, Draw(seed, epoch, places))
        elif self.transform is not None:
            first = self.transform(first)
        return (first, *rest)


def _owned(values: npt.ArrayLike, place: int) -> Array:
    try:
        array: Array = np.array(values)
    except ValueError as error:
        raise DataError(f"TensorDataset: array {place} is ragged: {error}") from error
    if array.ndim == 0 or array.dtype.kind not in "biufc":
        raise DataError(
            f"TensorDataset: array {place} is {array.dtype} of shape {array.shape}; rows of numbers are needed"
        )
    if not hasattr(values, "dtype") and array.dtype == np.float64:
        array = array.astype(np.float32)
    return array


class Subset:
    """The samples of `dataset` at `indices`, in that order.

    Random transforms draw by a sample's index in `dataset`, so a part is augmented as the whole would be.

    Errors:  IndexError, with the first bad index, if one is outside `dataset`
    """

    def __init__(self, dataset: Dataset[Any], indices: npt.ArrayLike) -> None:
        self.dataset = dataset
        self.indices = as_indices(indices, len(sized("Subset", dataset)), "Subset")

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> Any:
        """Return sample `indices[index]` of the whole."""
        return self.dataset[int(self.indices[as_indices([index], len(self), "Subset")][0])]

    def get_batch(self, indices: npt.ArrayLike, *, seed: int = 0, epoch: int = 0) -> Any:
        """Return the samples at `indices` of this part as one batch."""
        places = self.indices[as_indices(indices, len(self), "Subset")]
        return fetch(self.dataset, places, seed=seed, epoch=epoch)


def random_split(dataset: Dataset[Any], lengths: Sequence[float], *, seed: int = 0) -> list[Subset]:
    """Split `dataset` at random into parts that share no sample: `train, val = random_split(data, [0.9, 0.1])`.

    Units:   lengths are counts that sum to len(dataset), or fractions that sum to 1: floor(fraction * N) each, what
             is left over goes to the first parts, one each
    Errors:  ValueError if they sum to anything else or one is negative
    """
    count = len(sized("random_split", dataset))
    seed = whole("random_split", "seed", seed)
    given: object = lengths
    if not isinstance(given, list | tuple | np.ndarray):
        raise TypeError(f"random_split: lengths must be a list of numbers, not {short(given)}")
    for length in lengths:
        real("random_split", "a length", length)
    if any(length < 0 for length in lengths):
        raise ValueError(f"random_split: lengths {list(lengths)} must not be negative")
    if all(isinstance(length, int | np.integer) for length in lengths):
        sizes = [int(length) for length in lengths]
    elif abs(sum(lengths) - 1) < 1e-9:
        sizes = [int(count * length + 1e-9) for length in lengths]  # 1e-9: 0.29 * 100 is 28.999999999999996
        for part in range(count - sum(sizes)):
            sizes[part % len(sizes)] += 1
    else:
        sizes = [-1]
    if sum(sizes) != count:
        raise ValueError(
            f"random_split: lengths {list(lengths)} sum to {sum(lengths)}; "
            f"counts must sum to {count}, the length of the data set, fractions to 1"
        )
    order = permutation(count, seed, 0)
    return [Subset(dataset, part) for part in np.split(order, np.cumsum(sizes)[:-1])]
