"""The way back through recurrent layers in pieces that have gradients themselves, for gradients of gradients.

The same sums as in `recurrent`, where they are written into slices: values alone go there, and autograd comes here when a
graph of the way back is asked for. `p` is what a state receives from the step after it, `g` what it receives from outside.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .op import Run

Step = Callable[[int, slice, Any], tuple[Any, Any]]


def cut(view: Any, count: int) -> list[Any]:
    """Gates side by side along the last axis."""
    size = view.shape[-1] // count
    lead = (slice(None),) * (len(view.shape) - 1)
    return [view.slice(*lead, slice(i * size, (i + 1) * size)) for i in range(count)]


def _times(run: Run, first: Any, *others: Any) -> Any:
    for x in others:
        first = run("multiply", first, x)
    return first


def _less(run: Run, x: Any) -> Any:
    """1 - x."""
    return run("subtract", 1.0, x)


def _bell(run: Run, gate: Any) -> Any:
    """Derivative of the logistic function, from its value."""
    return _times(run, gate, _less(run, gate))


def _zeros(run: Run, like: Any, shape: tuple[int, ...]) -> Any:
    return run("fill_like", run("empty", like, shape=shape), alpha=0)


def _joined(run: Run, *parts: Any, axis: int) -> Any:
    full = [p for p in parts if p.shape[axis]]
    return run("concat", *full, axis=axis) if len(full) > 1 else (full or parts)[0]


def _stacked(run: Run, steps: list[Any], batch: int) -> Any:
    """(T, N, ...) of steps whose sequences are the first of N; the others get zeros."""
    full = [_joined(run, s, _zeros(run, s, (batch - s.shape[0], s.shape[1])), axis=0) for s in steps]
    return _joined(run, *(s.reshape((1, *s.shape)) for s in full), axis=0)


def _back(
    run: Run, g: Any, states: Any, weight: Any, extra: Any, sizes: tuple[int, ...], step: Step
) -> tuple[Any, Any, Any]:
    """From the last step to the first: `step` gives what the products with the state, and the state itself, receive."""
    found: list[Any] = []
    p, batch = _zeros(run, g, g.shape[1:]), g.shape[1]
    for t in range(len(sizes) - 1, -1, -1):
        here, rest = slice(0, sizes[t]), slice(sizes[t], None)
        arrived = run("add", p, g.slice(t + 1))
        d, direct = step(t, here, arrived.slice(here))
        if extra is not None:
            d = run("add", d, extra.slice(t, here))
        found.insert(0, d)
        p = run("matmul", d, weight)
        p = _joined(run, p if direct is None else run("add", p, direct), arrived.slice(rest), axis=0)
    d, steps = _stacked(run, found, batch), len(sizes)
    before = states.slice(slice(0, steps)).reshape((steps * batch, states.shape[2]))
    dw = run("matmul", d.reshape((steps * batch, d.shape[2])).permute((1, 0)), before)
    return d, run("add", p, g.slice(0)), dw


def _with_ended(run: Run, d: Any, extra: Any, sizes: tuple[int, ...]) -> Any:
    """And what the products of sequences that had ended received from outside."""
    batch = d.shape[1]
    if extra is None or all(n == batch for n in sizes):
        return d
    rows = [
        _joined(run, d.slice(t, slice(0, n)), extra.slice(t, slice(n, None)), axis=0).reshape((1, *d.shape[1:]))
        for t, n in enumerate(sizes)
    ]
    return _joined(run, *rows, axis=0)


def plain(kind: str) -> Callable[..., Any]:
    """Of an RNN."""

    def vjp(run: Run, g: Any, states: Any, weight: Any, *, sizes: tuple[int, ...]) -> tuple[Any, ...]:
        def step(t: int, here: slice, d: Any) -> tuple[Any, Any]:
            h = states.slice(t + 1, here)
            if kind == "rnn_tanh":
                return _times(run, d, _less(run, _times(run, h, h))), None
            return run("where", run("greater", h, 0.0), d, run("where", run("less_equal", h, 0.0), 0.0, h)), None

        return _back(run, g, states, weight, None, sizes, step)

    return vjp


def lstm(
    run: Run, g: Any, states: Any, cells: Any, gates: Any, weight: Any, gc: Any, gg: Any, *, sizes: tuple[int, ...]
) -> tuple[Any, ...]:
    """Of an LSTM."""
    k = [_zeros(run, g, g.shape[1:]) if gc is None else gc.slice(len(sizes))]

    def step(t: int, here: slice, d: Any) -> tuple[Any, Any]:
        inputs = cut(gates.slice(t, here), 4)
        i, f, o = (run("sigmoid", inputs[n]) for n in (0, 1, 3))
        u, top = run("tanh", inputs[2]), run("tanh", cells.slice(t + 1, here))
        total = run("add", k[0].slice(here), _times(run, d, o, _less(run, _times(run, top, top))))
        parts = (
            _times(run, total, u, _bell(run, i)),
            _times(run, total, cells.slice(t, here), _bell(run, f)),
            _times(run, total, i, _less(run, _times(run, u, u))),
            _times(run, d, top, _bell(run, o)),
        )
        k[0] = _joined(run, _times(run, total, f), k[0].slice(slice(sizes[t], None)), axis=0)
        if gc is not None:
            k[0] = run("add", k[0], gc.slice(t))
        return _joined(run, *parts, axis=1), None

    dx, dh, dw = _back(run, g, states, weight, gg, sizes, step)
    return _with_ended(run, dx, gg, sizes), dh, dw, k[0]


def gru(
    run: Run, g: Any, x: Any, states: Any, products: Any, weight: Any, gy: Any, *, sizes: tuple[int, ...]
) -> tuple[Any, ...]:
    """Of a GRU."""
    inputs: list[Any] = []

    def step(t: int, here: slice, d: Any) -> tuple[Any, Any]:
        (xr, xz, xn), (yr, yz, yn) = cut(x.slice(t, here), 3), cut(products.slice(t, here), 3)
        r, z = run("sigmoid", run("add", xr, yr)), run("sigmoid", run("add", xz, yz))
        new = run("tanh", run("add", xn, _times(run, yn, r)))
        dn = _times(run, d, _less(run, z), _less(run, _times(run, new, new)))
        dz = _times(run, d, run("subtract", states.slice(t, here), new), _bell(run, z))
        dr = _times(run, dn, yn, _bell(run, r))
        inputs.insert(0, _joined(run, dr, dz, dn, axis=1))
        return _joined(run, dr, dz, _times(run, dn, r), axis=1), _times(run, d, z)

    dy, dh, dw = _back(run, g, states, weight, gy, sizes, step)
    return _stacked(run, inputs, g.shape[1]), dh, dw, _with_ended(run, dy, gy, sizes)
