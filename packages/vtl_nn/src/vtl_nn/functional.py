"""Layers as functions, under PyTorch's names: each is one op of the table, applied to tensors."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, cast

import vtl_core as vtl
from vtl_core import AttributeValueError, IndexRangeError, ShapeError, Tensor, UnsupportedError

Size = int | tuple[int, int] | list[int]  # lists as JSON has them, of two


def _tensor(result: Any) -> Tensor:
    return cast("Tensor", result)


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input @ weight^T + bias over the last axis.

    Shapes:  input (..., in); weight (out, in); bias (out,); result (..., out)
    """
    return _tensor(vtl.apply("linear", input, weight, bias))


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size | str = 0,
    dilation: Size = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlate `input` with `weight` and add `bias`, channel by channel.

    y[n, o, i, j] = bias[o] + sum over c, p, q of input[n, c, i*s - pad + p*d, j*s - pad + q*d] * weight[o, c, p, q]

    Shapes:  input (N, C, H, W); weight (O, C / groups, P, Q); result (N, O, H', W'),
             H' = (H + 2*padding - dilation*(P-1) - 1) // stride + 1; padding "same" keeps H and W, at stride 1
    """
    if isinstance(padding, str):
        input, padding = _padded(input, weight.shape[2:], stride, padding, dilation)
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return _tensor(vtl.apply("conv2d", input, weight, bias, **options))


def _padded(input: Tensor, kernel: Sequence[int], stride: Size, padding: str, dilation: Size) -> tuple[Tensor, Size]:
    """Padding by name: what both sides share goes to the op, an odd cell is padded here, at the end as PyTorch does."""
    if padding == "valid":
        return input, 0
    if padding != "same":
        raise AttributeValueError(f"conv2d: padding={padding!r} must be an int, two ints, 'same' or 'valid'")
    if stride not in (1, (1, 1), [1, 1]):
        raise AttributeValueError(
            f"conv2d: padding='same' is for stride 1, and stride is {stride}; give padding in numbers"
        )
    steps = (dilation, dilation) if isinstance(dilation, int) else dilation
    total = [d * (k - 1) for d, k in zip(steps, kernel, strict=True)]
    if any(t % 2 for t in total):
        input = _tensor(vtl.apply("pad", input, widths=((0, 0), (0, 0), (0, total[0] % 2), (0, total[1] % 2)), value=0))
    return input, (total[0] // 2, total[1] // 2)


def max_pool2d(
    input: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """Take the maximum of every window; padding is -inf, and of equal maxima the first gets the gradient."""
    options = {"stride": stride, "padding": padding, "dilation": dilation, "ceil_mode": ceil_mode}
    return _tensor(vtl.apply("max_pool2d", input, kernel_size=kernel_size, **options)[0])


def avg_pool2d(
    input: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """Average every window; cells that `ceil_mode` adds never count, those of `padding` unless told."""
    options = {"stride": stride, "padding": padding, "ceil_mode": ceil_mode, "count_include_pad": count_include_pad}
    return _tensor(
        vtl.apply("avg_pool2d", input, kernel_size=kernel_size, divisor_override=divisor_override, **options)
    )


def adaptive_avg_pool2d(input: Tensor, output_size: int | tuple[int | None, int | None] | None) -> Tensor:
    """Average over output_size windows that cover each of the last two axes; None keeps an axis as it is.

    Window i of o over n cells is [floor(i * n / o), ceil((i + 1) * n / o)): neighbours share a cell where o does not divide n.

    Shapes:  input (N, C, H, W); result (N, C, *output_size)
    Errors:  AttributeValueError for a size below 1; ShapeError for an input of other than 4 axes, or an axis of 0
    """
    if len(input.shape) != 4 or 0 in input.shape[2:]:
        raise ShapeError(f"adaptive_avg_pool2d: input {input.shape} must be (N, C, H, W) with H and W of at least 1")
    both: Sequence[int | None] = output_size if isinstance(output_size, tuple | list) else (output_size, output_size)
    if len(both) != 2 or any(o is not None and (type(o) is not int or o < 1) for o in both):
        raise AttributeValueError(
            f"adaptive_avg_pool2d: output_size={output_size!r} must be one or two ints of at least 1, or None"
        )
    height, width = (n if o is None else o for n, o in zip(input.shape[2:], both, strict=True))
    (h, w), rest = input.shape[2:], (input.shape[2] % height, input.shape[3] % width)
    if rest == (0, 0):
        return avg_pool2d(input, (h // height, w // width))
    rows = [input[:, :, i * h // height : -(-(i + 1) * h // height)].mean(dim=2, keepdim=True) for i in range(height)]
    tall = vtl.cat(rows, dim=2)
    columns = [tall[..., i * w // width : -(-(i + 1) * w // width)].mean(dim=3, keepdim=True) for i in range(width)]
    return vtl.cat(columns, dim=3)


def relu(input: Tensor) -> Tensor:
    """max(x, 0)."""
    return _tensor(vtl.apply("relu", input))


def relu6(input: Tensor) -> Tensor:
    """min(max(x, 0), 6)."""
    return _tensor(vtl.apply("relu6", input))


def leaky_relu(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """Return x where x > 0, else negative_slope * x."""
    return _tensor(vtl.apply("leaky_relu", input, slope=negative_slope))


def elu(input: Tensor, alpha: float = 1.0) -> Tensor:
    """Return x where x > 0, else alpha * (exp(x) - 1)."""
    return _tensor(vtl.apply("elu", input, alpha=alpha))


def selu(input: Tensor) -> Tensor:
    """ELU with the scale and alpha that keep mean 0 and variance 1 (Klambauer et al. 2017)."""
    return _tensor(vtl.apply("selu", input))


def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + exp(-x))."""
    return _tensor(vtl.apply("sigmoid", input))


def logsigmoid(input: Tensor) -> Tensor:
    """log(sigmoid(x)), right for any x."""
    return _tensor(vtl.apply("logsigmoid", input))


def tanh(input: Tensor) -> Tensor:
    """Hyperbolic tangent."""
    return _tensor(vtl.apply("tanh", input))


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """x * Phi(x), Phi the normal distribution; approximate="tanh" is the formula of Hendrycks & Gimpel 2016."""
    if approximate not in ("none", "tanh"):
        raise AttributeValueError(f"gelu: approximate={approximate!r} must be 'none' or 'tanh'")
    return _tensor(vtl.apply("gelu" if approximate == "none" else "gelu_tanh", input))


def silu(input: Tensor) -> Tensor:
    """x * sigmoid(x)."""
    return _tensor(vtl.apply("silu", input))


def mish(input: Tensor) -> Tensor:
    """x * tanh(softplus(x))."""
    return _tensor(vtl.apply("mish", input))


def softplus(input: Tensor, beta: float = 1.0) -> Tensor:
    """log(1 + exp(beta * x)) / beta, right for any x: there is no threshold."""
    if not beta > 0:
        raise AttributeValueError(f"softplus: beta={beta} must be above 0")
    if beta == 1:
        return _tensor(vtl.apply("softplus", input))
    return _tensor(vtl.apply("scale", vtl.apply("softplus", vtl.apply("scale", input, alpha=beta)), alpha=1 / beta))


def softsign(input: Tensor) -> Tensor:
    """x / (1 + |x|)."""
    return _tensor(vtl.apply("softsign", input))


def hardswish(input: Tensor) -> Tensor:
    """x * min(max(x + 3, 0), 6) / 6."""
    return _tensor(vtl.apply("hardswish", input))


def hardsigmoid(input: Tensor) -> Tensor:
    """min(max(x / 6 + 1/2, 0), 1)."""
    return _tensor(vtl.apply("hardsigmoid", input))


def softmax(input: Tensor, dim: int = -1) -> Tensor:
    """exp(x) / sum(exp(x)) along `dim`."""
    return _tensor(vtl.apply("softmax", input, axis=dim))


def log_softmax(input: Tensor, dim: int = -1) -> Tensor:
    """log(softmax(x)) along `dim`, right for any x."""
    return _tensor(vtl.apply("log_softmax", input, axis=dim))


def dropout(input: Tensor, p: float = 0.5, training: bool = True, *, generator: vtl.Generator | None = None) -> Tensor:
    """Zero each element with probability `p` and scale the others by 1 / (1 - p); the input itself when not training.

    Every call takes fresh numbers from `generator`, by default the one that vtl.manual_seed seeds; masks are the same
    on every device.
    """
    if not 0 <= p <= 1:
        raise AttributeValueError(f"dropout: p={p} must lie in [0, 1]")
    if not training or p == 0:
        return input
    key, counter = (generator or vtl.default_context().generator).reserve(prod(input.shape))
    return _tensor(vtl.apply("dropout", input, p=p, key=key, counter=counter)[0])


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float | Tensor = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalize each channel by its batch, or by the running statistics when not training.

    Training moves the running statistics: r = (1 - momentum) * r + momentum * batch, with the unbiased variance.

    Shapes:  input (N, C, ...); the vectors (C,)
    Errors:  ShapeError if training meets one value a channel, which has no variance
    """
    if not training:
        if running_mean is None or running_var is None:
            raise AttributeValueError("batch_norm: without training, running_mean and running_var are needed")
        return _tensor(vtl.apply("batch_norm_eval", input, running_mean, running_var, weight, bias, eps=eps))
    count = prod(input.shape) // max(1, input.shape[1]) if input.ndim > 1 else 0
    if count == 1:
        raise ShapeError(
            f"batch_norm: input {input.shape} has one value a channel, which has no variance; use larger batches or eval()"
        )
    y, mean, variance = vtl.apply("batch_norm", input, weight, bias, eps=eps)
    if count and running_mean is not None and running_var is not None:
        with vtl.no_grad():
            _move(running_mean, mean, momentum, 1.0)
            _move(running_var, variance, momentum, count / (count - 1))
    return _tensor(y)


def _move(running: Tensor, batch: Tensor, momentum: float | Tensor, factor: float) -> None:
    batch = batch.detach()
    if factor != 1:
        batch = batch * factor
    running.copy_(running + (batch - running) * momentum)


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalize over the last axes, which `normalized_shape` names; the variance is the biased one."""
    return _tensor(vtl.apply("layer_norm", input, weight, bias, normalized_shape=tuple(normalized_shape), eps=eps)[0])


def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Normalize each sample over groups of channels, (N, C, ...)."""
    return _tensor(vtl.apply("group_norm", input, weight, bias, num_groups=num_groups, eps=eps)[0])


def embedding(input: Tensor, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    """Rows of `weight` at the indices `input`; the row `padding_idx` gets no gradient.

    Shapes:  input (...), integers; weight (rows, features); result (..., features)
    """
    try:
        return _tensor(vtl.apply("embedding", input, weight, padding_idx=padding_idx))
    except IndexRangeError as error:
        raise _out_of_range("embedding: index", input, weight.shape[0], "rows", error) from None


def _out_of_range(
    what: str, index: Tensor, count: int, unit: str, error: IndexRangeError, ignored: int | None = None
) -> IndexRangeError:
    """The same error, naming the first bad value."""
    values = index.detach().numpy().reshape(-1)
    bad = (
        values[((values < 0) | (values >= count)) & (values != ignored)]
        if ignored is not None
        else values[(values < 0) | (values >= count)]
    )
    return IndexRangeError(f"{what} {int(bad[0])} is outside [0, {count}), the {count} {unit}") if bad.size else error


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """-log(softmax(input))[target] of logits; the mean is over the targets that are not `ignore_index`.

    With every target ignored the mean is NaN, as in PyTorch, and the gradient zero.

    Shapes:  input (N, C, ...); target (N, ...), class numbers; result (), or target's with reduction "none"
    Errors:  IndexRangeError if a label is outside [0, C); DTypeError if labels are no integers; UnsupportedError for
             weight and label_smoothing
    """
    if weight is not None or label_smoothing:
        given = "weight" if weight is not None else "label_smoothing"
        raise UnsupportedError(
            f"cross_entropy: {given} is not here; leave it out, or scale the losses of reduction='none'"
        )
    try:
        return _tensor(vtl.apply("cross_entropy", input, target, reduction=reduction, ignore_index=ignore_index)[0])
    except vtl.DTypeError:
        labels: object = target
        if isinstance(labels, Tensor) and labels.dtype.is_floating:
            raise vtl.DTypeError(
                f"cross_entropy: labels are {labels.dtype.name}; they must be integers: labels.long()"
            ) from None
        raise
    except IndexRangeError as error:
        raise _out_of_range("cross_entropy: label", target, input.shape[1], "classes", error, ignore_index) from None


def mse_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """(input - target)**2, averaged, summed or as it is; the shapes must be alike."""
    return _tensor(vtl.apply("mse_loss", input, target, reduction=reduction))
