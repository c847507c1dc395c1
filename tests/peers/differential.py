"""Differential fuzz: one configuration, built with our names and with PyTorch's, which are the same, on the same numbers.

A family draws a `Case` from random numbers: `make` is called with each library and gives a function of tensors or a
module. PyTorch runs in float64 and is the truth; it also runs in the dtype under test, and where its own error there is
larger than ours may be, twice that is allowed: a configuration that loses digits loses them in any order of sums.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
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
FLOOR = 2.0**-4  # of a scale: numbers here are about 1, and what cancels to nothing is rounding in either library
ULPS = {"float32": 8 * 2.0**-23, "float64": 1e-12}


@dataclass
class Case:
    """One configuration: what it is, how it is made, what goes in (floats receive gradients, unless named in `constant`)."""

    text: str
    make: Callable[[Any], Any]
    arrays: Sequence[np.ndarray]
    constant: frozenset[int] = frozenset()
    train: bool = True
    twice: bool = False  # run two times, for state that moves
    slack: float = 1.0  # for float32, where its docstring says why
    options: dict[str, Any] = field(default_factory=dict)


Family = Callable[[np.random.Generator], Case]


def drawn(family: Family, number: int) -> tuple[Case, np.random.Generator]:
    """Configuration `number` of a family, the same in each run, and the numbers that follow."""
    rng = np.random.default_rng([zlib.crc32(family.__name__.encode()), number])
    return family(rng), rng


def check(family: Family, number: int, dtype: str, device: str = "cpu") -> None:
    """AssertionError, naming the configuration, unless outputs, gradients and state agree."""
    case, rng = drawn(family, number)
    arrays = [a.astype(dtype) if a.dtype.kind == "f" else a for a in case.arrays]
    truth = run(case, THEIRS, arrays, "float64", np.random.default_rng(rng.integers(2**31)))
    seed = np.random.default_rng([zlib.crc32(family.__name__.encode()), number, 1])
    weights = {name: seed.uniform(-0.8, 0.8, shape).astype(dtype) for name, shape in truth.shapes.items()}
    covector = int(seed.integers(2**31))
    truth = run(case, THEIRS, arrays, "float64", np.random.default_rng(covector), weights, dtype)
    theirs = (
        run(case, THEIRS, arrays, dtype, np.random.default_rng(covector), weights, dtype)
        if dtype != "float64"
        else truth
    )
    ours = run(case, OURS, arrays, dtype, np.random.default_rng(covector), weights, dtype, device)
    where = f"{family.__name__} {number} {dtype} on {device}: {case.text}"
    assert ours.found.keys() == truth.found.keys(), f"{where}: {sorted(ours.found)} and {sorted(truth.found)}"
    for name, expected in truth.found.items():
        got = ours.found[name]
        assert got.shape == expected.shape, f"{where}: {name} is {got.shape}, PyTorch's {expected.shape}"
        assert np.array_equal(np.isnan(got), np.isnan(expected)), f"{where}: {name} is {got}, PyTorch's {expected}"
        finite = np.isfinite(expected)
        assert np.array_equal(got[~finite & ~np.isnan(got)], expected[~finite & ~np.isnan(expected)]), (
            f"{where}: {name}"
        )
        if not finite.any():
            continue
        scale = max(float(np.max(np.abs(expected[finite]))), FLOOR)
        room = ULPS[dtype] * scale * (case.slack if dtype == "float32" else 1)
        room = max(room, 2 * float(np.max(np.abs(theirs.found[name].astype(float) - expected)[finite])))
        worst = float(np.max(np.abs(got.astype(float) - expected)[finite]))
        assert worst <= room, (
            f"{where}: {name} is off by {worst:.3g}, {worst / ULPS[dtype] / scale:.3g} of what is allowed"
        )


@dataclass
class Run:
    """What one library gave: named arrays, and the shapes of the module's floating state."""

    found: dict[str, np.ndarray]
    shapes: dict[str, tuple[int, ...]]


def run(
    case: Case,
    library: Any,
    arrays: Sequence[np.ndarray],
    dtype: str,
    rng: np.random.Generator,
    weights: dict[str, np.ndarray] | None = None,
    covector_dtype: str = "float64",
    device: str = "cpu",
) -> Run:
    """Build, load the weights, run forward and backward, collect."""
    ours = library is OURS
    made = case.make(library)
    shapes: dict[str, tuple[int, ...]] = {}
    module = made if hasattr(made, "state_dict") else None
    if module is not None:
        module.to(getattr(vtl if ours else torch, dtype))
        module.train(case.train)
        state = module.state_dict()
        shapes = {name: tuple(v.shape) for name, v in state.items() if "float" in str(v.dtype)}
        if weights is not None:
            module.load_state_dict({**state, **{n: _state(library, n, w, dtype) for n, w in weights.items()}})
        if ours:
            module.to(device)
    found: dict[str, np.ndarray] = {}
    for turn in range(2 if case.twice else 1):
        inputs = []
        for i, a in enumerate(arrays):
            tensor = library.tensor(
                a.astype(dtype) if a.dtype.kind == "f" else a, **({"device": device} if ours else {})
            )
            if a.dtype.kind == "f" and i not in case.constant:
                tensor.requires_grad_(True)
            inputs.append(tensor)
        outputs = made(*inputs)
        outputs = list(_flat(outputs))
        total: Any = None
        for k, y in enumerate(outputs):
            found[f"output {k} of turn {turn}"] = _host(y)
            if y.requires_grad:
                covector = rng.uniform(-1, 1, tuple(y.shape)).astype(covector_dtype).astype(dtype)
                part = (y * library.tensor(covector, **({"device": device} if ours else {}))).sum()
                total = part if total is None else total + part
        if total is not None:
            total.backward()
        for i, x in enumerate(inputs):
            if x.requires_grad:
                found[f"gradient of input {i}, turn {turn}"] = (
                    np.zeros(tuple(x.shape)) if x.grad is None else _host(x.grad)
                )
    if module is not None:
        for name, p in module.named_parameters():
            found[f"gradient of {name}"] = np.zeros(tuple(p.shape)) if p.grad is None else _host(p.grad)
        found |= {f"state {name}": _host(v) for name, v in module.state_dict().items()}
    return Run(found, shapes)


def _state(library: Any, name: str, array: np.ndarray, dtype: str) -> Any:
    if name.endswith(("running_var",)):
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
