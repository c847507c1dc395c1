"""Compute on any device from one op table: NumPy, CUDA, Vulkan and OpenCL, and the suite that proves them right."""

from typing import TYPE_CHECKING, Any  # noqa: I001 - the next comes before anything loads NumPy

from vsl_compute import _threads  # noqa: F401 - before anything loads NumPy
from vsl_compute import _compat  # noqa: F401 - it refuses what does not fit
import vsl_compute.backends as _folder
from vsl_compute._version import __version__
from vsl_compute.backend import ComputeBackend, DeviceInfo, Driver
from vsl_compute.context import ComputeContext
from vsl_compute.dispatch import overrides, record, run, run_update
from vsl_compute.dtypes import DType
from vsl_compute.errors import (
    ArgumentTypeError,
    AttributeValueError,
    DeviceError,
    DeviceLostError,
    DeviceTimeoutError,
    DTypeError,
    GraphError,
    IndexRangeError,
    InterfaceError,
    KernelCompileError,
    OutOfMemoryError,
    ReleasedError,
    RowError,
    ShapeError,
    UnavailableError,
    UnsupportedError,
    VersionError,
    VslError,
)
from vsl_compute.program import Program
from vsl_compute.random import Generator
from vsl_compute.registry import backends, devices, get, register
from vsl_compute.view import View

if TYPE_CHECKING:
    from vsl_compute.validation.report import Report
    from vsl_compute.validation.validate import validate


class _Backends(type(_folder)):  # type: ignore[misc]  # it is ModuleType, which costs no import this way
    """`vsl_compute.backends` is both the function and the folder, so that `import vsl_compute.backends.cpu as cpu` works."""

    def __call__(self) -> dict[str, str | None]:
        return _ask()


_ask = backends
_folder.__class__ = _Backends
globals()["backends"] = _folder

__all__ = [
    "ArgumentTypeError",
    "AttributeValueError",
    "ComputeBackend",
    "ComputeContext",
    "DType",
    "DTypeError",
    "DeviceError",
    "DeviceInfo",
    "DeviceLostError",
    "DeviceTimeoutError",
    "Driver",
    "Generator",
    "GraphError",
    "IndexRangeError",
    "InterfaceError",
    "KernelCompileError",
    "OutOfMemoryError",
    "Program",
    "ReleasedError",
    "Report",
    "RowError",
    "ShapeError",
    "UnavailableError",
    "UnsupportedError",
    "VersionError",
    "View",
    "VslError",
    "__version__",
    "backends",
    "devices",
    "get",
    "overrides",
    "record",
    "register",
    "run",
    "run_update",
    "validate",
]


def __getattr__(name: str) -> Any:
    """What is loaded when first asked for: the oracle and its cases are no part of computing."""
    if name == "validate":
        from vsl_compute.validation.validate import validate

        return validate
    if name == "Report":
        from vsl_compute.validation.report import Report

        return Report
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
