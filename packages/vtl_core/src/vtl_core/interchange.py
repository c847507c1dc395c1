"""Exchange with NumPy and DLPack: what leaves is read-only or a copy, what comes in is copied.

A writer outside would change memory that a backward pass has saved, and no version could tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vsl_compute import registry
from vsl_compute.dispatch import asarray, numbers_of
from vsl_compute.dtypes import bfloat16
from vsl_compute.view import View

from .arguments import explain
from .autograd import node

if TYPE_CHECKING:
    from .tensor import Tensor

Array = np.ndarray[Any, Any]
CPU = (1, 0)  # kDLCPU of dlpack.h
CUDA_KINDS = (2, 13)  # kDLCUDA, kDLCUDAManaged
READ_ONLY_SINCE = (1, 0)  # the DLPack version that can say so
_FLAGS = np.lib.NumpyVersion(np.__version__) >= "2.1.0"  # NumPy 2.0 writes no flags into its capsules


def to_numpy(raw: View) -> Array:
    """A read-only array: the memory itself where the host can read it, else a copy."""
    backend: Any = raw.buffer.backend
    shared: Array | None = backend.host_view(raw)
    if shared is not None:
        return shared
    copied = raw.to_host()
    copied.flags.writeable = False
    return copied


def to_array(raw: View, dtype: Any, copy: bool | None) -> Array:
    """What numpy.asarray and numpy.array ask for: a writable copy if `copy`, else as `to_numpy`."""
    array = to_numpy(raw)
    if dtype is not None and np.dtype(dtype) != array.dtype:
        if copy is False:
            raise ValueError(f"__array__: {raw.dtype.name} cannot become {np.dtype(dtype)} without a copy")
        return array.astype(dtype)
    return array.copy() if copy else array


def to_dlpack(
    raw: View, *, stream: Any, max_version: tuple[int, int] | None, dl_device: tuple[int, int] | None, copy: bool | None
) -> Any:
    """A DLPack capsule of the memory, flagged read-only, or of a copy; BufferError where the consumer would write."""
    here = dlpack_device(raw)  # raises for memory that cannot be exported
    if here != CPU and dl_device not in (None, CPU):
        if dl_device != here:
            raise BufferError(f"__dlpack__: exports from {here} to the CPU only, not to {dl_device}")
    elif here == CPU and stream is not None:
        raise BufferError(f"__dlpack__: stream={stream!r} means nothing on the CPU; pass None")
    elif here == CPU and dl_device not in (None, CPU):
        raise BufferError(f"__dlpack__: exports to the CPU only, not to {dl_device}")
    versioned = max_version is not None and tuple(max_version) >= READ_ONLY_SINCE
    if here != CPU and dl_device != CPU:
        return _lent(raw, stream, versioned, copy)
    if here != CPU and copy is False:
        raise BufferError(f"__dlpack__: {here} cannot be read on the CPU without a copy; leave copy out")
    if raw.dtype is bfloat16:
        raise BufferError("__dlpack__: NumPy cannot export bfloat16; cast it with .to(vtl.float32)")
    if copy or here != CPU:
        options: dict[str, Any] = {"max_version": max_version} if _FLAGS else {}
        return raw.to_host().__dlpack__(**options)
    if not versioned or not _FLAGS:
        raise _would_write(", or NumPy is older than 2.1")
    return to_numpy(raw).__dlpack__(max_version=max_version)


def _lent(raw: View, stream: Any, versioned: bool, copy: bool | None) -> Any:
    backend: Any = raw.buffer.backend
    if not copy and not versioned:
        raise _would_write("")
    if copy:
        fresh = backend.allocate(raw.layout.like(raw.dtype))
        backend.copy(fresh, raw)
        raw = fresh
    return backend.lend(raw, stream, versioned=versioned, copied=bool(copy))


def _would_write(why: str) -> BufferError:
    return BufferError(
        f"__dlpack__: the consumer knows no read-only arrays (it gave no max_version of 1.0 or later{why}), "
        "and a tensor is not lent for writing; ask for copy=True"
    )


def dlpack_device(raw: View) -> tuple[int, int]:
    """(kind, index) as DLPack counts devices; BufferError for those it has no number for here."""
    if raw.device.partition(":")[0] == "cpu":
        return CPU
    backend: Any = raw.buffer.backend
    found: tuple[int, int] | None = backend.dlpack_device()
    if found is None:
        raise BufferError(
            f"__dlpack_device__: {raw.device} is not exported by DLPack yet; move it with .to('cpu') first"
        )
    return found


def from_dlpack(x: Any, /, *, device: str | None = None, copy: bool | None = None) -> Tensor:
    """A tensor of what another library holds on the CPU or on a CUDA device: a copy, so that nobody else can write to it.

    It stays on the device where it is, unless `device` names another.

    Errors: BufferError for copy=False, and for memory that cannot be read
    """
    if copy is False:
        raise BufferError("from_dlpack: copy=False is refused: a tensor's memory must be its own; leave copy out")
    if isinstance(x, np.ndarray):
        numbers_of("from_dlpack", x)  # the mask of a masked array is no part of what it exports
    try:
        kind, index = x.__dlpack_device__()
    except AttributeError:  # of no DLPack at all: refused below, in the same words as what NumPy cannot read
        kind, index = CPU
    if int(kind) in CUDA_KINDS:
        backend: Any = registry.get(f"cuda:{index}")
        found = node.wrap(backend.borrow(x))
        return found if device is None else found.to(device)
    try:
        host = np.from_dlpack(x)
    except (RuntimeError, TypeError, AttributeError) as error:
        raise BufferError(
            f"from_dlpack: {type(x).__name__} offers nothing that the CPU can read ({error}); move it to the CPU first"
        ) from error
    return node.wrap(asarray(registry.get(device or "cpu"), host))


explain(globals())
