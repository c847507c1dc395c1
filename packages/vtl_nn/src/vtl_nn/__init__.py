"""Neural networks that train on the GPU you have: layers, losses, optimizers, training loop and command line."""

from typing import TYPE_CHECKING, Any

from vtl_nn import _compat  # noqa: F401 - first: it refuses what does not fit

# isort: split
from vtl_nn import functional, init, optim
from vtl_nn._version import __version__
from vtl_nn.errors import FileFormatError, StateError, TrainingError
from vtl_nn.layers import (
    CELU,
    ELU,
    GELU,
    GLU,
    GRU,
    LSTM,
    RNN,
    SELU,
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AvgPool1d,
    AvgPool2d,
    BatchNorm1d,
    BatchNorm2d,
    Conv1d,
    Conv2d,
    ConvTranspose1d,
    ConvTranspose2d,
    Dropout,
    Dropout1d,
    Dropout2d,
    Embedding,
    Flatten,
    GroupNorm,
    Hardshrink,
    Hardsigmoid,
    Hardswish,
    Hardtanh,
    Identity,
    InstanceNorm1d,
    InstanceNorm2d,
    LayerNorm,
    LeakyReLU,
    Linear,
    LogSigmoid,
    LogSoftmax,
    MaxPool1d,
    MaxPool2d,
    Mish,
    ModuleDict,
    ModuleList,
    MultiheadAttention,
    PositionalEncoding,
    PReLU,
    ReLU,
    ReLU6,
    RMSNorm,
    Sequential,
    Sigmoid,
    SiLU,
    Softmax,
    Softmin,
    Softplus,
    Softshrink,
    Softsign,
    Tanh,
    Tanhshrink,
    Threshold,
    TransformerEncoder,
    TransformerEncoderLayer,
    Unflatten,
)
from vtl_nn.losses import (
    BCELoss,
    BCEWithLogitsLoss,
    CosineEmbeddingLoss,
    CosineSimilarity,
    CrossEntropyLoss,
    FocalLoss,
    HingeEmbeddingLoss,
    HingeLoss,
    HuberLoss,
    KLDivLoss,
    L1Loss,
    MarginRankingLoss,
    MSELoss,
    NLLLoss,
    SmoothL1Loss,
    SoftMarginLoss,
)
from vtl_nn.module import Buffer, Module, Parameter

if TYPE_CHECKING:
    from vtl_nn import amp, data, metrics, models, utils
    from vtl_nn.checkpoint import Checkpoint, Checkpointer
    from vtl_nn.ema import EMA
    from vtl_nn.model_summary import summary
    from vtl_nn.plotting import plot_history
    from vtl_nn.serialization import load, load_into, load_metadata, save
    from vtl_nn.training import Callback, Epoch, History, Result, Training, evaluate, fit

# what not every program needs is imported when it is first asked for: a sixth of the whole import
_LATER: dict[str, tuple[str, ...]] = {
    "amp": (),
    "metrics": (),
    "models": (),
    "utils": (),
    "checkpoint": ("Checkpoint", "Checkpointer"),
    "data": (),
    "ema": ("EMA",),
    "model_summary": ("summary",),
    "plotting": ("plot_history",),
    "serialization": ("load", "load_into", "load_metadata", "save"),
    "training": ("Callback", "Epoch", "History", "Result", "Training", "evaluate", "fit"),
}


if not TYPE_CHECKING:  # a checker would take any name for granted

    def __getattr__(name: str) -> Any:
        from importlib import import_module

        for module, names in _LATER.items():
            if name == module:
                return import_module(f"vtl_nn.{module}")
            if name in names:
                globals()[name] = found = getattr(import_module(f"vtl_nn.{module}"), name)
                return found
        from vtl_core.elsewhere import missing
        from vtl_nn.elsewhere import NAMES

        raise AttributeError(missing("module 'vtl_nn'", name, NAMES))


def __dir__() -> list[str]:
    return __all__


__all__ = [
    "CELU",
    "ELU",
    "EMA",
    "GELU",
    "GLU",
    "GRU",
    "LSTM",
    "RNN",
    "SELU",
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AvgPool1d",
    "AvgPool2d",
    "BCELoss",
    "BCEWithLogitsLoss",
    "BatchNorm1d",
    "BatchNorm2d",
    "Buffer",
    "Callback",
    "Checkpoint",
    "Checkpointer",
    "Conv1d",
    "Conv2d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "CosineEmbeddingLoss",
    "CosineSimilarity",
    "CrossEntropyLoss",
    "Dropout",
    "Dropout1d",
    "Dropout2d",
    "Embedding",
    "Epoch",
    "FileFormatError",
    "Flatten",
    "FocalLoss",
    "GroupNorm",
    "Hardshrink",
    "Hardsigmoid",
    "Hardswish",
    "Hardtanh",
    "HingeEmbeddingLoss",
    "HingeLoss",
    "History",
    "HuberLoss",
    "Identity",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "KLDivLoss",
    "L1Loss",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "LogSigmoid",
    "LogSoftmax",
    "MSELoss",
    "MarginRankingLoss",
    "MaxPool1d",
    "MaxPool2d",
    "Mish",
    "Module",
    "ModuleDict",
    "ModuleList",
    "MultiheadAttention",
    "NLLLoss",
    "PReLU",
    "Parameter",
    "PositionalEncoding",
    "RMSNorm",
    "ReLU",
    "ReLU6",
    "Result",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "SmoothL1Loss",
    "SoftMarginLoss",
    "Softmax",
    "Softmin",
    "Softplus",
    "Softshrink",
    "Softsign",
    "StateError",
    "Tanh",
    "Tanhshrink",
    "Threshold",
    "Training",
    "TrainingError",
    "TransformerEncoder",
    "TransformerEncoderLayer",
    "Unflatten",
    "__version__",
    "amp",
    "data",
    "evaluate",
    "fit",
    "functional",
    "init",
    "load",
    "load_into",
    "load_metadata",
    "metrics",
    "models",
    "optim",
    "plot_history",
    "save",
    "summary",
    "utils",
]
