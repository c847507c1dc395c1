"""Random configurations of models' blocks, beside the same module written in PyTorch."""

from __future__ import annotations

from math import sqrt

import numpy as np
import torch
from differential import LOGSUM, Case
from families_layers import _int

import vtl_nn as nn

t = torch.nn
Rng = np.random.Generator


class BasicBlock(t.Module):
    """torchvision's, from He et al. 2016."""

    def __init__(self, inplanes, planes, stride):
        super().__init__()
        self.conv1, self.bn1 = t.Conv2d(inplanes, planes, 3, stride, 1, bias=False), t.BatchNorm2d(planes)
        self.conv2, self.bn2 = t.Conv2d(planes, planes, 3, 1, 1, bias=False), t.BatchNorm2d(planes)
        self.downsample = None
        if stride != 1 or inplanes != planes:
            self.downsample = t.Sequential(t.Conv2d(inplanes, planes, 1, stride, bias=False), t.BatchNorm2d(planes))

    def forward(self, x):
        y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        return (y + (x if self.downsample is None else self.downsample(x))).relu()


class ConvGroup(t.Module):
    """airbench's: conv, pool, norm, gelu, conv, norm, gelu."""

    def __init__(self, inplanes, planes):
        super().__init__()
        self.conv1, self.norm1 = t.Conv2d(inplanes, planes, 3, padding="same", bias=False), t.BatchNorm2d(planes, 1e-12, 0.4)  # fmt: skip
        self.conv2, self.norm2 = t.Conv2d(planes, planes, 3, padding="same", bias=False), t.BatchNorm2d(planes, 1e-12, 0.4)  # fmt: skip
        self.norm1.weight.requires_grad_(False)
        self.norm2.weight.requires_grad_(False)

    def forward(self, x):
        gelu = t.functional.gelu
        x = gelu(self.norm1(t.functional.max_pool2d(self.conv1(x), 2)))
        return gelu(self.norm2(self.conv2(x)))


class LSTMClassifier(t.Module):
    """Embedding, LSTM, a linear layer on the last states."""

    def __init__(self, words, classes, size, hidden, layers, both):
        super().__init__()
        self.embedding = t.Embedding(words, size, padding_idx=0)
        self.lstm = t.LSTM(size, hidden, layers, batch_first=True, bidirectional=both)
        self.head = t.Linear(hidden * (2 if both else 1), classes)

    def forward(self, ids, lengths=None):
        x = self.embedding(ids)
        if lengths is not None:
            x = t.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        _, (h, _) = self.lstm(x)
        return self.head(torch.cat([h[-2], h[-1]], 1) if self.lstm.bidirectional else h[-1])


class Positions(t.Module):
    """A table added to words; its sines have a test of their own, here it holds random numbers."""

    def __init__(self, length, size):
        super().__init__()
        self.register_buffer("pe", torch.zeros(length, size))

    def forward(self, x):
        return x + self.pe[: x.shape[1]]


class TransformerClassifier(t.Module):
    """Embedding with positions, an encoder, the mean over what is no padding, a linear layer."""

    def __init__(self, words, classes, size, heads, layers, wide, length):
        super().__init__()
        self.embedding, self.positions = t.Embedding(words, size, padding_idx=0), Positions(length, size)
        layer = t.TransformerEncoderLayer(size, heads, wide, 0.0, "gelu", batch_first=True, norm_first=True)
        self.encoder = t.TransformerEncoder(layer, layers, t.LayerNorm(size), enable_nested_tensor=False)
        self.head = t.Linear(size, classes)

    def forward(self, ids):
        x = self.positions(self.embedding(ids) * sqrt(self.embedding.embedding_dim))
        hidden = ids == 0
        y = self.encoder(x, src_key_padding_mask=hidden)
        there = (~hidden).to(y.dtype)[:, :, None]
        return self.head((y * there).sum(1) / there.sum(1))


class Tied(t.Module):
    """A table of words that is also the last layer's weight."""

    def __init__(self, words, size):
        super().__init__()
        self.table, self.out = t.Embedding(words, size), t.Linear(size, words)
        self.out.weight = self.table.weight

    def forward(self, ids):
        return self.out(self.table(ids).tanh())


class OurTied(nn.Module):
    """The same, here."""

    def __init__(self, words, size):
        self.table, self.out = nn.Embedding(words, size), nn.Linear(size, words)
        self.out.weight = self.table.weight

    def forward(self, ids):
        return self.out(self.table(ids).tanh())


def residual(rng: Rng) -> Case:
    """ResNet's block, with and without a projection; training and evaluation."""
    planes, train = _int(rng, 1, 4), bool(rng.random() < 0.6)
    inplanes, stride = planes if rng.random() < 0.5 else _int(rng, 1, 4), _int(rng, 1, 2)
    x = rng.normal(size=(_int(rng, 2, 4), inplanes, _int(rng, 4, 7), _int(rng, 4, 7)))
    make = lambda l: (nn.models.resnet.BasicBlock if l.name == "ours" else BasicBlock)(inplanes, planes, stride)
    return Case(f"BasicBlock({inplanes}, {planes}, {stride}) {train=} of {x.shape}", make, [x], train=train)


def whitened(rng: Rng) -> Case:
    """airbench's group."""
    inplanes, planes, train = _int(rng, 1, 4), _int(rng, 1, 4), bool(rng.random() < 0.6)
    x = rng.normal(size=(_int(rng, 2, 4), inplanes, _int(rng, 4, 7), _int(rng, 4, 7)))
    make = lambda l: (nn.models.airbench.ConvGroup if l.name == "ours" else ConvGroup)(inplanes, planes)
    return Case(f"ConvGroup({inplanes}, {planes}) {train=} of {x.shape}", make, [x], train=train)


def plain_network(rng: Rng) -> Case:
    """VGG's stages of random widths, through Sequential."""
    widths, train = [_int(rng, 1, 4) for _ in range(_int(rng, 1, 3))], bool(rng.random() < 0.6)
    side, classes = 2 ** len(widths) * _int(rng, 1, 2), _int(rng, 1, 4)

    def make(library):
        layers, channels = [], 3
        for width in widths:
            layers += [library.nn.Conv2d(channels, width, 3, padding=1, bias=False), library.nn.BatchNorm2d(width)]
            layers += [library.nn.ReLU(), library.nn.MaxPool2d(2)]
            channels = width
        pool = library.nn.AdaptiveAvgPool2d(1)
        return library.nn.Sequential(*layers, pool, library.nn.Flatten(), library.nn.Linear(channels, classes))

    x = rng.normal(size=(_int(rng, 2, 4), 3, side, side))
    return Case(f"VGG {widths} {train=} of {x.shape}", make, [x], train=train)


def sequence_classifier(rng: Rng) -> Case:
    """LSTM, packed or not, in one and two directions."""
    words, classes, size, hidden = _int(rng, 2, 9), _int(rng, 1, 4), _int(rng, 1, 4), _int(rng, 1, 4)
    layers, both, batch, length = _int(rng, 1, 2), bool(rng.random() < 0.5), _int(rng, 1, 4), _int(rng, 1, 6)
    ids = rng.integers(0, words, (batch, length))
    lengths = [int(n) for n in rng.integers(1, length + 1, batch)] if rng.random() < 0.5 else None

    def make(library):
        if library.name == "theirs":
            layer = LSTMClassifier(words, classes, size, hidden, layers, both)
        else:
            layer = nn.models.LSTMClassifier(words, classes, size, hidden, layers, both)
        plain = layer.forward
        layer.forward = lambda ids: plain(ids, lengths)
        return layer

    text = f"LSTMClassifier({words}, {classes}, {size}, {hidden}, {layers}, {both}) of {ids.shape}, {lengths=}"
    return Case(text, make, [ids])


def transformer(rng: Rng) -> Case:
    """The small classifier, one or two layers, with padding."""
    heads, words, classes = _int(rng, 1, 2), _int(rng, 3, 9), _int(rng, 1, 4)
    size, wide, layers = 2 * heads * _int(rng, 1, 2), _int(rng, 1, 6), _int(rng, 1, 2)
    ids = rng.integers(0, words, (_int(rng, 1, 3), _int(rng, 1, 5)))
    ids[:, 0] = 1

    def make(library):
        if library.name == "theirs":
            return TransformerClassifier(words, classes, size, heads, layers, wide, 8)
        return nn.models.TransformerClassifier(words, classes, size, heads, layers, wide, 0.0, 8)

    text = f"TransformerClassifier({words}, {classes}, {size}, {heads}, {layers}, {wide}) of {ids.tolist()}"
    return Case(text, make, [ids], tiled=LOGSUM)


def tied(rng: Rng) -> Case:
    """One weight in two layers: its gradient is the sum."""
    words, size = _int(rng, 2, 9), _int(rng, 1, 5)
    ids = rng.integers(0, words, tuple(_int(rng, 1, 5) for _ in range(_int(rng, 1, 2))))
    make = lambda l: (OurTied if l.name == "ours" else Tied)(words, size)
    return Case(f"tied ({words}, {size}) of {ids.shape}", make, [ids])


FAMILIES = (residual, whitened, plain_network, sequence_classifier, transformer, tied)
