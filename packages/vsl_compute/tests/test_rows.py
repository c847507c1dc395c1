"""What no kernel can say is refused by name, when the row is made; those of our tables here, as parsing them takes time."""

from __future__ import annotations

import re

import pytest

from vsl_compute.errors import RowError
from vsl_compute.rows.elementwise import ROWS
from vsl_compute.rows.row import Reduction, row, update
from vsl_compute.rows.signature import Signature
from vsl_compute.rows.updates import UPDATES


@pytest.mark.parametrize(
    ("value", "gradient", "words"),
    [
        ("a + sin(", "g", "was never closed"),
        ("a + c", "g", "'c' names neither an argument nor a constant"),
        ("a.real", "g", "not part of the grammar"),
        ("exp(a, b)", "g", "exp takes 1 arguments, not 2"),
        ("a < b", "g", "differ in kind"),
        ("a + (a < b)", "g", "is a truth value where a number is needed"),
        ("where(a, b, 0)", "g", "the condition 'a' is not a truth value"),
        ("where(a < b, a < 1, b)", "g", "chooses between a truth value and a number"),
        ("a + b", "g * q", "'q' names neither"),
        ("a + b", "g & (a < b)", "joins a truth value and a number"),
    ],
)
def test_a_slip_in_a_row_is_refused_when_it_is_made(value: str, gradient: str, words: str):
    with pytest.raises(RowError, match=re.escape(words)):
        row("slipped", "ff>f", value, gradient, None)


def test_a_row_whose_shape_is_wrong_is_refused_when_it_is_made():
    with pytest.raises(RowError, match="do not fit signature"):
        row("one", "ff>f", "a", None, None, args="a")
    with pytest.raises(RowError, match="reserved"):
        row("y", "f>f", "y", None, args="y")
    with pytest.raises(RowError, match="1 gradients for 2 arguments"):
        row("few", "ff>f", "a", "g")


def test_a_slip_in_an_update_or_a_reduction_is_refused():
    with pytest.raises(RowError, match="may not be assigned"):
        update("u", "g p", "", "g = p")
    with pytest.raises(RowError, match="not an assignment"):
        update("u", "g p", "", "p + g")
    with pytest.raises(RowError, match="'m' names neither"):
        update("u", "g p", "", "p = p - m")

    def reduction(state: tuple[str, ...], combine: tuple[str, ...], finish: tuple[str, ...]) -> Reduction:
        signature = Signature.parse("n>n")
        return Reduction(
            "r", signature, state, ("0",), ("x",), combine, finish, frozenset(), None, None, "same", True, False
        )

    with pytest.raises(RowError, match="one expression a state name"):
        reduction(("s", "t"), ("s1 + s2",), ("s",))
    with pytest.raises(RowError, match="2 finish expressions"):
        reduction(("s",), ("s1 + s2",), ("s", "s"))
    with pytest.raises(RowError, match="'z' names neither"):
        reduction(("s",), ("s1 + z",), ("s",))
    reduction(("s",), ("s1 + s2",), ("s",))


@pytest.mark.parametrize("entry", [*ROWS, *UPDATES], ids=lambda entry: entry.name)
def test_every_text_of_the_tables_is_of_the_grammar(entry):
    """They are not read at import, but each when it is first used."""
    assert entry.check() is entry


def test_a_row_of_a_table_with_a_slip_is_found_by_the_check():
    for slip in (
        row("r", "ff>f", "a + sin(", "g", "g", check=False),
        row("r", "ff>f", "a + b", "g * q", "g", check=False),
    ):
        with pytest.raises(RowError):
            slip.check()
    with pytest.raises(RowError):
        update("u", "g p", "", "p = p - m", check=False).check()
