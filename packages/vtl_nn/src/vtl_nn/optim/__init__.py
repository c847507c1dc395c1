"""Optimizers, each one fused update row, and learning rate schedules."""

from vtl_nn.optim import lr_scheduler
from vtl_nn.optim.muon import Muon
from vtl_nn.optim.optimizer import Optimizer
from vtl_nn.optim.rules import SGD, Adagrad, Adam, AdamW, Lion, NAdam, RAdam, RMSprop

__all__ = [
    "SGD",
    "Adagrad",
    "Adam",
    "AdamW",
    "Lion",
    "Muon",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "lr_scheduler",
]
