"""Mixed precision: `autocast` runs products in 16 bits, `GradScaler` keeps small float16 gradients from vanishing.

    scaler = nn.amp.GradScaler()
    with nn.amp.autocast(dtype=vtl.float16):
        loss = criterion(model(images), labels)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()

Scale, growth count and found-inf are tensors on the device: a step that finds infinities is skipped there, and the
host never waits for it. bfloat16 has float32's range and needs no scaler.

Source: Micikevicius et al. 2018, "Mixed precision training", 3.2
"""

from __future__ import annotations

from math import inf
from numbers import Real
from typing import Any, TypeVar

import vtl_core as vtl
from vtl_core import AttributeValueError, Tensor, autocast
from vtl_core.arguments import explain, fits, short
from vtl_nn.errors import StateError
from vtl_nn.optim.optimizer import Guard, Optimizer
from vtl_nn.utils.clipping import rescale

__all__ = ["GradScaler", "autocast"]
Outputs = TypeVar("Outputs")


class GradScaler:
    """Multiplies losses by a scale that adapts, and takes it out of the gradients before a step; PyTorch's arguments.

    A step whose gradients hold an infinity or NaN changes nothing, and `update` multiplies the scale by
    `backoff_factor`; after `growth_interval` clean steps in a row it multiplies it by `growth_factor`.

    Errors:  AttributeValueError for factors out of range, a second step or unscale_ without update, and an optimizer
             without gradients
    """

    def __init__(
        self,
        device: str | None = None,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        if wrong := _out_of_range("init_scale", init_scale, growth_factor, backoff_factor, growth_interval):
            raise AttributeValueError(f"GradScaler: {wrong}")
        self.device, self.init_scale, self.enabled = device, init_scale, enabled
        self.growth_factor, self.backoff_factor, self.growth_interval = growth_factor, backoff_factor, growth_interval
        self._growth = 0.0  # steps without an infinity, from which the tracker starts
        self._scale: Tensor | None = None
        self._tracker: Tensor | None = None
        self._found: dict[int, Guard] = {}  # by id() of the optimizer, until update
        self._stepped: set[int] = set()

    def is_enabled(self) -> bool:
        """Whether it does anything."""
        return self.enabled

    def _slots(self, device: str) -> tuple[Tensor, Tensor]:
        """Scale and growth count, made where the first loss is."""
        if self._scale is None or self._tracker is None:
            where = self.device or device
            self._scale = vtl.full((), float(self.init_scale), dtype=vtl.float32, device=where)
            self._tracker = vtl.full((), self._growth, dtype=vtl.float32, device=where)
        return self._scale, self._tracker

    def scale(self, outputs: Outputs) -> Outputs:
        """A loss, or a list, tuple or dict of them, times the scale."""
        if not self.enabled:
            return outputs
        if isinstance(outputs, Tensor):
            return outputs * self._slots(outputs.device)[0]  # type: ignore[return-value]  # a Tensor for a Tensor
        if isinstance(outputs, dict):
            return type(outputs)((key, self.scale(value)) for key, value in outputs.items())
        if isinstance(outputs, list | tuple):
            return type(outputs)(self.scale(value) for value in outputs)
        raise AttributeValueError(f"GradScaler.scale: {type(outputs).__name__} is no tensor nor a list of them")

    def _inspect(self, optimizer: Optimizer) -> Guard:
        """1 / scale, and whether a gradient holds what is no number: 0-d tensors on the device."""
        gradients = _gradients(optimizer)
        if not gradients:
            raise AttributeValueError(f"GradScaler: no parameter of {optimizer} has a gradient; call backward first")
        scale, _ = self._slots(gradients[0].device)
        with vtl.no_grad():
            largest = vtl.apply("foreach_norm", *gradients, ord=inf).amax()
            found = vtl.apply("where", vtl.isfinite(largest), vtl.zeros_like(scale), vtl.ones_like(scale))
            return Guard(scale.reciprocal(), found)

    def unscale_(self, optimizer: Optimizer) -> None:
        """Take the scale out of the gradients now, such as before clipping them; `step` then leaves them as they are."""
        if not self.enabled:
            return
        if id(optimizer) in self._found:
            raise AttributeValueError("GradScaler.unscale_: it was called before, since the last update; call it once")
        guard = self._inspect(optimizer)
        gradients = _gradients(optimizer)
        rescale(gradients, guard.inverse_scale)
        self._found[id(optimizer)] = Guard(vtl.ones_like(guard.inverse_scale), guard.found_inf)

    def step(self, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        """optimizer.step() with the scale taken out, or nothing where a gradient holds an infinity."""
        if not self.enabled:
            return optimizer.step(*args, **kwargs)
        if id(optimizer) in self._stepped:
            raise AttributeValueError("GradScaler.step: it was called before, since the last update; call update()")
        if args or "closure" in kwargs:
            raise AttributeValueError("GradScaler.step: a closure would compute gradients after they were looked at")
        if id(optimizer) not in self._found:
            self._found[id(optimizer)] = self._inspect(optimizer)
        self._stepped.add(id(optimizer))
        optimizer.guard = self._found[id(optimizer)]
        try:
            return optimizer.step(**kwargs)
        finally:
            optimizer.guard = None

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Adapt the scale to what this iteration's steps found, or set it."""
        if not self.enabled:
            return
        if self._scale is None or self._tracker is None or not (self._found or new_scale is not None):
            raise AttributeValueError("GradScaler.update: no gradient was looked at since the last; call step first")
        with vtl.no_grad():
            if new_scale is not None:
                if not isinstance(new_scale, Tensor) and not _is_scale(new_scale):
                    raise AttributeValueError(
                        f"GradScaler.update: new_scale={new_scale!r} must be a number above 0 that float32 has"
                    )
                value = new_scale if isinstance(new_scale, Tensor) else vtl.full_like(self._scale, float(new_scale))
                self._scale.copy_(value)
            else:
                first, *others = (guard.found_inf for guard in self._found.values())
                for found in others:
                    first = vtl.maximum(first, found)
                scalars = {
                    "growth": self.growth_factor,
                    "backoff": self.backoff_factor,
                    "interval": float(self.growth_interval),
                }
                vtl.update("loss_scale", [(first, self._scale, self._tracker)], scalars)
        self._found.clear()
        self._stepped.clear()

    def get_scale(self) -> float:
        """Return the scale, read from the device."""
        return (self.init_scale if self._scale is None else float(self._scale.item())) if self.enabled else 1.0

    def state_dict(self) -> dict[str, Any]:
        """Return scale, factors and growth count under PyTorch's names; {} if disabled."""
        if not self.enabled:
            return {}
        return {
            "scale": self.get_scale(),
            "growth_factor": self.growth_factor,
            "backoff_factor": self.backoff_factor,
            "growth_interval": self.growth_interval,
            "_growth_tracker": int(self._growth if self._tracker is None else self._tracker.item()),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        if not self.enabled:
            return
        if not fits(state, dict):
            raise StateError(f"GradScaler: a state is a dict, not {short(state)}; give what state_dict() returned")
        if missing := {"scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"} - set(state):
            raise StateError(f"GradScaler: the state has no {', '.join(sorted(missing))}; was it disabled when saved?")
        factors = (state["growth_factor"], state["backoff_factor"], state["growth_interval"])
        wrong, steps = _out_of_range("scale", state["scale"], *factors), state["_growth_tracker"]
        if wrong or not (isinstance(steps, int | float) and 0 <= steps < inf):
            raise StateError(
                f"GradScaler: of the state {wrong or f'_growth_tracker={steps!r} must be a count of steps'}"
            )
        self.init_scale, self.growth_factor = float(state["scale"]), state["growth_factor"]
        self.backoff_factor, self.growth_interval = state["backoff_factor"], state["growth_interval"]
        self._growth = float(state["_growth_tracker"])
        self._scale = self._tracker = None  # made again where the next loss is


def _is_scale(value: Any) -> bool:
    """The scale is kept in float32."""
    return isinstance(value, Real) and 0 < float(value) < 2.0**128


def _out_of_range(name: str, scale: Any, growth: Any, backoff: Any, interval: Any) -> str:
    """What is wrong with a scaler's options; nothing if they are right."""
    numbers = all(isinstance(option, Real) for option in (growth, backoff, interval))
    if numbers and _is_scale(scale) and 1 < growth < inf and 0 < backoff < 1 and interval >= 1:
        return ""
    return (
        f"{name}={scale!r} must be a number above 0 that float32 has, growth_factor={growth!r} above 1, "
        f"backoff_factor={backoff!r} between 0 and 1, growth_interval={interval!r} at least 1"
    )


def _gradients(optimizer: Optimizer) -> list[Tensor]:
    return [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]


explain(globals(), whole=True)
