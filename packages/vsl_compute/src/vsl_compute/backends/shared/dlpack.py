"""DLPack for memory that NumPy cannot reach: capsules that lend a view, and reading those that others give.

Source: dlpack.h 1.0, https://dmlc.github.io/dlpack/latest/c_api.html
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from math import prod
from typing import Any

from ...dtypes import BY_NAME, DType, bfloat16, bool_
from ...errors import DTypeError

VERSION = (1, 0)
READ_ONLY, COPIED = 1, 2  # DLPACK_FLAG_BITMASK_*
_CODES = {"i": 0, "u": 1, "f": 2}  # DLDataTypeCode
_BFLOAT, _BOOL = 4, 6


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64), ("tensor", _Tensor),
    )  # fmt: skip


class _Legacy(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


_Managed = _Versioned | _Legacy
_NAMES: dict[type, tuple[bytes, bytes]] = {  # of a capsule, before and after it is taken; they must outlive it
    _Versioned: (b"dltensor_versioned", b"used_dltensor_versioned"),
    _Legacy: (b"dltensor", b"used_dltensor"),
}
_lent: dict[int, tuple[Any, ...]] = {}  # by address: what a consumer that has not let go needs
_Destructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_api = ctypes.pythonapi
_api.PyCapsule_New.restype, _api.PyCapsule_New.argtypes = (
    ctypes.py_object,
    [ctypes.c_void_p, ctypes.c_char_p, _Destructor],
)
_api.PyCapsule_IsValid.argtypes = [ctypes.py_object, ctypes.c_char_p]
_api.PyCapsule_GetPointer.restype, _api.PyCapsule_GetPointer.argtypes = (
    ctypes.c_void_p,
    [ctypes.py_object, ctypes.c_char_p],
)
_api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
# the destructor sees a capsule that is being destroyed: as an address, since no reference to it may be made any more
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", _api))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))


def _let_go(address: int) -> None:
    """The consumer has done with it."""
    held = _lent.pop(address, None)
    if held is not None:
        held[-1]()


def _destroyed(capsule: int) -> None:
    """A capsule is gone; one that nobody took still holds its memory."""
    for name, _ in _NAMES.values():
        if _is_valid(capsule, name):
            _let_go(_pointer(capsule, name))


_on_delete, _on_destroy = _Deleter(_let_go), _Destructor(_destroyed)


def lend(
    address: int, device: tuple[int, int], dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...], *, flags: int, versioned: bool,
    done: Callable[[], None],
) -> Any:  # fmt: skip
    """A capsule of memory; `done` is called once nobody uses it any more, and keeps alive what it refers to.

    Units: strides count elements; address is that of the first element
    """
    ndim = len(shape)
    sizes, steps = (ctypes.c_int64 * max(1, ndim))(*shape), (ctypes.c_int64 * max(1, ndim))(*strides)
    kind: type[_Managed] = _Versioned if versioned else _Legacy
    managed = kind()
    managed.tensor.data, managed.tensor.device_type, managed.tensor.device_id = address, *device
    managed.tensor.ndim, managed.tensor.lanes, managed.tensor.bits = ndim, 1, 8 * dtype.itemsize
    managed.tensor.code = _BFLOAT if dtype is bfloat16 else _BOOL if dtype is bool_ else _CODES[dtype.kind]
    managed.tensor.shape, managed.tensor.strides = (
        ctypes.cast(sizes, ctypes.POINTER(ctypes.c_int64)),
        ctypes.cast(steps, ctypes.POINTER(ctypes.c_int64)),
    )
    managed.deleter = ctypes.cast(_on_delete, ctypes.c_void_p).value
    if isinstance(managed, _Versioned):
        managed.major, managed.minor, managed.flags = *VERSION, flags
    at = ctypes.addressof(managed)
    _lent[at] = (managed, sizes, steps, done)
    return _api.PyCapsule_New(at, _NAMES[kind][0], _on_destroy)


class Foreign:
    """What a capsule lends: taken when this is made, given back by `release`.

    Errors:  BufferError for what is no capsule, or one that was taken; DTypeError for elements that we do not have
    """

    def __init__(self, capsule: Any) -> None:
        kind = next((k for k, (name, _) in _NAMES.items() if _api.PyCapsule_IsValid(capsule, name)), None)
        if kind is None:
            raise BufferError("from_dlpack: __dlpack__ gave no DLPack capsule, or one that was taken already")
        name, used = _NAMES[kind]
        self._address = _api.PyCapsule_GetPointer(capsule, name)
        self._managed: Any = kind.from_address(self._address)  # type: ignore[attr-defined]  # ctypes.Structure has it
        tensor = self._managed.tensor
        self.dtype = _dtype_of(tensor)
        self.device = int(tensor.device_type), int(tensor.device_id)
        self.shape = tuple(tensor.shape[: tensor.ndim])
        self.address = int(tensor.data or 0) + int(tensor.byte_offset)
        self.strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else None  # None: C order
        self.size = prod(self.shape)
        _api.PyCapsule_SetName(capsule, used)

    def release(self) -> None:
        """Give it back; its memory must not be read afterwards."""
        if self._managed.deleter:
            _Deleter(self._managed.deleter)(self._address)


def _dtype_of(tensor: Any) -> DType:
    code, bits, lanes = tensor.code, tensor.bits, tensor.lanes
    if lanes == 1:
        if (code, bits) == (_BFLOAT, 16):
            return bfloat16
        if (code, bits) == (_BOOL, 8):
            return bool_
        for word, number in (("int", 0), ("uint", 1), ("float", 2)):
            if code == number and f"{word}{bits}" in BY_NAME:
                return BY_NAME[f"{word}{bits}"]
    raise DTypeError(f"from_dlpack: elements of DLPack type ({code}, {bits}, {lanes}) are none of {', '.join(BY_NAME)}")
