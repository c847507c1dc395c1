"""Functions on tensors, with the array API's names and arguments where it has them: `axis`, `keepdims`, `concat`.

`apply` and `update` are what layers and optimizers are made of: any entry of the op table, any update row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vsl_compute.dispatch import run_update
from vsl_compute.dtypes import DType
from vsl_compute.rows.row import Update

from .autograd import gates
from .tensor import Tensor


def apply(op: Any, /, *tensors: Any, **attributes: Any) -> Any:
    """Run an entry of the op table, by name or as a row of one's own, so that gradients flow through it.

    Tensors, numbers and (for optional arguments) None in; one tensor back, or a tuple of the op's outputs.

    Errors: ShapeError, DTypeError, DeviceError, AttributeValueError, UnsupportedError, each naming op, given and rule
    """
    return gates.run(op, *tensors, **attributes)


def update(row: str | Update, tensors: Sequence[Sequence[Tensor]], scalars: Mapping[str, float]) -> None:
    """Run a fused update row in place over tuples of tensors, one tuple a parameter; no gradient is remembered.

    Shapes: the tensors of a tuple alike, 0-d slots apart
    Errors: ShapeError, DTypeError, AttributeValueError naming the row
    """
    run_update(row, [[t.raw for t in group] for group in tensors], dict(scalars))


__all__ = ["apply", "update"]
