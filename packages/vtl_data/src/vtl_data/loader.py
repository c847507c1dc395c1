"""Batches of a data set, in an order that can be repeated, by this process or by workers."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from itertools import count, islice
from typing import Any, Never

from vtl_data.arguments import function, real, short, truth, whole
from vtl_data.dataset import Dataset, IterableDataset, as_indices, collate, fetch
from vtl_data.draw import Indices
from vtl_data.sampler import RandomSampler, SequentialSampler
from vtl_data.worker import Pool, seed_worker

Collate = Callable[[Sequence[Any]], Any]
Stage = Callable[[Iterator[Any]], Iterator[Any]]


@dataclass(frozen=True)
class _MapJob:
    """Batches of a data set whose items are reached by number."""

    dataset: Dataset[Any]
    order: Indices
    batch_size: int
    total: int
    collate_fn: Collate | None
    seed: int
    epoch: int
    start: int

    def share(self, worker: int, workers: int, *, seeded: bool) -> Iterator[tuple[int, Any]]:
        for number in range(self.start + worker, self.total, workers):
            indices = self.order[number * self.batch_size : (number + 1) * self.batch_size]
            if seeded:
                seed_worker(self.seed, self.epoch, number)
            if self.collate_fn is None:
                yield number, fetch(self.dataset, indices, seed=self.seed, epoch=self.epoch)
            else:
                yield number, self.collate_fn([self.dataset[index] for index in indices.tolist()])


@dataclass(frozen=True)
class _StreamJob:
    """Batches of a stream, which every worker runs from its start, keeping its own share."""

    dataset: Iterable[Any]
    batch_size: int
    drop_last: bool
    collate_fn: Collate | None
    seed: int
    epoch: int
    start: int

    def share(self, worker: int, workers: int, *, seeded: bool) -> Iterator[tuple[int, Any]]:
        if seeded:
            seed_worker(self.seed, self.epoch)  # alike in all, or their streams would differ
        stream = iter(self.dataset)
        for number in count():
            items = list(islice(stream, self.batch_size))
            if not items or (self.drop_last and len(items) < self.batch_size):
                return
            if number >= self.start and (number - self.start) % workers == worker:
                yield number, (self.collate_fn or collate)(items)


# PyTorch's arguments that are none here, and what there is instead
ELSEWHERE = {
    "batch_sampler": "give batch_size, and a sampler of indices",
    "generator": "the order belongs to a seed: seed=0",
    "persistent_workers": "workers live as long as a pass: leave it out",
    "pin_memory": "vtl_nn.data.PinnedPrefetcher(loader, device) copies batches ahead through pinned memory",
    "prefetch_factor": "vtl_nn.data.PinnedPrefetcher(loader, device) prepares batches ahead",
    "worker_init_fn": "NumPy's and Python's generators are seeded anew for every batch: leave it out",
}


class DataLoader:
    """The batches of `dataset`: arrays stacked along a new first axis, tuples of them where items are tuples.

    Every pass is an epoch, and the next pass is the next one. `shuffle` orders by (seed, epoch), so a new loader with
    the same seed repeats the same epochs, whatever the number of workers. `set_epoch` chooses the next pass's epoch;
    it is handed to the sampler and, with the seed, to `get_batch`. `state_dict` taken between two batches continues
    there after `load_state_dict`, batch for batch.

    With workers, NumPy's and Python's global generators are seeded anew for every batch, from (seed, epoch, batch);
    without, they are left alone. `multiprocessing_context` is "fork" on Linux and "spawn" elsewhere unless named; with
    "spawn" the data set must be picklable and is copied to every worker, every epoch. `timeout` counts seconds without
    a batch, 0 waits for ever: a worker that dies is noticed at once in any case. `collate_fn` gets a list of items
    and replaces stacking; `get_batch` is then not used.

    Shapes:  (batch_size, ...) but for the last batch of an epoch, which `drop_last` leaves out if it is short
    Errors:  ValueError for batch_size < 1, num_workers, seed or timeout < 0, sampler with shuffle, and either with a
             stream; TypeError for what is no data set; RuntimeError if a worker dies; what the data set raises
    """

    def __init__(
        self,
        dataset: Dataset[Any] | IterableDataset[Any] | Sequence[Any],
        batch_size: int = 1,
        shuffle: bool = False,
        drop_last: bool = False,
        num_workers: int = 0,
        seed: int = 0,
        sampler: Iterable[int] | None = None,
        *,
        collate_fn: Collate | None = None,
        timeout: float = 0,
        multiprocessing_context: str | None = None,
        **others: Never,
    ) -> None:
        for name in others:
            known = ELSEWHERE.get(name, f"it takes {', '.join(list(signature(DataLoader).parameters)[:-1])}")
            raise TypeError(f"DataLoader: there is no argument {name}; {known}")
        self.dataset = dataset
        self.batch_size = _at_least(1, "batch_size", batch_size)
        self.num_workers = _at_least(0, "num_workers", num_workers)
        self.seed = _at_least(0, "seed", seed)
        self.shuffle, self.drop_last = (
            truth("DataLoader", "shuffle", shuffle),
            truth("DataLoader", "drop_last", drop_last),
        )
        self.collate_fn = function("DataLoader", "collate_fn", collate_fn)
        if not real("DataLoader", "timeout", timeout) >= 0:
            raise ValueError(f"DataLoader: timeout is {timeout} s; it must be at least 0, and 0 waits for ever")
        method: object = multiprocessing_context
        if method is not None and not (isinstance(method, str) and method in ("fork", "spawn", "forkserver")):
            raise ValueError(
                f"DataLoader: multiprocessing_context is {short(multiprocessing_context)}; fork, spawn and forkserver are known"
            )
        self.timeout, self.multiprocessing_context = timeout, multiprocessing_context
        self._is_stream = _is_stream(dataset)
        if sampler is not None and shuffle:
            raise ValueError("DataLoader: give shuffle or a sampler, not both: the sampler decides the order")
        if self._is_stream and (shuffle or sampler is not None):
            raise ValueError(
                "DataLoader: the order of a stream is its own: shuffle and sampler need a data set with indices"
            )
        if sampler is not None and not hasattr(sampler, "__len__"):
            raise TypeError(f"DataLoader: the sampler {type(sampler).__name__} has no __len__")
        self.sampler: Any = sampler
        if sampler is None and not self._is_stream:
            self.sampler = RandomSampler(dataset, seed=self.seed) if shuffle else SequentialSampler(dataset)  # type: ignore[arg-type]
        self._epoch = self._position = self._passes = 0
        self._begun = False

    @property
    def epoch(self) -> int:
        """The epoch that is under way, or comes next."""
        return self._epoch

    def __len__(self) -> int:
        """Return the number of batches of an epoch; a stream without a length raises TypeError."""
        source = self.dataset if self._is_stream else self.sampler
        if not hasattr(source, "__len__"):
            raise TypeError(f"DataLoader: the stream {type(source).__name__} has no length")
        return self._batches(len(source))

    def _batches(self, samples: int) -> int:
        return samples // self.batch_size if self.drop_last else -(-samples // self.batch_size)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next pass, from its first batch."""
        self._epoch, self._position, self._begun = _at_least(0, "epoch", epoch), 0, False

    def state_dict(self) -> dict[str, int]:
        """Return where the loader is: plain integers, for a checkpoint. Position counts batches of this epoch."""
        return {"epoch": self._epoch, "position": self._position, **self._identity()}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Let the next pass go on where `state` was taken.

        Errors:  ValueError if `state` lacks something or comes from a loader of other seed, batch size or data set size
        """
        if not isinstance(state, Mapping):
            raise TypeError(f"DataLoader: a state is a dict, not {short(state)}; give what state_dict() returned")
        if missing := {"epoch", "position", *self._identity()} - state.keys():
            raise ValueError(f"DataLoader: the state lacks {sorted(missing)}")
        for name, ours in self._identity().items():
            if type(state[name]) is not int or state[name] != ours:
                raise ValueError(
                    f"DataLoader: the state has {name} {short(state[name])}, this loader {ours}; they must be alike"
                )
        position = _at_least(0, "position", state["position"])
        if not self._is_stream and position > len(self):
            raise ValueError(f"DataLoader: the state has position {position}, and an epoch has {len(self)} batches")
        self.set_epoch(_at_least(0, "epoch", state["epoch"]))
        self._position = position

    def _identity(self) -> dict[str, int]:
        samples = -1 if self._is_stream else len(self.sampler)
        return {"seed": self.seed, "batch_size": self.batch_size, "samples": samples, "shuffle": int(self.shuffle)}

    def __iter__(self) -> Iterator[Any]:
        return self.through(iter)

    def through(self, stage: Stage) -> Iterator[Any]:
        """A pass whose batches `stage` turns into what comes out; it may read ahead of that.

        `state_dict` counts what came out. A stage that is a generator is closed before workers are.
        """
        if self._begun:
            self.set_epoch(self._epoch + 1)
        self._begun = True
        self._passes += 1
        return self._run(self._job(), self._passes, stage)

    def _job(self) -> _MapJob | _StreamJob:
        shared = {"seed": self.seed, "epoch": self._epoch, "start": self._position, "collate_fn": self.collate_fn}
        if self._is_stream:
            return _StreamJob(self.dataset, self.batch_size, self.drop_last, **shared)  # type: ignore[arg-type]
        if hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(self._epoch)
        order = getattr(self.sampler, "order", None)
        indices = order() if order else list(self.sampler)
        indices = as_indices(indices, len(self.dataset), "DataLoader")  # type: ignore[arg-type]
        return _MapJob(self.dataset, indices, self.batch_size, self._batches(len(indices)), **shared)  # type: ignore[arg-type]

    def _run(self, job: _MapJob | _StreamJob, this_pass: int, stage: Stage) -> Iterator[Any]:
        position = job.start
        pool = staged = None
        try:
            if self.num_workers and not (isinstance(job, _MapJob) and job.total <= job.start):
                pool = Pool(job, self.num_workers, self.multiprocessing_context, self.timeout)
                batches = pool.batches()
            else:
                batches = (batch for _, batch in job.share(0, 1, seeded=False))
            staged = stage(batches)
            for batch in staged:
                position += 1
                if this_pass == self._passes and self._begun:
                    self._position = position
                yield batch
        finally:
            if isinstance(staged, Generator):
                staged.close()
            if pool is not None:
                pool.close()
        if this_pass == self._passes and self._begun:
            self.set_epoch(self._epoch + 1)


def _at_least(least: int, name: str, value: int) -> int:
    return whole("DataLoader", name, value, least)


def _is_stream(dataset: object) -> bool:
    if isinstance(dataset, IterableDataset):
        return True
    if hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"):
        return False
    if hasattr(dataset, "__next__"):
        raise TypeError(f"DataLoader: a {type(dataset).__name__} can be read once only; wrap it in an IterableDataset")
    if hasattr(dataset, "__iter__"):
        return True
    raise TypeError(
        f"DataLoader: {type(dataset).__name__} is no data set: it has neither __getitem__ and __len__ nor __iter__"
    )
