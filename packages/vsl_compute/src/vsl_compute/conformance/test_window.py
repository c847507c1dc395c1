"""Convolution, pooling, padding and fold: against sums over their definition, and as adjoints of each other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from vsl_compute.conformance.placement import LAYOUTS
from vsl_compute.dtypes import float32, float64
from vsl_compute.errors import AttributeValueError, ShapeError
from vsl_compute.validation import oracle_ops
from vsl_compute.validation.cases_ops import CONVOLUTIONS

COMPOSITES = True  # its tests run with overrides and without


def ids(case):
    return "-".join(f"{k}{v}" for k, v in case.items()).replace(" ", "") or "plain"


def magnitude(function, *arrays, **options):
    """The sum of the magnitudes of the terms: the scale at which a sum is judged."""
    return function(*(a if a is None or isinstance(a, tuple) else np.abs(a) for a in arrays), **options)


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=lambda c: f"{c[0]}{c[1]}{ids(c[2])}".replace(" ", ""))
def test_convolution_and_its_two_gradients_agree_with_their_meaning(subject, case):
    """y, what x receives and what weight receives, dtype by dtype."""
    shape, taps, options = case
    for dtype in subject.floating():
        x, w, b = (
            subject.place(dtype, "dense", shape),
            subject.place(dtype, "dense", taps),
            subject.place(dtype, "dense", taps[:1]),
        )
        what = f"{dtype.name} {options}"
        ulp = subject.narrowed(4, dtype)
        expected = oracle_ops.conv2d(x.host, w.host, b.host, **options)
        scale = magnitude(oracle_ops.conv2d, x.host, w.host, b.host, **options)
        y = subject.run("conv2d", x.view, w.view, b.view, **options)
        # the product is rounded to the dtype once, and again when the bias joins
        subject.close(y.to_host(), expected, dtype, ulp + (0.5 if dtype.itemsize == 2 else 0), f"conv2d {what}", scale)
        subject.close(
            subject.value("conv2d", x.view, w.view, **options),
            oracle_ops.conv2d(x.host, w.host, **options),
            dtype,
            ulp,
            f"conv2d without bias {what}",
            scale,
        )
        g = subject.place(dtype, "dense", y.shape)
        got = subject.value("conv2d_input", g.view, w.view, shape=shape, **options)
        scale = magnitude(oracle_ops.conv2d_input, g.host, w.host, shape, **options)
        # columns are kept in the dtype before fold adds at most P * Q of them
        subject.close(
            got,
            oracle_ops.conv2d_input(g.host, w.host, shape, **options),
            dtype,
            ulp + (1 if dtype.itemsize == 2 else 0),
            f"conv2d_input {what}",
            scale,
        )
        got = subject.value("conv2d_weight", g.view, x.view, shape=taps, **options)
        scale = magnitude(oracle_ops.conv2d_weight, g.host, x.host, taps, **options)
        subject.close(
            got, oracle_ops.conv2d_weight(g.host, x.host, taps, **options), dtype, ulp, f"conv2d_weight {what}", scale
        )


@pytest.mark.parametrize("layout", LAYOUTS)
def test_convolution_takes_every_layout(subject, layout):
    options = {"padding": 1, "stride": 2}
    x, w = subject.place(float32, layout, (2, 3, 6, 5)), subject.place(float32, layout, (4, 3, 3, 3), turn=1)
    scale = magnitude(oracle_ops.conv2d, x.host, w.host, **options)
    out = subject.output(float32, (2, 4, 3, 3), "pitched")
    subject.run("conv2d", x.view, w.view, out=out.view, **options)
    subject.close(
        out.read("conv2d"), oracle_ops.conv2d(x.host, w.host, **options), float32, 4, f"conv2d {layout}", scale
    )
    g = subject.place(float32, layout, (2, 4, 3, 3))
    got = subject.value("conv2d_input", g.view, w.view, shape=(2, 3, 6, 5), **options)
    scale = magnitude(oracle_ops.conv2d_input, g.host, w.host, (2, 3, 6, 5), **options)
    subject.close(
        got,
        oracle_ops.conv2d_input(g.host, w.host, (2, 3, 6, 5), **options),
        float32,
        4,
        f"conv2d_input {layout}",
        scale,
    )
    got = subject.value("conv2d_weight", g.view, x.view, shape=(4, 3, 3, 3), **options)
    scale = magnitude(oracle_ops.conv2d_weight, g.host, x.host, (4, 3, 3, 3), **options)
    subject.close(
        got,
        oracle_ops.conv2d_weight(g.host, x.host, (4, 3, 3, 3), **options),
        float32,
        4,
        f"conv2d_weight {layout}",
        scale,
    )


def test_convolution_in_tiles_gives_the_same_numbers(subject, monkeypatch):
    """A scratch of 4 KB makes many tiles: the batch is cut, and weight gradients add up over the pieces."""
    options = {"padding": 1, "stride": (1, 2), "groups": 2}
    x, w = subject.place(float32, "dense", (7, 4, 6, 5)), subject.place(float32, "dense", (6, 2, 3, 3))
    g = subject.place(float32, "dense", (7, 6, 6, 3))
    calls = (
        (oracle_ops.conv2d, "conv2d", (x, w), None),
        (oracle_ops.conv2d_input, "conv2d_input", (g, w), x.host.shape),
        (oracle_ops.conv2d_weight, "conv2d_weight", (g, x), w.host.shape),
    )
    small = replace(subject.backend.capabilities, scratch_bytes=4096)
    for meaning, op, args, shape in calls:
        hosts = [a.host for a in args] + ([shape] if shape else [])
        expected, scale = meaning(*hosts, **options), magnitude(meaning, *hosts, **options)
        given = options | ({"shape": shape} if shape else {})
        for capabilities in (subject.backend.capabilities, small):
            monkeypatch.setattr(subject.backend, "capabilities", capabilities)
            got = subject.value(op, *(a.view for a in args), **given)
            subject.close(got, expected, float32, 4, f"{op} with {capabilities.scratch_bytes} bytes of scratch", scale)


def test_channels_last_input_gives_the_same_numbers(subject):
    x = subject.place(float32, "dense", (2, 5, 6, 3))
    w = subject.place(float32, "dense", (4, 3, 3, 3))
    last = x.view.permute((0, 3, 1, 2))
    host = x.host.transpose(0, 3, 1, 2)
    got = subject.value("conv2d", last, w.view, padding=1)
    subject.close(
        got,
        oracle_ops.conv2d(host, w.host, padding=1),
        float32,
        4,
        "conv2d channels-last",
        magnitude(oracle_ops.conv2d, host, w.host, padding=1),
    )


@pytest.mark.parametrize("channels", [(8, 12), (5, 7), (16, 3), (4, 6)], ids=str)
def test_convolutions_read_images_in_any_order_of_memory(subject, channels):
    """Planes, channels-last, and channels-last within wider images: from a multiple of four elements on, and from none."""
    c, k = channels
    options = {"padding": (1, 0), "stride": (1, 2)}
    w = subject.place(float32, "dense", (k, c, 3, 2))

    def placed(n, channels, height, width):
        yield (x := subject.place(float32, "dense", (n, channels, height, width))).view, x.host
        wide = subject.place(float32, "dense", (n, height, width, channels + 8))
        for start in (0, 4, 3):
            index = (slice(None), slice(None), slice(None), slice(start, start + channels))
            yield wide.view.slice(*index).permute((0, 3, 1, 2)), wide.host[index].transpose(0, 3, 1, 2)
        wide = (
            wide.view.slice(slice(None), slice(None), slice(None), slice(4, 4 + channels)),
            wide.host[..., 4 : 4 + channels],
        )
        yield (
            wide[0].slice(slice(None), slice(None, None, -1)).permute((0, 3, 1, 2)),
            wide[1][:, ::-1].transpose(0, 3, 1, 2),
        )

    def check(op, got, meaning, *hosts):
        subject.close(
            got, meaning(*hosts, **options), float32, 4, f"{op} {channels}", magnitude(meaning, *hosts, **options)
        )

    for (x, x_host), (g, g_host) in zip(placed(3, c, 6, 9), placed(3, k, 6, 4), strict=True):
        check("conv2d", subject.value("conv2d", x, w.view, **options), oracle_ops.conv2d, x_host, w.host)
        shapes = x.shape, w.view.shape
        got = subject.value("conv2d_input", g, w.view, shape=shapes[0], **options)
        check("conv2d_input", got, oracle_ops.conv2d_input, g_host, w.host, shapes[0])
        got = subject.value("conv2d_weight", g, x, shape=shapes[1], **options)
        check("conv2d_weight", got, oracle_ops.conv2d_weight, g_host, x_host, shapes[1])


def test_nan_and_infinity_stay_in_the_windows_that_see_them(subject):
    """What a window does not see cannot touch it, padding included; a NaN in a filter is in all of that filter's results."""
    x, w = subject.place(float32, "dense", (2, 8, 7, 7)), subject.place(float32, "dense", (4, 8, 3, 3))
    for value in (np.nan, np.inf):
        host = x.host.astype(np.float32)
        host[1, 5, 2, 3] = value
        y = subject.value("conv2d", subject.put(host), w.view, padding=1)
        seen = np.zeros(y.shape, bool)
        seen[1, :, 1:4, 2:5] = True
        assert np.array_equal(~np.isfinite(y), seen), value
        filters = w.host.astype(np.float32)
        filters[2, 0, 1, 1] = value
        y = subject.value("conv2d", x.view, subject.put(filters), padding=1)
        assert np.array_equal(~np.isfinite(y).all((0, 2, 3)), [False, False, True, False]), value


def test_d06_an_empty_batch_is_computed_not_launched(subject):
    """D06: conv2d, pooling and linear on a batch of 0; the weight's gradient is zeros, not old memory."""
    x = subject.put(np.zeros((0, 1, 5, 5), np.float32))
    w = subject.place(float32, "dense", (2, 1, 3, 3))
    y = subject.run("conv2d", x, w.view)
    assert y.shape == (0, 2, 3, 3)
    assert not subject.value("conv2d_weight", y, x, shape=(2, 1, 3, 3)).any()
    assert subject.value("conv2d_input", y, w.view, shape=(0, 1, 5, 5)).shape == (0, 1, 5, 5)
    assert subject.value("max_pool2d", x, kernel_size=2)[0].shape == (0, 1, 2, 2)
    assert subject.value("avg_pool2d", x, kernel_size=2).shape == (0, 1, 2, 2)
    assert subject.value(
        "linear", subject.put(np.zeros((0, 3), np.float32)), subject.place(float32, "dense", (2, 3)).view
    ).shape == (0, 2)


def test_fold_is_the_adjoint_of_window(subject):
    """Every layout of the windows; overlapping, gapped and dilated windows on one and two axes."""
    cases = (
        ((3, 11), (1,), (4,), (2,), (1,)), ((3, 11), (1,), (3,), (1,), (2,)), ((3, 11), (0,), (2,), (1,), (1,)),
        ((2, 9, 8, 3), (1, 2), (3, 2), (2, 3), (1, 2)), ((2, 6, 5), (1, 2), (2, 2), (2, 2), (1, 1)),
    )  # fmt: skip
    for dtype in subject.floating():
        if not subject.has("fold", dtype):
            continue
        for shape, axes, sizes, steps, dilations in cases:
            windows = subject.place(dtype, "dense", shape).view.window(axes, sizes, steps, dilations).shape
            for layout in ("dense", "transposed", "stepped", "broadcast", "flipped"):
                x = subject.place(dtype, layout, windows)
                out = subject.output(dtype, shape, "pitched")
                subject.run("fold", x.view, out=out.view, shape=shape, axes=axes, steps=steps, dilations=dilations)
                what = f"fold {dtype.name} {shape} {layout}"
                expected = oracle_ops.fold(x.host, shape, axes, steps, dilations)
                scale = oracle_ops.fold(np.abs(x.host), shape, axes, steps, dilations)
                ulp = subject.narrowed(4, dtype) + (2 if dtype.itemsize == 2 else 0)
                subject.close(out.read(what), expected, dtype, ulp, what, scale)


def test_pad_and_concat_move_values_unchanged(subject):
    for dtype in subject.dtypes("n"):
        if not subject.computes(dtype):
            continue
        for layout in LAYOUTS:
            x = subject.place(dtype, layout, (3, 4))
            widths = ((1, 2), (0, 3))
            got = subject.value("pad", x.view, widths=widths, value=2)
            subject.close(got, oracle_ops.pad(x.host, widths, 2), dtype, 0, f"pad {dtype.name} {layout}")
            other = subject.place(dtype, "dense", (3, 2))
            empty = subject.place(dtype, "dense", (3, 0))
            got = subject.value("concat", x.view, other.view, empty.view, x.view, axis=-1)
            subject.close(
                got, np.concatenate([x.host, other.host, x.host], axis=1), dtype, 0, f"concat {dtype.name} {layout}"
            )
    x = subject.place(float64 if float64 in subject.floating() else float32, "dense", (2, 2))
    assert subject.value("concat", x.view, axis=0).tolist() == x.host.tolist()


def test_windows_larger_than_their_input_are_refused_by_name(subject):
    x, w = subject.place(float32, "dense", (1, 2, 4, 4)).view, subject.place(float32, "dense", (3, 2, 5, 3)).view
    with pytest.raises(ShapeError, match=r"conv2d: window \(5, 3\).*larger than the input \(4, 4\)"):
        subject.run("conv2d", x, w)
    with pytest.raises(ShapeError, match=r"conv2d: .*2 channels.*wants 4"):
        subject.run("conv2d", x, subject.place(float32, "dense", (3, 4, 1, 1)).view)
    with pytest.raises(ShapeError, match="max_pool2d: kernel"):
        subject.run("max_pool2d", x, kernel_size=6)
    for option in (
        {"stride": 0},
        {"dilation": 0},
        {"padding": -1},
        {"groups": 0},
        {"stride": (1, 2, 3)},
        {"stride": 1.5},
    ):
        with pytest.raises(AttributeValueError, match=f"conv2d: {next(iter(option))}"):
            subject.run("conv2d", x, subject.place(float32, "dense", (3, 2, 1, 1)).view, **option)


@pytest.mark.slow
def test_a_fold_of_many_elements_reaches_the_last(subject):
    """G02: llvmpipe leaves a loop after 65535 turns, and a thread that has many elements takes some for each. Slow: 100 MB."""
    n = 5000
    one = subject.run("fill", out=subject.output(float32, (1, 1, 1, 1)).view, alpha=1.0)
    windows = one.expand((n - 2, n - 2, 3, 3))
    got = np.asarray(subject.run("fold", windows, shape=(n, n), axes=(0, 1), steps=(1, 1), dilations=(1, 1)).to_host())

    assert (got[2:-2, 2:-2] == 9).all()
    assert (got[-1, -1], got[-1, -2], got[-3, -1]) == (1, 2, 3)
