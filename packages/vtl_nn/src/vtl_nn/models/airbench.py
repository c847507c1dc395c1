"""The network of airbench94, which learns CIFAR-10 to 94 % in seconds: whitened patches, three groups, no biases to speak of."""

from __future__ import annotations

from typing import Any

import numpy as np

import vtl_core as vtl
from vtl_core import ShapeError, Tensor
from vtl_core.arguments import explain
from vtl_nn import functional as F
from vtl_nn.layers import BatchNorm2d, Conv2d, Linear
from vtl_nn.module import Module

PATCH = 2  # side of the whitened patches
SCALE = 1 / 9  # of the logits


class ConvGroup(Module):
    """conv, pool, norm, gelu, conv, norm, gelu; convolutions start as the identity on their first channels (Zagoruyko 2017)."""

    def __init__(self, in_channels: int, out_channels: int, momentum: float = 0.4) -> None:
        self.conv1, self.norm1 = _conv(in_channels, out_channels), _norm(out_channels, momentum)
        self.conv2, self.norm2 = _conv(out_channels, out_channels), _norm(out_channels, momentum)

    def forward(self, x: Tensor) -> Tensor:
        """Return the group's output, of half the side."""
        x = F.gelu(self.norm1(F.max_pool2d(self.conv1(x), 2)))
        return F.gelu(self.norm2(self.conv2(x)))


def _conv(in_channels: int, out_channels: int) -> Conv2d:
    conv = Conv2d(in_channels, out_channels, 3, padding="same", bias=False)
    weight = np.array(conv.weight.numpy())
    for k in range(min(in_channels, out_channels)):
        weight[k] = 0
        weight[k, k, 1, 1] = 1
    with vtl.no_grad():
        conv.weight.copy_(vtl.tensor(weight))
    return conv


def _norm(channels: int, momentum: float) -> BatchNorm2d:
    norm = BatchNorm2d(channels, eps=1e-12, momentum=momentum)
    if norm.weight is not None:
        norm.weight.requires_grad = False  # the scale stays 1: gelu is nearly homogeneous
    return norm


class AirbenchNet(Module):
    """Whitening convolution, three groups of `widths`, a max pool, a linear layer; call `whiten(images)` before training.

    Shapes:  input (N, 3, 32, 32), normalized; result (N, num_classes), logits
    Source:  Jordan 2024, "94% on CIFAR-10 in 3.29 seconds on a single GPU", section 3
    """

    def __init__(self, num_classes: int = 10, widths: tuple[int, int, int] = (64, 256, 256)) -> None:
        first = 2 * 3 * PATCH**2
        self.whitening = Conv2d(3, first, PATCH)
        self.whitening.weight.requires_grad = False
        a, b, c = widths
        self.group1, self.group2, self.group3 = ConvGroup(first, a), ConvGroup(a, b), ConvGroup(b, c)
        self.head = Linear(c, num_classes, bias=False)

    def whiten(self, images: Any, eps: float = 5e-4) -> None:
        """Set the first convolution to the eigenvectors of the patches of `images` over the roots of their variances, and their negatives.

        Shapes:  images (N, 3, H, W), a tensor or an array; five thousand are plenty
        """
        array = np.asarray(images.numpy() if isinstance(images, Tensor) else images, np.float64)
        if array.ndim != 4 or array.shape[1] != 3:
            raise ShapeError(f"AirbenchNet.whiten: images {array.shape} must be (N, 3, H, W)")
        windows = np.lib.stride_tricks.sliding_window_view(array, (PATCH, PATCH), axis=(2, 3))
        patches = windows.transpose(0, 2, 3, 1, 4, 5).reshape(-1, 3 * PATCH**2)
        variances, vectors = np.linalg.eigh(patches.T @ patches / len(patches))
        filters = (vectors[:, ::-1] / np.sqrt(variances[::-1] + eps)).T.reshape(-1, 3, PATCH, PATCH)
        with vtl.no_grad():
            self.whitening.weight.copy_(vtl.tensor(np.concatenate([filters, -filters]).astype(np.float32)))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        x = F.gelu(self.whitening(x))
        x = F.max_pool2d(self.group3(self.group2(self.group1(x))), 3)
        return self.head(x.reshape(x.shape[0], -1)) * SCALE  # type: ignore[no-any-return]  # a layer's call is Any


explain(globals(), whole=True)
