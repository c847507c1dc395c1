"""What layers, losses and optimizers are given wrongly, on every backend: an error of ours in one line, or the value that is documented."""

from __future__ import annotations

import numpy as np
import pytest

import vtl_core as vtl
import vtl_nn as nn

F = nn.functional
RNG = np.random.default_rng(3)


@pytest.fixture
def on(device):
    """on(2, 3) is random numbers there, on([1, 2]) these numbers."""

    def make(*given, dtype=None):
        array = np.array(given[0]) if isinstance(given[0], list) else RNG.standard_normal(given).astype(np.float32)
        return vtl.tensor(array, dtype=dtype, device=device)

    return make


def layer(made, x):
    """A layer on the device of its input."""
    return made.to(x.device)(x)


SHAPES = {
    "linear: input": lambda on: layer(nn.Linear(3, 4), on(2, 5)),
    "conv2d: .* must have 4 axes": lambda on: F.conv2d(on(1, 1, 4, 4, 4), on(1, 1, 3, 3, 3)),
    "conv2d: window .* is larger than the input": lambda on: F.conv2d(on(1, 1, 4, 4), on(1, 1, 5, 5)),
    "conv2d: bias .* one a filter": lambda on: F.conv2d(on(1, 1, 4, 4), on(2, 1, 3, 3), on(3)),
    "conv2d: .* with groups=2 wants 2": lambda on: F.conv2d(on(1, 3, 4, 4), on(4, 1, 3, 3), groups=2),
    "max_pool2d: kernel .* is larger": lambda on: F.max_pool2d(on(1, 1, 2, 2), 3),
    "BatchNorm2d: input .* with 3 channels": lambda on: layer(nn.BatchNorm2d(3), on(2, 4, 3, 3)),
    "layer_norm: normalized_shape": lambda on: layer(nn.LayerNorm(5), on(2, 4)),
    r"LSTM: input .* must be \(L, N, 3\)": lambda on: layer(nn.LSTM(3, 4), on(5, 2, 4)),
    "attention: q .*, k .*, v": lambda on: F.scaled_dot_product_attention(on(2, 3, 4), on(2, 5, 4), on(2, 6, 4)),
    "mse_loss: input .* must have one shape": lambda on: F.mse_loss(on(3), on(4)),
    "binary_cross_entropy: input .* one shape": lambda on: F.binary_cross_entropy(on(3).sigmoid(), on(4).sigmoid()),
    "cross_entropy: logits .* and targets": lambda on: F.cross_entropy(on(3, 4), on([0, 1])),
    "accuracy: scores": lambda on: nn.metrics.accuracy(on(3, 4), on([0, 1])),
    # masks
    "attention: shapes .* do not broadcast": lambda on: F.scaled_dot_product_attention(
        on(2, 3, 4), on(2, 5, 4), on(2, 5, 4), attn_mask=on([[True] * 4] * 3)
    ),
    r"key_padding_mask \(2, 4\) must be \(2, 3\)": lambda on: nn.MultiheadAttention(4, 2, batch_first=True).to(on(1).device)(
        *[on(2, 3, 4)] * 3, key_padding_mask=on([[False] * 4] * 2)
    ),
    # lengths
    "one a sequence, from 1 to its steps": lambda on: nn.utils.rnn.pack_padded_sequence(on(4, 2, 3), [5, 1]),
    "one a sequence, from 1": lambda on: nn.utils.rnn.pack_padded_sequence(on(4, 2, 3), [4, 0]),
    "lengths .4. for an input": lambda on: nn.utils.rnn.pack_padded_sequence(on(4, 2, 3), [4]),
    # weights
    r"cross_entropy: weight \(5,\) must be \(4,\), one a class": lambda on: F.cross_entropy(on(3, 4), on([0, 1, 2]), on(5)),
    r"nll_loss: weight \(3,\) must be \(4,\)": lambda on: F.nll_loss(on(3, 4), on([0, 1, 2]), on(3)),
    r"pos_weight \(3,\) must broadcast": lambda on: F.binary_cross_entropy_with_logits(
        on(3, 2), on(3, 2).sigmoid(), pos_weight=on(3)
    ),
}  # fmt: skip


@pytest.mark.parametrize("words", SHAPES)
def test_wrong_shapes_masks_lengths_and_weights_are_named(on, words):
    with pytest.raises(vtl.ShapeError, match=words) as caught:
        SHAPES[words](on)
    assert "\n" not in str(caught.value)


GROUPS = {
    "Conv2d: groups=3 must divide in_channels=4 and out_channels=6": lambda: nn.Conv2d(4, 6, 3, groups=3),
    "Conv1d: groups=0 must divide": lambda: nn.Conv1d(4, 4, 3, groups=0),
    "ConvTranspose2d: groups=4 must divide": lambda: nn.ConvTranspose2d(4, 6, 3, groups=4),
    "GroupNorm: num_groups=3 must divide num_channels=4": lambda: nn.GroupNorm(3, 4),
    "num_heads=2 must divide embed_dim=5": lambda: nn.MultiheadAttention(5, 2),
}


@pytest.mark.parametrize("words", GROUPS)
def test_groups_that_do_not_divide_are_named(words):
    with pytest.raises(vtl.AttributeValueError, match=words):
        GROUPS[words]()


def test_group_norm_of_channels_that_do_not_divide_is_named(on):
    with pytest.raises(vtl.AttributeValueError, match="group_norm: num_groups=2 must divide the 5 channels"):
        F.group_norm(on(2, 5, 3), 2)


@pytest.mark.parametrize("wrong", ["a", 1.5, None, True], ids=repr)
def test_ignore_index_is_an_integer(on, wrong):
    for loss in (F.cross_entropy, F.nll_loss):
        with pytest.raises(vtl.AttributeValueError, match=f"ignore_index={wrong!r} must be an int"):
            loss(on(2, 4), on([1, 1]), ignore_index=wrong)


def test_what_is_ignored_may_lie_outside_the_classes_and_the_mean_of_nothing_is_nan(on):
    """As in PyTorch; sums of nothing are 0."""
    x = on(3, 4)
    kept = F.cross_entropy(x[:2], on([0, 3])).item()
    for ignored in (-100, 4, -1, 2**40):
        assert F.cross_entropy(x, on([0, 3, ignored]), ignore_index=ignored).item() == pytest.approx(kept, rel=1e-6)
    for loss in (F.cross_entropy, F.nll_loss):
        assert np.isnan(loss(x, on([-100] * 3)).item())
        assert loss(x, on([-100] * 3), reduction="sum").item() == 0


INDEXED = {
    "cross_entropy": lambda on, bad, dtype: F.cross_entropy(on(3, 4), on([0, bad, 3], dtype=dtype)),
    "cross_entropy of images": lambda on, bad, dtype: F.cross_entropy(on(1, 4, 3), on([[0, bad, 3]], dtype=dtype)),
    "nll_loss": lambda on, bad, dtype: F.nll_loss(on(3, 4), on([0, bad, 3], dtype=dtype)),
    "embedding": lambda on, bad, dtype: F.embedding(on([0, bad, 3], dtype=dtype), on(4, 2)).sum(),
}


@pytest.mark.parametrize("dtype", ["int64", "int32"])
@pytest.mark.parametrize("bad", [4, -1, -99])
@pytest.mark.parametrize("name", INDEXED)
def test_a_label_or_index_out_of_range_is_an_error_at_the_latest_when_it_is_read(on, name, bad, dtype):
    """With the number and the size; what comes after it is right again."""
    with pytest.raises(vtl.IndexRangeError, match=rf"(label|index) {bad} is outside .*4"):
        INDEXED[name](on, bad, dtype).item()
    assert np.isfinite(INDEXED[name](on, 1, dtype).item())


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_gradient_that_is_no_number_skips_the_step_that_is_scaled_and_is_no_step_that_is_clipped(on, value):
    """NaN gradients under clipping and scaling: weights stay, the scale falls, and the next step is an ordinary one."""
    p = on(3).requires_grad_()
    before = p.numpy().copy()
    optimizer, scaler = nn.optim.SGD([p], 0.5), nn.amp.GradScaler(p.device, init_scale=8.0)
    for clipped in (False, True):
        scaler.scale((p * on(3)).sum()).backward()
        p.grad = on([1.0, value, 2.0], dtype=vtl.float32)
        scaler.unscale_(optimizer)
        if clipped:
            nn.utils.clip_grad_value_([p], 1.0)
        if clipped and value == np.inf:  # an infinity was found before it was clipped
            assert np.isfinite(p.grad.numpy()).all()
        scaler.step(optimizer)
        scaler.update()
        np.testing.assert_array_equal(p.numpy(), before)
        optimizer.zero_grad()
    assert float(scaler.get_scale()) == 2.0
    scaler.scale((p * 1.0).sum()).backward()
    scaler.step(optimizer)
    np.testing.assert_allclose(p.numpy(), before - 0.5, rtol=1e-6)
