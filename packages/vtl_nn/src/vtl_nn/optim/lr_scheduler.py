"""Learning rates as a function of the step: `scheduler.step()` after each epoch or batch sets every group's lr.

Each is a closed form of the step's number, so a saved number is all the state there is.
"""

from __future__ import annotations

from math import cos, pi
from typing import Any

from vtl_core import AttributeValueError
from vtl_nn.errors import StateError
from vtl_nn.optim.optimizer import Optimizer


class LRScheduler:
    """Sets lr = initial_lr * factor(step) in every group; step 0 is set on construction. A subclass defines `factor`.

    `initial_lr` is the group's lr when its first scheduler is made; it stands in the group, and so in its state.
    """

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        self.optimizer, self.last_epoch = optimizer, last_epoch
        for group in optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])
        self.step()

    def factor(self, step: int) -> float:
        """What the initial lr is multiplied by."""
        raise NotImplementedError(f"{type(self).__name__} must define factor")

    def step(self) -> None:
        """Go on to the next step's lr."""
        self.last_epoch += 1
        self._apply()

    def get_last_lr(self) -> list[float]:
        """Return each group's lr."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Return the step's number."""
        return {"last_epoch": self.last_epoch}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved number, and set its lr."""
        if "last_epoch" not in state:
            raise StateError(f"{type(self).__name__}: the state has no last_epoch; it has {sorted(state)}")
        self.last_epoch = int(state["last_epoch"])
        self._apply()

    def _apply(self) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = group["initial_lr"] * self.factor(self.last_epoch)


class StepLR(LRScheduler):
    """Multiply by `gamma` every `step_size` steps."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.step_size, self.gamma = step_size, gamma
        if step_size < 1:
            raise AttributeValueError(f"StepLR: step_size={step_size} must be at least 1")
        super().__init__(optimizer, last_epoch)

    def factor(self, step: int) -> float:
        """gamma ** (step // step_size)."""
        return float(self.gamma ** (step // self.step_size))


class CosineAnnealingLR(LRScheduler):
    """Half a cosine from the initial lr to `eta_min` at step `T_max`, and back (Loshchilov & Hutter 2017)."""

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        self.T_max, self.eta_min = T_max, eta_min
        if T_max < 1:
            raise AttributeValueError(f"CosineAnnealingLR: T_max={T_max} must be at least 1")
        super().__init__(optimizer, last_epoch)

    def _apply(self) -> None:
        share = (1 + cos(pi * self.last_epoch / self.T_max)) / 2
        for group in self.optimizer.param_groups:
            group["lr"] = self.eta_min + (group["initial_lr"] - self.eta_min) * share


class OneCycleLR(LRScheduler):
    """One cosine rise from max_lr / div_factor to `max_lr`, then a fall to max_lr / div_factor / final_div_factor.

    Steps are batches. The rise takes pct_start of `total_steps` (Smith & Topin 2018); momentum is left alone.

    Errors:  AttributeValueError for options out of range, and for a step past the last
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float,
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        last_epoch: int = -1,
    ) -> None:
        if total_steps is None and epochs and steps_per_epoch:
            total_steps = epochs * steps_per_epoch
        if not total_steps or total_steps < 1 or not 0 <= pct_start <= 1:
            raise AttributeValueError(
                f"OneCycleLR: give total_steps, or epochs and steps_per_epoch, all positive, and pct_start={pct_start} in [0, 1]"
            )
        self.max_lr, self.total_steps, self.pct_start = max_lr, total_steps, pct_start
        self.start, self.end = 1 / div_factor, 1 / div_factor / final_div_factor
        super().__init__(optimizer, last_epoch)

    def factor(self, step: int) -> float:
        """The share of max_lr at this step."""
        if not step < self.total_steps:
            raise AttributeValueError(f"OneCycleLR: step {step} is past the last of total_steps={self.total_steps}")
        peak, last = self.pct_start * self.total_steps - 1, self.total_steps - 1
        if step <= peak:
            return _cosine(self.start, 1.0, step / peak if peak else 1.0)
        return _cosine(1.0, self.end, (step - peak) / (last - peak))

    def _apply(self) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = self.max_lr * self.factor(self.last_epoch)


def _cosine(start: float, end: float, share: float) -> float:
    return end + (start - end) * (1 + cos(pi * share)) / 2
