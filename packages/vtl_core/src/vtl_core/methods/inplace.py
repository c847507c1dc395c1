"""Methods that change a tensor in place, and what they refuse.

Without gradients the memory is written and its version goes up, so a backward pass that saved it says so. A tensor
that gradients flow through is given a new value instead, and other tensors on its old memory keep the old one; a leaf
that requires gradients, and a view of another tensor, cannot be changed that way and raise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vsl_compute.dispatch import run as launch
from vsl_compute.dtypes import DType
from vsl_compute.errors import DTypeError, GraphError, ShapeError

from ..autograd import gates, node
from ..autograd.node import Traced, mode
from ..foreign import foreign
from .operators import ADD, DIVIDE, MULTIPLY, SUBTRACT, Operators, operand

if TYPE_CHECKING:
    from ..tensor import Tensor

Value = Any  # a tensor, a number, or NumPy's of either


def require_writable(name: str, x: Traced) -> None:
    """GraphError if `x` is a leaf that gradients are wanted of, or looks at memory of another tensor."""
    if x.tracked and x.node is None:
        raise GraphError(
            f"{name}: the tensor is a leaf that requires gradients; change it inside vtl.no_grad(), or change a clone()"
        )
    if (x.node is not None and getattr(x.node.gate, "shares", False)) or x.raw.nbytes != x.raw.buffer.nbytes:
        raise GraphError(
            f"{name}: the tensor is a view of another, and gradients flow through it; compute a new tensor instead"
        )


def fitting(name: str, value: Value, dtype: DType) -> Value:
    """`value` in `dtype`; DTypeError where that would lose its kind (a float written into integers)."""
    if not isinstance(value, Traced) or value.dtype is dtype:
        return value
    order = "biuf"
    if order.index(value.dtype.kind) > order.index(dtype.kind) and not (value.dtype.is_integer and dtype.is_integer):
        raise DTypeError(f"{name}: {value.dtype.name} cannot be written into {dtype.name}; cast it with to()")
    return gates.run("astype", value, dtype=dtype)


class InPlace(Operators):
    """Names that end in an underscore, and `+=` and its like."""

    __slots__ = ()

    def _change(self, name: str, op: Any, *args: Value, **options: Any) -> Tensor:
        args = tuple([fitting(name, a, self.dtype) for a in args])
        if mode.enabled and (self.tracked or any(isinstance(a, Traced) and a.tracked for a in args)):
            require_writable(name, self)
            return self._rebind(name, gates.run(op, self, *args, **options))
        launch(op, self.raw, *[a.raw if isinstance(a, Traced) else a for a in args], out=self.raw, **options)
        return self  # type: ignore[return-value]  # every InPlace is a Tensor

    def _rebind(self, name: str, made: Tensor) -> Tensor:
        if made.shape != self.shape or made.dtype is not self.dtype:
            raise ShapeError(
                f"{name}: the result is {made.dtype.name}{list(made.shape)}, the tensor {self.dtype.name}{list(self.shape)}"
            )
        self.raw, self.node, self.output, self.tracked = made.raw, made.node, made.output, made.tracked
        return self  # type: ignore[return-value]

    def add_(self, other: Value) -> Tensor:
        """self += other."""
        return self._change("add_", ADD, other)

    def sub_(self, other: Value) -> Tensor:
        """self -= other."""
        return self._change("sub_", SUBTRACT, other)

    def mul_(self, other: Value) -> Tensor:
        """self *= other."""
        return self._change("mul_", MULTIPLY, other)

    def div_(self, other: Value) -> Tensor:
        """self /= other."""
        return self._change("div_", DIVIDE, other)

    def clamp_(self, min: float | None = None, max: float | None = None) -> Tensor:
        """Put `clamp` of the tensor in its place."""
        return self.copy_(self.clamp(min, max))

    def fill_(self, value: float) -> Tensor:
        """Write one number everywhere."""
        if mode.enabled and self.tracked:
            require_writable("fill_", self)
            return self._rebind("fill_", gates.run("fill_like", self.detach(), alpha=value))
        launch("fill", alpha=value, out=self.raw)
        return self  # type: ignore[return-value]

    def zero_(self) -> Tensor:
        """Write zero everywhere."""
        return self.fill_(0)

    def copy_(self, source: Tensor) -> Tensor:
        """Write the elements of `source`, broadcast and cast, from whatever device it is on."""
        if (refused := foreign("copy_", (source,), (Traced,))) is not None:
            raise refused
        source = source.to(self.raw.device)
        value = source if source.shape == self.shape else source.expand(self.shape)
        if mode.enabled and (self.tracked or value.tracked):
            require_writable("copy_", self)
            return self._rebind(
                "copy_",
                gates.run("copy", value) if value.dtype is self.dtype else gates.run("astype", value, dtype=self.dtype),
            )
        launch("copy", value.raw, out=self.raw)
        return self  # type: ignore[return-value]

    def detach(self) -> Tensor:
        """The same memory, through which no gradient flows."""
        return node.wrap(self.raw)

    def _assign(self, name: str, op: Any, other: Value) -> Tensor:
        """`+=`: in place, or where gradients flow a new tensor under the same name."""
        other = operand(self, other)
        if other is NotImplemented:
            return NotImplemented  # type: ignore[no-any-return]
        if mode.enabled and (self.tracked or (isinstance(other, Traced) and other.tracked)):
            if self.tracked and self.node is None:
                require_writable(name, self)
            return gates.run(op, self, other)  # type: ignore[no-any-return]
        return self._change(name, op, other)

    def __iadd__(self, other: Value) -> Tensor:
        return self._assign("+=", ADD, other)

    def __isub__(self, other: Value) -> Tensor:
        return self._assign("-=", SUBTRACT, other)

    def __imul__(self, other: Value) -> Tensor:
        return self._assign("*=", MULTIPLY, other)

    def __itruediv__(self, other: Value) -> Tensor:
        return self._assign("/=", DIVIDE, other)
