"""Arrays of 5 and 20 GiB: past 2**32 bytes, and past 2**32 elements. Run with `--large`, on a device that has the memory.

Contents depend on the place (Philox words, whose value at any place is known), and are read at places around the powers
of two where 32-bit arithmetic breaks, and at random ones.
"""

from __future__ import annotations

import gc

import numpy as np
import pytest

from vsl_compute.dtypes import float16, float32, int8, int64, uint8, uint32
from vsl_compute.errors import OutOfMemoryError
from vsl_compute.random import draw
from vsl_compute.view import Layout

KEY, COUNTER = (17, 4), (3, 0, 9, 0)
GIB = 1 << 30
RUN = 64  # elements that are read at each place


@pytest.fixture(autouse=True)
def tidy(subject):
    """No array of a test outlives it; what the pool keeps, the next test takes."""
    yield
    gc.collect()


@pytest.fixture(params=[5, 20], ids=["5GiB", "20GiB"])
def gib(request, subject):
    needs(subject, 2.5 * request.param)
    return request.param


def needs(subject, gib):
    """Skip where the device has less; a software device shares the host's memory, and would take minutes."""
    info = subject.backend.info
    if info.kind in ("software", "cpu"):
        pytest.skip(f"{info.name} computes in the host's memory")
    if info.memory_bytes < gib * GIB:
        pytest.skip(f"{info.name} has {info.memory_bytes / GIB:.1f} GiB, {gib} are needed")


def places(rng, n):
    """Where to look: starts of runs, multiples of 4, around every power of two from 2**28 on, at the ends, at random."""
    edges = [0, n - RUN, *(edge - RUN // 2 for edge in (1 << k for k in range(28, 40)) if edge < n - RUN)]
    return [int(p) & ~3 for p in (*edges, *rng.integers(0, n - RUN, 8))]


def words(at, count=RUN):
    """What `bits` holds from this place on."""
    low = COUNTER[0] + at // 4
    return draw("bits", 4, KEY, (low & 0xFFFFFFFF, low >> 32, *COUNTER[2:]), count)


def bits(subject, n):
    return subject.run("random", subject.put(np.zeros((), np.uint32)), kind="bits", shape=(n,), dtype=uint32, key=KEY, counter=COUNTER)  # fmt: skip


def small(subject, dtype, shape):
    """A matrix of whole numbers from 0 to 3, of any size."""
    low = subject.run("bitwise_and", bits(subject, shape[0] * shape[1]), 3)
    return subject.run("astype", low, dtype=dtype.name).reshape(shape)


def filled(subject, dtype, shape, value):
    return subject.run("fill", alpha=value, out=subject.backend.allocate(Layout.of(dtype, shape)))


def looked(view, at, count=RUN):
    return view.slice(slice(at, at + count)).to_host()


def test_rows_reach_every_element(subject, gib):
    n = gib * GIB // 4 - 5
    x = bits(subject, n)
    y = subject.run("bitwise_xor", x, 0x5A5A1234)
    for at in places(subject.rng, n):
        assert np.array_equal(looked(x, at), words(at)), at
        assert np.array_equal(looked(y, at), words(at) ^ np.uint32(0x5A5A1234)), at
    subject.run("bitwise_and", y, 0xFF, out=y)
    narrow = subject.run("astype", y, dtype="uint8")
    del y
    for at in places(subject.rng, n):
        assert np.array_equal(looked(narrow, at), ((words(at) ^ np.uint32(0x34)) & 0xFF).astype(np.uint8)), at


def test_a_strided_row_reaches_every_element(subject, gib):
    """A transposed argument and a broadcast one: the general kernel, cut where one launch cannot address it."""
    rows = 1 << 15
    columns = gib * GIB // 4 // rows
    x = bits(subject, rows * columns).reshape((columns, rows)).permute((1, 0))
    row = subject.put(np.arange(columns, dtype=np.uint32))
    y = subject.run("bitwise_xor", x, row, out=subject.backend.allocate(Layout.of(uint32, (rows, columns))))
    for i in (0, 1, rows // 2, rows - 1):
        for j in (0, columns // 2, columns - RUN):
            got = y.slice(i, slice(j, j + RUN)).to_host()
            wanted = [int(words((c * rows + i) & ~3, 4)[(c * rows + i) & 3]) ^ c for c in range(j, j + RUN)]
            assert got.tolist() == wanted, (i, j)


def test_reductions_see_every_element(subject, gib):
    n = gib * GIB // 4 - 3
    x = filled(subject, float32, (n,), 1.0)
    assert float(subject.value("sum", x)) == pytest.approx(n, rel=1e-6)
    for at in (n - 1, (1 << 30) + 1, 5):
        spot = x.slice(slice(at, at + 1))
        subject.run("fill", alpha=3.0, out=spot)
        assert int(subject.value("argmax", x)) == at
        assert float(subject.value("max", x)) == 3
        subject.run("fill", alpha=1.0, out=spot)
    whole = subject.run("astype", x, dtype="uint8") if gib > 5 else None
    if whole is not None:
        assert int(subject.value("sum", whole)) == n


def test_reductions_of_rows_and_columns(subject, gib):
    columns = 1 << 13
    rows = gib * GIB // 4 // columns
    x = subject.run("bitwise_and", bits(subject, rows * columns), 0xFF).reshape((rows, columns))
    down, across = subject.run("sum", x, axes=(0,)), subject.run("sum", x, axes=(1,))
    found = across.to_host()
    for i in (0, rows // 2, rows - 1, (1 << 32) // 4 // columns - 1, *subject.rng.integers(0, rows, 4)):
        assert found[i] == int((words(int(i) * columns, columns) & 0xFF).sum(dtype=np.int64)), i
    assert int(down.to_host().sum(dtype=np.uint64)) == int(found.sum(dtype=np.uint64))
    top = subject.run("max", x, axes=(1,)).to_host()
    assert top[rows - 1] == (words((rows - 1) * columns, columns) & 0xFF).max()


def test_copies_move_every_element(subject, gib):
    rows = 1 << 14
    columns = gib * GIB // 4 // rows
    x = bits(subject, rows * columns)
    turned = subject.backend.allocate(Layout.of(uint32, (columns, rows)))
    subject.run("copy", x.reshape((rows, columns)).permute((1, 0)), out=turned)
    for at in places(subject.rng, rows * columns):
        i, j = divmod(at, columns)
        j = min(j & ~3, columns - RUN)
        assert np.array_equal(turned.slice(slice(j, j + RUN), i).to_host(), words(i * columns + j)), (i, j)
    del turned
    every = subject.run("contiguous", x.slice(slice(None, None, 3)))
    n = every.size
    for at in (0, n // 2, n - 1):
        assert int(looked(every, at, 1)[0]) == int(words(3 * at & ~3, 4)[3 * at & 3])
    del every
    back = subject.run("contiguous", x.slice(slice(None, None, -1)))
    for at in (0, rows * columns - RUN):
        assert np.array_equal(looked(back, at)[::-1], words(rows * columns - RUN - at))


def test_rows_are_gathered_and_scattered_from_anywhere(subject, gib):
    columns = 1 << 12
    rows = gib * GIB // 4 // columns
    x = bits(subject, rows * columns).reshape((rows, columns))
    wanted = np.array([rows - 1, 0, rows // 2, (1 << 30) // columns + 1, *subject.rng.integers(0, rows, 9)])
    got = subject.value("gather", x, subject.put(wanted))
    for row, i in zip(got, wanted, strict=True):
        assert np.array_equal(row, words(int(i) * columns, columns)), i
    del x
    part = subject.put(np.ones((2, columns), np.float32))
    out = subject.run("scatter", part, subject.put(np.array([rows - 1, rows - 1])), shape=(rows, columns))
    assert (out.slice(rows - 1).to_host() == 2).all()
    assert float(subject.value("sum", out)) == 2 * columns


@pytest.mark.parametrize("side", ["a", "a transposed", "b", "out"])
@pytest.mark.parametrize("dtype", [float32, float16], ids=str)
def test_products_reach_past_two_to_the_32(subject, dtype, side):
    """float32: an operand of 5 GiB, past 2**32 bytes; float16: of 9 GiB, past 2**32 elements."""
    needs(subject, 50)
    elements = 5 * GIB // 4 if dtype is float32 else (1 << 32) + (1 << 28)
    inner = 1 << 10
    long = elements // inner
    if side == "out":
        a, b = small(subject, dtype, (long, 4)), small(subject, dtype, (4, inner))
        product = subject.run("matmul", a, b)
        edges = [edge // inner for edge in (1 << 30, 1 << 31, 1 << 32) if edge // inner < long]
        for i in (0, long // 2, long - 1, *edges):
            expected = (words(4 * i, 4) & 3).astype(np.float64) @ (words(0, 4 * inner) & 3).reshape(4, inner)
            assert np.array_equal(product.slice(i).to_host(), expected), i
        return
    big = small(subject, dtype, (inner, long) if side == "a transposed" else (long, inner))
    thin = small(subject, dtype, (inner, 8))
    few = (words(0, 8 * inner) & 3).reshape(inner, 8).astype(np.float64)
    if side == "b":  # (8, inner) @ (inner, long)
        product = subject.run("matmul", thin.permute((1, 0)), big.permute((1, 0))).permute((1, 0))
    else:
        product = subject.run("matmul", big.permute((1, 0)) if side == "a transposed" else big, thin)
    for i in (0, 1, long // 2, long - 1, (1 << 30) // inner + 3):
        if side == "a transposed":
            row = np.array([int(words((k * long + i) & ~3, 4)[(k * long + i) & 3]) & 3 for k in range(inner)])
        else:
            row = words(i * inner, inner) & 3
        expected = row.astype(np.float64) @ few
        np.testing.assert_allclose(product.slice(i).to_host(), expected, rtol=1e-3 if dtype is float16 else 1e-6)


def test_g04_flat_indices_past_two_to_the_31(subject):
    """G04: the last of 46341 * 46341 int8 elements, and the last row of a table whose end lies past 2**31 bytes."""
    needs(subject, 10)
    x = filled(subject, int8, (46341, 46341), 0)
    subject.run("fill", alpha=7, out=x.slice(-1, slice(-1, None)))
    assert int(subject.value("sum", x)) == 7
    assert x.slice(-1, -1).to_host() == 7
    del x
    table = subject.run("astype", bits(subject, 174_751 * 12_289), dtype="uint8").reshape((174_751, 12_289))
    last = subject.value("gather", table, subject.put(np.array([174_750])))
    start = 174_750 * 12_289
    assert np.array_equal(last[0], words(start & ~3, 12_292)[start & 3 :][:12_289].astype(np.uint8))


def test_what_goes_up_comes_down(subject):
    """5 GiB from the host and back, in parts."""
    needs(subject, 12)
    host = np.arange(5 * GIB // 8, dtype=np.int64)
    view = subject.backend.allocate(Layout.of(int64, host.shape))
    subject.backend.upload(view, host)
    for at in places(subject.rng, len(host)):
        assert np.array_equal(looked(view, at), np.arange(at, at + RUN)), at
    assert np.array_equal(view.to_host(), host)


def test_a_device_that_is_full_says_so_and_goes_on(subject):
    """Real memory until there is none: OutOfMemoryError with sizes; what is dropped can be had again."""
    needs(subject, 4)
    share = subject.backend.info.memory_bytes // 16
    held = []

    def fill_up():
        while len(held) < 24:
            held.append(filled(subject, uint8, (share,), len(held)))

    with pytest.raises(OutOfMemoryError, match=str(share)):
        fill_up()
    assert len(held) > 8
    assert [int(looked(x, share - RUN)[0]) for x in held] == list(range(len(held)))
    small = subject.put(np.ones(3, np.float32))
    assert subject.value("sum", small) == 3
    del held[1:]
    gc.collect()
    again = filled(subject, uint8, (share,), 9)
    assert int(looked(again, 0)[0]) == 9
