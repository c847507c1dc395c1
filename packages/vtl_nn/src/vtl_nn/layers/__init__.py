"""Layers, with PyTorch's names, arguments, defaults and initial weights."""

from vtl_nn.layers.activation import (
    ELU,
    GELU,
    SELU,
    Hardsigmoid,
    Hardswish,
    LeakyReLU,
    LogSigmoid,
    LogSoftmax,
    Mish,
    ReLU,
    ReLU6,
    Sigmoid,
    SiLU,
    Softmax,
    Softplus,
    Softsign,
    Tanh,
)
from vtl_nn.layers.containers import Builder, Sequential
from vtl_nn.layers.convolution import Conv2d
from vtl_nn.layers.dropout import Dropout
from vtl_nn.layers.embedding import Embedding
from vtl_nn.layers.linear import Identity, Linear
from vtl_nn.layers.normalization import BatchNorm1d, BatchNorm2d, GroupNorm, LayerNorm
from vtl_nn.layers.pooling import AdaptiveAvgPool2d, AvgPool2d, MaxPool2d
from vtl_nn.layers.shape import Flatten

__all__ = [
    "ELU",
    "GELU",
    "SELU",
    "AdaptiveAvgPool2d",
    "AvgPool2d",
    "BatchNorm1d",
    "BatchNorm2d",
    "Builder",
    "Conv2d",
    "Dropout",
    "Embedding",
    "Flatten",
    "GroupNorm",
    "Hardsigmoid",
    "Hardswish",
    "Identity",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "LogSigmoid",
    "LogSoftmax",
    "MaxPool2d",
    "Mish",
    "ReLU",
    "ReLU6",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softplus",
    "Softsign",
    "Tanh",
]
