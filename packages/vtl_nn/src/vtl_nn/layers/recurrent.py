"""RNN, LSTM and GRU: layers, directions, and sequences of different lengths."""

from __future__ import annotations

from math import sqrt
from typing import Any, ClassVar

import vtl_core as vtl
from vtl_core import AttributeValueError, DTypeError, ShapeError, Tensor, UnsupportedError
from vtl_core.arguments import explain
from vtl_nn import functional as F
from vtl_nn import init
from vtl_nn.functional.typing import is_number, is_whole
from vtl_nn.module import Module, Parameter
from vtl_nn.utils.rnn import PackedSequence, pack, padded


class _Recurrent(Module):
    """What the three share: weights by PyTorch's names, layers, directions, packing.

    Weights of layer k are weight_ih_lk (gates * H, input), weight_hh_lk (gates * H, H), bias_ih_lk, bias_hh_lk, those of
    the other direction end in _reverse; all start uniform in +-1 / sqrt(H).
    """

    gates: ClassVar[int]
    op: ClassVar[str]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: str | None = None,
        dtype: init.DTypeLike = None,
    ) -> None:
        name = type(self).__name__
        if not all(is_whole(size) and size >= 1 for size in (input_size, hidden_size, num_layers)):
            raise AttributeValueError(
                f"{name}: input_size={input_size}, hidden_size={hidden_size} and num_layers={num_layers} must be at least 1"
            )
        if not (is_number(dropout) and 0 <= dropout <= 1):
            raise AttributeValueError(f"{name}: dropout={dropout!r} must lie in [0, 1]")
        self.input_size, self.hidden_size, self.num_layers, self.bias = input_size, hidden_size, num_layers, bias
        self.batch_first, self.dropout, self.bidirectional = batch_first, float(dropout), bidirectional
        width = self.gates * hidden_size
        for layer in range(num_layers):
            size = input_size if layer == 0 else hidden_size * self.directions
            for end in self._ends():
                shapes: dict[str, tuple[int, ...]] = {"weight_ih": (width, size), "weight_hh": (width, hidden_size)}
                shapes |= {"bias_ih": (width,), "bias_hh": (width,)} if bias else {}
                for kind, shape in shapes.items():
                    setattr(self, f"{kind}_l{layer}{end}", Parameter.empty(shape, device=device, dtype=dtype))
        self.reset_parameters()

    @property
    def directions(self) -> int:
        """Two if bidirectional."""
        return 2 if self.bidirectional else 1

    def _ends(self) -> tuple[str, ...]:
        return ("", "_reverse")[: self.directions]

    def reset_parameters(self) -> None:
        """Draw all uniform in +-1 / sqrt(hidden_size)."""
        bound = 1 / sqrt(self.hidden_size)
        for p in self.parameters():
            init.uniform_(p, -bound, bound)

    def _run(self, input: Tensor | PackedSequence, start: tuple[Tensor, ...] | None) -> tuple[Any, tuple[Tensor, ...]]:
        """Output, and the last states of every layer and direction."""
        name = type(self).__name__
        packed = input if isinstance(input, PackedSequence) else None
        x: Tensor = padded(input) if isinstance(input, PackedSequence) else input
        alone = packed is None and x.ndim == 2
        if alone:
            x = x.unsqueeze(1)
        elif packed is None and self.batch_first and x.ndim == 3:
            x = x.transpose(0, 1)
        if x.ndim != 3 or x.shape[2] != self.input_size or not x.shape[0]:
            axes = "(N, L, {0})" if self.batch_first else "(L, N, {0})"
            raise ShapeError(
                f"{name}: input {tuple(x.shape)} must be {axes.format(self.input_size)} or (L, {self.input_size}), L at least 1"
            )
        states = self._start(x, start, alone, packed)
        sizes = None if packed is None else packed.batch_sizes
        lasts: list[list[Tensor]] = []
        for layer in range(self.num_layers):
            outputs = []
            for k, end in enumerate(self._ends()):
                place = layer * self.directions + k
                y, last = self._layer(x, [s[place] for s in states], f"_l{layer}{end}", sizes, bool(end))
                outputs.append(y)
                lasts.append(last)
            x = outputs[0] if len(outputs) == 1 else vtl.cat(outputs, dim=2)
            if self.dropout and layer < self.num_layers - 1:
                x = F.dropout(x, self.dropout, self.training)
        finals = tuple(vtl.stack(list(each)) for each in zip(*lasts, strict=True))
        if packed is not None:
            order = packed.unsorted_indices
            return pack(x, packed), finals if order is None else tuple(_chosen(s, order) for s in finals)
        if alone:
            return x.squeeze(1), tuple(s.squeeze(1) for s in finals)
        return (x.transpose(0, 1) if self.batch_first else x), finals

    def _start(
        self, x: Tensor, given: tuple[Tensor, ...] | None, alone: bool, packed: PackedSequence | None
    ) -> list[Tensor]:
        shape = (self.num_layers * self.directions, x.shape[1], self.hidden_size)
        count = 2 if self.op == "lstm" else 1
        if given is None:
            return [vtl.zeros(*shape, dtype=x.dtype, device=x.device) for _ in range(count)]
        if any(not isinstance(s, Tensor) for s in given):
            pair = "a pair of tensors (h, c)" if count == 2 else "one tensor h"
            raise DTypeError(f"{type(self).__name__}: the start must be {pair}, or None for zeros")
        states = [s.unsqueeze(1) if alone and s.ndim == 2 else s for s in given]
        if len(states) != count or any(s.shape != shape for s in states):
            raise ShapeError(
                f"{type(self).__name__}: the start {', '.join(str(s.shape) for s in states)} must be {count} of {shape}"
            )
        order = packed.sorted_indices if packed is not None else None
        return states if order is None else [_chosen(s, order) for s in states]

    def _layer(
        self, x: Tensor, start: list[Tensor], end: str, sizes: tuple[int, ...] | None, reverse: bool
    ) -> tuple[Tensor, list[Tensor]]:
        """One direction of one layer: the products with the input at once, then the steps."""
        w, r = getattr(self, f"weight_ih{end}"), getattr(self, f"weight_hh{end}")
        b, c = (getattr(self, f"bias_{kind}{end}") if self.bias else None for kind in ("ih", "hh"))
        gru = self.op == "gru"  # the bias of its new gate stands inside the product with the reset gate
        products = F.linear(x, w, b if gru or b is None or c is None else b + c)
        if reverse:
            products = products[::-1]
            sizes = None if sizes is None else sizes[::-1]
        more = [start[1]] if self.op == "lstm" else [c] if gru else []
        made = vtl.apply(self.op, products, start[0], r, *more, sizes=sizes)
        states = [made] if isinstance(made, Tensor) else list(made)[: len(start)]
        y = states[0][1:]
        return (y[::-1] if reverse else y), [s[-1] for s in states]

    def extra_repr(self) -> str:
        """The arguments."""
        text = f"{self.input_size}, {self.hidden_size}"
        for name, usual in (
            ("num_layers", 1),
            ("bias", True),
            ("batch_first", False),
            ("dropout", 0.0),
            ("bidirectional", False),
        ):
            value = getattr(self, name)
            text += "" if value == usual else f", {name}={value}"
        return text


def _chosen(states: Tensor, order: Tensor) -> Tensor:
    """States (layers, N, H) with the sequences in another order."""
    return states.transpose(0, 1)[order].transpose(0, 1)


class RNN(_Recurrent):
    """h_t = tanh(W_ih x_t + b_ih + W_hh h_(t-1) + b_hh), or relu (Elman 1990); PyTorch's arguments and weights.

    Shapes:  input (L, N, input_size), with batch_first (N, L, ...), without a batch (L, ...), or a PackedSequence;
             output (L, N, directions * H); h_0 and h_n (layers * directions, N, H)
    """

    gates = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: str | None = None,
        dtype: init.DTypeLike = None,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise AttributeValueError(f"RNN: nonlinearity={nonlinearity!r} must be 'tanh' or 'relu'")
        self.nonlinearity = nonlinearity
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device, dtype)

    @property
    def op(self) -> str:  # type: ignore[override]  # of the instance: there are two
        """The op that runs a layer."""
        return f"rnn_{self.nonlinearity}"

    def forward(self, input: Tensor | PackedSequence, hx: Tensor | None = None) -> tuple[Any, Tensor]:
        """Return the states of the last layer, and the last ones of all."""
        y, (h,) = self._run(input, None if hx is None else (hx,))
        return y, h


class LSTM(_Recurrent):
    """Long short-term memory (Hochreiter & Schmidhuber 1997; Gers et al. 2000); gates input, forget, cell, output.

    Shapes:  as RNN's; the start and the end are pairs (h, c)
    """

    gates, op = 4, "lstm"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: str | None = None,
        dtype: init.DTypeLike = None,
    ) -> None:
        if proj_size:
            raise UnsupportedError(f"LSTM: proj_size={proj_size} is not here; put a Linear behind the LSTM")
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device, dtype)

    def forward(
        self, input: Tensor | PackedSequence, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Any, tuple[Tensor, Tensor]]:
        """Return the states of the last layer, and the last states and cells of all."""
        y, (h, c) = self._run(input, None if hx is None else tuple(hx))
        return y, (h, c)


class GRU(_Recurrent):
    """Gated recurrent unit (Cho et al. 2014); gates reset, update, new, the reset applied after the product.

    Shapes:  as RNN's
    """

    gates, op = 3, "gru"

    def forward(self, input: Tensor | PackedSequence, hx: Tensor | None = None) -> tuple[Any, Tensor]:
        """Return the states of the last layer, and the last ones of all."""
        y, (h,) = self._run(input, None if hx is None else (hx,))
        return y, h


explain(globals(), whole=True)
