"""Attention of float16 and bfloat16 by cuDNN, where it has it; the rest by our own kernels and by the body.

On tensor cores the library's fused attention is far from what float32 units do. Masks stay with our kernels, whose rows that see
nothing are zeros, and so does dropout, whose bits are ours, with the body. float32 is the body's, two products of cuBLAS and rows
between them, while its scores fit the scratch memory, and our kernels' beyond (docs/adr/0051).
Source: https://docs.nvidia.com/deeplearning/cudnn/frontend/latest/operations/Attention.html
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ... import locks
from ...dtypes import bfloat16, float16, float32, uint8
from ...view import Layout, View
from ..shared.attention import Attentions
from ..shared.axes import dense
from .cudnn import ALIGNED, TYPES, Cudnn, first_line

if TYPE_CHECKING:
    from .backend import CUDABackend

WIDEST = 128  # elements of a head, in eights
MODES = ("A", "FALLBACK")
Dims = tuple[tuple[int, ...], tuple[int, ...]]
log = logging.getLogger("vsl_compute.cudnn")


def four(view: View) -> Dims:
    """Sizes and strides of (N, heads, length, size), axes that are not there being of one element."""
    missing = 4 - view.ndim
    return (1,) * missing + view.shape, (view.size,) * missing + view.strides


class Plan:
    """One graph of the library, built for arrays of given sizes and strides."""

    def __init__(self, library: Cudnn, graph: Any, tensors: Sequence[Any]) -> None:
        self._library, self._graph = library, graph
        self._uids = [int(tensor.get_uid()) for tensor in tensors]
        for index in range(int(graph.get_execution_plan_count())):
            try:
                graph.build_plan_at_index(index)
                nbytes = int(graph.get_workspace_size_plan_at_index(index))
            except library.refusals as error:
                log.info("cuDNN's attention plan %d cannot be had: %s", index, error)
                continue
            if nbytes <= library.most:
                self._index, self._workspace = index, Layout.of(uint8, (max(1, nbytes),))
                return
        raise library.refusals[0]("no plan of it can be built")

    def run(self, *views: View) -> None:
        """Enqueue it: arguments, then results."""
        backend = self._library.backend
        backend.queue.unrecorded("a plan of cuDNN")
        given = {uid: _address(view) for uid, view in zip(self._uids, views, strict=True)}
        workspace = backend.allocate(self._workspace)  # free again in the order of the stream
        with backend.context.current():
            self._graph.execute_plan_at_index(
                given, int(workspace.buffer.handle), self._index, handle=self._library.handle
            )


class CudnnAttention:
    """The two ops of one device; `tiled` is what takes the rest."""

    def __init__(self, backend: CUDABackend, tiled: Attentions) -> None:
        self._backend, self._tiled = backend, tiled
        self._plans: dict[Any, Plan | None] = {}
        self._library: Cudnn | None = None
        self._lock = locks.reentrant()

    def overrides(self) -> dict[str, Callable[..., Any]]:
        """The ops by their names."""
        return {"attention": self.attention, "attention_backward": self.attention_backward}

    def close(self) -> None:
        """Give the library's handle back, if it was loaded."""
        if self._library is not None:
            self._plans.clear()
            self._library.close()
            self._library = None

    def attention(
        self, q: View, k: View, v: View, mask: View | None, *, causal: bool, scale: float, dropout: float, **draws: Any
    ) -> Any:
        """See ops.attention."""
        if mask is None and not dropout and self._suits(q, k, v):
            y = self._tiled.like(q, (*q.shape[:-1], v.shape[-1]))
            lse = self._backend.allocate(Layout.of(float32, (*q.shape[:-1], 1)))
            plan = self._plan("forward", (q, k, v, y, lse), scale, causal=causal)
            if plan is not None:
                plan.run(q, k, v, y, lse)
                return y, lse
        return self._tiled.attention(q, k, v, mask, causal=causal, scale=scale, dropout=dropout, **draws)

    def attention_backward(
        self, g: View, q: View, k: View, v: View, y: View, lse: View, mask: View | None, g_lse: View | None, *, causal: bool, scale: float,
        dropout: float, **draws: Any,
    ) -> Any:  # fmt: skip
        """See ops.attention."""
        if mask is None and g_lse is None and not dropout and self._suits(q, k, v):
            g, y, lse = (x if _reads(x) else dense(self._backend, x) for x in (g, y, lse))
            grads = [self._tiled.like(x, x.shape) for x in (q, k, v)]
            plan = self._plan("backward", (q, k, v, y, g, lse, *grads), scale, causal=causal)
            if plan is not None:
                plan.run(q, k, v, y, g, lse, *grads)
                return tuple(grads)
        args = g, q, k, v, y, lse, mask, g_lse
        return self._tiled.attention_backward(*args, causal=causal, scale=scale, dropout=dropout, **draws)

    @staticmethod
    def _suits(q: View, k: View, v: View) -> bool:
        """16-bit heads of whole eights that lie where the library reads them, batches alike."""
        if (
            q.dtype not in (float16, bfloat16)
            or not 2 <= q.ndim <= 4
            or not q.shape[:-2] == k.shape[:-2] == v.shape[:-2]
        ):
            return False
        return all(x.size and 0 < x.shape[-1] <= WIDEST and x.shape[-1] % 8 == 0 and _reads(x) for x in (q, k, v))

    def _plan(self, form: str, views: Sequence[View], scale: float, *, causal: bool) -> Plan | None:
        key = form, views[0].dtype, tuple(four(view) for view in views), scale, causal
        if key not in self._plans:
            with self._lock:
                if key not in self._plans:
                    self._plans[key] = self._built(form, views, scale, causal=causal)
        return self._plans[key]

    def _built(self, form: str, views: Sequence[View], scale: float, *, causal: bool) -> Plan | None:
        if self._library is None:
            self._library = Cudnn(self._backend)
        library, cudnn = self._library, self._library.module
        kind, wide = getattr(cudnn.data_type, TYPES[views[0].dtype]), cudnn.data_type.FLOAT
        with self._backend.context.current():
            try:
                graph = cudnn.pygraph(
                    io_data_type=kind, intermediate_data_type=wide, compute_data_type=wide, handle=library.handle
                )
                names = (
                    ("q", "k", "v", "y", "lse")
                    if form == "forward"
                    else ("q", "k", "v", "y", "g", "lse", "dq", "dk", "dv")
                )
                given = {name: four(view) for name, view in zip(names, views, strict=True)}
                options = {"attn_scale": scale, "use_causal_mask": causal, "name": "attention"}

                def tensor(name: str) -> Any:
                    dims, strides = given[name]
                    return graph.tensor(
                        name=name, dim=list(dims), stride=list(strides), data_type=wide if name == "lse" else kind
                    )

                if form == "forward":
                    inputs = [tensor(name) for name in names[:3]]
                    made = graph.sdpa(**dict(zip("qkv", inputs, strict=True)), generate_stats=True, **options)
                else:
                    inputs = [tensor(name) for name in names[:6]]
                    roles = dict(zip(("q", "k", "v", "o", "dO", "stats"), inputs, strict=True))
                    made = graph.sdpa_backward(**roles, use_deterministic_algorithm=True, **options)
                results = list(made)
                for name, result in zip(names[len(inputs) :], results, strict=True):
                    dims, strides = given[name]
                    result.set_output(True).set_data_type(wide if name == "lse" else kind)
                    result.set_dim(list(dims)).set_stride(list(strides))
                graph.validate()
                graph.build_operation_graph()
                graph.create_execution_plans([getattr(cudnn.heur_mode, mode) for mode in MODES])
                graph.check_support()
                return Plan(library, graph, [*inputs, *results])
            except library.refusals as error:
                supported = not isinstance(error, cudnn.cudnnGraphNotSupportedError) and "NOT_SUPPORTED" not in str(
                    error
                )
                # a frontend that is newer than the library may set what that does not know: worth a word, as our kernel is slower
                log.log(logging.WARNING if supported else logging.INFO, "attention %s of %s is left to our own kernel, as cuDNN says: %s",
                        form, views[0].shape, first_line(error))  # fmt: skip
                return None


def _address(view: View) -> int:
    return int(view.buffer.handle) + view.offset * view.dtype.itemsize


def _reads(view: View) -> bool:
    """Whether the elements of a head are neighbours and every head begins where the library may read it."""
    item, last = view.dtype.itemsize, view.strides[-1]
    return (last == 1 or view.shape[-1] == 1) and not _address(view) % ALIGNED and all(
        n == 1 or view.shape[-1] == 1 or (s > 0 and not s * item % ALIGNED) for n, s in zip(view.shape[:-1], view.strides[:-1], strict=True)
    )  # fmt: skip
