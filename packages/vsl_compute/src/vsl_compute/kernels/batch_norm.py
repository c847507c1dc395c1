"""Batch normalization's four passes over memory, forward and back, for C-like languages.

  moments    mean and variance of each channel: pairs of elements, pairs of these, as far as a thread loads at a time, then one
             after the other, all by Chan's rule; the threads of a group in a tree
  sums       of the arriving gradient d, and of d * (x - mean) * rstd; d may be masked by the ReLU behind, or that and written
  normalize  y = (x - mean) * rstd * weight + bias, with a residual and a ReLU
  back       dx = d * scale + ((x - mean) * rstd * b + a)
  join       what parts of moments or sums left, where groups of a launch cannot count each other

Memory is dense. Channels are neighbours ("columns": a thread has `width` channels) or runs of neighbours ("planes": a thread has
one). A group takes `across` threads' channels at some of the positions that a channel has, a part of them. Which elements
are added in which order follows from shapes alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..dtypes import DType, uint64
from ..rows.dialect import Dialect
from ..rows.kinds import compute_dtype

LEFT = {"moments": ("m", "s"), "sums": ("a", "b")}  # of a state, what is left for those who join
OUTPUTS = {"moments": ("mean", "variance"), "sums": ("dweight", "dbias")}
NUMBERS = (
    "count",
    "channels",
    "inner",
    "parts",
    "share",
)  # uint parameters: of positions, channels, a run's vectors, ...


@dataclass(frozen=True)
class Share:
    """How a launch is shared out: elements a vector, threads beside each other, threads a group."""

    planes: bool
    width: int
    across: int
    group: int

    @property
    def rows(self) -> int:
        """Threads of a group that have the same channels."""
        return self.group // self.across

    @property
    def channels(self) -> int:
        """Channels of a group."""
        return 1 if self.planes else self.across * self.width

    @property
    def kept(self) -> int:
        """Channels of a thread."""
        return 1 if self.planes else self.width


@dataclass(frozen=True)
class Pass:
    """One of the passes: what there is besides x, by its dtype, and what stands behind.

    `relu` masks by what is normalized, `masked` by y, and writes the masked gradient; in "normalize" relu is taken.
    """

    name: str
    x: DType
    weight: DType | None = None
    bias: DType | None = None
    relu: bool = False
    residual: bool = False
    parts: bool = False  # states are left for the last group, or for `join`

    @property
    def batch(self) -> int:
        """Positions whose loads are under way together: as many as leave registers for three groups of a multiprocessor."""
        return 8 if self.name == "moments" else 2 if self.masked else 4

    @property
    def masked(self) -> bool:
        """Whether the ReLU behind took in a residual, so that y alone says where it let pass."""
        return self.name == "sums" and self.residual


def arrays_of(what: Pass, dialect: Dialect) -> dict[str, tuple[DType, bool]]:
    """Parameters that are memory, in order: dtype, and whether it is written."""
    name, number, x = what.name, compute_dtype(what.x), what.x
    vectors = {n: (d, False) for n, d in (("weight", what.weight), ("bias", what.bias)) if d is not None}
    statistics = {"mean": (number, False), "variance": (number, False)}
    if name == "normalize":
        residual = {"residual": (x, False)} if what.residual else {}
        return {"x": (x, False)} | residual | statistics | vectors | {"y": (x, True)}
    if name == "back":
        sums = {"dweight": (number, False), "dbias": (number, False)}
        return {"g": (x, False), "x": (x, False)} | statistics | vectors | sums | {"dx": (x, True)}
    found = {"x": (x, False)}
    if name == "sums":
        found = {"g": (x, False)} | found | statistics | vectors
        if what.masked:
            found |= {"y": (x, False), "d": (x, True)}
    outs = dict.fromkeys(OUTPUTS[name], (number, True))
    if not what.parts:
        return found | outs
    found |= {f"left_{n}": (number, True) for n in LEFT[name]}
    return found | ({"counters": (uint64, True)} | outs if dialect.counts else {})


def join_arrays(name: str, number: DType) -> dict[str, tuple[DType, bool]]:
    """As `arrays_of`, of what joins the parts that a pass left."""
    given = {f"left_{n}": (number, False) for n in LEFT[name]} | (
        {"variance": (number, False)} if name == "sums" else {}
    )
    return given | dict.fromkeys(OUTPUTS[name], (number, True))
