"""Casts by PyTorch's names. They stand alone: beside them, `float` and `bool` would no longer mean Python's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vsl_compute import dtypes
from vsl_compute.dtypes import DType

from ..autograd import gates
from .inplace import InPlace

if TYPE_CHECKING:
    from ..tensor import Tensor


class Casts(InPlace):
    """The tensor in another dtype; itself if it has it already."""

    __slots__ = ()

    def _cast(self, dtype: DType) -> Tensor:
        return self if dtype is self.dtype else gates.run("astype", self, dtype=dtype)  # type: ignore[return-value]  # every Casts is a Tensor

    def double(self) -> Tensor:
        """float64."""
        return self._cast(dtypes.float64)

    def half(self) -> Tensor:
        """float16."""
        return self._cast(dtypes.float16)

    def bfloat16(self) -> Tensor:
        """bfloat16."""
        return self._cast(dtypes.bfloat16)

    def long(self) -> Tensor:
        """int64; floats lose their fraction."""
        return self._cast(dtypes.int64)

    def float(self) -> Tensor:
        """float32."""
        return self._cast(dtypes.float32)

    def int(self) -> Tensor:
        """int32; floats lose their fraction."""
        return self._cast(dtypes.int32)

    def bool(self) -> Tensor:
        """Whether each element is not zero."""
        return self._cast(dtypes.bool_)
