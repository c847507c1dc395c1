"""Which dtypes a row's kernel is made for, and the Values of a row: what C text and SPIR-V have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from .. import dtypes
from ..dtypes import DType, bool_, dtype_of
from ..errors import RowError
from .dag import Builder, Macro, Value, uses
from .expression import names_in, parse
from .hoist import Hoisted, hoist, hoist_all
from .row import Row, Update
from .signature import LETTERS

Native = Callable[[str, DType], bool]


@dataclass(frozen=True)
class Lowered:
    """A row as Values over its arguments: `number` is the compute dtype, `hoisted` what the host supplies, in `numbers`' dtypes."""

    number: DType
    results: tuple[tuple[str, Value], ...]  # name, value; a row has one result, "y"
    hoisted: Hoisted
    numbers: tuple[DType, ...]
    read: tuple[str, ...]  # arguments that are loaded


def compute_dtype(dtype: DType) -> DType:
    """The DType that an element is computed in."""
    return dtype_of(dtype.compute)


def assignments(row: Row) -> Iterator[dict[str, DType]]:
    """Every choice of storage dtypes, letter by letter, that a row's signature admits."""
    letters = sorted(set(row.signature.inputs + row.signature.outputs))
    admitted = [[d for d in dtypes.ALL if d.kind in LETTERS[letter]] for letter in letters]
    for chosen in product(*admitted):
        stored = dict(zip(letters, chosen, strict=True))
        if in_one_kind(stored):
            yield stored


def in_one_kind(stored: Mapping[str, DType]) -> bool:
    """Whether a kernel takes these as they are: n beside f is another floating dtype, and integers there are cast first."""
    return "n" not in stored or "f" not in stored or stored["n"].is_floating


def number_dtype(name: str, stored: Mapping[str, DType]) -> DType:
    """The dtype that a kernel's numbers have: the widest that its arrays are computed in; beside n or f, i only counts."""
    numbers = [d for letter, d in stored.items() if d.kind != "b" and (letter != "i" or not set(stored) & {"n", "f"})]
    computed = {compute_dtype(d) for d in numbers}
    if len(computed) > 1 and {d.kind for d in computed} != {"f"}:
        raise RowError(
            f"{name}: {', '.join(sorted(d.name for d in computed))} in one kernel; its numbers have one dtype"
        )
    return max(computed, key=lambda d: d.itemsize) if computed else dtypes.int32


def argument_dtype(letter: str, stored: DType, number: DType) -> DType:
    """What an argument is computed in: bool stays bool, an index beside other numbers its own integer, the rest `number`."""
    return bool_ if letter == "b" else compute_dtype(stored) if letter == "i" else number


def _numbers(roots: Sequence[Value], hoisted: Hoisted, number: DType) -> tuple[DType, ...]:
    """The dtype of each hoisted number, by where it stands; RowError if it stands in two."""
    found: dict[str, DType] = {}
    for value in uses(roots):
        if value.op == "name" and found.setdefault(str(value.data), value.dtype) is not value.dtype:
            raise RowError(
                f"the number {value.data!r} is wanted as {value.dtype.name} and as {found[str(value.data)].name}"
            )
    return tuple(found.get(name, number) for name, _ in hoisted)


def lower_row(row: Row, stored: Mapping[str, DType], native: Native, *, host: frozenset[str] = frozenset(),
              macros: Mapping[str, Macro] | None = None) -> Lowered:  # fmt: skip
    """A row's Values for these storage dtypes (by letter); arguments named in `host` are numbers like its scalars.

    Errors:  RowError if the row has no meaning in the dtype, or needs a function that the target lacks
    """
    used = {letter: stored[letter] for letter in row.signature.inputs + row.signature.outputs}
    number = number_dtype(row.name, used)
    tree, hoisted = hoist(parse(row.value, (*row.args, *row.scalars)), (*row.scalars, *host))
    limits = used.get(row.signature.outputs, number)
    builder = Builder(number, native=native, limits=limits if limits.kind != "b" else number, macros=macros,
                      free=[name for name, _ in hoisted])  # fmt: skip
    names: dict[str, Value] = {}
    for name, letter in zip(row.args, row.signature.inputs, strict=True):
        if name not in host:
            names[name] = builder.name(name, argument_dtype(letter, used[letter], number))
        elif letter == "b":
            raise RowError(f"{row.name}: the truth value {name!r} must be an array")
    value = builder.build(tree, names)
    return Lowered(number, (("y", value),), hoisted, _numbers([value], hoisted, number), tuple(names))


def update_parts(row: Update) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """The statements for every element, and those that the 0-d slots need, which run once and afterwards.

    Errors:  RowError if a 0-d slot is computed from an array that has elements
    """
    slots = [name for name in row.written if name in row.zero_d]
    allowed = {*row.zero_d, *row.scalars}
    once: list[tuple[str, str]] = []
    for target, text in row.statements:
        names = {*row.arrays, *row.scalars, *(t for t, _ in row.statements)}
        from_slots = all(name in allowed for name in _reads(text, tuple(sorted(names))))
        if target in slots and not from_slots:
            raise RowError(f"update {row.name!r}: the 0-d slot {target!r} is computed from arrays that have elements")
        if from_slots and slots and target not in row.arrays:
            allowed.add(target)
        if from_slots and slots and (target in slots or target not in row.arrays):
            once.append((target, text))
    return list(row.statements), once


def _reads(text: str, names: tuple[str, ...]) -> frozenset[str]:
    return names_in(parse(text, names))


def lower_update(row: Update, statements: list[tuple[str, str]], stored: Mapping[str, DType], native: Native, *,
                 macros: Mapping[str, Macro] | None = None) -> Lowered:  # fmt: skip
    """An update's statements as Values; results are the arrays assigned, each with its last value."""
    number = number_dtype(row.name, stored)
    names = tuple(sorted({*row.arrays, *row.scalars, *(t for t, _ in row.statements)}))
    trees, hoisted = hoist_all([parse(text, names) for _, text in statements], row.scalars)
    builder = Builder(number, native=native, macros=macros, free=[name for name, _ in hoisted])
    known = {name: builder.name(name, number) for name in row.arrays}
    read: set[str] = set()
    assigned: set[str] = set()
    for (target, text), tree in zip(statements, trees, strict=True):
        read |= _reads(text, names) & set(row.arrays) - assigned
        known[target] = builder.build(tree, known)
        assigned.add(target)
    results = tuple((name, known[name]) for name in row.written if name in assigned)
    numbers = _numbers([value for _, value in results], hoisted, number)
    return Lowered(number, results, hoisted, numbers, tuple(name for name in row.arrays if name in read))
