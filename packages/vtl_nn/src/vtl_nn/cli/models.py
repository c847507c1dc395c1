"""The models that commands know by name, and which of them reads what a data set holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from vtl_nn import models
from vtl_nn.errors import TrainingError
from vtl_nn.module import Module

IMAGES: dict[str, Callable[[int], Module]] = {
    "cnn": models.SimpleCNN,
    "resnet18": models.resnet18,
    "resnet34": models.resnet34,
    "vgg11": models.vgg11,
    "airbench": models.AirbenchNet,
}
TEXTS = {"lstm": models.LSTMClassifier, "transformer": models.TransformerClassifier}
WHITENED = 5_000  # images whose patches the airbench net's first convolution is made from


def make(name: str, dataset: str, classes: int, images: Any = None) -> Module:
    """A fresh model on the host for images of so many classes; `images`, the training set, is what some look at beforehand.

    Errors:  TrainingError if the model reads token ids: no data set of these commands has any
    """
    if name in TEXTS:
        raise TrainingError(
            f"--model {name}: {TEXTS[name].__name__} reads token ids, and {dataset} holds images; take one of {', '.join(IMAGES)}"
        )
    model = IMAGES[name](classes)
    if images is not None and isinstance(model, models.AirbenchNet):
        count = min(len(images), WHITENED)
        model.whiten(np.stack([np.asarray(images[i][0]) for i in range(count)]))
    return model
