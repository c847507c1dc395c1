"""Learning rate schedules."""

from __future__ import annotations

import numpy as np
import pytest

import vtl_core as vtl
import vtl_nn as nn
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


def test_a_cycle_may_have_a_peak_for_each_group():
    parts = [{"params": [vtl.ones(1, requires_grad=True)]} for _ in range(2)]
    optimizer = SGD(parts, lr=1.0)
    scheduler = lr_scheduler.OneCycleLR(optimizer, [1.0, 3.0], 5, pct_start=0.4)
    for _ in range(4):
        first, second = scheduler.get_last_lr()
        assert second == pytest.approx(3 * first)
        scheduler.step()
    optimizer.add_param_group({"params": [vtl.ones(1, requires_grad=True)]})
    scheduler.last_epoch -= 1
    with pytest.raises(vtl.AttributeValueError, match="2 max_lr, and group 2 was added since"):
        scheduler.step()


def test_a_cycle_has_an_end():
    optimizer = SGD([vtl.ones(1, requires_grad=True)], lr=1.0)
    scheduler = lr_scheduler.OneCycleLR(optimizer, 1.0, epochs=1, steps_per_epoch=2)
    scheduler.step()
    scheduler.step()
    with pytest.raises(vtl.AttributeValueError, match="step 3 is past the last of total_steps=2"):
        scheduler.step()


@pytest.mark.parametrize("total", [1, 2, 5])
def test_a_cycle_can_be_stepped_after_every_batch(total):
    """E05: the last call of `for batch: optimizer.step(); scheduler.step()` sets a rate that no batch uses."""
    optimizer = SGD([vtl.ones(1, requires_grad=True)], lr=1.0, momentum=0.9)
    scheduler = lr_scheduler.OneCycleLR(optimizer, 1.0, total_steps=total, pct_start=0.4)
    used = []
    for _ in range(total):
        used += scheduler.get_last_lr()
        optimizer.step()
        scheduler.step()

    assert used[-1] == pytest.approx(4e-6)
    assert scheduler.get_last_lr() == used[-1:]


@pytest.mark.parametrize(
    "make",
    [
        lambda o: lr_scheduler.StepLR(o, 0),
        lambda o: lr_scheduler.CosineAnnealingLR(o, 0),
        lambda o: lr_scheduler.OneCycleLR(o, 1.0),
        lambda o: lr_scheduler.OneCycleLR(o, 1.0, 5, pct_start=2),
        lambda o: lr_scheduler.OneCycleLR(o, [1.0, 2.0], 5),
        lambda o: lr_scheduler.StepLR(o, 2, last_epoch=-5),  # gamma to a negative power: a rate 100 times as large
        lambda o: lr_scheduler.PolynomialLR(o, 3, power=-1),  # a division by zero at its end
        lambda o: lr_scheduler.SequentialLR(o, [lr_scheduler.ConstantLR(o), lr_scheduler.ExponentialLR(o, 0.5)], [-2]),
        lambda o: lr_scheduler.ChainedScheduler([3]),
    ],
)
def test_options_out_of_range_are_refused(make):
    with pytest.raises(vtl.AttributeValueError):
        make(SGD([vtl.ones(1, requires_grad=True)]))


@pytest.mark.parametrize(
    ("make", "rates"),
    [
        (lambda t, o: t.StepLR(o, 2, 0.1), [1, 1, 0.1, 0.1, 0.01, 0.01]),
        (lambda t, o: t.MultiStepLR(o, [2, 3]), [1, 1, 0.1, 0.01, 0.01]),
        (lambda t, o: t.CosineAnnealingLR(o, 4), [1, 0.85355339, 0.5, 0.14644661, 0, 0.14644661]),
        (lambda t, o: t.CosineAnnealingWarmRestarts(o, 2), [1, 0.5, 1, 0.5]),
        (lambda t, o: t.LinearLR(o, 0.25, total_iters=3), [0.25, 0.5, 0.75, 1, 1]),
        (lambda t, o: t.OneCycleLR(o, 1.0, 5, pct_start=0.4), [0.04, 1, 0.750001, 0.250003, 4e-06]),
        (lambda t, o: t.LambdaLR(o, lambda k: min(1, (k + 1) / 4)), [0.25, 0.5, 0.75, 1]),
    ],
)
def test_e05_rates_step_by_step(make, rates):
    """E05: from step 0, base 1; no warm-up starts at 0 unasked."""
    optimizer = nn.optim.SGD([vtl.ones(1, requires_grad=True)], lr=1.0)
    schedule = make(nn.optim.lr_scheduler, optimizer)
    seen = [optimizer.param_groups[0]["lr"]]
    for _ in rates[1:]:
        schedule.step()
        seen.append(optimizer.param_groups[0]["lr"])
    assert seen == pytest.approx(rates, abs=1e-7)


def test_joined_schedules_go_on_from_a_saved_number():
    def made():
        optimizer = nn.optim.SGD([vtl.ones(1, requires_grad=True)], lr=1.0)
        t = nn.optim.lr_scheduler
        return optimizer, t.SequentialLR(
            optimizer, [t.LinearLR(optimizer, 0.1, total_iters=4), t.ExponentialLR(optimizer, 0.5)], [4]
        )

    optimizer, schedule = made()
    for _ in range(6):
        schedule.step()
    other, resumed = made()
    resumed.load_state_dict(schedule.state_dict())
    assert optimizer.param_groups[0]["lr"] == other.param_groups[0]["lr"] == 0.25


def test_a_plateau_goes_on_from_a_saved_state_and_names_what_is_wrong():
    def made(**options):
        optimizer = nn.optim.SGD([vtl.ones(1, requires_grad=True)], lr=1.0)
        return optimizer, nn.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1, **options)

    optimizer, schedule = made()
    for metric in (1.0, 1.0, vtl.tensor(1.0)):
        schedule.step(metric)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1)
    other, resumed = made()
    resumed.load_state_dict(schedule.state_dict())
    assert other.param_groups[0]["lr"] == pytest.approx(0.1)
    with pytest.raises(vtl.AttributeValueError, match="mode='up' must be 'min' or 'max'"):
        made(mode="up")
    with pytest.raises(nn.StateError, match="the state has no _last_lr, best"):
        resumed.load_state_dict({})
    with pytest.raises(vtl.AttributeValueError, match="ReduceLROnPlateau, which waits for a metric, cannot be joined"):
        nn.optim.lr_scheduler.ChainedScheduler([resumed], other)


def test_a_group_that_is_added_later_is_scheduled_from_its_own_rate():
    """Layers that are thawed while training: their initial lr is that with which they came."""
    optimizer = SGD([vtl.ones(1, requires_grad=True)], lr=1.0)
    scheduler = lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
    optimizer.add_param_group({"params": [vtl.ones(1, requires_grad=True)], "lr": 0.5})
    seen = []
    for _ in range(2):
        scheduler.step()
        seen.append(scheduler.get_last_lr())
    assert seen == [[1.0, 0.5], [0.5, 0.25]]


@pytest.mark.parametrize("make", [lambda o: lr_scheduler.LambdaLR(o, lambda k: 0.5), lr_scheduler.ReduceLROnPlateau])
def test_schedules_made_for_fewer_groups_say_so(make):
    optimizer = SGD([vtl.ones(1, requires_grad=True)], lr=1.0)
    scheduler = make(optimizer)
    optimizer.add_param_group({"params": [vtl.ones(1, requires_grad=True)]})
    with pytest.raises(vtl.AttributeValueError, match="make the scheduler after"):
        scheduler.step(1.0) if isinstance(scheduler, lr_scheduler.ReduceLROnPlateau) else scheduler.step()


def test_schedules_refuse_what_would_give_no_rate():
    optimizer = SGD([vtl.ones(1, requires_grad=True)], lr=1.0)
    with pytest.raises(vtl.AttributeValueError, match="factor=-1"):
        lr_scheduler.ReduceLROnPlateau(optimizer, factor=-1)
    with pytest.raises(vtl.AttributeValueError, match="div_factor=0"):
        lr_scheduler.OneCycleLR(optimizer, 1.0, total_steps=4, div_factor=0)
    with pytest.raises(nn.StateError, match="last_epoch=-5"):
        lr_scheduler.StepLR(optimizer, 1).load_state_dict({"last_epoch": -5})
    plateau = lr_scheduler.ReduceLROnPlateau(optimizer)
    with pytest.raises(nn.StateError, match="2 groups"):
        plateau.load_state_dict({**plateau.state_dict(), "_last_lr": [1.0, 2.0], "best": 7.0})
    assert plateau.best == np.inf


def test_momentum_moves_against_the_rate_of_a_cycle():
    """PyTorch's default: 0.95 at both ends, 0.85 at the peak; betas where there is no momentum."""
    parameters = [vtl.ones(1, requires_grad=True)]
    for optimizer, read in (
        (SGD(parameters, lr=1.0, momentum=0.5), lambda g: g["momentum"]),
        (nn.optim.Adam(parameters), lambda g: g["betas"][0]),
    ):
        scheduler = lr_scheduler.OneCycleLR(optimizer, 1.0, total_steps=5, pct_start=0.4)
        found = []
        for _ in range(5):
            found.append(read(optimizer.param_groups[0]))
            if len(found) < 5:
                scheduler.step()
        assert found == pytest.approx([0.95, 0.85, 0.875, 0.925, 0.95])
    assert optimizer.param_groups[0]["betas"][1] == 0.999


def test_a_cycle_of_three_phases_falls_as_it_rose_and_then_to_nothing():
    optimizer = SGD([vtl.ones(1, requires_grad=True)], lr=1.0, momentum=0.9)
    scheduler = lr_scheduler.OneCycleLR(
        optimizer,
        1.0,
        7,
        pct_start=3 / 7,
        anneal_strategy="linear",
        cycle_momentum=False,
        div_factor=5,
        three_phase=True,
    )
    found = []
    for _ in range(6):
        found += scheduler.get_last_lr()
        scheduler.step()
    assert [*found, *scheduler.get_last_lr()] == pytest.approx([0.2, 0.6, 1, 0.6, 0.2, 0.10001, 0.2e-4])
    assert optimizer.param_groups[0]["momentum"] == 0.9


def test_a_cycle_behind_a_warm_up_moves_momentum_when_its_turn_has_come():
    optimizer = SGD([vtl.ones(1, requires_grad=True)], lr=1.0, momentum=0.5)
    warm_up = lr_scheduler.LinearLR(optimizer, 0.1, total_iters=3)
    cycle = lr_scheduler.OneCycleLR(optimizer, 1.0, 4)
    optimizer.param_groups[0]["momentum"] = 0.5
    scheduler = lr_scheduler.SequentialLR(optimizer, [warm_up, cycle], [3])
    seen = []
    for _ in range(5):
        seen.append(optimizer.param_groups[0]["momentum"])
        scheduler.step()
    assert seen[:3] == [0.5, 0.5, 0.5]
    assert seen[3] == pytest.approx(0.95)
    assert seen[4] < 0.95


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"anneal_strategy": "step"}, "anneal_strategy='step' must be one of 'cos', 'linear'"),
        ({"base_momentum": 0.9, "max_momentum": 0.8}, r"must rise within \[0, 1\)"),
        ({"max_momentum": [0.9, 0.9]}, "2 max_momentum for 1 groups"),
    ],
)
def test_a_cycle_refuses_momenta_and_annealings_that_it_cannot_follow(options, words):
    optimizer = SGD([vtl.ones(1, requires_grad=True)], lr=1.0)
    with pytest.raises(vtl.AttributeValueError, match=words):
        lr_scheduler.OneCycleLR(optimizer, 1.0, 5, **options)


def test_a_cycle_of_an_optimizer_without_momentum_says_what_to_give():
    optimizer = nn.optim.Adagrad([vtl.ones(1, requires_grad=True)])
    with pytest.raises(
        vtl.AttributeValueError, match="Adagrad has neither momentum nor betas; give cycle_momentum=False"
    ):
        lr_scheduler.OneCycleLR(optimizer, 1.0, 5)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda t, o: t.StepLR(None, 3), "StepLR: its first argument is NoneType"),
        (lambda t, o: t.LambdaLR(3, abs), "LambdaLR: its first argument is int"),
        (lambda t, o: t.OneCycleLR("sgd", 1.0, 10), "OneCycleLR: its first argument is str"),
        (lambda t, o: t.ReduceLROnPlateau({}), "ReduceLROnPlateau: its first argument is dict"),
        (lambda t, o: t.StepLR(o, 3, gamma="a"), "StepLR: gamma='a' must be a number"),
        (lambda t, o: t.ExponentialLR(o, None), "ExponentialLR: gamma=None must be a number"),
        (lambda t, o: t.MultiStepLR(o, [3], gamma=[0.1]), "MultiStepLR: gamma="),
        (lambda t, o: t.MultiStepLR(o, ["a"]), "MultiStepLR: milestones="),
        (lambda t, o: t.MultiStepLR(o, 3), "MultiStepLR: milestones=3"),
        (lambda t, o: t.LambdaLR(o, 3), "LambdaLR: 3 is no function"),
        (lambda t, o: t.ConstantLR(o, factor=None), "ConstantLR: factor=None"),
        (lambda t, o: t.LinearLR(o, "a"), "LinearLR: start_factor='a'"),
        (lambda t, o: t.PolynomialLR(o, "a"), "PolynomialLR: total_iters='a'"),
        (lambda t, o: t.CosineAnnealingLR(o, 10, eta_min="x"), "CosineAnnealingLR: eta_min='x'"),
        (lambda t, o: t.CosineAnnealingWarmRestarts(o, "3"), "CosineAnnealingWarmRestarts: T_0='3'"),
        (lambda t, o: t.OneCycleLR(o, ["a"], total_steps=3, cycle_momentum=False), "OneCycleLR: max_lr='a'"),
        (lambda t, o: t.OneCycleLR(o, 1.0, total_steps="3", cycle_momentum=False), "OneCycleLR: total_steps='3'"),
        (lambda t, o: t.ReduceLROnPlateau(o, factor="a"), "ReduceLROnPlateau: factor='a'"),
    ],
)
def test_what_is_no_optimizer_no_number_or_no_function_is_named(make, words):
    optimizer = SGD([vtl.ones(1, requires_grad=True)], lr=1.0)
    with pytest.raises(vtl.AttributeValueError, match=words):
        make(lr_scheduler, optimizer)
    assert optimizer.param_groups[0]["lr"] == 1.0
