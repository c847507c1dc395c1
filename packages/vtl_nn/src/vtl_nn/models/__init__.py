"""Models by name."""

from vtl_nn.models.airbench import AirbenchNet
from vtl_nn.models.resnet import ResNet, resnet18, resnet34
from vtl_nn.models.simple_cnn import SimpleCNN
from vtl_nn.models.text import LSTMClassifier, TransformerClassifier
from vtl_nn.models.vgg import VGG, vgg11

__all__ = [
    "VGG",
    "AirbenchNet",
    "LSTMClassifier",
    "ResNet",
    "SimpleCNN",
    "TransformerClassifier",
    "resnet18",
    "resnet34",
    "vgg11",
]
