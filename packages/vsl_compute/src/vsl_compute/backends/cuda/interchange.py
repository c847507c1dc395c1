"""Exchange of device memory with CuPy, PyTorch and others by DLPack: lent for reading, copied in, ordered by events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import DeviceError
from ...view import Buffer, Layout, View
from ..shared.dlpack import COPIED, READ_ONLY, VERSION, Foreign, lend

if TYPE_CHECKING:
    from .backend import CUDABackend

CUDA, MANAGED = 2, 13  # kDLCUDA, kDLCUDAManaged
LEGACY = 1  # the stream that a consumer means which names none
UNORDERED = -1  # the consumer sees to the order itself


class Interchange:
    """What one device lends and borrows."""

    def __init__(self, backend: CUDABackend) -> None:
        self._backend = backend

    def lend(self, view: View, stream: int | None, *, versioned: bool, copied: bool) -> Any:
        """A capsule of the view's memory; the consumer's stream waits for ours now, ours for it once it has let go."""
        if stream == 0:
            raise BufferError("__dlpack__: stream=0 may mean two streams of CUDA; pass 1 (legacy) or 2 (per thread)")
        consumer = LEGACY if stream is None else stream
        queue = self._backend.queue
        queue.check()
        if consumer != UNORDERED:
            self._follow(consumer, queue.pointer)

        def done(view: View = view) -> None:  # holds the view's Buffer until then
            if consumer != UNORDERED:
                self._follow(queue.pointer, consumer)

        return lend(view.buffer.handle + view.offset * view.dtype.itemsize, (CUDA, self._backend.index), view.dtype, view.shape, view.strides,
                    flags=COPIED if copied else READ_ONLY, versioned=versioned, done=done)  # fmt: skip

    def borrow(self, x: Any) -> View:
        """A fresh copy of what another library holds here, made before this returns.

        Errors: BufferError for what cannot be lent, DeviceError for memory of another device
        """
        backend, ours = self._backend, self._backend.queue.pointer
        backend.queue.check()
        try:
            capsule = x.__dlpack__(stream=ours, max_version=VERSION)
        except TypeError:  # of before DLPack 1.0
            capsule = x.__dlpack__(stream=ours)
        foreign = Foreign(capsule)
        try:
            if foreign.device[0] not in (CUDA, MANAGED) or foreign.device[1] != backend.index:
                raise DeviceError(f"from_dlpack: the memory is on device {foreign.device}, not on {backend.spec}")
            layout = Layout.of(foreign.dtype, foreign.shape, foreign.strides)
            fresh = backend.allocate(layout.like(foreign.dtype))
            backend.copy(fresh, View(Buffer(backend, foreign.address, layout.nbytes), layout))
            backend.queue.finish()  # the owner may write again once this returns
        finally:
            foreign.release()
        return fresh

    def _follow(self, stream: int, before: int) -> None:
        """Let `stream` wait for what `before` has been given so far."""
        cupy = self._backend.cupy
        with self._backend.context.current():
            event = cupy.cuda.Event(disable_timing=True)
            cupy.cuda.runtime.eventRecord(event.ptr, before)
            cupy.cuda.runtime.streamWaitEvent(stream, event.ptr)
