"""Batch, layer and group normalization."""

from __future__ import annotations

import numpy as np
import pytest

import vtl_core as vtl
import vtl_nn as nn


def test_batch_norm_normalizes_with_the_biased_and_keeps_the_unbiased_variance():
    """D07: the column [1, 2, 4]; Σ of the gradient of x is 0."""
    layer, x = nn.BatchNorm1d(1), vtl.tensor([[1.0], [2.0], [4.0]], requires_grad=True)
    y = layer(x)
    (y * vtl.tensor([[1.0], [5.0], [2.0]])).sum().backward()

    np.testing.assert_allclose(layer.running_mean.numpy(), [0.2333333], rtol=1e-6)
    np.testing.assert_allclose(layer.running_var.numpy(), [1.1333333], rtol=1e-6)
    np.testing.assert_allclose(y.numpy()[:, 0], [-1.0690415, -0.2672612, 1.3363019], rtol=1e-5)
    np.testing.assert_allclose(
        nn.BatchNorm1d(1, eps=0.0)(x).numpy()[:, 0], [-1.0690450, -0.2672612, 1.3363062], rtol=1e-5
    )
    assert abs(x.grad.numpy().sum()) < 1e-6
    assert layer.num_batches_tracked.item() == 1


def test_batch_norm_of_one_image_counts_pixels():
    """D07: N = 1, 2x2 pixels 0..3."""
    layer = nn.BatchNorm2d(1)
    layer(vtl.tensor(np.arange(4.0, dtype=np.float32).reshape(1, 1, 2, 2)))

    np.testing.assert_allclose([layer.running_mean.item(), layer.running_var.item()], [0.15, 1.0666667], rtol=1e-6)


def test_momentum_none_averages_all_batches_alike():
    """D07."""
    layer = nn.BatchNorm1d(1, momentum=None)
    for batch in ([[0.0], [2.0]], [[4.0], [6.0]]):
        layer(vtl.tensor(batch))

    np.testing.assert_allclose([layer.running_mean.item(), layer.running_var.item()], [3, 2], rtol=1e-6)


def test_one_value_a_channel_cannot_train_but_can_be_evaluated():
    """D08: running statistics stay finite and untouched."""
    layer, x = nn.BatchNorm1d(3), vtl.tensor([[1.0, 2.0, 3.0]])
    with pytest.raises(ValueError, match=r"batch_norm: input \(1, 3\) has one value a channel"):
        layer(x)

    assert layer.running_var.tolist() == [1, 1, 1]
    assert layer.num_batches_tracked.item() == 0
    np.testing.assert_allclose(layer.eval()(x).numpy(), x.numpy(), rtol=1e-4)


def test_eval_uses_running_statistics_and_does_not_move_them(draw):
    layer = nn.BatchNorm2d(3, dtype=vtl.float64)
    for _ in range(4):
        layer(draw(5, 3, 4, 4) * 2 + 1)
    mean, variance, x = layer.running_mean.numpy().copy(), layer.running_var.numpy().copy(), draw(2, 3, 4, 4)

    y = layer.eval()(x)

    shape = (1, 3, 1, 1)
    np.testing.assert_allclose(
        y.numpy(), (x.numpy() - mean.reshape(shape)) / np.sqrt(variance.reshape(shape) + 1e-5), rtol=1e-12
    )
    np.testing.assert_array_equal(layer.running_mean.numpy(), mean)


def test_without_running_statistics_eval_uses_the_batch(draw):
    layer, x = nn.BatchNorm1d(2, track_running_stats=False, affine=False, dtype=vtl.float64), draw(6, 2)
    assert not list(layer.state_dict())
    np.testing.assert_array_equal(layer(x).numpy(), layer.eval()(x).numpy())


def test_running_statistics_remember_no_graph(draw):
    layer = nn.BatchNorm1d(2, dtype=vtl.float64)
    x = draw(6, 2, requires_grad=True)
    for _ in range(3):
        layer(x).square().sum().backward()

    assert layer.running_mean.node is None
    assert not layer.running_mean.requires_grad


@pytest.mark.parametrize(
    ("layer", "shape", "message"),
    [
        (nn.BatchNorm2d(3), (2, 3), r"BatchNorm2d: input \(2, 3\) must be \(N, C, H, W\) with 3 channels"),
        (nn.BatchNorm1d(3), (2, 3, 4, 4), r"must be \(N, C\) or \(N, C, L\) with 3 channels"),
        (nn.BatchNorm1d(3), (2, 4), "with 3 channels"),
        (nn.LayerNorm(3), (2, 4), r"layer_norm: normalized_shape \(3,\)"),
        (nn.GroupNorm(2, 4), (2, 6, 3), r"group_norm"),
    ],
)
def test_other_shapes_are_refused(layer, shape, message):
    with pytest.raises(vtl.ShapeError, match=message):
        layer(vtl.zeros(*shape))


def test_layer_norm_of_constant_and_extreme_rows():
    """D09: rounding is not amplified, eps dominates small rows, large rows are no NaN."""
    layer = nn.LayerNorm(4)
    x = vtl.full((2, 4), 3.0, requires_grad=True)
    y = layer(x)
    y.square().sum().backward()
    assert (y.numpy() == 0).all()
    assert (x.grad.numpy() == 0).all()
    tenths = nn.LayerNorm(7)(vtl.full((1, 7), 0.1))
    np.testing.assert_allclose(tenths.numpy(), 0, atol=1e-5)

    np.testing.assert_allclose(
        layer(vtl.tensor([[1.0, 2, 3, 4]])).numpy()[0], [-1.3416355, -0.4472118, 0.4472118, 1.3416355], rtol=1e-5
    )
    np.testing.assert_allclose(
        nn.LayerNorm(2)(vtl.tensor([[1e-4, 2e-4]])).numpy()[0], [-0.0158094, 0.0158094], rtol=1e-4
    )
    assert not np.isnan(nn.LayerNorm(2)(vtl.tensor([[1e30, -1e30]])).numpy()).any()


def test_layer_and_group_norm_are_their_formulas(draw):
    x = draw(3, 4, 5)
    layer = nn.LayerNorm((4, 5), dtype=vtl.float64)
    nn.init.uniform_(layer.weight)
    nn.init.uniform_(layer.bias)
    mean, variance = x.numpy().mean((1, 2), keepdims=True), x.numpy().var((1, 2), keepdims=True)
    expected = (x.numpy() - mean) / np.sqrt(variance + 1e-5) * layer.weight.numpy() + layer.bias.numpy()
    np.testing.assert_allclose(layer(x).numpy(), expected, rtol=1e-11, atol=1e-12)

    groups = nn.GroupNorm(2, 4, dtype=vtl.float64)
    flat = x.numpy().reshape(3, 2, 10)
    expected = ((flat - flat.mean(2, keepdims=True)) / np.sqrt(flat.var(2, keepdims=True) + 1e-5)).reshape(3, 4, 5)
    np.testing.assert_allclose(groups(x).numpy(), expected, rtol=1e-11, atol=1e-12)
    assert nn.LayerNorm(3, bias=False).bias is None
    assert nn.LayerNorm(3, elementwise_affine=False).weight is None


def test_groups_must_divide_channels():
    with pytest.raises(vtl.AttributeValueError, match="num_groups=3 must divide num_channels=4"):
        nn.GroupNorm(3, 4)


def test_rms_norm_of_integers_is_of_floats():
    """As layer_norm's: whole numbers become float32, with float32's eps."""
    y = nn.functional.rms_norm(vtl.tensor([[3, 4]]), (2,))
    assert y.dtype is vtl.float32
    np.testing.assert_allclose(y.numpy(), np.array([[3, 4]]) / np.sqrt(12.5), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_rms_norm_adds_the_eps_of_what_it_computes_in(dtype, device, draw):
    """Narrow numbers are squared and averaged in float32: rows of 0.001 stay rows of size 1, not eps's own 1e-3 or 1e-2."""
    x = vtl.tensor(draw(4, 8) * 1e-3, dtype=dtype, device=device)
    wide = x.numpy().astype(np.float64)
    expected = wide / np.sqrt(np.mean(wide**2, axis=1, keepdims=True) + 2.0**-23)
    for y in (nn.functional.rms_norm(x, (8,)), nn.RMSNorm(8, elementwise_affine=False)(x)):
        np.testing.assert_allclose(
            y.numpy().astype(np.float64), expected, rtol=0, atol=0.02 if dtype != "float32" else 1e-6
        )


@pytest.mark.parametrize("eps", [-1e-5, float("nan")])
@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda eps: nn.BatchNorm2d(2, eps=eps), (3, 2, 2, 2)),
        (lambda eps: nn.BatchNorm2d(2, eps=eps).eval(), (3, 2, 2, 2)),
        (lambda eps: nn.InstanceNorm1d(2, eps=eps), (3, 2, 4)),
        (lambda eps: nn.GroupNorm(1, 2, eps=eps), (3, 2)),
        (lambda eps: nn.LayerNorm(2, eps=eps), (3, 2)),
        (lambda eps: nn.RMSNorm(2, eps=eps), (3, 2)),
    ],
    ids=["batch", "evaluated", "instance", "group", "layer", "rms"],
)
def test_a_negative_eps_is_refused(device, make, shape, eps):
    """It would make the root of a small variance a NaN; 0 is allowed."""
    x = vtl.tensor(np.random.default_rng(0).normal(size=shape), dtype=vtl.float32, device=device)
    with pytest.raises(vtl.AttributeValueError, match=rf"_norm: eps={eps} must be at least 0"):
        make(eps).to(device)(x)
    assert np.isfinite(make(0.0).to(device)(x).numpy()).all()


class Counted:
    """How often each op is run by name."""

    def __init__(self, monkeypatch) -> None:
        self.ops, plain = [], vtl.apply
        monkeypatch.setattr(
            vtl, "apply", lambda op, *args, **options: self.ops.append(op) or plain(op, *args, **options)
        )


def one_by_one(block, x):
    """A block of ResNet by its layers."""
    y = block.bn2(block.conv2(block.bn1(block.conv1(x)).relu()))
    return (y + (x if block.downsample is None else block.downsample(x))).relu()


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluated"])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("tracked", [True, False], ids=["tracked", "untracked"])
def test_a_block_of_resnet_is_its_layers_one_by_one(draw, monkeypatch, stride, training, tracked):
    """Values, all gradients and running statistics, in float64; two ops where there were five."""
    block, other = (
        nn.models.resnet.BasicBlock(3, 3 * stride, stride).to(vtl.float64).train(training) for _ in range(2)
    )
    other.load_state_dict(block.state_dict())
    if not tracked:
        for layer in (block.bn1, block.bn2, other.bn1, other.bn2):
            layer.running_mean = layer.running_var = layer.num_batches_tracked = None
    x, found = draw(4, 3, 6, 6, requires_grad=True), []
    counted = Counted(monkeypatch)
    for run, model in ((block, block), (lambda x: one_by_one(other, x), other)):
        y = run(x)
        y.backward(y.detach() + 1)
        found.append(
            [
                y.numpy(),
                x.grad.numpy(),
                *(p.grad.numpy() for p in model.parameters()),
                *(b.numpy() for b in model.buffers()),
            ]
        )
        x.grad = None
    for together, apart in zip(*found, strict=True):
        np.testing.assert_allclose(together, apart, rtol=1e-11, atol=1e-12)
    mode = "" if training or not tracked else "_eval"
    assert [op for op in counted.ops if "relu" in op] == [f"batch_norm_relu{mode}", f"batch_norm_add_relu{mode}"]


def test_a_block_whose_layers_are_others_or_are_watched_runs_them(draw, monkeypatch):
    """Hooks see what batch normalization makes, and another layer in its place is asked."""
    block, x, seen = nn.models.resnet.BasicBlock(3, 3), draw(2, 3, 4, 4, dtype=vtl.float32), []
    plain = block(x).numpy()
    counted = Counted(monkeypatch)
    handle = block.bn2.register_forward_hook(lambda module, args, y: seen.append(y.numpy().min()))
    block.bn1 = nn.Identity()
    block(x)
    assert seen[0] < 0
    assert not any(op.startswith("batch_norm_") and op != "batch_norm_eval" for op in counted.ops)
    handle.remove()
    block.bn1 = nn.BatchNorm2d(3)
    np.testing.assert_allclose(block(x).numpy(), plain, rtol=1e-5, atol=1e-6)


def test_batch_norm_and_a_relu_in_sequence_are_one_op(draw, monkeypatch):
    counted = Counted(monkeypatch)
    x = draw(5, 3, dtype=vtl.float32)
    together = nn.Sequential(nn.BatchNorm1d(3), nn.ReLU())(x)
    assert counted.ops == ["batch_norm_relu"]
    np.testing.assert_allclose(together.numpy(), nn.BatchNorm1d(3)(x).relu().numpy(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_autocast_keeps_a_blocks_statistics_in_float32(draw, device, dtype):
    """Narrow images, float32 parameters, running statistics and gradients; a float32 shortcut too."""
    block = nn.models.resnet.BasicBlock(4, 4).to(device)
    x = draw(6, 4, 4, 4, dtype=vtl.float32).to(device).requires_grad_()
    with vtl.autocast(dtype):
        y = block(x)
    y.square().mean().backward()
    expected = one_by_one(block, x.detach())
    np.testing.assert_allclose(y.detach().numpy(), expected.detach().numpy(), rtol=0.1, atol=0.1)
    assert all(p.grad.dtype is vtl.float32 for p in block.parameters())
    assert x.grad.dtype is vtl.float32
    assert block.bn2.running_var.dtype is vtl.float32


def test_a_residual_of_another_shape_is_no_residual():
    x = vtl.ones(4, 3, 2)
    for training in (True, False):
        with pytest.raises(
            vtl.ShapeError, match=r"batch_norm_relu: residual \(4, 3, 1\) must have the input's shape, \(4, 3, 2\)"
        ):
            nn.functional.batch_norm_relu(x, vtl.zeros(3), vtl.ones(3), training=training, residual=vtl.ones(4, 3, 1))


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluated"])
@pytest.mark.parametrize(
    ("input", "residual"),
    [
        ("float32", "float64"),
        ("float16", "float64"),
        ("int64", "float16"),
        ("float32", "int32"),
        ("bfloat16", "float16"),
    ],
)
def test_a_residual_of_another_dtype_does_not_change_what_is_normalized(draw, device, input, residual, training):
    """As in relu(batch_norm(x) + residual): the same dtype, value and running statistics."""
    x, r = (vtl.tensor(draw(6, 3, 4).numpy() * 4, device=device).to(dtype=d) for d in (input, residual))
    found = []
    for together in (True, False):
        mean, variance = vtl.zeros(3, device=device), vtl.ones(3, device=device)
        if together:
            y = nn.functional.batch_norm_relu(x, mean, variance, training=training, residual=r)
        else:
            y = (nn.functional.batch_norm(x, mean, variance, training=training) + r).relu()
        found.append((y, mean, variance))
    room = 2e-5 if "float16" not in residual and "16" not in input else 0.05
    for one, other in zip(*found, strict=True):
        assert one.dtype is other.dtype
        np.testing.assert_allclose(
            one.numpy().astype(np.float64), other.numpy().astype(np.float64), rtol=room, atol=room
        )


@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize(("layer", "input"), [("float32", "float64"), ("float64", "float32"), ("float64", "float16")])
def test_running_statistics_keep_their_dtype_whatever_the_input_has(draw, device, momentum, layer, input):
    """A momentum, or None: an average of all batches, which is a tensor's."""
    norm = nn.BatchNorm1d(3, momentum=momentum, device=device, dtype=layer)
    x = vtl.tensor(draw(8, 3).numpy() + 2, dtype=input, device=device)
    norm(x)
    share, exact = 1 if momentum is None else momentum, x.numpy().astype(np.float64)
    assert norm.running_mean.dtype.name == norm.running_var.dtype.name == layer
    np.testing.assert_allclose(norm.running_mean.numpy(), share * exact.mean(0), rtol=1e-5)
    np.testing.assert_allclose(norm.running_var.numpy(), 1 - share + share * exact.var(0, ddof=1), rtol=1e-5)


def test_one_running_statistic_alone_is_moved_too(draw):
    x = draw(8, 3, 5, dtype=vtl.float32)
    for norm in (nn.functional.batch_norm, nn.functional.instance_norm):
        both, alone = ((vtl.zeros(3), vtl.ones(3)) for _ in range(2))
        norm(x, *both, None, None, True)
        norm(x, alone[0], None, None, None, True)
        norm(x, None, alone[1], None, None, True)
        for one, other in zip(alone, both, strict=True):
            np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_running_statistics_that_cannot_be_moved_are_refused_by_name(draw):
    x, momentum = draw(8, 3, 5, dtype=vtl.float32), vtl.tensor(0.5)
    for op in ("batch_norm", "instance_norm"):
        norm = getattr(nn.functional, op)
        with pytest.raises(vtl.ShapeError, match=rf"{op}: running_var \(2,\) does not fit input \(8, 3, 5\)"):
            norm(x, vtl.zeros(3), vtl.ones(2), None, None, True)
        with pytest.raises(vtl.DTypeError, match=rf"{op}: running_mean is int32; running statistics must be floating"):
            norm(x, vtl.zeros(3, dtype=vtl.int32), vtl.ones(3), None, None, True, momentum)


def test_instance_norm_of_no_samples_leaves_the_running_statistics(device):
    """D06: as batch norm of none does; their mean over no samples would be NaN for good."""
    for layer, shape in ((nn.InstanceNorm1d, (0, 3, 5)), (nn.InstanceNorm2d, (0, 3, 2, 2))):
        made = layer(3, affine=True, track_running_stats=True).to(device)
        y = made(vtl.zeros(*shape, device=device))
        y.sum().backward()
        assert y.shape == shape
        assert made.running_mean.tolist() == [0] * 3
        assert made.running_var.tolist() == [1] * 3
        assert made.weight.grad.tolist() == [0] * 3


@pytest.mark.parametrize(
    ("dtype", "size"), [("float32", 1e30), ("float32", 1e-30), ("float64", 1e200), ("float64", 1e-200)]
)
def test_rms_norm_of_extreme_rows_has_their_direction(dtype, size):
    """D09: squares of 1e30 leave float32, and their mean would divide everything to 0; so would 1e-30's to infinity."""
    rows = np.array([[1.0, -2, 3], [1, 1, 1]])
    x = vtl.tensor(rows * size, dtype=dtype, requires_grad=True)
    y = nn.functional.rms_norm(x, (3,), eps=0.0)
    (y * vtl.tensor([1.0, 2, 3], dtype=dtype)).sum().backward()

    root = np.sqrt(np.square(rows).mean(1, keepdims=True))
    np.testing.assert_allclose(y.numpy(), rows / root, rtol=2e-6)
    w = np.array([1.0, 2, 3])
    slope = w / root - rows * (w * rows).mean(1, keepdims=True) / root**3
    np.testing.assert_allclose(x.grad.numpy() * size, slope, rtol=2e-5, atol=2e-6)
