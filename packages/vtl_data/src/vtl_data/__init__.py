"""Data sets, transforms and loaders that need NumPy only: CIFAR-10, and Shapes, drawn from a seed."""

from typing import TYPE_CHECKING, Any

from vtl_data import _compat  # noqa: F401 - first: it refuses what does not fit
from vtl_data._version import __version__
from vtl_data.errors import DataError

if TYPE_CHECKING:
    from vtl_data.cifar import CIFAR10, CIFAR100
    from vtl_data.dataset import Dataset, IterableDataset, Subset, TensorDataset, collate, random_split
    from vtl_data.draw import Draw
    from vtl_data.loader import DataLoader
    from vtl_data.sampler import DistributedSampler, RandomSampler, Sampler, SequentialSampler
    from vtl_data.shapes import Shapes
    from vtl_data.transforms import Compose, Normalize, RandomCrop, RandomHorizontalFlip, ToFloat, Transform

# imported when first asked for: vtl_nn needs no more of this package than its version, until something is trained
_LATER = {
    "cifar": ("CIFAR10", "CIFAR100"),
    "dataset": ("Dataset", "IterableDataset", "Subset", "TensorDataset", "collate", "random_split"),
    "draw": ("Draw",),
    "loader": ("DataLoader",),
    "sampler": ("DistributedSampler", "RandomSampler", "Sampler", "SequentialSampler"),
    "shapes": ("Shapes",),
    "transforms": ("Compose", "Normalize", "RandomCrop", "RandomHorizontalFlip", "ToFloat", "Transform"),
}


if not TYPE_CHECKING:  # a checker would take any name for granted

    def __getattr__(name: str) -> Any:
        from importlib import import_module

        for module, names in _LATER.items():
            if name == module:
                return import_module(f"vtl_data.{module}")
            if name in names:
                globals()[name] = found = getattr(import_module(f"vtl_data.{module}"), name)
                return found
        raise AttributeError(f"module 'vtl_data' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__


__all__ = [
    "CIFAR10",
    "CIFAR100",
    "Compose",
    "DataError",
    "DataLoader",
    "Dataset",
    "DistributedSampler",
    "Draw",
    "IterableDataset",
    "Normalize",
    "RandomCrop",
    "RandomHorizontalFlip",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "Shapes",
    "Subset",
    "TensorDataset",
    "ToFloat",
    "Transform",
    "__version__",
    "collate",
    "random_split",
]
