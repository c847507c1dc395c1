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
