"""Importing CuPy, and saying why it cannot be used: no package, two of them, no driver, a driver too old, no device."""

from __future__ import annotations

import os
import warnings
from importlib import import_module, metadata
from typing import Any

from ...errors import UnavailableError

WHEELS = ("cupy", "cupy-cuda11x", "cupy-cuda12x", "cupy-cuda13x")  # all of them hold the one module cupy
LEAST = 14  # of CuPy's versions
INSTALL = "python -m pip install 'vsl-compute[cuda12]' (or [cuda13]; with -ctk where no CUDA toolkit is installed)"
DRIVER = "install NVIDIA's driver (https://www.nvidia.com/drivers); `nvidia-smi` must list a device"
NO_DEVICE, INSUFFICIENT = 100, 35  # of cudaError_t


def cupy() -> Any:
    """The module cupy; UnavailableError says how to get it."""
    found = installed()
    if len(found) > 1:
        raise UnavailableError(
            f"cuda: {' and '.join(found)} are installed and shadow each other; keep the one for your driver, reinstalled: "
            f"python -m pip uninstall -y {' '.join(found)}, then {INSTALL}"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its remarks about the environment; what matters is said here
            module = import_module("cupy")
    except ModuleNotFoundError as error:
        if error.name != "cupy":
            raise
        raise UnavailableError(f"cuda: the package cupy is not installed; run: {INSTALL}") from error
    except ImportError as error:  # its own libraries, or those of the toolkit, cannot be loaded
        raise UnavailableError(
            f"cuda: cupy cannot be loaded ({_line(error)}); install the toolkit's parts with it: "
            "python -m pip install 'vsl-compute[cuda12-ctk]' (or [cuda13-ctk])"
        ) from error
    if int(module.__version__.partition(".")[0]) < LEAST:
        raise UnavailableError(f"cuda: CuPy {module.__version__} is older than {LEAST}; run: {INSTALL}")
    return module


def installed() -> list[str]:
    """The distributions here that hold the module cupy."""
    found = []
    for name in WHEELS:
        try:
            metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        found.append(name)
    return found


def device_count(module: Any) -> int:
    """How many devices the driver lists; UnavailableError says why there is none."""
    runtime = module.cuda.runtime
    try:
        count = int(runtime.getDeviceCount())
    except runtime.CUDARuntimeError as error:
        driver, needed = runtime.driverGetVersion(), runtime.runtimeGetVersion()
        if error.status == INSUFFICIENT and driver:
            remedy = (
                "update the driver, or install the extra for an older CUDA: python -m pip install 'vsl-compute[cuda12]'"
            )
            raise UnavailableError(
                f"cuda: the driver knows CUDA {version(driver)}, CuPy is built for {version(needed)}; {remedy}"
            ) from error
        if not driver:
            raise UnavailableError(f"cuda: no driver found ({_line(error)}); {DRIVER}") from error
        if error.status != NO_DEVICE:
            raise UnavailableError(f"cuda: the driver refuses ({_line(error)}); {DRIVER}") from error
        count = 0
    except RuntimeError as error:  # a library of the toolkit is missing, found when it is first called
        raise UnavailableError(f"cuda: CUDA's runtime cannot be loaded ({_line(error)}); run: {INSTALL}") from error
    if not count:
        chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
        hidden = "" if chosen is None else f"; CUDA_VISIBLE_DEVICES={chosen!r} leaves none visible"
        raise UnavailableError(f"cuda: the driver lists no device{hidden}; {DRIVER}")
    return count


def version(number: int) -> str:
    """12.9 of 12090."""
    return f"{number // 1000}.{number % 1000 // 10}"


def _line(error: Exception) -> str:
    """The first line of a message."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
