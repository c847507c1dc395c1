"""vtl train: data, model, loop, and what is left behind: a result, weights, a curve, checkpoints."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import vtl_core as vtl
import vtl_data
from vtl_nn import plotting
from vtl_nn.atomic import check_writable
from vtl_nn.checkpoint import Checkpointer
from vtl_nn.cli import data, models
from vtl_nn.cli.device import choose, described
from vtl_nn.data import PinnedPrefetcher
from vtl_nn.errors import StateError, TrainingError
from vtl_nn.module import Module
from vtl_nn.optim import Adam
from vtl_nn.serialization import save
from vtl_nn.training import Callback, Epoch, History, Training, evaluate, fit

Say = Callable[[str], None]
EPOCHS = {"shapes": 4, "cifar10": 3, "cifar100": 3}
ALIKE = ("dataset", "model", "dtype", "batch_size", "lr", "seed", "subset")  # what a resumed run must share


def run(args: argparse.Namespace) -> None:
    """Train, and print how it went."""
    _check_outputs(args)
    context = choose(args.device)
    with context.attach_session() as session:
        _train(args, context.device, described(session))


def _train(args: argparse.Namespace, device: str, where: str) -> None:
    epochs = args.epochs or EPOCHS[args.dataset]
    say = _silent if args.json or args.quiet else _shown
    train, test = data.make(args, train=True), data.make(args, train=False)
    vtl.manual_seed(args.seed)
    classes = data.class_names(train)
    model = models.make(args.model, args.dataset, len(classes), train).to(device, dtype=args.dtype)
    optimizer = Adam(model.parameters(), lr=args.lr)
    loader = vtl_data.DataLoader(train, batch_size=args.batch_size, shuffle=True, seed=args.seed)
    test_loader = vtl_data.DataLoader(test, batch_size=max(args.batch_size, 256))
    history, checkpointer = History(), None
    if args.checkpoint:
        checkpointer = Checkpointer(args.checkpoint)
        if args.resume:
            history = _resume(args, checkpointer, model, optimizer, loader)
            say(f"resumed after epoch {len(history.epochs)} from {args.checkpoint}")
    size = sum(prod(p.shape) for p in model.parameters())
    say(
        f"{args.dataset}: {len(train):,} training and {len(test):,} test images; {args.model} of {size:,} parameters on {where}"
    )
    coming, tests = (PinnedPrefetcher(part, device, dtype=args.dtype) for part in (loader, test_loader))
    fit(
        model,
        coming,
        optimizer=optimizer,
        epochs=epochs,
        validation=tests,
        callbacks=[_Report(say), *([_Keep(checkpointer, args)] if checkpointer else [])],
        progress=not (args.json or args.quiet),
        history=history,
    )
    _finish(args, model, history, classes, where, tests, say)


def _shown(text: str) -> None:
    print(text, flush=True)


def _silent(text: str) -> None:
    pass


def _check_outputs(args: argparse.Namespace) -> None:
    """Whatever would fail after training fails now."""
    if args.resume and not args.checkpoint:
        raise TrainingError("--resume: give the folder of the checkpoints, --checkpoint DIR")
    outputs = [(f"--{name}", getattr(args, name)) for name in ("save", "plot", "checkpoint") if getattr(args, name)]
    for place, (option, path) in enumerate(outputs):
        for other, taken in outputs[:place]:
            if os.path.realpath(path) == os.path.realpath(taken):
                raise TrainingError(
                    f"{option}: {path} is {other} too, and one would replace the other; name another place"
                )
    if args.save:
        check_writable(args.save, "--save")
    if args.plot:
        check_writable(args.plot, "--plot")
        plotting.require_matplotlib()
    if args.checkpoint:
        found = Checkpointer(args.checkpoint)
        if args.resume and not found.steps():
            raise TrainingError(
                f"--resume: there is no checkpoint in {args.checkpoint}; leave --resume out to start one"
            )
        if not args.resume and found.steps():
            raise TrainingError(
                f"--checkpoint: {args.checkpoint} holds a run; add --resume to go on with it, or name another folder"
            )
        try:
            found.directory.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise NotADirectoryError(
                f"--checkpoint: {args.checkpoint} cannot be a folder: a file is in its place; name another"
            ) from error
        check_writable(found.directory / "state.json", "--checkpoint")


def _resume(
    args: argparse.Namespace, checkpointer: Checkpointer, model: Module, optimizer: Adam, loader: Any
) -> History:
    extra = checkpointer.peek()
    for name in ALIKE:
        if extra.get("options", {}).get(name) != getattr(args, name):
            option = "DATASET" if name == "dataset" else f"--{name.replace('_', '-')}"
            found = extra.get("options", {}).get(name)
            raise StateError(
                f"--resume: the checkpoint is of {option} {found}, and {getattr(args, name)} is asked for; they must be alike"
            )
    checkpointer.restore_latest(model=model, optimizer=optimizer, loader=loader)
    return History.from_dict(extra.get("history", {}))


class _Report(Callback):
    """A line an epoch."""

    def __init__(self, say: Say) -> None:
        self.say = say

    def on_epoch_end(self, training: Training, epoch: Epoch) -> None:
        """Print it."""
        self.say(
            f"epoch {epoch.epoch}/{training.epochs}  loss {epoch.loss:.4f}  accuracy {epoch.accuracy or 0:.1%}  "
            f"test loss {epoch.validation_loss or 0:.4f}  test accuracy {epoch.validation_accuracy or 0:.1%}  "
            f"{epoch.seconds:.1f} s  {epoch.images_per_s:.0f} img/s"
        )


class _Keep(Callback):
    """A checkpoint an epoch."""

    def __init__(self, checkpointer: Checkpointer, args: argparse.Namespace) -> None:
        self.checkpointer, self.options = checkpointer, {name: getattr(args, name) for name in ALIKE}

    def on_epoch_end(self, training: Training, epoch: Epoch) -> None:
        """Save everything, history included."""
        loader: Any = training.loader
        self.checkpointer.save(
            training.step,
            model=training.model,
            optimizer=training.optimizer,
            loader=loader,
            extra={"options": self.options, "history": training.history.to_dict()},
        )


def _finish(
    args: argparse.Namespace,
    model: Module,
    history: History,
    classes: tuple[str, ...],
    device: str,
    test: Any,
    say: Say,
) -> None:
    last = history.epochs[-1]
    accuracy = (
        last.validation_accuracy if last.validation_accuracy is not None else evaluate(model, test).accuracy or 0.0
    )
    seconds = sum(epoch.seconds for epoch in history.epochs)
    if args.save:
        text = {
            "model": args.model,
            "dataset": args.dataset,
            "classes": json.dumps(classes),
            "test_accuracy": f"{accuracy:.4f}",
        }
        save(model, args.save, metadata=text)
    if args.plot:
        plotting.plot_history(history, args.plot, title=f"{args.model} on {args.dataset}, {device}")
    if args.json:
        outputs = {"weights": args.save, "curve": args.plot, "checkpoints": args.checkpoint}
        epochs = history.to_dict()["epochs"]
        print(json.dumps({"dataset": args.dataset, "model": args.model, "device": device, "test_accuracy": accuracy,
                          "train_seconds": seconds, "epochs": epochs, **outputs}))  # fmt: skip
        return
    print(f"test accuracy {accuracy:.1%} after {seconds:.0f} s of training on {device}")
    for what, path in (("weights", args.save), ("curve", args.plot), ("checkpoints", args.checkpoint)):
        if path:
            say(f"{what}: {path}")
    if args.save:
        named = "" if args.model == "cnn" else f" --model {args.model}"
        where = "" if args.data is None else f" --data {shlex.quote(args.data)}"
        say(f"measure them again: {_command()} eval {args.dataset}{named}{where} --weights {shlex.quote(args.save)}")
    if args.dataset == "shapes":
        say(f"real images: {_command()} train cifar10 --data data --epochs 3   (downloads 170 MB into data/ once)")


def _command() -> str:
    """How this command is called from here: by its path where it lies below, as a session's does."""
    path = Path(sys.argv[0])
    if path.stem != "vtl":
        return "vtl"
    below = os.path.relpath(path.resolve().parent / path.name, Path.cwd())
    if not below.startswith(os.pardir):
        return below
    return "vtl" if shutil.which("vtl") else str(path)
