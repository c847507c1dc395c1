"""Every elementwise row: on every dtype its signature admits, in every layout, within its stated error."""

from __future__ import annotations

from operator import attrgetter

import numpy as np
import pytest

from vsl_compute.conformance.placement import LAYOUTS, OUTPUTS, SHAPES, Input
from vsl_compute.conformance.subject import Subject
from vsl_compute.dtypes import DType, bool_, float16, float32, int64
from vsl_compute.rows.elementwise import ROWS, TABLE
from vsl_compute.rows.row import Row
from vsl_compute.validation import oracle
from vsl_compute.validation.cases import GRID, domain_of, letters_of, scalar_letter, scalars_of, scale_of

NO_NUMBERS: frozenset[str] = frozenset()
DIVISIONS = ("floor_divide", "remainder")


def resulting(row: Row, found: dict[str, DType]) -> DType:
    """The dtype of the row's result for these dtypes of its letters."""
    resolved = row.signature.resolve(row.name, tuple(found[letter] for letter in row.signature.inputs))
    return {**found, **resolved}.get(row.signature.outputs, bool_)


def supported(subject: Subject, row: Row, found: dict[str, DType]) -> bool:
    """Whether the row runs in these dtypes; if it is declared not to, see that it is refused."""
    lacking = [d for d in found.values() if not subject.backend.supports_row(row, d)]
    if not lacking:
        return True

    def ask():
        xs = [subject.put(np.ones(3), found[letter]) for letter in row.signature.inputs]
        out = subject.output(resulting(row, found), (3,)).view
        subject.run(row, *xs, out=out, **scalars_of(row, found[letters_of(row)[0]]))

    subject.refused(f"{row.name} for {lacking[0].name}", ask)
    return False


def admitted(subject: Subject, row: Row) -> list[dict[str, DType]]:
    """The dtypes that the row runs in, made ready together."""
    found = [one for one in subject.assignments(letters_of(row)) if supported(subject, row, one)]
    subject.backend.compile_ahead((row, one, NO_NUMBERS) for one in found)
    return found


def check(
    subject: Subject, row: Row, found: dict[str, DType], xs: list[Input], shape, layout: str, guarded: str | None
) -> None:
    """Run the row on these inputs and judge it; the result goes into a guarded output, or a fresh one."""
    result = resulting(row, found)
    given = scalars_of(row, found[scalar_letter(row)])
    names = ",".join(f"{letter}={d.name}" for letter, d in found.items())
    what = f"{row.name} {names} {layout} {shape}"
    views = [x.view for x in xs]
    expected = np.broadcast_to(oracle.value(row.name, [x.host for x in xs], given, result), shape)
    if guarded is None and views:
        y = subject.run(row, *views, **given)
        assert y.dtype is result, f"{what}: came as {y.dtype.name}, is {result.name}"
        got = y.to_host()
    else:
        out = subject.output(result, shape, guarded or "dense")
        subject.run(row, *views, out=out.view, **given)
        got = out.read(what)
    subject.close(got, expected, result, subject.ulp(row, result), what, scale_of(row, [x.host for x in xs]))


@pytest.mark.parametrize("row", ROWS, ids=attrgetter("name"))
def test_row_agrees_with_its_meaning_in_every_layout(subject, row):
    """Input layouts against the oracle, into outputs of every layout between guards."""
    for found in admitted(subject, row):
        for number, layout in enumerate(LAYOUTS):
            xs = [
                subject.place(found[letter], layout, GRID, domain_of(row, i, found[letter]), turn=i)
                for i, letter in enumerate(row.signature.inputs)
            ]
            check(subject, row, found, xs, GRID, layout, OUTPUTS[number % len(OUTPUTS)])


@pytest.mark.parametrize("row", ROWS, ids=attrgetter("name"))
def test_row_agrees_with_its_meaning_at_every_size(subject, row):
    """Nothing, one number, tails of every width; the result is a fresh View."""
    for number, found in enumerate(admitted(subject, row)):
        for shape in SHAPES if number < 2 or found.get(row.signature.outputs) is float32 else SHAPES[:4]:
            xs = [
                subject.place(found[letter], "dense", shape, domain_of(row, i, found[letter]))
                for i, letter in enumerate(row.signature.inputs)
            ]
            check(subject, row, found, xs, shape, "dense", None)


@pytest.mark.parametrize("name", ["multiply", "exp", "where", "less"])
def test_long_arrays_are_cut_without_a_seam(subject, name):
    """164 400 elements: more than any backend does in one piece or one thread; each layout, and broadcast arguments."""
    row, shape = TABLE[name], (400, 411)
    for number, found in enumerate(subject.assignments(letters_of(row))):
        if found[letters_of(row)[-1]].name not in ("float32", "float16", "int8") or not supported(subject, row, found):
            continue
        for layout in LAYOUTS if found[letters_of(row)[-1]] is float32 else (LAYOUTS[number % len(LAYOUTS)],):
            xs = [
                subject.place(found[letter], layout, shape, row.domain, turn=i)
                for i, letter in enumerate(row.signature.inputs)
            ]
            check(subject, row, found, xs, shape, layout, OUTPUTS[number % len(OUTPUTS)])
        shapes = [(400, 1), (411,), (1, 411)] if len(row.args) > 1 else [shape]
        xs = [subject.place(found[letter], "dense", shapes[i]) for i, letter in enumerate(row.signature.inputs)]
        check(subject, row, found, xs, shape, "broadcast arguments", None)


@pytest.mark.parametrize("row", [r for r in ROWS if len(r.args) > 1], ids=attrgetter("name"))
def test_arguments_broadcast_and_mix_layouts(subject, row):
    """Each argument of another shape and layout; all broadcast to one."""
    shapes = [(4, 1, 6), (5, 1), (6,), (1, 5, 6), (), (4, 1, 1), (1, 6), (5, 6)]
    for found in admitted(subject, row):
        xs = [
            subject.place(
                found[letter], LAYOUTS[(2 * i + 1) % len(LAYOUTS)], shapes[i], domain_of(row, i, found[letter])
            )
            for i, letter in enumerate(row.signature.inputs)
        ]
        check(subject, row, found, xs, np.broadcast_shapes(*shapes[: len(xs)]), "mixed", "dense")


@pytest.mark.parametrize("row", [r for r in ROWS if r.signature.inputs in ("nn", "ff", "ii")], ids=attrgetter("name"))
def test_a_python_scalar_stands_for_either_argument(subject, row):
    """Operand order: f(x, 3) and f(3, x) against the oracle."""
    letter = row.signature.inputs[0]
    dtypes = [dtype for dtype in subject.dtypes(letter) if supported(subject, row, {letter: dtype})]
    subject.backend.compile_ahead((row, {letter: dtype}, frozenset({name})) for dtype in dtypes for name in row.args)
    for dtype in dtypes:
        result = bool_ if row.signature.outputs == "b" else dtype
        number = 3 if dtype.is_integer else 2.75 if row.domain[1] > 2.75 else 0.625
        given = scalars_of(row, dtype)
        x = subject.place(dtype, "dense", (9,), domain_of(row, 1, dtype))
        for args, hosts in (((x.view, number), (x.host, number)), ((number, x.view), (number, x.host))):
            expected = oracle.value(row.name, list(hosts), given, result)
            what = f"{row.name} {dtype.name} with {number} {'second' if args[1] is number else 'first'}"
            got = subject.value(row, *args, **given)
            subject.close(got, expected, result, subject.ulp(row, result), what, scale_of(row, hosts))


@pytest.mark.parametrize("name", sorted({key.split("/")[0] for key in oracle.golden()}))
def test_function_agrees_with_mpmath(subject, name):
    """Golden values to 40 digits over a range far wider than the random draw's; also A16, A17."""
    row, golden = TABLE[name], oracle.golden()
    x, y, rest = (golden[f"{name}/{part}"] for part in ("x", "y", "rest"))
    exact = y.astype(np.longdouble) + rest.astype(np.longdouble)
    for dtype in subject.dtypes("f"):
        if dtype.itemsize < 4 or not supported(subject, row, {"f": dtype}):
            continue
        got = subject.value(row, subject.put(x, dtype))
        subject.close(got, exact, dtype, subject.ulp(row, dtype), f"{name} {dtype.name} golden", scale_of(row, [x]))


@pytest.mark.parametrize("name", DIVISIONS)
def test_division_goes_down_for_every_pair_of_signs(subject, name):
    """-7 // 2 is -4 and -7 % 2 is 1, in integers and floats; the remainder has the divisor's sign."""
    a, b = np.array([7, -7, 7, -7, 6, -6, 0, 1]), np.array([2, 2, -2, -2, 3, 3, -5, -5])
    for dtype in subject.dtypes("n"):
        if dtype.kind == "u" or not supported(subject, TABLE[name], {"n": dtype}):
            continue
        hosts = (
            a.astype(np.float64 if dtype.is_floating else dtype.storage),
            b.astype(np.float64 if dtype.is_floating else dtype.storage),
        )
        expected = oracle.value(name, hosts, dtype=dtype)
        got = subject.value(name, subject.put(a, dtype), subject.put(b, dtype))
        subject.close(got, expected, dtype, 0, f"{name} {dtype.name} signs")


def test_integers_wrap_at_both_ends(subject):
    """Overflow of add, subtract, multiply and negative keeps the low bits, in every integer dtype."""
    for dtype in subject.dtypes("i"):
        top, bottom = int(dtype.max), int(dtype.min)
        a, b = np.array([top, bottom, top, bottom], dtype.storage), np.array([1, 1, top, 2], dtype.storage)
        for name in ("add", "subtract", "multiply"):
            if supported(subject, TABLE[name], {"n": dtype}):
                expected = oracle.value(name, [a, b], dtype=dtype)
                subject.close(
                    subject.value(name, subject.put(a), subject.put(b)),
                    expected,
                    dtype,
                    0,
                    f"{name} {dtype.name} wraps",
                )


NAN_KEEPERS = [
    r
    for r in ROWS
    if r.signature.outputs in "nf"
    and r.signature.inputs
    and "b" not in r.signature.inputs
    and "i" not in r.signature.inputs
]


@pytest.mark.parametrize("row", NAN_KEEPERS, ids=attrgetter("name"))
def test_nan_in_any_argument_is_nan_in_the_result(subject, row):
    """No row swallows NaN: maximum, relu and clamp are where libraries do (G09)."""
    exempt = {
        ("copysign", 1),
        ("fill_like", 0),
        ("prelu", 1),
        *(("normalize_mask", k) for k in range(1, 6)),
    }  # what chooses
    for dtype in subject.dtypes("f"):
        found = dict.fromkeys(row.signature.inputs, dtype)
        if not supported(subject, row, found):
            continue
        for position in range(len(row.args)):
            if (row.name, position) in exempt:
                continue
            xs = [np.full(5, sum(row.domain) / 4 + 0.5) for _ in row.args]
            xs[position][::2] = np.nan
            got = subject.value(row, *(subject.put(x, dtype) for x in xs), **scalars_of(row, dtype))
            assert np.isnan(got).tolist() == [True, False] * 2 + [True], (
                f"{row.name} {dtype.name}, NaN in argument {position}: {got}"
            )


def test_infinities_reach_their_limits(subject):
    """A16: saturation at the ends of the range and at infinity; no NaN where there is a limit."""
    inf = np.inf
    table = {
        "tanh": ([-inf, -200, -13.5, 200, inf], [-1, -1, -0.9999999999962405, 1, 1]),
        "sigmoid": ([-inf, -200, 200, inf], [0, 1.3838965267367376e-87, 1, 1]),
        "softplus": ([-inf, -200, 200, inf], [0, 1.3838965267367376e-87, 200, inf]),
        "logsigmoid": ([-inf, -200, 200, inf], [-inf, -200, -1.3838965267367376e-87, 0]),
        "erf": ([-inf, -30, 30, inf], [-1, -1, 1, 1]),
        "exp": ([-inf, -800, 800, inf], [0, 0, inf, inf]),
        "expm1": ([-inf, -800, 800, inf], [-1, -1, inf, inf]),
        "relu": ([-inf, inf], [0, inf]),
        "elu": ([-inf, inf], [-1, inf]),
        "softsign": ([-inf, -1e4, 1e4, inf], [-1, -0.999900009999, 0.999900009999, 1]),
        "gelu": ([-inf, -200, -40, 200, 1e4, inf], [0, 0, 0, 200, 1e4, inf]),
        "gelu_tanh": ([-inf, -200, -13.5, 200, 1e4, inf], [0, 0, 0, 200, 1e4, inf]),
        "silu": ([-inf, -200, 200, inf], [0, -2.767793053473475e-85, 200, inf]),
        "mish": ([-inf, -200, 200, inf], [0, -2.767793053473475e-85, 200, inf]),
        "hardswish": ([-inf, -1e4, 1e4, inf], [0, 0, 1e4, inf]),
        "atan": ([-inf, inf], [-np.pi / 2, np.pi / 2]),
        "log": ([0, inf], [-inf, inf]),
        "log1p": ([-1, inf], [-inf, inf]),
        "reciprocal": ([-inf, inf], [0, 0]),
        "rsqrt": ([0, inf], [inf, 0]),
    }
    for name, (x, y) in table.items():
        for dtype in subject.floating():
            if dtype is float16 and max(map(abs, (v for v in x if v not in (inf, -inf))), default=0) > 6e4:
                continue
            given = {"alpha": 1.0} if name == "elu" else {}
            got = subject.value(name, subject.put(np.array(x, np.float64), dtype), **given)
            scale = 1.0 if name in ("tanh", "softsign") else None
            subject.close(
                got, np.array(y), dtype, subject.narrowed(16, dtype) + 0.5, f"{name} {dtype.name} limits", scale
            )


def test_functions_of_two_arguments_at_their_corners(subject):
    """power as C99 F.9.4.4 has it, hypot without overflow on the way, atan2 in every quadrant."""
    inf, nan = np.inf, np.nan
    cases = {
        "power": (
            [-2, -2, 0, 0, inf, -inf, 1, 2, 4, -8, 0.5, 9],
            [3, 0.5, 0, -1, 0, 3, 5, -inf, 0.5, 2, inf, 0],
            [-8, nan, 1, inf, 1, -inf, 1, 0, 2, 64, 0, 1],
        ),
        "hypot": (
            [3, inf, -5, 0, 2.0**60, inf, nan, nan, -inf],  # infinity wins over NaN: C99 F.9.4.3
            [4, 1, 12, 0, 2.0**60, nan, -inf, 1, inf],
            [5, inf, 13, 0, np.sqrt(2.0) * 2.0**60, inf, inf, nan, inf],
        ),
        "atan2": ([1, 1, -1, -1, 0, 0, inf], [1, -1, 1, -1, 1, -1, 1], np.pi * np.array([0.25, 0.75, -0.25, -0.75, 0, 1, 0.5])),
        "copysign": ([2, -2, 2, 0], [-1, 1, -0.0, -1], [-2, 2, -2, 0]),
    }  # fmt: skip
    for name, (a, b, y) in cases.items():
        for dtype in subject.floating():
            if dtype is float16 and name == "hypot":
                continue
            got = subject.value(
                name, subject.put(np.array(a, np.float64), dtype), subject.put(np.array(b, np.float64), dtype)
            )
            subject.close(
                got,
                np.array(y, np.float64),
                dtype,
                subject.ulp(TABLE[name], dtype) + 0.5,
                f"{name} {dtype.name} corners",
            )
    if float32 in subject.dtypes("f"):
        big = subject.put(np.array([1e30, 3e38], np.float32))
        assert subject.value("hypot", big, big)[0] == pytest.approx(1.4142135e30, rel=1e-6)


def test_python_s_truth_values_stand_for_arrays(subject):
    """In each place of each op on truth values, and as the condition of where; nothing is uploaded for them."""
    if bool_ not in subject.dtypes("b"):
        return
    a, b = np.array([True, False, True]), np.array([[True], [False]])
    x, y = subject.put(a), subject.put(b)
    wanted = {"logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": np.logical_xor}
    for name, op in wanted.items():
        for truth in (True, False):
            assert np.array_equal(subject.value(name, x, truth), op(a, truth)), (name, truth)
            assert np.array_equal(subject.value(name, truth, y), op(truth, b)), (name, truth)
    before = subject.backend.transfers().calls_to_device
    for truth in (True, False):
        assert np.array_equal(subject.value("where_bool", truth, x, y), np.where(truth, a, b))
        assert np.array_equal(subject.value("where_bool", y, truth, x), np.where(b, truth, a))
        assert np.array_equal(subject.value("where_bool", x, truth, not truth), np.where(a, truth, not truth))
        number = subject.run("where", truth, subject.run("astype", x, dtype="float32"), 7.0)
        assert np.array_equal(number.to_host(), np.where(truth, a, np.float32(7)))
    assert subject.backend.transfers().calls_to_device == before


def test_stated_tolerances_keep_to_the_bounds():
    """At most 4 ULP on the CPU and 64 elsewhere: a row that needs more is a wrong row."""
    assert [r.name for r in ROWS if r.ulp > 4 or r.gpu_ulp > 64] == []


def test_a13_signed_zero(subject):
    """A13: the sign of zero is kept where arithmetic keeps it."""
    for dtype in subject.floating():
        zeros = subject.put(np.array([-0.0, 0.0, -0.0]), dtype)
        other = subject.put(np.array([0.0, -0.0, -0.0]), dtype)
        inverse = subject.value("divide", subject.put(np.ones(3), dtype), zeros)
        assert inverse.tolist() == [-np.inf, np.inf, -np.inf], f"1/-0 in {dtype.name}"
        assert np.signbit(subject.value("sqrt", zeros)).tolist() == [True, False, True], f"sqrt(-0) in {dtype.name}"
        assert subject.value("equal", zeros, other).all()
        assert np.signbit(subject.value("add", zeros, other)).tolist() == [False, False, True], (
            f"-0 + 0 in {dtype.name}"
        )
        angle = subject.value("atan2", other, subject.put(np.array([-0.0] * 3), dtype))
        subject.close(
            angle, [np.pi, -np.pi, -np.pi], dtype, subject.narrowed(4, dtype) + 0.5, f"atan2 of zeros {dtype.name}"
        )
        assert (subject.value("sign", zeros) == 0).all()
        assert (subject.value("relu", zeros) == 0).all()
        rounded = subject.value("round", subject.put(np.array([-0.4, 0.4]), dtype))
        assert np.signbit(rounded).tolist() == [True, False], f"round(-0.4) in {dtype.name}"
        assert np.signbit(subject.value("negative", zeros)).tolist() == [False, True, False], f"-(-0) in {dtype.name}"
        assert not np.signbit(subject.value("sign", zeros)).any(), f"sign(-0) in {dtype.name}"


def test_a14_rounding_is_half_to_even_and_casts_truncate(subject):
    """A14: round([0.5, 1.5, 2.5, ...]) and 2.9 -> 2, -2.9 -> -2."""
    for dtype in subject.floating():
        halves = subject.put(np.array([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 3.5]), dtype)
        assert subject.value("round", halves).tolist() == [0, 2, 2, 0, -2, -2, 4], dtype.name
        cast = subject.value("astype", subject.put(np.array([2.9, -2.9, 0.99, -0.99]), dtype), dtype=int64)
        assert cast.tolist() == [2, -2, 0, 0], dtype.name


def test_a17_the_two_gelus_are_told_apart(subject):
    """A17: at x = -3 they differ by a tenth; at x = 1 only in the fourth digit."""
    x = subject.put(np.array([-3.0, 1.0, 2.0]), "float32")
    assert subject.value("gelu", x) == pytest.approx([-0.0040496941, 0.8413447461, 1.9544997361], rel=1e-4)
    assert subject.value("gelu_tanh", x) == pytest.approx([-0.0036373921, 0.8411919906, 1.9545976941], rel=1e-4)


def test_g06_denormals_are_kept_or_flushed_with_their_sign(subject):
    """G06: 1e-40 times 1 is 1e-40 or 0, and -1e-40 is -1e-40 or -0."""
    x = np.array([1e-40, -1e-40, 1.2e-38], np.float32)
    got = subject.value("multiply", subject.put(x), subject.put(np.ones(3, np.float32)))
    subject.close(got, x.astype(np.float64), float32, 0, "denormal * 1")
    assert np.signbit(got).tolist() == [False, True, False]


def test_g09_nan_tests_survive_the_compiler(subject):
    """G09: no relaxed maths: isnan, x != x, minimum(1, 1/0) and inf - inf mean what IEEE 754 says."""
    for dtype in subject.floating():
        x = subject.put(np.array([np.nan, np.inf, -np.inf, 0.0, 1.0]), dtype)
        assert subject.value("isnan", x).tolist() == [True, False, False, False, False], dtype.name
        assert subject.value("isinf", x).tolist() == [False, True, True, False, False], dtype.name
        assert subject.value("isfinite", x).tolist() == [False, False, False, True, True], dtype.name
        assert subject.value("not_equal", x, x).tolist() == [True, False, False, False, False], dtype.name
        assert np.isnan(subject.value("subtract", x, x)).tolist() == [True, True, True, False, False], dtype.name
        assert subject.value("minimum", subject.run("divide", 1.0, subject.put(np.zeros(2), dtype)), 1.0).tolist() == [
            1,
            1,
        ]
        assert subject.value("less", x, x).any() == np.False_, dtype.name


@pytest.mark.slow
def test_g02_more_groups_than_65535(subject):
    """G02: 65535 * 256 + 1 elements are more workgroups than a device need have on one axis. Slow: 64 MB, twice."""
    n = 65535 * 256 + 1
    y = subject.run("add", subject.run("fill", out=subject.output(float32, (n,)).view, alpha=0.0), 1.0)
    host = y.to_host()
    assert host.min() == host.max() == 1
    assert float(subject.value("sum", y)) == n
