"""The curve of a training run as a picture; needs matplotlib, the extra `plot`."""

from __future__ import annotations

import os
from typing import Any

from vtl_core import UnavailableError
from vtl_core.arguments import explain
from vtl_nn.atomic import replacing
from vtl_nn.training import History

REMEDY = "plot: needs matplotlib; run: python -m pip install 'vtl-nn[plot]'"


def require_matplotlib() -> Any:
    """Return matplotlib's Figure class, which draws without a screen.

    Errors:  UnavailableError with the command that installs it
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UnavailableError(REMEDY) from error
    return Figure


def plot_history(history: History, path: str | os.PathLike[str], *, title: str = "") -> None:
    """Draw loss by step and accuracy by epoch into a PNG, written whole or not at all.

    Errors:  UnavailableError without matplotlib; OSError if the file cannot be written
    """
    figure = require_matplotlib()(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw_loss(left, history)
    _draw_accuracy(right, history)
    if title:
        figure.suptitle(title)
    with replacing(path) as file:
        figure.savefig(file, format="png", dpi=120)


def _draw_loss(axes: Any, history: History) -> None:
    steps = range(1, len(history.losses) + 1)
    axes.plot(steps, history.losses, color="0.8", linewidth=0.8, label="each step")
    share = len(history.losses) / max(1, len(history.epochs))
    ends = [share * (number + 1) for number in range(len(history.epochs))]
    axes.plot(ends, [e.loss for e in history.epochs], "o-", color="C0", label="training, mean of the epoch")
    if any(e.validation_loss is not None for e in history.epochs):
        axes.plot(ends, [e.validation_loss for e in history.epochs], "s--", color="C1", label="test")
    axes.set(xlabel="step", ylabel="loss", ylim=(0, None))
    axes.legend()


def _draw_accuracy(axes: Any, history: History) -> None:
    for name, style, label in (("accuracy", "o-", "training"), ("validation_accuracy", "s--", "test")):
        points = [(e.epoch, 100 * getattr(e, name)) for e in history.epochs if getattr(e, name) is not None]
        if points:
            color, text = "C0" if name == "accuracy" else "C1", f"{label}, {points[-1][1]:.1f} % at last"
            axes.plot(*zip(*points, strict=True), style, color=color, label=text)
    axes.set(xlabel="epoch", ylabel="accuracy, %", xticks=[e.epoch for e in history.epochs])
    if axes.lines:
        axes.legend(loc="lower right")


explain(globals())
