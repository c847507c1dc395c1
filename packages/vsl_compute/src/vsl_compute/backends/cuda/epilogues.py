"""Gradients of linear layers in fewer launches: what cuBLASLt adds up or masks while it multiplies.

Of a layer, its bias's gradient is added up by the product that gives its weight's (BGRADB). Of a linear layer, a ReLU and another
linear layer (`feed_forward`), the forward product also writes a bit for each hidden value, whether it was positive (RELU_AUX_BIAS),
and the product that goes back through the second layer masks its result by them and adds up the first bias's gradient
(DRELU_BGRAD). A search decides whether that is quicker than a product and its rows; what the library lacks, the body does.

Source: https://docs.nvidia.com/cuda/cublas/#cublasltepilogue-t, #cublasltmatmuldescattributes-t (EPILOGUE_AUX_LD), and nvmath-python's
linalg/_internal/epilog_protocol.py: the second operand of BGRADB is passed transposed, one term (k = 1) is not served, a mask's
columns begin at multiples of 128 bits.

To be confirmed on a card, since nothing here can: that the mask's bit of a NaN is 0, as the row's `y > 0` says, and which alignments
float32 is served at. The order of bits within a mask is the library's own affair.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...dtypes import DType, bfloat16, float16, float32
from ...errors import UnsupportedError
from ...ops.linear import RELU_GRADIENT
from ...precision import get_float32_matmul_precision
from ...rows.elementwise import TABLE as ROWS
from ...rows.reductions import TABLE as REDUCTIONS
from ...view import Layout, View
from ..shared.fused import Preparing
from ..shared.pool import LEAST, Leased, size_class
from ..shared.scratch import drawn
from ..shared.tuning import Key, octave
from .cublaslt import BGRADB, BIAS, DRELU_BGRAD, RELU_AUX_BIAS, RELU_BIAS, mask_line
from .layouts import matrix
from .products import BIASED, CublasProducts

if TYPE_CHECKING:
    from .backend import CUDABackend


# By how much of the largest two ways may differ: float32 holds every sum, a narrow one is rounded, as are those it is added up from.
ROUNDED = {float32: 0.0, float16: 2.0**-10, bfloat16: 2.0**-7}


class Masked(Leased):
    """Memory of a matrix and, behind it, of a bit for each of its elements: whether it was positive when it was made."""

    __slots__ = ("mask", "shape")
    shape: tuple[int, int]
    mask: int  # its address


class Epilogues:
    """The ops of one device."""

    def __init__(self, backend: CUDABackend, products: CublasProducts) -> None:
        self._backend, self._products = backend, products

    def overrides(self) -> dict[str, Callable[..., Any]]:
        """The ops by their names."""
        return {
            "linear_weight": self.linear_weight,
            "linear_relu_input": self.linear_relu_input,
            "feed_forward": self.feed_forward,
        }

    def preparing(self) -> dict[str, Preparing]:
        """By the op's name, what makes a call of given layouts ready."""
        return {
            "linear_weight": self._prepare_weight,
            "linear_relu_input": self._prepare_input,
            "feed_forward": self._prepare_forward,
        }

    # the ops
    def linear_weight(self, g: View, x: View) -> Any:
        """See ops.linear."""
        if not _rows(g, x) or not self._joins_weight(g, x):
            return NotImplemented
        weight, bias = self._fresh(g.dtype, (g.shape[1], x.shape[1])), self._fresh(g.dtype, (g.shape[1],))
        done = self._products.joined(weight, g.permute((1, 0)), x, BGRADB, bias.buffer.handle)
        return (weight, bias) if done else NotImplemented

    def linear_relu_input(self, g: View, weight: View, y: View) -> Any:
        """See ops.linear; only of a `y` whose mask was kept, by feed_forward."""
        mask = _mask_of(y)
        if not mask or not _rows(g, weight):
            return NotImplemented
        dx, bias = self._fresh(g.dtype, y.shape), self._fresh(g.dtype, y.shape[1:])
        done = self._products.joined(dx, g, weight, DRELU_BGRAD, bias.buffer.handle, mask)
        return (dx, bias) if done else NotImplemented

    def feed_forward(self, x: View, first: View, second: View, first_bias: View | None, second_bias: View | None) -> Any:  # fmt: skip
        """See ops.linear; its hidden values keep their mask."""
        rows = self._hidden_rows(x, first, second, first_bias)
        if rows is None:
            return NotImplemented
        assert first_bias is not None  # or there were none
        hidden = self._hidden(x.dtype, (rows.shape[0], first.shape[0]))
        if not self._forward(hidden, rows, first, first_bias):
            return NotImplemented
        y = self._products.linear(hidden, second, second_bias)
        if y is NotImplemented:
            y = self._fresh(x.dtype, (rows.shape[0], second.shape[0]))
            self._backend.gemm(y, hidden, second.permute((1, 0)))
            if second_bias is not None:
                self._backend.elementwise(ROWS["add"], y, (y, second_bias), ())
        return y.reshape((*x.shape[:-1], -1)), hidden.reshape((*x.shape[:-1], -1))

    # made ready
    def _prepare_weight(self, views: Sequence[View | None], options: Mapping[str, Any]) -> Callable[..., Any] | None:
        g, x = (v for v in views if v is not None)
        if not _rows(g, x) or not self._joins_weight(g, x):
            return None
        weight, bias = (Layout.of(g.dtype, shape) for shape in ((g.shape[1], x.shape[1]), (g.shape[1],)))
        run = self._products.ready(weight, g.permute((1, 0)).layout, x.layout, BGRADB)
        return self._pair(run, weight, bias, self.linear_weight, lambda *views: 0)

    def _prepare_input(self, views: Sequence[View | None], options: Mapping[str, Any]) -> Callable[..., Any] | None:
        g, weight, y = (v for v in views if v is not None)
        if not _rows(g, weight):
            return None
        dx, bias = Layout.of(g.dtype, y.shape), Layout.of(g.dtype, y.shape[1:])
        run = self._products.ready(dx, g.layout, weight.layout, DRELU_BGRAD)
        return self._pair(run, dx, bias, self.linear_relu_input, lambda g, weight, y: _mask_of(y) or None)

    def _prepare_forward(self, views: Sequence[View | None], options: Mapping[str, Any]) -> Callable[..., Any] | None:
        x, first, second, first_bias, second_bias = views
        assert x is not None
        assert first is not None
        assert second is not None
        rows = self._hidden_rows(x, first, second, first_bias)
        if rows is None or second_bias is None or second_bias.strides != (1,):
            return None
        shape, item, lead = (rows.shape[0], first.shape[0]), x.dtype.itemsize, x.shape[:-1]
        inner, outer = Layout.of(x.dtype, shape), Layout.of(x.dtype, (shape[0], second.shape[0]))
        forward = self._products.ready(inner, rows.layout, first.permute((1, 0)).layout, RELU_AUX_BIAS)
        onward = self._products.ready(outer, inner, second.permute((1, 0)).layout, BIAS)
        result, between = (Layout.of(x.dtype, (*lead, n)) for n in (second.shape[0], shape[1]))
        allocate, masked, override = self._backend.allocate, self._masked(inner, shape), self.feed_forward

        def call(x: View, first: View, second: View, first_bias: View, second_bias: View) -> Any:
            y, buffer = allocate(result), masked()
            at, x_at, first_at = (
                buffer.handle,
                x.buffer.handle + x.offset * item,
                first.buffer.handle + first.offset * item,
            )
            if forward(at, x_at, first_at, first_bias.buffer.handle + first_bias.offset * item, buffer.mask):
                second_at = second.buffer.handle + second.offset * item
                if onward(y.buffer.handle, at, second_at, second_bias.buffer.handle + second_bias.offset * item):
                    return y, View(buffer, between)
            return override(x, first, second, first_bias, second_bias)

        return call

    def _pair(self, run: Callable[..., bool], first: Layout, second: Layout, override: Callable[..., Any],
              mask_of: Callable[..., int | None]) -> Callable[..., Any]:  # fmt: skip
        """A product with a vector for its second result; the override where it has no plan yet, or no mask."""
        allocate, item = self._backend.allocate, first.dtype.itemsize

        def call(a: View, b: View, *more: View) -> Any:
            mask = mask_of(a, b, *more)
            if mask is not None:
                product, vector = allocate(first), allocate(second)
                a_at, b_at = a.buffer.handle + a.offset * item, b.buffer.handle + b.offset * item
                if run(product.buffer.handle, a_at, b_at, vector.buffer.handle, mask):
                    return product, vector
            return override(a, b, *more)

        return call

    # what they are made of
    def _fresh(self, dtype: DType, shape: tuple[int, ...]) -> View:
        return self._backend.allocate(Layout.of(dtype, shape))

    def _hidden_rows(self, x: View, first: View, second: View, first_bias: View | None) -> View | None:
        """x as rows, where its hidden values are to keep a mask."""
        if first_bias is None or not self._products.takes(x, first, first_bias) or not _rows(first, second):
            return None
        rows = x.reshape((x.size // first.shape[1], first.shape[1]))
        return rows if _rows(rows) and self._joins_hidden(rows, first, second) else None

    def _masked(self, layout: Layout, shape: tuple[int, int]) -> Callable[[], Masked]:
        """What makes memory for a matrix and its mask."""
        start = -(-layout.nbytes // LEAST) * LEAST
        nbytes = start + shape[0] * mask_line(shape[1]) // 8
        size, lease = size_class(nbytes), self._backend.lease

        def make() -> Masked:
            buffer = lease(Masked, size, nbytes)
            buffer.shape, buffer.mask = shape, buffer.handle + start
            return buffer

        return make

    def _hidden(self, dtype: DType, shape: tuple[int, int]) -> View:
        """A fresh matrix with room for its mask."""
        layout = Layout.of(dtype, shape)
        return View(self._masked(layout, shape)(), layout)

    def _forward(self, hidden: View, x: View, weight: View, bias: View) -> bool:
        at = bias.buffer.handle + bias.offset * bias.dtype.itemsize
        mask: int = hidden.buffer.mask  # type: ignore[attr-defined]  # it is Masked
        return self._products.joined(hidden, x, weight.permute((1, 0)), RELU_AUX_BIAS, at, mask)

    # which is quicker
    def _joins_weight(self, g: View, x: View) -> bool:
        def trial() -> _Trial:
            given, other = self._whole(g.dtype, g.shape, 1), self._whole(x.dtype, x.shape, 2)
            weight, bias = self._fresh(g.dtype, (g.shape[1], x.shape[1])), self._fresh(g.dtype, (g.shape[1],))
            turned = given.permute((1, 0))

            def run(joined: bool) -> bool:
                if joined:
                    return self._products.joined(weight, turned, other, BGRADB, bias.buffer.handle)
                self._backend.gemm(weight, turned, other)
                self._backend.reduce(REDUCTIONS["sum"], (bias,), given, (0,))
                return True

            return _Trial(self._backend, (weight, bias), run)

        return self._quicker("linear_weight", (*g.shape, x.shape[1]), g.dtype, trial)

    def _joins_hidden(self, x: View, first: View, second: View) -> bool:
        def trial() -> _Trial:
            given, g = self._whole(x.dtype, x.shape, 1), self._whole(x.dtype, (x.shape[0], second.shape[0]), 2)
            one, two = self._whole(x.dtype, first.shape, 3), self._whole(x.dtype, second.shape, 4)
            bias = self._whole(x.dtype, first.shape[:1], 5)
            self._backend.elementwise(ROWS["add"], bias, (bias, 0.5), ())  # no sum is 0, where a rounding would decide
            hidden = self._hidden(x.dtype, (x.shape[0], first.shape[0]))
            dx, summed = self._fresh(x.dtype, hidden.shape), self._fresh(x.dtype, hidden.shape[1:])

            def run(joined: bool) -> bool:
                if joined:
                    mask: int = hidden.buffer.mask  # type: ignore[attr-defined]  # it is Masked
                    there = self._forward(hidden, given, one, bias)
                    return there and self._products.joined(dx, g, two, DRELU_BGRAD, summed.buffer.handle, mask)
                turned = one.permute((1, 0))
                self._products.gemm(hidden, given, turned, alpha=1.0, beta=0.0, epilogue=RELU_BIAS, bias=bias)
                self._backend.gemm(dx, g, two)
                self._backend.elementwise(RELU_GRADIENT, dx, (dx, hidden), ())
                self._backend.reduce(REDUCTIONS["sum"], (summed,), dx, (0,))
                return True

            return _Trial(self._backend, (hidden, dx, summed), run)

        return self._quicker("feed_forward", (*x.shape, *second.shape), x.dtype, trial)

    def _quicker(self, family: str, sizes: Sequence[int], dtype: DType, trial: Callable[[], _Trial]) -> bool:
        tf32 = dtype is float32 and get_float32_matmul_precision() == "high"
        key = Key(family, "x".join(str(octave(n)) for n in sizes), f"{dtype.name} tf32" if tf32 else dtype.name)
        return self._backend.tuner.choose(key, {"apart": False, "joined": True}, trial)

    def _whole(self, dtype: DType, shape: tuple[int, ...], seed: int) -> View:
        """Whole numbers from -2 to 1, whose products and sums no order of adding changes."""
        base = drawn(self._backend, float32, shape, seed)
        self._backend.elementwise(ROWS["multiply"], base, (base, 2.0), ())
        self._backend.elementwise(ROWS["floor"], base, (base,), ())
        if dtype is float32:
            return base
        out = self._fresh(dtype, shape)
        self._backend.copy(out, base)
        return out


class _Trial:
    """A trial of a function that says whether it could, over several results: sums of whole numbers, rounded to their dtype."""

    host_share: float | None = None

    def __init__(self, backend: CUDABackend, outs: Sequence[View], run: Callable[[bool], bool]) -> None:
        self._backend, self._outs, self._run = backend, outs, run
        self.tolerance = ROUNDED[outs[0].dtype]

    def clear(self) -> None:
        """NaN in every element."""
        for out in self._outs:
            self._backend.elementwise(ROWS["fill"], out, (), (float("nan"),))

    def launch(self, candidate: bool) -> None:
        """Enqueue it; UnsupportedError where the library has no such product for this shape."""
        if not self._run(candidate):
            raise UnsupportedError("cuBLAS has no product with these epilogues for this shape")

    def result(self) -> np.ndarray[Any, Any]:
        """All results, once they are done."""
        return np.concatenate([self._backend.peek(out).ravel() for out in self._outs])


def _rows(*views: View) -> bool:
    """Matrices of a dtype with epilogues whose rows are dense and lie as cuBLAS reads them, of more than one row and column."""
    for view in views:
        if view.ndim != 2 or view.dtype not in BIASED or min(view.shape) < 2:
            return False
        found = matrix(view.shape, view.strides)
        if found is None or found.flag:
            return False
    return True


def _mask_of(y: View) -> int:
    """The address of the mask of a matrix as feed_forward made it; 0 if it has none, or was written to."""
    buffer = y.buffer
    if type(buffer) is not Masked or y.shape != buffer.shape or y.offset or buffer.version or not y.layout.c_order:
        return 0
    return buffer.mask
