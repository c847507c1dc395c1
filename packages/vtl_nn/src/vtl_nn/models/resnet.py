"""ResNet-18 and 34, with torchvision's names, so that its weights load."""

from __future__ import annotations

from vtl_core import AttributeValueError, Tensor
from vtl_core.arguments import explain
from vtl_nn import init
from vtl_nn.layers import AdaptiveAvgPool2d, BatchNorm2d, Conv2d, Identity, Linear, MaxPool2d, Sequential
from vtl_nn.layers.normalization import rectified
from vtl_nn.module import Module

# first convolution: kernel, stride, padding; and whether a max pool follows
STEMS = {"cifar": (3, 1, 1, False), "imagenet": (7, 2, 3, True)}
WIDTHS = (64, 128, 256, 512)


class BasicBlock(Module):
    """relu(x + F(x)) with F two 3x3 convolutions, each followed by batch normalization (He et al. 2016, figure 5 left)."""

    def __init__(self, inplanes: int, planes: int, stride: int = 1) -> None:
        self.conv1 = Conv2d(inplanes, planes, 3, stride, 1, bias=False)
        self.bn1 = BatchNorm2d(planes)
        self.conv2 = Conv2d(planes, planes, 3, 1, 1, bias=False)
        self.bn2 = BatchNorm2d(planes)
        self.downsample = (
            None
            if stride == 1 and inplanes == planes
            else Sequential(Conv2d(inplanes, planes, 1, stride, bias=False), BatchNorm2d(planes))
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output."""
        y = self.conv2(rectified(self.bn1, self.conv1(x)))
        return rectified(self.bn2, y, x if self.downsample is None else self.downsample(x))


class ResNet(Module):
    """Deep residual network of `layers` blocks at each of four widths, the first block of a width halving the image.

    `stem` "cifar" starts with a 3x3 convolution for images of about 32 pixels, "imagenet" with 7x7, stride 2, and a
    max pool for about 224.

    Shapes:  input (N, 3, H, W); result (N, num_classes), logits
    Source:  He, Zhang, Ren & Sun 2016, "Deep residual learning for image recognition", table 1; 4.2 for the CIFAR stem
    """

    def __init__(
        self,
        layers: tuple[int, int, int, int],
        num_classes: int = 10,
        zero_init_residual: bool = False,
        stem: str = "cifar",
    ) -> None:
        if stem not in STEMS:
            raise AttributeValueError(f"ResNet: stem={stem!r} must be one of {', '.join(map(repr, STEMS))}")
        kernel, stride, padding, pooled = STEMS[stem]
        self.conv1 = Conv2d(3, WIDTHS[0], kernel, stride, padding, bias=False)
        self.bn1 = BatchNorm2d(WIDTHS[0])
        self.maxpool = MaxPool2d(3, 2, 1) if pooled else Identity()
        self.layer1, self.layer2, self.layer3, self.layer4 = (
            Sequential(*_blocks(inplanes, planes, count, stride))
            for inplanes, planes, count, stride in zip((WIDTHS[0], *WIDTHS), WIDTHS, layers, (1, 2, 2, 2), strict=False)
        )
        self.avgpool = AdaptiveAvgPool2d(1)
        self.fc = Linear(WIDTHS[-1], num_classes)
        self.reset_parameters(zero_init_residual)

    def reset_parameters(self, zero_init_residual: bool = False) -> None:
        """Draw convolutions by He et al. 2015; with `zero_init_residual` each block starts as its shortcut (Goyal et al. 2017)."""
        for module in self.modules():
            if isinstance(module, Conv2d):
                init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, BasicBlock) and zero_init_residual and module.bn2.weight is not None:
                init.zeros_(module.bn2.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        x = self.maxpool(rectified(self.bn1, self.conv1(x)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        x = self.avgpool(x)
        return self.fc(x.reshape((x.shape[0], WIDTHS[-1])))  # type: ignore[no-any-return]  # a layer's call is Any


def _blocks(inplanes: int, planes: int, count: int, stride: int) -> list[BasicBlock]:
    return [BasicBlock(planes if k else inplanes, planes, 1 if k else stride) for k in range(count)]


def resnet18(num_classes: int = 10, *, zero_init_residual: bool = False, stem: str = "cifar") -> ResNet:
    """ResNet-18: two blocks a width; `stem="imagenet"` and 1000 classes are torchvision's."""
    return ResNet((2, 2, 2, 2), num_classes, zero_init_residual, stem)


def resnet34(num_classes: int = 10, *, zero_init_residual: bool = False, stem: str = "cifar") -> ResNet:
    """ResNet-34: three, four, six and three blocks."""
    return ResNet((3, 4, 6, 3), num_classes, zero_init_residual, stem)


explain(globals(), whole=True)
