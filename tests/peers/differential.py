"""Differential fuzz: one configuration, built with our names and with PyTorch's, which are the same, on the same numbers.

A family draws a `Case` from random numbers: `make` is called with each library and gives a function of tensors or a
module. PyTorch runs in float64 and is the truth. Ours must be within 8 ULP of its scale in float32 and 1e-12 in float64.
A configuration that loses digits loses them in any order of sums, so more is allowed on evidence alone: twice what PyTorch
itself is off by in that dtype, here or at inputs and weights that are those 8 ULP (1e-12) away, and what the truth moves by
on the way there. Of two that are off alike, in a normal distribution, one exceeds twice the largest of 7 draws once in 90 times, of 49 once in
26 000; so where few draws do not do many are made, and then ours are drawn as well and may not be off by more than twice as
much in root mean square: what loses twice the digits that PyTorch loses is found, what had bad luck once is not.
`families.py` has all families, `campaign.py` runs thousands of each.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

import vtl_core as vtl
import vtl_nn as nn

OURS = SimpleNamespace(name="ours", nn=nn, F=nn.functional, optim=nn.optim, tensor=vtl.tensor, cat=vtl.cat)
THEIRS = SimpleNamespace(
    name="theirs", nn=torch.nn, F=torch.nn.functional, optim=torch.optim, tensor=torch.tensor, cat=torch.cat
)
FLOOR = 2.0**-2  # of a scale: numbers here are about 1, and where they cancel to less their last two bits are left
FEW, MANY = 6, (48, 384)  # draws of neighbours
LOGSUM = (
    8.0  # kernels keep one number a row instead of all weights: half an ULP of scores of 16 is 8 ULP of each weight
)
ULPS = {"float16": 8 * 2.0**-10, "float32": 8 * 2.0**-23, "float64": 1e-12}


@dataclass
class Case:
    """One configuration: what it is, how it is made, what goes in (floats receive gradients, unless named in `constant`)."""

    text: str
    make: Callable[[Any], Any]
    arrays: Sequence[np.ndarray]
    constant: frozenset[int] = frozenset()
    train: bool = True
    twice: bool = False  # run two times, for state that moves
    slack: float = 1.0  # in float32, with its reason
    tiled: float = 1.0  # of devices whose kernels hold a tile of it: LOGSUM where weights are exp(x - logsumexp)


@dataclass(frozen=True)
class Arrangement:
    """How an array lies in memory: what is uploaded, the view of it that is the array, and its part of what that receives."""

    base: Callable[[np.ndarray], np.ndarray]
    view: Callable[[Any], Any]
    back: Callable[[np.ndarray], np.ndarray]


def _with_gaps(a: np.ndarray) -> np.ndarray:
    """Every second number along the last axis, what lies between is no number and no index."""
    wide = np.full((*a.shape[:-1], 2 * a.shape[-1]), np.nan if a.dtype.kind == "f" else 99, a.dtype)
    wide[..., ::2] = a
    return wide


def _without_gaps(g: np.ndarray) -> np.ndarray:
    assert not g[..., 1::2].any(), "a gradient arrived between the elements"
    return g[..., ::2]


ARRANGEMENTS = (
    Arrangement(lambda a: a, lambda x: x, lambda g: g),
    Arrangement(lambda a: a.T, lambda x: x.permute(*reversed(range(x.ndim))), lambda g: g.T),
    Arrangement(_with_gaps, lambda x: x[..., ::2], _without_gaps),
    Arrangement(lambda a: a[..., ::-1], lambda x: x[..., ::-1], lambda g: g[..., ::-1]),
)
DENSE = ARRANGEMENTS[0]
Family = Callable[[np.random.Generator], Case]
Arrays = dict[str, np.ndarray]
Drawn = Callable[[int], Arrays]


@dataclass
class Verdict:
    """How near configurations came to what is allowed, and to the ULP alone; how many needed the evidence."""

    worst: float = 0.0
    plain: float = 0.0
    lossy: int = 0

    def __or__(self, other: Verdict) -> Verdict:
        return Verdict(max(self.worst, other.worst), max(self.plain, other.plain), self.lossy + other.lossy)


class Neighbours:
    """What the truth moves by, and twice what PyTorch is off by, at most, over draws of a configuration's neighbours.

    `truth(k)`, `theirs(k)` and `ours(k)` give all arrays at the k-th, named as `here`; no more are drawn than are asked for.
    """

    def __init__(self, here: Arrays, truth: Drawn, theirs: Drawn, ours: Drawn) -> None:
        self._here, self._truth, self._theirs, self._ours = here, truth, theirs, ours
        self._far = {name: np.zeros(a.shape) for name, a in here.items()}
        self._seen: list[tuple[Arrays, Arrays]] = []
        self._mine: list[Arrays] = []

    def most(self, name: str, draws: int) -> np.ndarray:
        """For one of the arrays, over so many draws."""
        while (k := len(self._seen)) < draws:
            there, off = self._truth(k), self._theirs(k)
            self._seen.append((there, off))
            with np.errstate(invalid="ignore"):  # infinities stay where they are
                for each, far in self._far.items():
                    moved, twice = abs(there[each] - self._here[each]), 2 * abs(off[each] - there[each])
                    self._far[each] = np.fmax(far, np.fmax(moved, twice))
        return self._far[name]

    def squares(self, name: str) -> tuple[float, float, float]:
        """Root mean squares of what the truth moves by, and of what PyTorch's and ours are off by, at the worst element."""
        self.most(name, MANY[0])
        seen = self._seen[: MANY[0]]
        while (k := len(self._mine)) < len(seen):
            self._mine.append(self._ours(k))
        pairs = [
            (self._here[name], there[name], off[name], mine[name])
            for (there, off), mine in zip(seen, self._mine, strict=True)
        ]
        with np.errstate(invalid="ignore"):
            errors = [
                [_largest(there - here), _largest(off - there), _largest(mine - there)]
                for here, there, off, mine in pairs
            ]
        moved, theirs, ours = np.sqrt(np.mean(np.square(errors), axis=0))
        return float(moved), float(theirs), float(ours)


def _largest(differences: np.ndarray) -> float:
    """Magnitude; what is no number is compared elsewhere."""
    return float(np.nan_to_num(np.abs(differences), nan=0.0, posinf=0.0).max(initial=0.0))


class Judge:
    """Compares named arrays of one configuration: AssertionError for the first that is not as PyTorch has it."""

    def __init__(self, where: str, dtype: str) -> None:
        self.where, self.dtype, self._worst, self._plain = where, dtype, 0.0, 0.0

    @property
    def verdict(self) -> Verdict:
        """On what was compared so far."""
        return Verdict(self._worst, self._plain, int(self._plain > 1))

    def __call__(
        self,
        name: str,
        got: np.ndarray,
        expected: np.ndarray,
        theirs: np.ndarray | None = None,
        *,
        slack: float = 1.0,
        floor: float = FLOOR,
        evidence: Neighbours | None = None,
    ) -> None:
        """`got` within the dtype's ULP of the scale of `expected`, times `slack`, twice the error of `theirs`, or `evidence`."""
        where = self.where
        assert got.shape == expected.shape, f"{where}: {name} is {got.shape}, PyTorch's {expected.shape}"
        if got.size == 0:
            return
        got, expected = got.astype(float), expected.astype(float)
        finite = np.isfinite(expected)
        if not finite.all():
            same = np.array_equal(got[~finite], expected[~finite], equal_nan=True)
            assert same, f"{where}: {name} is {got}, PyTorch's {expected}"
            if not finite.any():
                return
        expected = expected[finite]
        scale = max(float(np.abs(expected).max()), floor)
        bound = ULPS[self.dtype] * scale
        room = bound * slack
        if theirs is not None:
            room = max(room, 2 * float(np.abs(theirs.astype(float)[finite] - expected).max()))
        error = float(np.abs(got[finite] - expected).max())  # NaN where only ours is
        if not error <= room and evidence is not None:
            room = max(room, float(evidence.most(name, FEW)[finite].max()))
            for draws in MANY:
                if not error <= room:
                    room = max(room, float(evidence.most(name, draws)[finite].max()))
                    moved, peers, mine = evidence.squares(name)
                    fair = max(bound * slack, 2 * peers, moved)
                    assert mine <= fair, f"{where}: {name} is off by {mine:.3g} in the mean, PyTorch's by {peers:.3g}"
        assert error <= room, f"{where}: {name} is off by {error:.3g}, {error / room:.3g} of what is allowed"
        self._worst, self._plain = max(self._worst, error / room), max(self._plain, error / bound)


def drawn(family: Family, number: int) -> tuple[Case, np.random.Generator]:
    """Configuration `number` of a family, the same in each run, and the numbers that follow."""
    rng = np.random.default_rng([zlib.crc32(family.__name__.encode()), number])
    return family(rng), rng


def check(family: Family, number: int, dtype: str, device: str = "cpu") -> Verdict:
    """AssertionError, naming the configuration, unless outputs, gradients and state agree."""
    case, _ = drawn(family, number)
    arrays = [a.astype(dtype) if a.dtype.kind == "f" else a for a in case.arrays]
    seed = np.random.default_rng([zlib.crc32(family.__name__.encode()), number, 1])
    made = case.make(THEIRS)
    weights = {name: seed.uniform(-0.8, 0.8, shape).astype(dtype) for name, shape in _floats(made).items()}
    covector = int(seed.integers(2**31))
    places = np.random.default_rng([zlib.crc32(family.__name__.encode()), number, 2])
    lie = [ARRANGEMENTS[places.integers(len(ARRANGEMENTS)) if a.ndim else 0] for a in arrays]
    if device != "cpu":  # where each layout is a kernel to compile; the conformance suite has all of them there
        lie = [DENSE] * len(arrays)
    shared = bool(places.random() < 0.1)

    def ran(library: Any, kind: str, made: Any = None, device: str = "cpu", beside: int | None = None) -> Any:
        """What a library gives in a dtype; with `beside`, at the neighbour of that number."""
        ours = library is OURS
        move = partial(near, np.random.default_rng([covector, beside]), dtype) if beside is not None else lambda a: a
        inputs, state = [move(a) for a in arrays], {name: move(weight) for name, weight in weights.items()}
        draw = np.random.default_rng(covector)
        made = case.make(library) if made is None else made
        return run(
            case,
            made,
            library,
            inputs,
            kind,
            lambda shape: move(draw.uniform(-1, 1, shape).astype(dtype)),
            state,
            device,
            lie if ours else [DENSE] * len(arrays),
            shared,
        )

    truth = ran(THEIRS, "float64", made)
    theirs = ran(THEIRS, dtype) if dtype != "float64" else truth
    ours = ran(OURS, dtype, device=device)

    wide = lambda k: ran(THEIRS, "float64", beside=k)
    evidence = Neighbours(
        truth,
        wide,
        wide if dtype == "float64" else lambda k: ran(THEIRS, dtype, beside=k),
        lambda k: ran(OURS, dtype, device=device, beside=k),
    )
    judge = Judge(f"{family.__name__} {number} {dtype} on {device}: {case.text}", dtype)
    assert ours.keys() == truth.keys(), f"{judge.where}: {sorted(ours)} and {sorted(truth)}"
    slack = 1.0 if dtype == "float64" else case.slack if device == "cpu" else case.slack * case.tiled
    for name, expected in truth.items():
        judge(name, ours[name], expected, theirs[name], slack=slack, evidence=evidence)
    return judge.verdict


def near(rng: np.random.Generator, dtype: str, array: np.ndarray) -> np.ndarray:
    """Moved by the dtype's ULP; labels are not, nor numbers on a grid, which meet ties and kinks on purpose."""
    if array.dtype.kind != "f" or np.array_equal(array * 16, np.round(array * 16), equal_nan=True):
        return array
    return (array * (1 + ULPS[dtype] * rng.uniform(-1, 1, array.shape))).astype(dtype)


def _floats(made: Any) -> dict[str, tuple[int, ...]]:
    """Shapes of the floating state of one of PyTorch's modules; none of a function."""
    state = made.state_dict() if isinstance(made, torch.nn.Module) else {}
    return {name: tuple(value.shape) for name, value in state.items() if value.is_floating_point()}


def run(
    case: Case,
    made: Any,
    library: Any,
    arrays: Sequence[np.ndarray],
    dtype: str,
    covector: Callable[[tuple[int, ...]], np.ndarray],
    weights: dict[str, np.ndarray],
    device: str,
    lie: Sequence[Arrangement],
    shared: bool,
) -> dict[str, np.ndarray]:
    """Load the weights, run forward and backward: outputs, gradients and state by name.

    Inputs lie in memory as `lie` says; with `shared` all elements of an output receive one number, which no array holds.
    """
    ours = library is OURS
    where = {"device": device} if ours else {}
    module = made if hasattr(made, "state_dict") else None
    if module is not None:
        module.to(getattr(vtl if ours else torch, dtype))
        module.train(case.train)
        given = {name: _state(library, name, weight, dtype) for name, weight in weights.items()}
        module.load_state_dict({**module.state_dict(), **given})
        if ours:
            module.to(device)
    found: dict[str, np.ndarray] = {}
    for turn in range(2 if case.twice else 1):
        inputs = []
        for i, a in enumerate(arrays):
            base = np.ascontiguousarray(lie[i].base(a.astype(dtype) if a.dtype.kind == "f" else a))
            tensor = library.tensor(base, **where)
            if a.dtype.kind == "f" and i not in case.constant:
                tensor.requires_grad_(True)
            inputs.append(tensor)
        outputs = list(_flat(made(*(each.view(x) for each, x in zip(lie, inputs, strict=True)))))
        total: Any = None
        for k, y in enumerate(outputs):
            found[f"output {k} of turn {turn}"] = _host(y)
            if y.requires_grad:
                along = library.tensor(covector(() if shared else tuple(y.shape)).astype(dtype), **where)
                part = y.sum() * along if shared else (y * along).sum()
                total = part if total is None else total + part
        if total is not None:
            total.backward()
        for i, x in enumerate(inputs):
            if x.requires_grad:
                found[f"gradient of input {i}, turn {turn}"] = lie[i].back(_gradient(x))
    if module is not None:
        found |= {f"gradient of {name}": _gradient(p) for name, p in module.named_parameters()}
        found |= {f"state {name}": _host(v) for name, v in module.state_dict().items()}
    return found


def _gradient(tensor: Any) -> np.ndarray:
    return np.zeros(tuple(tensor.shape)) if tensor.grad is None else _host(tensor.grad)


def _state(library: Any, name: str, array: np.ndarray, dtype: str) -> Any:
    if name.endswith("running_var"):
        array = np.abs(array) + 0.25
    return library.tensor(np.ascontiguousarray(array.astype(dtype)))


def _flat(outputs: Any) -> Any:
    if isinstance(outputs, tuple | list):
        for part in outputs:
            yield from _flat(part)
    elif outputs is not None:
        yield outputs


def _host(tensor: Any) -> np.ndarray:
    return np.array(tensor.detach().numpy() if isinstance(tensor, torch.Tensor) else tensor.numpy())
