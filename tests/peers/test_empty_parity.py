"""Arrays without elements: no samples, no positions, no channels; outputs, gradients and state are PyTorch's, or both refuse."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the families beside this file, which is no package

from differential import DENSE, OURS, THEIRS, Case, run

import vtl_core as vtl

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
FLAT, IMAGE = (0, 2, 6), (0, 2, 5, 5)
PAIRED = (
    "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div", "soft_margin_loss", "hinge_embedding_loss",
    "binary_cross_entropy_with_logits", "binary_cross_entropy",
)  # fmt: skip
LAYERS = [  # name, arguments, options, shape, training
    *((f"{name}{len(shape) - 2}d", arguments, options, shape, True)
      for shape in (FLAT, IMAGE)
      for name, arguments, options in (
          ("Conv", (2, 3, 3), {}), ("Conv", (2, 3, 3), {"padding": 1, "padding_mode": "reflect"}), ("ConvTranspose", (2, 3, 3), {}),
          ("MaxPool", (2,), {}), ("AvgPool", (2,), {}), ("AdaptiveAvgPool", (2,), {}), ("InstanceNorm", (2,), {}))),
    *((f"{name}{len(shape) - 2}d", (2,), {"track_running_stats": True}, shape, train)
      for shape in (FLAT, IMAGE) for name in ("BatchNorm", "InstanceNorm") for train in (True, False)),
    ("BatchNorm1d", (3,), {}, (0, 3), True), ("GroupNorm", (2, 2), {}, IMAGE, True),
    ("LayerNorm", (3,), {}, (2, 0, 3), True), ("RMSNorm", (3,), {}, (0, 3), True),
    ("Linear", (3, 2), {}, (0, 3), True), ("Linear", (3, 2), {}, (2, 0, 3), True), ("Linear", (0, 2), {}, (4, 0), True),
    ("Linear", (3, 0), {}, (4, 3), True), ("Dropout", (0.5,), {}, (0, 3), True), ("Dropout2d", (0.5,), {}, (0, 3, 2, 2), True),
    *((name, (3, 2), {}, (4, 0, 3), True) for name in ("RNN", "LSTM", "GRU")),
    *((name, (), {}, (0, 4), True) for name in ("ReLU", "GELU", "PReLU", "Softplus")),
    *((name, (1,), {}, (0, 4), True) for name in ("Softmax", "LogSoftmax", "GLU")),
    *((name, (1,), {}, (3, 0), True) for name in ("Softmax", "LogSoftmax")),
    ("Flatten", (), {}, (0, 2, 3), True), ("Flatten", (), {}, (2, 0, 3), True), ("Unflatten", (1, (2, -1)), {}, (0, 6), True),
    ("TransformerEncoderLayer", (4, 2, 3, 0.0), {}, (3, 0, 4), True),
]  # fmt: skip


def found(case, library, weights):
    """All that a library gives, at ones for weights and gradients."""
    dense = [DENSE] * len(case.arrays)
    return run(case, case.make(library), library, case.arrays, "float64", np.ones, weights, "cpu", dense, False)


def agree(text, make, *arrays, train=True):
    case = Case(text, make, arrays, train=train)
    made = make(THEIRS)
    state = made.state_dict() if hasattr(made, "state_dict") else {}
    weights = {name: np.ones(tuple(v.shape)) for name, v in state.items() if v.is_floating_point()}
    theirs, ours = found(case, THEIRS, weights), found(case, OURS, weights)
    assert ours.keys() == theirs.keys()
    for name, want in theirs.items():
        if (
            name.startswith("state running_") and np.isnan(want).all()
        ):  # PyTorch's InstanceNorm; ours stay, as BatchNorm's do
            want = np.full_like(want, 1.25 if name.endswith("var") else 1.0)
        if not name.endswith("num_batches_tracked"):  # nothing was seen of an empty batch; PyTorch counts it
            np.testing.assert_allclose(ours[name], want, rtol=1e-12, err_msg=name)


@pytest.mark.parametrize(("name", "arguments", "options", "shape", "train"), LAYERS, ids=str)
def test_layers_of_nothing_agree(name, arguments, options, shape, train):
    """D06: outputs without elements, and gradients of weights that are zeros, not None and not what memory held."""
    agree(name, lambda t: getattr(t.nn, name)(*arguments, **options), np.ones(shape), train=train)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses_of_nothing_agree(reduction):
    """Means are NaN, sums 0, losses without elements; so are gradients, never NaN."""
    nothing, labels = np.ones((0, 3)), np.zeros(0, np.int64)
    for name in PAIRED:
        agree(name, lambda t, name=name: lambda a, b: getattr(t.F, name)(a, b.detach(), reduction=reduction), nothing, nothing)  # fmt: skip
    for name in ("cross_entropy", "nll_loss"):
        make = lambda t, name=name: lambda x, y: getattr(t.F, name)(x, y, reduction=reduction)
        agree(name, make, nothing, labels)
        agree(name, make, np.ones((2, 3, 0)), np.zeros((2, 0), np.int64))
    agree("soft", lambda t: lambda x, y: t.F.cross_entropy(x, y.detach(), reduction=reduction), nothing, nothing)
    agree("ranking", lambda t: lambda a, b: t.F.margin_ranking_loss(a, b, b.detach(), reduction=reduction), np.ones(0), np.ones(0))  # fmt: skip
    three = (nothing, nothing, np.ones(0))
    agree("cosine", lambda t: lambda a, b, y: t.F.cosine_embedding_loss(a, b, y.detach(), reduction=reduction), *three)


def test_functions_of_nothing_agree():
    """Attention without samples, queries or keys; padding; embeddings of no index; similarity of vectors without elements."""
    for shapes in (((0, 3, 4), (0, 5, 4)), ((2, 0, 4), (2, 5, 4)), ((2, 3, 4), (2, 0, 4))):
        q, k = map(np.ones, shapes)
        agree("attention", lambda t: t.F.scaled_dot_product_attention, q, k, k)
    for mode in ("constant", "reflect", "replicate", "circular"):
        agree(mode, lambda t, mode=mode: lambda x: t.F.pad(x, (1, 1), mode=mode), np.ones((0, 2, 4)))
    for ids, padding in ((np.zeros((0, 3), np.int64), None), (np.zeros((2, 0), np.int64), 1)):
        agree("embedding", lambda t, padding=padding: t.nn.Embedding(4, 2, padding_idx=padding), ids)
    for shape in ((0, 3), (3, 0)):
        agree("similarity", lambda t: t.F.cosine_similarity, np.ones(shape), np.ones(shape))


@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU"])
def test_a_sequence_without_steps_is_refused_as_there(name):
    weights = {}
    with pytest.raises(RuntimeError, match="larger than 0"):
        found(Case(name, lambda t: getattr(t.nn, name)(3, 2), [np.ones((0, 2, 3))]), THEIRS, weights)
    with pytest.raises(vtl.ShapeError, match="L at least 1"):
        found(Case(name, lambda t: getattr(t.nn, name)(3, 2), [np.ones((0, 2, 3))]), OURS, weights)
