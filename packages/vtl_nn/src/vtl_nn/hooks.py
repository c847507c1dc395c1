"""What is called before and after a module's forward, and when gradients have come to its inputs."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from vtl_core import DTypeError, GraphError, Tensor
from vtl_core.hooks import RemovableHandle, intercept, require_callable

if TYPE_CHECKING:
    from vtl_nn.module import Module


class Hook(NamedTuple):
    """One function, whether it is given the keyword arguments, and whether it is called after an error too."""

    function: Callable[..., Any]
    with_kwargs: bool = False
    always_call: bool = False


class Kind(OrderedDict[int, Hook]):
    """Hooks of one kind, in the order in which they are called; a class of its own, since handles hold it weakly."""


class Hooks:
    """The hooks of one module. A module without any has None in their place, and calls forward at once."""

    def __init__(self) -> None:
        self.before, self.after, self.back = Kind(), Kind(), Kind()

    def __bool__(self) -> bool:
        return bool(self.before or self.after or self.back)

    def add(self, name: str, function: Callable[..., Any], *, prepend: bool, **options: bool) -> RemovableHandle:
        """Register one more in the list of this name."""
        require_callable(f"register hook {name!r}", function)
        return RemovableHandle(getattr(self, name), Hook(function, **options), first=prepend)

    def call(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """forward with its hooks around it."""
        called: set[int] = set()
        try:
            return self._around(module, args, kwargs, called)
        except Exception:
            for number, hook in tuple(self.after.items()):
                if hook.always_call and number not in called:
                    try:
                        hook.function(module, args, *([kwargs] if hook.with_kwargs else []), None)
                    except Exception as error:  # noqa: BLE001  # the first error is the one to be seen
                        warnings.warn(f"{type(module).__name__}: a forward hook failed too: {error}", stacklevel=3)
            raise

    def _around(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any], called: set[int]) -> Any:
        for hook in tuple(self.before.values()):
            args, kwargs = _prepared(module, hook, args, kwargs)
        way = _WayBack(module, tuple([hook.function for hook in self.back.values()])) if self.back else None
        if way is not None:
            args = way.inputs(args)
        result = module.forward(*args, **kwargs)
        for number, hook in tuple(self.after.items()):
            called.add(number)
            found = hook.function(module, args, *([kwargs] if hook.with_kwargs else []), result)
            result = result if found is None else found
        return result if way is None else way.outputs(result)


def _prepared(
    module: Module, hook: Hook, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments as a hook before forward leaves them."""
    if not hook.with_kwargs:
        found = hook.function(module, args)
        return (args if found is None else found if isinstance(found, tuple) else (found,)), kwargs
    found = hook.function(module, args, kwargs)
    if found is None:
        return args, kwargs
    if not (
        isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], tuple) and isinstance(found[1], dict)
    ):
        raise DTypeError(
            f"{type(module).__name__}: a forward pre-hook with kwargs returned {found!r:.60}; it returns None or (args, kwargs)"
        )
    return found


class _WayBack:
    """One call's way back: gradients of the outputs are noted, and shown with those of the inputs when these are there."""

    def __init__(self, module: Module, hooks: Sequence[Callable[..., Any]]) -> None:
        self._module, self._hooks = module, hooks
        self._places: list[int] | None = None  # of the tensors among the inputs, where gradients flow to one of them
        self._count = 0
        self._arrived: tuple[Any, ...] | None = None

    def inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The inputs, with a gate behind them."""
        self._count = len(args)
        passed, self._places = _gated(args, self._came_through)
        return passed

    def outputs(self, result: Any) -> Any:
        """The outputs, with a gate behind them: of a tensor, or of the tensors in a tuple."""
        if isinstance(result, Tensor):
            return _gated((result,), self._arrive)[0][0]
        if not isinstance(result, tuple):
            raise GraphError(
                f"{type(self._module).__name__}: forward gave a {type(result).__name__}; "
                "with a full backward hook it must give a tensor or a tuple"
            )
        passed, _ = _gated(result, self._arrive)
        return type(result)(*passed) if hasattr(result, "_fields") else passed

    def _arrive(self, places: list[int], total: int, grads: tuple[Any, ...]) -> Sequence[Any] | None:
        self._arrived = _spread(places, total, grads)
        if self._places is None:  # no input wants a gradient: this is all that there will be
            for hook in self._hooks:
                found = hook(self._module, (None,) * self._count, self._arrived)
                if found is not None and not (isinstance(found, tuple) and all(g is None for g in found)):
                    raise GraphError(
                        f"{type(self._module).__name__}: a full backward hook returned gradients, and no input requires any"
                    )
            self._arrived = None
        return None

    def _came_through(self, places: list[int], total: int, grads: tuple[Any, ...]) -> Sequence[Any] | None:
        if self._arrived is None:  # a way to the inputs that does not lead through the outputs: a second derivative's
            return None
        found = _spread(places, total, grads)
        for hook in self._hooks:
            changed = hook(self._module, found, self._arrived)
            if changed is None:
                continue
            changed = changed if isinstance(changed, tuple) else (changed,)
            if len(changed) != len(found):
                raise GraphError(
                    f"{type(self._module).__name__}: a full backward hook returned {len(changed)} gradients for {len(found)} inputs"
                )
            found = changed
        self._arrived = None
        return [found[place] for place in places]


def _gated(values: tuple[Any, ...], back: Callable[..., Any]) -> tuple[tuple[Any, ...], list[int] | None]:
    """Values with one gate behind the tensors among them, and where those stand; None where no gradient flows."""
    places = [i for i, value in enumerate(values) if isinstance(value, Tensor)]
    tensors = [values[i] for i in places]
    passed = intercept(lambda grads: back(places, len(values), grads), *tensors)
    if all(new is old for new, old in zip(passed, tensors, strict=True)):
        return values, None
    given = dict(zip(places, passed, strict=True))
    return tuple([given.get(i, value) for i, value in enumerate(values)]), places


def _spread(places: list[int], total: int, grads: tuple[Any, ...]) -> tuple[Any, ...]:
    given = dict(zip(places, grads, strict=True))
    return tuple([given.get(i) for i in range(total)])
