"""What a step of an RNN, LSTM or GRU does to each element, forward and back; they have no gradients, for they are halves of one.

A step with one result is a row of the table; one with several is an update, whose arrays are parts of wider ones: the gates
of an LSTM lie side by side. What a state receives arrives in two parts: `p`, from the step after it, and `e`, from outside.
"""

from __future__ import annotations

from .row import Row, Update, row, update


def _gate(x: str) -> str:
    return f"(1 / (1 + exp(-{x})))"


def _slope(x: str) -> str:
    """Derivative of the gate: even in x, so that neither end cancels or overflows, and of few roundings."""
    e = f"exp(-abs({x}))"
    return f"({e} / ((1 + {e}) * (1 + {e})))"


_N = f"tanh(xn + yn * {_gate('(xr + yr)')})"


def _part(name: str, args: str, value: str, scale: str | None = None) -> Row:
    signature = "f" * len(args.split()) + ">f"
    # 8 on GPUs: the worst of two million draws of this domain was 2.6 ULP on llvmpipe (rnn_tanh_step) and 2.1 on PoCL
    # (gru_step). Vulkan promises exp to 3 + 2|x| ULP and a division to 2.5 (specification 1.3, "Precision of GLSL.std.450
    # instructions"); a gate's slope of at most 1/4 leaves 4.2 of that.
    return row(name, signature, value, *[None] * len(args.split()),
               args=args, domain=(-2, 2), gpu_ulp=8, scale=scale, check=False)  # fmt: skip


def _step(name: str, arrays: str, *statements: str) -> Update:
    """An update whose arrays have one dtype."""
    return update(name, arrays, "", *statements, letters="s" * len(arrays.split()), check=False)


ROWS: tuple[Row, ...] = (
    _part("rnn_tanh_step", "a b", "tanh(a + b)", "abs(a) + abs(b)"),
    _part("rnn_relu_step", "a b", "where(a + b > 0, a + b, where(a + b <= 0, 0, a + b))", "abs(a) + abs(b)"),
    _part("rnn_tanh_step_back", "p e h", "(p + e) * (1 - h * h)", "(abs(p) + abs(e)) * (1 + h * h)"),
    _part("rnn_relu_step_back", "p e h", "where(h > 0, p + e, where(h <= 0, 0, h))", "abs(p) + abs(e)"),
    _part("gru_step", "xr xz xn yr yz yn h", f"{_N} + (h - {_N}) * {_gate('(xz + yz)')}", "1 + abs(h)"),
)  # fmt: skip

# i, f, u, o are what the gates see; c and h the cell and the state that they make of the cell before, `old`
LSTM_STEP = _step(
    "lstm_step", "c h i f u o old", f"c = old * {_gate('f')} + tanh(u) * {_gate('i')}", f"h = tanh(c) * {_gate('o')}"
)
# k is what the cell receives from the step after it, and becomes `kept`, what the cell before receives
LSTM_STEP_BACK = _step(
    "lstm_step_back", "di df du do kept p e i f u o c old k",
    "d = p + e", "top = tanh(c)", "new = tanh(u)", f"do = d * top * {_slope('o')}", f"total = k + d * (1 - top * top) * {_gate('o')}",
    f"di = total * new * {_slope('i')}", f"df = total * old * {_slope('f')}", f"du = total * {_gate('i')} * (1 - new * new)",
    f"kept = total * {_gate('f')}",
)  # fmt: skip
# d* is what the products with the input receive, e* those with the state, `direct` the state before, past the products
GRU_STEP_BACK = _step(
    "gru_step_back", "dr dz dn er ez en direct p e xr xz xn yr yz yn old",
    "d = p + e", f"r = {_gate('(xr + yr)')}", "new = tanh(xn + yn * r)", f"n = d * {_gate('(-(xz + yz))')} * (1 - new * new)",
    f"z = d * (old - new) * {_slope('(xz + yz)')}", f"dr = n * yn * {_slope('(xr + yr)')}", f"er = n * yn * {_slope('(xr + yr)')}",
    "dz = z", "ez = z", "dn = n", "en = n * r", f"direct = d * {_gate('(xz + yz)')}",
)  # fmt: skip
STEPS = (LSTM_STEP, LSTM_STEP_BACK, GRU_STEP_BACK)
