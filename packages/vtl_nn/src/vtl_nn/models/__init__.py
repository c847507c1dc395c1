"""Models by name."""

from vtl_nn.models.resnet import ResNet, resnet18, resnet34
from vtl_nn.models.simple_cnn import SimpleCNN

__all__ = ["ResNet", "SimpleCNN", "resnet18", "resnet34"]
