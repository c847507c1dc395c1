"""Layers: values, shapes, options, and what they refuse."""

from __future__ import annotations

from math import erf, log, sqrt

import numpy as np
import pytest

import vtl_core as vtl
import vtl_nn as nn

F = nn.functional


def test_linear_is_a_matrix_product(draw):
    layer, x = nn.Linear(4, 3, dtype=vtl.float64), draw(2, 5, 4)

    expected = x.numpy() @ layer.weight.numpy().T + layer.bias.numpy()
    np.testing.assert_allclose(layer(x).numpy(), expected, rtol=1e-13)
    assert nn.Linear(4, 3, bias=False).bias is None


def correlated(x, weight, bias, stride, padding, dilation, groups):
    """Cross-correlation by four loops, for one image batch."""
    (sh, sw), (ph, pw), (dh, dw) = stride, padding, dilation
    x = np.pad(x, ((0, 0), (0, 0), (ph, ph), (pw, pw)))
    n, _c, h, w = x.shape
    o, cg, p, q = weight.shape
    height, width = (h - dh * (p - 1) - 1) // sh + 1, (w - dw * (q - 1) - 1) // sw + 1
    y = np.zeros((n, o, height, width))
    for k in range(o):
        first = k // (o // groups) * cg
        for i in range(height):
            for j in range(width):
                window = x[:, first : first + cg, i * sh : i * sh + dh * p : dh, j * sw : j * sw + dw * q : dw]
                y[:, k, i, j] = (window * weight[k]).sum((1, 2, 3)) + bias[k]
    return y


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        ({}, ((1, 1), (0, 0), (1, 1), 1)),
        ({"stride": 2, "padding": 1}, ((2, 2), (1, 1), (1, 1), 1)),
        ({"stride": (1, 2), "padding": (2, 0), "dilation": (1, 2)}, ((1, 2), (2, 0), (1, 2), 1)),
        ({"groups": 2, "padding": 1}, ((1, 1), (1, 1), (1, 1), 2)),
        ({"padding": "valid", "stride": 2}, ((2, 2), (0, 0), (1, 1), 1)),
        ({"padding": "same"}, ((1, 1), (1, 1), (1, 1), 1)),
        ({"padding": "same", "dilation": 2}, ((1, 1), (2, 2), (2, 2), 1)),
    ],
)
def test_conv2d_options_agree_with_loops(draw, options, numbers):
    """C1: stride, padding, dilation and groups."""
    layer, x = nn.Conv2d(4, 6, 3, dtype=vtl.float64, **options), draw(2, 4, 7, 9)

    expected = correlated(x.numpy(), layer.weight.numpy(), layer.bias.numpy(), *numbers)
    np.testing.assert_allclose(layer(x).numpy(), expected, rtol=1e-11, atol=1e-12)


def test_same_padding_of_even_windows_goes_to_the_end():
    """PyTorch pads the odd cell at the end."""
    layer = nn.Conv2d(1, 1, (2, 4), padding="same", bias=False)
    nn.init.ones_(layer.weight)
    x = np.arange(12.0, dtype=np.float32).reshape(1, 1, 3, 4)

    got = layer(vtl.tensor(x)).numpy()

    padded = np.pad(x[0, 0], ((0, 1), (1, 2)))
    expected = [[padded[i : i + 2, j : j + 4].sum() for j in range(4)] for i in range(3)]
    np.testing.assert_array_equal(got[0, 0], expected)


def test_both_parameters_of_a_convolution_get_gradients(draw):
    """B14: weight and bias, against differences of the loss."""
    layer, x = nn.Conv2d(2, 3, 3, padding=1, dtype=vtl.float64), draw(2, 2, 5, 5)

    def loss():
        return (layer(x).sin() * 1.5).sum()

    loss().backward()
    for parameter in (layer.weight, layer.bias):
        place = (0,) * parameter.ndim
        values = []
        for step in (1e-6, -2e-6):
            with vtl.no_grad():
                parameter[place] = parameter[place] + step
            values.append(loss().item())
        assert parameter.grad.numpy()[place] == pytest.approx((values[0] - values[1]) / 2e-6, rel=1e-7)
        assert abs(parameter.grad.numpy()).max() > 0


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"padding_mode": "mirror"}, vtl.AttributeValueError, "padding_mode='mirror' must be one of"),
        ({"groups": 3}, vtl.AttributeValueError, "groups=3 must divide in_channels=4"),
        ({"kernel_size": (1, 2, 3)}, vtl.AttributeValueError, "kernel_size"),
        ({"kernel_size": 0}, vtl.AttributeValueError, "kernel_size=0 must be an int or two ints of at least 1"),
        ({"padding": "full"}, vtl.AttributeValueError, "padding='full' must be"),
        ({"padding": "same", "stride": 2}, vtl.AttributeValueError, "padding='same' is for stride 1"),
    ],
)
def test_conv2d_refuses(arguments, error, message):
    with pytest.raises(error, match=message):
        nn.Conv2d(4, 6, **({"kernel_size": 3} | arguments))


def test_mismatched_shapes_and_dtypes_name_the_op_and_the_values():
    with pytest.raises(vtl.ShapeError, match=r"linear: input \(2, 3\) and weight \(5, 4\)"):
        nn.Linear(4, 5)(vtl.zeros(2, 3))
    with pytest.raises(vtl.ShapeError, match=r"conv2d: input \(1, 3, 5, 5\) has 3 channels"):
        nn.Conv2d(4, 2, 3)(vtl.zeros(1, 3, 5, 5))
    with pytest.raises(vtl.ShapeError, match=r"conv2d: window \(3, 3\)"):
        nn.Conv2d(4, 2, 3)(vtl.zeros(1, 4, 2, 2))


X = [-200.0, -13.5, -1.0, 0.0, 1.0, 13.5, 200.0]
# A16 and A17: values from PyTorch 2.13, or derived
ACTIVATIONS = {
    nn.ReLU(): [0, 0, 0, 0, 1, 13.5, 200],
    nn.ReLU6(): [0, 0, 0, 0, 1, 6, 6],
    nn.LeakyReLU(): [-2, -0.135, -0.01, 0, 1, 13.5, 200],
    nn.LeakyReLU(0.5): [-100, -6.75, -0.5, 0, 1, 13.5, 200],
    nn.ELU(2.0): [-2, 2 * np.expm1(-13.5), 2 * np.expm1(-1), 0, 1, 13.5, 200],
    nn.SELU(): [
        -1.7580993408473766,
        1.7580993408473766 * np.expm1(-13.5),
        1.7580993408473766 * np.expm1(-1),
        0,
        1.0507009873554805,
        13.5 * 1.0507009873554805,
        210.1401974710961,
    ],
    nn.Sigmoid(): [0, 1.3709572e-6, 0.26894143, 0.5, 0.73105860, 0.99999857, 1],
    nn.LogSigmoid(): [-200, -13.500001, -1.3132616, -log(2), -0.31326169, -1.3709582e-6, 0],
    nn.Tanh(): [-1, -1, -0.76159418, 0, 0.76159418, 1, 1],
    nn.GELU(): [0, 0, -0.5 * (1 + erf(-1 / sqrt(2))), 0, 0.8413447461, 13.5, 200],
    nn.GELU("tanh"): [0, 0, -(1 - 0.8411919906), 0, 0.8411919906, 13.5, 200],
    nn.SiLU(): [0, -1.8507923e-5, -0.26894143, 0, 0.73105860, 13.499981, 200],
    nn.Mish(): [0, -13.5 * np.tanh(1.3709582e-6), -np.tanh(0.31326169), 0, np.tanh(1.3132616), 13.5, 200],
    nn.Softplus(): [0, 1.3709582e-6, 0.31326169, log(2), 1.3132616, 13.500001, 200],
    nn.Softplus(2.0): [
        0,
        np.log1p(np.exp(-27)) / 2,
        np.log1p(np.exp(-2)) / 2,
        log(2) / 2,
        1 + np.log1p(np.exp(-2)) / 2,
        13.5,
        200,
    ],
    nn.Softsign(): [-200 / 201, -13.5 / 14.5, -0.5, 0, 0.5, 13.5 / 14.5, 200 / 201],
    nn.Hardswish(): [0, 0, -1 / 3, 0, 2 / 3, 13.5, 200],
    nn.Hardsigmoid(): [0, 0, 1 / 3, 0.5, 2 / 3, 1, 1],
}


@pytest.mark.parametrize(
    ("layer", "expected"),
    list(ACTIVATIONS.items()),
    ids=lambda v: repr(v) if isinstance(v, nn.Module) else "",
)
def test_activations_are_right_at_the_ends_and_in_between(layer, expected):
    """A16, A17: saturation without NaN, forward and backward, and which GELU."""
    layer_x = vtl.tensor(X, requires_grad=True)
    y = layer(layer_x)
    y.sum().backward()

    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-5, atol=1e-8)
    if repr(layer).startswith("GELU"):
        np.testing.assert_allclose(y.numpy()[2], expected[2], rtol=1e-5)
    assert np.isfinite(layer_x.grad.numpy()).all()
    if isinstance(layer, nn.Tanh | nn.Sigmoid):
        np.testing.assert_array_equal(layer(vtl.tensor([-np.inf, np.inf])).numpy(), [expected[0], 1])


def test_the_two_gelus_differ_at_minus_three():
    """A17: told apart at x = -3, at 1e-3."""
    x = vtl.tensor([-3.0, 2.0])
    np.testing.assert_allclose(nn.GELU()(x).numpy(), [-0.0040496941, 1.9544997361], rtol=1e-4)
    np.testing.assert_allclose(nn.GELU("tanh")(x).numpy(), [-0.0036373921, 1.9545976941], rtol=1e-4)
    with pytest.raises(vtl.AttributeValueError, match="approximate='quick'"):
        nn.GELU("quick")


def test_softmax_layers_work_along_any_axis(draw):
    x = draw(3, 4, 5)
    e = np.exp(x.numpy())
    np.testing.assert_allclose(nn.Softmax(1)(x).numpy(), e / e.sum(1, keepdims=True), rtol=1e-12)
    np.testing.assert_allclose(nn.LogSoftmax(-1)(x).numpy(), np.log(e / e.sum(-1, keepdims=True)), rtol=1e-11)
    with pytest.raises(vtl.AttributeValueError, match="axis=3"):
        nn.Softmax(3)(x)


def test_pooling_pads_with_nothing_and_counts_real_cells():
    """D01, D02: max pads with -inf, and the divisors of the average."""
    nine = vtl.tensor(np.arange(1.0, 10).reshape(1, 1, 3, 3))
    low = vtl.tensor([[[[-1.0, -2.0], [-3.0, -4.0]]]])

    assert nn.MaxPool2d(2, padding=1)(low).tolist() == low.tolist()
    assert nn.MaxPool2d(2, ceil_mode=True)(nine).tolist() == [[[[5, 6], [8, 9]]]]
    assert nn.AvgPool2d(2, padding=1)(nine).tolist() == [[[[0.25, 1.25], [2.75, 7]]]]
    assert nn.AvgPool2d(2, padding=1, count_include_pad=False)(nine).tolist() == [[[[1, 2.5], [5.5, 7]]]]
    assert nn.AvgPool2d(2, ceil_mode=True)(nine).tolist() == [[[[3, 4.5], [7.5, 9]]]]
    assert nn.AvgPool2d(2, divisor_override=2)(nine).tolist() == [[[[6]]]]
    with pytest.raises(vtl.AttributeValueError, match="avg_pool2d: divisor_override=0 must be a number other than 0"):
        nn.AvgPool2d(2, divisor_override=0)(nine)
    assert nn.MaxPool2d(2, stride=1)(nine).tolist() == [[[[5, 6], [8, 9]]]]
    assert nn.MaxPool2d(2).stride == 2
    with pytest.raises(vtl.AttributeValueError, match="padding"):
        nn.MaxPool2d(2, padding=2)(nine)


def test_sizes_may_be_lists_as_a_configuration_file_has_them(draw):
    x = draw(1, 2, 6, 7)
    lists = {"stride": [1, 1], "padding": "same", "dilation": [1, 2]}
    layer = nn.Conv2d(2, 3, [3, 4], **lists, dtype=vtl.float64)

    assert layer(x).shape == (1, 3, 6, 7)
    assert repr(layer) == "Conv2d(2, 3, kernel_size=(3, 4), stride=(1, 1), padding='same', dilation=(1, 2))"
    assert nn.functional.conv2d(x, layer.weight, **lists).shape == (1, 3, 6, 7)
    assert nn.MaxPool2d([2, 3], stride=[1, 2], padding=[1, 0])(x).shape == (1, 2, 7, 3)


def test_flatten_merges_the_axes_asked_for(draw):
    x = draw(2, 3, 4, 5)
    assert nn.Flatten()(x).shape == (2, 60)
    assert nn.Flatten(0, 1)(x).shape == (6, 4, 5)
    assert nn.Flatten(-2)(x).shape == (2, 3, 20)
    assert nn.Flatten()(vtl.zeros(0, 3, 4)).shape == (0, 12)
    with pytest.raises(vtl.AttributeValueError, match="start_dim=4"):
        nn.Flatten(4)(x)
    with pytest.raises(vtl.AttributeValueError, match="start_dim=2 comes after end_dim=1"):
        nn.Flatten(2, 1)(x)


def test_identity_takes_anything_and_returns_its_input(draw):
    x = draw(2)
    assert nn.Identity(3, mode="x")(x) is x


def test_layers_take_a_batch_of_none():
    """D06: shapes follow, gradients are zeros, running statistics stay."""
    linear, conv, norm = nn.Linear(3, 2), nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)
    y, z, n = linear(vtl.zeros(0, 3)), conv(vtl.zeros(0, 1, 5, 5)), norm(vtl.zeros(0, 2, 4, 4))
    (y.sum() + z.sum() + n.sum()).backward()

    assert (y.shape, z.shape, n.shape) == ((0, 2), (0, 2, 3, 3), (0, 2, 4, 4))
    assert linear.weight.grad.tolist() == [[0] * 3] * 2
    assert (conv.weight.grad.numpy() == 0).all()
    assert (norm.running_mean.tolist(), norm.running_var.tolist()) == ([0, 0], [1, 1])
    assert norm.num_batches_tracked.item() == 0
    labels = vtl.zeros(0, dtype=vtl.int64)
    assert np.isnan(F.cross_entropy(vtl.zeros(0, 3), labels).item())
    assert np.isnan(F.mse_loss(vtl.zeros(0, 3), vtl.zeros(0, 3)).item())


def test_embedding_skips_its_padding_and_adds_up_duplicates():
    """D11: ids [[1, 2, 2], [3, 1, 2]], padding 1; repeated so that there are more than 769 ids."""
    layer = nn.Embedding(4, 2, padding_idx=1)
    assert layer.weight.numpy()[1].tolist() == [0, 0]
    assert (layer.weight.numpy()[[0, 2, 3]] != 0).all()
    ids = vtl.tensor(np.tile([[1, 2, 2], [3, 1, 2]], (1, 200)))

    layer(ids).sum().backward()

    assert layer.weight.grad.tolist() == [[0, 0], [0, 0], [600, 600], [200, 200]]
    assert nn.Embedding(3, 2, padding_idx=-1).padding_idx == 2


@pytest.mark.parametrize("bad", [4, -1])
def test_an_embedding_index_out_of_range_is_named(bad):
    """D11."""
    here = rf"embedding: index {bad} is outside \[0, 4\), the 4 rows"
    on_a_device = rf"gather: index {bad} is outside an axis of size 4"  # which says so at the next read
    with pytest.raises(vtl.IndexRangeError, match=f"{here}|{on_a_device}"):
        nn.Embedding(4, 2)(vtl.tensor([0, bad, 2])).numpy()


def test_embedding_padding_out_of_range_is_refused():
    with pytest.raises(vtl.AttributeValueError, match="padding_idx=4"):
        nn.Embedding(4, 2, padding_idx=4)


def test_the_builder_infers_every_size():
    model = (
        nn.Sequential.from_context(vtl.Context(vtl.default_context().device))
        .input((3, 32, 32))
        .conv2d(8, 3, padding=1)
        .batchnorm()
        .relu()
        .maxpool2d(2)
        .conv2d(4, 5, stride=2)
        .flatten()
        .dropout(0.5)
        .linear(16)
        .layernorm()
        .gelu()
        .linear(10)
    )

    assert model.shape == (10,)
    assert model[1].num_batches_tracked.item() == 0
    assert model(vtl.zeros(2, 3, 32, 32)).shape == (2, 10)
    assert list(model.state_dict())[:2] == ["0.weight", "0.bias"]
    assert model[7].in_features == 4 * 6 * 6
    assert [type(layer).__name__ for layer in model][:4] == ["Conv2d", "BatchNorm2d", "ReLU", "MaxPool2d"]
    loss = nn.CrossEntropyLoss()(model(vtl.randn(4, 3, 32, 32)), vtl.tensor([0, 9, 3, 3]))
    loss.backward()
    assert 0 < loss.item() < 20
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize("name", ["maxpool2d", "avgpool2d"])
def test_the_builder_s_pooling_halves_unless_told_otherwise(name):
    """As VTL's chain has it: `.conv2d(...).relu().maxpool2d().flatten()`."""
    model = getattr(nn.Sequential.from_context(vtl.Context("cpu")).input((3, 8, 6)), name)()
    assert model.shape == (3, 4, 3)
    assert getattr(model, name)(3, stride=1).shape == (3, 2, 1)


def test_the_builder_says_what_it_lacks():
    context = vtl.Context("cpu")
    with pytest.raises(vtl.ShapeError, match=r"linear: the shape of its input is not known; call input\(shape\) first"):
        nn.Sequential.from_context(context).linear(3)
    with pytest.raises(vtl.ShapeError, match=r"conv2d: its input is \(8,\), and 3 axes are needed"):
        nn.Sequential.from_context(context).input((8,)).conv2d(3, 3)


@pytest.mark.parametrize(
    "name", ["relu", "leaky_relu", "elu", "selu", "sigmoid", "tanh", "gelu", "silu", "mish", "softmax", "log_softmax"]
)
def test_the_builder_has_the_activations(name):
    model = getattr(nn.Sequential.from_context(vtl.Context("cpu")).input((5,)), name)()
    assert model(vtl.ones(2, 5)).shape == (2, 5)
    assert type(model[0]).__name__.lower() == name.replace("_", "")


def test_simple_cnn_fits_other_images():
    assert nn.models.SimpleCNN(100, in_channels=1, image_size=28)(vtl.zeros(2, 1, 28, 28)).shape == (2, 100)
    with pytest.raises(vtl.ShapeError, match="image_size=3"):
        nn.models.SimpleCNN(image_size=3)


def test_global_average_pooling_is_the_mean_of_each_channel(draw):
    """C7: AdaptiveAvgPool2d(1), the builder's too; windows that share cells add up to the same mean where they divide."""
    x = vtl.tensor(draw(2, 3, 7, 5))
    np.testing.assert_allclose(nn.AdaptiveAvgPool2d(1)(x).numpy()[..., 0, 0], x.numpy().mean((2, 3)), rtol=1e-12)
    np.testing.assert_allclose(nn.AdaptiveAvgPool2d((7, None))(x).numpy(), x.numpy(), rtol=1e-12)
    with pytest.raises(vtl.AttributeValueError, match="output_size=0"):
        nn.AdaptiveAvgPool2d(0)(x)
    with pytest.raises(vtl.ShapeError, match="adaptive_avg_pool2d"):
        nn.AdaptiveAvgPool2d(1)(x[0, 0])


def test_sizes_and_indices_that_cannot_be_are_refused_by_the_layers_name():
    with pytest.raises(vtl.AttributeValueError, match=r"^Linear: out_features=-2 must be at least 0$"):
        nn.Linear(3, -2)
    with pytest.raises(
        vtl.DTypeError, match=r"^embedding: indices are float32; they must be integers: indices\.long\(\)$"
    ):
        nn.Embedding(3, 2)(vtl.tensor([1.0]))
