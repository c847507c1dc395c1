"""Gradients of every composite, primitive, reduction and shape gate, first and second, in float64."""

from __future__ import annotations

import numpy as np
import pytest

import vtl_core as vtl
from vsl_compute.ops.table import OPS
from vsl_compute.rows.reductions import REDUCTIONS

RNG = np.random.default_rng(7)


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape) + len(shape)).standard_normal(shape)


def distinct(*shape: int) -> np.ndarray:
    """Values far enough apart that no difference step changes their order."""
    n = int(np.prod(shape))
    return (np.random.default_rng(n).permutation(n) * 0.3 - n * 0.15).reshape(shape)


def op(name, **options):
    return lambda *xs: vtl.apply(name, *xs, **options)


KEY = {"key": (3, 0), "counter": (0, 0, 0, 0)}
LABELS = np.array([2, 0, -100, 1])
PIXELS = np.array([[[0, 2], [1, -100]], [[1, 1], [2, 0]]])
INDEX = np.array([[0, 2, 2], [1, 0, 2]])
POOLS = {"kernel_size": 3, "stride": 2, "padding": 1}
# op, and arrays: None stands for an argument left out
MASK = np.array([[True, False, True, True, True], [False, True, True, False, True], [True] * 5])
WEIGHT = np.array([0.5, 2.0, 1.25])
CASES = {
    "matmul": (op("matmul"), normal(3, 4), normal(4, 2)),
    "matmul, batches broadcast": (op("matmul"), normal(2, 1, 3, 4), normal(5, 4, 2)),
    "matmul, alpha": (op("matmul", alpha=0.5), normal(3, 4), normal(4, 2)),
    "copy": (op("copy"), normal(3, 4)),
    "contiguous": (lambda x: vtl.apply("contiguous", x.mT), normal(3, 4)),
    "astype": (op("astype", dtype="float64"), normal(3, 4)),
    "gather": (op("gather"), normal(3, 4), INDEX),
    "gather, batch": (op("gather", batch=1), normal(2, 3, 2), INDEX),
    "scatter": (op("scatter", shape=(4, 2)), normal(2, 3, 2), INDEX),
    "scatter, batch": (op("scatter", shape=(2, 3, 2), batch=1), normal(2, 3, 2), INDEX),
    "fold": (op("fold", shape=(2, 7), axes=(1,), steps=(2,), dilations=(2,)), normal(2, 2, 3)),
    "sort": (op("sort"), distinct(3, 5)),
    "cumsum": (op("cumsum"), normal(3, 5)),
    "linear": (op("linear"), normal(2, 3, 4), normal(5, 4), normal(5)),
    "linear, no bias": (op("linear"), normal(3, 4), normal(5, 4)),
    "linear_relu": (op("linear_relu"), normal(3, 4), normal(5, 4), normal(5)),
    "linear_relu, no bias": (op("linear_relu"), normal(2, 3, 4), normal(5, 4)),
    "linear_weight": (op("linear_weight"), normal(5, 3), normal(5, 4)),
    "linear_relu_input": (lambda g, w: vtl.apply("linear_relu_input", g, w, vtl.tensor(distinct(5, 4))), normal(5, 3), normal(3, 4)),
    "feed_forward": (lambda *xs: vtl.apply("feed_forward", *xs)[0], normal(5, 3), normal(4, 3), normal(2, 4), normal(4), normal(2)),
    "feed_forward, hidden": (op("feed_forward"), normal(2, 2, 3), normal(4, 3), normal(2, 4), normal(4), normal(2)),
    "feed_forward, no bias": (lambda *xs: vtl.apply("feed_forward", *xs)[0], normal(2, 3, 4), normal(5, 4), normal(3, 5)),
    "linear, strided": (lambda x, w: vtl.apply("linear", x.mT, w[::2]), normal(4, 3), normal(5, 4)),
    "pad": (op("pad", widths=[(1, 2), (0, 1)], value=3), normal(2, 3)),
    "slice_backward": (op("slice_backward", shape=(4, 5), index=(slice(1, 3), slice(None, None, 2))), normal(2, 3)),
    "conv2d": (op("conv2d"), normal(2, 3, 5, 4), normal(4, 3, 3, 2), normal(4)),
    "conv2d, stride, padding, dilation, groups": (
        op("conv2d", stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=2), normal(2, 4, 6, 5), normal(6, 2, 3, 2), normal(6),
    ),
    "conv2d, no bias": (op("conv2d", padding=1), normal(1, 2, 4, 4), normal(2, 2, 3, 3)),
    "conv2d_relu": (op("conv2d_relu", padding=1), normal(1, 2, 4, 4), normal(2, 2, 3, 3), normal(2)),
    "conv2d_relu_max_pool2d": (
        lambda *xs: vtl.apply("conv2d_relu_max_pool2d", *xs, padding=1, pool_size=2)[0],
        normal(2, 2, 5, 4), normal(3, 2, 3, 3), normal(3),
    ),
    "conv2d_relu_max_pool2d, overlapping, no bias": (
        lambda *xs: vtl.apply("conv2d_relu_max_pool2d", *xs, stride=(1, 2), groups=2, pool_size=3, pool_stride=1, pool_ceil=True)[0],
        normal(1, 4, 5, 9), normal(4, 2, 2, 1),
    ),
    "conv2d_input": (op("conv2d_input", shape=(2, 2, 5, 5), stride=2), normal(2, 3, 2, 2), normal(3, 2, 3, 3)),
    "conv2d_weight": (op("conv2d_weight", shape=(3, 2, 3, 3), stride=2), normal(2, 3, 2, 2), normal(2, 2, 5, 5)),
    "max_pool2d": (op("max_pool2d", **POOLS), distinct(2, 2, 5, 5)),
    "max_pool2d, dilation, ceil": (op("max_pool2d", kernel_size=2, stride=2, dilation=2, ceil_mode=True), distinct(1, 2, 6, 6)),
    "max_pool2d_backward": (
        lambda g, x: vtl.apply("max_pool2d_backward", g, vtl.apply("max_pool2d", x, **POOLS)[1], shape=(1, 2, 5, 5), **POOLS),
        normal(1, 2, 3, 3), distinct(1, 2, 5, 5),
    ),
    "max_pool2d_take": (
        lambda u, x: vtl.apply("max_pool2d_take", u, vtl.apply("max_pool2d", x, **POOLS)[1], **POOLS), normal(1, 2, 5, 5), distinct(1, 2, 5, 5),
    ),
    "avg_pool2d": (op("avg_pool2d", **POOLS), normal(2, 2, 5, 5)),
    "avg_pool2d, ceil, pad not counted": (
        op("avg_pool2d", kernel_size=2, stride=2, padding=1, ceil_mode=True, count_include_pad=False), normal(1, 2, 4, 4),
    ),
    "avg_pool2d_backward": (op("avg_pool2d_backward", shape=(2, 2, 5, 5), **POOLS), normal(2, 2, 3, 3)),
    "batch_norm": (lambda *xs: vtl.apply("batch_norm", *xs)[0], normal(4, 3, 2, 2), normal(3), normal(3)),
    "batch_norm, all outputs": (op("batch_norm"), normal(4, 3, 2), normal(3), normal(3)),
    "batch_norm, no affine": (lambda x: vtl.apply("batch_norm", x)[0], normal(5, 3)),
    "batch_norm_backward": (op("batch_norm_backward"), normal(4, 3), normal(4, 3) + 1, normal(3), np.abs(normal(3)) + 1, normal(3) + 2),
    "batch_norm_relu": (lambda *xs: vtl.apply("batch_norm_relu", *xs)[0], normal(4, 3, 2, 2), normal(3), normal(3)),
    "batch_norm_relu, all outputs": (op("batch_norm_relu"), normal(4, 3, 2), normal(3), normal(3)),
    "batch_norm_relu, no affine": (lambda x: vtl.apply("batch_norm_relu", x)[0], normal(5, 3)),
    "batch_norm_relu_backward": (
        lambda g, x, w: vtl.apply("batch_norm_relu_backward", g, x, MEAN, VARIANCE, w, MEAN), normal(4, 3), normal(4, 3) + 1, normal(3) + 2,
    ),
    "batch_norm_add_relu": (
        lambda *xs: vtl.apply("batch_norm_add_relu", *xs)[0], normal(4, 3, 2, 2), normal(4, 3, 2, 2), normal(3), normal(3),
    ),
    "batch_norm_add_relu, all outputs": (op("batch_norm_add_relu"), normal(4, 3, 2), normal(4, 3, 2), normal(3), normal(3)),
    "batch_norm_add_relu, no affine": (lambda *xs: vtl.apply("batch_norm_add_relu", *xs)[0], normal(5, 3), normal(5, 3)),
    "batch_norm_add_relu_backward": (
        lambda g, x, w: vtl.apply("batch_norm_add_relu_backward", g, SIGNS, x, MEAN, VARIANCE, w), normal(4, 3), normal(4, 3) + 1, normal(3) + 2,
    ),
    "batch_norm_eval": (lambda x, w, b: vtl.apply("batch_norm_eval", x, MEAN, VARIANCE, w, b), normal(4, 3, 2), normal(3), normal(3)),
    "batch_norm_relu_eval": (
        lambda x, w, b: vtl.apply("batch_norm_relu_eval", x, MEAN, VARIANCE, w, b), normal(4, 3, 2), normal(3), normal(3),
    ),
    "batch_norm_add_relu_eval": (
        lambda x, r, w, b: vtl.apply("batch_norm_add_relu_eval", x, r, MEAN, VARIANCE, w, b), normal(4, 3), normal(4, 3), normal(3), normal(3),
    ),
    "layer_norm": (lambda *xs: vtl.apply("layer_norm", *xs, normalized_shape=(3, 4))[0], normal(2, 3, 4), normal(3, 4), normal(3, 4)),
    "layer_norm, all outputs": (op("layer_norm", normalized_shape=(4,)), normal(2, 3, 4), normal(4), normal(4)),
    "layer_norm, no affine": (lambda x: vtl.apply("layer_norm", x, normalized_shape=(4,))[0], normal(3, 4)),
    "group_norm": (lambda *xs: vtl.apply("group_norm", *xs, num_groups=2)[0], normal(2, 4, 3), normal(4), normal(4)),
    "group_norm, all outputs": (op("group_norm", num_groups=2), normal(2, 4, 3, 2), normal(4), normal(4)),
    "softmax": (op("softmax", axis=1), normal(3, 4, 2)),
    "cross_entropy_rows": (
        lambda x, w: vtl.apply("cross_entropy_rows", x, vtl.tensor(np.array([[2], [1], [0]])), w, label_smoothing=0.25)[0],
        normal(3, 4), np.abs(normal(4)) + 0.5,
    ),
    "cross_entropy_input": (
        lambda g, x, count: vtl.apply("cross_entropy_input", g, x, vtl.tensor(np.array([[2], [1], [0]])), count, ignore_index=1),
        normal(3, 1), normal(3, 4), np.abs(normal(3, 1)) + 1,
    ),
    "counted_mean": (lambda x, count: vtl.apply("counted_mean", x, count)[0], normal(5), np.abs(normal(5)) + 1),
    "layer_norm_input": (op("layer_norm_input", normalized_shape=(3,)), normal(4, 3), normal(4, 3) + 1, normal(4, 1), np.abs(normal(4, 1)) + 1,
                         normal(3) + 2),
    "attention_shares": (lambda x: vtl.apply("attention_shares", x)[:2], normal(3, 4)),
    "softmax_backward": (op("softmax_backward", axis=0), normal(3, 4), normal(4, 3).T),
    "log_softmax": (op("log_softmax", axis=0), normal(3, 4)),
    "log_softmax_backward": (op("log_softmax_backward"), normal(3, 4), normal(4, 3).T),
    "cross_entropy": (lambda x: vtl.apply("cross_entropy", x, vtl.tensor(LABELS))[0], normal(4, 3)),
    "cross_entropy, none": (lambda x: vtl.apply("cross_entropy", x, vtl.tensor(PIXELS), reduction="none")[0], normal(2, 3, 2, 2)),
    "cross_entropy, sum": (lambda x: vtl.apply("cross_entropy", x, vtl.tensor(PIXELS), reduction="sum")[0], normal(2, 3, 2, 2)),
    "cross_entropy, its logsumexp": (lambda x: vtl.apply("cross_entropy", x, vtl.tensor(LABELS))[:2], normal(4, 3)),
    "cross_entropy_backward": (
        lambda g, x: vtl.apply("cross_entropy_backward", g, x, vtl.tensor(LABELS), vtl.tensor(3.0, dtype="float64")),
        normal(1)[0], normal(4, 3),
    ),
    "cross_entropy, smoothed": (
        lambda x: vtl.apply("cross_entropy", x, vtl.tensor(LABELS), vtl.tensor(WEIGHT), label_smoothing=0.3)[0], normal(4, 3)),
    "cross_entropy, smoothed alone": (lambda x: vtl.apply("cross_entropy", x, vtl.tensor(LABELS), label_smoothing=0.3)[0], normal(4, 3)),
    "soft_cross_entropy": (
        lambda x, t: vtl.apply("soft_cross_entropy", x, t, vtl.tensor(WEIGHT), label_smoothing=0.3), normal(4, 3), abs(normal(4, 3)) + 0.1),
    "nll_loss": (lambda x: vtl.apply("nll_loss", x, vtl.tensor(PIXELS), vtl.tensor(WEIGHT)), normal(2, 3, 2, 2)),
    "cosine_similarity": (op("cosine_similarity"), normal(3, 4), normal(4, 3).T),
    "attention": (lambda q, k, v: vtl.apply("attention", q, k, v, vtl.tensor(MASK), scale=0.7), normal(2, 3, 4), normal(5, 4), normal(2, 5, 3)),
    "attention, causal": (
        lambda q, k, v, m: vtl.apply("attention", q, k, v, m, causal=True)[0], normal(3, 4), normal(5, 4), normal(5, 3), normal(3, 5),
    ),
    "attention, dropout": (
        lambda q, k, v: vtl.apply("attention", q, k, v, dropout=0.4, key=(3, 0), counter=(1, 0, 0, 0))[0],
        normal(3, 4), normal(5, 4), normal(5, 3),
    ),
    "attention_weights": (lambda q, k: vtl.apply("attention_weights", q, k, vtl.tensor(normal(5, 3))), normal(3, 4), normal(5, 4)),
    "attention_backward": (
        lambda g, q, k, v: vtl.apply("attention_backward", g, q, k, v, *vtl.apply("attention", q, k, v, scale=0.5), scale=0.5),
        normal(3, 3), normal(3, 4), normal(5, 4), normal(5, 3),
    ),
    "attention_mask_backward": (
        lambda g, q, k, v: vtl.apply("attention_mask_backward", g, q, k, v, *vtl.apply("attention", q, k, v, scale=0.5), scale=0.5),
        normal(3, 3), normal(3, 4), normal(5, 4), normal(5, 3),
    ),
    "rnn_tanh": (op("rnn_tanh"), normal(3, 2, 4), normal(2, 4), normal(4, 4)),
    "rnn_relu": (op("rnn_relu", sizes=(2, 1, 1)), normal(3, 2, 4), normal(2, 4), normal(4, 4)),
    "lstm": (lambda *xs: vtl.apply("lstm", *xs)[:2], normal(3, 2, 12), normal(2, 3), normal(12, 3), normal(2, 3)),
    "lstm, ends": (lambda *xs: vtl.apply("lstm", *xs, sizes=(1, 2, 2))[:2], normal(3, 2, 12), normal(2, 3), normal(12, 3), normal(2, 3)),
    "rnn_tanh_backward": (op("rnn_tanh_backward", sizes=(2, 1)), normal(3, 2, 3), normal(3, 2, 3), normal(3, 3)),
    "rnn_relu_backward": (op("rnn_relu_backward", sizes=(2, 2)), normal(3, 2, 3), normal(3, 2, 3), normal(3, 3)),
    "lstm_backward": (
        op("lstm_backward", sizes=(2, 1)), normal(3, 2, 3), normal(3, 2, 3), normal(3, 2, 3), normal(2, 2, 12), normal(12, 3), normal(3, 2, 3),
        normal(2, 2, 12),
    ),
    "gru_backward": (
        op("gru_backward", sizes=(1, 2)), normal(3, 2, 3), normal(2, 2, 9), normal(3, 2, 3), normal(2, 2, 9), normal(9, 3), normal(2, 2, 9),
    ),
    "lstm, gates": (lambda *xs: vtl.apply("lstm", *xs, sizes=(1, 2, 2)), normal(3, 2, 12), normal(2, 3), normal(12, 3), normal(2, 3)),
    "gru, products": (lambda *xs: vtl.apply("gru", *xs, sizes=(2, 1, 1)), normal(3, 2, 9), normal(2, 3), normal(9, 3), normal(9)),
    "gru": (lambda *xs: vtl.apply("gru", *xs)[0], normal(3, 2, 9), normal(2, 3), normal(9, 3), normal(9)),
    "gru, ends": (lambda *xs: vtl.apply("gru", *xs, sizes=(2, 1, 1))[0], normal(3, 2, 9), normal(2, 3), normal(9, 3)),
    "rms_norm": (op("rms_norm", normalized_shape=(4,)), normal(3, 4), normal(4)),
    "mse_loss": (op("mse_loss"), normal(3, 4), normal(4, 3).T),
    "mse_loss, none": (op("mse_loss", reduction="none"), normal(3, 4), normal(4, 3).T),
    "embedding": (lambda w: vtl.apply("embedding", vtl.tensor(INDEX), w), normal(3, 4)),
    "embedding_backward": (lambda g: vtl.apply("embedding_backward", g, vtl.tensor(INDEX), shape=(3, 4), padding_idx=1), normal(2, 3, 4)),
    "dropout": (lambda x: vtl.apply("dropout", x, p=0.4, **KEY)[0], normal(4, 5)),
    "concat": (op("concat", axis=1), normal(2, 3), normal(2, 1), normal(2, 2)),
}  # fmt: skip
MEAN, VARIANCE = vtl.tensor(normal(3)), vtl.tensor(np.abs(normal(3)) + 0.5)
SIGNS = vtl.tensor(normal(4, 3))
REDUCED = {
    "sum": (lambda x, **k: x.sum(**k), normal),
    "mean": (lambda x, **k: x.mean(**k), normal),
    "prod": (lambda x, **k: x.prod(**k), normal),
    "max": (lambda x, **k: x.amax(**k), distinct),
    "min": (lambda x, **k: x.amin(**k), distinct),
    "moments": (lambda x, dim=None, keepdim=False: vtl.apply("moments", x, axes=dim, keepdims=keepdim), normal),
    "logsumexp": (lambda x, dim=None, keepdim=False: x.logsumexp(dim, keepdim), normal),
    "norm": (lambda x, dim=None, keepdim=False: vtl.apply("norm", x, axes=dim, keepdims=keepdim), normal),
    "var": (lambda x, **k: x.var(**k), normal),
    "std": (lambda x, **k: x.std(correction=0, **k), normal),
}
METHODS = {
    "max and index": (lambda x: x.max(1).values, distinct(3, 4, 2)),
    "min and index": (lambda x: x.min(-1, keepdim=True)[0], distinct(3, 4)),
    "cumsum": (lambda x: x.cumsum(0), normal(3, 4)),
    "sort": (lambda x: x.sort(0, descending=True).values, distinct(4, 3)),
    "reshape": (lambda x: x.reshape(4, -1), normal(2, 3, 4)),
    "reshape with a copy": (lambda x: x.mT.reshape(-1).exp(), normal(3, 4)),
    "permute": (lambda x: x.permute(2, 0, 1).exp(), normal(2, 3, 4)),
    "transpose": (lambda x: x.transpose(0, -1).sin(), normal(2, 3, 4)),
    "expand": (lambda x: x.expand(5, -1, 4).sin() * vtl.arange(20).reshape(5, 1, 4), normal(3, 1)),
    "slice": (lambda x: x[1, ::2, None, -1].exp(), normal(2, 5, 3)),
    "slice, backwards": (lambda x: x[::-1, 3:0:-2].exp(), normal(2, 5)),
    "slice, empty": (lambda x: (x[2:2].sum() + x.sum()).exp(), normal(3)),
    "window": (lambda x: x.window((1, 2), (2, 3), (2, 1), (1, 2)).exp(), normal(2, 5, 6)),
    "unfold": (lambda x: x.unfold(0, 3, 2).sin(), normal(7, 2)),
    "gather by integers": (lambda x: x[[0, 2, 2, -1]].exp(), normal(4, 3)),
    "stack": (lambda a, b: vtl.stack([a, b], axis=1).sin(), normal(2, 3), normal(3, 2).T),
    "split": (lambda x: x.split([1, 3], 1), normal(2, 4)),
    "squeeze and flatten": (lambda x: x.unsqueeze(1).squeeze(1).flatten().exp(), normal(2, 1, 3)),
    "matrix times vector": (lambda a, b: a @ b, normal(2, 3, 4), normal(4)),
    "vector times matrix": (lambda a, b: a @ b, normal(4), normal(3, 4, 2)),
    "vector times vector": (lambda a, b: a @ b, normal(4), normal(4) + 1),
    "clamp between tensors": (lambda x, a, b: x.clamp(a, b), distinct(3, 4), normal(4) - 1, normal(4) + 1),
    "to": (lambda x: x.to(vtl.float64).to("cpu"), normal(3)),
    "checkpoint": (lambda x, w: vtl.checkpoint(lambda x: ((x @ w).tanh(), x.exp()), x), normal(2, 3), normal(3, 2)),
}


CONSTANT = {"max_pool2d_backward", "max_pool2d_take"}  # in x: it gives the indices


@pytest.mark.parametrize("order", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", CASES)
def test_gradient_of_an_op_is_its_derivative(name, order):
    """Of the second order too, which is slow: a software device takes minutes for what the first has shown of its kernels."""
    function, *arrays = CASES[name]
    vtl.check_gradients(function, *arrays, order=order, allow_unused=name in CONSTANT)


def test_every_differentiable_op_has_a_case():
    covered = {name.partition(",")[0] for name in CASES}

    assert {o.name for o in OPS if o.backward or o.expands} <= covered


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize(
    "options", [{"dim": None}, {"dim": 1}, {"dim": (0, 2), "keepdim": True}, {"dim": (-1, 0)}], ids=str
)
@pytest.mark.parametrize("name", REDUCED)
def test_gradient_of_a_reduction_is_its_derivative(name, options, order):
    function, draw = REDUCED[name]
    for lay in (lambda x: x, lambda x: x.permute(2, 0, 1), lambda x: x[::-1, :, ::2]):
        vtl.check_gradients(lambda x, lay=lay: function(lay(x), **options), draw(2, 3, 4), order=order)


def test_every_differentiable_reduction_has_a_case():
    assert {r.name for r in REDUCTIONS if r.gradient} | {"prod", "moments"} <= set(REDUCED)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("zeros", [(), (1,), (1, 3), (0, 1, 2, 3)], ids=str)
@pytest.mark.parametrize("count", [1, 4, 5])
def test_gradient_of_a_product_is_exact_where_elements_are_zero(count, zeros, order):
    x = normal(2, count, 3)
    x[:, [z for z in zeros if z < count]] = 0

    vtl.check_gradients(lambda x: x.prod(1), x, order=order)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", METHODS)
def test_gradient_of_a_method_is_its_derivative(name, order):
    function, *arrays = METHODS[name]

    vtl.check_gradients(function, *arrays, order=order)


WEIGHTED = (
    "conv2d",
    "linear",
    "feed_forward",
    "batch_norm",
    "batch_norm_relu",
    "batch_norm_add_relu",
    "layer_norm",
    "group_norm",
    "matmul",
    "mse_loss",
)


@pytest.mark.parametrize(("name", "alone"), [(name, i) for name in WEIGHTED for i in range(len(CASES[name]) - 1)])
def test_gradient_of_one_argument_alone_is_the_same_as_among_all(name, alone):
    """G15: a backward pass for parameters only gives the parameter gradients of the full one."""
    function, *arrays = CASES[name]
    every = [vtl.tensor(a, requires_grad=True) for a in arrays]
    some = [vtl.tensor(a, requires_grad=i == alone) for i, a in enumerate(arrays)]
    function(*every).square().sum().backward()

    function(*some).square().sum().backward()

    for i, (a, b) in enumerate(zip(every, some, strict=True)):
        if i == alone:
            np.testing.assert_array_equal(a.grad.numpy(), b.grad.numpy())
        else:
            assert b.grad is None


def test_check_gradients_sees_a_wrong_factor_and_a_missing_sum():
    from vsl_compute.rows.row import row

    wrong = row("wrong_divide", "ff>f", "a / b", "g / b", "-g * a / (2 * b)")
    with pytest.raises(AssertionError, match="gradient of argument 1 is off"):
        vtl.check_gradients(lambda a, b: vtl.apply(wrong, a, b), normal(3, 4), normal(4) + 3)


@pytest.mark.parametrize("order", [1, 2])
def test_check_gradients_names_an_input_that_does_not_reach_the_result(order):
    """A layer that keeps its own weight, say: nothing would be checked of the one that is given."""
    x, w = np.ones(3), np.ones(3)
    with pytest.raises(vtl.GraphError, match=r"^check_gradients: input 2 of 2 does not reach the result"):
        vtl.check_gradients(lambda x, w: x.exp(), x, w, order=order)
    with pytest.raises(vtl.GraphError, match="input 1 of 1 does not reach"):
        vtl.check_gradients(lambda x: vtl.tensor(x.numpy()), x, order=order)
    vtl.check_gradients(lambda x, w: x.exp(), x, w, order=order, allow_unused=True)


def test_check_gradients_needs_a_float64_input():
    with pytest.raises(vtl.AttributeValueError, match="no input is float64"):
        vtl.check_gradients(lambda x: x, np.ones(3, np.float32))
    with pytest.raises(vtl.AttributeValueError, match="order=3"):
        vtl.check_gradients(lambda x: x, np.ones(3), order=3)


def test_what_states_no_gradient_says_so_instead_of_giving_zeros():
    """B07: of the same kind as a second derivative that is silently missing."""
    from dataclasses import replace

    from vsl_compute.ops.table import find
    from vsl_compute.rows.row import row

    x = vtl.ones(2, requires_grad=True)
    with pytest.raises(vtl.UnsupportedError, match="twice: the row states no gradients"):
        vtl.apply(row("twice", "f>f", "2 * x"), x)
    with pytest.raises(vtl.UnsupportedError, match="fixed: has no gradient"):
        vtl.apply(replace(find("contiguous"), name="fixed", backward=None), x)
    with pytest.raises(vtl.UnsupportedError, match="max_index: has no gradient"):
        vtl.apply("max_index", x)[0].backward()
    assert not vtl.apply("random", x, kind="uniform", **KEY).requires_grad
