"""Checkpoints: everything a run needs to go on as if it had never stopped, in folders that appear whole or not at all."""

from __future__ import annotations

import json
import operator
import os
import re
import reprlib
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

import vtl_core as vtl
from vtl_core import ArgumentTypeError, AttributeValueError, Tensor, VslError
from vtl_core.arguments import explain, short
from vtl_nn.atomic import recover, remove_stale, replacing, replacing_folder
from vtl_nn.errors import FileFormatError, StateError
from vtl_nn.module import Module
from vtl_nn.optim import Optimizer
from vtl_nn.serialization import load, save

FORMAT = 1


class Stateful(Protocol):
    """A loader, generator or schedule: plain numbers say where it is."""

    def state_dict(self) -> Any:
        """Say where it is."""

    def load_state_dict(self, state: Any, /) -> Any:
        """Go there."""


@dataclass(frozen=True)
class Checkpoint:
    """What was restored: the step, and what the run kept with it."""

    step: int
    path: Path
    extra: dict[str, Any]


class Checkpointer:
    """Checkpoints in `directory`, a folder step-00000123 each, of which the last `keep` stay.

    A folder holds model.safetensors, optimizer.safetensors and state.json: the optimizer's options, where the loader
    and the random numbers are. After `restore_latest` the run goes on bit for bit on the CPU.
    """

    def __init__(self, directory: str | os.PathLike[str], keep: int = 3) -> None:
        if keep < 1:
            raise AttributeValueError(f"Checkpointer: keep={keep} must be at least 1")
        self.directory, self.keep = Path(directory), keep

    def steps(self) -> list[int]:
        """Return the steps of the checkpoints that are there, the latest last."""
        if not self.directory.is_dir():
            return []
        for aside in self.directory.glob(".step-*.replaced"):
            recover(self.directory / aside.name[1 : -len(".replaced")])
        folders = [path.name for path in self.directory.iterdir() if path.is_dir()]
        return sorted(int(match[1]) for name in folders if (match := re.fullmatch(r"step-(\d+)", name)))

    def save(
        self,
        step: int,
        *,
        model: Module,
        optimizer: Optimizer | None = None,
        loader: Stateful | None = None,
        generator: vtl.Generator | None = None,
        scheduler: Stateful | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> Path:
        """Write a checkpoint and return its folder. `generator` is the default one unless given; `extra` goes to JSON.

        Errors:  OSError if it cannot be written, AttributeValueError for a step that is no count and for what is no JSON;
                 the checkpoints that were there stay as they are
        """
        step = _count(step)
        if not isinstance(model, Module):
            raise ArgumentTypeError(f"Checkpointer.save: model={short(model)} must be a Module")
        self.directory.mkdir(parents=True, exist_ok=True)
        state: dict[str, Any] = {
            "format": FORMAT,
            "step": step,
            "generator": (generator or vtl.default_context().generator).state_dict(),
            "loader": loader.state_dict() if loader is not None else None,
            "scheduler": scheduler.state_dict() if scheduler is not None else None,
            "optimizer": None,
            "extra": dict(extra or {}),
        }
        saved = None if optimizer is None else optimizer.state_dict()
        state["optimizer"] = None if saved is None else saved["param_groups"]
        text = _text(state)
        folder = self.directory / f"step-{step:08d}"
        remove_stale(self.directory, "step-")  # of a run that was killed at a step which may never come again
        with replacing_folder(folder) as temporary:
            save(model, temporary / "model.safetensors")
            if saved is not None:
                slots = {f"{number}.{name}": t for number, each in saved["state"].items() for name, t in each.items()}
                save(slots, temporary / "optimizer.safetensors")
            with replacing(temporary / "state.json") as file:
                file.write(text.encode())
        for old in self.steps()[: -self.keep]:
            if old == step:  # an earlier step than those kept: still what the caller asked for
                continue
            shutil.rmtree(self.directory / f"step-{old:08d}", ignore_errors=True)
        return folder

    def peek(self) -> dict[str, Any]:
        """Return the `extra` of the latest checkpoint, {} if there is none; nothing is restored."""
        steps = self.steps()
        return dict(_read_state(self.directory / f"step-{steps[-1]:08d}")["extra"]) if steps else {}

    def restore_latest(
        self,
        *,
        model: Module,
        optimizer: Optimizer | None = None,
        loader: Stateful | None = None,
        generator: vtl.Generator | None = None,
        scheduler: Stateful | None = None,
    ) -> Checkpoint | None:
        """Go on from the latest checkpoint: None if there is none.

        Errors:  FileFormatError for a damaged one; StateError if it is of another model or lacks what is asked for;
                 after either everything is as it was
        """
        steps = self.steps()
        if not steps:
            return None
        folder = self.directory / f"step-{steps[-1]:08d}"
        state = _read_state(folder)
        weights = _load(folder, "model.safetensors")
        if optimizer is not None:
            _require(state, "optimizer", folder)
            slots = _optimizer_state(folder, state["optimizer"])
            optimizer.check_state_dict(slots)
        for name, given in (("loader", loader), ("scheduler", scheduler)):
            if given is not None:
                _require(state, name, folder)
        random = generator or vtl.default_context().generator
        small = [(part, part.state_dict()) for part in (random, loader, scheduler) if part is not None]
        try:  # first what may refuse, such as a loader of another batch size; the model refuses before it changes
            _restore_generator(random, state["generator"], folder)
            if loader is not None:
                _restore("loader", loader, state, folder)
            if scheduler is not None:
                _restore("scheduler", scheduler, state, folder)
            model.load_state_dict(weights)
        except BaseException:
            for part, before in small:
                part.load_state_dict(before)
            raise
        if optimizer is not None:
            optimizer.load_state_dict(slots)
        if scheduler is not None:
            scheduler.load_state_dict(state["scheduler"])  # again after the optimizer, whose lr it sets
        return Checkpoint(state["step"], folder, state["extra"])


def _count(step: Any) -> int:
    try:
        number = operator.index(step)
    except TypeError:
        number = -1
    if number < 0 or isinstance(step, bool):
        raise AttributeValueError(f"Checkpointer.save: step={step!r} must be an integer of at least 0")
    return number


def _text(state: Mapping[str, Any]) -> str:
    """JSON; numbers of NumPy and tensors of one number, such as a learning rate, as numbers."""

    def plain(value: Any) -> Any:
        if isinstance(value, np.generic | Tensor) and not value.shape:
            return value.item()
        raise TypeError(f"{reprlib.repr(value)} of type {type(value).__name__}")

    try:
        return json.dumps(state, indent=1, default=plain)
    except (TypeError, ValueError) as error:
        raise AttributeValueError(
            f"Checkpointer.save: state.json cannot hold {error}; give numbers, text, lists and dicts in extra= and as options"
        ) from None


def _restore(name: str, part: Stateful, state: Mapping[str, Any], folder: Path) -> None:
    """A loader or schedule; what Python or another package says of its state is said of the file."""
    try:
        part.load_state_dict(state[name])
    except VslError:
        raise
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise FileFormatError(
            f"{folder / 'state.json'}: {name}: {error}; give the {name} that was saved, or remove {folder}"
        ) from error


def _restore_generator(generator: Any, state: Mapping[str, Any], folder: Path) -> None:
    try:
        generator.load_state_dict(state)
    except (AttributeValueError, TypeError) as error:
        raise FileFormatError(
            f"{folder / 'state.json'}: {error}; remove {folder} to go on from the checkpoint before"
        ) from error


def _load(folder: Path, name: str) -> dict[str, Tensor]:
    """The tensors of one of a checkpoint's files; an error says what to do about the checkpoint."""
    try:
        return load(folder / name)
    except (FileFormatError, OSError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise FileFormatError(
            f"{folder / name}: cannot be read ({why}); remove {folder} to go on from the checkpoint before"
        ) from error


def _read_state(folder: Path) -> dict[str, Any]:
    path = folder / "state.json"
    try:
        state = json.loads(path.read_bytes())
    except (ValueError, RecursionError, OSError) as error:
        raise FileFormatError(
            f"{path}: cannot be read ({error}); remove {folder} to go on from the checkpoint before"
        ) from error
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        found = state.get("format") if isinstance(state, dict) else type(state).__name__
        raise FileFormatError(
            f"{path}: is of format {found!r}, and this vtl-nn reads {FORMAT}; resume with the version that wrote it"
        )
    if missing := {"step", "generator", "loader", "scheduler", "optimizer", "extra"} - state.keys():
        raise FileFormatError(f"{path}: lacks {sorted(missing)}; remove {folder} to go on from the checkpoint before")
    groups = state["optimizer"] or []
    kinds = [("step", int), ("generator", dict), ("extra", dict), ("optimizer", list | None)]
    wrong = [name for name, kind in kinds if not isinstance(state[name], kind)]
    if not wrong and state["step"] != int(folder.name.removeprefix("step-")):
        wrong = ["step"]
    if not wrong and not all(isinstance(group, dict) and isinstance(group.get("params"), list) for group in groups):
        wrong = ["optimizer"]
    if wrong:
        raise FileFormatError(
            f"{path}: {wrong[0]} is not what was saved; remove {folder} to go on from the checkpoint before"
        )
    return state


def _require(state: Mapping[str, Any], name: str, folder: Path) -> None:
    if state[name] is None:
        raise StateError(
            f"{folder}: was saved without {name}=, so it cannot be restored; leave {name}= out, or save with it"
        )


def _optimizer_state(folder: Path, groups: list[dict[str, Any]]) -> dict[str, Any]:
    state: dict[int, dict[str, Any]] = {}
    for name, tensor in _load(folder, "optimizer.safetensors").items():
        number, _, slot = name.partition(".")
        if not number.isdecimal() or not slot:
            raise FileFormatError(f"{folder / 'optimizer.safetensors'}: {name!r} is no slot of an optimizer")
        state.setdefault(int(number), {})[slot] = tensor
    return {"state": state, "param_groups": groups}


explain(globals(), whole=True)
