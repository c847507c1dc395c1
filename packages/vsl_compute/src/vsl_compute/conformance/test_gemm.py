"""Matrix products: sizes around every tile, all transpositions and layouts, alpha and beta, batches, what is empty."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from vsl_compute.conformance.placement import LAYOUTS, OUTPUTS
from vsl_compute.dtypes import float32
from vsl_compute.errors import ShapeError
from vsl_compute.validation import oracle_ops

SIZES = (1, 17, 63, 65, 127)


def judge(subject, got, a, b, dtype, what):
    """An inner product of k terms is judged at the sum of its terms' magnitudes; the error grows like their root."""
    if dtype.is_integer:
        expected = oracle_ops.matmul(a, b)
        subject.close(
            got,
            np.asarray(expected % 2 ** (8 * dtype.itemsize), dtype=object).astype(np.uint64).astype(dtype.storage),
            dtype,
            0,
            what,
        )
        return
    wide_a, wide_b = a.astype(np.longdouble), b.astype(np.longdouble)
    scale = np.matmul(np.abs(wide_a), np.abs(wide_b))
    subject.close(got, np.matmul(wide_a, wide_b), dtype, subject.narrowed(4, dtype), what, scale)


@pytest.mark.parametrize(
    ("m", "n", "k"),
    [(1, 1, 3), (17, 63, 65), (63, 17, 1), (65, 127, 17), (127, 65, 63), (1, 65, 127), (65, 1, 17), (64, 64, 64)],
)
def test_product_agrees_with_its_meaning_in_every_transposition(subject, m, n, k):
    """G01: sizes 1, 17, 63, 65, 127; a, b and the result dense and transposed."""
    for dtype in subject.floating():
        if dtype.itemsize == 8 and m * n * k > 200_000:
            continue
        for left, right in product(("dense", "transposed"), repeat=2):
            a, b = subject.place(dtype, left, (m, k)), subject.place(dtype, right, (k, n))
            what = f"matmul {dtype.name} {m}x{k}x{n} {left} {right}"
            out = subject.output(dtype, (m, n), "transposed" if left == right else "pitched")
            subject.run("matmul", a.view, b.view, out=out.view)
            judge(subject, out.read(what), a.host, b.host, dtype, what)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_product_takes_every_layout(subject, layout):
    for dtype in subject.floating():
        a, b = subject.place(dtype, layout, (9, 13), turn=0), subject.place(dtype, layout, (13, 6), turn=1)
        what = f"matmul {dtype.name} {layout}"
        out = subject.output(dtype, (9, 6), OUTPUTS[LAYOUTS.index(layout) % len(OUTPUTS)])
        subject.run("matmul", a.view, b.view, out=out.view)
        judge(subject, out.read(what), a.host, b.host, dtype, what)
        judge(subject, subject.value("matmul", a.view, b.view), a.host, b.host, dtype, what)


def test_product_is_written_into_outputs_that_go_backwards(subject):
    """Rows, columns, both, and batches; with what was there before and without."""
    for dtype in subject.floating():
        a, b = subject.place(dtype, "dense", (2, 9, 5)), subject.place(dtype, "dense", (2, 5, 7))
        for turns in ((1, -1, 1), (1, 1, -1), (1, -1, -1), (-1, 1, 1), (-1, -1, 2)):
            for beta in (0.0, 1.0):
                room = subject.put(np.ones((2, 9, 14 if turns[2] == 2 else 7)), dtype)
                out = room.slice(*(slice(None, None, turn) for turn in turns))
                subject.run("matmul", a.view, b.view, out=out, beta=beta)
                wide = np.matmul(a.host.astype(np.longdouble), b.host.astype(np.longdouble)) + beta
                scale = np.matmul(np.abs(a.host).astype(np.longdouble), np.abs(b.host).astype(np.longdouble)) + beta
                what = f"matmul {dtype.name} into steps {turns} beta {beta}"
                subject.close(out.to_host(), wide, dtype, subject.narrowed(4, dtype), what, scale)


def test_batches_match_or_broadcast(subject):
    for dtype in subject.floating():
        for left, right in (
            ((3, 4, 5), (3, 5, 2)),
            ((3, 4, 5), (5, 2)),
            ((4, 5), (3, 5, 2)),
            ((2, 1, 4, 5), (3, 5, 2)),
            ((0, 4, 5), (5, 2)),
            ((1, 4, 5), (3, 5, 2)),
        ):
            for layout in ("dense", "transposed", "offset"):
                a, b = subject.place(dtype, layout, left), subject.place(dtype, layout, right)
                what = f"matmul {dtype.name} {left} {right} {layout}"
                judge(subject, subject.value("matmul", a.view, b.view), a.host, b.host, dtype, what)


def test_integer_products_are_exact_and_wrap(subject):
    for dtype in subject.dtypes("i"):
        if not subject.has("gemm", dtype):
            continue
        a, b = subject.place(dtype, "dense", (5, 7)), subject.place(dtype, "transposed", (7, 4))
        judge(subject, subject.value("matmul", a.view, b.view), a.host, b.host, dtype, f"matmul {dtype.name}")


def test_g01_beta_zero_does_not_read_the_output(subject):
    """G01: C full of NaN and beta 0."""
    for dtype in subject.floating():
        a = subject.put(np.array([[1.0, 2], [3, 4]]), dtype)
        c = subject.put(np.full((2, 2), np.nan), dtype)
        subject.run("matmul", a, a, out=c, alpha=1.0, beta=0.0)
        assert c.to_host().tolist() == [[7, 10], [15, 22]], dtype.name


def test_g01_alpha_and_beta(subject):
    """G01: alpha 0 with A full of NaN leaves beta * C; both together against the oracle."""
    for dtype in subject.floating():
        ones = subject.put(np.ones((2, 2)), dtype)
        subject.run("matmul", subject.put(np.full((2, 2), np.nan), dtype), ones, out=ones, alpha=0.0, beta=1.0)
        assert ones.to_host().tolist() == [[1, 1], [1, 1]], dtype.name
        a, b, c = (
            subject.place(dtype, "dense", (5, 7)),
            subject.place(dtype, "dense", (7, 4)),
            subject.place(dtype, "dense", (5, 4)),
        )
        subject.run("matmul", a.view, b.view, out=c.view, alpha=0.75, beta=-1.5)
        wide = [x.host.astype(np.longdouble) for x in (a, b, c)]
        scale = np.abs(wide[0]) @ np.abs(wide[1]) + 1.5 * np.abs(wide[2])
        subject.close(
            c.view.to_host(),
            0.75 * (wide[0] @ wide[1]) - 1.5 * wide[2],
            dtype,
            subject.narrowed(8, dtype),
            f"alpha beta {dtype.name}",
            scale,
        )


def test_g01_no_terms_give_zeros_never_old_memory(subject):
    """G01: K = 0 gives zeros, or beta * C; nothing to compute is no launch."""
    for dtype in subject.floating():
        a, b = subject.put(np.zeros((2, 0)), dtype), subject.put(np.zeros((0, 2)), dtype)
        out = subject.output(dtype, (2, 2))
        subject.run("matmul", a, b, out=out.view)
        assert out.read("K = 0").tolist() == [[0, 0], [0, 0]], dtype.name
        c = subject.put(np.array([[1.0, 2], [3, 4]]), dtype)
        subject.run("matmul", a, b, out=c, beta=0.5)
        assert c.to_host().tolist() == [[0.5, 1], [1.5, 2]], dtype.name
        assert subject.value(
            "matmul", subject.put(np.zeros((0, 3)), dtype), subject.put(np.ones((3, 2)), dtype)
        ).shape == (0, 2)
        assert subject.value(
            "matmul", subject.put(np.ones((2, 3)), dtype), subject.put(np.ones((3, 0)), dtype)
        ).shape == (2, 0)


def test_g01_zeros_are_not_skipped(subject):
    """G01: 0 * inf is NaN in a product too."""
    for dtype in subject.floating():
        got = subject.value(
            "matmul", subject.put(np.array([[0.0, 1.0]]), dtype), subject.put(np.array([[np.inf], [1.0]]), dtype)
        )
        assert np.isnan(got).all(), dtype.name


def test_half_products_accumulate_in_float32(subject):
    """4096 ones in float16: an accumulator of 11 bits stops at 2048."""
    for dtype in subject.floating():
        if dtype.itemsize == 2:
            got = subject.value(
                "matmul", subject.put(np.ones((1, 4096)), dtype), subject.put(np.ones((4096, 1)), dtype)
            )
            assert got.tolist() == [[4096]], dtype.name


def test_shapes_that_do_not_fit_are_named(subject):
    a = subject.place(float32, "dense", (2, 3)).view
    with pytest.raises(ShapeError, match=r"matmul: a is \(2, 3\) and b is \(2, 3\); .*\(3\).*\(2\)"):
        subject.run("matmul", a, a)
    with pytest.raises(ShapeError, match=r"at least 2 axes"):
        subject.run("matmul", a, subject.place(float32, "dense", (3,)).view)
    with pytest.raises(ShapeError, match="out is"):
        subject.run("matmul", a, subject.place(float32, "dense", (3, 4)).view, out=subject.output(float32, (2, 3)).view)


def test_beta_without_an_output_to_read_is_refused(subject):
    """beta * C of a fresh output would be old memory."""
    a = subject.place(float32, "dense", (2, 2)).view
    with pytest.raises((ValueError, ShapeError), match="beta"):
        subject.run("matmul", a, a, beta=1.0)


@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1_200_000), (8, 1, 300_000), (1, 8, 300_000), (16, 16, 600_000)])
def test_more_terms_than_a_loop_has_turns_all_count(subject, m, n, k):
    """G01, G02: llvmpipe leaves a loop after 65535 turns, and says nothing; every layout, and beside what is there."""
    if float32 not in subject.dtypes("f"):
        return
    for turned in (False, True):
        a, b = (
            subject.run("fill", out=subject.output(float32, s).view, alpha=1.0)
            for s in (((k, m), (k, n)) if turned else ((m, k), (n, k)))
        )
        a, b = (a.permute((1, 0)), b) if turned else (a, b.permute((1, 0)))
        out = subject.run("fill", out=subject.output(float32, (m, n)).view, alpha=2.0)
        subject.backend.gemm(out, a, b, alpha=1.0, beta=0.5)
        np.testing.assert_allclose(np.asarray(out.to_host()), k + 1, rtol=1e-6)
