"""The primitives of the contract as ops: what each takes and gives, its call, and its gradient where it has one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any

from ..dtypes import DType, dtype_of, int64, uint32, uint64
from ..errors import AttributeValueError, DTypeError, ShapeError
from ..rows.reductions import TABLE as REDUCTIONS
from ..rows.signature import Signature
from ..view import Layout, Shape, View, dense_strides
from .op import REQUIRED, Attributes, Gradients, Needs, Op, Run, is_whole, shape_of


def _primitive(
    name: str,
    signature: str,
    args: str,
    infer: Callable[..., tuple[Layout, ...]],
    launch: Callable[..., None],
    *,
    primitive: str = "",
    outputs: str = "y",
    backward: Callable[..., Gradients] | None = None,
    saves: str = "",
    check: Callable[[Sequence[Any], Attributes], Attributes] | None = None,
    promotes: bool = True,
    **attributes: Any,
) -> Op:
    return Op(
        name,
        Signature.parse(signature),
        tuple(args.split()),
        tuple(outputs.split()),
        attributes,
        check,
        infer,
        launch,
        None,
        backward,
        tuple(saves.split()),
        primitive,
        promotes=promotes,
    )


def broadcast_shapes(op: str, *shapes: Shape) -> Shape:
    """The shape that all broadcast to; ShapeError names the op and the shapes."""
    result = [1] * max(map(len, shapes), default=0)
    for shape in shapes:
        for axis in range(1, len(shape) + 1):
            if shape[-axis] != 1:
                if result[-axis] not in (1, shape[-axis]):
                    raise ShapeError(
                        f"{op}: shapes {' and '.join(map(str, shapes))} do not broadcast; axis -{axis} must be equal or 1"
                    )
                result[-axis] = shape[-axis]
    return tuple(result)


def ordered(dtype: DType, shape: Shape, order: Shape | None) -> Layout:
    """A dense layout whose axes are nested in memory as `order` says, outermost first."""
    if order is None:
        return Layout.of(dtype, shape)
    inner = dense_strides(tuple(shape[a] for a in order))
    return Layout.of(dtype, shape, tuple(inner[order.index(a)] for a in range(len(shape))))


# matmul
def _matmul_check(views: Sequence[Any], a: Attributes) -> Attributes:
    for name in ("alpha", "beta"):
        if not isinstance(a[name], Real):
            raise AttributeValueError(f"matmul: {name}={a[name]!r:.40} must be a number")
    return a | {name: float(a[name]) for name in ("alpha", "beta") if not isinstance(a[name], int)}


def _matmul_layouts(views: Sequence[View], a: Attributes) -> tuple[Layout, ...]:
    x, w = views
    if x.ndim < 2 or w.ndim < 2:
        raise ShapeError(f"matmul: a is {x.shape} and b is {w.shape}; both need at least 2 axes")
    if x.shape[-1] != w.shape[-2]:
        raise ShapeError(
            f"matmul: a is {x.shape} and b is {w.shape}; a's last axis ({x.shape[-1]}) must equal b's second to last ({w.shape[-2]})"
        )
    batch = broadcast_shapes("matmul", x.shape[:-2], w.shape[:-2])
    return (Layout.of(x.dtype, (*batch, x.shape[-2], w.shape[-1])),)


def _matmul_backward(
    run: Run, needs: Needs, grads: Gradients, saved: dict[str, Any], *, alpha: float, beta: float
) -> Gradients:
    (g,), a, b = grads, saved["a"], saved["b"]
    swap = (*range(len(b.shape) - 2), len(b.shape) - 1, len(b.shape) - 2)
    swap_a = (*range(len(a.shape) - 2), len(a.shape) - 1, len(a.shape) - 2)
    return (
        run("matmul", g, b.permute(swap), alpha=alpha) if needs[0] else None,
        run("matmul", a.permute(swap_a), g, alpha=alpha) if needs[1] else None,
    )


# copies
def _cast_check(views: Sequence[Any], a: Attributes) -> Attributes:
    return a | {"dtype": dtype_of(a["dtype"])}


def _cast_backward(run: Run, needs: Needs, grads: Gradients, saved: dict[str, Any], *, dtype: DType) -> Gradients:
    return (run("astype", grads[0], dtype=saved["x.dtype"]),)


def _empty_check(views: Sequence[Any], a: Attributes) -> Attributes:
    return a | {
        "shape": views[0].shape if a["shape"] is None else shape_of("empty", "shape", a["shape"]),
        "dtype": dtype_of(a["dtype"] or views[0].dtype),
    }


# gather and its adjoint
def _require_indices(op: str, index: View, batch: Any) -> None:
    if not index.dtype.is_integer:
        raise DTypeError(f"{op}: index is {index.dtype.name}; it must hold integers")
    if not is_whole(batch) or batch < 0:
        raise AttributeValueError(f"{op}: batch={batch!r} must be an int of at least 0")


def _gather_layouts(views: Sequence[View], a: Attributes) -> tuple[Layout, ...]:
    x, index, batch = *views, a["batch"]
    _require_indices("gather", index, batch)
    if x.ndim <= batch or index.ndim < batch or x.shape[:batch] != index.shape[:batch]:
        raise ShapeError(
            f"gather: x {x.shape} and index {index.shape} must share their first {batch} axes, and x needs one more"
        )
    return (Layout.of(x.dtype, index.shape + x.shape[batch + 1 :]),)


def _gather_backward(run: Run, needs: Needs, grads: Gradients, saved: dict[str, Any], *, batch: int) -> Gradients:
    return (run("scatter", grads[0], saved["index"], shape=saved["x.shape"], batch=batch), None)


def _shape_check(op: str, *names: str) -> Callable[[Sequence[Any], Attributes], Attributes]:
    return lambda views, a: a | {name: shape_of(op, name, a[name]) for name in names}


def _scatter_layouts(views: Sequence[View], a: Attributes) -> tuple[Layout, ...]:
    x, index, batch, shape = *views, a["batch"], a["shape"]
    _require_indices("scatter", index, batch)
    if index.shape + shape[batch + 1 :] != x.shape or shape[:batch] != index.shape[:batch]:
        raise ShapeError(
            f"scatter: x {x.shape} must be index {index.shape} followed by the rows of {shape}, whose first {batch} axes are shared"
        )
    return (Layout.of(x.dtype, shape),)


def _scatter_launch(backend: Any, outs: Sequence[View], views: Sequence[View], a: Attributes) -> None:
    from ..rows.elementwise import TABLE

    backend.elementwise(TABLE["fill"], outs[0], (), (0,))
    backend.scatter_add(outs[0], views[1], views[0], batch=a["batch"])


def _scatter_backward(
    run: Run, needs: Needs, grads: Gradients, saved: dict[str, Any], *, shape: Shape, batch: int
) -> Gradients:
    return (run("gather", grads[0], saved["index"], batch=batch), None)


# fold, the adjoint of window
def _fold_layouts(views: Sequence[View], a: Attributes) -> tuple[Layout, ...]:
    (x,), shape, axes = views, a["shape"], a["axes"]
    if min((*a["steps"], *a["dilations"]), default=1) < 1:
        raise AttributeValueError(f"fold: steps {a['steps']} and dilations {a['dilations']} must be at least 1")
    expected = list(shape)
    for axis, taps, step, dilation in zip(axes, x.shape[len(shape) :], a["steps"], a["dilations"], strict=True):
        expected[axis] = (shape[axis] - dilation * (taps - 1) - 1) // step + 1
    if tuple(expected) != x.shape[: len(shape)]:
        raise ShapeError(
            f"fold: windows {x.shape} are not those of shape {shape} with steps {a['steps']} and dilations {a['dilations']}"
        )
    order = sorted(range(len(shape)), key=lambda i: -abs(x.strides[i]))
    return (ordered(x.dtype, shape, tuple(order)),)


def _fold_backward(
    run: Run,
    needs: Needs,
    grads: Gradients,
    saved: dict[str, Any],
    *,
    shape: Shape,
    axes: Shape,
    steps: Shape,
    dilations: Shape,
) -> Gradients:
    sizes = saved["x.shape"][len(shape) :]
    return (grads[0].window(axes, sizes, steps, dilations),)


# sort, scan, random
def _sort_layouts(views: Sequence[View], a: Attributes) -> tuple[Layout, ...]:
    (x,) = views
    if not x.ndim:
        raise ShapeError("sort: x has no axis to sort along")
    return (Layout.of(x.dtype, x.shape), Layout.of(int64, x.shape))


def _sort_backward(run: Run, needs: Needs, grads: Gradients, saved: dict[str, Any], *, descending: bool) -> Gradients:
    index = saved["index"]
    return (run("scatter", grads[0], index, shape=index.shape, batch=len(index.shape) - 1),)


def _scan_layouts(views: Sequence[View], a: Attributes) -> tuple[Layout, ...]:
    (x,) = views
    if not x.ndim:
        raise ShapeError("cumsum: x has no axis to sum along")
    return (Layout.of({"i": int64, "u": uint64}.get(x.dtype.kind, x.dtype), x.shape),)


def _cumsum_backward(run: Run, needs: Needs, grads: Gradients, saved: dict[str, Any]) -> Gradients:
    axes = (slice(None),) * (len(grads[0].shape) - 1) + (slice(None, None, -1),)
    return (run("cumsum", grads[0].slice(*axes)).slice(*axes),)


def _random_check(views: Sequence[Any], a: Attributes) -> Attributes:
    dtype = dtype_of(uint32 if a["kind"] == "bits" else a["dtype"] or views[0].dtype)
    if a["kind"] not in ("bits", "uniform", "normal"):
        raise AttributeValueError(f"random: kind={a['kind']!r} must be 'bits', 'uniform' or 'normal'")
    if a["kind"] != "bits" and not dtype.is_floating:
        raise DTypeError(f"random: {a['kind']} numbers are floating, not {dtype.name}")
    shape = views[0].shape if a["shape"] is None else shape_of("random", "shape", a["shape"])
    return a | {"dtype": dtype, "shape": shape}


def _contiguous_layouts(views: Sequence[View], a: Attributes) -> tuple[Layout, ...]:
    return (Layout.of(views[0].dtype, views[0].shape),)


OPS = (
    _primitive("matmul", "nn>n", "a b", _matmul_layouts,
               lambda k, o, v, a: k.gemm(o[0], v[0], v[1], alpha=a["alpha"], beta=a["beta"]), check=_matmul_check,
               primitive="gemm", backward=_matmul_backward, saves="a b", alpha=1.0, beta=0.0),
    _primitive("copy", "a>a", "x", lambda v, a: (v[0].layout.like(v[0].dtype),), lambda k, o, v, a: k.copy(o[0], v[0]),
               primitive="copy", backward=lambda run, needs, grads, saved: grads, promotes=False),
    _primitive("contiguous", "a>a", "x", _contiguous_layouts, lambda k, o, v, a: k.copy(o[0], v[0]),
               primitive="copy", backward=lambda run, needs, grads, saved: grads, promotes=False),
    _primitive("astype", "a>a", "x", lambda v, a: (v[0].layout.like(a["dtype"]),), lambda k, o, v, a: k.copy(o[0], v[0]), check=_cast_check,
               primitive="copy", backward=_cast_backward, saves="x.dtype", dtype=REQUIRED, promotes=False),
    _primitive("empty", "a>a", "like", lambda v, a: (ordered(a["dtype"], a["shape"], a["order"]),), lambda k, o, v, a: None, check=_empty_check,
               primitive="copy", shape=None, dtype=None, order=None, promotes=False),
    _primitive("gather", "ai>a", "x index", _gather_layouts, lambda k, o, v, a: k.gather(o[0], v[0], v[1], batch=a["batch"]),
               primitive="gather", backward=_gather_backward, saves="x.shape index", batch=0, promotes=False),
    _primitive("scatter", "ni>n", "x index", _scatter_layouts, _scatter_launch, check=_shape_check("scatter", "shape"),
               primitive="scatter_add", backward=_scatter_backward, saves="index", shape=REQUIRED, batch=0, promotes=False),
    _primitive("fold", "n>n", "x", _fold_layouts,
               lambda k, o, v, a: k.fold(o[0], v[0], axes=a["axes"], steps=a["steps"], dilations=a["dilations"]),
               check=_shape_check("fold", "shape", "axes", "steps", "dilations"),
               primitive="fold", backward=_fold_backward, saves="x.shape", shape=REQUIRED, axes=REQUIRED, steps=REQUIRED, dilations=REQUIRED),
    _primitive("sort", "n>ni", "x", _sort_layouts, lambda k, o, v, a: k.sort(o[0], o[1], v[0], descending=a["descending"]),
               primitive="sort", outputs="values index", backward=_sort_backward, saves="index", descending=False),
    _primitive("cumsum", "n>n", "x", _scan_layouts, lambda k, o, v, a: k.scan(REDUCTIONS["sum"], o[0], v[0]), primitive="scan",
              backward=_cumsum_backward),
    _primitive("random", "n>n", "like", lambda v, a: (Layout.of(a["dtype"], a["shape"]),),
               lambda k, o, v, a: k.random(o[0], kind=a["kind"], key=a["key"], counter=a["counter"]), check=_random_check,
               primitive="random", kind="bits", shape=None, dtype=None, key=REQUIRED, counter=REQUIRED, promotes=False),
)  # fmt: skip
