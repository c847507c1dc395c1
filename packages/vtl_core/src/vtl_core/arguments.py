"""Arguments of a wrong type or number, said by name: a function's signature is the rule, read when a call has failed.

A call that is right pays for one more call and nothing else (decision 60 in docs/adr). What the function refuses itself
is never said again, and what an annotation does not tell is not judged: Any, and a value that is as good as the type.
"""

from __future__ import annotations

import builtins
import inspect
import operator
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, wraps
from numbers import Real
from typing import Any

import numpy as np

from vsl_compute.errors import ArgumentTypeError, OutOfMemoryError, VslError

from .autograd.node import Traced
from .foreign import refusal

Function = Any  # of Python's own: Callable has no __globals__
SAID = {
    int: "an integer", float: "a number", bool: "True or False", str: "text", type(None): "None", Mapping: "a dict", dict: "a dict",
    Callable: "a function",
}  # fmt: skip
OPAQUE = (
    str,
    bytes,
    bytearray,
    Traced,
    np.ndarray,
    Mapping,
    set,
    frozenset,
    list,
    tuple,
    range,
    slice,
)  # no truth value is meant


def explain(namespace: dict[str, Any], *, whole: bool = False) -> None:
    """Let a module's public functions, and the methods of its classes, say which argument is of a wrong type.

    It stands at the end of the module. `whole`: what makes an object is judged even if it went well, since a wrong
    option fails when it is used.
    """
    for name, made in list(namespace.items()):
        if getattr(made, "__module__", "") != namespace["__name__"]:
            continue
        if isinstance(made, types.FunctionType) and not name.startswith("_") and _tells(made):
            namespace[name] = _explained(made, name)
        elif isinstance(made, type):
            _explain_class(made, whole=whole)


def _explain_class(kind: type, *, whole: bool) -> None:
    """The methods that a class defines itself; forward is explained where a module is called."""
    for name, given in list(vars(kind).items()):
        method = given.__func__ if isinstance(given, classmethod) else given
        if not isinstance(method, types.FunctionType) or name == "forward" or not _tells(method):
            continue
        if name == "__init__":
            setattr(kind, name, _explained(method, "", whole=whole))
        elif not name.startswith("_") or name in ("__getitem__", "__setitem__"):
            made = _explained(method, name, bound=True)
            setattr(kind, name, classmethod(made) if isinstance(given, classmethod) else made)
    if whole and all(getattr(kind, name) is getattr(object, name) for name in ("__init__", "__new__")):
        setattr(kind, "__init__", _explained(_without_options, ""))  # noqa: B010  # mypy takes an assignment for one to an object


def _without_options(self: Any) -> None:
    """Take no argument: for classes that have no __init__, of which Python says "ReLU() takes no arguments" and no more."""


def _tells(function: Function) -> bool:
    """Whether an annotation of an argument is a rule."""
    return any(hint not in ("Any", Any) for name, hint in function.__annotations__.items() if name != "return")


def _explained(function: Function, name: str, *, bound: bool = False, whole: bool = False) -> Function:
    first = bound or not name  # self

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        try:
            result = function(*args, **options)
        except VslError:
            raise
        except MemoryError as error:  # of NumPy, on the host
            raise OutOfMemoryError(f"{_named(args, name, first)}: {error}; make it smaller") from error
        except Exception as error:
            raise_for(function, _named(args, name, first), args, options, error, skip=first)
            raise
        if whole and (found := misfit(function, _named(args, name, first), args, options, skip=first)):
            raise found
        return result

    return call


def _named(args: tuple[Any, ...], name: str, bound: bool) -> str:
    owner = (args[0] if isinstance(args[0], type) else type(args[0])).__name__ if bound and args else ""
    return f"{owner}.{name}" if owner and name else owner or name


def raise_for(
    function: Function,
    name: str,
    args: tuple[Any, ...],
    options: dict[str, Any],
    error: Exception,
    *,
    skip: bool = False,
) -> None:
    """Raise the error that says which argument is of a wrong type, if one is, for `error`, which does not."""
    ours = isinstance(error, TypeError | ValueError | AttributeError | LookupError | ArithmeticError)
    if ours and (found := misfit(function, name, args, options, skip=skip)):
        raise found from error


def misfit(
    function: Function, name: str, args: tuple[Any, ...], options: dict[str, Any], *, skip: bool = False
) -> VslError | None:
    """The refusal of arguments that are too many, missing or unknown, else of the first that its annotation does not allow."""
    signature, hints = _rules(function)
    try:
        given = signature.bind(*args, **options).arguments
    except TypeError as error:  # inspect says what, and not by whom: "got an unexpected keyword argument 'dim'"
        from .elsewhere import ARGUMENTS

        known = [f"; {ARGUMENTS[one]}" for one in options if one in ARGUMENTS and one not in signature.parameters]
        return ArgumentTypeError(f"{name}: {error}; it takes {_taken(signature, skip=skip)}{''.join(known)}")
    for place, (argument, value) in enumerate(given.items()):
        if argument not in hints or (skip and place == 0):
            continue
        kind = signature.parameters[argument].kind
        values = value if kind is kind.VAR_POSITIONAL else value.values() if kind is kind.VAR_KEYWORD else (value,)
        for one in values:
            if not fits(one, hints[argument]):
                return _refusal(name, argument, place + 1 - skip, one, hints[argument])
    return None


def _taken(signature: inspect.Signature, *, skip: bool) -> str:
    """The arguments with their defaults, without what is said of their types: "(x, /, *, axis=None)"."""
    given = list(signature.parameters.values())[skip:]
    bare = [one.replace(annotation=inspect.Parameter.empty) for one in given]
    return str(inspect.Signature(bare))


def _refusal(name: str, argument: str, place: int, value: Any, hint: Any) -> VslError:
    if hint is not Any and Traced in _classes(hint) and not isinstance(value, Traced):
        return refusal(name, place, value)
    return ArgumentTypeError(f"{name}: {argument}={short(value)} must be {said(hint)}")


def _classes(hint: Any) -> set[type]:
    """The classes of a union, a tensor as what all tensors are."""
    parts = typing.get_args(hint) if _is_union(hint) else (hint,)
    return {Traced if isinstance(part, type) and issubclass(part, Traced) else part for part in parts}


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (typing.Union, types.UnionType)


@cache
def _rules(function: Function) -> tuple[inspect.Signature, dict[str, Any]]:
    """The signature, and what annotations there mean; one that cannot be told here, such as a name for checkers, is left out."""
    rules = {
        name: hint for name, text in function.__annotations__.items() if (hint := _meant(function, text)) is not Any
    }
    rules.pop("return", None)
    return inspect.signature(function), rules


def _meant(function: Function, text: Any) -> Any:
    try:
        names = {"Tensor": Traced, **inspect.unwrap(function).__globals__}  # where only checkers import it
        return eval(text, names) if isinstance(text, str) else text
    except NameError:  # imported for checkers only
        return Any


def fits(value: Any, hint: Any) -> bool:
    """Whether a value can stand where `hint` is written: NumPy's numbers for Python's, lists for tuples, anything for Any."""
    if hint is Any or isinstance(hint, str | typing.TypeVar):
        return True
    if hint is None or hint is type(None):
        return value is None
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if _is_union(hint):
        return any(fits(value, part) for part in inner)
    if origin is typing.Literal:
        return any(type(value) is type(one) and value == one for one in inner)
    if hint in _RULES:
        return _RULES[hint](value)
    if origin is Callable or hint is Callable:
        return callable(value)
    if origin in (tuple, list, Sequence, Iterable):
        return _is_series(value, origin, inner)
    wanted = origin or hint
    if getattr(wanted, "_is_protocol", False) and not isinstance(value, type):
        return all(hasattr(value, name) for name in vars(wanted) if not name.startswith("_"))
    return isinstance(value, wanted) if isinstance(wanted, type) else True


def _is_integer(value: Any) -> bool:
    try:
        operator.index(value)
    except (TypeError, ValueError, VslError):
        return False
    return not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    if isinstance(value, Traced | np.ndarray):
        return value.shape == () and "complex" not in str(value.dtype)
    try:
        return isinstance(value, Real) and isinstance(float(value), float)
    except OverflowError:  # an integer past every float
        return False


_RULES: dict[Any, Callable[[Any], bool]] = {
    int: _is_integer,
    float: _is_number,
    bool: lambda value: not isinstance(value, (*OPAQUE, type)) and not callable(value),
}


def _is_series(value: Any, origin: Any, inner: tuple[Any, ...]) -> bool:
    """One after the other, each of its type: what can be read once only is not read here."""
    if isinstance(value, str | bytes | Mapping | set) and origin is not Iterable:
        return False
    if (
        getattr(value, "shape", None) == ()
        or not (hasattr(value, "__iter__") or hasattr(value, "__getitem__"))
        or isinstance(value, type)
    ):
        return False
    if origin is not Iterable and not hasattr(value, "__len__"):
        return False
    if isinstance(value, np.ndarray) and inner:
        return origin not in (tuple, list) and all(fits(one, inner[0]) for one in value[:64])
    if not isinstance(value, tuple | list):
        return origin not in (tuple, list)
    if not inner:
        return True
    if origin is tuple and inner[-1] is not Ellipsis:
        return len(value) == len(inner) and all(map(fits, value, inner))
    return all(fits(one, inner[0]) for one in value)


def said(hint: Any) -> str:
    """A type in words: "an integer or None", "a sequence of numbers"."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if _is_union(hint):
        return " or ".join(dict.fromkeys(said(part) for part in inner))
    if origin is typing.Literal:
        return f"one of {', '.join(map(repr, inner))}"
    known = SAID.get(hint if hint is not None else type(None)) or SAID.get(origin)
    if known:
        return known
    if origin in (tuple, list, Sequence, Iterable):
        if origin is tuple and inner[-1:] != (Ellipsis,):
            return f"a tuple of {', '.join(map(said, inner))}"
        return f"a sequence, each of it {said(inner[0])}" if inner and inner[0] is not Any else "a sequence"
    if Traced in _classes(hint):
        return "a tensor"
    name = getattr(origin or hint, "__name__", str(hint))
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def short(value: Any) -> str:
    """What was given, on one line and not longer than a name: arrays by their dtype and shape."""
    if isinstance(value, Traced | np.ndarray):
        what = "array" if isinstance(value, np.ndarray) else "tensor"
        return f"a {getattr(value.dtype, 'name', value.dtype)} {what} {tuple(value.shape)}"
    text = " ".join(builtins.repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
