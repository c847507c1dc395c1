"""Models by name."""

from vtl_nn.models.simple_cnn import SimpleCNN

__all__ = ["SimpleCNN"]
