"""Every reduction: dtypes, axes, layouts, empty axes, ties and NaN, long sums; scans and sorts."""

from __future__ import annotations

from operator import attrgetter

import numpy as np
import pytest

from vsl_compute.conformance.placement import LAYOUTS, OUTPUTS
from vsl_compute.dispatch import reduced_dtypes
from vsl_compute.dtypes import bool_, float16, float32, int8, int64, uint64
from vsl_compute.errors import DTypeError, ShapeError, UnsupportedError
from vsl_compute.rows.reductions import REDUCTIONS, TABLE
from vsl_compute.validation import oracle
from vsl_compute.validation.cases import AXES, BLOCK, UNBIASED, reduction_scales, takes


def judge(subject, row, dtype, x, axes, got, what, keepdims=False):
    """Compare each output with the oracle's; sums are judged at the sum of magnitudes."""
    expected = oracle.reduction(row.name, x, axes, keepdims)
    outputs = zip(
        got if isinstance(got, tuple) else (got,),
        expected if isinstance(expected, tuple) else (expected,),
        reduced_dtypes(row, dtype),
        reduction_scales(row, x, axes, keepdims),
        strict=True,
    )
    for number, (part, want, result, scale) in enumerate(outputs):
        wanted = oracle.wrapped(want, result) if result.is_integer else want
        ulp = subject.ulp(row, result) if result.is_floating else 0
        subject.close(part, wanted, result, ulp, f"{what} output {number}", scale if result.is_floating else None)


@pytest.mark.parametrize("row", REDUCTIONS, ids=attrgetter("name"))
def test_reduction_agrees_with_its_meaning_over_every_axis(subject, row):
    """All dtypes, each set of axes, kept and dropped, from every layout, into outputs between guards."""
    for dtype in subject.dtypes("b") + subject.dtypes("n"):
        if not takes(row, dtype) or not subject.computes(dtype):
            continue
        for number, axes in enumerate(AXES):
            layout = LAYOUTS[(number + dtype.itemsize) % len(LAYOUTS)] if dtype is not float32 else None
            for name in [layout] if layout else LAYOUTS:
                x = subject.place(dtype, name, BLOCK, UNBIASED.get(row.name, (-4.0, 4.0)))
                what, keepdims = f"{row.name} {dtype.name} axes {axes} {name}", bool(number % 2)
                shape = tuple(1 if a in axes else n for a, n in enumerate(BLOCK) if keepdims or a not in axes)
                outs = [subject.output(d, shape, OUTPUTS[number % len(OUTPUTS)]) for d in reduced_dtypes(row, dtype)]
                views = tuple(o.view for o in outs)
                subject.run(row, x.view, axes=axes, keepdims=keepdims, out=views if len(views) > 1 else views[0])
                got = tuple(o.read(what) for o in outs)
                judge(subject, row, dtype, x.host, axes, got if len(got) > 1 else got[0], what, keepdims)


@pytest.mark.parametrize("row", REDUCTIONS, ids=attrgetter("name"))
@pytest.mark.parametrize("size", [1, 2, 3, 255, 256, 257, 1025, 4099])
def test_reduction_has_no_tail_that_it_drops(subject, row, size):
    """Long and odd lengths, along the inner axis, the outer one, and all of them."""
    for dtype in (bool_,) if row.signature.inputs == "b" else (float32,):
        if dtype not in subject.dtypes("b") + subject.dtypes("f"):
            continue
        for shape, axes in (((size,), (0,)), ((3, size), (1,)), ((size, 3), (0,)), ((2, size), (0, 1))):
            x = subject.place(dtype, "dense", shape, (0.99, 1.01) if row.name == "prod" else (-4.0, 4.0))
            got = subject.value(row, x.view, axes=axes)
            judge(subject, row, dtype, x.host, axes, got, f"{row.name} {dtype.name} {shape} axes {axes}")


@pytest.mark.parametrize("row", REDUCTIONS, ids=attrgetter("name"))
def test_reduction_over_no_axis_and_of_an_array_without_axes(subject, row):
    """Each output is of one element."""
    for dtype in subject.dtypes("b") + subject.dtypes("n"):
        if not takes(row, dtype) or not subject.computes(dtype):
            continue
        for shape, axes in (((), None), ((), ()), ((3, 2), ()), ((1, 1), (0, 1))):
            x = subject.place(dtype, "dense", shape, UNBIASED.get(row.name, (-4.0, 4.0)))
            got = subject.value(row, x.view, axes=axes)
            over = tuple(range(len(shape))) if axes is None else axes
            judge(subject, row, dtype, x.host, over, got, f"{row.name} {dtype.name} {shape} axes {axes}")


def test_reduction_of_eight_axes_in_any_order(subject):
    """Axes that do not merge, turned, backwards and repeated; the result keeps the order of what it was made of."""
    for turn in ((0, 1, 2, 3, 4, 5, 6, 7), (7, 2, 5, 0, 3, 6, 1, 4), (1, 0, 3, 2, 5, 4, 7, 6)):
        host = subject.rng.integers(-3, 4, (2, 3, 2, 1, 3, 2, 2, 3)).astype(np.float32)
        shape = tuple(host.shape[a] for a in turn)
        view, array = subject.put(host).permute(turn), host.transpose(turn)
        if turn[0]:
            flip = tuple(slice(None, None, -1) if i % 2 else slice(None) for i in range(8))
            view, array = view.slice(*flip), array[flip]
        wide = tuple(5 if n == 1 else n for n in shape)
        view, array = view.expand(wide), np.broadcast_to(array, wide)
        for axes in ((3,), (0, 7), (1, 3, 4, 6), (0, 2, 4, 5, 6)):
            assert np.array_equal(subject.value("sum", view, axes=axes), array.sum(axes)), (turn, axes)
            assert np.array_equal(subject.value("max", view, axes=axes, keepdims=True), array.max(axes, keepdims=True))


def test_no_axes_means_all_and_negative_ones_count_from_the_end(subject):
    x = subject.place(float32, "dense", (3, 4))
    assert subject.value("sum", x.view).shape == ()
    assert subject.value("max", x.view).shape == ()
    assert subject.value("sum", x.view, axes=()).tolist() == x.host.tolist()
    assert subject.value("sum", x.view, axes=-1).shape == (3,)
    assert subject.value("max", x.view, axes=(-2,)).tolist() == x.host.max(axis=0).tolist()
    zero_d = subject.place(float32, "dense", ())
    assert subject.value("sum", zero_d.view) == zero_d.host
    assert subject.value("argmax", zero_d.view) == 0


def test_a04_reductions_of_nothing(subject):
    """A04: sum 0, prod 1, mean NaN, all True, any False; max and argmax raise, unless nothing is kept either."""
    for dtype in subject.floating():
        none = subject.put(np.zeros((2, 0)), dtype)
        known = {"sum": 0, "prod": 1, "mean": np.nan, "logsumexp": -np.inf}
        for name, value in known.items():
            for axes, shape in (((1,), (2,)), ((0, 1), ())):
                expected = np.full(shape, value)
                subject.close(
                    subject.value(name, none, axes=axes), expected, dtype, 0, f"{name} of nothing {dtype.name}"
                )
        for part in subject.value("moments", none, axes=(1,)):
            assert np.isnan(part).all(), dtype.name
        for name in ("max", "min", "argmax", "argmin"):
            with pytest.raises(ShapeError, match=rf"{name}: .*\(2, 0\).*no element"):
                subject.run(name, none, axes=(1,))
            kept = subject.value(name, subject.put(np.zeros((0, 3)), dtype), axes=(1,))
            assert kept.shape == (0,), name
        assert subject.value("sum", subject.put(np.zeros((0, 3)), dtype), axes=(1,)).shape == (0,)
    truth = subject.put(np.zeros((2, 0), bool))
    assert subject.value("all", truth, axes=(1,)).tolist() == [True, True]
    assert subject.value("any", truth, axes=(1,)).tolist() == [False, False]


def test_a06_half_sums_accumulate_in_float32(subject):
    """A06: the mean of 4096 times 300 is 300, though the sum is infinite in float16."""
    if float16 not in subject.dtypes("f") or not subject.computes(float16):
        return
    x = subject.put(np.full(4096, 300.0), float16)
    assert subject.value("mean", x) == 300
    assert subject.value("sum", x) == np.inf
    wave = subject.put(np.array([300.0, -300.0] * 2048), float16)
    assert subject.value("sum", wave) == 0
    mean, variance = subject.value("moments", wave)
    assert abs(float(mean)) <= (0 if subject.on_cpu else 300 * 2.0**-22)  # elsewhere means are joined one by one
    assert float(variance) == pytest.approx(90000, rel=0 if subject.on_cpu else 2.0**-20, abs=0)
    ones = subject.put(np.ones(4096), float16)
    assert subject.value("sum", ones) == 4096  # a float16 accumulator stops at 2048


def test_a07_long_sums_do_not_stall(subject):
    """A07: a serial float32 sum of ones stops at 2**24; of 0.1 it drifts by a tenth. A tenth of the trap's sizes each."""
    if float32 not in subject.dtypes("f"):
        return
    tenths = subject.run("fill", out=subject.output(float32, (1_000_000,)).view, alpha=0.1)
    assert abs(float(subject.value("sum", tenths)) - 100000.00149) <= 0.1
    few = subject.value("sum", tenths.reshape((2, 500_000)), axes=(1,))
    assert np.abs(few - 50000.000745).max() <= 0.05
    mixed = subject.put(np.array([1e8] + [1.0] * 1024 + [-1e8], np.float32))
    assert float(subject.value("sum", mixed)) >= 1000


def test_g05_sums_do_not_depend_on_a_group_s_width(subject):
    """G05: 1 to 256 sum to 32 896 at any subgroup width; likewise max, argmax and products of two."""
    numbers = subject.put(np.arange(1, 257, dtype=np.float32))
    assert subject.value("sum", numbers) == 32896
    assert subject.value("max", numbers) == 256
    assert subject.value("argmax", numbers) == 255
    for width in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024):
        ones = subject.put(np.ones((3, width + 1), np.float32))
        assert subject.value("sum", ones, axes=(1,)).tolist() == [width + 1] * 3, width


@pytest.mark.slow
def test_a07_twenty_million_ones(subject):
    """A07: 20 000 000 ones sum to 20 000 000, ten million tenths to 1 000 000 within 1. Slow: 80 MB."""
    ones = subject.run("fill", out=subject.output(float32, (20_000_000,)).view, alpha=1.0)
    assert float(subject.value("sum", ones)) == 20_000_000
    tenths = subject.run("fill", out=subject.output(float32, (10_000_000,)).view, alpha=0.1)
    assert abs(float(subject.value("sum", tenths)) - 1_000_000.0149) <= 1.0
    assert float(subject.value("mean", tenths)) == pytest.approx(0.1, rel=1e-6)


def test_a10_integers_and_truth_accumulate_in_int64(subject):
    """A10: int8 100 + 100 is 200; 300 times True is 300; the mean of 1 and 2 is 1.5; True + True is refused."""
    assert subject.value("sum", subject.put(np.array([100, 100], np.int8))).tolist() == 200
    assert subject.value("prod", subject.put(np.array([100, 100], np.int8))).tolist() == 10000
    assert subject.value("sum", subject.put(np.ones(300, bool))).tolist() == 300
    mean = subject.value("mean", subject.put(np.array([1, 2])))
    assert mean == 1.5
    assert mean.dtype == np.float32
    truth = subject.put(np.ones(2, bool))
    with pytest.raises(DTypeError, match="add"):
        subject.run("add", truth, truth)


def test_nan_wins_and_the_first_of_equals_is_chosen(subject):
    for dtype in subject.floating():
        x = np.array([[1, 3, 3, 2], [np.nan, 5, np.nan, 1], [0, -0.0, 0, -1], [-np.inf] * 4, [np.inf, 1, np.inf, 2]])
        view = subject.put(x, dtype)
        assert subject.value("argmax", view, axes=(1,)).tolist() == [1, 0, 0, 0, 0], dtype.name
        assert subject.value("argmin", view, axes=(1,)).tolist() == [0, 0, 3, 0, 1], dtype.name
        assert np.isnan(subject.value("max", view, axes=(1,))).tolist() == [False, True, False, False, False]
        assert np.isnan(subject.value("min", view, axes=(1,))).tolist() == [False, True, False, False, False]
        value, index = subject.value("max_index", view, axes=(1,))
        assert index.tolist() == [1, 0, 0, 0, 0], dtype.name
        assert value[[0, 2, 3, 4]].tolist() == [3, 0, -np.inf, np.inf], dtype.name
        late = np.zeros(1000)
        late[777] = np.nan
        assert np.isnan(subject.value("max", subject.put(late, dtype))), f"max swallowed a late NaN in {dtype.name}"
        assert subject.value("argmin", subject.put(late, dtype)) == 777


def test_arg_reductions_over_several_axes_count_in_c_order(subject):
    for layout in LAYOUTS[:4]:
        x = subject.place(float32, layout, (3, 4, 5))
        assert subject.value("argmax", x.view) == int(np.argmax(x.host)), layout
        flat = x.host.transpose(1, 0, 2).reshape(4, 15)
        assert subject.value("argmax", x.view, axes=(0, 2)).tolist() == np.argmax(flat, axis=1).tolist(), layout


def test_integer_extremes_reach_the_ends_of_the_range(subject):
    """An identity of the wrong type (0, or the float's infinity) shows where all values are the dtype's own end."""
    for dtype in subject.dtypes("i"):
        if not subject.computes(dtype):
            continue
        low, high = subject.put(np.full(5, dtype.min, dtype.storage)), subject.put(np.full(5, dtype.max, dtype.storage))
        assert subject.value("max", low) == dtype.min, dtype.name
        assert subject.value("min", high) == dtype.max, dtype.name
        assert subject.value("max", high) == dtype.max, dtype.name
        assert (subject.value("argmax", low), subject.value("argmin", high)) == (0, 0), dtype.name


def test_an_index_that_int32_does_not_hold_is_refused(subject):
    """max_index numbers elements in int32: of more, it says what does; the array is one element, repeated."""
    x = subject.put(np.ones(1, np.float32)).expand((1 << 31,))
    with pytest.raises(UnsupportedError, match=r"max_index: .* int32 does not number 2147483648 elements; use argmax"):
        subject.run("max_index", x)


def test_a02_logsumexp_of_infinities(subject):
    """A02: -inf twice is -inf, 1000 twice is 1000.69, inf wins, and large negatives do not underflow."""
    x = np.array([[-np.inf, -np.inf], [-np.inf, 0], [1000, 1000], [-1000, -1000], [np.inf, 0]])
    for dtype in subject.floating():
        got = subject.value("logsumexp", subject.put(x, dtype), axes=(1,))
        expected = [-np.inf, 0, 1000.6931471805599453, -999.3068528194400547, np.inf]
        subject.close(got, np.array(expected), dtype, subject.narrowed(4, dtype), f"logsumexp {dtype.name}")


def test_moments_are_right_far_from_zero(subject):
    """Welford, not E[x*x] - E[x]**2: a mean of 1e4 with a spread of 1 keeps its variance."""
    for dtype in subject.floating():
        if dtype.itemsize < 4:
            continue
        x = subject.rng.standard_normal((3, 500)).astype(dtype.storage) + dtype.storage.type(1e4)
        mean, variance = subject.value("moments", subject.put(x), axes=(1,))
        wide = x.astype(np.longdouble)
        assert np.allclose(mean, wide.mean(axis=1).astype(float), rtol=1e-6), dtype.name
        assert np.allclose(variance, wide.var(axis=1).astype(float), rtol=1e-3), dtype.name
    mean, variance = subject.value("moments", subject.put(np.array([[5.0]], np.float32)), axes=(1,))
    assert (mean.tolist(), variance.tolist()) == ([5], [0])  # A09, biased
    for place in range(5):  # wherever an infinity stands, as NumPy's
        row = np.where(np.arange(5) == place, np.inf, np.arange(5)).astype(np.float32)
        assert np.isnan(subject.value("moments", subject.put(np.stack([row, -row])), axes=(1,))[1]).all(), place


def test_cumsum_is_the_sum_of_every_prefix(subject):
    for dtype in subject.dtypes("n"):
        if not subject.has("scan", dtype):
            continue
        result = {"i": int64, "u": uint64}.get(dtype.kind, dtype)
        for layout in LAYOUTS:
            x = subject.place(dtype, layout, (3, 37))
            expected = oracle.prefix("sum", x.host)
            wanted = oracle.wrapped(expected, result) if result.is_integer else expected
            scale = np.cumsum(np.abs(x.host.astype(np.longdouble)), axis=-1) if result.is_floating else None
            what = f"cumsum {dtype.name} {layout}"
            out = subject.output(result, (3, 37), "pitched")
            subject.run("cumsum", x.view, out=out.view)
            subject.close(out.read(what), wanted, result, subject.narrowed(16, result), what, scale)
    assert subject.value("cumsum", subject.put(np.zeros((2, 0), np.float32))).shape == (2, 0)


def test_sort_is_stable_with_nan_last(subject):
    for dtype in subject.dtypes("n"):
        if not subject.has("sort", dtype):
            continue
        for size in (1, 2, 33, 130):
            x = subject.place(dtype, "transposed", (3, size), (0.0, 9.0)).host.copy()
            x = np.round(x) if dtype.is_floating else x % 7
            x = x.astype(np.float32) if dtype.name == "bfloat16" else x.astype(dtype.storage)
            if dtype.is_floating and size > 4:
                x[:, [1, 4]] = np.nan
            values, index = subject.value("sort", subject.put(x, dtype))
            expected = np.argsort(x, axis=-1, kind="stable")
            assert index.tolist() == expected.tolist(), f"sort {dtype.name} {size}"
            assert np.array_equal(values, np.take_along_axis(x, expected, -1), equal_nan=dtype.is_floating), (
                f"sort {dtype.name} {size}"
            )
            values, index = subject.value("sort", subject.put(x, dtype), descending=True)
            assert np.array_equal(values, np.take_along_axis(x, index, -1), equal_nan=dtype.is_floating), (
                f"descending {dtype.name} {size}"
            )
            finite = values[:, : size - 2] if dtype.is_floating and size > 4 else values
            assert (np.diff(finite.astype(float), axis=-1) <= 0).all(), f"descending {dtype.name} {size}"


def test_reductions_read_overlapping_windows(subject):
    """A window view is reduced where it lies: what pooling is made of."""
    x = subject.place(float32, "dense", (2, 9))
    windows = x.view.window((1,), (3,), (2,), (1,))
    expected = np.lib.stride_tricks.sliding_window_view(x.host, 3, axis=1)[:, ::2]
    assert subject.value("max", windows, axes=(2,)).tolist() == expected.max(axis=2).tolist()
    got = subject.value("sum", windows, axes=(2,))
    subject.close(got, expected.astype(np.float64).sum(axis=2), float32, 4, "sum of windows", 12.0)


def test_int8_and_float_have_the_documented_result_dtypes(subject):
    table = {
        ("sum", int8): "int64",
        ("prod", int8): "int64",
        ("max", int8): "int8",
        ("mean", int8): "float32",
        ("argmax", float32): "int64",
    }
    for (name, dtype), result in table.items():
        y = subject.run(TABLE[name], subject.put(np.ones(3), dtype))
        assert y.dtype.name == result, name


NEIGHBOURS = (  # shape, where its elements begin, reduced axes: one long row, many short ones, rows a step apart
    ((200003,), 0, (0,)),
    ((200004,), 0, (0,)),
    ((3, 40000), 0, (1,)),
    ((7, 4097), 1, (1,)),
    ((300, 10), 0, (1,)),
    ((300, 12), 2, (0, 1)),
    ((4, 6, 64), 0, (0, 2)),
    ((4, 6, 50), 1, (0, 2)),
    ((2, 3, 5, 2000), 0, (0, 3)),
)


@pytest.mark.parametrize(("shape", "start", "axes"), NEIGHBOURS)
def test_neighbours_in_memory_are_reduced_in_any_number(subject, shape, start, axes):
    rng = np.random.default_rng(8)
    host = rng.normal(size=(*shape[:-1], shape[-1] + start)).astype(np.float32)[..., start:]
    base = subject.put(np.concatenate([np.zeros((*shape[:-1], start), np.float32), host], -1), float32)
    x = base.slice(*(slice(None),) * (len(shape) - 1), slice(start, None))
    wide, count = host.astype(np.longdouble), int(np.prod([shape[a] for a in axes]))
    subject.close(subject.value("sum", x, axes=axes), wide.sum(axis=axes), float32, 32, f"sum {shape}", 4 * count**0.5)
    assert (subject.value("max", x, axes=axes) == host.max(axis=axes)).all()
    mean, variance = subject.value("moments", x, axes=axes)
    subject.close(mean, wide.mean(axis=axes), float32, 16, f"mean {shape}", 1)
    subject.close(variance, wide.var(axis=axes), float32, 16, f"variance {shape}", 4)
    if len(axes) == 1:
        assert (subject.value("argmax", x, axes=axes) == host.argmax(axis=axes[0])).all()
