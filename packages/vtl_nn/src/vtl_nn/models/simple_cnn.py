"""SimpleCNN, what `vtl train` trains."""

from __future__ import annotations

from vtl_core import ShapeError
from vtl_core.arguments import explain
from vtl_nn.layers import Conv2d, Flatten, Linear, MaxPool2d, ReLU, Sequential


class SimpleCNN(Sequential):
    """Two convolutions and two linear layers: conv3x3(32)-relu-pool2-conv3x3(64)-relu-pool2-fc(128)-relu-fc.

    Shapes:  input (N, in_channels, image_size, image_size); result (N, num_classes), logits
    """

    def __init__(self, num_classes: int = 10, in_channels: int = 3, image_size: int = 32) -> None:
        side = image_size // 4
        if side < 1:
            raise ShapeError(f"SimpleCNN: image_size={image_size} must be at least 4, as it is halved twice")
        super().__init__(
            Conv2d(in_channels, 32, 3, padding=1),
            ReLU(),
            MaxPool2d(2),
            Conv2d(32, 64, 3, padding=1),
            ReLU(),
            MaxPool2d(2),
            Flatten(),
            Linear(64 * side * side, 128),
            ReLU(),
            Linear(128, num_classes),
        )


explain(globals(), whole=True)
