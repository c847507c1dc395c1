"""Batch, layer and group normalization: moments over some axes, then one row; the backward is one op of its own.

All three are normalize(x, mean, rstd, weight, bias) with other axes. Moments are kept in the compute type, so
float16 input whose variance exceeds 65504 is still right. Weight and bias may be wider than the input, as they are
under autocast: their gradients are summed in the moments' dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod, sqrt
from typing import Any

from ..errors import AttributeValueError, ShapeError
from ..view import Shape, View
from .linear import RELU_GRADIENT
from .op import REQUIRED, Attributes, Gradients, Needs, Run, composite, is_number, is_whole, shape_of


def _keep(shape: Shape, axes: Shape) -> Shape:
    return tuple(1 if i in axes else n for i, n in enumerate(shape))


def _channels(shape: Shape) -> Shape:
    """Shape under which a per-channel vector broadcasts against (N, C, ...)."""
    return (1, shape[1], *(1,) * (len(shape) - 2))


def _apply(run: Run, x: Any, mean: Any, rstd: Any, weight: Any, bias: Any) -> Any:
    if weight is None and bias is None:
        return run("standardize", x, mean, rstd)
    return run("normalize", x, mean, rstd, 1.0 if weight is None else weight, 0.0 if bias is None else bias)


def _eps_check(op: str, attributes: Attributes) -> None:
    if not (is_number(attributes["eps"]) and attributes["eps"] >= 0):
        raise AttributeValueError(f"{op}: eps={attributes['eps']!r} must be at least 0; it is added to a variance")


def _affine_check(op: str, size: int, weight: Any, bias: Any) -> None:
    for name, vector in (("weight", weight), ("bias", bias)):
        if vector is not None and vector.shape != (size,):
            raise ShapeError(f"{op}: {name} {vector.shape} must be ({size},), one a channel")


def _backward(run: Run, g: Any, x: Any, mean: Any, rstd: Any, weight: Any, axes: Shape) -> Any:
    """dx = rstd * (gw - mean(gw) - xhat * mean(gw * xhat)), gw = g * weight, means over the normalized axes."""
    gw = g if weight is None else run("multiply", g, weight)
    xhat = run("standardize", x, mean, rstd)
    a = run("mean", gw, axes=axes, keepdims=True)
    b = run("mean", run("multiply", gw, xhat), axes=axes, keepdims=True)
    return _as(run, run("multiply", run("subtract", run("subtract", gw, a), run("multiply", xhat, b)), rstd), x)


def _as(run: Run, value: Any, x: Any) -> Any:
    """In x's dtype: the float32 moments of a float16 array would make its gradient float32."""
    return value if value.dtype is x.dtype else run("astype", value, dtype=x.dtype)


def _total(run: Run, value: Any, like: Any, axes: Shape, wanted: Any) -> Any:
    """The sum over `axes` in `like`'s dtype, as thousands of float16 terms can be more than 65504; or in that of `wanted`, which it
    is the gradient of, where that is the terms' own: a sum is kept in float32 and rounded once, and need not be read wider.
    """
    own = value.dtype in (like.dtype, wanted.dtype)
    return run("sum", value if own else run("astype", value, dtype=like.dtype), axes=axes)


def _needed(
    run: Run, needs: Needs, dx: Any, dweight: Callable[[], Any], dbias: Callable[[], Any], saved: dict[str, Any]
) -> Gradients:
    """The gradients that are wanted, each in its argument's dtype."""
    return (
        dx if needs[0] else None,
        _as(run, dweight(), saved["weight"]) if needs[1] else None,
        _as(run, dbias(), saved["bias"]) if needs[2] else None,
    )


def _through_moments(run: Run, dx: Any, x: Any, mean: Any, g_mean: Any, g_variance: Any, *, count: int) -> Any:
    """Add what flows back through the saved moments, which only a second derivative asks for."""
    if g_mean is not None:
        dx = run("add", dx, run("scale", g_mean, alpha=1 / count))
    if g_variance is not None:
        dx = run("add", dx, run("multiply", run("subtract", x, mean), run("scale", g_variance, alpha=2 / count)))
    return dx


# batch norm: moments over all axes but the channel
def _batch_axes(shape: Shape) -> Shape:
    return (0, *range(2, len(shape)))


def _batch_check(views: Sequence[Any], attributes: Attributes) -> Attributes:
    x, weight, bias = views[0], views[-2], views[-1]
    if len(x.shape) < 2:
        raise ShapeError(f"batch_norm: input {x.shape} must have a channel axis, (N, C, ...)")
    _affine_check("batch_norm", x.shape[1], weight, bias)
    _eps_check("batch_norm", attributes)
    return attributes


def _batch_norm(run: Run, x: View, weight: View | None, bias: View | None, *, eps: float) -> tuple[View, View, View]:
    mean, variance = run("moments", x, axes=_batch_axes(x.shape))
    shape = _channels(x.shape)
    rstd = run("rstd", variance, eps=eps)
    affine = [v if v is None else v.reshape(shape) for v in (weight, bias)]
    return _apply(run, x, mean.reshape(shape), rstd.reshape(shape), *affine), mean, variance


def _batch_back(run: Run, grads: Gradients, saved: dict[str, Any], dx: Any) -> Any:
    """dx and what comes back through the saved moments."""
    x, shape = saved["x"], _channels(saved["x"].shape)
    moments = [v if v is None else v.reshape(shape) for v in grads[1:]]
    count = prod(x.shape) // max(1, x.shape[1])
    return _as(run, _through_moments(run, dx, x, saved["mean"].reshape(shape), *moments, count=count), x)


def _batch_norm_backward(run: Run, needs: Needs, grads: Gradients, saved: dict[str, Any], *, eps: float) -> Gradients:
    args = grads[0], saved["x"], saved["mean"], saved["variance"], saved["weight"]
    dx, dweight, dbias = run("batch_norm_backward", *args, eps=eps)
    return _needed(run, needs, _batch_back(run, grads, saved, dx), lambda: dweight, lambda: dbias, saved)


def _batch_parts(
    run: Run, g: Any, x: Any, mean: Any, variance: Any, weight: Any, *, eps: float
) -> tuple[Any, Any, Any]:
    shape, axes = _channels(x.shape), _batch_axes(x.shape)
    mean, rstd = mean.reshape(shape), run("rstd", variance, eps=eps).reshape(shape)
    total = _total(run, g, mean, axes, mean)
    projected = run("sum", run("project", x, mean, rstd, g), axes=axes)  # of xhat * g
    count = prod(x.shape) // max(1, x.shape[1])
    if count == 0:
        return run("scale", x, alpha=0), projected, total
    scale = rstd if weight is None else run("multiply", rstd, weight.reshape(shape))
    # scale * (g - mean(g) - xhat * mean(g * xhat)), where channels' numbers are multiplied before elements are touched
    a, b = (run("scaled_product", v.reshape(shape), scale, alpha=-1 / count) for v in (total, projected))
    return run("normalize_back", g, x, scale, mean, rstd, b, a), projected, total


# batch norm and a ReLU behind it, which masks by what is normalized: only with a residual in between is y read
def _normalizing(run: Run, eps: float, x: Any, mean: Any, variance: Any, weight: Any, bias: Any) -> tuple[Any, ...]:
    """What rows that normalize take after their arrays."""
    shape = _channels(x.shape)
    rstd = run("rstd", variance, eps=eps).reshape(shape)
    affine = (w if v is None else v.reshape(shape) for v, w in ((weight, 1.0), (bias, 0.0)))
    return mean.reshape(shape), rstd, *affine


def _batch_relu(run: Run, x: View, weight: View | None, bias: View | None, *, eps: float) -> tuple[View, View, View]:
    mean, variance = run("moments", x, axes=_batch_axes(x.shape))
    return run("normalize_relu", x, *_normalizing(run, eps, x, mean, variance, weight, bias)), mean, variance


def _batch_relu_backward(run: Run, needs: Needs, grads: Gradients, saved: dict[str, Any], *, eps: float) -> Gradients:
    args = grads[0], *(saved[name] for name in ("x", "mean", "variance", "weight", "bias"))
    dx, dweight, dbias = run("batch_norm_relu_backward", *args, eps=eps)
    return _needed(run, needs, _batch_back(run, grads, saved, dx), lambda: dweight, lambda: dbias, saved)


def _batch_relu_parts(
    run: Run, g: Any, x: Any, mean: Any, variance: Any, weight: Any, bias: Any, *, eps: float
) -> tuple[Any, Any, Any]:
    d = run("normalize_mask", g, x, *_normalizing(run, eps, x, mean, variance, weight, bias))
    return run("batch_norm_backward", d, x, mean, variance, weight, eps=eps)  # type: ignore[no-any-return]


def _add_relu_check(views: Sequence[Any], attributes: Attributes) -> Attributes:
    if views[1].shape != views[0].shape:
        raise ShapeError(
            f"batch_norm_add_relu: residual {views[1].shape} must have the input's shape, {views[0].shape}"
        )
    return _batch_check(views, attributes)


def _batch_add_relu(
    run: Run, x: View, residual: View, weight: View | None, bias: View | None, *, eps: float
) -> tuple[View, View, View]:
    mean, variance = run("moments", x, axes=_batch_axes(x.shape))
    y = run("normalize_add_relu", x, residual, *_normalizing(run, eps, x, mean, variance, weight, bias))
    return y, mean, variance


def _batch_add_relu_backward(
    run: Run, needs: Needs, grads: Gradients, saved: dict[str, Any], *, eps: float
) -> Gradients:
    args = grads[0], *(saved[name] for name in ("y", "x", "mean", "variance", "weight"))
    dx, dweight, dbias, d = run("batch_norm_add_relu_backward", *args, eps=eps)
    dtype = saved["residual.dtype"]
    dx, dweight, dbias = _needed(
        run, (needs[0], *needs[2:]), _batch_back(run, grads, saved, dx), lambda: dweight, lambda: dbias, saved
    )
    return dx, (d if d.dtype is dtype else run("astype", d, dtype=dtype)) if needs[1] else None, dweight, dbias


def _batch_add_relu_parts(
    run: Run, g: Any, y: Any, x: Any, mean: Any, variance: Any, weight: Any, *, eps: float
) -> tuple[Any, Any, Any, Any]:
    d = run(RELU_GRADIENT, g, y)
    return *run("batch_norm_backward", d, x, mean, variance, weight, eps=eps), d


# batch norm in eval mode: the given moments
def _eval(run: Run, x: View, mean: View, variance: View, weight: View | None, bias: View | None, *, eps: float) -> View:
    shape = _channels(x.shape)
    affine = [v if v is None else v.reshape(shape) for v in (weight, bias)]
    return _apply(run, x, mean.reshape(shape), run("rstd", variance, eps=eps).reshape(shape), *affine)  # type: ignore[no-any-return]


def _eval_check(views: Sequence[Any], attributes: Attributes) -> Attributes:
    for name, vector in (("running mean", views[1]), ("running variance", views[2])):
        if len(views[0].shape) < 2 or vector.shape != (views[0].shape[1],):
            raise ShapeError(f"batch_norm: {name} {vector.shape} does not fit input {views[0].shape}, (N, C, ...)")
    return _batch_check(views, attributes)


def _eval_backward(run: Run, needs: Needs, grads: Gradients, saved: dict[str, Any], *, eps: float) -> Gradients:
    (g,), x, weight, bias = grads, saved["x"], saved["weight"], saved["bias"]
    shape, axes = _channels(x.shape), _batch_axes(x.shape)
    rstd = run("rstd", saved["variance"], eps=eps).reshape(shape)
    scale = rstd if weight is None else run("multiply", rstd, weight.reshape(shape))
    mean = saved["mean"].reshape(shape)
    return (
        _as(run, run("multiply", g, scale), x) if needs[0] else None,
        None,
        None,
        _as(run, run("sum", run("project", x, mean, rstd, g), axes=axes), weight) if needs[3] else None,
        _as(run, _total(run, g, rstd, axes, bias), bias) if needs[4] else None,
    )


def _eval_relu(run: Run, x: View, *vectors: Any, eps: float) -> View:
    return run("normalize_relu", x, *_normalizing(run, eps, x, *vectors))  # type: ignore[no-any-return]


def _eval_relu_pieces(run: Run, x: Any, *vectors: Any, eps: float) -> Any:
    return run("relu", run("batch_norm_eval", x, *vectors, eps=eps))


def _add_eval_check(views: Sequence[Any], attributes: Attributes) -> Attributes:
    return _eval_check((views[0], *views[2:]), _add_relu_check(views, attributes))


def _eval_add_relu(run: Run, x: View, residual: View, *vectors: Any, eps: float) -> View:
    return run("normalize_add_relu", x, residual, *_normalizing(run, eps, x, *vectors))  # type: ignore[no-any-return]


def _eval_add_relu_pieces(run: Run, x: Any, residual: Any, *vectors: Any, eps: float) -> Any:
    return run("relu", run("add", run("batch_norm_eval", x, *vectors, eps=eps), residual))


# layer norm: moments over the trailing axes that weight has
def _layer_check(views: Sequence[Any], attributes: Attributes) -> Attributes:
    return _trailing_check("layer_norm", views[0].shape, {"weight": views[-2], "bias": views[-1]}, attributes)


def _rms_check(views: Sequence[Any], attributes: Attributes) -> Attributes:
    weight = views[1] if len(views) > 1 else None
    return _trailing_check("rms_norm", views[0].shape, {"weight": weight}, attributes)


def _trailing_check(op: str, x: Shape, vectors: dict[str, Any], attributes: Attributes) -> Attributes:
    shape = shape_of(op, "normalized_shape", attributes["normalized_shape"])
    if not shape or x[len(x) - len(shape) :] != shape or len(shape) > len(x):
        raise ShapeError(f"{op}: normalized_shape {shape} must be the last axes of the input {x}")
    for name, vector in vectors.items():
        if vector is not None and vector.shape != shape:
            raise ShapeError(f"{op}: {name} {vector.shape} must be {shape}")
    _eps_check(op, attributes)
    return attributes | {"normalized_shape": shape}


def _layer_norm(
    run: Run, x: View, weight: View | None, bias: View | None, *, normalized_shape: Shape, eps: float
) -> tuple[View, View, View]:
    axes = tuple(range(x.ndim - len(normalized_shape), x.ndim))
    mean, variance = run("moments", x, axes=axes, keepdims=True)
    return _apply(run, x, mean, run("rstd", variance, eps=eps), weight, bias), mean, variance


def _layer_backward(
    run: Run, needs: Needs, grads: Gradients, saved: dict[str, Any], *, normalized_shape: Shape, eps: float
) -> Gradients:
    g, x, mean = grads[0], saved["x"], saved["mean"]
    lead = tuple(range(len(x.shape) - len(normalized_shape)))
    rstd = run("rstd", saved["variance"], eps=eps)
    moments = (mean, saved["variance"], saved["weight"])
    dx = run("layer_norm_input", g, x, *moments, normalized_shape=normalized_shape, eps=eps) if needs[0] else None
    return _needed(
        run,
        needs,
        _through_moments(run, dx, x, mean, *grads[1:], count=prod(normalized_shape)) if needs[0] else None,
        lambda: run("sum", run("project", x, mean, rstd, g), axes=lead),
        lambda: _total(run, g, mean, lead, saved["bias"]),
        saved,
    )


def _layer_input(
    run: Run, g: Any, x: Any, mean: Any, variance: Any, weight: Any, *, normalized_shape: Shape, eps: float
) -> Any:
    axes = tuple(range(len(x.shape) - len(normalized_shape), len(x.shape)))
    return _backward(run, g, x, mean, run("rstd", variance, eps=eps), weight, axes)


# group norm: x as (N, groups, rest), then a weight a channel
def _group_check(views: Sequence[Any], attributes: Attributes) -> Attributes:
    x, weight, bias = views[0], views[-2], views[-1]
    groups = attributes["num_groups"]
    if len(x.shape) < 2:
        raise ShapeError(f"group_norm: input {x.shape} must have a channel axis, (N, C, ...)")
    if not is_whole(groups) or groups < 1 or x.shape[1] % groups:
        raise AttributeValueError(
            f"group_norm: num_groups={groups!r} must divide the {x.shape[1]} channels of {x.shape}"
        )
    _affine_check("group_norm", x.shape[1], weight, bias)
    _eps_check("group_norm", attributes)
    return attributes | {"num_groups": int(groups)}


def _grouped(run: Run, x: Any, groups: int) -> Any:
    return run("contiguous", x).reshape((x.shape[0], groups, prod(x.shape[1:]) // groups))


def _group_norm(
    run: Run, x: View, weight: View | None, bias: View | None, *, num_groups: int, eps: float
) -> tuple[View, View, View]:
    flat = _grouped(run, x, num_groups)
    xhat, mean, variance = run("layer_norm", flat, normalized_shape=flat.shape[2:], eps=eps)
    xhat = xhat.reshape(x.shape)
    shape = _channels(x.shape)
    if weight is not None and bias is not None:
        xhat = run("multiply_add", xhat, weight.reshape(shape), bias.reshape(shape))
    elif weight is not None:
        xhat = run("multiply", xhat, weight.reshape(shape))
    elif bias is not None:
        xhat = run("add", xhat, bias.reshape(shape))
    return _as(run, xhat, x), mean, variance


def _group_backward(
    run: Run, needs: Needs, grads: Gradients, saved: dict[str, Any], *, num_groups: int, eps: float
) -> Gradients:
    g, x, weight = grads[0], saved["x"], saved["weight"]
    flat, moments = _grouped(run, x, num_groups), (saved["mean"], saved["variance"])
    gw = g if weight is None else run("multiply", g, weight.reshape(_channels(x.shape)))
    rstd = run("rstd", saved["variance"], eps=eps)
    axes = _batch_axes(x.shape)
    grouped = _grouped(run, gw, num_groups)
    dx = run("layer_norm_input", grouped, flat, *moments, normalized_shape=flat.shape[2:], eps=eps)
    dx = _through_moments(run, dx, flat, saved["mean"], *grads[1:], count=max(1, flat.shape[2])).reshape(x.shape)
    return _needed(
        run,
        needs,
        dx,
        lambda: run(
            "sum", run("project", flat, saved["mean"], rstd, _grouped(run, g, num_groups)).reshape(x.shape), axes=axes
        ),
        lambda: _total(run, g, rstd, axes, saved["bias"]),
        saved,
    )


# rms norm: divided by the root of the mean square over the trailing axes; no mean is taken out
def _rms_norm(run: Run, x: Any, weight: Any, *, normalized_shape: Shape, eps: float) -> Any:
    wide = x if x.dtype.itemsize > 2 else run("astype", x, dtype="float32")
    axes = tuple(range(len(x.shape) - len(normalized_shape), len(x.shape)))
    length = run("norm", wide, axes=axes, keepdims=True)  # whose squares leave no dtype, as those of 1e30 would float32
    root = run("scale", length, alpha=1 / sqrt(max(1, prod(normalized_shape))))
    y = run("divide", wide, run("hypot", root, sqrt(eps)))
    return _as(run, y if weight is None else run("multiply", y, weight), x)


OPS = (
    composite("rms_norm", "fn>f", "x weight?", _rms_norm, expands=True, check=_rms_check, normalized_shape=REQUIRED, eps=1e-6),
    composite("batch_norm", "fnn>fnn", "x weight? bias?", _batch_norm, _batch_norm_backward, outputs="y mean variance",
              saves="x weight bias mean variance",
              check=_batch_check, eps=1e-5),
    composite("batch_norm_backward", "ffnnn>fnn", "g x mean variance weight?", _batch_parts, expands=True, outputs="dx dweight dbias", eps=1e-5),
    composite("batch_norm_relu", "fnn>fnn", "x weight? bias?", _batch_relu, _batch_relu_backward, outputs="y mean variance",
              saves="x weight bias mean variance", check=_batch_check, eps=1e-5),
    composite("batch_norm_relu_backward", "ffnnnn>fnn", "g x mean variance weight? bias?", _batch_relu_parts, expands=True,
              outputs="dx dweight dbias", eps=1e-5),
    composite("batch_norm_add_relu", "ffnn>fnn", "x residual weight? bias?", _batch_add_relu, _batch_add_relu_backward,
              outputs="y mean variance", saves="x residual.dtype weight bias mean variance y", check=_add_relu_check, eps=1e-5),
    composite("batch_norm_add_relu_backward", "fffnnn>fnnf", "g y x mean variance weight?", _batch_add_relu_parts, expands=True,
              outputs="dx dweight dbias d", eps=1e-5),
    composite("batch_norm_eval", "fnnnn>f", "x mean variance weight? bias?", _eval, _eval_backward, saves="x mean variance weight bias",
              check=_eval_check, eps=1e-5),
    composite("batch_norm_relu_eval", "fnnnn>f", "x mean variance weight? bias?", _eval_relu, expands=_eval_relu_pieces,
              check=_eval_check, eps=1e-5),
    composite("batch_norm_add_relu_eval", "ffnnnn>f", "x residual mean variance weight? bias?", _eval_add_relu,
              expands=_eval_add_relu_pieces, check=_add_eval_check, eps=1e-5),
    composite("layer_norm", "fnn>fnn", "x weight? bias?", _layer_norm, _layer_backward, outputs="y mean variance",
              saves="x weight bias mean variance", check=_layer_check, normalized_shape=REQUIRED, eps=1e-5),
    composite("layer_norm_input", "ffnnn>f", "g x mean variance weight?", _layer_input, expands=True, normalized_shape=REQUIRED, eps=1e-5),
    composite("group_norm", "fnn>fnn", "x weight? bias?", _group_norm, _group_backward, outputs="y mean variance",
              saves="x weight bias mean variance", check=_group_check, num_groups=REQUIRED, eps=1e-5),
)  # fmt: skip
