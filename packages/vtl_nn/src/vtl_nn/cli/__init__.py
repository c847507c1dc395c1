"""The command `vtl`: train and evaluate models. Failures are one line and an exit code; --debug shows the traceback."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from vtl_nn._version import __version__

DATASETS = ("shapes", "cifar10", "cifar100")
MODELS = ("cnn", "resnet18", "resnet34", "vgg11", "airbench", "lstm", "transformer")  # cli.models has what they are
DTYPES = ("float32", "float64")


class _Parser(argparse.ArgumentParser):
    """argparse, whose complaints are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"vtl: {message}; see {self.prog} --help\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """As argparse's; but what a subcommand does not know it refuses itself, naming its own help."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown and " " in self.prog:  # "vtl train"
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown


def parser() -> argparse.ArgumentParser:
    """Return the command line's grammar."""
    root = _Parser(prog="vtl", description="Train neural networks on the device you have.")
    root.add_argument("--version", action="version", version=f"vtl-nn {__version__}")
    commands = root.add_subparsers(dest="command", required=True, metavar="COMMAND")

    train = commands.add_parser("train", help="train a model on a data set", description="Train a model on a data set.")
    train.add_argument(
        "dataset", choices=DATASETS, metavar="DATASET", help="shapes (drawn, needs no files), cifar10 or cifar100"
    )
    train.add_argument(
        "--epochs", type=_positive, help="passes over the data (default: 4 for shapes, 3 for the others)"
    )
    train.add_argument("--lr", type=_rate, default=1e-3, help="Adam's learning rate (default: 1e-3)")
    train.add_argument("--seed", type=_seed, default=0, help="of weights and order (default: 0)")
    train.add_argument("--save", type=_path, metavar="FILE", help="write the trained weights there, as safetensors")
    train.add_argument("--plot", type=_path, metavar="FILE", help="write the training curve there, as PNG")
    train.add_argument("--checkpoint", type=_path, metavar="DIR", help="keep a checkpoint of the last epochs in DIR")
    train.add_argument("--resume", action="store_true", help="go on from the latest checkpoint in --checkpoint DIR")
    _add_shared(train)

    evaluate = commands.add_parser(
        "eval", help="measure saved weights", description="Measure saved weights on the test images."
    )
    evaluate.add_argument("dataset", choices=DATASETS, metavar="DATASET", help="shapes, cifar10 or cifar100")
    evaluate.add_argument(
        "--weights", type=_path, metavar="FILE", required=True, help="a file that vtl train --save wrote"
    )
    _add_shared(evaluate)
    return root


def _add_shared(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--model",
        choices=MODELS,
        default="cnn",
        help="cnn (two convolutions, two linear layers; default), resnet18, resnet34, vgg11, airbench; "
        "lstm and transformer read text, which no data set here holds",
    )
    command.add_argument(
        "--device",
        metavar="DEVICE",
        help="auto, cpu, cuda, vulkan or opencl, also vulkan:1 (default: as VTL_BACKEND or VTL_USE_* say, else auto)",
    )
    command.add_argument(
        "--data",
        type=_path,
        metavar="DIR",
        help="where the data set lies or is downloaded to (default: $VTL_DATA_DIR, else ~/.cache/vtl/data)",
    )
    command.add_argument(
        "--dtype", choices=DTYPES, default="float32", help="of weights and arithmetic (default: float32)"
    )
    command.add_argument("--batch-size", type=_positive, default=64, metavar="N", help="images a step (default: 64)")
    command.add_argument("--subset", type=_count, metavar="N", help="use the first N images of each part only")
    command.add_argument("--json", action="store_true", help="print one JSON object at the end, and nothing else")
    command.add_argument("--quiet", action="store_true", help="print the result only")
    command.add_argument("--debug", action="store_true", help="show the traceback of a failure")


def _number(text: str, least: int, most: int, rule: str) -> int:
    if not text.isdecimal() or not least <= int(text) <= most:
        raise argparse.ArgumentTypeError(f"{text!r} must be an integer {rule}")
    return int(text)


def _positive(text: str) -> int:
    return _number(text, 1, sys.maxsize, "of at least 1")


def _count(text: str) -> int:
    return _number(text, 0, sys.maxsize, "of at least 0")


def _seed(text: str) -> int:
    return _number(text, 0, 2**32 - 1, "from 0 to 4294967295")


def _path(text: str) -> str:
    if not text.strip() or "\0" in text:  # a shell variable that is not set: nothing would be written, in silence
        raise argparse.ArgumentTypeError(f"{text!r} names no file or folder")
    return text


def _rate(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} must be a number above 0")
    return value


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command: 0 if it did what it was asked, 1 if not, 2 if the command line makes no sense, 141 if nobody reads on."""
    args = parser().parse_args(arguments)
    if args.command == "train":
        from vtl_nn.cli.train import run
    else:
        from vtl_nn.cli.evaluate import run
    with warnings.catch_warnings():
        if not args.debug:
            warnings.simplefilter("default")
            warnings.showwarning = _said_once()
        try:
            if sys.stdout is None:  # a run whose result nobody can read
                raise OSError("standard output is closed; give it a file or a terminal")
            run(args)
            sys.stdout.flush()
        except KeyboardInterrupt:
            print(f"vtl: stopped by the keyboard{_what_is_left(args)}", file=sys.stderr)
            return 130
        except BrokenPipeError:  # `vtl ... | head`: who read has gone, and knows
            _forget_output_that_fails()
            return 141
        except Exception as error:
            _forget_output_that_fails()
            if args.debug:
                raise
            print(f"vtl: {_one_line(error)}", file=sys.stderr)
            return 1
    return 0


def _said_once() -> Callable[..., None]:
    """What shows warnings: each once, without file and line, which say nothing to users of a command."""
    said: set[str] = set()

    def show(message: object, *_: object, **__: object) -> None:
        if str(message) not in said:
            said.add(str(message))
            print(f"vtl: {message}", file=sys.stderr)

    return show


def _what_is_left(args: argparse.Namespace) -> str:
    """What a training that was stopped leaves behind, and how it goes on."""
    if args.command != "train":
        return ""
    if not args.checkpoint:
        return "; nothing was written: --checkpoint DIR keeps each epoch"
    from vtl_nn.checkpoint import Checkpointer

    if Checkpointer(args.checkpoint).steps():
        return f"; {args.checkpoint} has the epochs that are done: add --resume to go on"
    return f"; no epoch is in {args.checkpoint} yet"


def _forget_output_that_fails() -> None:
    """What could not be written is not tried again when Python ends, which would report it a second time."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - it is for the rest of the process


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        text = f"{error.filename}: {error.strerror}"
    known = type(error).__module__.partition(".")[0] in ("vsl_compute", "vtl_core", "vtl_nn", "vtl_data") or isinstance(
        error, OSError
    )
    return text if known else f"{type(error).__name__}: {text} (--debug shows where)"
