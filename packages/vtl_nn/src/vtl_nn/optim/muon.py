"""Muon: momentum made orthogonal by a Newton-Schulz iteration, for the matrices of hidden layers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import sqrt
from typing import Any

import vtl_core as vtl
from vtl_core import AttributeValueError, ShapeError, Tensor
from vtl_core.arguments import explain, fits, short
from vtl_nn.optim.optimizer import Group, Guard, Optimizer, at_least_zero, under

ADJUSTMENTS = (None, "original", "match_rms_adamw")


class Muon(Optimizer):
    """Steps along the matrix nearest to the momentum whose singular values are about 1 (Jordan et al. 2024); PyTorch's arguments.

    For matrices only: give embeddings, biases and norms to AdamW. A step is lr * sqrt(max(1, rows / columns)), or with
    `adjust_lr_fn="match_rms_adamw"` lr * 0.2 * sqrt(max(rows, columns)). Decay is decoupled, by lr itself.

    Source: https://kellerjordan.github.io/posts/muon/; the iteration runs in bfloat16 as there
    """

    slots = ("momentum_buffer",)

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        options: Group = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov}
        options |= {"ns_coefficients": ns_coefficients, "eps": eps, "ns_steps": ns_steps}
        super().__init__(params, {**options, "adjust_lr_fn": adjust_lr_fn})

    def check(self, group: Group) -> None:
        """Refuse negative options, what is no matrix, and adjustments without a name here."""
        at_least_zero("Muon", group, "lr", "weight_decay", "momentum", "eps", "ns_steps")
        if not fits(group["ns_coefficients"], tuple[float, float, float]):
            raise AttributeValueError(f"Muon: ns_coefficients={short(group['ns_coefficients'])} must be three numbers")
        if not fits(group["ns_steps"], int):
            raise AttributeValueError(f"Muon: ns_steps={short(group['ns_steps'])} must be an integer")
        if not fits(group["adjust_lr_fn"], str | None) or group["adjust_lr_fn"] not in ADJUSTMENTS:
            raise AttributeValueError(f"Muon: adjust_lr_fn={group['adjust_lr_fn']!r} must be one of {ADJUSTMENTS}")
        for place, p in enumerate(group["params"]):
            if isinstance(p, Tensor) and p.ndim != 2:
                raise ShapeError(f"Muon: parameter {place} is {p.shape}, no matrix; give it to AdamW")

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Momentum in one launch a group, matrices alike of all groups made orthogonal together, one launch a step's size."""
        loss = closure() if closure is not None else None
        self.judge_groups()
        groups = [(group, [p for p in group["params"] if p.grad is not None]) for group in self.param_groups]
        with vtl.no_grad():
            momenta, turned = [], list[tuple[Group, Tensor, Tensor]]()
            for group, stepped in groups:
                momentum = group["momentum"]
                keep, fresh = (momentum, 1 - momentum) if group["nesterov"] else (1.0, 0.0)
                arrays = []
                for p in stepped:
                    (buffer,) = self._slots(p, group, self.slots_of(group))
                    arrays.append((p.grad, buffer, vtl.zeros_like(buffer)))
                    turned.append((group, p, arrays[-1][2]))
                scalars = {"momentum": momentum, "keep": keep, "fresh": fresh}
                momenta.append(under(self.guard, "muon_momentum", arrays, scalars))
            vtl.update_all([update for update in momenta if update[1]])
            by_size: dict[tuple[float, float], list[tuple[Tensor, Tensor]]] = {}
            for (group, p, _), u in zip(turned, _orthogonal([(u, group) for group, _, u in turned]), strict=True):
                size = group["lr"] * _factor(group["adjust_lr_fn"], p.shape)
                by_size.setdefault((size, 1 - group["lr"] * group["weight_decay"]), []).append((u.to(p.dtype), p))
            guard = self.guard
            if guard is not None:  # the scale is out of u already
                guard = Guard(vtl.ones_like(guard.inverse_scale), guard.found_inf)
            rows = [under(guard, "muon", pairs, {"lr": lr, "decay": decay}) for (lr, decay), pairs in by_size.items()]
            vtl.update_all(rows)
        return loss


def _factor(adjustment: str | None, shape: tuple[int, ...]) -> float:
    rows, columns = shape
    return 0.2 * sqrt(max(rows, columns)) if adjustment == "match_rms_adamw" else sqrt(max(1.0, rows / max(1, columns)))


def _orthogonal(matrices: Sequence[tuple[Tensor, Group]]) -> list[Tensor]:
    """X = a X + (b G + c G G) X, G = X X^T, from X = u / |u|: singular values between 0.7 and 1.2 after five turns.

    Matrices of one shape, or its transpose, go through it as one batch: the same launches for one and for a hundred.
    """
    alike: dict[tuple[Any, ...], list[int]] = {}
    for place, (u, group) in enumerate(matrices):
        key = (*sorted(u.shape), u.dtype, tuple(group["ns_coefficients"]), group["eps"], group["ns_steps"])
        alike.setdefault(key, []).append(place)
    found: dict[int, Tensor] = {}
    for key, places in alike.items():
        shape, (_, group) = key[:2], matrices[places[0]]
        wide = [u if u.shape == shape else u.transpose(0, 1) for u, _ in (matrices[place] for place in places)]
        turned = _newton_schulz(vtl.stack(wide), group)
        for k, place in enumerate(places):
            found[place] = turned[k] if matrices[place][0].shape == shape else turned[k].transpose(0, 1)
    return [found[place] for place in range(len(matrices))]


def _newton_schulz(u: Tensor, group: Group) -> Tensor:
    """The iteration on a batch (K, M, N), M at most N."""
    a, b, c = group["ns_coefficients"]
    x: Tensor = u.to(vtl.bfloat16)
    x = x / vtl.apply("norm", x, axes=(1, 2), keepdims=True).clamp(min=group["eps"])
    for _ in range(group["ns_steps"]):
        gram: Tensor = x @ x.transpose(1, 2)
        square: Tensor = vtl.apply("matmul", gram, gram, alpha=c)
        x = x * a + (gram * b + square) @ x
    return x


explain(globals(), whole=True)
