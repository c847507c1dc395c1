"""A VGG for small images: convolutions in five stages, each ending in a pool, with batch normalization."""

from __future__ import annotations

from vtl_core import ShapeError, Tensor
from vtl_core.arguments import explain
from vtl_nn import init
from vtl_nn.layers import BatchNorm2d, Conv2d, Linear, MaxPool2d, ReLU, Sequential
from vtl_nn.module import Module

# channels of each convolution; "M" is a max pool. Configuration A of the paper.
VGG11: tuple[int | str, ...] = (64, "M", 128, "M", 256, 256, "M", 512, 512, "M", 512, 512, "M")


class VGG(Module):
    """3x3 convolutions with batch normalization, pools between them, one linear layer; names are torchvision's `features`.

    Shapes:  input (N, 3, H, W), H and W of at least 32; result (N, num_classes), logits
    Source:  Simonyan & Zisserman 2015, "Very deep convolutional networks", table 1
    """

    def __init__(self, plan: tuple[int | str, ...] = VGG11, num_classes: int = 10) -> None:
        layers: list[Module] = []
        channels = 3
        for width in plan:
            if isinstance(width, str):
                layers.append(MaxPool2d(2))
                continue
            layers += [Conv2d(channels, width, 3, padding=1, bias=False), BatchNorm2d(width), ReLU()]
            channels = width
        self.features = Sequential(*layers)
        self.classifier = Linear(channels, num_classes)
        for module in self.features:
            if isinstance(module, Conv2d):
                init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        y: Tensor = self.features(x)
        if min(y.shape[2:]) < 1:
            raise ShapeError(f"VGG: input {x.shape} is halved to nothing; give at least 32 x 32")
        return self.classifier(y.mean((2, 3)))  # type: ignore[no-any-return]  # a layer's call is Any


def vgg11(num_classes: int = 10) -> VGG:
    """VGG-11 with batch normalization."""
    return VGG(VGG11, num_classes)


explain(globals(), whole=True)
