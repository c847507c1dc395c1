"""Data sets of arrays, parts of them, splits, and how items become batches."""

from __future__ import annotations

import numpy as np
import pytest

from vtl_data import DataError, Dataset, RandomCrop, Subset, TensorDataset, collate, random_split
from vtl_data.dataset import fetch


@pytest.fixture
def arrays():
    generator = np.random.default_rng(2)
    return generator.integers(0, 256, (10, 3, 8, 8), dtype=np.uint8), generator.integers(0, 5, 10)


def test_item_and_batch_are_the_same_rows(arrays):
    dataset = TensorDataset(*arrays)

    images, labels = dataset.get_batch([3, -1])

    assert isinstance(dataset, Dataset)
    for place, index in enumerate([3, 9]):
        np.testing.assert_array_equal(images[place], dataset[index][0])
        np.testing.assert_array_equal(images[place], arrays[0][index])
        assert labels[place] == dataset[index][1] == arrays[1][index]


def test_caller_who_changes_a_list_or_an_array_later_changes_nothing(arrays):
    """B16: the data set owns its values."""
    rows, array = [[1.0, 2.0], [3.0, 4.0]], arrays[0].copy()
    of_list, of_array = TensorDataset(rows), TensorDataset(array)

    rows[0][0] = 9.0
    rows.append([5.0, 6.0])
    array[:] = 0

    np.testing.assert_array_equal(of_list.get_batch([0, 1])[0], [[1, 2], [3, 4]])
    np.testing.assert_array_equal(of_array.get_batch(range(10))[0], arrays[0])


def test_item_can_be_written_to_and_the_data_set_stays(arrays):
    dataset = TensorDataset(*arrays)

    dataset[0][0][:] = 0
    dataset.get_batch([0])[0][:] = 0

    np.testing.assert_array_equal(dataset[0][0], arrays[0][0])
    with pytest.raises(ValueError, match="read-only"):
        dataset.arrays[0][0] = 0


def test_lists_become_float32_and_int64_and_arrays_keep_their_dtype():
    dataset = TensorDataset([[1.5]], [2], np.zeros((1, 2), np.float64), np.zeros(1, np.uint8))

    assert [array.dtype for array in dataset.arrays] == [np.float32, np.int64, np.float64, np.uint8]


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ((), TypeError, "at least one array"),
        (([1, 2], [1]), DataError, r"lengths \[2, 1\]"),
        (([[1, 2], [1]],), DataError, "array 0 is ragged"),
        ((["a"],), DataError, "rows of numbers"),
        ((3,), DataError, "rows of numbers"),
    ],
)
def test_values_that_are_no_rows_of_numbers_are_refused(values, error, message):
    with pytest.raises(error, match=message):
        TensorDataset(*values)


def test_index_outside_is_refused(arrays):
    dataset = TensorDataset(*arrays)

    for index in (10, -11):
        with pytest.raises(IndexError, match=f"index {index} is outside a data set of 10"):
            dataset[index]


def test_iterating_a_data_set_ends(arrays):
    assert len(list(TensorDataset(*arrays))) == 10


def test_subset_is_augmented_as_the_whole_is(arrays):
    whole = TensorDataset(*arrays, transform=RandomCrop(8, padding=3))
    part = Subset(Subset(whole, [7, 2, 5]), [1, 2])

    images, labels = part.get_batch([0, 1], seed=4, epoch=6)

    expected = whole.get_batch([2, 5], seed=4, epoch=6)
    np.testing.assert_array_equal(images, expected[0])
    np.testing.assert_array_equal(labels, expected[1])
    np.testing.assert_array_equal(part[1][0], whole[5][0])
    with pytest.raises(IndexError, match="index 10"):
        Subset(whole, [10])


def test_split_shares_no_sample_and_loses_none():
    """B15: a split by fraction, drawn from its seed."""
    dataset = TensorDataset(np.arange(103))

    train, val = random_split(dataset, [0.9, 0.1], seed=1)
    again = random_split(dataset, [0.9, 0.1], seed=1)
    other = random_split(dataset, [0.9, 0.1], seed=2)

    assert (len(train), len(val)) == (93, 10)
    assert sorted([*train.indices, *val.indices]) == list(range(103))
    np.testing.assert_array_equal(val.indices, again[1].indices)
    assert not np.array_equal(val.indices, other[1].indices)
    assert [len(part) for part in random_split(dataset, [100, 3, 0])] == [100, 3, 0]


@pytest.mark.parametrize("lengths", [[50, 50], [0.5, 0.4], [1.5, -0.5], []])
def test_split_that_does_not_add_up_is_refused(lengths):
    with pytest.raises(ValueError, match="random_split: lengths"):
        random_split(TensorDataset(np.arange(103)), lengths)


def test_collate_stacks_tuples_and_mappings_and_types_python_numbers():
    batch = collate(
        [{"x": np.ones(2, np.uint8), "y": (1, 2.0, True)}, {"x": np.zeros(2, np.uint8), "y": (3, 4.0, False)}]
    )

    np.testing.assert_array_equal(batch["x"], [[1, 1], [0, 0]])
    assert [part.tolist() for part in batch["y"]] == [[1, 3], [2.0, 4.0], [True, False]]
    assert [part.dtype for part in (batch["x"], *batch["y"])] == [np.uint8, np.int64, np.float32, bool]


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([np.ones(2), np.ones(3)], r"shapes \[\(2,\), \(3,\)\]"),
        ([(1, 2), (1,)], r"have \[1, 2\] parts"),
        (["a", "b"], "type str"),
        ([None, None], "type NoneType"),
        ([{"a": 1}, {"a": 1, "b": 2}], r"keys \['a'\] and \['a', 'b'\]"),
        ([{"a": 1}, {}], r"keys \['a'\] and \[\]"),
    ],
)
def test_items_that_do_not_stack_are_refused(items, message):
    with pytest.raises(DataError, match=message):
        collate(items)


def test_get_batch_without_an_epoch_is_called_without_one():
    class Plain:
        def __len__(self):
            return 5

        def __getitem__(self, index):
            raise AssertionError("the fast path is to be used")

        def get_batch(self, indices):
            return indices * 2

    assert fetch(Plain(), np.array([1, 2]), seed=1, epoch=1).tolist() == [2, 4]
