"""The loader in one process: lengths, orders, epochs, resuming, and arguments that cannot be."""

from __future__ import annotations

import json

import numpy as np
import pytest

from vtl_data import DataError, DataLoader, IterableDataset, RandomCrop, TensorDataset
from vtl_data.dataset import collate

DATA = TensorDataset(np.arange(10) * 3, np.arange(10))


class Stream(IterableDataset):
    def __init__(self, count):
        self.count = count

    def __iter__(self):
        return iter(range(self.count))


def indices(loader):
    return [batch[1].tolist() for batch in loader]


@pytest.mark.parametrize(
    ("count", "batch_size", "drop_last", "sizes"),
    [
        (10, 4, False, [4, 4, 2]),
        (10, 4, True, [4, 4]),
        (10, 20, True, []),
        (10, 20, False, [10]),
        (10, 5, True, [5, 5]),
        (0, 4, False, []),
    ],
)
@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("stream", [False, True])
def test_lengths_are_as_counted(count, batch_size, drop_last, sizes, num_workers, stream):
    """F02: ten by four are 4, 4, 2, and 4, 4 with drop_last; ten by twenty with drop_last and zero are none."""
    dataset = Stream(count) if stream else range(count)
    loader = DataLoader(dataset, batch_size, drop_last=drop_last, num_workers=num_workers)

    batches = list(loader)

    assert [len(batch) for batch in batches] == sizes
    assert [int(x) for batch in batches for x in batch] == list(range(sum(sizes)))
    if not stream:
        assert len(loader) == len(sizes)


def test_shuffling_differs_by_epoch_and_repeats_by_seed():
    """F02: epoch 1 is not epoch 2, each is a permutation, and a new loader with the same seed repeats them."""
    first, again, other = (DataLoader(DATA, 4, shuffle=True, seed=seed) for seed in (7, 7, 8))

    epochs = [indices(first) for _ in range(3)]

    assert all(sorted(index for batch in epoch for index in batch) == list(range(10)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    assert [indices(again) for _ in range(3)] == epochs
    assert indices(other) != epochs[0]


def test_set_epoch_changes_the_order():
    """F02: set_epoch(1) gives epoch 1's order, whatever came before."""
    loader = DataLoader(DATA, 4, shuffle=True)
    epochs = [indices(loader) for _ in range(2)]

    for epoch in (1, 0, 1):
        loader.set_epoch(epoch)
        assert indices(loader) == epochs[epoch]


def test_labels_stay_with_their_samples():
    """B15: shuffled batches keep image and label together."""
    for values, places in DataLoader(DATA, 3, shuffle=True, num_workers=2):
        np.testing.assert_array_equal(values, places * 3)


def test_leaving_early_ends_the_epoch():
    loader = DataLoader(DATA, 4, shuffle=True)
    expected = [indices(loader) for _ in range(2)]
    loader.set_epoch(0)

    for _ in loader:
        break

    assert indices(loader) == expected[1]


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("stop", [0, 1, 2, 3, 4, 6])
def test_state_resumes_batch_for_batch(num_workers, stop):
    dataset = TensorDataset(
        np.random.default_rng(0).integers(0, 256, (10, 1, 4, 4), dtype=np.uint8), transform=RandomCrop(4, 2)
    )

    def loader():
        return DataLoader(dataset, 4, shuffle=True, seed=2, num_workers=num_workers)

    def batches(source, epochs):
        return [batch[0] for _ in range(epochs) for batch in source]

    whole, broken, resumed = batches(loader(), 3), loader(), loader()
    seen, state = 0, broken.state_dict()
    while seen < stop:
        for _ in broken:
            seen, state = seen + 1, broken.state_dict()
            if seen == stop:
                break

    resumed.load_state_dict(json.loads(json.dumps(state)))
    rest = [batch[0] for batch in resumed]
    while len(rest) < len(whole) - stop:
        rest += [batch[0] for batch in resumed]

    assert len(rest) == len(whole) - stop
    for a, b in zip(rest, whole[stop:], strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("num_workers", [0, 3])
def test_state_of_a_stream_resumes(num_workers):
    loader = DataLoader(Stream(20), 3, num_workers=num_workers)
    batches = iter(loader)
    next(batches), next(batches)

    resumed = DataLoader(Stream(20), 3, num_workers=num_workers)
    resumed.load_state_dict(loader.state_dict())

    assert [int(x) for batch in resumed for x in batch] == list(range(6, 20))
    assert resumed.state_dict()["epoch"] == 1


@pytest.mark.parametrize("num_workers", [0, 2])
def test_what_a_stage_reads_ahead_was_not_passed_on(num_workers):
    """The state counts what came out, so the rest comes again; a stage is closed when the pass is left."""
    loader, closed = DataLoader(DATA, 2, shuffle=True, num_workers=num_workers), []

    def pairs(batches):
        try:
            for first in batches:
                yield first, next(batches, None)
        finally:
            closed.append(loader.state_dict()["position"])

    whole = indices(DataLoader(DATA, 2, shuffle=True))
    found = loader.through(pairs)
    (first, second), state = next(found), loader.state_dict()
    assert [first[1].tolist(), second[1].tolist()] == whole[:2]
    assert state["position"] == 1
    found.close()
    assert closed == [1]
    loader.load_state_dict(state)
    assert indices(loader) == whole[1:]
    assert list(loader.through(lambda batches: (len(batch[1]) for batch in batches))) == [2] * 5


def test_state_after_a_full_epoch_is_the_next_ones_start():
    loader = DataLoader(DATA, 4)
    list(loader)

    assert (loader.state_dict()["epoch"], loader.state_dict()["position"], loader.epoch) == (1, 0, 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 1}, "seed 1, this loader 0"),
        ({"batch_size": 5}, "batch_size 5, this loader 4"),
        ({"samples": 11}, "samples 11, this loader 10"),
        ({"shuffle": 1}, "shuffle 1, this loader 0"),
        ({"position": -1}, "position is -1"),
        ({"position": 4}, "the state has position 4, and an epoch has 3 batches"),
    ],
)
def test_state_of_another_loader_is_refused(change, message):
    loader = DataLoader(DATA, 4)

    with pytest.raises(ValueError, match=message):
        loader.load_state_dict({**loader.state_dict(), **change})
    with pytest.raises(ValueError, match="the state lacks"):
        loader.load_state_dict({"epoch": 1})


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"batch_size": 0}, ValueError, "batch_size is 0"),
        ({"batch_size": -3}, ValueError, "batch_size is -3"),
        ({"batch_size": 2.5}, TypeError, "batch_size must be an integer, not 2.5"),
        ({"batch_size": True}, ValueError, "batch_size is True"),
        ({"batch_size": None}, TypeError, "batch_size"),
        ({"num_workers": -1}, ValueError, "num_workers is -1"),
        ({"seed": -1}, ValueError, "seed is -1"),
        ({"timeout": -1}, ValueError, "timeout is -1"),
        (
            {"pin_memory": True},
            TypeError,
            r"^DataLoader: there is no argument pin_memory; vtl_nn\.data\.PinnedPrefetcher",
        ),
        ({"generator": 1}, TypeError, "no argument generator; the order belongs to a seed"),
        (
            {"workers": 2},
            TypeError,
            "no argument workers; it takes dataset, batch_size, .*num_workers.*, multiprocessing_context$",
        ),
        ({"shuffle": True, "sampler": [1]}, ValueError, "not both"),
        ({"dataset": 5}, TypeError, "int is no data set"),
        ({"dataset": iter([1])}, TypeError, "can be read once only"),
        ({"dataset": Stream(3), "shuffle": True}, ValueError, "order of a stream is its own"),
        ({"dataset": Stream(3), "sampler": [1]}, ValueError, "order of a stream is its own"),
    ],
)
def test_arguments_that_cannot_be_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        DataLoader(**{"dataset": DATA, **options})


def test_a_sampler_of_fractions_is_refused_and_not_cut_to_integers():
    with pytest.raises(TypeError, match="DataLoader: indices must be one-dimensional integers, not float64"):
        list(DataLoader(DATA, 4, sampler=[0.5, 1]))


def test_stream_without_a_length_has_none():
    with pytest.raises(TypeError, match="Stream has no length"):
        len(DataLoader(Stream(3)))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_collate_fn_gets_the_items(num_workers):
    loader = DataLoader(["a", "b", "c"], 2, num_workers=num_workers, collate_fn="".join)

    assert list(loader) == ["ab", "c"]
    with pytest.raises(DataError, match="pass your own collate_fn"):
        list(DataLoader(["a", "b", "c"], 2, num_workers=num_workers))


def test_loader_without_workers_leaves_the_global_generator_alone():
    np.random.seed(5)  # noqa: NPY002 - the global generator is the subject
    expected = np.random.rand(3)  # noqa: NPY002
    np.random.seed(5)  # noqa: NPY002

    list(DataLoader(DATA, 4, shuffle=True))

    np.testing.assert_array_equal(np.random.rand(3), expected)  # noqa: NPY002


def test_masked_elements_are_refused_not_stacked_as_if_they_counted():
    masked, whole = np.ma.masked_array([1.0, 2.0], mask=[0, 1]), np.ma.masked_array([1.0, 2.0])

    assert collate([whole, whole]).tolist() == [[1, 2], [1, 2]]
    for items in ([masked, masked], [whole, masked], [(masked, 1), (masked, 2)]):
        with pytest.raises(DataError, match=r"masked elements.*\.filled"):
            collate(items)
