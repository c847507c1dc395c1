"""Random configurations of every family against PyTorch: forty each, or `--configurations N`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the families beside this file, which is no package

import differential
import families_attention
import families_layers
import families_losses
import families_optim
import families_recurrent

pytestmark = [
    pytest.mark.filterwarnings("ignore:reduction. .mean. divides:UserWarning"),
    pytest.mark.filterwarnings("ignore:Using padding=.same.:UserWarning"),
]
FAMILIES = {
    f.__name__: f
    for module in (families_losses, families_layers, families_attention, families_recurrent)
    for f in module.FAMILIES
}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("family", FAMILIES)
def test_random_configurations_agree(family, dtype, configurations):
    for number in range(configurations):
        differential.check(FAMILIES[family], number, dtype)


@pytest.mark.parametrize("family", FAMILIES)
def test_fixed_configurations_agree_on_every_device(family, device):
    """Eight configurations in float32."""
    for number in range(8):
        differential.check(FAMILIES[family], number, "float32", device)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", families_optim.OPTIMIZERS)
def test_random_optimizers_agree_over_a_hundred_steps(name, dtype, configurations):
    """C12 to C17."""
    for number in range(configurations):
        families_optim.optimizer(name, number, dtype)


@pytest.mark.parametrize("name", families_optim.OPTIMIZERS)
def test_fixed_optimizers_agree_on_every_device(name, device):
    for number in range(8):
        families_optim.optimizer(name, number, "float32", device, steps=20)


@pytest.mark.filterwarnings("ignore:Detected call of:UserWarning", "ignore:The epoch parameter:UserWarning")
@pytest.mark.parametrize("name", [*families_optim.SCHEDULES, *families_optim.JOINED])
def test_random_schedules_agree_over_two_hundred_steps(name, configurations):
    """C18, E05."""
    for number in range(configurations):
        families_optim.schedule(name, number)


def test_random_plateaus_agree_over_two_hundred_steps(configurations):
    """C18."""
    for number in range(configurations):
        families_optim.plateau(number)
