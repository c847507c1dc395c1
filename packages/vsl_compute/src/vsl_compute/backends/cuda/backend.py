"""CUDABackend: the contract on one CUDA device. A Buffer's handle is an address; a View adds offset and strides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...backend import DeviceInfo, Scalar
from ...errors import UnavailableError
from ...rows.dialect import CUDA
from ...rows.row import Update
from ...view import View
from ..shared.attention_text import TextAttention
from ..shared.backend import TextBackend
from ..shared.pool import Held, Pool
from ..shared.tuning import Tuner
from .attention import CudnnAttention
from .context import Context
from .convolution import Convolutions
from .cublaslt import DATA
from .driver import capabilities_of
from .epilogues import Epilogues
from .interchange import CUDA as DLPACK_CUDA
from .interchange import Interchange
from .products import CublasProducts
from .program import CUDAPrograms
from .queue import NO_MEMORY, CUDAQueue
from .tape import Tapes
from .timing import DeviceClock
from .updates import Updates


class CUDABackend(TextBackend):
    """One device, with a stream of its own in the context that all libraries of the process share."""

    name = "cuda"
    dialect = CUDA
    queue: CUDAQueue

    def __init__(self, info: DeviceInfo, cupy: Any) -> None:
        self.info, self.index, self.spec = info, info.index, info.spec
        self.cupy = cupy
        self.capabilities = capabilities_of(info.memory_bytes)
        properties = cupy.cuda.runtime.getDeviceProperties(info.index)
        self.units = int(properties["multiProcessorCount"])
        capability = int(properties["major"]), int(properties["minor"])
        self.context = Context(cupy, info.index)
        threads = self.units * int(properties["maxThreadsPerMultiProcessor"])
        self.queue = CUDAQueue(cupy, self.context, self.spec, info.name, threads)
        try:
            self.programs = CUDAPrograms(cupy, info.name, capability)
        except RuntimeError as error:  # CuPy's wheel has no compiler of its own
            raise UnavailableError(
                f"{self.spec}: NVRTC cannot be loaded ({error}); run: python -m pip install 'vsl-compute[cuda12-ctk]' (or [cuda13-ctk])"
            ) from error
        self._pool = Pool(self.spec, self.take, self.give, total=info.memory_bytes, largest=info.memory_bytes)
        self._assemble(group=256, shared=True, shared_bytes=48 << 10, threads=1024, fused=(True, True))
        self.tuner = Tuner(info, self.queue.finish, timed=DeviceClock(self))
        self._cublas, self._updates, self._interchange = CublasProducts(self), Updates(self), Interchange(self)
        self._tapes = Tapes(self)
        self._epilogues, self._convolutions = Epilogues(self, self._cublas), Convolutions(self)
        self._overrides |= {"linear": self._cublas.linear, "linear_relu": self._cublas.linear_relu}
        self._overrides |= self._epilogues.overrides()
        self._preparing |= self._cublas.preparing() | self._epilogues.preparing()
        self._overrides |= self._convolutions.overrides()
        self._preparing |= self._convolutions.preparing()
        attention = TextAttention(self, threads=1024, shared_bytes=48 << 10, fused=True, fits=self.scores_fit)
        self._attention = CudnnAttention(self, attention.ops)
        self._overrides |= self._attention.overrides()

    def scores_fit(self, nbytes: int) -> bool:
        """Whether attention makes its scores, for cuBLAS to multiply, as it is then quicker than by tiles (docs/adr/0051)."""
        return nbytes <= self.scratch_bytes

    def counters(self) -> View:
        """What groups of a launch count each other in: uint64, 0 between launches, more than an update has rows."""
        return self._reductions.counters()

    def take(self, nbytes: int) -> int:
        """Memory from the device; MemoryError where there is none."""
        runtime = self.cupy.cuda.runtime
        with self.context.current():
            try:
                return int(runtime.malloc(nbytes))
            except runtime.CUDARuntimeError as error:
                if error.status == NO_MEMORY:
                    raise MemoryError(f"the driver says: {error}") from error
                raise self.queue.meaning(error) from error

    def lease(self, kind: type[Held], size: int, nbytes: int) -> Held:
        """A Buffer of a kind that knows more of its memory than its size."""
        self.queue.check()
        return self._pool.lease(self, size, nbytes, kind)

    def give(self, address: int) -> None:
        """Memory back to the device."""
        with self.context.current():
            self.cupy.cuda.runtime.free(address)

    def close(self) -> None:
        self._updates = Updates(self)  # without a kernel, as the rest
        super().close()
        self._tapes = Tapes(self)  # where nothing was released: a lock that a fork left held must not be waited for

    def _release(self) -> None:
        self._tapes.clear()  # they hold descriptions of products
        self._cublas.close()
        self._convolutions.close()
        self._attention.close()
        super()._release()

    def taped(self, body: Callable[..., Any]) -> Callable[..., Any] | None:
        return self._tapes.taped(body)

    def dlpack_device(self) -> tuple[int, int] | None:
        return DLPACK_CUDA, self.index

    def lend(self, view: View, stream: int | None, *, versioned: bool, copied: bool) -> Any:
        return self._interchange.lend(view, stream, versioned=versioned, copied=copied)

    def borrow(self, x: Any) -> View:
        return self._interchange.borrow(x)

    def gemm(self, out: View, a: View, b: View, *, alpha: float = 1.0, beta: float = 0.0) -> None:
        if out.dtype in DATA and out.size and alpha != 0 and a.shape[-1]:
            self._cublas.gemm(out, a, b, alpha=alpha, beta=beta)
        else:  # integers, and products in which nothing is multiplied
            self._products.gemm(out, a, b, alpha=alpha, beta=beta)

    def update(self, row: Update, arrays: Sequence[Sequence[View]], scalars: Sequence[Scalar]) -> None:
        if len(arrays) == 1:
            named = dict(zip(row.scalars, map(float, scalars), strict=True))
            if self._rows.update_plane(row, arrays[0], named):
                return
        self._updates.update(row, arrays, scalars)
