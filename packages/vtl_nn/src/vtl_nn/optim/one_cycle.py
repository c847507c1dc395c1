"""The one-cycle policy, which moves the learning rate up and down, and momentum against it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from vtl_core import AttributeValueError
from vtl_core.arguments import explain
from vtl_nn.functional.typing import is_number
from vtl_nn.optim.optimizer import Optimizer
from vtl_nn.optim.schedule import LRScheduler, cosine, of_group, require


def _line(start: float, end: float, share: float) -> float:
    return start + (end - start) * share


ANNEALINGS: dict[str, Callable[[float, float, float], float]] = {"cos": cosine, "linear": _line}


class OneCycleLR(LRScheduler):
    """A rise from max_lr / div_factor to `max_lr`, then a fall to max_lr / div_factor / final_div_factor.

    Steps are batches. The rise takes pct_start of `total_steps`; with three_phase as long a fall back follows before the
    last one. With cycle_momentum, `momentum` or the first of `betas` falls from max_momentum to base_momentum while the
    lr rises, and the other way. `max_lr` and the momenta are one for all groups, or one each. A loop that calls step() after
    each of its total_steps batches stays at the last lr with the last call.

    Errors:  AttributeValueError for options out of range, for an optimizer without momentum under cycle_momentum, and
             for a step past the last
    Source:  Smith & Topin 2018, "Super-convergence"
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | Sequence[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | Sequence[float] = 0.85,
        max_momentum: float | Sequence[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        counts = {"total_steps": total_steps, "epochs": epochs, "steps_per_epoch": steps_per_epoch}
        given = {name: count for name, count in counts.items() if count is not None}
        require(
            "OneCycleLR",
            optimizer,
            **given,
            pct_start=pct_start,
            div_factor=div_factor,
            final_div_factor=final_div_factor,
        )
        if total_steps is None and epochs and steps_per_epoch:
            total_steps = epochs * steps_per_epoch
        if not total_steps or total_steps < 1 or not 0 <= pct_start <= 1:
            raise AttributeValueError(
                f"OneCycleLR: give total_steps, or epochs and steps_per_epoch, all positive, and pct_start={pct_start} in [0, 1]"
            )
        if not (div_factor > 0 and final_div_factor > 0):
            raise AttributeValueError(
                f"OneCycleLR: div_factor={div_factor} and final_div_factor={final_div_factor} must be above 0"
            )
        if anneal_strategy not in ANNEALINGS:
            raise AttributeValueError(
                f"OneCycleLR: anneal_strategy={anneal_strategy!r} must be one of {', '.join(map(repr, ANNEALINGS))}"
            )
        groups = optimizer.param_groups
        if cycle_momentum and not all("momentum" in group or "betas" in group for group in groups):
            raise AttributeValueError(
                f"OneCycleLR: {type(optimizer).__name__} has neither momentum nor betas; give cycle_momentum=False"
            )
        self.max_lrs = _each("max_lr", max_lr, len(groups))
        self.momenta = list(
            zip(
                *(
                    _each(*given, len(groups))
                    for given in (("max_momentum", max_momentum), ("base_momentum", base_momentum))
                ),
                strict=True,
            )
        )
        for high, low in self.momenta:
            if cycle_momentum and not 0 <= low <= high < 1:
                raise AttributeValueError(
                    f"OneCycleLR: base_momentum={low} and max_momentum={high} must rise within [0, 1)"
                )
        self.total_steps, self.cycle_momentum, self.anneal = total_steps, cycle_momentum, ANNEALINGS[anneal_strategy]
        peak, start, last = pct_start * total_steps - 1, 1 / div_factor, total_steps - 1
        # (step, share of max_lr, share of the way from max_momentum to base_momentum), between which it goes
        self.corners = [(0.0, start, 0.0), (peak, 1.0, 1.0), (last, start / final_div_factor, 0.0)]
        if three_phase:
            self.corners.insert(2, (2 * peak, start, 0.0))
        super().__init__(optimizer, last_epoch)

    def factor(self, step: int) -> float:
        """The share of max_lr at this step."""
        before, after, share = self._between(step)
        return self.anneal(before[1], after[1], share)

    def value(self, step: int, lr: float, group: int = 0) -> float:
        """By the group's max_lr; the initial lr does not count."""
        return float(of_group("OneCycleLR", "max_lr", self.max_lrs, group)) * self.factor(step)

    def options(self, step: int, group: dict[str, Any]) -> dict[str, Any]:
        """Momentum, or betas, against the lr."""
        if not self.cycle_momentum:
            return {}
        before, after, share = self._between(step)
        number = next(i for i, other in enumerate(self.optimizer.param_groups) if other is group)
        high, low = of_group("OneCycleLR", "momenta", self.momenta, number)
        momentum = self.anneal(_line(high, low, before[2]), _line(high, low, after[2]), share)
        return {"momentum": momentum} if "momentum" in group else {"betas": (momentum, *group["betas"][1:])}

    def _between(self, step: int) -> tuple[tuple[float, float, float], tuple[float, float, float], float]:
        """The corners that the step lies between, and how far it is on the way."""
        if not step <= self.total_steps:
            raise AttributeValueError(f"OneCycleLR: step {step} is past the last of total_steps={self.total_steps}")
        step = min(step, self.total_steps - 1)
        before, after = next((a, b) for a, b in pairwise(self.corners) if step <= b[0])
        length = after[0] - before[0]
        return before, after, (step - before[0]) / length if length else 1.0


def _each(name: str, given: float | Sequence[float], count: int) -> list[float]:
    values = list(given) if isinstance(given, Sequence) else [given] * count
    if len(values) != count:
        raise AttributeValueError(f"OneCycleLR: {len(values)} {name} for {count} groups; give one each")
    for value in values:
        if not is_number(value):
            raise AttributeValueError(f"OneCycleLR: {name}={value!r:.40} must be a number")
    return values


explain(globals(), whole=True)
