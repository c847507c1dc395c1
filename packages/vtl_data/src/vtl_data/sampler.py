"""The order in which a loader visits a data set: in turn, shuffled by (seed, epoch), or one rank's share."""

from __future__ import annotations

from collections.abc import Iterator, Sized

import numpy as np

from vtl_data.arguments import sized, truth, whole
from vtl_data.draw import Indices, permutation


class Sampler:
    """An order of indices that may change by epoch; a subclass defines `order` and `__len__`.

    A loader takes any sampler with `__iter__` and `__len__`; where it has `set_epoch`, the loader calls it.
    """

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose order comes next."""
        self.epoch = epoch

    def order(self) -> Indices:
        """Return this epoch's indices."""
        raise NotImplementedError(f"{type(self).__name__} must define order")

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} must define __len__")

    def __iter__(self) -> Iterator[int]:
        return iter(self.order().tolist())


class SequentialSampler(Sampler):
    """Every index once, in turn."""

    def __init__(self, dataset: Sized) -> None:
        self.dataset = sized("SequentialSampler", dataset)

    def order(self) -> Indices:
        """Return 0 .. N - 1."""
        return np.arange(len(self.dataset), dtype=np.int64)

    def __len__(self) -> int:
        return len(self.dataset)


class RandomSampler(Sampler):
    """Every index once, in an order drawn from (seed, epoch), the same on every platform."""

    def __init__(self, dataset: Sized, *, seed: int = 0) -> None:
        self.dataset = sized("RandomSampler", dataset)
        self.seed = whole("RandomSampler", "seed", seed)

    def order(self) -> Indices:
        """Return this epoch's permutation."""
        return permutation(len(self.dataset), self.seed, self.epoch)

    def __len__(self) -> int:
        return len(self.dataset)


class DistributedSampler(Sampler):
    """One rank's share of every epoch: all ranks shuffle alike and rank r takes places r, r + R, r + 2R, ...

    Every rank gets as many samples: without `drop_last` the order is continued from its start until R divides it, so
    up to R - 1 samples come twice; with it the tail that R does not divide is left out.

    Errors:  ValueError if rank is not in 0 .. num_replicas - 1
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int,
        rank: int,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        name = "DistributedSampler"
        num_replicas, rank = whole(name, "num_replicas", num_replicas), whole(name, "rank", rank)
        if num_replicas < 1 or not 0 <= rank < num_replicas:
            raise ValueError(f"DistributedSampler: rank {rank} of {num_replicas}; a rank is in 0 .. num_replicas - 1")
        self.dataset, self.num_replicas, self.rank = sized(name, dataset), num_replicas, rank
        self.shuffle, self.drop_last = truth(name, "shuffle", shuffle), truth(name, "drop_last", drop_last)
        self.seed = whole(name, "seed", seed)

    def order(self) -> Indices:
        """Return this rank's indices."""
        count = len(self.dataset)
        every = permutation(count, self.seed, self.epoch) if self.shuffle else np.arange(count, dtype=np.int64)
        places = [
            (self.rank + turn * self.num_replicas) % count for turn in range(len(self))
        ]  # past the end, its start again
        return every[np.array(places, np.int64)]

    def __len__(self) -> int:
        count, ranks = len(self.dataset), self.num_replicas
        return count // ranks if self.drop_last else -(-count // ranks)
