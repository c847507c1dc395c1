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


def _amsgrad(s: State, p: Array, d: Array, lr: Any, b1: Any, b2: Any, eps: Any) -> State:
    """Reddi et al. 2018, with Adam's bias corrections."""
    t = s["t"] + 1
    m, v = b1 * s["m"] + (1 - b1) * d, b2 * s["v"] + (1 - b2) * d**2
    x = np.maximum(s["x"], v)
    return {"p": p - lr * (m / (1 - b1**t)) / (np.sqrt(x / (1 - b2**t)) + eps), "m": m, "v": v, "x": x, "t": t}


def _adam_amsgrad(s: State, lr: Any, b1: Any, b2: Any, eps: Any, weight_decay: Any) -> State:
    return _amsgrad(s, s["p"], s["g"] + weight_decay * s["p"], lr, b1, b2, eps)


def _adamw_amsgrad(s: State, lr: Any, b1: Any, b2: Any, eps: Any, weight_decay: Any) -> State:
    return _amsgrad(s, s["p"] - lr * weight_decay * s["p"], s["g"], lr, b1, b2, eps)


def _adagrad(s: State, lr: Any, lr_decay: Any, eps: Any, weight_decay: Any) -> State:
    """Duchi et al. 2011, the diagonal form; the count that the rate decays by starts at 0."""
    d = s["g"] + weight_decay * s["p"]
    v = s["v"] + d**2
    return {"p": s["p"] - lr / (1 + s["t"] * lr_decay) * d / (np.sqrt(v) + eps), "v": v, "t": s["t"] + 1}


def _rmsprop(s: State, lr: Any, alpha: Any, eps: Any, weight_decay: Any, momentum: Any = None) -> State:
    """Tieleman & Hinton 2012; Graves 2013, equations 38 to 41, where there is an average a."""
    d = s["g"] + weight_decay * s["p"]
    new = {"v": alpha * s["v"] + (1 - alpha) * d**2, "t": s["t"] + 1}
    variance = new["v"]
    if "a" in s:
        new["a"] = alpha * s["a"] + (1 - alpha) * d
        variance = np.maximum(variance - new["a"] ** 2, 0)
    step = d / (np.sqrt(variance) + eps)
    if momentum is not None:
        new["b"] = step = momentum * s["b"] + step
    return {"p": s["p"] - lr * step, **new}


def _nadam_step(s: State, p: Array, d: Array, lr: Any, b1: Any, b2: Any, eps: Any, rate: Any) -> State:
    """Dozat 2016, algorithm 2, whose momentum is b1 * (1 - 0.5 * 0.96**(t * decay))."""
    t = s["t"] + 1
    now, after = (b1 * (1 - np.exp(k * rate) / 2) for k in (t, t + 1))
    q = s["q"] * now
    m, v = b1 * s["m"] + (1 - b1) * d, b2 * s["v"] + (1 - b2) * d**2
    average = (1 - now) / (1 - q) * d + after / (1 - q * after) * m
    return {"p": p - lr * average / (np.sqrt(v / (1 - b2**t)) + eps), "m": m, "v": v, "q": q, "t": t}


def _nadam(s: State, lr: Any, b1: Any, b2: Any, eps: Any, weight_decay: Any, rate: Any) -> State:
    return _nadam_step(s, s["p"], s["g"] + weight_decay * s["p"], lr, b1, b2, eps, rate)


def _nadamw(s: State, lr: Any, b1: Any, b2: Any, eps: Any, weight_decay: Any, rate: Any) -> State:
    return _nadam_step(s, s["p"] - lr * weight_decay * s["p"], s["g"], lr, b1, b2, eps, rate)


def _radam_step(s: State, p: Array, d: Array, lr: Any, b1: Any, b2: Any, eps: Any) -> State:
    """Liu et al. 2020, algorithm 2: rectified where the variance is tractable (PyTorch's threshold is 5), else momentum."""
    t = s["t"] + 1
    m, v = b1 * s["m"] + (1 - b1) * d, b2 * s["v"] + (1 - b2) * d**2
    top = 2 / (1 - b2) - 1
    rho = top - 2 * t * b2**t / (1 - b2**t)
    step = m / (1 - b1**t)
    if rho > 5:
        rectified = np.sqrt((rho - 4) * (rho - 2) * top / ((top - 4) * (top - 2) * rho))
        step = step * rectified * np.sqrt(1 - b2**t) / (np.sqrt(v) + eps)
    return {"p": p - lr * step, "m": m, "v": v, "t": t}


def _radam(s: State, lr: Any, b1: Any, b2: Any, eps: Any, weight_decay: Any) -> State:
    return _radam_step(s, s["p"], s["g"] + weight_decay * s["p"], lr, b1, b2, eps)


def _radamw(s: State, lr: Any, b1: Any, b2: Any, eps: Any, weight_decay: Any) -> State:
    return _radam_step(s, s["p"] - lr * weight_decay * s["p"], s["g"], lr, b1, b2, eps)


def _lion(s: State, lr: Any, b1: Any, b2: Any, weight_decay: Any) -> State:
    """Chen et al. 2023, algorithm 2."""
    c = b1 * s["m"] + (1 - b1) * s["g"]
    return {"p": s["p"] - lr * (np.sign(c) + weight_decay * s["p"]), "m": b2 * s["m"] + (1 - b2) * s["g"]}


def _muon_momentum(s: State, momentum: Any, keep: Any, fresh: Any) -> State:
    b = momentum * s["b"] + (1 - momentum) * s["g"]
    return {"b": b, "u": keep * b + fresh * s["g"]}


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
    "adam_amsgrad": _adam_amsgrad,
    "adamw_amsgrad": _adamw_amsgrad,
    "adagrad": _adagrad,
    "rmsprop": _rmsprop,
    "rmsprop_momentum": _rmsprop,
    "rmsprop_centered": _rmsprop,
    "rmsprop_centered_momentum": _rmsprop,
    "nadam": _nadam,
    "nadamw": _nadamw,
    "radam": _radam,
    "radamw": _radamw,
    "lion": _lion,
    "muon_momentum": _muon_momentum,
    "muon": lambda s, lr, decay: {"p": decay * s["p"] - lr * s["g"]},
    "running_moments": lambda s, momentum, factor: {
        "mean": (1 - momentum) * s["mean"] + momentum * s["m"],
        "variance": (1 - momentum) * s["variance"] + momentum * factor * s["v"],
    },
    "average": lambda s, decay: {"a": s["a"] + (1 - decay) * (s["p"] - s["a"])},
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
