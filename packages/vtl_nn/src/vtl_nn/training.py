"""fit and evaluate: the loop over epochs and batches, with a progress bar, a history and callbacks."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import Any, Self

import numpy as np

import vtl_core as vtl
from vtl_core import AttributeValueError, Tensor
from vtl_core.arguments import explain
from vtl_nn.errors import StateError, TrainingError
from vtl_nn.losses import CrossEntropyLoss
from vtl_nn.module import Module
from vtl_nn.optim import Optimizer

Loss = Callable[[Tensor, Tensor], Tensor]
_READ_EVERY = 16  # steps between looks at the loss where a look waits for the device


@dataclass
class Result:
    """What a pass over a data set came to: the mean loss, and the share of right answers where there are classes."""

    loss: float
    accuracy: float | None
    count: int


@dataclass
class Epoch:
    """One epoch of training; lr is that of its last step, seconds are of training alone."""

    epoch: int
    loss: float
    accuracy: float | None
    seconds: float
    images_per_s: float
    lr: float
    validation_loss: float | None = None
    validation_accuracy: float | None = None


@dataclass
class History:
    """What `fit` saw: each epoch, and the loss of each step."""

    epochs: list[Epoch] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)

    def __repr__(self) -> str:
        """A line, not every number."""
        last = f", the last {self.epochs[-1]}" if self.epochs else ""
        return f"History({len(self.epochs)} epochs, {len(self.losses)} steps{last})"

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and numbers, for JSON."""
        return {"epochs": [asdict(epoch) for epoch in self.epochs], "losses": list(self.losses)}

    @staticmethod
    def from_dict(state: dict[str, Any]) -> History:
        """Return the history that `to_dict` wrote; StateError for what it did not write."""
        try:
            return History([Epoch(**epoch) for epoch in state["epochs"]], list(map(float, state["losses"])))
        except (TypeError, ValueError, LookupError):
            raise StateError("History.from_dict: this is no history; give what to_dict() returned") from None


@dataclass
class Training:
    """What callbacks see: everything of a fit, while it runs. A callback ends it by setting `stop`."""

    model: Module
    optimizer: Optimizer
    loader: Iterable[Any]
    _history: History
    epochs: int
    epoch: int = 0  # the one under way, from 1
    step: int = 0  # steps done, over all epochs
    stop: bool = False
    _unread: Callable[[], list[float]] = list  # losses of steps that are still on the device

    @property
    def history(self) -> History:
        """All steps done so far; on a device, who asks for it waits for the last of them."""
        self._history.losses += self._unread()
        return self._history


class Callback:
    """Called by `fit`: override what you need."""

    def on_step_end(self, training: Training) -> None:
        """Run after each step."""

    def on_epoch_end(self, training: Training, epoch: Epoch) -> None:
        """Run after each epoch, validation included."""


def fit(
    model: Module,
    loader: Iterable[Any],
    *,
    optimizer: Optimizer,
    loss: Loss | None = None,
    epochs: int = 1,
    validation: Iterable[Any] | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool = True,
    device: str | None = None,
    history: History | None = None,
) -> History:
    """Train `model` on batches (inputs, targets) of NumPy arrays until `epochs` epochs are in the history.

    A `history` that already has epochs is continued: a resumed run gives the one it stopped with. An epoch that it
    stopped within is finished, and its record is of the steps that were left; of none, the mean of its losses. `loss` is
    cross-entropy unless given; `device` is where the batches go, by default to the model. `progress` shows a bar
    on a terminal. The model is left in training mode.

    Units:   seconds; accuracy in 0 .. 1; images are samples
    Errors:  TrainingError for no optimizer or one of another model, for a data set without a batch, for
             batches that can be read once and several epochs, and for a loss that is no finite number, naming epoch and
             step: on the CPU before that step changes the model, elsewhere at most 16 steps later
    """
    _check_epochs(epochs)
    if not hasattr(optimizer, "zero_grad"):
        raise TrainingError(
            f"fit: optimizer is {optimizer!r:.40}; give one, such as nn.optim.Adam(model.parameters(), lr=1e-3)"
        )
    _check_steps_something(model, loss, optimizer)
    history = History() if history is None else history
    training = Training(model, optimizer, loader, history, epochs, len(history.epochs), len(history.losses))
    first = len(history.epochs) + 1 if history.losses else 0  # the epoch in which a resumed run goes on
    if _is_empty(loader):
        raise TrainingError("fit: the loader has no batch; the data set is empty, or drop_last drops all of it")
    if _is_empty(validation):
        raise TrainingError("fit: the validation loader has no batch; give it samples, or leave validation out")
    for name, given in (("loader", loader), ("validation", validation)):
        if isinstance(given, Iterator) and epochs - len(history.epochs) > 1:
            raise TrainingError(
                f"fit: {name} is a {type(given).__name__}, which can be read once only, and epochs={epochs}; "
                "give a DataLoader or a list of batches"
            )
    criterion = CrossEntropyLoss() if loss is None else loss
    place = _Place(model, device)
    while len(history.epochs) < epochs and not training.stop:
        training.epoch = len(history.epochs) + 1
        record = _train_epoch(training, criterion, place, callbacks, progress, resumed=training.epoch == first)
        if validation is not None:
            result = evaluate(model, validation, loss=criterion, device=device)
            if not isfinite(result.loss):
                raise TrainingError(
                    f"fit: the validation loss is {result.loss} after epoch {training.epoch}; "
                    "lower the learning rate, or look for bad values in the data"
                )
            record.validation_loss, record.validation_accuracy = result.loss, result.accuracy
        history.epochs.append(record)
        for callback in callbacks:
            callback.on_epoch_end(training, record)
    return history


def _check_epochs(epochs: Any) -> None:
    if isinstance(epochs, bool) or not isinstance(epochs, int | np.integer) or epochs < 0:
        raise AttributeValueError(f"fit: epochs={epochs!r} must be an integer of at least 0")


def _check_steps_something(model: Module, loss: Loss | None, optimizer: Optimizer) -> None:
    """An optimizer of another model, such as of the one that this is a copy of, would train nothing."""
    ours = {id(p) for module in (model, loss) if isinstance(module, Module) for p in module.parameters()}
    if not any(id(p) in ours for group in optimizer.param_groups for p in group["params"]):
        raise TrainingError(
            f"fit: {optimizer} steps no parameter of this {type(model).__name__}; make it from this model's parameters()"
        )


def _is_empty(loader: object) -> bool:
    """True for what says that it has no batch; a stream does not know, and a loader over it raises TypeError."""
    try:
        return isinstance(loader, Sized) and not len(loader)
    except TypeError:
        return False


def evaluate(model: Module, loader: Iterable[Any], *, loss: Loss | None = None, device: str | None = None) -> Result:
    """Return mean loss and accuracy over `loader`, in eval mode and without gradients; the mode is restored.

    Errors:  TrainingError for a data set without a batch
    """
    criterion = CrossEntropyLoss() if loss is None else loss
    place, meter = _Place(model, device), _Meter()
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with vtl.no_grad():
            for batch in loader:
                inputs, targets = place.put(batch)
                outputs = model(inputs)
                meter.add(criterion(outputs, targets), outputs, targets, "evaluate")
                meter.read(below=place.read_every)
        meter.read()
    finally:
        for module, mode in modes:
            module.training = mode
    return meter.result("evaluate")


def _train_epoch(
    training: Training,
    criterion: Loss,
    place: _Place,
    callbacks: Sequence[Callback],
    progress: bool,
    *,
    resumed: bool,
) -> Epoch:
    model, optimizer = training.model, training.optimizer
    model.train()
    meter, waiting, losses = _Meter(), 0.0, training.history.losses
    training._unread = meter.read
    start = time.perf_counter()
    with _Bar(training, progress) as bar:
        try:
            for batch in training.loader:
                inputs, targets = place.put(batch)
                outputs = model(inputs)
                loss = criterion(outputs, targets)
                where = f"epoch {training.epoch}, step {training.step + 1}"
                meter.add(loss, outputs, targets, where)
                losses += meter.read(below=place.read_every)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                training.step += 1
                bar.show(meter, len(batch[0]))
                for callback in callbacks:
                    before = time.perf_counter()
                    callback.on_step_end(training)
                    waiting += time.perf_counter() - before
                if training.stop:
                    break
        except KeyboardInterrupt:
            losses += meter.read()  # the history that was passed in is of all steps done
            raise
        losses += meter.read()
        bar.show(meter, 0)
    seconds = time.perf_counter() - start - waiting
    lr = float(optimizer.param_groups[0]["lr"])
    if resumed and not meter.count:  # the run had stopped after the last step of an epoch, before its end
        last = losses[-max(1, training.step // training.epoch) :]
        return Epoch(training.epoch, sum(last) / len(last), None, seconds, 0.0, lr)
    result = meter.result("fit")
    return Epoch(training.epoch, result.loss, result.accuracy, seconds, result.count / max(seconds, 1e-9), lr)


class _Place:
    """Where a model's batches go, and in which dtype."""

    def __init__(self, model: Module, device: str | None) -> None:
        first = next(iter(model.parameters()), None)
        self.device = device or (first.device if first is not None else "cpu")
        self.dtype = first.dtype if first is not None else vtl.float32
        self.read_every = 1 if str(self.device).startswith("cpu") else _READ_EVERY

    def put(self, batch: Any) -> tuple[Tensor, Tensor]:
        """Upload a batch; numbers that are not integers take the model's dtype. What is there already stays."""
        if not isinstance(batch, tuple | list) or len(batch) != 2:
            raise TrainingError(
                f"fit: a batch is {type(batch).__name__:.40}, and (inputs, targets) is needed; give the loader a collate_fn"
            )
        inputs, targets = map(self._put, batch)
        return inputs, targets

    def _put(self, part: Any) -> Tensor:
        if isinstance(part, Tensor):
            return part.to(dtype=self.dtype if part.dtype.is_floating else None, device=self.device)
        return vtl.tensor(part, dtype=self.dtype if np.asarray(part).dtype.kind == "f" else None, device=self.device)


class _Meter:
    """Sums of loss and right answers. What a step leaves on the device waits in `pending`: its loss, and a count."""

    def __init__(self) -> None:
        self.pending: list[tuple[Tensor, Tensor | None, Tensor, str]] = []
        self.loss, self.right, self.count = 0.0, 0.0, 0
        self.classes = False

    def add(self, loss: Tensor, outputs: Tensor, targets: Tensor, where: str) -> None:
        """Note a step; where targets are classes, count on the device how often the largest output is the target."""
        right = None
        if targets.dtype.is_integer and outputs.ndim == targets.ndim + 1 and outputs.size:
            right = (outputs.detach().argmax(1) == targets.to(vtl.int64)).sum()
        self.pending.append((loss.detach(), right, targets, where))

    def read(self, below: int = 1) -> list[float]:
        """Bring what is pending to the host, if it is at least `below` steps: their losses, in one transfer, and counts."""
        if len(self.pending) < below:
            return []
        losses = _numbers([loss for loss, _, _, _ in self.pending])
        rights = iter(_numbers([right for _, right, _, _ in self.pending if right is not None]))
        for value, (_, right, targets, where) in zip(losses, self.pending, strict=True):
            if not isfinite(value) and where != "evaluate":
                raise TrainingError(
                    f"fit: the loss is {value} at {where}; lower the learning rate, or look for bad values in the data"
                )
            samples = targets.shape[0]
            self.loss += value * samples
            self.count += samples
            if right is not None:
                self.classes = True
                self.right += next(rights) * samples / targets.size
        self.pending.clear()
        return losses

    def result(self, what: str) -> Result:
        """Means over what was read; TrainingError if that is nothing."""
        if not self.count:
            raise TrainingError(f"{what}: the loader gave no sample; the data set is empty")
        return Result(self.loss / self.count, self.right / self.count if self.classes else None, self.count)


def _numbers(scalars: Sequence[Tensor]) -> list[float]:
    """The values of 0-d tensors, brought to the host together."""
    if len(scalars) < 2:
        return [float(scalar.item()) for scalar in scalars]
    return [float(value) for value in vtl.stack(list(scalars)).tolist()]


class _Bar:
    """tqdm's bar of an epoch: samples a second, mean loss and accuracy so far; nothing where stderr is no terminal."""

    def __init__(self, training: Training, progress: bool) -> None:
        self.bar: Any = None
        if progress and sys.stderr.isatty():
            from tqdm import tqdm  # 80 ms: only where it is seen

            samples = getattr(training.loader, "dataset", None)
            total = len(samples) if isinstance(samples, Sized) else None
            self.bar = tqdm(
                total=total,
                unit=" img",
                desc=f"epoch {training.epoch}/{training.epochs}",
                leave=False,
                dynamic_ncols=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self.bar is not None:
            self.bar.close()

    def show(self, meter: _Meter, samples: int) -> None:
        if self.bar is None:
            return
        if meter.count:
            accuracy = f", accuracy {meter.right / meter.count:.1%}" if meter.classes else ""
            self.bar.set_postfix_str(f"loss {meter.loss / meter.count:.4f}{accuracy}", refresh=False)
        self.bar.update(samples)


explain(globals())
