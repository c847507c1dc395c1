"""Which device a command uses: --device, else VTL_BACKEND, else the fastest that can be opened."""

from __future__ import annotations

import warnings

import vtl_core as vtl
from vtl_core import DeviceError, UnavailableError
from vtl_nn import settings


def choose(asked: str | None) -> str:
    """Return the full name of the device to use, such as "cuda:0".

    What --device names must open. What VTL_BACKEND names falls back to the CPU with a warning, unless VTL_BACKEND_STRICT=1.

    Errors:  UnavailableError with reason and remedy; DeviceError for a name that means nothing
    """
    if asked is not None:
        return _opened(asked)
    wanted = settings.backend()
    if wanted is None:
        return _opened("auto")
    try:
        return _opened(wanted)
    except (UnavailableError, DeviceError) as error:
        if settings.backend_is_strict():
            raise
        warnings.warn(f"VTL_BACKEND={wanted} cannot be used, going on on the CPU: {error}", stacklevel=2)
        return _opened("cpu")


def _opened(spec: str) -> str:
    return str(vtl.empty((0,), device=spec).device)
