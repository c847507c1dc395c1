"""Learning rate schedules."""

from __future__ import annotations

import pytest

import vtl_core as vtl
from vtl_nn.optim import SGD, lr_scheduler


def rates(make, count):
    optimizer = SGD([vtl.ones(1, requires_grad=True)], lr=1.0)
    scheduler, seen = make(optimizer), []
    for k in range(count):
        seen.append(optimizer.param_groups[0]["lr"])
        if k < count - 1:
            scheduler.step()
    return seen


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda o: lr_scheduler.StepLR(o, 2), [1, 1, 0.1, 0.1, 0.01, 0.01]),
        (lambda o: lr_scheduler.CosineAnnealingLR(o, 4), [1, 0.85355339, 0.5, 0.14644661, 0, 0.14644661]),
        (lambda o: lr_scheduler.OneCycleLR(o, 1.0, total_steps=5, pct_start=0.4), [0.04, 1, 0.750001, 0.250003, 4e-6]),
    ],
)
def test_rates_are_pytorchs(make, expected):
    """E05: the rate of step 0 is set on construction, and there is no step off by one."""
    assert rates(make, len(expected)) == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_a_loaded_schedule_goes_on():
    """E07."""
    a, b = (SGD([vtl.ones(1, requires_grad=True)], lr=1.0) for _ in range(2))
    first, second = lr_scheduler.StepLR(a, 2), lr_scheduler.StepLR(b, 2)
    for _ in range(3):
        first.step()
    second.load_state_dict(first.state_dict())

    assert second.get_last_lr() == first.get_last_lr() == pytest.approx([0.1])


def test_a_cycle_has_an_end():
    optimizer = SGD([vtl.ones(1, requires_grad=True)], lr=1.0)
    scheduler = lr_scheduler.OneCycleLR(optimizer, 1.0, epochs=1, steps_per_epoch=2)
    scheduler.step()
    with pytest.raises(vtl.AttributeValueError, match="step 2 is past the last of total_steps=2"):
        scheduler.step()


@pytest.mark.parametrize(
    "make",
    [
        lambda o: lr_scheduler.StepLR(o, 0),
        lambda o: lr_scheduler.CosineAnnealingLR(o, 0),
        lambda o: lr_scheduler.OneCycleLR(o, 1.0),
        lambda o: lr_scheduler.OneCycleLR(o, 1.0, 5, pct_start=2),
    ],
)
def test_options_out_of_range_are_refused(make):
    with pytest.raises(vtl.AttributeValueError):
        make(SGD([vtl.ones(1, requires_grad=True)]))
