"""Batches made ahead: the loader's, in its order, no more of them than were asked for, and nothing is left running."""

from __future__ import annotations

import threading
from collections import namedtuple

import numpy as np
import pytest

import vtl_core as vtl
import vtl_data
import vtl_nn as nn
from vtl_nn.data import DeviceLoader, PinnedPrefetcher, ahead

DATA = vtl_data.TensorDataset(np.arange(44, dtype=np.float32).reshape(22, 2), np.arange(22) % 3)


def loader(**options):
    return vtl_data.DataLoader(DATA, 4, shuffle=True, seed=5, **options)


def elsewhere(device):
    if device == "cpu":
        pytest.skip("this is about a device that is not the host")


def running():
    return [thread for thread in threading.enumerate() if thread.name == "vtl prefetch"]


def now(batch):
    return lambda: batch


# the thread
def test_batches_come_in_order_and_the_thread_ends():
    assert list(ahead(iter(range(50)), now, 3)) == list(range(50))
    assert not running()


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_no_more_is_made_than_depth_beyond_what_was_asked_for(depth):
    made = []
    full = threading.Event()

    def numbers():
        for k in range(40):
            made.append(k)
            if len(made) == depth + 1:
                full.set()
            yield k

    batches = ahead(numbers(), now, depth)
    assert next(batches) == 0
    assert full.wait(10)
    for _ in range(5):
        next(batches)
    assert len(made) <= 6 + depth
    batches.close()


def test_what_the_loader_or_the_copy_raises_comes_where_the_batch_would():
    def broken():
        yield 1
        raise KeyError("the third file is missing")

    batches = ahead(broken(), now, 2)
    assert next(batches) == 1
    with pytest.raises(KeyError, match="the third file is missing"):
        next(batches)

    def refuses(batch):
        if batch == 2:
            raise vtl.OutOfMemoryError("asked for more than there is")
        return now(batch)

    batches = ahead(iter(range(5)), refuses, 2)
    assert [next(batches), next(batches)] == [0, 1]
    with pytest.raises(vtl.OutOfMemoryError, match="asked for more"):
        next(batches)
    assert not running()


def test_a_loop_that_is_left_ends_the_thread():
    for number in ahead(iter(int, 1), now, 2):  # endless
        assert number == 0
        break
    assert not running()
    batches = ahead(iter(int, 1), now, 2)
    next(batches)
    with pytest.raises(RuntimeError, match="of the loop"):
        batches.throw(RuntimeError("of the loop"))
    assert not running()


# on the host
def test_on_the_cpu_nothing_is_read_ahead_and_no_thread_runs():
    asked = []

    def numbers():
        for k in range(3):
            asked.append(k)
            yield np.full(2, k), {"label": k}

    for k, (x, rest) in enumerate(PinnedPrefetcher(numbers(), "cpu")):
        assert (x.tolist(), rest, asked[-1]) == ([k, k], {"label": k}, k)
        assert not running()


def test_what_else_the_loader_has_is_found_and_a_bad_depth_is_refused():
    source = loader()
    coming = PinnedPrefetcher(source, "cpu")
    assert (len(coming), coming.epoch, coming.seed) == (6, 0, 5)
    coming.set_epoch(3)
    assert source.epoch == 3
    with pytest.raises(AttributeError, match="nonsense"):
        _ = coming.nonsense
    with pytest.raises(TypeError, match="len"):
        len(PinnedPrefetcher(iter([]), "cpu"))
    for depth in (0, 1.5, True):
        with pytest.raises(vtl.AttributeValueError, match="depth="):
            PinnedPrefetcher(source, "cpu", depth=depth)


# on a device
@pytest.mark.parametrize("workers", [0, 2])
def test_the_batches_are_the_loader_s_bit_for_bit_epoch_after_epoch(device, workers):
    """Values, order and dtypes; floating ones take the dtype that was asked for."""
    coming = PinnedPrefetcher(loader(num_workers=workers), device)
    for _ in range(2):
        got = [(x.device, x.dtype, x.numpy(), y.numpy()) for x, y in coming]
        for (place, dtype, x, y), (a, b) in zip(got, loader_epoch(coming.epoch - 1), strict=True):
            assert (place, dtype) == (f"{device}:0", vtl.float32)
            assert x.tobytes() == a.tobytes()
            assert y.tobytes() == b.tobytes()
    narrow = next(iter(PinnedPrefetcher(loader(), device, dtype="float16")))
    assert (narrow[0].dtype, narrow[1].dtype) == (vtl.float16, vtl.int64)


def test_a_device_loader_is_a_data_loader_of_tensors(device):
    """With every option of the DataLoader; on the default device unless told."""
    coming = DeviceLoader(DATA, batch_size=4, shuffle=True, seed=5, device=device)
    assert (len(coming), coming.batch_size, coming.seed) == (6, 4, 5)
    for (x, y), (a, b) in zip(coming, loader_epoch(0), strict=True):
        assert (x.device, x.dtype, x.tolist(), y.tolist()) == (f"{device}:0", vtl.float32, a.tolist(), b.tolist())
    assert next(iter(DeviceLoader(DATA)))[0].device == vtl.default_context().device
    with pytest.raises(TypeError, match="batch"):
        DeviceLoader(DATA, batch=4)


def loader_epoch(epoch):
    source = loader()
    source.set_epoch(epoch)
    return list(source)


def test_state_counts_what_came_out_not_what_was_read_ahead(device):
    """A checkpoint between two batches goes on with the next one."""
    source = loader()
    coming = PinnedPrefetcher(source, device, depth=3)
    whole = [y.tolist() for _, y in PinnedPrefetcher(loader(), device)]
    for number, (_, y) in enumerate(coming):
        assert y.tolist() == whole[number]
        assert source.state_dict()["position"] == number + 1
        if number == 2:
            state = coming.state_dict()
            break
    assert not running()
    again = PinnedPrefetcher(loader(), device)
    again.load_state_dict(state)
    assert [y.tolist() for _, y in again] == whole[3:]


def test_a_loader_that_does_not_say_what_was_passed_on_is_not_read_ahead(device):
    elsewhere(device)

    class Counting:
        position = 0

        def __iter__(self):
            for k in range(5):
                self.position = k + 1
                yield np.full(3, k)

        def state_dict(self):
            return {"position": self.position}

    source = Counting()
    for k, batch in enumerate(PinnedPrefetcher(source, device)):
        assert source.position == k + 1
        assert batch.tolist() == [k] * 3


def test_arrays_within_tuples_lists_and_dicts_become_tensors_and_nothing_else_does(device):
    elsewhere(device)
    Pair = namedtuple("Pair", "image name")
    here = vtl.tensor([1.0, 2.0], device="cpu")
    batch = {"a": [np.ones(2, np.float32), "text"], "b": Pair(np.zeros((2, 0)), None), "c": here, "d": np.array(["x"])}
    (got,) = PinnedPrefetcher([batch], device)
    assert got["a"][0].device == got["c"].device == got["b"].image.device == f"{device}:0"
    assert (got["a"][1], got["b"].name, got["d"].tolist()) == ("text", None, ["x"])
    assert got["b"].image.shape == (2, 0)
    assert got["c"].tolist() == [1.0, 2.0]


def test_memory_stays_bounded_and_every_byte_is_counted_once(device, moved):
    """D23: two epochs hold no more than one, and what went up is the batches."""
    elsewhere(device)
    source = [(np.full((64, 33), k, np.float32), np.arange(64)) for k in range(20)]
    probe = vtl.zeros(1, device=device)
    backend = probe.raw.buffer.backend
    reserved = []
    for _ in range(3):
        before = moved(probe)[0]
        for k, (x, _) in enumerate(PinnedPrefetcher(source, device)):
            assert (x * 2 + 1).sum().item() == (2 * k + 1) * x.size
        assert moved(probe)[0] - before == sum(x.nbytes + y.nbytes for x, y in source)
        reserved.append(backend.memory().reserved)
    assert reserved[1] == reserved[2]


def test_fit_is_the_same_with_batches_made_ahead(device):
    """Losses of every step, bit for bit, and none but the loss is read."""
    elsewhere(device)

    def losses(source):
        vtl.manual_seed(1)
        model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 3)).to(device)
        optimizer = nn.optim.SGD(model.parameters(), lr=0.01)
        return nn.fit(model, source, optimizer=optimizer, epochs=2, validation=source, progress=False).losses

    assert losses(PinnedPrefetcher(loader(), device)) == losses(loader())
