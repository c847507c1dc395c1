"""Optimizers, each one fused update row, and learning rate schedules."""

from vtl_nn.optim import lr_scheduler
from vtl_nn.optim.optimizer import Optimizer
from vtl_nn.optim.rules import SGD, Adam, AdamW

__all__ = ["SGD", "Adam", "AdamW", "Optimizer", "lr_scheduler"]
