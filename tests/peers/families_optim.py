"""Random configurations of optimizers over a hundred steps; many stand in one optimizer, a group each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

import numpy as np
import torch
from differential import ULPS, Judge, Neighbours, Verdict, near

import vtl_core as vtl
import vtl_nn as nn

Rng = np.random.Generator
BFLOAT16 = 2.0**-8


def either(rng: Rng, *values):
    """One of the values."""
    return values[int(rng.integers(len(values)))]


class Lion:
    """Algorithm 2 of Chen et al. 2023, "Symbolic discovery of optimization algorithms", in NumPy; maximize negates gradients.

    A sign near nothing is decided by rounding: `undecided` says which elements have met one.
    """

    def __init__(self, groups: list[dict[str, Any]]) -> None:
        self.param_groups = groups
        self.momenta = {id(p): np.zeros(tuple(p.shape), p.detach().numpy().dtype) for p in _of(groups)}
        self.undecided = {key: np.zeros(m.shape, bool) for key, m in self.momenta.items()}

    def step(self) -> None:
        """One step of every parameter that has a gradient."""
        for group in self.param_groups:
            lr, (b1, b2), decay = group["lr"], group["betas"], group["weight_decay"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                x, m = p.detach().numpy(), self.momenta[id(p)]
                g = p.grad.numpy() * (-1 if group["maximize"] else 1)
                c = b1 * m + (1 - b1) * g
                sum_of_sizes = b1 * abs(m) + (1 - b1) * abs(g)
                self.undecided[id(p)] |= (c != 0) & (abs(c) < 2.0**-18 * sum_of_sizes)
                x[...] = x - lr * (np.sign(c) + decay * x)
                m[...] = b2 * m + (1 - b2) * g

    def state_dict(self) -> dict[str, Any]:
        """The momenta, under the name that they have here."""
        return {"state": {k: {"exp_avg": self.momenta[id(p)]} for k, p in enumerate(_of(self.param_groups))}}


class Muon:
    """Jordan's iteration in NumPy and float64, where PyTorch's and ours run it in bfloat16."""

    def __init__(self, groups: list[dict[str, Any]]) -> None:
        defaults = {"ns_coefficients": (3.4445, -4.775, 2.0315), "eps": 1e-7}
        self.param_groups = [defaults | group for group in groups]
        self.buffers = {id(p): np.zeros(tuple(p.shape)) for p in _of(groups)}

    def step(self) -> None:
        """Momentum, the orthogonal matrix near it, decay, and the step along it."""
        for group in self.param_groups:
            lr, momentum = group["lr"], group["momentum"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                x, buffer, g = p.detach().numpy(), self.buffers[id(p)], p.grad.numpy()
                buffer[...] = momentum * buffer + (1 - momentum) * g
                u = momentum * buffer + (1 - momentum) * g if group["nesterov"] else buffer
                rows, columns = u.shape
                factor = 0.2 * sqrt(max(rows, columns)) if group["adjust_lr_fn"] == "match_rms_adamw" else sqrt(max(1, rows / columns))  # fmt: skip
                x[...] = (1 - lr * group["weight_decay"]) * x - lr * factor * self.orthogonal(u, group)

    @staticmethod
    def orthogonal(u: np.ndarray, group: dict[str, Any]) -> np.ndarray:
        """The quintic iteration by the singular values, which it maps without turning their vectors."""
        left, values, right = np.linalg.svd(u, full_matrices=False)
        values = values / max(np.linalg.norm(u), group["eps"])
        a, b, c = group["ns_coefficients"]
        for _ in range(group["ns_steps"]):
            values = values * (a + b * values**2 + c * values**4)
        return (left * values) @ right

    def state_dict(self) -> dict[str, Any]:
        """The momenta, under PyTorch's name."""
        found = enumerate(_of(self.param_groups))
        return {"state": {k: {"momentum_buffer": self.buffers[id(p)]} for k, p in found}}


def _of(groups: list[dict[str, Any]]) -> list[Any]:
    return [p for group in groups for p in group["params"]]


def _betas(rng: Rng) -> tuple[float, float]:
    return (float(either(rng, 0.9, 0.8, 0.5, 0.0)), float(either(rng, 0.999, 0.95, 0.99)))


def _sgd(rng: Rng) -> dict:
    momentum = float(either(rng, 0, 0.9, 0.5))
    nesterov = momentum > 0 and rng.random() < 0.4
    dampening = 0.0 if nesterov or not momentum else float(either(rng, 0, 0.3))
    return {"momentum": momentum, "nesterov": nesterov, "dampening": dampening}


OPTIMIZERS = {
    "SGD": _sgd,
    "Adam": lambda rng: {"betas": _betas(rng), "eps": float(either(rng, 1e-8, 1e-4)), "amsgrad": rng.random() < 0.3},
    "AdamW": lambda rng: {"betas": _betas(rng), "eps": float(either(rng, 1e-8, 1e-4)), "amsgrad": rng.random() < 0.3},
    "Adagrad": lambda rng: {"lr_decay": float(either(rng, 0, 0.1)), "initial_accumulator_value": float(either(rng, 0, 0.5))},
    "RMSprop": lambda rng: {"alpha": float(either(rng, 0.99, 0.9)), "momentum": float(either(rng, 0, 0.9)), "centered": rng.random() < 0.5},
    "NAdam": lambda rng: {"betas": _betas(rng), "momentum_decay": float(either(rng, 4e-3, 0.1)), "decoupled_weight_decay": rng.random() < 0.5},
    "RAdam": lambda rng: {"betas": _betas(rng), "decoupled_weight_decay": rng.random() < 0.5},
    "Lion": lambda rng: {"betas": _betas(rng)},
    "Muon": lambda rng: {
        "momentum": float(either(rng, 0.95, 0.9, 0.5, 0.0)), "nesterov": rng.random() < 0.5, "ns_steps": either(rng, 5, 5, 3),
        "adjust_lr_fn": either(rng, None, "original", "match_rms_adamw"),
    },
}  # fmt: skip


def _adagrad(groups: list[dict[str, Any]]) -> torch.optim.Adagrad:
    """PyTorch's starts all sums from the constructor's value, whatever a group says."""
    made = torch.optim.Adagrad(groups)
    for group in made.param_groups:
        for p in group["params"]:
            made.state[p]["sum"].fill_(group["initial_accumulator_value"])
    return made


TRUTHS: dict[str, Callable[..., Any]] = {"Lion": Lion, "Muon": Muon, "Adagrad": _adagrad}  # else PyTorch's in float64
PEERS: dict[str, Callable[..., Any]] = {"Lion": Lion, "Adagrad": _adagrad}  # else PyTorch's in the dtype


@dataclass
class Group:
    """One configuration: options, where its parameters start, and every step's gradients, of which some are missing."""

    options: dict[str, Any]
    starts: list[np.ndarray]
    gradients: list[np.ndarray]
    skipped: np.ndarray


def _drawn(name: str, number: int, dtype: str, steps: int) -> Group:
    rng = np.random.default_rng([len(name), sum(map(ord, name)), number])
    options = OPTIMIZERS[name](rng)
    options |= {"lr": float(either(rng, 0.05, 0.01, 0.3)), "weight_decay": float(either(rng, 0, 0, 0.1))}
    small, count = float(either(rng, 1, 1e-3)), int(rng.integers(1, 3))
    if name == "Muon":
        count, shapes = 1, [tuple(int(n) for n in rng.integers(1, 6, 2))]
        gradients = [_well_conditioned(rng, steps, shape) for shape in shapes]
    else:
        options["maximize"] = bool(rng.random() < 0.2)
        shapes = [tuple(int(n) for n in rng.integers(1, 5, rng.integers(0, 4))) for _ in range(count)]
        gradients = [rng.normal(size=(steps, *shape)) for shape in shapes]
    starts = [rng.normal(size=shape).astype(dtype) for shape in shapes]
    skipped = rng.random((steps, count)) < 0.1
    return Group(options, starts, [(g * small).astype(dtype) for g in gradients], skipped)


def _well_conditioned(rng: Rng, steps: int, shape: tuple[int, int]) -> np.ndarray:
    """Near one matrix with singular values from 0.5 to 1: what is near nothing is orthogonal to whatever bfloat16 leaves."""
    left, values, right = np.linalg.svd(rng.normal(size=shape), full_matrices=False)
    base = (left * rng.uniform(0.5, 1, values.shape)) @ right
    return base + 0.05 * rng.normal(size=(steps, *shape)) / sqrt(max(shape))


Stepped = tuple[
    Any, list[Any], list[dict[str, np.ndarray]]
]  # the optimizer, its parameters, and each one's arrays by name


def _stepped(make: Callable[..., Any], groups: Sequence[Group], tensor: Callable[..., Any], seen: list[int]) -> Stepped:
    """All steps: what parameters are after each of `seen`, and their slots at the end."""
    params = [[tensor(a).requires_grad_(True) for a in group.starts] for group in groups]
    optimizer = make([{"params": ps, **group.options} for ps, group in zip(params, groups, strict=True)])
    flat = [p for ps in params for p in ps]
    gradients = [tensor(g) for group in groups for g in group.gradients]
    skipped = np.concatenate([group.skipped for group in groups], axis=1)
    found: list[dict[str, np.ndarray]] = [{} for _ in flat]
    for step, skips in enumerate(skipped):
        if step == len(skipped) // 2:
            for group in optimizer.param_groups:
                group["lr"] *= 0.5
        for p, g, skip in zip(flat, gradients, skips, strict=True):
            p.grad = None if skip else g[step]
        optimizer.step()
        if step in seen:
            for arrays, p in zip(found, flat, strict=True):
                arrays[f"after step {step}"] = np.array(p.detach().numpy())
    for k, slots in optimizer.state_dict()["state"].items():
        for slot, value in slots.items():
            if slot != "step" and value is not None:
                found[k][slot] = np.array(value.numpy() if hasattr(value, "numpy") else value)
    return optimizer, flat, found


def _truth(name: str, groups: Sequence[Group], seen: list[int]) -> Stepped:
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)  # of NAdam's mu_product
    try:
        make = TRUTHS.get(name, getattr(torch.optim, name, None))
        return _stepped(make, groups, lambda a: torch.tensor(a, dtype=torch.float64), seen)
    finally:
        torch.set_default_dtype(default)


def _peer(name: str, groups: Sequence[Group], seen: list[int]) -> Stepped:
    return _stepped(PEERS.get(name, getattr(torch.optim, name, None)), groups, torch.tensor, seen)


def _own(name: str, groups: Sequence[Group], seen: list[int], device: str) -> Stepped:
    return _stepped(getattr(nn.optim, name), groups, lambda a: vtl.tensor(a, device=device), seen)


def _named(found: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """One configuration's."""
    return {f"parameter {k} {name}": array for k, arrays in enumerate(found) for name, array in arrays.items()}


def _neighbours(
    name: str, group: Group, number: int, dtype: str, seen: list[int], device: str, here: dict[str, np.ndarray]
) -> Neighbours:
    """The same steps from starts and along gradients an ULP away: steps too long for their slope throw them apart."""

    def beside(k: int) -> list[Group]:
        rng = np.random.default_rng([number, k])
        starts, gradients = ([near(rng, dtype, a) for a in arrays] for arrays in (group.starts, group.gradients))
        return [replace(group, starts=starts, gradients=gradients)]

    wide = lambda k: _named(_truth(name, beside(k), seen)[2])
    alike = dtype == "float64" and name != "Muon"
    peer = wide if alike else lambda k: _named(_peer(name, beside(k), seen)[2])
    return Neighbours(here, wide, peer, lambda k: _named(_own(name, beside(k), seen, device)[2]))


def optimizer(name: str, numbers: Sequence[int], dtype: str, device: str = "cpu", steps: int = 100) -> Verdict:
    """Parameters after the first eight steps and each tenth, and slots: 1e-12 of scale, growing by step, in float64.

    In float32 as far as PyTorch's own go, from these starts or from ones beside them.
    """
    groups = [_drawn(name, number, dtype, steps) for number in numbers]
    seen = [step for step in range(steps) if step % 10 == 9 or step < 8]
    first, their_params, expected = _truth(name, groups, seen)
    theirs = expected if dtype == "float64" and name != "Muon" else _peer(name, groups, seen)[2]
    _, _, got = _own(name, groups, seen, device)
    for p, *each in zip(their_params, expected, theirs, got, strict=True):
        undecided = getattr(first, "undecided", {}).get(id(p))
        if undecided is not None and undecided.any():  # a sign that rounding decides says nothing from then on
            for arrays in each:
                for text, array in arrays.items():
                    array[undecided & text.startswith("after")] = np.nan
    verdict, place = Verdict(), 0
    for number, group in zip(numbers, groups, strict=True):
        places = slice(place, place + len(group.starts))
        here, found, peers = (_named(each[places]) for each in (expected, got, theirs))
        judge = Judge(f"{name} {number} {dtype} on {device}: {[a.shape for a in group.starts]} {group.options}", dtype)
        evidence = _neighbours(name, group, number, dtype, seen, device, here)
        for text, array in here.items():
            stepped = " after step " in text
            if not stepped and group.options.get("maximize"):  # slots of first order hold the negative of PyTorch's
                continue
            assert text in found, f"{judge.where}: {text} is not among {sorted(found)}"
            slack = 1.0 + (int(text.split()[-1]) if stepped else steps)
            if name == "Muon" and stepped:  # each of its steps is as wide as bfloat16
                slack *= 1 + group.options["lr"] * sqrt(5) * 24 * BFLOAT16 / ULPS[dtype]
            floor = 1.0 if stepped else 1e-30
            judge(text, found[text], array, peers[text], slack=slack, floor=floor, evidence=evidence)
        place = places.stop
        verdict |= judge.verdict
    return verdict
