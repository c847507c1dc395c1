"""vtl eval: the accuracy of saved weights."""

from __future__ import annotations

import argparse
import json
from math import isfinite

import vtl_data
from vtl_nn.cli import data, models
from vtl_nn.cli.device import choose, described
from vtl_nn.data import PinnedPrefetcher
from vtl_nn.errors import StateError, TrainingError
from vtl_nn.serialization import load_into, load_metadata
from vtl_nn.training import evaluate


def run(args: argparse.Namespace) -> None:
    """Load, measure, print."""
    saved = load_metadata(args.weights)
    for name in ("model", "dataset"):
        if saved.get(name, getattr(args, name)) != getattr(args, name):
            raise StateError(
                f"{args.weights}: is of {name} {saved[name]!r}, and {getattr(args, name)!r} is asked for; ask for {saved[name]!r}"
            )
    context = choose(args.device)
    with context.attach_session() as session:
        _evaluate(args, context.device, described(session))


def _evaluate(args: argparse.Namespace, device: str, where: str) -> None:
    test = data.make(args, train=False)
    model = models.make(args.model, args.dataset, len(data.class_names(test))).to(device, dtype=args.dtype)
    load_into(model, args.weights)
    loader = vtl_data.DataLoader(test, batch_size=max(args.batch_size, 256))
    result = evaluate(model, PinnedPrefetcher(loader, device, dtype=args.dtype))
    if not isfinite(result.loss):
        raise TrainingError(
            f"{args.weights}: the loss on the test images is {result.loss}; its training went wrong: train again, with a lower --lr"
        )
    if args.json:
        print(json.dumps({"dataset": args.dataset, "model": args.model, "device": where, "weights": args.weights,
                          "test_accuracy": result.accuracy, "test_loss": result.loss, "images": result.count}))  # fmt: skip
    else:
        print(
            f"test accuracy {result.accuracy or 0:.1%}, loss {result.loss:.4f}, {result.count:,} images of {args.dataset} on {where}"
        )
