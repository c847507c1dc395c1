"""What a device's memory holds, and giving back what is only kept for the next allocation."""

from __future__ import annotations

from vsl_compute import registry
from vsl_compute.backend import ComputeBackend, Memory

from .arguments import explain
from .autograd.context import default_context


def memory_stats(device: str | None = None) -> Memory:
    """Bytes held on a device now (None: the default one): `live` in tensors, `reserved` from the device, `peak` the most that was
    reserved, and how many `buffers` there are; 0 where nobody counts.

    Errors:  DeviceError for a name that means nothing, UnavailableError for a device that cannot be opened
    """
    return _backend(device).memory()


def empty_cache(device: str | None = None) -> None:
    """Give memory that no tensor uses, and that is kept for the next ones, back to the device's driver.

    Errors:  as memory_stats
    """
    _backend(device).empty_cache()


def _backend(device: str | None) -> ComputeBackend:
    return default_context().backend if device is None else registry.get(device)


explain(globals())
