"""The independent meaning of recurrent layers: steps of the rows from calculus, sequences as loops over them.

Sources: Hochreiter & Schmidhuber 1997 with Gers et al. 2000 (LSTM); Cho et al. 2014 (GRU), reset after the product.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .wide import LONG, Array, sigmoid


def _cell(i: Any, f: Any, u: Any, c: Any) -> Any:
    return sigmoid(f) * c + sigmoid(i) * np.tanh(u)


def _new(xr: Any, xn: Any, yr: Any, yn: Any) -> Any:
    return np.tanh(xn + sigmoid(xr + yr) * yn)


def _bell(x: Any) -> Any:
    """Derivative of the logistic function."""
    return sigmoid(x) * sigmoid(-x)


def _gru_step(xr: Any, xz: Any, xn: Any, yr: Any, yz: Any, yn: Any, h: Any) -> Any:
    z = sigmoid(xz + yz)
    return (1 - z) * _new(xr, xn, yr, yn) + z * h


ROWS: dict[str, Callable[..., Any]] = {
    "rnn_tanh_step": lambda a, b: np.tanh(a + b),
    "rnn_relu_step": lambda a, b: np.where(np.isnan(a + b), a + b, np.maximum(a + b, 0)),
    "rnn_tanh_step_back": lambda p, e, h: (p + e) * (1 - h**2),
    "rnn_relu_step_back": lambda p, e, h: np.where(np.isnan(h), h, np.where(h > 0, p + e, 0)),
    "gru_step": _gru_step,
}


def _parts(x: Array, count: int) -> list[Array]:
    return np.split(x.astype(LONG), count, axis=-1)


def lstm_step(gates: Array, old: Array) -> tuple[Array, Array]:
    """The cell and the state."""
    i, f, u, o = _parts(gates, 4)
    c = _cell(i, f, u, old.astype(LONG))
    return c, sigmoid(o) * np.tanh(c)


def lstm_step_back(p: Array, e: Array, gates: Array, c: Array, old: Array, k: Array) -> tuple[Array, Array]:
    """What the gates receive, and the cell before."""
    i, f, u, o = _parts(gates, 4)
    d, top = p.astype(LONG) + e, np.tanh(c.astype(LONG))
    total = k + d * sigmoid(o) * (1 - top**2)
    parts = (total * np.tanh(u) * _bell(i), total * old * _bell(f), total * sigmoid(i) * (1 - np.tanh(u) ** 2))
    return np.concatenate([*parts, d * top * _bell(o)], axis=-1), total * sigmoid(f)


def gru_step_back(p: Array, e: Array, x: Array, y: Array, old: Array) -> tuple[Array, Array, Array]:
    """What both products receive, and the state before past them."""
    (xr, xz, xn), (yr, yz, yn), d = _parts(x, 3), _parts(y, 3), p.astype(LONG) + e
    new = _new(xr, xn, yr, yn)
    dn = d * (1 - sigmoid(xz + yz)) * (1 - new**2)
    dz, dr = d * (old - new) * _bell(xz + yz), dn * yn * _bell(xr + yr)
    both = [np.concatenate([dr, dz, n], axis=-1) for n in (dn, dn * sigmoid(xr + yr))]
    return both[0], both[1], d * sigmoid(xz + yz)


def _running(x: Array, sizes: tuple[int, ...] | None) -> tuple[int, ...]:
    return (x.shape[1],) * x.shape[0] if sizes is None else sizes


def plain(kind: str, x: Array, h0: Array, weight: Array, sizes: tuple[int, ...] | None = None) -> tuple[Array, ...]:
    """Every state of h = f(x + W h), the start first."""
    states = [h0.astype(LONG)]
    for t, n in enumerate(_running(x, sizes)):
        h = states[-1].copy()
        pre = x[t, :n].astype(LONG) + h[:n] @ weight.astype(LONG).T
        h[:n] = np.tanh(pre) if kind == "rnn_tanh" else np.maximum(pre, 0)
        states.append(h)
    return (np.stack(states),)


def lstm(x: Array, h0: Array, weight: Array, c0: Array, sizes: tuple[int, ...] | None = None) -> tuple[Array, ...]:
    """Every state, every cell, and what the gates saw; gates are input, forget, update, output."""
    states, cells, gates = [h0.astype(LONG)], [c0.astype(LONG)], x.astype(LONG)
    for t, n in enumerate(_running(x, sizes)):
        h, c = states[-1].copy(), cells[-1].copy()
        gates[t, :n] += h[:n] @ weight.astype(LONG).T
        i, f, u, o = np.split(gates[t, :n], 4, axis=-1)
        c[:n] = _cell(i, f, u, c[:n])
        h[:n] = sigmoid(o) * np.tanh(c[:n])
        states.append(h)
        cells.append(c)
    return np.stack(states), np.stack(cells), gates


def gru(
    x: Array, h0: Array, weight: Array, bias: Array | None = None, sizes: tuple[int, ...] | None = None
) -> tuple[Array, ...]:
    """Every state, and the products with the states; gates are reset, update, new."""
    states, products = [h0.astype(LONG)], np.zeros(x.shape, LONG)
    products += 0 if bias is None else bias.astype(LONG)
    for t, n in enumerate(_running(x, sizes)):
        h = states[-1].copy()
        products[t, :n] += h[:n] @ weight.astype(LONG).T
        (xr, xz, xn), (yr, yz, yn) = (np.split(v[t, :n].astype(LONG), 3, axis=-1) for v in (x, products))
        h[:n] = _gru_step(xr, xz, xn, yr, yz, yn, h[:n])
        states.append(h)
    return np.stack(states), products


def _back(
    g: Array,
    states: Array,
    weight: Array,
    sizes: tuple[int, ...],
    extra: Array | None,
    step: Callable[..., tuple[Array, Array]],
) -> tuple[Array, Array, Array]:
    """Chain rule from the last step to the first: `step(t, n, dh)` gives what the product and the state before it receive.

    `extra` is what the products receive from elsewhere; the weight has a part in those of sequences that run.
    """
    w, h = weight.astype(LONG), states.astype(LONG)
    d = np.zeros((len(sizes), g.shape[1], weight.shape[0]), LONG)
    dh = g[-1].astype(LONG)
    for t in reversed(range(len(sizes))):
        n = sizes[t]
        d[t, :n], direct = step(t, n, dh[:n])
        d[t, :n] += 0 if extra is None else extra[t, :n]
        before = g[t].astype(LONG)
        before[:n] += d[t, :n] @ w + direct
        before[n:] += dh[n:]
        dh = before
    dw = np.einsum("tnk,tnh->kh", d, h[:-1])
    for t, n in enumerate(sizes):
        d[t, n:] += 0 if extra is None else extra[t, n:]
    return d, dh, dw


def plain_backward(
    kind: str, g: Array, states: Array, weight: Array, sizes: tuple[int, ...] | None = None
) -> tuple[Array, ...]:
    """What x, the start and the weight receive, the states being what they are given as."""
    h = states.astype(LONG)

    def step(t: int, n: int, dh: Array) -> tuple[Array, Array]:
        slope = 1 - h[t + 1, :n] ** 2 if kind == "rnn_tanh" else h[t + 1, :n] > 0
        return dh * slope, np.zeros_like(dh)

    return _back(g, states, weight, (g.shape[1],) * (len(g) - 1) if sizes is None else sizes, None, step)


def lstm_backward(
    g: Array,
    states: Array,
    cells: Array,
    gates: Array,
    weight: Array,
    gc: Array | None = None,
    gg: Array | None = None,
    sizes: tuple[int, ...] | None = None,
) -> tuple[Array, ...]:
    """What x, both starts and the weight receive."""
    c = cells.astype(LONG)
    dc = np.zeros(g.shape[1:], LONG) if gc is None else gc[-1].astype(LONG)

    def step(t: int, n: int, dh: Array) -> tuple[Array, Array]:
        parts, dc[:n] = lstm_step_back(dh, np.zeros_like(dh), gates[t, :n], c[t + 1, :n], c[t, :n], dc[:n])
        if gc is not None:
            dc[...] += gc[t]
        return parts, np.zeros_like(dh)

    d, dh, dw = _back(g, states, weight, _running(gates, sizes), gg, step)
    return d, dh, dw, dc


def gru_backward(
    g: Array,
    x: Array,
    states: Array,
    products: Array,
    weight: Array,
    gy: Array | None = None,
    sizes: tuple[int, ...] | None = None,
) -> tuple[Array, ...]:
    """What x, the start, the weight and the products with the states receive."""
    dx = np.zeros(x.shape, LONG)

    def step(t: int, n: int, dh: Array) -> tuple[Array, Array]:
        dx[t, :n], dy, direct = gru_step_back(
            dh, np.zeros_like(dh), x[t, :n], products[t, :n], states[t, :n].astype(LONG)
        )
        return dy, direct

    d, dh, dw = _back(g, states, weight, _running(x, sizes), gy, step)
    return dx, dh, dw, d
