"""Random configurations of layers."""

from __future__ import annotations

import numpy as np
import torch
from differential import Case

Rng = np.random.Generator


def _int(rng: Rng, low: int, high: int) -> int:
    """From low to high, both included."""
    return int(rng.integers(low, high + 1))


def _one_or_each(rng: Rng, axes: int, low: int, high: int):
    if rng.random() < 0.5:
        return _int(rng, low, high)
    each = tuple(_int(rng, low, high) for _ in range(axes))
    return each if axes > 1 else each[0]


def _axis(value, i: int) -> int:
    return value if isinstance(value, int) else value[i]


def convolution(rng: Rng) -> Case:
    """One and two axes; stride, padding by number and name, every padding mode, dilation, groups, bias, no batch."""
    axes, groups = _int(rng, 1, 2), _int(rng, 1, 3)
    channels, filters = groups * _int(rng, 1, 3), groups * _int(rng, 1, 3)
    kernel, dilation = _one_or_each(rng, axes, 1, 3), _one_or_each(rng, axes, 1, 2)
    named = rng.random() < 0.3
    stride = 1 if named else _one_or_each(rng, axes, 1, 3)
    padding = str(rng.choice(["same", "valid"])) if named else _one_or_each(rng, axes, 0, 2)
    mode = str(rng.choice(["zeros", "zeros", "reflect", "replicate", "circular"]))
    size = tuple(_axis(dilation, i) * (_axis(kernel, i) - 1) + 1 + _int(rng, 3, 6) for i in range(axes))
    batch = () if rng.random() < 0.15 and mode == "zeros" else (_int(rng, 1, 3),)
    options = {
        "stride": stride,
        "padding": padding,
        "dilation": dilation,
        "groups": groups,
        "bias": bool(rng.random() < 0.7),
    }
    options["padding_mode"] = mode
    x = rng.normal(size=(*batch, channels, *size))
    text = f"Conv{axes}d({channels}, {filters}, {kernel}, {options}) of {x.shape}"
    return Case(text, lambda t: getattr(t.nn, f"Conv{axes}d")(channels, filters, kernel, **options), [x])


def transposed_convolution(rng: Rng) -> Case:
    """One and two axes; output padding below stride or dilation, groups."""
    axes, groups = _int(rng, 1, 2), _int(rng, 1, 2)
    channels, filters = groups * _int(rng, 1, 3), groups * _int(rng, 1, 3)
    kernel, stride, dilation = (_one_or_each(rng, axes, 1, 3) for _ in range(3))
    reach = [_axis(dilation, i) * (_axis(kernel, i) - 1) for i in range(axes)]
    padding = _int(rng, 0, min(2, *reach) if axes > 1 else min(2, reach[0]))
    more = [_int(rng, 0, max(_axis(stride, i), _axis(dilation, i)) - 1) for i in range(axes)]
    options = {
        "stride": stride,
        "padding": padding,
        "output_padding": tuple(more),
        "dilation": dilation,
        "groups": groups,
        "bias": bool(rng.random() < 0.7),
    }
    size = tuple(_int(rng, 3, 6) for _ in range(axes))
    x = rng.normal(size=(_int(rng, 1, 3), channels, *size))
    text = f"ConvTranspose{axes}d({channels}, {filters}, {kernel}, {options}) of {x.shape}"
    return Case(text, lambda t: getattr(t.nn, f"ConvTranspose{axes}d")(channels, filters, kernel, **options), [x])


def pooling(rng: Rng) -> Case:
    """Maximum, with ties and minus infinity, average and adaptive average, of one and two axes."""
    axes, kind = _int(rng, 1, 2), str(rng.choice(["Max", "Avg", "AdaptiveAvg"]))
    batch = () if rng.random() < 0.15 else (_int(rng, 1, 3),)
    size = tuple(_int(rng, 5, 9) for _ in range(axes))
    x = rng.permutation(int(np.prod((*batch, 2, *size)))).reshape(*batch, 2, *size) / 16
    if kind == "Max" and rng.random() < 0.4:  # ties, and windows of nothing: the first cell receives the gradient
        x = np.where(rng.random(x.shape) < rng.choice([0.3, 0.9]), -np.inf, np.round(x / 4))
    if kind == "AdaptiveAvg":
        output = _one_or_each(rng, axes, 1, 6)
        text = f"AdaptiveAvgPool{axes}d({output}) of {x.shape}"
        return Case(text, lambda t: getattr(t.nn, f"AdaptiveAvgPool{axes}d")(output), [x])
    kernel = _one_or_each(rng, axes, 1, 3)
    options = {"stride": _one_or_each(rng, axes, 1, 3), "ceil_mode": bool(rng.random() < 0.4)}
    options["padding"] = _int(rng, 0, min(_axis(kernel, i) for i in range(axes)) // 2)
    if kind == "Max":
        options["dilation"] = _one_or_each(rng, axes, 1, 2)
    else:
        options["count_include_pad"] = bool(rng.random() < 0.5)
        if axes == 2 and rng.random() < 0.2:
            options["divisor_override"] = _int(rng, 1, 5)
    text = f"{kind}Pool{axes}d({kernel}, {options}) of {x.shape}"
    return Case(text, lambda t: getattr(t.nn, f"{kind}Pool{axes}d")(kernel, **options), [x])


def normalization(rng: Rng) -> Case:
    """Batch, layer, group, instance and RMS, in both modes; running statistics move twice."""
    kind = str(
        rng.choice(
            ["BatchNorm1d", "BatchNorm2d", "LayerNorm", "GroupNorm", "InstanceNorm1d", "InstanceNorm2d", "RMSNorm"]
        )
    )
    channels, samples, train = 2 * _int(rng, 1, 3), _int(rng, 2, 5), bool(rng.random() < 0.6)
    space = tuple(_int(rng, 2, 5) for _ in range({"1": 1, "2": 2}.get(kind[-2], _int(rng, 0, 2))))
    if kind == "BatchNorm1d" and rng.random() < 0.5:
        space = ()
    x = rng.normal(size=(samples, channels, *space)) * 2 + 1
    eps = float(rng.choice([1e-5, 1e-3]))
    if kind in ("LayerNorm", "RMSNorm"):
        shape = x.shape[-_int(rng, 1, x.ndim - 1) :]
        options = {"eps": eps, "elementwise_affine": bool(rng.random() < 0.7)}
        if kind == "LayerNorm":
            options["bias"] = bool(rng.random() < 0.7)
        elif rng.random() < 0.5:
            options["eps"] = None
        return Case(
            f"{kind}({shape}, {options}) of {x.shape}",
            lambda t: getattr(t.nn, kind)(shape, **options),
            [x],
            train=train,
        )
    options = {"eps": eps, "affine": bool(rng.random() < 0.7)}
    if kind == "GroupNorm":
        groups = int(rng.choice([1, 2, channels] if space else [1]))  # of one value there is nothing to normalize
        make = lambda t: t.nn.GroupNorm(groups, channels, **options)  # a family's maker is a lambda
        return Case(f"GroupNorm({groups}, {options}) of {x.shape}", make, [x], train=train)
    options["momentum"] = float(rng.choice([0.1, 0.4])) if kind[0] == "I" or rng.random() < 0.7 else None
    options["track_running_stats"] = bool(rng.random() < 0.7)
    return Case(
        f"{kind}({options}) {train=} of {x.shape}",
        lambda t: getattr(t.nn, kind)(channels, **options),
        [x],
        train=train,
        twice=True,
    )


ACTIVATIONS = {
    "ReLU": (), "ReLU6": (), "LeakyReLU": (0.2,), "ELU": (1.5,), "SELU": (), "CELU": (0.5,), "Sigmoid": (), "Tanh": (), "GELU": (), "SiLU": (),
    "Mish": (), "Softplus": (2.0, 5.0), "Softsign": (), "Hardswish": (), "LogSigmoid": (), "Hardshrink": (0.5,),
    "Softshrink": (0.5,), "Threshold": (0.25, -1.0), "Tanhshrink": (), "Softmax": (-1,), "LogSoftmax": (-1,), "Softmin": (-1,),
    "GLU": (-1,), "PReLU": (), "Hardtanh": (-1.5, 0.5), "Hardsigmoid": (), "GELU of tanh": (),
}  # fmt: skip


# PyTorch's gradient at NaN depends on whether a vector holds the element, or the rest after the last vector
PIECEWISE = {"ReLU6", "Hardtanh", "Hardsigmoid", "ELU", "SELU", "CELU", "Hardshrink", "Softshrink", "Hardswish"}
LIMITS = {
    "Softsign",
    "SiLU",
    "Mish",
    "GELU",
    "GELU of tanh",
}  # PyTorch has NaN where they have limits, which the conformance suite has


class _Hardsigmoid(torch.nn.Module):
    """By its formula: PyTorch's own has a sixth in float32."""

    def forward(self, x):
        return torch.nn.functional.relu6(x + 3) / 6


def _activation(library, name: str, arguments: tuple):
    if name == "GELU of tanh":
        return library.nn.GELU(approximate="tanh")
    if name == "Hardsigmoid" and library.name == "theirs":
        return _Hardsigmoid()
    return getattr(library.nn, name)(*arguments)


def activation(rng: Rng) -> Case:
    """Every one, over many magnitudes, on its kinks, and of what is no finite number."""
    name = str(rng.choice(sorted(ACTIVATIONS)))
    shape = (*(_int(rng, 1, 4) for _ in range(_int(rng, 1, 2))), 2 * _int(rng, 1, 5))
    arguments = (shape[1],) if name == "PReLU" and rng.random() < 0.5 else ACTIVATIONS[name]
    if name in ("Softmax", "LogSoftmax", "Softmin"):
        arguments = (_int(rng, -len(shape), len(shape) - 1),)
    x = rng.normal(size=shape) * float(rng.choice([0.3, 3]))
    if name != "Softplus":
        x = np.clip(x, -9, 9)
    if rng.random() < 0.3:
        x = np.round(x * 4) / 4
    if rng.random() < 0.2:
        odd = [np.inf] if name in PIECEWISE else [np.nan] if name in LIMITS else [np.nan, np.inf, -np.inf]
        x.flat[_int(rng, 0, x.size - 1)] = float(rng.choice(odd))
    slack = 2.0 if name == "GELU of tanh" else 1.0  # 1 + tanh near -1 has the ULP of 1, in whose tanh libraries differ
    return Case(f"{name}{arguments} of {shape}", lambda t: _activation(t, name, arguments), [x], slack=slack)


def dropout(rng: Rng) -> Case:
    """What draws nothing: evaluation, probability 0, and 1, which leaves zeros."""
    name, axes = str(rng.choice(["Dropout", "Dropout1d", "Dropout2d"])), _int(rng, 0, 2)
    shape = tuple(_int(rng, 1, 5) for _ in range({"Dropout": axes + 1, "Dropout1d": 3, "Dropout2d": 4}[name]))
    train = bool(rng.random() < 0.5)
    p = float(rng.choice([0.0, 1.0])) if train else float(rng.choice([0.0, 0.3, 0.5, 1.0]))
    text = f"{name}({p}) {train=} of {shape}"
    return Case(text, lambda t: getattr(t.nn, name)(p), [rng.normal(size=shape)], train=train)


def padding(rng: Rng) -> Case:
    """Every mode, of one and two axes; constants cut too."""
    mode, axes = str(rng.choice(["constant", "reflect", "replicate", "circular"])), _int(rng, 1, 2)
    size = tuple(_int(rng, 4, 6) for _ in range(axes))
    low = -1 if mode == "constant" else 0
    widths = [_int(rng, low, 3) for _ in range(2 * axes)]
    value = 1.5 if mode == "constant" else 0.0
    x = rng.normal(size=(2, 3, *size))
    text = f"pad {widths} {mode} of {x.shape}"
    return Case(text, lambda t: lambda x: t.F.pad(x, widths, mode=mode, **({"value": value} if value else {})), [x])


def linear(rng: Rng) -> Case:
    """Any number of leading axes, none included; zero rows."""
    lead = tuple(_int(rng, 1, 4) for _ in range(_int(rng, 0, 3)))
    features, out, bias = _int(rng, 1, 9), _int(rng, 1, 9), bool(rng.random() < 0.7)
    return Case(
        f"Linear({features}, {out}, {bias}) of {lead}",
        lambda t: t.nn.Linear(features, out, bias),
        [rng.normal(size=(*lead, features))],
    )


def embedding(rng: Rng) -> Case:
    """Repeated indices, padding by positive and negative number."""
    rows, features = _int(rng, 2, 9), _int(rng, 1, 5)
    padding_idx = None if rng.random() < 0.4 else _int(rng, -rows, rows - 1)
    ids = rng.integers(0, rows, tuple(_int(rng, 1, 6) for _ in range(_int(rng, 1, 3))))
    text = f"Embedding({rows}, {features}, {padding_idx}) of {ids.shape}"
    return Case(text, lambda t: t.nn.Embedding(rows, features, padding_idx=padding_idx), [ids])


def reshaping(rng: Rng) -> Case:
    """Flatten and Unflatten."""
    shape = tuple(_int(rng, 1, 4) for _ in range(4))
    start = _int(rng, 0, 2)
    end = _int(rng, start, 3) - (4 if rng.random() < 0.5 else 0)
    x = rng.normal(size=shape)
    if rng.random() < 0.5:
        return Case(f"Flatten({start}, {end}) of {shape}", lambda t: t.nn.Flatten(start, end), [x])
    dim = _int(rng, -4, 3)
    sizes = (1, shape[dim]) if rng.random() < 0.5 else (1, -1, 1)
    return Case(f"Unflatten({dim}, {sizes}) of {shape}", lambda t: t.nn.Unflatten(dim, sizes), [x])


FAMILIES = (
    convolution,
    transposed_convolution,
    pooling,
    normalization,
    activation,
    dropout,
    padding,
    linear,
    embedding,
    reshaping,
)
