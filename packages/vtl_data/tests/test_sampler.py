"""Orders: in turn, shuffled, and shared out over ranks."""

from __future__ import annotations

import numpy as np
import pytest

from vtl_data import DataLoader, DistributedSampler, RandomSampler, SequentialSampler, TensorDataset


def test_sequential_order_is_in_turn():
    assert list(SequentialSampler(range(4))) == [0, 1, 2, 3]


def test_random_order_is_a_permutation_that_changes_with_epoch_and_seed():
    """F02: each epoch is a permutation, epochs differ, and the same seed repeats them."""
    orders = []
    for seed, epoch in [(0, 0), (0, 1), (1, 0), (0, 0)]:
        sampler = RandomSampler(range(10), seed=seed)
        sampler.set_epoch(epoch)
        orders.append(list(sampler))

    assert all(sorted(order) == list(range(10)) for order in orders)
    assert len({tuple(order) for order in orders}) == 3
    assert orders[0] == orders[3]


def test_random_order_is_uniform():
    places = np.zeros((5, 5), int)
    sampler = RandomSampler(range(5), seed=1)
    for epoch in range(4000):
        sampler.set_epoch(epoch)
        places[sampler.order(), range(5)] += 1

    assert abs(places - 800).max() < 6 * np.sqrt(800)


def shares(count, ranks, **options):
    return [list(DistributedSampler(range(count), ranks, rank, **options)) for rank in range(ranks)]


def test_ranks_share_by_turns_and_wrap_around():
    """F02: ten over four ranks without drop_last."""
    assert shares(10, 4, shuffle=False) == [[0, 4, 8], [1, 5, 9], [2, 6, 0], [3, 7, 1]]


def test_ranks_drop_the_tail_that_does_not_divide():
    """F02: ten over four ranks with drop_last are two each."""
    assert shares(10, 4, shuffle=False, drop_last=True) == [[0, 4], [1, 5], [2, 6], [3, 7]]


def test_ranks_shuffle_alike_and_set_epoch_changes_the_order():
    """F02: set_epoch(1) changes the order, and the ranks still share no sample."""
    loaders = [DataLoader(range(12), sampler=DistributedSampler(range(12), 3, rank, seed=5)) for rank in range(3)]
    epochs = []
    for epoch in (0, 1):
        for loader in loaders:
            loader.set_epoch(epoch)
        epochs.append([[int(batch[0]) for batch in loader] for loader in loaders])

    for epoch in epochs:
        assert sorted(index for share in epoch for index in share) == list(range(12))
    assert epochs[0] != epochs[1]


@pytest.mark.parametrize(("count", "lengths"), [(0, 0), (2, 1), (4, 1), (5, 2)])
def test_ranks_get_as_many_each_even_of_few(count, lengths):
    for rank, share in enumerate(shares(count, 4)):
        assert len(share) == lengths == len(DistributedSampler(range(count), 4, rank))


@pytest.mark.parametrize(("ranks", "rank"), [(0, 0), (2, 2), (2, -1)])
def test_rank_outside_is_refused(ranks, rank):
    with pytest.raises(ValueError, match=f"rank {rank} of {ranks}"):
        DistributedSampler(range(3), ranks, rank)


def test_loader_takes_any_sampler_with_a_length():
    loader = DataLoader(TensorDataset(np.arange(10)), batch_size=2, sampler=[7, 1, 7])

    assert [batch[0].tolist() for batch in loader] == [[7, 1], [7]]
    assert len(loader) == 2
    with pytest.raises(IndexError, match="index 10"):
        list(DataLoader(range(10), sampler=[10]))
    with pytest.raises(TypeError, match="has no __len__"):
        DataLoader(range(10), sampler=iter([1]))
