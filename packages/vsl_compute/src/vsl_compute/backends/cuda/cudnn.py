"""cuDNN, through nvidia-cudnn-frontend: convolutions as graphs of one node, and their execution plans.

A graph is built once for what it computes; its plans come in the order of the library's heuristics and are finalized when
first run. Plans that go through a transform (Winograd, FFT) are left out: there one NaN spreads over its neighbours, and
float32 loses digits. So are those whose results vary from run to run, where that is asked for. Strict float32 has no plan
on tensor cores.
Source: https://docs.nvidia.com/deeplearning/cudnn/frontend/latest/operations/Convolutions.html
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from ...dtypes import DType, bfloat16, float16, float32, uint8
from ...errors import UnavailableError, UnsupportedError
from ...view import Layout

if TYPE_CHECKING:
    from .backend import CUDABackend

TYPES = {float32: "FLOAT", float16: "HALF", bfloat16: "BFLOAT16"}
NEVER = (
    "WINOGRAD",
    "WINOGRAD_TILE_4x4",
    "WINOGRAD_TILE_6x6",
    "WINOGRAD_TILE_13x13",
    "FFT",
    "REDUCED_PRECISION_REDUCTION",
)
STRICT = ("TENSOR_CORE", "DOWN_CONVERT_INPUTS")
VARYING = "NONDETERMINISTIC"
ALIGNED = 16  # bytes: what the library expects of an address that is not said to be less
MODES = ("A", "B", "FALLBACK")
log = logging.getLogger("vsl_compute.cudnn")
REMEDY = "python -m pip install 'vsl-compute[cuda12-ctk]' (or [cuda13-ctk]), or the cuDNN of your system"


def first_line(error: BaseException) -> str:
    """What a library says first of a refusal; its kind, where it says nothing."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__


@dataclass(frozen=True)
class Problem:
    """One convolution: which of the three, in which dtype and precision, with which arrays and window.

    Shapes:  x (N, C, H, W), weight (O, C / groups, P, Q), y (N, O, H', W'); strides count elements
    """

    op: str  # forward, input or weight
    dtype: DType
    strict: bool
    x: tuple[tuple[int, ...], tuple[int, ...]]
    weight: tuple[tuple[int, ...], tuple[int, ...]]
    y: tuple[tuple[int, ...], tuple[int, ...]]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    deterministic: bool = False

    @property
    def terms(self) -> int:
        """Products that an element of the result is the sum of."""
        (_, filters, *places), (_, channels, *taps) = self.y[0], self.weight[0]
        if self.op == "weight":
            return self.y[0][0] * prod(places)
        return prod(taps) * (channels if self.op == "forward" else filters * channels // self.x[0][1])

    def words(self) -> str:
        """What distinguishes it, for the tuner's key."""
        return " ".join(map(str, (self.op, *self.x, *self.weight, self.stride, self.padding, self.dilation)))


class Graph:
    """A problem as the library knows it. `names` are its plans, in the order of the heuristics."""

    def __init__(self, library: Cudnn, graph: Any, tensors: Sequence[Any]) -> None:
        self._library, self._graph = library, graph
        self._uids = [int(tensor.get_uid()) for tensor in tensors]
        count = int(graph.get_execution_plan_count())
        self.names = {f"{index} {graph.get_plan_name_at_index(index)}": index for index in range(count)}
        self._workspaces: dict[int, int] = {}
        self._selected: int | None = None
        self._prepared: tuple[Any, int, int] | None = None
        self._ready: dict[int, Callable[[int, int, int], None]] = {}

    def builds(self, index: int) -> bool:
        """Whether a plan can be had; one that was left out cannot."""
        try:
            self._workspace(index)
        except UnsupportedError:
            return False
        return True

    def _workspace(self, index: int) -> int:
        found = self._workspaces.get(index)
        if found is None:
            try:
                self._graph.build_plan_at_index(index)
                found = int(self._graph.get_workspace_size_plan_at_index(index))
            except self._library.refusals as error:
                raise UnsupportedError(f"cuDNN's plan {index} cannot be had: {first_line(error)}") from error
            if found > self._library.most:
                raise UnsupportedError(f"cuDNN's plan {index} wants {found} bytes of workspace")
            self._workspaces[index] = found
        return found

    def select(self, index: int) -> None:
        """Make this the plan that `run` takes when none is named, which costs the library less on each call."""
        self._workspace(index)
        self._graph.build_plan_at_index(index)
        self._selected, self._prepared = index, self._compiled_call(index)
        self._ready.clear()

    def _compiled_call(self, index: int) -> tuple[Any, int, int] | None:
        """The compiled graph's own call, its number of the plan and the handle's; None where the frontend is that graph itself.

        From 1.27 on the frontend wraps it in Python, which takes 100 us of every call on an H200's host.
        """
        lowered, plans = getattr(self._graph, "_lowered_graph", None), getattr(self._graph, "plans", None)
        handle = getattr(self._library.handle, "backend_handle", None)
        if lowered is None or plans is None or handle is None or not hasattr(lowered, "_execute_plan_at_index"):
            return None
        place = getattr(plans[index], "cpp_index", None)
        return None if place is None else (lowered._execute_plan_at_index, int(place), int(handle))

    def run(self, index: int, *addresses: int) -> None:
        """Enqueue a plan: arguments, then the result, each aligned to ALIGNED bytes."""
        self.ready(index)(*addresses)

    def ready(self, index: int) -> Callable[[int, int, int], None]:
        """`run` of a plan made ready: a function of the three addresses."""
        found = self._ready.get(index)
        if found is None:
            found = self._ready[index] = self._made_ready(index)
        return found

    def _made_ready(self, index: int) -> Callable[[int, int, int], None]:
        library, graph, (first, second, third) = self._library, self._graph, self._uids
        backend, queue = library.backend, library.backend.queue
        enter, leave, allocate = backend.context.enter, backend.context.leave, backend.allocate
        layout = Layout.of(uint8, (max(1, self._workspace(index)),))
        call: Callable[[dict[int, int], int], Any]
        if index == self._selected and self._prepared is not None:
            execute, place, handle = self._prepared
            call = lambda given, room: execute(given, room, place, handle)  # one of three
        elif index == self._selected:
            call = _unwrapped(graph, library.handle)
        else:
            call = lambda given, room: graph.execute_plan_at_index(given, room, index, handle=library.handle)

        def ready(a: int, b: int, out: int) -> None:
            if queue.recorders:
                queue.unrecorded("a plan of cuDNN")
            workspace = allocate(layout)  # free again in the order of the stream
            before = enter()
            try:
                call({first: a, second: b, third: out}, workspace.buffer.handle)
            finally:
                leave(before)

        return ready


def _unwrapped(graph: Any, handle: Any) -> Callable[[dict[int, int], int], Any]:
    """`execute` without its Python, which looks for tensors among the addresses: 3 us of a call."""
    bare = getattr(graph, "_execute", None)
    if bare is None:
        return lambda given, room: graph.execute(given, room, handle=handle)
    return lambda given, room: bare(given, room, handle)


class Cudnn:
    """The library with a handle on the backend's stream. `most` is how many bytes of workspace a plan may want."""

    def __init__(self, backend: CUDABackend) -> None:
        try:
            import cudnn
        except ImportError as error:
            raise UnavailableError(f"cuda: nvidia-cudnn-frontend cannot be loaded ({error}); run: {REMEDY}") from error
        self.module = cudnn
        self.backend = backend
        self.most = max(backend.scratch_bytes, min(1 << 30, backend.info.memory_bytes // 16))
        self.refusals = (cudnn.cudnnGraphNotSupportedError, RuntimeError, NotImplementedError, ValueError)
        with backend.context.current():
            self.handle = self._created()
            cudnn.set_stream(handle=self.handle, stream=backend.queue.pointer)

    def _created(self) -> Any:
        """A handle. It takes memory that the pool does not have, so what that keeps is given back where there is no more."""
        try:
            return self.module.create_handle()
        except Exception:  # noqa: BLE001  # of several kinds; the second one is told
            self.backend.empty_cache()
        try:
            return self.module.create_handle()
        except Exception as error:  # where the library itself is missing or too old, too
            raise UnavailableError(
                f"cuda: cuDNN cannot be loaded ({first_line(error)}); run: {REMEDY}; or, if the device's memory is full, free some arrays and "
                "end other processes that use it"
            ) from error

    def close(self) -> None:
        """Give the handle back."""
        with self.backend.context.current():
            self.module.destroy_handle(self.handle)

    def graph(self, problem: Problem) -> Graph | None:
        """The graph of a problem; None where the library has none for it."""
        before = self.backend.context.enter()
        try:
            return self._built(problem)
        except self.refusals as error:
            if isinstance(error, self.module.cudnnGraphNotSupportedError) or "NOT_SUPPORTED" in str(error):
                log.info("%s: %s", problem.words(), first_line(error))
                return None
            raise
        finally:
            self.backend.context.leave(before)

    def _built(self, problem: Problem) -> Graph:
        cudnn = self.module
        kind, wide = getattr(cudnn.data_type, TYPES[problem.dtype]), cudnn.data_type.FLOAT
        graph = cudnn.pygraph(
            io_data_type=kind, intermediate_data_type=wide, compute_data_type=wide, handle=self.handle
        )

        def tensor(name: str, layout: tuple[tuple[int, ...], tuple[int, ...]]) -> Any:
            return graph.tensor(name=name, dim=list(layout[0]), stride=list(layout[1]), data_type=kind)

        window = {"padding": list(problem.padding), "stride": list(problem.stride), "dilation": list(problem.dilation)}
        if problem.op == "forward":
            first, second, out = tensor("x", problem.x), tensor("weight", problem.weight), problem.y
            result = graph.conv_fprop(image=first, weight=second, **window, name="conv")
        elif problem.op == "input":
            first, second, out = tensor("g", problem.y), tensor("weight", problem.weight), problem.x
            result = graph.conv_dgrad(loss=first, filter=second, **window, name="conv")
        else:
            first, second, out = tensor("g", problem.y), tensor("x", problem.x), problem.weight
            result = graph.conv_wgrad(image=second, loss=first, **window, name="conv")
        result.set_output(True).set_data_type(kind)
        result.set_dim(list(out[0])).set_stride(list(out[1]))
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([getattr(cudnn.heur_mode, mode) for mode in MODES])
        notes = (*NEVER, *(STRICT if problem.strict else ()), *((VARYING,) if problem.deterministic else ()))
        graph.deselect_numeric_notes(
            [getattr(cudnn.numerical_note, n) for n in notes if hasattr(cudnn.numerical_note, n)]
        )
        graph.check_support()
        return Graph(self, graph, (first, second, result))
