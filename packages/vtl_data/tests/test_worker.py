"""Workers: their seeds, their failures, their end. Each of these once hung or lied somewhere."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import random
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path

import numpy as np
import pytest

from vtl_data import DataError, DataLoader, IterableDataset, Shapes, TensorDataset

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="data sets of a test travel by fork only")


class Numbers:
    """Ten numbers through a function, which runs in the worker."""

    def __init__(self, function, count=10):
        self.function, self.count = function, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.function(index)


def children():
    gc.collect()
    return [process for process in multiprocessing.active_children() if process.name.startswith("vtl-data")]


def test_workers_draw_differently_and_repeat_by_seed():
    """F01: first draws of four workers are distinct, differ between epochs, and repeat with the master seed."""

    def epochs(seed):
        dataset = Numbers(lambda _: (np.random.randint(0, 2**31), random.getrandbits(31)), 4)  # noqa: NPY002
        loader = DataLoader(dataset, num_workers=4, seed=seed)
        return [[int(x[0]) for batch in loader for x in batch] for _ in range(2)]

    first, again, other = epochs(1), epochs(1), epochs(2)

    assert len({*first[0], *first[1], *other[0], *other[1]}) == 32
    assert again == first


def test_draws_depend_neither_on_the_number_of_workers_nor_on_resuming():
    dataset = Numbers(lambda _: np.random.randint(0, 2**31), 12)  # noqa: NPY002
    whole = [batch.tolist() for batch in DataLoader(dataset, 2, num_workers=3, seed=1)]

    resumed = DataLoader(dataset, 2, num_workers=2, seed=1)
    resumed.load_state_dict({**resumed.state_dict(), "position": 2})

    assert [batch.tolist() for batch in DataLoader(dataset, 2, num_workers=1, seed=1)] == whole
    assert [batch.tolist() for batch in resumed] == whole[2:]


def test_exception_comes_through_with_type_text_and_traceback():
    """F03 (a): ValueError("bad 7") in a worker is ValueError("bad 7") here, with the worker's traceback."""

    def fail_at_seven(index):
        if index == 7:
            raise ValueError("bad 7")
        return index

    batches = iter(DataLoader(Numbers(fail_at_seven), num_workers=2))
    assert [int(next(batches)[0]) for _ in range(7)] == list(range(7))
    with pytest.raises(ValueError, match=r"^bad 7$") as caught:
        next(batches)

    shown = "".join(traceback.format_exception(caught.value))
    assert "in worker 1:" in shown
    assert "in fail_at_seven" in shown
    assert children() == []


def test_exception_that_cannot_travel_comes_as_text():
    class Local(Exception):
        pass

    def fail(index):
        raise Local("far away")

    with pytest.raises(RuntimeError, match="Local: far away"):
        list(DataLoader(Numbers(fail), num_workers=2))


@pytest.mark.parametrize("index", [0, 5])
def test_worker_that_exits_is_noticed_and_its_code_named(index):
    """F03 (b): os._exit(3) in a worker is a RuntimeError within seconds."""
    start = time.monotonic()

    with pytest.raises(RuntimeError, match="ended with exit code 3"):
        list(DataLoader(Numbers(lambda i: os._exit(3) if i == index else i), num_workers=2))

    assert time.monotonic() - start < 15
    assert children() == []


def test_worker_that_is_killed_is_noticed_and_its_signal_named():
    """F03 (b): so is a worker that the system kills, and memory is named as the usual cause."""
    with pytest.raises(RuntimeError, match=r"killed by signal 9 \(SIGKILL\).*out of memory"):
        list(DataLoader(Numbers(lambda i: os.kill(os.getpid(), signal.SIGKILL)), num_workers=2))


def test_result_that_cannot_be_pickled_is_an_error():
    """F03 (c): no hang, and the message says what to return."""
    with pytest.raises(DataError, match=r"batch 0 cannot be sent .* return arrays and numbers") as caught:
        list(DataLoader(Numbers(lambda i: i), num_workers=2, collate_fn=lambda items: lambda: items))

    assert "\n" not in str(caught.value)
    assert children() == []


def test_silence_is_an_error_after_the_timeout():
    with pytest.raises(RuntimeError, match=r"has sent nothing for 0\.3 s"):
        list(DataLoader(Numbers(lambda i: time.sleep(60)), num_workers=1, timeout=0.3))

    assert children() == []


@pytest.mark.parametrize("take", [0, 1, 3])
def test_leaving_early_leaves_no_child_alive(take):
    """F03 (d): after `del loader` no worker is left, whether it was busy, waiting to send, or at its end."""
    loader = DataLoader(Numbers(lambda i: np.zeros(300_000)), num_workers=3)
    batches = iter(loader)
    for _ in range(take):
        next(batches)
    pids = [process.pid for process in children()]

    del batches, loader

    assert len(pids) == (3 if take else 0)
    assert children() == []
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_break_leaves_no_child_alive():
    """F03 (d): breaking out of the loop is enough."""
    for _ in DataLoader(Numbers(lambda i: i, 1000), num_workers=2):
        assert len(children()) == 2
        break

    assert children() == []


def test_finished_epoch_leaves_no_child_alive():
    list(DataLoader(Numbers(lambda i: i), num_workers=2))

    assert children() == []


def test_worker_does_not_outlive_a_killed_parent():
    script = (
        "import multiprocessing, os, numpy as np, vtl_data as data\n"
        "it = iter(data.DataLoader(data.TensorDataset(np.zeros((500, 100_000), np.uint8)), num_workers=3)); next(it)\n"
        "print(*[p.pid for p in multiprocessing.active_children()], flush=True); os.kill(os.getpid(), 9)"
    )
    result = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=False)
    pids = [int(pid) for pid in result.stdout.split()]

    assert len(pids) == 3
    deadline = time.monotonic() + 30
    while any(is_running(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_handler_of_the_parent_does_not_keep_workers_alive():
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        start = time.monotonic()
        for _ in DataLoader(Numbers(lambda i: time.sleep(0.01 * (i > 1)) or i, 10_000), num_workers=2):
            break
        assert time.monotonic() - start < 15
    finally:
        signal.signal(signal.SIGTERM, before)
    assert children() == []


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
def test_stream_yields_each_item_once(workers):
    """F03: range(6) with three workers is each item once, not three times."""

    class Stream(IterableDataset):
        def __iter__(self):
            return iter(range(6))

    loader = DataLoader(Stream(), num_workers=workers)

    assert [int(batch[0]) for batch in loader] == list(range(6))
    assert [batch.tolist() for batch in DataLoader(Stream(), 4, num_workers=workers)] == [[0, 1, 2, 3], [4, 5]]


def test_stream_that_draws_at_random_is_one_stream():
    class Stream(IterableDataset):
        def __iter__(self):
            for index in range(9):
                yield index, np.random.randint(0, 2**31)  # noqa: NPY002

    epochs = [[[part.tolist() for part in batch] for batch in DataLoader(Stream(), 2, num_workers=n)] for n in (1, 3)]

    assert epochs[0] == epochs[1]


def test_order_is_the_same_with_any_number_of_workers():
    dataset = TensorDataset(np.arange(50))
    orders = [[x for b in DataLoader(dataset, 4, shuffle=True, num_workers=n) for x in b[0]] for n in (0, 1, 3)]

    assert orders[0] == orders[1] == orders[2]


def test_no_batch_is_mistaken_for_the_end():
    loader = DataLoader(["end", "", "x"], num_workers=2, collate_fn=lambda items: items[0] or None)

    assert list(loader) == ["end", None, "x"]


def test_large_batches_pass_whole():
    data = np.random.default_rng(0).integers(0, 256, (64, 200_000), dtype=np.uint8)

    for place, (batch,) in enumerate(DataLoader(TensorDataset(data), 16, num_workers=2)):
        np.testing.assert_array_equal(batch, data[16 * place : 16 * (place + 1)])


def test_spawned_workers_give_the_same_batches():
    dataset = Shapes(20)
    plain = list(DataLoader(dataset, 8, shuffle=True))
    spawned = list(DataLoader(dataset, 8, shuffle=True, num_workers=2, multiprocessing_context="spawn"))

    assert len(spawned) == 3
    for a, b in zip(plain, spawned, strict=True):
        np.testing.assert_array_equal(a[0], b[0])
        np.testing.assert_array_equal(a[1], b[1])
    assert children() == []


def test_data_set_that_cannot_be_spawned_is_an_error_and_leaves_no_child():
    with pytest.raises((AttributeError, pickle.PicklingError), match="pickle"):
        list(DataLoader(Numbers(lambda i: i), num_workers=2, multiprocessing_context="spawn"))

    assert children() == []
