"""One layer of an RNN, LSTM or GRU over a whole sequence, and its way back: what a library runs as one kernel.

The products with the input are made outside, for all steps at once; here is only what each step needs of the one
before. `sizes` says how many sequences, the longest first, are still running at each step: the states of the others stay
as they are. Steps come in the order of running, so a backward direction is a flipped view. Gates stand in PyTorch's
order. A step is a product and one launch, forward and back; the weight's gradient is one product over all steps. What
has a gradient of its own is `recurrent_pieces`, the way back again in pieces that have theirs.

Shapes:  x (T, N, gates * H), states (T + 1, N, H), the first of them the start
Source:  Hochreiter & Schmidhuber 1997 with Gers et al. 2000; Cho et al. 2014, reset after the product as cuDNN has it
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import AttributeValueError, ShapeError
from ..view import View
from . import recurrent_pieces as pieces
from .op import Attributes, Gradients, Needs, Run, composite

GATES = {"rnn_tanh": 1, "rnn_relu": 1, "lstm": 4, "gru": 3}


def _check(op: str) -> Any:
    def check(views: Sequence[Any], a: Attributes) -> Attributes:
        x, h0, weight = (v.shape for v in views[:3])
        gates = GATES[op]
        if len(x) != 3 or len(h0) != 2 or x != (x[0], h0[0], gates * h0[1]) or weight != (gates * h0[1], h0[1]):
            raise ShapeError(
                f"{op}: x {x} must be (T, N, {gates} * H), the start {h0} (N, H) and weight {weight} ({gates} * H, H)"
            )
        for v in views[3:]:
            wanted = h0 if op == "lstm" else (gates * h0[1],)
            if v is not None and v.shape != wanted:
                raise ShapeError(f"{op}: the last argument {v.shape} must be {wanted}")
        sizes = (x[1],) * x[0] if a["sizes"] is None else tuple(a["sizes"])
        if len(sizes) != x[0] or any(n != x[1] and not 1 <= n < x[1] for n in sizes):
            raise AttributeValueError(f"{op}: sizes {sizes} must be {x[0]} counts from 1 to the {x[1]} sequences")
        return a | {"sizes": sizes}

    return check


def _state(run: Run, start: View, steps: int) -> View:
    out: View = run("empty", start, shape=(steps + 1, *start.shape))
    run("copy", start, out=out.slice(0))
    return out


def _rest(run: Run, states: View, t: int, n: int) -> None:
    """What has ended keeps its state."""
    if n < states.shape[1]:
        run("copy", states.slice(t, slice(n, None)), out=states.slice(t + 1, slice(n, None)))


def _zeros(run: Run, like: View, shape: tuple[int, ...]) -> View:
    return run("fill", alpha=0, out=run("empty", like, shape=shape))  # type: ignore[no-any-return]


def _copied(run: Run, x: View) -> View:
    return run("copy", x, out=run("empty", x, shape=x.shape))  # type: ignore[no-any-return]


def _arrived(run: Run, p: View, outside: View, n: int) -> None:
    """Of sequences that have ended, what comes from outside joins what goes through to the step before."""
    if n < p.shape[0]:
        rest = slice(n, None)
        run("add", p.slice(rest), outside.slice(rest), out=p.slice(rest))


def _weight_gradient(run: Run, d: View, states: View) -> View:
    """All steps at once: d^T h."""
    steps, batch, width = d.shape
    if not steps * batch:
        return _zeros(run, d, (width, states.shape[2]))
    before = run("contiguous", states.slice(slice(0, steps))).reshape((steps * batch, states.shape[2]))
    return run("matmul", run("contiguous", d).reshape((steps * batch, width)).permute((1, 0)), before)  # type: ignore[no-any-return]


def _own(run: Run, d: View, extra: View | None, t: int, here: slice) -> None:
    """What the products themselves received from outside, of the sequences that run."""
    if extra is not None:
        run("add", d.slice(t, here), extra.slice(t, here), out=d.slice(t, here))


def _ended(run: Run, d: View, extra: View | None, sizes: tuple[int, ...]) -> None:
    """And of the others, which no weight saw."""
    for t, n in enumerate(sizes):
        if extra is not None and n < d.shape[1]:
            run("copy", extra.slice(t, slice(n, None)), out=d.slice(t, slice(n, None)))


# plain recurrence: h = f(x + h W^T)
def _rnn(kind: str) -> Any:
    def forward(run: Run, x: View, h0: View, weight: View, *, sizes: tuple[int, ...]) -> View:
        states, turned = _state(run, h0, x.shape[0]), weight.permute((1, 0))
        product: View = run("empty", h0, shape=h0.shape)
        for t, n in enumerate(sizes):
            here = slice(0, n)
            y = run("matmul", states.slice(t, here), turned, out=product.slice(here))
            run(f"{kind}_step", x.slice(t, here), y, out=states.slice(t + 1, here))
            _rest(run, states, t, n)
        return states

    def backward(
        run: Run, needs: Needs, grads: Gradients, saved: dict[str, Any], *, sizes: tuple[int, ...]
    ) -> Gradients:
        return run(f"{kind}_backward", grads[0], saved["states"], saved["weight"], sizes=sizes)  # type: ignore[no-any-return]

    def vjp(run: Run, g: View, states: View, weight: View, *, sizes: tuple[int, ...]) -> tuple[View, View, View]:
        dx, p = _zeros(run, g, (len(sizes), *g.shape[1:])), _zeros(run, g, g.shape[1:])
        for t in range(len(sizes) - 1, -1, -1):
            here, e = slice(0, sizes[t]), g.slice(t + 1)
            d = run(f"{kind}_step_back", p.slice(here), e.slice(here), states.slice(t + 1, here), out=dx.slice(t, here))
            run("matmul", d, weight, out=p.slice(here))
            _arrived(run, p, e, sizes[t])
        return dx, run("add", p, g.slice(0), out=p), _weight_gradient(run, dx, states)

    return forward, backward, vjp


# LSTM: i, f, u, o = x + h W^T;  c = sigmoid(f) c + sigmoid(i) tanh(u);  h = sigmoid(o) tanh(c)
def _lstm(run: Run, x: View, h0: View, weight: View, c0: View, *, sizes: tuple[int, ...]) -> tuple[View, View, View]:
    states, cells, turned = _state(run, h0, x.shape[0]), _state(run, c0, x.shape[0]), weight.permute((1, 0))
    gates = _copied(run, x)
    for t, n in enumerate(sizes):
        here = slice(0, n)
        seen = run("matmul", states.slice(t, here), turned, beta=1.0, out=gates.slice(t, here))
        run("lstm_step", seen, cells.slice(t, here), out=(cells.slice(t + 1, here), states.slice(t + 1, here)))
        _rest(run, states, t, n)
        _rest(run, cells, t, n)
    return states, cells, gates


def _lstm_backward(
    run: Run, needs: Needs, grads: Gradients, saved: dict[str, Any], *, sizes: tuple[int, ...]
) -> Gradients:
    names = ("states", "cells", "gates", "weight")
    dx, dh, dw, dc = run("lstm_backward", grads[0], *(saved[n] for n in names), grads[1], grads[2], sizes=sizes)
    return dx, dh, dw, dc


def _lstm_vjp(
    run: Run, g: View, states: View, cells: View, gates: View, weight: View, gc: View | None, gg: View | None, *, sizes: tuple[int, ...]
) -> tuple[View, View, View, View]:  # fmt: skip
    steps, shape = len(sizes), g.shape[1:]
    dx, p = _zeros(run, g, gates.shape), _zeros(run, g, shape)
    k = _zeros(run, g, shape) if gc is None else _copied(run, gc.slice(steps))
    for t in range(steps - 1, -1, -1):
        here, e = slice(0, sizes[t]), g.slice(t + 1)
        old, new, kept = cells.slice(t, here), cells.slice(t + 1, here), k.slice(here)
        run(
            "lstm_step_back",
            p.slice(here),
            e.slice(here),
            gates.slice(t, here),
            new,
            old,
            kept,
            out=(dx.slice(t, here), kept),
        )
        _own(run, dx, gg, t, here)
        if gc is not None:
            run("add", k, gc.slice(t), out=k)
        run("matmul", dx.slice(t, here), weight, out=p.slice(here))
        _arrived(run, p, e, sizes[t])
    dh, dw = run("add", p, g.slice(0), out=p), _weight_gradient(run, dx, states)
    _ended(run, dx, gg, sizes)
    return dx, dh, dw, k


# GRU: r, z = sigmoid(x + y), n = tanh(x + r y), y = h W^T + b;  h = (1 - z) n + z h
def _gru(run: Run, x: View, h0: View, weight: View, bias: View | None, *, sizes: tuple[int, ...]) -> tuple[View, View]:
    states, turned = _state(run, h0, x.shape[0]), weight.permute((1, 0))
    products: View = run("empty", x, shape=x.shape)
    run("fill", alpha=0, out=products) if bias is None else run("copy", bias.expand(x.shape), out=products)
    for t, n in enumerate(sizes):
        here = slice(0, n)
        run("matmul", states.slice(t, here), turned, beta=1.0, out=products.slice(t, here))
        xs, ys = pieces.cut(x.slice(t, here), 3), pieces.cut(products.slice(t, here), 3)
        run("gru_step", *xs, *ys, states.slice(t, here), out=states.slice(t + 1, here))
        _rest(run, states, t, n)
    return states, products


def _gru_backward(
    run: Run, needs: Needs, grads: Gradients, saved: dict[str, Any], *, sizes: tuple[int, ...]
) -> Gradients:
    names = ("x", "states", "products", "weight")
    dx, dh, dw, dy = run("gru_backward", grads[0], *(saved[n] for n in names), grads[1], sizes=sizes)
    return dx, dh, dw, run("sum", dy, axes=(0, 1)) if needs[3] else None


def _gru_vjp(
    run: Run, g: View, x: View, states: View, products: View, weight: View, gy: View | None, *, sizes: tuple[int, ...]
) -> tuple[View, View, View, View]:
    dx, dy, p = _zeros(run, g, x.shape), _zeros(run, g, x.shape), _zeros(run, g, g.shape[1:])
    for t in range(len(sizes) - 1, -1, -1):
        here, e = slice(0, sizes[t]), g.slice(t + 1)
        args = p.slice(here), e.slice(here), x.slice(t, here), products.slice(t, here), states.slice(t, here)
        run("gru_step_back", *args, out=(dx.slice(t, here), dy.slice(t, here), p.slice(here)))
        _own(run, dy, gy, t, here)
        run("matmul", dy.slice(t, here), weight, beta=1.0, out=p.slice(here))
        _arrived(run, p, e, sizes[t])
    dh, dw = run("add", p, g.slice(0), out=p), _weight_gradient(run, dy, states)
    _ended(run, dy, gy, sizes)
    return dx, dh, dw, dy


def _plain(kind: str) -> tuple[Any, Any]:
    forward, backward, vjp = _rnn(kind)
    return (
        composite(kind, "fff>f", "x h0 weight", forward, backward, outputs="states", saves="weight states", check=_check(kind),
                  unchecked=True, sizes=None),
        composite(f"{kind}_backward", "fff>fff", "g states weight", vjp, outputs="dx dh dw", expands=pieces.plain(kind), unchecked=True,
                  sizes=None),
    )  # fmt: skip


OPS = (
    *_plain("rnn_tanh"),
    *_plain("rnn_relu"),
    composite("lstm", "ffff>fff", "x h0 weight c0", _lstm, _lstm_backward, outputs="states cells gates", saves="weight states cells gates",
              check=_check("lstm"), unchecked=True, sizes=None),
    composite("lstm_backward", "fffffff>ffff", "g states cells gates weight gc? gg?", _lstm_vjp, outputs="dx dh dw dc", expands=pieces.lstm,
              unchecked=True, sizes=None),
    composite("gru", "ffff>ff", "x h0 weight bias?", _gru, _gru_backward, outputs="states products", saves="x weight states products",
              check=_check("gru"), unchecked=True, sizes=None),
    composite("gru_backward", "ffffff>ffff", "g x states products weight gy?", _gru_vjp, outputs="dx dh dw dy", expands=pieces.gru,
              unchecked=True, sizes=None),
)  # fmt: skip
