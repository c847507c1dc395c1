"""The search for the quickest kernel: what is chosen, what is dropped, and what the next process finds."""

from __future__ import annotations

import json
import logging
import multiprocessing
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

from vsl_compute import registry
from vsl_compute.backend import DeviceInfo
from vsl_compute.backends.shared import tuning
from vsl_compute.backends.shared.cache import FileCache
from vsl_compute.backends.shared.scratch import ViewTrial, drawn
from vsl_compute.backends.shared.tuning import Key, Tuner, octave
from vsl_compute.dtypes import float16, float32, int32
from vsl_compute.errors import DeviceTimeoutError, KernelCompileError, OutOfMemoryError
from vsl_compute.view import Layout

KEY = Key("gemm", "nn 64x64x64", "float32")


class Device:
    """A pretended device: each candidate is (seconds a call, how it writes the result). Launching moves the clock."""

    tolerance = 1e-5
    host_share = 0.03

    def __init__(self, rng):
        self.now, self.launched, self.trials = 0.0, [], 0
        self.right = rng.standard_normal(100)
        self.out = np.zeros(100)

    def trial(self):
        self.trials += 1
        return self

    def clear(self):
        self.out = np.full(100, np.nan)

    def launch(self, candidate):
        seconds, write = candidate
        self.now += seconds
        self.launched.append(candidate)
        write(self)

    def result(self):
        return self.out.copy()


def right(device):
    device.out = device.right * (1 + 1e-7)


def wrong(device):
    device.out = device.right.copy()
    device.out[7] += 1


def idle(device):
    pass


def lazy(device):
    """Right at first, wrong once it was timed: a race."""
    device.out = device.right * (1 if len(device.launched) < 6 else 2)


def failing(device):
    raise KernelCompileError("broken: the driver refuses this text:\n   1 a long text")


def fatal(device):
    raise DeviceTimeoutError("the kernel did not finish")


def unknown(device):
    raise RuntimeError("clEnqueueNDRangeKernel failed: INVALID_WORK_GROUP_SIZE")


@pytest.fixture
def device(rng):
    return Device(rng)


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.setenv("VSL_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("VSL_AUTOTUNE", raising=False)
    return tmp_path / "tuning"


def tuner(device, *, kind="discrete", name="A card", driver="1.0"):
    info = DeviceInfo("opencl:0", "opencl", 0, name, kind, 1 << 30, ("float32",), driver)
    return Tuner(info, lambda: None, clock=lambda: device.now)


def choice(device, candidates, **options):
    """The name of what was chosen."""
    found = tuner(device, **options).choose(KEY, candidates, device.trial)
    return next(name for name, c in candidates.items() if c is found)


def test_the_quickest_right_candidate_is_chosen(device):
    assert choice(device, {"safe": (3e-3, right), "slow": (5e-3, right), "quick": (1e-3, right)}) == "quick"


def test_the_safe_one_stays_where_nothing_is_clearly_quicker(device):
    assert choice(device, {"safe": (1e-3, right), "equal": (0.99e-3, right)}) == "safe"


@pytest.mark.parametrize("liar", [wrong, idle, lazy, failing, unknown])
def test_a_candidate_that_lies_or_fails_is_never_chosen(device, liar, caplog, folder):
    """G15: fast and wrong, fast because it does nothing, right only until it was timed, and those that raise."""
    with caplog.at_level(logging.WARNING, "vsl_compute.tuning"):
        assert choice(device, {"safe": (3e-3, right), "liar": (1e-4, liar), "good": (2e-3, right)}) == "good"
    assert caplog.records[0].getMessage().startswith("liar: dropped: ")
    (file,) = folder.iterdir()
    assert kept(file)["choice"] == "good"


def test_what_the_safe_one_raises_is_raised(device):
    with pytest.raises(KernelCompileError):
        choice(device, {"safe": (1e-3, failing), "good": (1e-3, right)})


def test_a_choice_is_made_once_a_process_and_read_by_the_next(device):
    candidates = {"safe": (3e-3, right), "quick": (1e-3, right)}
    first = tuner(device)
    assert first.choose(KEY, candidates, device.trial) is first.choose(KEY, candidates, device.trial)
    assert device.trials == 1
    assert choice(device, candidates) == "quick"
    assert device.trials == 1


@pytest.mark.parametrize("options", [{"driver": "1.1"}, {"name": "Another card"}], ids=["driver", "device"])
def test_another_driver_or_device_searches_anew(device, options):
    candidates = {"safe": (3e-3, right), "quick": (1e-3, right)}
    choice(device, candidates)
    choice(device, candidates, **options)
    assert device.trials == 2


def test_another_list_of_candidates_searches_anew(device):
    choice(device, {"safe": (3e-3, right), "quick": (1e-3, right)})
    assert choice(device, {"safe": (3e-3, right), "quick": (1e-3, right), "best": (5e-4, right)}) == "best"


@pytest.mark.parametrize(("setting", "kind", "searched"), [
    (None, "discrete", 1), (None, "integrated", 1), (None, "software", 0), ("1", "software", 1), ("0", "discrete", 0), ("", "discrete", 1),
])  # fmt: skip
def test_where_a_search_is_made(device, monkeypatch, setting, kind, searched):
    if setting is not None:
        monkeypatch.setenv("VSL_AUTOTUNE", setting)
    found = choice(device, {"safe": (3e-3, right), "quick": (1e-3, right)}, kind=kind)
    assert (device.trials, found) == (searched, "quick" if searched else "safe")


def test_a_setting_that_means_nothing_is_refused(device, monkeypatch):
    monkeypatch.setenv("VSL_AUTOTUNE", "yes")
    with pytest.raises(ValueError, match="VSL_AUTOTUNE is 'yes'; it must be 0"):
        tuner(device)


def kept(file):
    """What a file of the folder says."""
    return json.loads(FileCache("tuning").read(file.name))


def test_a_damaged_file_is_ignored_with_a_warning(device, folder):
    candidates = {"safe": (3e-3, right), "quick": (1e-3, right)}
    choice(device, candidates)
    (file,) = folder.iterdir()
    file.write_bytes(file.read_bytes().replace(b"quick", b"safe!", 1))
    with pytest.warns(RuntimeWarning, match="damaged"):
        assert choice(device, candidates) == "quick"
    assert kept(file)["choice"] == "quick"


def test_a_candidate_that_takes_the_device_with_it_is_left_out_by_the_next_process(device, folder, monkeypatch):
    candidates = {"safe": (3e-3, right), "fatal": (1e-3, fatal), "good": (2e-3, right)}
    with pytest.raises(DeviceTimeoutError):
        choice(device, candidates)
    monkeypatch.setattr(tuning, "FRESH_S", 0.0)
    assert choice(device, candidates) == "good"
    (file,) = folder.iterdir()
    assert kept(file)["choice"] == "good"


def test_what_another_process_may_be_trying_is_left_out_but_not_for_ever(device, folder):
    candidates = {"safe": (3e-3, right), "quick": (1e-3, right)}
    choice(device, candidates)
    (file,) = folder.iterdir()
    FileCache("tuning").write(file.name, json.dumps({"trying": "quick", "since": time.time()}).encode())
    assert choice(device, candidates) == "safe"
    assert not list(folder.iterdir())
    assert choice(device, candidates) == "quick"


def test_a_search_ends_with_its_budget(device):
    candidates = {"safe": (0.3, right), **{f"c{i}": (0.2, right) for i in range(50)}}
    choice(device, candidates)
    assert len({id(c) for c in device.launched}) < 5


def test_a_slow_compiler_does_not_decide_for_the_safe_candidate(device):
    """Its first launch alone takes longer than a search may; the two that are held for best are tried all the same."""
    launch = device.launch

    def compiling(candidate):
        device.now += 0 if candidate in device.launched else 5
        launch(candidate)

    device.launch = compiling
    candidates = {"safe": (8e-3, right), "quick": (1e-3, right), "quicker": (0.5e-3, right), "last": (0.1e-3, right)}
    assert choice(device, candidates) == "quicker"


def test_many_searches_say_what_takes_so_long(device, caplog):
    """Once in ten seconds of it: a model of many shapes waits at its first step, and nobody knows why."""
    searching, candidates = tuner(device), {"safe": (0.3, right), "quick": (0.2, right)}
    for number in range(24):
        searching.choose(Key("gemm", f"nn {number}", "float32"), candidates, device.trial)
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert device.now // 10 - 2 <= len(said) <= device.now // 10
    assert said[0].startswith("A card: ")
    assert "searches for the quickest kernels took 1" in said[0]
    assert "kept on disk" in said[0]
    assert "VSL_AUTOTUNE=0" in said[0]


def test_no_room_for_scratch_means_the_table(device, folder):
    def full():
        raise OutOfMemoryError("opencl:0: asked for 64 MB")

    candidates = {"safe": (3e-3, right), "quick": (1e-3, right)}
    assert tuner(device).choose(KEY, candidates, full) is candidates["safe"]
    assert not list(folder.iterdir()) if folder.exists() else True


def test_threads_that_ask_together_make_one_search(device):
    candidates, shared = {"safe": (3e-3, right), "quick": (1e-3, right)}, tuner(device)
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: shared.choose(KEY, candidates, device.trial), range(32)))
    assert (found, device.trials) == ({candidates["quick"]}, 1)


def _searched(folder):
    """A search in a process of its own."""
    device = Device(np.random.default_rng(0))
    return choice(device, {"safe": (3e-3, right), "quick": (1e-3, right)}), len(device.launched)


def test_processes_that_search_together_leave_a_whole_file(folder, device):
    with multiprocessing.get_context("fork").Pool(4) as pool:
        assert {name for name, _ in pool.map(_searched, [str(folder)] * 16)} <= {"safe", "quick"}
    for file in folder.iterdir():
        assert {"choice", "trying"} & set(kept(file))


@pytest.mark.parametrize("dtype", [float32, float16, int32], ids=str)
def test_a_trial_over_arrays_of_a_backend_finds_the_wrong_kernel(dtype, monkeypatch):
    """On the CPU's backend: a kernel that leaves out the last column is quick and is not taken."""
    monkeypatch.setenv("VSL_AUTOTUNE", "1")
    backend = registry.get("cpu")
    x, out = drawn(backend, dtype, (40, 30), 1), backend.allocate(Layout.of(dtype, (40, 30)))
    assert backend.download(x).astype(np.float64).std() > 0.5
    whole, cut = (slice(None),), (slice(None), slice(0, 29))

    def run(part):
        backend.copy(out.slice(*part), x.slice(*part))

    trial = ViewTrial(backend, out, run, backend.download, tolerance=0.0)
    ticks = iter(range(10**6, 0, -1))  # the later, the quicker
    info = DeviceInfo("cpu:0", "cpu", 0, "a processor", "cpu", 1, (), "")
    found = Tuner(info, lambda: None, clock=lambda: 1e-9 / next(ticks)).choose(
        KEY, {"safe": whole, "cut": cut}, lambda: trial
    )
    assert found is whole
    trial.clear()
    trial.launch(found)
    assert np.array_equal(trial.result(), backend.download(x))


def test_classes_of_sizes_are_octaves():
    assert [octave(n) for n in (0, 1, 2, 3, 64, 65, 1023, 1024, 4095)] == [1, 1, 2, 4, 64, 128, 1024, 1024, 4096]


def test_a_device_s_own_seconds_count_where_a_backend_tells_them_and_the_trial_wants_no_others(device):
    """Candidates that the host launches in the same time, of which the device is through with the second first."""
    slow, quick = (1e-3, right), (1e-3, partial(right))
    seconds = {slow: 5e-4, quick: 1e-4}
    asked = []

    def timed(launch, calls, share):
        launch()
        asked.append(share)
        return seconds[device.launched[-1]]

    info = DeviceInfo("cuda:0", "cuda", 0, "A card", "discrete", 1 << 30, ("float32",), "1.0")
    candidates = {"slow": slow, "quick": quick}
    own = Tuner(info, lambda: None, clock=lambda: device.now, timed=timed)
    assert own.choose(KEY, candidates, device.trial) is quick
    assert set(asked) == {0.03}
    asked.clear()
    device.host_share = None
    assert own.choose(KEY._replace(shape="nn 1x1x1"), candidates, device.trial) is slow
    assert not asked
