"""CPU backends with one planted break each: what the conformance suite must catch (see test_suite_has_teeth.py).

Each break is what a real kernel gets wrong: a bound rounded down, a stride or an offset forgotten, a cast that cuts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from vsl_compute.backends.cpu.backend import CPUBackend, native
from vsl_compute.dtypes import bfloat16, bfloat16_to_float32, float16, float64
from vsl_compute.view import Layout, View

NAME = "planted"


class Planted(CPUBackend):
    """The CPU backend under another name: without a break it passes."""

    name = NAME


class TailDropped(Planted):
    """Groups of four, and nobody wrote the rest."""

    def elementwise(self, row, out, args, scalars):
        last = out.size - out.size % 4
        before = np.array(native(out)).ravel()[last:]
        super().elementwise(row, out, args, scalars)
        if out.ndim == 1 and before.size:
            native(out)[last:] = before


class WritesPastTheEnd(Planted):
    """A launch rounded up, without a bound check."""

    def elementwise(self, row, out, args, scalars):
        super().elementwise(row, out, args, scalars)
        if out.size and out.offset:
            memory = out.buffer.handle.reshape(-1)
            end = out.offset + out.size
            if out.is_contiguous and end < memory.size:
                memory[end] = memory[end - 1]


def _restrided(view, change):
    return View(view.buffer, Layout.of(view.dtype, view.shape, change(view.strides)), view.offset)


class StrideOffByOne(Planted):
    """A stepped axis is read one element too close."""

    def elementwise(self, row, out, args, scalars):
        def nearer(strides):
            return tuple(s - 1 if s > 1 and i == len(strides) - 1 else s for i, s in enumerate(strides))

        args = [_restrided(a, nearer) if isinstance(a, View) and a.strides[-1:] == (2,) else a for a in args]
        super().elementwise(row, out, args, scalars)


class OffsetIgnored(Planted):
    """Reads start at the buffer, not at the view."""

    def elementwise(self, row, out, args, scalars):
        args = [
            View(a.buffer, a.layout, 0) if isinstance(a, View) and min(a.strides, default=0) >= 0 else a for a in args
        ]
        super().elementwise(row, out, args, scalars)


class BroadcastWrong(Planted):
    """Smaller arguments are repeated from the start, whichever axis is theirs."""

    def elementwise(self, row, out, args, scalars):
        def filled(a):
            if not isinstance(a, View) or a.shape == out.shape or not a.ndim:
                return a
            view = self.allocate(Layout.of(a.dtype, out.shape))
            native(view)[...] = np.resize(native(a), out.shape)
            return view

        super().elementwise(row, out, [filled(a) for a in args], scalars)


class NanSwallowed(Planted):
    """fmax where maximum was meant."""

    def elementwise(self, row, out, args, scalars):
        super().elementwise(row, out, args, scalars)
        if row.name == "relu" and out.dtype.is_floating and out.dtype is not bfloat16:
            native(out)[np.isnan(native(out))] = 0


class NanSwallowedInReductions(Planted):
    """The larger of NaN and a number is the number."""

    def reduce(self, row, outs, x, axes):
        if row.name == "max" and x.dtype.is_floating and x.dtype is not bfloat16 and x.size:
            copied = self.allocate(Layout.of(x.dtype, x.shape))
            native(copied)[...] = np.where(np.isnan(native(x)), -np.inf, native(x))
            x = copied
        super().reduce(row, outs, x, axes)


class DtypeWrong(Planted):
    """float64 goes through float32."""

    def elementwise(self, row, out, args, scalars):
        super().elementwise(row, out, args, scalars)
        if out.dtype is float64:
            with np.errstate(all="ignore"):
                native(out)[...] = native(out).astype(np.float32)


class StaleBuffer(Planted):
    """The second call of a shape finds a result in the cache and writes that."""

    def __init__(self, info):
        super().__init__(info)
        self.cached = {}

    def reduce(self, row, outs, x, axes):
        key = (row, x.layout, axes)
        if key not in self.cached:
            super().reduce(row, outs, x, axes)
            self.cached[key] = [np.array(native(out)) for out in outs]
        for out, result in zip(outs, self.cached[key], strict=True):
            native(out)[...] = result


class OperandsSwapped(Planted):
    """b / a."""

    def elementwise(self, row, out, args, scalars):
        super().elementwise(row, out, args[::-1] if row.name == "divide" else args, scalars)


class OperandsSwappedInUpdate(Planted):
    """The original's AdamW: the gradient where the parameter belongs."""

    def update(self, row, arrays, scalars):
        for group in arrays:
            copies = [np.array(native(view)) for view in group]
            super().update(row, [group], scalars)
            if row.name == "adamw":
                native(group[1])[...] += scalars[0] * scalars[-1] * (copies[1] - copies[0])


class AxisWrong(Planted):
    """The last axis is reduced, whichever was asked for."""

    def reduce(self, row, outs, x, axes):
        if row.name == "sum" and len(axes) == 1 and x.ndim > 1:
            total = native(x).sum(axis=-1) if x.dtype is not bfloat16 else native(x)[..., 0]
            native(outs[0])[...] = np.resize(total, outs[0].shape)
            return
        super().reduce(row, outs, x, axes)


class Truncates(Planted):
    """Stores to 16 bits cut the low bits off."""

    def copy(self, out, x):
        super().copy(out, x)
        if x.dtype.itemsize > 2 and x.dtype.is_floating and out.dtype in (bfloat16, float16):
            wide, target = native(x).astype(np.float64), native(out)
            got = bfloat16_to_float32(target) if out.dtype is bfloat16 else target
            up = np.abs(got.astype(np.float64)) > np.abs(wide)
            bits = target.view(np.uint16)
            bits[up & np.isfinite(wide)] -= 1


class OverlapIgnored(Planted):
    """Element by element, in order, reading what was just written; dispatch's copy is taken away too."""

    def elementwise(self, row, out, args, scalars):
        target = native(out)
        arrays = [np.broadcast_to(native(a), out.shape) if isinstance(a, View) else a for a in args]
        if row.name != "negative" or out.dtype is bfloat16:
            return super().elementwise(row, out, args, scalars)
        for place in np.ndindex(*out.shape):
            target[place] = -arrays[0][place]
        return None


class TransposeIgnored(Planted):
    """gemm reads b row by row, whatever its strides."""

    def gemm(self, out, a, b, *, alpha=1.0, beta=0.0):
        if b.ndim == 2 and b.strides == (1, b.shape[0]) and min(b.shape) > 1:
            b = View(b.buffer, Layout.of(b.dtype, b.shape), b.offset)
        super().gemm(out, a, b, alpha=alpha, beta=beta)


class BetaReadsOutput(Planted):
    """0 * NaN."""

    def gemm(self, out, a, b, *, alpha=1.0, beta=0.0):
        before = np.array(native(out))
        super().gemm(out, a, b, alpha=alpha, beta=beta)
        if out.dtype is not bfloat16 and out.dtype.is_floating and beta == 0:
            native(out)[...] += 0 * before


class DuplicatesLost(Planted):
    """out[index] += x, as NumPy does it."""

    def scatter_add(self, out, index, x, *, batch=0):
        if batch or out.dtype is bfloat16:
            return super().scatter_add(out, index, x, batch=batch)
        native(out)[native(index)] += native(x)
        return None


class LastOfEqualsWins(Planted):
    """argmax by >= ."""

    def reduce(self, row, outs, x, axes):
        super().reduce(row, outs, x, axes)
        if row.name == "argmax" and x.ndim == 2 and axes == (1,):
            native(outs[0])[...] = x.shape[1] - 1 - np.argmax(native(x)[:, ::-1], axis=1)


class WordsOutOfOrder(Planted):
    """Each thread draws a block of its own: element i has word i // 4 of another block."""

    def random(self, out, *, kind, key, counter):
        super().random(out, kind=kind, key=key, counter=counter)
        if out.size % 4 == 3 and out.ndim == 1:
            native(out)[...] = native(out)[::-1]


class KernelFlipped(Planted):
    """An override of conv2d that convolves, where correlation is meant."""

    def override(self, op):
        if op != "conv2d":
            return super().override(op)

        def conv2d(x, weight, bias=None, **options):
            from vsl_compute import dispatch

            flipped = weight.slice(slice(None), slice(None), slice(None, None, -1), slice(None, None, -1))
            with dispatch.overrides(False):
                return dispatch.run("conv2d", x, flipped, bias, **options)

        return conv2d


class LeaksABuffer(Planted):
    """Every tenth result is kept for ever."""

    def __init__(self, info):
        super().__init__(info)
        self.kept = []

    def allocate(self, layout):
        view = super().allocate(layout)
        self.kept.append(view)
        return view


@dataclass(frozen=True)
class Break:
    """One planted break, the test that must catch it, and which of its cases (-k)."""

    backend: Callable
    module: str
    test: str
    cases: str = ""

    @property
    def node(self) -> str:
        """The test as pytest's --pyargs takes it."""
        return f"vsl_compute.conformance.{self.module}::{self.test}"


LAYOUT = "test_row_agrees_with_its_meaning_in_every_layout"
BREAKS = {
    "tail": Break(TailDropped, "test_rows", "test_row_agrees_with_its_meaning_at_every_size", "exp]"),
    "past-the-end": Break(WritesPastTheEnd, "test_rows", LAYOUT, "exp]"),
    "stride": Break(StrideOffByOne, "test_rows", LAYOUT, "exp]"),
    "offset": Break(OffsetIgnored, "test_rows", LAYOUT, "exp]"),
    "broadcast": Break(BroadcastWrong, "test_rows", "test_arguments_broadcast_and_mix_layouts", "hypot]"),
    "nan": Break(NanSwallowed, "test_rows", "test_nan_in_any_argument_is_nan_in_the_result", "relu]"),
    "nan-reduced": Break(NanSwallowedInReductions, "test_reduce", "test_nan_wins_and_the_first_of_equals_is_chosen"),
    "dtype": Break(DtypeWrong, "test_rows", LAYOUT, "exp]"),
    "stale": Break(StaleBuffer, "test_reduce", "test_reduction_agrees_with_its_meaning_over_every_axis", "sum]"),
    "operands": Break(OperandsSwapped, "test_rows", LAYOUT, "divide]"),
    "operands-of-update": Break(
        OperandsSwappedInUpdate, "test_updates", "test_update_agrees_with_its_paper_in_every_layout", "adamw]"
    ),
    "axis": Break(AxisWrong, "test_reduce", "test_reduction_agrees_with_its_meaning_over_every_axis", "sum]"),
    "rounding": Break(Truncates, "test_views", "test_g07_narrowing_rounds_to_nearest_even_once"),
    "overlap": Break(OverlapIgnored, "test_views", "test_partial_overlap_of_input_and_output_is_as_if_there_were_none"),
    "transpose": Break(
        TransposeIgnored, "test_gemm", "test_product_agrees_with_its_meaning_in_every_transposition", "17]"
    ),
    "beta": Break(BetaReadsOutput, "test_gemm", "test_g01_beta_zero_does_not_read_the_output"),
    "duplicates": Break(DuplicatesLost, "test_indexing", "test_b09_repeated_indices_add_up"),
    "ties": Break(LastOfEqualsWins, "test_reduce", "test_nan_wins_and_the_first_of_equals_is_chosen"),
    "words": Break(WordsOutOfOrder, "test_random", "test_element_i_takes_word_i_whatever_the_shape_and_layout"),
    "override": Break(KernelFlipped, "test_window", "test_convolution_takes_every_layout"),
    "leak": Break(LeaksABuffer, "test_memory", "test_buffers_go_with_their_last_view"),
}
