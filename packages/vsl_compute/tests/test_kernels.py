"""Fixed kernels: every dtype renders in every dialect, and no text holds what the rules forbid. ci/render.py compiles them."""

from __future__ import annotations

import re
from itertools import product

import pytest

from vsl_compute.dtypes import ALL, FLOATING, INTEGER, float16, float32, float64, int64, uint32
from vsl_compute.kernels import convolution, order, order_group
from vsl_compute.kernels.gemm import REGISTER, REGISTER_WIDE, TILES, Access, accesses, render_gemm
from vsl_compute.kernels.indexing import (
    FOLDED,
    render_copy,
    render_copy_rows,
    render_fold,
    render_gather,
    render_gather_rows,
    render_keys,
    render_scatter,
    render_turn,
)
from vsl_compute.kernels.philox import numbers_per_block, render_dropout, render_random
from vsl_compute.kernels.reduce import reduction_dtypes, render_reduction
from vsl_compute.kernels.reduce_rows import RowShape, render_rows
from vsl_compute.random import words_for
from vsl_compute.rows.dialect import CUDA, OPENCL
from vsl_compute.rows.reductions import TABLE

DIALECTS = pytest.mark.parametrize("dialect", [CUDA, OPENCL], ids=["cuda", "opencl"])
NUMBERS = (*FLOATING, *INTEGER)


def kernels(dialect):
    for source, target in product(ALL, repeat=2):
        yield render_copy(dialect, source, target)
        yield render_copy(dialect, source, target, fours=True)
        yield render_copy_rows(dialect, source, target)
        yield render_turn(dialect, source, target, tile=32, threads=256)
    for index in INTEGER:
        yield render_keys(dialect, index)
        yield render_gather(dialect, float32, index)
        yield render_gather_rows(dialect, float32, index)
    for dtype in NUMBERS:
        for axes, dilated in product(range(1, FOLDED + 1), (False, True)):
            yield render_fold(dialect, dtype, chosen=dilated, axes=axes, dilated=dilated)
        for ways in (order, order_group):
            yield from ways.render_scan(TABLE["sum"], dialect, dtype, dtype if dtype.is_floating else int64)
        for choice in (False, True):
            yield render_scatter(dialect, dtype, ordered=choice)
            for ways in (order, order_group):
                yield from ways.render_sort(dialect, dtype, descending=choice)
        for tile, access in product(TILES, (Access(), Access("deep", "wide", True, True, True))):
            yield render_gemm(dialect, dtype, tile, shared=True, fused=True, access=access)
        if dialect is OPENCL:
            for tile in (REGISTER, REGISTER_WIDE):
                yield render_gemm(dialect, dtype, tile, shared=False, fused=True)
            forms = (convolution.WINDOWS, convolution.TAPS) if dtype.is_floating else ()
            for form, tile in product(forms, (convolution.ALONE, convolution.TILES[64][0])):
                values = (*tile[:5], tile.threads, int(tile.double), 1, 0, 1, 0, 0, 3, 1, 2, 1, -1)
                yield convolution.render_convolution(form, dtype, values, fused=True)
    for dtype, access in product((float32, float16), accesses()):
        yield render_gemm(dialect, dtype, TILES[-1], shared=True, fused=True, access=access, out=float32)
    for dtype, kind, double in product(FLOATING, ("uniform", "normal"), (False, True)):
        if double or dtype is not float64:
            yield render_random(dialect, kind, dtype, double=double)
            yield render_random(dialect, kind, dtype, double=double, dense=True)
    for dtype in FLOATING:
        yield render_dropout(dialect, dtype)
    yield render_random(dialect, "bits", uint32, double=True)


@DIALECTS
def test_every_kernel_renders_whole(dialect):
    for kernel in kernels(dialect):
        assert kernel.text.count("(") == kernel.text.count(")"), kernel.name
        assert kernel.text.count("{") == kernel.text.count("}"), kernel.name
        assert re.search(rf"void .*{kernel.name}\(", kernel.text)


@DIALECTS
def test_names_tell_texts_apart(dialect):
    """Kernels are joined into programs by name; those that differ in speed only (`double`) apart."""
    seen = {}
    for kernel in kernels(dialect):
        if not kernel.name.startswith("random_normal"):
            assert seen.setdefault(kernel.name, kernel.text) == kernel.text, kernel.name


@DIALECTS
def test_nothing_is_added_in_an_order_that_varies(dialect):
    """G14: no atomics, but for groups that count themselves, so that the last joins in order what the others left."""
    for kernel in kernels(dialect):
        assert "atomic" not in kernel.text, kernel.name
    for row in TABLE.values():
        x, outs = reduction_dtypes(row)[0]
        for text in (
            render_reduction(row, dialect, x, outs, "partial").text,
            render_rows(row, dialect, x, outs, RowShape(1, 256, 256, False, True)).text,
        ):
            assert re.findall(r"atomic\w*\([^()]*", text) == ["atomicAdd(counters + o, "] * dialect.counts


def test_what_is_only_moved_goes_as_its_bits():
    """A copy or gather of floats reads integers, so that NaN's payload stays."""
    for kernel in (render_copy(OPENCL, float32, float32), render_gather(OPENCL, float32, int64)):
        assert "float" not in kernel.text
    assert render_copy(OPENCL, float32, float32).name == render_copy(OPENCL, uint32, uint32).name


@DIALECTS
def test_float64_is_spoken_of_only_where_it_is_stored(dialect):
    """A device without it would refuse the text."""
    for kernel in kernels(dialect):
        if "f64" not in kernel.name and not kernel.name.startswith("random_normal"):
            assert "double" not in kernel.text, kernel.name


def test_narrow_devices_need_no_float64():
    for kind in ("uniform", "normal"):
        assert "double" not in render_random(OPENCL, kind, float32, double=False).text


@pytest.mark.parametrize("kind", ["bits", "uniform", "normal"])
def test_blocks_hold_as_many_numbers_as_their_words_make(kind):
    for dtype in (uint32,) if kind == "bits" else FLOATING:
        assert words_for(kind, dtype.itemsize, numbers_per_block(kind, dtype)) == 4
