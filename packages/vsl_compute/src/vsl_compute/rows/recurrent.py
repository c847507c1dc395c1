"""Rows that a step of an RNN, LSTM or GRU is made of, forward and back; they have no gradients, for they are halves of one."""

from __future__ import annotations

from .row import Row, row


def _gate(x: str) -> str:
    return f"(1 / (1 + exp(-{x})))"


def _slope(x: str) -> str:
    """Derivative of the gate: even in x, so that neither end cancels or overflows, and of few roundings."""
    e = f"exp(-abs({x}))"
    return f"({e} / ((1 + {e}) * (1 + {e})))"


_N = f"tanh(xn + yn * {_gate('(xr + yr)')})"
_STEP = "d xr xz xn yr yz yn"


# A step back is a product of up to eight rounded factors, each within half a unit to two of the last place, and a GRU's
# gate is taken of a rounded sum: 5.3 ULP were seen in 12 draws of 1400 numbers with NumPy's float32 exp and tanh.
_ULP = 12.0


def _part(name: str, args: str, value: str, scale: str | None = None) -> Row:
    signature = "f" * len(args.split()) + ">f"
    return row(name, signature, value, *[None] * len(args.split()),
               args=args, domain=(-2, 2), ulp=_ULP, gpu_ulp=64, scale=scale)  # fmt: skip


ROWS: tuple[Row, ...] = (
    _part("rnn_tanh_step", "d h", "d * (1 - h * h)", "abs(d) * (1 + h * h)"),
    _part("rnn_relu_step", "d h", "where(h > 0, d, where(h <= 0, 0, h))"),
    _part("lstm_cell", "i f u c", f"c * {_gate('f')} + tanh(u) * {_gate('i')}", "1 + abs(c)"),
    _part("lstm_hidden", "o c", f"tanh(c) * {_gate('o')}"),
    _part("lstm_hidden_o", "d o c", f"d * tanh(c) * {_slope('o')}"),
    _part("lstm_hidden_c", "e d o c", f"e + d * (1 - tanh(c) * tanh(c)) * {_gate('o')}", "abs(e) + abs(d)"),
    _part("lstm_cell_i", "d i u", f"d * tanh(u) * {_slope('i')}"),
    _part("lstm_cell_f", "d f c", f"d * c * {_slope('f')}"),
    _part("lstm_cell_u", "d i u", f"d * {_gate('i')} * (1 - tanh(u) * tanh(u))", "abs(d)"),
    _part("lstm_cell_c", "d f", f"d * {_gate('f')}"),
    _part("gru_step", "xr xz xn yr yz yn h", f"{_N} + (h - {_N}) * {_gate('(xz + yz)')}", "1 + abs(h)"),
    _part("gru_step_n", _STEP, f"d * {_gate('(-(xz + yz))')} * (1 - {_N} * {_N})", "abs(d)"),
    _part("gru_step_z", f"{_STEP} h", f"d * (h - {_N}) * {_slope('(xz + yz)')}", "abs(d) * (1 + abs(h))"),
    _part("gru_step_r", "d xr yr yn", f"d * yn * {_slope('(xr + yr)')}"),
    _part("gru_step_y", "d xr yr", f"d * {_gate('(xr + yr)')}"),
    _part("gru_step_h", "d xz yz b", f"d * {_gate('(xz + yz)')} + b", "abs(d) + abs(b)"),
)  # fmt: skip
