"""Copies between layouts and dtypes, shape operations, overlap of input and output, and what a View may be."""

from __future__ import annotations

import numpy as np
import pytest

from vsl_compute.conformance.placement import LAYOUTS, OUTPUTS, host
from vsl_compute.dtypes import bfloat16, bool_, float16, float32, float64, int8
from vsl_compute.errors import IndexRangeError, ShapeError
from vsl_compute.view import Layout


@pytest.mark.parametrize("layout", LAYOUTS)
def test_copy_moves_every_dtype_between_layouts_unchanged(subject, layout):
    for dtype in (*subject.dtypes("b"), *subject.dtypes("n")):
        if not subject.computes(dtype):
            continue
        for target in OUTPUTS:
            x = subject.place(dtype, layout, (4, 7))
            if dtype.kind == "b":
                assert x.view.to_host().tolist() == x.host.tolist()
                continue
            out = subject.output(dtype, (4, 7), target)
            subject.run("copy", x.view, out=out.view)
            subject.close(out.read("copy"), x.host, dtype, 0, f"copy {dtype.name} {layout} to {target}")
            assert np.array_equal(x.view.to_host(), x.host), f"download {dtype.name} {layout}"
    x = subject.place(float32, layout, (3, 4, 5))
    assert np.array_equal(subject.value("contiguous", x.view), x.host), f"contiguous {layout}"
    assert np.array_equal(subject.value("copy", x.view), x.host), f"copy {layout}"


def test_upload_copies_before_it_returns_and_download_gives_a_fresh_array(subject):
    values = np.arange(6, dtype=np.float32)
    view = subject.put(values)
    values[:] = -1
    first = view.to_host()
    assert first.tolist() == [0, 1, 2, 3, 4, 5]
    first[:] = 9
    assert view.to_host().tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_the_host_is_shown_is_the_memory_itself_and_not_for_writing(subject, layout):
    x = subject.place(float32, layout, (4, 7))
    shown = subject.backend.host_view(x.view)
    if shown is None:
        return  # the device's memory is not the host's: download copies it
    assert np.array_equal(shown, x.host)
    assert not shown.flags.writeable
    whole = subject.put(x.host)
    before = subject.backend.host_view(whole)
    subject.run("fill", alpha=3, out=whole)
    assert np.all(before == 3)


def test_upload_takes_arrays_that_are_not_contiguous(subject):
    x = np.arange(12, dtype=np.float32).reshape(3, 4).T
    view = subject.backend.allocate(subject.put(np.ascontiguousarray(x)).layout)
    subject.backend.upload(view, x)
    assert np.array_equal(view.to_host(), x)


def test_cast_between_any_two_dtypes(subject):
    """Values that both hold come through unchanged; bool takes what is not zero."""
    values = np.array([0, 1, 2, 3, 100, 7])
    pool = [d for d in (*subject.dtypes("b"), *subject.dtypes("n")) if subject.computes(d)]
    for source in pool:
        x = subject.put(host(values, source), source)
        for target in pool:
            if source is target or source.kind == "b":
                continue
            got = subject.value("astype", x, dtype=target)
            subject.close(got, host(values, target), target, 0, f"astype {source.name} to {target.name}")


def test_cast_from_bool_gives_zero_and_one(subject):
    x = subject.put(np.array([True, False, True]))
    for target in subject.dtypes("n"):
        if subject.computes(target):
            assert subject.value("astype", x, dtype=target).tolist() == [1, 0, 1], target.name


def test_g07_narrowing_rounds_to_nearest_even_once(subject):
    """G07: float16 and bfloat16 from float32 and float64: ties, overflow to infinity, denormals, one rounding only."""
    rng = subject.rng
    ties = np.concatenate([[65519, 65520, -7e4, 3e-8, 2.98e-8, 2049, 2051, 1.00390625, 1.01171875, 3.4e38, -0.0, np.inf, -np.inf],
                           rng.uniform(-1, 1, 400) * 10.0 ** rng.integers(-9, 39, 400), 1 + rng.integers(0, 4096, 300) / 4096])  # fmt: skip
    for source in (float32, float64):
        if source not in subject.dtypes("f") or not subject.computes(source):
            continue
        x = ties.astype(source.storage)
        for target in (float16, bfloat16, float32):
            if target is source or target not in subject.dtypes("f") or not subject.computes(target):
                continue
            got = subject.value("astype", subject.put(x), dtype=target)
            what = f"astype {source.name} to {target.name}"
            subject.close(got, x.astype(np.longdouble), target, 0, what)
            assert np.isnan(
                subject.value("astype", subject.put(np.array([np.nan], source.storage)), dtype=target)
            ).all(), what
    if float64 in subject.dtypes("f") and subject.computes(float64):
        # a tie of bfloat16 plus less than float32 can see: rounding twice would go down to even
        x = np.array([1 + 2.0**-8 + 2.0**-40, 1 + 2.0**-8, 1 + 3 * 2.0**-8 - 2.0**-40])
        assert subject.value("astype", subject.put(x), dtype=bfloat16).tolist() == [1.0078125, 1.0, 1.0078125]


def test_results_of_half_rows_are_rounded_not_cut(subject):
    """Stores of arithmetic round like casts: 2049 is 2048 and 2051 is 2052 in float16 (G07)."""
    for dtype, pairs in (
        (float16, [(2048, 1, 2048), (2048, 3, 2052), (65504, 16, np.inf)]),
        (bfloat16, [(256, 1, 256), (256, 3, 260), (-256, -3, -260)]),
    ):
        if dtype in subject.dtypes("f") and subject.computes(dtype):
            a, b, c = (list(v) for v in zip(*pairs, strict=True))
            assert (
                subject.value("add", subject.put(np.array(a), dtype), subject.put(np.array(b), dtype)).tolist() == c
            ), dtype.name


def test_shape_operations_share_the_buffer_and_move_nothing(subject):
    x = subject.place(float32, "dense", (4, 6))
    h = x.host
    cases = {
        "reshape": (x.view.reshape((2, -1, 3)), h.reshape(2, -1, 3)),
        "permute": (x.view.permute((1, 0)), h.T),
        "slice": (x.view.slice(slice(1, None, 2), slice(None, None, -1)), h[1::2, ::-1]),
        "row": (x.view.slice(-1), h[-1]),
        "none": (x.view.slice(None, 2), h[None, 2]),
        "expand": (x.view.reshape((4, 1, 6)).expand((2, 4, 3, 6)), np.broadcast_to(h[:, None], (2, 4, 3, 6))),
        "window": (
            x.view.window((1,), (3,), (2,), (1,)),
            np.lib.stride_tricks.sliding_window_view(h, 3, axis=1)[:, ::2],
        ),
        "empty slice": (x.view.slice(slice(3, 1)), h[3:1]),
    }
    for name, (view, expected) in cases.items():
        assert view.buffer is x.view.buffer, name
        assert np.array_equal(view.to_host(), expected), name
        assert np.array_equal(subject.value("negative", view), -expected), name


def test_writing_through_a_view_changes_its_elements_only(subject):
    x = subject.place(float32, "dense", (5, 6))
    part = x.view.slice(slice(1, 4, 2), slice(None, None, -2))
    subject.run("fill", alpha=9.0, out=part)
    expected = x.host.copy()
    expected[1:4:2, ::-2] = 9
    assert np.array_equal(x.view.to_host(), expected)


@pytest.mark.parametrize("shift", [1, 3, -1, -3])
def test_partial_overlap_of_input_and_output_is_as_if_there_were_none(subject, shift):
    """out = x shifted by a few elements within one buffer, both ways, for a row, a copy and a scan."""
    low, high = max(0, shift), max(0, -shift)
    for op, expected in (("negative", np.negative), ("copy", np.positive), ("cumsum", np.cumsum)):
        values = subject.rng.integers(-9, 9, 64).astype(np.float32)
        base = subject.put(values)
        x, out = (base.slice(slice(at, at + 60)) for at in (low, high))
        subject.run(op, x, out=out)
        assert np.array_equal(out.to_host(), expected(values[low : low + 60])), f"{op} with overlap {shift}"


def test_in_place_on_the_exact_view_is_legal_and_transposed_is_copied(subject):
    values = subject.rng.integers(-9, 9, (5, 5)).astype(np.float32)
    x = subject.put(values)
    subject.run("add", x, x, out=x)
    assert np.array_equal(x.to_host(), 2 * values)
    subject.run("add", x, x.permute((1, 0)), out=x)
    assert np.array_equal(x.to_host(), 2 * values + 2 * values.T)
    flipped = x.slice(slice(None, None, -1))
    before = x.to_host()
    subject.run("subtract", x, flipped, out=x)
    assert np.array_equal(x.to_host(), before - before[::-1])
    b = subject.put(values)
    subject.run("matmul", b, b, out=b)
    assert np.array_equal(b.to_host(), values @ values)
    row = subject.put(values)
    subject.run("subtract", row, row.slice(0), out=row)  # the row is read after it was written, unless copied
    assert np.array_equal(row.to_host(), values - values[0])


def test_outputs_that_overlap_themselves_are_refused(subject):
    x = subject.place(float32, "dense", (3, 4)).view
    for out in (x.slice(0).expand((3, 4)), subject.place(float32, "dense", (6,)).view.window((0,), (4,), (1,), (1,))):
        with pytest.raises(ShapeError, match="overlaps itself"):
            subject.run("negative", x, out=out)


def test_versions_count_writes(subject):
    x, y = subject.place(float32, "dense", (3,)).view, subject.place(float32, "dense", (3,)).view
    before = x.buffer.version, y.buffer.version
    subject.run("negative", x, out=y)
    assert (x.buffer.version, y.buffer.version) == (before[0], before[1] + 1)
    subject.run("sum", x, axes=(), out=y)
    assert y.buffer.version == before[1] + 2


def test_channels_last_survives_rows(subject):
    """A result keeps its input's dense order of axes."""
    x = subject.place(float32, "dense", (2, 4, 5, 3)).view.permute((0, 3, 1, 2))
    y = subject.run("relu", x)
    assert y.strides == x.strides
    assert subject.run("multiply", y, 2.0).strides == x.strides
    assert subject.run("less", x, 0.0).dtype is bool_


def test_shapes_that_no_view_can_have_are_refused_by_name(subject):
    x = subject.place(float32, "transposed", (3, 4)).view
    for call, words in (
        (lambda: x.reshape((5, 2)), r"reshape: \(3, 4\)"),
        (lambda: x.reshape((12,)), r"reshape: strides"),
        (lambda: x.permute((0, 0)), "permute: axes"),
        (lambda: x.expand((3, 5)), r"expand: \(3, 4\)"),
        (lambda: x.slice(0, 0, 0), "slice: 3 indices"),
        (lambda: x.window((0,), (5,), (1,), (1,)), "window: 5 taps"),
    ):
        with pytest.raises(ShapeError, match=words):
            call()
    with pytest.raises(IndexRangeError, match="slice: index 3 is outside axis 0 of size 3"):
        x.slice(3)


@pytest.mark.slow
def test_g04_offsets_past_two_to_the_31(subject):
    """G04: the last element of int8 (46341, 46341) has flat index 2 147 488 280. Slow: 2 GB, so not every device can."""
    n = 46341
    if subject.backend.info.memory_bytes < 6 << 30:
        pytest.skip(f"{subject.backend.spec} has {subject.backend.info.memory_bytes >> 20} MiB; this needs 6 GiB")
    big = subject.backend.allocate(Layout.of(int8, (n, n)))
    subject.run("fill", alpha=0, out=big)
    subject.run("fill", alpha=7, out=big.slice(slice(n - 1, n), slice(n - 1, n)))
    assert big.slice(n - 1, slice(n - 2, n)).to_host().tolist() == [0, 7]
    assert subject.value("gather", big, subject.put(np.array([n - 1])))[0, -1] == 7
    assert subject.value("sum", big.slice(slice(n - 2, n))) == 7
