"""Data sets, transforms and loaders that need NumPy only: CIFAR-10, and Shapes, drawn from a seed."""

from vtl_data import _compat  # noqa: F401 - first: it refuses what does not fit
from vtl_data._version import __version__
from vtl_data.cifar import CIFAR10, CIFAR100
from vtl_data.dataset import Dataset, IterableDataset, Subset, TensorDataset, collate, random_split
from vtl_data.draw import Draw
from vtl_data.errors import DataError
from vtl_data.loader import DataLoader
from vtl_data.sampler import DistributedSampler, RandomSampler, Sampler, SequentialSampler
from vtl_data.shapes import Shapes
from vtl_data.transforms import Compose, Normalize, RandomCrop, RandomHorizontalFlip, ToFloat, Transform

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
