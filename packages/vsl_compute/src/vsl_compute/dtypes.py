"""The closed set of dtypes, what each is stored and computed as, and the one promotion table.

Dtypes follow the Python array API standard; int with float arrays gives the float. bfloat16 has no NumPy
type: on the host it is stored as uint16 and computed as float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

from .errors import DTypeError


@dataclass(frozen=True, eq=False)
class DType:
    """One element type: `name`, `kind` ('b' bool, 'i' signed, 'u' unsigned, 'f' floating), `itemsize` in bytes."""

    name: str
    kind: str
    itemsize: int
    storage: np.dtype[Any]  # the NumPy dtype that holds it on the host
    compute: np.dtype[Any]  # the NumPy dtype that rows compute in
    min: int | float
    max: int | float

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:  # copies and pickles are the one instance: dtypes compare by identity
        return (dtype_of, (self.name,))

    @cached_property
    def is_plain(self) -> bool:
        """True if it is computed in the type it is stored as."""
        return self.compute == self.storage and self.name != "bfloat16"

    @property
    def is_floating(self) -> bool:
        """True for float16, bfloat16, float32 and float64."""
        return self.kind == "f"

    @property
    def is_integer(self) -> bool:
        """True for the eight integer dtypes."""
        return self.kind in "iu"

    @property
    def eps(self) -> float:
        """Distance from 1 to the next larger number; DTypeError for dtypes that are not floating."""
        if self.kind != "f":
            raise DTypeError(f"{self.name} has no eps; only floating dtypes have")
        return 2.0**-7 if self.name == "bfloat16" else float(np.finfo(self.storage).eps)


def _make(name: str, compute: str) -> DType:
    storage = np.dtype("uint16" if name == "bfloat16" else name)
    if name == "bfloat16":
        return DType(name, "f", 2, storage, np.dtype(compute), -3.3895313892515355e38, 3.3895313892515355e38)
    if storage.kind == "f":
        finfo = np.finfo(storage)
        return DType(name, "f", storage.itemsize, storage, np.dtype(compute), float(finfo.min), float(finfo.max))
    if storage.kind == "b":
        return DType(name, "b", 1, storage, np.dtype(compute), 0, 1)
    iinfo = np.iinfo(storage)
    return DType(name, storage.kind, storage.itemsize, storage, np.dtype(compute), int(iinfo.min), int(iinfo.max))


bool_ = _make("bool", "bool")
int8, int16, int32, int64 = (
    _make("int8", "int32"),
    _make("int16", "int32"),
    _make("int32", "int32"),
    _make("int64", "int64"),
)
uint8, uint16 = _make("uint8", "int32"), _make("uint16", "int32")
uint32, uint64 = _make("uint32", "uint32"), _make("uint64", "uint64")
float16, bfloat16 = _make("float16", "float32"), _make("bfloat16", "float32")
float32, float64 = _make("float32", "float32"), _make("float64", "float64")

ALL = (bool_, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float16, bfloat16, float32, float64)
BY_NAME = {dtype.name: dtype for dtype in ALL}
FLOATING = (float16, bfloat16, float32, float64)
INTEGER = (int8, int16, int32, int64, uint8, uint16, uint32, uint64)
_BY_STORAGE = {dtype.storage: dtype for dtype in ALL if dtype is not bfloat16}
_BY_PYTHON: dict[type, DType] = {bool: bool_, int: int64, float: float32}


def dtype_of(given: object) -> DType:
    """Return the DType for a DType, a name, a NumPy dtype, or Python's bool, int (int64) and float (float32)."""
    if isinstance(given, DType):
        return given
    if isinstance(given, str) and given in BY_NAME:
        return BY_NAME[given]
    if isinstance(given, type) and given in _BY_PYTHON:
        return _BY_PYTHON[given]
    try:
        known = given is not None and not isinstance(given, str)  # numpy.dtype would take None for float64
        found = _BY_STORAGE.get(np.dtype(given).newbyteorder("=")) if known else None  # type: ignore[call-overload]  # any object may arrive
    except TypeError:
        found = None
    if found is None:
        raise DTypeError(f"dtype {given!r} is not one of {', '.join(BY_NAME)}")
    return found


@cache
def promote(a: DType, b: DType) -> DType:
    """The dtype that holds both: bool yields to all, int with float is the float, uint64 with signed has none.

    float16 with bfloat16 is float32, as neither holds the other.
    """
    if a is b:
        return a
    if a.kind == "b" or b.kind == "b":
        return b if a.kind == "b" else a
    if a.kind == "f" or b.kind == "f":
        if a.kind != b.kind:
            return a if a.kind == "f" else b
        return float32 if a.itemsize == b.itemsize else max(a, b, key=lambda d: d.itemsize)
    if a.kind == b.kind:
        return max(a, b, key=lambda d: d.itemsize)
    signed, unsigned = (a, b) if a.kind == "i" else (b, a)
    if unsigned is uint64:
        raise DTypeError(f"promote: uint64 and {signed.name} have no common integer dtype; cast one of them")
    return signed if signed.itemsize > unsigned.itemsize else BY_NAME[f"int{16 * unsigned.itemsize}"]


def bfloat16_to_float32(bits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Widen stored bfloat16 (uint16) to float32, exactly."""
    wide = np.asarray(np.left_shift(bits, 16, dtype=np.uint32))  # of 0-d bits NumPy makes a scalar, which has no flags
    return wide.view(np.float32)


def float32_to_bfloat16(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Round float32 to the nearest bfloat16, ties to even; NaN stays NaN, too large becomes infinity."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32).reshape(values.shape)
    rounded: np.ndarray[Any, Any] = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    return np.where(np.isnan(values), (bits >> 16) | 0x40, rounded).astype(np.uint16)


def float64_to_bfloat16(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Round float64 to bfloat16 once: through float32 rounded to odd, so that no tie is rounded twice."""
    with np.errstate(over="ignore", invalid="ignore"):
        narrow = np.asarray(values, np.float64).astype(np.float32)
    bits = narrow.view(np.uint32)
    inexact = narrow.astype(np.float64) != values
    magnitude_up = np.abs(narrow.astype(np.float64)) > np.abs(values)
    toward_zero = np.where(inexact & magnitude_up & np.isfinite(values), bits - 1, bits)
    odd = np.where(inexact & np.isfinite(values), toward_zero | 1, bits).astype(np.uint32)
    return float32_to_bfloat16(odd.view(np.float32).reshape(np.shape(values)))
