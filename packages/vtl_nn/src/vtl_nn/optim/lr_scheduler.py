"""Learning rates as a function of the step: `scheduler.step()` after each epoch or batch sets every group's lr.

Each is a closed form of the step's number, so a saved number is all the state there is, and schedules are joined by
asking each for its value. ReduceLROnPlateau, which waits for a metric, stands in plateau.py, and OneCycleLR, which
moves momentum too, in one_cycle.py.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from vtl_core import AttributeValueError
from vtl_core.arguments import explain
from vtl_nn.functional.typing import is_whole
from vtl_nn.optim.one_cycle import OneCycleLR
from vtl_nn.optim.optimizer import Optimizer
from vtl_nn.optim.plateau import ReduceLROnPlateau
from vtl_nn.optim.schedule import LRScheduler, cosine, of_group, require

__all__ = [
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]


class LambdaLR(LRScheduler):
    """Multiply the initial lr by a function of the step: one for all groups, or one each."""

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
        last_epoch: int = -1,
    ) -> None:
        require("LambdaLR", optimizer)
        count = len(optimizer.param_groups)
        self.lr_lambdas = list(lr_lambda) if isinstance(lr_lambda, Sequence) else [lr_lambda] * count
        if len(self.lr_lambdas) != count:
            raise AttributeValueError(f"LambdaLR: {len(self.lr_lambdas)} functions for {count} groups; give one each")
        for function in self.lr_lambdas:
            if not callable(function):
                raise AttributeValueError(f"LambdaLR: {function!r:.40} is no function of the step")
        super().__init__(optimizer, last_epoch)

    def value(self, step: int, lr: float, group: int = 0) -> float:
        """The group's function at the step."""
        rate: float = lr * of_group("LambdaLR", "functions", self.lr_lambdas, group)(step)
        return rate


class StepLR(LRScheduler):
    """Multiply by `gamma` every `step_size` steps."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        require("StepLR", optimizer, gamma=gamma)
        self.step_size, self.gamma = step_size, gamma
        if not is_whole(step_size) or step_size < 1:
            raise AttributeValueError(f"StepLR: step_size={step_size!r} must be an int of at least 1")
        super().__init__(optimizer, last_epoch)

    def factor(self, step: int) -> float:
        """gamma ** (step // step_size)."""
        return float(self.gamma ** (step // self.step_size))


class MultiStepLR(LRScheduler):
    """Multiply by `gamma` at each of the steps `milestones`."""

    def __init__(
        self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        require("MultiStepLR", optimizer, gamma=gamma)
        given: Any = milestones
        steps: list[Any] = list(given) if isinstance(given, Iterable) else [None]
        if not all(map(is_whole, steps)):
            raise AttributeValueError(f"MultiStepLR: milestones={milestones!r:.80} must be a list of ints")
        self.milestones, self.gamma = sorted(steps), gamma
        super().__init__(optimizer, last_epoch)

    def factor(self, step: int) -> float:
        """Gamma to the number of milestones passed."""
        return float(self.gamma ** bisect_right(self.milestones, step))


class ConstantLR(LRScheduler):
    """Multiply by `factor` for the first `total_iters` steps."""

    def __init__(self, optimizer: Optimizer, factor: float = 1 / 3, total_iters: int = 5, last_epoch: int = -1) -> None:
        require("ConstantLR", optimizer, factor=factor, total_iters=total_iters)
        self.share, self.total_iters = factor, total_iters
        if not 0 <= factor <= 1:
            raise AttributeValueError(f"ConstantLR: factor={factor} must lie in [0, 1]")
        super().__init__(optimizer, last_epoch)

    def factor(self, step: int) -> float:
        """The factor, then 1."""
        return self.share if step < self.total_iters else 1.0


class LinearLR(LRScheduler):
    """Go linearly from `start_factor` to `end_factor` in `total_iters` steps: a warm-up, in front of others by SequentialLR."""

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        require("LinearLR", optimizer, start_factor=start_factor, end_factor=end_factor, total_iters=total_iters)
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        if not (0 < start_factor <= 1 and 0 <= end_factor <= 1 and total_iters >= 1):
            raise AttributeValueError(
                f"LinearLR: start_factor={start_factor} must lie in (0, 1], end_factor={end_factor} in [0, 1], "
                f"total_iters={total_iters} must be at least 1"
            )
        super().__init__(optimizer, last_epoch)

    def factor(self, step: int) -> float:
        """On the line, and at its end."""
        share = min(step, self.total_iters) / self.total_iters
        return self.start_factor + (self.end_factor - self.start_factor) * share


class ExponentialLR(LRScheduler):
    """Multiply by `gamma` at every step."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        require("ExponentialLR", optimizer, gamma=gamma)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def factor(self, step: int) -> float:
        """gamma ** step."""
        return float(self.gamma**step)


class PolynomialLR(LRScheduler):
    """Fall to 0 in `total_iters` steps as (1 - step / total_iters) ** power."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1) -> None:
        require("PolynomialLR", optimizer, total_iters=total_iters, power=power)
        self.total_iters, self.power = total_iters, power
        if total_iters < 1 or not power >= 0:
            raise AttributeValueError(
                f"PolynomialLR: total_iters={total_iters} must be at least 1 and power={power} at least 0"
            )
        super().__init__(optimizer, last_epoch)

    def factor(self, step: int) -> float:
        """The power of what is left."""
        return float((1 - min(step, self.total_iters) / self.total_iters) ** self.power)


class CosineAnnealingLR(LRScheduler):
    """Half a cosine from the initial lr to `eta_min` at step `T_max`, and back (Loshchilov & Hutter 2017)."""

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        require("CosineAnnealingLR", optimizer, eta_min=eta_min)
        self.T_max, self.eta_min = T_max, eta_min
        if not is_whole(T_max) or T_max < 1:
            raise AttributeValueError(f"CosineAnnealingLR: T_max={T_max!r} must be an int of at least 1")
        super().__init__(optimizer, last_epoch)

    def value(self, step: int, lr: float, group: int = 0) -> float:
        """Between eta_min and the initial lr."""
        return cosine(lr, self.eta_min, step / self.T_max)


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half a cosine to `eta_min` in T_0 steps, then again, each time `T_mult` times as long (Loshchilov & Hutter 2017)."""

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        require("CosineAnnealingWarmRestarts", optimizer, T_0=T_0, T_mult=T_mult, eta_min=eta_min)
        self.T_0, self.T_mult, self.eta_min = T_0, T_mult, eta_min
        if T_0 < 1 or T_mult < 1:
            raise AttributeValueError(f"CosineAnnealingWarmRestarts: T_0={T_0} and T_mult={T_mult} must be at least 1")
        super().__init__(optimizer, last_epoch)

    def value(self, step: int, lr: float, group: int = 0) -> float:
        """By the place in the present round."""
        length = self.T_0
        if self.T_mult == 1:
            step %= length
        while step >= length:
            step, length = step - length, length * self.T_mult
        return cosine(lr, self.eta_min, step / length)


class SequentialLR(LRScheduler):
    """One schedule after the other: `milestones[i]` is the step at which schedule i + 1 begins, with its step 0."""

    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: Sequence[LRScheduler],
        milestones: Sequence[int],
        last_epoch: int = -1,
    ) -> None:
        self.schedulers, self.milestones = _together("SequentialLR", optimizer, schedulers), list(milestones)
        if len(self.milestones) != len(self.schedulers) - 1 or [0, *self.milestones] != sorted([0, *self.milestones]):
            raise AttributeValueError(
                f"SequentialLR: milestones={self.milestones} must rise from 0 or later, one fewer than the {len(self.schedulers)} schedulers"
            )
        super().__init__(optimizer, last_epoch)

    def value(self, step: int, lr: float, group: int = 0) -> float:
        """That of the schedule whose turn it is."""
        place = bisect_right(self.milestones, step)
        return self.schedulers[place].value(step - (self.milestones[place - 1] if place else 0), lr, group)

    def options(self, step: int, group: dict[str, Any]) -> dict[str, Any]:
        """Likewise."""
        place = bisect_right(self.milestones, step)
        return self.schedulers[place].options(step - (self.milestones[place - 1] if place else 0), group)


class ChainedScheduler(LRScheduler):
    """All schedules at once: each takes the lr that the one before gives."""

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None) -> None:
        if not schedulers:
            raise AttributeValueError("ChainedScheduler: there is no scheduler; give at least one")
        first: Any = optimizer or getattr(schedulers[0], "optimizer", None)
        self.schedulers = _together("ChainedScheduler", first, schedulers)
        super().__init__(first)

    def value(self, step: int, lr: float, group: int = 0) -> float:
        """Through all of them."""
        for scheduler in self.schedulers:
            lr = scheduler.value(step, lr, group)
        return lr

    def options(self, step: int, group: dict[str, Any]) -> dict[str, Any]:
        """What any of them moves; the last has the last word."""
        return {name: value for scheduler in self.schedulers for name, value in scheduler.options(step, group).items()}


def _together(name: str, optimizer: Optimizer, schedulers: Sequence[LRScheduler]) -> list[LRScheduler]:
    for scheduler in schedulers:
        given: object = scheduler
        if not isinstance(given, LRScheduler) or given.optimizer is not optimizer:
            raise AttributeValueError(
                f"{name}: {type(given).__name__} is no schedule of this optimizer; "
                "ReduceLROnPlateau, which waits for a metric, cannot be joined"
            )
    return list(schedulers)


explain(globals(), whole=True)
