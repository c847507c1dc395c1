"""Philox 4x32-10, counter-based: who draws what is decided by counters, so layouts and backends agree bit for bit.

Element i of an array, in C order, uses word i % 4 of block i // 4 (two words where a number needs two). A draw
reserves its counters when it is called. Key = (seed, rank), counter = (offset low, offset high, stream, 0).
Source: Salmon, Moraes, Dror & Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3".
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import index as as_index
from typing import Any

import numpy as np

from . import locks
from .dtypes import DType
from .errors import AttributeValueError

M0, M1 = 0xD2511F53, 0xCD9E8D57
W0, W1 = 0x9E3779B9, 0xBB67AE85
ROUNDS = 10
Key = tuple[int, int]
Counter = tuple[int, int, int, int]


def philox(key: Key, counter: Counter, blocks: int) -> np.ndarray[Any, Any]:
    """Blocks of four uint32 words from consecutive counters; result (blocks, 4)."""
    start = counter[0] | counter[1] << 32
    numbers = np.arange(blocks, dtype=np.uint64) + np.uint64(start & 0xFFFFFFFFFFFFFFFF)
    c0, c1 = (numbers & np.uint64(0xFFFFFFFF)), (numbers >> np.uint64(32))
    c2, c3 = np.full(blocks, counter[2], np.uint64), np.full(blocks, counter[3], np.uint64)
    k0, k1 = key
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    for _ in range(ROUNDS):
        p0, p1 = c0 * np.uint64(M0), c2 * np.uint64(M1)
        c0, c1, c2, c3 = (p1 >> shift) ^ c1 ^ np.uint64(k0), p1 & low, (p0 >> shift) ^ c3 ^ np.uint64(k1), p0 & low
        k0, k1 = (k0 + W0) & 0xFFFFFFFF, (k1 + W1) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], axis=1).astype(np.uint32)


def words_for(kind: str, itemsize: int, count: int) -> int:
    """uint32 words that `count` numbers take: one a float32 (or smaller) uniform or mask, two a float64 or normal."""
    return count * (2 if kind == "normal" or (kind == "uniform" and itemsize == 8) else 1)


def shortened(numbers: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    """Uniform numbers with as many bits as the dtype keeps, cut and not rounded: in [0, 1) nothing becomes 1."""
    scale = 2.0 / dtype.eps
    cut: np.ndarray[Any, Any] = np.floor(numbers * numbers.dtype.type(scale)) / numbers.dtype.type(scale)
    return cut


def draw(kind: str, itemsize: int, key: Key, counter: Counter, count: int) -> np.ndarray[Any, Any]:
    """`count` numbers: "bits" uint32; "uniform" in [0, 1) with 24 (float32) or 53 bits; "normal" by Box and Muller.

    float32 for itemsize up to 4, else float64.
    """
    needed = words_for(kind, itemsize, count)
    words = philox(key, counter, -(-needed // 4)).reshape(-1)[:needed]
    if kind == "bits":
        return words
    if kind == "uniform" and itemsize < 8:
        short: np.ndarray[Any, Any] = np.multiply(words >> 8, np.float32(2.0**-24), dtype=np.float32)
        return short
    pairs: np.ndarray[Any, Any] = words.reshape(-1, 2).astype(np.uint64)
    if kind == "uniform":
        long: np.ndarray[Any, Any] = (
            (pairs[:, 0] >> np.uint64(5)) * 67108864.0 + (pairs[:, 1] >> np.uint64(6))
        ) * 2.0**-53
        return long
    # (0, 1] for the logarithm: a word plus one, so that zero cannot occur
    radius = np.sqrt(-2.0 * np.log((pairs[:, 0].astype(np.float64) + 1.0) * 2.0**-32))
    normal = radius * np.cos(2.0 * np.pi * (pairs[:, 1] * 2.0**-32))
    return normal if itemsize == 8 else normal.astype(np.float32)


def _word(name: str, value: Any, bits: int = 32) -> int:
    """A Python int of so many bits, NumPy's included; AttributeValueError for anything else."""
    try:
        number = as_index(value)
    except TypeError:
        number = -1
    if not 0 <= number < 2**bits:
        raise AttributeValueError(f"Generator: {name}={value!r:.40} must be an int in [0, 2**{bits})")
    return number


class Generator:
    """Hands out counters; holds no array. Two generators of one seed give the same numbers on every device.

    Units: `offset` counts blocks of four words already reserved.
    """

    def __init__(self, seed: int = 0, *, rank: int = 0, stream: int = 0) -> None:
        self.seed, self.rank, self.stream = _word("seed", seed), _word("rank", rank), _word("stream", stream)
        self.offset = 0
        self._lock = locks.lock()

    def __getstate__(self) -> dict[str, int]:  # locks are neither copied nor pickled
        return self.state_dict()

    def __setstate__(self, state: dict[str, int]) -> None:
        self._lock = locks.lock()
        self.load_state_dict(state)

    def manual_seed(self, seed: int) -> Generator:
        """Start over from `seed`."""
        self.__init__(seed, rank=self.rank, stream=self.stream)  # type: ignore[misc]  # a fresh start is what is meant
        return self

    def reserve(self, words: int) -> tuple[Key, Counter]:
        """Take the counters that `words` uint32 words need; the next draw starts behind them."""
        with self._lock:
            start = self.offset
            self.offset += -(-int(words) // 4)  # NumPy's integers would stay, and wrap
        return (self.seed, self.rank), (start & 0xFFFFFFFF, start >> 32 & 0xFFFFFFFF, self.stream, 0)

    def state_dict(self) -> dict[str, int]:
        """What `load_state_dict` needs to go on from here."""
        return {"seed": self.seed, "rank": self.rank, "stream": self.stream, "offset": self.offset}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on from a saved state; AttributeValueError for what is none, and then nothing changes."""
        known: object = state
        known = known if isinstance(known, Mapping) else {}
        missing = [name for name in ("seed", "rank", "stream", "offset") if name not in known]
        if missing:
            raise AttributeValueError(f"Generator: the state has no {', '.join(missing)}; take one from state_dict()")
        words = [_word(name, state[name]) for name in ("seed", "rank", "stream")]
        offset = _word("offset", state["offset"], 64)
        (self.seed, self.rank, self.stream), self.offset = words, offset
