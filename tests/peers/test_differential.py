"""Random configurations of every family against PyTorch: forty each, or `--configurations N`; `campaign.py` runs thousands."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the families beside this file, which is no package

import campaign
from differential import Verdict
from families import FAMILIES, Family

pytestmark = [
    pytest.mark.filterwarnings("ignore:reduction. .mean. divides:UserWarning"),
    pytest.mark.filterwarnings("ignore:Using padding=.same.:UserWarning"),
    pytest.mark.filterwarnings("ignore:Detected call of:UserWarning"),
    pytest.mark.filterwarnings("ignore:The epoch parameter:UserWarning"),
]


@pytest.mark.parametrize(("name", "dtype"), [(f.name, dtype) for f in FAMILIES.values() for dtype in f.dtypes])
def test_random_configurations_agree(name, dtype, configurations):
    """C12 to C18, E05: values, gradients, state; optimizers over a hundred steps, schedules over two hundred."""
    FAMILIES[name].check(range(configurations), dtype, "cpu")


@pytest.mark.parametrize("name", [family.name for family in FAMILIES.values() if family.devices])
def test_fixed_configurations_agree_on_every_device(name, device):
    """Eight configurations in float32."""
    FAMILIES[name].check(range(8), "float32", device)


def test_a_campaign_names_what_disagrees_and_does_not_run_it_twice(monkeypatch, tmp_path):
    """One number of a family is wrong; the others of its task are found right, one by one."""
    calls = []

    def check(numbers, dtype, device):
        calls.append(list(numbers))
        assert 7 not in numbers, "number 7 is off"
        return Verdict(0.25, 0.5)

    monkeypatch.setitem(FAMILIES, "doubtful", Family("doubtful", check, ("float64",)))
    outcome = campaign.Outcome("doubtful", 10, commit=campaign.commit())
    for given in campaign.tasks("doubtful", 10):
        outcome.add(campaign.task(given))
    path = tmp_path / "result.json"
    campaign.write(path, {"doubtful": outcome})

    assert calls == [list(range(10)), *([k] for k in range(10))]
    assert [violation.splitlines()[0] for violation in outcome.violations] == ["doubtful 7 float64: number 7 is off"]
    written = json.loads(path.read_text())
    assert written["families"][0]["worst_fraction_of_allowance"] == 0.25
    assert [former for _, former in campaign.outcomes(path, ["doubtful"], 10, False)] == [outcome]
    assert [former for _, former in campaign.outcomes(path, ["doubtful"], 11, False)] == [None]
    assert [former for _, former in campaign.outcomes(path, ["doubtful"], 10, True)] == [None]
