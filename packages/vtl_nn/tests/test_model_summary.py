"""summary: a model as a table of layers, shapes and parameters."""

from __future__ import annotations

import pytest

import vtl_core as vtl
import vtl_nn as nn


def test_summary_shows_layers_shapes_and_counts():
    model = nn.models.SimpleCNN()
    text = nn.summary(model, (3, 32, 32))

    assert "545,098 parameters, 545,098 trained" in text
    assert "7: Linear     (128,)           524,416" in text
    assert model.training
    assert "forward" not in vars(model[0])
    with pytest.raises(vtl.ShapeError, match="conv2d"):
        nn.summary(model, (1, 32, 32))
    assert "forward" not in vars(model[0])


def test_the_parameters_of_a_summarys_rows_add_up():
    """Those that a model or attention holds itself too, beside its parts."""

    class Block(nn.Module):
        def __init__(self):
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
            self.recurrent = nn.LSTM(8, 8, batch_first=True)
            self.scale = nn.Parameter(vtl.ones(8))

        def forward(self, x):
            return self.recurrent(self.attention(x, x, x)[0])[0] * self.scale

    model = Block()
    text = nn.summary(model, (5, 8))

    rows = text.split("\n")[2:-2]
    assert [row.split()[0] for row in rows] == ["attention.out_proj:", "attention:", "recurrent:", "(model):"]
    assert all("(5, 8)" in row for row in rows)
    assert sum(int(row.split()[-1].replace(",", "")) for row in rows) == sum(p.numel() for p in model.parameters())


def test_summary_leaves_a_forward_that_somebody_put_into_a_layer():
    """It notes shapes by a forward of its own, which must not cost the user's: not the table's layer, nor later calls."""
    model = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
    model[0].forward = lambda x: x[:, :1] * 0

    text = nn.summary(model, (3,))

    assert "0: Linear  (1,)" in text
    assert model(vtl.ones(2, 3)).tolist() == [[0.0], [0.0]]


@pytest.mark.parametrize(
    "model",
    [nn.models.LSTMClassifier(10, 4, 8, 2), nn.models.TransformerClassifier(10, 4)],
    ids=lambda m: type(m).__name__,
)
def test_summary_shows_models_of_tokens(model):
    assert "Embedding" in nn.summary(model, (7,), dtype=vtl.int64)
    with pytest.raises(vtl.DTypeError, match="embedding"):
        nn.summary(model, (7,))
