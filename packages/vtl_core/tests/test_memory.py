"""What a device's memory holds: counted, and given back."""

from __future__ import annotations

import gc

import pytest

import vtl_core as vtl
from vsl_compute import registry


def test_g13_a_tensor_counts_while_it_lives():
    gc.collect()
    before = vtl.memory_stats()
    x = vtl.ones(1000)

    held = vtl.memory_stats()
    assert held.live - before.live >= 4000
    assert held.buffers == before.buffers + 1
    assert held.reserved >= held.live
    del x
    assert vtl.memory_stats().live == before.live


def test_g13_what_is_kept_goes_back_and_what_is_used_stays():
    x, y = vtl.ones(1000), vtl.zeros(1 << 25)
    del y

    vtl.empty_cache()

    assert vtl.memory_stats().reserved < 4 << 25  # a chunk that x lies in may stay whole
    assert x.sum().item() == 1000


@pytest.mark.parametrize("call", [vtl.memory_stats, vtl.empty_cache])
def test_a_device_is_named_or_the_default_one(call, monkeypatch):
    asked = []
    monkeypatch.setattr(registry, "get", lambda spec: asked.append(spec) or vtl.default_context().backend)
    call("cpu:0")
    call()
    assert asked == ["cpu:0"]
    monkeypatch.undo()
    with pytest.raises(vtl.DeviceError, match="nowhere"):
        call("nowhere")
