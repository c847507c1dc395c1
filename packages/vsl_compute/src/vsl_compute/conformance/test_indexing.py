"""gather, scatter and embedding: layouts, index dtypes, repeated indices, and indices that are out of range."""

from __future__ import annotations

import numpy as np
import pytest

from vsl_compute.conformance.placement import LAYOUTS
from vsl_compute.dtypes import float32, int32, int64
from vsl_compute.errors import AttributeValueError, IndexRangeError, ShapeError
from vsl_compute.validation import oracle_losses

COMPOSITES = True  # its tests run with overrides and without


def draw_index(subject, dtype, layout, shape, rows):
    return subject.place(dtype, layout, shape, (0, rows - 1))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_gather_takes_rows_in_every_layout(subject, layout):
    for dtype in subject.dtypes("n"):
        if not subject.has("gather", dtype):
            continue
        for index_dtype in (int32, int64) if dtype is float32 else (int64,):
            for shape, places in (((7, 5), (4, 3)), ((7,), (6,)), ((7, 2, 3), (2,)), ((7, 3), ()), ((7, 3), (0,))):
                x = subject.place(dtype, layout, shape)
                index = draw_index(subject, index_dtype, layout if layout != "broadcast" else "stepped", places, 7)
                what = f"gather {dtype.name} {index_dtype.name} {shape} {places} {layout}"
                out = subject.output(dtype, (*places, *shape[1:]), "pitched")
                subject.run("gather", x.view, index.view, out=out.view)
                subject.close(out.read(what), x.host[index.host.astype(int)], dtype, 0, what)


def test_gather_along_shared_leading_axes(subject):
    for batch, shape, places in ((1, (3, 5), (3,)), (1, (3, 5, 2), (3, 4)), (2, (2, 3, 4), (2, 3))):
        x, index = subject.place(float32, "dense", shape), draw_index(subject, int64, "dense", places, shape[batch])
        expected = np.empty((*places, *shape[batch + 1 :]), np.float32)
        for at in np.ndindex(*places):
            expected[at] = x.host[(*at[:batch], int(index.host[at]))]
        got = subject.value("gather", x.view, index.view, batch=batch)
        subject.close(got, expected, float32, 0, f"gather batch {batch} {shape}")


def test_b09_repeated_indices_add_up(subject):
    """B09: w[[1, 1, 3]].sum() gives [0, 2, 0, 1]; and 769 random ids, where a CUDA bug of others began (D11)."""
    ones = subject.put(np.ones(3, np.float32))
    got = subject.value("scatter", ones, subject.put(np.array([1, 1, 3])), shape=(4,))
    assert got.tolist() == [0, 2, 0, 1]
    for dtype in subject.floating():
        if not subject.has("scatter_add", dtype):
            continue
        for layout in ("dense", "transposed", "stepped", "broadcast", "flipped"):
            x, index = subject.place(dtype, layout, (769, 3)), draw_index(subject, int64, "dense", (769,), 11)
            expected, size = np.zeros((11, 3), np.longdouble), np.zeros((11, 3))
            for row, place in enumerate(index.host.tolist()):
                expected[place] += x.host[row]
                size[place] += np.abs(x.host[row])
            got = subject.value("scatter", x.view, index.view, shape=(11, 3))
            # adding up in the dtype, term by term: about 70 roundings a row
            subject.close(got, expected, dtype, 40, f"scatter {dtype.name} {layout}", size)


def test_scatter_is_the_same_every_time(subject):
    """G14: repeated indices add in one order, so two runs agree to the bit."""
    x, index = subject.place(float32, "dense", (4000, 2)), draw_index(subject, int64, "dense", (4000,), 7)
    first = subject.value("scatter", x.view, index.view, shape=(7, 2))
    for _ in range(3):
        assert np.array_equal(subject.value("scatter", x.view, index.view, shape=(7, 2)), first)


def test_scatter_is_the_adjoint_of_gather(subject):
    for batch, shape, places in ((0, (6, 3), (5, 2)), (1, (3, 5, 2), (3, 4))):
        x, index = subject.place(float32, "dense", shape), draw_index(subject, int64, "dense", places, shape[batch])
        g = subject.place(float32, "dense", (*places, *shape[batch + 1 :]))
        left = np.sum(subject.value("gather", x.view, index.view, batch=batch).astype(float) * g.host)
        right = np.sum(subject.value("scatter", g.view, index.view, shape=shape, batch=batch).astype(float) * x.host)
        assert left == pytest.approx(right, rel=1e-5), (batch, shape)


BAD = [(dtype, bad) for dtype, bads in (("int64", (7, -1, 2**40)), ("int32", (7, -1, -99, 2**31 - 1)), ("int8", (7, -128)), ("uint8", (7,)))
       for bad in bads]  # fmt: skip


@pytest.mark.parametrize(("dtype", "bad"), BAD)
def test_an_index_out_of_range_is_an_error_at_the_next_read(subject, dtype, bad):
    """Of any integer dtype: reading raises IndexRangeError that names op and index; the backend stays usable."""
    x = subject.place(float32, "dense", (7, 3))
    index = subject.put(np.array([0, bad, 2], dtype))
    for op, args, options in (
        ("gather", (x.view, index), {}),
        ("scatter", (subject.place(float32, "dense", (3, 3)).view, index), {"shape": (7, 3)}),
    ):
        with pytest.raises(IndexRangeError, match=f"{op.removesuffix('ter')}.*index {bad} is outside"):
            subject.run(op, *args, **options).to_host()
    assert subject.value("gather", x.view, subject.put(np.array([6, 0], dtype))).tolist() == x.host[[6, 0]].tolist()


def test_embedding_and_its_gradient(subject):
    for dtype in subject.floating():
        weight, index = subject.place(dtype, "dense", (9, 4)), draw_index(subject, int64, "transposed", (5, 3), 9)
        got = subject.value("embedding", index.view, weight.view)
        subject.close(got, oracle_losses.embedding(weight.host, index.host), dtype, 0, f"embedding {dtype.name}")
        g = subject.place(dtype, "transposed", (5, 3, 4))
        for padding in (None, 2, -1):
            got = subject.value(
                "embedding_backward",
                g.view,
                index.view,
                shape=(9, 4),
                padding_idx=padding,
            )
            expected = oracle_losses.embedding_backward(g.host, index.host, 9, None if padding is None else padding % 9)
            subject.close(got, expected, dtype, 8, f"embedding_backward {dtype.name} padding {padding}", 12.0)


def test_d11_padding_rows_receive_nothing(subject):
    """D11: 4 rows, padding_idx 1, ids [[1, 2, 2], [3, 1, 2]], a sum: the rows receive 0, 0, 3, 1."""
    index = subject.put(np.array([[1, 2, 2], [3, 1, 2]]))
    g = subject.put(np.ones((2, 3, 1), np.float32))
    got = subject.value("embedding_backward", g, index, shape=(4, 1), padding_idx=1)
    assert got.ravel().tolist() == [0, 0, 3, 1]
    weight = subject.place(float32, "dense", (4, 2)).view
    for padding in (4, -5, 1.0, True):
        with pytest.raises(AttributeValueError, match=f"embedding: padding_idx={padding} must"):
            subject.run("embedding", index, weight, padding_idx=padding)
        with pytest.raises(AttributeValueError, match=f"embedding_backward: padding_idx={padding} must"):
            subject.run("embedding_backward", g, index, shape=(4, 1), padding_idx=padding)
    with pytest.raises(ShapeError, match=r"embedding_backward: g \(2, 3, 1\) must be index"):
        subject.run("embedding_backward", g, index, shape=(4, 2))


@pytest.mark.parametrize("batches", [(), (2,)])
def test_more_indices_than_a_loop_has_turns_all_count(subject, batches):
    """B09, G02: llvmpipe leaves a loop after 65535 turns, and says nothing."""
    index = subject.rng.integers(0, 5, (*batches, 70_000))
    x = subject.rng.integers(-3, 4, (*batches, 70_000, 2)).astype(np.float32)
    expected = np.zeros((*batches, 5, 2))
    for place in np.ndindex(*batches):
        np.add.at(expected[place], index[place], x[place])
    got = subject.value("scatter", subject.put(x), subject.put(index), shape=expected.shape, batch=len(batches))

    np.testing.assert_array_equal(got, expected)
