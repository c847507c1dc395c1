"""What is refused: each error names the op, what was given and the rule; dtypes promote by one table (A12)."""

from __future__ import annotations

import numpy as np
import pytest

from vsl_compute.dtypes import bool_, float16, float32, float64, int8, int32, int64, promote, uint8
from vsl_compute.errors import AttributeValueError, DeviceError, DTypeError, ShapeError, UnsupportedError


def ones(subject, dtype, *shape):
    return subject.put(np.ones(shape), dtype)


def test_a12_python_scalars_are_weak(subject):
    """A12: the array's dtype stays; a float makes float32 of integers; an integer that does not fit is OverflowError."""
    table = (
        (float32, 2.5, float32), (float16, 1.0, float16), (int8, 1, int8), (int32, 1.5, float32), (int64, 2.0, float32), (float64, 3, float64),
        (uint8, 200, uint8), (int8, True, int8),
    )  # fmt: skip
    for dtype, number, result in table:
        if dtype in subject.dtypes("n") and subject.computes(dtype) and subject.computes(result):
            for y in (
                subject.run("add", ones(subject, dtype, 3), number),
                subject.run("add", number, ones(subject, dtype, 3)),
            ):
                assert y.dtype is result, (dtype.name, number)
                assert y.to_host().tolist() == [1 + number] * 3, (dtype.name, number)
    for dtype, number in ((int8, 300), (uint8, -1), (int8, -129), (int64, 2**63)):
        with pytest.raises(OverflowError, match=f"add: {number} does not fit {dtype.name}"):
            subject.run("add", ones(subject, dtype, 2), number)
    assert subject.value("multiply", ones(subject, float32, 2), 1e300).tolist() == [np.inf, np.inf]
    if float16 in subject.dtypes("f") and subject.computes(float16):
        assert subject.value("multiply", ones(subject, float16, 2), 1e5).tolist() == [np.inf, np.inf]
        typed = subject.run("multiply", ones(subject, float16, 2), np.float32(1e5))
        assert typed.dtype is float32
        assert typed.to_host().tolist() == [1e5, 1e5]


def test_arrays_of_two_dtypes_meet_in_the_one_that_holds_both(subject):
    pool = [d for d in subject.dtypes("n") if subject.computes(d)]
    for a in pool:
        for b in pool:
            x, y = ones(subject, a, 2), ones(subject, b, 2)
            try:
                expected = promote(a, b)
            except DTypeError:
                with pytest.raises(DTypeError, match="promote"):
                    subject.run("add", x, y)
                continue
            if subject.computes(expected):
                got = subject.run("add", x, y)
                assert got.dtype is expected, (a.name, b.name)
                assert got.to_host().tolist() == [2, 2], (a.name, b.name)
    assert promote(int64, float16) is float16  # never a silent float64: many GPUs have none


def test_integers_where_floats_are_needed_become_float32(subject):
    y = subject.run("exp", ones(subject, int32, 2))
    assert y.dtype is float32
    assert subject.run("divide", ones(subject, int64, 2), ones(subject, int64, 2)).dtype is float32
    assert subject.run("softmax", ones(subject, int32, 2)).dtype is float32


def test_bools_are_not_numbers(subject):
    truth = ones(subject, bool_, 2)
    for op in ("negative", "exp", "sum", "mean", "max"):
        if op == "sum":
            assert subject.value(op, truth) == 2
            continue
        with pytest.raises(DTypeError, match=op):
            subject.run(op, truth)
    with pytest.raises(DTypeError, match="logical_and"):
        subject.run("logical_and", ones(subject, int32, 2), truth)
    with pytest.raises(DTypeError, match="bitwise_and"):
        subject.run("bitwise_and", ones(subject, float32, 2), 1)


def test_shapes_that_do_not_broadcast_are_named(subject):
    with pytest.raises(ShapeError, match=r"add: shapes \(2, 3\) and \(4,\) do not broadcast"):
        subject.run("add", ones(subject, float32, 2, 3), ones(subject, float32, 4))
    with pytest.raises(ShapeError, match=r"add: takes 2 arguments \(a, b\), given 1"):
        subject.run("add", ones(subject, float32, 2))
    with pytest.raises(ShapeError, match=r"negative: out is float32\[3\], but the result is float32\[2\]"):
        subject.run("negative", ones(subject, float32, 2), out=ones(subject, float32, 3))
    with pytest.raises(ShapeError, match=r"negative: out is int32\[2\], but the result is float32\[2\]"):
        subject.run("negative", ones(subject, float32, 2), out=ones(subject, int32, 2))
    with pytest.raises(ShapeError, match="max: takes one View, given 2"):
        subject.run("max", ones(subject, float32, 2), ones(subject, float32, 2))


def test_axes_and_options_are_named(subject):
    x = ones(subject, float32, 2, 3)
    for call, words in (
        (lambda: subject.run("sum", x, axes=2), r"sum: axes \(2,\)"),
        (lambda: subject.run("sum", x, axes=(0, -2)), "sum: axes .* twice"),
        (lambda: subject.run("sum", x, axis=0), "sum: no option is called axis"),
        (lambda: subject.run("softmax", x, axis=5), "softmax: axis=5"),
        (lambda: subject.run("softmax", x, dim=1), "softmax: no option is called dim"),
        (lambda: subject.run("clamp", x, low=0.0), "clamp: takes the options low, high; given low"),
        (lambda: subject.run("add", x, x, alpha=2), "add: takes no options"),
        (lambda: subject.run("astype", x), "astype: the option dtype must be given"),
        (lambda: subject.run("concat", x, axis=7), "concat: axis=7"),
    ):
        with pytest.raises(AttributeValueError, match=words):
            call()
    with pytest.raises(DTypeError, match="dtype 'float8'"):
        subject.run("astype", x, dtype="float8")


def test_a_convolution_that_there_is_not_is_named(subject):
    """What no backend computes: axes, windows, groups, biases and steps, each with what would do."""
    x, w = ones(subject, float32, 1, 4, 5, 5), ones(subject, float32, 6, 4, 3, 3)
    flat, deep = ones(subject, float32, 1, 4, 2, 5), ones(subject, float32, 1, 4, 5, 5, 5)
    for error, words, call in (
        (ShapeError, "must have 4 axes", lambda: subject.run("conv2d", deep, w)),
        (ShapeError, r"window \(3, 3\) .* is larger than the input \(2, 5\)", lambda: subject.run("conv2d", flat, w)),
        (ShapeError, "with groups=3 wants", lambda: subject.run("conv2d", x, w, groups=3)),
        (ShapeError, r"bias \(5,\) must be \(6,\)", lambda: subject.run("conv2d", x, w, ones(subject, float32, 5))),
        (AttributeValueError, "stride", lambda: subject.run("conv2d", x, w, stride=0)),
        (AttributeValueError, "dilation", lambda: subject.run("conv2d", x, w, dilation=-1)),
    ):  # fmt: skip
        with pytest.raises(error, match=f"conv2d: .*{words}"):
            call()


def test_options_left_out_are_named_on_every_call(subject):
    """Also once a plan for these layouts exists."""
    x = ones(subject, float32, 2)
    for _ in range(2):
        with pytest.raises(AttributeValueError, match="clamp: takes the options low, high; given none"):
            subject.run("clamp", x)
        assert subject.value("clamp", x, low=0.0, high=0.5).tolist() == [0.5, 0.5]


def test_unknown_ops_suggest_near_ones(subject):
    with pytest.raises(UnsupportedError, match=r"'ad'.*did you mean"):
        subject.run("ad", ones(subject, float32, 2))


def test_values_that_are_not_views_are_refused(subject):
    x = ones(subject, float32, 2)
    for bad in (None, "three", [1.0, 2.0], np.ones(2)):
        with pytest.raises(DTypeError, match="add: argument"):
            subject.run("add", x, bad)
    with pytest.raises(DeviceError, match="add: no argument is a View"):
        subject.run("add", 1.0, 2.0)
    with pytest.raises(DTypeError, match="matmul: argument"):
        subject.run("matmul", x.reshape((1, 2)), np.ones((2, 1)))


def test_options_that_no_integer_holds_are_refused(subject):
    """A float option of an integer array: 2.5, NaN and infinity have no integer."""
    x = ones(subject, int32, 2)
    for number in (2.5, float("nan"), float("inf")):
        with pytest.raises(DTypeError, match="scale"):
            subject.run("scale", x, alpha=number)


def test_a_failed_call_leaves_its_output_alone(subject):
    out = subject.output(float32, (2, 3))
    with pytest.raises(ShapeError):
        subject.run("add", ones(subject, float32, 2, 3), ones(subject, float32, 4), out=out.view)
    before = out.view.buffer.version
    with pytest.raises(ShapeError):
        subject.run("negative", ones(subject, float32, 3), out=out.view)
    assert out.view.buffer.version == before
