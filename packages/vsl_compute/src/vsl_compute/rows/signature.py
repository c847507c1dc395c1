"""Row signatures such as "nn>n": one letter an argument, then the outputs; the same letter is the same dtype.

b is bool, i an integer, n a real number (integer or floating), f floating, a any of these (what only moves data takes
it); c is reserved for complex.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..dtypes import DType, bool_, float32, promote
from ..errors import DTypeError, RowError

LETTERS = {"b": "b", "i": "iu", "n": "iuf", "f": "f", "a": "biuf"}
MEANING = {"b": "bool", "i": "integer", "n": "integer or floating", "f": "floating", "a": "any dtype"}


@dataclass(frozen=True)
class Signature:
    """Letters of the arguments and of the outputs."""

    inputs: str
    outputs: str

    @staticmethod
    def parse(text: str) -> Signature:
        """Read "nn>n"; RowError for letters that mean nothing."""
        inputs, arrow, outputs = text.partition(">")
        if not arrow or not outputs or set(inputs + outputs) - set(LETTERS):
            raise RowError(f"signature {text!r} is not letters of {''.join(LETTERS)}, '>', letters")
        return Signature(inputs, outputs)

    def resolve(self, name: str, dtypes: tuple[DType | None, ...]) -> dict[str, DType]:
        """The dtype of each letter for these arguments (None: a Python scalar, which adapts); DTypeError names the rule.

        Integers given where floating is needed become float32, as in the promotion table.
        """
        found: dict[str, DType] = {}
        for letter, dtype in zip(self.inputs, dtypes, strict=True):
            if dtype is not None:
                found[letter] = promote(found[letter], dtype) if letter in found else dtype
        for letter, dtype in found.items():
            if letter == "f" and dtype.is_integer:
                found[letter] = float32
            elif dtype.kind not in LETTERS[letter]:
                given = ", ".join(d.name if d else "scalar" for d in dtypes)
                raise DTypeError(f"{name}: given ({given}), but takes {MEANING[letter]}; cast with astype")
        found.setdefault("b", bool_)
        return found


def argument_names(signature: Signature) -> tuple[str, ...]:
    """x for one argument, a b for two, c a b where the first is a lone bool."""
    count = len(signature.inputs)
    names = {0: (), 1: ("x",), 2: ("a", "b"), 3: ("c", "a", "b")}.get(count)
    if names is None or (count == 3 and signature.inputs[0] != "b"):
        raise RowError(f"signature with arguments {signature.inputs!r} needs args= to name them")
    return names
