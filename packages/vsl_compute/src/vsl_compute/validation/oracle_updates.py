"""What an optimizer step does, from the papers, and Philox 4x32-10, from its definition."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .wide import LONG, Array

State = dict[str, Array]


def _sgd(s: State, lr: Any, weight_decay: Any) -> State:
    return {"p": s["p"] - lr * (s["g"] + weight_decay * s["p"])}


def _momentum_buffer(s: State, momentum: Any, keep: Any, weight_decay: Any) -> tuple[Array, Array]:
    """The decayed gradient, and the buffer: that gradient at the first step, then momentum * b + keep * gradient."""
    d = s["g"] + weight_decay * s["p"]
    return d, np.where(s["t"] == 0, momentum * s["b"] + d, momentum * s["b"] + keep * d)


def _sgd_momentum(s: State, lr: Any, momentum: Any, keep: Any, weight_decay: Any) -> State:
    """Sutskever et al. 2013, with the learning rate outside the buffer."""
    _, b = _momentum_buffer(s, momentum, keep, weight_decay)
    return {"p": s["p"] - lr * b, "b": b, "t": s["t"] + 1}


def _sgd_nesterov(s: State, lr: Any, momentum: Any, keep: Any, weight_decay: Any) -> State:
    d, b = _momentum_buffer(s, momentum, keep, weight_decay)
    return {"p": s["p"] - lr * (d + momentum * b), "b": b, "t": s["t"] + 1}


def _adam_step(s: State, p: Array, d: Array, lr: Any, b1: Any, b2: Any, eps: Any) -> State:
    """Kingma & Ba 2015, algorithm 1, from parameter `p` along gradient `d`."""
    t = s["t"] + 1
    m = b1 * s["m"] + (1 - b1) * d
    v = b2 * s["v"] + (1 - b2) * d**2
    m_hat, v_hat = m / (1 - b1**t), v / (1 - b2**t)
    return {"p": p - lr * m_hat / (np.sqrt(v_hat) + eps), "m": m, "v": v, "t": t}


def _adam(s: State, lr: Any, b1: Any, b2: Any, eps: Any) -> State:
    return _adam_step(s, s["p"], s["g"], lr, b1, b2, eps)


def _adam_l2(s: State, lr: Any, b1: Any, b2: Any, eps: Any, weight_decay: Any) -> State:
    """Adam on the loss plus weight_decay/2 * |p|^2."""
    return _adam_step(s, s["p"], s["g"] + weight_decay * s["p"], lr, b1, b2, eps)


def _adamw(s: State, lr: Any, b1: Any, b2: Any, eps: Any, weight_decay: Any) -> State:
    """Loshchilov & Hutter 2019, algorithm 2: the weight before the step decays, not the gradient."""
    return _adam_step(s, s["p"] - lr * weight_decay * s["p"], s["g"], lr, b1, b2, eps)


def _loss_scale(s: State, growth: Any, backoff: Any, interval: Any) -> State:
    """Micikevicius et al. 2018, 3.2: grow after `interval` clean steps in a row, back off at once."""
    clean = s["found"] == 0
    tracker = np.where(clean, s["tracker"] + 1, 0)
    full = clean & (tracker == interval)
    scale = np.where(full, s["scale"] * growth, np.where(clean, s["scale"], s["scale"] * backoff))
    return {"scale": scale, "tracker": np.where(full, 0, tracker)}


UPDATES: dict[str, Callable[..., State]] = {
    "sgd": _sgd,
    "sgd_momentum": _sgd_momentum,
    "sgd_nesterov": _sgd_nesterov,
    "adam": _adam,
    "adam_l2": _adam_l2,
    "adamw": _adamw,
    "rescale": lambda s: {"p": s["p"] * s["factor"]},
    "clip": lambda s, bound: {"p": np.clip(s["p"], -bound, bound)},
    "loss_scale": _loss_scale,
}


def update(name: str, arrays: Mapping[str, Array], scalars: Mapping[str, float]) -> State:
    """The arrays after one step of update `name`, in longdouble.

    Logarithms among the scalars (log_b1) are the kernel's way to a bias correction; here the power is taken.
    """
    wide = {key: np.asarray(array).astype(LONG) for key, array in arrays.items()}
    given = {key: LONG(number) for key, number in scalars.items() if not key.startswith("log_")}
    return UPDATES[name](wide, **given)


def philox(counter: Sequence[int], key: Sequence[int], rounds: int = 10) -> tuple[int, int, int, int]:
    """Four words of Philox 4x32. Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3", 4.4."""
    word = (1 << 32) - 1
    c0, c1, c2, c3 = (int(c) & word for c in counter)
    k0, k1 = (int(k) & word for k in key)
    for _ in range(rounds):
        left, right = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (right >> 32) ^ c1 ^ k0, right & word, (left >> 32) ^ c3 ^ k1, left & word
        k0, k1 = (k0 + 0x9E3779B9) & word, (k1 + 0xBB67AE85) & word
    return c0, c1, c2, c3


def philox_words(count: int, key: Sequence[int], counter: Sequence[int]) -> Array:
    """The first `count` words of the stream: block j is at `counter` + j, its first two words counting together."""
    words: list[int] = []
    start = int(counter[0]) | int(counter[1]) << 32
    for block in range(-(-count // 4)):
        at = start + block
        words.extend(philox((at & 0xFFFFFFFF, at >> 32, counter[2], counter[3]), key))
    return np.asarray(words[:count], np.uint32)
