"""Module: a layer or model is an object whose fields are its parameters, buffers and parts. What you see is what there is.

    class Net(nn.Module):
        def __init__(self):
            self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 2)

        def forward(self, x):
            return self.last(nn.functional.relu(self.first(x)))

There is no registration: `parameters()` walks vars(self) in order, and what lists, tuples and dicts among them hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, Self

import vtl_core as vtl
from vtl_core import AttributeValueError, Tensor, VslError
from vtl_core.arguments import explain, raise_for
from vtl_nn.errors import StateError

if TYPE_CHECKING:
    from vtl_core.hooks import RemovableHandle
    from vtl_nn.hooks import Hooks


class _Kept(Tensor):
    """A tensor that belongs to a module's state: a copy of the handle, not of the elements."""

    __slots__ = ()
    kept = True
    trains = False

    def __init__(self, data: Any, requires_grad: bool | None = None) -> None:
        tensor = data.detach() if isinstance(data, Tensor) else vtl.tensor(data)
        wanted = self.trains if requires_grad is None else requires_grad
        if wanted and not tensor.dtype.is_floating:
            raise AttributeValueError(
                f"{type(self).__name__}: {tensor.dtype.name} cannot require gradients; pass requires_grad=False"
            )
        super().__init__(tensor.raw, wanted)

    @classmethod
    def empty(cls, shape: tuple[int, ...], *, device: str | None = None, dtype: Any = None) -> Self:
        """One whose elements are still to be written."""
        return cls(vtl.empty(shape, device=device, dtype=dtype))

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        if id(self) not in memo:
            copied = super().__deepcopy__(memo)
            memo[id(self)] = kept = type(self)(copied, self.requires_grad)
            kept.grad = copied.grad
        return memo[id(self)]  # type: ignore[no-any-return]  # put there by this class

    def __reduce__(self) -> tuple[Any, ...]:
        restore, arguments = super().__reduce__()
        return _restored, (type(self), restore(*arguments), self.requires_grad)


def _restored(kind: type[_Kept], tensor: Tensor, requires_grad: bool) -> _Kept:
    """Unpickle."""
    return kind(tensor, requires_grad)


class Parameter(_Kept):
    """A tensor that is trained: `Parameter(vtl.zeros(3))` as a field of a module."""

    __slots__ = ()
    trains = True


class Buffer(_Kept):
    """A tensor that is saved and moved with the module but not trained, such as running statistics."""

    __slots__ = ()


@dataclass
class State:
    """What `load_state_dict` did not use or find; both empty unless strict=False let it pass."""

    missing_keys: list[str] = field(default_factory=list)
    unexpected_keys: list[str] = field(default_factory=list)


class Module:
    """Base of layers and models: define `__init__`, which sets fields, and `forward`."""

    training: bool = True
    _hooks: Hooks | None = None  # none until the first is registered: a module without hooks pays one look at this

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the result; called by `module(...)`."""
        raise NotImplementedError(f"{type(self).__name__} must define forward")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the result, by `forward`, with what hooks make of it."""
        try:
            if self._hooks is None:
                return self.forward(*args, **kwargs)
            return self._hooks.call(self, args, kwargs)
        except (TypeError, AttributeError, ValueError) as error:  # of Python, when an argument is of a wrong type
            kind = type(self)
            if kind.__module__.startswith("vtl_nn.") and not isinstance(error, VslError):
                raise_for(kind.forward, kind.__name__, (self, *args), kwargs, error, skip=True)
            raise

    # hooks
    def _hooked(self) -> Hooks:
        if self._hooks is None:
            from vtl_nn.hooks import Hooks

            self._hooks = Hooks()
        return self._hooks

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call hook(module, args) before forward; what it returns, None apart, are the arguments, one or a tuple.

        `with_kwargs`: hook(module, args, kwargs), which returns None or (args, kwargs). `prepend`: before all others.
        """
        return self._hooked().add("before", hook, prepend=prepend, with_kwargs=with_kwargs)

    def register_forward_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
    ) -> RemovableHandle:
        """Call hook(module, args, output) after forward; what it returns, None apart, is the output.

        `with_kwargs`: hook(module, args, kwargs, output). `prepend`: before all others. `always_call`: after an error too,
        with None for the output.
        """
        return self._hooked().add("after", hook, prepend=prepend, with_kwargs=with_kwargs, always_call=always_call)

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call hook(module, grad_input, grad_output) when gradients have come to the inputs; what it returns goes on for them.

        Both are tuples, a place an argument or output, with None for what has no gradient; keyword arguments do not count.
        Where no input wants a gradient it is called when those of the outputs are there, and may return none.
        """
        return self._hooked().add("back", hook, prepend=prepend)

    # what there is
    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The modules among the fields, by field name; `name.0`, `name.1` in a list or tuple, `name.key` in a dict."""
        return ((name, part) for name, part in _parts(vars(self).items()) if isinstance(part, Module))

    def children(self) -> Iterator[Module]:
        """The modules among the fields."""
        return (module for _, module in self.named_children())

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """This module, its parts, their parts: each once, by dotted name."""
        seen: set[int] = set()
        for name, module in self._walk(prefix):
            if id(module) not in seen:
                seen.add(id(module))
                yield name, module

    def _walk(self, prefix: str, above: tuple[Module, ...] = ()) -> Iterator[tuple[str, Module]]:
        if any(module is self for module in above):
            raise StateError(
                f"{type(self).__name__}: {prefix} holds the {type(self).__name__} that holds it; a part reaches what it is a part of "
                "by weakref.ref(module), which is no field to walk"
            )
        yield prefix, self
        for name, child in self.named_children():
            yield from child._walk(f"{prefix}.{name}" if prefix else name, (*above, self))

    def modules(self) -> Iterator[Module]:
        """This module, its parts, their parts: each once."""
        return (module for _, module in self.named_modules())

    def _tensors(self, kind: type[_Kept], prefix: str = "", *, once: bool = True) -> Iterator[tuple[str, Any]]:
        """Parameters or buffers by dotted name; one that several fields share comes once, unless all names are asked for."""
        seen: set[int] = set()
        for path, module in self._walk(prefix):
            for name, value in _parts(vars(module).items()):
                if isinstance(value, kind) and not (once and id(value) in seen):
                    seen.add(id(value))
                    yield (f"{path}.{name}" if path else name), value

    def named_parameters(self, prefix: str = "") -> Iterator[tuple[str, Parameter]]:
        """What is trained, by dotted name; a shared one once, under its first name."""
        return self._tensors(Parameter, prefix)

    def parameters(self) -> Iterator[Parameter]:
        """What is trained: for optimizers."""
        return (parameter for _, parameter in self.named_parameters())

    def named_buffers(self, prefix: str = "") -> Iterator[tuple[str, Buffer]]:
        """What is saved but not trained, by dotted name."""
        return self._tensors(Buffer, prefix)

    def buffers(self) -> Iterator[Buffer]:
        """What is saved but not trained."""
        return (buffer for _, buffer in self.named_buffers())

    # modes, gradients, places
    def train(self, mode: bool = True) -> Self:
        """Set training mode here and in all parts."""
        asked: object = mode
        if not isinstance(asked, bool):  # train(loader) would be taken for train(True)
            raise AttributeValueError(f"{type(self).__name__}.train: mode={asked!r:.40} must be True or False")
        for module in self.modules():
            module.training = mode
        return self

    def eval(self) -> Self:
        """Leave training mode: dropout passes, batch norm uses its running statistics."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Train all parameters, or freeze them."""
        for parameter in self.parameters():
            parameter.requires_grad = requires_grad
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients, or fill them with zeros."""
        for parameter in self.parameters():
            if parameter.grad is not None:
                parameter.grad = None if set_to_none else vtl.zeros_like(parameter.grad)

    def apply(self, function: Callable[[Module], Any]) -> Self:
        """Call `function` on every part, then on this module."""
        for child in self.children():
            child.apply(function)
        function(self)
        return self

    def to(self, target: Any = None, dtype: Any = None, *, device: str | None = None) -> Self:
        """Move everything to a device, turn what is floating into a dtype, or both; parameters stay the same objects.

        An optimizer made before keeps stepping them, and brings its slots along at its next step.
        """
        if isinstance(target, str):
            device = target
        elif target is not None:
            dtype = target
        wanted = vtl.empty((0,), dtype=dtype, device="cpu").dtype if dtype is not None else None
        if wanted is not None and not wanted.is_floating:
            raise AttributeValueError(
                f"{type(self).__name__}.to: {wanted.name} is no dtype for weights; use a floating one"
            )
        for _, tensor in chain(self._tensors(Parameter), self._tensors(Buffer)):
            with vtl.no_grad():
                cast = wanted if tensor.dtype.is_floating else None
                tensor.raw = tensor.to(dtype=cast, device=device).raw
                if tensor.grad is not None:
                    tensor.grad = tensor.grad.to(dtype=cast, device=device)
        return self

    # state
    def state_dict(self) -> dict[str, Tensor]:
        """Return all parameters and buffers by dotted name, PyTorch's names; they share memory with the model."""
        state = {}
        for path, module in self._walk(""):
            for kind in (Parameter, Buffer):
                for name, value in _parts(vars(module).items()):
                    if isinstance(value, kind):
                        state[f"{path}.{name}" if path else name] = value.detach()
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> State:
        """Copy a state into the parameters and buffers, in place; values are converted to their dtype and device.

        Errors:  StateError, before anything is changed, listing every name that is missing, unexpected or of another
                 shape; without `strict` only shapes matter
        """
        state: object = state_dict
        if not isinstance(state, Mapping):
            raise StateError(
                f"{type(self).__name__}: a state is a dict of tensors by name, not {type(state).__name__}; give what state_dict() returned"
            )
        ours = {name: value for kind in (Parameter, Buffer) for name, value in self._tensors(kind, once=False)}
        given = {name: value if isinstance(value, Tensor) else vtl.asarray(value) for name, value in state_dict.items()}
        result = State([name for name in ours if name not in given], [name for name in given if name not in ours])
        wrong = [
            f"{name} is {tuple(given[name].shape)}, here {tensor.shape}"
            for name, tensor in ours.items()
            if name in given and tuple(given[name].shape) != tensor.shape
        ]
        parts = [f"other shapes: {'; '.join(wrong)}"] if wrong else []
        if strict:
            parts += [f"missing: {', '.join(result.missing_keys)}"] if result.missing_keys else []
            parts += [f"unexpected: {', '.join(result.unexpected_keys)}"] if result.unexpected_keys else []
        if parts:
            raise StateError(
                f"{type(self).__name__}: the state does not fit: {'; '.join(parts)}; load the state of the same model"
            )
        with vtl.no_grad():
            for name, tensor in ours.items():
                if name in given:
                    tensor.copy_(given[name])
        return result

    if not TYPE_CHECKING:  # a checker would take any name for granted

        def __getattr__(self, name: str) -> Any:
            from vtl_nn.elsewhere import MODULE

            if name not in MODULE or hasattr(type(self), name):  # one that is there and failed says so itself
                return object.__getattribute__(self, name)
            from vtl_core.elsewhere import missing

            raise AttributeError(missing(f"{type(self).__name__!r} object", name, MODULE), name=name, obj=self)

    # printing
    def extra_repr(self) -> str:
        """What stands between the parentheses of a layer."""
        return ""

    def __repr__(self) -> str:
        lines = [f"({name}): {child!r}".replace("\n", "\n  ") for name, child in self.named_children()]
        if not lines:
            return f"{type(self).__name__}({self.extra_repr()})"
        arguments = [self.extra_repr()] if self.extra_repr() else []
        return f"{type(self).__name__}(\n  " + "\n  ".join(arguments + lines) + "\n)"


def is_its_own(module: Module) -> bool:
    """Whether calling this one object is more than its type's forward: it has hooks, or a `forward` put into it."""
    return bool(module._hooks) or "forward" in vars(module)


def _parts(fields: Iterable[tuple[object, object]], prefix: str = "") -> Iterator[tuple[str, Module | _Kept]]:
    """The modules, parameters and buffers among named values, and in lists, tuples and dicts among them, at any depth."""
    for name, value in fields:
        if isinstance(value, Module | _Kept):
            yield f"{prefix}{name}", value
        elif isinstance(value, list | tuple):
            yield from _parts(enumerate(value), f"{prefix}{name}.")
        elif isinstance(value, dict):
            yield from _parts(value.items(), f"{prefix}{name}.")


explain(globals())
