"""What all optimizers share: groups of parameters, slots that exist from the start, one fused update a group, state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from math import inf
from operator import is_
from typing import Any, ClassVar, NamedTuple

import vtl_core as vtl
from vtl_core import AttributeValueError, DeviceError, DTypeError, Tensor, VslError
from vtl_core.arguments import explain, fits, said, short
from vtl_nn.errors import StateError

Group = dict[str, Any]
COUNTS = frozenset({"step", "mu_product"})


class Guard(NamedTuple):
    """What mixed precision lays on a step: gradients are multiplied by `inverse_scale`; nothing moves where `found_inf` is 1."""

    inverse_scale: Tensor
    found_inf: Tensor


class Optimizer:
    """Steps parameters along their gradients; a subclass names its update row, its slots and the row's scalars.

    `params` are tensors, or groups {"params": tensors, option: value ...}; what a group leaves out is the default.
    `param_groups` are those dicts, and a step reads its options from them: `optimizer.param_groups[0]["lr"] = 0.1`.
    Slots (momenta, step counts) are made here, on their parameter's device, and stay float32 where it is narrower.

    Errors:  AttributeValueError for no parameter, one given twice, or an option out of range; DTypeError for what is
             no tensor of floats; DeviceError if parameters live on two devices
    """

    guard: Guard | None = None  # set for the length of a step by amp.GradScaler
    # PyTorch's names; those of COUNTS are one number, the others have the parameter's shape
    slots: ClassVar[tuple[str, ...]] = ()

    def __init__(self, params: Iterable[Any], defaults: Mapping[str, Any]) -> None:
        self.defaults = dict(defaults)
        self.param_groups: list[Group] = []
        self.state: dict[int, dict[str, Tensor]] = {}  # by id() of the parameter, which its group keeps alive
        self._judged: list[tuple[Any, ...]] = []  # the options of each group that were last found right
        if isinstance(params, Tensor):
            raise DTypeError(f"{self}: params is one tensor; give a list: [tensor], or model.parameters()")
        if hasattr(params, "parameters") or hasattr(getattr(params, "__self__", None), "parameters"):
            raise DTypeError(f"{self}: params is a module or its method; give what it returns: model.parameters()")
        given = list(params)
        if not given:
            raise AttributeValueError(f"{self}: got no parameter to step; was model.parameters() read before?")
        for group in given if isinstance(given[0], dict) else [{"params": given}]:
            self.add_param_group(group)

    def __repr__(self) -> str:
        return type(self).__name__

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles, in which parameters are other objects: slots by the parameter's place."""
        return {**vars(self), "_judged": [], "state": [slots for _, slots in self._slots_by_parameter()]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.state = dict(zip(map(id, self._parameters()), state["state"], strict=True))

    def row(self, group: Group) -> str:
        """The update row that steps this group."""
        raise NotImplementedError(f"{self} must define row")

    def scalars(self, group: Group) -> dict[str, float]:
        """The row's scalars, by name."""
        raise NotImplementedError(f"{self} must define scalars")

    def check(self, group: Group) -> None:
        """Raise AttributeValueError for an option out of range."""

    def judge(self, group: Group) -> None:
        """`check`, and that truth values and numbers are what they are by default.

        Errors:  AttributeValueError, naming the option
        """
        if missing := self.defaults.keys() - group.keys():
            raise AttributeValueError(f"{self}: the group has no {', '.join(sorted(missing))} any more; set it again")
        self._require_kinds(group, bool)
        try:
            self.check(group)
        except (TypeError, ValueError) as error:
            if not isinstance(error, VslError):  # of what Python says of a value there, this has the name
                self._require_kinds(group, float)
            raise
        self._require_kinds(group, float)

    def _require_kinds(self, group: Group, wanted: type) -> None:
        for name, default in self.defaults.items():
            kind = bool if isinstance(default, bool) else float if isinstance(default, int | float) else None
            if kind is wanted and not fits(group[name], kind):
                raise AttributeValueError(f"{self}: {name}={short(group[name])} must be {said(kind)}")

    def judge_groups(self) -> None:
        """Before a step: anybody may write into `param_groups`, so what is another object than last time is judged again."""
        for place, group in enumerate(self.param_groups):
            options = tuple(group.values())
            seen = self._judged[place] if place < len(self._judged) else ()
            if len(options) == len(seen):
                if all(map(is_, options, seen)):
                    continue
                changed = [name for name, old in zip(group, seen, strict=True) if group[name] is not old]
            else:
                changed = list(group)
            lr = group.get("lr")  # what schedules write at each step, and what every rule takes from 0 on
            if not (changed == ["lr"] and type(lr) is float and 0 <= lr < inf):
                self.judge(group)
            self._judged[place : place + 1] = [options]

    def start(self, slot: str, group: Group) -> float:
        """What a slot holds before the first step."""
        return 0.0

    def _slot(self, name: str, p: Tensor, group: Group) -> Tensor:
        shape, value = () if name in COUNTS else p.shape, self.start(name, group)
        if value == 0:  # zeros can be made where a placement steps
            return vtl.zeros(shape, dtype=_slot_dtype(p), device=p.device)
        return vtl.full(shape, value, dtype=_slot_dtype(p), device=p.device)

    def slots_of(self, group: Group) -> tuple[str, ...]:
        """The slots that this group's row takes."""
        return self.slots

    def add_param_group(self, group: Mapping[str, Any]) -> None:
        """Step these parameters too, with options of their own."""
        _check_group(str(self), group)
        if unknown := group.keys() - self.defaults.keys() - {"params", "initial_lr"}:
            raise AttributeValueError(
                f"{self}: no option is called {', '.join(sorted(unknown))}; it has {', '.join(self.defaults)}"
            )
        params = group["params"]
        params = [params] if isinstance(params, Tensor) else list(params)
        added: Group = {**_plain({**self.defaults, **group}), "params": params}
        self.judge(added)
        seen, device = set(self.state), next((p.device for g in self.param_groups for p in g["params"]), None)
        for place, p in enumerate(params):
            if not isinstance(p, Tensor) or not p.dtype.is_floating:
                what = repr(p) if isinstance(p, str) else p.dtype.name if isinstance(p, Tensor) else type(p).__name__
                remedy = "; give its parameters()" if hasattr(p, "parameters") else ""  # a module in a list
                raise DTypeError(f"{self}: parameter {place} is {what}, not a tensor of floats{remedy}")
            if not p.is_leaf:
                raise AttributeValueError(
                    f"{self}: parameter {place} {p.shape} is the result of an op; give leaves, detach() it first"
                )
            if id(p) in seen:
                raise AttributeValueError(
                    f"{self}: parameter {place} {p.shape} is given twice; it would be stepped twice"
                )
            seen.add(id(p))
            device = device or p.device
            if p.device != device:
                raise DeviceError(
                    f"{self}: parameters are on {device} and {p.device}; move them to one device, or use two optimizers"
                )
        self.param_groups.append(added)
        for p in params:
            self.state[id(p)] = {name: self._slot(name, p, added) for name in self.slots_of(added)}

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients, or fill them with zeros."""
        for p in self._parameters():
            if p.grad is not None:
                p.grad = None if set_to_none else vtl.zeros_like(p.grad)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Step every parameter that has a gradient, in place; `closure`, if given, computes the loss first."""
        loss = closure() if closure is not None else None
        self.judge_groups()
        steps = []
        for group in self.param_groups:
            wanted = self.slots_of(group)
            arrays = [(p.grad, p, *self._slots(p, group, wanted)) for p in group["params"] if p.grad is not None]
            if arrays:
                steps.append(under(self.guard, self.row(group), arrays, self.scalars(group)))
        vtl.update_all(steps)
        return loss

    def reset_state(self) -> None:
        """Forget all slots: the next step is as the first."""
        for group in self.param_groups:
            for p in group["params"]:
                self.state[id(p)] = {name: self._slot(name, p, group) for name in self.slots_of(group)}

    def _slots(self, p: Tensor, group: Group, wanted: Sequence[str]) -> list[Tensor]:
        """The slots of p that the group's options ask for now, brought along if the model was moved or cast."""
        slots = self.state.setdefault(id(p), {})  # empty for one that was put into its group by hand
        raw = p.raw
        for first in slots.values():
            if first.raw.buffer.backend is not raw.buffer.backend or first.raw.layout.dtype is not _slot_dtype(p):
                for name, slot in slots.items():
                    slots[name] = slot.to(dtype=_slot_dtype(p), device=p.device)
            break
        for name in wanted:  # an option was turned on since
            if name not in slots:
                slots[name] = self._slot(name, p, group)
        return [slots[name] for name in wanted]

    def _slots_by_parameter(self) -> list[tuple[Tensor, dict[str, Tensor]]]:
        """Every parameter of the groups as they are now, with its slots."""
        for group in self.param_groups:
            for p in group["params"]:
                if id(p) not in self.state:
                    self._slots(p, group, self.slots_of(group))
        return [(p, self.state[id(p)]) for p in self._parameters()]

    def _parameters(self) -> Iterable[Tensor]:
        return chain.from_iterable(group["params"] for group in self.param_groups)

    def state_dict(self) -> dict[str, Any]:
        """Return slots by the parameter's number, and the groups' options with numbers for parameters: PyTorch's form."""
        numbers = {id(p): number for number, p in enumerate(self._parameters())}
        groups = [{**group, "params": [numbers[id(p)] for p in group["params"]]} for group in self.param_groups]
        return {
            "state": {numbers[id(p)]: dict(slots) for p, slots in self._slots_by_parameter() if slots},
            "param_groups": groups,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state, copied to where the parameters live.

        Errors:  StateError, naming everything that does not fit, before anything is changed
        """
        self.check_state_dict(state)
        for group, saved in zip(self.param_groups, state["param_groups"], strict=True):
            group.update({name: value for name, value in _plain(saved).items() if name != "params"})
        with vtl.no_grad():
            for number, (_, slots) in enumerate(self._slots_by_parameter()):
                for name, slot in slots.items():
                    slot.copy_(state["state"][number][name])

    def check_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raise StateError unless `state` fits, parameter by parameter, in order."""
        if not _is_state(state):
            raise StateError(
                f"{self}: this is no optimizer's state, a dict with state, by the parameter's number, and param_groups, "
                "a list of dicts with params; give what state_dict() returned"
            )
        wrong = []
        ours = [len(group["params"]) for group in self.param_groups]
        theirs = [len(group["params"]) for group in state["param_groups"]]
        if ours != theirs:
            wrong.append(f"groups have {theirs} parameters, here {ours}")
        for number, (_, slots) in enumerate(self._slots_by_parameter()):
            found = state["state"].get(number, {})
            if slots.keys() != found.keys():
                wrong.append(f"parameter {number} has slots {sorted(found)}, here {sorted(slots)}")
                continue
            for name, slot in slots.items():
                given = found[name]
                if not isinstance(given, Tensor):
                    wrong.append(f"parameter {number}: {name} is {type(given).__name__}, no tensor")
                elif given.shape != slot.shape:
                    wrong.append(f"parameter {number}: {name} is {given.shape}, here {slot.shape}")
        for group, options in zip(self.param_groups, state["param_groups"], strict=False):
            if missing := self.defaults.keys() - options.keys():
                wrong.append(f"a group has no {', '.join(sorted(missing))}")
            try:
                self.judge({**group, **_plain({**options, "params": group["params"]})})
            except AttributeValueError as error:
                wrong.append(str(error))
        if wrong:
            raise StateError(
                f"{self}: the state does not fit: {'; '.join(wrong)}; load it into the optimizer of the same model"
            )


def under(guard: Guard | None, row: str, arrays: Sequence[tuple[Tensor, ...]], scalars: dict[str, float]) -> Any:
    """One fused update, under the guard if there is one."""
    if guard is None:
        return row, arrays, scalars
    wide = {slots[1].dtype is vtl.float64 for slots in arrays}
    cast = {double: [t.to(vtl.float64 if double else vtl.float32) for t in guard] for double in wide}
    return vtl.guarded(row), [(*slots, *cast[slots[1].dtype is vtl.float64]) for slots in arrays], scalars


def _check_group(name: str, group: object) -> None:
    if not isinstance(group, Mapping) or "params" not in group:
        given = f"one with {', '.join(map(str, group))}" if isinstance(group, Mapping) else type(group).__name__
        raise AttributeValueError(f"{name}: a group is a dict with the key 'params'; given {given}")


def _is_state(state: object) -> bool:
    if not (isinstance(state, Mapping) and isinstance(state.get("state"), Mapping)):
        return False
    groups = state.get("param_groups")
    return isinstance(groups, list) and all(
        isinstance(group, Mapping) and isinstance(group.get("params"), list) for group in groups
    )


def _plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with lists, as JSON has them, as tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}


def at_least_zero(name: str, group: Group, *options: str) -> None:
    """AttributeValueError for the first of these options that is negative, NaN or no number."""
    for option in options:
        try:
            right = bool(group[option] >= 0)
        except (TypeError, ValueError, KeyError):
            right = False
        if not right:
            raise AttributeValueError(f"{name}: {option}={short(group.get(option))} must be a number of at least 0")


def _slot_dtype(p: Tensor) -> Any:
    dtype = p.raw.layout.dtype
    return vtl.float32 if dtype.itemsize < 4 else dtype


explain(globals(), whole=True)
