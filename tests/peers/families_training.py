"""Random configurations of what stands around a step: clipping, averages of weights, scaled losses, metrics."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from differential import Judge, Verdict
from families_optim import either

import vtl_core as vtl
import vtl_nn as nn

Rng = np.random.Generator


def _shapes(rng: Rng) -> list[tuple[int, ...]]:
    return [tuple(int(n) for n in rng.integers(1, 6, rng.integers(0, 4))) for _ in range(int(rng.integers(1, 5)))]


def _pair(arrays: list[np.ndarray], kind: torch.dtype, device: str) -> tuple[list[Any], list[Any]]:
    ours = [vtl.tensor(a, device=device, requires_grad=True) for a in arrays]
    return ours, [torch.tensor(a, dtype=kind, requires_grad=True) for a in arrays]


def clipping(number: int, dtype: str, device: str = "cpu") -> Verdict:
    """By norm of any order and by value; missing gradients; an infinity gives 0 here and is refused if asked."""
    rng = np.random.default_rng([11, number])
    shapes = _shapes(rng)
    gradients = [np.array(rng.normal(size=shape) * float(either(rng, 1, 1e-3, 1e3)), dtype) for shape in shapes]
    missing = rng.random(len(shapes)) < 0.2
    missing[0] &= not missing.all()  # PyTorch's clip_grad_value_ of nothing is an error of its own
    order, bound = float(either(rng, 2, 2, 1, np.inf, 3, 0.5)), float(either(rng, 0.1, 1, 50))
    by_value = bool(rng.random() < 0.3)
    bad = None if by_value or rng.random() < 0.7 else float(either(rng, np.inf, -np.inf, np.nan))
    if bad is not None:
        gradients[int(np.argmin(missing))].flat[0] = bad
    judge = Judge(f"clipping {number} {dtype} on {device}: {shapes} {order=} {bound=} {by_value=} {bad=}", dtype)
    found = []
    for kind in (torch.float64, getattr(torch, dtype)):
        ours, theirs = _pair([np.zeros(shape, dtype) for shape in shapes], kind, device)
        for p, q, g, skip in zip(ours, theirs, gradients, missing, strict=True):
            if not skip:
                p.grad, q.grad = vtl.tensor(g, device=device), torch.tensor(g, dtype=kind)
        if by_value:
            nn.utils.clip_grad_value_(ours, bound)
            torch.nn.utils.clip_grad_value_(theirs, bound)
            norms: list[np.ndarray] = [np.zeros(())] * 2
        else:
            norm = nn.utils.clip_grad_norm_(ours, bound, order)
            their_norm = torch.nn.utils.clip_grad_norm_(theirs, bound, order)
            norms = [np.asarray(norm.numpy()), np.asarray(their_norm.numpy())]
        found.append((ours, theirs, norms))
    (ours, theirs, norms), (_, peers, peer_norms) = found
    judge("norm", norms[0], norms[1], peer_norms[1])
    for k, (p, q, peer) in enumerate(zip(ours, theirs, peers, strict=True)):
        assert (p.grad is None) == (q.grad is None), f"{judge.where}: gradient {k} is {p.grad}"
        if p.grad is None:
            continue
        expected = q.grad.numpy() if bad is None else np.zeros(shapes[k])  # clip_grad_norm_ says why
        judge(f"gradient {k}", p.grad.numpy(), expected, peer.grad.numpy() if bad is None else None, slack=4)
    return judge.verdict


class _Net:
    """A linear layer and a norm, whose statistics are buffers."""

    def __new__(cls, library: Any, features: int) -> Any:
        return library.Sequential(library.Linear(features, 3), library.BatchNorm1d(3))


def average(number: int, dtype: str, device: str = "cpu") -> Verdict:
    """EMA against AveragedModel, whose first update copies: weights averaged, buffers copied, four steps."""
    rng = np.random.default_rng([12, number])
    decay, features = float(either(rng, 0.9, 0.99, 0.5, 0.0, 1.0)), int(rng.integers(1, 6))
    judge = Judge(f"average {number} {dtype} on {device}: {decay=} {features=}", dtype)
    model = _Net(nn, features).to(getattr(vtl, dtype))
    names = {name: value.shape for name, value in model.state_dict().items() if value.dtype.is_floating}
    walk = [{name: rng.normal(size=shape).astype(dtype) for name, shape in names.items()} for _ in range(5)]
    model.load_state_dict({**model.state_dict(), **{name: vtl.tensor(a) for name, a in walk[0].items()}})
    model.to(device)
    ours = nn.EMA(model, decay)
    kinds = (torch.float64, getattr(torch, dtype))
    nets = [_Net(torch.nn, features).to(kind) for kind in kinds]
    for net in nets:
        net.load_state_dict({**net.state_dict(), **{name: torch.tensor(a) for name, a in walk[0].items()}})
    rule = torch.optim.swa_utils.get_ema_multi_avg_fn(decay)
    averages = [torch.optim.swa_utils.AveragedModel(net, multi_avg_fn=rule) for net in nets]
    for net, averaged in zip(nets, averages, strict=True):
        averaged.update_parameters(net)
    for step, state in enumerate(walk[1:]):
        model.load_state_dict({**model.state_dict(), **{name: vtl.tensor(a) for name, a in state.items()}})
        ours.update()
        for net, averaged in zip(nets, averages, strict=True):
            net.load_state_dict({**net.state_dict(), **{name: torch.tensor(a) for name, a in state.items()}})
            averaged.update_parameters(net)
        truth, peer = (averaged.module.state_dict() for averaged in averages)
        for name, value in ours.module.state_dict().items():
            judge(f"{name} after {step}", np.asarray(value.numpy()), truth[name].numpy(), peer[name].numpy())
    return judge.verdict


def scaling(number: int, dtype: str, device: str = "cpu") -> Verdict:
    """GradScaler around SGD or Adam over eight steps of which some overflow, with and without clipping: weights and scale."""
    rng = np.random.default_rng([13, number])
    shapes = _shapes(rng)
    options = {
        "init_scale": float(either(rng, 4.0, 1024.0, 65536.0)), "growth_factor": float(either(rng, 2.0, 1.5)),
        "backoff_factor": float(either(rng, 0.5, 0.25)), "growth_interval": int(rng.integers(1, 6)),
    }  # fmt: skip
    name, clipped = either(rng, "SGD", "Adam"), bool(rng.random() < 0.4)
    rule = {"lr": 0.05, **({"momentum": 0.9} if name == "SGD" else {})}
    starts = [rng.normal(size=shape).astype(dtype) for shape in shapes]
    steps = [[np.array(rng.normal(size=shape), dtype) for shape in shapes] for _ in range(8)]
    for factors in steps:
        if rng.random() < 0.25:
            factors[int(rng.integers(len(shapes)))].flat[0] = either(rng, np.inf, -np.inf, np.nan)
    judge = Judge(f"scaling {number} {dtype} on {device}: {shapes} {name} {options} {clipped=}", dtype)

    def trained(library: Any, tensor: Any, scaler: Any) -> list[tuple[float, list[np.ndarray]]]:
        ps = [tensor(a).requires_grad_(True) for a in starts]
        optimizer = getattr(library.optim, name)(ps, **rule)
        seen = []
        for factors in steps:
            loss = sum(((p * tensor(f)).sum() for p, f in zip(ps, factors, strict=True)), tensor(np.zeros((), dtype)))
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            if clipped:
                scaler.unscale_(optimizer)
                library.utils.clip_grad_norm_(ps, 0.5)
            scaler.step(optimizer)
            scaler.update()
            seen.append((scaler.get_scale(), [np.array(p.detach().numpy()) for p in ps]))
        return seen

    ours = trained(nn, lambda a: vtl.tensor(a, device=device), nn.amp.GradScaler(**options))
    library = type("library", (), {"optim": torch.optim, "utils": torch.nn.utils})
    truth, peers = (
        trained(library, lambda a, kind=kind: torch.tensor(a, dtype=kind), torch.amp.GradScaler("cpu", **options))
        for kind in (torch.float64, getattr(torch, dtype))
    )
    for step, ((scale, got), (expected_scale, expected), (_, peer)) in enumerate(zip(ours, truth, peers, strict=True)):
        assert scale == expected_scale, f"{judge.where}: scale {scale} after step {step}, PyTorch's {expected_scale}"
        for k, arrays in enumerate(zip(got, expected, peer, strict=True)):
            judge(f"parameter {k} after step {step}", *arrays, slack=2 + step, floor=1.0)
    return judge.verdict


def metric(number: int, dtype: str, device: str = "cpu") -> Verdict:
    """Accuracy with ties, images and the k best, and errors of floats and integers, against NumPy's sorts and means."""
    rng = np.random.default_rng([14, number])
    kind = either(rng, "accuracy", "accuracy", "mean_squared_error", "mean_absolute_error", "mean_relative_error")
    if kind == "accuracy":
        n, classes, space = (
            int(rng.integers(1, 9)),
            int(rng.integers(1, 7)),
            tuple(rng.integers(1, 4, rng.integers(0, 3))),
        )
        scores = rng.normal(size=(n, classes, *space))
        if rng.random() < 0.5:
            scores = np.round(scores)  # ties: of equal scores the first counts
        scores, target = scores.astype(dtype), rng.integers(0, classes, (n, *space))
        top = int(rng.integers(1, classes + 1))
        best = np.argsort(-np.moveaxis(scores, 1, -1), axis=-1, kind="stable")[..., :top]
        expected = np.mean((best == target[..., None]).any(-1))
        got = nn.metrics.accuracy(vtl.tensor(scores, device=device), vtl.tensor(target, device=device), top)
        text = f"accuracy {scores.shape} {top=}"
    else:
        shape = tuple(int(n) for n in rng.integers(1, 6, rng.integers(0, 4)))
        x, y = (rng.normal(size=shape) * 3 for _ in range(2))
        if rng.random() < 0.3:
            x, y = np.round(x), np.round(y)
        x, y = x.astype(dtype), y.astype(dtype)
        if rng.random() < 0.2:
            x, y = x.astype(np.int8), y.astype(np.int8)
        a, b = x.astype(float), y.astype(float)
        size = np.maximum(abs(a), abs(b))
        errors = {
            "mean_squared_error": (a - b) ** 2, "mean_absolute_error": abs(a - b),
            "mean_relative_error": abs(a - b) / np.where(size == 0, 1, size),
        }  # fmt: skip
        expected = np.mean(errors[kind])
        got = getattr(nn.metrics, kind)(vtl.tensor(x, device=device), vtl.tensor(y, device=device))
        text = f"{kind} {shape} {x.dtype}"
    judge = Judge(f"metric {number} {dtype} on {device}: {text}", "float32" if got.dtype is vtl.float32 else dtype)
    judge("value", np.asarray(got.numpy()), np.asarray(expected))
    return judge.verdict


FAMILIES = (clipping, average, scaling, metric)
