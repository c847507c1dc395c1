"""Weights as safetensors files: saved whole or not at all, loaded without running anything, on any machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

import vtl_core as vtl
from vtl_core import DTypeError, Tensor
from vtl_core.arguments import explain, short
from vtl_nn import weights_file
from vtl_nn.atomic import replacing
from vtl_nn.errors import StateError
from vtl_nn.module import Module, State

Path = str | os.PathLike[str]


def save(model: Module | Mapping[str, Any], path: Path, *, metadata: Mapping[str, str] | None = None) -> None:
    """Write a model's state, or a dict of tensors, to `path`: all of it or, if anything stops it, nothing.

    Tensors are written in C order from whatever layout and device they have. `metadata` is text kept with them.

    Errors:  OSError if the file cannot be written; FileFormatError for a name that the format keeps for itself
    """
    state = model.state_dict() if isinstance(model, Module) else model
    arrays = {name: _storable(name, value) for name, value in state.items()}
    with replacing(path) as file:
        weights_file.write(file, arrays, metadata or {})


def load(path: Path, *, device: str = "cpu") -> dict[str, Tensor]:
    """Return the tensors of a file, by name; files do not say where tensors were, so they come to `device`.

    Errors:  FileFormatError, one line, for a file that is truncated, tampered with or no safetensors file
    """
    arrays, _ = weights_file.read(path)
    return {name: restored(dtype, array, device) for name, (dtype, array) in arrays.items()}


def load_metadata(path: Path) -> dict[str, str]:
    """Return the text that was saved with the tensors."""
    return weights_file.read(path)[1]


def load_into(model: Module, path: Path, strict: bool = True) -> State:
    """Copy the tensors of a file into a model, where its parameters live.

    Errors:  as `load`; StateError, before anything is changed, listing every name that is missing, unexpected, of another
             shape, or an integer in the file and floating in the model, as quantized weights are, or the other way
    """
    state = load(path)
    ours = model.state_dict()
    wrong = [
        f"{name} is {value.dtype.name}, here {ours[name].dtype.name}"
        for name, value in state.items()
        if name in ours and value.dtype.is_floating != ours[name].dtype.is_floating
    ]
    if wrong:
        raise StateError(
            f"load_into: {os.fspath(path)} holds another kind of number: {'; '.join(wrong)}; integers that stand for others need "
            "their scale: load the file, make floats of them, and give them to load_state_dict"
        )
    return model.load_state_dict(state, strict=strict)


def _storable(name: str, value: Any) -> tuple[str, weights_file.Array]:
    try:
        return stored(value)
    except DTypeError as error:
        raise DTypeError(
            f"save: {name!r} is {short(value)}, no tensor; what optimizers, schedules and loaders hold goes into a nn.Checkpointer"
        ) from error


def stored(value: Any) -> tuple[str, weights_file.Array]:
    """A tensor or array as the file keeps it: its dtype's name, and its elements on the host."""
    if not isinstance(value, Tensor):
        value = vtl.asarray(value)
    array = value.detach().numpy()
    if value.dtype is vtl.bfloat16:  # comes to the host as float32, exactly
        bits = np.ascontiguousarray(array, np.float32).view(np.uint32) >> np.uint32(16)
        return "bfloat16", bits.astype(np.uint16).reshape(array.shape)
    return value.dtype.name, array


def restored(dtype: str, array: weights_file.Array, device: str) -> Tensor:
    """The tensor that `stored` stored."""
    if dtype == "bfloat16":
        wide = (array.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return vtl.tensor(wide, dtype=vtl.bfloat16, device=device)
    return vtl.tensor(array, device=device)


explain(globals())
