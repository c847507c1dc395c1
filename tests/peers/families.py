"""Every family by its name: what `test_differential.py` runs forty configurations of, and `campaign.py` thousands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import or_

import differential
import families_attention
import families_layers
import families_losses
import families_models
import families_optim
import families_recurrent
import families_schedules
import families_training
from differential import Verdict

DTYPES = ("float64", "float32")


@dataclass(frozen=True)
class Family:
    """`check(numbers, dtype, device)` raises AssertionError for a configuration that disagrees."""

    name: str
    check: Callable[[Sequence[int], str, str], Verdict]
    dtypes: tuple[str, ...] = DTYPES
    devices: bool = True  # whether it computes anything there


def _each(one: Callable[[int, str, str], Verdict], numbers: Sequence[int], dtype: str, device: str) -> Verdict:
    return reduce(or_, (one(number, dtype, device) for number in numbers), Verdict())


CASES = [
    family
    for module in (families_losses, families_layers, families_attention, families_recurrent, families_models)
    for family in module.FAMILIES
]
SCHEDULES = (*families_schedules.MAKERS, "ReduceLROnPlateau")
FAMILIES = {
    family.name: family
    for family in (
        *(Family(case.__name__, partial(_each, partial(differential.check, case))) for case in CASES),
        *(Family(one.__name__, partial(_each, one)) for one in families_training.FAMILIES),
        *(Family(name, partial(families_optim.optimizer, name)) for name in families_optim.OPTIMIZERS),
        *(Family(name, partial(families_schedules.schedule, name), ("float64",), False) for name in SCHEDULES),
    )
}
