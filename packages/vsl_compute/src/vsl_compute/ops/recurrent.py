"""One layer of an RNN, LSTM or GRU over a whole sequence, and its way back: what a library runs as one kernel.

The products with the input are made outside, for all steps at once; here is only what each step needs of the one
before. `sizes` says how many sequences, the longest first, are still running at each step: the states of the others stay
as they are. Steps come in the order of running, so a backward direction is a flipped view. Gates stand in PyTorch's
order. The way back is written into slices and has no gradient of its own.

Shapes:  x (T, N, gates * H), states (T + 1, N, H), the first of them the start
Source:  Hochreiter & Schmidhuber 1997 with Gers et al. 2000; Cho et al. 2014, reset after the product as cuDNN has it
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import AttributeValueError, ShapeError
from ..view import View
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


def _parts(view: Any, count: int) -> list[Any]:
    """Gates side by side along the last axis."""
    size = view.shape[-1] // count
    lead = (slice(None),) * (len(view.shape) - 1)
    return [view.slice(*lead, slice(i * size, (i + 1) * size)) for i in range(count)]


def _product(run: Run, start: View, a: View, b: View) -> View:
    """A copy of `start` plus a @ b."""
    out: View = run("copy", start, out=run("empty", start, shape=start.shape))
    return run("matmul", a, b, beta=1.0, out=out)  # type: ignore[no-any-return]


# plain recurrence: h = f(x + h W^T)
def _rnn(kind: str) -> Any:
    def forward(run: Run, x: View, h0: View, weight: View, *, sizes: tuple[int, ...]) -> View:
        states, turned = _state(run, h0, x.shape[0]), weight.permute((1, 0))
        for t, n in enumerate(sizes):
            here = slice(0, n)
            pre = _product(run, x.slice(t, here), states.slice(t, here), turned)
            run("tanh" if kind == "rnn_tanh" else "relu", pre, out=states.slice(t + 1, here))
            _rest(run, states, t, n)
        return states

    def backward(
        run: Run, needs: Needs, grads: Gradients, saved: dict[str, Any], *, sizes: tuple[int, ...]
    ) -> Gradients:
        return run(f"{kind}_backward", grads[0], saved["states"], saved["weight"], sizes=sizes)  # type: ignore[no-any-return]

    def vjp(run: Run, g: View, states: View, weight: View, *, sizes: tuple[int, ...]) -> tuple[View, View, View]:
        dx: View = run("fill", alpha=0, out=run("empty", g, shape=(len(sizes), *g.shape[1:])))
        dh: View = run("copy", g.slice(len(sizes)), out=run("empty", g, shape=g.shape[1:]))
        for t in range(len(sizes) - 1, -1, -1):
            here = slice(0, sizes[t])
            row = "rnn_tanh_step" if kind == "rnn_tanh" else "rnn_relu_step"
            pre = run(row, dh.slice(here), states.slice(t + 1, here), out=dx.slice(t, here))
            run("copy", g.slice(t), out=(before := run("empty", g, shape=g.shape[1:])))
            run("matmul", pre, weight, beta=1.0, out=before.slice(here))
            _carried(run, before, dh, sizes[t])
            dh = before
        return dx, dh, _weight_gradient(run, dx, states)

    return forward, backward, vjp


def _carried(run: Run, before: View, dh: View, n: int) -> None:
    """Of sequences that have ended, the gradient goes through to the step before."""
    if n < dh.shape[0]:
        rest = slice(n, None)
        run("add", before.slice(rest), dh.slice(rest), out=before.slice(rest))


def _weight_gradient(run: Run, d: View, states: View) -> View:
    """All steps at once: d^T h."""
    steps, batch, width = d.shape
    if not steps * batch:
        return run("fill", alpha=0, out=run("empty", d, shape=(width, states.shape[2])))  # type: ignore[no-any-return]
    before = run("contiguous", states.slice(slice(0, steps))).reshape((steps * batch, states.shape[2]))
    return run("matmul", run("contiguous", d).reshape((steps * batch, width)).permute((1, 0)), before)  # type: ignore[no-any-return]


# LSTM: i, f, u, o = x + h W^T;  c = sigmoid(f) c + sigmoid(i) tanh(u);  h = sigmoid(o) tanh(c)
def _lstm(run: Run, x: View, h0: View, weight: View, c0: View, *, sizes: tuple[int, ...]) -> tuple[View, View, View]:
    states, cells, turned = _state(run, h0, x.shape[0]), _state(run, c0, x.shape[0]), weight.permute((1, 0))
    gates: View = run("copy", x, out=run("empty", x, shape=x.shape))
    for t, n in enumerate(sizes):
        here = slice(0, n)
        run("matmul", states.slice(t, here), turned, beta=1.0, out=gates.slice(t, here))
        i, f, u, o = _parts(gates.slice(t, here), 4)
        c = run("lstm_cell", i, f, u, cells.slice(t, here), out=cells.slice(t + 1, here))
        run("lstm_hidden", o, c, out=states.slice(t + 1, here))
        _rest(run, states, t, n)
        _rest(run, cells, t, n)
    return states, cells, gates


def _lstm_backward(
    run: Run, needs: Needs, grads: Gradients, saved: dict[str, Any], *, sizes: tuple[int, ...]
) -> Gradients:
    dx, dh, dw, dc = run(
        "lstm_backward",
        grads[0],
        saved["states"],
        saved["cells"],
        saved["gates"],
        saved["weight"],
        grads[1],
        sizes=sizes,
    )
    return dx, dh, dw, dc


def _lstm_vjp(
    run: Run, g: View, states: View, cells: View, gates: View, weight: View, gc: View | None, *, sizes: tuple[int, ...]
) -> tuple[View, View, View, View]:
    steps, shape = len(sizes), g.shape[1:]
    dx: View = run("fill", alpha=0, out=run("empty", g, shape=gates.shape))
    dh: View = run("copy", g.slice(steps), out=run("empty", g, shape=shape))
    dc: View = run("empty", g, shape=shape)
    run("copy", gc.slice(steps), out=dc) if gc is not None else run("fill", alpha=0, out=dc)
    for t in range(steps - 1, -1, -1):
        here = slice(0, sizes[t])
        i, f, u, o = _parts(gates.slice(t, here), 4)
        di, df, du, do = _parts(dx.slice(t, here), 4)
        c, old = cells.slice(t + 1, here), cells.slice(t, here)
        run("lstm_hidden_o", dh.slice(here), o, c, out=do)
        total = run("lstm_hidden_c", dc.slice(here), dh.slice(here), o, c)
        run("lstm_cell_i", total, i, u, out=di)
        run("lstm_cell_f", total, f, old, out=df)
        run("lstm_cell_u", total, i, u, out=du)
        run("lstm_cell_c", total, f, out=dc.slice(here))
        if gc is not None:
            run("add", dc, gc.slice(t), out=dc)
        run("copy", g.slice(t), out=(before := run("empty", g, shape=shape)))
        run("matmul", dx.slice(t, here), weight, beta=1.0, out=before.slice(here))
        _carried(run, before, dh, sizes[t])
        dh = before
    return dx, dh, _weight_gradient(run, dx, states), dc


# GRU: r, z = sigmoid(x + y), n = tanh(x + r y), y = h W^T + b;  h = (1 - z) n + z h
def _gru(run: Run, x: View, h0: View, weight: View, bias: View | None, *, sizes: tuple[int, ...]) -> tuple[View, View]:
    states, turned = _state(run, h0, x.shape[0]), weight.permute((1, 0))
    products: View = run("empty", x, shape=x.shape)
    run("fill", alpha=0, out=products) if bias is None else run("copy", bias.expand(x.shape), out=products)
    for t, n in enumerate(sizes):
        here = slice(0, n)
        run("matmul", states.slice(t, here), turned, beta=1.0, out=products.slice(t, here))
        xs, ys = _parts(x.slice(t, here), 3), _parts(products.slice(t, here), 3)
        run("gru_step", *xs, *ys, states.slice(t, here), out=states.slice(t + 1, here))
        _rest(run, states, t, n)
    return states, products


def _gru_backward(
    run: Run, needs: Needs, grads: Gradients, saved: dict[str, Any], *, sizes: tuple[int, ...]
) -> Gradients:
    dx, dh, dw, dy = run(
        "gru_backward", grads[0], saved["x"], saved["states"], saved["products"], saved["weight"], sizes=sizes
    )
    return dx, dh, dw, run("sum", dy, axes=(0, 1)) if needs[3] else None


def _gru_vjp(
    run: Run, g: View, x: View, states: View, products: View, weight: View, *, sizes: tuple[int, ...]
) -> tuple[View, View, View, View]:
    steps, shape = len(sizes), g.shape[1:]
    dx: View = run("fill", alpha=0, out=run("empty", g, shape=x.shape))
    dy: View = run("fill", alpha=0, out=run("empty", g, shape=x.shape))
    dh: View = run("copy", g.slice(steps), out=run("empty", g, shape=shape))
    for t in range(steps - 1, -1, -1):
        here = slice(0, sizes[t])
        (xr, xz, xn), (yr, yz, yn) = _parts(x.slice(t, here), 3), _parts(products.slice(t, here), 3)
        (dr, dz, dn), (er, ez, en) = _parts(dx.slice(t, here), 3), _parts(dy.slice(t, here), 3)
        d, old = dh.slice(here), states.slice(t, here)
        run("gru_step_n", d, xr, xz, xn, yr, yz, yn, out=dn)
        run("gru_step_z", d, xr, xz, xn, yr, yz, yn, old, out=dz)
        run("gru_step_r", dn, xr, yr, yn, out=dr)
        run("copy", dr, out=er)
        run("copy", dz, out=ez)
        run("gru_step_y", dn, xr, yr, out=en)
        run("copy", g.slice(t), out=(before := run("empty", g, shape=shape)))
        run("gru_step_h", d, xz, yz, before.slice(here), out=before.slice(here))
        run("matmul", dy.slice(t, here), weight, beta=1.0, out=before.slice(here))
        _carried(run, before, dh, sizes[t])
        dh = before
    return dx, dh, _weight_gradient(run, dy, states), dy


def _plain(kind: str) -> tuple[Any, Any]:
    forward, backward, vjp = _rnn(kind)
    return (
        composite(kind, "fff>f", "x h0 weight", forward, backward, outputs="states", saves="weight states", check=_check(kind), sizes=None),
        composite(f"{kind}_backward", "fff>fff", "g states weight", vjp, outputs="dx dh dw", sizes=None),
    )  # fmt: skip


OPS = (
    *_plain("rnn_tanh"),
    *_plain("rnn_relu"),
    composite("lstm", "ffff>fff", "x h0 weight c0", _lstm, _lstm_backward, outputs="states cells gates", saves="weight states cells gates",
              check=_check("lstm"), sizes=None),
    composite("lstm_backward", "ffffff>ffff", "g states cells gates weight gc?", _lstm_vjp, outputs="dx dh dw dc", sizes=None),
    composite("gru", "ffff>ff", "x h0 weight bias?", _gru, _gru_backward, outputs="states products", saves="x weight states products",
              check=_check("gru"), sizes=None),
    composite("gru_backward", "fffff>ffff", "g x states products weight", _gru_vjp, outputs="dx dh dw dy", sizes=None),
)  # fmt: skip
