"""The device's own seconds: how a block of calls is made to wait, on a pretended device."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

from vsl_compute.backends.cuda.timing import CYCLES_S, MOST_S, SPARE_S, TEXT, DeviceClock


class Stream:
    """A pretended device: what was enqueued, in order, and how long each call takes on it."""

    def __init__(self, seconds):
        self.seconds, self.enqueued = seconds, []
        self.queue = SimpleNamespace(
            finish=lambda: None,
            stream=self,
            launch_groups=lambda kernel, groups, group, cycles: self.enqueued.append(cycles),
        )
        self.context = SimpleNamespace(current=nullcontext)
        self.programs = SimpleNamespace(kernel=lambda kernel, kinds: kernel.text)
        self.cupy = SimpleNamespace(
            cuda=SimpleNamespace(
                Event=lambda: SimpleNamespace(record=lambda stream: self.enqueued.append("event")),
                get_elapsed_time=lambda begin, end: self.between() * self.seconds * 1e3,
            )
        )

    def between(self):
        begin, end = (place for place, what in enumerate(self.enqueued) if what == "event")
        return end - begin - 1


def test_a_block_stands_between_two_events_behind_a_kernel_that_waits():
    device = Stream(3e-6)
    clock = DeviceClock(device)
    got = clock(lambda: device.enqueued.append("call"), 5, 0.03)
    assert device.enqueued[0] == "call"  # how long the host takes for one
    assert SPARE_S <= device.enqueued[1] / CYCLES_S <= MOST_S
    assert device.enqueued[2:] == ["event", *["call"] * 5, "event"]
    assert 3e-6 <= got < 3e-6 + 0.03 * 1e-3
    assert "clock64" in TEXT
