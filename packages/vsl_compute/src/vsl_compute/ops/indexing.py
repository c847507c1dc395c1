"""embedding, dropout and concat: composites that choose, mask or join elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import AttributeValueError, ShapeError
from ..view import Shape, View
from .op import REQUIRED, Attributes, Gradients, Needs, Run, composite, is_number, is_whole, shape_of


# embedding: rows of weight; the row padding_idx gets no gradient
def _embedding_check(views: Sequence[Any], a: Attributes) -> Attributes:
    weight = views[1].shape
    if len(weight) != 2:
        raise ShapeError(f"embedding: weight {weight} must be (rows, features)")
    return a | {"padding_idx": _padding("embedding", a["padding_idx"], weight[0])}


def _padding(op: str, row: Any, rows: int) -> int | None:
    """The number of the row without a gradient, counted from the first."""
    if row is not None and not (is_whole(row) and -rows <= row < rows):
        raise AttributeValueError(f"{op}: padding_idx={row!r} must be an int and lie in [{-rows}, {rows})")
    return row if row is None else int(row) % rows


def _embedding_backward_check(views: Sequence[Any], a: Attributes) -> Attributes:
    g, index, shape = views[0].shape, views[1].shape, shape_of("embedding_backward", "shape", a["shape"])
    if len(shape) != 2 or g != (*index, shape[1]):
        raise ShapeError(
            f"embedding_backward: g {g} must be index {index} followed by the features of shape {shape}, (rows, features)"
        )
    return a | {"shape": shape, "padding_idx": _padding("embedding_backward", a["padding_idx"], shape[0])}


def _embedding(run: Run, index: View, weight: View, *, padding_idx: int | None) -> View:
    return run("gather", weight, index)  # type: ignore[no-any-return]


def _embedding_backward(
    run: Run, needs: Needs, grads: Gradients, saved: dict[str, Any], *, padding_idx: int | None
) -> Gradients:
    return (
        None,
        run("embedding_backward", grads[0], saved["index"], shape=saved["weight.shape"], padding_idx=padding_idx),
    )


def _embedding_scatter(run: Run, g: Any, index: Any, *, shape: Shape, padding_idx: int | None) -> Any:
    if padding_idx is not None:
        g = run("where", run("not_equal", index, padding_idx).reshape((*index.shape, 1)), g, 0.0)
    return run("scatter", g, index, shape=shape)


# dropout: keep where the element's random word is at least p * 2**32
def _dropout_check(views: Sequence[Any], a: Attributes) -> Attributes:
    if not (is_number(a["p"]) and 0 <= a["p"] <= 1):
        raise AttributeValueError(f"dropout: p={a['p']!r} must lie in [0, 1]")
    return a


def _dropout(
    run: Run, x: View, *, p: float, key: tuple[int, int], counter: tuple[int, int, int, int]
) -> tuple[View, View]:
    threshold = round(p * 2**32)
    if threshold >= 2**32:
        keep: View = run("fill", alpha=False, out=run("empty", x, dtype="bool"))
    else:
        keep = run("greater_equal", run("random", x, kind="bits", key=key, counter=counter), threshold)
    return run("dropout_apply", keep, x, factor=0.0 if p == 1 else 1 / (1 - p)), keep


def _dropout_backward(
    run: Run, needs: Needs, grads: Gradients, saved: dict[str, Any], *, p: float, **_: Any
) -> Gradients:
    return (run("dropout_apply", saved["keep"], grads[0], factor=0.0 if p == 1 else 1 / (1 - p)),)


# concat along an axis
def _concat_check(views: Sequence[Any], a: Attributes) -> Attributes:
    if not views:
        raise ShapeError("concat: there is nothing to join; give at least one array")
    first, axis = views[0].shape, a["axis"]
    if not -len(first) <= axis < len(first):
        raise AttributeValueError(f"concat: axis={axis} for arrays of {len(first)} axes")
    axis %= len(first)
    for view in views[1:]:
        if len(view.shape) != len(first) or any(
            m != n for i, (m, n) in enumerate(zip(first, view.shape, strict=True)) if i != axis
        ):
            raise ShapeError(f"concat: shapes {', '.join(str(v.shape) for v in views)} differ outside axis {axis}")
    return a | {"axis": axis, "sizes": tuple(v.shape[axis] for v in views)}


def _concat(run: Run, *views: View, axis: int, sizes: Shape) -> View:
    shape = (*views[0].shape[:axis], sum(sizes), *views[0].shape[axis + 1 :])
    out: View = run("empty", views[0], shape=shape)
    for place, view in zip(_places(axis, sizes), views, strict=True):
        run("copy", view, out=out.slice(*place))
    return out


def _places(axis: int, sizes: Shape) -> list[tuple[slice, ...]]:
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return [(*(slice(None),) * axis, slice(end - size, end)) for end, size in zip(ends, sizes, strict=True)]


def _concat_backward(
    run: Run, needs: Needs, grads: Gradients, saved: dict[str, Any], *, axis: int, sizes: Shape
) -> Gradients:
    return tuple(
        grads[0].slice(*place) if need else None for place, need in zip(_places(axis, sizes), needs, strict=True)
    )


OPS = (
    composite("embedding", "if>f", "index weight", _embedding, _embedding_backward, saves="index weight.shape", check=_embedding_check,
              padding_idx=None),
    composite("embedding_backward", "fi>f", "g index", _embedding_scatter, expands=True, check=_embedding_backward_check,
              shape=REQUIRED, padding_idx=None),
    composite("dropout", "f>fb", "x", _dropout, _dropout_backward, outputs="y keep", saves="keep", check=_dropout_check,
              p=0.5, key=REQUIRED, counter=REQUIRED),
    composite("concat", "a>a", "x*", _concat, _concat_backward, check=_concat_check, axis=0, sizes=None),
)  # fmt: skip
