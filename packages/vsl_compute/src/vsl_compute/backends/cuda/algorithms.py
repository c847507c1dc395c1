"""Which of cuBLASLt's algorithms a small product takes: those that the library names are timed on the device.

The library's heuristic guesses, and its first answer is not always the quickest: of 512 x 10 @ 10 x 512 in TF32 it takes 9 us on an
H200 where another takes 4. What the host spends on a call hardly differs among them, one launch or three (docs/adr/0064). Each algorithm's
results are compared with those of the first before it may be taken.
"""

from __future__ import annotations

import ctypes
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np

from ...dtypes import bfloat16, float16, float32, float64, uint32
from ...rows.elementwise import TABLE as ROWS
from ...view import Layout
from ..shared.scratch import drawn
from ..shared.tuning import Key
from .cublaslt import (
    ALGORITHM,
    AUX,
    BGRADB,
    COMPUTE_TF32,
    DRELU_BGRAD,
    RELU_AUX_BIAS,
    WORKSPACE,
    CublasLt,
    Matrix,
    Problem,
    Product,
    mask_line,
)  # fmt: skip

if TYPE_CHECKING:
    from .backend import CUDABackend

WANTED = 5  # algorithms that the library is asked for, and as many that cut no sum
SMALL = 1 << 27  # multiply-adds; larger products fill the device, and there the heuristic was right
MOST_BYTES = (
    1 << 26
)  # of an operand, gaps between its rows included: scratch must not take the memory that a step needs
HOST_SHARE = 0.15  # eager steps of small products wait for their host: 4 us of it count as much as 0.6 us of the device
# By how much of the largest value two algorithms may differ, which add in orders of their own: TF32 in float32's place is 5e-4 off.
# From LONG terms on it grows with the root of their number, for roundings walk at random (docs/adr/0050).
TOLERANCE = {float32: 2e-5, float64: 1e-13, float16: 2.0**-9, bfloat16: 2.0**-6}
TF32, LONG = 2e-3, 1 << 14


def candidates(backend: CUDABackend, problem: Problem) -> int:
    """How many algorithms a product is to choose among: one where nothing is searched for."""
    m, n, k = problem.shape
    item, spans = problem.dtype.itemsize, _spans(problem)
    small = m * n * k * problem.batch < SMALL and max(spans) * item <= MOST_BYTES
    return WANTED if backend.tuner.searches and small and min(problem.steps) >= 0 else 1


def choose(backend: CUDABackend, library: CublasLt, product: Product) -> None:
    """Give a product the quickest of its algorithms, found by a search or known from an earlier one."""
    named: dict[str, int] = {}
    for address in product.algorithms:
        named.setdefault(sha256(ctypes.string_at(address, ALGORITHM)).hexdigest()[:12], address)
    if len(named) > 1:
        problem = product.problem
        (m, n, k), flags = problem.shape, f"{problem.first.flag}{problem.second.flag}"
        words = (
            f"{flags} {problem.batch}x{m}x{n}x{k} lines {problem.out_line} {problem.first.line} {problem.second.line} "
            f"steps {problem.steps} of {problem.alignment} as {problem.compute} then {problem.epilogue} by {library.version}"
        )
        key = Key("cublaslt", words, problem.dtype.name)
        product.algorithm = backend.tuner.choose(key, named, lambda: _Trial(backend, library, product))


class _Trial:
    """A product of scratch operands that lie as its own do, with all that its epilogue reads and writes."""

    host_share: float | None = HOST_SHARE

    def __init__(self, backend: CUDABackend, library: CublasLt, product: Product) -> None:
        self._backend, self._library, self._product, problem = backend, library, product, product.problem
        (m, n, k), dtype, count = problem.shape, problem.dtype, problem.batch
        self.tolerance = (TF32 if problem.compute == COMPUTE_TF32 else TOLERANCE[dtype]) * max(1.0, (k / LONG) ** 0.5)
        _, first, second = _spans(problem)
        self._first, self._second = drawn(backend, dtype, (first,), 1), drawn(backend, dtype, (second,), 2)
        self._out = backend.allocate(Layout.of(dtype, (count, m, n), (problem.steps[0], problem.out_line, 1)))
        self._vector = drawn(backend, dtype, (max(m, n),), 3)
        self._mask = backend.allocate(Layout.of(uint32, (m, mask_line(n) // 32)))
        backend.random(self._mask, kind="bits", key=(4, 0), counter=(0, 0, 0, 0))
        self._sums = problem.epilogue in (BGRADB, DRELU_BGRAD)
        numbers = np.array([0, 1], np.float64 if dtype is float64 else np.float32)
        self._numbers, at = numbers, int(numbers.ctypes.data)  # held as long as they are pointed to
        self._zero, self._one = at, at + numbers.itemsize

    def clear(self) -> None:
        """NaN in every element that is written, no bit in the mask."""
        for view in (self._out, *([self._vector] if self._sums else [])):
            self._backend.elementwise(ROWS["fill"], view, (), (float("nan"),))
        if self._product.problem.epilogue == RELU_AUX_BIAS:
            self._backend.elementwise(ROWS["fill"], self._mask, (), (0,))

    def launch(self, candidate: int) -> None:
        """Enqueue it, as a step does."""
        library, product = self._library, self._product
        out = self._out.buffer.handle
        if product.problem.epilogue:
            mask = self._mask.buffer.handle if product.problem.epilogue & AUX else 0
            library.point(product, self._vector.buffer.handle, mask)
        before = self._backend.context.enter()
        try:
            library.calls.matmul(
                library.handle, product.description, self._one, self._second.buffer.handle, product.first,
                self._first.buffer.handle, product.second, self._zero, out, product.out, out, product.out, candidate,
                library.workspace, WORKSPACE, self._backend.queue.pointer,
            )  # fmt: skip
        except library.calls.cuBLASLtError as error:
            raise library.meaning(error) from error
        finally:
            self._backend.context.leave(before)

    def result(self) -> np.ndarray[Any, Any]:
        """The product, the epilogue's sums, and how many bits each row of its mask has, one more or less being no fault."""
        (m, n, _), epilogue = self._product.problem.shape, self._product.problem.epilogue
        found = [self._backend.peek(self._out).ravel().astype(np.float64)]
        if self._sums:
            found.append(self._backend.peek(self._vector)[: n if epilogue == DRELU_BGRAD else m].astype(np.float64))
        if epilogue == RELU_AUX_BIAS:
            bits = np.unpackbits(self._backend.peek(self._mask).view(np.uint8), axis=1, count=n, bitorder="little")
            found.append(bits.sum(axis=1) * self.tolerance)
        return np.concatenate(found)


def _spans(problem: Problem) -> tuple[int, int, int]:
    """Elements from the first to the last of out, first and second."""
    m, n, k = problem.shape

    def span(rows: int, columns: int, matrix: Matrix, step: int) -> int:
        lines, length = (columns, rows) if matrix.flag else (rows, columns)
        return (problem.batch - 1) * step + (lines - 1) * matrix.line + length

    out, first, second = problem.steps
    return (
        span(m, n, Matrix(0, problem.out_line), out),
        span(m, k, problem.first, first),
        span(k, n, problem.second, second),
    )
