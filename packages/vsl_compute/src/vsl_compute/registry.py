"""Finds backends: the built-in ones by module name, others by entry point; opens each device once a process.

A spec is `name[:index]`; a bare name is index 0. "auto" is the fastest device here that is not software.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING

from . import locks
from .backend import BACKEND_INTERFACE, ComputeBackend, DeviceInfo, Driver
from .errors import DeviceError, InterfaceError, UnavailableError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

BUILT_IN = ("cpu", "cuda", "vulkan", "opencl")
EXTRAS = {
    "cpu": "fast",
    "cuda": "cuda12",
    "vulkan": "vulkan",
    "opencl": "opencl",
}  # what brings the package a backend stands on
GROUP = "vsl_compute.backends"
# what "auto" prefers: (backend, kind of device), first match wins
PREFERENCE = (("cuda", "discrete"), ("vulkan", "discrete"), ("opencl", "discrete"), ("cuda", "integrated"), ("vulkan", "integrated"),
              ("opencl", "integrated"), ("cpu", "cpu"))  # fmt: skip

_drivers: dict[str, Driver] = {}
_opened: dict[str, ComputeBackend] = {}
_lock = locks.reentrant()


def register(driver: Driver) -> None:
    """Make a driver known in this process; built-in names cannot be shadowed."""
    if driver.name in BUILT_IN:
        raise DeviceError(f"register: {driver.name!r} is a built-in backend; give the driver another name")
    for method in ("devices", "open"):
        if not callable(getattr(driver, method, None)):
            raise InterfaceError(
                f"register: driver {driver.name!r} has no method {method}(); see vsl_compute.backend.Driver"
            )
    _drivers[driver.name] = driver


def _entry_points() -> Iterable[EntryPoint]:
    from importlib.metadata import entry_points  # when asked: it costs 15 ms to load

    return entry_points(group=GROUP)


def names() -> tuple[str, ...]:
    """Built-in backends, then registered ones, then those of entry points."""
    found = dict.fromkeys((*BUILT_IN, *_drivers))
    found.update(dict.fromkeys(point.name for point in _entry_points()))
    return tuple(found)


def driver(name: str) -> Driver:
    """The driver of a backend; UnavailableError says why it cannot be had, DeviceError that there is no such name."""
    if name in _drivers:
        return _drivers[name]
    if name in BUILT_IN:
        try:
            module = importlib.import_module(f"{__package__}.backends.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{__package__}.backends.{name}":
                raise UnavailableError(
                    f"{name}: needs the package {error.name!r}; run: python -m pip install 'vsl-compute[{EXTRAS[name]}]'"
                ) from error
            raise UnavailableError(
                f"{name}: this release of vsl-compute does not have the {name} backend yet; use cpu"
            ) from None
        _drivers[name] = module.driver()
        return _drivers[name]
    for point in _entry_points():
        if point.name == name:
            made: Driver = point.load()()
            register(made)
            return made
    raise DeviceError(f"device {name!r}: no such backend; there are {', '.join(names())}")


def backends() -> dict[str, str | None]:
    """Each backend and why it cannot be opened; None where it can."""
    reasons: dict[str, str | None] = {}
    for name in names():
        try:
            reasons[name] = None if driver(name).devices() else f"{name}: found no device"
        except UnavailableError as error:
            reasons[name] = str(error)
        except Exception as error:  # noqa: BLE001  # a driver's fault is its own: the other backends are there all the same
            said = " ".join(str(error).split())
            reasons[name] = (
                f"{name}: looking for devices failed ({type(error).__name__}: {said}); its driver is broken, install it again; "
                f"'vsl validate --backend {name} --debug' shows where"
            )
    return reasons


def devices() -> list[DeviceInfo]:
    """Every device of every backend that can be opened here."""
    found: list[DeviceInfo] = []
    for name, reason in backends().items():
        if reason is None:
            found += driver(name).devices()
    return found


def _auto() -> str:
    found = devices()
    for backend, kind in PREFERENCE:
        for device in found:
            if device.backend == backend and device.kind == kind:
                return device.spec
    raise UnavailableError("auto: no device can be opened, not even the CPU")


def normalize(spec: str) -> str:
    """`name:index` in full; DeviceError for what is not a spec."""
    if not isinstance(spec, str):
        raise DeviceError(f"device {spec!r}: must be a string such as 'cpu' or 'vulkan:0'")
    name, colon, index = spec.partition(":")
    if name == "auto" and not colon:
        return _auto()
    if not name or (colon and not (index.isascii() and index.isdecimal() and len(index) < 10)):
        raise DeviceError(f"device {spec!r}: must be 'auto' or name[:index], such as 'cpu' or 'vulkan:0'")
    return f"{name}:{int(index) if colon else 0}"


def get(spec: str) -> ComputeBackend:
    """The opened backend of a spec, one a process; UnavailableError names the reason and the remedy.

    A UserWarning says that a device is software when it is opened: only who names it gets it, and seldom on purpose.
    """
    found = _opened.get(spec)
    if found is not None and not found.closed:
        return found
    full = normalize(spec)
    with _lock:
        if full not in _opened or _opened[full].closed:
            name, _, index = full.partition(":")
            made = driver(name).open(int(index))
            if made.interface[0] != BACKEND_INTERFACE[0] or made.interface[1] > BACKEND_INTERFACE[1]:
                raise InterfaceError(
                    f"backend {name!r} speaks interface {made.interface}, this vsl-compute {BACKEND_INTERFACE}; upgrade the older one"
                )
            _opened[full] = made
            if made.info.kind == "software":
                words = f"{full}: {made.info.name} is a software device, slower than 'cpu'; 'vsl doctor' says what brings a GPU"
                warnings.warn(words, stacklevel=2)
        if spec != "auto":
            _opened[spec] = _opened[full]
        return _opened[full]
