"""Every gradient in float64 against differences of the function, along random covectors, to 1e-7; gradients of gradients too."""

from __future__ import annotations

from operator import attrgetter

import numpy as np
import pytest

from vsl_compute.conformance.differentiate import grads, op_functions, reduction_functions, row_functions
from vsl_compute.conformance.placement import draw
from vsl_compute.dtypes import bfloat16, bool_, float16, float32, float64, int64
from vsl_compute.ops.table import OPS, TABLE
from vsl_compute.rows.derive import gradient_row
from vsl_compute.rows.elementwise import ROWS
from vsl_compute.rows.reductions import REDUCTIONS
from vsl_compute.validation.cases import scalars_of
from vsl_compute.validation.cases_ops import CASES
from vsl_compute.validation.derivative import check_vjp

COMPOSITES = True  # its tests run with overrides and without
DIFFERENTIABLE = [r for r in ROWS if any(g is not None for g in r.gradients)]
SHAPE = (3, 5)


def need_float64(subject) -> bool:
    """Whether gradients can be checked here; a backend without float64 is held to values in test_gradient_rows_agree."""
    return float64 in subject.dtypes("f") and subject.computes(float64)


def compile_ahead(subject, row, dtype, order):
    """Make the row ready, with its gradients to this order."""
    rows = [row]
    for _ in range(order):
        rows += [gradient_row(r, index) for r in rows for index, text in enumerate(r.gradients) if text is not None]
    stored = {"b": bool_, "i": int64}
    letters = {r: {*r.signature.inputs, r.signature.outputs} for r in rows}
    subject.backend.compile_ahead(
        (r, {k: stored.get(k, dtype) for k in letters[r]}, frozenset()) for r in letters if r.args
    )


def arguments(subject, row, shape=SHAPE):
    """Random float64 (or bool, or integer) arrays of the row's domain; derived rows get a covector of their own."""
    xs = []
    for name, letter in zip(row.args, row.signature.inputs, strict=True):
        dtype = {"b": bool_, "i": int64}.get(letter, float64)
        count = int(np.prod(shape))
        arriving = set(name) <= {"g"}
        domain = (-1.0, 1.0) if arriving else (0, 4) if letter == "i" else row.domain
        if set(name) == {"y"}:
            domain = (0.5, 1.5)
        xs.append(draw(subject.rng, dtype, count, domain).reshape(shape))
    return xs


@pytest.mark.parametrize("row", DIFFERENTIABLE, ids=attrgetter("name"))
def test_gradient_of_row_agrees_with_differences(subject, row):
    if need_float64(subject):
        compile_ahead(subject, row, float64, 1)
        function, vjp = row_functions(subject, row, scalars_of(row, float64))
        check_vjp(function, vjp, arguments(subject, row), subject.rng, what=row.name)


@pytest.mark.parametrize("row", DIFFERENTIABLE, ids=attrgetter("name"))
def test_gradient_of_gradient_agrees_with_differences(subject, row):
    """Second and third derivatives: a gradient row is a row, with y an input like any other."""
    if not need_float64(subject):
        return
    compile_ahead(subject, row, float64, 3)
    queue = [(row, 0)]
    while queue:
        found, order = queue.pop()
        for index, text in enumerate(found.gradients):
            if text is None or order == 2:
                continue
            derived = gradient_row(found, index)
            if not derived.args:
                continue
            queue.append((derived, order + 1)) if order == 0 else None
            xs = arguments(subject, derived)
            scalars = scalars_of(derived, float64)
            for place, name in enumerate(derived.args):
                if name == found.reserved[1]:  # what the row gives there, not any number: sqrt's y is positive
                    inputs = dict(zip(derived.args, xs, strict=True))
                    base = [inputs.get(a, x) for a, x in zip(found.args, arguments(subject, found), strict=True)]
                    xs[place] = np.asarray(subject.value(found, *map(subject.put, base), **scalars_of(found, float64)))
            function, vjp = row_functions(subject, derived, scalars)
            check_vjp(function, vjp, xs, subject.rng, what=derived.name)


@pytest.mark.parametrize("row", DIFFERENTIABLE, ids=attrgetter("name"))
def test_gradient_rows_agree_in_float32_with_float64(subject, row):
    """The same gradient row in float32 and in float64, to 64 ULP at the covector's scale: what a device without float64 is held to.

    The float64 side is the CPU's, whose gradients the tests above have checked.
    """
    from vsl_compute import dispatch, registry

    if float32 not in subject.dtypes("f") or not subject.backend.supports_row(row, float32):
        return
    cpu = registry.get("cpu")
    compile_ahead(subject, row, float32, 1)
    for index, text in enumerate(row.gradients):
        if text is None or not gradient_row(row, index).args:
            continue
        derived = gradient_row(row, index)
        xs = [x.astype(np.float32) if x.dtype == np.float64 else x for x in arguments(subject, derived)]
        scalars = scalars_of(row, float32)
        got = subject.value(derived, *map(subject.put, xs), **scalars)
        wide = [dispatch.asarray(cpu, x.astype(np.float64) if x.dtype == np.float32 else x) for x in xs]
        expected = dispatch.run(derived, *wide, **scalars).to_host()
        scale = np.abs(xs[derived.args.index("g")]) if "g" in derived.args else None
        subject.close(got, expected, float32, 64, f"gradient {index} of {row.name}", scale)


@pytest.mark.parametrize("row", DIFFERENTIABLE, ids=attrgetter("name"))
def test_nan_comes_out_of_gradients_where_it_does_on_the_cpu(subject, row):
    """A NaN in an argument, in fours and with strides: what relu gives back of an arriving gradient is not decided by NaN < 0."""
    from vsl_compute import dispatch, registry

    cpu = registry.get("cpu")
    for dtype in (float16, float32):
        if dtype not in subject.dtypes("f") or not subject.backend.supports_row(row, dtype):
            continue
        compile_ahead(subject, row, dtype, 1)
        scalars = scalars_of(row, dtype)
        for derived in (gradient_row(row, index) for index, text in enumerate(row.gradients) if text is not None):
            for place, letter in enumerate(derived.signature.inputs):
                if letter not in "nf":
                    continue
                xs = arguments(subject, derived, (16,))
                xs[place][::3] = np.nan
                kinds = [dtype if found in "nf" else None for found in derived.signature.inputs]
                for step in (1, 2):
                    cut = slice(None, None, step)
                    put = [subject.put(x, d).slice(cut) for x, d in zip(xs, kinds, strict=True)]
                    on_cpu = [dispatch.asarray(cpu, view.to_host()) for view in put]
                    got, expected = subject.value(derived, *put, **scalars), dispatch.run(derived, *on_cpu, **scalars)
                    np.testing.assert_array_equal(
                        np.isnan(got),
                        np.isnan(expected.to_host()),
                        f"{derived.name} {dtype.name}, NaN in argument {place}",
                    )


REDUCED = [r for r in REDUCTIONS if r.gradient is not None or r.weight or r.name in ("prod", "moments")]


@pytest.mark.parametrize("row", REDUCED, ids=attrgetter("name"))
def test_gradient_of_reduction_agrees_with_differences(subject, row):
    if not need_float64(subject):
        return
    for axes in ((0,), (2,), (0, 2), (0, 1, 2), ()):
        for output in range(len(row.signature.outputs) if row.name == "moments" else 1):
            function, vjp = reduction_functions(subject, row, axes, output)
            x = subject.rng.uniform(0.5, 2, (3, 4, 5))
            check_vjp(function, vjp, [x], subject.rng, what=f"{row.name} axes {axes} output {output}")


@pytest.mark.parametrize(
    "case", CASES, ids=lambda c: f"{c[0]}-{len(c[1])}options-{sum(a is None for a in c[2])}left-out"
)
def test_gradient_of_op_agrees_with_differences(subject, case):
    """Every argument of every op; every output, as second derivatives read the saved ones."""
    if not need_float64(subject):
        return
    name, options, makers, outputs = case
    op = TABLE[name]
    xs = [None if maker is None else maker(subject.rng) for maker in makers]
    if op.primitive and not subject.backend.supports_primitive(op.primitive, float64):
        subject.refused(name, lambda: subject.run(op, *(None if x is None else subject.put(x) for x in xs), **options))
        return
    for output in range(outputs):
        function, vjp = op_functions(subject, op, options, output)
        check_vjp(function, vjp, xs, subject.rng, what=f"{name} {options} output {output}")


@pytest.mark.parametrize(
    "case", CASES, ids=lambda c: f"{c[0]}-{len(c[1])}options-{sum(a is None for a in c[2])}left-out"
)
def test_gradients_come_in_the_dtype_of_their_argument(subject, case):
    """Float16 stays float16, though moments and sums are kept in float32 on the way."""
    name, options, makers, _ = case
    op = TABLE[name]
    for dtype in subject.dtypes("f"):
        if dtype is bfloat16 or dtype is float64 or not subject.computes(dtype) or name == "astype":
            continue
        if op.primitive and not subject.backend.supports_primitive(op.primitive, dtype):
            continue
        xs = [None if maker is None else maker(subject.rng) for maker in makers]
        xs = [x.astype(dtype.storage) if x is not None and x.dtype == np.float64 else x for x in xs]
        function, vjp = op_functions(subject, op, options)
        y = function(*xs)
        for index, (x, g) in enumerate(zip(xs, vjp(np.ones_like(y), *xs), strict=True)):
            if g is not None:
                assert (g.dtype, g.shape) == (x.dtype, x.shape), f"{name} {dtype.name}, argument {index}"


def test_every_differentiable_op_is_among_the_cases():
    """Adding an op with a backward and no case here fails, with its name."""
    assert sorted({op.name for op in OPS if op.backward is not None} - {case[0] for case in CASES}) == []


# the corners that differences cannot see
def test_b01_gradients_at_kinks(subject):
    """B01: abs and relu at 0 give 0; sqrt gives infinity at 0 and 0.25 at 4; clamp's ends are inside (B12)."""
    if not need_float64(subject):
        return
    assert grads(subject, "absolute", [[0, -2, 3]], [1, 1, 1])[0].tolist() == [0, -1, 1]
    assert grads(subject, "relu", [[0, -2, 3]], [1, 1, 1])[0].tolist() == [0, 0, 1]
    assert grads(subject, "sqrt", [[0, 4]], [1, 1])[0].tolist() == [np.inf, 0.25]
    assert grads(subject, "clamp", [[-1, 1, 1.5, 0]], [1] * 4, low=-1.0, high=1.0)[0].tolist() == [1, 1, 0, 1]


def test_b04_ties_share_the_gradient(subject):
    """B04: maximum and minimum at equality give half each; max over [1, 3, 3] gives [0, .5, .5]; never more than 1 in all."""
    if not need_float64(subject):
        return
    for name in ("maximum", "minimum"):
        left, right = grads(subject, name, [[1, 2, 2], [2, 2, 1]], [1, 1, 1])
        assert (left + right).tolist() == [1, 1, 1], name
        assert left[1] == 0.5, name
    for name in ("max", "min"):
        _, vjp = reduction_functions(subject, TABLE[name], (0,))
        sign = 1 if name == "max" else -1
        assert vjp(np.array(1.0), sign * np.array([1.0, 3, 3]))[0].tolist() == [0, 0.5, 0.5]


def test_a01_gradient_of_softmax_at_minus_infinity(subject):
    """A01: softmax([1, 2, -inf]) with weights [1, 2, 3]: the -inf column receives 0."""
    if not need_float64(subject):
        return
    _, vjp = op_functions(subject, TABLE["softmax"], {"axis": -1})
    got = vjp(np.array([1.0, 2, 3]), np.array([1.0, 2, -np.inf]))[0]
    assert got == pytest.approx([-0.19661193, 0.19661193, 0], abs=1e-8)


def test_a02_gradient_of_logsumexp_at_minus_infinity(subject):
    """A02: logsumexp([-inf, 0, 0]) sends [0, 0.5, 0.5]."""
    if need_float64(subject):
        _, vjp = reduction_functions(subject, TABLE["logsumexp"], (0,))
        assert vjp(np.array(1.0), np.array([-np.inf, 0, 0]))[0].tolist() == [0, 0.5, 0.5]


def test_a16_gradients_saturate_without_nan(subject):
    """A16: tanh, sigmoid, softplus, silu, gelu, mish and logsigmoid far out: finite forward and backward."""
    if not need_float64(subject):
        return
    x = [-1e4, -200, -13.5, 0, 13.5, 200, 1e4]
    limits = {
        "tanh": (0, 0),
        "sigmoid": (0, 0),
        "softplus": (0, 1),
        "silu": (0, 1),
        "gelu": (0, 1),
        "gelu_tanh": (0, 1),
        "mish": (0, 1),
        "logsigmoid": (1, 0),
    }
    for name, (low, high) in limits.items():
        (got,) = grads(subject, name, [x], [1] * 7)
        assert np.isfinite(got).all(), (name, got)
        assert got[[0, -1]] == pytest.approx([low, high], abs=1e-12), name
    for name, (low, high) in ({**limits, "softsign": (0, 0), "tanhshrink": (1, 1), "hardswish": (0, 1)}).items():
        (got,) = grads(subject, name, [[-np.inf, -1e300, 1e300, np.inf]], [1] * 4)
        assert got.tolist() == [low, low, high, high], name


def test_a17_gradients_of_the_two_gelus(subject):
    """A17: at 1, 1.0833154 by erf and 1.0829641 by tanh."""
    if need_float64(subject):
        assert grads(subject, "gelu", [[1, -1]], [1, 1])[0] == pytest.approx([1.0833154, -0.0833154], abs=1e-6)
        assert grads(subject, "gelu_tanh", [[1, -1]], [1, 1])[0] == pytest.approx([1.0829641, -0.0829641], abs=1e-6)


def test_a19_gradient_of_a_product_with_zeros(subject):
    """A19: prod [5, 0, 2] sends [0, 10, 0]; two zeros send nothing; a lone zero receives 1."""
    if not need_float64(subject):
        return
    _, vjp = reduction_functions(subject, TABLE["prod"], (0,))
    for x, expected in (
        ([5, 0, 2], [0, 10, 0]),
        ([0, 0, 2], [0, 0, 0]),
        ([0], [1]),
        ([0, 3, 4, 5, 2], [120, 0, 0, 0, 0]),
    ):
        assert vjp(np.array(1.0), np.array(x, float))[0].tolist() == expected


def test_c01_gradient_where_every_target_is_ignored(subject):
    """C01: zeros in every mode, never NaN; one of two ignored divides by 1."""
    if not need_float64(subject):
        return
    for reduction in ("mean", "sum", "none"):
        _, vjp = op_functions(subject, TABLE["cross_entropy"], {"reduction": reduction})
        g = np.ones(3) if reduction == "none" else np.array(1.0)
        assert not vjp(g, subject.rng.standard_normal((3, 4)), np.full(3, -100))[0].any(), reduction
    _, vjp = op_functions(subject, TABLE["cross_entropy"], {})
    assert vjp(np.array(1.0), np.zeros((2, 4)), np.array([1, -100]))[0].tolist() == [
        [0.25, -0.75, 0.25, 0.25],
        [0, 0, 0, 0],
    ]


def test_a03_gradient_of_cross_entropy_at_huge_logits(subject):
    """A03: [1, 0, -1] for target 2 of [1e4, 0, -1e4]."""
    if need_float64(subject):
        _, vjp = op_functions(subject, TABLE["cross_entropy"], {})
        assert vjp(np.array(1.0), np.array([[1e4, 0, -1e4]]), np.array([2]))[0].tolist() == [[1, 0, -1]]


def test_d07_gradients_of_batch_norm_sum_to_nothing(subject):
    """D07, D09: the gradient wrt x is orthogonal to constants; a constant row receives 0."""
    if not need_float64(subject):
        return
    x = subject.rng.standard_normal((4, 3, 5))
    _, vjp = op_functions(subject, TABLE["batch_norm"], {})
    got = vjp(subject.rng.standard_normal(x.shape), x, None, None)[0]
    assert np.abs(got.sum(axis=(0, 2))).max() < 1e-12
    _, vjp = op_functions(subject, TABLE["layer_norm"], {"normalized_shape": (7,)})
    assert np.abs(vjp(np.ones((2, 7)), np.full((2, 7), 0.1), None, None)[0]).max() < 1e-9
