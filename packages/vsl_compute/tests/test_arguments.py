"""What ops and `asarray` refuse: numbers that do not fit, what is no number, indices and windows that mean nothing."""

from __future__ import annotations

import numpy as np
import pytest

from vsl_compute import ComputeContext, run, run_update
from vsl_compute.errors import AttributeValueError, DTypeError, ShapeError, UnsupportedError

CPU = ComputeContext("cpu")


@pytest.mark.parametrize(
    ("given", "dtype"),
    [
        ([300], "int8"),
        (-1, "uint8"),
        ([[1, 2], [3, 256]], "uint8"),
        ([1e10], "int32"),
        ([1.0, float("nan")], "int64"),
        ([float("inf")], "uint64"),
        ([-1], "uint64"),
        ([2**63], "int64"),
    ],
)
def test_a_number_that_an_integer_dtype_cannot_hold_is_refused_not_wrapped(given, dtype):
    """A12: PyTorch raises likewise; only what comes from NumPy, which has a dtype of its own, is cast as NumPy casts."""
    with pytest.raises(OverflowError, match=f"fit {dtype}"):
        CPU.asarray(given, dtype)
    assert CPU.asarray(np.array([300]), "int8").to_host().tolist() == [44]


def test_python_ints_are_int64_or_refused():
    """Never uint64, nor the float that NumPy makes of 2**63 beside a negative number."""
    for given in (2**63, [2**63], [2**63, -1]):
        with pytest.raises(OverflowError, match="int64"):
            CPU.asarray(given)
    assert CPU.asarray([2**64 - 1], "uint64").to_host().tolist() == [2**64 - 1]
    assert CPU.asarray([2**63 - 1, -(2**63)]).to_host().tolist() == [2**63 - 1, -(2**63)]
    assert CPU.asarray([2.0**64, -1]).dtype.name == "float32"
    assert CPU.asarray([-0.5, 2.9], "uint8").to_host().tolist() == [0, 2]
    assert CPU.asarray([], "int8").shape == (0,)


@pytest.mark.parametrize(
    "given",
    [None, "1", ["1", "2"], [1 + 2j], np.array([1j]), np.array(["2020-01-01"], "M8[s]"), np.array([1, None], object), np.zeros(2, "f4,i4")],
)  # fmt: skip
def test_what_is_no_real_number_is_refused_with_a_dtype_as_without(given):
    """No imaginary part dropped, no text parsed, no None that becomes NaN."""
    for dtype in (None, "float32", "int64"):
        with pytest.raises(DTypeError, match="not an array of numbers"):
            CPU.asarray(given, dtype)


MASKED = np.ma.masked_array([1.0, 2.0, 3.0], mask=[0, 1, 0])


@pytest.mark.parametrize(
    "given", [MASKED, MASKED.astype(np.int8), np.ma.masked, [MASKED, MASKED], [[1.0, np.ma.masked]], (MASKED, [1.0, 2.0, 3.0])],
    ids=["array", "integers", "constant", "list", "among numbers", "tuple"],
)  # fmt: skip
def test_what_is_masked_is_refused_not_uncovered(given):
    """NumPy would give the numbers under the mask, as if they counted."""
    for dtype in (None, "float32"):
        with pytest.raises(DTypeError, match=r"masked elements.*\.filled"):
            CPU.asarray(given, dtype)


def test_a_masked_array_without_a_masked_element_is_an_array():
    for given in (np.ma.masked_array([1.0, 2.0]), np.ma.masked_array([1.0, 2.0], mask=[0, 0]), MASKED.filled(0)[:2]):
        assert CPU.asarray(given).shape == (2,)


@pytest.mark.parametrize(
    ("given", "remedy"),
    [
        (np.array([1, None], object), r"x\.astype\(np\.float64\)"), (np.array(["1"]), r"x\.astype\(np\.float64\)"),
        (np.ones(2, complex), "x.real and x.imag"), (np.array(["2020-01-01"], "M8[s]"), r"x\.astype\(np\.int64\)"),
        (np.rec.array([(1.0, 2)], dtype=[("a", "f4"), ("b", "i4")]), r"one of its fields, x\[name\]"),
        (np.ones(2, np.longdouble), r"x\.astype\(np\.float64\)"), ([[1], [1, 2]], "unequal length"), ({1, 2}, "nested lists"),
    ],
)  # fmt: skip
def test_what_is_no_array_of_numbers_is_told_what_would_be_one(given, remedy):
    """In one line, whatever the array's own text is."""
    with pytest.raises(DTypeError, match=remedy) as raised:
        CPU.asarray(given)
    assert "\n" not in str(raised.value)
    with pytest.raises(DTypeError) as raised:
        run("add", CPU.asarray([1.0, 2.0]), given)
    assert "\n" not in str(raised.value)


BASE = np.arange(6.0).reshape(2, 3)
FORMS = {
    "byte-swapped": BASE.astype(">f8"), "byte-swapped integers": BASE.astype(">i2"), "np.matrix": BASE.view(np.matrix),
    "flipped": BASE[::-1, ::-1], "transposed": BASE.T, "broadcast": np.broadcast_to(BASE[:1], (4, 3)), "empty": BASE[:0],
    "unaligned": np.frombuffer(b"\0" + BASE.tobytes() + b"\0" * 7, np.uint8)[1:49].view("f8"),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_numpy_array_arrives_as_its_numbers(form):
    given = FORMS[form]
    made = CPU.asarray(given)
    assert made.to_host().tolist() == np.array(given).tolist()
    assert made.dtype.name == given.dtype.newbyteorder("=").name


def test_what_was_taken_from_an_array_is_nobody_else_s(tmp_path):
    """Neither a read-only nor a mapped array is shared: it cannot be written through, nor change what was taken."""
    mapped = np.memmap(tmp_path / "numbers", "f4", "w+", shape=(3,))
    mapped[:] = 1, 2, 3
    fixed = np.array([1, 2, 3], np.float32)
    fixed.flags.writeable = False
    for given in (mapped, fixed):
        x = CPU.asarray(given)
        run("multiply", x, 2.0, out=x)
        assert given.tolist() == [1, 2, 3]
        assert x.to_host().tolist() == [2, 4, 6]
    x = CPU.asarray(mapped)
    mapped[:] = 9
    assert x.to_host().tolist() == [1, 2, 3]


def test_a_running_sum_of_unsigned_numbers_is_unsigned():
    """A10: as `sum` is; 2**63 does not become negative."""
    x = CPU.asarray(np.array([2**63, 5], np.uint64))
    assert run("cumsum", x).to_host().tolist() == [2**63, 2**63 + 5]
    assert run("cumsum", CPU.asarray(np.array([200, 100], np.uint8))).dtype.name == "uint64"
    assert run("cumsum", CPU.asarray(np.array([100, 100], np.int8))).to_host().tolist() == [100, 200]


@pytest.mark.parametrize("index", [np.array([0.0, 1.0]), np.array([True, False])])
def test_only_integers_gather_and_scatter(index):
    """Truth values are no places, and NumPy would take them for a mask."""
    x, index = CPU.asarray(np.ones(2, np.float32)), CPU.asarray(index)
    with pytest.raises(DTypeError, match="gather: index is"):
        run("gather", x, index)
    with pytest.raises(DTypeError, match="scatter: index is"):
        run("scatter", x, index, shape=(2,))


def test_a_batch_of_a_gather_is_a_count():
    """-1 once gave a result of another shape."""
    for batch in (-1, 0.5):
        with pytest.raises(AttributeValueError, match="gather: batch="):
            run("gather", CPU.asarray([1.0, 2.0]), CPU.asarray([0]), batch=batch)


def test_a_window_has_positive_steps_and_axes_of_its_own():
    """ShapeError, not a division by zero nor a view of memory beside the array's."""
    x = CPU.asarray(np.arange(6.0))
    for axes, steps, dilations in (((0,), (0,), (1,)), ((0,), (-1,), (1,)), ((0,), (1,), (-1,)), ((3,), (1,), (1,))):
        with pytest.raises(ShapeError, match="window: "):
            x.window(axes, (2,), steps, dilations)
    with pytest.raises(ShapeError, match="window: axes"):
        x.reshape((2, 3)).window((0, -2), (2, 2), (1, 1), (1, 1))
    for steps, dilations in (((0,), (1,)), ((1,), (0,))):
        with pytest.raises(AttributeValueError, match="fold: steps"):
            run("fold", CPU.asarray(np.ones((5, 2))), shape=(6,), axes=(0,), steps=steps, dilations=dilations)


def test_no_axis_is_expanded_to_a_negative_size():
    """Neither a new one nor one of size 1."""
    for shape in ((-5,), (-5, 1)):
        with pytest.raises(ShapeError, match="expand: "):
            CPU.asarray([1.0]).expand(shape)


def test_a_wrong_shape_operation_spoils_no_later_right_one():
    """1.0 equals 1, so what is worked out for one would be found again by the other."""
    x = CPU.asarray(np.arange(26.0))  # of a size that no other test has, since layouts are shared
    with pytest.raises(TypeError):
        x.slice(1.0)
    assert x.slice(1).to_host() == 1
    with pytest.raises(TypeError):
        x.reshape((2.0, 13))
    assert x.reshape((2, 13)).to_host().shape == (2, 13)


def test_out_is_a_view_an_output():
    """DTypeError or ShapeError that names the op; nothing is written."""
    x = CPU.asarray([2.0, 1.0])
    for out in (np.zeros(2), [x], (x,)):
        with pytest.raises(DTypeError, match="add: out is of type"):
            run("add", x, 1.0, out=out)
    for out in (x, (x, x, x)):
        with pytest.raises(ShapeError, match=r"sort: out is . Views; the op has 2"):
            run("sort", x, out=out)
    assert x.to_host().tolist() == [2, 1]


def test_an_option_is_a_number_of_python_or_numpy():
    x = CPU.asarray([-1.0])
    for alpha in ("1", None, x, 1j):
        with pytest.raises(AttributeValueError, match=r"elu: .* is not a number"):
            run("elu", x, alpha=alpha)
    assert run("elu", x, alpha=np.float32(2)).to_host() == np.float32(2 * np.expm1(-1))


def test_an_unknown_row_or_op_is_said_by_name():
    with pytest.raises(UnsupportedError, match="'nope'; there are sgd"):
        run_update("nope", [], {})
    with pytest.raises(UnsupportedError, match="'qqqq'; vsl_compute"):
        run("qqqq", CPU.asarray([1.0]))


@pytest.mark.parametrize("wrong", [None, "2", [1, 2], 1j])
def test_options_of_products_and_attention_that_are_no_numbers_are_refused(wrong):
    """None as a scale of a product gave NaN."""
    x = CPU.asarray(np.ones((2, 2), np.float32))
    for op, count, option in (("matmul", 2, "alpha"), ("matmul", 2, "beta"), ("attention", 3, "dropout")):
        with pytest.raises(AttributeValueError, match=rf"{op}: {option}=.* must be a"):
            run(op, *[x] * count, **{option: wrong})


def test_the_way_back_through_attention_has_the_scale_of_the_way_there():
    """Where none is given."""
    q = CPU.asarray(np.random.default_rng(0).standard_normal((3, 4, 16)).astype(np.float32))
    y, lse = run("attention", q, q, q)
    alike = [
        run("attention_backward", q, q, q, q, y, lse, None, None, **given)[0].to_host()
        for given in ({}, {"scale": 0.25})
    ]
    np.testing.assert_array_equal(*alike)
