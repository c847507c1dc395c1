"""What every schedule is: a closed form of the step's number that sets each group's learning rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import cos, pi
from typing import Any

from vtl_core import AttributeValueError
from vtl_core.arguments import explain, short
from vtl_nn.errors import StateError
from vtl_nn.functional.typing import is_number, is_whole
from vtl_nn.optim.optimizer import Optimizer


class LRScheduler:
    """Sets lr = value(step, initial_lr) in every group; step 0 is set on construction. A subclass defines `factor` or `value`.

    `initial_lr` is the group's lr when its first scheduler is made, or when a scheduler first meets a group that was
    added since; it stands in the group, and so in its state.
    """

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        if not is_whole(last_epoch) or last_epoch < -1:
            raise AttributeValueError(
                f"{type(self).__name__}: last_epoch={short(last_epoch)} must be -1, or the last step made"
            )
        self.optimizer, self.last_epoch = optimizer, last_epoch
        self.step()

    def factor(self, step: int) -> float:
        """What the initial lr is multiplied by."""
        raise NotImplementedError(f"{type(self).__name__} must define factor")

    def value(self, step: int, lr: float, group: int = 0) -> float:
        """The lr at a step, of a group that starts with `lr`."""
        return lr * self.factor(step)

    def options(self, step: int, group: dict[str, Any]) -> dict[str, Any]:
        """Options of a group, besides its lr, that the schedule sets at a step."""
        return {}

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
        found = require_state(type(self).__name__, state, "last_epoch")["last_epoch"]
        if not is_whole(found) or found < 0:
            raise StateError(f"{type(self).__name__}: last_epoch={short(found)} must be an integer of at least 0")
        self.last_epoch = int(found)
        self._apply()

    def _apply(self) -> None:
        for number, group in enumerate(self.optimizer.param_groups):
            group.setdefault("initial_lr", group["lr"])
            group["lr"] = self.value(self.last_epoch, group["initial_lr"], number)
            group.update(self.options(self.last_epoch, group))


def require_state(op: str, state: object, *names: str) -> Mapping[str, Any]:
    """The state, if it is a dict that has these names; StateError says what it lacks."""
    if not isinstance(state, Mapping):
        raise StateError(f"{op}: a state is a dict, not {short(state)}; give what state_dict() returned")
    if missing := [name for name in names if name not in state]:
        raise StateError(f"{op}: the state has no {', '.join(sorted(missing))}; it has {sorted(map(str, state))}")
    return state


def require(op: str, optimizer: object, **numbers: object) -> None:
    """Refuse what is no optimizer, and options that are no numbers; AttributeValueError names the first."""
    if not isinstance(optimizer, Optimizer):
        raise AttributeValueError(
            f"{op}: its first argument is {type(optimizer).__name__}; give the optimizer whose lr it sets"
        )
    for name, value in numbers.items():
        if not is_number(value):
            raise AttributeValueError(f"{op}: {name}={value!r:.40} must be a number")


def of_group(op: str, what: str, each: Sequence[Any], group: int) -> Any:
    """The group's own of several values; AttributeValueError for a group that was added later."""
    if group >= len(each):
        raise AttributeValueError(
            f"{op}: {len(each)} {what}, and group {group} was added since; make the scheduler after it"
        )
    return each[group]


def cosine(start: float, end: float, share: float) -> float:
    """Half a cosine from start (share 0) to end (share 1)."""
    return end + (start - end) * (1 + cos(pi * share)) / 2


explain(globals(), whole=True)
