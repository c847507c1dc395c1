"""SPIR-V modules: their structure, their validity where spirv-val is installed, and the series they are built from.

The series are run on the CPU in float32, one rounding an operation, by simulated_spirv.py: what an implementation that
keeps SPIR-V's own promises for + - * / sqrt would compute.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Iterator

import mpmath
import numpy as np
import pytest
import simulated_spirv  # conftest.py has brought it
from simulated_spirv import Fma, once, twice

from vsl_compute import dtypes
from vsl_compute.dtypes import DType
from vsl_compute.errors import RowError
from vsl_compute.rows.derive import gradient_row
from vsl_compute.rows.elementwise import ROWS, TABLE
from vsl_compute.rows.kinds import assignments
from vsl_compute.rows.row import Row
from vsl_compute.rows.spirv import LAYOUTS, PUSH_BYTES, SpirvKernel, emit_copy, emit_row, emit_update, supports
from vsl_compute.rows.spirv_math import SINGLE
from vsl_compute.rows.updates import TABLE as UPDATED
from vsl_compute.validation.tolerance import ulp_error

F32 = {"f": dtypes.float32, "n": dtypes.float32, "b": dtypes.bool_, "i": dtypes.int32}
single = np.float32


def instructions(kernel: SpirvKernel) -> Iterator[tuple[int, tuple[int, ...]]]:
    words = struct.unpack(f"<{len(kernel.words) // 4}I", kernel.words)
    at = 5
    while at < len(words):
        length = words[at] >> 16
        yield words[at] & 0xFFFF, words[at + 1 : at + length]
        at += length
    assert at == len(words)


def codes(kernel: SpirvKernel) -> list[int]:
    return [code for code, _ in instructions(kernel)]


def capabilities(kernel: SpirvKernel) -> set[int]:
    return {operands[0] for code, operands in instructions(kernel) if code == 17}


# structure


def test_header_says_version_1_3_and_a_bound_above_every_id():
    kernel = emit_row(TABLE["add"], F32, "dense")
    magic, version, _, bound, schema = struct.unpack("<5I", kernel.words[:20])

    assert (magic, version, schema) == (0x07230203, 0x00010300, 0)
    assert all(operands[1] < bound for code, operands in instructions(kernel) if code in (61, 129))


def test_float32_dense_needs_no_optional_device_feature():
    assert capabilities(emit_row(TABLE["gelu"], F32, "dense")) == {1, 5347}
    assert capabilities(emit_row(TABLE["gelu"], F32, "vector")) == {1, 5347}


def test_features_follow_the_dtypes():
    assert 10 in capabilities(emit_row(TABLE["add"], {"n": dtypes.float64}, "dense"))
    assert 11 in capabilities(emit_row(TABLE["add"], {"n": dtypes.int64}, "dense"))
    assert 4433 in capabilities(emit_row(TABLE["add"], {"n": dtypes.bfloat16}, "dense"))
    assert 4448 in capabilities(emit_row(TABLE["add"], {"n": dtypes.int8}, "dense"))


@pytest.mark.parametrize(
    ("row", "count"), [(TABLE["multiply_add"], 2), (gradient_row(TABLE["atan2"], 0), 3)], ids=["sums", "quotients"]
)
def test_arithmetic_is_never_joined(row: Row, count: int):
    """Nor are two divisions by h made one by h * h, which may be 0."""
    kernel = emit_row(row, F32, "dense")
    decorated = {operands[0] for code, operands in instructions(kernel) if code == 71 and operands[1] == 42}

    floats = {operands[1] for code, operands in instructions(kernel) if code in (129, 131, 133, 136)}
    assert len(floats) >= count
    assert floats <= decorated


def test_maximum_is_a_select_and_not_fmax():
    kernel = emit_row(TABLE["maximum"], F32, "dense")

    assert 169 in codes(kernel)
    assert not [operands for code, operands in instructions(kernel) if code == 12 and operands[3] in (37, 40, 79, 80)]


def test_a_subexpression_that_occurs_twice_is_emitted_once():
    once, twice = (codes(emit_row(TABLE[name], F32, "dense")).count(133) for name in ("square", "square"))
    mish = emit_row(TABLE["mish"], F32, "dense")

    assert once == twice == 1
    assert len(mish.words) < 3 * len(emit_row(TABLE["tanh"], F32, "dense").words)


def test_float16_is_stored_rounded_to_nearest_even():
    kernel = emit_row(TABLE["add"], {"n": dtypes.float16}, "dense")

    assert [operands[2] for code, operands in instructions(kernel) if code == 71 and operands[1] == 39] == [0]


def test_parameters_lie_side_by_side_in_128_bytes_or_in_a_block():
    for row in ROWS:
        for layout in LAYOUTS:
            kernel = emit_row(row, F32, layout)
            sizes = {"Q": 8, "q": 8, "d": 8}
            ends = [field.offset + sizes.get(field.format, 4) for field in kernel.fields]

            assert [field.offset for field in kernel.fields[1:]] == ends[:-1]
            assert all(field.offset % sizes.get(field.format, 4) == 0 for field in kernel.fields)
            assert kernel.block == (ends[-1] > PUSH_BYTES)


def test_the_binary_rows_fit_push_constants_with_any_strides():
    assert not emit_row(TABLE["where"], F32, "general").block
    assert not emit_row(TABLE["add"], F32, "general").block


def test_update_writes_its_slots_in_a_module_of_its_own():
    step, slots = emit_update(UPDATED["adam"], dict.fromkeys("gps", dtypes.float32))

    assert codes(step).count(62) == 3
    assert codes(slots).count(62) == 1
    assert [field.name for field in slots.fields] == ["t", "count"]


def test_slots_are_written_by_the_first_thread_alone():
    """Found on llvmpipe: three groups stepped the count three times and more."""
    _, slots = emit_update(UPDATED["adam"], dict.fromkeys("gps", dtypes.float32))
    listed = codes(slots)

    branch = listed.index(250)
    assert listed[branch - 1] == 247
    assert branch < listed.index(62)
    assert all(i > branch for i, (code, operands) in enumerate(instructions(slots)) if code == 61 and len(operands) > 3)


def test_loop_invariants_of_an_update_stand_before_the_loop():
    step, _ = emit_update(UPDATED["adam"], dict.fromkeys("gps", dtypes.float32))
    listed = codes(step)

    assert listed.index(246) > max(
        i for i, code in enumerate(listed) if code == 110
    )  # expm1 of the step count converts to integer


# support


def test_integers_support_what_has_a_meaning_in_them():
    assert supports(TABLE["exp"], dtypes.float64)
    assert not supports(TABLE["exp"], dtypes.int32)
    with pytest.raises(RowError, match="exp takes floating numbers"):
        emit_row(TABLE["exp"], {"f": dtypes.int32}, "dense")


def test_support_is_what_the_emitter_can_say():
    for row in ROWS:
        for r in (row, *(gradient_row(row, i) for i, text in enumerate(row.gradients) if text)):
            for stored in assignments(r):
                claimed = all(supports(r, d) for d in stored.values())
                try:
                    emit_row(r, stored, "dense")
                    said = True
                except RowError:
                    said = False
                assert claimed == said, (r.name, stored)


def test_every_float32_row_is_supported():
    assert all(supports(row, dtypes.float32) for row in ROWS)


def test_modules_are_valid():
    """A sample; ci/render.py asks spirv-val about every module."""
    if shutil.which("spirv-val") is None:
        pytest.skip("spirv-val is not installed (apt-get install spirv-tools); the session `render` requires it")
    kernels = [
        emit_row(TABLE[n], F32, layout)
        for n in ("gelu", "power", "normalize", "where", "remainder")
        for layout in LAYOUTS
    ]
    kernels += [emit_row(TABLE["add"], {"n": d}, layout) for d in dtypes.ALL if d.kind != "b" for layout in LAYOUTS]
    kernels += [emit_copy(a, b, "rows") for a in dtypes.ALL for b in dtypes.ALL]
    for kernel in (
        *kernels,
        *emit_update(UPDATED["adam"], {"g": dtypes.float16, "p": dtypes.bfloat16, "s": dtypes.float32}),
    ):
        command = ("spirv-val", "--target-env", "vulkan1.2", "-")
        done = subprocess.run(command, input=kernel.words, capture_output=True, check=False)

        assert not done.returncode, f"{kernel.name}: {done.stderr.decode()}"


# the series


def computed(row: Row, fma: Fma = once, **inputs: np.ndarray) -> np.ndarray:
    return simulated_spirv.computed(row, dtypes.float32, fma, **inputs)


EXACT = {
    "expm1": np.expm1, "log1p": np.log1p, "erf": np.vectorize(lambda x: float(mpmath.erf(x))), "absolute": np.abs,
} | {name: getattr(np, {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh",
                        "atanh": "arctanh", "power": "power", "atan2": "arctan2"}.get(name, name))
     for name in SINGLE if name not in ("%", "//", "expm1", "log1p", "erf")}  # fmt: skip
UNARY = [name for name in EXACT if name in TABLE and len(TABLE[name].args) == 1]


def ulps(got: np.ndarray, exact: np.ndarray) -> float:
    near = np.isfinite(exact)
    spacing = np.spacing(np.maximum(np.abs(exact[near]), np.finfo(single).tiny).astype(single)).astype(np.float64)
    return float(np.max(np.abs(got[near].astype(np.float64) - exact[near]) / spacing))


@pytest.mark.parametrize("fma", [once, twice])
@pytest.mark.parametrize("name", UNARY)
def test_series_are_within_4_ulp(name: str, fma: Fma):
    """Over the row's domain, and logarithmically close to zero, where a series that cancels would show."""
    row = TABLE[name]
    rng = np.random.default_rng(3)
    low, high = row.domain
    tiny = np.float64(10.0) ** rng.uniform(-30, 0, 4000) * rng.choice([-1, 1], 4000)
    x = np.concatenate([rng.uniform(low, high, 20000), tiny[(tiny > low) & (tiny < high)]]).astype(single)

    got = computed(row, fma, x=x)

    assert ulps(got, EXACT[name](x.astype(np.float64))) <= 4


@pytest.mark.parametrize(("name", "low", "high"), [("exp", -103, 88.7), ("expm1", -30, 88.7), ("log", 1e-38, 3e38), ("log1p", -0.9999, 1e30),
                                                   ("sin", -9000, 9000), ("cos", -9000, 9000), ("sinh", -89, 89), ("cosh", -89, 89),
                                                   ("asinh", -1e30, 1e30), ("acosh", 1, 1e30), ("tanh", -100, 100), ("erf", -9, 9)])  # fmt: skip
def test_series_hold_over_the_whole_range(name: str, low: float, high: float):
    x = np.random.default_rng(4).uniform(low, high, 20000).astype(single)

    exact = EXACT[name](x.astype(np.float64))
    got = computed(TABLE[name], x=x)

    scale = np.maximum(np.abs(exact), 1e-3 if name in ("sin", "cos") else 0)
    fine = np.isfinite(exact.astype(single)) & (np.abs(exact) > 2e-38)
    assert np.max(np.abs(got.astype(np.float64) - exact)[fine] / np.spacing(scale[fine].astype(single))) <= 8


def test_edges_are_those_of_numpy():
    edges = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-40, -1e-40, 200.0, -200.0], single)
    for name in UNARY:
        with np.errstate(all="ignore"):
            exact = EXACT[name](edges.astype(np.float64)).astype(single)

        np.testing.assert_allclose(computed(TABLE[name], x=edges), exact, rtol=1e-6, atol=2e-38, err_msg=name)


def test_power_has_the_special_cases_of_numpy():
    bases = np.array([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -8.0, np.inf, -np.inf, np.nan], single)
    exponents = np.array([0.0, 1.0, -1.0, 2.0, 3.0, -3.0, 0.5, np.inf, -np.inf, np.nan], single)
    a, b = (m.ravel() for m in np.meshgrid(bases, exponents))

    with np.errstate(all="ignore"):
        np.testing.assert_allclose(computed(TABLE["power"], a=a, b=b), np.power(a, b), rtol=3e-6)


@pytest.mark.parametrize("fma", [once, twice])
@pytest.mark.parametrize(("dtype", "most"), [(dtypes.float32, 6), (dtypes.float64, 32)], ids=str)
def test_powers_of_any_size_keep_their_digits(dtype: DType, most: int, fma: Fma):
    """The logarithm has two parts: of one, the exponential made some hundred times the error."""
    rng, limits = np.random.default_rng(21), np.finfo(dtype.storage)
    largest = np.log(limits.max) - 1
    a = np.exp(np.where(np.arange(6000) % 2, rng.uniform(-0.9, 0.9, 6000), rng.uniform(-0.9, 0.9, 6000) * largest))
    a = a.astype(dtype.storage)
    b = (rng.uniform(-largest, largest, 6000) / np.log(a.astype(np.longdouble))).astype(dtype.storage)

    exact = np.power(a.astype(np.longdouble), b.astype(np.longdouble))
    got = simulated_spirv.computed(TABLE["power"], dtype, fma, a=a, b=b)

    normal = exact > limits.tiny
    assert np.max(ulp_error(got, exact, dtype)[normal]) <= most


@pytest.mark.parametrize("name", ["floor_divide", "remainder"])
def test_remainders_are_those_of_numpy(name: str):
    rng = np.random.default_rng(5)
    a, b = (rng.uniform(-40, 40, 20000).astype(single) for _ in range(2))
    a[:7] = [6, -6, 0, -0.0, 5, np.inf, np.nan]
    b[:7] = [3, 3, 2, 2, 0, 2, 2]
    b[7:99] *= single(1e-4)

    with np.errstate(all="ignore"):
        exact = (np.floor_divide if name == "floor_divide" else np.remainder)(a, b)
    np.testing.assert_array_equal(computed(TABLE[name], a=a, b=b), exact)


def test_hypot_and_atan2_cover_every_quadrant():
    rng = np.random.default_rng(6)
    a, b = (
        np.concatenate([rng.normal(size=5000), [0.0, -0.0, 0.0, -0.0, np.inf, 1.0]]).astype(single) for _ in range(2)
    )
    b[-6:] = np.array([0.0, -0.0, -0.0, 0.0, np.inf, -np.inf], single)

    for name in ("hypot", "atan2"):
        exact = EXACT[name](a.astype(np.float64), b.astype(np.float64))
        assert ulps(computed(TABLE[name], a=a, b=b), exact) <= 4
