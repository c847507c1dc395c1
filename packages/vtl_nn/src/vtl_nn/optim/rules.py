"""SGD, Adam and AdamW: each is its update row, its slots, and the numbers that the row takes.

`maximize` steps up the gradient. In all rows that is the same as turning the signs of lr and weight_decay: the slots
of first order then hold the negative of PyTorch's.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf, log
from typing import Any

from vtl_core import AttributeValueError, UnsupportedError
from vtl_nn.optim.optimizer import Group, Optimizer


def _sign(group: Group) -> float:
    return -1.0 if group["maximize"] else 1.0


def _at_least_zero(name: str, group: Group, *options: str) -> None:
    for option in options:
        if not group[option] >= 0:
            raise AttributeValueError(f"{name}: {option}={group[option]} must be at least 0")


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum as Sutskever et al. 2013 in PyTorch's form: the buffer holds gradients.

    d = g + weight_decay * p;  b = momentum * b + (1 - dampening) * d (the first time b = d);  p -= lr * b,
    with nesterov  p -= lr * (d + momentum * b)
    """

    slots = ("momentum_buffer", "step")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        options = {"lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay}
        super().__init__(params, {**options, "nesterov": nesterov, "maximize": maximize})

    def check(self, group: Group) -> None:
        """Refuse negative options, and nesterov without momentum or with dampening."""
        _at_least_zero("SGD", group, "lr", "momentum", "weight_decay")
        if group["nesterov"] and (group["momentum"] <= 0 or group["dampening"] != 0):
            raise AttributeValueError("SGD: nesterov needs a momentum above 0 and no dampening")

    def slots_of(self, group: Group) -> tuple[str, ...]:
        """No slots without momentum."""
        return self.slots if group["momentum"] else ()

    def row(self, group: Group) -> str:
        """One row of three."""
        if not group["momentum"]:
            return "sgd"
        return "sgd_nesterov" if group["nesterov"] else "sgd_momentum"

    def scalars(self, group: Group) -> dict[str, float]:
        """Lr and weight decay; with momentum, also what is kept of the old and the new."""
        plain = {"lr": _sign(group) * group["lr"], "weight_decay": _sign(group) * group["weight_decay"]}
        return plain | {"momentum": group["momentum"], "keep": 1 - group["dampening"]} if group["momentum"] else plain


class Adam(Optimizer):
    """Adam, algorithm 1 of Kingma & Ba 2015: eps outside the root, both moments corrected; weight_decay is an L2 penalty."""

    slots = ("exp_avg", "exp_avg_sq", "step")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        if amsgrad:
            raise UnsupportedError(f"{self}: amsgrad is not here; leave it out")
        options = {"lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**options, "maximize": maximize})

    def check(self, group: Group) -> None:
        """Refuse negative options, and betas that are not two numbers in [0, 1)."""
        _at_least_zero(str(self), group, "lr", "eps", "weight_decay")
        if len(group["betas"]) != 2 or not all(0 <= beta < 1 for beta in group["betas"]):
            raise AttributeValueError(f"{self}: betas={group['betas']} must be two numbers in [0, 1)")

    def row(self, group: Group) -> str:
        """The plain row where there is no penalty."""
        return "adam_l2" if group["weight_decay"] else "adam"

    def scalars(self, group: Group) -> dict[str, float]:
        """Logarithms of the betas, for the bias corrections -expm1(t * log(beta)), come from the host in float64."""
        b1, b2 = group["betas"]
        logs = {f"log_b{i}": log(b) if b else -inf for i, b in ((1, b1), (2, b2))}
        plain = {"lr": _sign(group) * group["lr"], "b1": b1, "b2": b2, **logs, "eps": group["eps"]}
        return plain if self.row(group) == "adam" else plain | {"weight_decay": _sign(group) * group["weight_decay"]}


class AdamW(Adam):
    """Adam with decoupled weight decay: p *= 1 - lr * weight_decay before the step (Loshchilov & Hutter 2019)."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize)

    def row(self, group: Group) -> str:
        """Decay is part of the row."""
        return "adamw"
