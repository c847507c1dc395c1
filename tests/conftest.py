"""A device that every machine has: the host under another name, with memory of its own and counters, that fails on demand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

import vtl_core as vtl
from vsl_compute import registry
from vsl_compute.backend import Transfers
from vsl_compute.backends.cpu import CPUBackend, CPUDriver
from vsl_compute.backends.shared.pool import Leased, Pool, size_class
from vsl_compute.view import View

SWITCHES = (
    "VTL_USE_CUDA", "VTL_GPU_ACTIVATIONS", "VTL_CUDA_BACKWARD", "VTL_CUDA_OPTIMIZER", "VTL_USE_VULKAN", "VTL_USE_OPENCL",
    "VTL_BACKEND", "VTL_BACKEND_STRICT",
)  # fmt: skip


class StandIn(CPUBackend):
    """Conforms as the CPU's does. Host and device share nothing: what goes up or comes down is copied, and counted here.

    Its memory comes from a pool as GPUs' does, so that what it asks "the device" for can be counted: `memory().reserved`.
    """

    def __init__(self, info):
        super().__init__(info)
        self.name = info.backend
        room = 1 << 40
        self.pool = Pool(self.spec, lambda n: np.empty(n, np.uint8), lambda _: None, total=room, largest=room)
        self.counted = Transfers()
        self.launched: list[str] = []  # primitives, in order
        self.fails_after = None  # how many more calls go well

    def _call(self, name):
        self.launched.append(name)
        if self.fails_after is not None:
            self.fails_after -= 1
            if self.fails_after < 0:
                raise vtl.DeviceLostError(f"{self.spec}: {name}: the device was lost")

    def allocate(self, layout):
        places = 1 + sum((n - 1) * abs(s) for n, s in zip(layout.shape, layout.strides, strict=True))
        nbytes = places * layout.dtype.itemsize if layout.size else 0
        return View(self.pool.lease(self, size_class(nbytes), layout.nbytes, Leased), layout)

    def memory(self):
        return self.pool.memory()

    def empty_cache(self):
        self.pool.empty()

    def upload(self, out, array):
        self._call("upload")
        self.counted.bytes_to_device += array.nbytes
        self.counted.calls_to_device += 1
        super().upload(out, array.copy())

    def download(self, view):
        self._call("download")
        self.counted.bytes_to_host += view.nbytes
        self.counted.calls_to_host += 1
        return super().download(view).copy()

    def host_view(self, view):
        return None

    def transfers(self):
        return replace(self.counted)


def _counted(name):
    def method(self, *args, **options):
        self._call(name)
        return getattr(CPUBackend, name)(self, *args, **options)

    return method


for _name in (
    "copy",
    "elementwise",
    "update",
    "reduce",
    "gemm",
    "gather",
    "scatter_add",
    "fold",
    "sort",
    "scan",
    "random",
):
    setattr(StandIn, _name, _counted(_name))


class StandInDriver:
    """One stand-in, under any name."""

    def __init__(self, name):
        self.name = name

    def devices(self):
        return [replace(CPUDriver().devices()[0], spec=f"{self.name}:0", backend=self.name, kind="software")]

    def open(self, index):
        return StandIn(self.devices()[0])


@pytest.fixture
def stand_in(monkeypatch):
    """stand_in("cuda") makes that name mean a fresh stand-in until the test ends, and gives its backend."""

    def make(name):
        monkeypatch.setitem(registry._drivers, name, StandInDriver(name))
        for spec in (name, f"{name}:0"):
            monkeypatch.delitem(registry._opened, spec, raising=False)
        return registry.get(name)

    yield make
    for spec in [spec for spec, backend in registry._opened.items() if isinstance(backend, StandIn)]:
        del registry._opened[spec]


@pytest.fixture
def staged_on(device, stand_in):
    """Spec of the device under test; in the CPU's place a stand-in, so that a machine without a GPU runs every row too."""
    return stand_in("stand_in").spec if device == "cpu" else registry.get(device).spec


@pytest.fixture
def environment(monkeypatch):
    """environment(VTL_USE_CUDA="1") sets those switches and clears all others."""

    def put(**switches):
        for name in SWITCHES:
            monkeypatch.delenv(name, raising=False)
        for name, value in switches.items():
            monkeypatch.setenv(name, value)

    put()
    return put


@pytest.fixture
def attach(request) -> Iterator:
    """attach(placement) puts it into force until the test ends; its session."""
    sessions = []

    def make(placement):
        sessions.append(vtl.Context(placement=placement).attach_session())
        return sessions[-1]

    yield make
    for session in reversed(sessions):
        session.close()
