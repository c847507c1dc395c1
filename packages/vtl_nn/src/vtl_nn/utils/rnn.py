"""Sequences of different lengths: packed without padding, and padded again; PyTorch's names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

import vtl_core as vtl
from vtl_core import AttributeValueError, DTypeError, ShapeError, Tensor
from vtl_core.arguments import explain
from vtl_nn.functional.typing import is_whole, require_tensors


@dataclass
class PackedSequence:
    """Steps of several sequences, step after step, the longest sequence first.

    `data` is (sum of lengths, ...); `batch_sizes[t]` is how many sequences have a step t; `sorted_indices` says which
    sequences of the user stand where, `unsorted_indices` the way back; None if they came sorted.
    """

    data: Tensor
    batch_sizes: tuple[int, ...]
    sorted_indices: Tensor | None = None
    unsorted_indices: Tensor | None = None


def pack_padded_sequence(
    input: Tensor, lengths: Sequence[int] | Tensor, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Leave out what `lengths` says is padding; lengths are read on the host.

    Shapes:  input (L, N, ...), with batch_first (N, L, ...)
    Errors:  ShapeError if lengths are not N numbers from 1 to L; DTypeError if they are no integers; AttributeValueError
             if they do not fall and should
    """
    require_tensors("pack_padded_sequence", input)
    x = input.transpose(0, 1) if batch_first else input
    given = lengths.tolist() if isinstance(lengths, Tensor) else lengths
    counts = list(given) if isinstance(given, Iterable) else [given]
    if not all(map(is_whole, counts)):
        raise DTypeError(f"pack_padded_sequence: lengths {counts} must be integers, one a sequence")
    counts = [int(n) for n in counts]
    if input.ndim < 2 or len(counts) != x.shape[1] or any(not 1 <= n <= x.shape[0] for n in counts) or not counts:
        raise ShapeError(
            f"pack_padded_sequence: lengths {counts} for an input {input.shape}; one a sequence, from 1 to its steps, and one sequence at least"
        )
    order = sorted(range(len(counts)), key=lambda i: -counts[i])
    if enforce_sorted and counts != sorted(counts, reverse=True):
        raise AttributeValueError(
            f"pack_padded_sequence: lengths {counts} must fall, the longest first; or pass enforce_sorted=False"
        )
    falling = [counts[i] for i in order]
    sizes = tuple(sum(n > t for n in falling) for t in range(falling[0]))
    there = back = None
    if not enforce_sorted:
        there = vtl.tensor(np.array(order), device=input.device)
        back = vtl.tensor(np.argsort(order), device=input.device)
        x = x.transpose(0, 1)[there].transpose(0, 1)
    return pack(x, PackedSequence(x, sizes, there, back))


def pack(x: Tensor, like: PackedSequence) -> PackedSequence:
    """Padded steps (L, N, ...) of sequences in `like`'s order, packed as it is."""
    batch = like.batch_sizes[0]
    places = [t * batch + i for t, n in enumerate(like.batch_sizes) for i in range(n)]
    steps = x[: len(like.batch_sizes)].reshape(len(like.batch_sizes) * batch, *x.shape[2:])
    data = steps[vtl.tensor(np.array(places), device=x.device)]
    return PackedSequence(data, like.batch_sizes, like.sorted_indices, like.unsorted_indices)


def padded(sequence: PackedSequence) -> Tensor:
    """Steps (L, N, ...) with zeros where a sequence has ended, the longest first."""
    batch, steps = sequence.batch_sizes[0], len(sequence.batch_sizes)
    places = [t * batch + i for t, n in enumerate(sequence.batch_sizes) for i in range(n)]
    data, rest = sequence.data, sequence.data.shape[1:]
    index = vtl.tensor(np.array(places), device=data.device)
    flat: Tensor = vtl.apply("scatter", data, index, shape=(steps * batch, *rest))
    return flat.reshape(steps, batch, *rest)


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Tensor, Tensor]:
    """Give the sequences back in the user's order, padded to the longest or to `total_length`, and their lengths.

    Shapes:  result (L, N, ...), with batch_first (N, L, ...); lengths (N,), int64 on the CPU
    """
    sizes = sequence.batch_sizes
    lengths = np.array([sum(n > i for n in sizes) for i in range(sizes[0])])
    x = padded(sequence)
    if total_length is not None and (not is_whole(total_length) or total_length < len(sizes)):
        raise AttributeValueError(
            f"pad_packed_sequence: total_length={total_length} is below the longest, {len(sizes)}"
        )
    more = (total_length or len(sizes)) - len(sizes)
    if more:
        x = vtl.apply("pad", x, widths=((0, more), *[(0, 0)] * (x.ndim - 1)), value=0)
    if padding_value:
        over = np.arange(x.shape[0])[:, None] >= lengths
        hidden = vtl.tensor(over.reshape(*over.shape, *[1] * (x.ndim - 2)), device=x.device)
        x = vtl.where(hidden, vtl.full((), padding_value, dtype=x.dtype, device=x.device), x)
    x = x.transpose(0, 1)
    if sequence.unsorted_indices is not None:
        x, lengths = x[sequence.unsorted_indices], lengths[sequence.unsorted_indices.numpy()]
    return (x if batch_first else x.transpose(0, 1)), vtl.tensor(lengths)


explain(globals())
