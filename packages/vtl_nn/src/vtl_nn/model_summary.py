"""A model as a table: each layer, what comes out of it, and how many parameters it has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import vtl_core as vtl
from vtl_core.arguments import explain
from vtl_nn.module import Module


def summary(model: Module, input_shape: Sequence[int], dtype: Any = None) -> str:
    """Return the table for inputs of `input_shape`, the batch left out: print(nn.summary(model, (3, 32, 32))).

    A row is a layer, or a module that holds parameters beside its parts. A batch of no sample goes through the model, in
    eval mode: nothing is computed, drawn or changed. Its dtype is that of the parameters; a model of tokens takes integers:
    nn.summary(model, (7,), dtype=vtl.int64).
    """
    rows: list[tuple[str, str, str]] = []
    named = [(name or "(model)", m) for name, m in model.named_modules() if not any(m.children()) or _of_its_own(m)]
    first = next(iter(model.parameters()), None)
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    handles = [module.register_forward_hook(_noting(name, rows)) for name, module in named]
    try:
        with vtl.no_grad():
            kind, device = (None, None) if first is None else (first.dtype, first.device)
            model(vtl.zeros((0, *input_shape), dtype=kind if dtype is None else dtype, device=device))
    finally:
        for handle in handles:
            handle.remove()
        for module, mode in modes:
            module.training = mode
    total = sum(prod(p.shape) for p in model.parameters())
    trained = sum(prod(p.shape) for p in model.parameters() if p.requires_grad)
    header = ("layer", "output", "parameters")
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(3)]
    lines = [f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c:>{widths[2]}}" for a, b, c in (header, *rows)]
    return "\n".join(
        [lines[0], "-" * len(lines[0]), *lines[1:], "-" * len(lines[0]), f"{total:,} parameters, {trained:,} trained"]
    )


def _of_its_own(module: Module) -> int:
    """How many parameters it holds that no part of it does."""
    below = {id(p) for child in module.children() for p in child.parameters()}
    return sum(prod(p.shape) for p in module.parameters() if id(p) not in below)


def _noting(name: str, rows: list[tuple[str, str, str]]) -> Callable[..., None]:
    """A hook that writes a module's row."""

    def note(module: Module, args: tuple[Any, ...], output: Any) -> None:
        first = output[0] if isinstance(output, tuple) and output else output  # of a recurrent layer or attention
        shape = tuple(first.shape[1:]) if isinstance(first, vtl.Tensor) else "?"
        rows.append((f"{name}: {type(module).__name__}", str(shape), f"{_of_its_own(module):,}"))

    return note


explain(globals())
