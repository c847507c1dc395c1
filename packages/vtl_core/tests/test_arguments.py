"""Arguments of a wrong type: the function's annotations are the rule, and the call that failed says which one it broke."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol

import numpy as np
import pytest

import vtl_core as vtl
from vtl_core.arguments import explain, fits, said, short


class Readable(Protocol):
    def read(self) -> str: ...


ALLOWED: list[tuple[Any, list[Any], list[Any]]] = [
    (int, [3, np.int64(3), np.array(3), vtl.tensor(3)], [True, 3.0, "3", None, [3], vtl.tensor(3.0), np.ones(2, int)]),
    (float, [3, 0.5, np.float32(1), vtl.tensor(0.5), np.array(2.0)], ["0.5", None, 1j, [0.5], vtl.ones(2), np.array(1j)]),
    (bool, [True, np.True_, 1, None], ["no", [True], np.ones(2), vtl.ones(2), {}, len, int]),
    (str, ["x"], [3, None, b"x"]),
    (int | None, [3, None], ["x", 1.5]),
    (vtl.Tensor, [vtl.ones(2)], [np.ones(2), 3, [1.0], None]),
    (Callable[[int], float], [len, lambda x: x], ["len", None]),
    (Iterable[int], [[1], (1, 2), range(3), iter([1]), np.arange(3), {1}], [3, None, ["a"], vtl.tensor(3)]),
    (Sequence[int], [[1], (), range(3), np.arange(3)], [3, "12", ["a"], [None], {1: 2}, iter([1]), np.ones(3), np.ones((2, 2), int)]),
    (tuple[int, int], [(1, 2), [1, 2]], [(1,), (1, 2, 3), 3, (1, "a")]),
    (tuple[int, ...], [(), (1, 2, 3)], [(1, "a"), 3]),
    (Mapping[str, Any], [{}, {"a": 1}], [[], None, "x"]),
    (Literal["none", "tanh"], ["none"], ["x", 3, None]),
    (Readable, [open], [3, None]),
    (Any, [object(), None], []),
]  # fmt: skip


@pytest.mark.parametrize(("hint", "right", "wrong"), ALLOWED, ids=[str(hint) for hint, _, _ in ALLOWED])
def test_what_an_annotation_allows(hint, right, wrong):
    if hint is Readable:
        right = [type("File", (), {"read": lambda self: ""})()]

    assert [value for value in right if not fits(value, hint)] == []
    assert [value for value in wrong if fits(value, hint)] == []


def test_what_is_wanted_is_said_in_words():
    assert said(int | None) == "an integer or None"
    assert said(float) == "a number"
    assert said(vtl.Tensor | None) == "a tensor or None"
    assert said(Sequence[int]) == "a sequence, each of it an integer"
    assert said(tuple[int, float]) == "a tuple of an integer, a number"
    assert said(Literal["a", "b"]) == "one of 'a', 'b'"
    assert said(vtl.Generator | None) == "a Generator or None"


def test_what_was_given_is_one_short_line():
    assert short(np.ones((2, 3), np.float32)) == "a float32 array (2, 3)"
    assert short(vtl.ones(2, 3)) == "a float32 tensor (2, 3)"
    assert len(short("x" * 1000)) == 60
    assert "\n" not in short({1: "a\nb"})


def scaled(x: vtl.Tensor, by: float = 2.0, *, times: int = 1, then: Callable[..., Any] | None = None) -> Any:
    for _ in range(times):
        x = x * (by + 0.0)
    return x if then is None else then(x)


class Shelf:
    def __init__(self, size: int, label: str = "") -> None:
        self.size, self.label = size, label

    def put(self, place: int) -> int:
        return [0] * self.size and [0, 1][place]

    @classmethod
    def of(cls, items: Sequence[int]) -> Shelf:
        return cls(len(items))


space: dict[str, Any] = {"__name__": __name__, "scaled": scaled, "Shelf": type("Shelf", (Shelf,), dict(vars(Shelf)))}
explain(space, whole=True)


def test_the_argument_is_named_with_what_was_given_and_what_is_wanted():
    with pytest.raises(vtl.ArgumentTypeError, match=r"^scaled: times='2' must be an integer$"):
        space["scaled"](vtl.ones(2), times="2")
    with pytest.raises(vtl.ArgumentTypeError, match=r"^scaled: by=\[2\] must be a number$") as caught:
        space["scaled"](vtl.ones(2), [2])
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, vtl.AttributeValueError)
    assert isinstance(caught.value.__cause__, TypeError), "what Python said"
    with pytest.raises(vtl.DTypeError, match=r"scaled: argument 1 is a str, not a tensor; wrap it: vtl\.asarray"):
        space["scaled"]("x")


def test_what_a_users_function_raises_is_left_as_it_is():
    def fail(x):
        raise ValueError("bad 7")

    with pytest.raises(ValueError, match=r"^bad 7$"):
        space["scaled"](vtl.ones(2), then=fail)


def test_arguments_that_are_unknown_missing_or_too_many_are_refused_with_those_that_there_are():
    with pytest.raises(vtl.ArgumentTypeError) as caught:
        space["scaled"](vtl.ones(2), twice=1)
    assert str(caught.value) == (
        "scaled: got an unexpected keyword argument 'twice'; it takes (x, by=2.0, *, times=1, then=None)"
    )
    assert isinstance(caught.value, TypeError)
    with pytest.raises(
        vtl.ArgumentTypeError, match=r"^Shelf: missing a required argument: 'size'; it takes \(size, label=''\)$"
    ):
        space["Shelf"]()
    with pytest.raises(vtl.ArgumentTypeError, match=r"^Shelf\.put: too many positional arguments; it takes \(place\)$"):
        space["Shelf"](2).put(0, 1)
    with pytest.raises(vtl.ArgumentTypeError, match=r"^sum: .* 'dim'; it takes \(x, /, \*, axis=None"):
        vtl.sum(vtl.ones(2, 3), dim=1)


def test_a_users_function_that_calls_itself_wrongly_is_left_as_it_is():
    with pytest.raises(TypeError, match="base2"):
        space["scaled"](vtl.ones(2), then=lambda x: int("1", base2=3))


def test_what_makes_an_object_is_judged_even_if_it_went_well():
    kind = space["Shelf"]
    with pytest.raises(vtl.ArgumentTypeError, match=r"^Shelf: label=3 must be text$"):
        kind(2, 3)
    with pytest.raises(vtl.ArgumentTypeError, match=r"^Shelf\.put: place='a' must be an integer$"):
        kind(2).put("a")
    with pytest.raises(vtl.ArgumentTypeError, match=r"^Shelf\.of: items=3 must be a sequence"):
        kind.of(3)
    assert kind(np.int64(2), "ok").put(0) == 0


def test_an_error_is_one_line_whatever_it_names():
    with pytest.raises(vtl.DeviceError) as caught:
        vtl.ones(2, device=vtl.ones(20, 2))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "make", [vtl.randperm, vtl.eye, lambda n: vtl.linspace(0, 1, n)], ids=["randperm", "eye", "linspace"]
)
def test_sizes_of_numpy_are_sizes_and_leave_the_generator_as_it_counts(make):
    """A generator once counted in np.int32 from there on, and its next draw overflowed."""
    generator = vtl.default_context().generator

    assert make(np.int32(3)).shape[0] == 3

    assert type(generator.offset) is int
    vtl.rand(3)


@pytest.mark.parametrize("bound", [float("nan"), float("inf")])
def test_a_range_without_an_end_is_refused(bound):
    for make in (lambda: vtl.arange(bound), lambda: vtl.arange(0, 3, bound), lambda: vtl.linspace(0, bound, 3)):
        with pytest.raises(vtl.AttributeValueError, match="must be finite"):
            make()


def test_an_integer_past_every_float_is_refused_by_the_op():
    with pytest.raises(OverflowError, match=r"^add: an integer of 1329 bits does not fit a float"):
        vtl.ones(2) + 10**400


@pytest.mark.parametrize(
    "make",
    [
        lambda: vtl.arange(0, 1, 1e-300),
        lambda: vtl.arange(10**30),
        lambda: vtl.linspace(0, 1, 10**30),
        lambda: vtl.eye(2**40),
    ],
    ids=["a small step", "arange", "linspace", "eye"],
)
def test_more_elements_than_any_memory_holds_are_refused_as_that(make):
    with pytest.raises(vtl.OutOfMemoryError, match="elements are more than any memory holds"):
        make()
