"""Tensors on two devices of one process; the second is the CPU backend under another name."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest

import vtl_core as vtl
from vsl_compute import registry
from vsl_compute.backends.cpu import CPUBackend, CPUDriver


class TwinDriver:
    """Opens the host a second time, as another device."""

    name = "twin"

    def devices(self):
        return [replace(CPUDriver().devices()[0], spec="twin:0", backend="twin")]

    def open(self, index):
        return CPUBackend(self.devices()[0])


@pytest.fixture(scope="module", autouse=True)
def twin():
    registry.register(TwinDriver())
    yield
    for known in (registry._drivers, registry._opened):
        for name in ("twin", "twin:0"):
            known.pop(name, None)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int8", "bool"])
def test_there_and_back_changes_nothing(dtype):
    x = vtl.tensor([[0, 1, 2]], dtype=dtype).T
    there = x.to("twin")

    assert there.device == "twin:0"
    assert there.dtype is x.dtype
    np.testing.assert_array_equal(there.numpy(), x.numpy())
    assert there.cpu().device == "cpu:0"
    assert there.to_device("twin:0") is there


def test_d24_to_device_and_to_host_are_copies_that_see_what_was_written_before_and_nothing_after():
    """D24: each way is asked for, exact, and of the value at that moment: nobody is served one that was copied earlier."""
    x = vtl.tensor(np.random.default_rng(0).normal(size=(3, 4)))
    there = x.to_device("twin")
    first = there.to_host()
    x.mul_(2)
    there[1] = 7.0
    second = there.to_host()
    second[0] = 9.0

    np.testing.assert_array_equal(first, x.numpy() / 2)
    assert second[1].tolist() == [7] * 4
    np.testing.assert_array_equal(there.to_host()[[0, 2]], first[[0, 2]])
    np.testing.assert_array_equal(x.to_device("twin").to_host(), x.to_host())


def test_gradients_come_back_to_the_device_of_the_leaf():
    x = vtl.tensor([1.0, 2.0], device="cpu", requires_grad=True)
    w = vtl.tensor([3.0, 4.0], device="twin", requires_grad=True)
    (x.to("twin") * w).sum().backward()

    assert (x.grad.device, w.grad.device) == ("cpu:0", "twin:0")
    assert (x.grad.tolist(), w.grad.tolist()) == ([3, 4], [1, 2])
    vtl.check_gradients(lambda a: a.to("twin").exp().to(a.device).sin(), np.ones(3), order=2)


def test_arguments_on_two_devices_name_both():
    x, y = vtl.ones(2), vtl.ones(2, device="twin")
    for call in (lambda: x + y, lambda: vtl.concat([x, y]), lambda: x.add_(y), lambda: vtl.where(x > 0, x, y)):
        with pytest.raises(vtl.DeviceError, match=r"twin:0"):
            call()


@pytest.mark.parametrize("places", [("cpu", "twin"), ("twin", "cpu")])
def test_an_update_of_arrays_on_two_devices_changes_none(places):
    """One launch serves one device, whichever comes first."""
    tensors = [vtl.full((2,), 3.0, device=place) for place in places]
    with pytest.raises(vtl.DeviceError, match=f"clip: arguments are on {places[0]}:0, {places[1]}:0"):
        vtl.update("clip", [(t,) for t in tensors], {"bound": 1.0})
    assert [t.tolist() for t in tensors] == [[3, 3], [3, 3]]


def test_what_a_tensor_makes_is_on_its_device():
    x = vtl.ones(2, 3, device="twin")

    made = [
        x + 1,
        x @ x.T,
        x.sum(),
        x[0],
        vtl.zeros_like(x),
        x + np.ones(3),
        vtl.rand(2, device="twin"),
        vtl.Context("twin").variable([1.0]),
    ]
    assert {t.device for t in made} == {"twin:0"}
    assert repr(x[0]) == "tensor([1., 1., 1.], device='twin:0')"


def test_the_default_device_takes_what_is_made_without_saying_where():
    """Creation, random numbers, gradient checks; the generator goes on, and printing tells the other devices."""
    before = vtl.default_context().device
    here, offset = vtl.ones(1, device="cpu"), vtl.default_context().generator.offset
    try:
        vtl.set_default_device("twin")
        made = [vtl.ones(2), vtl.tensor([1.0]), vtl.arange(3), vtl.randn(4), vtl.randperm(3), vtl.asarray([1])]
        assert {t.device for t in made} == {"twin:0"}
        assert vtl.default_context().generator.offset > offset
        assert vtl.zeros_like(here).device == "cpu:0"
        assert repr(vtl.ones(1)) == "tensor([1.])"
        assert repr(here) == "tensor([1.], device='cpu:0')"
        seen = []
        vtl.check_gradients(lambda x: (seen.append(x.device), x.sin())[1], np.ones(2))
        assert set(seen) == {"twin:0"}
        with pytest.raises(vtl.DeviceError, match="no such backend"):
            vtl.set_default_device("abacus")
        assert vtl.ones(1).device == "twin:0"
    finally:
        vtl.set_default_device(before)


def test_copy_takes_from_any_device():
    x = vtl.zeros(2)
    x.copy_(vtl.ones(2, device="twin"))
    x[0] = vtl.tensor(5.0)

    assert x.tolist() == [5, 1]


def test_copies_and_pickles_stay_on_their_device():
    x = vtl.ones(2, device="twin", requires_grad=True)

    assert copy.deepcopy(x).device == "twin:0"
    assert pickle.loads(pickle.dumps(x)).device == "twin:0"


def test_one_generator_gives_the_same_numbers_on_both():
    a, b = (vtl.randn(5, device=device, generator=vtl.Generator(3)) for device in ("cpu", "twin"))

    assert a.tolist() == b.tolist()


def test_dlpack_sends_a_tensor_that_is_elsewhere_to_the_cpu_first():
    with pytest.raises(BufferError, match=r"\.to\('cpu'\)"):
        vtl.ones(1, device="twin").__dlpack_device__()
    with pytest.raises(BufferError, match=r"\.to\('cpu'\)"):
        np.from_dlpack(vtl.ones(1, device="twin"))
