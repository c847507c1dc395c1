"""Random numbers addressed by (seed, epoch, index, stream), so that they do not depend on who draws them, or when."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Indices = npt.NDArray[np.int64]

_GOLDEN = 0x9E3779B97F4A7C15  # 2**64 / golden ratio, odd: SplitMix64's increment
_MASK = 0xFFFFFFFFFFFFFFFF


def _mix(z: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Scramble 64 bits so that every input bit reaches every output bit; `z` is overwritten."""
    z ^= z >> np.uint64(30)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= z >> np.uint64(27)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z


def _mix_key(*words: int) -> int:
    """Fold integers of any size and sign into one 64-bit key; the order of the words matters."""
    key = np.zeros(1, np.uint64)
    for word in words:
        key += np.uint64((word + 1) * _GOLDEN & _MASK)
        key = _mix(key)
    return int(key[0])


@dataclass(frozen=True, slots=True)
class Draw:
    """The random numbers of some samples of one epoch: a pure function of (seed, epoch, index, stream, column).

    A sample's numbers are the same in a batch or alone, in this process or in a worker, on every platform and
    with every NumPy, so augmented data can be resumed and repeated exactly.

    bits[n, c] = mix(mix(key(seed, epoch, stream) + index[n] * golden) + (c + 1) * golden)   modulo 2**64

    Shapes:  indices (N,), the samples' places in the whole data set
    Errors:  TypeError if `seed` or `epoch` is not an integer
    Source:  Steele, Lea & Flood 2014, "Fast splittable pseudorandom number generators" (SplitMix64's finalizer)
    """

    seed: int
    epoch: int
    indices: Indices = field(repr=False)
    stream: int = 0

    def __post_init__(self) -> None:
        for name in ("seed", "epoch"):
            if not isinstance(getattr(self, name), int | np.integer):
                raise TypeError(f"{name} must be an integer, not {getattr(self, name)!r}")

    def with_stream(self, stream: int) -> Draw:
        """Return other numbers for the same samples; a Compose gives each of its transforms a stream of its own."""
        return replace(self, stream=_mix_key(self.stream, stream))

    def bits(self, columns: int) -> npt.NDArray[np.uint64]:
        """Return 64 random bits for each sample and column, shape (N, columns)."""
        key = np.uint64(_mix_key(int(self.seed), int(self.epoch), self.stream))
        rows = _mix(self.indices.astype(np.uint64) * np.uint64(_GOLDEN) + key)
        steps = np.arange(1, columns + 1, dtype=np.uint64) * np.uint64(_GOLDEN)
        return _mix(rows[:, None] + steps)

    def uniform(self, columns: int) -> npt.NDArray[np.float64]:
        """Return numbers in [0, 1) with 53 random bits, shape (N, columns)."""
        return (self.bits(columns) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def integers(self, *highs: int) -> Indices:
        """Return a column of integers in [0, high) for each of `highs`, all below 2**32; shape (N, len(highs))."""
        top = self.bits(len(highs)) >> np.uint64(32)
        return (top * np.array(highs, np.uint64) >> np.uint64(32)).astype(np.int64)


def permutation(length: int, seed: int, epoch: int) -> Indices:
    """Return the numbers 0 .. length - 1 in an order drawn from (seed, epoch).

    Shapes:  result (length,)
    Dtypes:  int64
    """
    bits = Draw(seed, epoch, np.arange(length, dtype=np.int64), stream=1).bits(1)[:, 0]
    return np.argsort(bits, kind="stable").astype(np.int64)
