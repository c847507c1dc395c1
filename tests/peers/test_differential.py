"""Random configurations of every family against PyTorch: forty each, or `--configurations N`; `campaign.py` runs thousands."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import vtl_core as vtl

sys.path.insert(0, str(Path(__file__).parent))  # the families beside this file, which is no package

import campaign
from differential import ARRANGEMENTS, Judge, Neighbours, Verdict
from families import CASES, FAMILIES, Family

pytestmark = [
    pytest.mark.filterwarnings("ignore:reduction. .mean. divides:UserWarning"),
    pytest.mark.filterwarnings("ignore:Using padding=.same.:UserWarning"),
    pytest.mark.filterwarnings("ignore:Detected call of:UserWarning"),
    pytest.mark.filterwarnings("ignore:The epoch parameter:UserWarning"),
    pytest.mark.filterwarnings("ignore:Support for mismatched:UserWarning"),  # one mask of truth values, one that adds
]


@pytest.mark.parametrize(("name", "dtype"), [(f.name, dtype) for f in FAMILIES.values() for dtype in f.dtypes])
def test_random_configurations_agree(name, dtype, configurations):
    """C12 to C18, E05: values, gradients, state; optimizers over a hundred steps, schedules over two hundred."""
    FAMILIES[name].check(range(configurations), dtype, "cpu")


@pytest.mark.parametrize("name", [case.__name__ for case in CASES])
def test_random_configurations_agree_in_half_precision(name, configurations):
    """float16: 8 ULP of scale, or as far as PyTorch's own, which computes in float32 as we do."""
    FAMILIES[name].check(range(configurations), "float16", "cpu")


@pytest.mark.parametrize("name", [family.name for family in FAMILIES.values() if family.devices])
def test_fixed_configurations_agree_on_every_device(name, device):
    """Eight configurations in float32."""
    FAMILIES[name].check(range(8), "float32", device)


@pytest.mark.parametrize(("lost", "passes"), [(1.0, True), (1.4, True), (3.0, False)])
def test_what_loses_twice_the_digits_that_pytorch_loses_is_found(lost, passes):
    """Sums of nothing: PyTorch is off by 1 at most neighbours, here by much less; ours is off by as much, or by more."""
    rng = np.random.default_rng(int(lost * 10))

    def judged(here):
        zero = {"y": np.zeros(3)}
        around = Neighbours(
            zero, lambda k: zero, lambda k: {"y": rng.normal(size=3)}, lambda k: {"y": lost * rng.normal(size=3)}
        )
        Judge("sums", "float32")("y", np.full(3, here), zero["y"], np.full(3, 1e-3), evidence=around)

    judged(2.0)  # few draws do: what is off by twice the most of theirs is bad luck
    if passes:
        judged(5.5)
        with pytest.raises(AssertionError, match="of what is allowed"):
            judged(20.0)
    else:
        with pytest.raises(AssertionError, match="in the mean"):
            judged(5.5)


@pytest.mark.parametrize("arrangement", ARRANGEMENTS, ids=("dense", "turned", "stepped", "flipped"))
def test_an_arrangement_is_another_place_for_the_same_numbers(arrangement):
    host = np.random.default_rng(0).normal(size=(2, 3, 4))
    x = vtl.tensor(np.ascontiguousarray(arrangement.base(host)), requires_grad=True)
    y = arrangement.view(x)
    (y * vtl.tensor(host)).sum().backward()
    np.testing.assert_array_equal(y.numpy(), host)
    np.testing.assert_array_equal(arrangement.back(x.grad.numpy()), host)


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
