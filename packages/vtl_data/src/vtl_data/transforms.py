"""Changes to a batch of images, all samples at once, with random numbers that belong to the sample."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from vtl_data.arguments import real, short, whole
from vtl_data.draw import Array, Draw
from vtl_data.errors import DataError


class Transform:
    """A change to images that may draw random numbers; a subclass defines `apply`.

    Called with a batch and its Draw, each sample is changed by numbers of its own (seed, epoch, index): the result
    depends neither on the batch it comes in nor on the worker. Without a Draw the samples count from 0, in epoch 0
    of seed 0. One image (C, H, W) is taken as a batch of one.

    Shapes:  images (N, C, H, W) or (C, H, W)
    Dtypes:  uint8 in 0 .. 255, or float32 in 0 .. 1
    Errors:  DataError for other shapes and dtypes
    """

    def __call__(self, images: Array, draw: Draw | None = None) -> Array:
        """Return the changed images; the given ones stay as they are."""
        images = _numbers(type(self).__name__, "images", images)
        if images.ndim not in (3, 4) or images.dtype not in (np.uint8, np.float32):
            raise DataError(
                f"{type(self).__name__}: images are {images.dtype} of shape {images.shape}; "
                "uint8 or float32 of shape (N, C, H, W) is needed"
            )
        if images.ndim == 3:
            return np.asarray(self(images[None], draw)[0])
        if draw is None:
            draw = Draw(0, 0, np.arange(len(images), dtype=np.int64))
        return self.apply(images, draw)

    def apply(self, images: Array, draw: Draw) -> Array:
        """Return the changed batch (N, C, H, W)."""
        raise NotImplementedError(f"{type(self).__name__} must define apply")


def _numbers(what: str, name: str, given: npt.ArrayLike) -> Array:
    """An array of numbers; DataError for what is ragged, or holds anything else."""
    try:
        array: Array = np.asarray(given)
    except ValueError as error:
        raise DataError(f"{what}: {name} are ragged: {error}") from error
    if array.dtype.kind not in "biuf":
        raise DataError(f"{what}: {name} are {array.dtype} of shape {array.shape}; numbers are needed")
    return array


class Compose(Transform):
    """Transforms, or functions of a batch, one after the other; each draws from a stream of its own."""

    def __init__(self, transforms: Sequence[Callable[..., Array]]) -> None:
        if not isinstance(transforms, Iterable):
            raise TypeError(f"Compose: transforms must be a list of functions, not {short(transforms)}")
        self.transforms = tuple(transforms)
        for place, transform in enumerate(self.transforms):
            if not callable(transform):
                raise TypeError(f"Compose: transform {place} is not callable: {transform!r}")

    def apply(self, images: Array, draw: Draw) -> Array:
        """Apply each in turn."""
        for place, transform in enumerate(self.transforms):
            random = isinstance(transform, Transform)
            images = transform(images, draw.with_stream(place)) if random else transform(images)
        return images


class ToFloat(Transform):
    """Bring uint8 to float32 in 0 .. 1; float32 passes unchanged.

    y = x / 255
    """

    def apply(self, images: Array, draw: Draw) -> Array:
        """Divide uint8 by 255."""
        return images if images.dtype == np.float32 else images * np.float32(1 / 255)


class Normalize(Transform):
    """Subtract each channel's mean and divide by its standard deviation.

    y[n, c] = (x[n, c] / 255 - mean[c]) / std[c]   for uint8; without / 255 for float32

    Shapes:  mean, std (C,), or one number for all channels
    Dtypes:  result float32
    Units:   mean and std are in 0 .. 1, as in PyTorch's recipes
    Errors:  ValueError if a std is not above 0; DataError if the images have another number of channels
    """

    def __init__(self, mean: npt.ArrayLike, std: npt.ArrayLike) -> None:
        self.mean, self.std = (
            np.atleast_1d(_numbers("Normalize", name, given).astype(np.float64))
            for name, given in (("mean", mean), ("std", std))
        )
        if self.mean.ndim != 1 or self.mean.shape != self.std.shape:
            raise ValueError(f"Normalize: mean has shape {self.mean.shape} and std {self.std.shape}; both must be (C,)")
        if not (np.isfinite(self.mean).all() and np.isfinite(self.std).all() and (self.std > 0).all()):
            raise ValueError(f"Normalize: mean {self.mean.tolist()} must be finite and std {self.std.tolist()} above 0")

    def apply(self, images: Array, draw: Draw) -> Array:
        """Scale and shift in float32."""
        if len(self.mean) not in (1, images.shape[1]):
            raise DataError(f"Normalize: images have {images.shape[1]} channels, mean and std {len(self.mean)}")
        unit = 255.0 if images.dtype == np.uint8 else 1.0
        scale = (1 / (self.std * unit)).astype(np.float32)[:, None, None]
        shift = (-self.mean / self.std).astype(np.float32)[:, None, None]
        result = images * scale
        result += shift
        return result


class RandomCrop(Transform):
    """Pad with zeros, then cut a window of `size` at a place drawn for each sample.

    Shapes:  images (N, C, H, W); result (N, C, size, size), or (N, C, *size)
    Units:   size and padding count pixels; padding goes on all four sides
    Errors:  DataError if the window is larger than the padded image; ValueError for a size below 1
    """

    def __init__(self, size: int | tuple[int, int], padding: int = 0) -> None:
        sides = tuple(size) if isinstance(size, tuple | list) else (size, size)
        if len(sides) != 2:
            raise ValueError(f"RandomCrop: size {size} must be one number, or two")
        height, width = (whole("RandomCrop", "size", side, 1) for side in sides)
        self.size, self.padding = (height, width), whole("RandomCrop", "padding", padding, 0)

    def apply(self, images: Array, draw: Draw) -> Array:
        """Cut one window from each padded image."""
        p, (height, width) = self.padding, self.size
        if p:
            images = np.pad(images, ((0, 0), (0, 0), (p, p), (p, p)))
        rows, columns = images.shape[2] - height + 1, images.shape[3] - width + 1
        if rows < 1 or columns < 1:
            raise DataError(f"RandomCrop: window {self.size} is larger than the padded image {images.shape[2:]}")
        corner = draw.integers(rows, columns)
        windows = np.lib.stride_tricks.sliding_window_view(images, (height, width), axis=(2, 3))
        return windows[np.arange(len(images)), :, corner[:, 0], corner[:, 1]]


class RandomHorizontalFlip(Transform):
    """Mirror each sample left to right with probability `p`.

    Errors:  ValueError if p is outside 0 .. 1
    """

    def __init__(self, p: float = 0.5) -> None:
        self.p = p
        if not 0 <= real("RandomHorizontalFlip", "p", p) <= 1:
            raise ValueError(f"RandomHorizontalFlip: p is {p}; a probability is in 0 .. 1")

    def apply(self, images: Array, draw: Draw) -> Array:
        """Mirror the samples drawn."""
        mirrored = draw.uniform(1)[:, 0] < self.p
        result = images.copy()
        result[mirrored] = images[mirrored, :, :, ::-1]
        return result
