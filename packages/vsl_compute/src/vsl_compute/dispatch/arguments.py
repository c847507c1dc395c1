"""What every kind of call checks alike: devices, out=, overlap, Python scalars, and arrays on their way in."""

from __future__ import annotations

import reprlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..backend import ComputeBackend, Scalar
from ..dtypes import DType, bfloat16, dtype_of, float32, float64_to_bfloat16, int64
from ..errors import AttributeValueError, DeviceError, DTypeError, ShapeError
from ..view import Layout, Shape, View

SCALAR_TYPES = (int, float, bool)


def cast_scalar(op: str, value: Scalar, dtype: DType) -> Scalar:
    """A Python number as the dtype takes it: OverflowError for integers that do not fit, floats round (to inf if large)."""
    if not isinstance(value, int | float | np.number | np.bool):
        raise AttributeValueError(f"{op}: {value!r:.40} of type {type(value).__name__} is not a number")
    if dtype.is_integer:
        if isinstance(value, float) and not value.is_integer():
            raise DTypeError(f"{op}: {value} is no integer, and the array is {dtype.name}; cast the array")
        if not dtype.min <= int(value) <= dtype.max:
            raise OverflowError(f"{op}: {value} does not fit {dtype.name}, which holds {dtype.min} to {dtype.max}")
        return int(value)
    if type(value) is int:
        require_float(op, value)
    return bool(value) if dtype.kind == "b" else float(value)


def require_float(op: str, *values: Any) -> None:
    """OverflowError for an integer past every float; those that round to infinity in a narrower dtype are let through."""
    for value in values:
        if type(value) is int:
            try:
                float(value)
            except OverflowError:
                raise OverflowError(
                    f"{op}: an integer of {value.bit_length()} bits does not fit a float; give a smaller one"
                ) from None


def other_device(op: str, args: Sequence[Any]) -> DeviceError:
    """The error for arguments on several devices."""
    devices = ", ".join(a.device for a in args if type(a) is View)
    return DeviceError(f"{op}: arguments are on {devices}; move them to one device with .to(...)")


def prepare_out(
    op: str, out: View, shape: Shape, dtype: DType, args: Sequence[Any], *, alias: bool = True
) -> Sequence[Any]:
    """Check `out` and copy the arguments that overlap it in any way but, where `alias` allows, exactly."""
    if out.shape != shape or out.dtype is not dtype:
        raise ShapeError(f"{op}: out is {out.dtype.name}{list(out.shape)}, but the result is {dtype.name}{list(shape)}")
    if out.overlaps_itself:
        raise ShapeError(f"{op}: out has strides {out.strides} and overlaps itself; write into a dense array")
    low, high = out.extent()
    checked: list[Any] = []
    for a in args:
        if type(a) is View:
            if a.buffer.backend is not out.buffer.backend:
                raise DeviceError(f"{op}: an argument is on {a.device} and out on {out.device}; move one with .to(...)")
            if a.buffer is out.buffer and not (alias and a.layout is out.layout and a.offset == out.offset):
                first, last = a.extent()
                if first < high and low < last:
                    a = _copied(a)
        checked.append(a)
    return checked


def _copied(view: View) -> View:
    backend: Any = view.buffer.backend
    fresh: View = backend.allocate(view.layout.like(view.dtype))
    backend.copy(fresh, view)
    return fresh


def asarray(backend: ComputeBackend, array: Any, dtype: DType | str | None = None) -> View:
    """Copy a NumPy array (or what becomes one) to a fresh View; float64 Python lists become float32 by default."""
    host, wanted = _host(array, dtype)
    view = backend.allocate(Layout.of(wanted, host.shape))
    backend.upload(view, host)
    return view


def upload_ahead(backend: ComputeBackend, array: Any, dtype: DType | str | None = None) -> Callable[[], View]:
    """`asarray` beside the device's other work, from any thread; the function that comes back gives the View."""
    host, wanted = _host(array, dtype)
    view = backend.allocate(Layout.of(wanted, host.shape))
    arrive = backend.upload_ahead(view, host)

    def take() -> View:
        arrive()
        return view

    return take


def _host(array: Any, dtype: DType | str | None) -> tuple[np.ndarray[Any, Any], DType]:
    """What is uploaded, in its storage dtype."""
    host = numbers_of("asarray", array)
    if dtype is None and host.dtype.itemsize > 8:
        raise DTypeError(
            f"asarray: {described(array)} is wider than any dtype here; give x.astype(np.float64), or a dtype"
        )
    wanted = dtype_of(dtype) if dtype is not None else _default_dtype(array, host)
    if not isinstance(array, np.ndarray | np.generic):
        require_fits("asarray", host, wanted)
    if wanted is bfloat16:
        host = float64_to_bfloat16(host.astype(np.float64))
    elif host.dtype != wanted.storage:
        with np.errstate(all="ignore"):
            host = host.astype(wanted.storage)
    return host, wanted


# What a NumPy array that holds no real numbers can be given as, by the kind of its dtype.
_INSTEAD = {
    "O": "x.astype(np.float64)",
    "S": "x.astype(np.float64)",
    "U": "x.astype(np.float64)",
    "c": "x.real and x.imag",
    "M": "x.astype(np.int64)",
    "m": "x.astype(np.int64)",
    "V": "one of its fields, x[name]",
}


def numbers_of(op: str, value: Any) -> np.ndarray[Any, Any]:
    """`value` as a NumPy array of real numbers.

    Errors: DTypeError, with the remedy, for what is none: nothing is parsed, and no imaginary part or mask dropped
    """
    if is_masked(value):
        raise DTypeError(f"{op}: {described(value)} has masked elements, which would count; give x.filled(...)")
    try:
        host = np.asarray(value)
    except ValueError:
        raise DTypeError(
            f"{op}: {described(value)} is not an array of numbers: rows of unequal length, or more than 64 axes"
        ) from None
    if host.dtype.kind not in "biuf":
        instead = _INSTEAD[host.dtype.kind] if isinstance(value, np.ndarray) else "nested lists of numbers"
        raise DTypeError(f"{op}: {described(value)} is not an array of numbers; give {instead}")
    return host


def is_masked(value: Any, axes: int = 64) -> bool:
    """Whether elements of a masked array, or of one in nested lists, are masked: NumPy would give what lies under the mask.

    Lists deeper than an array has `axes` are refused elsewhere.
    """
    masked = sys.modules.get("numpy.ma")  # who has one has imported it
    if masked is None:
        return False
    if isinstance(value, list | tuple):
        return axes > 0 and any(
            isinstance(part, list | tuple | np.ndarray) and is_masked(part, axes - 1) for part in value
        )
    return isinstance(value, masked.MaskedArray) and bool(masked.is_masked(value))


def described(value: Any) -> str:
    """A value in a message: of an array what it is, not what it holds, of others one line."""
    if isinstance(value, np.ndarray):
        return f"a NumPy array of {value.dtype}{list(value.shape)}"
    return f"{' '.join(reprlib.repr(value).split()):.60}"


def _default_dtype(given: Any, host: np.ndarray[Any, Any]) -> DType:
    if isinstance(given, np.ndarray | np.generic):
        return dtype_of(host.dtype)
    if host.dtype.kind == "u" and isinstance(given, int | list | tuple):  # NumPy's answer to an int above int64
        return int64
    if host.dtype.kind != "f":
        return dtype_of(host.dtype)
    if isinstance(given, list | tuple) and host.size and np.abs(host).max() >= 2.0**63:
        leaves = np.asarray(given, dtype=object).ravel()
        if all(isinstance(leaf, int) for leaf in leaves):  # NumPy makes floats of ints below 0 and above int64
            raise OverflowError(f"asarray: {given!r:.60} holds integers that do not fit int64; say which dtype")
    return float32


def require_fits(op: str, host: np.ndarray[Any, Any], dtype: DType) -> None:
    """OverflowError for numbers, NaN among them, that an integer dtype cannot hold; a fraction is left out."""
    if not dtype.is_integer or not host.size:
        return
    for value in (host.min(), host.max()):
        value = value.item() if isinstance(value, np.generic) else value
        if not dtype.min <= (value if abs(value) >= 1 or value != value else 0) <= dtype.max:
            raise OverflowError(f"{op}: {value} does not fit {dtype.name}, which holds {dtype.min} to {dtype.max}")


def cast(view: View, dtype: DType) -> View:
    """The elements in another dtype, in a fresh dense array of the same order of axes."""
    backend: Any = view.buffer.backend
    for kind in (view.dtype, dtype):
        backend.require_primitive("copy", kind)
    fresh: View = backend.allocate(view.layout.like(dtype))
    backend.copy(fresh, view)
    return fresh
