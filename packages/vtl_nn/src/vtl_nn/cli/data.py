"""The data sets that commands know: how each is made, and the numbers that normalize it."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import vtl_data as data
from vtl_nn import settings
from vtl_nn.errors import TrainingError

SHAPES_TRAIN, SHAPES_TEST = 6_000, 2_000
SHAPES_MEAN, SHAPES_STD = (0.49, 0.49, 0.49), (0.24, 0.24, 0.24)  # of its training images, in 0 .. 1


def make(args: argparse.Namespace, *, train: bool) -> Any:
    """Return the training or test part of the data set that was asked for, normalized channel by channel.

    Errors:  DataError if it is missing or damaged; TrainingError if --subset leaves nothing or asks for more than there is
    """
    if args.subset == 0:
        raise TrainingError("--subset 0: the data set is empty; give at least 1")
    if args.dataset == "shapes":
        whole = SHAPES_TRAIN if train else SHAPES_TEST
        count = whole if args.subset is None else min(args.subset, whole) if not train else args.subset
        return data.Shapes(count, train=train, seed=0, transform=data.Normalize(SHAPES_MEAN, SHAPES_STD))
    kind = data.CIFAR10 if args.dataset == "cifar10" else data.CIFAR100
    try:
        made = kind(
            args.data or settings.data_folder(),
            train,
            transform=data.Normalize(kind.mean, kind.std),
            progress=_shown(args.dataset) if not (args.quiet or args.json) else None,
        )
    except data.DataError as error:  # whose last remedy is one for programs
        raise data.DataError(str(error).replace("train on vtl_data.Shapes", f"vtl {args.command} shapes")) from error
    if args.subset is None or (not train and args.subset >= len(made)):
        return made
    if args.subset > len(made):
        raise TrainingError(
            f"--subset {args.subset}: {args.dataset} has {len(made)} training images; give fewer, or leave it out"
        )
    return data.Subset(made, range(args.subset))


def class_names(dataset: Any) -> tuple[str, ...]:
    """Return the names of the classes, in the order of their labels."""
    return tuple(getattr(dataset, "dataset", dataset).classes)


def _shown(name: str) -> Callable[[int, int | None], None]:
    """A download's progress: one line on stderr, rewritten, and nothing where stderr is no terminal."""
    last = [0.0]

    def show(done: int, total: int | None) -> None:
        if sys.stderr.isatty() and (done == total or time.monotonic() - last[0] > 0.2):
            last[0] = time.monotonic()
            share = f" of {total / 1e6:.0f}" if total else ""
            print(
                f"\r{name}: {done / 1e6:.0f}{share} MB", end="\n" if done == total else "", file=sys.stderr, flush=True
            )

    return show
