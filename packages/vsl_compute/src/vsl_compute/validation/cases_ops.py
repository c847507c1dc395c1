"""What primitives and composites are tested on: options, arguments and shapes, for the conformance suite and `validate`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import oracle_attention
from .wide import Array

Shape = tuple[int, ...]
Options = dict[str, Any]
Maker = Callable[[np.random.Generator], Array]


def normal(*shape: int) -> Maker:
    """Normal numbers."""
    return lambda rng: rng.standard_normal(shape)


def uniform(low: float, high: float, *shape: int) -> Maker:
    """Numbers between two ends."""
    return lambda rng: rng.uniform(low, high, shape)


def integers(high: int, *shape: int) -> Maker:
    """Indices below `high`."""
    return lambda rng: rng.integers(0, high, shape)


def apart(*shape: int) -> Maker:
    """Numbers no two of which are equal, or near, in any floating dtype: at most 256 multiples of 1/32."""
    count = int(np.prod(shape))
    return lambda rng: ((rng.permutation(count) - count // 2) / 32).reshape(shape)


@dataclass(frozen=True)
class Statistic:
    """An argument that `of` makes from those before it, kept in float32 where they are narrower, or as `narrow` as they are."""

    of: Callable[..., Array]
    narrow: bool = False

    def __call__(self, rng: np.random.Generator, *before: Any) -> Array:
        """Make it."""
        return np.asarray(self.of(rng, *before))


OpCase = tuple[str, Options, tuple[Maker | Statistic | None, ...], int]
KEYS: Options = {"key": (3, 0), "counter": (1, 0, 0, 0)}
CASES: tuple[OpCase, ...] = (
    #  op               options                                              arguments (None: left out)          outputs
    ("matmul", {}, (normal(4, 5), normal(5, 3)), 1),
    ("matmul", {}, (normal(2, 4, 5), normal(2, 5, 3)), 1),
    ("astype", {"dtype": "float64"}, (normal(3, 4),), 1),
    ("copy", {}, (normal(3, 4),), 1),
    ("contiguous", {}, (normal(3, 4),), 1),
    ("gather", {}, (normal(5, 3), integers(5, 4, 2)), 1),
    ("gather", {"batch": 1}, (normal(4, 5, 2), integers(5, 4, 3)), 1),
    ("scatter", {"shape": (5, 3)}, (normal(4, 2, 3), integers(5, 4, 2)), 1),
    ("fold", {"shape": (2, 9), "axes": (1,), "steps": (2,), "dilations": (1,)}, (normal(2, 4, 3),), 1),
    ("sort", {}, (apart(3, 6),), 1),
    ("sort", {"descending": True}, (apart(3, 6),), 1),
    ("cumsum", {}, (normal(3, 6),), 1),
    ("linear", {}, (normal(4, 3), normal(2, 3), normal(2)), 1),
    ("linear", {}, (normal(2, 4, 3), normal(2, 3), None), 1),
    ("linear_relu", {}, (normal(5, 3), normal(4, 3), normal(4)), 1),
    ("linear_relu", {}, (normal(2, 4, 3), normal(2, 3), None), 1),
    ("linear_weight", {}, (normal(6, 4), normal(6, 3)), 2),
    ("linear_relu_input", {}, (normal(6, 3), normal(3, 5), apart(6, 5)), 2),
    ("feed_forward", {}, (normal(6, 3), normal(8, 3), normal(4, 8), normal(8), normal(4)), 1),
    ("feed_forward", {}, (normal(2, 3, 5), normal(4, 5), normal(2, 4), None, None), 1),
    ("pad", {"widths": ((1, 0), (2, 1))}, (normal(3, 4),), 1),
    ("slice_backward", {"shape": (5, 4), "index": (slice(0, 5, 2), slice(1, 3))}, (normal(3, 2),), 1),
    ("concat", {"axis": 1}, (normal(2, 3), normal(2, 1), normal(2, 4)), 1),
    ("conv2d", {}, (normal(2, 3, 6, 5), normal(4, 3, 3, 2), normal(4)), 1),
    ("conv2d_relu", {"padding": 1}, (normal(2, 3, 5, 4), normal(4, 3, 3, 2), normal(4)), 1),
    ("conv2d_relu", {"stride": 2}, (normal(2, 2, 5, 4), normal(3, 2, 2, 2), None), 1),
    # a filter a channel, of one place: sums would be as near as roundings, and each would choose
    ("conv2d_relu_max_pool2d", {"groups": 3, "pool_size": 2}, (apart(2, 3, 7, 6), normal(3, 1, 1, 1), normal(3)), 1),
    ("conv2d_relu_max_pool2d", {"groups": 2, "stride": (1, 2), "pool_size": 3, "pool_stride": 2, "pool_ceil": True},
     (apart(1, 2, 5, 8), normal(2, 1, 1, 1), None), 1),
    ("conv2d", {"stride": 2, "padding": (1, 2), "dilation": (1, 2), "groups": 2}, (normal(2, 4, 7, 6), normal(6, 2, 3, 2), None), 1),
    ("conv2d_input", {"shape": (2, 3, 6, 5), "padding": 1}, (normal(2, 4, 6, 5), normal(4, 3, 3, 3)), 1),
    ("conv2d_weight", {"shape": (4, 3, 3, 3), "stride": 2}, (normal(2, 4, 3, 2), normal(2, 3, 7, 5)), 1),
    ("max_pool2d", {"kernel_size": 3, "stride": 2, "padding": 1}, (apart(2, 3, 7, 6),), 1),
    ("max_pool2d", {"kernel_size": 2, "dilation": 2, "stride": 1}, (apart(1, 2, 6, 6),), 1),
    ("max_pool2d_backward", {"kernel_size": 2, "shape": (1, 2, 6, 4)}, (normal(1, 2, 3, 2), integers(4, 1, 2, 3, 2)), 1),
    ("max_pool2d_take", {"kernel_size": 2}, (normal(1, 2, 6, 4), integers(4, 1, 2, 3, 2)), 1),
    ("avg_pool2d", {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True}, (normal(2, 3, 7, 6),), 1),
    ("avg_pool2d", {"kernel_size": 2, "padding": 1, "count_include_pad": False}, (normal(2, 2, 5, 4),), 1),
    ("avg_pool2d_backward", {"kernel_size": 2, "shape": (2, 2, 6, 4)}, (normal(2, 2, 3, 2),), 1),
    ("batch_norm", {}, (normal(4, 3, 2, 5), normal(3), normal(3)), 3),
    ("batch_norm", {}, (normal(6, 3), None, None), 3),
    ("batch_norm_relu", {}, (normal(4, 3, 2, 5), normal(3), normal(3)), 3),
    ("batch_norm_relu", {}, (normal(6, 3), None, None), 1),
    ("batch_norm_add_relu", {}, (normal(4, 3, 2, 5), normal(4, 3, 2, 5), normal(3), normal(3)), 3),
    ("batch_norm_add_relu", {}, (normal(6, 3), normal(6, 3), None, None), 1),
    ("batch_norm_eval", {}, (normal(4, 3, 2), normal(3), lambda rng: rng.uniform(0.5, 2, 3), normal(3), normal(3)), 1),
    ("layer_norm", {"normalized_shape": (5,)}, (normal(4, 5), normal(5), normal(5)), 3),
    ("layer_norm", {"normalized_shape": (3, 5)}, (normal(2, 3, 5), None, None), 3),
    ("group_norm", {"num_groups": 2}, (normal(3, 4, 3, 2), normal(4), normal(4)), 3),
    ("group_norm", {"num_groups": 1}, (normal(3, 4), None, None), 1),
    ("softmax", {"axis": 1}, (normal(3, 5, 2),), 1),
    ("log_softmax", {}, (normal(3, 5),), 1),
    ("attention_shares", {}, (normal(3, 5),), 2),
    ("cross_entropy", {}, (normal(6, 4), integers(4, 6), None), 2),
    ("cross_entropy", {"reduction": "sum", "ignore_index": 1}, (normal(3, 4, 2), integers(4, 3, 2), None), 1),
    ("cross_entropy", {"reduction": "none"}, (normal(6, 4), integers(4, 6), None), 1),
    ("cross_entropy", {"label_smoothing": 0.25, "ignore_index": 2}, (normal(6, 4), integers(4, 6), None), 1),
    ("attention", {}, (normal(2, 3, 4), normal(2, 5, 4), normal(2, 5, 3), None), 2),
    ("attention", {"causal": True, "scale": 0.25}, (normal(4, 2), normal(5, 2), normal(5, 3), None), 1),
    ("rnn_tanh", {}, (normal(3, 2, 4), normal(2, 4), normal(4, 4)), 1),
    ("rnn_relu", {"sizes": (1, 2, 2)}, (normal(3, 2, 4), normal(2, 4), normal(4, 4)), 1),
    ("lstm", {}, (normal(3, 2, 12), normal(2, 3), normal(12, 3), normal(2, 3)), 1),
    ("lstm", {"sizes": (3, 2, 1)}, (normal(3, 3, 8), normal(3, 2), normal(8, 2), normal(3, 2)), 1),
    ("gru", {}, (normal(3, 2, 9), normal(2, 3), normal(9, 3), normal(9)), 1),
    ("gru", {"sizes": (3, 1)}, (normal(2, 3, 6), normal(3, 2), normal(6, 2), None), 1),
    ("mse_loss", {}, (normal(3, 4), normal(3, 4)), 1),
    ("mse_loss", {"reduction": "none"}, (normal(3, 4), normal(3, 4)), 1),
    ("embedding", {}, (integers(5, 4, 2), normal(5, 3)), 1),
    ("dropout", {"p": 0.4, **KEYS}, (normal(4, 5),), 1),
)  # fmt: skip


def _mean(rng: np.random.Generator, g: Array, x: Array) -> Array:
    return np.asarray(x.mean(axis=(0, 2)), np.float64)


def _variance(rng: np.random.Generator, g: Array, x: Array, mean: Array) -> Array:
    return np.asarray(x.astype(np.float64).var(axis=(0, 2)))


def _row_mean(rng: np.random.Generator, g: Array, x: Array) -> Array:
    return np.asarray(x.mean(axis=1, keepdims=True), np.float64)


def _row_variance(rng: np.random.Generator, g: Array, x: Array, mean: Array) -> Array:
    return np.asarray(x.astype(np.float64).var(axis=1, keepdims=True))


def _count(rng: np.random.Generator, g: Array, x: Array, target: Array) -> Array:
    return np.asarray(np.sum(target != 2), np.float64)


def _found(rng: np.random.Generator, g: Array, q: Array, k: Array, v: Array) -> Array:
    return np.asarray(oracle_attention.attention(q, k, v, causal=True, scale=0.5)[0], np.float64)


def _attended(rng: np.random.Generator, g: Array, q: Array, k: Array, v: Array, y: Array) -> Array:
    return np.asarray(oracle_attention.weights(q, k, causal=True, scale=0.5)[1], np.float64)


# what has no gradient of its own, or is one
VALUES: tuple[OpCase, ...] = (
    ("astype", {"dtype": "float32"}, (normal(3, 4),), 0),
    ("astype", {"dtype": "float16"}, (normal(3, 4),), 0),
    ("astype", {"dtype": "int32"}, (uniform(-40, 40, 3, 4),), 0),
    ("random", {"kind": "bits", "shape": (7, 3), "key": (7, 3), "counter": (0xFFFFFFFE, 1, 9, 0)}, (normal(1),), 0),
    ("random", {"kind": "uniform", "shape": (11,), "key": (11, 0), "counter": (5, 0, 0, 0)}, (normal(1),), 0),
    ("random", {"kind": "normal", "shape": (31,), "key": (13, 0), "counter": (0, 0, 0, 0)}, (normal(1),), 0),
    ("softmax_backward", {"axis": 1}, (normal(3, 5, 2), uniform(0, 1, 3, 5, 2)), 0),
    ("log_softmax_backward", {}, (normal(3, 5), uniform(-8, 0, 3, 5)), 0),
    ("cross_entropy_rows", {"ignore_index": 2}, (normal(6, 5), integers(5, 6, 1), None), 0),
    ("cross_entropy_rows", {"ignore_index": -1, "label_smoothing": 0.25}, (normal(2, 3, 5), integers(5, 2, 3, 1), uniform(0.5, 2, 5)), 0),
    ("cross_entropy_input", {"ignore_index": 2},
     (normal(6, 1), normal(6, 5), integers(5, 6, 1), uniform(0.5, 2, 6, 1), None), 0),
    ("cross_entropy_input", {"ignore_index": 1, "label_smoothing": 0.25},
     (normal(6, 1), normal(6, 5), integers(5, 6, 1), None, uniform(0.5, 2, 5)), 0),
    ("counted_mean", {}, (normal(300), uniform(0.5, 2, 300)), 0),
    ("layer_norm_input", {"normalized_shape": (5,)}, (normal(4, 5), normal(4, 5), Statistic(_row_mean), Statistic(_row_variance), normal(5)), 0),
    ("batch_norm_backward", {}, (normal(4, 3, 5), normal(4, 3, 5), Statistic(_mean), Statistic(_variance), normal(3)), 0),
    ("batch_norm_relu_eval", {}, (normal(4, 3, 2), normal(3), lambda rng: rng.uniform(0.5, 2, 3), normal(3), normal(3)), 0),
    ("batch_norm_add_relu_eval", {},
     (normal(4, 3, 2), normal(4, 3, 2), normal(3), lambda rng: rng.uniform(0.5, 2, 3), normal(3), normal(3)), 0),
    ("batch_norm_relu_backward", {},
     (normal(4, 3, 5), normal(4, 3, 5), Statistic(_mean), Statistic(_variance), normal(3), normal(3)), 0),
    ("batch_norm_add_relu_backward", {},
     (normal(4, 3, 5), normal(4, 3, 5), normal(4, 3, 5), Statistic(lambda rng, g, y, x: _mean(rng, g, x)),
      Statistic(lambda rng, g, y, x, mean: _variance(rng, g, x, mean)), normal(3)), 0),
    ("cross_entropy_backward", {"ignore_index": 2},
     (Statistic(lambda rng: rng.standard_normal(())), normal(6, 4), integers(4, 6), Statistic(_count)), 0),
    ("attention", {}, (normal(2, 3, 4), normal(2, 5, 4), normal(2, 5, 3), normal(3, 5)), 0),
    ("attention", {"dropout": 0.25, **KEYS}, (normal(3, 4), normal(5, 4), normal(5, 3), None), 0),
    ("attention_weights", {"causal": True}, (normal(3, 4), normal(5, 4), normal(5, 3), None), 0),
    *((op, {"causal": True, "scale": 0.5},
       (normal(3, 4), normal(3, 2), normal(5, 2), normal(5, 4), Statistic(_found, narrow=True), Statistic(_attended)), 0)
      for op in ("attention_backward", "attention_mask_backward")),
    ("rnn_tanh_backward", {"sizes": (2, 1, 1)}, (normal(4, 2, 3), uniform(-1, 1, 4, 2, 3), normal(3, 3)), 0),
    ("rnn_relu_backward", {"sizes": (1, 2)}, (normal(3, 2, 3), normal(3, 2, 3), normal(3, 3)), 0),
    ("lstm_backward", {"sizes": (2, 1, 1)},
     (normal(4, 2, 3), uniform(-1, 1, 4, 2, 3), normal(4, 2, 3), normal(3, 2, 12), normal(12, 3), normal(4, 2, 3), normal(3, 2, 12)), 0),
    ("lstm_step", {}, (normal(3, 20), normal(3, 5)), 0),
    ("lstm_step_back", {}, (normal(3, 5), normal(3, 5), normal(3, 20), normal(3, 5), normal(3, 5), normal(3, 5)), 0),
    ("gru_step_back", {}, (normal(3, 5), normal(3, 5), normal(3, 15), normal(3, 15), normal(3, 5)), 0),
    ("gru_backward", {"sizes": (1, 2)},
     (normal(3, 2, 3), normal(2, 2, 9), uniform(-1, 1, 3, 2, 3), normal(2, 2, 9), normal(9, 3), normal(2, 2, 9)), 0),
    ("gru_backward", {"sizes": (2, 2)}, (normal(3, 2, 3), normal(2, 2, 9), uniform(-1, 1, 3, 2, 3), normal(2, 2, 9), normal(9, 3)), 0),
    ("rms_norm", {"normalized_shape": (5,)}, (normal(4, 5), normal(5)), 0),
    ("rms_norm", {"normalized_shape": (3, 5)}, (normal(2, 3, 5), None), 0),
    ("foreach_norm", {}, (normal(3, 4), normal(7), normal(1, 1)), 0),
    ("foreach_norm", {"ord": float("inf")}, (normal(3, 4), normal(257)), 0),
    ("foreach_norm", {"ord": 1.5}, (normal(3, 4), normal(7)), 0),
    ("cross_entropy", {"label_smoothing": 0.25, "ignore_index": 2}, (normal(6, 4), integers(4, 6), uniform(0.5, 2, 4)), 0),
    ("cross_entropy_backward", {"ignore_index": 2, "label_smoothing": 0.25},
     (Statistic(lambda rng: rng.standard_normal(())), normal(6, 4), integers(4, 6), Statistic(_count)), 0),
    ("soft_cross_entropy", {"label_smoothing": 0.25}, (normal(6, 4), uniform(0, 1, 6, 4), uniform(0.5, 2, 4)), 0),
    ("soft_cross_entropy", {"reduction": "none"}, (normal(3, 4, 2), uniform(0, 1, 3, 4, 2), None), 0),
    ("nll_loss", {"ignore_index": 2}, (uniform(-8, 0, 6, 4), integers(4, 6), uniform(0.5, 2, 4)), 0),
    ("nll_loss", {"reduction": "none"}, (uniform(-8, 0, 3, 4, 2), integers(4, 3, 2), None), 0),
    ("cosine_similarity", {}, (normal(4, 5), normal(4, 5)), 0),
    ("cosine_similarity", {"axis": 0}, (normal(4, 5), normal(4, 1)), 0),
    ("embedding_backward", {"shape": (5, 3)}, (normal(4, 2, 3), integers(5, 4, 2)), 0),
    ("embedding_backward", {"shape": (5, 3), "padding_idx": 2}, (normal(4, 2, 3), integers(5, 4, 2)), 0),
)  # fmt: skip
CONVOLUTIONS: tuple[tuple[Shape, Shape, Options], ...] = (
    #  x shape         weight shape    options
    ((2, 3, 7, 6),     (4, 3, 3, 3),   {}),
    ((2, 3, 7, 6),     (4, 3, 3, 3),   {"padding": 1}),
    ((1, 2, 9, 8),     (3, 2, 3, 2),   {"stride": 2, "padding": (1, 0)}),
    ((2, 2, 9, 9),     (2, 2, 2, 3),   {"dilation": (2, 3), "padding": (2, 1)}),
    ((1, 4, 6, 5),     (6, 2, 3, 3),   {"groups": 2, "padding": 1, "stride": (2, 1)}),
    ((2, 3, 5, 5),     (3, 1, 3, 3),   {"groups": 3, "padding": 1}),
    ((3, 5, 4, 4),     (2, 5, 1, 1),   {}),
    ((2, 3, 8, 8),     (2, 3, 1, 1),   {"stride": 3}),
    ((1, 1, 4, 4),     (1, 1, 4, 4),   {}),
    ((1, 1, 2, 2),     (1, 1, 5, 5),   {"padding": 2}),
    ((2, 3, 1, 9),     (4, 3, 1, 3),   {"padding": (0, 1), "stride": 2}),
    ((2, 8, 7, 6),     (12, 8, 3, 3),  {"padding": 1, "stride": 2}),
    ((1, 6, 8, 9),     (8, 3, 3, 2),   {"groups": 2, "dilation": (2, 3), "stride": (3, 2), "padding": 2}),
)  # fmt: skip
POOLS: tuple[Options, ...] = (
    {"kernel_size": 2},
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": (2, 3), "stride": (1, 2), "padding": (1, 1)},
    {"kernel_size": 3, "stride": 2, "ceil_mode": True},
    {"kernel_size": 2, "stride": 2, "padding": 1, "ceil_mode": True},
    {"kernel_size": (3, 2), "stride": 1},
)


def _convolved(size: int, taps: int, step: int, pad: int, dilation: int) -> int:
    return (size + 2 * pad - dilation * (taps - 1) - 1) // step + 1


def windows() -> Iterator[OpCase]:
    """The convolutions with their two gradients, and the pools, as cases."""
    for x, weight, options in CONVOLUTIONS:
        both = {name: (v, v) if isinstance(v := options.get(name, default), int) else v
                for name, default in (("stride", 1), ("padding", 0), ("dilation", 1))}  # fmt: skip
        size = [
            _convolved(x[2 + i], weight[2 + i], both["stride"][i], both["padding"][i], both["dilation"][i])
            for i in (0, 1)
        ]
        y = (x[0], weight[0], *size)
        yield "conv2d", options, (normal(*x), normal(*weight), normal(weight[0])), 1
        yield "conv2d_input", options | {"shape": x}, (normal(*y), normal(*weight)), 0
        yield "conv2d_weight", options | {"shape": weight}, (normal(*y), normal(*x)), 0
    for options in POOLS:
        yield "max_pool2d", options, (apart(2, 3, 7, 6),), 1
        for counted in (True, False):
            yield "avg_pool2d", options | {"count_include_pad": counted}, (normal(2, 3, 7, 6),), 1


SIZES = (
    1,
    2,
    3,
    31,
    33,
    63,
    65,
    127,
    255,
    257,
    1023,
    1025,
    4097,
)  # around every power of two that a kernel may be cut at


def odd(*shape: int, specials: tuple[float, ...] = (np.nan, np.inf, -np.inf)) -> Maker:
    """Normal numbers, and in a row each NaN and both infinities, somewhere."""

    def make(rng: np.random.Generator) -> Array:
        values = rng.standard_normal(shape)
        rows = values.reshape(-1, shape[-1])
        for number, special in enumerate(specials):
            rows[(1 + 2 * number) % len(rows), int(rng.integers(shape[-1]))] = special
        return values

    return make


def stressing() -> Iterator[OpCase]:
    """Odd and long sizes, non-square and batched, NaN and infinities, for the ops whose kernels are cut into tiles."""
    for n in SIZES:
        yield "matmul", {}, (normal(3, n), normal(n, 2)), 0
        yield "matmul", {}, (normal(n, 5), normal(5, 3)), 0
        yield "matmul", {}, (normal(2, 7), normal(7, n)), 0
        yield "linear", {}, (normal(5, n), normal(3, n), normal(3)), 0
        yield "linear_weight", {}, (normal(n, 3), normal(n, 5)), 0
        yield "linear_relu_input", {}, (normal(5, 3), normal(3, n), normal(5, n)), 0
        yield "softmax", {"axis": 1}, (uniform(-8, 8, 2, n),), 0
        yield "log_softmax", {"axis": 0}, (uniform(-8, 8, n, 3),), 0
        yield "layer_norm", {"normalized_shape": (n,)}, (normal(2, n), normal(n), normal(n)), 0
        yield "gather", {}, (normal(n, 3), integers(n, 17)), 0
        yield "embedding_backward", {"shape": (n, 3)}, (normal(33, 3), integers(n, 33)), 0
        yield "cumsum", {}, (normal(2, n),), 0
        yield "sort", {}, (normal(2, n),), 0
        yield "concat", {"axis": 0}, (normal(n, 2), normal(3, 2)), 0
        yield "cross_entropy", {}, (normal(3, n), integers(n, 3)), 0
        yield "dropout", {"p": 0.4, **KEYS}, (normal(n, 1),), 0
        yield "random", {"kind": "bits", "shape": (n,), **KEYS}, (normal(1),), 0
    for m, k, n in ((65, 127, 17), (127, 65, 63), (1, 65, 127), (65, 17, 1)):
        yield "matmul", {}, (normal(m, k), normal(k, n)), 0
    yield "batch_norm", {}, (normal(33, 2, 65), normal(2), normal(2)), 0
    yield "batch_norm_relu", {}, (normal(65, 33), normal(33), normal(33)), 0
    yield "batch_norm_add_relu", {}, (normal(5, 12, 8, 4), normal(5, 12, 8, 4), normal(12), normal(12)), 0
    yield "conv2d", {"padding": 1}, (normal(1, 17, 9, 33), normal(33, 17, 3, 3), normal(33)), 0
    yield "matmul", {}, (normal(257, 129), normal(129, 65)), 0
    yield "matmul", {}, (normal(3, 65, 33), normal(3, 33, 17)), 0
    yield "matmul", {}, (odd(33, 65), normal(65, 17)), 0
    yield "matmul", {}, (normal(2, 17, 33), odd(2, 33, 5)), 0
    yield "linear", {}, (odd(17, 33), normal(5, 33), normal(5)), 0
    yield "softmax", {"axis": 1}, (odd(33, 65),), 0
    yield "log_softmax", {"axis": 1}, (odd(33, 65),), 0
    nan = odd(33, 65, specials=(np.nan,))  # the mean of an infinity is that, or NaN where it is found by differences
    yield "layer_norm", {"normalized_shape": (65,)}, (nan, normal(65), normal(65)), 0
    yield "cumsum", {}, (odd(5, 65),), 0
    yield "sort", {}, (odd(5, 65),), 0
    yield "concat", {"axis": 0}, (odd(5, 7), normal(3, 7)), 0
    yield "conv2d", {"padding": 1}, (odd(2, 5, 9, 11), normal(7, 5, 3, 3), normal(7)), 0
    yield "conv2d", {"stride": 2}, (normal(2, 5, 9, 11), odd(33, 5, 3, 3), None), 0
    yield "max_pool2d", {"kernel_size": 3, "padding": 1}, (odd(2, 3, 9, 11),), 0
    yield "avg_pool2d", {"kernel_size": 2}, (odd(2, 3, 9, 11),), 0
