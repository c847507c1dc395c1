"""Random configurations of recurrent layers."""

from __future__ import annotations

import numpy as np
from differential import Case
from families_layers import _int

Rng = np.random.Generator


def recurrent(rng: Rng) -> Case:
    """Kinds, layers, directions, bias, orders of axes, no batch, given starts, packed sequences in any order."""
    kind = str(rng.choice(["RNN", "LSTM", "GRU"]))
    size, hidden, layers, steps, batch = (
        _int(rng, 1, 4),
        _int(rng, 1, 4),
        _int(rng, 1, 2),
        _int(rng, 1, 6),
        _int(rng, 1, 4),
    )
    options = {"num_layers": layers, "bias": bool(rng.random() < 0.7), "bidirectional": bool(rng.random() < 0.4)}
    options["batch_first"] = bool(rng.random() < 0.5)
    if kind == "RNN":
        options["nonlinearity"] = str(rng.choice(["tanh", "relu"]))
    packed, alone = rng.random() < 0.4, rng.random() < 0.15
    alone = alone and not packed
    shape = (steps, size) if alone else (batch, steps, size) if options["batch_first"] else (steps, batch, size)
    first = (layers * (2 if options["bidirectional"] else 1), *(() if alone else (batch,)), hidden)
    starts = [rng.normal(size=first) for _ in range(2 if kind == "LSTM" else 1)] if rng.random() < 0.5 else []
    lengths = [int(n) for n in rng.integers(1, steps + 1, batch)]

    def make(library):
        layer = getattr(library.nn, kind)(size, hidden, **options)
        plain, sequences = layer.forward, library.nn.utils.rnn

        def forward(x, *start):
            given = (tuple(start) if kind == "LSTM" else start[0]) if start else None
            if packed:
                x = sequences.pack_padded_sequence(x, lengths, options["batch_first"], enforce_sorted=False)
            y, last = plain(x, given)
            if packed:
                y, counts = sequences.pad_packed_sequence(y, options["batch_first"], padding_value=0.5)
                return y, last, counts
            return y, last

        layer.forward = forward
        return layer

    text = f"{kind}({size}, {hidden}, {options}) of {shape}, {alone=} lengths={lengths if packed else None} starts={len(starts)}"
    return Case(text, make, [rng.normal(size=shape), *starts])


FAMILIES = (recurrent,)
