"""Random configurations of optimizers over a hundred steps, and of schedules over two hundred."""

from __future__ import annotations

import numpy as np
import torch
from differential import ULPS

import vtl_core as vtl
import vtl_nn as nn

Rng = np.random.Generator


def _either(rng: Rng, *values):
    return values[int(rng.integers(len(values)))]


def _betas(rng: Rng) -> tuple[float, float]:
    return (float(_either(rng, 0.9, 0.8, 0.5, 0.0)), float(_either(rng, 0.999, 0.95, 0.99)))


def _sgd(rng: Rng) -> dict:
    momentum = float(_either(rng, 0, 0.9, 0.5))
    nesterov = momentum > 0 and rng.random() < 0.4
    dampening = 0.0 if nesterov or not momentum else float(_either(rng, 0, 0.3))
    return {"momentum": momentum, "nesterov": nesterov, "dampening": dampening}


OPTIMIZERS = {
    "SGD": _sgd,
    "Adam": lambda rng: {"betas": _betas(rng), "eps": float(_either(rng, 1e-8, 1e-4)), "amsgrad": rng.random() < 0.3},
    "AdamW": lambda rng: {"betas": _betas(rng), "eps": float(_either(rng, 1e-8, 1e-4)), "amsgrad": rng.random() < 0.3},
    "Adagrad": lambda rng: {"lr_decay": float(_either(rng, 0, 0.1)), "initial_accumulator_value": float(_either(rng, 0, 0.5))},
    "RMSprop": lambda rng: {"alpha": float(_either(rng, 0.99, 0.9)), "momentum": float(_either(rng, 0, 0.9)), "centered": rng.random() < 0.5},
    "NAdam": lambda rng: {"betas": _betas(rng), "momentum_decay": float(_either(rng, 4e-3, 0.1)), "decoupled_weight_decay": rng.random() < 0.5},
    "RAdam": lambda rng: {"betas": _betas(rng), "decoupled_weight_decay": rng.random() < 0.5},
}  # fmt: skip


def optimizer(name: str, number: int, dtype: str, device: str = "cpu", steps: int = 100) -> None:
    """Parameters and slots agree after each tenth step: 1e-12 of scale in float64; in float32 as far as PyTorch's own go."""
    rng = np.random.default_rng([len(name), sum(map(ord, name)), number])
    options = OPTIMIZERS[name](rng)
    options |= {
        "lr": float(_either(rng, 0.05, 0.01, 0.3)),
        "weight_decay": float(_either(rng, 0, 0, 0.1)),
        "maximize": bool(rng.random() < 0.2),
    }
    shapes = [tuple(int(n) for n in rng.integers(1, 5, rng.integers(0, 4))) for _ in range(int(rng.integers(1, 4)))]
    starts = [rng.normal(size=shape).astype(dtype) for shape in shapes]
    where = f"{name} {number} {dtype} on {device}: {shapes} {options}"
    runs = {}
    for key, kind in (("truth", torch.float64), ("theirs", getattr(torch, dtype))):
        ps = [torch.tensor(a.astype(np.float64), dtype=kind, requires_grad=True) for a in starts]
        runs[key] = ps, getattr(torch.optim, name)(ps, **options)
    ps = [vtl.tensor(a, device=device, requires_grad=True) for a in starts]
    runs["ours"] = ps, getattr(nn.optim, name)(ps, **options)
    small = float(_either(rng, 1, 1e-3))
    for step in range(steps):
        gradients = [(rng.normal(size=shape) * small).astype(dtype) for shape in shapes]
        skipped = rng.random(len(shapes)) < 0.1
        if step == steps // 2:
            for _, opt in runs.values():
                opt.param_groups[0]["lr"] *= 0.5
        for key, (ps, opt) in runs.items():
            for p, g, skip in zip(ps, gradients, skipped, strict=True):
                made = (
                    vtl.tensor(g, device=device) if key == "ours" else torch.tensor(g.astype(np.float64), dtype=p.dtype)
                )
                p.grad = None if skip else made
            torch.set_default_dtype(torch.float64 if key == "truth" else torch.float32)  # of mu_product, say
            opt.step()
        if step % 10 == 9 or step < 8:
            got, truth, theirs = (
                [p.detach().numpy().astype(float) for p in runs[key][0]] for key in ("ours", "truth", "theirs")
            )
            for k, (a, b, c) in enumerate(zip(got, truth, theirs, strict=True)):
                scale = max(1.0, float(np.max(np.abs(b))))
                room = max(ULPS[dtype] * scale * (1 + step), 4 * float(np.max(np.abs(c - b))))
                worst = float(np.max(np.abs(a - b)))
                assert worst <= room, (
                    f"{where}: parameter {k} is off by {worst:.3g} after step {step}, {room:.3g} is allowed"
                )
    if options["maximize"]:
        return  # slots of first order hold the negative of PyTorch's
    ours, expected = runs["ours"][1].state_dict()["state"], runs["truth"][1].state_dict()["state"]
    for number_, slots in expected.items():
        assert set(slots) - {"step"} <= set(ours[number_]), (
            f"{where}: slots {sorted(ours[number_])}, PyTorch's {sorted(slots)}"
        )
        for slot, value in slots.items():
            if slot in ours[number_] and value is not None:
                tolerance = {"rtol": 1e-9, "atol": 1e-10} if dtype == "float64" else {"rtol": 1e-3, "atol": 1e-4}
                np.testing.assert_allclose(
                    ours[number_][slot].numpy(), np.asarray(value), **tolerance, err_msg=f"{where}: {slot}"
                )


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
        opt, max_lr=0.4, total_steps=200, pct_start=float(rng.uniform(0.1, 0.6)), div_factor=float(rng.uniform(2, 30)),
        **({} if t is nn.optim.lr_scheduler else {"cycle_momentum": False}),
    ),
    "LambdaLR": lambda t, opt, rng: t.LambdaLR(opt, _falling(float(rng.uniform(0.01, 0.1)))),
}  # fmt: skip
SIMPLE = ("StepLR", "MultiStepLR", "ExponentialLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "PolynomialLR")
JOINED = ("SequentialLR", "ChainedScheduler")


def _joined(name: str, t, opt, rng: Rng):
    if name == "SequentialLR":
        first = t.LinearLR(opt, float(rng.uniform(0.1, 0.5)), total_iters=int(rng.integers(2, 20)))
        second = SCHEDULES[SIMPLE[int(rng.integers(len(SIMPLE)))]](t, opt, rng)
        return t.SequentialLR(opt, [first, second], [int(rng.integers(2, 40))])
    parts = [
        t.ConstantLR(opt, float(rng.uniform(0.1, 0.9)), int(rng.integers(1, 30))),
        t.ExponentialLR(opt, float(rng.uniform(0.9, 0.99))),
    ]
    return t.ChainedScheduler(parts)


def schedule(name: str, number: int) -> None:
    """Every group's lr, to 1e-9 of itself or 1e-12 of the first, at each of two hundred steps."""
    seen = []
    for library, tensor, kind in ((nn, vtl, nn.optim.lr_scheduler), (torch, torch, torch.optim.lr_scheduler)):
        rng = np.random.default_rng([sum(map(ord, name)), number])
        groups = [{"params": [tensor.ones(1, requires_grad=True)], "lr": lr} for lr in (0.1, 0.03)]
        opt = library.optim.SGD(groups, lr=0.1)
        made = _joined(name, kind, opt, rng) if name in JOINED else SCHEDULES[name](kind, opt, rng)
        rates = []
        for _ in range(199):
            rates.append([group["lr"] for group in opt.param_groups])
            opt.step()
            made.step()
        seen.append(rates)
    np.testing.assert_allclose(*seen, rtol=1e-9, atol=1e-13, err_msg=f"{name} {number}")


def plateau(number: int) -> None:
    """A random walk of a metric; rates are equal at every step."""
    seen = []
    for library, tensor in ((nn, vtl), (torch, torch)):
        rng = np.random.default_rng([7, number])
        opt = library.optim.SGD([tensor.ones(1, requires_grad=True)], lr=0.5)
        options = {
            "mode": _either(rng, "min", "max"), "factor": float(rng.uniform(0.1, 0.9)), "patience": int(rng.integers(0, 6)),
            "threshold": float(_either(rng, 1e-4, 0.1)), "threshold_mode": _either(rng, "rel", "abs"), "cooldown": int(rng.integers(0, 4)),
            "min_lr": float(_either(rng, 0, 1e-3)), "eps": float(_either(rng, 1e-8, 1e-2)),
        }  # fmt: skip
        made = library.optim.lr_scheduler.ReduceLROnPlateau(opt, **options)
        metric, rates = 1.0, []
        for _ in range(200):
            metric = abs(metric + float(rng.normal()) * 0.1)
            made.step(metric)
            rates.append(opt.param_groups[0]["lr"])
        seen.append(rates)
    np.testing.assert_allclose(*seen, rtol=1e-12, err_msg=f"{number}")
