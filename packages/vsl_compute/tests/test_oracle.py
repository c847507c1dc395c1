"""The oracle is held to mpmath's values and to known answers; it is what everything else is judged by."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from vsl_compute import dtypes
from vsl_compute.rows import elementwise, reductions, updates
from vsl_compute.validation import oracle, oracle_losses, oracle_ops, oracle_updates, wide

LONG = np.longdouble
EPS = float(np.finfo(LONG).eps)
GOLDEN = oracle.golden()
NAMES = sorted({key.split("/")[0] for key in GOLDEN})


@pytest.mark.parametrize("name", NAMES)
def test_longdouble_oracle_agrees_with_mpmath(name):
    """32 units of longdouble: sixty times finer than a float64 ULP. A normal tail is only as good as its x squared."""
    x, y, rest = (GOLDEN[f"{name}/{part}"] for part in ("x", "y", "rest"))
    exact = y.astype(LONG) + rest.astype(LONG)
    unit = EPS * np.abs(exact) * (1 + x * x if name == "gelu" else 1)

    got = oracle.value(name, [x])

    assert got.dtype == LONG
    assert float(np.max(np.abs(got - exact) / np.where(unit == 0, 1, unit))) <= 32


@pytest.mark.parametrize("name", NAMES)
def test_float64_oracle_serves_float32(name):
    """Its error is below 1/1000 of a float32 ULP."""
    x, y = GOLDEN[f"{name}/x"].astype(np.float32), GOLDEN[f"{name}/y"]

    got = oracle.value(name, [x])

    assert got.dtype == np.float64
    assert np.all(np.abs(got - y) <= 2.0**-34 * np.maximum(np.abs(y), np.abs(x)))


@pytest.mark.parametrize("x", [-3.0, -1.0, 1.0, 2.0])
def test_a17_the_two_gelus_are_told_apart(x):
    """A17: gelu(-3) is -0.0040496941 by erf and -0.0036373921 by tanh."""
    normal = float(x * mpmath.ncdf(x))
    assert float(oracle.value("gelu", [np.array(x)])) == pytest.approx(normal, rel=1e-15)
    known = {-3.0: -0.0036373921, 1.0: 0.8411919906, 2.0: 1.9545976941}
    if x in known:
        assert float(oracle.value("gelu_tanh", [np.array(x)])) == pytest.approx(known[x], rel=1e-7)


def test_erfc_keeps_its_digits_far_out():
    for x in (-1.0, 0.0, 0.5, 1.9, 2.0, 2.1, 5.0, 9.0, 26.0):
        exact = mpmath.erfc(mpmath.mpf(x))
        got = wide.erfc(np.asarray(x, LONG))
        assert abs(mpmath.mpf(np.format_float_scientific(got, 30, unique=False)) / exact - 1) < 1e-15


@pytest.mark.parametrize("table", [elementwise, reductions, updates], ids=["rows", "reductions", "updates"])
def test_every_row_has_an_independent_meaning(table):
    """Adding a row without its line in the oracle fails here, with its name."""
    known = {elementwise: oracle.VALUES, reductions: oracle.REDUCTIONS, updates: oracle_updates.UPDATES}[table]
    assert sorted(set(table.TABLE) ^ set(known)) == []


def test_a_row_without_a_meaning_is_named_with_the_place_for_it():
    with pytest.raises(LookupError, match=r"^oracle: row 'cubed' has no meaning in validation/oracle\.py$"):
        oracle.value("cubed", [np.ones(2)])


def test_the_oracle_imports_no_row():
    for module in (oracle, oracle_ops, oracle_losses, oracle_updates, wide):
        assert not any("rows" in getattr(value, "__module__", "") for value in vars(module).values() if callable(value))


@pytest.mark.parametrize("dtype", dtypes.INTEGER, ids=str)
def test_integers_wrap_as_the_hardware_does(dtype):
    top, bottom = int(dtype.max), int(dtype.min)
    a, b = np.array([top, bottom, top], dtype.storage), np.array([1, -1 if bottom else 1, 2], dtype.storage)
    assert oracle.value("add", [a, b], dtype=dtype)[0] == bottom
    assert oracle.value("subtract", [a, b], dtype=dtype).tolist()[2] == top - 2
    assert oracle.value("multiply", [a, b], dtype=dtype)[2] == (2 * top - bottom) % 2 ** (8 * dtype.itemsize) + bottom


def test_integer_division_goes_down_and_the_remainder_has_the_divisor_s_sign():
    a, b = np.array([7, -7, 7, -7]), np.array([2, 2, -2, -2])
    assert oracle.value("floor_divide", [a, b], dtype=dtypes.int64).tolist() == [3, -4, -4, 3]
    assert oracle.value("remainder", [a, b], dtype=dtypes.int64).tolist() == [1, 1, -1, -1]


def test_reductions_know_nan_ties_nothing_and_truth():
    nan = np.array([[1.0, np.nan, 3.0], [2.0, 2.0, 1.0]])
    assert oracle.reduction("argmax", nan, (1,)).tolist() == [1, 0]
    assert oracle.reduction("argmin", nan, (1,)).tolist() == [1, 2]
    assert np.isnan(oracle.reduction("max", nan, (1,))[0])
    assert oracle.reduction("sum", np.zeros((2, 0)), (1,)).tolist() == [0, 0]
    assert oracle.reduction("prod", np.zeros((2, 0)), (1,)).tolist() == [1, 1]
    assert oracle.reduction("sum", np.ones(300, bool), (0,)) == 300
    assert oracle.reduction("logsumexp", np.array([[-np.inf, -np.inf], [1000.0, 1000.0]]), (1,)).astype(float).tolist() == [
        -np.inf, pytest.approx(1000.6931472)
    ]  # fmt: skip
    assert oracle.reduction("sum", np.ones((2, 3, 4)), (0, -1), keepdims=True).shape == (1, 3, 1)


PHILOX = (  # Random123 1.14, kat_vectors: philox4x32 10
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0), (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
)  # fmt: skip


@pytest.mark.parametrize(("counter", "key", "words"), PHILOX)
def test_philox_gives_random123_s_known_answers(counter, key, words):
    assert oracle_updates.philox(counter, key) == words


def test_philox_counts_its_blocks_across_the_low_word():
    words = oracle_updates.philox_words(8, (1, 2), (0xFFFFFFFF, 5, 7, 0))
    assert tuple(words[:4]) == oracle_updates.philox((0xFFFFFFFF, 5, 7, 0), (1, 2))
    assert tuple(words[4:]) == oracle_updates.philox((0, 6, 7, 0), (1, 2))


def test_pooling_and_padding_know_their_traps():
    """D01, D02: padding is -inf for the maximum; divisors of the average."""
    x = -np.arange(1.0, 5).reshape(1, 1, 2, 2)
    assert oracle_ops.max_pool2d(x, 2, 2, 1)[0].ravel().tolist() == [-1, -2, -3, -4]
    nine = np.arange(1.0, 10).reshape(1, 1, 3, 3)
    assert oracle_ops.avg_pool2d(nine, 2, 2, 1).ravel().tolist() == [0.25, 1.25, 2.75, 7]
    assert oracle_ops.avg_pool2d(nine, 2, 2, 1, count_include_pad=False).ravel().tolist() == [1, 2.5, 5.5, 7]
    assert oracle_ops.avg_pool2d(nine, 2, 2, ceil_mode=True).ravel().tolist() == [3, 4.5, 7.5, 9]
    assert oracle_ops.max_pool2d(nine, 2, 2, ceil_mode=True)[0].ravel().tolist() == [5, 6, 8, 9]


@pytest.mark.parametrize(
    "options",
    [{}, {"stride": 2, "padding": 1}, {"dilation": (2, 1), "padding": (1, 2)}, {"groups": 2, "stride": (1, 2)}],
)
def test_the_three_convolutions_are_adjoints(options):
    """<g, conv(x, w)> = <conv_input(g, w), x> = <conv_weight(g, x), w>: one bilinear form, three ways."""
    rng = np.random.default_rng(5)
    groups = options.get("groups", 1)
    x, w = rng.standard_normal((2, 4, 7, 6)), rng.standard_normal((6, 4 // groups, 3, 2))
    y = oracle_ops.conv2d(x, w, **options)
    g = rng.standard_normal(y.shape)

    form = float(np.sum(g * y))

    assert float(np.sum(oracle_ops.conv2d_input(g, w, x.shape, **options) * x)) == pytest.approx(form, rel=1e-13)
    assert float(np.sum(oracle_ops.conv2d_weight(g, x, w.shape, **options) * w)) == pytest.approx(form, rel=1e-13)


def test_convolution_is_correlation_by_hand():
    x = np.arange(9.0).reshape(1, 1, 3, 3)
    w = np.array([[[[1.0, 10], [100, 1000]]]])
    assert oracle_ops.conv2d(x, w, np.array([0.5])).astype(float).ravel().tolist() == [4310.5, 5421.5, 7643.5, 8754.5]


def test_losses_and_norms_know_their_traps():
    """A01, A03, C01, D07: rows of -inf, huge logits, nothing that counts, and the two variances."""
    rows = oracle_losses.softmax(np.array([[1, 2, -np.inf], [-np.inf] * 3]))
    assert rows[0].astype(float).tolist() == pytest.approx([0.26894142, 0.73105858, 0])
    assert np.isnan(rows[1]).all()
    huge = np.array([[1e4, 0, -1e4]])
    assert oracle_losses.cross_entropy(huge, np.array([2]))[0] == 20000
    assert oracle_losses.cross_entropy_backward(np.array(1.0), huge, np.array([2])).astype(float).tolist() == [
        [1, 0, -1]
    ]
    assert np.isnan(oracle_losses.cross_entropy(huge, np.array([-100]))[0])
    assert not oracle_losses.cross_entropy_backward(np.array(1.0), huge, np.array([-100])).any()
    column = np.array([[1.0], [2], [4]])
    mean, var = oracle_losses.running_statistics(column, np.zeros(1), np.ones(1), 0.1)
    assert (float(mean[0]), float(var[0])) == pytest.approx((0.2333333333, 1.1333333333))
    assert oracle_losses.batch_norm(column)[:, 0].astype(float).tolist() == pytest.approx(
        [-1.0690415, -0.2672604, 1.3363019]
    )
    assert oracle_losses.embedding_backward(
        np.ones((2, 3, 1)), np.array([[1, 2, 2], [3, 1, 2]]), 4, 1
    ).ravel().tolist() == [0, 0, 3, 1]


@pytest.mark.parametrize(
    ("name", "scalars", "known"),
    [
        ("adamw", {"weight_decay": 0.1}, [0.890000002, 0.78110000398]),
        ("adam_l2", {"weight_decay": 0.1}, [0.900000001667, 0.800047340488]),
    ],
)
def test_e02_decay_is_decoupled_in_adamw_only(name, scalars, known):
    """E02: lr 0.1, decay 0.1, g = 0.5 twice from p = 1."""
    state = {"p": np.ones(1), "m": np.zeros(1), "v": np.zeros(1), "t": np.zeros(())}
    found = []
    for _ in known:
        state |= oracle_updates.update(
            name, state | {"g": np.full(1, 0.5)}, {"lr": 0.1, "b1": 0.9, "b2": 0.999, "eps": 1e-8, **scalars}
        )
        found.append(float(state["p"][0]))
    assert found == pytest.approx(known, abs=1e-9)


@pytest.mark.parametrize(
    ("name", "keep", "decay", "known"),
    [
        ("sgd_momentum", 1, 0, [0.9, 0.71, 0.439]),
        ("sgd_momentum", 0.5, 0, [0.9, 0.76, 0.584]),
        ("sgd_nesterov", 1, 0, [0.81, 0.539, 0.1951]),
        ("sgd_momentum", 1, 0.1, [0.89, 0.6821]),
    ],
)
def test_e03_momentum_conventions(name, keep, decay, known):
    """E03: g = 1, lr 0.1, momentum 0.9: damped after the first step, Nesterov, and decay."""
    state = {"p": np.ones(1), "b": np.zeros(1), "t": np.zeros(())}
    found = []
    for _ in known:
        scalars = {"lr": 0.1, "momentum": 0.9, "keep": keep, "weight_decay": decay}
        state |= oracle_updates.update(name, state | {"g": np.ones(1)}, scalars)
        found.append(float(state["p"][0]))
    assert found == pytest.approx(known, abs=1e-12)
