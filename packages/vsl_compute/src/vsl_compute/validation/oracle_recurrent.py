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


def _gru_step_n(d: Any, xr: Any, xz: Any, xn: Any, yr: Any, yz: Any, yn: Any) -> Any:
    return d * (1 - sigmoid(xz + yz)) * (1 - _new(xr, xn, yr, yn) ** 2)


def _gru_step_z(d: Any, xr: Any, xz: Any, xn: Any, yr: Any, yz: Any, yn: Any, h: Any) -> Any:
    return d * (h - _new(xr, xn, yr, yn)) * _bell(xz + yz)


ROWS: dict[str, Callable[..., Any]] = {
    "rnn_tanh_step": lambda d, h: d * (1 - h**2),
    "rnn_relu_step": lambda d, h: np.where(np.isnan(h), h, np.where(h > 0, d, 0)),
    "lstm_cell": _cell,
    "lstm_hidden": lambda o, c: sigmoid(o) * np.tanh(c),
    "lstm_hidden_o": lambda d, o, c: d * np.tanh(c) * _bell(o),
    "lstm_hidden_c": lambda e, d, o, c: e + d * sigmoid(o) * (1 - np.tanh(c) ** 2),
    "lstm_cell_i": lambda d, i, u: d * np.tanh(u) * _bell(i),
    "lstm_cell_f": lambda d, f, c: d * c * _bell(f),
    "lstm_cell_u": lambda d, i, u: d * sigmoid(i) * (1 - np.tanh(u) ** 2),
    "lstm_cell_c": lambda d, f: d * sigmoid(f),
    "gru_step": _gru_step,
    "gru_step_n": _gru_step_n,
    "gru_step_z": _gru_step_z,
    "gru_step_r": lambda d, xr, yr, yn: d * yn * _bell(xr + yr),
    "gru_step_y": lambda d, xr, yr: d * sigmoid(xr + yr),
    "gru_step_h": lambda d, xz, yz, b: d * sigmoid(xz + yz) + b,
}


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
    g: Array, states: Array, weight: Array, sizes: tuple[int, ...], step: Callable[..., tuple[Array, Array]]
) -> tuple[Array, Array, Array]:
    """Chain rule from the last step to the first: `step(t, n, dh)` gives what the product and the state before it receive."""
    w, h = weight.astype(LONG), states.astype(LONG)
    d = np.zeros((len(sizes), g.shape[1], weight.shape[0]), LONG)
    dh = g[-1].astype(LONG)
    for t in reversed(range(len(sizes))):
        n = sizes[t]
        d[t, :n], direct = step(t, n, dh[:n])
        before = g[t].astype(LONG)
        before[:n] += d[t, :n] @ w + direct
        before[n:] += dh[n:]
        dh = before
    return d, dh, np.einsum("tnk,tnh->kh", d, h[:-1])


def plain_backward(
    kind: str, g: Array, states: Array, weight: Array, sizes: tuple[int, ...] | None = None
) -> tuple[Array, ...]:
    """What x, the start and the weight receive, the states being what they are given as."""
    h = states.astype(LONG)

    def step(t: int, n: int, dh: Array) -> tuple[Array, Array]:
        slope = 1 - h[t + 1, :n] ** 2 if kind == "rnn_tanh" else h[t + 1, :n] > 0
        return dh * slope, np.zeros_like(dh)

    return _back(g, states, weight, (g.shape[1],) * (len(g) - 1) if sizes is None else sizes, step)


def lstm_backward(
    g: Array,
    states: Array,
    cells: Array,
    gates: Array,
    weight: Array,
    gc: Array | None = None,
    sizes: tuple[int, ...] | None = None,
) -> tuple[Array, ...]:
    """What x, both starts and the weight receive."""
    c = cells.astype(LONG)
    dc = np.zeros(g.shape[1:], LONG) if gc is None else gc[-1].astype(LONG)

    def step(t: int, n: int, dh: Array) -> tuple[Array, Array]:
        i, f, u, o = np.split(gates[t, :n].astype(LONG), 4, axis=-1)
        top = np.tanh(c[t + 1, :n])
        total = dc[:n] + dh * sigmoid(o) * (1 - top**2)
        parts = (total * np.tanh(u) * _bell(i), total * c[t, :n] * _bell(f), total * sigmoid(i) * (1 - np.tanh(u) ** 2))
        dc[:n] = total * sigmoid(f)
        if gc is not None:
            dc[...] += gc[t]
        return np.concatenate([*parts, dh * top * _bell(o)], axis=-1), np.zeros_like(dh)

    d, dh, dw = _back(g, states, weight, _running(gates, sizes), step)
    return d, dh, dw, dc


def gru_backward(
    g: Array, x: Array, states: Array, products: Array, weight: Array, sizes: tuple[int, ...] | None = None
) -> tuple[Array, ...]:
    """What x, the start, the weight and the products with the states receive."""
    dx = np.zeros(x.shape, LONG)

    def step(t: int, n: int, dh: Array) -> tuple[Array, Array]:
        (xr, xz, xn), (yr, yz, yn) = (np.split(v[t, :n].astype(LONG), 3, axis=-1) for v in (x, products))
        dn = _gru_step_n(dh, xr, xz, xn, yr, yz, yn)
        dz = _gru_step_z(dh, xr, xz, xn, yr, yz, yn, states[t, :n].astype(LONG))
        dr = dn * yn * _bell(xr + yr)
        dx[t, :n] = np.concatenate([dr, dz, dn], axis=-1)
        return np.concatenate([dr, dz, dn * sigmoid(xr + yr)], axis=-1), dh * sigmoid(xz + yz)

    d, dh, dw = _back(g, states, weight, _running(x, sizes), step)
    return dx, dh, dw, d
