"""What `vsl doctor` finds: what is here, what is missing or of no use, and the command that mends it."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from . import registry
from ._version import __version__
from .backends.cuda import loader
from .backends.shared import cache, libraries, tuning
from .errors import AttributeValueError

PCI = Path("/sys/bus/pci/devices")
MAKERS = {"0x10de": "NVIDIA", "0x1002": "AMD", "0x8086": "Intel"}
# what gives a GPU to a backend that found a software device alone
DRIVERS = {
    "vulkan": "install the GPU's driver: NVIDIA's own, or for AMD and Intel: apt install mesa-vulkan-drivers (Debian, Ubuntu), "
    "dnf install mesa-vulkan-drivers (Fedora); a container needs NVIDIA_DRIVER_CAPABILITIES=all",
    "opencl": "install the GPU's driver: NVIDIA's own, or apt install intel-opencl-icd (Intel), mesa-opencl-icd (AMD); "
    "`clinfo -l` lists what the loader sees",
}


@dataclass(frozen=True)
class Finding:
    """One line of the report. `state` is ok, software (works, and is slow), refused, absent or broken (a fault to mend)."""

    part: str
    state: str
    detail: str


def findings() -> list[Finding]:
    """Everything that is here, and everything that is not, each with the command that mends it."""
    found = [Finding("vsl-compute", "ok", f"{__version__}, numpy {np.__version__}, Python {platform.python_version()}")]
    for name, reason in registry.backends().items():
        found += _backend(name, reason)
    return [*found, _kept(), *_settings()]


def _backend(name: str, reason: str | None) -> Iterator[Finding]:
    """Its devices one by one, those that were refused beside them, or why there is none."""
    if reason is not None:
        two = (
            name == "cuda" and len(loader.installed()) > 1
        )  # wheels of CuPy: the last one's files lie over the other's
        yield Finding(name, "broken" if two else "absent", reason)
        return
    driver = registry.driver(name)
    devices = driver.devices()
    alone = all(device.kind == "software" for device in devices)
    for device in devices:
        gib = device.memory_bytes / 2**30
        text = f"{device.spec} {device.name}, {device.kind}, {gib:.1f} GiB, {device.driver}"
        if alone and name in DRIVERS:
            yield Finding(name, "software", f"{text}: slower than 'cpu'; {_cards()}{DRIVERS[name]}")
        else:
            yield Finding(name, "ok", text)
    try:
        for refused in getattr(driver, "unusable", list)():  # a driver from elsewhere may not tell
            yield Finding(name, "refused", refused)
    except Exception as error:  # noqa: BLE001  # or not know how: the rest of the report is worth having
        yield Finding(name, "refused", f"what it refused cannot be told ({type(error).__name__}: {error})")


def _cards() -> str:
    """The GPUs on the PCI bus, to say what driver to look for; nothing where the system does not tell."""
    makers = set()
    for place in libraries.files(PCI, "*/class"):
        try:
            if place.read_text().startswith("0x03"):  # display controllers
                makers.add(MAKERS.get(place.with_name("vendor").read_text().strip(), "another maker's"))
        except OSError:
            continue
    return f"this machine has a GPU ({', '.join(sorted(makers))}): " if makers else "to use a GPU, "


def _kept() -> Finding:
    """Whether compiled kernels and choices outlive the process; without that all works, and each start is slow."""
    place = cache.directory()
    if place is None:
        return Finding("cache", "ok", "nothing is kept: VSL_CACHE_DIR is empty, or there is no home directory")
    said = cache.problem()
    if said is None:
        return Finding("cache", "ok", str(place))
    return Finding(
        "cache",
        "broken",
        f"{place}: {said}: kernels are compiled and searched for anew in each process; make room there, or run: "
        "export VSL_CACHE_DIR=FOLDER, with one that you may write (empty keeps nothing)",
    )


def _settings() -> Iterator[Finding]:
    """Variables whose value would be refused where a device is opened."""
    try:
        tuning.check_setting()
    except AttributeValueError as error:
        yield Finding("settings", "broken", str(error))
