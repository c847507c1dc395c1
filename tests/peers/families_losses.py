"""Random configurations of losses."""

from __future__ import annotations

import numpy as np
import torch
from differential import Case

Rng = np.random.Generator


def shape_of(rng: Rng, least: int = 1, most: int = 3, size: int = 6) -> tuple[int, ...]:
    return tuple(int(n) for n in rng.integers(1, size, rng.integers(least, most + 1)))


def reduction_of(rng: Rng) -> str:
    return str(rng.choice(["mean", "sum", "none"]))


def on_kinks(rng: Rng, x: np.ndarray) -> np.ndarray:
    """Quarters, sometimes: differences then meet margins and knees exactly."""
    return np.array(np.round(x * 4) / 4 if rng.random() < 0.3 else x)


def cross_entropy(rng: Rng) -> Case:
    """Weights, ignored labels, smoothing, probabilities as targets, images; exp of differences up to 40 costs digits."""
    classes, more = int(rng.integers(2, 7)), shape_of(rng, 0, 2)
    samples = int(rng.integers(1, 7))
    x = rng.normal(size=(samples, classes, *more)) * float(rng.choice([0.1, 1, 10]))
    soft = rng.random() < 0.3
    ignored = int(rng.choice([-100, 0, classes - 1]))
    if soft:
        target = rng.dirichlet(np.ones(classes), (samples, *more))
        target = np.ascontiguousarray(np.moveaxis(target, -1, 1))
        ignored = -100
    else:
        target = rng.integers(0, classes, (samples, *more))
        target[rng.random(target.shape) < 0.2] = -100 if ignored == -100 else ignored
        if (target == ignored).all():
            target.flat[0] = (ignored + 1) % classes if ignored >= 0 else 0
    weight = rng.uniform(0.2, 2, classes) if rng.random() < 0.5 else None
    smoothing = float(rng.choice([0, 0, 0.1, 0.7]))
    reduction = reduction_of(rng)
    text = f"{x.shape} soft={soft} weight={weight is not None} {ignored=} {reduction=} {smoothing=}"

    def make(library):
        def loss(x, target, *weight):
            return library.F.cross_entropy(
                x, target, *weight, ignore_index=ignored, reduction=reduction, label_smoothing=smoothing
            )

        return loss

    arrays = [x, target] + ([] if weight is None else [weight])
    return Case(text, make, arrays, constant=frozenset({2} if soft else {1, 2}))


def nll(rng: Rng) -> Case:
    """Weights, ignored labels, images."""
    classes, more, samples = int(rng.integers(2, 7)), shape_of(rng, 0, 2), int(rng.integers(1, 7))
    x = np.log(np.ascontiguousarray(np.moveaxis(rng.dirichlet(np.ones(classes), (samples, *more)), -1, 1)))
    target = rng.integers(0, classes, (samples, *more))
    target[rng.random(target.shape) < 0.2] = -100
    target.flat[0] = 0
    weight = [rng.uniform(0.2, 2, classes)] if rng.random() < 0.5 else []
    reduction = reduction_of(rng)

    def make(library):
        return lambda x, target, *weight: library.F.nll_loss(x, target, *weight, reduction=reduction)

    return Case(f"{x.shape} weight={bool(weight)} {reduction=}", make, [x, target, *weight], constant=frozenset({2}))


DISTANCES = ("l1_loss", "mse_loss", "smooth_l1_loss", "huber_loss")


def distance(rng: Rng) -> Case:
    """L1, squared, smooth and Huber, at their knees and of what is no number; both arguments receive gradients."""
    name, shape, reduction = str(rng.choice(DISTANCES)), shape_of(rng, 0), reduction_of(rng)
    knee = float(rng.choice([0.25, 1, 2.5]))
    options = {"smooth_l1_loss": {"beta": knee if rng.random() < 0.8 else 0.0}, "huber_loss": {"delta": knee}}.get(
        name, {}
    )
    a, b = (on_kinks(rng, rng.normal(size=shape) * 2) for _ in range(2))
    if rng.random() < 0.1:
        a.flat[0] = float(rng.choice([np.nan, np.inf]))
    text = f"{name} {shape} {reduction} {options}"
    return Case(text, lambda t: lambda a, b: getattr(t.F, name)(a, b, reduction=reduction, **options), [a, b])


def binary(rng: Rng) -> Case:
    """Binary cross-entropy of probabilities and of logits, weights that broadcast, huge logits."""
    shape, reduction, logits = shape_of(rng, 1), reduction_of(rng), rng.random() < 0.6
    spread = float(rng.choice([1, 30, 1000])) if logits else 1.0
    x = rng.normal(size=shape) * spread if logits else rng.uniform(0.02, 0.98, shape)
    y = rng.uniform(0, 1, shape) if rng.random() < 0.5 else rng.integers(0, 2, shape).astype(float)
    weight = rng.uniform(0.1, 2, shape[-1:]) if rng.random() < 0.4 else None
    pos = rng.uniform(0.2, 4, shape[-1:]) if logits and rng.random() < 0.5 else None
    more = [w for w in (weight, pos) if w is not None]

    def make(library):
        def loss(x, y, *more):
            given = iter(more)
            options = {"weight": None if weight is None else next(given)}
            if logits:
                options["pos_weight"] = None if pos is None else next(given)
            name = "binary_cross_entropy_with_logits" if logits else "binary_cross_entropy"
            return getattr(library.F, name)(x, y, reduction=reduction, **options)

        return loss

    text = f"{shape} {logits=} {spread=} {reduction} weight={weight is not None} pos_weight={pos is not None}"
    return Case(text, make, [x, y, *more], constant=frozenset({1, 2, 3}))


def divergence(rng: Rng) -> Case:
    """Kullback-Leibler, from probabilities or their logarithms; targets of 0."""
    shape, log_target = shape_of(rng, 1), rng.random() < 0.5
    reduction = str(rng.choice(["mean", "sum", "none", "batchmean"]))
    target = rng.uniform(0.01, 1, shape)
    if not log_target:
        target[rng.random(shape) < 0.2] = 0
    x = np.log(rng.uniform(0.01, 1, shape))

    def make(library):
        return lambda x, y: library.F.kl_div(x, y, reduction=reduction, log_target=log_target)

    return Case(
        f"{shape} {reduction} {log_target=}",
        make,
        [x, np.log(target) if log_target else target],
        constant=frozenset({1}),
    )


def margin(rng: Rng) -> Case:
    """What separates two classes: hinge embedding, soft margin, ranking."""
    name = str(rng.choice(["hinge_embedding_loss", "soft_margin_loss", "margin_ranking_loss"]))
    shape, reduction, size = shape_of(rng, 1), reduction_of(rng), float(rng.choice([0, 0.5, 1]))
    y = rng.choice([-1.0, 1.0], shape)
    x = on_kinks(rng, rng.normal(size=shape) * float(rng.choice([1, 50])))
    options = {} if name == "soft_margin_loss" else {"margin": size}
    arrays = [x, on_kinks(rng, rng.normal(size=shape)), y] if name == "margin_ranking_loss" else [x, y]
    text = f"{name} {shape} {reduction} {options}"
    return Case(
        text,
        lambda t: lambda *xs: getattr(t.F, name)(*xs, reduction=reduction, **options),
        arrays,
        constant=frozenset({len(arrays) - 1}),
    )


def hinge(rng: Rng) -> Case:
    """VTL's hinge and torchvision's focal loss, by their formulas in PyTorch."""
    shape, reduction, focal = shape_of(rng, 1), reduction_of(rng), rng.random() < 0.6
    spread = float(rng.choice([1, 30]))
    x = rng.normal(size=shape) * spread
    if focal:
        y = rng.integers(0, 2, shape).astype(float) if rng.random() < 0.7 else rng.uniform(0, 1, shape)
        name = "sigmoid_focal_loss"
        options = {"alpha": float(rng.choice([0.25, -1.0, 0.9, 1.0])), "gamma": float(rng.choice([2, 0, 1, 3]))}
    else:
        y, name, options = rng.choice([-1.0, 1.0], shape), "hinge_loss", {"margin": float(rng.choice([1, 0.3]))}

    def make(library):
        if library.name == "ours":
            return lambda x, y: getattr(library.F, name)(x, y, reduction=reduction, **options)
        formula = _focal if focal else lambda x, y, margin: (margin - y * x).clamp(min=0)
        reduce = {"mean": torch.mean, "sum": torch.sum, "none": lambda losses: losses}[reduction]
        return lambda x, y: reduce(formula(x, y, **options))

    text = f"{name} {shape} {reduction} {spread=} {options}"
    return Case(text, make, [x, y], constant=frozenset({1}))


def _focal(x, y, alpha: float, gamma: float):
    """torchvision.ops.sigmoid_focal_loss."""
    p = torch.sigmoid(x)
    loss = torch.nn.functional.binary_cross_entropy_with_logits(x, y, reduction="none")
    loss = loss * (1 - (p * y + (1 - p) * (1 - y))) ** gamma
    return loss if alpha < 0 else (alpha * y + (1 - alpha) * (1 - y)) * loss


def cosine(rng: Rng) -> Case:
    """Similarity along an axis, and the loss on it."""
    if rng.random() < 0.5:
        shape = shape_of(rng, 1)
        dim = int(rng.integers(-len(shape), len(shape)))
        arrays = [rng.normal(size=shape) for _ in range(2)]
        return Case(f"similarity {shape} {dim}", lambda t: lambda a, b: t.F.cosine_similarity(a, b, dim=dim), arrays)
    n, d, reduction, size = (
        int(rng.integers(1, 6)),
        int(rng.integers(2, 6)),
        reduction_of(rng),
        float(rng.choice([0, 0.3])),
    )
    arrays = [rng.normal(size=(n, d)), rng.normal(size=(n, d)), rng.choice([-1.0, 1.0], n)]
    return Case(
        f"loss ({n}, {d}) {reduction} {size}",
        lambda t: lambda a, b, y: t.F.cosine_embedding_loss(a, b, y, margin=size, reduction=reduction),
        arrays,
        constant=frozenset({2}),
    )


FAMILIES = (cross_entropy, nll, distance, binary, divergence, margin, hinge, cosine)
