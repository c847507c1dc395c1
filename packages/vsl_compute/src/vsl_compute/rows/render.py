"""Values as text of a C-like kernel language: every operation bracketed, so precedence is never in question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..dtypes import DType
from .dag import Value, uses
from .dialect import Dialect
from .functions import FUNCTIONS
from .prelude import SHORT

_LOGICAL = {"&": "&&", "|": "||", "^": "!="}
_WRAPPING = {"+": "add", "-": "sub", "*": "mul"}
_HELPERS = {"//": "floordiv", "%": "mod", "<<": "shl", ">>": "shr"}
_OWN = frozenset({"maximum", "minimum", "sign", "isnan", "isinf", "tanh"})  # in the prelude


def native(function: str, dtype: DType) -> bool:
    """Whether C-like languages have this function, or the prelude brings it; the rest is expanded by its definition."""
    return function == "erf" or (
        FUNCTIONS[function].definition is None and (dtype.is_floating or FUNCTIONS[function].kind == "n")
    )


def statements(dialect: Dialect, roots: Sequence[Value], names: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Lines that compute what is read more than once, and the expression of each root; `names` maps names to C's."""
    lines: list[str] = []
    texts: dict[Value, str] = {}
    for value, count in uses(roots).items():
        text = _text(dialect, value, [texts[a] for a in value.args], names)
        if count > 1 and value.args:
            lines.append(f"const {dialect.type_of(value.dtype)} t{len(lines)} = {text};")
            text = f"t{len(lines) - 1}"
        texts[value] = text
    return lines, [texts[root] for root in roots]


def _text(dialect: Dialect, value: Value, args: list[str], names: Mapping[str, str]) -> str:
    op, dtype = value.op, value.dtype
    operand = value.args[0].dtype if value.args else dtype
    suffix = SHORT[operand.name]
    match op:
        case "constant":
            return str(bool(value.data)).lower() if dtype.kind == "b" else dialect.literal(value.data, dtype)  # type: ignore[arg-type]  # a number
        case "name":
            return names[str(value.data)]
        case "select":
            return f"({args[0]} ? {args[1]} : {args[2]})"
        case "~":
            return f"(!{args[0]})" if dtype.kind == "b" else f"(~{args[0]})"
        case "neg":
            return f"neg_{suffix}({args[0]})" if dtype.kind == "i" else f"(-{args[0]})"
        case "abs" if not dtype.is_floating:
            return f"abs_{suffix}({args[0]})" if dtype.kind == "i" else args[0]
    if op in _OWN:
        return f"{op}_{suffix}({', '.join(args)})"
    if op in FUNCTIONS:
        return f"{dialect.function_of(op, operand)}({', '.join(args)})"
    if op in _HELPERS:
        return f"{_HELPERS[op]}_{suffix}({', '.join(args)})"
    if op in _WRAPPING and dtype.kind == "i":
        return f"{_WRAPPING[op]}_{suffix}({', '.join(args)})"
    if op in _LOGICAL and dtype.kind == "b":
        op = _LOGICAL[op]
    return f"({args[0]} {op} {args[1]})"
