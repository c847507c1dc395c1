"""Classifiers of sequences of numbers, such as words: an LSTM, and a small Transformer."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import vtl_core as vtl
from vtl_core import ShapeError, Tensor
from vtl_core.arguments import explain
from vtl_nn.layers import (
    LSTM,
    Dropout,
    Embedding,
    LayerNorm,
    Linear,
    PositionalEncoding,
    TransformerEncoder,
    TransformerEncoderLayer,
)
from vtl_nn.module import Module
from vtl_nn.utils.rnn import pack_padded_sequence


def _two_axes(name: str, ids: Tensor) -> None:
    if ids.ndim != 2:
        raise ShapeError(f"{name}: ids {ids.shape} must be (N, L)")


class LSTMClassifier(Module):
    """Embedding, LSTM, and a linear layer on its last states; with `lengths` padding is left out.

    Shapes:  ids (N, L), integers below vocab_size; result (N, num_classes), logits
    """

    def __init__(
        self,
        vocab_size: int,
        num_classes: int,
        embed_dim: int = 128,
        hidden_size: int = 128,
        num_layers: int = 1,
        bidirectional: bool = True,
        dropout: float = 0.0,
        padding_idx: int | None = 0,
    ) -> None:
        self.embedding = Embedding(vocab_size, embed_dim, padding_idx)
        between = dropout if num_layers > 1 else 0.0
        self.lstm = LSTM(
            embed_dim, hidden_size, num_layers, batch_first=True, dropout=between, bidirectional=bidirectional
        )
        self.dropout = Dropout(dropout)
        self.head = Linear(hidden_size * self.lstm.directions, num_classes)

    def forward(self, ids: Tensor, lengths: Sequence[int] | Tensor | None = None) -> Tensor:
        """Return the logits."""
        _two_axes("LSTMClassifier", ids)
        x = self.embedding(ids)
        if lengths is not None:
            x = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        _, (h, _) = self.lstm(x)
        ends = [h[k] for k in range(-self.lstm.directions, 0)]
        last = ends[0] if len(ends) == 1 else vtl.cat(ends, dim=1)
        return self.head(self.dropout(last))  # type: ignore[no-any-return]  # a layer's call is Any


class TransformerClassifier(Module):
    """Embedding with positions, an encoder, the mean over what is not padding, and a linear layer.

    Shapes:  ids (N, L), integers below vocab_size, L at most max_len; result (N, num_classes), logits
    Source:  Vaswani et al. 2017; normalized before each part, as Xiong et al. 2020
    """

    def __init__(
        self,
        vocab_size: int,
        num_classes: int,
        d_model: int = 128,
        nhead: int = 4,
        num_layers: int = 2,
        dim_feedforward: int = 256,
        dropout: float = 0.1,
        max_len: int = 512,
        padding_idx: int | None = 0,
    ) -> None:
        self.embedding = Embedding(vocab_size, d_model, padding_idx)
        self.positions = PositionalEncoding(d_model, max_len, dropout)
        layer = TransformerEncoderLayer(
            d_model, nhead, dim_feedforward, dropout, "gelu", batch_first=True, norm_first=True
        )
        self.encoder = TransformerEncoder(layer, num_layers, LayerNorm(d_model))
        self.head = Linear(d_model, num_classes)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the logits."""
        _two_axes("TransformerClassifier", ids)
        x = self.positions(self.embedding(ids) * sqrt(self.embedding.embedding_dim))
        padding = self.embedding.padding_idx
        if padding is None:
            return self.head(self.encoder(x).mean(1))  # type: ignore[no-any-return]  # a layer's call is Any
        hidden = ids == padding
        y = self.encoder(x, src_key_padding_mask=hidden)
        there = (~hidden).to(y.dtype).unsqueeze(2)
        return self.head((y * there).sum(1) / there.sum(1).clamp(min=1.0))  # type: ignore[no-any-return]


explain(globals(), whole=True)
