"""Random configurations of learning rates over two hundred steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from differential import Judge, Verdict
from families_optim import either

import vtl_core as vtl
import vtl_nn as nn

Rng = np.random.Generator
STEPS = 200


def _falling(c: float):
    return lambda k: 1 / (1 + c * k)


SCHEDULES = {
    "StepLR": lambda t, opt, rng: t.StepLR(opt, int(rng.integers(1, 40)), float(rng.uniform(0.2, 0.9))),
    "MultiStepLR": lambda t, opt, rng: t.MultiStepLR(opt, sorted(int(n) for n in rng.integers(1, 150, 4)), float(rng.uniform(0.2, 0.9))),
    "ConstantLR": lambda t, opt, rng: t.ConstantLR(opt, float(rng.uniform(0.1, 1)), int(rng.integers(1, 60))),
    "LinearLR": lambda t, opt, rng: t.LinearLR(opt, float(rng.uniform(0.1, 1)), float(rng.uniform(0.1, 1)), int(rng.integers(1, 60))),
    "ExponentialLR": lambda t, opt, rng: t.ExponentialLR(opt, float(rng.uniform(0.9, 0.999))),
    "PolynomialLR": lambda t, opt, rng: t.PolynomialLR(opt, int(rng.integers(1, 300)), float(rng.uniform(0.5, 3))),
    "CosineAnnealingLR": lambda t, opt, rng: t.CosineAnnealingLR(opt, int(rng.integers(2, 90)), float(rng.uniform(0, 0.01))),
    "CosineAnnealingWarmRestarts": lambda t, opt, rng: t.CosineAnnealingWarmRestarts(
        opt, int(rng.integers(1, 20)), int(rng.integers(1, 4)), float(rng.uniform(0, 0.01))
    ),
    "OneCycleLR": lambda t, opt, rng: t.OneCycleLR(
        opt, max_lr=0.4, **_length(rng), pct_start=float(rng.uniform(0.1, 0.6)), div_factor=float(rng.uniform(2, 30)),
        final_div_factor=float(either(rng, 1e4, 10)), anneal_strategy=either(rng, "cos", "linear"), cycle_momentum=either(rng, True, False),
        base_momentum=float(rng.uniform(0.5, 0.8)), three_phase=either(rng, True, False),
    ),
    "LambdaLR": lambda t, opt, rng: t.LambdaLR(opt, either(
        rng, _falling(float(rng.uniform(0.01, 0.1))), [_falling(float(c)) for c in rng.uniform(0.01, 0.1, 2)]
    )),
}  # fmt: skip
SIMPLE = ("StepLR", "MultiStepLR", "ExponentialLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "PolynomialLR")


def _length(rng: Rng) -> dict[str, int]:
    return either(rng, {"total_steps": STEPS + int(rng.integers(50))}, {"epochs": 10, "steps_per_epoch": STEPS // 10})


def _sequential(t: Any, opt: Any, rng: Rng) -> Any:
    """A warm-up, then one or two others."""
    schedules = [t.LinearLR(opt, float(rng.uniform(0.1, 0.5)), total_iters=int(rng.integers(2, 20)))]
    milestones = sorted(int(n) for n in rng.choice(np.arange(2, 90), int(rng.integers(1, 3)), replace=False))
    for _ in milestones:
        schedules.append(SCHEDULES[either(rng, *SIMPLE)](t, opt, rng))
    return t.SequentialLR(opt, schedules, milestones)


def _chained(t: Any, opt: Any, rng: Rng) -> Any:
    parts = [
        t.ConstantLR(opt, float(rng.uniform(0.1, 0.9)), int(rng.integers(1, 30))),
        t.ExponentialLR(opt, float(rng.uniform(0.9, 0.99))),
    ]
    return t.ChainedScheduler(parts[:: either(rng, 1, -1)])


MAKERS = {**SCHEDULES, "SequentialLR": _sequential, "ChainedScheduler": _chained}


def _plateau(t: Any, opt: Any, rng: Rng) -> Any:
    options = {
        "mode": either(rng, "min", "max"), "factor": float(rng.uniform(0.1, 0.9)), "patience": int(rng.integers(0, 6)),
        "threshold": float(either(rng, 1e-4, 0.1)), "threshold_mode": either(rng, "rel", "abs"), "cooldown": int(rng.integers(0, 4)),
        "min_lr": either(rng, 0.0, 1e-3, [1e-3, 1e-2]), "eps": float(either(rng, 1e-8, 1e-2)),
    }  # fmt: skip
    return t.ReduceLROnPlateau(opt, **options)


def _rates(
    make: Callable[..., Any], library: Any, tensor: Any, rng: Rng, metrics: Iterable[float | None]
) -> np.ndarray:
    groups = [{"params": [tensor.ones(1, requires_grad=True)], "lr": lr} for lr in (0.1, 0.03)]
    opt = getattr(library.optim, either(rng, "SGD", "Adam"))(groups, lr=0.1)
    made = make(library.optim.lr_scheduler, opt, rng)

    def rates() -> list[float]:
        return [n for g in opt.param_groups for n in (g["lr"], g["momentum"] if "momentum" in g else g["betas"][0])]

    found = [rates()]
    for metric in metrics:
        opt.step()
        made.step(*([] if metric is None else [metric]))
        found.append(rates())
    return np.array(found)


def schedule(name: str, numbers: Iterable[int], dtype: str = "float64", device: str = "cpu") -> Verdict:
    """Every group's lr and momentum, to 1e-12 of the largest, at each of two hundred steps; a plateau's of a random walk of its metric."""
    verdict = Verdict()
    for number in numbers:
        metrics = [None] * (STEPS - 1)
        if name == "ReduceLROnPlateau":
            walk = np.random.default_rng([7, number]).normal(size=STEPS) * 0.1
            metrics = [float(m) for m in np.abs(1 + np.cumsum(walk))]
        make = _plateau if name == "ReduceLROnPlateau" else MAKERS[name]
        found = [
            _rates(make, library, tensor, np.random.default_rng([sum(map(ord, name)), number]), metrics)
            for library, tensor in ((nn, vtl), (torch, torch))
        ]
        judge = Judge(f"{name} {number}", "float64")
        judge("lr", *found)
        verdict |= judge.verdict
    return verdict
