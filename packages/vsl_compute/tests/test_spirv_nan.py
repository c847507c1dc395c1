"""NaN and denormals in emitted modules: a driver that assumes there are none changes nothing, whatever its comparisons say.

Such a driver may also make min and max of a comparison and a select, which is to decide the comparison so that NaN is not
chosen. Modules are told to keep NaN where a device can (test_vulkan_shaders.py); this is for those where it cannot.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
import simulated_spirv  # conftest.py has brought it
from simulated_spirv import Array, Emitted

from vsl_compute import dtypes
from vsl_compute.dtypes import DType
from vsl_compute.rows.dag import Builder, Value, uses
from vsl_compute.rows.derive import gradient_row
from vsl_compute.rows.elementwise import ROWS
from vsl_compute.rows.evaluate import compiled
from vsl_compute.rows.expression import parse
from vsl_compute.rows.fused import FUSED, lower_fused
from vsl_compute.rows.kinds import lower_row, lower_update
from vsl_compute.rows.reductions import REDUCTIONS
from vsl_compute.rows.row import Row
from vsl_compute.rows.spirv import native
from vsl_compute.rows.spirv_math import macros_of
from vsl_compute.rows.spirv_values import Emitter
from vsl_compute.rows.updates import UPDATES

WIDTHS = [dtypes.float32, dtypes.float64]
DRAWN = np.random.default_rng(11)


def drawn(result: Array, nan: Array) -> Array:
    """By lot."""
    return np.where(nan, DRAWN.random(np.shape(result)) < 0.5, result)


JUDGES = {
    "yes": lambda result, nan: result | nan,
    "no": lambda result, nan: result & ~nan,
    "flipped": lambda result, nan: result ^ nan,  # as of !(a <= b) made a > b
    "drawn": drawn,
}


def stored(dtype: DType) -> dict[str, DType]:
    return {"f": dtype, "n": dtype, "b": dtypes.bool_, "i": dtypes.int32}


def arrays(roots: list[Value], keep: tuple[float, ...] = (np.nan, 0.75, -2.5)) -> dict[str, Array]:
    """Every name of the roots at every mixture of these numbers, or at draws from them where there are many."""
    named = list({str(v.data): v for v in uses(roots) if v.op == "name"}.items())
    rng = np.random.default_rng(7)
    if 0 < len(named) <= 5:
        mixed = np.array(list(product(keep, repeat=len(named))), np.float64).reshape(-1, len(named)).T
    else:
        mixed = rng.choice(keep, (len(named), 300))
    found = {}
    for (name, value), column in zip(named, mixed, strict=True):
        if value.dtype.is_floating:
            found[name] = column.astype(value.dtype.compute)
        elif value.dtype.kind == "b":
            found[name] = column > 0
        else:
            found[name] = rng.integers(0, 3, column.shape).astype(value.dtype.compute)
    return found


def indifferent(roots: list[Value], what: str) -> None:
    """The values of an honest device, which those of every other must be, bit by bit."""
    inputs = arrays(roots)
    emitted = Emitted(roots)
    told = emitted.run(inputs)
    for name, judge in JUDGES.items():
        for wanted, got in zip(told, emitted.run(inputs, judge=judge), strict=True):
            np.testing.assert_array_equal(got, wanted, err_msg=f"{what}: comparisons with NaN are {name}")


def floating_rows() -> Iterator[Row]:
    for row in ROWS:
        if "f" in row.signature.inputs + row.signature.outputs or "n" in row.signature.inputs:
            yield row
            yield from (gradient_row(row, i) for i, text in enumerate(row.gradients) if text)


@pytest.mark.parametrize("dtype", WIDTHS, ids=str)
def test_no_row_and_no_gradient_depends_on_what_a_comparison_says_of_nan(dtype: DType):
    for row in floating_rows():
        lowered = lower_row(row, stored(dtype), native, macros=macros_of(dtype))
        indifferent([lowered.results[0][1]], row.name)


@pytest.mark.parametrize("dtype", WIDTHS, ids=str)
def test_nan_comes_out_where_it_does_in_numpy(dtype: DType):
    for row in floating_rows():
        if row.scalars or "i" in row.signature.inputs:
            continue
        lowered = lower_row(row, stored(dtype), native, macros=macros_of(dtype))
        root = lowered.results[0][1]
        inputs = arrays([root])
        if not inputs:  # a constant
            continue
        read = {name: inputs[name] for name in row.args if name in inputs}
        shape = next(iter(read.values())).shape
        wanted = np.empty(shape, root.dtype.compute)
        with np.errstate(all="ignore"):
            given = [read.get(name, np.zeros(shape, dtype.compute)) for name in row.args]
            compiled(row.value, row.args)(wanted, *given)
        (got,) = Emitted([root]).run(inputs)
        np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted), err_msg=f"{row.name} of {read}")


@pytest.mark.parametrize("dtype", WIDTHS, ids=str)
def test_no_update_depends_on_what_a_comparison_says_of_nan(dtype: DType):
    for row in UPDATES:
        by_letter = dict.fromkeys(row.letters, dtype)
        lowered = lower_update(row, list(row.statements), by_letter, native, macros=macros_of(dtype))
        indifferent([value for _, value in lowered.results], row.name)


@pytest.mark.parametrize("dtype", WIDTHS, ids=str)
def test_no_reduction_depends_on_what_a_comparison_says_of_nan(dtype: DType):
    for row in REDUCTIONS:
        if row.signature.inputs == "b":
            continue
        builder = Builder(dtype, native=native, macros=macros_of(dtype))
        of = {name: dtypes.int32 if name in row.index else dtype for name in row.state}
        pairs = {f"{name}{side}": builder.name(f"{name}{side}", of[name]) for name in row.state for side in "12"}
        roots = [builder.build(parse(text, tuple(pairs)), pairs, of[name]) for name, text in zip(row.state, row.combine, strict=True)]  # fmt: skip
        indifferent(roots, row.name)


@pytest.mark.parametrize("dtype", WIDTHS, ids=str)
def test_no_fused_row_depends_on_what_a_comparison_says_of_nan(dtype: DType):
    for row in FUSED:
        lowered = lower_fused(row, {"f": dtype, "n": dtype, "i": dtypes.int32}, native, macros=macros_of(dtype))
        for step in lowered.steps:
            for value in (step.value, step.joined):
                if value is not None:
                    indifferent([value], f"{row.name}: {step.statement.target}")


def flushed(x: Array) -> Array:
    """Denormals as zeros."""
    return np.where(np.abs(x) < np.finfo(x.dtype).tiny, 0, x) if x.dtype.kind == "f" else x


@pytest.mark.parametrize("dtype", WIDTHS, ids=str)
def test_g06_no_row_takes_a_denormal_number_for_zero(dtype: DType, monkeypatch: pytest.MonkeyPatch):
    """Of a ReLU's gradient nothing is lost at 1e-40 on a device whose comparisons flush (NVIDIA's Vulkan)."""
    least = float(np.finfo(dtype.compute).tiny)
    honest = dict(simulated_spirv.COMPARED)
    flushing = {code: lambda a, b, f=f: f(flushed(a), flushed(b)) for code, f in honest.items()}
    for row in floating_rows():
        if row.name.partition(".")[0] in (
            "atan2",
            "celu",
        ):  # they divide what they compare, and such a device flushes that
            continue
        root = lower_row(row, stored(dtype), native, macros=macros_of(dtype)).results[0][1]
        inputs, emitted = arrays([root], (least / 1000, -least / 1000, least / 2000, 0.0, -0.0, 0.75)), Emitted([root])
        (wanted,) = emitted.run(inputs)
        with monkeypatch.context() as patched:
            patched.setattr(simulated_spirv, "COMPARED", flushing)
            (got,) = emitted.run(inputs)
        np.testing.assert_array_equal(flushed(got), flushed(wanted), err_msg=f"{row.name} of {inputs}")


def test_this_finds_a_comparison_that_trusts_the_device(monkeypatch: pytest.MonkeyPatch):
    """Without the bits, exp clamps NaN away, as it did on NVIDIA's driver."""
    monkeypatch.setattr(Emitter, "_numbers", lambda self, value, args: [])
    exp = next(row for row in ROWS if row.name == "exp")
    lowered = lower_row(exp, stored(dtypes.float32), native, macros=macros_of(dtypes.float32))
    with pytest.raises(AssertionError, match="exp: comparisons with NaN are"):
        indifferent([lowered.results[0][1]], "exp")
