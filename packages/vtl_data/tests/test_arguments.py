"""Arguments of a wrong type or range: said by name, in one line, by the function that got them."""

from __future__ import annotations

import numpy as np
import pytest

import vtl_data as data

IMAGES = np.ones((2, 3, 8, 8), np.uint8)

# what is called, and the name that its message has; each with values that cannot be
REFUSED = {
    "DataLoader timeout": (lambda v: data.DataLoader([1], timeout=v), ["1", None, [1], float("nan")]),
    "DataLoader collate_fn": (lambda v: data.DataLoader([1], collate_fn=v), [3, "stack"]),
    "DataLoader shuffle": (lambda v: data.DataLoader([1], shuffle=v), ["no", np.ones(2), [True]]),
    "DataLoader drop_last": (lambda v: data.DataLoader([1], drop_last=v), ["no", np.zeros((0, 2))]),
    "DataLoader multiprocessing_context": (
        lambda v: data.DataLoader([1], multiprocessing_context=v),
        ["threads", 3, np.ones(3)],
    ),
    "DataLoader state": (lambda v: data.DataLoader([1]).load_state_dict(v), [None, 3, [1], "x"]),
    "DataLoader epoch": (lambda v: data.DataLoader([1]).set_epoch(v), ["1", 1.5, None]),
    "RandomSampler seed": (lambda v: data.RandomSampler([1], seed=v), ["1", 1.5, None, (1, 2)]),
    "RandomSampler length": (data.RandomSampler, [3, None, 1.5, list]),
    "SequentialSampler length": (data.SequentialSampler, [3, None, iter([1])]),
    "DistributedSampler rank": (lambda v: data.DistributedSampler([1], 2, v), ["0", None, [0], 1.5]),
    "DistributedSampler num_replicas": (lambda v: data.DistributedSampler([1], v, 0), ["2", None, 1.5]),
    "Compose transforms": (data.Compose, [3, None, 1.5]),
    "ToFloat images": (data.ToFloat(), [[[1], [1, 2]], ["a"], None]),
    "Normalize mean": (lambda v: data.Normalize(v, 0.5), ["a", None, [[1], [1, 2]], len]),
    "Normalize std": (lambda v: data.Normalize(0.5, v), ["a", None, len]),
    "RandomCrop size": (data.RandomCrop, [1.5, "8", None, (8, 8.5), [], {}, float("nan"), True]),
    "RandomCrop padding": (lambda v: data.RandomCrop(8, v), [1.5, "1", None, {}, np.ones(2)]),
    "RandomHorizontalFlip p": (data.RandomHorizontalFlip, ["0.5", None, [0.5], 2, float("nan")]),
    "Subset length": (lambda v: data.Subset(v, [0]), [3, None]),
    "Subset indices": (lambda v: data.Subset([1, 2], v), [[[0], [0, 1]], 0.5, "0", [None]]),
    "random_split length": (lambda v: data.random_split([1, 2], v), [0.5, "11", None, ["a", "b"], [None]]),
    "random_split seed": (lambda v: data.random_split([1, 2], [1, 1], seed=v), [0.5, "1", None]),
    "collate items": (data.collate, [3, "ab", [], None, np.array(3.0), {}, [{"a": 1}, 2], [(1, 2), 3]]),
    "Shapes train": (lambda v: data.Shapes(1, train=v), ["yes", np.ones(2)]),
    "Shapes seed": (lambda v: data.Shapes(1, seed=v), ["1", 1.5, None]),
    "CIFAR10 train": (lambda v: data.CIFAR10("nowhere", train=v, download=False), ["yes", np.ones(2)]),
    "data_folder root": (lambda v: data.CIFAR10(v, download=False), [3, [1], np.ones(2)]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused_by_name(name):
    call, values = REFUSED[name]
    who, what = name.split(" ")
    for value in values:
        with pytest.raises((ValueError, TypeError)) as caught:
            call(value)

        text = str(caught.value)
        assert text.startswith(f"{who}:"), (value, text)
        assert what in text, (value, text)
        assert "\n" not in text


def test_numbers_of_numpy_are_numbers():
    assert data.RandomCrop(np.int64(4), np.int32(1))(IMAGES).shape == (2, 3, 4, 4)
    assert data.RandomHorizontalFlip(np.float32(0.5))(IMAGES).shape == IMAGES.shape
    assert len(data.DistributedSampler([1, 2, 3], np.int64(2), np.int8(1))) == 2
    assert [len(part) for part in data.random_split([1, 2, 3], np.array([1, 2]))] == [1, 2]


@pytest.mark.parametrize("value", ["1", 1.5, None, True, [0]], ids=repr)
def test_a_state_whose_numbers_are_none_is_refused_before_anything_changes(value):
    loader = data.DataLoader([1, 2, 3])
    before = loader.state_dict()
    for name in before:
        with pytest.raises((ValueError, TypeError), match=f"DataLoader: .*{name}"):
            loader.load_state_dict({**before, name: value})
        assert loader.state_dict() == before
