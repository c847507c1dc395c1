"""Failures that people reported of other libraries, by the id each has in the list of known traps."""

from __future__ import annotations

import numpy as np
import pytest

import vtl_core as vtl

NAN, INF = float("nan"), float("inf")


def gradient(function, *values, dtype=vtl.float64):
    xs = [vtl.tensor(v, dtype=dtype, requires_grad=True) for v in values]
    function(*xs).sum().backward()
    grads = [x.grad.tolist() for x in xs]
    return grads[0] if len(grads) == 1 else grads


def test_softmax_of_minus_infinity():
    """A01."""
    x = vtl.tensor([[1, 2, -INF], [-INF, -INF, -INF]], dtype=vtl.float64, requires_grad=True)
    y = x.softmax(1)
    np.testing.assert_allclose(y.numpy(), [[0.26894143, 0.73105860, 0], [NAN] * 3], rtol=1e-7)

    (y[0] * vtl.tensor([1.0, 2.0, 3.0])).sum().backward()

    np.testing.assert_allclose(x.grad.numpy()[0], [-0.19661194, 0.19661194, 0], rtol=1e-6)


def test_logsumexp_and_log_softmax_with_infinities():
    """A02."""
    x = vtl.tensor([[-INF, -INF], [-INF, 0], [1000, 1000], [-1000, -1000], [INF, 0]], dtype=vtl.float64)
    np.testing.assert_allclose(x.logsumexp(1).numpy(), [-INF, 0, 1000.6931472, -999.3068528, INF], rtol=1e-9)
    assert vtl.zeros(2, 0).logsumexp(1).tolist() == [-INF, -INF]
    assert gradient(lambda x: x.logsumexp(0), [-INF, 0.0, 0.0]) == [0, 0.5, 0.5]
    np.testing.assert_allclose(
        vtl.tensor([-INF, 0, 0]).log_softmax(0).numpy(), [-INF, -0.69314718, -0.69314718], rtol=1e-6
    )


def test_cross_entropy_on_huge_logits():
    """A03."""
    x = vtl.tensor([[1e4, 0.0, -1e4]], requires_grad=True)
    assert vtl.apply("cross_entropy", x, vtl.tensor([0]))[0].item() == 0.0
    loss = vtl.apply("cross_entropy", x, vtl.tensor([2]))[0]
    assert loss.item() == 20000.0

    loss.backward()

    assert x.grad.tolist() == [[1, 0, -1]]


def test_reductions_of_nothing():
    """A04."""
    none = vtl.zeros(0)
    assert none.sum().item() == 0
    assert none.prod().item() == 1
    assert np.isnan(none.mean().item())
    assert none.all().item() is True
    assert none.any().item() is False
    assert vtl.zeros(2, 0).sum(1).tolist() == [0, 0]
    assert vtl.zeros(2, 0).prod(1).tolist() == [1, 1]
    for reduce in (none.max, none.min, none.argmax, none.argmin):
        with pytest.raises(ValueError, match="no element"):
            reduce()
    assert vtl.zeros(0, 3).amax(1).shape == (0,)
    assert gradient(lambda x: x.sum(1), np.zeros((2, 0))) == [[], []]


def test_variance_of_one_element_and_gradient_of_std_where_all_are_equal():
    """A09."""
    five, three = vtl.tensor([5.0]), vtl.tensor([1.0, 2.0, 4.0])
    assert np.isnan(five.var(unbiased=True).item())
    assert five.var(unbiased=False).item() == 0
    assert three.var().item() == pytest.approx(2.3333333)
    assert three.var(correction=0).item() == pytest.approx(1.5555556)
    assert gradient(lambda x: x.std(), [2.0, 2.0, 2.0]) == [0, 0, 0]
    assert gradient(lambda x: x.var(), [2.0, 2.0, 2.0]) == [0, 0, 0]


def test_sums_of_small_integers_and_bools():
    """A10."""
    assert vtl.tensor([100, 100], dtype=vtl.int8).sum().item() == 200
    assert vtl.ones(300, dtype="bool").sum().item() == 300
    assert vtl.tensor([1, 2]).mean().item() == 1.5


def test_numbers_beside_tensors_adapt():
    """A12: NEP 50, with float32 for an integer tensor and a float."""
    f32, f16, i8, i32, i64 = (vtl.ones(2, dtype=d) for d in ("float32", "float16", "int8", "int32", "int64"))
    cases = [
        (f32 * 2.5, "float32"),
        (f16 + 1.0, "float16"),
        (i8 + 1, "int8"),
        (i32 * 1.5, "float32"),
        (i64 + f16, "float16"),
    ]
    assert [(r.dtype.name, want) for r, want in cases if r.dtype.name != want] == []
    with pytest.raises(OverflowError):
        i8 + 300
    assert (f32 * 1e300).tolist() == [INF, INF]
    assert (f16 * 1e5).tolist() == [INF, INF]
    assert (f16 * np.float32(1e5)).dtype is vtl.float32


def test_gradient_of_a_product_with_zeros():
    """A19."""
    assert gradient(lambda x: x.prod(), [5.0, 0.0, 2.0]) == [0, 10, 0]
    assert gradient(lambda x: x.prod(), [0.0, 0.0, 2.0]) == [0, 0, 0]
    assert gradient(lambda x: x.prod(0), [0.0]) == [1]


def test_gradients_at_zero():
    """B01."""
    assert gradient(lambda x: x.abs(), [0.0, -2.0, 3.0]) == [0, -1, 1]
    assert gradient(lambda x: x.relu(), [0.0, -1.0, 2.0]) == [0, 0, 1]
    assert gradient(lambda x: x.sqrt(), [0.0, 4.0]) == [INF, 0.25]
    assert gradient(lambda x: x.square().sum().root(), [0.0, 0.0]) == [0, 0]
    assert gradient(lambda x: x.square().sum().root(), [3.0, 4.0]) == pytest.approx([0.6, 0.8])


def test_gradients_of_broadcast_arguments_are_summed_back():
    """B02."""
    a, b = gradient(lambda a, b: (a + b) ** 2, [[1.0], [2.0], [3.0]], [10.0, 20.0])
    assert a == [[64], [68], [72]]
    assert b == [72, 132]
    assert gradient(lambda x: x * vtl.ones(2, 3), 2.0) == 6
    assert gradient(lambda x: x.expand(1, 1, 2) * 3, [[1.0, 2.0]]) == [[3, 3]]


def test_gradients_of_extremes_that_tie():
    """B04: shared evenly, and to the first where the index is asked for."""
    assert gradient(lambda x: x.max(), [1.0, 3.0, 3.0]) == [0, 0.5, 0.5]
    assert gradient(lambda x: x.min(), [1.0, 1.0, 3.0]) == [0.5, 0.5, 0]
    assert gradient(lambda x: x.max(0).values, [1.0, 3.0, 3.0]) == [0, 1, 0]
    assert gradient(lambda x: x.min(0).values, [3.0, 1.0, 1.0]) == [0, 1, 0]
    assert gradient(lambda a, b: a.maximum(b), [2.0], [2.0]) == [[0.5], [0.5]]
    assert gradient(lambda a, b: a.minimum(b), [2.0], [2.0]) == [[0.5], [0.5]]


def test_gradients_add_up_and_are_memory_of_their_own():
    """B06."""
    x = vtl.tensor(3.0, requires_grad=True)
    (x + x).backward()
    assert x.grad.item() == 2
    (x * 2).backward()
    assert x.grad.item() == 4

    a, b = vtl.tensor([1.0], requires_grad=True), vtl.tensor([1.0], requires_grad=True)
    y = (a + b).sum()
    y.backward()
    a.grad *= 10
    assert (a.grad.tolist(), b.grad.tolist()) == ([10], [1])
    with pytest.raises(vtl.GraphError):
        y.backward()


def test_derivatives_of_higher_order():
    """B07."""
    x = vtl.tensor(2.0, dtype=vtl.float64, requires_grad=True)
    found, y = [], x**3
    for _ in range(3):
        (y,) = vtl.grad(y, [x], create_graph=True)
        found.append(y.item())
    assert found == [12, 12, 6]

    t = vtl.tensor(0.7, dtype=vtl.float64, requires_grad=True)
    (first,) = vtl.grad(t.tanh(), [t], create_graph=True)
    (second,) = vtl.grad(first, [t])
    assert first.item() == pytest.approx(0.6347395900, abs=1e-10)
    assert second.item() == pytest.approx(-0.7672323101, abs=1e-10)


@pytest.mark.parametrize(
    "index", [[1, 1, 3], np.array([1, 1, -1]), vtl.tensor([1, -3, 3])], ids=["list", "array", "tensor"]
)
def test_gradient_at_a_repeated_index_adds_up(index):
    """B09."""
    w = vtl.zeros(4, requires_grad=True)
    w[index].sum().backward()

    assert w.grad.tolist() == [0, 2, 0, 1]


def test_gradient_of_clamp_flows_at_its_bounds():
    """B12."""
    assert gradient(lambda x: x.clamp(-1, 1), [-1.0, 1.0, 1.5, 0.0]) == [1, 1, 0, 1]
    assert gradient(lambda x: x.clamp(min=-1.0), [-1.0, 1.0, -1.5]) == [1, 1, 0]
    assert gradient(lambda x: x.clamp(max=1.0), [-1.0, 1.0, 1.5]) == [1, 1, 0]


def test_ops_on_an_empty_batch_have_empty_or_zero_gradients():
    """D06."""
    w = vtl.ones(2, 3, requires_grad=True)
    vtl.apply("linear", vtl.zeros(0, 3), w).sum().backward()
    assert w.grad.tolist() == [[0, 0, 0], [0, 0, 0]]

    k = vtl.ones(2, 1, 3, 3, requires_grad=True)
    y = vtl.apply("conv2d", vtl.zeros(0, 1, 5, 5), k)
    y.sum().backward()
    assert y.shape == (0, 2, 3, 3)
    assert not k.grad.any()


def test_an_array_made_from_a_list_does_not_follow_it():
    """B16 of the originals' roadmap: a caller that changes its data later changes no tensor."""
    data, array = [1.0, 2.0], np.array([1.0, 2.0])
    tensors = (
        vtl.tensor(data),
        vtl.tensor(array),
        vtl.asarray(array),
        vtl.from_dlpack(array),
        vtl.Context().variable(array),
    )
    data[0] = 9.0
    array[0] = 9.0

    assert all(t.tolist() == [1.0, 2.0] for t in tensors)


def test_a_float16_deviation_is_finite_where_its_square_is_not():
    """A06: the variance, 90000, may overflow; the deviation and its gradient may not."""
    x = vtl.tensor(np.array([300, -300] * 2048, np.float16), requires_grad=True)
    deviation = x.std(correction=0)
    assert (deviation.item(), deviation.dtype, x.var().item()) == (300, vtl.float16, INF)
    (deviation * 4096).backward()
    assert x.grad.tolist()[:2] == [1, -1]


def test_clamp_passes_the_gradient_at_bounds_that_are_tensors():
    """B12: as it does at numbers; NaN stays NaN."""
    low, high = (vtl.tensor([b] * 5, dtype=vtl.float64) for b in (-1.0, 1.0))
    assert gradient(lambda x: x.clamp(low, high), [-1.0, 1.0, 1.5, 0.0, -2.0]) == [1, 1, 0, 1, 0]
    assert gradient(lambda x: x.clamp(low, 1), [-1.0, 1.0, 1.5, 0.0, -2.0]) == [1, 1, 0, 1, 0]
    assert np.isnan(vtl.tensor([NAN]).clamp(vtl.tensor([0.0]), vtl.tensor([1.0])).item())
    assert np.isnan(vtl.tensor([0.5]).clamp(vtl.tensor([NAN])).item())


@pytest.mark.parametrize("flat", ["floor", "ceil", "round", "trunc", "sign", "abs"])
def test_what_is_flat_gives_zero_whatever_arrives(flat):
    """B01: sqrt at 0 sends infinity back, which 0 times would make NaN."""
    assert gradient(lambda x: getattr(x, flat)().sqrt(), [0.0]) == [0]


def test_gradients_of_angle_and_copied_sign_at_zero():
    """B01: 0, as of abs and hypot."""
    assert gradient(lambda a, b: a.atan2(b), [0.0, 3.0], [0.0, 4.0]) == [[0, 0.16], [0, -0.12]]
    assert gradient(lambda x: x.copysign(2.0), [0.0, -0.0, -3.0]) == [0, 0, -1]


def test_a_short_index_reaches_every_row():
    """B09: int8 holds -1 but not the 200 that is added to it."""
    x = vtl.arange(200.0)
    assert x[vtl.tensor([-1, 100], dtype=vtl.int8)].tolist() == [199, 100]
    with pytest.raises(vtl.IndexRangeError, match="unequal length"):
        x[[[0], [1, 2]]]


def test_float16_sums_inside_an_op_overflow_nowhere():
    """A06: of a window of average pooling, and of the ones that softmax divides by."""
    full = vtl.full((1, 1, 8, 8), 60000.0, dtype=vtl.float16)
    assert vtl.apply("avg_pool2d", full, kernel_size=8).item() == 60000
    assert vtl.apply("avg_pool2d", full, kernel_size=3, padding=1, count_include_pad=False).amin().item() == 60000
    shares = vtl.ones(100_000, dtype=vtl.float16).softmax(0)
    np.testing.assert_allclose(shares.double().sum().item(), 1, rtol=5e-3)
    x = vtl.tensor(np.array([[5, -3, 0.5]], np.float16))
    assert x.softmax(1).tolist() == x.float().softmax(1).half().tolist()


@pytest.mark.parametrize(
    ("dtype", "number"), [("int8", 300), ("int8", -300), ("uint8", -1), ("uint64", 2**64), ("int64", -(2**70))]
)
def test_an_integer_is_compared_with_a_number_beyond_its_dtype(dtype, number):
    """A12: what int8 + 300 refuses to round, int8 < 300 can tell; as NumPy has it."""
    x = vtl.tensor([[0, 1], [100, 2]], dtype=dtype)
    larger = number > 0
    told = [
        x < number,
        x <= number,
        number > x,
        number >= x,
        x != number,
        number != x,
        x.ne(number),
        vtl.less(x, number),
    ]
    wrong = [
        x > number,
        x >= number,
        number < x,
        number <= x,
        x == number,
        number == x,
        x.eq(number),
        vtl.greater(x, number),
    ]

    assert [t.tolist() for t in told] == [
        [[larger] * 2] * 2 if i not in (4, 5, 6) else [[True] * 2] * 2 for i in range(8)
    ]
    assert [t.tolist() for t in wrong] == [
        [[not larger] * 2] * 2 if i not in (4, 5, 6) else [[False] * 2] * 2 for i in range(8)
    ]
    with pytest.raises(OverflowError):
        x.maximum(number)


@pytest.mark.parametrize(
    ("dtype", "size"), [("float32", 1e25), ("float32", 1e-30), ("float64", 1e200), ("float64", 1e-200)]
)
def test_a_deviation_is_a_number_where_the_variance_is_not(dtype, size):
    """A06, A09: nor is its gradient lost, in the rows of a matrix and of its transpose."""
    x = np.array([[1, -1, 2, 0.5], [3, 3, 3, 3], [0, 0, 1, 0]])
    away = x - x.mean(1, keepdims=True)
    for axis, given in ((1, vtl.tensor(x * size, dtype=dtype)), (0, vtl.tensor(x.T * size, dtype=dtype))):
        for correction in (0, 1):
            y = given.requires_grad_().std(axis, correction=correction)
            (g,) = vtl.grad(y.sum(), [given])

            expected = x.std(1, ddof=correction)
            np.testing.assert_allclose(y.numpy() / size, expected, rtol=2e-6)
            slope = away / np.where(expected == 0, 1, expected)[:, None] / (4 - correction)
            np.testing.assert_allclose(g.numpy() if axis else g.numpy().T, slope, rtol=2e-5, atol=1e-6)


@pytest.mark.cpu_only("a device adds in float32, of which the sum is more than it holds")
def test_a_mean_is_finite_where_its_sum_is_not():
    """A06: as float16's is, float32's."""
    x = vtl.full((3, 100), 3e38)
    assert x.mean().item() == pytest.approx(3e38)
    assert x.mean(0).tolist() == [pytest.approx(3e38)] * 100
    assert x.var().item() == 0


@pytest.mark.cpu_only("a device adds in float32, and in an order that keeps small terms less often")
@pytest.mark.parametrize("shape", [(2,), (2, 3)])
def test_a_row_that_is_met_a_thousand_times_adds_up_what_each_sends(shape):
    """A07, B09: 1e8, 1024 ones and -1e8; one after another in float32 they come to 0."""
    w = vtl.zeros(*shape, requires_grad=True)
    g = np.ones((1026, *shape[1:]), np.float32)
    g[0], g[-1] = 1e8, -1e8
    w[[1] * 1026].backward(vtl.tensor(g))

    np.testing.assert_array_equal(w.grad.numpy(), np.stack([np.zeros(shape[1:]), np.full(shape[1:], 1024)]))
