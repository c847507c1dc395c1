"""Exchange with NumPy and DLPack: what leaves is read-only or a copy, what comes in is copied.

A writer outside would change memory that a backward pass has saved, and no version could tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vsl_compute import registry
from vsl_compute.dispatch import asarray
from vsl_compute.dtypes import bfloat16
from vsl_compute.view import View

from .autograd import node

if TYPE_CHECKING:
    from .tensor import Tensor

Array = np.ndarray[Any, Any]
CPU = (1, 0)  # kDLCPU of dlpack.h
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
    """A DLPack capsule of CPU memory: flagged read-only, or of a copy; BufferError where the consumer would write."""
    if stream is not None:
        raise BufferError(f"__dlpack__: stream={stream!r} means nothing on the CPU; pass None")
    if dl_device not in (None, CPU):
        raise BufferError(f"__dlpack__: exports to the CPU only, not to {dl_device}")
    dlpack_device(raw)  # raises for memory that is elsewhere
    if raw.dtype is bfloat16:
        raise BufferError("__dlpack__: NumPy cannot export bfloat16; cast it with .to(vtl.float32)")
    if copy:
        options: dict[str, Any] = {"max_version": max_version} if _FLAGS else {}
        return raw.to_host().__dlpack__(**options)
    if max_version is None or tuple(max_version) < READ_ONLY_SINCE or not _FLAGS:
        raise BufferError(
            "__dlpack__: the consumer knows no read-only arrays (it gave no max_version of 1.0 or later, or NumPy is older than 2.1), "
            "and a tensor is not lent for writing; ask for copy=True"
        )
    return to_numpy(raw).__dlpack__(max_version=max_version)


def dlpack_device(raw: View) -> tuple[int, int]:
    """(kind, index) as DLPack counts devices; BufferError for those it has no number for here."""
    name = raw.device.partition(":")[0]
    if name != "cpu":
        raise BufferError(
            f"__dlpack_device__: {raw.device} is not exported by DLPack yet; move it with .to('cpu') first"
        )
    return CPU


def from_dlpack(x: Any, /, *, device: str | None = None, copy: bool | None = None) -> Tensor:
    """A tensor of what another library holds on the CPU: a copy, so that nobody else can write to it.

    Errors: BufferError for copy=False, and for memory that the host cannot read
    """
    if copy is False:
        raise BufferError("from_dlpack: copy=False is refused: a tensor's memory must be its own; leave copy out")
    try:
        host = np.from_dlpack(x)
    except (RuntimeError, TypeError, AttributeError) as error:
        raise BufferError(
            f"from_dlpack: {type(x).__name__} offers nothing that the CPU can read ({error}); move it to the CPU first"
        ) from error
    return node.wrap(asarray(registry.get(device or "cpu"), host))
