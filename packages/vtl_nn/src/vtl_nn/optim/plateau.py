"""ReduceLROnPlateau: the one schedule that looks at how training goes."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

from vtl_core import AttributeValueError
from vtl_core.arguments import explain, fits, short
from vtl_nn.errors import StateError
from vtl_nn.functional.typing import is_number
from vtl_nn.optim.optimizer import Optimizer
from vtl_nn.optim.schedule import require, require_state

STATE = ("best", "num_bad_epochs", "cooldown_counter", "last_epoch")


class ReduceLROnPlateau:
    """Multiply by `factor` once a metric has not got better for more than `patience` steps: `step(metric)` after each epoch.

    Better is below best * (1 - threshold), or best - threshold with threshold_mode "abs"; above with mode "max". For
    `cooldown` steps after a reduction nothing is counted. A change of at most `eps` is left out.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float | Sequence[float] = 0.0,
        eps: float = 1e-8,
    ) -> None:
        require(
            "ReduceLROnPlateau",
            optimizer,
            factor=factor,
            patience=patience,
            threshold=threshold,
            cooldown=cooldown,
            eps=eps,
        )
        if mode not in ("min", "max") or threshold_mode not in ("rel", "abs") or not 0 <= factor < 1:
            raise AttributeValueError(
                f"ReduceLROnPlateau: mode={mode!r} must be 'min' or 'max', threshold_mode={threshold_mode!r} 'rel' or 'abs', "
                f"factor={factor} at least 0 and below 1"
            )
        count = len(optimizer.param_groups)
        self.min_lrs = [float(min_lr)] * count if fits(min_lr, float) else [float(lr) for lr in min_lr]  # type: ignore[union-attr,arg-type]  # one or several
        if len(self.min_lrs) != count:
            raise AttributeValueError(
                f"ReduceLROnPlateau: {len(self.min_lrs)} min_lr for {count} groups; give one each"
            )
        self.optimizer, self.mode, self.factor, self.patience = optimizer, mode, factor, patience
        self.threshold, self.threshold_mode, self.cooldown, self.eps = threshold, threshold_mode, cooldown, eps
        self.best, self.num_bad_epochs, self.cooldown_counter, self.last_epoch = inf if mode == "min" else -inf, 0, 0, 0

    def is_better(self, value: float) -> bool:
        """Whether a metric is better than the best so far; NaN never is."""
        sign = -1 if self.mode == "min" else 1
        relative = self.threshold_mode == "rel"
        bound = self.best * (1 + sign * self.threshold) if relative else self.best + sign * self.threshold
        return value < bound if self.mode == "min" else value > bound

    def step(self, metrics: Any) -> None:
        """Look at a metric, a number or a tensor, which is read."""
        if len(self.min_lrs) != len(self.optimizer.param_groups):
            raise AttributeValueError(
                f"ReduceLROnPlateau: made for {len(self.min_lrs)} groups, and the optimizer has "
                f"{len(self.optimizer.param_groups)} now; make the scheduler after they are added"
            )
        try:
            value = float(metrics)
        except (TypeError, ValueError):
            raise AttributeValueError(
                f"ReduceLROnPlateau.step: metrics={short(metrics)} must be a number, or a tensor of one"
            ) from None
        self.last_epoch += 1
        if self.is_better(value):
            self.best, self.num_bad_epochs = value, 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            for group, least in zip(self.optimizer.param_groups, self.min_lrs, strict=True):
                lower = max(group["lr"] * self.factor, least)
                if group["lr"] - lower > self.eps:
                    group["lr"] = lower
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0

    def get_last_lr(self) -> list[float]:
        """Return each group's lr."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Return the best metric, the counts, and the lr that was reached."""
        return {name: getattr(self, name) for name in STATE} | {"_last_lr": self.get_last_lr()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        require_state("ReduceLROnPlateau", state, *STATE, "_last_lr")
        wrong = [name for name in STATE if not is_number(state[name])]
        if wrong or not fits(state["_last_lr"], list[float]):
            name = wrong[0] if wrong else "_last_lr"
            raise StateError(
                f"ReduceLROnPlateau: {name}={short(state[name])} in the state is no number, or list of numbers"
            )
        if len(state["_last_lr"]) != len(self.optimizer.param_groups):
            raise StateError(
                f"ReduceLROnPlateau: the state has lr of {len(state['_last_lr'])} groups, here {len(self.optimizer.param_groups)}"
            )
        for name in STATE:
            setattr(self, name, state[name])
        for group, lr in zip(self.optimizer.param_groups, state["_last_lr"], strict=True):
            group["lr"] = lr


explain(globals(), whole=True)
