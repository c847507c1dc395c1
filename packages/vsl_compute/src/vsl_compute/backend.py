"""The contract: what a backend must supply, what it may declare, and the Driver through which it is found.

A backend supplies the primitives below and nothing else: every row, reduction, update and composite of the op
tables then runs on it. It may offer an *override* of a composite (a library call, a hand-tuned kernel); dispatch
uses it in place of the body. Outputs come first (what changes), then data, then named options. Shapes, dtypes,
devices and overlap have been checked by dispatch; a primitive does not check again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from .dtypes import DType
from .errors import AttributeValueError, UnsupportedError

if TYPE_CHECKING:
    import numpy as np

    from .rows.row import Reduction, Row, Update
    from .view import Layout, View

BACKEND_INTERFACE = (1, 4)
Scalar = int | float | bool


@dataclass(frozen=True)
class DeviceInfo:
    """One device as its driver describes it; `kind` is "cpu", "discrete", "integrated" or "software"."""

    spec: str
    backend: str
    index: int
    name: str
    kind: str
    memory_bytes: int
    dtypes: tuple[str, ...]
    driver: str


@dataclass
class Transfers:
    """Bytes and calls between host and device since the backend was opened, counted at the lowest call.

    The first four are the user's arrays. What a backend moves for itself is metadata: kernel parameters that do not fit
    the launch, written into a ring, and reports of indices that were out of range.
    """

    bytes_to_device: int = 0
    calls_to_device: int = 0
    bytes_to_host: int = 0
    calls_to_host: int = 0
    metadata_bytes: int = 0
    metadata_calls: int = 0


@dataclass(frozen=True)
class Memory:
    """Bytes held now. `live` is in use by Buffers, `reserved` is held from the device, `buffers` counts Buffers.

    `peak` is the most that `reserved` has been; 0 where nobody counts.
    """

    live: int
    reserved: int
    buffers: int
    peak: int = 0


def limit_of(nbytes: object) -> int | None:
    """What `limit_memory` was given, if it is a number of bytes or None; AttributeValueError for anything else."""
    if nbytes is None or (type(nbytes) is int and nbytes >= 0):
        return nbytes
    raise AttributeValueError(f"limit_memory: {nbytes!r:.40} is no number of bytes; give an int of at least 0, or None")


@dataclass(frozen=True)
class Capabilities:
    """What is declared, per dtype: support of a row is derived from this, never listed.

    `functions` maps a dtype to the names of the row functions its kernels can say; a dtype that is absent cannot be
    computed on at all. `unsupported` names primitives the backend lacks, each with the dtypes it lacks them for.
    """

    functions: Mapping[DType, frozenset[str]]
    unsupported: Mapping[str, frozenset[DType]] = field(default_factory=dict)
    scratch_bytes: int = 1 << 28  # how much a composite's body may hold at a time besides its result


def arrived() -> None:
    """What `upload_ahead` gives where there is nothing to wait for."""


class ComputeBackend(ABC):
    """One device, opened."""

    name: str
    index: int
    spec: str
    info: DeviceInfo
    capabilities: Capabilities
    interface = BACKEND_INTERFACE
    # Calls of given layouts made ready, which dispatch looks up before anything else: by (row, *layouts) what takes the
    # arguments, by (op, *layouts, *options) that and the checked options. A backend that launches has a dict of its own.
    prepared: Mapping[tuple[Any, ...], Any] = MappingProxyType({})

    closed: bool = False

    @property
    def scratch_bytes(self) -> int:
        """How much a composite's body may hold at a time besides its result."""
        return self.capabilities.scratch_bytes

    # memory and transfers
    @abstractmethod
    def allocate(self, layout: Layout) -> View:
        """A fresh View of this layout, contents undefined; OutOfMemoryError names asked, held and largest free."""

    @abstractmethod
    def upload(self, out: View, array: np.ndarray[Any, Any]) -> None:
        """Copy a host array of `out`'s shape and storage dtype; the array may be changed once this returns."""

    @abstractmethod
    def download(self, view: View) -> np.ndarray[Any, Any]:
        """A fresh host array (bfloat16 as float32); waits for the device and raises what it found wrong."""

    def upload_ahead(self, out: View, array: np.ndarray[Any, Any]) -> Callable[[], None]:
        """`upload` into a fresh View beside the device's other work, from any thread; what comes back is called before `out` is read.

        It puts what is enqueued from then on behind the copy. A device without a way beside its queue uploads at once.
        """
        self.upload(out, array)
        return arrived

    def host_view(self, view: View) -> np.ndarray[Any, Any] | None:
        """A read-only array over the view's own memory where the host reads it as it is; None where only `download` can."""
        return None

    def dlpack_device(self) -> tuple[int, int] | None:
        """(kind, index) of dlpack.h by which other libraries know this memory; None where none can reach it."""
        return None

    def lend(self, view: View, stream: int | None, *, versioned: bool, copied: bool) -> Any:
        """A DLPack capsule of the view's memory, flagged read-only unless it is a copy; `stream` is the consumer's."""
        raise BufferError(f"__dlpack__: {self.spec} is not exported by DLPack; move the data with .to('cpu') first")

    def borrow(self, x: Any) -> View:
        """A fresh copy of what another library holds on this device, by DLPack."""
        raise BufferError(f"from_dlpack: {self.spec} takes no memory of other libraries; bring it to the CPU first")

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until all work is done; raise what the device found wrong."""

    @abstractmethod
    def memory(self) -> Memory:
        """Bytes held now."""

    @abstractmethod
    def transfers(self) -> Transfers:
        """A copy of the counters."""

    def empty_cache(self) -> None:  # noqa: B027  # a backend without a cache has nothing to do
        """Give memory that no Buffer uses back to the device."""

    def compile_ahead(self, rows: Iterable[tuple[Row, Mapping[str, DType], frozenset[str]]]) -> None:  # noqa: B027  # likewise
        """Compile what these rows may need, together; never needed, but quicker than one by one where compilers start slowly.

        Each row comes with the dtype of every letter of its signature, and the arguments that will be Python numbers.
        """

    def limit_memory(self, nbytes: int | None) -> None:
        """Hold at most so many bytes from the device, or None for as many as it has; beyond, OutOfMemoryError."""
        raise UnsupportedError(f"limit_memory: {self.spec} keeps no pool of its own that could be limited")

    def close(self) -> None:
        """Release the device; its Views must not be used afterwards. Asked for again, it is opened anew."""
        self.closed = True

    # primitives
    @abstractmethod
    def copy(self, out: View, x: View) -> None:
        """out = x, of the same shape, any strides, converting the dtype."""

    @abstractmethod
    def elementwise(self, row: Row, out: View, args: Sequence[View | Scalar], scalars: Sequence[Scalar]) -> None:
        """out = row(args): Views broadcast to out's shape, Python scalars stand for themselves."""

    @abstractmethod
    def update(self, row: Update, arrays: Sequence[Sequence[View]], scalars: Sequence[Scalar]) -> None:
        """Run an update row over each tuple of arrays, in place."""

    @abstractmethod
    def reduce(self, row: Reduction, outs: Sequence[View], x: View, axes: tuple[int, ...]) -> None:
        """Reduce `axes` of x into outs, whose shape is x's without them."""

    @abstractmethod
    def gemm(self, out: View, a: View, b: View, *, alpha: float = 1.0, beta: float = 0.0) -> None:
        """out = alpha * a @ b + beta * out over the last two axes; with beta 0, out is not read. Batches match or broadcast."""

    @abstractmethod
    def gather(self, out: View, x: View, index: View, *, batch: int = 0) -> None:
        """out[b..., i..., j...] = x[b..., index[b..., i...], j...] over `batch` axes b.

        An index outside the axis is an IndexRangeError at the next read.
        """

    @abstractmethod
    def scatter_add(self, out: View, index: View, x: View, *, batch: int = 0) -> None:
        """out[b..., index[b..., i...], j...] += x[b..., i..., j...], repeated indices adding up, in an order that does not vary."""

    @abstractmethod
    def fold(
        self, out: View, x: View, *, axes: tuple[int, ...], steps: tuple[int, ...], dilations: tuple[int, ...]
    ) -> None:
        """Adjoint of `View.window`: each element of out is the sum of the window entries of x that look at it."""

    @abstractmethod
    def sort(self, values: View, index: View, x: View, *, descending: bool = False) -> None:
        """Stable sort along the last axis, NaN last; index holds where each value came from."""

    @abstractmethod
    def scan(self, row: Reduction, out: View, x: View) -> None:
        """Inclusive prefix reduction along the last axis, for a row with one state and one output."""

    @abstractmethod
    def random(self, out: View, *, kind: str, key: tuple[int, int], counter: tuple[int, int, int, int]) -> None:
        """Fill with Philox 4x32-10: "bits" (uint32), "uniform" [0, 1) or "normal"; element i in C order takes its own words."""

    # declarations
    def override(self, op: str) -> Callable[..., Any] | None:
        """This backend's own version of a composite: f(*views, **attributes) -> View(s).

        It may return NotImplemented for a case that it leaves to the body.
        """
        return None

    def prepare(self, row: Row, out: Layout, args: Sequence[Layout]) -> Callable[..., View] | None:
        """`elementwise` of dense arrays into a fresh View, made ready: a function of the arguments, or None.

        What is the same for every call with these layouts is worked out here, once.
        """
        return None

    def prepare_op(
        self, op: str, views: Sequence[View | None], options: Mapping[str, Any]
    ) -> Callable[..., Any] | None:
        """A primitive or an override for Views of these layouts, made ready: a function of the Views, or None.

        Like an override it may return NotImplemented.
        """
        return None

    def taped(self, body: Callable[..., Any]) -> Callable[..., Any] | None:
        """A body of hundreds of calls, a function of Views of given layouts, made ready: or None.

        What it launches depends on layouts, never on data. Like an override it may return NotImplemented.
        """
        return None

    def supports_row(self, row: Row, dtype: DType) -> bool:
        """Whether the device can compute this row in this dtype."""
        known = self.capabilities.functions.get(dtype)
        return known is not None and row.functions <= known

    def supports_primitive(self, primitive: str, dtype: DType) -> bool:
        """Whether the device has this primitive for this dtype."""
        return dtype in self.capabilities.functions and dtype not in self.capabilities.unsupported.get(
            primitive, frozenset()
        )

    def require_primitive(self, primitive: str, dtype: DType) -> None:
        """UnsupportedError unless the primitive is there."""
        if not self.supports_primitive(primitive, dtype):
            raise UnsupportedError(
                f'{self.spec}: no {primitive} for {dtype.name}; move the data with .to("cpu") or cast it'
            )

    def require_dtype(self, op: str, dtype: DType) -> None:
        """UnsupportedError unless the device computes in this dtype: what an override has of its own asks nothing."""
        if dtype not in self.capabilities.functions:
            raise UnsupportedError(f'{self.spec}: no {op} for {dtype.name}; move the data with .to("cpu") or cast it')


class Driver(Protocol):
    """What an entry point in the group `vsl_compute.backends` returns.

    It may have `unusable() -> list[str]` too: devices that were found and refused, each with its reason, for `vsl doctor`.
    """

    name: str

    def devices(self) -> Sequence[DeviceInfo]:
        """Every device that could be opened; UnavailableError with reason and remedy if there is none."""
        ...

    def open(self, index: int) -> ComputeBackend:
        """Open one device."""
        ...
