"""SGD, Adam and the rules near it: each is its update row, its slots, and the numbers that the row takes.

`maximize` steps up the gradient. In all rows that is the same as turning the signs of lr and weight_decay: the slots
of first order then hold the negative of PyTorch's.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf, log
from numbers import Real
from typing import Any

from vtl_core import AttributeValueError
from vtl_core.arguments import explain
from vtl_nn.optim.optimizer import Group, Optimizer, at_least_zero


def _sign(group: Group) -> float:
    return -1.0 if group["maximize"] else 1.0


def _betas(name: str, group: Group) -> None:
    betas = group["betas"]
    if not (
        isinstance(betas, tuple | list)
        and len(betas) == 2
        and all(isinstance(beta, Real) and 0 <= float(beta) < 1 for beta in betas)
    ):
        raise AttributeValueError(f"{name}: betas={betas!r} must be two numbers in [0, 1)")


def _moments(group: Group) -> dict[str, float]:
    b1, b2 = group["betas"]
    logs = {f"log_b{i}": log(b) if b else -inf for i, b in ((1, b1), (2, b2))}
    return {"lr": _sign(group) * group["lr"], "b1": b1, "b2": b2, **logs, "eps": group["eps"]}


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
        at_least_zero("SGD", group, "lr", "momentum", "weight_decay")
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
        options = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad}
        super().__init__(params, {**options, "maximize": maximize})

    def check(self, group: Group) -> None:
        """Refuse negative options, and betas that are not two numbers in [0, 1)."""
        at_least_zero(str(self), group, "lr", "eps", "weight_decay")
        _betas(str(self), group)

    def slots_of(self, group: Group) -> tuple[str, ...]:
        """With amsgrad the largest second moment too."""
        return ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "step") if group["amsgrad"] else self.slots

    def row(self, group: Group) -> str:
        """The plain row where there is no penalty."""
        return "adam_amsgrad" if group["amsgrad"] else "adam_l2" if group["weight_decay"] else "adam"

    def scalars(self, group: Group) -> dict[str, float]:
        """Logarithms of the betas, for the bias corrections -expm1(t * log(beta)), come from the host in float64."""
        plain = _moments(group)
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
        return "adamw_amsgrad" if group["amsgrad"] else "adamw"


class NAdam(Optimizer):
    """Adam with Nesterov's momentum (Dozat 2016); mu_product is the product of the momenta so far."""

    slots = ("exp_avg", "exp_avg_sq", "mu_product", "step")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        options = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        options |= {"momentum_decay": momentum_decay, "decoupled_weight_decay": decoupled_weight_decay}
        super().__init__(params, {**options, "maximize": maximize})

    def check(self, group: Group) -> None:
        """Refuse negative options, and betas that are not two numbers in [0, 1)."""
        at_least_zero("NAdam", group, "lr", "eps", "weight_decay", "momentum_decay")
        _betas("NAdam", group)

    def start(self, slot: str, group: Group) -> float:
        """The empty product is 1."""
        return 1.0 if slot == "mu_product" else 0.0

    def row(self, group: Group) -> str:
        """With decoupled decay, or an L2 penalty."""
        return "nadamw" if group["decoupled_weight_decay"] else "nadam"

    def scalars(self, group: Group) -> dict[str, float]:
        """The momentum's rate is momentum_decay * log(0.96)."""
        found = _moments(group) | {"weight_decay": _sign(group) * group["weight_decay"]}
        del found["log_b1"]
        return found | {"rate": group["momentum_decay"] * log(0.96)}


class RAdam(Optimizer):
    """Adam whose step is rectified for the variance of a short average (Liu et al. 2020)."""

    slots = ("exp_avg", "exp_avg_sq", "step")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        options = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        options |= {"decoupled_weight_decay": decoupled_weight_decay}
        super().__init__(params, {**options, "maximize": maximize})

    def check(self, group: Group) -> None:
        """Refuse negative options, and betas that are not two numbers in [0, 1)."""
        at_least_zero("RAdam", group, "lr", "eps", "weight_decay")
        _betas("RAdam", group)

    def row(self, group: Group) -> str:
        """With decoupled decay, or an L2 penalty."""
        return "radamw" if group["decoupled_weight_decay"] else "radam"

    def scalars(self, group: Group) -> dict[str, float]:
        """Adam's, and the decay."""
        return _moments(group) | {"weight_decay": _sign(group) * group["weight_decay"]}


class Adagrad(Optimizer):
    """Each element's rate falls with the root of its squared gradients' sum (Duchi et al. 2011)."""

    slots = ("sum", "step")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        *,
        maximize: bool = False,
    ) -> None:
        options = {"lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay}
        options |= {"initial_accumulator_value": initial_accumulator_value}
        super().__init__(params, {**options, "maximize": maximize})

    def check(self, group: Group) -> None:
        """Refuse negative options."""
        at_least_zero("Adagrad", group, "lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps")

    def start(self, slot: str, group: Group) -> float:
        """The sum may start above 0."""
        return float(group["initial_accumulator_value"]) if slot == "sum" else 0.0

    def row(self, group: Group) -> str:
        """One row."""
        return "adagrad"

    def scalars(self, group: Group) -> dict[str, float]:
        """The rate and its decay."""
        found = {"lr": _sign(group) * group["lr"], "lr_decay": group["lr_decay"], "eps": group["eps"]}
        return found | {"weight_decay": _sign(group) * group["weight_decay"]}


class RMSprop(Optimizer):
    """Each element's gradient over the root of its average square (Tieleman & Hinton 2012), centered as Graves 2013."""

    slots = ("square_avg", "step")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        options = {"lr": lr, "alpha": alpha, "eps": eps, "weight_decay": weight_decay, "momentum": momentum}
        super().__init__(params, {**options, "centered": centered, "maximize": maximize})

    def check(self, group: Group) -> None:
        """Refuse negative options."""
        at_least_zero("RMSprop", group, "lr", "alpha", "eps", "weight_decay", "momentum")

    def slots_of(self, group: Group) -> tuple[str, ...]:
        """With momentum its buffer, centered the average gradient."""
        more = ("momentum_buffer",) * bool(group["momentum"]) + ("grad_avg",) * bool(group["centered"])
        return ("square_avg", *more, "step")

    def row(self, group: Group) -> str:
        """One row of four."""
        return "rmsprop" + "_centered" * bool(group["centered"]) + "_momentum" * bool(group["momentum"])

    def scalars(self, group: Group) -> dict[str, float]:
        """The rate, what is kept of the averages, and the momentum if there is one."""
        found = {"lr": _sign(group) * group["lr"], "alpha": group["alpha"], "eps": group["eps"]}
        found["weight_decay"] = _sign(group) * group["weight_decay"]
        return found | {"momentum": group["momentum"]} if group["momentum"] else found


class Lion(Optimizer):
    """Steps of one size along the sign of a momentum (Chen et al. 2023), with decoupled decay."""

    slots = ("exp_avg",)

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay, "maximize": maximize})

    def check(self, group: Group) -> None:
        """Refuse negative options, and betas that are not two numbers in [0, 1)."""
        at_least_zero("Lion", group, "lr", "weight_decay")
        _betas("Lion", group)

    def row(self, group: Group) -> str:
        """One row."""
        return "lion"

    def scalars(self, group: Group) -> dict[str, float]:
        """The rate, both betas and the decay."""
        b1, b2 = group["betas"]
        sign = _sign(group)
        return {"lr": sign * group["lr"], "b1": b1, "b2": b2, "weight_decay": sign * group["weight_decay"]}


explain(globals(), whole=True)
