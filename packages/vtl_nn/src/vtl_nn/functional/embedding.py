"""embedding."""

from __future__ import annotations

import vtl_core as vtl
from vtl_core import DTypeError, IndexRangeError, Tensor
from vtl_core.arguments import explain
from vtl_nn.functional.typing import as_tensor


def embedding(input: Tensor, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    """Rows of `weight` at the indices `input`; the row `padding_idx` gets no gradient.

    Shapes:  input (...), integers; weight (rows, features); result (..., features)
    """
    given: object = input
    if isinstance(given, Tensor) and not given.dtype.is_integer:
        raise DTypeError(f"embedding: indices are {given.dtype.name}; they must be integers: indices.long()")
    try:
        return as_tensor(vtl.apply("embedding", input, weight, padding_idx=padding_idx))
    except IndexRangeError as error:
        raise out_of_range("embedding: index", input, weight.shape[0], "rows", error) from None


def out_of_range(
    what: str, index: Tensor, count: int, unit: str, error: IndexRangeError, ignored: int | None = None
) -> IndexRangeError:
    """The same error, naming the first bad value."""
    values = index.detach().numpy().reshape(-1)
    bad = (
        values[((values < 0) | (values >= count)) & (values != ignored)]
        if ignored is not None
        else values[(values < 0) | (values >= count)]
    )
    return IndexRangeError(f"{what} {int(bad[0])} is outside [0, {count}), the {count} {unit}") if bad.size else error


explain(globals())
