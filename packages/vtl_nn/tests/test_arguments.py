"""What is given in a tensor's or a size's place: every function says what it got, or takes it as what it means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vtl_core as vtl
import vtl_nn as nn

F = nn.functional
random = np.random.default_rng(11)


def drawn(*shape: int) -> vtl.Tensor:
    return vtl.tensor(random.standard_normal(shape, dtype=np.float32))


IMAGES, SEQUENCES, ROWS = drawn(2, 4, 6, 6), drawn(2, 4, 6), drawn(4, 6)
SHARES, LABELS, SIGNS = drawn(4, 6).sigmoid(), vtl.tensor([0, 1, 2, 3]), vtl.tensor([1, -1, 1, 1])
VECTOR, FOUR = drawn(6), drawn(4)

# name -> a call that is right; each of its tensors, by place or by name, is then put aside for something else
CALLS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = {
    **{name: (getattr(F, name), (ROWS,), {}) for name in (
        "celu", "elu", "gelu", "glu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "log_softmax",
        "logsigmoid", "mish", "relu", "relu6", "selu", "sigmoid", "silu", "softmax", "softmin", "softplus", "softshrink",
        "softsign", "tanh", "tanhshrink", "dropout", "dropout2d",
    )},
    **{name: (getattr(F, name), (ROWS, SHARES), {}) for name in (
        "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "hinge_loss", "hinge_embedding_loss", "soft_margin_loss",
        "kl_div", "sigmoid_focal_loss", "cosine_similarity",
    )},
    **{f"{name}{n}d": (getattr(F, f"{name}{n}d"), (IMAGES if n == 2 else SEQUENCES, 2), {})
       for name in ("max_pool", "avg_pool", "adaptive_avg_pool") for n in (1, 2)},
    "threshold": (F.threshold, (ROWS, 0.1, 2.0), {}),
    "prelu": (F.prelu, (ROWS, VECTOR), {}),
    "linear": (F.linear, (ROWS, drawn(3, 6)), {"bias": drawn(3)}),
    "feed_forward": (F.feed_forward, (ROWS, drawn(3, 6), drawn(2, 3)), {"first_bias": drawn(3), "second_bias": drawn(2)}),
    "linear_relu": (F.linear_relu, (ROWS, drawn(3, 6)), {"bias": drawn(3)}),
    "conv1d": (F.conv1d, (SEQUENCES, drawn(3, 4, 3)), {"bias": drawn(3)}),
    "conv2d": (F.conv2d, (IMAGES, drawn(3, 4, 3, 3)), {"bias": drawn(3)}),
    "conv2d 'same'": (F.conv2d, (IMAGES, drawn(3, 4, 2, 3)), {"bias": drawn(3), "padding": "same"}),
    "conv2d_relu": (F.conv2d_relu, (IMAGES, drawn(3, 4, 3, 3)), {"bias": drawn(3)}),
    "conv2d_relu_max_pool2d": (
        F.conv2d_relu_max_pool2d, (IMAGES, drawn(3, 4, 3, 3)), {"bias": drawn(3), "padding": 1, "pool_size": 2},
    ),
    "conv_transpose1d": (F.conv_transpose1d, (SEQUENCES, drawn(4, 3, 3)), {"bias": drawn(3)}),
    "conv_transpose2d": (F.conv_transpose2d, (IMAGES, drawn(4, 3, 3, 3)), {"bias": drawn(3)}),
    "pad": (F.pad, (ROWS, (1, 1)), {}),
    "pad 'reflect'": (F.pad, (ROWS, (1, 1), "reflect"), {}),
    "batch_norm": (F.batch_norm, (IMAGES,), {"running_mean": vtl.zeros(4), "running_var": vtl.ones(4), "weight": FOUR, "training": True}),
    "batch_norm_relu": (
        F.batch_norm_relu, (IMAGES,), {"running_mean": vtl.zeros(4), "running_var": vtl.ones(4), "training": True, "residual": IMAGES},
    ),
    "instance_norm": (F.instance_norm, (IMAGES,), {"running_mean": vtl.zeros(4), "running_var": vtl.ones(4), "bias": FOUR}),
    "layer_norm": (F.layer_norm, (ROWS, (6,)), {"weight": VECTOR, "bias": VECTOR}),
    "rms_norm": (F.rms_norm, (ROWS, (6,)), {"weight": VECTOR}),
    "group_norm": (F.group_norm, (IMAGES, 2), {"weight": FOUR, "bias": FOUR}),
    "embedding": (F.embedding, (LABELS, ROWS), {}),
    "scaled_dot_product_attention": (F.scaled_dot_product_attention, (SEQUENCES, SEQUENCES, SEQUENCES), {}),
    "cross_entropy": (F.cross_entropy, (ROWS, LABELS), {"weight": VECTOR}),
    "nll_loss": (F.nll_loss, (ROWS, LABELS), {"weight": VECTOR}),
    "binary_cross_entropy": (F.binary_cross_entropy, (SHARES, SHARES), {"weight": VECTOR}),
    "binary_cross_entropy_with_logits": (F.binary_cross_entropy_with_logits, (ROWS, SHARES), {"weight": VECTOR, "pos_weight": VECTOR}),
    "margin_ranking_loss": (F.margin_ranking_loss, (FOUR, FOUR, FOUR), {}),
    "cosine_embedding_loss": (F.cosine_embedding_loss, (ROWS, ROWS, SIGNS), {}),
    "accuracy": (nn.metrics.accuracy, (ROWS, LABELS), {}),
    "mean_squared_error": (nn.metrics.mean_squared_error, (ROWS, SHARES), {}),
    "mean_absolute_error": (nn.metrics.mean_absolute_error, (ROWS, SHARES), {}),
    "mean_relative_error": (nn.metrics.mean_relative_error, (ROWS, SHARES), {}),
    "pack_padded_sequence": (nn.utils.rnn.pack_padded_sequence, (SEQUENCES, [2, 2, 2, 1]), {}),
    "get_total_norm": (nn.utils.get_total_norm, (ROWS,), {}),
    "clip_grad_norm_": (nn.utils.clip_grad_norm_, (ROWS, 1.0), {}),
    "clip_grad_value_": (nn.utils.clip_grad_value_, (ROWS, 1.0), {}),
}  # fmt: skip


def test_every_function_stands_in_the_table():
    named = {name.split()[0] for name in CALLS}

    assert set(F.__all__) - {"Size"} <= named


@pytest.mark.parametrize(
    "other", [lambda x: x.numpy(), lambda x: x.tolist(), lambda x: "x"], ids=["array", "list", "text"]
)
@pytest.mark.parametrize("name", CALLS)
def test_what_is_no_tensor_is_refused_by_the_function_that_got_it(name, other):
    """A DataLoader yields NumPy arrays: who forgets vtl.asarray is told, and not that an array lacks a method."""
    function, places, named = CALLS[name]
    vtl.manual_seed(0)
    function(*places, **named)

    for place, value in enumerate(places):
        if isinstance(value, vtl.Tensor):
            with pytest.raises(vtl.DTypeError, match=r"vtl\.asarray"):
                function(*places[:place], other(value), *places[place + 1 :], **named)
    for key, value in named.items():
        if isinstance(value, vtl.Tensor):
            with pytest.raises(vtl.DTypeError, match=r"vtl\.asarray"):
                function(*places, **{**named, key: other(value)})


WINDOWED: dict[str, tuple[Callable[..., Any], tuple[str, ...], int]] = {
    "conv1d": (lambda **o: F.conv1d(SEQUENCES, drawn(3, 4, 3), **o), ("stride", "padding", "dilation"), 1),
    "conv2d": (lambda **o: F.conv2d(IMAGES, drawn(3, 4, 3, 3), **o), ("stride", "padding", "dilation"), 2),
    "conv_transpose1d": (lambda **o: F.conv_transpose1d(SEQUENCES, drawn(4, 3, 3), **o), ("stride", "padding", "dilation", "output_padding"), 1),
    "conv_transpose2d": (lambda **o: F.conv_transpose2d(IMAGES, drawn(4, 3, 3, 3), **o), ("stride", "padding", "dilation", "output_padding"), 2),
    "max_pool1d": (lambda **o: F.max_pool1d(SEQUENCES, **{"kernel_size": 3} | o), ("kernel_size", "stride", "padding", "dilation"), 1),
    "max_pool2d": (lambda **o: F.max_pool2d(IMAGES, **{"kernel_size": 3} | o), ("kernel_size", "stride", "padding", "dilation"), 2),
    "avg_pool1d": (lambda **o: F.avg_pool1d(SEQUENCES, **{"kernel_size": 3} | o), ("kernel_size", "stride", "padding"), 1),
    "avg_pool2d": (lambda **o: F.avg_pool2d(IMAGES, **{"kernel_size": 3} | o), ("kernel_size", "stride", "padding"), 2),
    "Conv1d": (lambda **o: nn.Conv1d(4, 3, **{"kernel_size": 3} | o), ("kernel_size", "stride", "padding", "dilation"), 1),
    "Conv2d": (lambda **o: nn.Conv2d(4, 3, **{"kernel_size": 3} | o, padding_mode="reflect"), ("kernel_size", "stride", "padding", "dilation"), 2),
    "ConvTranspose2d": (lambda **o: nn.ConvTranspose2d(4, 3, **{"kernel_size": 3} | o), ("kernel_size", "stride", "padding", "dilation"), 2),
}  # fmt: skip


@pytest.mark.parametrize("wrong", [1.5, -1, (1, 2, 3), (), "one", True, None], ids=repr)
@pytest.mark.parametrize("name", WINDOWED)
def test_a_size_that_is_no_count_is_refused_by_name(name, wrong):
    function, options, axes = WINDOWED[name]

    for option in options:
        if wrong is None and option == "stride" and "pool" in name:
            continue  # a pool's stride is its kernel's size unless given
        with pytest.raises(vtl.AttributeValueError, match=f"{option}="):
            function(**{option: wrong if axes == 2 or wrong != (1, 2, 3) else (1, 2)})


@pytest.mark.parametrize("name", WINDOWED)
def test_a_size_of_numpy_is_a_size(name):
    """np.prod and array.shape arithmetic give np.int64, which is no int of Python's."""
    function, options, _ = WINDOWED[name]

    for option in set(options) - {"output_padding"}:
        ours, theirs = function(**{option: np.int64(1)}), function(**{option: 1})
        if isinstance(ours, vtl.Tensor):
            assert ours.shape == theirs.shape


def test_layers_take_sizes_of_numpy():
    assert nn.LayerNorm(np.int64(6))(ROWS).shape == nn.RMSNorm(np.int64(6))(ROWS).shape == (4, 6)
    assert nn.Conv2d(np.int64(4), np.int32(2), np.int64(3), groups=np.int64(2))(IMAGES).shape == (2, 2, 4, 4)
    assert nn.GroupNorm(np.int64(2), 4)(IMAGES).shape == nn.AdaptiveAvgPool2d(np.int64(6))(IMAGES).shape == (2, 4, 6, 6)


@pytest.mark.parametrize("widths", [(0, -7), (-7, 0), (-4, -3), (-7, 5), (5, -7)], ids=repr)
def test_a_padding_that_cuts_more_than_there_is_is_refused(widths):
    with pytest.raises(vtl.AttributeValueError, match="cuts more than axis 1"):
        F.pad(ROWS, widths)


def test_a_padding_may_cut_all_that_there_is_and_grow_again():
    np.testing.assert_array_equal(F.pad(ROWS, (-6, 2)).numpy(), np.zeros((4, 2), np.float32))
    assert F.pad(ROWS, (-2, -4)).shape == (4, 0)


@pytest.mark.parametrize("widths", [(1.5, 1), 1, ("1", 1), (1,)], ids=repr)
def test_a_padding_in_other_than_pairs_of_ints_is_refused(widths):
    with pytest.raises(vtl.AttributeValueError, match="two ints an axis"):
        F.pad(ROWS, widths)


@pytest.mark.parametrize("make", [lambda: nn.Linear(2.5, 3), lambda: nn.LayerNorm("ab"), lambda: vtl.zeros(2, 1.5)])
def test_a_size_of_a_weight_that_is_no_integer_is_refused(make):
    with pytest.raises(vtl.DTypeError, match="sizes must be integers"):
        make()


NUMBERED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "Dropout": (nn.Dropout, "p"), "dropout": (lambda v: F.dropout(ROWS, v), "p"), "dropout2d": (lambda v: F.dropout2d(IMAGES, v), "p"),
    "LSTM": (lambda v: nn.LSTM(3, 4, 2, dropout=v), "dropout"), "MultiheadAttention": (lambda v: nn.MultiheadAttention(6, 2, dropout=v), "dropout"),
    "scaled_dot_product_attention": (lambda v: F.scaled_dot_product_attention(SEQUENCES, SEQUENCES, SEQUENCES, dropout_p=v), "dropout_p"),
    "CrossEntropyLoss": (lambda v: nn.CrossEntropyLoss(label_smoothing=v), "label_smoothing"),
    "cross_entropy": (lambda v: F.cross_entropy(ROWS, LABELS, label_smoothing=v), "label_smoothing"),
    "SmoothL1Loss": (lambda v: nn.SmoothL1Loss(beta=v), "beta"), "smooth_l1_loss": (lambda v: F.smooth_l1_loss(ROWS, SHARES, beta=v), "beta"),
    "HuberLoss": (lambda v: nn.HuberLoss(delta=v), "delta"), "huber_loss": (lambda v: F.huber_loss(ROWS, SHARES, delta=v), "delta"),
    "sigmoid_focal_loss": (lambda v: F.sigmoid_focal_loss(ROWS, SHARES, gamma=v), "gamma"),
    "layer_norm": (lambda v: F.layer_norm(ROWS, (6,), eps=v), "eps"), "rms_norm": (lambda v: F.rms_norm(ROWS, (6,), eps=v), "eps"),
    "group_norm": (lambda v: F.group_norm(IMAGES, 2, eps=v), "eps"), "batch_norm": (lambda v: nn.BatchNorm2d(4, eps=v)(IMAGES), "eps"),
    "instance_norm": (lambda v: F.instance_norm(IMAGES, eps=v), "eps"),
    "cosine_similarity": (lambda v: F.cosine_similarity(ROWS, ROWS, eps=v), "eps"),
    "avg_pool2d": (lambda v: F.avg_pool2d(IMAGES, 2, divisor_override=v), "divisor_override"),
    "softplus": (lambda v: F.softplus(ROWS, beta=v), "beta"),
    "Softplus": (lambda v: nn.Softplus(beta=v), "beta"), "Softplus threshold": (lambda v: nn.Softplus(threshold=v), "threshold"),
    "hardtanh": (lambda v: F.hardtanh(ROWS, v, 2.0), "min_val"),
    "softshrink": (lambda v: F.softshrink(ROWS, v), "lambd"), "Embedding": (lambda v: nn.Embedding(5, 3, padding_idx=v), "padding_idx"),
    "clip_grad_norm_": (lambda v: nn.utils.clip_grad_norm_([drawn(2)], v), "max_norm"), "EMA": (lambda v: nn.EMA(nn.Linear(2, 2), v), "decay"),
    "clip_grad_value_": (lambda v: nn.utils.clip_grad_value_([drawn(2)], v), "clip_value"),
    "StepLR": (lambda v: nn.optim.lr_scheduler.StepLR(nn.optim.SGD([drawn(2)], lr=0.1), v), "step_size"),
    "CosineAnnealingLR": (lambda v: nn.optim.lr_scheduler.CosineAnnealingLR(nn.optim.SGD([drawn(2)], lr=0.1), v), "T_max"),
    "RMSprop": (lambda v: nn.optim.RMSprop([drawn(2)], alpha=v), "alpha"), "Adam": (lambda v: nn.optim.Adam([drawn(2)], eps=v), "eps"),
}  # fmt: skip


@pytest.mark.parametrize("wrong", ["0.5", [0.5], 1j], ids=repr)
@pytest.mark.parametrize("name", NUMBERED)
def test_an_option_that_is_no_number_is_refused_by_name(name, wrong):
    """Not by Python, whose message of `<=` names neither the function nor the option."""
    function, option = NUMBERED[name]

    with pytest.raises(vtl.AttributeValueError, match=f"{option}="):
        function(wrong)


@pytest.mark.parametrize(
    "name", sorted(NUMBERED.keys() - {"Embedding", "StepLR", "CosineAnnealingLR", "clip_grad_value_"})
)
def test_a_number_of_numpy_is_a_number(name):
    """A function gives the same as of Python's, an object keeps it."""
    function, option = NUMBERED[name]
    found = []
    for quarter in (0.25, np.float32(0.25)):
        vtl.manual_seed(0)
        made = function(quarter)
        if isinstance(made, nn.optim.Optimizer):
            found.append(made.param_groups[0][option])
        else:
            found.append(made.numpy() if isinstance(made, vtl.Tensor) else getattr(made, option))

    np.testing.assert_array_equal(found[1], found[0])


def test_a_bound_of_numpy_clips():
    weight = drawn(2)
    weight.grad = vtl.tensor([3.0, -0.5])
    nn.utils.clip_grad_value_([weight], np.float32(0.25))
    assert weight.grad.tolist() == [0.25, -0.25]


def test_a_mode_that_is_no_truth_value_and_a_state_that_is_no_dict_are_refused():
    """train(loader) would be train(True)."""
    model = nn.Linear(2, 2)
    for wrong in ("no", [1], 0, None):
        with pytest.raises(vtl.AttributeValueError, match=r"Linear\.train: mode="):
            model.train(wrong)
    for state in (None, [1], "weights"):
        with pytest.raises(nn.StateError, match="dict of tensors by name"):
            model.load_state_dict(state)


@pytest.mark.parametrize("size", [2**31, 2**40, 10**30])
@pytest.mark.parametrize(
    "name", ["AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "MaxPool1d", "MaxPool2d", "AvgPool1d", "AvgPool2d"]
)
def test_a_window_past_every_index_is_refused_at_once(name, size):
    """A stride of 2**63 was NumPy's error, and 2**40 adaptive windows were a loop without an end."""
    with pytest.raises(vtl.AttributeValueError, match=r"below 2\*\*31"):
        getattr(nn, name)(size)(IMAGES if "2d" in name else SEQUENCES)


@pytest.mark.parametrize("size", [(7, 9), (5, 13), (6, 40), (40, 6), (1, 2)], ids=repr)
def test_more_adaptive_windows_than_cells_average_what_they_cover(size):
    """With its gradient, which sums what each cell gave; PyTorch's windows."""
    image = vtl.tensor(random.standard_normal((2, 3, 5, 4)), requires_grad=True)
    covector = random.standard_normal((2, 3, *size))
    (h, w), (rows, columns) = image.shape[2:], size

    result = F.adaptive_avg_pool2d(image, size)
    (result * vtl.tensor(covector)).sum().backward()

    expected, gradient, host = np.empty(result.shape), np.zeros(image.shape), image.numpy()
    for i in range(rows):
        for j in range(columns):
            cells = np.s_[:, :, i * h // rows : -(-(i + 1) * h // rows), j * w // columns : -(-(j + 1) * w // columns)]
            expected[:, :, i, j] = host[cells].mean((2, 3))
            gradient[cells] += (covector[:, :, i, j] / host[cells][0, 0].size)[:, :, None, None]
    np.testing.assert_allclose(result.numpy(), expected, atol=1e-12)
    np.testing.assert_allclose(image.grad.numpy(), gradient, atol=1e-12)
