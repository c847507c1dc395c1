"""What an entry of the op table is: a primitive (one call of the contract) or a composite (a body over `run`).

A composite's forward body runs on Views and may tile or write into slices with out=. Its backward body uses `run`
plus {reshape, permute, slice, expand, window}, which View and Tensor both have, so that the same text serves eager
backward (dispatch.run) and create_graph (the gates' run). Neither imports dispatch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Integral, Real
from operator import index
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import AttributeValueError
from ..rows.signature import Signature
from ..view import Layout, View

if TYPE_CHECKING:
    from ..backend import ComputeBackend

Gradients = tuple[Any, ...]  # of the outputs on the way in, of the arguments on the way out; None where nothing flows
Needs = tuple[bool, ...]  # which arguments want a gradient
Attributes = dict[str, Any]


class Run(Protocol):
    """How a body calls ops: by name or row, with views (or tensors), out= on views only, options by keyword."""

    def __call__(self, op: Any, /, *args: Any, out: Any = None, **attributes: Any) -> Any:
        """Run one op."""
        ...


@dataclass(frozen=True, eq=False)
class Op:
    """One entry. `args` ending in "?" may be None; a single one ending in "*" is any number of them.

    `saves` names what `backward` reads: arguments, outputs, or only "x.shape" or "x.dtype" of one, which keeps no data alive.

    check(views, attributes) -> attributes: the shape rule; raises, fills in what follows from shapes.
    infer(views, attributes) -> layouts: a primitive's outputs.  launch(backend, outs, views, attributes): its call.
    forward(run, *views, **attributes): a composite's body.
    backward(run, needs, grads, saved, **attributes) -> a gradient an argument; grads of outputs that nobody used are None.
    expands(run, *views, **attributes): in place of a backward, a functional body that autograd runs through its own `run`;
    `forward` itself, or the same in differentiable pieces where that writes into slices.
    `parts` says that the body is functional too, and made of ops that may each be placed elsewhere: it is run where they are.
    """

    name: str
    signature: Signature
    args: tuple[str, ...]
    outputs: tuple[str, ...] = ("y",)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    check: Callable[[Sequence[Any], Attributes], Attributes] | None = None
    infer: Callable[[Sequence[View], Attributes], tuple[Layout, ...]] | None = None
    launch: Callable[[ComputeBackend, Sequence[View], Sequence[View], Attributes], None] | None = None
    forward: Callable[..., Any] | None = None
    backward: Callable[..., Gradients] | None = None
    saves: tuple[str, ...] = ()
    primitive: str = ""  # the contract's name for what `launch` calls
    expands: Callable[..., Any] | None = None
    parts: bool = False
    promotes: bool = True  # arguments of one letter are brought to one dtype
    unchecked: bool = (
        False  # calls of its body that have `out` fit by construction, and are too many to be checked again
    )

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Argument names without the marks."""
        return tuple(a.rstrip("?*") for a in self.args)

    @cached_property
    def is_variadic(self) -> bool:
        """True if the op takes any number of arguments of one letter."""
        return self.args[0].endswith("*")

    @cached_property
    def required(self) -> int:
        """How many leading arguments may not be None."""
        return sum(not a.endswith("?") for a in self.args)


def composite(
    name: str,
    signature: str,
    args: str,
    forward: Callable[..., Any],
    backward: Callable[..., Gradients] | None = None,
    *,
    saves: str = "",
    outputs: str = "y",
    check: Callable[[Sequence[Any], Attributes], Attributes] | None = None,
    expands: bool | Callable[..., Any] = False,
    parts: bool = False,
    unchecked: bool = False,
    **attributes: Any,
) -> Op:
    """An op whose body is written over `run`; `expands` is True where that is functional, or else the functional one."""
    return Op(
        name,
        Signature.parse(signature),
        tuple(args.split()),
        tuple(outputs.split()),
        attributes,
        check=check,
        forward=forward,
        backward=backward,
        saves=tuple(saves.split()),
        expands=forward if expands is True else expands or None,
        parts=parts,
        unchecked=unchecked,
    )


REQUIRED = object()  # an attribute without a default


LONGEST = 2**31  # past it a window's steps are longer than any axis, and their products than an index


def pair(op: str, name: str, value: Any, *, least: int) -> tuple[int, int]:
    """An option given as one int or two; AttributeValueError if it is not ints of at least `least`."""
    both = (value, value) if is_whole(value) else value
    if not (
        isinstance(both, tuple | list) and len(both) == 2 and all(is_whole(v) and least <= v < LONGEST for v in both)
    ):
        raise AttributeValueError(f"{op}: {name}={value!r} must be an int or two ints of at least {least}, below 2**31")
    return (int(both[0]), int(both[1]))


def is_whole(value: object) -> bool:
    """Whether an option is an integer, Python's or NumPy's, and no truth value."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Whether an option is a real number, Python's or NumPy's."""
    return isinstance(value, Real)


def shape_of(op: str, name: str, value: Any) -> tuple[int, ...]:
    """An option that is a shape, or counts one an axis; AttributeValueError if it is not ints."""
    try:
        return tuple([int(index(n)) for n in value])
    except TypeError:
        raise AttributeValueError(f"{op}: {name}={value!r} must be ints, one an axis") from None


def axes_of(op: str, axes: int | Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    """Axes as a sorted tuple without negatives; None is all. AttributeValueError for what is outside or doubled."""
    if axes is None:
        return tuple(range(ndim))
    try:
        given = tuple(map(index, axes)) if isinstance(axes, Iterable) else (index(axes),)
    except TypeError:
        raise AttributeValueError(f"{op}: axes={axes!r} must be an int, ints or None") from None
    if any(not -ndim <= a < ndim for a in given):
        raise AttributeValueError(f"{op}: axes {given} for an array of {ndim} axes; each must lie in [{-ndim}, {ndim})")
    found = tuple(sorted(a % ndim for a in given))
    if len(set(found)) != len(found):
        raise AttributeValueError(f"{op}: axes {given} name an axis twice")
    return found
