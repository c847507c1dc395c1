"""What goes wrong on a Vulkan device: hung, lost, without memory for a submission, interrupted; and how long is waited."""

from __future__ import annotations

import numpy as np
import pytest

from vsl_compute import registry
from vsl_compute.backends.vulkan.device import FUNCTIONS
from vsl_compute.dispatch import asarray, run
from vsl_compute.errors import DeviceLostError, DeviceTimeoutError, OutOfMemoryError, UnavailableError

ONES = np.ones(1000, np.float32)


def test_a_hung_device_is_a_timeout_and_not_a_hang(fresh):
    x = run("add", asarray(fresh, ONES), 1.0)
    real = fresh.device.call["vkWaitSemaphores"]
    fresh.device.call["vkWaitSemaphores"] = lambda *_: 2
    with pytest.raises(DeviceTimeoutError, match="waiting 120 s"):
        x.to_host()
    with pytest.raises(DeviceTimeoutError):
        run("add", x, 1.0)
    fresh.device.call["vkWaitSemaphores"] = real
    fresh.device.broken = None
    fresh.commands.finish()


def test_a_lost_device_stays_lost(fresh):
    x = run("add", asarray(fresh, ONES), 1.0)
    real = fresh.device.call["vkQueueSubmit"]
    fresh.device.call["vkQueueSubmit"] = lambda *_: -4
    with pytest.raises(DeviceLostError, match=r"vkQueueSubmit: the device was lost"):
        x.to_host()
    fresh.device.call["vkQueueSubmit"] = real
    for call in (fresh.synchronize, lambda: run("add", x, 1.0), lambda: fresh.allocate(x.layout), x.to_host):
        with pytest.raises(DeviceLostError):
            call()
    fresh.device.broken = None


def test_work_that_could_not_be_submitted_for_lack_of_memory_is_submitted_later(fresh):
    """Nothing that was launched is lost, nor run twice."""
    x = asarray(fresh, ONES)
    fresh.synchronize()
    real, refused = fresh.device.call["vkQueueSubmit"], []

    def full(*arguments):
        refused.append(arguments)
        return -2

    y = run("add", x, 1.0)
    fresh.device.call["vkQueueSubmit"] = full
    with pytest.raises(OutOfMemoryError, match="vkQueueSubmit"):
        fresh.synchronize()
    with pytest.raises(OutOfMemoryError, match="vkQueueSubmit"):
        run("add", y, 1.0, out=y)  # a new buffer is not begun before
    fresh.device.call["vkQueueSubmit"] = real
    run("add", y, 1.0, out=y)
    assert y.to_host().tolist() == [3] * 1000
    assert len(refused) == 2


def test_work_that_could_not_be_recorded_to_its_end_loses_the_device(fresh):
    """Its results would be what lay there before."""
    x = run("add", asarray(fresh, ONES), 1.0)
    fresh.device.call["vkEndCommandBuffer"] = lambda *_: -1
    with pytest.raises(
        DeviceLostError, match=r"vkEndCommandBuffer: VK_ERROR_OUT_OF_HOST_MEMORY; what was launched last is lost"
    ):
        x.to_host()
    with pytest.raises(DeviceLostError):
        x.to_host()


@pytest.mark.parametrize("call", FUNCTIONS)
@pytest.mark.parametrize("when", [0, 1, 2])
def test_an_interrupt_in_any_call_leaves_what_was_launched(fresh, call, when):
    """Ctrl-C in a notebook is raised behind the driver's call; the next cell finds every result of the cells before."""
    x = asarray(fresh, ONES)
    fresh.synchronize()
    real, left = fresh.device.call[call], [when]
    held = {"vkCmdBindPipeline": "_bind", "vkCmdPushConstants": "_push_constants", "vkCmdDispatch": "_dispatch"}

    def interrupted(*arguments):
        code = real(*arguments)
        left[0] -= 1
        if left[0] == -1:
            raise KeyboardInterrupt
        return code

    if call in held:
        setattr(fresh.commands, held[call], interrupted)
    fresh.device.call[call] = interrupted
    done = []
    for step in range(4):
        try:
            y = run("add", x, float(step))
            done.append((y, step + 1))
            y.to_host()
            asarray(fresh, ONES)
            z = run("multiply", y, y)
            done.append((z, (step + 1) ** 2))
            done.append((run("add", z, y), (step + 1) ** 2 + step + 1))
            fresh.synchronize()
        except KeyboardInterrupt:
            done.append((run("multiply", x, x), 1))
    assert left[0] < 0 or call == "vkCmdCopyBuffer"  # the host writes into an idle array itself
    for view, value in done:
        assert view.to_host().tolist() == [value] * 1000


def test_a_gpu_is_asked_for_a_while_before_a_wait_blocks_and_a_hang_is_a_timeout_still(fresh):
    """Every wait ends in the driver's own, which at least looks: what the host reads afterwards is the device's last word."""
    assert (fresh.commands.patience_s == 0.0) == (fresh.info.kind == "software")
    x = asarray(fresh, ONES)
    real, asked, waited = dict(fresh.device.call), [], []
    fresh.device.call["vkGetSemaphoreCounterValue"] = lambda *a: (
        asked.append(a) or real["vkGetSemaphoreCounterValue"](*a)
    )
    fresh.device.call["vkWaitSemaphores"] = lambda *a: waited.append(len(asked)) or real["vkWaitSemaphores"](*a)
    fresh.commands.patience_s = 30.0
    assert run("add", x, 1.0).to_host().tolist() == [2] * 1000
    assert asked
    assert waited == [len(asked)]
    fresh.commands.patience_s = 0.01
    fresh.device.call["vkGetSemaphoreCounterValue"] = lambda *_: 0  # it stays where it was
    fresh.device.call["vkWaitSemaphores"] = lambda *_: 2
    with pytest.raises(DeviceTimeoutError):
        run("add", x, 1.0).to_host()


def test_a_wait_may_be_as_long_as_one_likes(fresh):
    fresh.device.timeout_s = float("inf")
    assert run("add", asarray(fresh, ONES), 1.0).to_host()[0] == 2


class Counting:
    """The library, with what is made and given back counted, and the call of this number failing; None: no call does."""

    def __init__(self, lib, failing):
        self.lib, self.failing, self.calls, self.held = lib, failing, [], {}

    def count(self, kind, change):
        self.held[kind] = self.held.get(kind, 0) + change

    def __getattr__(self, name):
        real = getattr(self.lib, name)
        for made, gone in (("vkCreate", "vkDestroy"), ("vkAllocateMemory", "vkFreeMemory")):
            if name.startswith(gone):
                kind = name.replace(gone, made)
                return lambda *a: (self.count(kind, -bool(a[-2])), real(*a))[1]  # nothing is made of null
        if not name.startswith(("vkCreate", "vkAllocate", "vkBind", "vkMap")):
            return real

        def make(*arguments):
            self.calls.append(name)
            if len(self.calls) - 1 == self.failing:
                return -2
            code = real(*arguments)
            if name.startswith("vkCreate") or name == "vkAllocateMemory":
                self.count(name, code == 0)
            return code

        return make


def test_a_device_that_fails_half_way_through_opening_gives_back_all_that_was_made(fresh, monkeypatch):
    """Whichever call fails: every handle is destroyed, and the device opens once none does."""
    api, failed, backend = fresh.device.api, [], None
    real = api.lib
    for place in range(100):
        lib = Counting(real, place)
        monkeypatch.setattr(api, "lib", lib)
        try:
            backend = registry.driver("vulkan").open(fresh.index)
        except UnavailableError:
            assert not any(lib.held.values()), (lib.calls, lib.held)
            failed.append(lib.calls[-1])
            continue
        break

    assert set(failed) == {
        "vkCreateDevice", "vkCreatePipelineLayout", "vkCreateSemaphore", "vkCreateCommandPool", "vkAllocateCommandBuffers",
        "vkCreatePipelineCache", "vkCreateBuffer", "vkAllocateMemory", "vkBindBufferMemory", "vkMapMemory",
    }  # fmt: skip
    assert lib.held["vkCreateDevice"] == 1
    assert asarray(backend, ONES).to_host().sum() == 1000
    backend.close()
    assert not any(lib.held.values()), lib.held
